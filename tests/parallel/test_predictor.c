/* Predictors: answers are those of the training's own forward pass, to the bit for the same batch;
 * whatever the threads, sizes and batches, each request gets its own; no request waits after a
 * close. On a GPU and CPUs at once (STARPU_NCUDA=1 without SL_TEST_DEVICE) answers depend on which
 * device was free; then they are near each other. */
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/half.h"
#include "core/runtime/context.h"
#include "parallel/step/plan.h"
#include "tests/common/small_model.h"

enum { SAMPLE = 2 * 9 * 8, CLASSES = 7, MOST = 40, TOKENS = 20, WORDS = 11 };

static struct sl_model *images(void) {
  struct sl_model *m = new_model(SL_SHAPE(2, 9, 8));
  OK(sl_conv2d(m, "conv", &(struct sl_conv2d_options){.channels = 5, .kernel_h = 3}));
  OK(sl_batchnorm(m, "bn", &(struct sl_batchnorm_options){0}));
  OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.5f}));
  OK(sl_dense(m, "fc1",
              &(struct sl_dense_options){.features = 33, .activation = SL_ACTIVATION_TANH}));
  OK(sl_dense(m, "fc2", &(struct sl_dense_options){.features = CLASSES}));
  OK(sl_model_build(m));
  return m;
}

static struct sl_model *words(void) {
  struct sl_model *m = new_model(SL_SHAPE(TOKENS));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 8}));
  OK(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = 9}));
  OK(sl_dense(m, "decoder", &(struct sl_dense_options){.features = WORDS, .positions = true}));
  OK(sl_model_build(m));
  return m;
}

static float noise(int64_t i) {
  uint64_t u = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u;
  u = (u ^ (u >> 31)) * 0xbf58476d1ce4e5b9u;
  return (float)(u >> 40) / (float)(1 << 24) - 0.5f;
}

/* The whole sets that requests take parts of. */
static float pixels[MOST * SAMPLE];
static int32_t tokens[MOST * TOKENS];

static void make_inputs(void) {
  for (int i = 0; i < MOST * SAMPLE; i++) pixels[i] = noise(i);
  for (int i = 0; i < MOST * TOKENS; i++) tokens[i] = (int32_t)((noise(i) + 0.5f) * WORDS) % WORDS;
}

/* By the plan that a trainer's evaluation has, as one batch; to be freed. */
static float *reference_in(struct sl_model *m, enum sl_math math, const void *inputs, int64_t n) {
  const struct sl_trainer_options options = {.replicas = 1, .math = math};
  struct sl_shape shape = {.ndim = m->sample.ndim + 1, .dim = {n}};
  for (int i = 0; i < m->sample.ndim; i++) shape.dim[i + 1] = m->sample.dim[i];
  int64_t count = n * sl_shape_count(sl_model_output(m));
  float *out = calloc((size_t)count, sizeof *out);
  uint16_t *codes = calloc((size_t)count, sizeof *codes);
  struct sl__grid grid;
  struct sl__plan *plan;
  struct sl__tensor *x;
  OK(sl__grid_new(m, &options, &grid));
  OK(sl__plan_new(m, &grid, n, 0, false, &plan));
  OK(sl__tensor_host(context, &shape, m->takes_tokens ? SL_I32 : SL_F32, NULL, &x));
  OK(sl__tensor_write(x, inputs));
  OK(sl__plan_submit(plan, &(struct sl__step){.x = x}));
  struct sl__tensor *y = plan->slices[0].y[m->count - 1];
  assert_int_equal(y->type, math == SL_MATH_BF16 ? SL_BF16 : SL_F32);
  OK(sl__tensor_read(y, y->type == SL_BF16 ? (void *)codes : out));
  for (int64_t i = 0; y->type == SL_BF16 && i < count; i++) out[i] = sl__bf16_value(codes[i]);
  free(codes);
  sl__plan_free(plan);
  sl__tensor_free(x);
  sl__grid_clear(&grid);
  return out;
}

static float *reference(struct sl_model *m, const void *inputs, int64_t n) {
  return reference_in(m, SL_MATH_F32, inputs, n);
}

