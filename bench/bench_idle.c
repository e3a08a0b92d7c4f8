/* The cost of an open context for a program that does something else meanwhile, as a simulation
 * does between two trainings. It prints a JSON line:
 *   speed           of the program's own threads, one a processor, beside an idle context: the
 *                   share of their speed without one; median, least and most of the rounds
 *   idle_cpu        processors that the idle workers take, while nothing else runs
 *   answer_us       a predictor's time for one sample of LeNet, right after the one before; median
 *   late_answer_us  the same after a pause of 200 ms
 *   foreign_cpu     share of the machine's time that other programs took */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <starling.h>

#include "bench/bench.h"
#include "bench/networks.h"

enum { ROUNDS = 7, MOST_THREADS = 256, ANSWERS = 15, PAUSE_US = 200000 };
static const double seconds = 0.4;

/* ---- the program's own work ---- */

struct work {
  pthread_t thread;
  double until, done;
  volatile float value;
};

static void *compute(void *argument) {
  struct work *work = argument;
  for (work->done = 0; bench_now() < work->until; work->done++)
    for (int i = 0; i < 20000; i++) work->value = work->value * 0.999f + 1;
  return NULL;
}

/* Rounds of work that a thread on each processor does in a second. */
static double speed_of_threads(void) {
  static struct work work[MOST_THREADS];
  long count = sysconf(_SC_NPROCESSORS_ONLN);
  double sum = 0, until = bench_now() + seconds;
  if (count > MOST_THREADS) count = MOST_THREADS;
  for (long i = 0; i < count; i++) {
    work[i].until = until;
    if (pthread_create(&work[i].thread, NULL, compute, &work[i])) {
      perror("bench_idle: a thread");
      exit(1);
    }
  }
  for (long i = 0; i < count; i++) {
    pthread_join(work[i].thread, NULL);
    sum += work[i].done;
  }
  return sum / seconds;
}

static enum sl_status measure_speed(double share[ROUNDS]) {
  for (int i = 0; i < ROUNDS; i++) {
    struct sl_context *context = NULL;
    double alone = speed_of_threads();
    enum sl_status status = sl_open(NULL, &context);
    if (status != SL_OK) return status;
    usleep(100000);
    share[i] = speed_of_threads() / alone;
    sl_close(context);
  }
  qsort(share, ROUNDS, sizeof *share, bench_compare);
  return SL_OK;
}

/* ---- answers ---- */

static enum sl_status measure_answers(struct sl_predictor *predictor, int pause_us, double *us) {
  static float image[28 * 28], answer[10];
  double times[ANSWERS];
  for (int i = -1; i < ANSWERS; i++) { /* the first one warms up */
    usleep(pause_us);
    double begin = bench_now();
    enum sl_status status = sl_predict(predictor, image, 1, answer);
    if (status != SL_OK) return status;
    if (i >= 0) times[i] = bench_now() - begin;
  }
  qsort(times, ANSWERS, sizeof *times, bench_compare);
  *us = 1e6 * times[ANSWERS / 2];
  return SL_OK;
}

static enum sl_status measure_predictor(struct sl_context *context, double *soon, double *late) {
  const struct network *lenet = network_find("lenet64");
  const struct sl_predictor_options o = {.max_batch = 1};
  struct sl_predictor *predictor = NULL;
  struct sl_model *model = NULL;
  struct sl_dataset *data = NULL;
  struct sl_loader *loader = NULL;
  enum sl_status status = network_data(lenet, &data, &loader);
  if (status == SL_OK) status = sl_model_new(context, &sl_dataset_info(data)->sample, &model);
  if (status == SL_OK) status = lenet->build(lenet, model);
  if (status == SL_OK) status = sl_model_build(model);
  if (status == SL_OK) status = sl_predictor_open(model, &o, &predictor);
  if (status == SL_OK) status = measure_answers(predictor, 0, soon);
  if (status == SL_OK) status = measure_answers(predictor, PAUSE_US, late);
  sl_predictor_free(predictor);
  sl_model_free(model);
  sl_loader_free(loader);
  sl_dataset_free(data);
  return status;
}

int main(void) {
  struct sl_context *context = NULL;
  double share[ROUNDS], soon = 0, late = 0, idle_cpu = 0;
  struct sl__cpu_time cpu = sl__cpu_time_now();
  setenv("STARPU_SILENT", "1", 0);
  enum sl_status status = measure_speed(share);
  double foreign = sl__foreign_cpu(&cpu);
  if (status == SL_OK) status = sl_open(NULL, &context);
  if (status == SL_OK) {
    usleep(PAUSE_US);
    idle_cpu = sl__cpu_time_now().own;
    usleep(1000000);
    idle_cpu = sl__cpu_time_now().own - idle_cpu;
    status = measure_predictor(context, &soon, &late);
  }
  int code = 1;
  if (status == SL_OK)
    code =
        bench_print(json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "bench", "idle",
                              "setup", sl_context_text(context), "speed", share[ROUNDS / 2],
                              "least", share[0], "most", share[ROUNDS - 1], "idle_cpu", idle_cpu,
                              "answer_us", soon, "late_answer_us", late, "foreign_cpu", foreign));
  else
    fprintf(stderr, "bench_idle: %s\n", sl_error());
  sl_close(context);
  return code;
}
