// Made in the manner of an operation of a CPU backend.
#include "ggml.h"

#include <stdlib.h>
#include <string.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define CHECK(x) do { if (!(x)) { abort(); } } while (0)

struct params {
    int    ith;
    int    nth;
    void * data;
    struct ggml_tensor * dst;
};

struct buffer {
    char * data;
    size_t size;
    struct ggml_tensor tensors[4];
};

static void copy_rows(const struct params * params, struct ggml_tensor * dst) {
    const struct ggml_tensor * src0 = dst->src[0];
    const struct ggml_tensor * const src1 = dst->src[1];
    CHECK(src0->data != NULL);
    const long rows = src0->ne[1];
    const long step = (rows + params->nth - 1) / params->nth;
    for (long row = params->ith * step; row < MIN(rows, (params->ith + 1) * step); ++row) {
        const float * x = (const float *) ((const char *) src0->data + row * src0->ne[0] * sizeof(float));
        float * y = (float *) ((char *) dst->data + row * dst->ne[0] * sizeof(float));
        for (long i = 0; i < src0->ne[0]; ++i) {
            y[i] = x[i] + (src1 ? ((const float *) src1->data)[i] : 0.0f);
        }
    }
    if (params->data) {
        memcpy(params->data, dst->data, (size_t) dst->ne[0]);
    }
}

static size_t place(struct buffer * buffer, struct ggml_tensor * t, size_t offset) {
    if (t->view_src != NULL) {
        t->data = (char *) t->view_src->data + t->view_offs;
        return 0;
    }
    t->data = buffer->data + offset;
    for (int i = 0; i < 4; ++i) {
        buffer->tensors[i].data = buffer->tensors[i].view_src ? buffer->tensors[i].view_src->data : NULL;
    }
    struct ggml_tensor copy = *t;
    copy.data = NULL;
    ggml_use(copy.data);
    return ggml_size(t);
}

int kernel_run(struct ggml_tensor ** nodes, int n, struct buffer * buffer) {
    struct params params = { 0, 1, NULL, NULL };
    size_t offset = 0;
    for (int i = 0; i < n; ++i) {
        struct ggml_tensor * node = nodes[i];
        params.dst = node;
        params.data = buffer->data;
        offset += place(buffer, node, offset);
        copy_rows(&params, nodes[i]);
        if (node->src[0] && node->src[0]->data == params.dst->data) {
            ggml_use(node->src[0]->data);
        }
    }
    return (int) offset;
}
