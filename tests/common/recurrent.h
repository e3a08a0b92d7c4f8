/* Common tests of LSTM and GRU. The including file defines CELL_NAME, OP(forward) as the
 * operation's name, TORCH(x) as that of PyTorch's numbers, and GATES, STATES, SAVED in units of H;
 * it also defines naive(), one direction forward in time. References: that loop in double
 * precision, for the other direction on a sequence that is turned round, its finite differences,
 * one run against two chunks, and numbers from PyTorch. */
#ifndef SL_TESTS_COMMON_RECURRENT_H
#define SL_TESTS_COMMON_RECURRENT_H

#include "tests/common/check.h"
#include "tests/common/every.h"
#include "codelets/kernels/recurrent.h"
#include "tests/fixtures/recurrent.h"

struct cell {
  int64_t n, t, i, h;
  const double *x, *param, *state; /* state: h, then c where there is one, a row */
  int time;                        /* set of enum sl__time */
};

static double sigmoid(double v) { return 1 / (1 + exp(-v)); }

/* y [n, t, h]; last [n, STATES h]. */
static void naive(const struct cell *l, double *y, double *last);

static int64_t ways(const struct cell *l) { return l->time & SL__TIME_BOTH ? 2 : 1; }
static int64_t params(const struct cell *l) { return ways(l) * GATES * l->h * (l->i + l->h + 2); }
static int64_t outputs(const struct cell *l) {
  return l->n * (l->time & SL__TIME_LAST ? 1 : l->t) * ways(l) * l->h;
}
static int64_t states(const struct cell *l) { return l->n * ways(l) * STATES * l->h; }

/* One direction d of the layer by naive(): the steps turned round, the parts picked and put by
 * hand.
 */
static void reference_way(const struct cell *l, int64_t d, double *y, double *last) {
  int64_t D = ways(l), S = STATES * l->h, H = l->h, T = l->t;
  bool turned = d || l->time & SL__TIME_REVERSE;
  double *x = zeros(l->n * T * l->i), *state = zeros(l->n * S), *out = zeros(l->n * T * H),
         *end = zeros(l->n * S);
  struct cell one = {l->n, T, l->i, H, x, l->param + d * params(l) / D, state, SL__TIME_FORWARD};
  for (int64_t n = 0; n < l->n; n++) {
    memcpy(state + n * S, l->state + (n * D + d) * S, (size_t)S * sizeof *state);
    for (int64_t t = 0; t < T; t++)
      memcpy(x + (n * T + (turned ? T - 1 - t : t)) * l->i, l->x + (n * T + t) * l->i,
             (size_t)l->i * sizeof *x);
  }
  naive(&one, out, end);
  for (int64_t n = 0; n < l->n; n++) {
    memcpy(last + (n * D + d) * S, end + n * S, (size_t)S * sizeof *last);
    for (int64_t t = 0; t < T && !(l->time & SL__TIME_LAST); t++)
      memcpy(y + ((n * T + (turned ? T - 1 - t : t)) * D + d) * H, out + (n * T + t) * H,
             (size_t)H * sizeof *y);
    if (l->time & SL__TIME_LAST)
      memcpy(y + (n * D + d) * H, out + (n * T + T - 1) * H, (size_t)H * sizeof *y);
  }
  double *values[] = {x, state, out, end};
  for (int i = 0; i < 4; i++) free(values[i]);
}

static void reference(const struct cell *l, double *y, double *last) {
  for (int64_t d = 0; d < ways(l); d++) reference_way(l, d, y, last);
}

enum { REVERSE = SL__TIME_REVERSE, BOTH = SL__TIME_BOTH, LAST = SL__TIME_LAST };
static const struct cell shapes[] = {{1, 1, 1, 1, 0, 0, 0, 0},
                                     {2, 3, 4, 5, 0, 0, 0, 0},
                                     {5, 1, 7, 16, 0, 0, 0, 0},
                                     {1, 9, 3, 17, 0, 0, 0, 0},
                                     {7, 6, 33, 20, 0, 0, 0, 0},
                                     {3, 12, 1, 65, 0, 0, 0, 0},
                                     {10, 8, 40, 100, 0, 0, 0, 0},
                                     {2, 3, 4, 5, 0, 0, 0, REVERSE},
                                     {7, 4, 3, 20, 0, 0, 0, REVERSE},
                                     {5, 1, 7, 16, 0, 0, 0, BOTH},
                                     {3, 5, 4, 17, 0, 0, 0, BOTH},
                                     {6, 4, 33, 20, 0, 0, 0, BOTH},
                                     {2, 4, 5, 33, 0, 0, 0, LAST},
                                     {6, 4, 5, 7, 0, 0, 0, LAST | REVERSE},
                                     {1, 6, 3, 18, 0, 0, 0, LAST | BOTH},
                                     {9, 3, 2, 6, 0, 0, 0, LAST | BOTH}};
