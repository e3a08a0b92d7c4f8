/* A network of two inputs and two outputs, its data, and the same in double precision: the losses
 * follow from their definitions, the gradients from differences of the losses. */
#ifndef TESTS_FIELDS_NETWORK_H
#define TESTS_FIELDS_NETWORK_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <starling.h>

#include "core/base/random.h"

/* "kind" is a class of 3, "place" two numbers; in the row of the targets place comes first. */
enum {
  F_COUNT = 50,
  F_BATCH = 12,
  F_STEPS = 20,
  F_A = 3,
  F_B = 4,
  F_HA = 5,
  F_HB = 4,
  F_KINDS = 3,
  F_PLACE = 2,
  F_JOIN = F_HA + F_HB,
  F_IN = F_A + F_B,
  F_TARGETS = F_PLACE + 1,
  F_WEIGHTS = F_HA * (F_A + 1) + F_HB * (F_B + 1) + (F_KINDS + F_PLACE) * (F_JOIN + 1)
};
#define F_PLACE_WEIGHT 0.5
#define F_LR 0.2

static float f_inputs[F_COUNT * F_IN], f_targets[F_COUNT * F_TARGETS];
static const struct sl_row_field f_input_fields[] = {{.name = "state", .shape = {1, {F_A}}},
                                                     {.name = "control", .shape = {2, {2, 2}}}};
static const struct sl_row_field f_target_fields[] = {
    {.name = "place", .shape = {1, {F_PLACE}}},
    {.name = "kind", .shape = {1, {1}}, .classes = F_KINDS}};
static float f_kind_weights[F_KINDS] = {1, 1, 1}; /* class weights */
static const char *const f_parameters[] = {"ha.weight",    "ha.bias",     "hb.weight",
                                           "hb.bias",      "kind.weight", "kind.bias",
                                           "place.weight", "place.bias"};

