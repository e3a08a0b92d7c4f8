/* What the recurrent layers' operations share. */
#ifndef SL_CODELETS_KERNELS_RECURRENT_H
#define SL_CODELETS_KERNELS_RECURRENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Arguments of all their operations. */
struct sl__recurrent_args {
  int32_t rows, steps, in, hidden, implementation;
};

/* Floats for the input's products [N, T, gates H] of all steps in bf16's forward task on a GPU,
 * where those products shall not be rounded; 0 where that is too much memory, and each step makes
 * its own. */
static inline int64_t sl__recurrent_input_floats(const struct sl__recurrent_args *a,
                                                 int64_t gates) {
  const int64_t most = (int64_t)64 << 20;
  int64_t step = (int64_t)a->rows * gates * a->hidden;
  return step > most / a->steps ? 0 : step * a->steps;
}

/* Floats for the state's products of one step on a GPU; what follows them begins at 256 bytes. */
static inline int64_t sl__recurrent_state_floats(const struct sl__recurrent_args *a,
                                                 int64_t gates) {
  return ((int64_t)a->rows * gates * a->hidden + 63) / 64 * 64;
}

/* What a core does of a step is some of these: so many of the hidden values, the last less. */
enum { SL__RECURRENT_UNIT = 16 };
static inline int64_t sl__recurrent_units(const struct sl__recurrent_args *a) {
  return ((int64_t)a->hidden + SL__RECURRENT_UNIT - 1) / SL__RECURRENT_UNIT;
}

/* Bytes of a forward task's scratch: on the CPU the state's weights turned round, from 64 bytes on
 * for vectors; on a GPU the state's products of a step, and for bf16 after them the input's, of all
 * steps or one. */
static inline size_t sl__recurrent_scratch(const struct sl__recurrent_args *a, int64_t gates,
                                           bool half) {
  int64_t step = sl__recurrent_state_floats(a, gates), all = sl__recurrent_input_floats(a, gates);
  int64_t cpu = sl__recurrent_units(a) * SL__RECURRENT_UNIT * a->hidden * gates + 16;
  int64_t gpu = step + (!half ? 0 : all ? all : step);
  return sizeof(float) * (size_t)(cpu > gpu ? cpu : gpu);
}

#ifndef __cplusplus /* the CPU kernels' */
/* to [columns, rows] = from [rows, columns] transposed. Few rows at a time multiply by a matrix
 * twice as fast where it need not be transposed: so a task turns the state's weights round once. */
void sl__transpose(const float *from, int64_t rows, int64_t columns, float *to);

/* sum[j] (+)= from[0][j] + from[1][j] + ..., rows `width` apart. The sum is made apart from what
 * was there, so that two biases with the same gradient stay the same to the bit. */
void sl__column_sums(const float *from, int64_t rows, int64_t width, int64_t columns, float *sum,
                     bool add);
#endif

#endif