#define SHAPES (sizeof shapes / sizeof *shapes)

struct tensors {
  struct sl__tensor *x, *param, *state, *y, *saved;
};

static struct sl_shape y_shape(const struct cell *l) {
  return l->time & LAST ? SL_SHAPE(l->n, ways(l) * l->h) : SL_SHAPE(l->n, l->t, ways(l) * l->h);
}
static struct sl_shape state_shape(const struct cell *l) {
  return SL_SHAPE(l->n, ways(l) * STATES * l->h);
}
static struct sl_shape saved_shape(const struct cell *l) {
  return SL_SHAPE(l->n, l->t, ways(l) * SAVED * l->h);
}

static struct tensors make(const struct cell *l) {
  return (struct tensors){tensor(SL_SHAPE(l->n, l->t, l->i), l->x),
                          tensor(SL_SHAPE(params(l)), l->param), tensor(state_shape(l), l->state),
                          tensor(y_shape(l), NULL), tensor(saved_shape(l), NULL)};
}

/* Weights that exceed a core's caches; not for each implementation, which would take long. */
static const struct cell wide = {5, 2, 3, GATES == 4 ? 520 : 600, 0, 0, 0, BOTH};
/* The maximum of rows of the state's own product, and one row more; long sums of the inputs. */
static const struct cell many[] = {{32, 8, 210, 19, 0, 0, 0, BOTH}, {33, 8, 210, 19, 0, 0, 0, 0}};

static void check_one_forward(struct cell l) {
  l.x = random_values(l.n * l.t * l.i, 1);
  l.param = random_values(params(&l), 2);
  l.state = random_values(states(&l), 3);
  double *y = zeros(outputs(&l)), *last = zeros(states(&l));
  reference(&l, y, last);
  struct tensors v = make(&l);
  OK(OP(forward)(context, &plain, v.x, v.param, v.state, v.y, v.saved, l.time));
  /* an error of one step passes through all later ones */
  double terms = (double)((l.i + l.h) * l.t);
  assert_near("y", take(v.y), y, outputs(&l), terms, 4);
  assert_near("state", take(v.state), last, states(&l), terms, 4);
  sl__tensor_free(v.x);
  sl__tensor_free(v.param);
  sl__tensor_free(v.saved);
  free((double *)l.x);
  free((double *)l.param);
  free((double *)l.state);
  free(y);
  free(last);
}

static void check_forward(void) {
  for (size_t s = 0; s < SHAPES; s++) check_one_forward(shapes[s]);
}

/* ---- gradients ---- */

enum { BY_X, BY_PARAM, BY_STATE };

struct question {
  struct cell l;
  int by;
  const double *dy, *dstate, *dx,
      *grad; /* the last two: the old values that results are added to */
};

static double scalar(const double *values, void *data) {
  struct question *q = data;
  struct cell l = q->l;
  *(q->by == BY_X ? &l.x : q->by == BY_PARAM ? &l.param : &l.state) = values;
  double *y = zeros(outputs(&l)), *last = zeros(states(&l));
  reference(&l, y, last);
  double sum = dot(y, q->dy, outputs(&l)) + dot(last, q->dstate, states(&l));
  free(y);
  free(last);
  return sum;
}

/* Values for a shape; parameters up to 1/sqrt(H), so that errors do not grow from step to step;
 * rounded: to values that bf16 holds. */
static struct question ask(const struct cell *shape, bool small, bool rounded) {
  struct cell l = *shape;
  int64_t nx = l.n * l.t * l.i, ny = outputs(&l), ns = states(&l), np = params(&l);
  double *x = random_values(nx, 1), *param = random_values(np, 2), *dy = random_values(ny, 4),
         *dx = random_values(nx, 8);
  for (int64_t i = 0; small && i < np; i++) param[i] /= sqrt((double)l.h);
  if (rounded) {
    round_bf16(x, nx);
    round_bf16(param, np);
    round_bf16(dy, ny);
    round_bf16(dx, nx);
  }
  l.x = x;
  l.param = param;
  l.state = random_values(ns, 3);
  return (struct question){
      .l = l, .dy = dy, .dstate = random_values(ns, 5), .dx = dx, .grad = random_values(np, 9)};
}

