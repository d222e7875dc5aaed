/* A privileged program changes its user to and fro and acts with that user's rights. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int root = getuid() == 0;
    CHECK(mkdir("private", 0700) == 0);
    for (int round = 0; going_on(); round++) {
        if (root) CHECK(setegid(65534) == 0 && seteuid(65534) == 0);
        if (root) CHECK_ERROR(open("private/x", O_WRONLY | O_CREAT, 0600), EACCES);
        uid_t r, e, s;
        CHECK(getresuid(&r, &e, &s) == 0 && e == (root ? 65534 : getuid()) && geteuid() == e);
        CHECK(getegid() == (root ? 65534 : getgid()));
        if (root) CHECK(seteuid(0) == 0 && setegid(0) == 0);
        int fd = open("private/x", O_WRONLY | O_CREAT, 0600);
        CHECK(fd >= 0 && close(fd) == 0 && unlink("private/x") == 0);
    }
    return suite_end();
}
