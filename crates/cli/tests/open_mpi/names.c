// Ranks find each other by names (Open MPI): `names`, `meet` or `more`.
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int lookup(char *port) {
    int kind;
    MPI_Error_class(MPI_Lookup_name("door", MPI_INFO_NULL, port), &kind);
    return kind;
}

int main(int count, char **words) {
    int rank, size, sum = 0;
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (!strcmp(words[1], "more")) {
        MPI_Comm more;
        int code = MPI_Comm_spawn(words[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &more, MPI_ERRCODES_IGNORE);
        printf("%d %s\n", rank, code == MPI_SUCCESS ? "has more" : "has no more");
        MPI_Abort(MPI_COMM_WORLD, 3);
    } else if (!strcmp(words[1], "names")) {
        printf("%d before: %s\n", rank, lookup(port) == MPI_SUCCESS ? port : "nothing");
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == size - 1) MPI_Publish_name("door", MPI_INFO_NULL, "port_7");
        MPI_Barrier(MPI_COMM_WORLD);
        printf("%d then: %s\n", rank, lookup(port) == MPI_SUCCESS ? port : "nothing");
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == size - 1) MPI_Unpublish_name("door", MPI_INFO_NULL, "port_7");
        MPI_Barrier(MPI_COMM_WORLD);
        printf("%d after: %s\n", rank, lookup(port) == MPI_SUCCESS ? port : "nothing");
    } else {
        MPI_Comm half, inter, all;
        int opens = rank % 2 == 0;
        MPI_Comm_split(MPI_COMM_WORLD, opens, rank, &half);
        if (opens) {
            if (rank == 0) {
                MPI_Open_port(MPI_INFO_NULL, port);
                MPI_Publish_name("door", MPI_INFO_NULL, port);
            }
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter);
        } else {
            while (rank == 1 && lookup(port) != MPI_SUCCESS) {}
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter);
        }
        MPI_Intercomm_merge(inter, opens, &all);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all);
        MPI_Comm_rank(all, &count);
        printf("%d is %d of all: %d\n", rank, count, sum);
        MPI_Comm_free(&all);
        MPI_Comm_disconnect(&inter);
    }
    MPI_Finalize();
    return 0;
}
