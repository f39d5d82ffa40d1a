// What a program in the lab tells the trace: in which phase it is, and which addresses hold what.
//
// The trace sees addresses only. So a mark is a store of a byte to a page that means nothing to anybody else,
// and what is said is where in the page it goes. Marks are made by one thread, while no other computes.
// Outside the lab, and without a trace, they do nothing.

#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#define LAB_MARK_PAGE ((uintptr_t) 0x6e756d610000)

enum lab_mark_kind {
    LAB_MARK_PHASE, // the value is the phase
    LAB_MARK_DIGIT, // the value is appended to the number that is being told
    LAB_MARK_BEGIN, // the number was the first address of a range
    LAB_MARK_END,   // the number was the first address after it; the value is the range's class
    LAB_MARK_COUNT,
};

enum lab_phase {
    LAB_NONE, // nothing is counted
    LAB_LOAD,
    LAB_PROMPT,
    LAB_GENERATION,
    LAB_PHASE_COUNT,
};

enum lab_class {
    LAB_OTHER, // what no range has
    LAB_WEIGHTS,
    LAB_KV,
    LAB_CLASS_COUNT,
};

static inline void lab_mark(enum lab_mark_kind kind, unsigned char value) {
    static volatile unsigned char * page;
    if (!page) {
        page = (volatile unsigned char *) mmap((void *) LAB_MARK_PAGE, 4096, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    page[kind * 256 + value] = 0;
}

static inline void lab_mark_number(uint64_t number) {
    for (int shift = 56; shift >= 0; shift -= 8) {
        lab_mark(LAB_MARK_DIGIT, (unsigned char) (number >> shift));
    }
}

// what is at these addresses belongs to a class; told before the phase in which it counts
static inline void lab_mark_range(uintptr_t begin, size_t size, enum lab_class what) {
    lab_mark_number(begin);
    lab_mark(LAB_MARK_BEGIN, 0);
    lab_mark_number(begin + size);
    lab_mark(LAB_MARK_END, (unsigned char) what);
}

static inline void lab_mark_phase(enum lab_phase phase) {
    lab_mark(LAB_MARK_PHASE, (unsigned char) phase);
}
