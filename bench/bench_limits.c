/* How close each kernel comes to the machine's limits, for every shape of the networks of
 * bench/networks.c: training on one worker, with SGD and momentum. The program prints one JSON
 * line for the peak of products on one core, and one for the memory's bandwidth. Then it prints
 * one a kernel and shape, those that take most of the time first:
 *   calls         in a step
 *   ms            median time of a call
 *   share         of the time of all kernels of a step
 *   gflops        0 for those whose work is not counted
 *   gb_s          bytes of the tensors that it reads and writes, a second
 *   roof          share of the roofline: the larger of gflops / peak and gb_s / bandwidth. Above 1:
 *                 an algorithm with fewer products, or tensors that stay in caches
 *   foreign_cpu   share of the machine's time that other programs took
 *
 * The roofline: Williams, Waterman, Patterson, Roofline: an insightful visual performance model for
 * multicore architectures, 2009. bench/limits.py draws a picture. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <argp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <starling.h>

#include "bench/bench.h"
#include "bench/kernel_times.h"
#include "bench/networks.h"

/* ---- options ---- */

enum { KEY_TINY = 256 };

struct bench {
  double seconds;
  const char *only;
  bool tiny;
};

static const struct argp_option options[] = {
    {"seconds", 's', "X", 0, "Seconds to measure each network (default 3)", 0},
    {"only", 'n', "NAME", 0, "One of " NETWORK_NAMES " (default: all but the large ones)", 0},
    {"tiny", KEY_TINY, NULL, 0, "Small networks of the same layers: does it work?", 0},
    {0}};

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct bench *bench = state->input;
  char *end;
  switch (key) {
    case 's':
      bench->seconds = strtod(text, &end);
      if (*end || !(bench->seconds > 0 && bench->seconds < 1e6))
        argp_failure(state, 2, 0, "'%s': must be above 0", text);
      break;
    case 'n':
      bench->only = text;
      if (!network_find(text))
        argp_failure(state, 2, 0, "'%s': unknown; there are " NETWORK_NAMES, text);
      break;
    case KEY_TINY: bench->tiny = true; break;
    default: return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

/* ---- the machine ---- */

/* Of one core, by a[i] = b[i] + s c[i] in arrays beyond the caches (McCalpin, Memory bandwidth and
 * machine balance in current high performance computers, 1995): GB/s, three arrays. */
static int measure_bandwidth(double *gb_s) {
  const int64_t n = 1 << 25;
  float *a = malloc(3 * (size_t)n * sizeof *a);
  double best = 1e9;
  if (!a) {
    fprintf(stderr, "bench_limits: no memory for three arrays of %lld floats\n", (long long)n);
    return 1;
  }
  const float *b = a + n, *c = b + n;
  for (int64_t i = 0; i < 3 * n; i++) a[i] = 1;
  for (int round = 0; round < 5; round++) {
    double begin = bench_now();
    for (int64_t i = 0; i < n; i++) a[i] = b[i] + 0.5f * c[i];
    __asm__ volatile("" ::"r"(a) : "memory");
    double seconds = bench_now() - begin;
    if (seconds < best) best = seconds;
  }
  free(a);
  *gb_s = 3e-9 * (double)n * sizeof *a / best;
  return bench_print(
      json_pack("{s:s, s:s, s:f}", "peer", "triad", "bench", "bandwidth", "gb_s", *gb_s));
}

/* The peak is that of one core: for this time the process may use one processor only. */
static int measure_machine(double *gflops, double *gb_s) {
  cpu_set_t all, one;
  bool bound = sched_getaffinity(0, sizeof all, &all) == 0;
  int first = 0;
  while (bound && !CPU_ISSET(first, &all)) first++;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  bound = bound && sched_setaffinity(0, sizeof one, &one) == 0;
  if (!bound) fprintf(stderr, "bench_limits: the peak is that of all processors: no affinity\n");
  int failed = bench_peak(gflops) || measure_bandwidth(gb_s);
  if (bound) sched_setaffinity(0, sizeof all, &all);
  return failed;
}

/* ---- one network ---- */

static struct {
  struct kernel_times times;
  bool measures;
} shared;

static void run_kernel(int op, void *buffers[], void *cl_arg) {
  if (shared.measures)
    kernel_measure(&shared.times, op, buffers, cl_arg);
  else
    kernel_run(op, buffers, cl_arg);
}

static enum sl_status run_steps(const struct bench *bench, struct sl_context *context,
                                struct sl_trainer *trainer, struct sl_loader *loader, int *steps) {
  const int warm = 2;
  struct sl_report report;
  bool reported;
  double begin = bench_now();
  for (*steps = -warm; *steps < 2 || bench_now() - begin < bench->seconds; ++*steps) {
    enum sl_status status = SL_OK;
    if (*steps == 0) begin = bench_now();
    shared.measures = *steps >= 0;
    status = sl_trainer_step(trainer, loader, &report, &reported);
    if (status == SL_OK && !reported) status = sl_trainer_drain(trainer, &report, &reported);
    if (status == SL_OK) status = sl_wait(context); /* the updates, too */
    if (status != SL_OK) return status;
  }
  return SL_OK;
}

static enum sl_status train(const struct bench *bench, const struct network *network, int *steps) {
  const struct sl_context_options one = {.seed = 1, .devices = "cpu:0"};
  /* a captured step's tasks are subgraphs, whose time is that of several kernels */
  struct sl_trainer_options options = {.eager = true};
  struct sl_context *context = NULL;
  struct sl_dataset *data = NULL;
  struct sl_loader *loader = NULL;
  struct sl_model *model = NULL;
  struct sl_trainer *trainer = NULL;
  network_trainer(network, &options);
  enum sl_status status = network_data(network, &data, &loader);
  if (status == SL_OK) status = sl_open(&one, &context);
  if (status == SL_OK) status = sl_model_new(context, &sl_dataset_info(data)->sample, &model);
  if (status == SL_OK) status = network->build(network, model);
  if (status == SL_OK)
    status = sl_trainer_new(model, &network->optimizer, NULL, &options, &trainer);
  if (status == SL_OK) status = run_steps(bench, context, trainer, loader, steps);
  if (status != SL_OK) fprintf(stderr, "bench_limits: %s: %s\n", network->name, sl_error());
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_close(context);
  sl_loader_free(loader);
  sl_dataset_free(data);
  return status;
}

static int print_times(const struct network *network, int steps, double gflops, double gb_s,
                       double foreign) {
  double all = 0;
  int failed = 0;
  for (int i = 0; i < shared.times.count; i++)
    all += shared.times.kernel[i]->median * (double)shared.times.kernel[i]->calls;
  for (int i = 0; i < shared.times.count && !failed; i++) {
    const struct kernel_time *k = shared.times.kernel[i];
    double flops = 1e-9 * k->flops / k->median, bytes = 1e-9 * k->bytes / k->median;
    double compute = flops / gflops, memory = bytes / gb_s, calls = (double)k->calls;
    failed = bench_print(json_pack(
        "{s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "bench", "limits", "network",
        network->name, "op", kernel_name(k->op), "layer", k->layer, "calls", calls / steps, "ms",
        1e3 * k->median, "share", k->median * calls / all, "gflops", flops, "gb_s", bytes, "roof",
        compute > memory ? compute : memory, "foreign_cpu", foreign));
  }
  return failed;
}

static int measure_network(const struct bench *bench, const struct network *chosen, double gflops,
                           double gb_s) {
  struct network network = *chosen;
  int steps = 0, failed = 1;
  if (bench->tiny) network_shrink(&network);
  struct sl__cpu_time begin = sl__cpu_time_now();
  enum sl_status status = train(bench, &network, &steps);
  if (shared.times.overflow) {
    fprintf(stderr, "bench_limits: %s: no memory for the kernels' times\n", network.name);
  } else if (status == SL_OK) {
    kernel_study(&shared.times);
    failed = print_times(&network, steps, gflops, gb_s, sl__foreign_cpu(&begin));
  }
  kernel_times_free(&shared.times);
  return failed;
}

int main(int argc, char **argv) {
  static const struct argp argp = {
      options, parse_option, NULL, "Measure how close kernels come to limits; prints JSON lines.",
      NULL,    NULL,         NULL};
  struct bench bench = {.seconds = 3};
  const struct network *network;
  double gflops = 0, gb_s = 0;
  argp_err_exit_status = 2;
  argp_parse(&argp, argc, argv, 0, NULL, &bench);
  int failed = measure_machine(&gflops, &gb_s);
  kernel_wrap(run_kernel);
  for (int i = 0; (network = network_at(i)) && !failed; i++)
    if (bench.only ? !strcmp(bench.only, network->name) : !network->large)
      failed = measure_network(&bench, network, gflops, gb_s);
  return failed;
}
