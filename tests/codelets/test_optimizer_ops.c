/* The optimizers' steps against transcriptions, in double precision, of the formulas that PyTorch
 * documents for torch.optim.SGD, Adam and AdamW, over several steps, with several gradients and
 * with clipping. */
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

static void run(bool adam, int count, struct sl__update u) {
  static struct reference r;
  struct sl__tensor *grads[70], *norm = u.max_norm > 0 ? tensor(SL_SHAPE(1), NULL) : NULL;
  memset(&r, 0, sizeof r);
  double *start = random_values(N, 5);
  memcpy(r.p, start, sizeof r.p);
  struct sl__tensor *p = tensor(SL_SHAPE(N), start), *m = tensor(SL_SHAPE(N), NULL),
                    *v = tensor(SL_SHAPE(N), NULL);
  for (int step = 1; step <= STEPS; step++) {
    u.step = step;
    float square = (float)make_gradient(&r, grads, count, step, (double)u.max_norm);
    if (norm) OK(sl__tensor_write(norm, &square));
    if (adam)
      OK(sl__adam(context, &plain, p, m, v, count, grads, norm, &u));
    else
      OK(sl__sgd(context, &plain, p, u.momentum > 0 ? v : NULL, count, grads, norm, &u));
    (adam ? reference_adam : reference_sgd)(&r, &u);
    for (int k = 0; k < count; k++) sl__tensor_free(grads[k]);
  }
  assert_near(adam ? "adam" : "sgd", take(p), r.p, N, 60, 2);
  sl__tensor_free(m);
  sl__tensor_free(v);
  sl__tensor_free(norm);
  free(start);
}

static void sgd_matches(void **state) {
  (void)state;
  run(false, 1, (struct sl__update){.lr = 0.1f});
  run(false, 3, (struct sl__update){.lr = 0.1f, .weight_decay = 0.01f});
  run(false, 2, (struct sl__update){.lr = 0.05f, .momentum = 0.9f});
  run(false, 20,
      (struct sl__update){.lr = 0.01f, .momentum = 0.9f, .nesterov = 1, .weight_decay = 0.1f});
  run(false, 2, (struct sl__update){.lr = 0.1f, .momentum = 0.5f, .max_norm = 3});
  run(false, 1, (struct sl__update){.lr = 0.1f, .max_norm = 1e6f});
  run(false, 70, (struct sl__update){.lr = 0.01f, .momentum = 0.9f, .max_norm = 10});
}

static void adam_matches(void **state) {
  (void)state;
  struct sl__update u = {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f};
  run(true, 1, u);
  u.weight_decay = 0.1f;
  run(true, 3, u);
  u.decoupled = 1;
  run(true, 16, u);
  u.max_norm = 0.5f;
  run(true, 2, u);
}

static void arguments_are_checked(void **state) {
  (void)state;
  struct sl__update u = {.lr = 1};
  struct sl__tensor *a = tensor(SL_SHAPE(4), NULL), *b = tensor(SL_SHAPE(5), NULL);
  assert_int_equal(sl__sgd(context, &plain, a, NULL, 1, &b, NULL, &u), SL_BAD_SHAPE);
  assert_int_equal(sl__sgd(context, &plain, a, b, 1, &a, NULL, &u), SL_BAD_SHAPE);
  assert_int_equal(sl__sgd(context, &plain, a, NULL, 0, NULL, NULL, &u), SL_BAD_ARGUMENT);
  assert_int_equal(sl__adam(context, &plain, a, a, a, 1, &a, NULL, &u), SL_BAD_ARGUMENT);
  sl__tensor_free(a);
  sl__tensor_free(b);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sgd_matches), cmocka_unit_test(adam_matches),
                                     cmocka_unit_test(arguments_are_checked)};
  return cmocka_run_group_tests_name("optimizer operations", tests, open_context, close_context);
}
