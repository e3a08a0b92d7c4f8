/* How long a pipeline's devices wait for one another, on a machine that need not have them.
 *
 * First the real model, stacked LSTM layers as in examples/lstm_lm.c, takes a few steps on one
 * worker, and every kernel's median time is noted. Then the same trainer runs with one worker a
 * stage, and the kernels sleep for the times noted instead of computing: workers that sleep do not
 * take the processor from each other. Data, dependencies, priorities and the scheduler are the real
 * ones; only the numbers mean nothing. Prints one JSON line:
 *   step_s       seconds a step, of the dry run: scale times as slow as the real kernels
 *   busy         of each worker, the share of the window in which it was inside a kernel
 *   bubble       1 - mean(busy)
 *   imbalance    what the cut alone costs, 1 - mean / max of the stages' work: a stage is a run of
 *                whole layers. No schedule gets below it; what is not pinned to a stage (updates of
 *                --kvstore local) does not count here and may even fill the gaps
 *   beyond       the bubble's rest: (1 - bubble) = (1 - imbalance) (1 - beyond)
 *   theory_1f1b  (p - 1) / (m + p - 1): GPipe's and 1F1B's bubble, stages in balance, each step
 *                ending before the next one begins
 *   overslept    what the kernels slept beyond their times, a share: the machine's fault, not the
 *                pipeline's, so it counts as busy
 *   bubble_most  the bubble if it counted as waiting
 * A step begins when its first microbatch enters the first layer. The window goes from the
 * beginning of step in_flight to that of step (steps - in_flight), a whole number of steps: the
 * pipeline's filling and emptying is left out, what happens between two steps is not.
 *
 * A picture of the same window, with numbers that are StarPU's own:
 *   bench/bench_pipeline --trace DIR && starpu_fxt_tool -i DIR/prof_file_*
 *   starling-trace tasks.rec --from FROM_MS --to TO_MS --stages 4 --microbatches 16 -o pipeline.svg
 * where FROM_MS and TO_MS are from_ms and to_ms of the JSON line. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include <starling.h>

#include "bench/bench.h"
#include "bench/kernel_times.h"
#include "codelets/codelets.h"
#include "parallel/train/trainer.h"

/* ---- options ---- */

struct bench {
  int64_t layers, hidden, embed, vocabulary, batch, bptt;
  int microbatches, stages, in_flight, steps, measured_steps;
  enum sl_kvstore_kind kvstore;
  double scale; /* 0: to be chosen */
  const char *trace;
};

enum {
  KEY_LAYERS = 256,
  KEY_HIDDEN,
  KEY_EMBED,
  KEY_VOCABULARY,
  KEY_BATCH,
  KEY_BPTT,
  KEY_MICROBATCHES,
  KEY_STAGES,
  KEY_IN_FLIGHT,
  KEY_STEPS,
  KEY_MEASURED,
  KEY_SCALE,
  KEY_KVSTORE,
  KEY_TRACE
};

static const struct argp_option options[] = {
    {"layers", KEY_LAYERS, "N", 0, "LSTM layers (default 10)", 0},
    {"hidden", KEY_HIDDEN, "N", 0, "Width of each (200)", 0},
    {"embed", KEY_EMBED, "N", 0, "Width of the embedding (200)", 0},
    {"vocabulary", KEY_VOCABULARY, "N", 0, "Words; the decoder's width (3000)", 0},
    {"batch", KEY_BATCH, "N", 0, "Rows a step (64)", 0},
    {"bptt", KEY_BPTT, "N", 0, "Time steps of a row (35)", 0},
    {"microbatches", KEY_MICROBATCHES, "N", 0, "Slices of a batch (16)", 0},
    {"stages", KEY_STAGES, "N", 0, "Runs of layers, and workers (4)", 0},
    {"in-flight", KEY_IN_FLIGHT, "N", 0, "Steps submitted ahead (4)", 0},
    {"kvstore", KEY_KVSTORE, "NAME", 0, "Owner of the parameters: device (default), local", 0},
    {"steps", KEY_STEPS, "N", 0, "Steps of the dry run (12)", 0},
    {"measured-steps", KEY_MEASURED, "N", 0, "Steps that are measured, after a first one (20)", 0},
    {"scale", KEY_SCALE, "X", 0,
     "Sleep for X times the measured times (default: so that kernels of weight take 2 ms)", 0},
    {"trace", KEY_TRACE, "DIR", 0, "Write StarPU's trace of the dry run there", 0},
    {0}};

