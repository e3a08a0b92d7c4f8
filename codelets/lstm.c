/* Long short-term memory (Hochreiter, Schmidhuber 1997; forget gates: Gers et al. 2000) over a run
 * of time steps, PyTorch's gates and layouts. The input's products for all steps are one matrix
 * product, and so are the weights' gradients; only the state's products go step by step. */
#include "codelets/lstm.h"

#include <string.h>

#include "codelets/kernels/choice.h"
#include "codelets/codelets.h"
#include "codelets/kernels/skinny_gemm.h"
#include "codelets/kernels/gemm.h"
#include "codelets/kernels/recurrent_gemm.h"
#include "codelets/kernels/tiles.h"
#include "codelets/kernels/weight_gradient.h"
#include "core/base/error.h"

/* The parts of a direction's parameters, and row pitches. */
struct lstm_parts {
  int direction;
  int64_t gates, width, states; /* 4H; 6H and 2H of each direction: a row of saved, of the state */
  const float *w_ih, *w_hh, *b_ih, *b_hh;
};

static struct lstm_parts parts_of(const struct sl__recurrent_args *a, const float *param,
                                  int direction) {
  int64_t gates = 4 * (int64_t)a->hidden, ways = sl__directions(a);
  struct lstm_parts p = {.direction = direction,
                         .gates = gates,
                         .width = ways * 6 * a->hidden,
                         .states = ways * 2 * a->hidden,
                         .w_ih = param + direction * sl__recurrent_params(a, 4)};
  p.w_hh = p.w_ih + gates * a->in;
  p.b_ih = p.w_hh + gates * a->hidden;
  p.b_hh = p.b_ih + gates;
  return p;
}

/* ---- CPU kernels ------------------------------------------------------------------------- */

SL__SIMD static void step_forward(const struct sl__recurrent_args *a, const struct lstm_parts *p,
                                  int64_t k, float *state, float *y, float *saved) {
  int64_t hidden = a->hidden, t = sl__recurrent_step(a, p->direction, k);
  for (int64_t n = 0; n < a->rows; n++) {
    float *restrict row = saved + (n * a->steps + t) * p->width;
    float *restrict h = state + n * p->states;
#pragma GCC ivdep
    for (int64_t j = 0; j < hidden; j++)
      sl__lstm_forward_cell(j, hidden, row, p->b_ih, p->b_hh, h, h + hidden);
    if (sl__has_output(a, k))
      memcpy(y + sl__recurrent_output(a, p->direction, n, k), h, (size_t)hidden * sizeof *y);
  }
}

SL__SIMD static void step_backward(const struct sl__recurrent_args *a, const struct lstm_parts *p,
                                   int64_t k, const float *dy, float *dstate, float *saved) {
  int64_t hidden = a->hidden, t = sl__recurrent_step(a, p->direction, k);
  for (int64_t n = 0; n < a->rows; n++) {
    float *restrict row = saved + (n * a->steps + t) * p->width;
    float *restrict dh = dstate + n * p->states;
    const float *restrict out = dy + sl__recurrent_output(a, p->direction, n, k);
    for (int64_t j = 0; sl__has_output(a, k) && j < hidden; j++) dh[j] += out[j];
#pragma GCC ivdep
    for (int64_t j = 0; j < hidden; j++) sl__lstm_backward_cell(j, hidden, row, dh, dh + hidden);
  }
}

/* ---- in units of hidden values, which cores divide among themselves if rows are few ---- */

/* Measured: for more rows, or more input rows together, the way for any number of rows is faster on
 * one core; a single step does not repay packing the state's weights. */
enum { FEW_ROWS = 4, FEW_STEPS = 2, FEW_INPUTS = 256, UNIT = SL__RECURRENT_UNIT };

static bool is_few(const struct sl__recurrent_args *a) {
  return a->rows <= FEW_ROWS && a->steps >= FEW_STEPS && a->steps <= FEW_INPUTS / a->rows;
}

/* The data of a call in one direction. */
struct run {
  const struct sl__recurrent_args *a;
  struct lstm_parts p;
  const float *x;
  float *state, *y, *saved;
  const float *packed; /* the state's weights, packed in units */
  float *own;          /* the same, if this call packs them; or NULL */
};

static int64_t units_end(const struct sl__recurrent_args *a, int64_t unit) {
  return (unit + 1) * UNIT < a->hidden ? (unit + 1) * UNIT : a->hidden;
}

_Static_assert((int)SL__SKINNY_GEMM_COLUMNS / 4 == (int)UNIT,
               "the parts that cores share are whole units");
