// Comments inside of an access stay.
#include "ggml.h"

static void f(struct ggml_tensor * t, void * p) {
    ggml_use(t /* a */ -> /* b */ data /* c */);
    ggml_use(t // why
        ->data);
    t->data /* set */ = /* to */ p;
    ggml_use((/* d */ t)->data);
}
