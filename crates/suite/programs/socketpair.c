/* Socket pairs: a stream joins, datagrams and packets keep their bounds. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}, pair[3][2];
    char out[3000], in[6000];
    for (int k = 0; k < 3; k++) CHECK(socketpair(AF_UNIX, kinds[k], 0, pair[k]) == 0);
    for (unsigned round = 0; going_on(); round++) {
        for (int k = 0; k < 3; k++) {
            size_t n = 100 + round * 31 % 2900;
            fill(out, n, round);
            CHECK(send(pair[k][0], out, n, 0) == (ssize_t)n && send(pair[k][0], out, 50, 0) == 50);
            CHECK(recv(pair[k][1], in, 10, MSG_PEEK) == 10 && filled(in, 10, round));
            ssize_t got = recv(pair[k][1], in, sizeof in, 0);
            CHECK(got == (ssize_t)(k == 0 ? n + 50 : n) && filled(in, n, round));
            if (k > 0) CHECK(recv(pair[k][1], in, 20, MSG_TRUNC) == 50 && filled(in, 20, round));
            CHECK_ERROR(recv(pair[k][1], in, 1, MSG_DONTWAIT), EAGAIN);
        }
    }
    CHECK(shutdown(pair[0][0], SHUT_WR) == 0 && read(pair[0][1], in, 1) == 0);
    return suite_end();
}
