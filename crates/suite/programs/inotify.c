/* inotify tells what happened to a directory, in order. (IN_CLOSE_WRITE has a descriptor of its own: it comes with the
 * last reference to the file, and whoever looks at /proc/PID/fd at that instant has one.) */
#include "suite.h"
#include <sys/inotify.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(mkdir("watched", 0755) == 0);
    int fd = inotify_init1(IN_NONBLOCK), watch = inotify_add_watch(fd, "watched", IN_CREATE | IN_MOVE | IN_DELETE | IN_MODIFY);
    int closes = inotify_init1(IN_NONBLOCK), closing = inotify_add_watch(closes, "watched", IN_CLOSE_WRITE);
    CHECK(fd >= 0 && watch >= 0 && closes >= 0 && closing >= 0);
    char buffer[4096] __attribute__((aligned(8)));
    uint32_t want[] = {IN_CREATE, IN_MODIFY, IN_MOVED_FROM, IN_MOVED_TO, IN_DELETE};
    while (going_on()) {
        CHECK_ERROR(read(fd, buffer, sizeof buffer), EAGAIN);
        int file = open("watched/a", O_WRONLY | O_CREAT, 0600);
        CHECK(file >= 0 && write(file, "x", 1) == 1 && close(file) == 0 && rename("watched/a", "watched/b") == 0 && unlink("watched/b") == 0);
        ssize_t n = read(fd, buffer, sizeof buffer), at = 0;
        uint32_t cookie = 0;
        for (int i = 0; i < 5; i++) {
            struct inotify_event *event = (void *)(buffer + at);
            CHECK(at < n && event->wd == watch && event->mask == want[i]);
            CHECK(strcmp(event->name, i < 3 ? "a" : "b") == 0);
            if (i == 2) cookie = event->cookie;
            if (i == 3) CHECK(event->cookie == cookie && cookie != 0);
            at += sizeof *event + event->len;
        }
        CHECK(at == n);
        struct pollfd closed = {closes, POLLIN, 0};
        CHECK(poll(&closed, 1, 5000) == 1);
        struct inotify_event *event = (void *)buffer;
        CHECK(read(closes, buffer, sizeof buffer) == (ssize_t)(sizeof *event + event->len));
        CHECK(event->wd == closing && event->mask == IN_CLOSE_WRITE && strlen(event->name) == 1);
    }
    return suite_end();
}
