/* Latency and throughput with several clients at once. */
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/json.h"
#include "tools/predict/bench.h"
#include "tools/predict/failure.h"
#include "tools/predict/json_output.h"

/* A histogram of latencies, each class 1 % above the one before: any number of them fits, and the
 * error of a percentile is at most half of that. */
enum { CLASSES = 2400 };
static const double class_ratio = 1.01; /* from 1 us to 6 hours */

struct histogram {
  int64_t counts[CLASSES], count;
  double sum, most; /* us */
};

struct client {
  struct engine *engine;
  int64_t batch;
  double warm, end; /* when the measurement begins, and when it ends */
  void *inputs;
  float *outputs;
  pthread_t thread;
  enum sl_status status;
  char message[512];
  struct histogram latency;
};

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e6 * (double)time.tv_sec + 1e-3 * (double)time.tv_nsec;
}

static void count(struct histogram *h, double us) {
  int class = us <= 1 ? 0 : (int)(log(us) / log(class_ratio));
  h->counts[class < CLASSES ? class : CLASSES - 1]++;
  h->count++;
  h->sum += us;
  if (us > h->most) h->most = us;
}

static double percentile(const struct histogram *h, double share) {
  int64_t rank = (int64_t)ceil(share * (double)h->count), seen = 0;
  for (int i = 0; i < CLASSES; i++) {
    seen += h->counts[i];
    if (seen < rank) continue;
    double middle = pow(class_ratio, i + 0.5);
    return middle < h->most ? middle : h->most;
  }
  return h->most;
}

/* ---- the clients ---- */

/* The same everywhere (xorshift, Marsaglia 2003); values of normalised pictures, or tokens. */
static bool fill_inputs(struct client *c, int64_t values, uint64_t seed) {
  const struct engine *e = c->engine;
  uint64_t random = 88172645463325252ull + seed;
  int64_t all = values * c->batch;
  c->inputs = calloc((size_t)all, 4);
  c->outputs = calloc((size_t)(e->outputs * c->batch), sizeof *c->outputs);
  if (!c->inputs || !c->outputs) return false;
  for (int64_t i = 0; i < all; i++) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    if (e->tokens)
      ((int32_t *)c->inputs)[i] = (int32_t)(random % (uint64_t)e->words);
    else
      ((float *)c->inputs)[i] = (float)(random >> 40) / (float)(1 << 23) - 1;
  }
  return true;
}

static void *work(void *argument) {
  struct client *c = argument;
  for (double begun = now_us(); c->status == SL_OK; begun = now_us()) {
    c->status = sl_predict(c->engine->predictor, c->inputs, c->batch, c->outputs);
    double end = now_us();
    if (c->status != SL_OK) snprintf(c->message, sizeof c->message, "%s", sl_error());
    /* the only request of a slow model counts, too */
    bool last = end >= c->end;
    if (begun >= c->warm || (last && !c->latency.count)) count(&c->latency, end - begun);
    if (last) break;
  }
  return NULL;
}

static int run_clients(struct client *clients, int wanted) {
  int started = 0, code = EXIT_DONE;
  while (started < wanted &&
         pthread_create(&clients[started].thread, NULL, work, &clients[started]) == 0)
    started++;
  for (int i = 0; i < started; i++) pthread_join(clients[i].thread, NULL);
  if (started < wanted)
    code = fail(EXIT_FAILED, "only %d client threads could be started", started);
  for (int i = 0; i < started && code == EXIT_DONE; i++)
    if (clients[i].status != SL_OK) code = fail(EXIT_FAILED, "%s", clients[i].message);
  return code;
}

/* ---- results ---- */

struct result {
  struct histogram latency;
  double seconds, samples_per_s, batch; /* mean number of samples that ran together */
};

static json_t *shape_json(const struct sl_shape *shape) {
  json_t *list = json_array();
  for (int i = 0; i < shape->ndim; i++)
    sl__json_append(&list, json_integer((json_int_t)shape->dim[i]));
  return list;
}

