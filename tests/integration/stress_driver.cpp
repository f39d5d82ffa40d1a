// Uses the mirror through ggml's own interface in ways that break runtimes: one scenario per run.
//
//     stress_driver SCENARIO REPLICAS THREADS
//
// A scenario that fails ends with a message and 1.

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-numa-mirror.h"
#include "ggml.h"
#include "require.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

static const int N_COLS = 64;
static const int N_ROWS = 12;
static const int ROUNDS = 40;

static int n_replicas;
static int n_threads;

// a tensor in the arena
struct placed {
    ggml_context *        ctx;
    ggml_tensor *         tensor;
    ggml_backend_buffer_t buffer;

    placed(float value, ggml_numa_mirror_use use) {
        ctx    = ggml_init({ ggml_tensor_overhead() * 4, nullptr, true });
        tensor = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, N_COLS, N_ROWS);
        ggml_numa_mirror_place_begin(use);
        buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, ggml_backend_cpu_buffer_type());
        REQUIRE(buffer);
        REQUIRE((uintptr_t) tensor->data - ggml_numa_mirror_arena.home < ggml_numa_mirror_arena.stride);
        for (int i = 0; i < N_COLS * N_ROWS; i++) {
            ((float *) tensor->data)[i] = value;
        }
        ggml_numa_mirror_place_end();
    }

    ~placed() {
        ggml_backend_buffer_free(buffer);
        ggml_free(ctx);
    }

    placed(const placed &) = delete;

    void set(float value) {
        const std::vector<float> values(N_COLS * N_ROWS, value);
        ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
    }

    // whether all elements of all replicas have this value
    bool holds(float value) const {
        for (int k = 0; k < n_replicas; k++) {
            const float * data = (const float *) ((const char *) tensor->data + k * ggml_numa_mirror_arena.stride);
            for (int i = 0; i < N_COLS * N_ROWS; i++) {
                if (data[i] != value) {
                    fprintf(stderr, "replica %d has %g at %d instead of %g\n", k, data[i], i, value);
                    return false;
                }
            }
        }
        return true;
    }
};

using builder = std::function<ggml_tensor *(ggml_context *)>;

// a graph that is ready to be computed, by a backend of its own
struct prepared {
    ggml_backend_t backend;
    ggml_context * ctx;
    ggml_cgraph *  graph;
    ggml_tensor *  out;
    ggml_gallocr_t alloc;

    prepared(int threads, const builder & build) {
        backend = ggml_backend_cpu_init();
        ggml_backend_cpu_set_n_threads(backend, threads);
        ctx   = ggml_init({ ggml_tensor_overhead() * 256 + ggml_graph_overhead(), nullptr, true });
        graph = ggml_new_graph(ctx);
        out   = build(ctx);
        ggml_build_forward_expand(graph, out);
        alloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
        REQUIRE(ggml_gallocr_alloc_graph(alloc, graph));
    }

    ~prepared() {
        ggml_gallocr_free(alloc);
        ggml_free(ctx);
        ggml_backend_free(backend);
    }

    prepared(const prepared &) = delete;

    ggml_status compute() {
        return ggml_backend_graph_compute(backend, graph);
    }

    // the result's elements, which must all be equal
    float value() {
        std::vector<float> values(ggml_nelements(out));
        ggml_backend_tensor_get(out, values.data(), 0, ggml_nbytes(out));
        for (float v : values) {
            if (v != values[0]) {
                fprintf(stderr, "threads read %g and %g\n", v, values[0]);
                exit(1);
            }
        }
        return values[0];
    }
};

static float compute(int threads, const builder & build) {
    prepared graph(threads, build);
    REQUIRE(graph.compute() == GGML_STATUS_SUCCESS);
    return graph.value();
}

// what all threads read of a tensor; ADD shares rows out to them
static float read(int threads, const placed & p) {
    return compute(threads, [&](ggml_context * ctx) { return ggml_add(ctx, p.tensor, p.tensor); }) / 2;
}

static void at_once(int n, const std::function<void(int)> & function) {
    std::vector<std::thread> threads;
    for (int i = 0; i < n; i++) {
        threads.emplace_back(function, i);
    }
    for (auto & thread : threads) {
        thread.join();
    }
}

// the user's threads compute graphs of their own at once, on weights they share and caches of their own
static void user_threads() {
    placed weights(1.0f, GGML_NUMA_MIRROR_WEIGHTS);
    at_once(4, [&](int i) {
        placed cache(0.0f, GGML_NUMA_MIRROR_KV);
        const int threads = 1 + (i + n_threads) % 4;
        for (int round = 1; round <= ROUNDS; round++) {
            compute(threads, [&](ggml_context * ctx) { return ggml_add_inplace(ctx, cache.tensor, weights.tensor); });
            REQUIRE(read(threads, cache) == (float) round);
        }
        REQUIRE(cache.holds(ROUNDS));
    });
}

