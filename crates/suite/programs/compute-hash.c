/* Hashing with a table, without a single system call for long. */
#include "suite.h"
static uint32_t table[256];
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
        table[i] = c;
    }
    static unsigned char data[1 << 20];
    fill(data, sizeof data, 11);
    uint32_t first = 0;
    while (going_on()) {
        uint32_t crc = ~0u;
        for (size_t i = 0; i < sizeof data; i++) crc = table[(crc ^ data[i]) & 255] ^ crc >> 8;
        if (!first) first = crc;
        CHECK(crc == first);
    }
    say("crc %08x\n", ~first);
    return suite_end();
}
