/* How fast Starling trains: MLP 784-512-512-10 at batch 128, LeNet (relu) at batch 64 and 256, and
 * language models of LSTM layers at batch 20, SGD with momentum; larger ones for GPUs where they
 * are named.
 *
 * Prints one JSON line for the peak that a library's product reaches here, and one a network:
 *   rate          samples/s or words/s (unit says which), from the median time of a step
 *   rate_mean     the same from all steps together: steps in flight, as on a GPU, end in bunches
 *   gflops        products and convolutions only: forward, gradients of weights and inputs (none
 *                 for images)
 *   peak_share    gflops over the measured peak
 *   start_s       from the start of the process to the first finished step
 *   rss_mb        greatest resident memory of the process
 *   gpu_idle      with --idle: share of the time in which the GPU ran no task, by StarPU's clock
 *                 (gaps within a task do not show)
 *   foreign_cpu   share of the machine's time that other programs took: believe no line where it
 *                 is high
 *   round_trip_ns how far the first two processors were apart before it (bench/bench.h), and
 *                 round_trip_ns_after: on some machines that changes, and with it the rate; not
 *                 over ranks
 *
 * Each network has a process of its own, which the first one starts with --one. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <starling.h>
#include <starpu.h>

#include "bench/bench.h"
#include "bench/networks.h"

extern char **environ;

/* ---- options ---- */

enum {
  KEY_ONE = 256,
  KEY_STARTED,
  KEY_PEAK,
  KEY_ROUND_TRIP,
  KEY_REPLICAS,
  KEY_MICROBATCHES,
  KEY_STAGES,
  KEY_CHUNK,
  KEY_KVSTORE,
  KEY_SERVERS,
  KEY_COMPRESS,
  KEY_BIGARRAY_BOUND,
  KEY_EXCHANGE,
  KEY_MATH,
  KEY_IDLE,
  KEY_EAGER,
  KEY_TINY
};

struct bench {
  double seconds;
  const char *only, *one;
  const char *devices;
  double started, peak, round_trip_ns; /* handed to the process of one network */
  int rank, workers;                   /* of it */
  bool tune, idle, tiny;
  enum sl_exchange exchange;
  struct sl_trainer_options trainer;
};

static const struct argp_option options[] = {
    {"seconds", 's', "X", 0, "Seconds to measure each network (default 3)", 0},
    {"only", 'n', "NAME", 0,
     "One of " NETWORK_NAMES " (default: all but those for GPUs: mlp4096, "
     "lenet512, resnet20, gpt2, and those that end in _64)",
     0},
    {"devices", 'd', "LIST", 0, "As for the trainers (default: all), as are the following", 0},
    {"tune", 't', NULL, 0, "Measure the kernels for each shape first", 0},
    {"replicas", KEY_REPLICAS, "N", 0, "Replicas of the model", 0},
    {"microbatches", KEY_MICROBATCHES, "N", 0, "Slices of a replica's part of the batch", 0},
    {"stages", KEY_STAGES, "N", 0, "Cut the model into N runs of layers", 0},
    {"chunk", KEY_CHUNK, "N", 0, "Time steps a task, in language models", 0},
    {"kvstore", KEY_KVSTORE, "NAME", 0,
     "local (default), device; started by mpirun, dist_sync and the like: each rank has a batch",
     0},
    {"servers", KEY_SERVERS, "K", 0, "Ranks that only own parameters", 0},
    {"compress", KEY_COMPRESS, "NAME", 0, "How gradients are sent between ranks", 0},
    {"exchange", KEY_EXCHANGE, "NAME", 0, "How they travel: lane (default), starpu, auto", 0},
    {"bigarray-bound", KEY_BIGARRAY_BOUND, "N", 0,
     "Parameters above which a layer is spread over all ranks", 0},
    {"math", KEY_MATH, "NAME", 0, "f32 (default), tf32, bf16", 0},
    {"idle", KEY_IDLE, NULL, 0, "Tell how long GPUs were idle; StarPU's clocks cost some time", 0},
    {"eager", KEY_EAGER, NULL, 0, "Submit each layer's work as tasks in every step", 0},
    {"tiny", KEY_TINY, NULL, 0, "Small networks of the same layers: does it work?", 0},
    {"one", KEY_ONE, "NAME", OPTION_HIDDEN, NULL, 0},
    {"started", KEY_STARTED, "SECONDS", OPTION_HIDDEN, NULL, 0},
    {"peak", KEY_PEAK, "GFLOPS", OPTION_HIDDEN, NULL, 0},
    {"round-trip", KEY_ROUND_TRIP, "NS", OPTION_HIDDEN, NULL, 0},
    {0}};

