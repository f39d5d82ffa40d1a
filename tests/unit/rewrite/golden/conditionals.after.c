// Every branch of every conditional is rewritten, also where a branch is no whole statement.
#include "ggml.h"
#include "ggml-numa-mirror.h"

struct other { void * data; };

static void f(struct ggml_tensor * t, struct other * o, int n) {
#if defined(USE_A)
    ggml_use(tensor_data(t));
#elif defined(USE_B)
    ggml_use(tensor_data(t->src[0]));
#else
    ggml_use(tensor_data(t->src[1]));
#endif
#ifdef USE_A
    if (n > 1) {
        ggml_use(tensor_data(t));
#else
    if (n > 2 && tensor_data(t)) {
#endif
        ggml_use(tensor_data(t));
    }
    ggml_use(tensor_data(t)
#ifdef USE_A
        == tensor_data(t->src[0]) ? t : NULL
#endif
    );
#if 0
    ggml_use(tensor_data(t));
    this is no C, and x->data is nothing
#endif
#ifdef USE_A
    struct ggml_tensor * v = t;
#else
    struct ggml_tensor * v = t->src[0];
#endif
    tensor_set_data(v, NULL);
#ifdef USE_B
    struct other * w = o;
#endif
#ifdef USE_B
    ggml_use(w->data);
#endif
}

#ifdef USE_A
static void g(struct ggml_tensor * a) {
#else
static void g(const struct ggml_tensor * a) {
#endif
    ggml_use(tensor_data(a));
}
