// Macros that declare variables, macros with two definitions, macros that are handed to others.
#include "ggml.h"

struct other { void * data; };

#define DECLARE(n, e) struct ggml_tensor * n = (e);
#define LOCALS struct other * t = o;
#define SAME(x) x
#define SOURCE(i) src##i
#define tensor_ptr struct ggml_tensor *

static void f(struct ggml_tensor * t, struct other * o, tensor_ptr src0) {
    DECLARE(a, t->src[0])
    DECLARE(b, src0);
    ggml_use(a->data);
    ggml_use(b->data);
    {
        LOCALS
        ggml_use(t->data);
    }
    ggml_use(SAME(t)->data);
    ggml_use(SAME(t->data));
    ggml_use(SOURCE(0)->data);
}

#define GET(t) ((t)->data)
static void first(struct ggml_tensor * t) { ggml_use(GET(t)); }
#undef GET
#define GET(o) ((o)->data)
static void second(struct other * o) { ggml_use(GET(o)); }

#define EACH(X) X(one) X(two)
#define GETTER(name) static const void * get_##name(const struct ggml_tensor * t) { return t->data; }
EACH(GETTER)

static void g(struct ggml_tensor * t, struct other * o) {
    f(t, o, t);
    first(t);
    second(o);
    ggml_use((const char *) get_one(t) + (get_two(t) != NULL));
}
