/* As memory-big, statically linked. */
// suite: flags -static
#include "memory-big.c"
