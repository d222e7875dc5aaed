/* As malloc-storm, statically linked. */
// suite: flags -static
#include "malloc-storm.c"
