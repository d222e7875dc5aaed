/* As fork-wait, statically linked. */
// suite: flags -static
#include "fork-wait.c"
