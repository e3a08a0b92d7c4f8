/* The optimizers' steps against transcriptions, in double precision, of the formulas that PyTorch
 * documents for torch.optim.SGD, Adam, AdamW, RMSprop and Adagrad, and of Lion's (arXiv
 * 2302.06675) and LAMB's (arXiv 1904.00962), over several steps, with several gradients and with
 * clipping. */
#include "tests/common/check.h"

#define N 1500 /* more than one block of the kernel, no multiple of it */
#define STEPS 5

struct reference {
  double p[N], v[N], m[N], g[N];
};

/* The sum of the step's gradients, clipped as torch.nn.utils.clip_grad_norm_ does. Returns the
 * squared norm. */
static double make_gradient(struct reference *r, struct sl__tensor **grads, int count, int step,
                            double max_norm) {
  double square = 0;
  memset(r->g, 0, sizeof r->g);
  for (int k = 0; k < count; k++) {
    double *g = random_values(N, (uint64_t)(100 * step + k));
    grads[k] = tensor(SL_SHAPE(N), g);
    for (int i = 0; i < N; i++) r->g[i] += g[i];
    free(g);
  }
  for (int i = 0; i < N; i++) square += r->g[i] * r->g[i];
  if (max_norm > 0 && sqrt(square) > max_norm)
    for (int i = 0; i < N; i++) r->g[i] *= max_norm / sqrt(square);
  return square;
}

static void reference_sgd(struct reference *r, const struct sl__update *u) {
  for (int i = 0; i < N; i++) {
    double g = r->g[i] + (double)u->weight_decay * r->p[i];
    r->v[i] = (double)u->momentum * r->v[i] + g;
    r->p[i] -= (double)u->lr * (u->nesterov ? g + (double)u->momentum * r->v[i] : r->v[i]);
  }
}

static void reference_adam(struct reference *r, const struct sl__update *u) {
  double lr = (double)u->lr, b1 = (double)u->beta1, b2 = (double)u->beta2,
         decay = (double)u->weight_decay;
  for (int i = 0; i < N; i++) {
    double g = r->g[i];
    if (u->decoupled)
      r->p[i] -= lr * decay * r->p[i];
    else
      g += decay * r->p[i];
    r->m[i] = b1 * r->m[i] + (1 - b1) * g;
    r->v[i] = b2 * r->v[i] + (1 - b2) * g * g;
    double m = r->m[i] / (1 - pow(b1, (double)u->step)),
           v = r->v[i] / (1 - pow(b2, (double)u->step));
    r->p[i] -= lr * m / (sqrt(v) + (double)u->epsilon);
  }
}

static void reference_rmsprop(struct reference *r, const struct sl__update *u) {
  double b2 = (double)u->beta2;
  for (int i = 0; i < N; i++) {
    double g = r->g[i] + (double)u->weight_decay * r->p[i];
    r->v[i] = b2 * r->v[i] + (1 - b2) * g * g;
    r->p[i] -= (double)u->lr * g / (sqrt(r->v[i]) + (double)u->epsilon);
  }
}

static void reference_adagrad(struct reference *r, const struct sl__update *u) {
  for (int i = 0; i < N; i++) {
    double g = r->g[i] + (double)u->weight_decay * r->p[i];
    r->v[i] += g * g;
    r->p[i] -= (double)u->lr * g / (sqrt(r->v[i]) + (double)u->epsilon);
  }
}

static void reference_lion(struct reference *r, const struct sl__update *u) {
  double lr = (double)u->lr, b1 = (double)u->beta1, b2 = (double)u->beta2;
  for (int i = 0; i < N; i++) {
    double c = b1 * r->m[i] + (1 - b1) * r->g[i];
    r->p[i] -= lr * ((c > 0) - (c < 0) + (double)u->weight_decay * r->p[i]);
    r->m[i] = b2 * r->m[i] + (1 - b2) * r->g[i];
  }
}

typedef void reference_step(struct reference *r, const struct sl__update *u);

