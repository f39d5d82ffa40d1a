// Reads memory of one node with threads on the CPUs of another, or of the same, and prints how fast.
//
// usage: stream NODE TOUCH CPUS BYTES SECONDS ROUNDS
//   NODE     the node that the memory shall be bound to
//   TOUCH    a CPU whose thread writes the memory first: where it comes from when binding is refused
//   CPUS     one reading thread on each of these, for example 0,1,2
//   BYTES    how much memory, shared out among the threads
//   SECONDS  how long a round lasts; the fastest of ROUNDS rounds counts
//
// Prints {"bytes_per_second": N, "bound": true, "on_node": SHARE}: SHARE of the pages that the kernel says are on NODE,
// or null where it does not say.

#define _GNU_SOURCE

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MPOL_BIND 2
#define MAX_NODES 1024
#define SAMPLES 256

struct reader {
    pthread_t thread;
    int cpu;
    const uint64_t * begin;
    size_t count;
    uint64_t bytes;
    double seconds;
};

static pthread_barrier_t barrier;
static double round_seconds;
static int n_rounds;
static volatile uint64_t sink;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void run_on(int cpu) {
    const size_t size = CPU_ALLOC_SIZE(cpu + 1);
    cpu_set_t * set = CPU_ALLOC(cpu + 1);
    CPU_ZERO_S(size, set);
    CPU_SET_S(cpu, size, set);
    if (sched_setaffinity(0, size, set) != 0) {
        fprintf(stderr, "cannot run on CPU %d\n", cpu);
        exit(1);
    }
    CPU_FREE(set);
}

static uint64_t sum(const uint64_t * p, size_t count) {
    uint64_t s[16] = { 0 };
    for (size_t i = 0; i + 16 <= count; i += 16) {
        for (int j = 0; j < 16; j++) {
            s[j] += p[i + j];
        }
    }
    uint64_t total = 0;
    for (int j = 0; j < 16; j++) {
        total += s[j];
    }
    return total;
}

static void * read_all(void * argument) {
    struct reader * reader = argument;
    const size_t piece = 1 << 17; // 1 MiB between two looks at the clock
    run_on(reader->cpu);
    for (int round = 0; round < n_rounds; round++) {
        uint64_t bytes = 0;
        size_t at = 0;
        pthread_barrier_wait(&barrier);
        const double start = now();
        double end = start;
        while (end - start < round_seconds) {
            const size_t n = reader->count - at < piece ? reader->count - at : piece;
            sink += sum(reader->begin + at, n);
            bytes += n * sizeof(uint64_t);
            at = at + n == reader->count ? 0 : at + n;
            end = now();
        }
        reader->bytes   = bytes;
        reader->seconds = end - start;
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier); // the first thread adds up in between
    }
    return NULL;
}

static void touch(char * memory, size_t bytes, int cpu) {
    run_on(cpu);
    memset(memory, 1, bytes);
}

// the share of some pages that lie on the node; negative: the kernel does not say
static double share_on_node(char * memory, size_t bytes, int node) {
    const long page = sysconf(_SC_PAGESIZE);
    void * pages[SAMPLES];
    int status[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        pages[i] = memory + (bytes / SAMPLES * i) / page * page;
    }
    if (syscall(SYS_move_pages, 0, (unsigned long) SAMPLES, pages, NULL, status, 0) != 0) {
        return -1;
    }
    int there = 0;
    for (int i = 0; i < SAMPLES; i++) {
        there += status[i] == node;
    }
    return (double) there / SAMPLES;
}

int main(int argc, char ** argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: stream NODE TOUCH CPUS BYTES SECONDS ROUNDS\n");
        return 2;
    }
    const int node  = atoi(argv[1]);
    const size_t bytes = strtoull(argv[4], NULL, 10);
    round_seconds = atof(argv[5]);
    n_rounds      = atoi(argv[6]);

    int n = 1;
    for (const char * c = argv[3]; *c; c++) {
        n += *c == ',';
    }
    struct reader * readers = calloc(n, sizeof(*readers));
    char * next = argv[3];
    for (int i = 0; i < n; i++) {
        readers[i].cpu = strtol(next, &next, 10);
        next++;
    }
    if (node < 0 || node >= MAX_NODES || bytes / sizeof(uint64_t) / n < 16 || n_rounds < 1) {
        fprintf(stderr, "arguments without a meaning\n");
        return 2;
    }

    char * memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "no memory\n");
        return 1;
    }
    madvise(memory, bytes, MADV_HUGEPAGE);
    const int bits = 8 * sizeof(unsigned long);
    unsigned long mask[MAX_NODES / (8 * sizeof(unsigned long)) + 1] = { 0 };
    mask[node / bits] |= 1ul << node % bits;
    const bool bound = syscall(SYS_mbind, memory, bytes, MPOL_BIND, mask, (unsigned long) MAX_NODES, 0u) == 0;
    touch(memory, bytes, atoi(argv[2]));

    pthread_barrier_init(&barrier, NULL, n + 1);
    const size_t share = bytes / sizeof(uint64_t) / n;
    for (int i = 0; i < n; i++) {
        readers[i].begin = (const uint64_t *) memory + i * share;
        readers[i].count = share;
        if (pthread_create(&readers[i].thread, NULL, read_all, &readers[i]) != 0) {
            fprintf(stderr, "no thread\n");
            return 1;
        }
    }
    double best = 0;
    for (int round = 0; round < n_rounds; round++) {
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        double rate = 0;
        for (int i = 0; i < n; i++) {
            rate += readers[i].bytes / readers[i].seconds;
        }
        best = rate > best ? rate : best;
        pthread_barrier_wait(&barrier);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(readers[i].thread, NULL);
    }
    const double there = share_on_node(memory, bytes, node);
    printf("{\"bytes_per_second\": %.0f, \"bound\": %s, \"on_node\": ", best, bound ? "true" : "false");
    if (there < 0) {
        printf("null}\n");
    } else {
        printf("%.4f}\n", there);
    }
    return 0;
}
