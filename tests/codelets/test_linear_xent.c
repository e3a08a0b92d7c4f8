/* A dense layer and its cross-entropy in chunks of rows, against double precision and finite
 * differences: own and shared weights, biases, ignored labels and labels outside, smoothing, class
 * weights, labels of more steps than the outputs, accumulation, several chunks and one, bf16. */
#include "tests/common/products.h"

struct head {
  int64_t lines, steps, columns, from, in, out;
  enum { NO_BIAS, IN_BLOCK, ALONE } bias;
  double smoothing;
  bool weighted;
  const double *x, *weight, *biases, *class_weights;
  const int32_t *labels;
  double scale;
};

static int64_t rows_of(const struct head *h) { return h->lines * h->steps; }

static int32_t label_of(const struct head *h, int64_t n) {
  return h->labels[n / h->steps * h->columns + h->from + n % h->steps];
}

static void row_logits(const struct head *h, int64_t n, double *z) {
  for (int64_t o = 0; o < h->out; o++)
    z[o] = (h->bias ? h->biases[o] : 0) + dot(h->x + n * h->in, h->weight + o * h->in, h->in);
}

/* Sum of losses, right, counted, outside. */
static void reference(const struct head *h, double stats[4]) {
  double *z = zeros(h->out);
  memset(stats, 0, 4 * sizeof *stats);
  for (int64_t n = 0; n < rows_of(h); n++) {
    int32_t label = label_of(h, n);
    if (label < 0 || label >= h->out) {
      stats[3] += label != SL_IGNORE;
      continue;
    }
    row_logits(h, n, z);
    double most = z[0], total = 0;
    int64_t best = 0;
    for (int64_t o = 1; o < h->out; o++)
      if (z[o] > most) most = z[best = o];
    for (int64_t o = 0; o < h->out; o++) total += exp(z[o] - most);
    for (int64_t o = 0; o < h->out; o++) {
      double target = h->smoothing / (double)h->out + (o == label) * (1 - h->smoothing);
      stats[0] += (h->weighted ? h->class_weights[o] : 1) * target * (log(total) + most - z[o]);
    }
    stats[1] += best == label;
    stats[2]++;
  }
  free(z);
}

static double scaled_loss(const struct head *h) {
  double stats[4];
  reference(h, stats);
  return h->scale * stats[0];
}
static double of_x(const double *x, void *data) {
  struct head h = *(struct head *)data;
  h.x = x;
  return scaled_loss(&h);
}
static double of_weight(const double *weight, void *data) {
  struct head h = *(struct head *)data;
  h.weight = weight;
  return scaled_loss(&h);
}
static double of_biases(const double *biases, void *data) {
  struct head h = *(struct head *)data;
  h.biases = biases;
  return scaled_loss(&h);
}

/* The outputs of a task. */
struct result {
  double *stats, *dx, *grad, *bias_grad;
};

static void free_result(struct result *r) {
  free(r->stats), free(r->dx), free(r->grad), free(r->bias_grad);
}

/* The parameters as the task gets them; n: their number. */
static double *block_of(const struct head *h, int64_t *n) {
  int64_t weights = h->in * h->out;
  double *block = zeros(weights + h->out);
  memcpy(block, h->weight, (size_t)weights * sizeof *block);
  memcpy(block + weights, h->biases, (size_t)h->out * sizeof *block);
  *n = weights + (h->bias == IN_BLOCK ? h->out : 0);
  return block;
}

