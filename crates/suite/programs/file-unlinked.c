/* A file without a name (unlinked, O_TMPFILE, memfd) lives as long as its descriptor. */
#include "suite.h"
static void use(int fd, unsigned seed) {
    static char data[10000], in[10000];
    fill(data, sizeof data, seed);
    CHECK(write(fd, data, sizeof data) == sizeof data);
    CHECK(pread(fd, in, sizeof in, 0) == sizeof in && filled(in, sizeof in, seed));
    CHECK(close(fd) == 0);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (unsigned round = 0; going_on(); round++) {
        int fd = open("gone", O_RDWR | O_CREAT | O_EXCL, 0600);
        struct stat st;
        CHECK(fd >= 0 && unlink("gone") == 0 && fstat(fd, &st) == 0 && st.st_nlink == 0);
        use(fd, round);
        fd = open(".", O_TMPFILE | O_RDWR, 0600);
        if (fd >= 0) use(fd, round + 1);
        fd = memfd_create("suite", MFD_ALLOW_SEALING);
        CHECK(fd >= 0 && ftruncate(fd, 10000) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) == 0);
        CHECK_ERROR(ftruncate(fd, 20000), EPERM);
        use(fd, round + 2);
    }
    return suite_end();
}
