/* Convolutions with groups, dilation, and transposed ones against naive loops in double precision
 * and their finite differences. */
#include <limits.h>

#include "tests/common/layer_check.h"

/* A case with the chosen kernels, and with products of matrices. */
#define IN_BOTH_WAYS(name, check) EACH_OF(1u << SL__OWN_OPENBLAS, name, check)

struct window {
  int64_t kernel, stride, pad, dilation;
};

static int or_else(int64_t value, int64_t other) { return (int)(value ? value : other); }

struct shape {
  int64_t channels, high, wide, outputs, out_high, out_wide, groups; /* of the convolution */
  struct window h, w;
  bool has_bias;
  enum sl_activation activation;
};

/* Calls each product of the convolution of n samples: y[at y] and x[at x] by weight[at w]. */
#define EACH_PRODUCT(v, rows)                                                                      \
  for (int64_t n = 0; n < (rows); n++)                                                             \
    for (int64_t k = 0; k < (v).outputs; k++)                                                      \
      for (int64_t c = 0; c < (v).channels / (v).groups; c++)                                      \
        for (int64_t r = 0; r < (v).h.kernel; r++)                                                 \
          for (int64_t s = 0; s < (v).w.kernel; s++)                                               \
            for (int64_t i = 0; i < (v).out_high; i++)                                             \
              for (int64_t j = 0; j < (v).out_wide; j++)

static int64_t x_at(const struct shape *v, int64_t n, int64_t k, int64_t c, int64_t r, int64_t s,
                    int64_t i, int64_t j) {
  int64_t h = i * v->h.stride - v->h.pad + r * v->h.dilation;
  int64_t w = j * v->w.stride - v->w.pad + s * v->w.dilation;
  int64_t channel = k / (v->outputs / v->groups) * (v->channels / v->groups) + c;
  if (h < 0 || h >= v->high || w < 0 || w >= v->wide) return -1;
  return ((n * v->channels + channel) * v->high + h) * v->wide + w;
}

static int64_t weight_at(const struct shape *v, int64_t k, int64_t c, int64_t r, int64_t s) {
  return ((k * (v->channels / v->groups) + c) * v->h.kernel + r) * v->w.kernel + s;
}

static void finish(double *y, int64_t rows, int64_t channels, int64_t plane, const double *bias,
                   enum sl_activation activation) {
  for (int64_t i = 0; i < rows * channels * plane; i++) {
    if (bias) y[i] += bias[i / plane % channels];
    if (activation == SL_ACTIVATION_TANH) y[i] = tanh(y[i]);
  }
}

static void convolved(const struct sl__layer *layer, int64_t rows, const double *const *x,
                      const double *param, double *y) {
  const struct sl_conv2d_options *o = layer->options;
  const int64_t *in = layer->in[0].dim, *out = layer->out.dim;
  const struct shape v = {
      in[0],
      in[1],
      in[2],
      out[0],
      out[1],
      out[2],
      or_else(o->groups, 1),
      {o->kernel_h, or_else(o->stride_h, 1), o->pad_h, or_else(o->dilation_h, 1)},
      {or_else(o->kernel_w, o->kernel_h), or_else(o->stride_w, or_else(o->stride_h, 1)),
       or_else(o->pad_w, o->pad_h), or_else(o->dilation_w, or_else(o->dilation_h, 1))},
      !o->no_bias,
      o->activation};
  int64_t plane = v.out_high * v.out_wide;
  EACH_PRODUCT(v, rows) {
    int64_t at = x_at(&v, n, k, c, r, s, i, j);
    if (at >= 0)
      y[(n * v.outputs + k) * plane + i * v.out_wide + j] +=
          x[0][at] * param[weight_at(&v, k, c, r, s)];
  }
  finish(y, rows, v.outputs, plane, v.has_bias ? param + layer->params.part[1].offset : NULL,
         v.activation);
}

