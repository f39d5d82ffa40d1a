// Drives the mirror through ggml's own interface: one scenario per run, a line of JSON as the answer.
//
// The tensor "w" lies in the arena. What each team of threads reads of it is seen in the result of a graph
// whose rows the threads share out; what each replica holds is seen in memory.

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-numa-mirror.h"
#include "ggml.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <cerrno>
#include <cstddef>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const int N_COLS = 64;
static const int N_ROWS = 12;

struct weights {
    ggml_context *        ctx;
    ggml_tensor *         w;
    ggml_backend_buffer_t buffer;
};

static weights make_weights(float value, ggml_numa_mirror_use use = GGML_NUMA_MIRROR_WEIGHTS, int n_rows = N_ROWS) {
    weights result;
    result.ctx = ggml_init({ ggml_tensor_overhead() * 4, nullptr, true });
    result.w   = ggml_new_tensor_2d(result.ctx, GGML_TYPE_F32, N_COLS, n_rows);
    ggml_numa_mirror_place_begin(use);
    result.buffer = ggml_backend_alloc_ctx_tensors_from_buft(result.ctx, ggml_backend_cpu_buffer_type());
    if (!result.buffer || ggml_numa_mirror_error()) {
        printf("{\"allocated\": false, \"status\": %s}\n", ggml_numa_mirror_status());
        exit(0);
    }
    for (int i = 0; i < N_COLS * n_rows; i++) {
        ((float *) result.w->data)[i] = value;
    }
    if (use == GGML_NUMA_MIRROR_WEIGHTS && ggml_numa_mirror_places(use)) {
        ggml_numa_mirror_account(result.w);
        ggml_numa_mirror_commit();
    }
    ggml_numa_mirror_place_end();
    return result;
}

// computes a graph with some threads; the result's rows, or what build left in the arena
template <typename F>
static std::vector<float> compute(int n_threads, F build, ggml_threadpool_t threadpool = nullptr) {
    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend, n_threads);
    ggml_backend_cpu_set_threadpool(backend, threadpool);
    ggml_context * ctx   = ggml_init({ ggml_tensor_overhead() * 128 + ggml_graph_overhead(), nullptr, true });
    ggml_cgraph *  graph = ggml_new_graph(ctx);
    ggml_tensor *  out   = build(ctx);
    ggml_build_forward_expand(graph, out);
    ggml_gallocr_t alloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    ggml_gallocr_alloc_graph(alloc, graph);
    ggml_backend_graph_compute(backend, graph);
    std::vector<float> values(ggml_nelements(out));
    ggml_backend_tensor_get(out, values.data(), 0, ggml_nbytes(out));
    ggml_gallocr_free(alloc);
    ggml_free(ctx);
    ggml_backend_free(backend);
    return values;
}

static bool all_equal(const std::vector<float> & values, float expected) {
    for (float value : values) {
        if (value != expected) {
            return false;
        }
    }
    return true;
}

// what all teams read; ADD shares rows out to all threads
static std::vector<float> read(ggml_tensor * w, int n_threads) {
    std::vector<float> values = compute(n_threads, [&](ggml_context * ctx) { return ggml_add(ctx, w, w); });
    for (float & value : values) {
        value /= 2;
    }
    return values;
}

static bool replicas_equal(const ggml_tensor * w, int n_replicas) {
    const char * home = (const char *) w->data;
    if ((uintptr_t) home - ggml_numa_mirror_arena.home >= ggml_numa_mirror_arena.stride) {
        return true; // not replicated
    }
    for (int k = 1; k < n_replicas; k++) {
        if (memcmp(home, home + k * ggml_numa_mirror_arena.stride, ggml_nbytes(w)) != 0) {
            return false;
        }
    }
    return true;
}

// where the threads of a graph are
struct place {
    int  replica;
    int  cpu; // the first of those that the thread may run on
    int  n_cpus;
    bool keeps; // to its part of an operation
};

