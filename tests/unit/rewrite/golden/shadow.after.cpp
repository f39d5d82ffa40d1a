// Where something else has an accessor's name, the accessor is named with :: in front.
#include "ggml.h"
#include "ggml-numa-mirror.h"

struct holder {
    int tensor_data;
    void * get(ggml_tensor * t) { return ::tensor_data(t); }
    void * late(ggml_tensor * t);
};

void * holder::late(ggml_tensor * t) { return ::tensor_data(t); }

struct heir : holder {
    void * own(ggml_tensor * t) { return ::tensor_data(t); }
};

namespace ns {
    void tensor_data(int);
    void * f(ggml_tensor * t) { return ::tensor_data(t); }
}

void * g(ggml_tensor * t, int tensor_set_data) {
    ggml_use(tensor_data(t));
    void * tensor_data = ::tensor_data(t);
    ggml_use(::tensor_data(t));
    ::tensor_set_data(t, tensor_data);
    int i = tensor_set_data;
    return i ? ::tensor_data(t) : ::tensor_data(t);
}

void * h(ggml_tensor * t) {
    {
        int tensor_data = 0;
        (void) tensor_data;
    }
    auto l = [](ggml_tensor * e) { int tensor_data = 1; return tensor_data ? ::tensor_data(e) : nullptr; };
    ggml_use(l(t));
    return tensor_data(t);
}
