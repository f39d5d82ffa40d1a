// In a loop that calls nothing but what becomes an instruction, reads have an accessor without a branch.
#include "ggml.h"

#include <cmath>

#define ROUNDED(x) (long) (x)

static float plain(const ggml_tensor * t, const ggml_tensor * u, long n) {
    const float * first = (const float *) t->data;
    float sum = 0;
    for (long i = 0; i < n; i++) {
        sum += ((const float *) t->data)[i] * ((const float *) u->data)[i];
    }
    while (n-- > 0) {
        sum += std::sqrt(((const float *) u->data)[ROUNDED(n)]) * expf(first[n]);
    }
    do {
        sum *= *(const float *) t->data;
    } while (sum < *(const float *) u->data);
    return sum;
}

static void calls(ggml_tensor * t, ggml_tensor * u, long n) {
    for (long i = 0; i < n; i++) {
        ggml_use(t->data);
        for (long j = 0; j < n; j++) {
            ((float *) t->data)[j] += ((const float *) u->data)[j];
        }
        u->data = (char *) t->data + i;
        auto read = [&] { return u->data; };
        ggml_use(read());
    }
    for (const ggml_tensor * each : t->src) {
        n += each->data == nullptr;
        t->view_src->data = u->data;
    }
}
