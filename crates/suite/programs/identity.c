/* pid, parent, group, session, user, groups, host name: the same all the time. */
#include "suite.h"
#include <grp.h>
#include <sys/fsuid.h>
#include <sys/utsname.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pid_t pid = getpid(), parent = getppid(), group = getpgrp(), session = getsid(0), thread = gettid();
    uid_t r, e, s;
    gid_t groups[100], now[100];
    struct utsname name, name_now;
    int count = getgroups(100, groups);
    CHECK(count >= 0 && uname(&name) == 0 && strcmp(name.sysname, "Linux") == 0 && thread == pid);
    uid_t user = getuid();
    while (going_on()) {
        CHECK(syscall(SYS_getpid) == pid && getppid() == parent && getpgrp() == group && getsid(0) == session);
        CHECK(syscall(SYS_gettid) == thread && getpgid(pid) == group);
        CHECK(getresuid(&r, &e, &s) == 0 && r == user && e == user && s == user);
        CHECK(getresgid(&r, &e, &s) == 0 && r == getgid() && e == getegid());
        CHECK(getgroups(100, now) == count && memcmp(groups, now, count * sizeof *now) == 0);
        CHECK(uname(&name_now) == 0 && memcmp(&name, &name_now, sizeof name) == 0);
        char host[256];
        CHECK(gethostname(host, sizeof host) == 0 && strcmp(host, name.nodename) == 0);
        CHECK(syscall(SYS_set_tid_address, (long)&thread) == pid);
    }
    syscall(SYS_set_tid_address, NULL);
    return suite_end();
}
