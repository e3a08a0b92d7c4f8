/* Linear regression by data-parallel gradient descent, with the KVStore alone. Every rank has its
 * own samples of y = <truth, x> + noise and computes its gradient in plain C; the owners of the
 * store add up the gradients and update the weights. To run it on two ranks:
 *
 *     mpirun -np 2 kvstore --kvstore dist_sync
 */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <starling.h>

enum { FEATURES = 50, SAMPLES = 400, KEY = 0 };

struct settings {
  enum sl_kvstore_kind kind;
  int servers, steps;
};

static const struct argp_option options[] = {
    {"kvstore", 'k', "KIND", 0, "local, device, dist_sync or dist_async (default local)", 0},
    {"servers", 's', "N", 0, "Number of ranks, the last ones, that only own weights (default 0)",
     0},
    {"steps", 'n', "N", 0, "Steps of each rank (default 200)", 0},
    {0}};

static error_t parse(int key, char *text, struct argp_state *state) {
  struct settings *s = state->input;
  int *number = key == 's' ? &s->servers : &s->steps;
  char *end;
  switch (key) {
    case 'k':
      if (sl_kvstore_parse(text, &s->kind) != SL_OK) argp_error(state, "%s", sl_error());
      return 0;
    case 's':
    case 'n':
      *number = (int)strtol(text, &end, 10);
      if (*end || *number < 0) argp_error(state, "'%s' is no whole number", text);
      return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

/* A number in [-1, 1) by Knuth's MMIX generator, which is good enough for samples. */
static float draw(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (float)(*state >> 40) / (float)(1 << 23) - 1;
}

struct data {
  float x[SAMPLES][FEATURES], y[SAMPLES];
};

static void make_data(struct data *data, int rank) {
  uint64_t state = 1000 + (uint64_t)rank;
  for (int n = 0; n < SAMPLES; n++) {
    data->y[n] = 0.01f * draw(&state);
    for (int i = 0; i < FEATURES; i++) {
      data->x[n][i] = draw(&state);
      data->y[n] += (float)(i % 7 - 3) * data->x[n][i]; /* the true weights */
    }
  }
}

/* The mean squared error; *gradient is half of its gradient. */
static double loss_of(const struct data *data, const float *weight, float *gradient) {
  double loss = 0;
  for (int i = 0; i < FEATURES; i++) gradient[i] = 0;
  for (int n = 0; n < SAMPLES; n++) {
    float error = -data->y[n];
    for (int i = 0; i < FEATURES; i++) error += weight[i] * data->x[n][i];
    for (int i = 0; i < FEATURES; i++) gradient[i] += error * data->x[n][i] / SAMPLES;
    loss += (double)(error * error) / SAMPLES;
  }
  return loss;
}

static enum sl_status train(struct sl_kvstore *kv, const struct settings *s, struct data *data) {
  float weight[FEATURES] = {0}, gradient[FEATURES];
  const float *const gradients[] = {gradient};
  struct sl_optimizer sgd = {
      .lr = 0.5f / (float)sl_kvstore_num_workers(kv)}; /* gradients of all workers add up */
  make_data(data, sl_kvstore_rank(kv));
  enum sl_status status = sl_kvstore_set_optimizer(kv, &sgd);
  if (status == SL_OK) status = sl_kvstore_init(kv, KEY, FEATURES, weight);
  for (int step = 0; step < s->steps && status == SL_OK; step++) {
    double loss = loss_of(data, weight, gradient);
    if (!sl_kvstore_rank(kv) && step % 20 == 0) printf("step %d: loss %.3g\n", step, loss);
    status = sl_kvstore_pushpull(kv, KEY, 1, gradients, weight);
  }
  if (status == SL_OK) status = sl_kvstore_barrier(kv);
  if (status == SL_OK) status = sl_kvstore_pull(kv, KEY, weight);
  if (status == SL_OK && !sl_kvstore_rank(kv))
    printf("done: loss %.3g\n", loss_of(data, weight, gradient));
  return status;
}

static void complain(enum sl_status status) {
  if (status != SL_OK) fprintf(stderr, "kvstore: %s: %s\n", sl_status_name(status), sl_error());
}

int main(int argc, char **argv) {
  static const struct argp argp = {
      options, parse, NULL, "Linear regression over ranks with the KVStore alone.",
      NULL,    NULL,  NULL};
  struct settings s = {.kind = SL_KVSTORE_LOCAL, .steps = 200};
  struct sl_context *context = NULL;
  struct sl_kvstore *kv = NULL;
  struct data *data = malloc(sizeof *data);
  argp_parse(&argp, argc, argv, 0, NULL, &s);
  struct sl_context_options start = {.distributed = s.kind >= SL_KVSTORE_DIST_SYNC};
  enum sl_status status = data ? sl_open(&start, &context) : SL_NO_MEMORY;
  if (status == SL_OK)
    status =
        sl_kvstore_open(context, s.kind, &(struct sl_kvstore_options){.servers = s.servers}, &kv);
  if (status == SL_OK)
    status = sl_kvstore_is_worker(kv) ? train(kv, &s, data) : sl_kvstore_serve(kv);
  complain(status);
  if (status != SL_OK)
    sl_leave(context, sl_error()); /* tells the other ranks not to wait for this one */
  enum sl_status closed = sl_kvstore_close(kv);
  if (status == SL_OK) complain(status = closed);
  sl_close(context);
  free(data);
  const bool lost = fflush(stdout) != 0 || ferror(stdout);
  if (lost) fprintf(stderr, "kvstore: the output cannot be written\n");
  return status != SL_OK || lost;
}
