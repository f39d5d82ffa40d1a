// Comments inside of an access stay.
#include "ggml.h"
#include "ggml-numa-mirror.h"

static void f(struct ggml_tensor * t, void * p) {
    ggml_use(tensor_data(t /* a */  /* b */ ) /* c */);
    ggml_use(tensor_data(t // why
));
    tensor_set_data(t /* set */ , /* to */ p);
    ggml_use(tensor_data(/* d */ t));
}
