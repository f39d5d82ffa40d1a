// Generates tokens, tells the trace where weights and caches lie, and says what the kernel knows of memory and threads.
//
//     driver MODEL STRATEGY THREADS LOADING POLICY TOKENS LOGITS
//
// STRATEGY is the number for llama_numa_init (0: no call), LOADING is default or no-mmap,
// POLICY is default or interleave (over all nodes, as numactl does it). All logits go to the file LOGITS.
// Prints a line of JSON.
//
// It is linked with pristine and with patched libraries, and asks both in the same way: upstream itself tells
// which buffers hold weights (ggml_backend_buffer_set_usage), and the buffers that it allocates for the tensors
// of a context while one is made are caches. Both functions are called from another library than the one they
// are in, so those that are defined here are found first.

#include "ggml-backend.h"
#include "ggml-alloc.h"
#include "llama.h"
#include "mark.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

static const int PROMPT = 40;
static const int POLICY_INTERLEAVE   = 3; // MPOL_INTERLEAVE
static const int POLICY_MEMS_ALLOWED = 4; // MPOL_F_MEMS_ALLOWED

struct range {
    uintptr_t begin;
    size_t    size;
    lab_class what;
    int       replica;
};

static std::vector<range> ranges;
static bool               makes_context;

static void found(ggml_backend_buffer_t buffer, lab_class what) {
    const uintptr_t begin = buffer ? (uintptr_t) ggml_backend_buffer_get_base(buffer) : 0;
    const bool is_known = std::any_of(ranges.begin(), ranges.end(), [&](const range & it) { return it.begin == begin; });
    if (begin && !is_known) {
        ranges.push_back({ begin, ggml_backend_buffer_get_size(buffer), what, 0 });
    }
}

template <typename F> static F next(const char * name) {
    void * function = dlsym(RTLD_NEXT, name);
    if (!function) {
        fprintf(stderr, "driver: there is no %s\n", name);
        exit(1);
    }
    return reinterpret_cast<F>(function);
}

extern "C" void ggml_backend_buffer_set_usage(ggml_backend_buffer_t buffer, ggml_backend_buffer_usage usage) {
    static const auto upstream = next<decltype(&ggml_backend_buffer_set_usage)>("ggml_backend_buffer_set_usage");
    upstream(buffer, usage);
    if (usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
        found(buffer, LAB_WEIGHTS);
    }
}

extern "C" ggml_backend_buffer_t ggml_backend_alloc_ctx_tensors_from_buft(ggml_context * context, ggml_backend_buffer_type_t type) {
    static const auto upstream =
        next<decltype(&ggml_backend_alloc_ctx_tensors_from_buft)>("ggml_backend_alloc_ctx_tensors_from_buft");
    const ggml_backend_buffer_t buffer = upstream(context, type);
    if (makes_context) {
        found(buffer, LAB_KV);
    }
    return buffer;
}

// with the mirror, each range is there once per replica
static void add_replicas(int n_replicas) {
    struct arena { uintptr_t home; size_t stride; };
    const arena * mirror = (const arena *) dlsym(RTLD_DEFAULT, "ggml_numa_mirror_arena");
    const std::vector<range> home = ranges;
    for (const range & it : home) {
        for (int k = 1; k < n_replicas && mirror && it.begin - mirror->home < mirror->stride; k++) {
            ranges.push_back({ it.begin + k * mirror->stride, it.size, it.what, k });
        }
    }
}

static std::string status() {
    const auto function = (const char * (*)()) dlsym(RTLD_DEFAULT, "ggml_numa_mirror_status");
    return function ? function() : "null";
}

static int count_replicas(const std::string & record) {
    const char * key = "\"replicas\":";
    const size_t at = record.find(key);
    return at == std::string::npos ? 1 : std::max(1, atoi(record.c_str() + at + strlen(key)));
}

// how many pages of a range lie on which node, as the kernel says; -1: not there
static std::map<int, size_t> ask_pages(const range & it) {
    const uintptr_t size = (uintptr_t) sysconf(_SC_PAGESIZE);
    std::vector<void *> pages;
    for (uintptr_t page = it.begin & ~(size - 1); page < it.begin + it.size; page += size) {
        pages.push_back((void *) page);
    }
    std::vector<int> nodes(pages.size(), -1);
    if (syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, nodes.data(), 0) != 0) {
        perror("driver: move_pages");
        exit(1);
    }
    std::map<int, size_t> counts;
    for (int node : nodes) {
        counts[node < 0 ? -1 : node]++;
    }
    return counts;
}

static void interleave() {
    unsigned long nodes[16] = {};
    const unsigned long n_bits = sizeof(nodes) * 8;
    if (syscall(SYS_get_mempolicy, nullptr, nodes, n_bits, nullptr, POLICY_MEMS_ALLOWED) != 0
            || syscall(SYS_set_mempolicy, POLICY_INTERLEAVE, nodes, n_bits) != 0) {
        perror("driver: set_mempolicy");
        exit(1);
    }
}

// whichever way this version spells it
template <typename P> static auto without_mmap(P & params, int)  -> decltype((void) params.use_mmap)  { params.use_mmap  = false; }
template <typename P> static auto without_mmap(P & params, long) -> decltype((void) params.load_mode) { params.load_mode = {};    }

