// Loads a model through llama.cpp's own interface and says what came of it, as a line of JSON.
//
//     load_driver MODEL [OPTION...]
//
// Options: plain (without the mirror), no-mmap, mlock, check (the tensors), cancel (through the progress callback),
// two (of the model at once), stop (until standard input ends, with model and context in memory).

#include "llama.h"
#include "logits.h"
#ifdef GGML_NUMA_MIRROR
#    include "ggml-numa-mirror.h"
#endif

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

static std::set<std::string> options;

static bool has(const char * option) {
    return options.count(option) > 0;
}

struct loaded {
    llama_model * model    = nullptr;
    float         progress = -1.0f;
    double        seconds  = 0.0;
};

static bool on_progress(float progress, void * data) {
    *(float *) data = progress;
    return !has("cancel");
}

static loaded load(const char * path) {
    loaded result;
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers                = 0;
    params.check_tensors               = has("check");
    params.progress_callback           = on_progress;
    params.progress_callback_user_data = &result.progress;
    if (has("mlock")) {
        params.load_mode = LLAMA_LOAD_MODE_MLOCK;
    }
    if (has("no-mmap")) {
        params.load_mode = LLAMA_LOAD_MODE_NONE;
    }
    const auto start = std::chrono::steady_clock::now();
    result.model = llama_model_load_from_file(path, params);
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
}

static llama_context * make_context(llama_model * model) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx     = 64;
    params.n_threads = params.n_threads_batch = 2;
    return model ? llama_init_from_model(model, params) : nullptr;
}

// a number that depends on each bit of all logits of a prompt
static uint64_t digest(llama_context * context) {
    if (!context) {
        return 0;
    }
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context)));
    std::vector<llama_token> tokens;
    for (int i = 0; i < 40; i++) {
        tokens.push_back(3 + i * 7919 % (n_vocab - 3));
    }
    logits_hash hash;
    for (llama_token token : tokens) {
        if (llama_decode(context, llama_batch_get_one(&token, 1)) != 0) {
            return 0;
        }
        hash.add(llama_get_logits_ith(context, -1), n_vocab);
    }
    return hash.value;
}

int main(int argc, char ** argv) {
    options = std::set<std::string>(argv + 2, argv + argc);
    llama_backend_init();
#ifdef GGML_NUMA_MIRROR
    if (!has("plain")) {
        llama_numa_init(GGML_NUMA_STRATEGY_MIRROR);
    }
#endif
    loaded other;
    std::thread second([&] {
        if (has("two")) {
            other = load(argv[1]);
        }
    });
    const loaded first = load(argv[1]);
    second.join();
    llama_context * context       = make_context(first.model);
    llama_context * other_context = make_context(other.model);
    const uint64_t logits       = digest(context);
    const uint64_t other_logits = digest(other_context);
    printf("{\"loaded\": %s, \"progress\": %g, \"seconds\": %.4f, \"logits\": \"%016llx\", \"other\": \"%016llx\"",
        first.model ? "true" : "false", first.progress, first.seconds, (unsigned long long) logits, (unsigned long long) other_logits);
#ifdef GGML_NUMA_MIRROR
    printf(", \"status\": %s", ggml_numa_mirror_status());
#endif
    printf("}\n");
    fflush(stdout);
    if (has("stop")) {
        char c;
        return read(0, &c, 1) != 0;
    }
    llama_free(context);
    llama_free(other_context);
    llama_model_free(first.model);
    llama_model_free(other.model);
    return 0;
}
