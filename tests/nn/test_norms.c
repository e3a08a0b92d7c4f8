/* Layer, group, instance and RMS normalisation against a reference in double precision and its
 * finite differences. */
#include "tests/common/layer_check.h"

struct rows {
  int64_t size, groups, channels; /* values of a row; rows of a sample; parameters of a row */
  double epsilon;
  bool plain, rms;
};

static struct rows rows_of(const struct sl__layer *layer) {
  const struct sl_shape *in = &layer->in[0];
  struct rows r = {.groups = 1};
  if (layer->kind == &sl__layernorm_kind) {
    const struct sl_layernorm_options *o = layer->options;
    r.size = 1;
    for (int d = in->ndim - (o->axes ? o->axes : 1); d < in->ndim; d++) r.size *= in->dim[d];
    r.channels = r.size;
    r.plain = o->plain;
    r.rms = o->rms;
    r.epsilon = o->epsilon != 0 ? (double)o->epsilon : 1e-5;
    return r;
  }
  const struct sl_groupnorm_options *o = layer->options;
  r.groups = o->groups ? o->groups : in->dim[0];
  r.size = sl_shape_count(in) / r.groups;
  r.channels = in->dim[0] / r.groups;
  r.plain = o->plain;
  r.epsilon = o->epsilon != 0 ? (double)o->epsilon : 1e-5;
  return r;
}

static void normalised(const struct sl__layer *layer, int64_t rows, const double *const *x,
                       const double *param, double *y) {
  struct rows o = rows_of(layer);
  int64_t params = o.groups * o.channels, plane = o.size / o.channels;
  int64_t count = rows * sl_shape_count(&layer->in[0]) / o.size;
  for (int64_t r = 0; r < count; r++) {
    const double *row = x[0] + r * o.size;
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < o.size && !o.rms; i++) mean += row[i] / (double)o.size;
    for (int64_t i = 0; i < o.size; i++)
      variance += (row[i] - mean) * (row[i] - mean) / (double)o.size;
    for (int64_t i = 0; i < o.size; i++) {
      int64_t c = r % o.groups * o.channels + i / plane;
      double v = (row[i] - mean) / sqrt(variance + o.epsilon);
      y[r * o.size + i] = o.plain ? v : v * param[c] + (o.rms ? 0 : param[params + c]);
    }
  }
}

static void layer_normalisation(void **state) {
  (void)state;
  static const struct sl_shape shapes[] = {{1, {37}}, {2, {3, 17}}, {3, {2, 5, 4}}};
  for (int s = 0; s < 3; s++)
    for (int axes = 0; axes <= shapes[s].ndim; axes++)
      for (int form = 0; form < 4; form++) {
        struct sl_model *m = new_model(shapes[s]);
        OK(sl_layernorm(m, "norm",
                        &(struct sl_layernorm_options){.axes = axes,
                                                       .epsilon = axes == 1 ? 0 : 0.02f,
                                                       .plain = form & 1,
                                                       .rms = form & 2}));
        assert_true(m->layers[0].over_time == (axes < shapes[s].ndim && shapes[s].ndim > 1));
        check_layer(m, 3, normalised);
      }
}

static void group_normalisation(void **state) {
  (void)state;
  static const struct sl_shape shapes[] = {{1, {12}}, {2, {6, 7}}, {3, {6, 3, 6}}};
  static const int groups[] = {1, 2, 3, 0};
  for (int s = 0; s < 3; s++)
    for (int g = 0; g < 4; g++)
      for (int bare = 0; bare < 2; bare++) {
        struct sl_model *m = new_model(shapes[s]);
        OK(sl_groupnorm(
            m, "norm",
            &(struct sl_groupnorm_options){.groups = groups[g], .epsilon = 0.02f, .plain = bare}));
        check_layer(m, 3, normalised);
      }
}

/* A large mean must not cost the digits of the deviation. */
static void a_large_mean_is_subtracted_first(void **state) {
  (void)state;
  enum { N = 64 };
  double x[N], want[N], mean = 0, variance = 0;
  for (int i = 0; i < N; i++) x[i] = 4096 + i % 7;
  for (int i = 0; i < N; i++) mean += x[i] / N;
  for (int i = 0; i < N; i++) variance += (x[i] - mean) * (x[i] - mean) / N;
  for (int i = 0; i < N; i++) want[i] = (x[i] - mean) / sqrt(variance + 1e-5);
  const struct sl__layernorm o = {.size = N, .groups = 1, .params = N, .epsilon = 1e-5f};
  struct sl__tensor *tx = tensor(SL_SHAPE(1, N), x), *ty = tensor(SL_SHAPE(1, N), NULL);
  OK(sl__layernorm_forward(context, &plain, tx, NULL, ty, &o));
  assert_near("y", take(ty), want, N, 2000, 2);
  sl__tensor_free(tx);
}