static double positive(struct argp_state *state, const char *text) {
  char *end;
  double value = strtod(text, &end);
  if (*end || !(value > 0 && value < 1e9)) argp_failure(state, 2, 0, "'%s': must be above 0", text);
  return value;
}

static int whole(struct argp_state *state, const char *text) {
  char *end;
  long value = strtol(text, &end, 10);
  if (end == text || *end || value < 1 || value > 10000000)
    argp_failure(state, 2, 0, "'%s': must be a whole number from 1 to 10000000", text);
  return (int)value;
}

static const char *name(struct argp_state *state, const char *text) {
  if (!network_find(text))
    argp_failure(state, 2, 0, "'%s': unknown; there are " NETWORK_NAMES, text);
  return text;
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct bench *bench = state->input;
  switch (key) {
    case 's': bench->seconds = positive(state, text); break;
    case 'd': bench->devices = text; break;
    case 't': bench->tune = true; break;
    case 'n': bench->only = name(state, text); break;
    case KEY_REPLICAS: bench->trainer.replicas = whole(state, text); break;
    case KEY_MICROBATCHES: bench->trainer.microbatches = whole(state, text); break;
    case KEY_STAGES: bench->trainer.stages = whole(state, text); break;
    case KEY_CHUNK: bench->trainer.chunk = whole(state, text); break;
    case KEY_KVSTORE:
      if (sl_kvstore_parse(text, &bench->trainer.kvstore) != SL_OK)
        argp_failure(state, 2, 0, "%s", sl_error());
      break;
    case KEY_SERVERS: bench->trainer.servers = whole(state, text); break;
    case KEY_COMPRESS: bench->trainer.compress = text; break;
    case KEY_EXCHANGE:
      if (sl_exchange_parse(text, &bench->exchange) != SL_OK)
        argp_failure(state, 2, 0, "%s", sl_error());
      break;
    case KEY_MATH:
      if (sl_math_parse(text, &bench->trainer.math) != SL_OK)
        argp_failure(state, 2, 0, "%s", sl_error());
      break;
    case KEY_IDLE: bench->idle = true; break;
    case KEY_EAGER: bench->trainer.eager = true; break;
    case KEY_TINY: bench->tiny = true; break;
    case KEY_BIGARRAY_BOUND: bench->trainer.bigarray_bound = whole(state, text); break;
    case KEY_ONE: bench->one = name(state, text); break;
    case KEY_STARTED: bench->started = positive(state, text); break;
    case KEY_PEAK: bench->peak = strtod(text, NULL); break;
    case KEY_ROUND_TRIP: bench->round_trip_ns = strtod(text, NULL); break;
    default: return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

/* ---- one network, in its own process ---- */

/* Of the slow networks fewer steps are awaited, so that a comparison of them does not take hours. A
 * GPU runs the first step with each of the loader's slots kernel by kernel, and records the second
 * one as a CUDA graph; with states that change places that is twice as many. */
enum { MOST_STEPS = 200000, WARM_STEPS = 20, LEAST_WARM_STEPS = 3, LEAST_STEPS = 10 };
enum { GPU_WARM_STEPS = 70 };
static const double warm_s = 1;

/* Is one of the context's devices a GPU, or `any` where there is one? */
static bool uses_gpu(const struct sl_context *context) {
  bool found = false;
  for (int i = 0; i < sl_device_count(context); i++)
    found = found || strncmp(sl_device_name(context, i), "cpu", 3) != 0;
  return found && starpu_worker_get_count_by_type(STARPU_CUDA_WORKER) > 0;
}

static bool is_warm(bool on_gpu, int64_t steps, double seconds) {
  if (on_gpu) return steps > GPU_WARM_STEPS;
  return steps > WARM_STEPS || (steps > LEAST_WARM_STEPS && seconds > warm_s);
}

struct measured {
  double *step_s; /* [times] mean times of some steps */
  int64_t times, steps;
  double start_s, foreign_cpu, loss;
  double all_s; /* of all steps */
  double idle;  /* share of the GPUs' time; below 0: no GPU, or no --idle */
};

/* The share of the time since the last call in which the GPUs that worked had no task; below 0:
 * none worked. */
static double gpu_idle(void) {
  double all = 0, busy = 0;
  for (int i = 0; i < starpu_worker_get_count_by_type(STARPU_CUDA_WORKER); i++) {
    struct starpu_profiling_worker_info info;
    int worker = starpu_worker_get_by_type(STARPU_CUDA_WORKER, i);
    if (starpu_profiling_worker_get_info(worker, &info) || !info.executed_tasks) continue;
    all += starpu_timing_timespec_to_us(&info.total_time);
    busy += starpu_timing_timespec_to_us(&info.executing_time);
  }
  return all > 0 ? 1 - busy / all : -1;
}

/* Several steps are in flight, so a step's time is the time between two reports. Reports of short
 * steps come in bunches: these steps are timed together. */
static enum sl_status run_steps(const struct bench *bench, bool on_gpu, struct sl_trainer *trainer,
                                struct sl_loader *loader, struct measured *measured) {
  struct sl_report report;
  struct sl__cpu_time begin = {0};
  const double together_s = 0.02;
  double last = 0, first = 0, steps = 0;
  bool warm = false;
  for (int64_t done = 0; done < MOST_STEPS;) {
    bool reported;
    enum sl_status status = sl_trainer_step(trainer, loader, &report, &reported);
    if (status != SL_OK) return status;
    if (!reported) continue;
    double now = bench_now();
    steps++;
    if (warm && now - last < together_s && !report.stop) continue;
    if (warm) {
      measured->step_s[measured->times++] = (now - last) / steps;
      measured->all_s += now - last;
      measured->steps += (int64_t)steps;
    }
    last = now;
    steps = 0;
    if (done++ == 0) {
      first = now;
      measured->start_s = first - bench->started;
    }
    if (!warm && is_warm(on_gpu, done, now - first)) {
      warm = true;
      gpu_idle();
      begin = sl__cpu_time_now();
    }
    /* a rank may not leave the others behind: the first one's clock is that of all */
    if (measured->times >= LEAST_STEPS && now - begin.wall > bench->seconds && !bench->rank)
      sl_trainer_stop(trainer);
    if (report.stop) break;
  }
  measured->idle = bench->idle ? gpu_idle() : -1;
  measured->foreign_cpu = sl__foreign_cpu(&begin);
  measured->loss = report.loss;
  return SL_OK;
}

/* VmHWM, because getrusage() would count the memory of the process that started this one. */
static double peak_memory_mb(void) {
  char line[256];
  long kilobytes = 0;
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "VmHWM: %ld", &kilobytes) == 1) break;
  if (file) fclose(file);
  return (double)kilobytes / 1024;
}