static struct sl_predictor *predictor(struct sl_model *m, int64_t max_batch, int64_t delay,
                                      int batches) {
  struct sl_predictor *p;
  OK(sl_predictor_open(m,
                       &(struct sl_predictor_options){
                           .max_batch = max_batch, .max_delay_us = delay, .batches = batches},
                       &p));
  return p;
}

static bool is_close(const float *got, const float *want, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (!(fabsf(got[i] - want[i]) <= 1e-5f + 1e-5f * fabsf(want[i]))) return false;
  return true;
}

/* Devices of both kinds, and nothing says which to take. */
static bool is_mixed(void) {
  return starpu_cuda_worker_get_count() && starpu_cpu_worker_get_count() &&
         !getenv("SL_TEST_DEVICE");
}

static void assert_same(const float *got, const float *want, int64_t count) {
  if (is_mixed())
    assert_true(is_close(got, want, count));
  else
    assert_memory_equal(got, want, (size_t)count * sizeof *got);
}

/* ---- one thread ---- */

static void check_bits(struct sl_model *m, const void *inputs) {
  int64_t each = sl_shape_count(sl_model_output(m));
  struct sl_predictor *p = predictor(m, MOST, 0, 0);
  float *got = calloc((size_t)(MOST * each), sizeof *got);
  for (int64_t n = 1; n <= MOST; n = n * 2 + 1) {
    float *want = reference(m, inputs, n);
    for (int again = 0; again < 3; again++) {
      memset(got, 0xff, (size_t)(MOST * each) * sizeof *got);
      OK(sl_predict(p, inputs, n, got));
      assert_same(got, want, n * each);
    }
    free(want);
  }
  struct sl_predictor_counts counts = sl_predictor_count(p);
  assert_int_equal(counts.requests, 3 * 5); /* of 1, 3, 7, 15, 31 */
  assert_int_equal(counts.batches, counts.requests);
  assert_int_equal(counts.samples, 3 * 57);
  assert_true(counts.computing_us > 0);
  sl_predictor_free(p);
  free(got);
}

static void same_bits_as_the_training(void **state) {
  (void)state;
  struct sl_model *m = images(), *w = words();
  check_bits(m, pixels);
  check_bits(w, tokens);
  sl_model_free(m);
  sl_model_free(w);
}

/* ---- all cores for a batch that is alone ---- */

enum { SIDE = 16, MAPS = 24, WIDE = 2 * SIDE * SIDE, VOCABULARY = 700 };

static void norm_and_relu(struct sl_model *m, const char *bn, const char *relu) {
  OK(sl_batchnorm(m, bn, &(struct sl_batchnorm_options){0}));
  if (relu)
    OK(sl_activate(m, relu, &(struct sl_activation_options){.activation = SL_ACTIVATION_RELU}));
}

/* Large enough that its layers are cut between cores: between pixels and between channels, with
 * what convolutions take over. */
static struct sl_model *block(void) {
  const struct sl_conv2d_options same = {
      .channels = MAPS, .kernel_h = 3, .pad_h = 1, .no_bias = true};
  struct sl_conv2d_options half = same;
  half.stride_h = 2;
  half.channels = 2 * MAPS;
  struct sl_model *m = new_model(SL_SHAPE(2, SIDE, SIDE));
  OK(sl_conv2d(m, "conv1", &same));
  norm_and_relu(m, "bn1", "relu1");
  OK(sl_conv2d(m, "conv2", &same));
  norm_and_relu(m, "bn2", NULL);
  OK(sl_add(m, "add", &(struct sl_add_options){.layer.inputs = "bn2,relu1"}));
  OK(sl_activate(m, "relu2", &(struct sl_activation_options){.activation = SL_ACTIVATION_RELU}));
  OK(sl_maxpool2d(m, "pool", &(struct sl_pool2d_options){.kernel_h = 2}));
  OK(sl_conv2d(m, "conv3", &half));
  norm_and_relu(m, "bn3", "relu3");
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 300}));
  OK(sl_model_build(m));
  return m;
}

static struct sl_model *language(void) {
  struct sl_model *m = new_model(SL_SHAPE(TOKENS));
  OK(sl_embedding(m, "embed",
                  &(struct sl_embedding_options){.vocabulary = VOCABULARY, .features = 70}));
  OK(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = 90}));
  OK(sl_dense(m, "decoder", &(struct sl_dense_options){.features = VOCABULARY, .positions = true}));
  OK(sl_model_build(m));
  return m;
}

