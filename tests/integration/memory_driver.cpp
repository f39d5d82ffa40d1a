// Drives the mirror's memory: the arguments are steps, the answer is a JSON list with the result of each.
//
// What a block holds depends on its number and the place in it, so that a wrong or missing byte is seen.

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-numa-mirror.h"
#include "ggml.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

struct block {
    ggml_backend_buffer_t buffer;
    size_t                size;
};

static std::vector<block> blocks;
static bool is_locked = false; // loads lock what they allocate in memory

static std::vector<size_t> parse_sizes(const std::string & text) {
    std::vector<size_t> sizes;
    std::stringstream stream(text);
    std::string size;
    while (std::getline(stream, size, ',')) {
        sizes.push_back(strtoull(size.c_str(), nullptr, 10));
    }
    return sizes;
}

static uint64_t expected_word(size_t number, size_t at) {
    return (number + 1) * 0x9e3779b97f4a7c15u + at;
}

static uint64_t * words_of(const block & b, size_t k = 0) {
    return (uint64_t *) ((char *) ggml_backend_buffer_get_base(b.buffer) + k * ggml_numa_mirror_arena.stride);
}

static std::string quote(const char * text) {
    std::string result = "\"";
    for (const char * c = text; *c; c++) {
        result += *c == '"' || *c == '\\' ? std::string("\\") + *c : std::string(1, *c);
    }
    return result + "\"";
}

static const char * boolean(bool value) {
    return value ? "true" : "false";
}

// what is not stored yet is filled, at least half of it; the result tells which blocks were there already
static std::string load(const std::string & content, const std::vector<size_t> & sizes, bool whole) {
    ggml_numa_mirror_place_begin(GGML_NUMA_MIRROR_WEIGHTS);
    const ggml_numa_mirror_load expected = { sizes.data(), sizes.size(), content.c_str(), (const void *) &ggml_numa_mirror_init, is_locked };
    if (const char * error = ggml_numa_mirror_expect(&expected)) {
        ggml_numa_mirror_place_end();
        return quote(error);
    }
    std::string stored;
    for (size_t size : sizes) {
        block b = { ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size), size };
        if (!b.buffer) {
            ggml_numa_mirror_place_end();
            return "null";
        }
        if (is_locked && mlock(words_of(b), size) != 0) {
            exit(3);
        }
        const bool is_stored = ggml_numa_mirror_is_stored(words_of(b));
        for (size_t at = 0; at < size / (whole ? 8 : 16) && !is_stored; at++) {
            words_of(b)[at] = expected_word(blocks.size(), at);
        }
        stored += (stored.empty() ? "" : ", ") + std::string(boolean(is_stored));
        blocks.push_back(b);
    }
    if (whole) {
        const bool committed = ggml_numa_mirror_commit();
        ggml_numa_mirror_place_end();
        return committed ? "[" + stored + "]" : "false";
    }
    return "\"half\"";
}

static std::string allocate(size_t size, ggml_numa_mirror_use use) {
    ggml_numa_mirror_place_begin(use);
    block b = { ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size), size };
    if (b.buffer) {
        for (size_t at = 0; at < size / 8; at++) {
            words_of(b)[at] = expected_word(blocks.size(), at);
        }
        blocks.push_back(b);
        ggml_numa_mirror_commit();
    }
    ggml_numa_mirror_place_end();
    return boolean(b.buffer != nullptr);
}

// whether a block of the program's n-th step has its content in each replica
static bool is_whole(size_t number, int n_replicas) {
    for (int k = 0; k < n_replicas; k++) {
        const uint64_t * words = words_of(blocks[number], k);
        for (size_t at = 0; at < blocks[number].size / 8; at++) {
            if (words[at] != expected_word(number, at)) {
                return false;
            }
        }
    }
    return true;
}

