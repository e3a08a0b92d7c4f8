/* Gated recurrent unit (Cho et al., arXiv 1406.1078) over a run of time steps, as torch.nn.GRU: the
 * reset gate multiplies the state's product, bias included. Organised as codelets/lstm.c. */
#include "codelets/gru.h"

#include <string.h>

#include "codelets/kernels/choice.h"
#include "codelets/codelets.h"
#include "codelets/kernels/gemm.h"
#include "codelets/kernels/recurrent_gemm.h"
#include "codelets/kernels/tiles.h"
#include "codelets/kernels/weight_gradient.h"
#include "core/base/error.h"

/* The parts of a direction's parameters, and row pitches. */
struct gru_parts {
  int direction;
  int64_t gates, width, states; /* 3H; 5H and H of each direction: a row of saved, of the state */
  const float *w_ih, *w_hh, *b_ih, *b_hh;
};

static struct gru_parts parts_of(const struct sl__recurrent_args *a, const float *param,
                                 int direction) {
  int64_t gates = 3 * (int64_t)a->hidden, ways = sl__directions(a);
  struct gru_parts p = {.direction = direction,
                        .gates = gates,
                        .width = ways * 5 * a->hidden,
                        .states = ways * a->hidden,
                        .w_ih = param + direction * sl__recurrent_params(a, 3)};
  p.w_hh = p.w_ih + gates * a->in;
  p.b_ih = p.w_hh + gates * a->hidden;
  p.b_hh = p.b_ih + gates;
  return p;
}

/* ---- CPU kernels ------------------------------------------------------------------------- */

SL__SIMD static void step_forward(const struct sl__recurrent_args *a, const struct gru_parts *p,
                                  int64_t k, float *state, float *y, float *saved) {
  int64_t hidden = a->hidden, t = sl__recurrent_step(a, p->direction, k);
  for (int64_t n = 0; n < a->rows; n++) {
    float *restrict row = saved + (n * a->steps + t) * p->width;
    float *restrict h = state + n * p->states;
#pragma GCC ivdep
    for (int64_t j = 0; j < hidden; j++) sl__gru_forward_cell(j, hidden, row, p->b_ih, p->b_hh, h);
    if (sl__has_output(a, k))
      memcpy(y + sl__recurrent_output(a, p->direction, n, k), h, (size_t)hidden * sizeof *y);
  }
}

SL__SIMD static void step_backward(const struct sl__recurrent_args *a, const struct gru_parts *p,
                                   int64_t k, const float *dy, float *dstate, float *saved) {
  int64_t hidden = a->hidden, t = sl__recurrent_step(a, p->direction, k);
  for (int64_t n = 0; n < a->rows; n++) {
    float *restrict row = saved + (n * a->steps + t) * p->width;
    float *restrict dh = dstate + n * p->states;
    const float *restrict out = dy + sl__recurrent_output(a, p->direction, n, k);
    for (int64_t j = 0; sl__has_output(a, k) && j < hidden; j++) dh[j] += out[j];
#pragma GCC ivdep
    for (int64_t j = 0; j < hidden; j++) sl__gru_backward_cell(j, hidden, row, dh);
  }
}

/* ---- the state's products of a step: that of r and z, and that of q ---- */

enum { R_AND_Z, Q, PRODUCTS };

struct state_products {
  struct sl__recurrent_gemm gemm[PRODUCTS];
  float *packed[PRODUCTS];
};

static struct state_products products_of(const struct sl__recurrent_args *a, bool backward) {
  struct state_products s = {0};
  for (int i = 0; i < PRODUCTS; i++) {
    int64_t hidden = a->hidden, gates = i == Q ? hidden : 2 * hidden;
    s.gemm[i] = (struct sl__recurrent_gemm){
        .gates = 1, .columns = backward ? hidden : gates, .length = backward ? gates : hidden};
  }
  return s;
}

