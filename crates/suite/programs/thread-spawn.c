/* posix_spawn and popen in several threads at once, beside one that computes. */
// suite: flags -pthread
#include "threads.h"
#include <spawn.h>
extern char **environ;
static void *work(void *number) {
    for (int round = 0; !stopped(); round++) {
        char command[64], line[64];
        sprintf(command, "exit %d", (int)(long)number * 20 + round % 20);
        char *arguments[] = {"sh", "-c", command, NULL};
        pid_t pid;
        CHECK(posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ) == 0);
        CHECK(WEXITSTATUS(wait_for(pid)) == (int)(long)number * 20 + round % 20);
        sprintf(command, "echo %d", round);
        FILE *out = popen(command, "re");
        CHECK(out && fgets(line, sizeof line, out) && atoi(line) == round && pclose(out) == 0);
        sleep_ms(3);
    }
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_t threads[2] = {start(work, 1), start(work, 2)};
    unsigned char data[20000];
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
    stop_all();
    join(threads[0]);
    join(threads[1]);
    return suite_end();
}