static std::string run(const std::string & verb, const std::string & argument) {
    if (verb == "expect") {
        const std::vector<size_t> sizes = parse_sizes(argument);
        const ggml_numa_mirror_load expected = { sizes.data(), sizes.size(), nullptr, nullptr, false };
        const char * error = ggml_numa_mirror_expect(&expected);
        return error ? quote(error) : "null";
    }
    if (verb == "load" || verb == "half") {
        const size_t colon = argument.find(':');
        return load(argument.substr(0, colon), parse_sizes(argument.substr(colon + 1)), verb == "load");
    }
    if (verb == "rest") {
        // of what half has begun
        for (size_t i = 0; i < blocks.size(); i++) {
            for (size_t at = 0; at < blocks[i].size / 8; at++) {
                words_of(blocks[i])[at] = expected_word(i, at);
            }
        }
        const bool committed = ggml_numa_mirror_commit();
        ggml_numa_mirror_place_end();
        return boolean(committed);
    }
    if (verb == "end") {
        // without the rest
        ggml_numa_mirror_place_end();
        return "null";
    }
    if (verb == "lock") {
        is_locked = true;
        return "null";
    }
    if (verb == "policy") {
        return boolean(ggml_numa_mirror_set_policy(argument.c_str()));
    }
    if (verb == "scatter") {
        // many pieces of a block in no order, some over others; then the replicas are as the first one is
        const std::vector<size_t> numbers = parse_sizes(argument); // of the block, and of replicas
        const block & b = blocks[numbers[0]];
        std::mt19937 random(1);
        for (int i = 0; i < 20000; i++) {
            const size_t at   = random() % b.size;
            const size_t size = std::min<size_t>(b.size - at, 1 + random() % (i % 100 == 0 ? 100000 : 50));
            char * ptr = (char *) words_of(b) + at;
            ggml_numa_mirror_writing(ptr, size);
            memset(ptr, (int) random(), size);
            ggml_numa_mirror_written(ptr, size);
        }
        ggml_numa_mirror_commit();
        bool is_everywhere = true;
        for (size_t k = 1; k < numbers[1]; k++) {
            is_everywhere = is_everywhere && memcmp(words_of(b), words_of(b, k), b.size) == 0;
        }
        return boolean(is_everywhere);
    }
    if (verb == "write") {
        // to a word of a block, from outside of a graph; then in all replicas
        const std::vector<size_t> numbers = parse_sizes(argument); // of the block, and of the word
        words_of(blocks[numbers[0]])[numbers[1]] = 0;
        ggml_numa_mirror_written(&words_of(blocks[numbers[0]])[numbers[1]], sizeof(uint64_t));
        ggml_numa_mirror_commit();
        bool is_everywhere = true;
        for (size_t k = 0; k < numbers[2]; k++) {
            is_everywhere = is_everywhere && words_of(blocks[numbers[0]], k)[numbers[1]] == 0;
        }
        return boolean(is_everywhere);
    }
    if (verb == "weights" || verb == "kv") {
        return allocate(parse_sizes(argument)[0], verb == "kv" ? GGML_NUMA_MIRROR_KV : GGML_NUMA_MIRROR_WEIGHTS);
    }
    if (verb == "whole") {
        const std::vector<size_t> numbers = parse_sizes(argument); // of the block, and of replicas
        return boolean(is_whole(numbers[0], (int) numbers[1]));
    }
    if (verb == "free") {
        ggml_backend_buffer_free(blocks[parse_sizes(argument)[0]].buffer);
        return "null";
    }
    if (verb == "status") {
        return ggml_numa_mirror_status();
    }
    if (verb == "stop") {
        // until whoever started this has seen enough
        printf("[\"stopped\"]\n");
        fflush(stdout);
        char c;
        return read(0, &c, 1) == 0 ? "null" : "false";
    }
    exit(2);
}

int main(int argc, char ** argv) {
    ggml_numa_init(GGML_NUMA_STRATEGY_MIRROR);
    std::string answer;
    for (int i = 1; i < argc; i++) {
        const std::string step  = argv[i];
        const size_t      colon = step.find(':');
        const std::string argument = colon == std::string::npos ? "" : step.substr(colon + 1);
        answer += (answer.empty() ? "" : ", ") + run(step.substr(0, colon), argument);
    }
    printf("[%s]\n", answer.c_str());
    return 0;
}
