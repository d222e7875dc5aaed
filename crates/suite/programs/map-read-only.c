/* Read-only private mappings of a file: of a part, past its end, of the program itself. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int self = open("/proc/self/exe", O_RDONLY);
    struct stat st;
    CHECK(self >= 0 && fstat(self, &st) == 0);
    static unsigned char page[4096];
    while (going_on()) {
        const unsigned char *at = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, self, 0);
        CHECK(at != MAP_FAILED && memcmp(at, "\177ELF", 4) == 0);
        for (off_t where = 0; where + 4096 <= st.st_size; where += 4096)
            CHECK(pread(self, page, 4096, where) == 4096 && memcmp(page, at + where, 4096) == 0);
        for (off_t i = st.st_size; i % 4096; i++) CHECK(at[i] == 0);
        CHECK(munmap((void *)at, st.st_size) == 0);
    }
    return suite_end();
}