static void run_once(struct sl__op *op, reference_step *reference, int count, struct sl__update u) {
  static struct reference r;
  struct sl__tensor *grads[70], *norm = u.max_norm > 0 ? tensor(SL_SHAPE(1), NULL) : NULL;
  memset(&r, 0, sizeof r);
  double *start = random_values(N, 5);
  memcpy(r.p, start, sizeof r.p);
  struct sl__tensor *p = tensor(SL_SHAPE(N), start), *state[2];
  for (int k = 0; k < 2; k++) state[k] = tensor(SL_SHAPE(N), NULL);
  for (int step = 1; step <= STEPS; step++) {
    u.step = step;
    float square = (float)make_gradient(&r, grads, count, step, (double)u.max_norm);
    if (norm) OK(sl__tensor_write(norm, &square));
    OK(sl__update(context, op, &plain, p, state, count, grads, norm, &u));
    reference(&r, &u);
    for (int k = 0; k < count; k++) sl__tensor_free(grads[k]);
  }
  assert_near(op->codelet.name, take(p), r.p, N, 60, 2);
  for (int k = 0; k < 2; k++) sl__tensor_free(state[k]);
  sl__tensor_free(norm);
  free(start);
}

/* By both kinds of stores. */
static void run(struct sl__op *op, reference_step *reference, int count, struct sl__update u) {
  run_once(op, reference, count, u);
  u.streams = true;
  run_once(op, reference, count, u);
}

static void sgd_matches(void **state) {
  (void)state;
  struct sl__op *plain_sgd = &sl__op_sgd, *momentum = &sl__op_sgd_momentum;
  run(plain_sgd, reference_sgd, 1, (struct sl__update){.lr = 0.1f});
  run(plain_sgd, reference_sgd, 3, (struct sl__update){.lr = 0.1f, .weight_decay = 0.01f});
  run(plain_sgd, reference_sgd, 1, (struct sl__update){.lr = 0.1f, .max_norm = 1e6f});
  run(momentum, reference_sgd, 2, (struct sl__update){.lr = 0.05f, .momentum = 0.9f});
  run(momentum, reference_sgd, 20,
      (struct sl__update){.lr = 0.01f, .momentum = 0.9f, .nesterov = 1, .weight_decay = 0.1f});
  run(momentum, reference_sgd, 2, (struct sl__update){.lr = 0.1f, .momentum = 0.5f, .max_norm = 3});
  run(momentum, reference_sgd, 70,
      (struct sl__update){.lr = 0.01f, .momentum = 0.9f, .max_norm = 10});
}

static void adam_matches(void **state) {
  (void)state;
  struct sl__update u = {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f};
  run(&sl__op_adam, reference_adam, 1, u);
  u.weight_decay = 0.1f;
  run(&sl__op_adam, reference_adam, 3, u);
  u.decoupled = 1;
  run(&sl__op_adam, reference_adam, 16, u);
  u.max_norm = 0.5f;
  run(&sl__op_adam, reference_adam, 2, u);
}

static void others_match(void **state) {
  (void)state;
  struct sl__update u = {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f};
  for (int i = 0; i < 3; i++) {
    run(&sl__op_rmsprop, reference_rmsprop, 1 + i, u);
    run(&sl__op_adagrad, reference_adagrad, 1 + i, u);
    run(&sl__op_lion, reference_lion, 1 + i, u);
    u.weight_decay = 0.1f;
    if (i) u.max_norm = 0.5f;
  }
}

/* ---- LAMB ---- */

static void reference_lamb(struct reference *r, const struct sl__update *u,
                           const struct sl__update_parts *parts) {
  double b1 = (double)u->beta1, b2 = (double)u->beta2, step = (double)u->step;
  static double d[N];
  for (int k = 0, at = 0; k < parts->count; at = (int)parts->end[k++]) {
    double pp = 0, dd = 0;
    for (int i = at; i < parts->end[k]; i++) {
      r->m[i] = b1 * r->m[i] + (1 - b1) * r->g[i];
      r->v[i] = b2 * r->v[i] + (1 - b2) * r->g[i] * r->g[i];
      d[i] = r->m[i] / (1 - pow(b1, step)) /
                 (sqrt(r->v[i] / (1 - pow(b2, step))) + (double)u->epsilon) +
             (parts->decays[k] ? (double)u->weight_decay : 0) * r->p[i];
      pp += r->p[i] * r->p[i];
      dd += d[i] * d[i];
    }
    double trust = pp > 0 && dd > 0 ? sqrt(pp / dd) : 1;
    for (int i = at; i < parts->end[k]; i++) r->p[i] -= (double)u->lr * trust * d[i];
  }
}

