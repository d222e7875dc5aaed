/* qsort, bsearch and a tree of pointers: data structures survive with their addresses. */
#include "suite.h"
struct node {
    struct node *left, *right;
    unsigned key;
};
static int compare(const void *a, const void *b) {
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x > y) - (x < y);
}
static unsigned long walk(const struct node *node, unsigned *last) {
    if (!node) return 0;
    unsigned long count = walk(node->left, last);
    CHECK(node->key >= *last);
    *last = node->key;
    return count + 1 + walk(node->right, last);
}
static void drop(struct node *node) {
    if (!node) return;
    drop(node->left);
    drop(node->right);
    free(node);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { COUNT = 5000 };
    static unsigned keys[COUNT];
    for (unsigned round = 0; going_on(); round++) {
        struct node *root = NULL;
        for (unsigned i = 0; i < COUNT; i++) {
            keys[i] = (i + round) * 2654435761u;
            struct node **at = &root;
            while (*at) at = keys[i] < (*at)->key ? &(*at)->left : &(*at)->right;
            *at = calloc(1, sizeof **at);
            CHECK(*at);
            (*at)->key = keys[i];
        }
        unsigned wanted = keys[77], last = 0;
        qsort(keys, COUNT, sizeof *keys, compare);
        CHECK(bsearch(&wanted, keys, COUNT, sizeof *keys, compare) && walk(root, &last) == COUNT && last == keys[COUNT - 1]);
        drop(root);
    }
    return suite_end();
}
