// Where something else has an accessor's name, the accessor is named with :: in front.
#include "ggml.h"

struct holder {
    int tensor_data;
    void * get(ggml_tensor * t) { return t->data; }
    void * late(ggml_tensor * t);
};

void * holder::late(ggml_tensor * t) { return t->data; }

struct heir : holder {
    void * own(ggml_tensor * t) { return(t)->data; }
};

namespace ns {
    void tensor_data(int);
    void * f(ggml_tensor * t) { return t->data; }
}

void * g(ggml_tensor * t, int tensor_set_data) {
    ggml_use(t->data);
    void * tensor_data = t->data;
    ggml_use(t->data);
    t->data = tensor_data;
    int i = tensor_set_data;
    return i ? t->data :(t)->data;
}

void * h(ggml_tensor * t) {
    {
        int tensor_data = 0;
        (void) tensor_data;
    }
    auto l = [](ggml_tensor * e) { int tensor_data = 1; return tensor_data ? e->data : nullptr; };
    ggml_use(l(t));
    return t->data;
}