_Static_assert((int)FEW_ROWS <= (int)SL__RECURRENT_GEMM_ROWS,
               "few rows go through the same product");

/* The state's product of a step: a unit has the four gates of its hidden values. */
static struct sl__recurrent_gemm state_product(const struct sl__recurrent_args *a) {
  return (struct sl__recurrent_gemm){.gates = 4, .columns = a->hidden, .length = a->hidden};
}

/* The same of the backward pass. */
static struct sl__recurrent_gemm gradient_product(const struct sl__recurrent_args *a) {
  return (struct sl__recurrent_gemm){
      .gates = 1, .columns = a->hidden, .length = 4 * (int64_t)a->hidden};
}

static void pack_units(const struct sl__recurrent_args *a, const float *w_hh,
                       struct sl__work_range range, float *packed) {
  const struct sl__recurrent_gemm product = state_product(a);
  sl__recurrent_gemm_pack(&product, w_hh, range, packed, 0);
}

static struct sl__work_range all_units(const struct sl__recurrent_args *a) {
  return (struct sl__work_range){0, sl__recurrent_units(a)};
}

/* The input's weights transposed, the state's packed in units, the biases. */
static int64_t packed_at(const struct sl__recurrent_args *a) {
  return sl__skinny_gemm_transposed_size(4 * (int64_t)a->hidden, a->in);
}
static int64_t biases_at(const struct sl__recurrent_args *a) {
  return packed_at(a) + sl__recurrent_units(a) * SL__SKINNY_GEMM_COLUMNS * a->hidden;
}
/* Floats of a direction; the next one's begin at a multiple of 64 bytes. */
static int64_t formed_size(const struct sl__recurrent_args *a) {
  return (biases_at(a) + 8 * (int64_t)a->hidden + 15) / 16 * 16;
}

static void make_form(const void *args, const void *from, void *to) {
  const struct sl__recurrent_args *a = args;
  float *form = to;
  for (int d = 0; d < sl__directions(a); d++, form += formed_size(a)) {
    struct lstm_parts p = parts_of(a, from, d);
    sl__skinny_gemm_transpose(p.gates, a->in, p.w_ih, form, 0);
    pack_units(a, p.w_hh, all_units(a), form + packed_at(a));
    memcpy(form + biases_at(a), p.b_ih, 2 * (size_t)p.gates * sizeof *form);
  }
}

/* The input's products of all steps, for a unit's gates; h before the first step goes to the place
 * where steps read it. */
static void few_begin(const struct run *run, struct sl__work_range range) {
  const struct sl__recurrent_args *a = run->a;
  int64_t hidden = a->hidden, width = run->p.width, first = range.first * UNIT;
  float *before = run->saved + sl__recurrent_step(a, run->p.direction, 0) * width + 5 * hidden;
  if (range.first >= range.end) return;
  sl__skinny_gemm_product((int64_t)a->rows * a->steps, run->p.gates, a->in, run->x, run->p.w_ih,
                          !run->own, NULL, run->saved, width, range.first, range.end, 0);
  if (run->own) pack_units(a, run->p.w_hh, range, run->own);
  for (int64_t n = 0; n < a->rows; n++)
    memcpy(before + n * a->steps * width + first, run->state + n * run->p.states + first,
           (size_t)(units_end(a, range.end - 1) - first) * sizeof *run->saved);
}

/* A unit's step of a row. count is a constant for all units except the last, so a value is computed
 * in the same way on any core. */
SL__INLINE void few_unit(const struct run *run, int64_t n, int64_t k, int64_t first,
                         int64_t count) {
  int64_t hidden = run->a->hidden, steps = run->a->steps;
  int64_t t = sl__recurrent_step(run->a, run->p.direction, k);
  int64_t next = sl__recurrent_step(run->a, run->p.direction, k + 1) - t;
  float *restrict row = run->saved + (n * steps + t) * run->p.width;
  float *restrict state = run->state + n * run->p.states;
  float *restrict h = k + 1 < steps ? row + next * run->p.width + 5 * hidden : state;
#pragma GCC ivdep
  for (int64_t j = 0; j < count; j++)
    sl__lstm_forward_unit(first + j, hidden, row, run->p.b_ih, run->p.b_hh, h, state + hidden);
  if (sl__has_output(run->a, k))
    memcpy(run->y + sl__recurrent_output(run->a, run->p.direction, n, k) + first, h + first,
           (size_t)count * sizeof *h);
}