// tensors are written from outside of graphs while other threads compute and do so too
static void writers() {
    placed weights(1.0f, GGML_NUMA_MIRROR_WEIGHTS);
    at_once(3, [&](int i) {
        placed mine(0.0f, i % 2 ? GGML_NUMA_MIRROR_KV : GGML_NUMA_MIRROR_WEIGHTS);
        for (int round = 0; round < ROUNDS; round++) {
            mine.set((float) round - 1);
            mine.set((float) round);
            REQUIRE(read(n_threads, mine) == (float) round);
            REQUIRE(read(n_threads, weights) == 1.0f);
            if (round % 3 == 0) {
                ggml_backend_buffer_clear(mine.buffer, 0);
                REQUIRE(read(n_threads, mine) == 0.0f);
            }
        }
    });
}

// blocks of the arena come and go while another thread computes
static void churn() {
    placed weights(1.0f, GGML_NUMA_MIRROR_WEIGHTS);
    std::atomic<bool> done { false };
    std::thread other([&] {
        while (!done.load()) {
            placed a(2.0f, GGML_NUMA_MIRROR_KV);
            placed b(3.0f, GGML_NUMA_MIRROR_WEIGHTS);
            REQUIRE(read(1, a) == 2.0f);
        }
    });
    placed cache(0.0f, GGML_NUMA_MIRROR_KV);
    for (int round = 1; round <= ROUNDS; round++) {
        compute(n_threads, [&](ggml_context * ctx) { return ggml_add_inplace(ctx, cache.tensor, weights.tensor); });
        REQUIRE(cache.holds((float) round));
    }
    done.store(true);
    other.join();
}

static bool abort_after(void * left) {
    return (*(int *) left)-- <= 0;
}

// a graph of nodes that each write to a cache is aborted after each of them: the replicas stay equal
static void abort_between() {
    for (int after = 0; after < 8; after++) {
        placed cache(1.0f, GGML_NUMA_MIRROR_KV);
        prepared graph(n_threads, [&](ggml_context * ctx) {
            ggml_tensor * t = cache.tensor;
            for (int i = 0; i < 8; i++) {
                t = ggml_scale_inplace(ctx, t, 2.0f);
            }
            return t;
        });
        int left = after;
        ggml_backend_cpu_set_abort_callback(graph.backend, abort_after, &left);
        REQUIRE(graph.compute() == GGML_STATUS_ABORTED);
        REQUIRE(cache.holds((float) (2 << after)));
        ggml_backend_cpu_set_abort_callback(graph.backend, nullptr, nullptr);
        REQUIRE(graph.compute() == GGML_STATUS_SUCCESS);
        REQUIRE(cache.holds((float) (2 << after) * 256));
    }
}

// one threadpool, another number of threads for each graph, straight through ggml_graph_compute
static void thread_counts() {
    const int n_max = n_threads + 2;
    for (int poll : { 0, 50 }) {
        ggml_threadpool_params params = ggml_threadpool_params_default(n_max);
        params.poll   = poll;
        params.paused = poll == 0;
        ggml_threadpool * pool = ggml_threadpool_new(&params);
        REQUIRE(pool);
        placed weights(1.0f, GGML_NUMA_MIRROR_WEIGHTS);
        placed cache  (0.0f, GGML_NUMA_MIRROR_KV);
        prepared graph(1, [&](ggml_context * ctx) { return ggml_add_inplace(ctx, cache.tensor, weights.tensor); });
        for (int round = 1; round <= ROUNDS; round++) {
            if (round % 5 == 0) {
                ggml_threadpool_pause(pool);
            }
            ggml_cplan plan = ggml_graph_plan(graph.graph, 1 + (round * 2) % n_max, pool);
            std::vector<uint8_t> work(plan.work_size);
            plan.work_data = work.data();
            REQUIRE(ggml_graph_compute(graph.graph, &plan) == GGML_STATUS_SUCCESS);
            REQUIRE(cache.holds((float) round));
        }
        ggml_threadpool_free(pool);
    }
}

// a process that has a mirror is copied: the child reads and writes its own
static void fork_child() {
    placed weights(1.0f, GGML_NUMA_MIRROR_WEIGHTS);
    placed cache  (1.0f, GGML_NUMA_MIRROR_KV);
    REQUIRE(read(1, weights) == 1.0f);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        weights.set(5.0f);
        compute(1, [&](ggml_context * ctx) { return ggml_scale_inplace(ctx, cache.tensor, 7.0f); });
        REQUIRE(read(1, weights) == 5.0f);
        REQUIRE(cache.holds(7.0f));
        exit(0);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    REQUIRE(read(1, weights) == 1.0f);
    REQUIRE(cache.holds(1.0f));
}

// a copy of the process outlives it: the status record stays that of the process
static void fork_late() {
    placed weights(1.0f, GGML_NUMA_MIRROR_WEIGHTS);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        close(ends[1]);
        for (int round = 0; round < 5; round++) {
            REQUIRE(read(1, weights) == 1.0f);
        }
        char none;
        REQUIRE(::read(ends[0], &none, 1) == 0); // until the parent has ended
        exit(0);
    }
    REQUIRE(read(1, weights) == 1.0f);
}