static void check_cores(struct sl_model *m, const void *inputs) {
  int64_t each = sl_shape_count(sl_model_output(m));
  float *got = calloc((size_t)(9 * each), sizeof *got);
  for (int cores = 0; cores <= 2; cores++)
    for (int64_t n = 1; n <= 9; n += n < 3 ? 1 : 3) {
      struct sl_predictor *p;
      float *want = reference(m, inputs, n);
      OK(sl_predictor_open(m, &(struct sl_predictor_options){.cores = cores}, &p));
      for (int again = 0; again < 30; again++) {
        memset(got, 0xff, (size_t)(n * each) * sizeof *got);
        OK(sl_predict(p, inputs, n, got));
        assert_same(got, want, n * each);
      }
      sl_predictor_free(p);
      free(want);
    }
  free(got);
  sl_model_free(m);
}

static void all_cores_give_the_same_bits(void **state) {
  (void)state;
  float *images = calloc(9 * WIDE, sizeof *images);
  int32_t text[9 * TOKENS];
  for (int i = 0; i < 9 * WIDE; i++) images[i] = noise(i);
  for (int i = 0; i < 9 * TOKENS; i++)
    text[i] = (int32_t)((noise(i) + 0.5f) * VOCABULARY) % VOCABULARY;
  check_cores(block(), images);
  check_cores(language(), text);
  free(images);
}

/* Large answers go straight to the caller's memory, which is another one each time. */
static void large_answers(void **state) {
  (void)state;
  enum { OUT = 9000, BATCH = 8 };
  struct sl_model *m = new_model(SL_SHAPE(2, 9, 8));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = OUT}));
  OK(sl_model_build(m));
  float *want = reference(m, pixels, BATCH);
  for (int batches = 1; batches <= 2; batches++) {
    struct sl_predictor *p = predictor(m, BATCH, 0, batches);
    for (int again = 0; again < 6; again++) {
      float *got = malloc((3 * BATCH + 1) * OUT * sizeof *got);
      OK(sl_predict(p, pixels, again % 2 ? 3 * BATCH : BATCH, got + again));
      assert_same(got + again, want, (int64_t)BATCH * OUT);
      free(got);
    }
    sl_predictor_free(p);
  }
  free(want);
  sl_model_free(m);
}

static void large_requests_are_cut(void **state) {
  (void)state;
  struct sl_model *m = images();
  float *want = reference(m, pixels, 23), got[23 * CLASSES] = {0};
  for (int batches = 1; batches <= 3; batches++) {
    struct sl_predictor *p = predictor(m, 5, 0, batches);
    OK(sl_predict(p, pixels, 23, got));
    assert_true(is_close(got, want, 23 * CLASSES));
    assert_int_equal(sl_predictor_count(p).batches, 5);
    sl_predictor_free(p);
  }
  free(want);
  sl_model_free(m);
}

static void requests_that_wait_are_run_together(void **state) {
  (void)state;
  enum { REQUESTS = 12 };
  struct sl_model *m = images();
  struct sl_predictor *p = predictor(m, REQUESTS, 30000000, 0); /* a full batch does not wait */
  struct sl_prediction *request[REQUESTS];
  float *want = reference(m, pixels, REQUESTS), got[REQUESTS][CLASSES];
  for (int i = 0; i < REQUESTS; i++)
    OK(sl_predict_submit(p, pixels + (ptrdiff_t)i * SAMPLE, 1, got[i], &request[i]));
  for (int i = 0; i < REQUESTS; i++) OK(sl_predict_wait(request[i]));
  assert_same(got[0], want, REQUESTS * CLASSES); /* in the order in which they came */
  assert_int_equal(sl_predictor_count(p).batches, 1);
  OK(sl_predict_wait(NULL));
  sl_predictor_free(p);
  p = predictor(m, REQUESTS, 1000, 0); /* one that is not full does not wait for ever */
  OK(sl_predict(p, pixels, 1, got[0]));
  sl_predictor_free(p);
  free(want);
  sl_model_free(m);
}

/* ---- many threads ---- */