SL__SIMD static void few_cells(const struct run *run, int64_t k, struct sl__work_range range) {
  int64_t whole = run->a->hidden / UNIT, rest = run->a->hidden % UNIT;
  for (int64_t n = 0; n < run->a->rows; n++) {
    for (int64_t unit = range.first; unit < range.end && unit < whole; unit++)
      few_unit(run, n, k, unit * UNIT, UNIT);
    if (range.first < range.end && range.end > whole) few_unit(run, n, k, whole * UNIT, rest);
  }
}

/* Adds the products of h, rows `pitch` apart, to the units' gates of the k-th step. */
static void add_products(const struct run *run, int64_t k, const float *h, int64_t pitch,
                         struct sl__work_range range) {
  const struct sl__recurrent_gemm product = state_product(run->a);
  int64_t width = run->p.width, t = sl__recurrent_step(run->a, run->p.direction, k);
  sl__recurrent_gemm_step(&product, run->packed, range, k, run->a->rows, h, pitch, true,
                          run->saved + t * width, run->a->steps * width, 0);
}

static void few_step(const struct run *run, int64_t k, struct sl__work_range range) {
  int64_t t = sl__recurrent_step(run->a, run->p.direction, k);
  add_products(run, k, run->saved + t * run->p.width + 5 * (int64_t)run->a->hidden,
               run->a->steps * run->p.width, range);
  few_cells(run, k, range);
}

static struct run few_of(const void *cl_arg, void *buffers[], int direction) {
  const struct sl__recurrent_args *a = sl__args(cl_arg);
  const float *param = sl__buffer(buffers, 1);
  struct run run = {a, parts_of(a, param, direction), sl__buffer(buffers, 0)};
  run.state = (float *)sl__buffer(buffers, 2) + direction * 2 * a->hidden;
  run.y = sl__buffer(buffers, 3);
  run.saved = (float *)sl__buffer(buffers, 4) + direction * 6 * a->hidden;
  if (sl__is_prepacked(cl_arg)) {
    run.p.w_ih = param + direction * formed_size(a);
    run.packed = run.p.w_ih + packed_at(a);
    run.p.b_ih = run.p.w_ih + biases_at(a);
    run.p.b_hh = run.p.b_ih + run.p.gates;
  } else {
    run.own = sl__line_begin(sl__buffer(buffers, 5));
    run.own += direction * sl__recurrent_units(a) * SL__SKINNY_GEMM_COLUMNS * a->hidden;
    run.packed = run.own;
  }
  return run;
}

/* The part of a range that is a direction's: units are those of the first, then of the second. */
static struct sl__work_range direction_part(struct sl__work_range range, int64_t units,
                                            int direction) {
  int64_t first = range.first - direction * units, end = range.end - direction * units;
  return (struct sl__work_range){first > 0 ? first : 0, end < units ? end : units};
}

/* All cores read a step's h, so it is stored with the step and never changed: a phase writes the
 * next step's. */
static void few_forward(const void *cl_arg, void *buffers[]) {
  const struct sl__recurrent_args *a = sl__args(cl_arg);
  int64_t units = sl__recurrent_units(a);
  struct sl__work_range all = sl__work_range(cl_arg, sl__directions(a) * units);
  int phase = sl__phase(cl_arg);
  for (int d = 0; d < sl__directions(a); d++) {
    struct run run = few_of(cl_arg, buffers, d);
    struct sl__work_range range = direction_part(all, units, d);
    if (phase <= 0) few_begin(&run, range);
    if (phase > 0) few_step(&run, phase - 1, range);
    for (int k = 0; phase < 0 && k < a->steps; k++) few_step(&run, k, range);
  }
}

/* ---- any number of rows ---- */

static void forward_step(const struct run *run, int64_t k, const float *w_hh_t) {
  const struct sl__recurrent_args *a = run->a;
  int64_t hidden = a->hidden, width = run->p.width, t = sl__recurrent_step(a, run->p.direction, k);
  if (run->packed)
    add_products(run, k, run->state, run->p.states, all_units(a));
  else
    sl__gemm(sl__gemm_of(a->implementation), false, false, a->rows, run->p.gates, hidden, 1,
             run->state, run->p.states, w_hh_t, run->p.gates, 1, run->saved + t * width,
             a->steps * width);
  step_forward(a, &run->p, k, run->state, run->y, run->saved);
}

