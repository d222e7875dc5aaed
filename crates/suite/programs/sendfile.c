/* sendfile from a file to a socket and copy_file_range between files. */
#include "suite.h"
#include <sys/sendfile.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static char data[50000], in[50000];
    int from = open("from", O_RDWR | O_CREAT | O_TRUNC, 0644), to = open("to", O_RDWR | O_CREAT | O_TRUNC, 0644);
    int pair[2];
    CHECK(from >= 0 && to >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        CHECK(pwrite(from, data, sizeof data, 0) == sizeof data);
        off_t offset = 1000;
        CHECK(sendfile(pair[0], from, &offset, 20000) == 20000 && offset == 21000);
        read_all(pair[1], in, 20000);
        CHECK(memcmp(in, data + 1000, 20000) == 0);
        loff_t in_at = 0, out_at = 0;
        while (in_at < (loff_t)sizeof data) CHECK(copy_file_range(from, &in_at, to, &out_at, sizeof data - in_at, 0) > 0);
        CHECK(pread(to, in, sizeof in, 0) == sizeof in && filled(in, sizeof in, round));
    }
    return suite_end();
}
