/* dlopen and dlclose: libraries come and go while the program runs. */
// suite: flags -ldl
#include "suite.h"
#include <dlfcn.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    while (going_on()) {
        void *library = dlopen("libm.so.6", RTLD_NOW);
        CHECK(library);
        double (*cosine)(double) = (double (*)(double))dlsym(library, "cos");
        CHECK(cosine && cosine(0.0) == 1.0 && cosine(1.0) > 0.5403 && cosine(1.0) < 0.5404);
        CHECK(!dlsym(library, "no_such_name") && dlclose(library) == 0 && !dlopen("no-such-library.so", RTLD_NOW));
    }
    return suite_end();
}
