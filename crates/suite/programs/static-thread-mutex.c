/* As thread-mutex, statically linked. */
// suite: flags -static -pthread
#include "thread-mutex.c"
