/* Shells that start four children at once and wait, by hand and by xargs -P: all ran, their statuses are known. */
#include "suite.h"
static const char by_hand[] =
    "for i in 1 2 3 4; do\n"
    "  (n=0; while [ $n -lt $((i * 50)) ]; do n=$((n + 1)); done; echo $n > part-$i; exit $i) & pids=\"$pids $!\"\n"
    "done\n"
    "for pid in $pids; do wait $pid; echo $?; done; cat part-1 part-2 part-3 part-4; rm part-?";
static const char by_xargs[] =
    "echo 1 2 3 4 5 6 7 8 | xargs -n 1 -P 4 sh -c 'echo $(($0 * $0)) > square-$0'\n"
    "cat square-?; rm square-?; echo 1 2 3 | xargs -n 1 -P 3 false; echo $?";
static void run(const char *script, const char *want) {
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
    char in[500] = "";
    size_t n = 0;
    for (ssize_t got; (got = read(p[0], in + n, sizeof in - 1 - n)) > 0;) n += got;
    CHECK(wait_for(pid) == 0 && close(p[0]) == 0 && strcmp(in, want) == 0);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    while (going_on()) {
        run(by_hand, "1\n2\n3\n4\n50\n100\n150\n200\n");
        run(by_xargs, "1\n4\n9\n16\n25\n36\n49\n64\n123\n");
    }
    return suite_end();
}
