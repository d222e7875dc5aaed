/* Buffered stdio: what many small prints wrote is read line by line. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    while (going_on()) {
        FILE *file = fopen("file", "w+");
        CHECK(file);
        for (int i = 0; i < 1000; i++) CHECK(fprintf(file, "line %d of %.3f\n", i, i / 7.0) > 0);
        rewind(file);
        char line[100], want[100];
        for (int i = 0; i < 1000; i++) {
            sprintf(want, "line %d of %.3f\n", i, i / 7.0);
            CHECK(fgets(line, sizeof line, file) && strcmp(line, want) == 0);
        }
        CHECK(!fgets(line, sizeof line, file) && feof(file) && fclose(file) == 0);
    }
    return suite_end();
}