/* The third parameter begins at 0, the last one stays there: its gradient is 0. */
static void run_lamb(int count, struct sl__update u) {
  const struct sl__update_parts parts = {4, {1029, 1029, 1480, N}, {true, true, false, true}};
  static struct reference r;
  struct sl__tensor *grads[70], *norm = u.max_norm > 0 ? tensor(SL_SHAPE(1), NULL) : NULL;
  struct sl__tensor *squares = tensor(SL_SHAPE(8), NULL), *state[2];
  memset(&r, 0, sizeof r);
  double *start = random_values(N, 5);
  for (int i = 1029; i < N; i++) start[i] = 0;
  memcpy(r.p, start, sizeof r.p);
  struct sl__tensor *p = tensor(SL_SHAPE(N), start);
  for (int k = 0; k < 2; k++) state[k] = tensor(SL_SHAPE(N), NULL);
  for (int step = 1; step <= STEPS; step++) {
    u.step = step;
    float square = (float)make_gradient(&r, grads, count, step, (double)u.max_norm);
    if (norm) OK(sl__tensor_write(norm, &square));
    OK(sl__lamb_moments(context, &plain, p, state, count, grads, norm, &u, &parts, squares));
    OK(sl__lamb(context, &plain, p, state, squares, &u, &parts));
    reference_lamb(&r, &u, &parts);
    for (int k = 0; k < count; k++) sl__tensor_free(grads[k]);
  }
  assert_near("lamb", take(p), r.p, N, 60, 2);
  for (int k = 0; k < 2; k++) sl__tensor_free(state[k]);
  sl__tensor_free(squares);
  sl__tensor_free(norm);
  free(start);
}

static void lamb_matches(void **state) {
  (void)state;
  struct sl__update u = {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-3f};
  run_lamb(1, u);
  u.weight_decay = 0.1f;
  run_lamb(3, u);
  u.max_norm = 0.5f;
  run_lamb(70, u);
}

/* A gradient and a parameter of 0, and a gradient that is no number. */
static void lamb_trusts_nothing_of_zero(void **state) {
  (void)state;
  const struct sl__update u = {.lr = 1, .beta1 = 0.9f, .beta2 = 0.9f, .epsilon = 1, .step = 1};
  const struct sl__update_parts parts = {3, {1, 2, 3}, {true, true, true}}, shorter = {1, {2}, {0}};
  struct sl__tensor *p = tensor(SL_SHAPE(3), (double[]){0, 2, 1}), *a[2],
                    *squares = tensor(SL_SHAPE(6), NULL),
                    *g = tensor(SL_SHAPE(3), (double[]){1, 0, NAN});
  for (int k = 0; k < 2; k++) a[k] = tensor(SL_SHAPE(3), NULL);
  OK(sl__lamb_moments(context, &plain, p, a, 1, &g, NULL, &u, &parts, squares));
  OK(sl__lamb(context, &plain, p, a, squares, &u, &parts));
  FAILS(sl__lamb(context, &plain, p, a, squares, &u, &shorter), SL_BAD_SHAPE, "two each");
  FAILS(sl__lamb_moments(context, &plain, p, a, 0, &g, NULL, &u, &parts, squares), SL_BAD_ARGUMENT,
        "no gradient");
  double *got = take(p);
  assert_true(got[0] == -0.5 && got[1] == 2 && isnan(got[2]));
  free(got);
  for (int k = 0; k < 2; k++) sl__tensor_free(a[k]);
  sl__tensor_free(squares);
  sl__tensor_free(g);
}

/* A gradient that is no number shows in the parameter. */
static void nan_is_not_lost(void **state) {
  (void)state;
  struct sl__op *all[] = {&sl__op_rmsprop, &sl__op_adagrad, &sl__op_lion};
  const struct sl__update u = {.lr = 1, .beta1 = 0.9f, .beta2 = 0.9f, .epsilon = 1, .step = 1};
  for (int k = 0; k < 3; k++) {
    struct sl__tensor *p = tensor(SL_SHAPE(3), NULL), *a = tensor(SL_SHAPE(3), NULL),
                      *g = tensor(SL_SHAPE(3), (double[]){0, NAN, 1});
    OK(sl__update(context, all[k], &plain, p, &a, 1, &g, NULL, &u));
    double *got = take(p);
    assert_true(got[0] == 0 && isnan(got[1]) && got[2] < 0);
    free(got);
    sl__tensor_free(a);
    sl__tensor_free(g);
  }
}

/* The velocity of a weight without a gradient ends at zero, not at the smallest number, with which
 * each step would take ten times as long. */