static int64_t whole(struct argp_state *state, const char *text, int64_t least, int64_t most) {
  char *end;
  long long value = strtoll(text, &end, 10);
  if (*end || end == text || value < least || value > most)
    argp_failure(state, 2, 0, "'%s': must be from %lld to %lld", text, (long long)least,
                 (long long)most);
  return value;
}

static double positive(struct argp_state *state, const char *text) {
  char *end;
  double value = strtod(text, &end);
  if (*end || !(value > 0 && value < 1e6)) argp_failure(state, 2, 0, "'%s': must be above 0", text);
  return value;
}

static void check(struct argp_state *state, const struct bench *b) {
  if (b->batch % b->microbatches)
    argp_failure(state, 2, 0, "--batch must be a multiple of --microbatches");
  if (b->steps < 2 * b->in_flight + 2)
    argp_failure(state, 2, 0,
                 "--steps must be at least %d: --in-flight of them are left out at "
                 "the beginning and at the end",
                 2 * b->in_flight + 2);
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct bench *b = state->input;
  switch (key) {
    case KEY_LAYERS: b->layers = whole(state, text, 1, 1000); break;
    case KEY_HIDDEN: b->hidden = whole(state, text, 1, 100000); break;
    case KEY_EMBED: b->embed = whole(state, text, 1, 100000); break;
    case KEY_VOCABULARY: b->vocabulary = whole(state, text, 2, 10000000); break;
    case KEY_BATCH: b->batch = whole(state, text, 1, 1000000); break;
    case KEY_BPTT: b->bptt = whole(state, text, 1, 100000); break;
    case KEY_MICROBATCHES: b->microbatches = (int)whole(state, text, 1, 4096); break;
    case KEY_STAGES: b->stages = (int)whole(state, text, 1, 32); break;
    case KEY_IN_FLIGHT: b->in_flight = (int)whole(state, text, 1, SL__MAX_IN_FLIGHT - 1); break;
    case KEY_STEPS: b->steps = (int)whole(state, text, 4, 10000); break;
    case KEY_MEASURED: b->measured_steps = (int)whole(state, text, 1, 1000); break;
    case KEY_SCALE: b->scale = positive(state, text); break;
    case KEY_KVSTORE:
      if (sl_kvstore_parse(text, &b->kvstore) != SL_OK) argp_failure(state, 2, 0, "%s", sl_error());
      break;
    case KEY_TRACE: b->trace = text; break;
    case ARGP_KEY_END: check(state, b); break;
    default: return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

/* ---- the kernels' times ---- */

/* A kernel that was run, or slept. */
struct span {
  int op;
  bool pinned; /* to this worker: a part of its stage */
  double start, end, wanted;
};

struct lane {
  struct span *spans;
  int64_t count;
};

enum phase { WARM, MEASURE, DRY_RUN };

/* Kernels take no argument of ours, so this cannot live in struct bench. */
static struct {
  enum phase phase;
  double scale;
  struct kernel_times times;
  struct lane lanes[STARPU_NMAXWORKERS];
  int64_t most_spans;
  bool overflow;
} shared;

static void sleep_until(double end) {
  struct timespec time = {.tv_sec = (time_t)end};
  time.tv_nsec = (long)(1e9 * (end - (double)time.tv_sec));
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0) continue;
}

/* The trainer reads the statistics, so they must be numbers: the sums are really made, of these.
 * Sums of another number of terms were not measured; they cost next to nothing. */
static void pretend(int op, void *buffers[], void *cl_arg) {
  static const float stats[4] = {1, 0, 1, 0};
  if (op == OP_reduce) kernel_run(op, buffers, cl_arg);
  if (op == OP_softmax_xent || op == OP_softmax_xent_gradient)
    memcpy(sl__buffer(buffers, 2), stats, sizeof stats);
}

static void dry_run_kernel(int op, void *buffers[], void *cl_arg) {
  static const double shortest = 20e-6; /* the timer is no finer */
  struct lane *lane = &shared.lanes[starpu_worker_get_id_check()];
  const struct starpu_task *task = starpu_task_get_current();
  const struct kernel_time *kernel = kernel_find(&shared.times, op, cl_arg);
  struct span span = {.op = op,
                      .pinned = task && task->execute_on_a_specific_worker,
                      .start = bench_now(),
                      .wanted = kernel ? kernel->median * shared.scale : 0};
  pretend(op, buffers, cl_arg);
  if (span.wanted >= shortest) sleep_until(span.start + span.wanted);
  span.end = bench_now();
  if (lane->count < shared.most_spans)
    lane->spans[lane->count++] = span;
  else
    shared.overflow = true;
}

static void run_kernel(int op, void *buffers[], void *cl_arg) {
  switch (shared.phase) {
    case WARM: kernel_run(op, buffers, cl_arg); break;
    case MEASURE: kernel_measure(&shared.times, op, buffers, cl_arg); break;
    case DRY_RUN: dry_run_kernel(op, buffers, cl_arg); break;
  }
}

/* Microseconds, for schedulers that ask. */
static double dry_run_cost(struct starpu_task *task, unsigned implementation) {
  (void)implementation;
  for (int op = 0; op < OPERATIONS; op++) {
    if (task->cl != &kernel_op(op)->codelet) continue;
    const struct kernel_time *kernel = kernel_find(&shared.times, op, task->cl_arg);
    return kernel ? 1e6 * kernel->median * shared.scale : 1;
  }
  return 1;
}

/* StarPU keeps these performance models in memory only: slept times must not be saved as this
 * machine's own. */
static void replace_models(void) {
  for (int op = 0; op < OPERATIONS; op++) {
    struct starpu_perfmodel *model = &kernel_op(op)->model;
    model->type = STARPU_COMMON;
    model->cost_function = dry_run_cost;
  }
}

/* The scale: the shortest of the kernels that make up 95 % of the time is to take least_s, far
 * above what waking up costs, but the whole dry run takes at most most_s. */
static void study_costs(const struct bench *b, int measured_microbatches) {
  static const double least_s = 2e-3, most_s = 40;
  const struct kernel_times *times = &shared.times;
  double total = 0, sum = 0, shortest = 1e9;
  kernel_study(&shared.times);
  for (int i = 0; i < times->count; i++)
    total += times->kernel[i]->median * (double)times->kernel[i]->calls;
  for (int i = 0; i < times->count && sum < 0.95 * total; i++) {
    const struct kernel_time *kernel = times->kernel[i];
    sum += kernel->median * (double)kernel->calls;
    if (kernel->median < shortest) shortest = kernel->median;
  }
  double step_s = total / b->measured_steps * b->microbatches / measured_microbatches / b->stages;
  shared.scale = least_s / shortest < 1 ? 1 : least_s / shortest;
  if (shared.scale * step_s * b->steps > most_s) shared.scale = most_s / (step_s * b->steps);
  if (b->scale > 0) shared.scale = b->scale;
}

static int print_costs(void) {
  int failed = 0;
  for (int i = 0; i < shared.times.count && !failed; i++) {
    const struct kernel_time *kernel = shared.times.kernel[i];
    failed = bench_print(json_pack("{s:s, s:s, s:I, s:f, s:f}", "bench", "kernel", "op",
                                   kernel_name(kernel->op), "calls", (json_int_t)kernel->calls,
                                   "median_ms", 1e3 * kernel->median, "least_ms",
                                   1e3 * kernel->sample[0]));
  }
  return failed;
}

/* ---- the model ---- */

struct world {
  struct sl_context *context;
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_model *model;
  struct sl_trainer *trainer;
};

static enum sl_status build(const struct bench *b, struct sl_model *model) {
  const struct sl_embedding_options embed = {.vocabulary = b->vocabulary, .features = b->embed};
  const struct sl_lstm_options lstm = {.features = b->hidden};
  const struct sl_dense_options decoder = {.features = b->vocabulary, .positions = true};
  char name[24];
  enum sl_status status = sl_embedding(model, "embed", &embed);
  for (int64_t i = 0; i < b->layers && status == SL_OK; i++) {
    snprintf(name, sizeof name, "lstm%lld", (long long)i);
    status = sl_lstm(model, name, &lstm);
  }
  return status == SL_OK ? sl_dense(model, "decoder", &decoder) : status;
}

/* Two batches of random words, read in turn. */
static enum sl_status open_words(const struct bench *b, int64_t batch, struct world *w) {
  int64_t count = 2 * batch * b->bptt + batch;
  /* one slot for each batch in flight, and one that the loader fills */
  const struct sl_loader_options loader = {
      .batch = batch, .contiguous = true, .slots = b->in_flight + 2};
  int32_t *words = malloc((size_t)count * sizeof *words);
  if (!words) return SL_NO_MEMORY;
  uint64_t random = 1;
  for (int64_t i = 0; i < count; i++) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    words[i] = (int32_t)((random >> 33) % (uint64_t)b->vocabulary);
  }
  enum sl_status status =
      sl_tokens_new("random words", words, count, b->bptt, (int)b->vocabulary, &w->data);
  free(words);
  return status == SL_OK ? sl_loader_new(w->data, &loader, &w->loader) : status;
}