/* scratch: for the state's weights, transposed or packed in units. */
static void forward(const struct sl__recurrent_args *a, int direction, const float *x,
                    const float *param, float *state, float *y, float *saved, float *scratch) {
  int64_t hidden = a->hidden;
  struct run run = {.a = a,
                    .p = parts_of(a, param, direction),
                    .state = state + direction * 2 * hidden,
                    .y = y,
                    .saved = saved + direction * 6 * hidden,
                    .packed = a->is_packed ? scratch : NULL};
  sl__recurrent_input(a, run.p.gates, x, run.p.w_ih, run.saved, run.p.width);
  if (run.packed)
    pack_units(a, run.p.w_hh, all_units(a), scratch);
  else
    sl__transpose(run.p.w_hh, run.p.gates, hidden, scratch);
  for (int64_t k = 0; k < a->steps; k++) forward_step(&run, k, scratch);
}

/* packed: memory for the state's weights, where they are packed. */
static void backward_gates(const struct sl__recurrent_args *a, int direction, const float *param,
                           float *saved, const float *dy, float *dstate, float *packed) {
  struct lstm_parts p = parts_of(a, param, direction);
  const struct sl__recurrent_gemm product = gradient_product(a);
  const struct sl__work_range all = {0, sl__recurrent_gemm_units(&product)};
  int64_t hidden = a->hidden, row = a->steps * p.width;
  saved += direction * 6 * hidden;
  dstate += direction * 2 * hidden;
  if (a->is_packed) sl__recurrent_gemm_pack_plain(&product, p.w_hh, all, packed, 0);
  for (int64_t k = a->steps - 1; k >= 0; k--) {
    const float *dgates = saved + sl__recurrent_step(a, direction, k) * p.width;
    step_backward(a, &p, k, dy, dstate, saved);
    if (a->is_packed)
      sl__recurrent_gemm_step(&product, packed, all, k, a->rows, dgates, row, false, dstate,
                              p.states, 0);
    else
      sl__gemm(sl__gemm_of(a->implementation), false, false, a->rows, hidden, p.gates, 1, dgates,
               row, p.w_hh, hidden, 0, dstate, p.states);
  }
}

static void backward_data(const struct sl__recurrent_args *a, int direction, const float *dgates,
                          const float *param, float *dx, bool add) {
  struct lstm_parts p = parts_of(a, param, direction);
  dgates += direction * 6 * a->hidden;
  sl__recurrent_input_gradient(a, p.gates, dgates, p.width, p.w_ih, dx, add);
}

static void backward_weight(const struct sl__recurrent_args *a, int direction, const float *x,
                            const float *dgates, float *grad, bool add) {
  struct lstm_parts p = parts_of(a, grad, direction);
  int64_t rows = (int64_t)a->rows * a->steps, hidden = a->hidden;
  dgates += direction * 6 * hidden;
  grad += direction * sl__recurrent_params(a, 4);
  float *w_ih = grad, *w_hh = w_ih + p.gates * a->in, *b_ih = w_hh + p.gates * hidden;
  sl__gemm(sl__gemm_of(a->implementation), true, false, p.gates, a->in, rows, 1, dgates, p.width, x,
           a->in, add, w_ih, a->in);
  sl__gemm(sl__gemm_of(a->implementation), true, false, p.gates, hidden, rows, 1, dgates, p.width,
           dgates + 5 * hidden, p.width, add, w_hh, hidden);
  sl__bias_gradient(rows, p.gates, dgates, p.width, add, b_ih);
  sl__bias_gradient(rows, p.gates, dgates, p.width, add, b_ih + p.gates);
}

SL__KERNEL void sl__lstm_forward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__recurrent_args *a = sl__args(cl_arg);
  if (a->implementation == SL__OWN) {
    few_forward(cl_arg, buffers);
    return;
  }
  for (int d = 0; d < sl__directions(a); d++)
    forward(a, d, sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
            sl__buffer(buffers, 3), sl__buffer(buffers, 4), sl__line_begin(sl__buffer(buffers, 5)));
}

SL__KERNEL void sl__lstm_backward_gates_cpu(void *buffers[], void *cl_arg) {
  const struct sl__recurrent_args *a = sl__args(cl_arg);
  for (int d = 0; d < sl__directions(a); d++)
    backward_gates(a, d, sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
                   sl__buffer(buffers, 3), sl__line_begin(sl__buffer(buffers, 4)));
}

/* The second direction's part is added to the first one's. */
SL__KERNEL void sl__lstm_backward_data_cpu(void *buffers[], void *cl_arg) {
  const struct sl__recurrent_args *a = sl__args(cl_arg);
  for (int d = 0; d < sl__directions(a); d++)
    backward_data(a, d, sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
                  d || sl__accumulate(cl_arg));
}

