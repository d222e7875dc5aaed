/* Calls that report a longer length than the buffer has: nothing behind the buffer is touched. */
#include "suite.h"
#include <sys/socket.h>
#include <sys/un.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "a-name-that-is-longer-than-eight-bytes");
    CHECK(bind(listener, (struct sockaddr *)&name, sizeof name) == 0 && listen(listener, 5) == 0);
    for (unsigned round = 0; going_on(); round++) {
        struct { char buffer[8]; unsigned behind[40]; } place;
        for (unsigned i = 0; i < 40; i++) place.behind[i] = round * 77 + i;
        socklen_t length = sizeof place.buffer;
        CHECK(getsockname(listener, (struct sockaddr *)place.buffer, &length) == 0 && length > sizeof place.buffer);
        for (unsigned i = 0; i < 40; i++) CHECK(place.behind[i] == round * 77 + i);
        CHECK(memcmp(place.buffer + 2, "a-name", 6) == 0);
    }
    CHECK(unlink(name.sun_path) == 0);
    return suite_end();
}
