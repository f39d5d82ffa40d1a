// Drives llama.cpp's own interface, of a pristine or of a patched tree: one scenario per run.
//
//     llama_driver SCENARIO MODEL THREADS
//
// With servers of the RPC backend in the variable DRIVER_RPC (host:port, commas between them) they do all layers.
//
// Prints a digest of all logits that were evaluated. Where threads run at once, each evaluates what it would
// evaluate alone, so the digest is the same in every run. A scenario that fails ends with a message and 1.

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "llama.h"
#include "require.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

static const int PROMPT   = 40; // more than an ubatch
static const int GENERATE = 8;
static const int N_CTX    = 256;

using model_ptr   = std::unique_ptr<llama_model, decltype(&llama_model_free)>;
using context_ptr = std::unique_ptr<llama_context, decltype(&llama_free)>;

static void add_servers(const char * servers) {
    ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
    REQUIRE(rpc);
    const auto add = (ggml_backend_reg_t (*)(const char *)) ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server");
    REQUIRE(add);
    std::stringstream list(servers);
    for (std::string server; std::getline(list, server, ',');) {
        ggml_backend_reg_t added = add(server.c_str());
        REQUIRE(added);
        ggml_backend_register(added);
    }
}

static model_ptr load(const char * path) {
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 999; // to servers, if there are any
    model_ptr model(llama_model_load_from_file(path, params), llama_model_free);
    REQUIRE(model);
    return model;
}

static context_ptr make_context(llama_model * model, int n_threads) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx           = N_CTX;
    params.n_batch         = 64;
    params.n_ubatch        = 16;
    params.n_seq_max       = 2;
    params.n_threads       = n_threads;
    params.n_threads_batch = n_threads;
    context_ptr context(llama_init_from_model(model, params), llama_free);
    REQUIRE(context);
    return context;
}

// FNV-1a
struct digest {
    uint64_t value = 0xcbf29ce484222325;

    void add(const void * data, size_t size) {
        for (size_t i = 0; i < size; i++) {
            value = (value ^ ((const unsigned char *) data)[i]) * 0x100000001b3;
        }
    }
};

