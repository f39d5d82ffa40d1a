#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ggml_type { GGML_TYPE_F32, GGML_TYPE_F16 };

struct ggml_tensor {
    enum ggml_type type;
    long ne[4];
    struct ggml_tensor * src[2];
    struct ggml_tensor * view_src;
    size_t view_offs;
    void * data;
    char name[16];
};

struct ggml_tensor * ggml_get(int i);
void ggml_use(const void * p);
size_t ggml_size(const struct ggml_tensor * t);

#ifdef __cplusplus
}
#endif
