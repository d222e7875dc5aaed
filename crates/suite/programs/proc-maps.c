/* /proc/self/maps shows the stack, the heap, the program and a new mapping where the program sees them. */
#include "suite.h"
static int inside(const void *at, const char *want_flags, const char *want_name) {
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    char line[1024], flags[8];
    unsigned long from, to, last = 0;
    int found = 0;
    while (fgets(line, sizeof line, maps)) {
        CHECK(sscanf(line, "%lx-%lx %7s", &from, &to, flags) == 3 && from < to && from >= last);
        last = to;
        if ((unsigned long)at < from || (unsigned long)at >= to) continue;
        CHECK(strncmp(flags, want_flags, 3) == 0 && (!want_name || strstr(line, want_name)));
        found = 1;
    }
    CHECK(fclose(maps) == 0);
    return found;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char here;
    char *heap = malloc(1000);
    while (going_on()) {
        CHECK(inside(&here, "rw-", "[stack]") && inside(heap, "rw-", "[heap]") && inside((void *)main, "r-x", "proc-maps"));
        char *at = mmap(NULL, 4096 * 3, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(at != MAP_FAILED && inside(at + 4096, "r--", NULL) && mprotect(at + 4096, 4096, PROT_NONE) == 0);
        CHECK(inside(at + 4096, "---", NULL) && munmap(at, 4096 * 3) == 0 && !inside(at + 8192, "r--", NULL));
    }
    free(heap);
    return suite_end();
}
