/* Training on sentences of several lengths: one set of parameters, one memory. References: a single
 * bucket in which all is padded, and the serial run. */
#include <limits.h>
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/random.h"
#include "tests/common/harness.h"

enum { WORDS = 11, TOKENS = 700, LONGEST = 20, STEPS = 60, ROOM = 4000 };

static int32_t text[TOKENS];

static int open_text(void **state) {
  (void)state;
  for (int i = 1; i < TOKENS; i++) {
    struct sl__random4 r = sl__philox(4, 4, (uint64_t)i);
    text[i] = r.v[0] % 9 == 0 ? 0 : 1 + (text[i - 1] * 3 + (int32_t)(r.v[1] % 2)) % (WORDS - 1);
  }
  return open_context_with(&(struct sl_context_options){.seed = 7});
}

static struct sl_model *language_model(float dropout) {
  struct sl_model *m;
  OK(sl_model_new(context, &SL_SHAPE(LONGEST), &m));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 6}));
  OK(sl_lstm(m, "lstm0", &(struct sl_lstm_options){.features = 9}));
  if (dropout > 0) OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = dropout}));
  OK(sl_gru(m, "gru1", &(struct sl_gru_options){.features = 8}));
  OK(sl_dense(m, "decoder", &(struct sl_dense_options){.features = WORDS, .positions = true}));
  OK(sl_model_build(m));
  return m;
}

static struct sl_dataset *sentences(const int64_t *buckets, int count) {
  struct sl_dataset *data;
  OK(sl_sentences_new("sentences", text, TOKENS, WORDS,
                      &(struct sl_sentences_options){.buckets = buckets, .bucket_count = count},
                      &data));
  return data;
}

static const int64_t several[] = {3, 6, 12, LONGEST}, one[] = {LONGEST};

struct run {
  const int64_t *buckets;
  int bucket_count;
  bool shuffle;
  int64_t batch;
  float dropout;
  struct sl_trainer_options options;
  double loss[STEPS];
  int64_t samples;
};

static void train(struct run *run) {
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  struct sl_model *m = language_model(run->dropout);
  struct sl_dataset *data = sentences(run->buckets, run->bucket_count);
  bool reported;
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = run->batch, .shuffle = run->shuffle},
                   &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){.lr = 2, .clip = 5}, NULL, &run->options, &trainer));
  run->samples = 0;
  for (int s = 0; s < 2 * STEPS; s++) {
    if (s < STEPS)
      OK(sl_trainer_step(trainer, loader, &report, &reported));
    else
      OK(sl_trainer_drain(trainer, &report, &reported));
    if (!reported) continue;
    run->loss[report.step] = report.loss;
    run->samples += report.samples;
  }
  sl_trainer_free(trainer);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

static void assert_same_curve(const struct run *got, const struct run *want, const char *what) {
  assert_int_equal(got->samples, want->samples);
  for (int s = 0; s < STEPS; s++)
    if (fabs(got->loss[s] - want->loss[s]) > 1e-5 * want->loss[s])
      fail_msg("%s, step %d: loss %.9g, reference %.9g", what, s, got->loss[s], want->loss[s]);
}

