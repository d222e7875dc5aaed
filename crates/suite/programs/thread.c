/* A second thread now and then: it is made and ends wherever the process is. */
// suite: flags -pthread
#include "suite.h"
#include <pthread.h>
static void *work(void *argument) {
    unsigned long *value = argument, sum = 0;
    for (unsigned long i = 0; i < 100000; i++) sum += i * *value;
    *value = sum;
    return value;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (unsigned long round = 1; going_on(); round++) {
        pthread_t thread;
        unsigned long value = round;
        void *result;
        CHECK(pthread_create(&thread, NULL, work, &value) == 0 && pthread_join(thread, &result) == 0);
        CHECK(result == &value && value == round * 4999950000ul);
        static unsigned char data[50000];
        for (int i = 0; i < 40; i++) {
            fill(data, sizeof data, i);
            CHECK(filled(data, sizeof data, i));
        }
    }
    return suite_end();
}
