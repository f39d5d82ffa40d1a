// Preloaded into a program that knows nothing of the mirror: asks for it, and has every CPU buffer lie in the
// arena. As caches they make every operation of the program's graphs be computed once per replica; as weights
// (ARENA_PRELOAD_USE=weights) they make every graph run on the home replica.
// Graphs have at least THREADS threads. The status record goes to the standard error at the end.

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-numa-mirror.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

const int THREADS = 3;

ggml_numa_mirror_use wanted_use() {
    const char * use = getenv("ARENA_PRELOAD_USE");
    return use && strcmp(use, "weights") == 0 ? GGML_NUMA_MIRROR_WEIGHTS : GGML_NUMA_MIRROR_KV;
}

struct asker {
    asker() {
        ggml_numa_mirror_init();
    }

    ~asker() {
        fprintf(stderr, "arena_preload: %s\n", ggml_numa_mirror_status());
    }
};

const asker asker_of_the_program;

} // namespace

extern "C" ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t buft, size_t size) {
    using function = decltype(&ggml_backend_buft_alloc_buffer);
    static const function real = (function) dlsym(RTLD_NEXT, "ggml_backend_buft_alloc_buffer");
    ggml_numa_mirror_place_begin(wanted_use());
    ggml_backend_buffer_t buffer = real(buft, size);
    ggml_numa_mirror_place_end();
    return buffer;
}

extern "C" void ggml_backend_cpu_set_n_threads(ggml_backend_t backend, int n_threads) {
    using function = decltype(&ggml_backend_cpu_set_n_threads);
    static const function real = (function) dlsym(RTLD_NEXT, "ggml_backend_cpu_set_n_threads");
    real(backend, std::max(n_threads, THREADS));
}