struct client {
  struct sl_predictor *p;
  const char *inputs;
  const float *want;
  size_t sample;
  int64_t each;
  int number, rounds;
  bool until_closed;
  int served, refused, wrong;
};

/* Requests of random sizes at random places, some of them two at a time. */
static void *ask(void *argument) {
  struct client *c = argument;
  float *got = calloc((size_t)(2 * MOST * c->each), sizeof *got);
  unsigned random = (unsigned)c->number + 1;
  for (int i = 0; c->until_closed ? !c->refused : i < c->rounds; i++) {
    struct sl_prediction *other = NULL;
    int64_t first = rand_r(&random) % (MOST - 12), n = 1 + rand_r(&random) % 9;
    const char *from = c->inputs + (size_t)first * c->sample;
    float *second = got + MOST * c->each;
    enum sl_status status = SL_OK;
    if (i % 3 == 0) status = sl_predict_submit(c->p, from, n, second, &other);
    if (status == SL_OK) status = sl_predict(c->p, from, n, got);
    bool right = status != SL_OK || is_close(got, c->want + first * c->each, n * c->each);
    if (other && sl_predict_wait(other) == SL_OK)
      right &= is_close(second, c->want + first * c->each, n * c->each);
    c->served += status == SL_OK;
    c->refused += status == SL_CLOSED;
    c->wrong += !right || (status != SL_OK && status != SL_CLOSED);
  }
  free(got);
  return NULL;
}

enum { CLIENTS = 6 };

static void start(struct client *clients, pthread_t *threads, const struct client *like) {
  for (int i = 0; i < CLIENTS; i++) {
    clients[i] = *like;
    clients[i].number = i;
    assert_int_equal(pthread_create(&threads[i], NULL, ask, &clients[i]), 0);
  }
}

static void join(struct client *clients, pthread_t *threads) {
  for (int i = 0; i < CLIENTS; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(clients[i].wrong, 0);
  }
}

static struct client client_of(struct sl_predictor *p, struct sl_model *m, const float *want) {
  bool reads = m->takes_tokens;
  return (struct client){.p = p,
                         .inputs = reads ? (const char *)tokens : (const char *)pixels,
                         .want = want,
                         .sample = (reads ? TOKENS : SAMPLE) * sizeof(float),
                         .each = sl_shape_count(sl_model_output(m)),
                         .rounds = 60};
}

/* Two models and three predictors in one context. */
static void threads_get_their_own_answers(void **state) {
  (void)state;
  struct sl_model *m[3] = {images(), words(), NULL};
  m[2] = m[0];
  struct sl_predictor *p[3] = {predictor(m[0], 8, 200, 0), predictor(m[1], 16, 0, 2),
                               predictor(m[2], 3, 0, 1)};
  struct client clients[3][CLIENTS];
  pthread_t threads[3][CLIENTS];
  float *want[3];
  for (int k = 0; k < 3; k++)
    want[k] = reference(m[k], k == 1 ? (const void *)tokens : pixels, MOST);
  for (int k = 0; k < 3; k++) {
    struct client like = client_of(p[k], m[k], want[k]);
    start(clients[k], threads[k], &like);
  }
  for (int k = 0; k < 3; k++) join(clients[k], threads[k]);
  for (int k = 0; k < 3; k++) {
    assert_int_equal(sl_predictor_count(p[k]).requests, CLIENTS * (60 + 20));
    sl_predictor_free(p[k]);
    free(want[k]);
  }
  sl_model_free(m[0]);
  sl_model_free(m[1]);
}

static void a_close_leaves_nobody_waiting(void **state) {
  (void)state;
  struct sl_model *m = images();
  float *want = reference(m, pixels, MOST), got[CLASSES];
  for (int round = 0; round < 8; round++) {
    struct sl_predictor *p = predictor(m, 4, round % 2 ? 300 : 0, 1 + round % 3);
    struct client clients[CLIENTS], like = client_of(p, m, want);
    pthread_t threads[CLIENTS];
    like.until_closed = true;
    start(clients, threads, &like);
    while (sl_predictor_count(p).requests < 20) usleep(500);
    sl_predictor_close(p);
    join(clients, threads);
    for (int i = 0; i < CLIENTS; i++) assert_int_equal(clients[i].refused, 1);
    FAILS(sl_predict(p, pixels, 1, got), SL_CLOSED, "after the predictor was closed");
    sl_predictor_close(p);
    sl_predictor_free(p);
  }
  free(want);
  sl_model_free(m);
}

