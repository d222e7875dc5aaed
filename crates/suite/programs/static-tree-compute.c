/* As tree-compute, statically linked. */
// suite: flags -static
#include "tree-compute.c"
