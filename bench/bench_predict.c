/* How fast Starling answers: LeNet, ResNet-20 and a language model of two LSTM layers, with weights
 * drawn at random.
 *
 * Prints a JSON line a network and batch:
 *   p50_us, p99_us  percentiles of a request's time, seen by the client thread
 *   rate            samples/s of all threads together
 *   at_once         client threads, each with one request at a time: 1 for one sample; for larger
 *                   batches the faster of 1 thread and one thread a worker
 *   kernels_us      of requests that come one by one: from the first kernel to the end of the last
 *                   one (on GPUs: what StarPU says that kernels take), the mean, and
 *   overhead_us     the rest of such a request's time, the median
 *   foreign_cpu     share of the machine's time that other programs took */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <argp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <starling.h>
#include <starpu.h>

#include "bench/bench.h"
#include "bench/networks.h"

#define NAMES "lenet, resnet20, lstm2x200, lstm2x650"

struct bench {
  double seconds;
  const char *only, *devices;
  int cores;
  bool tune, tiny;
};

static const struct argp_option options[] = {
    {"seconds", 's', "X", 0, "Seconds to measure each network and batch (default 3)", 0},
    {"only", 'n', "NAME", 0, "One of " NAMES " (default: the first three)", 0},
    {"devices", 'd', "LIST", 0, "As for the trainers (default: all)", 0},
    {"cores", 'c', "N", 0, "Maximum number of workers that compute a batch together (default: all)",
     0},
    {"tune", 't', NULL, 0, "Measure the kernels for each shape first", 0},
    {"tiny", 'y', NULL, 0, "Small networks of the same layers: does it work?", 0},
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
    case 'n': bench->only = text; break;
    case 'd': bench->devices = text; break;
    case 'c':
      bench->cores = (int)strtol(text, &end, 10);
      if (*end || bench->cores < 1) argp_failure(state, 2, 0, "'%s': must be at least 1", text);
      break;
    case 't': bench->tune = true; break;
    case 'y': bench->tiny = true; break;
    default: return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

/* ---- clients ---- */

enum { MOST_REQUESTS = 4000000, MOST_CLIENTS = 16 };

struct client {
  struct sl_predictor *predictor;
  pthread_t thread;
  void *inputs;
  float *outputs;
  int64_t batch;
  double until;
  double *times; /* seconds */
  int count;
  enum sl_status status;
};

static void *ask(void *argument) {
  struct client *c = argument;
  for (c->count = 0; c->count < MOST_REQUESTS && c->status == SL_OK;) {
    double before = bench_now();
    c->status = sl_predict(c->predictor, c->inputs, c->batch, c->outputs);
    double now = bench_now();
    c->times[c->count++] = now - before;
    if (now > c->until) break;
  }
  if (c->status != SL_OK) fprintf(stderr, "bench_predict: %s\n", sl_error());
  return NULL;
}

static enum sl_status client_new(struct client *c, const struct sl_model *model,
                                 const struct network *network, int64_t batch) {
  int64_t in = batch * (network->seq    ? network->seq
                        : network->side ? network->channels * network->side * network->side
                                        : 28 * 28);
  int64_t out = batch * sl_shape_count(sl_model_output(model));
  uint64_t state = 1;
  *c = (struct client){.batch = batch};
  c->inputs = malloc((size_t)in * sizeof(float));
  c->outputs = malloc((size_t)out * sizeof(float));
  c->times = malloc(MOST_REQUESTS * sizeof *c->times);
  if (!c->inputs || !c->outputs || !c->times) return SL_NO_MEMORY;
  for (int64_t i = 0; i < in; i++) {
    state = state * 6364136223846793005 + 1442695040888963407;
    if (network->seq)
      ((int32_t *)c->inputs)[i] = (int32_t)((state >> 33) % 10000);
    else
      ((float *)c->inputs)[i] = (float)(state >> 40) / (1 << 23) - 1;
  }
  return SL_OK;
}

static void client_free(struct client *c) {
  free(c->inputs);
  free(c->outputs);
  free(c->times);
}

/* ---- measuring ---- */

struct measured {
  int at_once, requests;
  double p50, p99, rate, foreign_cpu, kernels, overhead; /* seconds; samples/s */
};

static enum sl_status run(struct client *clients, struct sl_predictor *predictor, double seconds,
                          struct measured *m) {
  struct sl__cpu_time cpu = sl__cpu_time_now();
  double begin = bench_now();
  enum sl_status status = SL_OK;
  for (int i = 0; i < m->at_once; i++) {
    clients[i].predictor = predictor;
    clients[i].until = begin + seconds;
    if (pthread_create(&clients[i].thread, NULL, ask, &clients[i])) {
      perror("bench_predict: a thread");
      exit(1);
    }
  }
  m->requests = 0;
  for (int i = 0; i < m->at_once; i++) {
    pthread_join(clients[i].thread, NULL);
    if (clients[i].status != SL_OK) status = clients[i].status;
    m->requests += clients[i].count;
  }
  m->rate = (double)m->requests * (double)clients[0].batch / (bench_now() - begin);
  m->foreign_cpu = sl__foreign_cpu(&cpu);
  double *all = malloc((size_t)m->requests * sizeof *all), *at = all;
  if (!all) return SL_NO_MEMORY;
  for (int i = 0; i < m->at_once; i++) {
    memcpy(at, clients[i].times, (size_t)clients[i].count * sizeof *all);
    at += clients[i].count;
  }
  qsort(all, (size_t)m->requests, sizeof *all, bench_compare);
  m->p50 = all[m->requests / 2];
  m->p99 = all[(int64_t)m->requests * 99 / 100];
  free(all);
  return status;
}

/* Microseconds in kernels since the last call, of all workers. */
static double in_kernels(void) {
  double sum = 0;
  for (unsigned w = 0; w < starpu_worker_get_count(); w++) {
    struct starpu_profiling_worker_info info;
    if (!starpu_profiling_worker_get_info((int)w, &info))
      sum += starpu_timing_timespec_to_us(&info.executing_time);
  }
  return sum;
}

/* Time outside kernels of each request, while no other thread sends requests. */
static enum sl_status measure_alone(struct client *c, struct sl_predictor *predictor,
                                    double seconds, struct measured *m) {
  enum sl_status status = SL_OK;
  double until = bench_now() + seconds, kernels = 0,
         in = sl_predictor_count(predictor).computing_us;
  for (c->count = 0; c->count < MOST_REQUESTS && status == SL_OK && bench_now() < until;) {
    double before = bench_now(), us = in;
    status = sl_predict(predictor, c->inputs, c->batch, c->outputs);
    double now = bench_now();
    in = sl_predictor_count(predictor).computing_us;
    kernels += (in - us) / 1e6;
    c->times[c->count++] = now - before - (in - us) / 1e6;
  }
  qsort(c->times, (size_t)c->count, sizeof *c->times, bench_compare);
  m->kernels = kernels / c->count;
  m->overhead = c->times[c->count / 2];
  return status;
}

/* A predictor does not know how long GPUs compute, but StarPU does. */
static enum sl_status measure_kernels(struct client *c, struct sl_predictor *predictor,
                                      double seconds, struct measured *m) {
  if (!starpu_cuda_worker_get_count()) return measure_alone(c, predictor, seconds, m);
  struct measured alone = {.at_once = 1};
  starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
  enum sl_status status = run(c, predictor, 0.05, &alone);
  in_kernels();
  if (status == SL_OK) status = run(c, predictor, seconds, &alone);
  m->kernels = in_kernels() / 1e6 / alone.requests;
  m->overhead = alone.p50 - m->kernels;
  starpu_profiling_status_set(STARPU_PROFILING_DISABLE);
  return status;
}

static enum sl_status measure(const struct bench *bench, struct client *clients,
                              struct sl_predictor *predictor, struct measured *m) {
  int workers = (int)starpu_worker_get_count(), best = 1;
  if (workers > MOST_CLIENTS) workers = MOST_CLIENTS;
  double rate = 0;
  enum sl_status status = SL_OK;
  for (int n = 1; n <= (clients[0].batch > 1 ? workers : 1) && status == SL_OK; n++) {
    m->at_once = n;
    status = run(clients, predictor, 0.5, m); /* warms up */
    if (status == SL_OK) status = run(clients, predictor, 0.5, m);
    if (m->rate > rate) best = n;
    if (m->rate > rate) rate = m->rate;
  }
  if (status == SL_OK) status = measure_kernels(clients, predictor, bench->seconds / 3, m);
  m->at_once = best;
  return status == SL_OK ? run(clients, predictor, bench->seconds, m) : status;
}

static int print(const char *name, const char *setup, int64_t batch, const struct measured *m) {
  json_t *line = json_pack("{s:s, s:s, s:s, s:I, s:i, s:i, s:f, s:f, s:f, s:s, s:f, s:f}", "peer",
                           "starling", "bench", name, "setup", setup, "batch", (json_int_t)batch,
                           "at_once", m->at_once, "requests", m->requests, "p50_us", 1e6 * m->p50,
                           "p99_us", 1e6 * m->p99, "rate", m->rate, "unit", "samples/s",
                           "kernels_us", 1e6 * m->kernels, "foreign_cpu", m->foreign_cpu);
  if (line && m->at_once == 1)
    json_object_set_new(line, "overhead_us", json_real(1e6 * m->overhead));
  return bench_print(line);
}

static enum sl_status one_batch(const struct bench *bench, struct sl_context *context,
                                const char *name, const struct network *network,
                                struct sl_model *model, int64_t batch) {
  const struct sl_predictor_options o = {.max_batch = batch, .cores = bench->cores};
  struct client clients[MOST_CLIENTS] = {0};
  struct sl_predictor *predictor = NULL;
  struct measured m = {0};
  int workers = (int)starpu_worker_get_count(),
      count = workers < MOST_CLIENTS ? workers : MOST_CLIENTS;
  enum sl_status status = sl_predictor_open(model, &o, &predictor);
  for (int i = 0; i < count && status == SL_OK; i++)
    status = client_new(&clients[i], model, network, batch);
  if (status == SL_OK) status = measure(bench, clients, predictor, &m);
  if (status == SL_OK && print(name, sl_context_text(context), batch, &m)) status = SL_IO;
  sl_predictor_free(predictor);
  for (int i = 0; i < count; i++) client_free(&clients[i]);
  return status;
}

static enum sl_status one_network(const struct bench *bench, struct sl_context *context,
                                  const char *name) {
  struct network network = *network_find(!strcmp(name, "lenet") ? "lenet64" : name);
  struct sl_model *model = NULL;
  struct sl_dataset *data = NULL;
  struct sl_loader *loader = NULL;
  if (bench->tiny) network_shrink(&network);
  enum sl_status status = network_data(&network, &data, &loader);
  if (status == SL_OK) status = sl_model_new(context, &sl_dataset_info(data)->sample, &model);
  if (status == SL_OK) status = network.build(&network, model);
  if (status == SL_OK) status = sl_model_build(model);
  if (status == SL_OK) status = one_batch(bench, context, name, &network, model, 1);
  if (status == SL_OK)
    status = one_batch(bench, context, name, &network, model, bench->tiny ? 3 : 64);
  sl_model_free(model);
  sl_loader_free(loader);
  sl_dataset_free(data);
  return status;
}

int main(int argc, char **argv) {
  static const struct argp argp = {
      options, parse_option, NULL, "Measure how fast Starling answers; one JSON line each.",
      NULL,    NULL,         NULL};
  static const char *const names[] = {"lenet", "resnet20", "lstm2x200", "lstm2x650"};
  struct bench bench = {.seconds = 3};
  struct sl_context *context = NULL;
  bool found = false;
  if (argp_parse(&argp, argc, argv, 0, NULL, &bench)) return 2;
  setenv("STARPU_SILENT", "1", 0);
  const struct sl_context_options o = {.devices = bench.devices, .seed = 1, .tune = bench.tune};
  enum sl_status status = sl_open(&o, &context);
  for (int i = 0; i < 4 && status == SL_OK; i++) {
    bool wanted = bench.only ? !strcmp(bench.only, names[i]) : i < 3;
    if (wanted) status = one_network(&bench, context, names[i]);
    found = found || wanted;
  }
  if (status != SL_OK) fprintf(stderr, "bench_predict: %s\n", sl_error());
  if (status == SL_OK && !found)
    fprintf(stderr, "bench_predict: '%s': unknown; there are " NAMES "\n", bench.only);
  sl_close(context);
  return status != SL_OK ? 1 : found ? 0 : 2;
}
