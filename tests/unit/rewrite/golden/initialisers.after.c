// An initialiser that gives the field a value is followed by a store through the setter; others stay.
#include "ggml.h"
#include "ggml-numa-mirror.h"

struct other { void * data; int n; };
struct pair { struct ggml_tensor a; struct other b; };

static struct ggml_tensor empty = { GGML_TYPE_F32 };
static struct other table[] = { { .data = NULL, .n = 1 }, { .data = &empty } };

static void f(struct ggml_tensor * r, struct ggml_tensor * v, void * p) {
    struct ggml_tensor zero = { 0 };
    struct ggml_tensor none = { .type = GGML_TYPE_F32, .view_offs = 1 };
    struct ggml_tensor last = { .view_offs = 1 };
    struct ggml_tensor some = { .type = GGML_TYPE_F32, .name = { 0 } }; tensor_set_data(&some, p);
    *r = (struct ggml_tensor) { GGML_TYPE_F32, { 1, 2, 3, 4 }, { NULL, v }, v, 8, p ? p : tensor_data(v), { 0 } }; tensor_set_data(r, tensor_data(r));
    *v = (struct ggml_tensor) { GGML_TYPE_F32, { 1, 2, 3, 4 }, { NULL }, NULL, 0, NULL, { 0 } };
    zero = (struct ggml_tensor) { }; tensor_set_data(&zero, p);
    struct other o = { .data = p };
    struct pair q = { .b = { .data = p, .n = 2 } };
    ggml_use(&zero + none.ne[0] + last.ne[0] + some.ne[0] + o.n + q.b.n);
}
