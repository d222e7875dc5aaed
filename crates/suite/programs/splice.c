/* splice and tee move bytes between a file and pipes inside the kernel. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static char data[8192], in[8192];
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644), a[2], b[2];
    CHECK(fd >= 0 && pipe(a) == 0 && pipe(b) == 0);
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        CHECK(pwrite(fd, data, sizeof data, 0) == sizeof data);
        loff_t at = 0;
        CHECK(splice(fd, &at, a[1], NULL, sizeof data, 0) == sizeof data && at == sizeof data);
        CHECK(tee(a[0], b[1], sizeof data, 0) == sizeof data);
        read_all(a[0], in, sizeof in);
        CHECK(filled(in, sizeof in, round));
        memset(in, 0, sizeof in);
        read_all(b[0], in, sizeof in);
        CHECK(filled(in, sizeof in, round));
    }
    return suite_end();
}
