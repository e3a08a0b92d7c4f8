/* Layers of transformer blocks: the gated linear unit, learned positions, and dense layers that
 * keep the values before their activation, against references in double precision and their finite
 * differences. */
#include "tests/common/layer_check.h"

static double silu(double x) { return x / (1 + exp(-x)); }

/* ---- the gated linear unit ---- */

static void gated(const struct sl__layer *layer, int64_t rows, const double *const *x,
                  const double *param, double *y) {
  int64_t n = layer->out.dim[layer->out.ndim - 1], count = rows * sl_shape_count(&layer->out) / n;
  (void)param;
  for (int64_t r = 0; r < count; r++)
    for (int64_t i = 0; i < n; i++)
      y[r * n + i] = silu(x[0][2 * r * n + i]) * x[0][(2 * r + 1) * n + i];
}

static void swiglu(void **state) {
  (void)state;
  static const struct sl_shape shapes[] = {{1, {2}}, {1, {38}}, {2, {3, 34}}, {3, {2, 3, 10}}};
  for (int s = 0; s < 4; s++) {
    struct sl_model *m = new_model(shapes[s]);
    OK(sl_swiglu(m, "gate", s ? NULL : &(struct sl_swiglu_options){0}));
    assert_true(m->layers[0].over_time == (shapes[s].ndim > 1));
    check_layer(m, 3, gated);
  }
}

static void swiglu_is_refused(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(4, 7));
  FAILS(sl_swiglu(m, "gate", NULL), SL_BAD_SHAPE, "layer gate (swiglu): takes rows of gates");
  FAILS(sl_swiglu(m, "gate", &(struct sl_swiglu_options){.layer.inputs = "input,input"}),
        SL_BAD_ARGUMENT, "one input");
  sl_model_free(m);
  struct sl__tensor *x = tensor(SL_SHAPE(2, 6), NULL), *y = tensor(SL_SHAPE(2, 3), NULL);
  assert_int_equal(sl__swiglu_forward(context, &plain, x, x), SL_BAD_SHAPE);
  assert_int_equal(sl__swiglu_backward(context, &plain, y, y, x), SL_BAD_SHAPE);
  assert_int_equal(sl__swiglu_backward(context, &plain, x, y, y), SL_BAD_SHAPE);
  sl__tensor_free(x), sl__tensor_free(y);
}

/* ---- positions ---- */

static void placed(const struct sl__layer *layer, int64_t rows, const double *const *x,
                   const double *param, double *y) {
  int64_t values = sl_shape_count(&layer->out);
  for (int64_t i = 0; i < rows * values; i++) y[i] = x[0][i] + param[i % values];
}

static void position(void **state) {
  (void)state;
  for (int length = 0; length <= 9; length += length ? 4 : 5) {
    struct sl_model *m = new_model(SL_SHAPE(5, 19));
    OK(sl_position(m, "wpe", &(struct sl_position_options){.length = length}));
    assert_true(m->layers[0].over_time);
    check_layer(m, 3, placed);
  }
}

