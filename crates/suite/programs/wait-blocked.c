/* Blocked in wait while a child works. */
#include "suite.h"
static void body(void) {
    sleep_ms(60);
    _exit(23);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    while (going_on()) CHECK(WEXITSTATUS(wait_for(partner(body))) == 23);
    return suite_end();
}
