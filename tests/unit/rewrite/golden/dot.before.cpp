// A tensor that is an object, not a pointer, is passed by its address.
#include "ggml.h"
#include <vector>

struct holder {
    ggml_tensor tensor;
    ggml_tensor array[2];
};

void f(ggml_tensor & r, const holder * h, holder & g, ggml_tensor * p, std::vector<ggml_tensor> & v, void * q, int i) {
    ggml_tensor t = *p;
    ggml_use(t.data);
    ggml_use(r.data);
    ggml_use(h->tensor.data);
    ggml_use(h->array[i].data);
    ggml_use(h->array->data);
    ggml_use(v[i].data);
    ggml_use(v.back().data);
    ggml_use((*p).data);
    ggml_use((* p) . data);
    ggml_use((t).data);
    t.data = q;
    t.data  = (char *) r.data + 1;
    g.tensor.data = q;
    v[0].data = t.data;
    (*p).data = q;
    for (ggml_tensor & e : v) {
        e.data = nullptr;
    }
}
