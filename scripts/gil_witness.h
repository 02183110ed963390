/* Counters and clock reads inside take_gil and drop_gil, for scripts/witness.py.

   Python/ceval_gil.c includes this file, and gil_witness.patch adds the calls. Each clock read
   stands immediately before the call that Headway's meter hooks, and the counting behind it, so
   that nothing of the witness lies between the two clock reads. The shared variables are written
   with the GIL's mutex held, and read by a thread that holds the GIL. A process has one GIL. */

#include <time.h>

enum {
    TAKES, CONTENDED_TAKES, WAITED_NS, DROPS, FORCED_DROPS, HELD_NS,
    DOUBTFUL_TAKES, MUTEX_WAITED_NS, COUNTERS
};
#define WAITS (1 << 22)
#define MARKS (1 << 18)
#define BRIEF_WAIT_NS 1000
#define UNCONTENDED_NS 200

PyAPI_DATA(uint64_t) witness_counters[COUNTERS];
uint64_t witness_counters[COUNTERS];
/* Every wait in nanoseconds: CONTENDED_TAKES of them. */
PyAPI_DATA(uint64_t) witness_waits[WAITS];
uint64_t witness_waits[WAITS];
/* Of a thread at one moment: the mark's name, the thread, what it has waited so far, how often. */
PyAPI_DATA(uint64_t) witness_marks[MARKS][4];
uint64_t witness_marks[MARKS][4];

static uint64_t witness_marked;
static uint64_t witness_taken_ns;
static __thread struct {
    uint64_t wait_began_ns, event_ns, waited_ns, waits;
    int is_doubtful;
} witness_thread;

static inline uint64_t
witness_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* take_gil locks the GIL's mutex: a thread that finds it locked waits from then on. The witness looks a
   moment before the meter tries, so that either may find locked what the other finds free. Takes of
   which this may be true are counted as doubtful. */
static inline void
witness_lock(pthread_mutex_t *mutex)
{
    uint64_t began_ns = witness_now_ns();
    /* glibc's own word: 0 while the mutex is free. */
    int is_locked = __atomic_load_n(&mutex->__data.__lock, __ATOMIC_RELAXED) != 0;
    if (pthread_mutex_lock(mutex)) {
        Py_FatalError("the GIL's mutex could not be locked");
    }
    uint64_t waited_ns = witness_now_ns() - began_ns;
    witness_thread.wait_began_ns = is_locked ? began_ns : 0;
    witness_thread.is_doubtful = is_locked ? waited_ns < BRIEF_WAIT_NS : waited_ns >= UNCONTENDED_NS;
    if (is_locked) {
        witness_counters[MUTEX_WAITED_NS] += waited_ns;
    }
}

/* Only the first timed wait of a take_gil begins a wait, unless the mutex did. */
static inline void
witness_waits_timed(void)
{
    witness_thread.is_doubtful = 0;
    if (witness_thread.wait_began_ns == 0) {
        witness_thread.wait_began_ns = witness_now_ns();
    }
}

/* condvar.h computes when the wait ends, and then calls this. */
#define pthread_cond_timedwait(cond, mutex, until) \
    (witness_waits_timed(), pthread_cond_timedwait(cond, mutex, until))

static inline void
witness_event(void)
{
    witness_thread.event_ns = witness_now_ns();
}

static inline void
witness_took(void)
{
    uint64_t number = witness_counters[CONTENDED_TAKES];
    witness_taken_ns = witness_thread.event_ns;
    witness_counters[TAKES]++;
    witness_counters[DOUBTFUL_TAKES] += witness_thread.is_doubtful;
    if (witness_thread.wait_began_ns != 0) {
        uint64_t waited_ns = witness_taken_ns - witness_thread.wait_began_ns;
        witness_waits[number % WAITS] = waited_ns;
        witness_counters[CONTENDED_TAKES]++;
        witness_counters[WAITED_NS] += waited_ns;
        witness_thread.waited_ns += waited_ns;
        witness_thread.waits++;
    }
}

/* Requests are made with the GIL's mutex held, so none can have come since the drop. */
static inline void
witness_dropped(PyThreadState *tstate)
{
    witness_counters[DROPS]++;
    witness_counters[HELD_NS] += witness_thread.event_ns - witness_taken_ns;
    if (tstate != NULL && _Py_eval_breaker_bit_is_set(tstate, _PY_GIL_DROP_REQUEST_BIT)) {
        witness_counters[FORCED_DROPS]++;
    }
}

/* Called by the thread that holds the GIL: everything begins anew. */
PyAPI_FUNC(void) witness_begin(void);
void
witness_begin(void)
{
    memset(witness_counters, 0, sizeof witness_counters);
    witness_taken_ns = witness_now_ns();
}

/* Called by the thread that holds the GIL. The present hold so far, in nanoseconds. */
PyAPI_FUNC(uint64_t) witness_present_hold_ns(void);
uint64_t
witness_present_hold_ns(void)
{
    return witness_now_ns() - witness_taken_ns;
}

/* Called by the thread that holds the GIL. Returns how many marks there are. */
PyAPI_FUNC(uint64_t) witness_mark(uint64_t name);
uint64_t
witness_mark(uint64_t name)
{
    uint64_t *mark = witness_marks[witness_marked++ % MARKS];
    mark[0] = name;
    mark[1] = (uint64_t)pthread_self();
    mark[2] = witness_thread.waited_ns;
    mark[3] = witness_thread.waits;
    return witness_marked;
}
