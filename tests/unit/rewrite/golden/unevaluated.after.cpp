// Reads whose value nothing computes stay reads.
#include "ggml.h"
#include "ggml-numa-mirror.h"

static size_t f(ggml_tensor * t) {
    decltype(tensor_data(t)) p = tensor_data(t);
    const auto & keep = tensor_data(t);
    const void * const & other = tensor_data(t->src[0]);
    void * copy{tensor_data(t)};
    static_assert(sizeof(tensor_data((ggml_tensor *) nullptr)) == sizeof(void *), "");
    return sizeof(tensor_data(t)) + sizeof tensor_data(t) + (p == keep) + (other == copy) + alignof(decltype(tensor_data(t)));
}