static void decode(llama_context * context, int n_vocab, const std::vector<llama_token> & tokens, int position, std::ofstream & out) {
    llama_batch batch = llama_batch_init((int32_t) tokens.size(), 0, 1);
    batch.n_tokens = (int32_t) tokens.size();
    for (int i = 0; i < batch.n_tokens; i++) {
        batch.token   [i]    = tokens[i];
        batch.pos     [i]    = position + i;
        batch.n_seq_id[i]    = 1;
        batch.seq_id  [i][0] = 0;
        batch.logits  [i]    = true;
    }
    if (llama_decode(context, batch) != 0) {
        fprintf(stderr, "driver: llama_decode failed\n");
        exit(1);
    }
    for (int i = 0; i < batch.n_tokens; i++) {
        out.write((const char *) llama_get_logits_ith(context, i), (std::streamsize) (n_vocab * sizeof(float)));
    }
    llama_batch_free(batch);
}

static std::string read_file(const std::string & path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

// the CPUs that each thread of the process may run on
static std::vector<std::string> ask_threads() {
    std::vector<std::string> cpus;
    for (const auto & task : std::filesystem::directory_iterator("/proc/self/task")) {
        const std::string key  = "Cpus_allowed_list:\t";
        const std::string text = read_file(task.path() / "status");
        const size_t      from = text.find(key) + key.size();
        cpus.push_back(text.substr(from, text.find('\n', from) - from));
    }
    std::sort(cpus.begin(), cpus.end());
    return cpus;
}

static long ask_counter(const char * name) {
    std::istringstream lines(read_file("/proc/vmstat"));
    std::string        key;
    for (long value; lines >> key >> value;) {
        if (key == name) {
            return value;
        }
    }
    return -1;
}

int main(int argc, char ** argv) {
    if (argc != 8) {
        fprintf(stderr, "usage: driver MODEL STRATEGY THREADS LOADING POLICY TOKENS LOGITS\n");
        return 2;
    }
    const int strategy = atoi(argv[2]);
    if (strcmp(argv[5], "interleave") == 0) {
        interleave();
    }
    llama_backend_init();
    if (strategy) {
        llama_numa_init((ggml_numa_strategy) strategy);
    }

    lab_mark_phase(LAB_LOAD);
    llama_model_params model_params = llama_model_default_params();
    if (strcmp(argv[4], "no-mmap") == 0) {
        without_mmap(model_params, 0);
    }
    llama_model * model = llama_model_load_from_file(argv[1], model_params);
    if (!model) {
        return 1;
    }
    llama_context_params params = llama_context_default_params();
    params.n_ctx     = 256;
    params.n_threads = params.n_threads_batch = atoi(argv[3]);
    makes_context = true;
    llama_context * context = llama_init_from_model(model, params);
    makes_context = false;
    lab_mark_phase(LAB_NONE);
    if (!context) {
        return 1;
    }

    add_replicas(count_replicas(status()));
    for (const range & it : ranges) {
        lab_mark_range(it.begin, it.size, it.what);
    }
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    const auto token  = [&](int place) { return (llama_token) (3 + (7919 * place + 13) % (n_vocab - 3)); };
    std::vector<llama_token> prompt;
    for (int i = 0; i < PROMPT; i++) {
        prompt.push_back(token(i));
    }
    std::ofstream logits(argv[7], std::ios::binary);
    const long migrated = ask_counter("numa_pages_migrated");
    lab_mark_phase(LAB_PROMPT);
    decode(context, n_vocab, prompt, 0, logits);
    lab_mark_phase(LAB_GENERATION);
    for (int i = 0; i < atoi(argv[6]); i++) {
        decode(context, n_vocab, { token(PROMPT + i) }, PROMPT + i, logits);
    }
    lab_mark_phase(LAB_NONE);
    logits.close();
    if (!logits) {
        fprintf(stderr, "driver: the logits cannot be written\n");
        return 1;
    }

    printf("{\"status\": %s, \"n_vocab\": %d, \"balancing\": %d, \"migrated\": %ld, \"threads\": [", status().c_str(), n_vocab,
        atoi(read_file("/proc/sys/kernel/numa_balancing").c_str()), ask_counter("numa_pages_migrated") - migrated);
    const char * comma = "";
    for (const std::string & cpus : ask_threads()) {
        printf("%s\"%s\"", comma, cpus.c_str());
        comma = ", ";
    }
    printf("], \"ranges\": [");
    comma = "";
    for (const range & it : ranges) {
        printf("%s{\"class\": \"%s\", \"replica\": %d, \"bytes\": %zu, \"pages\": {",
            comma, it.what == LAB_WEIGHTS ? "weights" : "kv", it.replica, it.size);
        comma = "";
        for (const auto & [node, count] : ask_pages(it)) {
            printf("%s\"%d\": %zu", comma, node, count);
            comma = ", ";
        }
        printf("}}");
        comma = ", ";
    }
    printf("]}\n");
    // the model is left to the process's end: what frees it has another name in each upstream
    llama_free(context);
    return 0;
}
