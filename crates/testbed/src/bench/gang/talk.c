/* `pando bench gang`: ranks that compute and talk: so many rounds of work, then a sum of one number over all. */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    long rounds = argc > 1 ? atol(argv[1]) : 100, work = argc > 2 ? atol(argv[2]) : 0;
    double mine = 1, sum;
    volatile unsigned long x = 1;
    for (long i = 0; i < rounds; i++) {
        for (long j = 0; j < work; j++) x = x * 6364136223846793005ul + 1;
        MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
