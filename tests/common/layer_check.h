/* Checks of a layer against a reference in double precision: the output, and all gradients by the
 * reference's finite differences; sums that begin anew and sums that go on; f32 and bf16. */
#ifndef SL_TESTS_COMMON_LAYER_CHECK_H
#define SL_TESTS_COMMON_LAYER_CHECK_H

#include "nn/layer.h"
#include "tests/common/check.h"
#include "tests/common/small_model.h"

/* y = the layer's output for `rows` samples; x: its inputs, param: its block. */
typedef void layer_reference(const struct sl__layer *layer, int64_t rows, const double *const *x,
                             const double *param, double *y);

struct layer_trial {
  const struct sl__layer *layer;
  layer_reference *reference;
  int64_t rows, *x_count, y_count, param_count;
  double **x, *param, *dy, *y;
  bool bf16;
};

static inline struct sl_shape with_rows(int64_t rows, const struct sl_shape *sample) {
  struct sl_shape shape = {.ndim = sample->ndim + 1, .dim = {rows}};
  for (int d = 0; d < sample->ndim; d++) shape.dim[d + 1] = sample->dim[d];
  return shape;
}

/* <dy, reference(x)> */
static inline double trial_value(const struct layer_trial *t) {
  double *y = zeros(t->y_count);
  t->reference(t->layer, t->rows, (const double *const *)t->x, t->param, y);
  double value = dot(t->dy, y, t->y_count);
  free(y);
  return value;
}

/* The gradient of trial_value by `values`, by central differences. */
static inline double *trial_slopes(const struct layer_trial *t, double *values, int64_t count) {
  double *slopes = zeros(count), h = 1e-4;
  for (int64_t i = 0; i < count; i++) {
    double old = values[i], side[2];
    for (int s = 0; s < 2; s++) {
      values[i] = old + (s ? h : -h);
      side[s] = trial_value(t);
    }
    values[i] = old;
    slopes[i] = (side[1] - side[0]) / (2 * h);
  }
  return slopes;
}

static inline struct sl__tensor *trial_tensor(const struct layer_trial *t, struct sl_shape shape,
                                              const double *values) {
  return (t->bf16 ? bf16_tensor : tensor)(shape, values);
}

static inline double largest(const double *values, int64_t count) {
  double most = 1;
  for (int64_t i = 0; i < count; i++)
    if (fabs(values[i]) > most) most = fabs(values[i]);
  return most;
}

/* Frees got. is_stored: it is of the activations' type, bf16 perhaps. */
static inline void trial_near(const struct layer_trial *t, const char *what, double *got,
                              const double *want, int64_t count, bool is_stored) {
  double size = largest(want, count);
  double error = t->bf16 ? (is_stored ? 0.02 : 0.01) : 3e-5; /* of differences, too */
  for (int64_t i = 0; i < count; i++)
    if (!(fabs(got[i] - want[i]) <= error * size))
      fail_msg("%s, %s, %s: element %lld of %lld is %.9g, the reference %.9g", t->layer->name,
               t->bf16 ? "bf16" : "f32", what, (long long)i, (long long)count, got[i], want[i]);
  free(got);
}

/* The tensor of what forward leaves to backward; NULL if it leaves nothing. */
static inline struct sl__tensor *trial_saved(const struct layer_trial *t) {
  const struct sl__layer *layer = t->layer;
  struct sl_shape shape = layer->saved_per_row ? with_rows(t->rows, &layer->saved) : layer->saved;
  if (!layer->saved.ndim) return NULL;
  if (layer->saved_per_row && layer->saved_type == SL_I32) return integers(shape, NULL);
  return layer->saved_per_row && !layer->wide_saved ? trial_tensor(t, shape, NULL)
                                                    : tensor(shape, NULL);
}

