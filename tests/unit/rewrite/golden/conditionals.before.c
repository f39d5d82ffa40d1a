// Every branch of every conditional is rewritten, also where a branch is no whole statement.
#include "ggml.h"

struct other { void * data; };

static void f(struct ggml_tensor * t, struct other * o, int n) {
#if defined(USE_A)
    ggml_use(t->data);
#elif defined(USE_B)
    ggml_use(t->src[0]->data);
#else
    ggml_use(t->src[1]->data);
#endif
#ifdef USE_A
    if (n > 1) {
        ggml_use(t->data);
#else
    if (n > 2 && t->data) {
#endif
        ggml_use(t->data);
    }
    ggml_use(t->data
#ifdef USE_A
        == t->src[0]->data ? t : NULL
#endif
    );
#if 0
    ggml_use(t->data);
    this is no C, and x->data is nothing
#endif
#ifdef USE_A
    struct ggml_tensor * v = t;
#else
    struct ggml_tensor * v = t->src[0];
#endif
    v->data = NULL;
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
    ggml_use(a->data);
}
