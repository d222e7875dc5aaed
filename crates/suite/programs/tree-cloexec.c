/* Close-on-exec: the marked descriptors are gone after exec, the others are the same files at the same positions. */
#include "suite.h"
enum { COUNT = 40 };
static int as_child(unsigned open_ones) {
    int at_all = 0;
    for (int fd = 100; fd < 100 + COUNT; fd++) {
        off_t at = lseek(fd, 0, SEEK_CUR);
        int should = open_ones >> ((fd - 100) % 8) & 1;
        if ((at >= 0) != should || (should && at != fd)) return 90;
        at_all += should;
    }
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) return 91;
    for (struct dirent *entry; (entry = readdir(dir));) {
        int fd = atoi(entry->d_name);
        at_all -= fd >= 100 && fd < 100 + COUNT;
    }
    return at_all ? 92 : 66;
}
int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "child") == 0) return as_child(atoi(argv[2]));
    suite_begin(argc, argv);
    char text[32];
    for (unsigned round = 0; going_on(); round++) {
        unsigned open_ones = round * 37 % 256;
        for (int fd = 100; fd < 100 + COUNT; fd++) {
            int marked = !(open_ones >> ((fd - 100) % 8) & 1), flag = fd % 3 && marked ? O_CLOEXEC : 0;
            int got = open("file", O_RDWR | O_CREAT | flag, 0600);
            CHECK(got >= 0 && dup3(got, fd, fd % 2 && marked ? O_CLOEXEC : 0) == fd && close(got) == 0);
            CHECK(fcntl(fd, F_SETFD, marked ? FD_CLOEXEC : 0) == 0 && lseek(fd, fd, SEEK_SET) == fd);
        }
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            sprintf(text, "%u", open_ones);
            execl("/proc/self/exe", argv[0], "child", text, (char *)NULL);
            _exit(99);
        }
        CHECK(WEXITSTATUS(wait_for(pid)) == 66);
        for (int fd = 100; fd < 100 + COUNT; fd++) CHECK(lseek(fd, 0, SEEK_CUR) == fd);
        sleep_ms(3);
    }
    CHECK(unlink("file") == 0);
    return suite_end();
}
