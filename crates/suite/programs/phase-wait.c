/* Blocked in one call. With a second argument that is a read(2) of its input, which ends when that does, else a sleep. */
#include "suite.h"
static unsigned char data[1 << 20];
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char c;
    fill(data, sizeof data, 5);
    say("ready\n");
    if (argc > 2) CHECK(read(0, &c, 1) == 0);
    else sleep_ms(suite_ms);
    CHECK(filled(data, sizeof data, 5));
    return suite_end();
}
