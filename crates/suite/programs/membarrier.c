/* membarrier: what the kernel offers can be registered and used all the time. */
#include "suite.h"
#include <linux/membarrier.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    long offered = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    CHECK(offered >= 0);
    int fast = offered & MEMBARRIER_CMD_PRIVATE_EXPEDITED;
    if (fast) CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0);
    while (going_on()) {
        CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) == offered);
        for (int i = 0; fast && i < 100; i++) CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0);
        CHECK_ERROR(syscall(SYS_membarrier, 1 << 30, 0, 0), EINVAL);
    }
    return suite_end();
}