// evaluates tokens at positions; the logits of the last one go into the digest; the likeliest token
static llama_token evaluate(llama_context * context, const std::vector<llama_token> & tokens, int position, digest & seen) {
    const int   n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context)));
    llama_batch batch   = llama_batch_init((int32_t) tokens.size(), 0, 1);
    for (size_t i = 0; i < tokens.size(); i++) {
        batch.token   [i]    = tokens[i] % n_vocab;
        batch.pos     [i]    = position + (int) i;
        batch.n_seq_id[i]    = 1;
        batch.seq_id  [i][0] = 0;
        batch.logits  [i]    = i + 1 == tokens.size();
    }
    batch.n_tokens = (int32_t) tokens.size();
    const int status = llama_decode(context, batch);
    llama_batch_free(batch);
    REQUIRE(status == 0);
    const float * logits = llama_get_logits_ith(context, -1);
    seen.add(logits, n_vocab * sizeof(float));
    int best = 0;
    for (int i = 1; i < n_vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

static std::vector<llama_token> make_prompt(int seed) {
    std::vector<llama_token> prompt;
    for (int i = 0; i < PROMPT; i++) {
        prompt.push_back(3 + (i * 7 + seed * 13) % 250);
    }
    return prompt;
}

// a prompt and some tokens after it; between is called before each of these
static void complete(llama_context * context, int seed, digest & seen, const std::function<void(int)> & between = {}) {
    llama_token token = evaluate(context, make_prompt(seed), 0, seen);
    for (int i = 0; i < GENERATE; i++) {
        if (between) {
            between(i);
        }
        token = evaluate(context, { token }, PROMPT + i, seen);
    }
}

static void forget(llama_context * context, bool data) {
    llama_memory_clear(llama_get_memory(context), data);
}

// runs n functions at once; the digest is made of theirs in order
static void at_once(int n, digest & seen, const std::function<void(int, digest &)> & function) {
    std::vector<digest>      parts(n);
    std::vector<std::thread> threads;
    for (int i = 0; i < n; i++) {
        threads.emplace_back([&, i] { function(i, parts[i]); });
    }
    for (auto & thread : threads) {
        thread.join();
    }
    for (const auto & part : parts) {
        seen.add(&part.value, sizeof(part.value));
    }
}

static bool abort_after(void * left) {
    return (*(int *) left)-- <= 0;
}

static void save_and_restore(llama_context * context) {
    std::vector<uint8_t> state(llama_state_seq_get_size(context, 0));
    REQUIRE(llama_state_seq_get_data(context, state.data(), state.size(), 0) == state.size());
    forget(context, true);
    REQUIRE(llama_state_seq_set_data(context, state.data(), state.size(), 0) > 0);
}

struct pool {
    ggml_threadpool * threads;

    pool(int n_threads, const std::function<void(ggml_threadpool_params &)> & change) {
        ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
        change(params);
        threads = ggml_threadpool_new(&params);
        REQUIRE(threads);
    }

    ~pool() {
        ggml_threadpool_free(threads);
    }
};

static void with_pool(llama_model * model, int n_threads, digest & seen, const std::function<void(ggml_threadpool_params &)> & change) {
    pool generation(n_threads, change);
    pool batch(n_threads + 1, change);
    {
        context_ptr context = make_context(model, n_threads);
        llama_set_n_threads(context.get(), n_threads, n_threads + 1);
        llama_attach_threadpool(context.get(), generation.threads, batch.threads);
        complete(context.get(), 1, seen, [&](int i) {
            if (i % 3 == 1) {
                ggml_threadpool_pause(generation.threads);
            }
            if (i % 3 == 2) {
                ggml_threadpool_resume(generation.threads);
            }
            if (i == GENERATE / 2) {
                llama_detach_threadpool(context.get());
            }
        });
    }
}

using scenario = void (*)(const char * path, int n_threads, digest & seen);

static const struct {
    const char * name;
    scenario     run;
} SCENARIOS[] = {
    { "alone", [](const char * path, int n_threads, digest & seen) {
        model_ptr   model   = load(path);
        context_ptr context = make_context(model.get(), n_threads);
        for (int seed = 0; seed < 3; seed++) {
            complete(context.get(), seed, seen);
            forget(context.get(), seed % 2);
        }
    } },
    // two contexts of one model compute at once
    { "contexts", [](const char * path, int n_threads, digest & seen) {
        model_ptr model = load(path);
        at_once(2, seen, [&](int i, digest & part) {
            context_ptr context = make_context(model.get(), n_threads);
            for (int seed = 0; seed < 4; seed++) {
                complete(context.get(), 10 * i + seed, part);
                forget(context.get(), seed % 2);
            }
        });
    } },
    // two models are loaded, used and freed at once
    { "models", [](const char * path, int n_threads, digest & seen) {
        at_once(2, seen, [&](int i, digest & part) {
            for (int round = 0; round < 3; round++) {
                model_ptr   model   = load(path);
                context_ptr context = make_context(model.get(), n_threads);
                complete(context.get(), 10 * i + round, part);
            }
        });
    } },
    // contexts come and go while another computes
    { "churn", [](const char * path, int n_threads, digest & seen) {
        model_ptr model = load(path);
        at_once(2, seen, [&](int i, digest & part) {
            if (i == 0) {
                context_ptr context = make_context(model.get(), n_threads);
                for (int seed = 0; seed < 6; seed++) {
                    complete(context.get(), seed, part);
                    forget(context.get(), false);
                }
                return;
            }
            for (int round = 0; round < 6; round++) {
                context_ptr context = make_context(model.get(), n_threads);
                if (round % 2) {
                    evaluate(context.get(), make_prompt(round), 0, part);
                }
            }
        });
    } },
    // states are saved and restored while another context computes, and does so too
    { "states", [](const char * path, int n_threads, digest & seen) {
        model_ptr model = load(path);
        at_once(2, seen, [&](int i, digest & part) {
            context_ptr context = make_context(model.get(), n_threads);
            complete(context.get(), i, part, [&](int) { save_and_restore(context.get()); });
        });
    } },
    // cells are removed and the rest moves: K-shift writes to the cache in place
    { "shift", [](const char * path, int n_threads, digest & seen) {
        model_ptr      model   = load(path);
        context_ptr    context = make_context(model.get(), n_threads);
        llama_memory_t memory  = llama_get_memory(context.get());
        llama_token    token   = evaluate(context.get(), make_prompt(1), 0, seen);
        if (!llama_memory_can_shift(memory)) {
            return;
        }
        for (int i = 0; i < GENERATE; i++) {
            REQUIRE(llama_memory_seq_rm(memory, 0, 4, 6));
            llama_memory_seq_add(memory, 0, 6, -1, -2);
            token = evaluate(context.get(), { token }, PROMPT - i - 2, seen);
        }
    } },
    // a graph is aborted between any two of its nodes; what comes after is not disturbed
    { "abort", [](const char * path, int n_threads, digest & seen) {
        model_ptr   model   = load(path);
        context_ptr context = make_context(model.get(), n_threads);
        for (int after = 0; after < 120; after += 7) {
            int left = after;
            llama_set_abort_callback(context.get(), abort_after, &left);
            std::vector<llama_token> prompt = make_prompt(after);
            const int status = llama_decode(context.get(), llama_batch_get_one(prompt.data(), (int32_t) prompt.size()));
            REQUIRE(status == 2 || status == 0);
            llama_set_abort_callback(context.get(), nullptr, nullptr);
            forget(context.get(), true);
            evaluate(context.get(), make_prompt(1), 0, seen);
            forget(context.get(), false);
        }
    } },
    // the number of threads is another one for each graph
    { "threads", [](const char * path, int n_threads, digest & seen) {
        model_ptr   model   = load(path);
        context_ptr context = make_context(model.get(), n_threads);
        complete(context.get(), 1, seen, [&](int i) {
            const int n[] = { n_threads, 1, n_threads + 2, 2 };
            llama_set_n_threads(context.get(), n[i % 4], 1);
        });
    } },
    // threadpools that do not poll, that poll, that start paused, with CPU masks
    { "pools", [](const char * path, int n_threads, digest & seen) {
        model_ptr model = load(path);
        with_pool(model.get(), n_threads, seen, [](ggml_threadpool_params & params) { params.poll = 0; });
        with_pool(model.get(), n_threads, seen, [](ggml_threadpool_params & params) { params.poll = 100; });
        with_pool(model.get(), n_threads, seen, [](ggml_threadpool_params & params) { params.paused = true; });
        with_pool(model.get(), n_threads, seen, [](ggml_threadpool_params & params) {
            params.cpumask[0] = params.cpumask[1] = true;
            params.strict_cpu = true;
        });
    } },
    // all is freed and made again, from threads that end
    { "again", [](const char * path, int n_threads, digest & seen) {
        for (int round = 0; round < 3; round++) {
            std::thread([&] {
                llama_backend_init();
                model_ptr   model   = load(path);
                context_ptr context = make_context(model.get(), n_threads);
                complete(context.get(), round, seen);
                context.reset();
                model.reset();
                llama_backend_free();
            }).join();
        }
    } },
    // loading is given up half way; the next one succeeds
    { "cancel", [](const char * path, int n_threads, digest & seen) {
        for (float until : { 0.1f, 0.5f, 0.9f }) {
            llama_model_params params = llama_model_default_params();
            params.progress_callback           = [](float progress, void * data) { return progress < *(float *) data; };
            params.progress_callback_user_data = &until;
            REQUIRE(!llama_model_load_from_file(path, params));
        }
        model_ptr   model   = load(path);
        context_ptr context = make_context(model.get(), n_threads);
        complete(context.get(), 1, seen);
    } },
};

extern "C" int drive(int argc, const char ** argv) {
    REQUIRE(argc == 4);
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) {
            fputs(text, stderr);
        }
    }, nullptr);
    if (const char * servers = getenv("DRIVER_RPC")) {
        add_servers(servers);
    }
    for (const auto & it : SCENARIOS) {
        if (strcmp(it.name, argv[1]) == 0) {
            digest seen;
            it.run(argv[2], atoi(argv[3]), seen);
            printf("%016llx\n", (unsigned long long) seen.value);
            fflush(stdout);
            return 0;
        }
    }
    fprintf(stderr, "no scenario %s\n", argv[1]);
    return 2;
}

#ifndef DRIVER_IS_PLUGIN
int main(int argc, const char ** argv) {
    return drive(argc, argv);
}
#endif
