/* Code made at run time: written, then made executable (W^X), and code that is writable and executable at once. */
#include "suite.h"
typedef int (*function)(int);
static void emit(unsigned char *at, int add) {
    /* lea eax, [rdi + add]; ret */
    unsigned char code[] = {0x8d, 0x87, 0, 0, 0, 0, 0xc3};
    memcpy(code + 2, &add, 4);
    memcpy(at, code, sizeof code);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    unsigned char *strict = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *loose = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(strict != MAP_FAILED && loose != MAP_FAILED);
    for (int round = 0; going_on(); round++) {
        CHECK(mprotect(strict, 8192, PROT_READ | PROT_WRITE) == 0);
        for (int i = 0; i < 100; i++) emit(strict + i * 16, i + round);
        CHECK(mprotect(strict, 8192, PROT_READ | PROT_EXEC) == 0);
        for (int i = 0; i < 100; i++) CHECK(((function)(strict + i * 16))(1000) == 1000 + i + round);
        for (int i = 0; i < 500; i++) {
            emit(loose + 4092, round * i);
            CHECK(((function)(loose + 4092))(7) == 7 + round * i);
        }
    }
    return suite_end();
}
