/* As tree-script, statically linked. */
// suite: flags -static
#include "tree-script.c"
