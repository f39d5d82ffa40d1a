// A compound store becomes a store of the result, if reading the base twice changes nothing.
#include "ggml.h"

static void f(struct ggml_tensor * t, struct ggml_tensor * list[], int n) {
    t->data += n;
    t->src[0]->data -= n * 2;
    list[n]->data += list[0]->ne[1];
    (*list)->data++;
    t->data += (n + 1);
    list[0][1].data += n;
}
