// Ranks that start others (MPI): these say who they are to all the others, and are told by them.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void together(MPI_Comm inter, int late, const char *what) {
    MPI_Comm all;
    int rank, size, sum = 0;
    MPI_Intercomm_merge(inter, late, &all);
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all);
    printf("%s %d of %d: %d\n", what, rank, size, sum);
    fflush(stdout);
    MPI_Barrier(all);
    MPI_Comm_free(&all);
}

// Two groups that have not started each other meet at a port that one of them has published.
static void meet(int opens) {
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter;
    int rank, code = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (opens) {
        if (rank == 0) {
            MPI_Open_port(MPI_INFO_NULL, port);
            MPI_Publish_name("door", MPI_INFO_NULL, port);
        }
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    } else {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        while (rank == 0 && code != MPI_SUCCESS) code = MPI_Lookup_name("door", MPI_INFO_NULL, port);
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    }
    together(inter, opens, opens ? "opens" : "comes");
    MPI_Comm_disconnect(&inter);
    if (opens && rank == 0) {
        MPI_Unpublish_name("door", MPI_INFO_NULL, port);
        MPI_Close_port(port);
    }
}

int main(int count, char **words) {
    MPI_Comm parent, inter;
    int codes[8], rank, *number, found;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_parent(&parent);
    const char *how = count > 1 ? words[1] : "";
    if (parent != MPI_COMM_NULL) {
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &found);
        char what[64];
        snprintf(what, sizeof what, "%s, program %d", how, found ? *number : -1);
        together(parent, 1, what);
        if (!strcmp(how, "opens") || !strcmp(how, "comes")) meet(!strcmp(how, "opens"));
        if (!strcmp(how, "abort") && rank == 1) MPI_Abort(MPI_COMM_WORLD, 9);
        MPI_Comm_disconnect(&parent);
        MPI_Finalize();
        return 0;
    }
    if (!strcmp(how, "one")) {
        char *more[] = {"child", NULL};
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        int code = MPI_Comm_spawn(words[0], more, 3, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes);
        if (code != MPI_SUCCESS) {
            printf("refused\n");
            fflush(stdout);
            MPI_Finalize();
            return 0;
        }
        together(inter, 0, "parent");
        MPI_Comm_disconnect(&inter);
        code = MPI_Comm_spawn("/no/such/program", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes);
        printf("%d: %s\n", rank, code == MPI_SUCCESS ? "nothing was started" : "an error");
    } else {
        char *first[] = {strcmp(how, "meet") ? "first" : "opens", NULL}, *last[] = {strcmp(how, "meet") ? "last" : "comes", NULL};
        if (!strcmp(how, "abort")) first[0] = "abort";
        char **arguments[] = {first, last}, *programs[] = {words[0], words[0]};
        int ranks[] = {2, 1};
        MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
        if (!strcmp(how, "meet")) {
            MPI_Comm other;
            MPI_Comm_spawn(words[0], first, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes);
            MPI_Comm_spawn(words[0], last, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, codes);
            together(inter, 0, "parent");
            together(other, 0, "parent");
            MPI_Comm_disconnect(&other);
        } else {
            MPI_Comm_spawn_multiple(2, programs, arguments, ranks, infos, 0, MPI_COMM_WORLD, &inter, codes);
            together(inter, 0, "parent");
        }
        MPI_Comm_disconnect(&inter);
    }
    MPI_Finalize();
    return 0;
}
