/* What threads read and have written for them while another thread spawns is theirs: the child borrows their memory and gives none of it back. */
// suite: flags -pthread
#include "threads.h"
#include <spawn.h>
static void *work(void *number) {
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    unsigned char at[300];
    for (unsigned round = 1; !stopped(); round++) {
        unsigned char from[300];
        fill(from, sizeof from, round + (unsigned)(long)number);
        CHECK(write(pipes[1], from, sizeof from) == sizeof from);
        CHECK(read(pipes[0], at, sizeof at) == sizeof at && filled(at, sizeof at, round + (unsigned)(long)number));
    }
    CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) threads[i] = start(work, i * 1000);
    while (going_on()) {
        pid_t pid;
        char *words[] = {"true", NULL}, *none[] = {NULL};
        CHECK(posix_spawn(&pid, "/bin/true", NULL, NULL, words, none) == 0 && wait_for(pid) == 0);
    }
    stop_all();
    for (int i = 0; i < 3; i++) join(threads[i]);
    return suite_end();
}