/* Bytes for the packed weights; 0: they are not packed. */
static size_t packed_bytes(const struct sl__recurrent_args *a, bool backward) {
  const struct state_products s = products_of(a, backward);
  int64_t floats = 0;
  for (int i = 0; i < PRODUCTS; i++) floats += sl__recurrent_gemm_floats(&s.gemm[i]);
  return a->is_packed ? sizeof(float) * (size_t)floats : 0;
}

static struct state_products pack(const struct sl__recurrent_args *a, bool backward,
                                  const float *w_hh, float *memory) {
  struct state_products s = products_of(a, backward);
  for (int i = 0; i < PRODUCTS; i++, memory += sl__recurrent_gemm_floats(&s.gemm[0])) {
    const struct sl__recurrent_gemm *g = &s.gemm[i];
    const struct sl__work_range all = {0, sl__recurrent_gemm_units(g)};
    int64_t hidden = a->hidden;
    const float *weight = w_hh + (i == Q ? 2 * hidden * hidden : 0);
    s.packed[i] = sl__line_begin(memory);
    (backward ? sl__recurrent_gemm_pack_plain : sl__recurrent_gemm_pack)(g, weight, all,
                                                                         s.packed[i], 0);
  }
  return s;
}

static void run_product(const struct state_products *s, int i, int64_t k, int64_t rows,
                        const float *x, int64_t x_pitch, bool add, float *y, int64_t y_pitch) {
  const struct sl__work_range all = {0, sl__recurrent_gemm_units(&s->gemm[i])};
  sl__recurrent_gemm_step(&s->gemm[i], s->packed[i], all, k, rows, x, x_pitch, add, y, y_pitch, 0);
}

/* Of r and z, to what the input's product has written; and of q, beside that. */
static void forward_products(const struct sl__recurrent_args *a, const struct gru_parts *p,
                             const float *state, const float *w_hh_t, float *now) {
  int64_t hidden = a->hidden, row = a->steps * p->width;
  sl__gemm(sl__gemm_of(a->implementation), false, false, a->rows, 2 * hidden, hidden, 1, state,
           p->states, w_hh_t, p->gates, 1, now, row);
  sl__gemm(sl__gemm_of(a->implementation), false, false, a->rows, hidden, hidden, 1, state,
           p->states, w_hh_t + 2 * hidden, p->gates, 0, now + 3 * hidden, row);
}

static void backward_products(const struct sl__recurrent_args *a, const struct gru_parts *p,
                              const float *now, float *dstate) {
  int64_t hidden = a->hidden, row = a->steps * p->width;
  sl__gemm(sl__gemm_of(a->implementation), false, false, a->rows, hidden, 2 * hidden, 1, now, row,
           p->w_hh, hidden, 1, dstate, p->states);
  sl__gemm(sl__gemm_of(a->implementation), false, false, a->rows, hidden, hidden, 1,
           now + 3 * hidden, row, p->w_hh + 2 * hidden * hidden, hidden, 1, dstate, p->states);
}

/* ---- all steps ---- */

static void forward(const struct sl__recurrent_args *a, int direction, const float *x,
                    const float *param, float *state, float *y, float *saved, float *scratch) {
  struct gru_parts p = parts_of(a, param, direction);
  struct state_products products;
  int64_t hidden = a->hidden, row = a->steps * p.width;
  saved += direction * 5 * hidden;
  state += direction * hidden;
  sl__recurrent_input(a, p.gates, x, p.w_ih, saved, p.width);
  if (a->is_packed)
    products = pack(a, false, p.w_hh, scratch);
  else
    sl__transpose(p.w_hh, p.gates, hidden, scratch);
  for (int64_t k = 0; k < a->steps; k++) {
    float *now = saved + sl__recurrent_step(a, direction, k) * p.width;
    if (!a->is_packed) forward_products(a, &p, state, scratch, now);
    for (int i = 0; i < PRODUCTS && a->is_packed; i++) {
      int at = k % 2 ? PRODUCTS - 1 - i : i; /* first what the step before has had last */
      run_product(&products, at, k, a->rows, state, p.states, at == R_AND_Z,
                  now + (at == Q ? 3 * hidden : 0), row);
    }
    step_forward(a, &p, k, state, y, saved);
  }
}

