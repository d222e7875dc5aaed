/* getdents on a directory that changes: every name once. */
#include "suite.h"
enum { NAMES = 60 };
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char name[32];
    CHECK(mkdir("dir", 0755) == 0);
    for (int i = 0; i < NAMES; i++) {
        sprintf(name, "dir/entry-%d", i);
        CHECK(close(open(name, O_CREAT | O_WRONLY, 0600)) == 0);
    }
    CHECK_ERROR(open("dir/entry-0", O_RDONLY | O_DIRECTORY), ENOTDIR);
    for (unsigned round = 0; going_on(); round++) {
        sprintf(name, "dir/extra-%u", round);
        CHECK(mkdir(name, 0700) == 0);
        DIR *dir = opendir("dir");
        CHECK(dir);
        int seen[NAMES] = {0}, extra = 0, dots = 0, i;
        for (struct dirent *entry; (entry = readdir(dir));) {
            if (sscanf(entry->d_name, "entry-%d", &i) == 1) CHECK(i < NAMES && seen[i]++ == 0);
            else if (strncmp(entry->d_name, "extra-", 6) == 0) extra++;
            else dots++;
        }
        for (i = 0; i < NAMES; i++) CHECK(seen[i] == 1);
        CHECK(extra == 1 && dots == 2 && closedir(dir) == 0 && rmdir(name) == 0);
    }
    return suite_end();
}
