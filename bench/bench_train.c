/* How fast Starling trains: MLP 784-512-512-10 at batch 128, LeNet (relu) at batch 64 and 256, SGD
 * with momentum.
 *
 * Prints one JSON line for the peak that OpenBLAS reaches here, and one a network:
 *   rate          samples/s, from the median time of a step
 *   gflops        products and convolutions only (forward, gradients of weights and inputs, none
 * for the data) peak_share    gflops over the measured peak start_s       from the start of the
 * process to the first finished step rss_mb        greatest resident memory of the process
 *   foreign_cpu   share of the machine's time that other programs took: believe no line where it is
 * high Each network has a process of its own, which the first one starts with --one. */
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

#include "bench.h"

extern char **environ;

/* ---- the networks ---- */

static enum sl_status build_mlp(struct sl_model *model) {
  const struct sl_dense_options hidden = {.features = 512, .activation = SL_ACTIVATION_RELU};
  const struct sl_dense_options last = {.features = 10};
  enum sl_status status = sl_dense(model, "fc1", &hidden);
  if (status == SL_OK) status = sl_dense(model, "fc2", &hidden);
  if (status == SL_OK) status = sl_dense(model, "fc3", &last);
  return status;
}

static enum sl_status build_lenet(struct sl_model *model) {
  const enum sl_activation relu = SL_ACTIVATION_RELU;
  const struct sl_conv2d_options conv1 = {.channels = 20, .kernel_h = 5, .activation = relu};
  const struct sl_conv2d_options conv2 = {.channels = 50, .kernel_h = 5, .activation = relu};
  const struct sl_pool2d_options pool = {.kernel_h = 2};
  const struct sl_dense_options fc1 = {.features = 500, .activation = relu};
  const struct sl_dense_options fc2 = {.features = 10};
  enum sl_status status = sl_conv2d(model, "conv1", &conv1);
  if (status == SL_OK) status = sl_maxpool2d(model, "pool1", &pool);
  if (status == SL_OK) status = sl_conv2d(model, "conv2", &conv2);
  if (status == SL_OK) status = sl_maxpool2d(model, "pool2", &pool);
  if (status == SL_OK) status = sl_dense(model, "fc1", &fc1);
  if (status == SL_OK) status = sl_dense(model, "fc2", &fc2);
  return status;
}

/* Multiply-adds of a sample, forward: of the first layer, which needs no gradient of its input, and
 * of the rest. */
static const struct network {
  const char *name;
  int64_t batch;
  enum sl_status (*build)(struct sl_model *model);
  double first, rest;
} networks[] = {
    {"mlp", 128, build_mlp, 784.0 * 512, 512.0 * 512 + 512.0 * 10},
    {"lenet64", 64, build_lenet, 24.0 * 24 * 20 * 25,
     8.0 * 8 * 50 * 500 + 800.0 * 500 + 500.0 * 10},
    {"lenet256", 256, build_lenet, 24.0 * 24 * 20 * 25,
     8.0 * 8 * 50 * 500 + 800.0 * 500 + 500.0 * 10},
};
enum { NETWORKS = sizeof networks / sizeof *networks };

static double gflop_step(const struct network *network) {
  return 2e-9 * (double)network->batch * (2 * network->first + 3 * network->rest);
}

/* ---- options ---- */

enum { KEY_ONE = 256, KEY_STARTED, KEY_PEAK };

struct bench {
  double seconds;
  const char *only, *one;
  const char *devices;
  double started, peak; /* handed to the process of one network */
  bool tune;
};

static const struct argp_option options[] = {
    {"seconds", 's', "X", 0, "Measure each network for so long (default 3)", 0},
    {"only", 'n', "NAME", 0, "One of mlp, lenet64, lenet256 (default: all)", 0},
    {"devices", 'd', "LIST", 0, "As for the trainers (default: all)", 0},
    {"tune", 't', NULL, 0, "As for the trainers", 0},
    {"one", KEY_ONE, "NAME", OPTION_HIDDEN, NULL, 0},
    {"started", KEY_STARTED, "SECONDS", OPTION_HIDDEN, NULL, 0},
    {"peak", KEY_PEAK, "GFLOPS", OPTION_HIDDEN, NULL, 0},
    {0}};

static const struct network *find(const char *name) {
  for (int i = 0; i < NETWORKS; i++)
    if (strcmp(name, networks[i].name) == 0) return &networks[i];
  return NULL;
}

static double positive(struct argp_state *state, const char *text) {
  char *end;
  double value = strtod(text, &end);
  if (*end || !(value > 0 && value < 1e9)) argp_failure(state, 2, 0, "'%s': must be above 0", text);
  return value;
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct bench *bench = state->input;
  switch (key) {
    case 's': bench->seconds = positive(state, text); break;
    case 'd': bench->devices = text; break;
    case 't': bench->tune = true; break;
    case 'n': bench->only = text; break;
    case KEY_ONE: bench->one = text; break;
    case KEY_STARTED: bench->started = positive(state, text); break;
    case KEY_PEAK: bench->peak = positive(state, text); break;
    default: return ARGP_ERR_UNKNOWN;
  }
  if ((key == 'n' || key == KEY_ONE) && !find(text))
    argp_failure(state, 2, 0, "'%s': unknown; there are mlp, lenet64 and lenet256", text);
  return 0;
}

