/* As nanosleep, statically linked. */
// suite: flags -static
#include "nanosleep.c"