/* A batch of one: the n-th sentence of the sorted order, once in its bucket, once padded. */
static void padding_changes_nothing(void **state) {
  (void)state;
  struct sl_model *m = language_model(0);
  struct sl_dataset *sets[2] = {sentences(several, 4), sentences(one, 1)};
  double loss[2], accuracy[2];
  for (int i = 0; i < 2; i++)
    for (int64_t batch = 1; batch <= 5; batch += 4) {
      struct sl_loader *loader;
      struct sl_trainer *trainer;
      double l, a;
      OK(sl_loader_new(sets[i], &(struct sl_loader_options){.batch = batch}, &loader));
      OK(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL,
                        &(struct sl_trainer_options){.replicas = 1}, &trainer));
      OK(sl_trainer_evaluate(trainer, loader, &l, &a));
      if (batch > 1) { /* rows that fill up a batch change nothing either */
        assert_true(fabs(l - loss[i]) < 1e-6);
        assert_true(fabs(a - accuracy[i]) < 1e-9);
      }
      loss[i] = l;
      accuracy[i] = a;
      sl_trainer_free(trainer);
      sl_loader_free(loader);
    }
  assert_true(sl_dataset_info(sets[1])->padding > 3 * sl_dataset_info(sets[0])->padding);
  assert_true(fabs(loss[0] - loss[1]) < 1e-6);
  assert_true(fabs(accuracy[0] - accuracy[1]) < 1e-9);
  sl_dataset_free(sets[0]);
  sl_dataset_free(sets[1]);
  sl_model_free(m);
}

static void any_cut_gives_the_serial_curve(void **state) {
  (void)state;
  static const struct sl_trainer_options cuts[] = {
      {.replicas = 4},
      {.replicas = 1, .microbatches = 3},
      {.replicas = 2, .chunk = 4},
      {.replicas = 1, .chunk = 7, .microbatches = 2},
      {.replicas = 1, .stages = 4, .microbatches = 2, .kvstore = SL_KVSTORE_DEVICE},
      {.replicas = 2, .stages = 2, .microbatches = 2, .chunk = 5}};
  static struct run serial, cut;
  const struct run base = {.buckets = several,
                           .bucket_count = 4,
                           .shuffle = true,
                           .batch = 8,
                           .dropout = 0.2f,
                           .options = {.replicas = 1}};
  serial = base;
  train(&serial);
  assert_true(serial.loss[STEPS - 1] < 0.9 * serial.loss[0]);
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
    cut = base;
    cut.options = cuts[i];
    train(&cut);
    assert_same_curve(&cut, &serial, "cut");
  }
}

/* The weights' changes by one step on a batch of the loader's. */
static void one_step(struct sl_model *m, struct sl_trainer *trainer, struct sl_loader *loader,
                     float *change) {
  float before[ROOM];
  struct sl_report report;
  bool reported;
  int64_t at = 0;
  struct sl_shape shape;
  for (int i = 0; i < sl_model_parameter_count(m); i++, at += sl_shape_count(&shape))
    OK(sl_model_get(m, sl_model_parameter(m, i, &shape), before + at));
  OK(sl_trainer_step(trainer, loader, &report, &reported));
  OK(sl_trainer_drain(trainer, &report, &reported));
  at = 0;
  for (int i = 0; i < sl_model_parameter_count(m); i++, at += sl_shape_count(&shape)) {
    const char *name = sl_model_parameter(m, i, &shape);
    OK(sl_model_get(m, name, change + at));
    OK(sl_model_set(m, name, before + at)); /* as if nothing had been */
  }
  for (int64_t k = 0; k < at; k++) change[k] -= before[k];
}

