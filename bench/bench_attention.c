/* Attention alone, forward and backward, of one batch in as many slices as there are CPUs:
 *
 *     bench_attention [--devices LIST] [--replicas N] [--seconds S] B,T,H,D[,Hkv] ...
 *
 * Prints a JSON line a shape: forward_ms and backward_ms, medians, and the least;
 * bench/torch_attention.py prints the same of PyTorch's scaled_dot_product_attention. Without
 * shapes: three usual ones. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "codelets/codelets.h"

enum { MOST_SLICES = 64, MOST_ROUNDS = 4000 };

struct bench {
  struct sl_context *context;
  const char *devices;
  int replicas;
  double seconds;
  const char *shapes[32];
  int count;
};

/* x, y, lse, dy, dx */
enum { X, Y, LSE, DY, DX, TENSORS };
struct slice {
  struct sl__tensor *t[TENSORS];
};

static enum sl_status slice_new(struct sl_context *context, const int64_t *d, int64_t rows,
                                struct slice *s) {
  const struct sl_shape shape[TENSORS] = {
      SL_SHAPE(rows, d[1], (d[2] + 2 * d[4]) * d[3]), SL_SHAPE(rows, d[1], d[2] * d[3]),
      SL_SHAPE(rows, d[1], d[2]), SL_SHAPE(rows, d[1], d[2] * d[3]),
      SL_SHAPE(rows, d[1], (d[2] + 2 * d[4]) * d[3])};
  for (int i = 0; i < TENSORS; i++) {
    enum sl_status status = sl__tensor_host(context, &shape[i], SL_F32, NULL, &s->t[i]);
    int64_t count = sl_shape_count(&shape[i]);
    float *values = status == SL_OK ? malloc((size_t)count * sizeof *values) : NULL;
    if (!values) return status != SL_OK ? status : SL_NO_MEMORY;
    for (int64_t k = 0; k < count; k++) values[k] = (float)(k * 7919 % 1013) / 506.5f - 1;
    status = sl__tensor_write(s->t[i], values);
    free(values);
    if (status != SL_OK) return status;
  }
  return SL_OK;
}

static enum sl_status submit(const struct bench *b, const struct slice *s,
                             const struct sl__attention *o, bool backward) {
  const struct sl__launch launch = {.name = "attention"};
  if (!backward)
    return sl__attention_forward(b->context, &launch, s->t[X], s->t[Y], s->t[LSE], NULL, o);
  return sl__attention_backward(b->context, &launch, s->t[X], s->t[Y], s->t[LSE], s->t[DY],
                                s->t[DX], NULL, NULL, o);
}

/* ms: of each round, forward and backward; returns the rounds, or -1. */
static int rounds_of(const struct bench *b, const struct slice *slices,
                     const struct sl__attention *o, double ms[2][MOST_ROUNDS]) {
  double begin = bench_now();
  int rounds = -2;
  for (; rounds < MOST_ROUNDS && (rounds < 5 || bench_now() - begin < b->seconds); rounds++)
    for (int backward = 0; backward < 2; backward++) {
      double start = bench_now();
      for (int i = 0; i < b->replicas; i++)
        if (submit(b, &slices[i], o, backward) != SL_OK) return -1;
      if (sl_wait(b->context) != SL_OK) return -1;
      if (rounds >= 0) ms[backward][rounds] = 1e3 * (bench_now() - start);
    }
  return rounds;
}

static int measure(const struct bench *b, const char *text) {
  static double ms[2][MOST_ROUNDS];
  long long n[5] = {0};
  int given = sscanf(text, "%lld,%lld,%lld,%lld,%lld", &n[0], &n[1], &n[2], &n[3], &n[4]);
  const int64_t d[5] = {n[0], n[1], n[2], n[3], n[4] ? n[4] : n[2]};
  struct slice slices[MOST_SLICES] = {0};
  enum sl_status status = SL_OK;
  if (given < 4 || d[0] < b->replicas) {
    fprintf(stderr, "bench_attention: \"%s\" is no B,T,H,D[,Hkv] with B at least %d\n", text,
            b->replicas);
    return 1;
  }
  const struct sl__attention o = {.heads = (int)d[2], .kv_heads = (int)d[4], .context = d[1]};
  for (int i = 0; i < b->replicas && status == SL_OK; i++)
    status = slice_new(b->context, d, d[0] / b->replicas + (i < d[0] % b->replicas), &slices[i]);
  int rounds = status == SL_OK ? rounds_of(b, slices, &o, ms) : -1;
  if (rounds < 1) fprintf(stderr, "bench_attention: %s: %s\n", text, sl_error());
  for (int i = 0; i < b->replicas; i++)
    for (int k = 0; k < TENSORS; k++) sl__tensor_free(slices[i].t[k]);
  if (rounds < 1) return 1;
  for (int k = 0; k < 2; k++) qsort(ms[k], (size_t)rounds, sizeof **ms, bench_compare);
  return bench_print(json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f}", "peer", "starling",
                               "bench", "attention", "shape", text, "rounds", rounds, "forward_ms",
                               ms[0][rounds / 2], "backward_ms", ms[1][rounds / 2],
                               "forward_min_ms", ms[0][0], "backward_min_ms", ms[1][0]));
}

static error_t parse(int key, char *text, struct argp_state *state) {
  struct bench *b = state->input;
  if (key == 'd')
    b->devices = text;
  else if (key == 'r')
    b->replicas = atoi(text);
  else if (key == 's')
    b->seconds = atof(text);
  else if (key == ARGP_KEY_ARG && b->count < 32)
    b->shapes[b->count++] = text;
  else
    return ARGP_ERR_UNKNOWN;
  return 0;
}

int main(int argc, char **argv) {
  static const struct argp_option options[] = {{"devices", 'd', "LIST", 0, "as cpu:0,cpu:1", 0},
                                               {"replicas", 'r', "N", 0, "slices", 0},
                                               {"seconds", 's', "S", 0, "for each shape", 0},
                                               {0}};
  static const char *const usual[] = {"8,128,4,64", "4,64,12,64", "4,1024,12,64"};
  struct bench b = {.devices = "cpu:0,cpu:1", .replicas = 2, .seconds = 3};
  int failed = 0;
  argp_parse(&(struct argp){options, parse, "B,T,H,D[,Hkv] ...", NULL, NULL, NULL, NULL}, argc,
             argv, 0, NULL, &b);
  for (int i = 0; !b.count && i < 3; i++) b.shapes[i] = usual[i];
  if (!b.count) b.count = 3;
  if (b.replicas < 1 || b.replicas > MOST_SLICES) b.replicas = 1;
  if (sl_open(&(struct sl_context_options){.devices = b.devices}, &b.context) != SL_OK) {
    fprintf(stderr, "bench_attention: %s\n", sl_error());
    return 77;
  }
  for (int i = 0; i < b.count; i++) failed |= measure(&b, b.shapes[i]);
  sl_close(b.context);
  return failed;
}