/* The line to be printed; NULL without memory. */
static json_t *describe(const struct bench *bench, const struct network *network,
                        struct sl_context *context, int replicas, struct measured *m) {
  const struct sl_trainer_options *trainer = &bench->trainer;
  qsort(m->step_s, (size_t)m->times, sizeof *m->step_s, bench_compare);
  double median = m->step_s[m->times / 2], work = bench->workers;
  double gflops = work * network_gflop(network) / median;
  json_t *line =
      json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:I}", "peer", "starling",
                "bench", network->name, "setup", sl_context_text(context), "kvstore",
                sl_kvstore_name(sl_kvstore_choose(context, trainer->kvstore)), "exchange",
                sl_exchange_name(bench->exchange), "math", sl_math_name(trainer->math), "ranks",
                bench->workers, "workers", sl_worker_count(context), "replicas", replicas,
                "microbatches", trainer->microbatches ? trainer->microbatches : 1, "stages",
                trainer->stages ? trainer->stages : 1, "chunk", (json_int_t)trainer->chunk);
  json_t *results =
      json_pack("{s:I, s:f, s:f, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "steps",
                (json_int_t)m->steps, "rate", work * network_units(network) / median, "rate_mean",
                work * network_units(network) * (double)m->steps / m->all_s, "unit",
                network_unit(network), "ms", 1e3 * median, "ms_p10", 1e3 * m->step_s[m->times / 10],
                "ms_p90", 1e3 * m->step_s[9 * m->times / 10], "gflops", gflops, "peak_share",
                bench->peak > 0 ? gflops / bench->peak : 0, "start_s", m->start_s, "rss_mb",
                peak_memory_mb(), "foreign_cpu", m->foreign_cpu, "loss", m->loss);
  if (results && m->idle >= 0) json_object_set_new(results, "gpu_idle", json_real(m->idle));
  bool whole = line && results && json_object_update(line, results) == 0;
  json_decref(results);
  if (whole) return line;
  json_decref(line);
  return NULL;
}

