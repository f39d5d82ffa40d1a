// C has no :: to reach an accessor that is hidden, and no file may have another one of that name.
#include "ggml.h"

static void * f(struct ggml_tensor * t, int tensor_data) {
    return tensor_data ? t->data : NULL;          // error: a local tensor_data hides
}

static void * g(struct ggml_tensor * t) {
    void * tensor_data = t->data;                 // error: a local tensor_data hides
    return tensor_data;
}

static void tensor_set_data(int i);

static void h(struct ggml_tensor * t) {
    t->data = NULL;                               // error: a tensor_set_data of its own
}
