/* process_vm_readv and process_vm_writev on oneself and on a child. */
#include "suite.h"
enum { SIZE = 20000 };
static unsigned char *data;
static int gate[2];
static void body(void) {
    fill(data, SIZE, 77);
    CHECK(write(gate[1], "r", 1) == 1);
    for (;;) pause();
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    data = malloc(SIZE);
    unsigned char *in = malloc(SIZE);
    char c;
    CHECK(data && in && pipe(gate) == 0);
    pid_t pid = partner(body);
    CHECK(read(gate[0], &c, 1) == 1);
    struct iovec local = {in, SIZE}, remote = {data, SIZE};
    for (unsigned round = 0; going_on(); round++) {
        fill(data, SIZE, round);
        CHECK(process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == SIZE && filled(in, SIZE, round));
        fill(in, SIZE, round + 1);
        CHECK(process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == SIZE && filled(data, SIZE, round + 1));
        memset(in, 0, SIZE);
        CHECK(process_vm_readv(pid, &local, 1, &remote, 1, 0) == SIZE && filled(in, SIZE, 77));
        CHECK_ERROR(process_vm_readv(pid, &local, 1, &(struct iovec){(void *)8, 10}, 1, 0), EFAULT);
    }
    CHECK(kill(pid, SIGKILL) == 0 && WTERMSIG(wait_for(pid)) == SIGKILL);
    return suite_end();
}