/* before: what the gradient of the parameters has already, in all places; 0: nothing. */
static struct result run(const struct head *h, const struct kind *k, bool training, double before) {
  int64_t rows = rows_of(h), count;
  double *block = block_of(h, &count), *old = zeros(count), *w = zeros(h->out);
  for (int64_t i = 0; i < count; i++) old[i] = before;
  for (int64_t i = 0; h->weighted && i < h->out; i++) w[i] = h->class_weights[i];
  struct sl__linear_xent t = {
      .x = tensor_of(k, SL_SHAPE(h->lines, h->steps, h->in), h->x),
      .param = tensor_of(k, SL_SHAPE(count), block),
      .bias = h->bias == ALONE ? tensor_of(k, SL_SHAPE(h->out), h->biases) : NULL,
      .targets = integers(SL_SHAPE(h->lines, h->columns), h->labels),
      .stats = tensor(SL_SHAPE(4), NULL),
      .class_weights = h->weighted ? tensor(SL_SHAPE(h->out), w) : NULL,
      .has_bias = h->bias != NO_BIAS,
      .scale = (float)h->scale,
      .smoothing = (float)h->smoothing,
      .from = h->from};
  struct sl__launch launch = launch_of(k, before != 0);
  struct result r = {0};
  if (training) {
    t.dx = tensor_of(k, SL_SHAPE(h->lines, h->steps, h->in), NULL);
    t.grad = tensor(SL_SHAPE(count), old);
    if (h->bias == ALONE) t.bias_grad = tensor(SL_SHAPE(h->out), old);
  }
  OK(sl__linear_xent(context, &launch, &t));
  r.stats = take(t.stats);
  if (training) {
    r.dx = take(t.dx);
    r.grad = take(t.grad);
    if (h->bias == ALONE) r.bias_grad = take(t.bias_grad);
    if (h->bias == IN_BLOCK) {
      r.bias_grad = zeros(h->out);
      memcpy(r.bias_grad, r.grad + h->in * h->out, (size_t)h->out * sizeof(double));
    }
  }
  for (int64_t i = 0; training && i < h->in * h->out; i++) r.grad[i] -= before;
  for (int64_t i = 0; training && h->bias && i < h->out; i++) r.bias_grad[i] -= before;
  sl__tensor_free(t.x), sl__tensor_free(t.param), sl__tensor_free(t.bias);
  sl__tensor_free(t.targets), sl__tensor_free(t.class_weights);
  free(block), free(old), free(w);
  (void)rows;
  return r;
}

/* Every value as the other's within some roundings. */
static void assert_alike(const char *what, const double *a, const double *b, int64_t n,
                         double tolerance) {
  for (int64_t i = 0; i < n; i++)
    if (!(fabs(a[i] - b[i]) <= tolerance))
      fail_msg("%s: element %lld is %.9g and %.9g", what, (long long)i, a[i], b[i]);
}

static void assert_slopes(struct head *h, const struct result *r) {
  assert_slope("dx", of_x, h, h->x, r->dx, rows_of(h) * h->in);
  assert_slope("weight's gradient", of_weight, h, h->weight, r->grad, h->in * h->out);
  if (h->bias) assert_slope("biases' gradient", of_biases, h, h->biases, r->bias_grad, h->out);
}

static void check_kind(struct head *h, const struct kind *k) {
  double want[4];
  reference(h, want);
  /* one chunk, several of some rows, one row each; bf16's logits are rounded on a GPU only */
  const int64_t limits[] = {0, 4 * h->out, 1};
  struct result first = {0};
  double close = k->half ? 0.02 : k->tf32 ? 2e-3 : 2e-6;
  for (int i = 0; i < 3; i++) {
    sl__linear_xent_force(limits[i]);
    struct result alone = run(h, k, false, 0), r = run(h, k, true, i ? 0.5 : 0);
    sl__linear_xent_force(0);
    double size = 1 + want[0];
    assert_alike("loss without gradients", alone.stats, want, 1, close * size);
    assert_alike("loss", r.stats, want, 1, close * size);
    assert_alike("counts", r.stats + 2, want + 2, 2, 0);
    if (!k->half) assert_alike("right", r.stats + 1, want + 1, 1, 0);
    if (!k->half && !k->tf32) assert_slopes(h, &r);
    if (i) {
      assert_alike("dx of chunks", r.dx, first.dx, rows_of(h) * h->in, close);
      assert_alike("gradient of chunks", r.grad, first.grad, h->in * h->out, close);
    }
    if (h->bias && i)
      assert_alike("biases' gradient of chunks", r.bias_grad, first.bias_grad, h->out, close);
    free_result(&alone);
    if (i)
      free_result(&r);
    else
      first = r;
  }
  free_result(&first);
}

static void check(struct head h) {
  int64_t labels = h.lines * h.columns, rows = rows_of(&h);
  int32_t *l = calloc((size_t)labels, sizeof *l);
  double *x = round_bf16(random_values(rows * h.in, 1), rows * h.in);
  double *weight = round_bf16(random_values(h.in * h.out, 2), h.in * h.out);
  double *biases = round_bf16(random_values(h.out, 3), h.out), *w = random_values(h.out, 4);
  for (int64_t o = 0; o < h.out; o++) w[o] = (double)(float)fabs(w[o]);
  for (int64_t n = 0; n < labels; n++)
    l[n] = n % 5 == 3 ? SL_IGNORE : n % 7 == 6 ? (int32_t)h.out : (int32_t)((n * 7 + 1) % h.out);
  h.x = x, h.weight = weight, h.biases = biases, h.class_weights = w, h.labels = l;
  h.scale = 0.125;
  for (size_t k = 0; k < KINDS; k++) check_kind(&h, &kinds[k]);
  free(l), free(x), free(weight), free(biases), free(w);
}