static void close_world(struct world *w) {
  sl_trainer_free(w->trainer);
  sl_model_free(w->model);
  sl_close(w->context);
  sl_loader_free(w->loader);
  sl_dataset_free(w->data);
  *w = (struct world){0};
}

/* Without clipping: the norm is known only when all gradients are, so every step would end before
 * the next one begins. */
static enum sl_status open_world(const struct bench *b, int microbatches, int stages,
                                 struct world *w) {
  const struct sl_context_options context = {.seed = 1};
  const struct sl_optimizer optimizer = {.lr = 0.01f};
  const struct sl_trainer_options trainer = {.microbatches = microbatches,
                                             .stages = stages,
                                             .kvstore = b->kvstore,
                                             .in_flight = b->in_flight,
                                             .carry_state = true};
  char workers[16];
  snprintf(workers, sizeof workers, "%d", stages);
  setenv("STARPU_NCPU", workers, 1);
  enum sl_status status = sl_open(&context, &w->context);
  if (status == SL_OK) status = open_words(b, b->batch / b->microbatches * microbatches, w);
  if (status == SL_OK) status = sl_model_new(w->context, &SL_SHAPE(b->bptt), &w->model);
  if (status == SL_OK) status = build(b, w->model);
  if (status == SL_OK) status = sl_trainer_new(w->model, &optimizer, NULL, &trainer, &w->trainer);
  return status;
}

