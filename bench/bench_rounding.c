/* Rounding errors of the convolutions with fewer products (codelets/kernels/winograd.h and its
 * gradients) and of plain ones, against loops in double precision: root mean squares, as a share of
 * the result's. Values are uniform between -1 and 1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "codelets/kernels/choice.h"
#include "codelets/kernels/conv_backward_data.h"
#include "codelets/kernels/conv_backward_weight.h"
#include "codelets/kernels/direct_conv.h"
#include "codelets/kernels/winograd.h"
#include "codelets/kernels/winograd_backward_weight.h"

struct tensors {
  float *x, *dy, *weight, *result;
  double *y, *dx, *grad;
};

static void *room(int64_t count, size_t size) {
  void *block = aligned_alloc(64, ((size_t)count * size + 63) / 64 * 64);
  if (block) return block;
  fprintf(stderr, "bench_rounding: no memory\n");
  exit(1);
}

static float *drawn(int64_t count) {
  float *values = room(count, sizeof *values);
  for (int64_t i = 0; i < count; i++) values[i] = (float)(2 * drand48() - 1);
  return values;
}

static double *cleared(int64_t count) {
  double *values = room(count, sizeof *values);
  for (int64_t i = 0; i < count; i++) values[i] = 0;
  return values;
}

static int64_t weights_of(const struct sl__conv_args *a) {
  return (int64_t)a->out_channels * sl__conv_taps(a);
}

/* ---- the reference ---- */

/* One tap of one output: its terms of y, dx and grad. */
static void add_terms(const struct tensors *t, int64_t x, int64_t y, int64_t weight) {
  t->y[y] += (double)t->x[x] * (double)t->weight[weight];
  t->dx[x] += (double)t->dy[y] * (double)t->weight[weight];
  t->grad[weight] += (double)t->x[x] * (double)t->dy[y];
}

/* Output channel k of image n from input channel c. */
static void add_planes(const struct sl__conv_args *a, const struct tensors *t, int64_t n, int64_t k,
                       int64_t c) {
  int64_t x = (n * a->channels + c) * a->height, y = (n * a->out_channels + k) * a->out_height;
  int64_t filter = (k * a->channels + c) * a->kernel_h;
  for (int i = 0; i < a->out_height; i++)
    for (int j = 0; j < a->out_width; j++)
      for (int r = 0; r < a->kernel_h; r++)
        for (int s = 0; s < a->kernel_w; s++) {
          int row = i + r - a->pad_h, column = j + s - a->pad_w;
          if (row < 0 || column < 0 || row >= a->height || column >= a->width) continue;
          add_terms(t, (x + row) * a->width + column, (y + i) * a->out_width + j,
                    (filter + r) * a->kernel_w + s);
        }
}

static struct tensors tensors_of(const struct sl__conv_args *a) {
  int64_t x = a->images * sl__conv_x_size(a), y = a->images * sl__conv_y_size(a);
  int64_t weights = weights_of(a), most = x > y ? x : y;
  struct tensors t = {.x = drawn(x), .dy = drawn(y), .weight = drawn(weights)};
  t.result = room(most > weights ? most : weights, sizeof *t.result);
  t.y = cleared(y);
  t.dx = cleared(x);
  t.grad = cleared(weights);
  for (int64_t n = 0; n < a->images; n++)
    for (int64_t k = 0; k < a->out_channels; k++)
      for (int64_t c = 0; c < a->channels; c++) add_planes(a, &t, n, k, c);
  return t;
}