/* The transpose of a convolution that goes from the output to the input. */
static void transposed(const struct sl__layer *layer, int64_t rows, const double *const *x,
                       const double *param, double *y) {
  const struct sl_conv_transpose2d_options *o = layer->options;
  const int64_t *in = layer->in[0].dim, *out = layer->out.dim;
  const struct shape v = {
      out[0],
      out[1],
      out[2],
      in[0],
      in[1],
      in[2],
      or_else(o->groups, 1),
      {o->kernel_h, or_else(o->stride_h, 1), o->pad_h, or_else(o->dilation_h, 1)},
      {or_else(o->kernel_w, o->kernel_h), or_else(o->stride_w, or_else(o->stride_h, 1)),
       or_else(o->pad_w, o->pad_h), or_else(o->dilation_w, or_else(o->dilation_h, 1))},
      !o->no_bias,
      o->activation};
  EACH_PRODUCT(v, rows) {
    int64_t at = x_at(&v, n, k, c, r, s, i, j);
    if (at >= 0)
      y[at] += x[0][((n * v.outputs + k) * v.out_high + i) * v.out_wide + j] *
               param[weight_at(&v, k, c, r, s)];
  }
  finish(y, rows, v.channels, v.high * v.wide,
         v.has_bias ? param + layer->params.part[1].offset : NULL, v.activation);
}

static void check_groups_and_dilations(void) {
  static const struct sl_conv2d_options cases[] = {
      {.channels = 4, .kernel_h = 3, .pad_h = 1, .groups = 4},
      {.channels = 8, .kernel_h = 3, .stride_h = 2, .groups = 4, .no_bias = true},
      {.channels = 2, .kernel_h = 1, .groups = 2, .activation = SL_ACTIVATION_TANH},
      {.channels = 6, .kernel_h = 2, .kernel_w = 3, .stride_w = 2, .pad_w = 1, .groups = 2},
      {.channels = 3, .kernel_h = 3, .pad_h = 2, .dilation_h = 2},
      {.channels = 2,
       .kernel_h = 2,
       .kernel_w = 3,
       .dilation_h = 3,
       .dilation_w = 2,
       .groups = 2,
       .pad_h = 1,
       .activation = SL_ACTIVATION_TANH}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sl_model *m = new_model(SL_SHAPE(4, 6, 7));
    OK(sl_conv2d(m, "conv", &cases[i]));
    check_layer(m, 2, convolved);
  }
  struct sl_model *m = new_model(SL_SHAPE(2, 3, 37)); /* rows of more than a vector */
  OK(sl_conv2d(m, "conv", &(struct sl_conv2d_options){.channels = 2, .kernel_h = 3, .groups = 2}));
  check_layer(m, 1, convolved);
}
IN_BOTH_WAYS(groups_and_dilations, check_groups_and_dilations)

static struct sl_conv2d_options random_options(int i) {
  int groups = from(1, 3, 0, i);
  struct sl_conv2d_options o = {.groups = groups,
                                .channels = groups * from(1, 3, 1, i),
                                .kernel_h = from(1, 3, 2, i),
                                .kernel_w = from(1, 4, 3, i),
                                .stride_h = from(1, 3, 4, i),
                                .stride_w = from(1, 3, 5, i),
                                .dilation_h = from(1, 3, 6, i),
                                .dilation_w = from(1, 3, 7, i),
                                .no_bias = i % 2};
  if (i % 3) o.stride_h = o.stride_w = 1;
  o.pad_h = from(0, (o.kernel_h - 1) * o.dilation_h, 8, i);
  o.pad_w = from(0, (o.kernel_w - 1) * o.dilation_w, 9, i);
  if (!o.pad_w) o.pad_h = 0; /* 0 stands for pad_h */
  return o;
}

/* The window fits into an image without padding. */
static void check_random_options(void) {
  for (int i = 0; i < 6; i++) {
    struct sl_conv2d_options o = random_options(i);
    struct sl_model *m = new_model(SL_SHAPE(o.groups * from(1, 3, 10, i),
                                            (o.kernel_h - 1) * o.dilation_h + from(1, 4, 11, i),
                                            (o.kernel_w - 1) * o.dilation_w + from(1, 6, 12, i)));
    OK(sl_conv2d(m, "conv", &o));
    check_layer(m, 2, convolved);
  }
}
IN_BOTH_WAYS(random_options_of_layers, check_random_options)