static void check_all(void) {
  check((struct head){.lines = 1, .steps = 1, .columns = 1, .in = 1, .out = 1});
  check((struct head){.lines = 13, .steps = 1, .columns = 1, .in = 5, .out = 17, .bias = IN_BLOCK});
  check((struct head){.lines = 3, .steps = 5, .columns = 5, .in = 7, .out = 11, .bias = ALONE});
  check((struct head){.lines = 4, .steps = 3, .columns = 8, .from = 4, .in = 8, .out = 32});
  check((struct head){.lines = 2, .steps = 9, .columns = 9, .in = 6, .out = 10, .smoothing = 0.2});
  check((struct head){
      .lines = 5, .steps = 4, .columns = 4, .in = 3, .out = 9, .bias = IN_BLOCK, .weighted = true});
  check((struct head){.lines = 5,
                      .steps = 4,
                      .columns = 5,
                      .from = 1,
                      .in = 3,
                      .out = 9,
                      .bias = ALONE,
                      .smoothing = 0.3,
                      .weighted = true});
}
EACH_OF(sl__choice_products(), matches, check_all)

/* The same logits give the same bits as the two operations. */
static void loss_has_the_bits_of_separate_operations(void **state) {
  (void)state;
  enum { ROWS = 12, IN = 8, OUT = 40 };
  double *x = random_values(ROWS * IN, 1), *weight = random_values(IN * OUT, 2);
  int32_t labels[ROWS];
  for (int n = 0; n < ROWS; n++) labels[n] = n * 3;
  struct sl__tensor *tx = tensor(SL_SHAPE(ROWS, IN), x), *tw = tensor(SL_SHAPE(OUT * IN), weight);
  struct sl__tensor *tl = integers(SL_SHAPE(ROWS), labels), *y = tensor(SL_SHAPE(ROWS, OUT), NULL);
  struct sl__tensor *stats[] = {tensor(SL_SHAPE(4), NULL), tensor(SL_SHAPE(4), NULL)};
  sl__choice_force(context, SL__OWN_OPENBLAS);
  OK(sl__dense_forward(context, &plain, tx, tw, y, false, SL_ACTIVATION_NONE));
  OK(sl__softmax_xent(context, &plain, &(struct sl__loss_task){y, tl, stats[0], NULL, 1, 0, 0}, 0,
                      NULL));
  OK(sl__linear_xent(
      context, &plain,
      &(struct sl__linear_xent){.x = tx, .param = tw, .targets = tl, .stats = stats[1]}));
  sl__choice_force(context, -1);
  double *a = take(stats[0]), *b = take(stats[1]);
  assert_memory_equal(a, b, 4 * sizeof *a);
  free(a), free(b), free(x), free(weight);
  sl__tensor_free(tx), sl__tensor_free(tw), sl__tensor_free(tl), sl__tensor_free(y);
}

static void shapes_are_checked(void **state) {
  (void)state;
  struct sl__tensor *x = tensor(SL_SHAPE(4, 3), NULL), *param = tensor(SL_SHAPE(15), NULL),
                    *labels = integers(SL_SHAPE(4), NULL), *stats = tensor(SL_SHAPE(4), NULL);
  struct sl__linear_xent good = {.x = x, .param = param, .targets = labels, .stats = stats}, t;
  OK(sl__linear_xent(context, &plain, &good));
  t = good, t.has_bias = true; /* 15 is no multiple of 4 */
  assert_int_equal(sl__linear_xent(context, &plain, &t), SL_BAD_SHAPE);
  t = good, t.from = 1;
  assert_int_equal(sl__linear_xent(context, &plain, &t), SL_BAD_SHAPE);
  t = good, t.stats = param;
  assert_int_equal(sl__linear_xent(context, &plain, &t), SL_BAD_SHAPE);
  t = good, t.dx = x, t.grad = stats;
  assert_int_equal(sl__linear_xent(context, &plain, &t), SL_BAD_SHAPE);
  sl__tensor_free(x), sl__tensor_free(param), sl__tensor_free(labels), sl__tensor_free(stats);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(matches),
                                     cmocka_unit_test(loss_has_the_bits_of_separate_operations),
                                     cmocka_unit_test(shapes_are_checked)};
  return cmocka_run_group_tests_name("linear_xent", tests, open_operations, close_context);
}
