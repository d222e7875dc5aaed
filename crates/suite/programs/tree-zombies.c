/* Children that have ended and are not fetched: seen as Z in /proc, without memory or descriptors, signals go nowhere. */
#include "suite.h"
static char state(pid_t pid, pid_t *parent) {
    char path[64], text[512] = "", kind = 0;
    sprintf(path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY);
    if (fd < 0) return 0;
    CHECK(read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
    char *end = strrchr(text, ')');
    CHECK(end && sscanf(end, ") %c %d", &kind, parent) == 2);
    return kind;
}
static int listed(pid_t pid) {
    char text[4096] = "", *at = text;
    int fd = open("/proc/thread-self/children", O_RDONLY), found = 0;
    if (fd < 0) return 1; /* a kernel without this file */
    CHECK(read(fd, text, sizeof text - 1) >= 0 && close(fd) == 0);
    for (int n; sscanf(at, "%d", &n) == 1; at = strchr(at, ' ') + 1) {
        found += n == pid;
        if (!strchr(at, ' ')) break;
    }
    return found;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    while (going_on()) {
        pid_t pids[3], parent;
        for (int i = 0; i < 3; i++) {
            CHECK((pids[i] = fork()) >= 0);
            if (pids[i] == 0) _exit(70 + i);
        }
        for (int i = 0; i < 3; i++) {
            siginfo_t info;
            char path[64], text[16];
            CHECK(waitid(P_PID, pids[i], &info, WEXITED | WNOWAIT) == 0);
            CHECK(state(pids[i], &parent) == 'Z' && parent == getpid() && listed(pids[i]));
            sprintf(path, "/proc/%d/exe", pids[i]);
            CHECK_ERROR(readlink(path, text, sizeof text), ENOENT);
            sprintf(path, "/proc/%d/cmdline", pids[i]);
            int fd = open(path, O_RDONLY);
            CHECK(fd >= 0 && read(fd, text, sizeof text) == 0 && close(fd) == 0);
            CHECK(kill(pids[i], 0) == 0 && kill(pids[i], SIGKILL) == 0);
        }
        for (int i = 2; i >= 0; i--) {
            CHECK(WEXITSTATUS(wait_for(pids[i])) == 70 + i && state(pids[i], &parent) == 0);
            CHECK_ERROR(kill(pids[i], 0), ESRCH);
        }
        sleep_ms(3);
    }
    return suite_end();
}
