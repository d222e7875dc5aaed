/* Thread-local storage: with a first value, zeroed, large, and by key; at other places and never another thread's. */
// suite: flags -pthread
#include "threads.h"
static __thread long first = 77, zero;
static __thread unsigned char large[9000];
static pthread_key_t key;
static sem_t here, on_with_it;
static long *places[4];
static void *work(void *number) {
    long me = (long)number;
    CHECK(first == 77 && zero == 0 && large[8999] == 0 && pthread_getspecific(key) == NULL);
    long *mine = malloc(sizeof *mine);
    *mine = me;
    CHECK(pthread_setspecific(key, mine) == 0);
    places[me] = &first;
    CHECK(sem_post(&here) == 0);
    while (sem_wait(&on_with_it) < 0) CHECK(errno == EINTR);
    for (unsigned round = 0; round < 20; round++) {
        first = me + round;
        zero -= me;
        fill(large, sizeof large, me + round);
        errno = (int)me + 1;
        sched_yield();
        CHECK(first == me + round && filled(large, sizeof large, me + round) && errno == me + 1);
        CHECK(*(long *)pthread_getspecific(key) == me && pthread_getspecific(key) == mine);
    }
    return (void *)zero;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(pthread_key_create(&key, free) == 0 && sem_init(&here, 0, 0) == 0 && sem_init(&on_with_it, 0, 0) == 0);
    first = 1234;
    while (going_on()) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) threads[i] = start(work, i);
        for (int i = 0; i < 4; i++)
            while (sem_wait(&here) < 0) CHECK(errno == EINTR);
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < i; k++) CHECK(places[i] != places[k] && places[i] != &first);
        for (int i = 0; i < 4; i++) CHECK(sem_post(&on_with_it) == 0);
        for (int i = 0; i < 4; i++) CHECK(join(threads[i]) == -20 * i);
        CHECK(first == 1234 && zero == 0 && !pthread_getspecific(key));
    }
    return suite_end();
}
