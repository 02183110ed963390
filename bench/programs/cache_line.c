/* The round trip of a cache line between two cores.
 *
 *     cache_line CORE OTHER_CORE
 *
 * Two threads write to one word in turn. Prints the nanoseconds of a round trip, the median of many samples. The host
 * of a virtual machine may move virtual cores between hyper-threads of one core, which share their caches, and cores
 * that do not, so the figure can change from second to second.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SAMPLES 101
#define ROUND_TRIPS 500

/* Even: the first thread writes next. Odd: the other. */
static _Alignas(128) atomic_long word;

static void stay_on(int core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    if (sched_setaffinity(0, sizeof cores, &cores) != 0) {
        perror("sched_setaffinity");
        exit(1);
    }
}

static void wait_for(long value) {
    while (atomic_load_explicit(&word, memory_order_acquire) != value) {
    }
}

static void *answer(void *core) {
    stay_on(*(int *)core);
    for (long next = 1; next < 2L * SAMPLES * ROUND_TRIPS; next += 2) {
        wait_for(next);
        atomic_store_explicit(&word, next + 1, memory_order_release);
    }
    return NULL;
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: cache_line CORE OTHER_CORE\n");
        return 2;
    }
    int other_core = atoi(argv[2]);
    double samples_ns[SAMPLES];
    pthread_t other;
    stay_on(atoi(argv[1]));
    if (pthread_create(&other, NULL, answer, &other_core) != 0) {
        fprintf(stderr, "cache_line: no thread\n");
        return 1;
    }
    long next = 0;
    for (int sample = 0; sample < SAMPLES; sample++) {
        double began_ns = now_ns();
        for (int i = 0; i < ROUND_TRIPS; i++, next += 2) {
            atomic_store_explicit(&word, next + 1, memory_order_release);
            wait_for(next + 2);
        }
        samples_ns[sample] = (now_ns() - began_ns) / ROUND_TRIPS;
    }
    pthread_join(other, NULL);
    qsort(samples_ns, SAMPLES, sizeof *samples_ns, compare);
    printf("%.1f\n", samples_ns[SAMPLES / 2]);
    return 0;
}