static enum sl_status step_all(struct world *w, int steps) {
  struct sl_report report;
  bool reported = true;
  enum sl_status status = SL_OK;
  for (int i = 0; i < steps && status == SL_OK; i++)
    status = sl_trainer_step(w->trainer, w->loader, &report, &reported);
  while (status == SL_OK && reported) status = sl_trainer_drain(w->trainer, &report, &reported);
  /* a report may come before its step's updates have run */
  return status == SL_OK ? sl_wait(w->context) : status;
}

/* A part of the microbatches will do: each has the same sizes. */
static enum sl_status measure_kernels(const struct bench *b) {
  struct world world = {0};
  int microbatches = b->microbatches < 4 ? b->microbatches : 4;
  shared.phase = WARM;
  enum sl_status status = open_world(b, microbatches, 1, &world);
  if (status == SL_OK) status = step_all(&world, 1);
  shared.phase = MEASURE;
  if (status == SL_OK) status = step_all(&world, b->measured_steps);
  close_world(&world);
  if (status == SL_OK && shared.times.overflow)
    status = sl__fail(SL_NO_MEMORY, "no memory for the kernels' times");
  if (status == SL_OK) study_costs(b, microbatches);
  return status;
}

/* ---- the dry run ---- */

struct result {
  double from, to, first; /* the window, and the first kernel's beginning */
  double busy[STARPU_NMAXWORKERS], work[STARPU_NMAXWORKERS];
  double useful; /* sum of the shares, without oversleeping */
  double bubble, imbalance, overslept;
};

