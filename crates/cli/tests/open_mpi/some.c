// Speaks PMIx itself: the first and the last rank meet without the others, and tell each other something; names are waited for.
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pmix_proc_t me;

static void must(const char *what, pmix_status_t status) {
    if (status == PMIX_SUCCESS) return;
    printf("%d %s: %s\n", me.rank, what, PMIx_Error_string(status));
    fflush(stdout);
    exit(1);
}

int main(void) {
    pmix_value_t value, *got;
    pmix_info_t info;
    pmix_pdata_t found;
    must("init", PMIx_Init(&me, NULL, 0));
    int last = atoi(getenv("PANDO_SIZE")) - 1;
    char text[64];
    snprintf(text, sizeof text, "card of %d", me.rank);
    PMIX_VALUE_LOAD(&value, text, PMIX_STRING);
    must("put", PMIx_Put(PMIX_GLOBAL, "card", &value));
    must("commit", PMIx_Commit());
    if (me.rank == 0 || (int) me.rank == last) {
        pmix_proc_t some[2];
        PMIX_LOAD_PROCID(&some[0], me.nspace, 0);
        PMIX_LOAD_PROCID(&some[1], me.nspace, last);
        bool yes = true;
        PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
        for (int i = 0; i < 3; i++) must("fence", PMIx_Fence(some, 2, &info, 1));
        must("connect", PMIx_Connect(some, 2, NULL, 0));
        must("get", PMIx_Get(&some[me.rank == 0], "card", NULL, 0, &got));
        printf("%d met %s\n", me.rank, got->data.string);
        must("disconnect", PMIx_Disconnect(some, 2, NULL, 0));
    }
    // All look for what the first one publishes last of all.
    if ((int) me.rank != 0) {
        int all = 0;
        PMIX_PDATA_CONSTRUCT(&found);
        PMIX_LOAD_KEY(found.key, "late");
        PMIX_INFO_LOAD(&info, PMIX_WAIT, &all, PMIX_INT);
        must("lookup", PMIx_Lookup(&found, 1, &info, 1));
        printf("%d found %s of %d\n", me.rank, found.value.data.string, found.proc.rank);
    } else {
        PMIX_INFO_LOAD(&info, "late", "news", PMIX_STRING);
        must("publish", PMIx_Publish(&info, 1));
        printf("0 again: %s\n", PMIx_Error_string(PMIx_Publish(&info, 1)));
    }
    must("fence of all", PMIx_Fence(NULL, 0, NULL, 0));
    if (me.rank == 0) must("unpublish", PMIx_Unpublish(NULL, NULL, 0));
    must("fence of all", PMIx_Fence(NULL, 0, NULL, 0));
    PMIX_PDATA_CONSTRUCT(&found);
    PMIX_LOAD_KEY(found.key, "late");
    printf("%d then %s\n", me.rank, PMIx_Error_string(PMIx_Lookup(&found, 1, NULL, 0)));
    must("finalize", PMIx_Finalize(NULL, 0));
    return 0;
}
