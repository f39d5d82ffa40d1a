// A read through a pointer becomes the getter, a store the setter, whatever the base expression is.
#include "ggml.h"
#include "ggml-numa-mirror.h"

struct node {
    struct ggml_tensor * tensor;
    struct ggml_tensor * list[4];
};

static void reads(const struct ggml_tensor * t, struct node * n, struct ggml_tensor ** pp, int i) {
    ggml_use(tensor_data(t));
    ggml_use(tensor_data(t->src[0]));
    ggml_use(tensor_data(t->src[i + 1]->view_src));
    ggml_use(tensor_data(n->tensor));
    ggml_use(tensor_data(n->list[i]));
    ggml_use(tensor_data(*pp));
    ggml_use(tensor_data(pp[1]));
    ggml_use(tensor_data(ggml_get(i)));
    ggml_use(tensor_data(i ? t : n->tensor));
    ggml_use(tensor_data((const struct ggml_tensor *) pp));
    ggml_use((const char *) tensor_data(t) + t->view_offs);
    const float * x = (const float *) tensor_data(t);
    const float * y = (const float *)((char *) tensor_data(t->src[1]) + i*t->ne[0]);
    ggml_use(tensor_data(t));
    if (tensor_data(t) != NULL && !tensor_data(t->src[0])) {
        ggml_use(((const float *) tensor_data(t))[0] + y[0] > 0 ? x : y);
    }
    ggml_use(&((float *) tensor_data(t))[i]);
}

static void stores(struct ggml_tensor * t, struct node * n, void * p, int i) {
    tensor_set_data(t, p);
    tensor_set_data(t,p);
    tensor_set_data(t->src[0],   (char *) p + i);
    tensor_set_data(n->list[i], NULL);
    if (i) tensor_set_data(t, p);
    else
        tensor_set_data(t, tensor_data(n->tensor));
    for (tensor_set_data(t, p); i < 3; tensor_set_data(t, p)) {
        i++;
    }
    tensor_set_data(t,
        p);
    i = 1, tensor_set_data(t, p);
    tensor_set_data(t->src[1], p);
    (void) tensor_data(t);
    tensor_set_data(t->src[0], (char *) tensor_data(t->view_src) + t->view_offs);
    while (i--) tensor_set_data(t, p);
}