static void forget(struct question *q) {
  const double *values[] = {q->l.x, q->l.param, q->l.state, q->dy, q->dstate, q->dx, q->grad};
  for (int i = 0; i < 7; i++) free((double *)values[i]);
}

/* Runs all four tasks on tensors that `of` makes (state, its gradient and the parameters' are
 * floats in any case). */
struct outcome {
  double *y, *state, *dx, *grad, *dstate;
};

typedef struct sl__tensor *maker(struct sl_shape shape, const double *values);

static struct outcome run(const struct question *q, maker *of, const struct sl__launch *launch) {
  const struct cell *l = &q->l;
  struct sl_shape xs = SL_SHAPE(l->n, l->t, l->i), ys = y_shape(l), ss = state_shape(l),
                  ps = SL_SHAPE(params(l));
  struct sl__tensor *x = of(xs, l->x), *param = of(ps, l->param), *state = tensor(ss, l->state),
                    *y = of(ys, NULL), *saved = of(saved_shape(l), NULL), *dy = of(ys, q->dy),
                    *dstate = tensor(ss, q->dstate), *dx = of(xs, q->dx),
                    *grad = tensor(ps, q->grad);
  OK(OP(forward)(context, launch, x, param, state, y, saved, l->time));
  OK(OP(backward_gates)(context, launch, param, saved, dy, dstate, l->i, l->time));
  OK(OP(backward_data)(context, launch, saved, param, dx, l->time));
  OK(OP(backward_weight)(context, launch, x, saved, grad, l->time));
  struct sl__tensor *rest[] = {x, param, saved, dy};
  for (int i = 0; i < 4; i++) sl__tensor_free(rest[i]);
  return (struct outcome){take(y), take(state), take(dx), take(grad), take(dstate)};
}

/* By x, the parameters and the state. They are the same for each implementation, and take much of
 * the test's time. */
struct slopes {
  bool known;
  double by[3][DIRECTIONS];
};

static const struct slopes *slopes_of(struct question *q, size_t shape) {
  static struct slopes all[SHAPES + 1];
  struct slopes *s = &all[shape];
  const struct cell *l = &q->l;
  const double *values[] = {l->x, l->param, l->state};
  const int64_t counts[] = {l->n * l->t * l->i, params(l), states(l)};
  for (q->by = BY_X; q->by <= BY_STATE && !s->known; q->by++)
    find_slopes(scalar, q, values[q->by], counts[q->by], s->by[q->by]);
  s->known = true;
  return s;
}

static void check_one_backward(struct question *q, const struct slopes *slopes, bool add) {
  const struct cell *l = &q->l;
  int64_t nx = l->n * l->t * l->i;
  struct outcome o = run(q, tensor, add ? &adding : &plain);
  for (int64_t i = 0; add && i < nx; i++) o.dx[i] -= q->dx[i];
  for (int64_t i = 0; add && i < params(l); i++) o.grad[i] -= q->grad[i];
  assert_found_slopes("dx", slopes->by[BY_X], o.dx, nx);
  assert_found_slopes("grad", slopes->by[BY_PARAM], o.grad, params(l));
  assert_found_slopes("dstate", slopes->by[BY_STATE], o.dstate, states(l));
  /* the two biases of LSTM's gates, of GRU's r and z: to the bit */
  for (int64_t d = 0; !add && d < ways(l); d++) {
    const double *bias = o.grad + (d + 1) * params(l) / ways(l) - 2 * GATES * l->h;
    assert_memory_equal(bias, bias + GATES * l->h,
                        (size_t)((GATES == 4 ? 4 : 2) * l->h) * sizeof *bias);
  }
  double *values[] = {o.y, o.state, o.dx, o.grad, o.dstate};
  for (int i = 0; i < 5; i++) free(values[i]);
}

static void check_backward(void) {
  for (size_t s = 0; s < SHAPES; s += EVERY > 1 ? 2 : 1) {
    struct question q = ask(&shapes[s], false, false);
    const struct slopes *slopes = slopes_of(&q, s);
    check_one_backward(&q, slopes, false);
    check_one_backward(&q, slopes, true);
    forget(&q);
  }
}