static void backward_gates(const struct sl__recurrent_args *a, int direction, const float *param,
                           float *saved, const float *dy, float *dstate, float *scratch) {
  struct gru_parts p = parts_of(a, param, direction);
  struct state_products products;
  int64_t hidden = a->hidden, row = a->steps * p.width;
  saved += direction * 5 * hidden;
  dstate += direction * hidden;
  if (a->is_packed) products = pack(a, true, p.w_hh, scratch);
  for (int64_t k = a->steps - 1; k >= 0; k--) {
    float *now = saved + sl__recurrent_step(a, direction, k) * p.width;
    step_backward(a, &p, k, dy, dstate, saved);
    if (!a->is_packed) backward_products(a, &p, now, dstate);
    for (int i = 0; i < PRODUCTS && a->is_packed; i++) /* both add to dstate: in a fixed order */
      run_product(&products, i, k, a->rows, now + (i == Q ? 3 * hidden : 0), row, true, dstate,
                  p.states);
  }
}

static void backward_data(const struct sl__recurrent_args *a, int direction, const float *dgates,
                          const float *param, float *dx, bool add) {
  struct gru_parts p = parts_of(a, param, direction);
  dgates += direction * 5 * a->hidden;
  sl__recurrent_input_gradient(a, p.gates, dgates, p.width, p.w_ih, dx, add);
}

static void backward_weight(const struct sl__recurrent_args *a, int direction, const float *x,
                            const float *dgates, float *grad, bool add) {
  struct gru_parts p = parts_of(a, grad, direction);
  int64_t rows = (int64_t)a->rows * a->steps, hidden = a->hidden;
  dgates += direction * 5 * hidden;
  grad += direction * sl__recurrent_params(a, 3);
  float *w_ih = grad, *w_hh = w_ih + p.gates * a->in, *b_ih = w_hh + p.gates * hidden;
  const float *before = dgates + 4 * hidden;
  sl__gemm(sl__gemm_of(a->implementation), true, false, p.gates, a->in, rows, 1, dgates, p.width, x,
           a->in, add, w_ih, a->in);
  sl__gemm(sl__gemm_of(a->implementation), true, false, 2 * hidden, hidden, rows, 1, dgates,
           p.width, before, p.width, add, w_hh, hidden);
  sl__gemm(sl__gemm_of(a->implementation), true, false, hidden, hidden, rows, 1,
           dgates + 3 * hidden, p.width, before, p.width, add, w_hh + 2 * hidden * hidden, hidden);
  sl__bias_gradient(rows, p.gates, dgates, p.width, add, b_ih);
  sl__bias_gradient(rows, 2 * hidden, dgates, p.width, add, b_ih + p.gates);
  sl__bias_gradient(rows, hidden, dgates + 3 * hidden, p.width, add, b_ih + p.gates + 2 * hidden);
}

SL__KERNEL void sl__gru_forward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__recurrent_args *a = sl__args(cl_arg);
  for (int d = 0; d < sl__directions(a); d++)
    forward(a, d, sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
            sl__buffer(buffers, 3), sl__buffer(buffers, 4), sl__buffer(buffers, 5));
}

SL__KERNEL void sl__gru_backward_gates_cpu(void *buffers[], void *cl_arg) {
  const struct sl__recurrent_args *a = sl__args(cl_arg);
  for (int d = 0; d < sl__directions(a); d++)
    backward_gates(a, d, sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
                   sl__buffer(buffers, 3), sl__buffer(buffers, 4));
}