static void velocities_end_at_zero(void **state) {
  (void)state;
  struct sl__launch on_cpu = plain; /* a GPU is as fast with such numbers, and keeps them */
  if (on_cpu.place.where == STARPU_CUDA) skip();
  on_cpu.place.where = STARPU_CPU;
  const struct sl__update u = {.lr = 0.1f, .momentum = 0.9f, .step = 1};
  struct sl__tensor *p = tensor(SL_SHAPE(2), NULL), *g = tensor(SL_SHAPE(2), NULL),
                    *v = tensor(SL_SHAPE(2), (double[]){1.2e-38, 1e-44});
  for (int step = 0; step < 3; step++)
    OK(sl__update(context, &sl__op_sgd_momentum, &on_cpu, p, &v, 1, &g, NULL, &u));
  double *got = take(v);
  assert_true(got[0] == 0 && got[1] == 0);
  free(got);
  sl__tensor_free(p), sl__tensor_free(g);
}

/* A run of elements has the bits of an update of all; the others stay. */
static void runs_are_updated(void **state) {
  (void)state;
  const int64_t cut = 1100;
  struct sl__update u = {.lr = 0.1f, .weight_decay = 0.1f, .momentum = 0.9f, .step = 1};
  double *start = random_values(N, 5), *gradient = random_values(N, 6);
  struct sl__tensor *g = tensor(SL_SHAPE(N), gradient), *p[3], *v[3];
  for (int i = 0; i < 3; i++) {
    p[i] = tensor(SL_SHAPE(N), start), v[i] = tensor(SL_SHAPE(N), NULL);
    u.first = i == 2 ? cut : 0;
    u.count = i == 1 ? cut : i == 2 ? N - cut : 0;
    for (u.step = 1; u.step < 4; u.step++)
      OK(sl__update(context, &sl__op_sgd_momentum, &plain, p[i], &v[i], 1, &g, NULL, &u));
    sl__tensor_free(v[i]);
  }
  double *whole = take(p[0]), *front = take(p[1]), *back = take(p[2]);
  for (int i = 0; i < N; i++) {
    assert_true(front[i] == (i < cut ? whole[i] : start[i]));
    assert_true(back[i] == (i < cut ? start[i] : whole[i]));
  }
  free(whole), free(front), free(back), free(start), free(gradient);
  sl__tensor_free(g);
}

static enum sl_status try_update(struct sl__op *op, struct sl__tensor *param,
                                 struct sl__tensor *state, int count, struct sl__tensor *gradient,
                                 int64_t step) {
  const struct sl__update u = {.lr = 1, .step = step};
  return sl__update(context, op, &plain, param, (struct sl__tensor *[]){state, state}, count,
                    &gradient, NULL, &u);
}

static void arguments_are_checked(void **state) {
  (void)state;
  struct sl__tensor *a = tensor(SL_SHAPE(4), NULL), *b = tensor(SL_SHAPE(5), NULL);
  assert_int_equal(try_update(&sl__op_sgd, a, NULL, 1, b, 1), SL_BAD_SHAPE);
  assert_int_equal(try_update(&sl__op_sgd_momentum, a, b, 1, a, 1), SL_BAD_SHAPE);
  assert_int_equal(try_update(&sl__op_sgd, a, NULL, 0, NULL, 1), SL_BAD_ARGUMENT);
  assert_int_equal(try_update(&sl__op_adam, a, a, 1, a, 0), SL_BAD_ARGUMENT);
  sl__tensor_free(a);
  sl__tensor_free(b);
}

/* Every row of the table keeps the number of states that its access modes say. */
static void states_are_counted(void **state) {
  (void)state;
#define SL__OP(name, modes, where)
#define SL__UPDATE(name, states, modes)                                                            \
  assert_int_equal(sl__update_states(&sl__op_##name), states);                                     \
  assert_true(sl__op_##name.updates);
#include "codelets/ops.def"
#undef SL__OP
  assert_false(sl__op_reduce.updates);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sgd_matches),
                                     cmocka_unit_test(adam_matches),
                                     cmocka_unit_test(others_match),
                                     cmocka_unit_test(nan_is_not_lost),
                                     cmocka_unit_test(lamb_matches),
                                     cmocka_unit_test(lamb_trusts_nothing_of_zero),
                                     cmocka_unit_test(velocities_end_at_zero),
                                     cmocka_unit_test(runs_are_updated),
                                     cmocka_unit_test(arguments_are_checked),
                                     cmocka_unit_test(states_are_counted)};
  return cmocka_run_group_tests_name("optimizer operations", tests, open_operations, close_context);
}