/* More channels: other tiles, Winograd's transforms. */
static void check_groups_of_many_channels(void) {
  static const struct {
    struct sl_shape in;
    struct sl_conv2d_options options;
  } cases[] = {
      {{3, {8, 5, 6}},
       {.channels = 8, .kernel_h = 3, .pad_h = 1, .groups = 2, .activation = SL_ACTIVATION_TANH}},
      {{3, {4, 7, 6}}, {.channels = 5, .kernel_h = 3, .stride_h = 2, .pad_h = 1, .dilation_h = 2}},
      {{3, {8, 4, 5}},
       {.channels = 8,
        .kernel_h = 2,
        .kernel_w = 3,
        .stride_h = 2,
        .stride_w = 1,
        .groups = 2,
        .no_bias = true}},
      {{3, {32, 2, 3}}, {.channels = 8, .kernel_h = 1, .groups = 2}},
      {{3, {32, 3, 3}}, {.channels = 8, .kernel_h = 1, .stride_h = 2, .groups = 2}},
      {{3, {2, 1, 9}}, {.channels = 4, .kernel_h = 3, .pad_h = 2, .dilation_h = 2}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sl_model *m = new_model(cases[i].in);
    OK(sl_conv2d(m, "conv", &cases[i].options));
    check_layer(m, 1, convolved);
  }
}
IN_BOTH_WAYS(groups_of_many_channels, check_groups_of_many_channels)

/* A matrix that does not stay in the cache is made in strips of rows: here five, the last of two
 * rows. All values are one, so the sums are whole numbers. */
enum { STRIP_C = 32, STRIP_H = 22, STRIP_W = 200, STRIP_PLANE = STRIP_H * STRIP_W };

static const struct sl__groupconv2d strip_options = {
    .conv = {8, 3, 3, 1, 1, 2, 2, false, SL_ACTIVATION_NONE},
    .groups = 1,
    .dilation_h = 2,
    .dilation_w = 2};

static struct sl__tensor *ones(struct sl_shape shape) {
  int64_t count = sl_shape_count(&shape);
  double *values = zeros(count);
  for (int64_t i = 0; i < count; i++) values[i] = 1;
  struct sl__tensor *t = tensor(shape, values);
  free(values);
  return t;
}

/* Taps that row h of `high` and column w meet. */
static int taps_at(int h, int w, int high) {
  return (1 + (h >= 2) + (h < high - 2)) * (1 + (w >= 2) + (w < STRIP_W - 2));
}

static void check_large_matrices_in_strips(void) {
  const struct sl_shape wide = SL_SHAPE(1, STRIP_C, STRIP_H, STRIP_W),
                        narrow = SL_SHAPE(1, 8, STRIP_H, STRIP_W), taps = SL_SHAPE(8 * STRIP_C * 9);
  struct sl__tensor *x = ones(wide), *dy = ones(narrow), *weight = ones(taps),
                    *y = tensor(narrow, NULL), *dx = tensor(wide, NULL), *grad = tensor(taps, NULL);
  OK(sl__groupconv2d_forward(context, &plain, x, weight, y, &strip_options));
  OK(sl__groupconv2d_backward_data(context, &plain, dy, weight, dx, &strip_options));
  OK(sl__groupconv2d_backward_weight(context, &plain, x, dy, grad, &strip_options));
  double *got_y = take(y), *got_dx = take(dx), *got_grad = take(grad);
  for (int i = 0; i < STRIP_PLANE; i++) {
    int met = taps_at(i / STRIP_W, i % STRIP_W, STRIP_H);
    assert_true(got_y[i] == STRIP_C * met && got_y[7 * STRIP_PLANE + i] == STRIP_C * met);
    assert_true(got_dx[i] == 8 * met && got_dx[(STRIP_C - 1) * STRIP_PLANE + i] == 8 * met);
  }
  for (int i = 0; i < 8 * STRIP_C * 9; i++)
    assert_true(got_grad[i] ==
                (STRIP_H - (i / 3 % 3 == 1 ? 0 : 2)) * (STRIP_W - (i % 3 == 1 ? 0 : 2)));
  free(got_y), free(got_dx), free(got_grad);
  sl__tensor_free(x), sl__tensor_free(dy), sl__tensor_free(weight);
}
IN_BOTH_WAYS(large_matrices_in_strips, check_large_matrices_in_strips)

static void check_strips_of_strided_rows(void) {
  enum { HIGH = 2 * STRIP_H - 1 };
  struct sl__groupconv2d options = strip_options;
  options.conv.stride_h = 2;
  struct sl__tensor *x = ones(SL_SHAPE(1, STRIP_C, HIGH, STRIP_W)),
                    *weight = ones(SL_SHAPE(8 * STRIP_C * 9)),
                    *y = tensor(SL_SHAPE(1, 8, STRIP_H, STRIP_W), NULL);
  OK(sl__groupconv2d_forward(context, &plain, x, weight, y, &options));
  double *got = take(y);
  for (int i = 0; i < STRIP_PLANE; i++)
    assert_true(got[i] == STRIP_C * taps_at(i / STRIP_W * 2, i % STRIP_W, HIGH));
  free(got);
  sl__tensor_free(x), sl__tensor_free(weight);
}
IN_BOTH_WAYS(strips_of_strided_rows, check_strips_of_strided_rows)

/* As the gradients of plain convolutions, and by matrices. */
static void check_transposed_of_many_channels(void) {
  static const struct {
    struct sl_shape in;
    struct sl_conv_transpose2d_options options;
  } cases[] = {
      {{3, {8, 3, 4}},
       {.channels = 4,
        .kernel_h = 3,
        .stride_h = 2,
        .output_pad_h = 1,
        .groups = 2,
        .activation = SL_ACTIVATION_TANH}},
      {{3, {5, 3, 4}}, {.channels = 6, .kernel_h = 3, .dilation_h = 2, .output_pad_h = 1}},
      {{3, {8, 3, 4}},
       {.channels = 3, .kernel_h = 3, .stride_h = 2, .pad_h = 1, .output_pad_h = 1}},
      {{3, {6, 5, 4}}, {.channels = 7, .kernel_h = 4, .stride_h = 2, .pad_h = 1, .no_bias = true}},
      {{3, {6, 2, 5}}, {.channels = 2, .kernel_h = 2, .stride_h = 3}},
      {{3, {8, 2, 3}}, {.channels = 32, .kernel_h = 1, .groups = 2}},
      {{3, {8, 2, 3}}, {.channels = 5, .kernel_h = 1}},
      {{3, {16, 4, 4}}, {.channels = 16, .kernel_h = 3, .pad_h = 1}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sl_model *m = new_model(cases[i].in);
    OK(sl_conv_transpose2d(m, "conv", &cases[i].options));
    check_layer(m, 1, transposed);
  }
}
IN_BOTH_WAYS(transposed_of_many_channels, check_transposed_of_many_channels)

static void check_transposed_convolutions(void) {
  static const struct sl_conv_transpose2d_options cases[] = {
      {.channels = 3, .kernel_h = 2, .stride_h = 2},
      {.channels = 2, .kernel_h = 3, .no_bias = true, .activation = SL_ACTIVATION_TANH},
      {.channels = 4,
       .kernel_h = 3,
       .kernel_w = 2,
       .stride_h = 2,
       .pad_h = 1,
       .output_pad_h = 1,
       .groups = 2},
      {.channels = 2,
       .kernel_h = 3,
       .stride_h = 1,
       .stride_w = 3,
       .dilation_h = 2,
       .pad_h = 2,
       .output_pad_h = 1},
      {.channels = 4, .kernel_h = 3, .pad_h = 1, .groups = 2},
      {.channels = 4, .kernel_h = 1, .groups = 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sl_model *m = new_model(SL_SHAPE(4, 3, 4));
    OK(sl_conv_transpose2d(m, "conv", &cases[i]));
    check_layer(m, 2, transposed);
  }
}
IN_BOTH_WAYS(transposed_convolutions, check_transposed_convolutions)

/* Winograd's transforms, group by group, give what products of matrices give; dilated convolutions
 * have no such transforms. */
static double *random_groups(int which, int dilation, int implementation, int64_t *count) {
  enum { N = 3, C = 32, SIZE = 10, WEIGHTS = C * 16 * 9 };
  const struct sl__groupconv2d options = {.conv = {C, 3, 3, 1, 1, 1, 1, true, SL_ACTIVATION_NONE},
                                          .groups = 2,
                                          .dilation_h = dilation,
                                          .dilation_w = dilation};
  const int64_t out = SIZE - 2 * (dilation - 1);
  const struct sl_shape in = SL_SHAPE(N, C, SIZE, SIZE), outputs = SL_SHAPE(N, C, out, out),
                        params = SL_SHAPE(WEIGHTS + C), *const shapes[] = {&outputs, &in, &params};
  struct sl__tensor *x = random_tensor(in, 1), *dy = random_tensor(outputs, 2),
                    *param = random_tensor(params, 3), *to = tensor(*shapes[which], NULL);
  sl__choice_force(context, implementation);
  if (which == 0) OK(sl__groupconv2d_forward(context, &plain, x, param, to, &options));
  if (which == 1) OK(sl__groupconv2d_backward_data(context, &plain, dy, param, to, &options));
  if (which == 2) OK(sl__groupconv2d_backward_weight(context, &plain, x, dy, to, &options));
  sl__choice_force(context, -1);
  *count = sl_shape_count(shapes[which]);
  double *got = take(to);
  sl__tensor_free(x), sl__tensor_free(dy), sl__tensor_free(param);
  return got;
}

static void groups_by_transforms(void **state) {
  (void)state;
  for (int i = 0; i < 6; i++) {
    int which = i % 3, dilation = 1 + i / 3;
    int64_t count;
    double *want = random_groups(which, dilation, SL__OWN_OPENBLAS, &count);
    double *got = random_groups(which, dilation, -1, &count);
    for (int64_t k = 0; k < count; k++)
      if (!(fabs(got[k] - want[k]) <= 1e-4))
        fail_msg("operation %d, value %d: %g, not %g", which, (int)k, got[k], want[k]);
    free(want), free(got);
  }
}

/* The reference of rows is that of planes of one row: a model of both. */
static void row(const struct sl__layer *layer, int64_t rows, const double *const *x,
                const double *param, double *y) {
  const struct sl_conv1d_options *o = layer->options;
  struct sl_model *m = new_model(SL_SHAPE(layer->in[0].dim[0], 1, layer->in[0].dim[1]));
  const struct sl_conv2d_options plane = {.channels = o->channels,
                                          .kernel_h = 1,
                                          .kernel_w = o->kernel,
                                          .stride_h = 1,
                                          .stride_w = or_else(o->stride, 1),
                                          .pad_w = o->pad,
                                          .dilation_h = 1,
                                          .dilation_w = or_else(o->dilation, 1),
                                          .groups = o->groups,
                                          .no_bias = o->no_bias,
                                          .activation = o->activation};
  OK(sl_conv2d(m, "plane", &plane));
  convolved(&m->layers[0], rows, x, param, y);
  sl_model_free(m);
}

static void transposed_row(const struct sl__layer *layer, int64_t rows, const double *const *x,
                           const double *param, double *y) {
  const struct sl_conv_transpose1d_options *o = layer->options;
  struct sl_model *m = new_model(SL_SHAPE(layer->in[0].dim[0], 1, layer->in[0].dim[1]));
  const struct sl_conv_transpose2d_options plane = {.channels = o->channels,
                                                    .kernel_h = 1,
                                                    .kernel_w = o->kernel,
                                                    .stride_h = 1,
                                                    .stride_w = or_else(o->stride, 1),
                                                    .pad_w = o->pad,
                                                    .output_pad_w = o->output_pad,
                                                    .dilation_h = 1,
                                                    .dilation_w = or_else(o->dilation, 1),
                                                    .groups = o->groups,
                                                    .no_bias = o->no_bias,
                                                    .activation = o->activation};
  OK(sl_conv_transpose2d(m, "plane", &plane));
  transposed(&m->layers[0], rows, x, param, y);
  sl_model_free(m);
}

static void check_convolutions_of_rows(void) {
  static const struct sl_conv1d_options cases[] = {
      {.channels = 3, .kernel = 3, .pad = 1},
      {.channels = 5, .kernel = 5, .no_bias = true, .activation = SL_ACTIVATION_TANH},
      {.channels = 2, .kernel = 2, .stride = 3},
      {.channels = 4, .kernel = 3, .dilation = 4, .pad = 4, .groups = 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sl_model *m = new_model(SL_SHAPE(4, 19));
    OK(sl_conv1d(m, "conv", &cases[i]));
    const struct sl_shape *weight = &m->layers[0].params.part[0].shape;
    assert_int_equal(weight->ndim, 3);
    assert_int_equal(weight->dim[2], cases[i].kernel);
    check_layer(m, 2, row);
  }
}
IN_BOTH_WAYS(convolutions_of_rows, check_convolutions_of_rows)

static void check_transposed_convolutions_of_rows(void) {
  static const struct sl_conv_transpose1d_options cases[] = {
      {.channels = 3, .kernel = 2, .stride = 2},
      {.channels = 5, .kernel = 3, .no_bias = true, .activation = SL_ACTIVATION_TANH},
      {.channels = 2, .kernel = 3, .stride = 3, .pad = 1, .output_pad = 2},
      {.channels = 4, .kernel = 3, .dilation = 2, .pad = 2, .output_pad = 1, .groups = 2}};
  static const int64_t lengths[] = {14, 9, 21, 8}; /* PyTorch's */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sl_model *m = new_model(SL_SHAPE(4, 7));
    OK(sl_conv_transpose1d(m, "conv", &cases[i]));
    const struct sl_shape *weight = &m->layers[0].params.part[0].shape;
    int64_t outputs = cases[i].channels / or_else(cases[i].groups, 1);
    assert_true(sl_shape_equal(weight, &SL_SHAPE(4, outputs, cases[i].kernel)));
    assert_true(sl_shape_equal(sl_model_output(m), &SL_SHAPE(cases[i].channels, lengths[i])));
    check_layer(m, 2, transposed_row);
  }
}
IN_BOTH_WAYS(transposed_convolutions_of_rows, check_transposed_convolutions_of_rows)

static void pooled(const struct sl__layer *layer, int64_t rows, const double *const *x,
                   const double *param, double *y) {
  (void)param;
  const struct sl_pool1d_options *o = layer->options;
  bool is_max = layer->kind == &sl__maxpool1d_kind;
  int64_t size = layer->in[0].dim[1], out = layer->out.dim[1];
  int64_t kernel = o->global ? size : o->kernel, stride = or_else(o->stride, kernel);
  for (int64_t i = 0; i < rows * layer->out.dim[0] * out; i++) {
    const double *from = x[0] + i / out * size;
    y[i] = is_max ? -INFINITY : 0;
    for (int64_t k = 0; k < kernel; k++) {
      int64_t at = i % out * stride - o->pad + k;
      if (at < 0 || at >= size) continue;
      y[i] = is_max ? fmax(y[i], from[at]) : y[i] + from[at] / (double)kernel;
    }
  }
}

static void pools_of_rows(void **state) {
  (void)state;
  static const struct sl_pool1d_options cases[] = {{.kernel = 2},
                                                   {.kernel = 3, .stride = 2, .pad = 1},
                                                   {.kernel = 4, .stride = 1},
                                                   {.global = true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sl_model *m = new_model(SL_SHAPE(3, 11));
    OK(sl_avgpool1d(m, "mean", &cases[i]));
    check_layer(m, 2, pooled);
    m = new_model(SL_SHAPE(3, 11));
    OK(sl_maxpool1d(m, "max", &cases[i]));
    OK(sl_model_build(m));
    check_type(&m->layers[0], 2, pooled, false); /* of equal values only one has the slope */
    sl_model_free(m);
  }
}

/* A transposed convolution undoes the shapes of the convolution with the same options. */
static void shapes_are_those_of_pytorch(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(4, 5, 6));
  OK(sl_conv_transpose2d(m, "up",
                         &(struct sl_conv_transpose2d_options){.channels = 2,
                                                               .kernel_h = 3,
                                                               .stride_h = 2,
                                                               .pad_h = 1,
                                                               .output_pad_h = 1,
                                                               .output_pad_w = 1}));
  assert_true(sl_shape_equal(sl_model_output(m), &SL_SHAPE(2, 10, 12)));
  OK(sl_conv2d(m, "down",
               &(struct sl_conv2d_options){
                   .channels = 4, .kernel_h = 3, .stride_h = 2, .pad_h = 1, .dilation_h = 1}));
  assert_true(sl_shape_equal(sl_model_output(m), &SL_SHAPE(4, 5, 6)));
  sl_model_free(m);
}

static void strange_options_are_refused(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(4, 6, 6)), *flat = new_model(SL_SHAPE(4));
  struct sl_model *row = new_model(SL_SHAPE(4, 1));
#define CONV(status, words, ...)                                                                   \
  FAILS(sl_conv2d(m, "x", &(struct sl_conv2d_options){.channels = 6, .kernel_h = 3, __VA_ARGS__}), \
        status, words)
#define UP(model, status, words, ...)                                                              \
  FAILS(sl_conv_transpose2d(model, "x", &(struct sl_conv_transpose2d_options){__VA_ARGS__}),       \
        status, words)
  CONV(SL_BAD_ARGUMENT, "groups is 3", .groups = 3);
  CONV(SL_BAD_ARGUMENT, "groups is 4", .groups = 4);
  CONV(SL_BAD_ARGUMENT, "groups is -2", .groups = -2);
  CONV(SL_BAD_ARGUMENT, "dilation -1x-1", .dilation_h = -1);
  CONV(SL_BAD_ARGUMENT, "dilation 1x40000", .dilation_w = 40000, .dilation_h = 1);
  CONV(SL_BAD_SHAPE, "does not fit", .dilation_h = 3);
  CONV(SL_BAD_ARGUMENT, "padding 5x5 must be from 0 to below", .dilation_h = 2, .pad_h = 5);
  CONV(SL_BAD_ARGUMENT, "silu needs the values", .activation = SL_ACTIVATION_SILU);
  FAILS(sl_conv2d(m, "x", &(struct sl_conv2d_options){.channels = INT_MAX, .kernel_h = 1}),
        SL_BAD_SHAPE, "layer x (conv2d): it has more than 2^32 - 1 parameters");
  FAILS(sl_conv1d(m, "x", &(struct sl_conv1d_options){.channels = 2, .kernel = 2}), SL_BAD_SHAPE,
        "takes [C, L], not [4, 6, 6]");
  FAILS(sl_conv1d(flat, "x", &(struct sl_conv1d_options){.channels = 2, .kernel = 2}), SL_BAD_SHAPE,
        "takes [C, L], not [4]");
  FAILS(sl_maxpool1d(m, "x", &(struct sl_pool1d_options){.kernel = 2}), SL_BAD_SHAPE, "[C, L]");
  FAILS(sl_avgpool2d(m, "x", &(struct sl_pool2d_options){.kernel_h = 46341, .pad_h = 23168}),
        SL_BAD_SHAPE, "a plane with its padding is 46342x46342, more than 2147483647 values");
  FAILS(
      sl_maxpool2d(m, "x", &(struct sl_pool2d_options){.kernel_h = INT_MAX, .pad_h = INT_MAX - 1}),
      SL_BAD_SHAPE, "more than 2147483647 values");
#define UP_ROW(model, status, words, ...)                                                          \
  FAILS(sl_conv_transpose1d(model, "x", &(struct sl_conv_transpose1d_options){__VA_ARGS__}),       \
        status, words)
  UP_ROW(m, SL_BAD_SHAPE, "takes [C, L], not [4, 6, 6]", .channels = 2, .kernel = 2);
  UP_ROW(flat, SL_BAD_SHAPE, "takes [C, L], not [4]", .channels = 2, .kernel = 2);
  UP_ROW(row, SL_BAD_ARGUMENT, "kernel 1x-1", .channels = 2);
  UP_ROW(row, SL_BAD_ARGUMENT, "output_pad 0x2", .channels = 2, .kernel = 2, .output_pad = 2);
  UP_ROW(row, SL_BAD_ARGUMENT, "padding 0x2", .channels = 2, .kernel = 2, .pad = 2);
  UP_ROW(row, SL_BAD_ARGUMENT, "gelu needs the values", .channels = 2, .kernel = 2,
         .activation = SL_ACTIVATION_GELU);
  UP_ROW(row, SL_BAD_ARGUMENT, "groups 3", .channels = 6, .kernel = 2, .groups = 3);
  UP_ROW(row, SL_BAD_SHAPE, "its output would be [2, 0]", .channels = 2, .kernel = 2, .pad = 1);
  UP(m, SL_BAD_ARGUMENT, "channels is 0", .kernel_h = 2);
  UP(m, SL_BAD_ARGUMENT, "groups 3", .channels = 6, .kernel_h = 2, .groups = 3);
  UP(m, SL_BAD_ARGUMENT, "kernel 0x0", .channels = 6);
  UP(m, SL_BAD_ARGUMENT, "padding 2x2", .channels = 6, .kernel_h = 2, .pad_h = 2);
  UP(m, SL_BAD_ARGUMENT, "output_pad 2x0", .channels = 6, .kernel_h = 2, .stride_h = 2,
     .output_pad_h = 2);
  UP(m, SL_BAD_ARGUMENT, "gelu", .channels = 6, .kernel_h = 2, .activation = SL_ACTIVATION_GELU);
  UP(m, SL_BAD_ARGUMENT, "pad_w is 1", .channels = 6, .kernel_h = 2, .pad_w = 1,
     .pad_h_only = true);
  UP(m, SL_BAD_ARGUMENT, "one input", .channels = 6, .kernel_h = 2, .layer.inputs = "input,input");
  UP(flat, SL_BAD_SHAPE, "takes [C, H, W], not [4]", .channels = 6, .kernel_h = 2);
#undef CONV
#undef UP
#undef UP_ROW
  sl_model_free(m), sl_model_free(flat), sl_model_free(row);
}

static void operations_check_shapes(void **state) {
  (void)state;
  struct sl__groupconv2d o = {
      .conv = {.channels = 2, .kernel_h = 2, .kernel_w = 2, .stride_h = 1, .stride_w = 1},
      .groups = 2,
      .dilation_h = 1,
      .dilation_w = 1};
  struct sl__tensor *x = tensor(SL_SHAPE(1, 2, 3, 3), NULL),
                    *y = tensor(SL_SHAPE(1, 2, 2, 2), NULL), *w = tensor(SL_SHAPE(8), NULL);
  OK(sl__groupconv2d_forward(context, &plain, x, w, y, &o));
  assert_int_equal(sl__groupconv2d_forward(context, &plain, x, w, x, &o), SL_BAD_SHAPE);
  assert_int_equal(sl__groupconv2d_backward_data(context, &plain, x, w, y, &o), SL_BAD_SHAPE);
  assert_int_equal(sl__groupconv2d_backward_weight(context, &plain, x, y, x, &o), SL_BAD_SHAPE);
  o.conv.has_bias = true;
  assert_int_equal(sl__groupconv2d_forward(context, &plain, x, w, y, &o), SL_BAD_SHAPE);
  o.conv.has_bias = false;
  o.transposed = true;
  OK(sl__groupconv2d_forward(context, &plain, y, w, x, &o));
  assert_int_equal(sl__groupconv2d_forward(context, &plain, x, w, y, &o), SL_BAD_SHAPE);
  sl__tensor_free(x), sl__tensor_free(y), sl__tensor_free(w);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(groups_and_dilations),
                                     cmocka_unit_test(random_options_of_layers),
                                     cmocka_unit_test(groups_by_transforms),
                                     cmocka_unit_test(transposed_convolutions),
                                     cmocka_unit_test(groups_of_many_channels),
                                     cmocka_unit_test(large_matrices_in_strips),
                                     cmocka_unit_test(strips_of_strided_rows),
                                     cmocka_unit_test(transposed_of_many_channels),
                                     cmocka_unit_test(convolutions_of_rows),
                                     cmocka_unit_test(transposed_convolutions_of_rows),
                                     cmocka_unit_test(pools_of_rows),
                                     cmocka_unit_test(shapes_are_those_of_pytorch),
                                     cmocka_unit_test(strange_options_are_refused),
                                     cmocka_unit_test(operations_check_shapes)};
  return cmocka_run_group_tests_name("group convolutions", tests, open_operations, close_context);
}
