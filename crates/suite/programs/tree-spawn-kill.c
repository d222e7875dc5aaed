/* A spawned child is killed at once, while it still lets go of a large parent's memory in its exec. */
#include "suite.h"
#include <spawn.h>
extern char **environ;
enum { LARGE = 12 << 20 };
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    unsigned char *large = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(large != MAP_FAILED);
    for (size_t i = 0; i < LARGE; i += 4096) large[i] = i >> 12;
    char *command[] = {"sleep", "100", NULL};
    for (int round = 0; going_on(); round++) {
        pid_t first, second;
        CHECK(posix_spawnp(&first, "sleep", NULL, NULL, command, environ) == 0 && kill(first, SIGKILL) == 0);
        CHECK(posix_spawnp(&second, "sleep", NULL, NULL, command, environ) == 0 && kill(second, SIGKILL) == 0);
        int status = wait_for(first);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        status = wait_for(second);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        CHECK_ERROR(waitpid(-1, NULL, WNOHANG), ECHILD);
    }
    for (size_t i = 0; i < LARGE; i += 4096) CHECK(large[i] == (unsigned char)(i >> 12));
    return suite_end();
}
