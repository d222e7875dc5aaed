/* popen and system: a shell, its output, its status. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (int round = 0; going_on(); round++) {
        char command[100], line[100];
        sprintf(command, "echo $((%d * 3)); exit %d", round, round % 100);
        FILE *out = popen(command, "r");
        CHECK(out && fgets(line, sizeof line, out) && atoi(line) == round * 3 && WEXITSTATUS(pclose(out)) == round % 100);
        if (round % 4 == 0) CHECK(WEXITSTATUS(system("exit 77")) == 77);
        sleep_ms(20);
    }
    return suite_end();
}
