/* The time in which a core changes parameters that another core has read: by ordinary stores, by
 * ordinary stores to lines requested for writing (codelets/kernels/cache_prefetch.h), and by
 * streaming stores (core/base/streaming.h). Then the time in which the other core reads them, and
 * the time in which a value goes to the other core and back. In a virtual machine the last one
 * changes while the benchmark runs; the line has it before and after. beside_mb: other memory that
 * the core has read since its last look at the parameters, which pushes them out of its own caches.
 */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "codelets/kernels/cache_prefetch.h"
#include "core/base/simd.h"
#include "core/base/streaming.h"

enum { FLOATS = 320 << 10, LINES = FLOATS / 16, ROUNDS = 60, BLOCK = 1024, BESIDE_MB = 4 };
enum stores { ORDINARY, REQUESTED, STREAMING, STORES };

/* The two threads take turns: the other one has it when `turn` is odd. */
static float *values, *beside, sum;
static int turn, cpus[2];

/* 64 sums, so that reading does not wait for adding. */
SL__SIMD static void read_all(const float *from, int floats) {
  float sums[64] = {0};
  for (int i = 0; i < floats; i += 64)
    for (int k = 0; k < 64; k++) sums[k] += from[i + k];
  for (int k = 0; k < 64; k++) sum += sums[k];
}

static void *read_in_turn(void *nothing) {
  (void)nothing;
  bench_stay_on(cpus[1]);
  for (int at = 1; at < 2 * ROUNDS; at += 2) {
    bench_wait_for_turn(&turn, at);
    read_all(values, FLOATS);
    bench_pass_turn(&turn, at + 1);
  }
  return NULL;
}

SL__SIMD static void write_all(enum stores stores) {
  float block[BLOCK];
  for (int at = 0; at < FLOATS; at += BLOCK) {
    float *to = stores == STREAMING ? block : values + at;
    if (stores == REQUESTED && at + BLOCK < FLOATS)
      sl__prefetch_for_write(values + at + BLOCK, BLOCK);
    for (int i = 0; i < BLOCK; i++) to[i] = values[at + i] * 0.5f + 1;
    if (stores == STREAMING) sl__stream_floats(values + at, block, BLOCK);
  }
  sl__stream_end();
}

static int measure(enum stores stores, int beside_mb) {
  static const char *const names[] = {"ordinary", "requested", "streaming"};
  pthread_t other;
  cpu_set_t all;
  double writing = 0, reading = 0, before = bench_round_trip_ns();
  turn = 0;
  if (sched_getaffinity(0, sizeof all, &all)) return 1;
  bench_stay_on(cpus[0]);
  if (pthread_create(&other, NULL, read_in_turn, NULL)) return 1;
  for (int at = 1; at < 2 * ROUNDS; at += 2) {
    read_all(beside, beside_mb << 18);
    double begin = bench_now();
    write_all(stores);
    double written = bench_now();
    bench_pass_turn(&turn, at);
    bench_wait_for_turn(&turn, at + 1);
    writing += written - begin;
    reading += bench_now() - written;
  }
  pthread_join(other, NULL);
  sched_setaffinity(0, sizeof all, &all);
  return bench_print(json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:f}", "bench", "streaming",
                               "stores", names[stores], "beside_mb", beside_mb, "write_ns_per_line",
                               1e9 * writing / ROUNDS / LINES, "read_ns_per_line",
                               1e9 * reading / ROUNDS / LINES, "round_trip_ns", before,
                               "round_trip_ns_after", bench_round_trip_ns()));
}

int main(void) {
  int failed = 0;
  bool has_two = bench_two_cpus(cpus);
  values = aligned_alloc(64, FLOATS * sizeof *values);
  beside = aligned_alloc(64, (size_t)BESIDE_MB << 20);
  if (!has_two || !values || !beside) {
    fprintf(stderr, "bench_streaming: it needs two processors and 8 MB of memory\n");
    return 1;
  }
  memset(values, 0, FLOATS * sizeof *values);
  memset(beside, 0, (size_t)BESIDE_MB << 20);
  for (int round = 0; round < 3; round++)
    for (int stores = 0; stores < STORES && !failed; stores++)
      failed = measure(stores, 0) || measure(stores, BESIDE_MB);
  free(values);
  free(beside);
  return failed || !(sum >= 0);
}
