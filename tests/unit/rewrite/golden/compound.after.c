// A compound store becomes a store of the result, if reading the base twice changes nothing.
#include "ggml.h"
#include "ggml-numa-mirror.h"

static void f(struct ggml_tensor * t, struct ggml_tensor * list[], int n) {
    tensor_set_data(t, (char *) tensor_data(t) + n);
    tensor_set_data(t->src[0], (char *) tensor_data(t->src[0]) - (n * 2));
    tensor_set_data(list[n], (char *) tensor_data(list[n]) + list[0]->ne[1]);
    tensor_set_data(*list, (char *) tensor_data(*list) + 1);
    tensor_set_data(t, (char *) tensor_data(t) + (n + 1));
    tensor_set_data(&list[0][1], (char *) tensor_data(&list[0][1]) + n);
}