/* Time steps from the fourth one on: other rows of the gradient are 0, or stay. */
static void positions_begin_anywhere(void **state) {
  (void)state;
  enum { N = 2, T = 3, C = 5, LENGTH = 8, FIRST = 4 };
  for (int add = 0; add < 2; add++) {
    double *x = random_values(N * T * C, 1), *table = random_values(LENGTH * C, 2),
           *dy = random_values(N * T * C, 3), *grad = random_values(LENGTH * C, 4),
           *y = zeros(N * T * C);
    struct sl__tensor *tx = tensor(SL_SHAPE(N, T, C), x), *ty = tensor(SL_SHAPE(N, T, C), NULL),
                      *tt = tensor(SL_SHAPE(LENGTH * C), table),
                      *tdy = tensor(SL_SHAPE(N, T, C), dy),
                      *tg = tensor(SL_SHAPE(LENGTH * C), grad);
    OK(sl__position_forward(context, &plain, tx, tt, ty, FIRST));
    OK(sl__position_backward_weight(context, add ? &adding : &plain, tdy, tg, FIRST));
    for (int i = 0; i < LENGTH * C; i++) grad[i] = add ? grad[i] : 0;
    for (int n = 0; n < N; n++)
      for (int i = 0; i < T * C; i++) {
        y[n * T * C + i] = x[n * T * C + i] + table[FIRST * C + i];
        grad[FIRST * C + i] += dy[n * T * C + i];
      }
    assert_near("y", take(ty), y, N * T * C, 2, 2);
    assert_near("gradient", take(tg), grad, LENGTH * C, 4, 3);
    FAILS(sl__position_forward(context, &plain, tx, tt, tx, LENGTH - T + 1), SL_BAD_ARGUMENT,
          "the table has 8");
    FAILS(sl__position_backward_weight(context, &plain, tdy, tt, -1), SL_BAD_ARGUMENT, "-1");
    assert_int_equal(sl__position_forward(context, &plain, tx, tt, tt, 0), SL_BAD_SHAPE);
    assert_int_equal(sl__position_forward(context, &plain, tt, tt, tt, 0), SL_BAD_SHAPE);
    sl__tensor_free(tx), sl__tensor_free(tt), sl__tensor_free(tdy);
    free(x), free(table), free(dy), free(grad), free(y);
  }
}

static void position_is_refused(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(5, 3));
  FAILS(sl_position(m, "wpe", &(struct sl_position_options){.length = 4}), SL_BAD_ARGUMENT,
        "layer wpe (position): length is 4, but a sample has 5 time steps");
  FAILS(sl_position(m, "wpe", &(struct sl_position_options){.length = -1}), SL_BAD_ARGUMENT,
        "length is -1");
  FAILS(sl_position(m, "wpe", &(struct sl_position_options){.layer.inputs = "input,input"}),
        SL_BAD_ARGUMENT, "one input");
  OK(sl_reshape(m, "flat", &(struct sl_reshape_options){0}));
  FAILS(sl_position(m, "wpe", &(struct sl_position_options){0}), SL_BAD_SHAPE, "takes [T, C]");
  sl_model_free(m);
}

/* ---- dense layers with an activation that needs its input ---- */

static double activated(enum sl_activation activation, double x) {
  const double root = 0.79788456080286535588;
  if (activation == SL_ACTIVATION_SILU) return silu(x);
  if (activation == SL_ACTIVATION_GELU) return x * 0.5 * erfc(-x / sqrt(2));
  return 0.5 * x * (1 + tanh(root * (x + 0.044715 * x * x * x)));
}

static void dense(const struct sl__layer *layer, int64_t rows, const double *const *x,
                  const double *param, double *y) {
  const struct sl_dense_options *o = layer->options;
  int64_t out = o->features, all = rows * sl_shape_count(&layer->out) / out;
  int64_t in = rows * sl_shape_count(&layer->in[0]) / all;
  for (int64_t r = 0; r < all; r++)
    for (int64_t k = 0; k < out; k++) {
      double sum = o->no_bias ? 0 : param[out * in + k];
      for (int64_t i = 0; i < in; i++) sum += x[0][r * in + i] * param[k * in + i];
      y[r * out + k] = activated(o->activation, sum);
    }
}

static const enum sl_activation saving[] = {SL_ACTIVATION_GELU, SL_ACTIVATION_GELU_TANH,
                                            SL_ACTIVATION_SILU};

static void dense_keeps_the_values_before(void **state) {
  (void)state;
  for (int a = 0; a < 3; a++)
    for (int form = 0; form < 4; form++)
      for (int rows = 1; rows <= 3; rows += 2) {
        struct sl_model *m = new_model(SL_SHAPE(2, 5));
        OK(sl_dense(m, "fc",
                    &(struct sl_dense_options){.features = 7,
                                               .no_bias = form & 1,
                                               .positions = form & 2,
                                               .activation = saving[a]}));
        check_layer(m, rows, dense);
      }
}