#define F_DO(call)                                                                                 \
  do {                                                                                             \
    if ((call) != SL_OK) {                                                                         \
      fprintf(stderr, "%s: %s\n", #call, sl_error());                                              \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

static inline float f_draw(uint64_t stream, int64_t i) {
  return 2 * sl__uniform(7, stream, (uint64_t)i) - 1;
}

/* missing: some targets of each field are not known, of one sample none. */
static inline struct sl_dataset *f_set(bool missing) {
  struct sl_dataset *set;
  for (int i = 0; i < F_COUNT * F_IN; i++) f_inputs[i] = f_draw(1, i);
  for (int n = 0; n < F_COUNT; n++) {
    float *t = f_targets + n * F_TARGETS;
    for (int i = 0; i < F_PLACE; i++) t[i] = 2 * f_draw(2, n * F_PLACE + i);
    t[F_PLACE] = floorf((f_draw(3, n) + 1) / 2 * F_KINDS);
    if (missing && n % 7 == 3) t[0] = NAN;
    if (missing && n % 5 == 2) t[F_PLACE] = NAN;
    if (missing && n == 9) t[0] = t[1] = t[F_PLACE] = NAN;
  }
  const struct sl_dataset_options options = {.name = "fields",
                                             .count = F_COUNT,
                                             .inputs = f_input_fields,
                                             .input_count = 2,
                                             .targets = f_target_fields,
                                             .target_count = 2,
                                             .missing = missing};
  F_DO(sl_dataset_floats(&options, f_inputs, f_targets, NULL, true, &set));
  return set;
}

static inline struct sl_model *f_model(struct sl_context *context) {
  struct sl_model *m;
  F_DO(sl_model_new_fields(context, f_input_fields, 2, &m));
  F_DO(sl_dense(m, "ha",
                &(struct sl_dense_options){
                    .layer.inputs = "state", .features = F_HA, .activation = SL_ACTIVATION_TANH}));
  F_DO(
      sl_dense(m, "hb",
               &(struct sl_dense_options){
                   .layer.inputs = "control", .features = F_HB, .activation = SL_ACTIVATION_TANH}));
  F_DO(sl_concatenate(m, "join", &(struct sl_concatenate_options){.layer.inputs = "ha,hb"}));
  F_DO(
      sl_dense(m, "kind", &(struct sl_dense_options){.layer.inputs = "join", .features = F_KINDS}));
  F_DO(sl_dense(m, "place",
                &(struct sl_dense_options){.layer.inputs = "join", .features = F_PLACE}));
  F_DO(sl_outputs(m, "kind,place"));
  return m;
}

static inline struct sl_loss f_loss(struct sl_loss_part parts[SL_MAX_FIELDS]) {
  struct sl_loss loss;
  F_DO(sl_loss_parse_parts("place=mse*0.5,kind=cross-entropy", parts, &loss));
  return loss;
}

static inline void f_read(struct sl_model *model, double *w) {
  struct sl_shape shape;
  float values[F_WEIGHTS];
  for (size_t k = 0; k < sizeof f_parameters / sizeof *f_parameters; k++) {
    F_DO(sl_model_get(model, f_parameters[k], values));
    for (int i = 0; i < sl_model_parameter_count(model); i++)
      if (!strcmp(sl_model_parameter(model, i, &shape), f_parameters[k])) break;
    for (int64_t i = 0; i < sl_shape_count(&shape); i++) *w++ = (double)values[i];
  }
}

/* y = W x + b; returns the place behind b. */
static inline const double *f_dense(const double *w, const double *x, int in, int out, double *y) {
  for (int o = 0; o < out; o++) {
    y[o] = w[out * in + o];
    for (int i = 0; i < in; i++) y[o] += w[o * in + i] * x[i];
  }
  return w + out * (in + 1);
}

/* The outputs of sample n: kind, then place. */
static inline void f_forward(const double *w, int64_t n, double *y) {
  double x[F_IN], join[F_JOIN];
  for (int i = 0; i < F_IN; i++) x[i] = (double)f_inputs[n * F_IN + i];
  w = f_dense(w, x, F_A, F_HA, join);
  w = f_dense(w, x + F_A, F_B, F_HB, join + F_HA);
  for (int i = 0; i < F_JOIN; i++) join[i] = tanh(join[i]);
  w = f_dense(w, join, F_JOIN, F_KINDS, y);
  f_dense(w, join, F_JOIN, F_PLACE, y + F_KINDS);
}

/* The loss of `count` samples from `first` on; parts: its two means, of kind and of place. */
static inline double f_mean(const double *w, int64_t first, int64_t count, double parts[2]) {
  double sum[2] = {0, 0}, terms[2] = {0, 0};
  for (int64_t n = first; n < first + count; n++) {
    const float *t = f_targets + n * F_TARGETS;
    double y[F_KINDS + F_PLACE], total = 0;
    f_forward(w, n, y);
    for (int c = 0; c < F_KINDS; c++) total += exp(y[c]);
    if (!isnan(t[F_PLACE])) {
      double weight = (double)f_kind_weights[(int)t[F_PLACE]];
      sum[0] += weight * (log(total) - y[(int)t[F_PLACE]]);
      terms[0] += weight;
    }
    for (int i = 0; i < F_PLACE; i++) {
      double d = y[F_KINDS + i] - (double)t[i];
      if (isnan(d)) continue;
      sum[1] += d * d;
      terms[1] += 1;
    }
  }
  for (int p = 0; p < 2; p++) parts[p] = terms[p] > 0 ? sum[p] / terms[p] : 0;
  return parts[0] + F_PLACE_WEIGHT * parts[1];
}

/* A step of gradient descent; returns the loss before it. */
static inline double f_step(double *w, int step) {
  const int64_t length = (F_COUNT + F_BATCH - 1) / F_BATCH, first = step % length * F_BATCH;
  const int64_t count = F_COUNT - first < F_BATCH ? F_COUNT - first : F_BATCH;
  const double h = 1e-5;
  double gradient[F_WEIGHTS], parts[2], loss = f_mean(w, first, count, parts);
  for (int i = 0; i < F_WEIGHTS; i++) {
    double before = w[i], up, down;
    w[i] = before + h;
    up = f_mean(w, first, count, parts);
    w[i] = before - h;
    down = f_mean(w, first, count, parts);
    w[i] = before;
    gradient[i] = (up - down) / (2 * h);
  }
  for (int i = 0; i < F_WEIGHTS; i++) w[i] -= F_LR * gradient[i];
  return loss;
}

#endif
