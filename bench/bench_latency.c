/* The cost of a task by itself, on one device: StarPU's tasks with an empty function, and
 * Starling's smallest operation, the fill of one number, which on a GPU launches one kernel.
 *
 *     bench_latency [--device NAME] [--tasks N] [--rounds N]
 *
 * Prints a JSON line for each way to submit them: us, the median over the rounds of the time of a
 * task; us_min, the least.
 *   empty tasks, independent           without tensors: StarPU's cost of submission and scheduling
 *   empty tasks, a chain               each writes the same variable and awaits the one before
 *   empty task, submitted and awaited  one at a time: from the call to the answer
 *   fill of one number, a chain        the same, as Starling's layers submit their work
 *
 * Exit status 77: there is no such device. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <argp.h>
#include <jansson.h>
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "codelets/codelets.h"

enum { MOST_ROUNDS = 1000 };

struct bench {
  const char *device;
  int tasks, rounds;
  struct sl_context *context;
  struct sl__place place;
  starpu_data_handle_t variable;
  struct sl__tensor *number;
};

/* ---- the tasks ---- */

static void do_nothing(void *buffers[], void *argument) {
  (void)buffers;
  (void)argument;
}

static struct starpu_codelet empty = {
    .cpu_funcs = {do_nothing},
    .cuda_funcs = {do_nothing},
    .cuda_flags = {STARPU_CUDA_ASYNC},
    .name = "empty",
};
static struct starpu_codelet chained = {
    .cpu_funcs = {do_nothing},
    .cuda_funcs = {do_nothing},
    .cuda_flags = {STARPU_CUDA_ASYNC},
    .nbuffers = 1,
    .modes = {STARPU_W},
    .name = "chained",
};

/* Submits an empty task for the device; variable: NULL, or the one that it writes. */
static enum sl_status submit_empty(const struct bench *b, starpu_data_handle_t variable,
                                   bool awaited) {
  struct starpu_task *task = starpu_task_create();
  task->cl = variable ? &chained : &empty;
  if (variable) task->handles[0] = variable;
  task->synchronous = awaited;
  task->execute_on_a_specific_worker = 1;
  task->workerid = (unsigned)(b->place.worker - 1);
  if (starpu_task_submit(task) == 0) return SL_OK;
  task->destroy = 0;
  starpu_task_destroy(task);
  return SL_NO_DEVICE;
}

static enum sl_status independent(const struct bench *b) { return submit_empty(b, NULL, false); }
static enum sl_status in_chain(const struct bench *b) {
  return submit_empty(b, b->variable, false);
}
static enum sl_status awaited(const struct bench *b) { return submit_empty(b, NULL, true); }
static enum sl_status fill(const struct bench *b) {
  const struct sl__launch launch = {.name = "latency", .place = b->place};
  return sl__fill(b->context, &launch, b->number, 1);
}

static const struct way {
  const char *name;
  enum sl_status (*submit)(const struct bench *b);
} ways[] = {{"empty tasks, independent", independent},
            {"empty tasks, a chain", in_chain},
            {"empty task, submitted and awaited", awaited},
            {"fill of one number, a chain", fill}};

/* ---- measurement ---- */

/* us[i]: of a task, in round i. The first round, which allocates, is not among them. */
static enum sl_status run(const struct bench *b, const struct way *way, double *us) {
  enum sl_status status = SL_OK;
  for (int round = -1; round < b->rounds && status == SL_OK; round++) {
    double begin = bench_now();
    for (int i = 0; i < b->tasks && status == SL_OK; i++) status = way->submit(b);
    if (status == SL_OK) status = sl_wait(b->context);
    if (round >= 0) us[round] = 1e6 * (bench_now() - begin) / b->tasks;
  }
  return status;
}

static int measure(const struct bench *b, const struct way *way) {
  double us[MOST_ROUNDS];
  if (run(b, way, us) != SL_OK) {
    fprintf(stderr, "bench_latency: %s: %s\n", way->name, sl_error());
    return 1;
  }
  qsort(us, (size_t)b->rounds, sizeof *us, bench_compare);
  return bench_print(json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:f, s:f}", "peer", "starling",
                               "bench", "latency", "what", way->name, "device", b->device, "tasks",
                               b->tasks, "rounds", b->rounds, "us", us[b->rounds / 2], "us_min",
                               us[0]));
}

/* ---- the program ---- */

static const struct argp_option options[] = {
    {"device", 'd', "NAME", 0, "The device that runs the tasks (default cuda:0)", 0},
    {"tasks", 'n', "N", 0, "Tasks of a round (default 1000)", 0},
    {"rounds", 'r', "N", 0, "Rounds (default 15)", 0},
    {0}};

static int whole(struct argp_state *state, const char *text, long most) {
  char *end;
  long value = strtol(text, &end, 10);
  if (end == text || *end || value < 1 || value > most)
    argp_failure(state, 2, 0, "'%s': must be a whole number from 1 to %ld", text, most);
  return (int)value;
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct bench *b = state->input;
  switch (key) {
    case 'd': b->device = text; break;
    case 'n': b->tasks = whole(state, text, 10000000); break;
    case 'r': b->rounds = whole(state, text, MOST_ROUNDS); break;
    default: return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

static int measure_all(struct bench *b) {
  struct sl_shape one = SL_SHAPE(1);
  enum sl_status status = sl__tensor_temporary(b->context, &one, SL_F32, &b->number);
  if (status != SL_OK) {
    fprintf(stderr, "bench_latency: %s\n", sl_error());
    return 1;
  }
  starpu_variable_data_register(&b->variable, -1, 0, sizeof(float));
  int code = 0;
  for (size_t i = 0; i < sizeof ways / sizeof *ways && !code; i++) code = measure(b, &ways[i]);
  starpu_data_unregister_no_coherency(b->variable);
  sl__tensor_free(b->number);
  return code;
}

int main(int argc, char **argv) {
  static const struct argp argp = {
      options, parse_option, NULL, "Measure the cost of a task by itself.", NULL, NULL, NULL};
  struct bench b = {.device = "cuda:0", .tasks = 1000, .rounds = 15};
  argp_err_exit_status = 2;
  argp_parse(&argp, argc, argv, 0, NULL, &b);
  const struct sl_context_options context = {.devices = b.device, .seed = 1};
  enum sl_status status = sl_open(&context, &b.context);
  if (status != SL_OK) {
    fprintf(stderr, "bench_latency: %s\n", sl_error());
    return status == SL_NO_DEVICE ? 77 : 1;
  }
  b.place = b.context->devices[0].place;
  int code = 2;
  if (b.context->device_count != 1 || !b.place.worker)
    fprintf(stderr, "bench_latency: --device '%s': must be one device, such as cuda:0 or cpu:0\n",
            b.device);
  else
    code = measure_all(&b);
  sl_close(b.context);
  return code;
}
