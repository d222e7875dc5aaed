/* Orphans of three generations come to the nearest subreaper, which may itself end: then they go on to the next. */
#include "suite.h"
static int report[2];
static void tell(int what) {
    int line[2] = {what, getppid()};
    write_all(report[1], line, sizeof line);
}
static void wait_parent(pid_t old) {
    while (getppid() == old) sleep_ms(1);
}
/* Its parent, a subreaper, gets it when `old` ends; the main process when that one ends, too. */
static void grandchild(pid_t old, pid_t reaper) {
    wait_parent(old);
    tell(3);
    wait_parent(reaper);
    tell(4);
    _exit(14);
}
static void child(pid_t reaper) {
    pid_t me = getpid();
    if (fork() == 0) grandchild(me, reaper);
    tell(2);
    _exit(12);
}
static void reaper_body(void) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t me = getpid(), pid = fork();
    if (pid == 0) child(me);
    tell(1);
    if (WEXITSTATUS(wait_for(pid)) != 12) _exit(1);
    siginfo_t info = {.si_pid = 0};
    /* The orphan is ours and lives. */
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0 || info.si_pid != 0) _exit(2);
    sleep_ms(3);
    _exit(11);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    while (going_on()) {
        CHECK(pipe(report) == 0);
        pid_t reaper = partner(reaper_body);
        close(report[1]);
        int line[2], seen = 0, status;
        while (seen != 15) {
            ssize_t got = read(report[0], line, sizeof line);
            /* Before the orphan could look, its reaper may have ended: then its first new parent is the main process. */
            CHECK(got == sizeof line && line[0] >= 1 && line[0] <= 4 && !(seen & 1 << (line[0] - 1)));
            seen |= 1 << (line[0] - 1);
            if (line[0] == 1 || line[0] == 4) CHECK(line[1] == getpid());
            if (line[0] == 2) CHECK(line[1] == reaper);
            if (line[0] == 3) CHECK(line[1] == reaper || line[1] == getpid());
        }
        CHECK(WEXITSTATUS(wait_for(reaper)) == 11);
        CHECK(wait(&status) > 0 && WEXITSTATUS(status) == 14 && close(report[0]) == 0);
        CHECK_ERROR(wait(NULL), ECHILD);
    }
    return suite_end();
}
