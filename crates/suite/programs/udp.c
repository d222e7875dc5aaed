/* UDP over loopback: sendto, recvfrom, connected, sendmmsg and recvmmsg. */
#include "suite.h"
#include <netinet/in.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, from, own;
    socklen_t n = sizeof at;
    CHECK(a >= 0 && b >= 0 && bind(b, (void *)&at, n) == 0 && getsockname(b, (void *)&at, &n) == 0);
    char out[4][1000], in[4][1000];
    for (unsigned round = 0; going_on(); round++) {
        size_t size = 1 + round * 17 % 1000;
        fill(out[0], size, round);
        CHECK(sendto(a, out[0], size, 0, (void *)&at, sizeof at) == (ssize_t)size);
        n = sizeof from;
        CHECK(recvfrom(b, in[0], sizeof in[0], 0, (void *)&from, &n) == (ssize_t)size);
        CHECK(filled(in[0], size, round) && n == sizeof from);
        n = sizeof own;
        CHECK(getsockname(a, (void *)&own, &n) == 0 && own.sin_port == from.sin_port);
        struct mmsghdr put[4] = {0}, got[4] = {0};
        struct iovec puts[4], gots[4];
        for (int i = 0; i < 4; i++) {
            fill(out[i], size, round + i);
            puts[i] = (struct iovec){out[i], size - i % size};
            gots[i] = (struct iovec){in[i], sizeof in[i]};
            put[i].msg_hdr = (struct msghdr){.msg_name = &at, .msg_namelen = sizeof at, .msg_iov = &puts[i], .msg_iovlen = 1};
            got[i].msg_hdr = (struct msghdr){.msg_iov = &gots[i], .msg_iovlen = 1};
        }
        CHECK(sendmmsg(a, put, 4, 0) == 4 && recvmmsg(b, got, 4, 0, NULL) == 4);
        for (int i = 0; i < 4; i++) CHECK(got[i].msg_len == puts[i].iov_len && filled(in[i], got[i].msg_len, round + i));
    }
    return suite_end();
}
