// Loads a model through ik_llama.cpp's own interface and says what came of it, as a line of JSON.
//
//     ik_load_driver MODEL [OPTION...]
//
// Options: rtr, merge-qkv, merge-experts, mla=N, no-flash, check (the tensors), validate (the quants), mlock, dry-run,
// cancel (through the progress callback), override (a value of the model's that nothing reads), unused (no context
// is made), again (a second context is), stop (until standard input ends, with model and context in memory).
// Without GGML_NUMA_MIRROR in the environment there is no mirror.

#include "llama.h"
#include "logits.h"
#ifdef GGML_NUMA_MIRROR
#    include "ggml-numa-mirror.h"
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

static std::set<std::string> options;

static bool has(const char * option) {
    return options.count(option) > 0;
}

static int mla() {
    for (int n = 0; n < 4; n++) {
        if (has(("mla=" + std::to_string(n)).c_str())) {
            return n;
        }
    }
    return 3; // as in all of its programs
}

// what may be done with the first replica's pages of an entry of the store; empty: there are none
static std::string stored_pages() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.size() > 4 && line.find("/numa-mirror-") != std::string::npos && line.compare(line.size() - 4, 4, "/0-0") == 0) {
            return line.substr(line.find(' ') + 1, 4);
        }
    }
    return "";
}

static std::string pages_while_loading;

static bool on_progress(float progress, void * data) {
    *(float *) data = progress;
    pages_while_loading = stored_pages();
    return !has("cancel");
}

static llama_model * load(const char * path, float & progress) {
    llama_model_kv_override overrides[2] = {};
    overrides[0].tag = LLAMA_KV_OVERRIDE_TYPE_FLOAT;
    strcpy(overrides[0].key, "test.value");
    overrides[0].val_f64 = 1e-9;
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers                = 0;
    params.mla                         = mla();
    params.repack_tensors              = has("rtr");
    params.merge_qkv                   = has("merge-qkv");
    params.merge_up_gate_exps          = has("merge-experts");
    params.check_tensors               = has("check");
    params.validate_quants             = has("validate");
    params.use_mlock                   = has("mlock");
    params.dry_run                     = has("dry-run");
    params.kv_overrides                = has("override") ? overrides : nullptr;
    params.progress_callback           = on_progress;
    params.progress_callback_user_data = &progress;
    return llama_model_load_from_file(path, params);
}

static llama_context * make_context(llama_model * model) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx      = 256;
    params.mla_attn   = mla();
    params.flash_attn = !has("no-flash");
    params.n_threads  = params.n_threads_batch = 2;
    return model ? llama_init_from_model(model, params) : nullptr;
}

// a number that depends on each bit of the logits after a prompt, long enough for MLA to take the matrix of K and V,
// and after each of some tokens; 0: they cannot be had, or are no numbers
static uint64_t digest(llama_model * model, llama_context * context) {
    if (!context) {
        return 0;
    }
    const int n_vocab  = llama_n_vocab(model);
    const int n_prompt = 136;
    std::vector<llama_token> tokens;
    for (int i = 0; i < n_prompt + 8; i++) {
        tokens.push_back(3 + i * 7919 % (n_vocab - 3));
    }
    logits_hash hash;
    for (int n, i = 0; i < (int) tokens.size(); i += n) {
        n = i == 0 ? n_prompt : 1;
        if (llama_decode(context, llama_batch_get_one(&tokens[i], n, i, 0)) != 0) {
            return 0;
        }
        const float * logits = llama_get_logits_ith(context, -1);
        if (!std::all_of(logits, logits + n_vocab, [](float value) { return std::isfinite(value); })) {
            return 0;
        }
        hash.add(logits, n_vocab);
    }
    return hash.value;
}

int main(int argc, char ** argv) {
    options = std::set<std::string>(argv + 2, argv + argc);
    llama_backend_init();
    float progress = -1.0f;
    llama_model *   model    = load(argv[1], progress);
    llama_context * context  = has("dry-run") || has("unused") ? nullptr : make_context(model);
    const uint64_t  logits   = digest(model, context);
    llama_context * second   = has("again") ? make_context(model) : nullptr;
    const uint64_t  seconds  = digest(model, second);
    printf("\n{\"loaded\": %s, \"progress\": %g, \"logits\": \"%016llx\", \"again\": \"%016llx\", \"pages\": [\"%s\", \"%s\"]",
        model ? "true" : "false", progress, (unsigned long long) logits, (unsigned long long) seconds,
        pages_while_loading.c_str(), stored_pages().c_str());
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
    llama_free(second);
    if (model) {
        llama_free_model(model);
    }
    return 0;
}