/* ---- one network, in its own process ---- */

enum { MOST_STEPS = 200000, WARM_STEPS = 20 };

struct measured {
  double *step_s;
  int64_t steps;
  double start_s, foreign_cpu, loss;
};

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Steps are under way together, so a step's time is that between two reports. */
static enum sl_status run_steps(const struct bench *bench, struct sl_trainer *trainer,
                                struct sl_loader *loader, struct measured *measured) {
  struct sl_report report;
  struct cpu_time begin = {0};
  double last = 0;
  for (int64_t done = 0; done < MOST_STEPS;) {
    bool reported;
    enum sl_status status = sl_trainer_step(trainer, loader, &report, &reported);
    if (status != SL_OK) return status;
    if (!reported) continue;
    double now = bench_now();
    if (done == 0) measured->start_s = now - bench->started;
    if (done == WARM_STEPS) begin = bench_cpu_time();
    if (done > WARM_STEPS) measured->step_s[measured->steps++] = now - last;
    last = now;
    done++;
    if (measured->steps >= 20 && now - begin.wall > bench->seconds) break;
  }
  measured->foreign_cpu = bench_foreign_cpu(&begin);
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

static int print_measured(const struct bench *bench, const struct network *network,
                          struct sl_context *context, int replicas, struct measured *m) {
  qsort(m->step_s, (size_t)m->steps, sizeof *m->step_s, compare);
  double median = m->step_s[m->steps / 2], gflops = gflop_step(network) / median;
  json_t *line = json_pack(
      "{s:s, s:s, s:s, s:i, s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "peer",
      "starling", "bench", network->name, "setup", sl_context_text(context), "workers",
      sl_worker_count(context), "replicas", replicas, "steps", (json_int_t)m->steps, "rate",
      (double)network->batch / median, "ms", 1e3 * median, "ms_p10", 1e3 * m->step_s[m->steps / 10],
      "ms_p90", 1e3 * m->step_s[9 * m->steps / 10], "gflops", gflops, "peak_share",
      bench->peak > 0 ? gflops / bench->peak : 0, "start_s", m->start_s, "rss_mb", peak_memory_mb(),
      "foreign_cpu", m->foreign_cpu, "loss", m->loss);
  return bench_print(line);
}

static int bench_one(const struct bench *bench) {
  const struct network *network = find(bench->one);
  const struct sl_context_options context_options = {
      .devices = bench->devices, .seed = 1, .tune = bench->tune};
  const struct sl_optimizer optimizer = {.lr = 0.01f, .momentum = 0.9f};
  const struct sl_loader_options loader_options = {.batch = network->batch, .seed = 1};
  const struct sl_trainer_options trainer_options = {0};
  struct measured measured = {.step_s = malloc(MOST_STEPS * sizeof(double))};
  struct sl_context *context = NULL;
  struct sl_dataset *data = NULL;
  struct sl_loader *loader = NULL;
  struct sl_model *model = NULL;
  struct sl_trainer *trainer = NULL;
  /* ten batches, as a stand-in for data in memory: what a peer is given, too */
  enum sl_status status = sl_digits_new(10 * network->batch, 1, true, &data);
  if (status == SL_OK) status = sl_loader_new(data, &loader_options, &loader);
  if (status == SL_OK) status = sl_open(&context_options, &context);
  if (status == SL_OK) status = sl_model_new(context, &SL_SHAPE(1, 28, 28), &model);
  if (status == SL_OK) status = network->build(model);
  if (status == SL_OK) status = sl_trainer_new(model, &optimizer, NULL, &trainer_options, &trainer);
  if (status == SL_OK) status = run_steps(bench, trainer, loader, &measured);
  int code = 0;
  if (status != SL_OK) {
    fprintf(stderr, "bench_train: %s\n", sl_error());
    code = 1;
  } else {
    code = print_measured(bench, network, context, sl_trainer_replicas(trainer), &measured);
  }
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_close(context);
  sl_loader_free(loader);
  sl_dataset_free(data);
  free(measured.step_s);
  return code;
}

/* ---- all of them ---- */

/* The same program with --one; its output is ours. */
static int spawn_one(const struct bench *bench, const struct network *network, double peak) {
  char seconds[32], started[32], gflops[32];
  snprintf(seconds, sizeof seconds, "%g", bench->seconds);
  snprintf(gflops, sizeof gflops, "%.3f", peak);
  snprintf(started, sizeof started, "%.6f", bench_now());
  char *arguments[] = {"bench_train",
                       "--one",
                       (char *)network->name,
                       "--seconds",
                       seconds,
                       "--started",
                       started,
                       "--peak",
                       gflops,
                       bench->tune ? "--tune" : NULL,
                       NULL,
                       NULL,
                       NULL};
  if (bench->devices) {
    int at = bench->tune ? 10 : 9;
    arguments[at] = "--devices";
    arguments[at + 1] = (char *)bench->devices;
  }
  pid_t child;
  int state, error = posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
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
  double peak;
  int code = bench_peak(&peak);
  for (int i = 0; i < NETWORKS && code == 0; i++)
    if (!bench.only || strcmp(bench.only, networks[i].name) == 0)
      code = spawn_one(&bench, &networks[i], peak);
  return code;
}
