/* A listening Unix socket by name and an abstract one; SO_PEERCRED; getpeername. */
#include "suite.h"
static void talk(struct sockaddr_un *at, socklen_t n, unsigned round) {
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), a = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name;
    socklen_t size = sizeof name;
    CHECK(listener >= 0 && a >= 0 && bind(listener, (void *)at, n) == 0 && listen(listener, 3) == 0);
    CHECK(connect(a, (void *)at, n) == 0);
    int b = accept(listener, NULL, NULL);
    CHECK(b >= 0 && getpeername(a, (void *)&name, &size) == 0 && size == n && memcmp(&name, at, n) == 0);
    struct ucred who;
    size = sizeof who;
    CHECK(getsockopt(b, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0);
    CHECK(who.pid == getpid() && who.uid == getuid() && who.gid == getgid());
    CHECK(write(a, &round, sizeof round) == sizeof round && close(a) == 0);
    unsigned got;
    CHECK(read(b, &got, sizeof got) == sizeof got && got == round && read(b, &got, 1) == 0);
    CHECK(close(b) == 0 && close(listener) == 0);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (unsigned round = 0; going_on(); round++) {
        struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "socket"};
        talk(&at, offsetof(struct sockaddr_un, sun_path) + 7, round);
        CHECK(unlink("socket") == 0);
        int n = sprintf(at.sun_path + 1, "pando-suite-%d", getpid());
        at.sun_path[0] = 0;
        talk(&at, offsetof(struct sockaddr_un, sun_path) + 1 + n, round);
    }
    return suite_end();
}
