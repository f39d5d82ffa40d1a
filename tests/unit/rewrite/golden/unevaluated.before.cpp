// Reads whose value nothing computes stay reads.
#include "ggml.h"

static size_t f(ggml_tensor * t) {
    decltype(t->data) p = t->data;
    const auto & keep = t->data;
    const void * const & other = t->src[0]->data;
    void * copy{t->data};
    static_assert(sizeof(((ggml_tensor *) nullptr)->data) == sizeof(void *), "");
    return sizeof(t->data) + sizeof t->data + (p == keep) + (other == copy) + alignof(decltype(t->data));
}
