/* As thread-storm, statically linked. */
// suite: flags -static -pthread
#include "thread-storm.c"