/* When step `step` began; a step enters the first layer once a microbatch. */
static double step_begin(const struct bench *b, int step) {
  int64_t entered = 0;
  for (int w = 0; w < b->stages; w++)
    for (int64_t i = 0; i < shared.lanes[w].count; i++)
      if (shared.lanes[w].spans[i].op == OP_embedding_forward &&
          entered++ == (int64_t)step * b->microbatches)
        return shared.lanes[w].spans[i].start;
  return 0;
}

static void study_lane(const struct lane *lane, struct result *r, int worker, double *slept,
                       double *wanted) {
  for (int64_t i = 0; i < lane->count; i++) {
    const struct span *s = &lane->spans[i];
    double start = s->start > r->from ? s->start : r->from, end = s->end < r->to ? s->end : r->to;
    if (!i && (r->first <= 0 || s->start < r->first)) r->first = s->start;
    if (end > start) r->busy[worker] += (end - start) / (r->to - r->from);
    if (end > s->start + s->wanted) end = s->start + s->wanted;
    if (end > start) r->useful += (end - start) / (r->to - r->from);
    if (s->pinned) r->work[worker] += s->wanted;
    *slept += s->end - s->start;
    *wanted += s->wanted;
  }
}

static void study_dry_run(const struct bench *b, struct result *r) {
  double busy = 0, work = 0, most = 0, slept = 0, wanted = 0;
  *r = (struct result){.from = step_begin(b, b->in_flight),
                       .to = step_begin(b, b->steps - b->in_flight)};
  for (int w = 0; w < b->stages; w++) {
    study_lane(&shared.lanes[w], r, w, &slept, &wanted);
    busy += r->busy[w];
    work += r->work[w];
    if (r->work[w] > most) most = r->work[w];
  }
  r->bubble = 1 - busy / b->stages;
  r->imbalance = 1 - work / b->stages / most;
  r->overslept = slept / wanted - 1;
}

static int print_result(const struct bench *b, const char *scheduler, const struct result *r) {
  json_t *busy = json_array(), *work = json_array();
  for (int w = 0; w < b->stages; w++) {
    json_array_append_new(busy, json_real(r->busy[w]));
    json_array_append_new(work, json_real(r->work[w] / b->steps));
  }
  return bench_print(json_pack(
      "{s:s, s:I, s:I, s:I, s:i, s:i, s:i, s:i, s:s, s:s, s:f, s:f, s:o, s:o, s:f, s:f, s:f, s:f, "
      "s:f, s:f, s:f, s:f}",
      "bench", "pipeline", "layers", (json_int_t)b->layers, "hidden", (json_int_t)b->hidden,
      "vocabulary", (json_int_t)b->vocabulary, "stages", b->stages, "microbatches", b->microbatches,
      "steps", b->steps, "in_flight", b->in_flight, "kvstore",
      b->kvstore == SL_KVSTORE_LOCAL ? "local" : "device", "scheduler", scheduler, "scale",
      shared.scale, "step_s", (r->to - r->from) / (b->steps - 2 * b->in_flight), "busy", busy,
      "work_s", work, "bubble", r->bubble, "theory_1f1b",
      (b->stages - 1.0) / (b->microbatches + b->stages - 1), "imbalance", r->imbalance, "beyond",
      1 - (1 - r->bubble) / (1 - r->imbalance), "overslept", r->overslept, "bubble_most",
      1 - r->useful / b->stages, "from_ms", 1e3 * (r->from - r->first), "to_ms",
      1e3 * (r->to - r->first)));
}