/* Every batch of an epoch, forwards and in three shuffled orders: the same gradient, to the bit. */
static void any_order_gives_the_same_gradients(void **state) {
  (void)state;
  enum { MOST = 400 };
  static float want[MOST][ROOM], got[ROOM];
  struct sl_dataset *data = sentences(several, 4);
  struct sl_model *m = language_model(0);
  for (uint64_t seed = 0; seed < 3; seed++) {
    struct sl_loader *loader, *peek;
    struct sl_trainer *trainer;
    struct sl_loader_options options = {.batch = 1, .shuffle = seed > 0, .seed = seed};
    memset(got, 0, sizeof got);
    OK(sl_loader_new(data, &options, &loader));
    OK(sl_loader_new(data, &options, &peek));
    OK(sl_trainer_new(m, &(struct sl_optimizer){.lr = 1}, NULL,
                      &(struct sl_trainer_options){.replicas = 1}, &trainer));
    int64_t count = sl_loader_length(loader), found = 0;
    assert_true(count > 50 && count <= MOST);
    static int32_t first[MOST][2 * LONGEST];
    for (int64_t k = 0; k < count; k++) {
      struct sl_batch batch;
      int32_t key[2 * LONGEST];
      OK(sl_loader_next(peek, &batch));
      memcpy(key, batch.tokens, LONGEST * sizeof *key);
      memcpy(key + LONGEST, batch.labels, LONGEST * sizeof *key);
      sl_loader_recycle(peek, batch.slot);
      one_step(m, trainer, loader, seed ? got : want[k]);
      if (!seed) memcpy(first[k], key, sizeof key);
      for (int64_t i = 0; seed && i < count; i++)
        if (!memcmp(first[i], key, sizeof key)) {
          assert_memory_equal(got, want[i], sizeof got);
          found++;
          break;
        }
    }
    if (seed) assert_int_equal(found, count);
    sl_trainer_free(trainer);
    sl_loader_free(loader);
    sl_loader_free(peek);
  }
  sl_model_free(m);
  sl_dataset_free(data);
}

/* Peak memory in kilobytes of a new process that trains on buckets up to the last one. */
static long peak_of(const int64_t *buckets, int count) {
  int pipes[2];
  long peak = 0;
  assert_int_equal(pipe(pipes), 0);
  char list[128] = "";
  for (int i = 0; i < count; i++)
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s%lld", i ? "," : "",
             (long long)buckets[i]);
  pid_t child = fork();
  assert_true(child >= 0);
  if (!child) {
    dup2(pipes[1], 1);
    setenv("SL_TEST_PEAK", list, 1);
    execl("/proc/self/exe", "test_buckets", (char *)NULL);
    _exit(1);
  }
  close(pipes[1]);
  FILE *in = fdopen(pipes[0], "r");
  if (fscanf(in, "%ld", &peak) != 1) peak = 0;
  fclose(in);
  int state;
  waitpid(child, &state, 0);
  assert_true(peak > 0);
  return peak;
}

static long status_kb(const char *field) {
  char line[256], format[32];
  long kilobytes = 0;
  snprintf(format, sizeof format, "%s: %%ld", field);
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, format, &kilobytes) == 1) break;
  if (file) fclose(file);
  return kilobytes;
}

/* In the child: activations of tens of megabytes, without large products; every bucket is met, the
 * shortest first and last. What StarPU needs anyway is not counted. */
static int tell_peak(const char *list) {
  enum { LENGTH = 60, ROWS = 192, SENTENCES = 400, WIDE = 500 };
  static int32_t tokens[SENTENCES * LENGTH];
  int64_t buckets[8], count = 0, filled = 0;
  char copy[128], *rest = copy;
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  struct sl_model *m;
  bool reported;
  snprintf(copy, sizeof copy, "%s", list);
  for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ","))
    buckets[count++] = atoll(item);
  for (int s = 0; s < SENTENCES; s++) { /* of 1 to LENGTH tokens */
    int64_t length = 1 + (s * 37) % LENGTH;
    for (int64_t k = 0; k < length - 1; k++) tokens[filled++] = 1 + (int32_t)(s + k) % 9;
    tokens[filled++] = 0;
  }
  OK(sl_open(&(struct sl_context_options){.seed = 1}, &context));
  OK(sl_sentences_new(
      "s", tokens, filled, 10,
      &(struct sl_sentences_options){.buckets = buckets, .bucket_count = (int)count}, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = ROWS, .shuffle = true}, &loader));
  OK(sl_model_new(context, &SL_SHAPE(LENGTH), &m));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 10, .features = WIDE}));
  OK(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = 8}));
  OK(sl_dense(m, "wide", &(struct sl_dense_options){.features = 2 * WIDE, .positions = true}));
  OK(sl_activate(m, "act", &(struct sl_activation_options){.activation = SL_ACTIVATION_RELU}));
  OK(sl_dense(m, "decoder", &(struct sl_dense_options){.features = 10, .positions = true}));
  OK(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL, &(struct sl_trainer_options){.replicas = 1},
                    &trainer));
  long before = status_kb("VmRSS");
  for (int64_t s = 0; s < 2 * sl_loader_length(loader); s++)
    OK(sl_trainer_step(trainer, loader, &report, &reported));
  for (reported = true; reported;) OK(sl_trainer_drain(trainer, &report, &reported));
  printf("%ld\n", status_kb("VmHWM") - before);
  sl_trainer_free(trainer);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
  sl_close(context);
  return 0;
}