/* Held back, and then closed: refused, not forgotten. */
static void what_waits_is_refused_at_a_close(void **state) {
  (void)state;
  struct sl_model *m = images();
  struct sl_predictor *p = predictor(m, MOST, 60000000, 0);
  struct sl_prediction *request[2];
  float got[2 * CLASSES];
  for (int i = 0; i < 2; i++)
    OK(sl_predict_submit(p, pixels, 1, got + (ptrdiff_t)i * CLASSES, &request[i]));
  sl_predictor_close(p);
  for (int i = 0; i < 2; i++)
    FAILS(sl_predict_wait(request[i]), SL_CLOSED, "before all of the request had begun");
  sl_predictor_free(p);
  sl_model_free(m);
}

/* ---- devices ---- */

/* Edges that jump over others. */
static struct sl_model *residual(void) {
  struct sl_model *m = new_model(SL_SHAPE(2, 9, 8));
  const struct sl_conv2d_options conv = {.channels = 4, .kernel_h = 3, .pad_h = 1};
  OK(sl_conv2d(m, "conv1", &conv));
  OK(sl_conv2d(m, "conv2", &conv));
  OK(sl_activate(m, "act", &(struct sl_activation_options){.activation = SL_ACTIVATION_RELU}));
  OK(sl_conv2d(m, "conv3", &conv));
  OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = "conv3,conv1"}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = CLASSES}));
  return m;
}

/* Stages on the listed devices, two of them in turn; a GPU's sums are in another order. */
static void stages_over_devices(void **state) {
  (void)state;
  static const char *const rules[] = {"conv1,conv2,act=%s;conv3,sum,fc=%s",
                                      "conv1,act,sum=%s;conv2,conv3,fc=%s"};
  const char *device = is_mixed() ? "cuda:0" : getenv("SL_TEST_DEVICE");
  float got[MOST * CLASSES];
  char text[200];
  for (size_t i = 0; i < 2; i++) {
    struct sl_model *m = residual();
    snprintf(text, sizeof text, rules[i], device ? device : "cpu:0", device ? "cpu:0" : "cpu:1");
    OK(sl_place(m, text));
    OK(sl_model_build(m));
    float *want = reference(m, pixels, MOST);
    struct sl_predictor *p = predictor(m, MOST, 0, 3);
    for (int again = 0; again < 4; again++) {
      OK(sl_predict(p, pixels, MOST, got));
      assert_memory_equal(got, want, sizeof got);
    }
    struct client clients[CLIENTS], like = client_of(p, m, want);
    pthread_t threads[CLIENTS];
    start(clients, threads, &like);
    join(clients, threads);
    sl_predictor_free(p);
    free(want);
    sl_model_free(m);
  }
}

/* The bits of the training's forward pass in bf16, which are near those in f32: as one request, and
 * as several requests of different sizes in one batch. */
static void bf16_is_that_of_the_training(void **state) {
  (void)state;
  enum { REQUESTS = 4 };
  static const int rows[REQUESTS] = {1, 7, 2, MOST - 10};
  struct sl_model *m = images();
  struct sl_predictor *p;
  struct sl_prediction *request[REQUESTS];
  float *want = reference_in(m, SL_MATH_BF16, pixels, MOST), *exact = reference(m, pixels, MOST);
  static float got[MOST * CLASSES];
  const struct sl_predictor_options options = {
      .max_batch = MOST, .max_delay_us = 30000000, .math = SL_MATH_BF16};
  OK(sl_predictor_open(m, &options, &p));
  OK(sl_predict(p, pixels, MOST, got));
  if (!is_mixed()) assert_memory_equal(got, want, sizeof got);
  double apart = 0;
  for (int i = 0; i < MOST * CLASSES; i++) apart = fmax(apart, fabsf(got[i] - exact[i]));
  assert_true(apart > 0 && apart < 0.05);
  memset(got, 0xff, sizeof got);
  for (int i = 0, first = 0; i < REQUESTS; first += rows[i++])
    OK(sl_predict_submit(p, pixels + (ptrdiff_t)first * SAMPLE, rows[i],
                         got + (ptrdiff_t)first * CLASSES, &request[i]));
  for (int i = 0; i < REQUESTS; i++) OK(sl_predict_wait(request[i]));
  if (!is_mixed()) assert_memory_equal(got, want, sizeof got);
  for (int i = 0; i < MOST * CLASSES; i++) assert_true(fabsf(got[i] - exact[i]) < 0.05f);
  assert_int_equal(sl_predictor_count(p).batches, 2);
  sl_predictor_free(p);
  free(want);
  free(exact);
  sl_model_free(m);
}