static void drop(struct tensors *t) {
  void *all[] = {t->x, t->dy, t->weight, t->result, t->y, t->dx, t->grad};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static double error_of(const float *got, const double *want, int64_t count) {
  double errors = 0, squares = 0;
  for (int64_t i = 0; i < count; i++) {
    errors += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
    squares += want[i] * want[i];
  }
  return sqrt(errors / squares);
}

/* ---- the kernels ---- */

static double forward_error(const struct sl__conv_args *a, struct tensors *t, bool winograd) {
  const struct sl__conv_epilogue none = {0};
  bool planes;
  float *scratch =
      room(winograd ? sl__winograd_scratch(a, false) : sl__direct_conv_scratch(a), sizeof *scratch);
  struct sl__work_range all = {
      0, winograd ? sl__winograd_units(a, &planes, 0) : sl__direct_conv_units(a, &planes, 0)};
  if (winograd)
    sl__winograd_forward(a, t->x, t->weight, false, NULL, &none, t->result, scratch, all, 0);
  else
    sl__direct_conv_forward(a, t->x, t->weight, NULL, &none, t->result, scratch, all, 0);
  free(scratch);
  return error_of(t->result, t->y, a->images * sl__conv_y_size(a));
}

static double data_error(const struct sl__conv_args *args, struct tensors *t, bool winograd) {
  struct sl__conv_args a = *args;
  a.implementation = winograd ? SL__WINOGRAD : SL__OWN;
  float *scratch = room(sl__conv_backward_data_scratch(&a), sizeof *scratch);
  sl__conv_backward_data(&a, t->dy, t->weight, t->result, scratch, false, 0);
  free(scratch);
  return error_of(t->result, t->dx, a.images * sl__conv_x_size(&a));
}

static double weight_error(const struct sl__conv_args *a, struct tensors *t, bool winograd) {
  float *scratch =
      room(winograd ? sl__winograd_backward_weight_scratch(a) : sl__conv_backward_weight_scratch(a),
           sizeof *scratch);
  if (winograd)
    sl__winograd_backward_weight(a, t->x, t->dy, t->result, scratch, false, 0);
  else
    sl__conv_backward_weight(a, t->x, t->dy, t->result, NULL, scratch, false, 0);
  free(scratch);
  return error_of(t->result, t->grad, weights_of(a));
}

struct pass {
  const char *name;
  bool (*serves)(const struct sl__conv_args *a);
  double (*error)(const struct sl__conv_args *a, struct tensors *t, bool winograd);
};

static int measure(const struct sl__conv_args *a) {
  static const struct pass passes[] = {
      {"forward", sl__winograd_serves, forward_error},
      {"backward_data", sl__conv_backward_data_winograd_serves, data_error},
      {"backward_weight", sl__winograd_backward_weight_serves, weight_error}};
  struct tensors t = tensors_of(a);
  int status = 0;
  for (size_t i = 0; i < sizeof passes / sizeof *passes && status == 0; i++) {
    if (!passes[i].serves(a)) continue;
    double plain = passes[i].error(a, &t, false), winograd = passes[i].error(a, &t, true);
    status =
        bench_print(json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:f}", "bench", "rounding",
                              "pass", passes[i].name, "taps", a->kernel_h, "channels", a->channels,
                              "out_channels", a->out_channels, "height", a->height, "plain", plain,
                              "winograd", winograd, "ratio", winograd / plain));
  }
  drop(&t);
  return status;
}

static struct sl__conv_args shape(int channels, int out_channels, int size, int taps, int pad) {
  int out = size + 2 * pad - taps + 1;
  return (struct sl__conv_args){.images = 16,
                                .channels = channels,
                                .height = size,
                                .width = size,
                                .out_channels = out_channels,
                                .out_height = out,
                                .out_width = out,
                                .kernel_h = taps,
                                .kernel_w = taps,
                                .stride_h = 1,
                                .stride_w = 1,
                                .pad_h = pad,
                                .pad_w = pad};
}

/* ResNet-20's three sizes, an image whose tiles are of 2x2 outputs, LeNet's second layer, and more
 * channels with 5x5 taps. */
int main(void) {
  const struct sl__conv_args shapes[] = {shape(16, 16, 32, 3, 1), shape(32, 32, 16, 3, 1),
                                         shape(64, 64, 8, 3, 1),  shape(64, 64, 6, 3, 1),
                                         shape(20, 50, 12, 5, 0), shape(64, 64, 16, 5, 2)};
  srand48(1);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    if (measure(&shapes[i]) != 0) return 1;
  return 0;
}
