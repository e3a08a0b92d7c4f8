/* Common parts of the recurrent layers' operations. */
#ifndef SL_CODELETS_KERNELS_RECURRENT_H
#define SL_CODELETS_KERNELS_RECURRENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <starling/base.h>

struct sl__tensor;
struct sl_context;

/* The order in which a layer goes over its time steps, and its output: a set of these. */
enum sl__time {
  SL__TIME_FORWARD = 0,
  SL__TIME_REVERSE = 1, /* from the last step to the first */
  SL__TIME_BOTH = 2,    /* in both directions, each with its own parameters */
  SL__TIME_LAST = 4     /* the output is h after a direction's last step, else h of each step */
};

/* Arguments of all recurrent operations. */
struct sl__recurrent_args {
  int32_t rows, steps, in, hidden, implementation;
  int32_t time;                 /* set of enum sl__time */
  int32_t is_packed;            /* a CPU packs the state's weights; see recurrent_gemm.h */
  int32_t input_implementation; /* of the input's products with the weights, forward */
  int32_t data_implementation;  /* of the input's gradient */
};

/* Two directions have their parts side by side: parameters in one block, and in each row of the
 * state, of saved and of the output. */
static inline int sl__directions(const struct sl__recurrent_args *a) {
  return a->time & SL__TIME_BOTH ? 2 : 1;
}

/* The time step that a direction takes as its k-th. */
static inline int64_t sl__recurrent_step(const struct sl__recurrent_args *a, int direction,
                                         int64_t k) {
  return direction || a->time & SL__TIME_REVERSE ? a->steps - 1 - k : k;
}

/* Does the k-th step have an output? */
static inline bool sl__has_output(const struct sl__recurrent_args *a, int64_t k) {
  return !(a->time & SL__TIME_LAST) || k == a->steps - 1;
}

/* Location of a step's output in y: of row n, of a direction's k-th step. */
static inline int64_t sl__recurrent_output(const struct sl__recurrent_args *a, int direction,
                                           int64_t n, int64_t k) {
  int64_t t = a->time & SL__TIME_LAST ? n : n * a->steps + sl__recurrent_step(a, direction, k);
  return (t * sl__directions(a) + direction) * a->hidden;
}

/* Parameters of a direction. */
static inline int64_t sl__recurrent_params(const struct sl__recurrent_args *a, int64_t gates) {
  return gates * a->hidden * ((int64_t)a->in + a->hidden + 2);
}

/* Floating-point operations of the products of `inputs` values of each row and step. */
static inline double sl__recurrent_flops(const struct sl__recurrent_args *a, int gates,
                                         int64_t inputs) {
  return 2.0 * gates * sl__directions(a) * (double)a->rows * (double)a->steps * (double)a->hidden *
         (double)inputs;
}

/* Sizes from x [N, T, I] and saved [N, T, parts H] (with D directions [N, T, D parts H]) of a layer
 * with that many gates. block: parameters or their gradient. SL_BAD_SHAPE: they do not fit. */
enum sl_status sl__recurrent_check(struct sl_context *context, const char *name, int gates,
                                   int parts, const struct sl__tensor *x,
                                   const struct sl__tensor *saved, const struct sl__tensor *block,
                                   int time, struct sl__recurrent_args *a);

/* The input's products of all steps: saved [N T, columns], rows `width` apart, = x W_ih^T. There is
 * a column for each hidden value of each gate. */
void sl__recurrent_input(const struct sl__recurrent_args *a, int64_t columns, const float *x,
                         const float *w_ih, float *saved, int64_t width);

/* The input's gradient of all steps: dx [N T, in] (+)= dgates [N T, columns], rows `width` apart,
 * W_ih. */
void sl__recurrent_input_gradient(const struct sl__recurrent_args *a, int64_t columns,
                                  const float *dgates, int64_t width, const float *w_ih, float *dx,
                                  bool add);

/* The shapes of the carried state, of that many tensors in a row, and of y. */
enum sl_status sl__recurrent_check_state(const char *name, int states,
                                         const struct sl__tensor *state, const struct sl__tensor *y,
                                         const struct sl__recurrent_args *a);

/* Floats for the input's products [N, T, gates H] of all steps, for bf16's forward task on a GPU,
 * whose products must not be rounded. Returns 0 if that is too much memory; each step then computes
 * its own. */
static inline int64_t sl__recurrent_input_floats(const struct sl__recurrent_args *a,
                                                 int64_t gates) {
  const int64_t most = (int64_t)64 << 20;
  int64_t step = (int64_t)a->rows * gates * a->hidden;
  return step > most / a->steps ? 0 : step * a->steps;
}

/* Floats for the state's products of one step on a GPU; the next array begins at a multiple of 256
 * bytes. */
static inline int64_t sl__recurrent_state_floats(const struct sl__recurrent_args *a,
                                                 int64_t gates) {
  return ((int64_t)a->rows * gates * a->hidden + 63) / 64 * 64;
}

/* A core's share of a step is a number of units: groups of hidden values of this size; the last
 * unit may be smaller. */
enum { SL__RECURRENT_UNIT = 16 };
static inline int64_t sl__recurrent_units(const struct sl__recurrent_args *a) {
  return ((int64_t)a->hidden + SL__RECURRENT_UNIT - 1) / SL__RECURRENT_UNIT;
}

/* Bytes of a forward task's scratch memory. CPU: the state's weights, transposed or, of an LSTM,
 * packed in units, 64-byte aligned for vectors, of each direction. GPU: the state's products of a
 * step, and for bf16 after them the input's products of all steps or one. */
static inline size_t sl__recurrent_scratch(const struct sl__recurrent_args *a, int64_t gates,
                                           bool half) {
  int64_t step = sl__recurrent_state_floats(a, gates), all = sl__recurrent_input_floats(a, gates);
  int64_t unit = SL__RECURRENT_UNIT * (int64_t)a->hidden * gates;
  int64_t cpu = sl__directions(a) * sl__recurrent_units(a) * unit + 16;
  int64_t gpu = step + (!half ? 0 : all ? all : step);
  return sizeof(float) * (size_t)(cpu > gpu ? cpu : gpu);
}

#ifndef __cplusplus /* for the CPU kernels */
/* Writes `from` [rows, columns] transposed to `to` [columns, rows]. A product of few rows is twice
 * as fast with a matrix that need not be transposed, so a task transposes the state's weights once.
 */
void sl__transpose(const float *from, int64_t rows, int64_t columns, float *to);
#endif

#endif
