/* Socket options are kept; receive timeouts end a blocked recv. */
#include "suite.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    if (fd < 0) fd = socket(AF_INET, SOCK_STREAM, 0);
    int pair[2];
    CHECK(fd >= 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    for (unsigned round = 0; going_on(); round++) {
        int want = 5 + round % 100, got = 0;
        socklen_t n = sizeof got;
        CHECK(setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &want, sizeof want) == 0);
        CHECK(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &got, &n) == 0 && got == want && n == sizeof got);
        CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &got, &n) == 0 && got == SOCK_STREAM);
        CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &got, &n) == 0 && got == 0);
        struct timeval limit = {0, 10000 + round % 20000};
        CHECK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
        long before = elapsed_ms();
        CHECK_ERROR(recv(pair[0], &got, sizeof got, 0), EAGAIN);
        CHECK(elapsed_ms() - before >= limit.tv_usec / 1000 - 1);
    }
    return suite_end();
}
