/* vmsplice gives user pages to a pipe. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static char data[16384] __attribute__((aligned(4096))), in[16384];
    int a[2];
    CHECK(pipe(a) == 0);
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        struct iovec part = {data, sizeof data};
        CHECK(vmsplice(a[1], &part, 1, 0) == sizeof data);
        read_all(a[0], in, sizeof in);
        CHECK(filled(in, sizeof in, round));
        CHECK(write(a[1], in, 5000) == 5000);
        part = (struct iovec){data, 5000};
        CHECK(vmsplice(a[0], &part, 1, 0) == 5000 && filled(data, 5000, round));
    }
    return suite_end();
}
