// Loads a model through ik_llama.cpp's own interface and says what came of it, as a line of JSON.
//
//     ik_load_driver MODEL [OPTION...]
//
// Options: rtr, merge-qkv, merge-experts, mla=N, check (the tensors), validate (the quants), mlock, dry-run,
// cancel (through the progress callback), override (a value of the model's that nothing reads), unused (no context
// is made), again (a second context is), stop (until standard input ends, with model and context in memory).
// Without GGML_NUMA_MIRROR in the environment there is no mirror.

#include "llama.h"
#ifdef GGML_NUMA_MIRROR
#    include "ggml-numa-mirror.h"
#endif

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

static bool on_progress(float progress, void * data) {
    *(float *) data = progress;
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
    params.n_ctx      = 64;
    params.mla_attn   = mla();
    params.flash_attn = true;
    params.n_threads  = params.n_threads_batch = 2;
    return model ? llama_init_from_model(model, params) : nullptr;
}

// a number that depends on each bit of all logits of a prompt
static uint64_t digest(llama_model * model, llama_context * context) {
    if (!context) {
        return 0;
    }
    const int n_vocab = llama_n_vocab(model);
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < 40; i++) {
        llama_token token = 3 + i * 7919 % (n_vocab - 3);
        if (llama_decode(context, llama_batch_get_one(&token, 1, i, 0)) != 0) {
            return 0;
        }
        const float * logits = llama_get_logits_ith(context, -1);
        for (int k = 0; k < n_vocab; k++) {
            uint32_t bits;
            memcpy(&bits, &logits[k], sizeof(bits));
            hash = (hash ^ bits) * 0x100000001b3u;
        }
    }
    return hash;
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
    printf("\n{\"loaded\": %s, \"progress\": %g, \"logits\": \"%016llx\", \"again\": \"%016llx\"",
        model ? "true" : "false", progress, (unsigned long long) logits, (unsigned long long) seconds);
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
