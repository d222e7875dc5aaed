/* Arguments and environment: read, grown, and overwritten in place as daemons do with their title. */
#include "suite.h"
extern char **environ;
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char value[200], name[32];
    size_t room = strlen(argv[0]);
    char *first = strdup(argv[0]);
    CHECK(first && getenv("PATH"));
    char *path = strdup(getenv("PATH"));
    for (int round = 0; going_on(); round++) {
        for (int i = 0; i < 20; i++) {
            sprintf(name, "SUITE_%d", i);
            sprintf(value, "%d of %d", i, round);
            CHECK(setenv(name, value, 1) == 0 && strcmp(getenv(name), value) == 0);
        }
        CHECK(unsetenv("SUITE_3") == 0 && !getenv("SUITE_3") && strcmp(getenv("PATH"), path) == 0);
        memset(argv[0], 'a' + round % 26, room);
        char shown[PATH_MAX];
        int fd = open("/proc/self/cmdline", O_RDONLY);
        ssize_t n = read(fd, shown, sizeof shown);
        CHECK(n > (ssize_t)room && close(fd) == 0 && shown[0] == 'a' + round % 26 && memcmp(shown, argv[0], room) == 0);
        strcpy(argv[0], first);
    }
    return suite_end();
}