static int print_json(const struct engine *e, const struct bench_options *o,
                      const struct result *r) {
  const struct histogram *h = &r->latency;
  const struct sl_predictor_options *p = &e->options->predictor;
  int batches = p->batches ? p->batches : 2 * sl_worker_count(e->context);
  json_t *latency = json_pack("{s:f, s:f, s:f, s:f, s:f}", "mean", h->sum / (double)h->count / 1e3,
                              "p50", percentile(h, 0.5) / 1e3, "p90", percentile(h, 0.9) / 1e3,
                              "p99", percentile(h, 0.99) / 1e3, "max", h->most / 1e3);
  json_t *all = json_pack(
      "{s:s, s:i, s:s, s:s, s:o, s:i, s:I, s:I, s:I, s:i, s:s, s:f, s:I, s:o, s:f, s:f, s:f}",
      "format", "starling predict bench", "version", 1, "model", e->options->model, "machine",
      sl_context_text(e->context), "input", shape_json(&e->input), "concurrency", o->clients,
      "batch", (json_int_t)o->batch, "max_batch", (json_int_t)(p->max_batch ? p->max_batch : 64),
      "max_delay_us", (json_int_t)p->max_delay_us, "batches", batches, "math",
      sl_math_name(p->math), "seconds", r->seconds, "requests", (json_int_t)h->count, "latency_ms",
      latency, "requests_per_s", (double)h->count / r->seconds, "samples_per_s", r->samples_per_s,
      "samples_per_batch", r->batch);
  int code = print_object(all, 6);
  return code == EXIT_DONE ? flush_output() : code;
}

static int print_table(const struct engine *e, const struct bench_options *o,
                       const struct result *r) {
  char input[96];
  const struct histogram *h = &r->latency;
  printf("%s: input %s; %s\n", e->options->model, sl_shape_text(&e->input, input, sizeof input),
         sl_context_text(e->context));
  printf("%d clients, requests of %lld samples, %.3g seconds\n", o->clients, (long long)o->batch,
         r->seconds);
  printf("%10s %12s %12s %14s\n", "requests", "requests/s", "samples/s", "samples/batch");
  printf("%10lld %12.1f %12.1f %14.2f\n", (long long)h->count, (double)h->count / r->seconds,
         r->samples_per_s, r->batch);
  printf("%10s %8s %8s %8s %8s %8s\n", "latency ms", "mean", "p50", "p90", "p99", "max");
  printf("%10s %8.3f %8.3f %8.3f %8.3f %8.3f\n", "", h->sum / (double)h->count / 1e3,
         percentile(h, 0.5) / 1e3, percentile(h, 0.9) / 1e3, percentile(h, 0.99) / 1e3,
         h->most / 1e3);
  return flush_output();
}

static void add_up(const struct client *clients, int count, struct histogram *all) {
  for (int i = 0; i < count; i++) {
    const struct histogram *h = &clients[i].latency;
    for (int k = 0; k < CLASSES; k++) all->counts[k] += h->counts[k];
    all->count += h->count;
    all->sum += h->sum;
    if (h->most > all->most) all->most = h->most;
  }
}

static void measure(struct client *clients, const struct bench_options *o, struct result *r) {
  struct engine *e = clients->engine;
  struct sl_predictor_counts counts = sl_predictor_count(e->predictor);
  add_up(clients, o->clients, &r->latency);
  r->seconds = (now_us() - clients->warm) / 1e6;
  r->samples_per_s = (double)(r->latency.count * o->batch) / r->seconds;
  r->batch = (double)counts.samples / (double)(counts.batches ? counts.batches : 1);
}

int bench_run(struct engine *e, const struct bench_options *o) {
  const double most_warm = 0.5, share = 0.25;
  struct result result = {0};
  struct client *clients = calloc((size_t)o->clients, sizeof *clients);
  int code = clients ? engine_predictor(e) : fail_memory();
  double warm = now_us() + 1e6 * fmin(most_warm, share * o->seconds);
  for (int i = 0; clients && i < o->clients && code == EXIT_DONE; i++) {
    clients[i] = (struct client){
        .engine = e, .batch = o->batch, .warm = warm, .end = warm + 1e6 * o->seconds};
    if (!fill_inputs(&clients[i], sl_shape_count(&e->input), (uint64_t)i)) code = fail_memory();
  }
  if (code == EXIT_DONE) code = run_clients(clients, o->clients);
  if (code == EXIT_DONE) {
    measure(clients, o, &result);
    code = o->json ? print_json(e, o, &result) : print_table(e, o, &result);
  }
  for (int i = 0; clients && i < o->clients; i++) {
    free(clients[i].inputs);
    free(clients[i].outputs);
  }
  free(clients);
  return code;
}