/* The second direction's part is added to the first one's. */
SL__KERNEL void sl__gru_backward_data_cpu(void *buffers[], void *cl_arg) {
  const struct sl__recurrent_args *a = sl__args(cl_arg);
  for (int d = 0; d < sl__directions(a); d++)
    backward_data(a, d, sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
                  d || sl__accumulate(cl_arg));
}

SL__KERNEL void sl__gru_backward_weight_cpu(void *buffers[], void *cl_arg) {
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
  return sl__recurrent_check(context, name, 3, 5, x, saved, block, time, a);
}

static double product_flops(const struct sl__recurrent_args *a, int64_t inputs) {
  return sl__recurrent_flops(a, 3, inputs);
}

enum sl_status sl__gru_forward(struct sl_context *context, const struct sl__launch *l,
                               struct sl__tensor *x, struct sl__tensor *param,
                               struct sl__tensor *state, struct sl__tensor *y,
                               struct sl__tensor *saved, int time) {
  struct sl__recurrent_args a;
  struct sl__tensor *scratch;
  enum sl_status status;
  SL__TRY(check(context, "gru_forward", x, saved, param, time, &a));
  SL__TRY(sl__recurrent_check_state("gru_forward", 1, state, y, &a));
  size_t bytes = sl__recurrent_scratch(&a, 3, x->type == SL_BF16);
  if (bytes < packed_bytes(&a, false)) bytes = packed_bytes(&a, false);
  SL__TRY(sl__scratch(context, bytes, &scratch));
  return sl__submit(context, &sl__op_gru_forward, l, 6,
                    (struct sl__tensor *[]){x, param, state, y, saved, scratch}, &a, sizeof a,
                    product_flops(&a, a.in + a.hidden), 0);
out:
  return status;
}

enum sl_status sl__gru_backward_gates(struct sl_context *context, const struct sl__launch *l,
                                      struct sl__tensor *param, struct sl__tensor *saved,
                                      struct sl__tensor *dy, struct sl__tensor *dstate,
                                      int64_t features, int time) {
  struct sl__recurrent_args a;
  struct sl__tensor *scratch,
      x = {.shape = SL_SHAPE(saved->shape.dim[0], saved->shape.dim[1], features)};
  enum sl_status status;
  SL__TRY(check(context, "gru_backward_gates", &x, saved, param, time, &a));
  SL__TRY(sl__recurrent_check_state("gru_backward_gates", 1, dstate, dy, &a));
  /* a GPU's: a step's gradients of r, z and q side by side, for one product */
  size_t bytes = sizeof(float) * 3 * (size_t)a.rows * (size_t)a.hidden;
  if (bytes < packed_bytes(&a, true)) bytes = packed_bytes(&a, true);
  SL__TRY(sl__scratch(context, bytes, &scratch));
  return sl__submit(context, &sl__op_gru_backward_gates, l, 5,
                    (struct sl__tensor *[]){param, saved, dy, dstate, scratch}, &a, sizeof a,
                    product_flops(&a, a.hidden), 0);
out:
  return status;
}

enum sl_status sl__gru_backward_data(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *dgates, struct sl__tensor *param,
                                     struct sl__tensor *dx, int time) {
  struct sl__recurrent_args a;
  enum sl_status status = check(context, "gru_backward_data", dx, dgates, param, time, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_gru_backward_data, l, 3,
                    (struct sl__tensor *[]){dgates, param, dx}, &a, sizeof a,
                    product_flops(&a, a.in), 0);
}

enum sl_status sl__gru_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                       struct sl__tensor *x, struct sl__tensor *dgates,
                                       struct sl__tensor *grad, int time) {
  struct sl__recurrent_args a;
  enum sl_status status = check(context, "gru_backward_weight", x, dgates, grad, time, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_gru_backward_weight, l, 3,
                    (struct sl__tensor *[]){x, dgates, grad}, &a, sizeof a,
                    product_flops(&a, a.in + a.hidden), 0);
}