static void wide_weights_pass_the_same_checks(void **state) {
  (void)state;
  sl__choice_force(context, SL__OWN);
  struct question q = ask(&wide, true, false);
  check_one_forward(wide);
  if (EVERY == 1) check_one_backward(&q, slopes_of(&q, SHAPES), false);
  forget(&q);
  sl__choice_force(context, -1);
}

static void check_many(void) {
  for (size_t s = 0; s < sizeof many / sizeof *many; s += EVERY) check_one_forward(many[s]);
}
EACH_OWN_OR_LIBRARY(many_rows_equal_the_naive_loop, check_many)

EACH_OWN_OR_LIBRARY(forward_equals_the_naive_loop, check_forward)
EACH_OWN_OR_LIBRARY(gradients_match_finite_differences, check_backward)

/* ---- lower precision: against floats, which the cases above have checked ---- */

/* The difference is at most a share of what is wanted, both by their Euclidean norm: roundings go
 * either way, and single values may be small. Both are freed. */
static void assert_share(const char *what, double *got, double *want, int64_t n, double share) {
  double error = 0, size = 0;
  for (int64_t i = 0; i < n; i++) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  if (!(sqrt(error) <= share * sqrt(size) + 1e-6))
    fail_msg("%s: off by %.3g of its norm, %.3g is allowed", what, sqrt(error / size), share);
  free(got);
  free(want);
}

/* Shapes that a GPU computes in blocks of each size, and larger ones: on tensor cores, a block
 * takes 16, 32 or 64 rows of as few units as let it work on all multiprocessors. A CPU, which has
 * no such blocks, computes the first one. */
static const struct cell blocks[] = {{70, 2, 3, 130, 0, 0, 0, 0},
                                     {150, 3, 4, 65, 0, 0, 0, BOTH},
                                     {250, 2, 4, 65, 0, 0, 0, REVERSE},
                                     {470, 2, 3, 66, 0, 0, 0, LAST},
                                     {920, 2, 1, 65, 0, 0, 0, 0}};
#define BLOCKS (sizeof blocks / sizeof *blocks)

static void assert_outcome(const struct cell *l, struct outcome got, struct outcome want,
                           double share) {
  assert_share("y", got.y, want.y, outputs(l), share);
  assert_share("state", got.state, want.state, states(l), share);
  assert_share("dx", got.dx, want.dx, l->n * l->t * l->i, share);
  assert_share("grad", got.grad, want.grad, params(l), share);
  assert_share("dstate", got.dstate, want.dstate, states(l), share);
}

static void check_coarse(maker *of, const struct sl__launch *launch, double share) {
  struct sl__launch exact = *launch;
  size_t count = SHAPES + (getenv("SL_TEST_DEVICE") ? BLOCKS : 1);
  exact.tf32 = false;
  /* not the first shape: one value may be the small rest of terms that cancel */
  for (size_t s = 1; s < count; s += EVERY > 1 ? 3 : 1) {
    struct question q = ask(s < SHAPES ? &shapes[s] : &blocks[s - SHAPES], true, of == bf16_tensor);
    assert_outcome(&q.l, run(&q, of, launch), run(&q, tensor, &exact), share);
    forget(&q);
  }
}

/* bf16 rounds by 2^-9 at most. A gradient passes through about four such values, h or a gate, and a
 * few steps; each step forgets a part. */
static void bf16_is_near_floats(void **state) {
  (void)state;
  check_coarse(bf16_tensor, &plain, 4 * 0x1p-9);
  check_coarse(bf16_tensor, &adding, 4 * 0x1p-9);
}

/* Factors rounded by 2^-11 at most; on a CPU they are not. */
static void tf32_is_near_floats(void **state) {
  struct sl__launch launch = plain;
  (void)state;
  launch.tf32 = true;
  check_coarse(tensor, &launch, 4 * 0x1p-11);
}

/* ---- chunks ---- */

/* Rows n, steps from..from+steps of [N, T, f]. */
static struct sl__tensor *steps_of(maker *of, const double *v, int64_t n, int64_t t, int64_t f,
                                   int64_t from, int64_t steps) {
  double *part = zeros(n * steps * f);
  for (int64_t r = 0; r < n; r++)
    memcpy(part + r * steps * f, v + (r * t + from) * f, (size_t)(steps * f) * sizeof *part);
  struct sl__tensor *result = of(SL_SHAPE(n, steps, f), part);
  free(part);
  return result;
}