static void note_place(ggml_tensor * dst, const ggml_tensor * a, int ith, int nth, void * userdata) {
    place * places = (place *) userdata;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    sched_getaffinity(0, sizeof(cpus), &cpus);
    int first = 0;
    while (first < CPU_SETSIZE && !CPU_ISSET(first, &cpus)) {
        first++;
    }
    places[ith] = { (int) (ggml_numa_mirror_view.offset / (ptrdiff_t) ggml_numa_mirror_arena.stride), first, CPU_COUNT(&cpus), ggml_is_numa() };
    (void) dst;
    (void) a;
    (void) nth;
}

// a graph whose threads may run on one CPU each, from first_cpu on; -1: where they like
static void show_places(ggml_tensor * w, int n_threads, int first_cpu) {
    std::vector<place> places(n_threads, { -1, -1, -1, false });
    ggml_threadpool_t threadpool = nullptr;
    if (first_cpu >= 0) {
        ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
        for (int i = 0; i < n_threads; i++) {
            params.cpumask[first_cpu + i] = true;
        }
        params.strict_cpu = true;
        threadpool = ggml_threadpool_new(&params);
    }
    compute(n_threads, [&](ggml_context * ctx) {
        return ggml_map_custom1(ctx, w, note_place, GGML_N_TASKS_MAX, places.data());
    }, threadpool);
    ggml_threadpool_free(threadpool);
    std::string text;
    std::string keeps;
    for (const place & p : places) {
        keeps += (keeps.empty() ? "" : ", ") + std::string(p.keeps ? "true" : "false");
        text += (text.empty() ? "" : ", ") + std::string("[") + std::to_string(p.replica) + ", " + std::to_string(p.cpu) + ", " +
            std::to_string(p.n_cpus) + "]";
    }
    printf("{\"places\": [%s], \"keeps\": [%s], \"status\": %s}\n", text.c_str(), keeps.c_str(), ggml_numa_mirror_status());
}

// as in a container: the kernel refuses memory policies
static void refuse_memory_policies(int error) {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_move_pages, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned) error),
    };
    sock_fprog program = { sizeof(code) / sizeof(code[0]), code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        exit(3);
    }
}

