/* Threads map, unmap, protect, throw away and write memory, old and new; their children and calls find what they wrote. */
// suite: flags -pthread
#include "threads.h"
#include <spawn.h>
enum { PAGE = 4096, SLOTS = 24, MOST = 40, WORKERS = 3 };
struct slot {
    unsigned char *at;
    int pages;
    unsigned seed[MOST]; // 0: zero; else pattern
    char mapped[MOST], prot[MOST];
};
static struct slot slots[WORKERS + 1][SLOTS];
static unsigned draw(unsigned *s) { return *s = *s * 1664525u + 1013904223u, *s >> 8; }
static void expect(struct slot *s, int i) {
    if (!s->mapped[i] || s->prot[i] == 0) return;
    unsigned char *p = s->at + (size_t)i * PAGE;
    if (s->seed[i]) CHECK(p[0] == pattern_at(0, s->seed[i]) && p[99] == pattern_at(99, s->seed[i]) && p[4095] == pattern_at(4095, s->seed[i]));
    else CHECK(p[0] == 0 && p[99] == 0 && p[4095] == 0);
}
static void check_all(struct slot *mine) {
    for (int k = 0; k < SLOTS; k++)
        if (mine[k].at)
            for (int i = 0; i < mine[k].pages; i++) expect(mine + k, i);
}
static void new_slot(struct slot *s, unsigned *r, int here) {
    s->pages = 1 + draw(r) % (MOST - 1);
    int big = draw(r) % 16 == 0;
    size_t room = big ? 2 << 20 : (size_t)s->pages * PAGE;
    s->at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (here ? 0 : MAP_NORESERVE), -1, 0);
    CHECK(s->at != MAP_FAILED);
    if (big) CHECK(munmap(s->at + (size_t)s->pages * PAGE, room - (size_t)s->pages * PAGE) == 0);
    for (int i = 0; i < s->pages; i++) s->seed[i] = 0, s->mapped[i] = 1, s->prot[i] = 3;
}
static void drop(struct slot *s) {
    for (int i = 0; i < s->pages; i++) expect(s, i);
    CHECK(munmap(s->at, (size_t)s->pages * PAGE) == 0);
    s->at = NULL;
}
static void *work(void *number) {
    unsigned r = (unsigned)(long)number * 7919 + 17;
    struct slot *mine = slots[(long)number];
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    for (unsigned round = 1; !stopped(); round++) {
        struct slot *s = &mine[draw(&r) % SLOTS];
        if (!s->at) {
            new_slot(s, &r, draw(&r) % 2);
            continue;
        }
        int from = draw(&r) % s->pages, n = 1 + draw(&r) % (s->pages - from);
        unsigned char *p = s->at + (size_t)from * PAGE;
        switch (draw(&r) % 12) {
        case 0: drop(s); break;
        case 1: // a part goes, and nothing else must come there: map it again at once
            CHECK(munmap(p, (size_t)n * PAGE) == 0);
            if (mmap(p, (size_t)n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == p)
                for (int i = from; i < from + n; i++) s->seed[i] = 0, s->prot[i] = 3;
            else {
                // Another thread has got it: the rest is given back.
                if (from) CHECK(munmap(s->at, (size_t)from * PAGE) == 0);
                if (from + n < s->pages) CHECK(munmap(p + (size_t)n * PAGE, (size_t)(s->pages - from - n) * PAGE) == 0);
                s->at = NULL;
            }
            break;
        case 2: case 3:
            CHECK(madvise(p, (size_t)n * PAGE, MADV_DONTNEED) == 0);
            for (int i = from; i < from + n; i++) s->seed[i] = 0;
            break;
        case 4: {
            int prot = draw(&r) % 3 == 0 ? 0 : draw(&r) % 2 ? 1 : 3;
            CHECK(mprotect(p, (size_t)n * PAGE, prot) == 0);
            for (int i = from; i < from + n; i++) s->prot[i] = prot;
            break;
        }
        case 5: { // home's kernel reads it
            unsigned char *copy = p, got[3];
            if (s->prot[from] == 0) {
                CHECK_ERROR(write(pipes[1], copy, 3), EFAULT);
            } else {
                CHECK(write(pipes[1], copy, 3) == 3);
                CHECK(read(pipes[0], got, 3) == 3 && memcmp(got, copy, 3) == 0);
            }
            break;
        }
        case 6: // and writes it
            if (s->prot[from] == 3) {
                static __thread unsigned char page[PAGE];
                fill(page, PAGE, round);
                CHECK(write(pipes[1], page, PAGE) == PAGE);
                size_t done = 0;
                while (done < PAGE) {
                    ssize_t got = read(pipes[0], p + done, PAGE - done);
                    CHECK(got > 0);
                    done += got;
                }
                s->seed[from] = round;
            } else {
                CHECK(write(pipes[1], "x", 1) == 1);
                char c;
                CHECK_ERROR(read(pipes[0], p, 1), EFAULT);
                CHECK(read(pipes[0], &c, 1) == 1 && c == 'x');
            }
            break;
        case 7:
            if (round % 8 == 0) {
                pid_t pid = fork();
                CHECK(pid >= 0);
                if (pid == 0) {
                    check_all(mine);
                    for (int k = 0; k < SLOTS; k++)
                        if (mine[k].at) CHECK(munmap(mine[k].at, (size_t)mine[k].pages * PAGE) == 0);
                    _exit(0);
                }
                CHECK(wait_for(pid) == 0);
            }
            break;
        case 8: {
            // It moves.
            int all = 1;
            for (int i = 0; i < s->pages; i++) all &= s->prot[i] == 3;
            if (!all || s->pages + 1 >= MOST || draw(&r) % 8) break;
            CHECK(mprotect(s->at, (size_t)s->pages * PAGE, PROT_READ | PROT_WRITE) == 0);
            unsigned char *to = mremap(s->at, (size_t)s->pages * PAGE, (size_t)(s->pages + 1) * PAGE, MREMAP_MAYMOVE);
            if (to == MAP_FAILED) break; // several areas
            s->at = to;
            s->seed[s->pages] = 0, s->mapped[s->pages] = 1, s->prot[s->pages++] = 3;
            break;
        }
        default:
            for (int i = from; i < from + n; i++)
                if (s->prot[i] == 3) fill(s->at + (size_t)i * PAGE, PAGE, s->seed[i] = round + i);
        }
        for (int i = 0; s->at && i < s->pages; i++) expect(s, i);
        if (round % 64 == 0) check_all(mine);
    }
    check_all(mine);
    for (int k = 0; k < SLOTS; k++)
        if (mine[k].at) drop(mine + k);
    CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_t threads[WORKERS];
    for (long i = 0; i < WORKERS; i++) threads[i] = start(work, i);
    while (going_on()) {
        // Somebody spawns meanwhile.
        pid_t pid;
        char *words[] = {"true", NULL}, *none[] = {NULL};
        CHECK(posix_spawn(&pid, "/bin/true", NULL, NULL, words, none) == 0 && wait_for(pid) == 0);
        sleep_ms(10);
    }
    stop_all();
    for (int i = 0; i < WORKERS; i++) join(threads[i]);
    return suite_end();
}
