// Generates tokens in the lab and marks what it does for the trace: trace_driver MODEL THREADS TOKENS
//
// Prints a digest of all logits.

#include "ggml-numa-mirror.h"
#include "llama.h"
#include "mark.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static uint64_t hash = 0xcbf29ce484222325u;

static void decode(llama_context * context, std::vector<llama_token> tokens) {
    if (llama_decode(context, llama_batch_get_one(tokens.data(), (int32_t) tokens.size())) != 0) {
        exit(1);
    }
    const int     n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context)));
    const float * logits  = llama_get_logits_ith(context, -1);
    for (int i = 0; i < n_vocab; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof(bits));
        hash = (hash ^ bits) * 0x100000001b3u;
    }
}

int main(int argc, char ** argv) {
    if (argc != 4) {
        return 2;
    }
    llama_backend_init();
    llama_numa_init(GGML_NUMA_STRATEGY_MIRROR);
    lab_mark_phase(LAB_LOAD);
    llama_model_params model_params = llama_model_default_params();
    llama_model * model = llama_model_load_from_file(argv[1], model_params);
    llama_context_params params = llama_context_default_params();
    params.n_ctx     = 256;
    params.n_threads = params.n_threads_batch = atoi(argv[2]);
    llama_context * context = model ? llama_init_from_model(model, params) : nullptr;
    lab_mark_phase(LAB_NONE);
    if (!context) {
        return 1;
    }
    // weights lie in the first half of each stride, caches in the second
    const auto & arena = ggml_numa_mirror_arena;
    for (int k = 0; k < atoi(argv[2]) && arena.stride; k++) {
        lab_mark_range(arena.home + k * arena.stride, arena.stride / 2, LAB_WEIGHTS);
        lab_mark_range(arena.home + k * arena.stride + arena.stride / 2, arena.stride / 2, LAB_KV);
    }
    std::vector<llama_token> prompt;
    for (int i = 0; i < 33; i++) {
        prompt.push_back(3 + i);
    }
    lab_mark_phase(LAB_PROMPT);
    decode(context, prompt);
    lab_mark_phase(LAB_GENERATION);
    for (int i = 0; i < atoi(argv[3]); i++) {
        decode(context, { 3 + i * 7 });
    }
    lab_mark_phase(LAB_NONE);
    printf("%016llx\n", (unsigned long long) hash);
    llama_free(context);
    llama_model_free(model);
    return 0;
}