/* One forward and backward pass; add: gradients are added to what is there. */
static inline void check_pass(const struct layer_trial *t, bool add, double *const *slopes,
                              const double *param_slopes) {
  const struct sl__layer *layer = t->layer;
  struct sl_shape y_shape = with_rows(t->rows, &layer->out);
  struct sl__tensor *x[layer->input_count], *dx[layer->input_count];
  bool add_dx[layer->input_count];
  struct sl__pass p = {.context = context,
                       .x = x,
                       .dx = dx,
                       .add_dx = add_dx,
                       .launch = plain,
                       .training = true,
                       .slices = 1,
                       .y = trial_tensor(t, y_shape, NULL),
                       .dy = trial_tensor(t, y_shape, t->dy),
                       .saved = trial_saved(t)};
  double *old[layer->input_count], *old_grad = random_values(t->param_count, 90);
  for (int k = 0; k < layer->input_count; k++) {
    struct sl_shape shape = with_rows(t->rows, &layer->in[k]);
    old[k] = t->bf16 ? round_bf16(random_values(t->x_count[k], 80 + (uint64_t)k), t->x_count[k])
                     : random_values(t->x_count[k], 80 + (uint64_t)k);
    p.x[k] = trial_tensor(t, shape, t->x[k]);
    p.dx[k] = trial_tensor(t, shape, old[k]);
    p.add_dx[k] = add;
  }
  if (t->param_count) {
    bool is_half = t->bf16 && !layer->kind->wide_params;
    p.param = (is_half ? bf16_tensor : tensor)(SL_SHAPE(t->param_count), t->param);
    p.grad = tensor(SL_SHAPE(t->param_count), old_grad);
    p.add_grad = add;
  }
  OK(layer->kind->forward(layer, &p));
  if (layer->kind->backward_begin) OK(layer->kind->backward_begin(layer, &p));
  OK(layer->kind->backward_data(layer, &p));
  if (t->param_count) OK(layer->kind->backward_weight(layer, &p));
  trial_near(t, "y", take(p.y), t->y, t->y_count, true);
  for (int k = 0; k < layer->input_count; k++) {
    for (int64_t i = 0; i < t->x_count[k]; i++) old[k][i] = slopes[k][i] + (add ? old[k][i] : 0);
    trial_near(t, "dx", take(p.dx[k]), old[k], t->x_count[k], true);
    sl__tensor_free(p.x[k]);
    free(old[k]);
  }
  for (int64_t i = 0; i < t->param_count; i++)
    old_grad[i] = param_slopes[i] + (add ? old_grad[i] : 0);
  if (t->param_count) {
    trial_near(t, "gradient", take(p.grad), old_grad, t->param_count, false);
    sl__tensor_free(p.param);
  }
  sl__tensor_free(p.dy);
  if (p.saved) sl__tensor_free(p.saved);
  free(old_grad);
}

/* Checks a layer of a built model in one type. bf16's values are rounded first, and may be equal.
 */
static inline void check_type(const struct sl__layer *layer, int64_t rows,
                              layer_reference *reference, bool bf16) {
  int64_t x_count[layer->input_count];
  double *x[layer->input_count], *slopes[layer->input_count];
  struct layer_trial t = {.layer = layer,
                          .x_count = x_count,
                          .x = x,
                          .reference = reference,
                          .rows = rows,
                          .y_count = rows * sl_shape_count(&layer->out),
                          .param_count = layer->params.total,
                          .bf16 = bf16};
  t.dy = round_bf16(random_values(t.y_count, 1), t.y_count);
  t.param = round_bf16(random_values(t.param_count, 2), t.param_count);
  t.y = zeros(t.y_count);
  for (int k = 0; k < layer->input_count; k++) {
    t.x_count[k] = rows * sl_shape_count(&layer->in[k]);
    t.x[k] = random_values(t.x_count[k], 10 + (uint64_t)k);
    /* near 1: else the product of many would vanish */
    for (int64_t i = 0; i < t.x_count[k] && layer->input_count > 4; i++)
      t.x[k][i] = 1 + t.x[k][i] / 4;
    if (bf16) round_bf16(t.x[k], t.x_count[k]);
  }
  reference(layer, rows, (const double *const *)t.x, t.param, t.y);
  for (int k = 0; k < layer->input_count; k++) slopes[k] = trial_slopes(&t, t.x[k], t.x_count[k]);
  double *param_slopes = trial_slopes(&t, t.param, t.param_count);
  for (int add = 0; add < 2; add++) check_pass(&t, add, slopes, param_slopes);
  for (int k = 0; k < layer->input_count; k++) free(slopes[k]), free(t.x[k]);
  free(param_slopes), free(t.param), free(t.dy), free(t.y);
}

/* Checks the last layer of the model, which is built and freed. */
static inline void check_layer(struct sl_model *m, int64_t rows, layer_reference *reference) {
  OK(sl_model_build(m));
  for (int bf16 = 0; bf16 < 2; bf16++) check_type(&m->layers[m->count - 1], rows, reference, bf16);
  sl_model_free(m);
}

#endif