/* When no worker polls any more. bench_print complains where there is no line. */
static int print_with_distance(const struct bench *bench, json_t *line) {
  if (line && bench->round_trip_ns > 0) {
    json_object_set_new(line, "round_trip_ns", json_real(bench->round_trip_ns));
    json_object_set_new(line, "round_trip_ns_after", json_real(bench_round_trip_ns()));
  }
  return bench_print(line);
}

static int bench_one(struct bench *bench) {
  struct network chosen = *network_find(bench->one);
  const struct network *network = &chosen;
  if (bench->tiny) network_shrink(&chosen);
  bool distributed = bench->trainer.kvstore >= SL_KVSTORE_DIST_SYNC;
  const struct sl_context_options context_options = {.devices = bench->devices,
                                                     .seed = 1,
                                                     .tune = bench->tune,
                                                     .distributed = distributed,
                                                     .exchange = bench->exchange};
  struct sl_trainer_options trainer_options = bench->trainer;
  network_trainer(network, &trainer_options);
  struct measured measured = {.step_s = malloc(MOST_STEPS * sizeof(double))};
  struct sl_context *context = NULL;
  struct sl_dataset *data = NULL;
  struct sl_loader *loader = NULL;
  struct sl_model *model = NULL;
  struct sl_trainer *trainer = NULL;
  enum sl_status status = network_data(network, &data, &loader);
  if (status == SL_OK) status = sl_open(&context_options, &context);
  if (bench->idle) starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
  if (status == SL_OK) bench->rank = sl_rank(context);
  if (status == SL_OK) bench->workers = sl_rank_count(context) - bench->trainer.servers;
  if (status == SL_OK) status = sl_model_new(context, &sl_dataset_info(data)->sample, &model);
  if (status == SL_OK) status = network->build(network, model);
  if (status == SL_OK)
    status = sl_trainer_new(model, &network->optimizer, NULL, &trainer_options, &trainer);
  if (status == SL_OK) status = run_steps(bench, uses_gpu(context), trainer, loader, &measured);
  bool prints = status == SL_OK && !bench->rank;
  json_t *line = NULL;
  if (status != SL_OK) fprintf(stderr, "bench_train: %s\n", sl_error());
  if (prints) line = describe(bench, network, context, sl_trainer_replicas(trainer), &measured);
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_close(context);
  sl_loader_free(loader);
  sl_dataset_free(data);
  free(measured.step_s);
  if (prints) return print_with_distance(bench, line);
  return status != SL_OK;
}

/* ---- all of them ---- */

/* The same program with the same options and --one; its output is ours. */
static int spawn_one(const struct network *network, double peak, bool is_alone, int argc,
                     char **argv) {
  char started[32], gflops[32], round_trip[32];
  char **arguments = calloc((size_t)argc + 9, sizeof *arguments);
  if (!arguments) return 1;
  snprintf(gflops, sizeof gflops, "%.3f", peak);
  snprintf(round_trip, sizeof round_trip, "%.1f", is_alone ? bench_round_trip_ns() : 0);
  snprintf(started, sizeof started, "%.6f", bench_now());
  char *more[] = {"--one", (char *)network->name, "--started", started, "--peak",
                  gflops,  "--round-trip",        round_trip};
  memcpy(arguments, argv, (size_t)argc * sizeof *arguments);
  memcpy(arguments + argc, more, sizeof more);
  pid_t child;
  int state, error = posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
  free(arguments);
  if (error) {
    fprintf(stderr, "bench_train: cannot start itself again: %s\n", strerror(error));
    return 1;
  }
  while (waitpid(child, &state, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(state) ? WEXITSTATUS(state) : 1;
}

int main(int argc, char **argv) {
  static const struct argp argp = {
      options, parse_option, NULL, "Measure how fast Starling trains; prints JSON lines.",
      NULL,    NULL,         NULL};
  struct bench bench = {.seconds = 3, .started = bench_now()};
  argp_err_exit_status = 2;
  argp_parse(&argp, argc, argv, 0, NULL, &bench);
  if (bench.one) return bench_one(&bench);
  double peak = 0;
  int code = bench.devices && !strncmp(bench.devices, "cuda", 4) ? 0 : bench_peak(&peak);
  bool is_alone = bench.trainer.kvstore < SL_KVSTORE_DIST_SYNC;
  const struct network *network;
  for (int i = 0; (network = network_at(i)) && code == 0; i++)
    if (bench.only ? !strcmp(bench.only, network->name) : !network->large)
      code = spawn_one(network, peak, is_alone, argc, argv);
  return code;
}
