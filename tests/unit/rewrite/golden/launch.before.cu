// CUDA: kernel launches, function qualifiers and attributes do not get in the way.
#include "ggml.h"

#define API extern __attribute__((visibility("default")))
#define DEPRECATED(func, hint) func __attribute__((deprecated(hint)))
#define NO_DEVICE_CODE no_device_code(__FILE__, __LINE__)

API ggml_tensor * get(int i);
DEPRECATED(API ggml_tensor * old_get(int i, int n), "use get");

template <int block_size> static __global__ void __launch_bounds__(block_size, 1)
kernel(const float * __restrict__ x, float * __restrict__ y, const int n) {
    __shared__ float tile[block_size];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[n];
}

static __device__ __forceinline__ float twice(const float x) { return 2*x; }

void launch(ggml_tensor * dst, void * stream) {
    const ggml_tensor * src0 = dst->src[0];
    const dim3 grid(1, 2, 3);
    kernel<32><<<grid, dim3(32, 1, 1), 0, stream>>>((const float *) src0->data, (float *) dst->data, src0->ne[0]);
    kernel<64><<<1, 64>>>((const float *) get(0)->data, (float *) old_get(1, 2)->data, 1);
    empty<<<1, 1>>>();
    ggml_use(dst->data);
}
