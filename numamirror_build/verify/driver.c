// Generate tokens on one thread, for counting instructions: driver MODEL TOKENS

#include "llama.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char ** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL TOKENS\n", argv[0]);
        return 2;
    }
    const int n_tokens = atoi(argv[2]);

    llama_backend_init();
    struct llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) {
        return 1;
    }

    struct llama_context_params params = llama_context_default_params();
    params.n_ctx           = 512;
    params.n_batch         = 32;
    params.n_ubatch        = 32;
    params.n_threads       = 1;
    params.n_threads_batch = 1;

    struct llama_context * ctx = llama_init_from_model(model, params);
    if (!ctx) {
        return 1;
    }

    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    struct llama_batch batch = llama_batch_init(1, 0, 1);
    batch.n_tokens     = 1;
    batch.n_seq_id[0]  = 1;
    batch.seq_id[0][0] = 0;
    batch.logits[0]    = 1;

    llama_token token = 3;
    for (int i = 0; i < n_tokens; i++) {
        batch.token[0] = token;
        batch.pos[0]   = i;
        if (llama_decode(ctx, batch) != 0) {
            return 1;
        }
        const float * logits = llama_get_logits_ith(ctx, 0);
        token = 0;
        for (int id = 1; id < n_vocab; id++) {
            token = logits[id] > logits[token] ? id : token;
        }
    }

    // the model is left to the process's end: what frees it has another name in each upstream
    llama_batch_free(batch);
    llama_free(ctx);
    return 0;
}
