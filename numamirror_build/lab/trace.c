// Counts the bytes that programs in the lab load and store: per phase, virtual CPU, class of addresses and node.
//
// A plugin of QEMU's translator. It looks at instructions of user mode only, and counts only in phases,
// which the traced program marks (mark.h). Addresses of a class are those of the traced program;
// "other" is whatever any program does meanwhile.
//
//     -plugin trace.so,out=FILE,node=ID:BEGIN:END,node=...
//
// A node's BEGIN and END are where QEMU says that its memory is; it may be in several parts.

#include "mark.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// of QEMU's interface for plugins, what is used here; it is the same in versions 1 and 2

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
struct qemu_info_t;

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_RW = 3 };

extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *,
    void (*)(unsigned int, qemu_plugin_meminfo_t, uint64_t, void *), enum qemu_plugin_cb_flags, enum qemu_plugin_mem_rw, void *);
extern size_t   qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
extern struct qemu_plugin_insn * qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t);
extern bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);
extern struct qemu_plugin_hwaddr * qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t, uint64_t);
extern bool     qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *);
extern uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *);

// In version 2 this was taken away, and a QEMU that knows version 2 takes no plugin that asks for 1.
extern int qemu_plugin_n_vcpus(void) __attribute__((weak));

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

__attribute__((constructor)) static void choose_version(void) {
    qemu_plugin_version = qemu_plugin_n_vcpus ? 1 : 2;
}

// a node more than a machine can have is cut by the hole, and one stands for everywhere else
enum { N_CPUS = 256, N_NODES = 18, N_RANGES_FIRST = 64 };

struct node {
    int      id;
    uint64_t begin;
    uint64_t end;
};

struct range {
    uint64_t begin;
    uint64_t end;
    int      what;
};

// bytes loaded, and stored; a CPU's row is written by its own thread only
typedef uint64_t counts[LAB_PHASE_COUNT][LAB_CLASS_COUNT][N_NODES][2];

static struct {
    const char * out;
    struct node  nodes[N_NODES]; // the last stands for everywhere else
    int          n_nodes;
    struct range * ranges;
    int          n_ranges;
    uint64_t     number; // that is being told
    uint64_t     begin;  // of the range that is being told
    int          phase;
    counts *     cpus[N_CPUS];
} trace;

// The array grows by a copy, and the old one stays: another CPU may just look something up in it.
static void add_range(struct range range) {
    const int n = trace.n_ranges;
    if (n == 0 || (n >= N_RANGES_FIRST && (n & (n - 1)) == 0)) { // it is full: sizes are powers of two
        struct range * grown = malloc((n ? 2 * (size_t) n : N_RANGES_FIRST) * sizeof(*grown));
        if (!grown) {
            fprintf(stderr, "trace: no memory for another range\n");
            abort();
        }
        if (n) {
            memcpy(grown, trace.ranges, (size_t) n * sizeof(*grown));
        }
        __atomic_store_n(&trace.ranges, grown, __ATOMIC_RELEASE);
    }
    trace.ranges[n] = range;
    __atomic_store_n(&trace.n_ranges, n + 1, __ATOMIC_RELEASE);
}

static void on_mark(unsigned int offset) {
    const unsigned int value = offset % 256;
    switch (offset / 256) {
        case LAB_MARK_PHASE:
            __atomic_store_n(&trace.phase, value < LAB_PHASE_COUNT ? (int) value : LAB_NONE, __ATOMIC_RELEASE);
            break;
        case LAB_MARK_DIGIT:
            trace.number = trace.number << 8 | value;
            break;
        case LAB_MARK_BEGIN:
            trace.begin = trace.number;
            break;
        case LAB_MARK_END:
            if (value < LAB_CLASS_COUNT) {
                add_range((struct range) { trace.begin, trace.number, (int) value });
            }
            break;
    }
}