/* Long sums of values that are nearly alike, as in a picture with a plain background. */
static void a_plain_background_keeps_its_digits(void **state) {
  (void)state;
  enum { SIDE = 300, N = SIDE * SIDE };
  double *x = zeros(N), *dy = zeros(N), *want = zeros(N), mean = 0, variance = 0, sums[2] = {0};
  for (int i = 0; i < N; i++) {
    bool is_inside = i / SIDE < SIDE / 3 && i % SIDE < SIDE / 3;
    x[i] = (double)(is_inside ? 0.7f - 0.003f * (float)(i % 101) : 0.7f);
    dy[i] = (double)(0.3f + 0.001f * (float)(i % 17));
    mean += x[i] / N;
  }
  for (int i = 0; i < N; i++) variance += (x[i] - mean) * (x[i] - mean) / N;
  for (int i = 0; i < N; i++) {
    want[i] = (x[i] - mean) / sqrt(variance + 1e-5);
    sums[0] += dy[i] * want[i];
    sums[1] += dy[i];
  }
  const struct sl__layernorm o = {.size = N, .groups = 1, .params = 1, .epsilon = 1e-5f};
  const double one_and_zero[] = {1, 0};
  struct sl__tensor *tx = tensor(SL_SHAPE(1, N), x), *ty = tensor(SL_SHAPE(1, N), NULL),
                    *param = tensor(SL_SHAPE(2), one_and_zero), *tdy = tensor(tx->shape, dy),
                    *tdx = tensor(tx->shape, NULL), *grad = tensor(SL_SHAPE(2), NULL);
  OK(sl__layernorm_forward(context, &plain, tx, param, ty, &o));
  OK(sl__layernorm_backward_data(context, &plain, tx, param, tdy, tdx, &o));
  OK(sl__layernorm_backward_weight(context, &plain, tx, tdy, grad, &o));
  assert_near("y", take(ty), want, N, 20, 6);
  for (int i = 0; i < N; i++)
    want[i] = (dy[i] - sums[1] / N - want[i] * sums[0] / N) / sqrt(variance + 1e-5);
  assert_near("dx", take(tdx), want, N, 200, 6);
  assert_near("grad", take(grad), sums, 2, 20, 0.4 * N);
  sl__tensor_free(tx), sl__tensor_free(tdy), sl__tensor_free(param);
  free(x), free(dy), free(want);
}

/* The squares of finite values may be infinite. Zeros would hide that from the loss's check. */
static void an_overflow_is_not_a_number(void **state) {
  (void)state;
  enum { N = 20 };
  double x[N];
  for (int i = 0; i < N; i++) x[i] = 1e20 * (1 + i % 3);
  for (int rms = 0; rms < 2; rms++) {
    const struct sl__layernorm o = {
        .size = N, .groups = 1, .params = N, .epsilon = 1e-5f, .rms = rms};
    struct sl__tensor *tx = tensor(SL_SHAPE(1, N), x), *ty = tensor(SL_SHAPE(1, N), NULL);
    OK(sl__layernorm_forward(context, &plain, tx, NULL, ty, &o));
    double *y = take(ty);
    for (int i = 0; i < N; i++) assert_true(isnan(y[i]));
    free(y);
    sl__tensor_free(tx);
  }
}

static void strange_options_are_refused(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(6, 4));
#define REFUSED(kind, options_type, words, ...)                                                    \
  FAILS(kind(m, "x", &(struct options_type){__VA_ARGS__}), SL_BAD_ARGUMENT, words)
  REFUSED(sl_layernorm, sl_layernorm_options, "axes is 3", .axes = 3);
  REFUSED(sl_layernorm, sl_layernorm_options, "axes is -1", .axes = -1);
  REFUSED(sl_layernorm, sl_layernorm_options, "epsilon", .epsilon = -1);
  REFUSED(sl_layernorm, sl_layernorm_options, "epsilon", .epsilon = INFINITY);
  REFUSED(sl_layernorm, sl_layernorm_options, "one input", .layer.inputs = "input,input");
  REFUSED(sl_groupnorm, sl_groupnorm_options, "groups is 4", .groups = 4);
  REFUSED(sl_groupnorm, sl_groupnorm_options, "groups is -2", .groups = -2);
  REFUSED(sl_groupnorm, sl_groupnorm_options, "epsilon", .epsilon = NAN);
  REFUSED(sl_groupnorm, sl_groupnorm_options, "one input", .layer.inputs = "input,input");
#undef REFUSED
  sl_model_free(m);
}

static void operations_check_shapes(void **state) {
  (void)state;
  struct sl__layernorm o = {.size = 6, .groups = 1, .params = 6, .epsilon = 1};
  struct sl__tensor *x = tensor(SL_SHAPE(2, 6), NULL), *other = tensor(SL_SHAPE(2, 5), NULL);
  assert_int_equal(sl__layernorm_forward(context, &plain, x, NULL, other, &o), SL_BAD_SHAPE);
  assert_int_equal(sl__layernorm_forward(context, &plain, x, other, x, &o), SL_BAD_SHAPE);
  assert_int_equal(sl__layernorm_backward_data(context, &plain, x, NULL, x, other, &o),
                   SL_BAD_SHAPE);
  assert_int_equal(sl__layernorm_backward_weight(context, &plain, x, x, other, &o), SL_BAD_SHAPE);
  o.groups = 4;
  assert_int_equal(sl__layernorm_forward(context, &plain, x, NULL, x, &o), SL_BAD_SHAPE);
  o = (struct sl__layernorm){.size = 5, .groups = 1, .params = 5, .epsilon = 1};
  assert_int_equal(sl__layernorm_forward(context, &plain, x, NULL, x, &o), SL_BAD_SHAPE);
  sl__tensor_free(x), sl__tensor_free(other);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(layer_normalisation),
                                     cmocka_unit_test(group_normalisation),
                                     cmocka_unit_test(a_large_mean_is_subtracted_first),
                                     cmocka_unit_test(a_plain_background_keeps_its_digits),
                                     cmocka_unit_test(an_overflow_is_not_a_number),
                                     cmocka_unit_test(strange_options_are_refused),
                                     cmocka_unit_test(operations_check_shapes)};
  return cmocka_run_group_tests_name("norms", tests, open_operations, close_context);
}
