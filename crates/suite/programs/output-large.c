/* A megabyte of output in writes of all sizes, while time goes by: nothing lost, doubled or out of order. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static char text[30000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = i % 64 == 63 ? '\n' : ' ' + 1 + i * 7 % 90;
    for (int step = 0; step < 40; step++) {
        size_t n = 64 * (1 + step * 11 % 468);
        write_all(1, text, n);
        struct iovec parts[3] = {{"<", 1}, {text, 640}, {">\n", 2}};
        CHECK(writev(1, parts, 3) == 643);
        while (elapsed_ms() < suite_ms * step / 40) sleep_ms(1);
    }
    say("ok\n");
    return 0;
}