/* The parts of y and dx of two chunks, put together; both are taken. */
static double *joined(struct sl__tensor *parts[2], int64_t n, int64_t t, int64_t f, int64_t cut) {
  double *result = zeros(n * t * f);
  for (int k = 0; k < 2; k++) {
    int64_t from = k ? cut : 0, steps = k ? t - cut : cut;
    double *part = take(parts[k]);
    for (int64_t r = 0; r < n; r++)
      memcpy(result + (r * t + from) * f, part + r * steps * f, (size_t)(steps * f) * sizeof *part);
    free(part);
  }
  return result;
}

/* As run(), of a layer that goes forward in time, in two chunks. */
static struct outcome run_chunks(const struct question *q, int64_t cut, maker *of,
                                 const struct sl__launch *launch) {
  const struct cell *l = &q->l;
  struct sl__launch more = *launch;
  struct sl__tensor *p = of(SL_SHAPE(params(l)), l->param), *h = tensor(state_shape(l), l->state),
                    *dh = tensor(state_shape(l), q->dstate),
                    *grad = tensor(SL_SHAPE(params(l)), NULL), *xs[2], *ys[2], *saved[2], *dys[2],
                    *dxs[2];
  more.accumulate = true;
  for (int k = 0; k < 2; k++) {
    int64_t from = k ? cut : 0, steps = k ? l->t - cut : cut;
    xs[k] = steps_of(of, l->x, l->n, l->t, l->i, from, steps);
    dys[k] = steps_of(of, q->dy, l->n, l->t, l->h, from, steps);
    ys[k] = of(SL_SHAPE(l->n, steps, l->h), NULL);
    dxs[k] = of(SL_SHAPE(l->n, steps, l->i), NULL);
    saved[k] = of(SL_SHAPE(l->n, steps, SAVED * l->h), NULL);
    OK(OP(forward)(context, launch, xs[k], p, h, ys[k], saved[k], 0));
  }
  for (int k = 1; k >= 0; k--) {
    OK(OP(backward_gates)(context, launch, p, saved[k], dys[k], dh, l->i, 0));
    OK(OP(backward_data)(context, launch, saved[k], p, dxs[k], 0));
    OK(OP(backward_weight)(context, k ? launch : &more, xs[k], saved[k], grad, 0));
  }
  struct sl__tensor *rest[] = {p, xs[0], xs[1], saved[0], saved[1], dys[0], dys[1]};
  for (int i = 0; i < 7; i++) sl__tensor_free(rest[i]);
  return (struct outcome){joined(ys, l->n, l->t, l->h, cut), take(h),
                          joined(dxs, l->n, l->t, l->i, cut), take(grad), take(dh)};
}

/* The state carries everything: two chunks equal one run, in both directions. */
static void chunks_are_one_run(void **state) {
  (void)state;
  const struct cell shape = {3, 7, 5, 19, NULL, NULL, NULL, 0};
  struct question q = ask(&shape, false, false);
  struct outcome o = run_chunks(&q, 3, tensor, &plain);
  q.by = BY_PARAM;
  assert_slope("grad", scalar, &q, q.l.param, o.grad, params(&q.l));
  q.by = BY_STATE;
  assert_slope("dstate", scalar, &q, q.l.state, o.dstate, states(&q.l));
  double *values[] = {o.y, o.state, o.dx, o.grad, o.dstate};
  for (int i = 0; i < 5; i++) free(values[i]);
  forget(&q);
}

/* Where factors are rounded, too: h is rounded to the same values at a cut. */
static void coarse_chunks_are_one_run(void **state) {
  (void)state;
  const struct cell shape = {21, 7, 5, 19, NULL, NULL, NULL, 0};
  struct sl__launch tf32 = plain;
  tf32.tf32 = true;
  for (int half = 0; half < 2; half++) {
    maker *of = half ? bf16_tensor : tensor;
    const struct sl__launch *launch = half ? &plain : &tf32;
    struct question q = ask(&shape, true, half);
    assert_outcome(&q.l, run_chunks(&q, 4, of, launch), run(&q, of, launch), 0x1p-11);
    forget(&q);
  }
}

