/* TCP over loopback to oneself: bind, listen, connect, accept, names, half close. */
#include "suite.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, name;
    socklen_t n = sizeof at;
    CHECK(listener >= 0 && bind(listener, (void *)&at, sizeof at) == 0 && listen(listener, 5) == 0);
    CHECK(getsockname(listener, (void *)&at, &n) == 0 && at.sin_port != 0);
    static char out[20000], in[20000];
    for (unsigned round = 0; going_on(); round++) {
        int a = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
        CHECK(a >= 0 && connect(a, (void *)&at, sizeof at) == 0);
        n = sizeof name;
        int b = accept4(listener, (void *)&name, &n, SOCK_CLOEXEC);
        CHECK(b >= 0 && n == sizeof name && name.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
        CHECK(setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
        fill(out, sizeof out, round);
        write_all(a, out, sizeof out);
        CHECK(shutdown(a, SHUT_WR) == 0);
        CHECK(recv(b, in, sizeof in, MSG_WAITALL) == sizeof in && filled(in, sizeof in, round));
        CHECK(recv(b, in, 1, 0) == 0 && send(b, "bye", 3, MSG_NOSIGNAL) == 3);
        CHECK(recv(a, in, 3, MSG_WAITALL) == 3 && memcmp(in, "bye", 3) == 0);
        struct linger hard = {1, 0};
        CHECK(setsockopt(a, SOL_SOCKET, SO_LINGER, &hard, sizeof hard) == 0 && close(a) == 0 && close(b) == 0);
    }
    return suite_end();
}