static void nested_graph(ggml_tensor * dst, const ggml_tensor * a, int ith, int, void * data) {
    if (ith == 0) {
        REQUIRE(read(1, *(const placed *) data) == 3.0f);
        memcpy(dst->data, a->data, ggml_nbytes(dst));
    }
}

// an operation of the user's computes a graph of its own in a worker thread
static void nested() {
    placed weights(3.0f, GGML_NUMA_MIRROR_WEIGHTS);
    placed cache  (1.0f, GGML_NUMA_MIRROR_KV);
    for (int round = 1; round <= ROUNDS; round++) {
        const float value = compute(n_threads, [&](ggml_context * ctx) {
            ggml_tensor * before = ggml_add(ctx, weights.tensor, weights.tensor);
            ggml_tensor * custom = ggml_map_custom1(ctx, before, nested_graph, 1, &weights);
            return ggml_add_inplace(ctx, cache.tensor, custom);
        });
        REQUIRE(value == 1.0f + 6.0f * round);
        REQUIRE(cache.holds(value));
        REQUIRE(ggml_numa_mirror_view.offset == 0);
    }
}

static void doubled(ggml_tensor * dst, const ggml_tensor *, int ith, int nth, void *) {
    float * data = (float *) dst->data;
    for (int i = ith; i < N_COLS * N_ROWS; i += nth) {
        data[i] *= 2;
    }
}

// an operation of the user's writes to a cache; it knows nothing of replicas
static void custom() {
    placed cache(1.0f, GGML_NUMA_MIRROR_KV);
    const float value = compute(n_threads, [&](ggml_context * ctx) {
        ggml_tensor * custom = ggml_map_custom1_inplace(ctx, cache.tensor, doubled, GGML_N_TASKS_MAX, nullptr);
        return ggml_add(ctx, custom, custom);
    });
    REQUIRE(value == 4.0f);
    REQUIRE(read(n_threads, cache) == 2.0f); // before this graph the other replicas got what was written
    REQUIRE(cache.holds(2.0f));
}

// graphs know nothing of the mirror when it is asked for by another thread; their threads go on as they began
static void late() {
    const int n_products = 100;
    std::atomic<bool> is_ready { false };
    std::thread other([&] {
        while (!is_ready) {
        }
        ggml_numa_init(GGML_NUMA_STRATEGY_MIRROR);
    });
    ggml_context * ctx = ggml_init({ ggml_tensor_overhead() * 4 + N_COLS * 1024 * 2 * sizeof(float), nullptr, false });
    ggml_tensor * a = ggml_set_f32(ggml_new_tensor_2d(ctx, GGML_TYPE_F32, N_COLS, 1024), 1.0f);
    ggml_tensor * b = ggml_set_f32(ggml_new_tensor_2d(ctx, GGML_TYPE_F32, N_COLS, 1), 1.0f);
    for (bool is_over = false; !is_over;) {
        is_over = ggml_numa_mirror_requested(); // once more
        const float value = compute(n_threads, [&](ggml_context * in) {
            ggml_tensor * sum = ggml_mul_mat(in, a, b);
            for (int i = 1; i < n_products; i++) {
                sum = ggml_add(in, sum, ggml_mul_mat(in, a, b));
            }
            return sum;
        });
        REQUIRE(value == (float) n_products * N_COLS);
        is_ready = true;
    }
    other.join();
    ggml_free(ctx);
    placed weights(1.0f, GGML_NUMA_MIRROR_WEIGHTS);
    REQUIRE(read(n_threads, weights) == 1.0f);
}

// what a sanitizer must find: a thread that writes what others read, a read beyond the end of a vector
static void broken() {
    placed weights(1.0f, GGML_NUMA_MIRROR_WEIGHTS);
    std::thread other([&] {
        for (int i = 0; i < 100000; i++) {
            ((volatile float *) weights.tensor->data)[i % N_COLS] = 1.0f;
        }
    });
    for (int round = 0; round < ROUNDS; round++) {
        read(n_threads, weights);
    }
    other.join();
    const std::vector<float> values(N_COLS, 1.0f);
    ggml_backend_tensor_set(weights.tensor, values.data(), 0, (N_COLS + 1) * sizeof(float));
}

int main(int argc, char ** argv) {
    REQUIRE(argc == 4);
    const std::string scenario = argv[1];
    n_replicas = atoi(argv[2]);
    n_threads  = atoi(argv[3]);

    if (scenario != "late") {
        ggml_numa_init(GGML_NUMA_STRATEGY_MIRROR);
        REQUIRE(!ggml_numa_mirror_error());
    }
    static const struct {
        const char * name;
        void (*run)();
    } SCENARIOS[] = {
        { "user-threads", user_threads }, { "writers", writers }, { "churn", churn }, { "abort", abort_between },
        { "thread-counts", thread_counts }, { "fork", fork_child }, { "fork-late", fork_late },
        { "nested", nested }, { "custom", custom }, { "late", late },
        { "broken", broken },
    };
    for (const auto & it : SCENARIOS) {
        if (scenario == it.name) {
            it.run();
            printf("%s\n", ggml_numa_mirror_status());
            return 0;
        }
    }
    return 2;
}