static void all_buckets_need_the_memory_of_the_largest(void **state) {
  (void)state;
#ifdef SL_SANITIZE
  skip(); /* memory that was freed is kept on purpose */
#endif
  static const int64_t all[] = {8, 16, 24, 32, 60};
  long largest = 0, together = LONG_MAX;
  /* which tasks meet in memory differs from run to run */
  for (int i = 0; i < 2; i++) {
    long alone = peak_of(all + 4, 1), five = peak_of(all, 5);
    largest = alone > largest ? alone : largest;
    together = five < together ? five : together;
  }
  /* memory of their own for all would be 2.3 times as much, for the two largest 1.5 times */
  if (together > largest + largest / 4)
    fail_msg("five buckets need %ld kB, the largest alone %ld kB", together, largest);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  struct sl_dataset *data = sentences(several, 4);
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_model *m;
  struct sl_report report;
  bool reported;
  OK(sl_model_new(context, &SL_SHAPE(LONGEST + 1), &m)); /* another length */
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 6}));
  OK(sl_dense(m, "decoder", &(struct sl_dense_options){.features = WORDS, .positions = true}));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 4}, &loader));
  FAILS(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL,
                       &(struct sl_trainer_options){.carry_state = true}, &trainer),
        SL_BAD_ARGUMENT, "carry_state: the model has no recurrent layer");
  OK(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL, NULL, &trainer));
  assert_int_equal(sl_trainer_step(trainer, loader, &report, &reported), SL_BAD_SHAPE);
  sl_trainer_free(trainer);
  sl_model_free(m);
  sl_loader_free(loader);
  /* a state cannot be carried from one sentence to the next, whichever comes first */
  m = language_model(0);
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 4}, &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL,
                    &(struct sl_trainer_options){.carry_state = true}, &trainer));
  assert_int_equal(sl_trainer_step(trainer, loader, &report, &reported), SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "carry_state"));
  sl_trainer_free(trainer);
  sl_model_free(m);
  sl_loader_free(loader);
  /* a layer that needs a whole sample: refused even where the first batch would do */
  OK(sl_model_new(context, &SL_SHAPE(LONGEST), &m));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 6}));
  OK(sl_batchnorm(m, "norm", &(struct sl_batchnorm_options){0}));
  OK(sl_dense(m, "decoder", &(struct sl_dense_options){.features = WORDS, .positions = true}));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 4}, &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL, NULL, &trainer));
  assert_int_equal(sl_trainer_step(trainer, loader, &report, &reported), SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "layer norm (batchnorm)"));
  sl_trainer_free(trainer);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

int main(void) {
  setenv("STARPU_NCPU", "4", 0);
  setenv("STARPU_WORKERS_NOBIND", "1", 0);
  if (getenv("SL_TEST_PEAK")) return tell_peak(getenv("SL_TEST_PEAK"));
  const struct CMUnitTest tests[] = {cmocka_unit_test(padding_changes_nothing),
                                     cmocka_unit_test(any_cut_gives_the_serial_curve),
                                     cmocka_unit_test(any_order_gives_the_same_gradients),
                                     cmocka_unit_test(all_buckets_need_the_memory_of_the_largest),
                                     cmocka_unit_test(what_does_not_fit_is_refused)};
  return cmocka_run_group_tests_name("buckets", tests, open_text, close_context);
}
