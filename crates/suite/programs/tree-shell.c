/* A shell with a loop, subshells, pipes, substitution and a trap, again and again, its output read back. */
#include "suite.h"
static const char script[] =
    "i=0; while [ $i -lt 4 ]; do\n"
    "  n=$(echo $i | (read x; echo $((x * 10)))) && (echo \"$n\"; (exit $i); echo $?) | sed s/^/-/\n"
    "  i=$((i + 1))\n"
    "done\n"
    "trap 'echo bye' EXIT\n"
    "(trap 'exit 7' TERM; kill -TERM $(exec sh -c 'echo $PPID'); sleep 9); echo $?\n"
    "sleep 0.01 & wait $! && { echo a; echo b >&2; } 2>&1 | tr ab xy\n"
    "exit 21";
static const char want[] = "-0\n-0\n-10\n-1\n-20\n-2\n-30\n-3\n7\nx\ny\nbye\n";
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    while (going_on()) {
        int p[2];
        CHECK(pipe2(p, O_CLOEXEC) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            dup2(p[1], 1);
            execl("/bin/sh", "sh", "-c", script, (char *)NULL);
            _exit(99);
        }
        close(p[1]);
        char in[500];
        ssize_t n = 0, got;
        while ((got = read(p[0], in + n, sizeof in - n)) > 0) n += got;
        CHECK(WEXITSTATUS(wait_for(pid)) == 21 && close(p[0]) == 0);
        CHECK(n == sizeof want - 1 && memcmp(in, want, n) == 0);
    }
    return suite_end();
}