/* ---- a context that stalls: in a process of its own, since it is left as it is ---- */

static void *ask_once(void *argument) {
  static float got[CLASSES];
  return sl_predict(argument, pixels, 1, got) == SL_STALLED ? argument : NULL;
}

static int stall(void) {
  pthread_t thread;
  void *stalled;
  OK(sl_open(&(struct sl_context_options){.seed = 1, .stall_timeout = 1}, &context));
  struct sl_model *m = images();
  struct sl_predictor *p = predictor(m, 4, 0, 2);
  float got[CLASSES], after[9 * CLASSES];
  OK(sl_predict(p, pixels, 1, got));
  starpu_pause();
  if (pthread_create(&thread, NULL, ask_once, p)) return 1;
  bool late = sl_predict(p, pixels, 9, after) != SL_STALLED;
  pthread_join(thread, &stalled);
  if (late || !stalled) return 2;
  if (sl_predict(p, pixels, 1, got) != SL_CLOSED) return 3;
  sl_predictor_free(p);
  return 0;
}

static void a_stall_is_told(void **state) {
  int status = -1;
  (void)state;
  pid_t child = fork();
  assert_true(child >= 0);
  if (!child) {
    setenv("SL_TEST_STALL", "1", 1);
    setenv("TSAN_OPTIONS", "report_thread_leaks=0", 1); /* no thread joins a stalled watchdog */
    execl("/proc/self/exe", "test_predictor", (char *)NULL);
    _exit(100);
  }
  waitpid(child, &status, 0);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- memory ---- */

static size_t allocated(void) {
  struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

/* Many layers, and more sizes than a slot keeps graphs. (A sanitizer's allocator is not counted.)
 */
static void many_sizes_need_little_memory(void **state) {
  (void)state;
  enum { LAYERS = 30, WIDTH = 4, SIZES = 150, MOST_BYTES = 30000000 };
  struct sl_model *m = new_model(SL_SHAPE(WIDTH));
  float got[SIZES * WIDTH];
  char name[16];
  for (int i = 0; i < LAYERS; i++) {
    snprintf(name, sizeof name, "fc%d", i);
    add_dense(m, name, WIDTH, SL_INIT_HE);
  }
  OK(sl_model_build(m));
  struct sl_predictor *p = predictor(m, SIZES, 0, 1);
  OK(sl_predict(p, pixels, SIZES, got));
  size_t before = allocated();
  for (int round = 0; round < 2; round++)
    for (int n = 1; n <= SIZES; n++) {
      OK(sl_predict(p, pixels, n, got));
      if (n % 7 || is_mixed()) continue; /* roundings of two devices differ after 30 layers */
      float *want = reference(m, pixels, n);
      assert_same(got, want, (int64_t)n * WIDTH);
      free(want);
    }
  size_t after = allocated();
  assert_true(after < before + MOST_BYTES);
  sl_predictor_free(p);
  sl_model_free(m);
}

enum { ASKED = 50, SIZES_ASKED = 64, ANSWER = 1000 };

static void *ask_in_sizes(void *argument) {
  float *got = calloc((size_t)SIZES_ASKED * ANSWER, sizeof *got);
  unsigned random = 1;
  enum sl_status status = SL_OK;
  for (int i = 0; i < 100 && status == SL_OK; i++)
    status = sl_predict(argument, pixels, 1 + rand_r(&random) % SIZES_ASKED, got);
  if (status != SL_OK) fprintf(stderr, "%s\n", sl_error());
  free(got);
  return (void *)(intptr_t)status;
}

/* The outputs of all sizes together are larger than the limit, those that are in use are not. With
 * a GPU StarPU keeps main memory for outputs of the same size (doc/limits.md). */
static void a_limit_holds_for_all_sizes(void **state) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  int failed = 0;
  if (starpu_cuda_worker_get_count()) skip();
  sl_close(context);
  OK(sl_open(
      &(struct sl_context_options){.devices = getenv("SL_TEST_DEVICE"), .memory_limit = "cpu=6M"},
      &context));
  struct sl_model *m = new_model(SL_SHAPE(ASKED));
  add_dense(m, "fc1", 100, SL_INIT_HE);
  add_dense(m, "fc2", ANSWER, SL_INIT_HE);
  OK(sl_model_build(m));
  struct sl_predictor *p = predictor(m, SIZES_ASKED, 0, 0);
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, ask_in_sizes, p), 0);
  for (int i = 0; i < THREADS; i++) {
    void *ended;
    pthread_join(threads[i], &ended);
    failed += ended != NULL;
  }
  sl_predictor_free(p);
  sl_model_free(m);
  sl_close(context);
  assert_int_equal(open_context(state), 0);
  assert_int_equal(failed, 0);
}

