/* As clock-monotonic, statically linked. */
// suite: flags -static
#include "clock-monotonic.c"
