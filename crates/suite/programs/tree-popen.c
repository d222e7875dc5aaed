/* popen for writing and reading with much data, two at once, and close-on-exec by "e". */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char line[200];
    for (int round = 0; going_on(); round++) {
        FILE *to = popen("sort -n > sorted; exit 4", "w");
        CHECK(to);
        for (int i = 0; i < 3000; i++) fprintf(to, "%d\n", (i * 1237 + round) % 3000);
        FILE *from = popen("i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i + 1)); done; exit 6", "re");
        CHECK(from);
        for (int i = 0; i < 300; i++) CHECK(fgets(line, sizeof line, from) && atoi(line + 5) == i);
        CHECK(!fgets(line, sizeof line, from) && WEXITSTATUS(pclose(from)) == 6);
        CHECK(WEXITSTATUS(pclose(to)) == 4);
        FILE *sorted = fopen("sorted", "r");
        CHECK(sorted);
        for (int i = 0; i < 3000; i++) CHECK(fgets(line, sizeof line, sorted) && atoi(line) == i);
        CHECK(!fgets(line, sizeof line, sorted) && fclose(sorted) == 0);
        sleep_ms(5);
    }
    CHECK(unlink("sorted") == 0);
    return suite_end();
}