static int class_of(uint64_t address) {
    // how many first: the array that is read after that has at least as many
    const int            n      = __atomic_load_n(&trace.n_ranges, __ATOMIC_ACQUIRE);
    const struct range * ranges = __atomic_load_n(&trace.ranges, __ATOMIC_ACQUIRE);
    for (int i = 0; i < n; i++) {
        if (address - ranges[i].begin < ranges[i].end - ranges[i].begin) {
            return ranges[i].what;
        }
    }
    return LAB_OTHER;
}

static int node_of(qemu_plugin_meminfo_t info, uint64_t address) {
    const struct qemu_plugin_hwaddr * where = qemu_plugin_get_hwaddr(info, address);
    if (where && !qemu_plugin_hwaddr_is_io(where)) {
        const uint64_t physical = qemu_plugin_hwaddr_phys_addr(where);
        for (int i = 0; i < trace.n_nodes; i++) {
            if (physical - trace.nodes[i].begin < trace.nodes[i].end - trace.nodes[i].begin) {
                return i;
            }
        }
    }
    return trace.n_nodes;
}

static void on_access(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void * data) {
    (void) data;
    const bool is_store = qemu_plugin_mem_is_store(info);
    if (address - LAB_MARK_PAGE < LAB_MARK_COUNT * 256) {
        if (is_store) {
            on_mark((unsigned int) (address - LAB_MARK_PAGE));
        }
        return;
    }
    const int phase = __atomic_load_n(&trace.phase, __ATOMIC_ACQUIRE);
    if (phase == LAB_NONE || cpu >= N_CPUS) {
        return;
    }
    if (!trace.cpus[cpu]) {
        trace.cpus[cpu] = calloc(1, sizeof(counts));
    }
    (*trace.cpus[cpu])[phase][class_of(address)][node_of(info, address)][is_store] += UINT64_C(1) << qemu_plugin_mem_size_shift(info);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb * tb) {
    (void) id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
        struct qemu_plugin_insn * insn = qemu_plugin_tb_get_insn(tb, i);
        if (qemu_plugin_insn_vaddr(insn) >> 63 == 0) {
            qemu_plugin_register_vcpu_mem_cb(insn, on_access, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
        }
    }
}

// a line of JSON per count that is not zero, and one that says that all is said; the node is -1 for what is on none
static void write_counts(qemu_plugin_id_t id, void * data) {
    (void) id;
    (void) data;
    FILE * out = fopen(trace.out, "w");
    if (!out) {
        return;
    }
    for (int cpu = 0; cpu < N_CPUS; cpu++) {
        for (int phase = 0; trace.cpus[cpu] && phase < LAB_PHASE_COUNT; phase++) {
            for (int what = 0; what < LAB_CLASS_COUNT; what++) {
                for (int node = 0; node <= trace.n_nodes; node++) {
                    const uint64_t * bytes = (*trace.cpus[cpu])[phase][what][node];
                    if (bytes[0] || bytes[1]) {
                        fprintf(out, "[%d, %d, %d, %d, %" PRIu64 ", %" PRIu64 "]\n",
                            cpu, phase, what, node < trace.n_nodes ? trace.nodes[node].id : -1, bytes[0], bytes[1]);
                    }
                }
            }
        }
    }
    fprintf(out, "\"end\"\n");
    fclose(out);
}

__attribute__((visibility("default"))) int qemu_plugin_install(
    qemu_plugin_id_t id, const struct qemu_info_t * info, int argc, char ** argv) {
    (void) info;
    for (int i = 0; i < argc; i++) {
        struct node node;
        if (strncmp(argv[i], "out=", 4) == 0) {
            trace.out = strdup(argv[i] + 4);
        } else if (trace.n_nodes < N_NODES - 1
                && sscanf(argv[i], "node=%d:%" SCNu64 ":%" SCNu64, &node.id, &node.begin, &node.end) == 3) {
            trace.nodes[trace.n_nodes++] = node;
        } else {
            fprintf(stderr, "trace: unknown argument %s\n", argv[i]);
            return 1;
        }
    }
    if (!trace.out) {
        fprintf(stderr, "trace: out= is missing\n");
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, write_counts, NULL);
    return 0;
}
