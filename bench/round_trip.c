#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#include "bench/bench.h"

enum { TRIPS = 500, BATCHES = 40 };

/* The second thread has the turn when `turn` is odd. */
struct trip {
  int cpu[2], turn;
  double seconds; /* of the quickest batch of trips */
};

void bench_stay_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

bool bench_two_cpus(int cpu[2]) {
  cpu_set_t set;
  int count = 0;
  if (sched_getaffinity(0, sizeof set, &set)) return false;
  for (int i = 0; i < CPU_SETSIZE && count < 2; i++)
    if (CPU_ISSET(i, &set)) cpu[count++] = i;
  return count == 2;
}

static void *answer(void *argument) {
  struct trip *t = argument;
  bench_stay_on(t->cpu[1]);
  for (int at = 1; at < 2 * BATCHES * TRIPS; at += 2) {
    bench_wait_for_turn(&t->turn, at);
    bench_pass_turn(&t->turn, at + 1);
  }
  return NULL;
}

static void *ask(void *argument) {
  struct trip *t = argument;
  bench_stay_on(t->cpu[0]);
  for (int batch = 0, at = 1; batch < BATCHES; batch++) {
    double begin = bench_now();
    for (int trip = 0; trip < TRIPS; trip++, at += 2) {
      bench_pass_turn(&t->turn, at);
      bench_wait_for_turn(&t->turn, at + 1);
    }
    double seconds = bench_now() - begin;
    if (!batch || seconds < t->seconds) t->seconds = seconds;
  }
  return NULL;
}

/* Threads of its own keep the caller's on its processors. */
double bench_round_trip_ns(void) {
  struct trip t = {.turn = 0};
  pthread_t there, back;
  if (!bench_two_cpus(t.cpu) || pthread_create(&back, NULL, answer, &t)) return 0;
  if (pthread_create(&there, NULL, ask, &t))
    ask(&t); /* else the other would wait for ever */
  else
    pthread_join(there, NULL);
  pthread_join(back, NULL);
  return 1e9 * t.seconds / TRIPS;
}