SL__KERNEL void sl__lstm_backward_weight_cpu(void *buffers[], void *cl_arg) {
  const struct sl__recurrent_args *a = sl__args(cl_arg);
  for (int d = 0; d < sl__directions(a); d++)
    backward_weight(a, d, sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
                    sl__accumulate(cl_arg));
}

/* ---- submission -------------------------------------------------------------------------- */

static enum sl_status check(struct sl_context *context, const char *name,
                            const struct sl__tensor *x, const struct sl__tensor *saved,
                            const struct sl__tensor *block, int time,
                            struct sl__recurrent_args *a) {
  return sl__recurrent_check(context, name, 4, 6, x, saved, block, time, a);
}

static double product_flops(const struct sl__recurrent_args *a, int64_t inputs) {
  return sl__recurrent_flops(a, 4, inputs);
}

enum sl_status sl__lstm_forward(struct sl_context *context, const struct sl__launch *l,
                                struct sl__tensor *x, struct sl__tensor *param,
                                struct sl__tensor *state, struct sl__tensor *y,
                                struct sl__tensor *saved, int time) {
  struct sl__launch own = *l;
  struct sl__recurrent_args a;
  struct sl__tensor *scratch;
  enum sl_status status;
  SL__TRY(check(context, "lstm_forward", x, saved, param, time, &a));
  SL__TRY(sl__recurrent_check_state("lstm_forward", 2, state, y, &a));
  if (is_few(&a)) {
    a.implementation = SL__OWN;
    if (x->type != SL_BF16) {
      own.cut = (struct sl__cut){.units = sl__directions(&a) * sl__recurrent_units(&a),
                                 .phases = 1 + a.steps};
      own.prepack = (struct sl__prepack){
          .make = make_form,
          .buffer = 1,
          .bytes = sl__directions(&a) * (size_t)formed_size(&a) * sizeof(float),
          .key = (uint64_t)a.in << 32 | (uint32_t)a.hidden};
    }
  }
  SL__TRY(sl__scratch(context, sl__recurrent_scratch(&a, 4, x->type == SL_BF16), &scratch));
  return sl__submit(context, &sl__op_lstm_forward, &own, 6,
                    (struct sl__tensor *[]){x, param, state, y, saved, scratch}, &a, sizeof a,
                    product_flops(&a, a.in + a.hidden), 0);
out:
  return status;
}

/* Bytes for the state's weights, packed, of one direction after the other. */
static size_t backward_scratch(const struct sl__recurrent_args *a) {
  const struct sl__recurrent_gemm product = gradient_product(a);
  return sizeof(float) * (a->is_packed ? (size_t)sl__recurrent_gemm_floats(&product) : 1);
}

enum sl_status sl__lstm_backward_gates(struct sl_context *context, const struct sl__launch *l,
                                       struct sl__tensor *param, struct sl__tensor *saved,
                                       struct sl__tensor *dy, struct sl__tensor *dstate,
                                       int64_t features, int time) {
  struct sl__recurrent_args a;
  struct sl__tensor *scratch,
      x = {.shape = SL_SHAPE(saved->shape.dim[0], saved->shape.dim[1], features)};
  enum sl_status status;
  SL__TRY(check(context, "lstm_backward_gates", &x, saved, param, time, &a));
  SL__TRY(sl__recurrent_check_state("lstm_backward_gates", 2, dstate, dy, &a));
  SL__TRY(sl__scratch(context, backward_scratch(&a), &scratch));
  return sl__submit(context, &sl__op_lstm_backward_gates, l, 5,
                    (struct sl__tensor *[]){param, saved, dy, dstate, scratch}, &a, sizeof a,
                    product_flops(&a, a.hidden), 0);
out:
  return status;
}

enum sl_status sl__lstm_backward_data(struct sl_context *context, const struct sl__launch *l,
                                      struct sl__tensor *dgates, struct sl__tensor *param,
                                      struct sl__tensor *dx, int time) {
  struct sl__recurrent_args a;
  enum sl_status status = check(context, "lstm_backward_data", dx, dgates, param, time, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_lstm_backward_data, l, 3,
                    (struct sl__tensor *[]){dgates, param, dx}, &a, sizeof a,
                    product_flops(&a, a.in), 0);
}

enum sl_status sl__lstm_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                        struct sl__tensor *x, struct sl__tensor *dgates,
                                        struct sl__tensor *grad, int time) {
  struct sl__recurrent_args a;
  enum sl_status status = check(context, "lstm_backward_weight", x, dgates, grad, time, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_lstm_backward_weight, l, 3,
                    (struct sl__tensor *[]){x, dgates, grad}, &a, sizeof a,
                    product_flops(&a, a.in + a.hidden), 0);
}
