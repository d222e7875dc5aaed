/* Standard input, output and error: end of file, and both outputs in their own order. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char c;
    for (int round = 0; going_on(); round++) CHECK(read(0, &c, 1) == 0);
    fprintf(stderr, "to standard error\n");
    printf("to standard output\n");
    fflush(stdout);
    for (int i = 0; i < 50; i++) dprintf(2, "error line %d\n", i);
    return suite_end();
}