/* Numbers that PyTorch computed (tests/reference/recurrent.py). */
static void check_pytorch(void) {
  struct cell l = {TORCH_N, TORCH_T, TORCH_I, TORCH_H, TORCH(x), TORCH(param), TORCH(begin)};
  int64_t nx = l.n * l.t * l.i, ny = l.n * l.t * l.h, ns = l.n * STATES * TORCH_H;
  double half[64];
  for (int i = 0; i < 64; i++) half[i] = 0.5;
  struct tensors v = make(&l);
  struct sl__tensor *dy = tensor(SL_SHAPE(l.n, l.t, l.h), TORCH(weight)),
                    *dstate = tensor(SL_SHAPE(l.n, STATES * TORCH_H), half),
                    *dx = tensor(SL_SHAPE(l.n, l.t, l.i), NULL),
                    *grad = tensor(SL_SHAPE(params(&l)), NULL);
  OK(OP(forward)(context, &plain, v.x, v.param, v.state, v.y, v.saved, 0));
  OK(OP(backward_gates)(context, &plain, v.param, v.saved, dy, dstate, l.i, 0));
  OK(OP(backward_data)(context, &plain, v.saved, v.param, dx, 0));
  OK(OP(backward_weight)(context, &plain, v.x, v.saved, grad, 0));
  assert_near("y", take(v.y), TORCH(y), ny, 20, 1);
  assert_near("state", take(v.state), TORCH(end), ns, 20, 1);
  assert_near("dx", take(dx), TORCH(dx), nx, 40, 2);
  assert_near("dstate", take(dstate), TORCH(dbegin), ns, 40, 2);
  assert_near("grad", take(grad), TORCH(grad), params(&l), 40, 4);
  struct sl__tensor *rest[] = {v.x, v.param, v.saved, dy};
  for (int i = 0; i < 4; i++) sl__tensor_free(rest[i]);
}

EACH_OWN_OR_LIBRARY(numbers_are_pytorchs, check_pytorch)

static void misfits_are_refused(void **state) {
  (void)state;
  struct cell l = {2, 3, 4, 5, NULL, NULL, NULL};
  struct tensors v = make(&l);
  struct sl__tensor *bad = tensor(SL_SHAPE(2, 3, 5 * SAVED + 1), NULL),
                    *flat = tensor(SL_SHAPE(2, 12), NULL);
  assert_int_equal(OP(forward)(context, &plain, v.x, v.param, v.state, v.y, bad, 0), SL_BAD_SHAPE);
  assert_int_equal(OP(forward)(context, &plain, flat, v.param, v.state, v.y, v.saved, 0),
                   SL_BAD_SHAPE);
  assert_int_equal(OP(forward)(context, &plain, v.x, v.param, flat, v.y, v.saved, 0), SL_BAD_SHAPE);
  assert_int_equal(OP(forward)(context, &plain, v.x, v.param, v.state, v.x, v.saved, 0),
                   SL_BAD_SHAPE);
  assert_int_equal(OP(backward_gates)(context, &plain, v.param, v.saved, v.y, flat, 4, 0),
                   SL_BAD_SHAPE);
  assert_int_equal(OP(backward_gates)(context, &plain, v.param, v.saved, v.y, v.state, 3, 0),
                   SL_BAD_SHAPE);
  assert_int_equal(OP(backward_data)(context, &plain, v.saved, v.param, v.y, 0), SL_BAD_SHAPE);
  assert_int_equal(OP(backward_weight)(context, &plain, v.x, v.saved, v.state, 0), SL_BAD_SHAPE);
  /* what fits one direction does not fit two, nor an output at the end alone */
  assert_int_equal(OP(forward)(context, &plain, v.x, v.param, v.state, v.y, v.saved, BOTH),
                   SL_BAD_SHAPE);
  assert_int_equal(OP(forward)(context, &plain, v.x, v.param, v.state, v.y, v.saved, LAST),
                   SL_BAD_SHAPE);
  struct sl__tensor *rest[] = {v.x, v.param, v.state, v.y, v.saved, bad, flat};
  for (int i = 0; i < 7; i++) sl__tensor_free(rest[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(forward_equals_the_naive_loop),
                                     cmocka_unit_test(gradients_match_finite_differences),
                                     cmocka_unit_test(wide_weights_pass_the_same_checks),
                                     cmocka_unit_test(many_rows_equal_the_naive_loop),
                                     cmocka_unit_test(numbers_are_pytorchs),
                                     cmocka_unit_test(bf16_is_near_floats),
                                     cmocka_unit_test(tf32_is_near_floats),
                                     cmocka_unit_test(chunks_are_one_run),
                                     cmocka_unit_test(coarse_chunks_are_one_run),
                                     cmocka_unit_test(misfits_are_refused)};
  return cmocka_run_group_tests_name(CELL_NAME, tests, open_operations, close_context);
}

#endif
