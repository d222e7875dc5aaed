/* /proc/self/fd lists the program's own descriptors and no others. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    close_range(3, ~0u, 0);
    for (int round = 0; going_on(); round++) {
        int extra = 3 + round % 40;
        CHECK(dup2(1, extra) == extra);
        DIR *dir = opendir("/proc/self/fd");
        CHECK(dir);
        int seen = 0, number;
        for (struct dirent *entry; (entry = readdir(dir));) {
            if (sscanf(entry->d_name, "%d", &number) != 1) continue;
            CHECK(number <= 2 || number == extra || number == dirfd(dir));
            seen++;
        }
        CHECK(seen == 5 && closedir(dir) == 0 && close(extra) == 0);
    }
    return suite_end();
}
