// A read through a pointer becomes the getter, a store the setter, whatever the base expression is.
#include "ggml.h"

struct node {
    struct ggml_tensor * tensor;
    struct ggml_tensor * list[4];
};

static void reads(const struct ggml_tensor * t, struct node * n, struct ggml_tensor ** pp, int i) {
    ggml_use(t->data);
    ggml_use(t->src[0]->data);
    ggml_use(t->src[i + 1]->view_src->data);
    ggml_use(n->tensor->data);
    ggml_use(n->list[i]->data);
    ggml_use((*pp)->data);
    ggml_use(pp[1]->data);
    ggml_use(ggml_get(i)->data);
    ggml_use((i ? t : n->tensor)->data);
    ggml_use(((const struct ggml_tensor *) pp)->data);
    ggml_use((const char *) t->data + t->view_offs);
    const float * x = (const float *) t -> data;
    const float * y = (const float *)((char *) t->src[1]->data + i*t->ne[0]);
    ggml_use(t
        ->data);
    if (t->data != NULL && !t->src[0]->data) {
        ggml_use(((const float *) t->data)[0] + y[0] > 0 ? x : y);
    }
    ggml_use(&((float *) t->data)[i]);
}

static void stores(struct ggml_tensor * t, struct node * n, void * p, int i) {
    t->data = p;
    t->data=p;
    t->src[0]->data   =   (char *) p + i;
    n->list[i]->data = NULL;
    if (i) t->data = p;
    else
        t->data = n->tensor->data;
    for (t->data = p; i < 3; t->data = p) {
        i++;
    }
    t->data =
        p;
    i = 1, t->data = p;
    (t->src[1])->data = p;
    (void) t->data;
    t->src[0]->data = (char *) t->view_src->data + t->view_offs;
    while (i--) t->data = p;
}
