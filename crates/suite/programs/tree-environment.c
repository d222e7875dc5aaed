/* Environment and arguments across exec: empty ones, odd bytes, a long one, hundreds; all arrive, in order. */
#include "suite.h"
extern char **environ;
static uint64_t sum_of(char **list) {
    uint64_t sum = 7;
    for (; *list; list++) sum = sum * 31 + digest(*list, strlen(*list) + 1);
    return sum;
}
static int as_child(char **argv) {
    uint64_t arguments = strtoull(getenv("ARGUMENTS"), NULL, 10), all = strtoull(argv[2], NULL, 10);
    return sum_of(argv + 3) == arguments && sum_of(environ) == all ? 44 : 45;
}
static int run(char **arguments, char **variables) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execve("/proc/self/exe", arguments, variables);
        _exit(99);
    }
    return WEXITSTATUS(wait_for(pid));
}
int main(int argc, char **argv) {
    if (argc > 3 && strcmp(argv[1], "child") == 0) return as_child(argv);
    suite_begin(argc, argv);
    static char large[100000], first[64], all[32], texts[300][40], *arguments[310], *variables[310];
    for (int round = 0; going_on(); round++) {
        int n = 0, v = 0, size = 1 + round * 7919 % (int)sizeof large;
        arguments[n++] = argv[0];
        arguments[n++] = "child";
        arguments[n++] = all;
        arguments[n++] = "";
        arguments[n++] = "a b\n\t'\"\\ $HOME \xff\x01";
        for (int i = 0; i < size - 1; i++) large[i] = 'a' + (i + round) % 26;
        large[size - 1] = 0;
        arguments[n++] = large;
        for (int i = 0; i < round * 37 % 300; i++) {
            sprintf(texts[i], "%d=%d", i, i * round);
            arguments[n++] = variables[1 + v++] = texts[i];
        }
        arguments[n] = variables[1 + v] = NULL;
        sprintf(first, "ARGUMENTS=%llu", (unsigned long long)sum_of(arguments + 3));
        variables[0] = first;
        sprintf(all, "%llu", (unsigned long long)sum_of(variables));
        CHECK(run(arguments, variables) == 44);
        variables[1] = "ONE=changed";
        variables[2] = NULL;
        CHECK(run(arguments, variables) == 45);
        sleep_ms(3);
    }
    return suite_end();
}
