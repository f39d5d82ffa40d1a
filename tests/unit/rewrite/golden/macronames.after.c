// Macros that declare variables, macros with two definitions, macros that are handed to others.
#include "ggml.h"
#include "ggml-numa-mirror.h"

struct other { void * data; };

#define DECLARE(n, e) struct ggml_tensor * n = (e);
#define LOCALS struct other * t = o;
#define SAME(x) x
#define SOURCE(i) src##i
#define tensor_ptr struct ggml_tensor *

static void f(struct ggml_tensor * t, struct other * o, tensor_ptr src0) {
    DECLARE(a, t->src[0])
    DECLARE(b, src0);
    ggml_use(tensor_data(a));
    ggml_use(tensor_data(b));
    {
        LOCALS
        ggml_use(t->data);
    }
    ggml_use(tensor_data(SAME(t)));
    ggml_use(SAME(tensor_data(t)));
    ggml_use(tensor_data(SOURCE(0)));
}

#define GET(t) (tensor_data(t))
static void first(struct ggml_tensor * t) { ggml_use(GET(t)); }
#undef GET
#define GET(o) ((o)->data)
static void second(struct other * o) { ggml_use(GET(o)); }

#define EACH(X) X(one) X(two)
#define GETTER(name) static const void * get_##name(const struct ggml_tensor * t) { return tensor_data(t); }
EACH(GETTER)

static void g(struct ggml_tensor * t, struct other * o) {
    f(t, o, t);
    first(t);
    second(o);
    ggml_use((const char *) get_one(t) + (get_two(t) != NULL));
}
