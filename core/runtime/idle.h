/* Idle workers sleep. StarPU's spin, unless it was built with --enable-blocking-drivers: they take
 * the processor from the program that calls Starling, from its ranks that share a core, and from
 * the thread that submits. */
#ifndef SL_CORE_RUNTIME_IDLE_H
#define SL_CORE_RUNTIME_IDLE_H

#include <stdbool.h>

/* From now on CPU workers that have had no task for a millisecond sleep until a task is pushed, but
 * at most for a sixteenth of the time that they have been idle: transfers to a swap folder, which
 * no push announces, wait no longer. The context that has started StarPU calls this. */
void sl__idle_begin(void);

/* Wakes them for good: StarPU is about to end. */
void sl__idle_end(void);

/* Wakes them for a millisecond: there are transfers to do, which no push announces. */
void sl__idle_wake(void);

/* While `quiet`, a task that this worker pushes wakes no other worker, where the scheduler lets the
 * pusher find its own tasks. For a callback that submits the worker's next task. */
void sl__idle_quiet(bool quiet);

/* For tests: how often workers have slept; the least and most microseconds of a sleep. */
unsigned sl__idle_sleeps(void);
void sl__idle_set_sleep(int least_us, int most_us);

#endif
