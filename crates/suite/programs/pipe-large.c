/* A blocking write of 1 MB into a pipe is whole, however slowly the partner reads. */
#include "suite.h"
static int p[2];
static void body(void) {
    static char in[1 << 20];
    close(p[1]);
    for (unsigned round = 0;; round++) {
        size_t done = 0;
        while (done < sizeof in) {
            size_t want = sizeof in - done < 70000 ? sizeof in - done : 70000;
            ssize_t got = read(p[0], in + done, want);
            if (got == 0 && done == 0) return;
            if (got == 0) _exit(3); // the writer has been killed, or will see this
            CHECK(got > 0);
            done += got;
            if (done % 3 == 0) sleep_ms(1);
        }
        CHECK(filled(in, sizeof in, round));
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static char out[1 << 20];
    CHECK(pipe(p) == 0);
    pid_t pid = partner(body);
    close(p[0]);
    for (unsigned round = 0; going_on(); round++) {
        fill(out, sizeof out, round);
        CHECK(write(p[1], out, sizeof out) == sizeof out);
    }
    close(p[1]);
    CHECK(wait_for(pid) == 0);
    return suite_end();
}
