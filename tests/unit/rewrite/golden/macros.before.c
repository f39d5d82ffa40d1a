// The body of a macro is edited where it stands; what the names in it are is asked at every use.
#include "ggml.h"

struct other { void * data; };

#define DATA(t) ((t)->data)
#define BARE(t) t->data
#define AS_FLOAT(t) ((float *) DATA(t))
#define OF_SRC(i) ((char *) dst->src[i]->data + \
                   dst->view_offs)
#define CALL(fn, t, n) do {                        \
        const struct ggml_tensor * tmp = (t);      \
        fn(tmp->data); /* not t->data */           \
        (void) (n);                                \
    } while (0)
#define STORE(t, p) (t)->data = (p)
#define OTHER(o) ((o)->data)
#define CAST(p) (((const struct ggml_tensor *) (p))->data)
#define DEFINE(name)                                       \
    static void name(struct ggml_tensor * a, void * b) {   \
        a->data = b;                                       \
    }
#define LIST(t) { (t)->data, (t)->src[0]->data }
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
    ASSERT(dst->data != NULL);
    ASSERT(DATA(dst) && dst->src[0]->data);
    ggml_use(SRC0->data);
    if (UNLIKELY(dst->data == p)) {
        second(dst, p);
    }
}
