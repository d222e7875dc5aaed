/* eventfd: counts add up, semaphore mode counts down, EAGAIN when empty and when full. */
#include "suite.h"
#include <sys/eventfd.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int count = eventfd(0, EFD_NONBLOCK), steps = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK);
    CHECK(count >= 0 && steps >= 0);
    for (uint64_t round = 1; going_on(); round++) {
        uint64_t a = round, b = 3, got, full = ~1ull;
        CHECK(write(count, &a, 8) == 8 && write(count, &b, 8) == 8);
        CHECK(read(count, &got, 8) == 8 && got == a + b);
        CHECK_ERROR(read(count, &got, 8), EAGAIN);
        CHECK(write(count, &full, 8) == 8);
        CHECK_ERROR(write(count, &b, 8), EAGAIN);
        CHECK(read(count, &got, 8) == 8 && got == full);
        CHECK(write(steps, &b, 8) == 8);
        for (int i = 0; i < 3; i++) CHECK(read(steps, &got, 8) == 8 && got == 1);
        CHECK_ERROR(read(steps, &got, 8), EAGAIN);
    }
    return suite_end();
}
