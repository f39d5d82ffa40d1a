// The body of a macro is edited where it stands; what the names in it are is asked at every use.
#include "ggml.h"
#include "ggml-numa-mirror.h"

struct other { void * data; };

#define DATA(t) (tensor_data(t))
#define BARE(t) tensor_data(t)
#define AS_FLOAT(t) ((float *) DATA(t))
#define OF_SRC(i) ((char *) tensor_data(dst->src[i]) + \
                   dst->view_offs)
#define CALL(fn, t, n) do {                        \
        const struct ggml_tensor * tmp = (t);      \
        fn(tensor_data(tmp)); /* not t->data */           \
        (void) (n);                                \
    } while (0)
#define STORE(t, p) tensor_set_data(t, (p))
#define OTHER(o) ((o)->data)
#define CAST(p) (tensor_data((const struct ggml_tensor *) (p)))
#define DEFINE(name)                                       \
    static void name(struct ggml_tensor * a, void * b) {   \
        tensor_set_data(a, b);                                       \
    }
#define LIST(t) { tensor_data(t), tensor_data((t)->src[0]) }
#define ASSERT(x) do { if (!(x)) { ggml_use(#x); } } while (0)
#define SRC0 dst->src[0]
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

DEFINE(first)
DEFINE(second)

static void f(struct ggml_tensor * dst, struct ggml_tensor ** list, struct other * o, void * p) {
    ggml_use(DATA(dst));
    ggml_use(DATA(list[0]->src[1]));
    ggml_use(BARE(dst));
    ggml_use(AS_FLOAT(dst) + 1);
    ggml_use(OF_SRC(0));
    CALL(ggml_use, dst, 3);
    STORE(dst, p);
    if (p) STORE(list[1], DATA(dst));
    ggml_use(OTHER(o));
    ggml_use(CAST(p));
    const void * l[] = LIST(dst);
    ggml_use(l);
    first(dst, p);
    ASSERT(tensor_data(dst) != NULL);
    ASSERT(DATA(dst) && tensor_data(dst->src[0]));
    ggml_use(tensor_data(SRC0));
    if (UNLIKELY(tensor_data(dst) == p)) {
        second(dst, p);
    }
}