/* ---- refusals ---- */

static void strange_requests_are_refused(void **state) {
  (void)state;
  struct sl_model *m = words();
  struct sl_predictor *p = (struct sl_predictor *)m;
  float got[TOKENS * WORDS];
  int32_t bad[2 * TOKENS] = {0};
  const struct sl_predictor_options wrong[] = {
      {.max_batch = -1}, {.max_batch = INT64_MAX},  {.max_delay_us = -1}, {.batches = -1},
      {.batches = 5000}, {.math = (enum sl_math)7}, {.cores = -1}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_int_equal(sl_predictor_open(m, &wrong[i], &p), SL_BAD_ARGUMENT);
    assert_null(p);
  }
  p = predictor(m, 0, 0, 0);
  FAILS(sl_predict(p, bad, 0, got), SL_BAD_ARGUMENT, "0 samples");
  FAILS(sl_predict(p, NULL, 1, got), SL_BAD_ARGUMENT, "NULL");
  FAILS(sl_predict(p, bad, 1, NULL), SL_BAD_ARGUMENT, "NULL");
  FAILS(sl_predict(p, bad, INT64_MAX, got), SL_BAD_ARGUMENT, "samples");
  bad[TOKENS + 2] = WORDS;
  FAILS(sl_predict(p, bad, 2, got), SL_BAD_ARGUMENT, "sample 1: token 2 is 11");
  bad[TOKENS + 2] = -1;
  FAILS(sl_predict(p, bad, 2, got), SL_BAD_ARGUMENT, "sample 1: token 2 is -1");
  OK(sl_predict(p, bad, 1, got));
  sl_predictor_free(p);
  sl_predictor_free(NULL);
  sl_model_free(m);
}

static int setup(void **state) {
  make_inputs();
  return open_context(state);
}

int main(void) {
  setenv("STARPU_NCPU", "2", 0);
  if (getenv("SL_TEST_STALL")) {
    make_inputs();
    int code = stall();
    fflush(stdout);
    _exit(code); /* StarPU does not end any more */
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits_as_the_training),
                                     cmocka_unit_test(all_cores_give_the_same_bits),
                                     cmocka_unit_test(large_answers),
                                     cmocka_unit_test(large_requests_are_cut),
                                     cmocka_unit_test(requests_that_wait_are_run_together),
                                     cmocka_unit_test(threads_get_their_own_answers),
                                     cmocka_unit_test(a_close_leaves_nobody_waiting),
                                     cmocka_unit_test(what_waits_is_refused_at_a_close),
                                     cmocka_unit_test(stages_over_devices),
                                     cmocka_unit_test(bf16_is_that_of_the_training),
                                     cmocka_unit_test(a_stall_is_told),
                                     cmocka_unit_test(many_sizes_need_little_memory),
                                     cmocka_unit_test(a_limit_holds_for_all_sizes),
                                     cmocka_unit_test(strange_requests_are_refused)};
  return cmocka_run_group_tests_name("predictor", tests, setup, close_context);
}
