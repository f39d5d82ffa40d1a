// In a loop that calls nothing but what becomes an instruction, reads have an accessor without a branch.
#include "ggml.h"
#include "ggml-numa-mirror.h"

#include <cmath>

#define ROUNDED(x) (long) (x)

static float plain(const ggml_tensor * t, const ggml_tensor * u, long n) {
    const float * first = (const float *) tensor_data(t);
    float sum = 0;
    for (long i = 0; i < n; i++) {
        sum += ((const float *) tensor_data_in_loop(t))[i] * ((const float *) tensor_data_in_loop(u))[i];
    }
    while (n-- > 0) {
        sum += std::sqrt(((const float *) tensor_data_in_loop(u))[ROUNDED(n)]) * expf(first[n]);
    }
    do {
        sum *= *(const float *) tensor_data_in_loop(t);
    } while (sum < *(const float *) tensor_data_in_loop(u));
    return sum;
}

static void calls(ggml_tensor * t, ggml_tensor * u, long n) {
    for (long i = 0; i < n; i++) {
        ggml_use(tensor_data(t));
        for (long j = 0; j < n; j++) {
            ((float *) tensor_data_in_loop(t))[j] += ((const float *) tensor_data_in_loop(u))[j];
        }
        tensor_set_data(u, (char *) tensor_data(t) + i);
        auto read = [&] { return tensor_data(u); };
        ggml_use(read());
    }
    for (const ggml_tensor * each : t->src) {
        n += tensor_data_in_loop(each) == nullptr;
        tensor_set_data(t->view_src, tensor_data_in_loop(u));
    }
}