static enum sl_status make_lanes(const struct bench *b) {
  /* nine kernels at most a layer and microbatch, and the updates of its shards */
  shared.most_spans = b->steps * (b->layers + 2) * (9 * b->microbatches + 1000);
  for (int w = 0; w < b->stages; w++) {
    shared.lanes[w].spans = malloc((size_t)shared.most_spans * sizeof(struct span));
    if (!shared.lanes[w].spans) return sl__fail(SL_NO_MEMORY, "no memory for the dry run's times");
  }
  return SL_OK;
}

static void start_trace(const char *folder) {
  char prefix[4096];
  if (!folder) return;
  snprintf(prefix, sizeof prefix, "%s/", folder);
  setenv("STARPU_FXT_PREFIX", prefix, 1);
  setenv("STARPU_FXT_TRACE", "1", 1);
}

static enum sl_status dry_run_pipeline(const struct bench *b, char *scheduler, size_t size) {
  struct world world = {0};
  shared.phase = DRY_RUN;
  start_trace(b->trace);
  replace_models();
  enum sl_status status = make_lanes(b);
  if (status == SL_OK) status = open_world(b, b->microbatches, b->stages, &world);
  if (status == SL_OK) {
    const struct starpu_sched_policy *policy = starpu_sched_get_sched_policy();
    snprintf(scheduler, size, "%s", policy ? policy->policy_name : "?");
    status = step_all(&world, b->steps);
  }
  close_world(&world);
  if (status == SL_OK && shared.overflow)
    status = sl__fail(SL_NO_MEMORY, "more kernels ran than were expected");
  return status;
}

/* The measurement is not to be traced. */
static void quiet_environment(char *traced, size_t size) {
  const char *trace = getenv("STARPU_FXT_TRACE");
  snprintf(traced, size, "%s", trace ? trace : "0");
  setenv("STARPU_FXT_TRACE", "0", 1);
  setenv("STARPU_NCUDA", "0", 1);
  setenv("STARPU_WORKERS_NOBIND", "1", 1);
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL,
        0UL); /* the workers inherit it: they sleep to the point */
}

int main(int argc, char **argv) {
  static const struct argp argp = {options,
                                   parse_option,
                                   NULL,
                                   "Run a pipeline's schedule dry, with the model's measured "
                                   "times; prints a JSON line.",
                                   NULL,
                                   NULL,
                                   NULL};
  struct bench bench = {.layers = 10,
                        .hidden = 200,
                        .embed = 200,
                        .vocabulary = 3000,
                        .batch = 64,
                        .bptt = 35,
                        .microbatches = 16,
                        .stages = 4,
                        .in_flight = 4,
                        .steps = 12,
                        .measured_steps = 20,
                        .kvstore = SL_KVSTORE_DEVICE};
  struct result result = {0};
  char scheduler[64] = "?", traced[16];
  argp_err_exit_status = 2;
  argp_parse(&argp, argc, argv, 0, NULL, &bench);
  quiet_environment(traced, sizeof traced);
  kernel_wrap(run_kernel);
  enum sl_status status = measure_kernels(&bench);
  setenv("STARPU_FXT_TRACE", traced, 1);
  if (status == SL_OK && print_costs() != 0) return 1;
  if (status == SL_OK) status = dry_run_pipeline(&bench, scheduler, sizeof scheduler);
  if (status == SL_OK) study_dry_run(&bench, &result);
  for (int w = 0; w < bench.stages; w++) free(shared.lanes[w].spans);
  kernel_times_free(&shared.times);
  if (status == SL_OK) return print_result(&bench, scheduler, &result);
  fprintf(stderr, "bench_pipeline: %s\n", sl_error());
  return 1;
}
