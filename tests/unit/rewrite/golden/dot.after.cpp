// A tensor that is an object, not a pointer, is passed by its address.
#include "ggml.h"
#include <vector>
#include "ggml-numa-mirror.h"

struct holder {
    ggml_tensor tensor;
    ggml_tensor array[2];
};

void f(ggml_tensor & r, const holder * h, holder & g, ggml_tensor * p, std::vector<ggml_tensor> & v, void * q, int i) {
    ggml_tensor t = *p;
    ggml_use(tensor_data(&t));
    ggml_use(tensor_data(&r));
    ggml_use(tensor_data(&h->tensor));
    ggml_use(tensor_data(&h->array[i]));
    ggml_use(tensor_data(h->array));
    ggml_use(tensor_data(&v[i]));
    ggml_use(tensor_data(&v.back()));
    ggml_use(tensor_data(p));
    ggml_use(tensor_data(p));
    ggml_use(tensor_data(&(t)));
    tensor_set_data(&t, q);
    tensor_set_data(&t, (char *) tensor_data(&r) + 1);
    tensor_set_data(&g.tensor, q);
    tensor_set_data(&v[0], tensor_data(&t));
    tensor_set_data(p, q);
    for (ggml_tensor & e : v) {
        tensor_set_data(&e, nullptr);
    }
}
