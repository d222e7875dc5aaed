/* Memory through a descriptor: /proc/self/mem shows and changes what the program sees. */
// suite: may stay: a descriptor of its own memory
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { SIZE = 20000 };
    unsigned char *data = malloc(SIZE), *in = malloc(SIZE);
    int fd = open("/proc/self/mem", O_RDWR);
    CHECK(data && in && fd >= 0);
    for (unsigned round = 0; going_on(); round++) {
        fill(data, SIZE, round);
        CHECK(pread(fd, in, SIZE, (off_t)(uintptr_t)data) == SIZE && filled(in, SIZE, round));
        fill(in, 5000, round + 1);
        CHECK(pwrite(fd, in, 5000, (off_t)(uintptr_t)data) == 5000 && filled(data, 5000, round + 1));
        sleep_ms(1);
    }
    return suite_end();
}