/* y of a pass. saved: holds 7s before, and afterwards what the pass left; or NULL. */
static double *output_of(const struct sl__layer *layer, struct sl__tensor *x,
                         struct sl__tensor *param, int64_t rows, bool training, double **saved) {
  struct sl_shape shape = with_rows(rows, &layer->out);
  double *sevens = zeros(sl_shape_count(&shape));
  for (int64_t i = 0; i < sl_shape_count(&shape); i++) sevens[i] = 7;
  struct sl__pass p = {.context = context,
                       .launch = plain,
                       .training = training,
                       .slices = 1,
                       .x = (struct sl__tensor *[]){x},
                       .param = param,
                       .y = tensor(shape, NULL),
                       .saved = saved ? tensor(shape, sevens) : NULL};
  OK(layer->kind->forward(layer, &p));
  if (saved) *saved = take(p.saved);
  free(sevens);
  return take(p.y);
}

/* To the bit, in every implementation: fused in training and in inference, and layers of their own.
 * Inference leaves `saved` alone. */
static void check_fused(void) {
  for (int a = 0; a < 3; a++)
    for (int64_t rows = 1; rows <= 19; rows += 9) {
      struct sl_model *m = new_model(SL_SHAPE(33));
      OK(sl_dense(m, "fused", &(struct sl_dense_options){.features = 21, .activation = saving[a]}));
      OK(sl_dense(m, "fc", &(struct sl_dense_options){.layer.inputs = "input", .features = 21}));
      OK(sl_activate(m, "act", &(struct sl_activation_options){.activation = saving[a]}));
      OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = "fused,act"}));
      OK(sl_model_build(m));
      double *x = random_values(rows * 33, 1), *param = random_values(21 * 34, 2), *saved, *kept;
      struct sl__tensor *tx = tensor(SL_SHAPE(rows, 33), x), *tp = tensor(SL_SHAPE(21 * 34), param);
      double *training = output_of(&m->layers[0], tx, tp, rows, true, &saved);
      double *inference = output_of(&m->layers[0], tx, tp, rows, false, &kept);
      double *before = output_of(&m->layers[1], tx, tp, rows, true, NULL);
      struct sl__tensor *tb = tensor(SL_SHAPE(rows, 21), before);
      double *apart = output_of(&m->layers[2], tb, NULL, rows, true, NULL);
      size_t bytes = (size_t)rows * 21 * sizeof *x;
      assert_memory_equal(training, inference, bytes);
      assert_memory_equal(training, apart, bytes);
      assert_memory_equal(saved, before, bytes);
      for (int64_t i = 0; i < rows * 21; i++) assert_true(kept[i] == 7);
      sl__tensor_free(tx), sl__tensor_free(tp), sl__tensor_free(tb);
      free(x), free(param), free(saved), free(kept);
      free(training), free(inference), free(before), free(apart);
      sl_model_free(m);
    }
}
EACH_IMPLEMENTATION(a_fused_activation_has_the_same_bits, check_fused)

static void the_saved_tensor_must_fit(void **state) {
  (void)state;
  struct sl__tensor *x = tensor(SL_SHAPE(2, 3), NULL), *param = tensor(SL_SHAPE(12), NULL),
                    *bias = tensor(SL_SHAPE(4), NULL), *y = tensor(SL_SHAPE(2, 4), NULL);
  FAILS(sl__dense_forward_saving(context, &plain, x, param, y, x, false, SL_ACTIVATION_SILU),
        SL_BAD_SHAPE, "saved has 6 values, y 8");
  FAILS(sl__dense_shared_forward_saving(context, &plain, x, param, bias, y, x, SL_ACTIVATION_SILU),
        SL_BAD_SHAPE, "saved has 6 values, y 8");
  sl__tensor_free(x), sl__tensor_free(param), sl__tensor_free(bias), sl__tensor_free(y);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(swiglu),
                                     cmocka_unit_test(swiglu_is_refused),
                                     cmocka_unit_test(position),
                                     cmocka_unit_test(positions_begin_anywhere),
                                     cmocka_unit_test(position_is_refused),
                                     cmocka_unit_test(dense_keeps_the_values_before),
                                     cmocka_unit_test(a_fused_activation_has_the_same_bits),
                                     cmocka_unit_test(the_saved_tensor_must_fit)};
  return cmocka_run_group_tests_name("blocks", tests, open_operations, close_context);
}
