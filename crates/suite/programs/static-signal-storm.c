/* As signal-storm, statically linked. */
// suite: flags -static
#include "signal-storm.c"