int main(int argc, char ** argv) {
    if (argc != 4) {
        return 2;
    }
    const std::string scenario   = argv[1];
    const int         n_replicas = atoi(argv[2]);
    const int         n_threads  = atoi(argv[3]);

    if (getenv("DRIVER_REFUSES")) {
        refuse_memory_policies(atoi(getenv("DRIVER_REFUSES")));
    }
    ggml_numa_init(GGML_NUMA_STRATEGY_MIRROR);
    const bool is_cache = scenario.rfind("cache-", 0) == 0;
    weights model = make_weights(1.0f, is_cache ? GGML_NUMA_MIRROR_KV : GGML_NUMA_MIRROR_WEIGHTS);
    ggml_tensor * w = model.w;
    const bool before = all_equal(read(w, n_threads), 1.0f) && replicas_equal(w, n_replicas);

    float expected = 2.0f;
    std::vector<float> twos(N_COLS * N_ROWS, 2.0f);
    if (scenario == "set") {
        ggml_backend_tensor_set(w, twos.data(), 0, ggml_nbytes(w));
    } else if (scenario == "memset") {
        ggml_backend_tensor_memset(w, 0, 0, ggml_nbytes(w));
        expected = 0.0f;
    } else if (scenario == "clear") {
        ggml_backend_buffer_clear(model.buffer, 0);
        expected = 0.0f;
    } else if (scenario == "copy") {
        weights other = make_weights(2.0f);
        ggml_backend_tensor_copy(other.w, w);
    } else if (scenario == "graph") {
        // a graph that changes weights in place, as training does
        compute(n_threads, [&](ggml_context * ctx) { return ggml_scale_inplace(ctx, w, 2.0f); });
    } else if (scenario == "cache-inplace") {
        compute(n_threads, [&](ggml_context * ctx) { return ggml_scale_inplace(ctx, w, 2.0f); });
    } else if (scenario == "cache-cpy") {
        weights source = make_weights(2.0f);
        compute(n_threads, [&](ggml_context * ctx) { return ggml_cpy(ctx, source.w, w); });
    } else if (scenario == "cache-add") {
        // the same node reads and writes the cache, twice in one graph
        compute(n_threads, [&](ggml_context * ctx) {
            return ggml_scale_inplace(ctx, ggml_add_inplace(ctx, ggml_add_inplace(ctx, w, w), w), 0.5f);
        });
    } else if (scenario == "cache-mul-mat") {
        // a node with scratch memory and barriers of its own, between nodes that write to the cache
        weights source = make_weights(2.0f / N_COLS);
        compute(n_threads, [&](ggml_context * ctx) {
            ggml_tensor * ones = ggml_scale_inplace(ctx, w, 1.0f);
            ggml_tensor * product = ggml_mul_mat(ctx, source.w, ones); // each element: 2
            ggml_tensor * rows = ggml_view_2d(ctx, w, N_ROWS, N_ROWS, w->nb[1], 0);
            ggml_tensor * written = ggml_cpy(ctx, product, rows);
            ggml_tensor * rest = ggml_view_2d(ctx, w, N_COLS - N_ROWS, N_ROWS, w->nb[1], N_ROWS * sizeof(float));
            return ggml_add(ctx, ggml_sum(ctx, written), ggml_sum(ctx, ggml_add_inplace(ctx, rest, rest)));
        });
    } else if (scenario == "cache-clear") {
        ggml_backend_buffer_clear(model.buffer, 0);
        expected = 0.0f;
    } else if (scenario == "cache-set") {
        // row by row, as a saved state is read back
        for (int i = 0; i < N_ROWS; i++) {
            ggml_backend_tensor_set(w, twos.data(), i * w->nb[1], w->nb[1]);
        }
    } else if (scenario == "free") {
        ggml_backend_buffer_free(model.buffer);
        model = make_weights(2.0f);
        if (model.w->data != w->data) {
            printf("{\"reused\": false}\n"); // what was freed is the first gap
            return 0;
        }
        w = model.w;
    } else if (scenario == "direct") {
        // nobody is told of this write: only threads of the first team may see it
        memcpy(w->data, twos.data(), ggml_nbytes(w));
    } else if (scenario == "free-neighbour") {
        // three blocks side by side are written before any graph; the first and the last go
        weights first  = make_weights(2.0f, GGML_NUMA_MIRROR_KV);
        weights middle = make_weights(2.0f, GGML_NUMA_MIRROR_KV);
        weights last   = make_weights(2.0f, GGML_NUMA_MIRROR_KV);
        ggml_backend_buffer_free(first.buffer);
        ggml_backend_buffer_free(last.buffer);
        w = middle.w;
    } else if (scenario == "nested") {
        // a cache is allocated while weights are read
        weights outer;
        outer.ctx = ggml_init({ ggml_tensor_overhead() * 4, nullptr, true });
        outer.w   = ggml_new_tensor_2d(outer.ctx, GGML_TYPE_F32, N_COLS, N_ROWS);
        ggml_numa_mirror_place_begin(GGML_NUMA_MIRROR_WEIGHTS);
        outer.buffer = ggml_backend_alloc_ctx_tensors_from_buft(outer.ctx, ggml_backend_cpu_buffer_type());
        weights inner = make_weights(1.0f, GGML_NUMA_MIRROR_KV);
        read(inner.w, n_threads);
        memcpy(outer.w->data, twos.data(), ggml_nbytes(outer.w));
        ggml_numa_mirror_commit();
        ggml_numa_mirror_place_end();
        w = outer.w;
    } else if (scenario == "loading") {
        // graphs compute tensors from others of a model that is being loaded, and it is changed in place after that
        weights part;
        part.ctx = ggml_init({ ggml_tensor_overhead() * 4, nullptr, true });
        part.w   = ggml_new_tensor_2d(part.ctx, GGML_TYPE_F32, N_COLS, N_ROWS);
        ggml_numa_mirror_place_begin(GGML_NUMA_MIRROR_WEIGHTS);
        part.buffer = ggml_backend_alloc_ctx_tensors_from_buft(part.ctx, ggml_backend_cpu_buffer_type());
        const std::vector<float> fours(N_COLS * N_ROWS, 4.0f);
        memcpy(part.w->data, fours.data(), ggml_nbytes(part.w));
        std::vector<float> seen; // by another thread, whose buffers are not weights
        std::thread([&] { seen = read(part.w, n_threads); }).join();
        if (!all_equal(seen, 4.0f)) {
            printf("{\"loading\": false}\n"); // a team has read a replica that does not have it yet
            return 0;
        }
        memcpy(part.w->data, twos.data(), ggml_nbytes(part.w));
        ggml_numa_mirror_commit();
        ggml_numa_mirror_place_end();
        w = part.w;
    } else if (scenario == "places" || scenario.rfind("places-", 0) == 0) {
        show_places(w, n_threads, scenario == "places" ? -1 : atoi(scenario.c_str() + strlen("places-")));
        return 0;
    } else if (scenario == "cache-chain") {
        // many small nodes one after the other, every second one writes to the cache: barriers, mostly
        for (int i = 0; i < 200; i++) {
            compute(n_threads, [&](ggml_context * ctx) {
                ggml_tensor * t = w;
                for (int j = 0; j < 20; j++) {
                    t = ggml_cpy(ctx, ggml_add(ctx, t, t), w);
                    t = ggml_scale_inplace(ctx, t, 0.5f);
                }
                return t;
            });
        }
        expected = 1.0f;
    } else if (scenario == "unreplicated") {
        ggml_context * ctx = ggml_init({ ggml_tensor_overhead() * 4, nullptr, true });
        ggml_tensor * t = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, N_COLS, N_ROWS);
        ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, ggml_backend_cpu_buffer_type());
        ggml_set_name(t, "left.out");
        // beside another model, which is replicated, and is a thousand times as large
        make_weights(0.0f, GGML_NUMA_MIRROR_WEIGHTS, 1000 * N_ROWS);
        ggml_numa_mirror_place_begin(GGML_NUMA_MIRROR_WEIGHTS);
        ggml_numa_mirror_account(t);
        const bool committed = ggml_numa_mirror_commit();
        ggml_numa_mirror_place_end();
        // an adapter is loaded next
        ggml_numa_mirror_place_begin(GGML_NUMA_MIRROR_WEIGHTS);
        ggml_numa_mirror_place_end();
        ggml_backend_buffer_free(buffer);
        printf("{\"committed\": %s, \"status\": %s}\n", committed ? "true" : "false", ggml_numa_mirror_status());
        return 0;
    } else if (scenario == "large") {
        // more than one copied chunk
        weights big;
        big.ctx = ggml_init({ ggml_tensor_overhead() * 4, nullptr, true });
        big.w   = ggml_new_tensor_2d(big.ctx, GGML_TYPE_F32, 1 << 20, 13);
        ggml_numa_mirror_place_begin(GGML_NUMA_MIRROR_WEIGHTS);
        big.buffer = ggml_backend_alloc_ctx_tensors_from_buft(big.ctx, ggml_backend_cpu_buffer_type());
        for (int64_t i = 0; i < ggml_nelements(big.w); i++) {
            ((float *) big.w->data)[i] = (float) i;
        }
        ggml_numa_mirror_commit();
        ggml_numa_mirror_place_end();
        printf("{\"large\": %s}\n", replicas_equal(big.w, n_replicas) ? "true" : "false");
        return 0;
    } else {
        return 2;
    }
    const std::vector<float> values = read(w, n_threads);
        printf("{\"before\": %s, \"after\": %s, \"first_row\": %g, \"last_row\": %g, \"replicas_equal\": %s, \"offset\": %td, \"status\": %s}\n",
        before ? "true" : "false", all_equal(values, expected) ? "true" : "false", values.front(), values.back(),
        replicas_equal(w, n_replicas) ? "true" : "false", ggml_numa_mirror_view.offset, ggml_numa_mirror_status());
    return 0;
}
