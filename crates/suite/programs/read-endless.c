/* Long reads of /dev/zero and /dev/urandom, and getrandom: only a signal may make them short, and there is none. */
#include "suite.h"
#include <sys/random.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static unsigned char data[1 << 20];
    int zero = open("/dev/zero", O_RDONLY), urandom = open("/dev/urandom", O_RDONLY);
    CHECK(zero >= 0 && urandom >= 0);
    while (going_on()) {
        memset(data, 7, sizeof data);
        CHECK(read(zero, data, sizeof data) == sizeof data);
        for (size_t i = 0; i < sizeof data; i += 4096) CHECK(data[i] == 0);
        CHECK(pread(zero, data, sizeof data, 5) == sizeof data);
        CHECK(read(urandom, data, sizeof data) == sizeof data);
        CHECK(getrandom(data, sizeof data, 0) == sizeof data);
    }
    return suite_end();
}
