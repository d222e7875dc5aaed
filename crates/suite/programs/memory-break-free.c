/* The break goes down and up again between calls: what was there, from calls too, is gone, for calls, children and protections. */
#include "suite.h"
#define PAGES 24
static char *base;
static int ends[2];
static void set(uintptr_t to) { CHECK((uintptr_t)syscall(SYS_brk, to) == to); }
/* A call writes a page of the heap; nothing of it may be left when the break has been below it. */
static void page_by_call(char *page, char what) {
    char bytes[4096];
    memset(bytes, what, sizeof bytes);
    CHECK(write(ends[1], bytes, sizeof bytes) == sizeof bytes && read(ends[0], page, 4096) == 4096 && page[77] == what);
}
static void zero_for_calls(const char *page) {
    char bytes[4096];
    CHECK(write(ends[1], page, 4096) == 4096 && read(ends[0], bytes, 4096) == 4096);
    for (int i = 0; i < 4096; i++) CHECK(bytes[i] == 0);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    base = (char *)(((uintptr_t)sbrk(0) + 4095) & ~4095ul);
    CHECK(pipe(ends) == 0);
    for (unsigned round = 0; going_on(); round++) {
        char *page = base + 4096 * (1 + round % (PAGES - 2));
        uintptr_t top = (uintptr_t)base + 4096 * PAGES;
        set(top);
        page_by_call(page, 'x');
        for (int i = 0; i < 3; i++) {
            set((uintptr_t)base);
            set(top);
        }
        zero_for_calls(page);
        page_by_call(page, 'y');
        set((uintptr_t)page);
        set(top - 1234);
        // A child has the break to the byte, and finds nothing that was below it before.
        if (round % 4 == 0) {
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) {
                if ((uintptr_t)syscall(SYS_brk, 0) != top - 1234) _exit(1);
                for (int i = 0; i < 4096; i++)
                    if (page[i]) _exit(2);
                _exit(7);
            }
            int status;
            CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
            // What the fork has sent home goes, too.
            page_by_call(page, 'z');
            set((uintptr_t)page);
            set(top);
            zero_for_calls(page);
        }
        set(top);
        // A protection ends where the break has been below it.
        CHECK(mprotect(page, 4096, PROT_READ) == 0);
        set((uintptr_t)page);
        set(top);
        *page = 1;
        page_by_call(page, 'p');
        fill(base, 4096 * PAGES, round);
        for (int i = 0; i < 200; i++) {
            set((uintptr_t)page + i);
            set(top - i);
            CHECK((uintptr_t)syscall(SYS_brk, 0) == top - i);
        }
        // A move finds it in a call, with the break in the middle of a page.
        set((uintptr_t)page + 77);
        usleep(3000);
        CHECK((uintptr_t)syscall(SYS_brk, 0) == (uintptr_t)page + 77);
        set(top);
        // More of it than home hears of at once.
        if (round % 8 == 0)
            for (int i = 0; i < 1200; i++) {
                set((uintptr_t)page + 4096);
                set(top);
                CHECK(mprotect(page, 4096, PROT_READ | PROT_WRITE | (i % 2 ? PROT_EXEC : 0)) == 0);
            }
        CHECK(filled(base, page - base, round));
        for (char *at = page + 4096; at < (char *)top - 200; at++) CHECK(*at == 0);
        set((uintptr_t)base);
    }
    return suite_end();
}
