/* As compute-hash, statically linked. */
// suite: flags -static
#include "compute-hash.c"
