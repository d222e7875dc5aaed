/* A TCP conversation with a partner that echoes, with large blocking writes both ways. */
#include "suite.h"
#include <netinet/in.h>
static struct sockaddr_in at = {.sin_family = AF_INET};
static int listener;
static void body(void) {
    static char buffer[100000];
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    for (;;) {
        uint32_t n;
        ssize_t got = recv(fd, &n, sizeof n, MSG_WAITALL);
        if (got == 0) return;
        CHECK(got == sizeof n && n <= sizeof buffer);
        read_all(fd, buffer, n);
        if (n % 4 == 0) sleep_ms(4);
        write_all(fd, buffer, n);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof at;
    CHECK(listener >= 0 && bind(listener, (void *)&at, sizeof at) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (void *)&at, &len) == 0);
    pid_t pid = partner(body);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (void *)&at, sizeof at) == 0);
    static char out[100000], in[100000];
    for (unsigned round = 0; going_on(); round++) {
        uint32_t n = 1 + round * 7919 % sizeof out;
        fill(out, n, round);
        write_all(fd, &n, sizeof n);
        write_all(fd, out, n);
        CHECK(recv(fd, in, n, MSG_WAITALL) == (ssize_t)n && filled(in, n, round));
    }
    CHECK(shutdown(fd, SHUT_WR) == 0 && wait_for(pid) == 0);
    return suite_end();
}
