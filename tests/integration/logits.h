// For drivers: a number that depends on each bit of all logits that are added to it.

#pragma once

#include <cstdint>
#include <cstring>

struct logits_hash {
    uint64_t value = 0xcbf29ce484222325u;

    void add(const float * logits, int n) {
        for (int i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &logits[i], sizeof(bits));
            value = (value ^ bits) * 0x100000001b3u;
        }
    }
};
