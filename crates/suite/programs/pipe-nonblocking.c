/* A non-blocking pipe: partial writes, EAGAIN when full and when empty, nothing lost. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static char out[50000], in[50000];
    int p[2];
    CHECK(pipe2(p, O_NONBLOCK) == 0);
    size_t put = 0, got = 0;
    while (going_on()) {
        for (;;) {
            for (size_t i = 0; i < sizeof out; i++) out[i] = pattern_at(put + i, 9);
            ssize_t n = write(p[1], out, sizeof out);
            if (n < 0) break;
            CHECK(n > 0);
            put += n;
        }
        CHECK(errno == EAGAIN && put - got <= 65536 && put - got > 8192);
        for (;;) {
            ssize_t n = read(p[0], in, 30011);
            if (n < 0) break;
            CHECK(n > 0);
            for (ssize_t i = 0; i < n; i++) CHECK((unsigned char)in[i] == pattern_at(got + i, 9));
            got += n;
        }
        CHECK(errno == EAGAIN && put == got);
    }
    return suite_end();
}
