/* Language models of tokens: loader, embedding, LSTM, decoder, the trainer. References: the serial
 * run for every cut and placement, one long window for a carried state, finite differences. */
#include <math.h>

#include "core/base/random.h"
#include "tests/common/harness.h"

#define WORDS 11
#define TOKENS 1201
#define STEPS 50

static int32_t text[TOKENS];

static int open_text(void **state) {
  (void)state;
  /* a text with something to learn: three of four tokens follow from the one before */
  for (int i = 1; i < TOKENS; i++) {
    struct sl__random4 r = sl__philox(4, 4, (uint64_t)i);
    text[i] = r.v[0] % 4 ? (text[i - 1] * 3 + 1) % WORDS : (int32_t)(r.v[1] % WORDS);
  }
  return open_context_with(&(struct sl_context_options){.seed = 7});
}

/* embed, lstm0, drop, gru1, decoder */
static struct sl_model *language_model(int64_t steps, float dropout) {
  struct sl_model *m;
  OK(sl_model_new(context, &SL_SHAPE(steps), &m));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 6}));
  OK(sl_lstm(m, "lstm0", &(struct sl_lstm_options){.features = 9}));
  if (dropout > 0) OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = dropout}));
  OK(sl_gru(m, "gru1", &(struct sl_gru_options){.features = 8}));
  OK(sl_dense(m, "decoder", &(struct sl_dense_options){.features = WORDS, .positions = true}));
  OK(sl_model_build(m));
  return m;
}

struct run {
  struct sl_trainer_options options;
  int64_t window, batch;
  float dropout, momentum;
  double loss[STEPS];
  float weights[4000];
  int64_t count;
};

static void train(struct run *run) {
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  struct sl_model *m = language_model(run->window, run->dropout);
  OK(sl_tokens_new("text", text, TOKENS, run->window, WORDS, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = run->batch, .contiguous = true},
                   &loader));
  const struct sl_optimizer optimizer = {.lr = 4, .clip = 5, .momentum = run->momentum};
  OK(sl_trainer_new(m, &optimizer, NULL, &run->options, &trainer));
  for (int s = 0; s < STEPS; s++) {
    OK(sl_trainer_step(trainer, loader, &report, &reported));
    if (reported) run->loss[report.step] = report.loss;
  }
  for (reported = true; reported;) {
    OK(sl_trainer_drain(trainer, &report, &reported));
    if (reported) run->loss[report.step] = report.loss;
    if (reported) assert_int_equal(report.samples, run->batch * run->window);
  }
  sl_trainer_free(trainer);
  run->count = 0;
  for (int i = 0; i < sl_model_parameter_count(m); i++) {
    struct sl_shape shape;
    const char *name = sl_model_parameter(m, i, &shape);
    OK(sl_model_get(m, name, run->weights + run->count));
    run->count += sl_shape_count(&shape);
    assert_true(run->count <= 4000);
  }
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

static void assert_same_curve(const struct run *run, const struct run *serial, const char *what) {
  for (int s = 0; s < STEPS; s++)
    if (fabs(run->loss[s] - serial->loss[s]) > 1e-5 * serial->loss[s])
      fail_msg("%s, step %d: loss %.9g, serial %.9g", what, s, run->loss[s], serial->loss[s]);
}

/* Any cut of the batch, with the state carried on and dropout. */
static void any_cut_gives_the_serial_curve(void **state) {
  (void)state;
  static struct run serial, run;
  const struct run base = {
      .window = 7, .batch = 12, .dropout = 0.3f, .options = {.replicas = 1, .carry_state = true}};
  serial = base;
  train(&serial);
  assert_true(serial.loss[STEPS - 1] < 0.75 * serial.loss[0]);
  for (int replicas = 1; replicas <= 4; replicas++)
    for (int microbatches = 1; microbatches <= 3; microbatches++) {
      run = base;
      run.options.replicas = replicas;
      run.options.microbatches = microbatches;
      train(&run);
      assert_same_curve(&run, &serial, "cut");
    }
}

/* The embedding's gradient has the touched rows only; a momentum of nearly nothing wants it dense:
 * the same curve, cut into shards within rows, too. */
static void touched_rows_are_enough(void **state) {
  (void)state;
  static struct run sparse, dense;
  for (int replicas = 1; replicas <= 3; replicas++)
    for (int cut = 0; cut < 2; cut++) {
      sparse = (struct run){.window = 7,
                            .batch = 12,
                            .options = {.replicas = replicas,
                                        .microbatches = 2,
                                        .big_shard = cut ? 13 : 0,
                                        .kvstore = cut ? SL_KVSTORE_DEVICE : SL_KVSTORE_LOCAL}};
      dense = sparse;
      dense.momentum = 1e-20f;
      train(&sparse);
      train(&dense);
      assert_same_curve(&sparse, &dense, "rows");
      for (int64_t i = 0; i < sparse.count; i++)
        assert_true(fabsf(sparse.weights[i] - dense.weights[i]) < 1e-4f);
    }
}

/* Plain descent with weight decay: a row of the embedding that no token touches shrinks. */
static void weight_decay_reaches_all_rows(void **state) {
  (void)state;
  enum { USED = 5 };
  const float lr = 0.5f, decay = 0.25f;
  int32_t few[61];
  float before[4000], after[4000];
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  struct sl_model *m = language_model(6, 0);
  for (int i = 0; i < 61; i++) few[i] = text[i] % USED;
  OK(sl_model_get(m, "embed.weight", before));
  OK(sl_tokens_new("few", few, 61, 6, WORDS, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 5, .contiguous = true}, &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){.lr = lr, .weight_decay = decay}, NULL,
                    &(struct sl_trainer_options){.replicas = 2}, &trainer));
  OK(sl_trainer_step(trainer, loader, &report, &reported));
  OK(sl_trainer_drain(trainer, &report, &reported));
  OK(sl_model_get(m, "embed.weight", after));
  for (int i = USED * 6; i < WORDS * 6; i++)
    assert_float_equal(after[i], before[i] * (1 - lr * decay), 1e-6);
  sl_trainer_free(trainer);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

/* Chunks along time, even and uneven, of one step up to all, with replicas and microbatches; a
 * chunk of all steps is none, to the bit. */
static void any_chunk_gives_the_serial_curve(void **state) {
  (void)state;
  static const int64_t chunks[] = {1, 2, 3, 4, 6, 7, 100};
  static struct run serial, run;
  const struct run base = {
      .window = 7, .batch = 12, .dropout = 0.3f, .options = {.replicas = 1, .carry_state = true}};
  serial = base;
  train(&serial);
  for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
    for (int replicas = 1; replicas <= 3; replicas += 2) {
      run = base;
      run.options.chunk = chunks[i];
      run.options.replicas = replicas;
      run.options.microbatches = 1 + (int)i % 2;
      train(&run);
      assert_same_curve(&run, &serial, "chunks");
      if (chunks[i] >= 7 && replicas == 1 && run.options.microbatches == 1)
        assert_memory_equal(run.weights, serial.weights, (size_t)run.count * sizeof(float));
    }
}

static bool same_weights(const struct run *a, const struct run *b) {
  return a->count == b->count &&
         !memcmp(a->weights, b->weights, (size_t)a->count * sizeof *a->weights);
}

/* Where no chunk is asked for, a batch of one slice is cut into two halves of its time steps, so
 * that layers overlap; short sequences and other numbers of slices are not. */
static void one_slice_is_halved(void **state) {
  (void)state;
  static const struct {
    int64_t window, want;
    struct sl_trainer_options options;
  } cases[] = {{20, 10, {.replicas = 1, .carry_state = true}},
               {17, 9, {.replicas = 1, .stages = 2, .eager = true}},
               {15, 15, {.replicas = 1}},
               {20, 20, {.replicas = 2}},
               {20, 20, {.replicas = 1, .microbatches = 2}}};
  static struct run chosen, given, other;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t window = cases[i].window, want = cases[i].want, half = (window + 1) / 2;
    chosen =
        (struct run){.window = window, .batch = 6, .dropout = 0.3f, .options = cases[i].options};
    given = other = chosen;
    given.options.chunk = want;
    other.options.chunk = want == half ? window : half;
    train(&chosen);
    train(&given);
    train(&other);
    assert_true(same_weights(&chosen, &given));
    assert_false(same_weights(&chosen, &other)); /* else the comparison would prove nothing */
    assert_same_curve(&chosen, &other, "halves");
  }
}

/* Layers on devices of their own: the same bits. */
static void any_placement_gives_the_same_bits(void **state) {
  (void)state;
  static const int stages[] = {2, 4, 5};
  static struct run flat, staged;
  for (int replicas = 1; replicas <= 2; replicas++) {
    const struct run base = {.window = 7,
                             .batch = 12,
                             .dropout = 0.3f,
                             .options = {.replicas = replicas,
                                         .microbatches = 4 - replicas,
                                         .chunk = 2 * replicas,
                                         .carry_state = true}};
    flat = base;
    train(&flat);
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
      staged = base;
      staged.options.stages = stages[i];
      staged.options.kvstore = SL_KVSTORE_DEVICE;
      train(&staged);
      assert_memory_equal(staged.weights, flat.weights, (size_t)flat.count * sizeof(float));
    }
  }
}

static double evaluate(struct sl_model *m, int64_t window, int64_t batch, bool contiguous,
                       const struct sl_trainer_options *options) {
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  double loss, accuracy;
  OK(sl_tokens_new("text", text, TOKENS, window, WORDS, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = batch, .contiguous = contiguous},
                   &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL, options, &trainer));
  OK(sl_trainer_evaluate(trainer, loader, &loss, &accuracy));
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  sl_dataset_free(data);
  return loss;
}

/* Weights from one model to another of the same names. */
static void copy_weights(struct sl_model *from, struct sl_model *to) {
  float values[4000];
  for (int i = 0; i < sl_model_parameter_count(from); i++) {
    const char *name = sl_model_parameter(from, i, NULL);
    OK(sl_model_get(from, name, values));
    OK(sl_model_set(to, name, values));
  }
}

/* 1,200 tokens in 4 runs of 300: windows of 5 with the state carried on are one window of 300. */
static void a_carried_state_is_one_long_window(void **state) {
  (void)state;
  struct sl_model *narrow = language_model(5, 0), *wide = language_model(300, 0);
  copy_weights(narrow, wide);
  double whole = evaluate(wide, 300, 4, true, &(struct sl_trainer_options){.replicas = 2});
  double carried = evaluate(narrow, 5, 4, true,
                            &(struct sl_trainer_options){.replicas = 2, .carry_state = true});
  double reset = evaluate(narrow, 5, 4, true, &(struct sl_trainer_options){.replicas = 2});
  if (fabs(carried - whole) > 1e-6 * whole) fail_msg("carried %.9g, whole %.9g", carried, whole);
  double chunked =
      evaluate(wide, 300, 4, true, &(struct sl_trainer_options){.replicas = 2, .chunk = 16});
  assert_true(fabs(chunked - whole) <= 1e-6 * whole);
  assert_true(fabs(reset - whole) > 1e-4 * whole);
  sl_model_free(narrow);
  sl_model_free(wide);
}

/* A loader that stands within its epoch: there is no state to go on from, so it is zero. */
static void a_late_start_begins_with_zeros(void **state) {
  (void)state;
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  struct sl_batch batch;
  bool reported;
  double loss[2];
  for (int carry = 0; carry < 2; carry++) {
    struct sl_model *m = language_model(5, 0);
    OK(sl_tokens_new("text", text, TOKENS, 5, WORDS, &data));
    OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 4, .contiguous = true}, &loader));
    OK(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL,
                      &(struct sl_trainer_options){.carry_state = carry}, &trainer));
    OK(sl_loader_next(loader, &batch));
    sl_loader_recycle(loader, batch.slot);
    OK(sl_trainer_step(trainer, loader, &report, &reported));
    OK(sl_trainer_drain(trainer, &report, &reported));
    loss[carry] = report.loss;
    sl_trainer_free(trainer);
    sl_model_free(m);
    sl_loader_free(loader);
    sl_dataset_free(data);
  }
  assert_true(loss[0] == loss[1]);
}

struct carried {
  struct sl_dataset *data;
  struct sl_loader *loader, *test;
  struct sl_model *model;
  struct sl_trainer *trainer;
};

static struct carried carried_new(void) {
  struct carried c = {.model = language_model(5, 0)};
  const struct sl_loader_options rows = {.batch = 4, .contiguous = true};
  OK(sl_tokens_new("text", text, TOKENS, 5, WORDS, &c.data));
  OK(sl_loader_new(c.data, &rows, &c.loader));
  OK(sl_loader_new(c.data, &rows, &c.test));
  OK(sl_trainer_new(c.model, &(struct sl_optimizer){.lr = 1}, NULL,
                    &(struct sl_trainer_options){.replicas = 2, .carry_state = true}, &c.trainer));
  return c;
}

static void carried_free(struct carried *c) {
  sl_trainer_free(c->trainer);
  sl_model_free(c->model);
  sl_loader_free(c->loader);
  sl_loader_free(c->test);
  sl_dataset_free(c->data);
}

/* Losses of some steps, from the trainer's place on. */
static void carried_steps(struct carried *c, int steps, double *loss) {
  struct sl_report report;
  bool reported = true;
  int64_t from = sl_trainer_position(c->trainer).step;
  for (int s = 0; s < steps; s++) {
    OK(sl_trainer_step(c->trainer, c->loader, &report, &reported));
    if (reported) loss[report.step - from] = report.loss;
  }
  for (reported = true; reported;) {
    OK(sl_trainer_drain(c->trainer, &report, &reported));
    if (reported) loss[report.step - from] = report.loss;
  }
}

/* An evaluation between two steps has a state of its own. It begins with zeros, also on a loader
 * that stands within its epoch, and the training goes on with the state that its last batch left:
 * the same bits as without the evaluation. */
static void an_evaluation_has_a_state_of_its_own(void **state) {
  (void)state;
  enum { BEFORE = 7, AFTER = 5, AT = 20 };
  double plain[BEFORE + AFTER], disturbed[BEFORE + AFTER], loss[2], accuracy[2];
  struct carried whole = carried_new(), c = carried_new(), fresh = carried_new();
  carried_steps(&whole, BEFORE + AFTER, plain);
  carried_steps(&c, BEFORE, disturbed);
  copy_weights(c.model, fresh.model);
  OK(sl_loader_seek_batch(c.test, 0, AT));
  OK(sl_loader_seek_batch(fresh.test, 0, AT));
  OK(sl_trainer_evaluate(c.trainer, c.test, &loss[0], &accuracy[0]));
  OK(sl_trainer_evaluate(fresh.trainer, fresh.test, &loss[1], &accuracy[1]));
  assert_true(loss[0] == loss[1] && accuracy[0] == accuracy[1]);
  carried_steps(&c, AFTER, disturbed + BEFORE);
  assert_memory_equal(plain, disturbed, sizeof plain);
  carried_free(&whole);
  carried_free(&c);
  carried_free(&fresh);
}

/* One step of plain SGD tells the gradient: its slope along itself is that of the loss. */
static void gradients_match_finite_differences(void **state) {
  (void)state;
  const float h = 1e-2f, lr = 1e-3f;
  struct sl_model *m = language_model(6, 0), *moved = language_model(6, 0);
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  copy_weights(m, moved);
  OK(sl_tokens_new("text", text, 6 * 8 + 1, 6, WORDS, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 8, .contiguous = true}, &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){.lr = lr}, NULL,
                    &(struct sl_trainer_options){.replicas = 2, .microbatches = 2}, &trainer));
  OK(sl_trainer_step(trainer, loader, &report, &reported));
  OK(sl_trainer_drain(trainer, &report, &reported));
  sl_trainer_free(trainer);
  OK(sl_loader_seek(loader, 0));
  static float before[4000], after[4000], probe[4000];
  for (int i = 0; i < sl_model_parameter_count(m); i++) {
    struct sl_shape shape;
    const char *name = sl_model_parameter(m, i, &shape);
    int64_t n = sl_shape_count(&shape);
    double square = 0, side[2];
    OK(sl_model_get(moved, name, before));
    OK(sl_model_get(m, name, after));
    for (int64_t k = 0; k < n; k++) {
      after[k] = (before[k] - after[k]) / lr; /* the gradient */
      square += (double)after[k] * (double)after[k];
    }
    double norm = sqrt(square);
    assert_true(norm > 1e-6);
    for (int s = 0; s < 2; s++) {
      double accuracy;
      for (int64_t k = 0; k < n; k++) probe[k] = before[k] + (s ? h : -h) * after[k] / (float)norm;
      OK(sl_model_set(moved, name, probe));
      OK(sl_trainer_new(moved, &(struct sl_optimizer){0}, NULL,
                        &(struct sl_trainer_options){.replicas = 1}, &trainer));
      OK(sl_trainer_evaluate(trainer, loader, &side[s], &accuracy));
      sl_trainer_free(trainer);
      OK(sl_loader_seek(loader, 0));
    }
    OK(sl_model_set(moved, name, before));
    double slope = (side[1] - side[0]) / (2 * (double)h);
    if (fabs(slope - norm) > 0.01 * norm + 1e-4)
      fail_msg("%s: slope %.6g by differences, %.6g by the gradient", name, slope, norm);
  }
  sl_model_free(m);
  sl_model_free(moved);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

/* ---- the loader ----------------------------------------------------------------------------- */

static void contiguous_rows_go_on(void **state) {
  (void)state;
  struct sl_dataset *data;
  OK(sl_tokens_new("text", text, 103, 5, WORDS, &data)); /* 20 samples */
  assert_int_equal(sl_dataset_info(data)->count, 20);
  for (int64_t parts = 1; parts <= 2; parts++)
    for (int64_t part = 0; part < parts; part++) {
      struct sl_loader *loader;
      struct sl_batch b;
      OK(sl_loader_new(data,
                       &(struct sl_loader_options){
                           .batch = 3, .contiguous = true, .num_parts = parts, .part_index = part},
                       &loader));
      int64_t run = 20 / (3 * parts);
      assert_int_equal(sl_loader_length(loader), run);
      for (int64_t k = 0; k < 2 * run; k++) {
        OK(sl_loader_next(loader, &b));
        assert_null(b.x);
        assert_int_equal(b.valid, 15);
        assert_int_equal(b.index, k % run);
        for (int64_t r = 0; r < 3; r++) {
          const int32_t *want = text + ((part * 3 + r) * run + k % run) * 5;
          assert_memory_equal(b.tokens + 5 * r, want, 5 * sizeof *want);
          assert_memory_equal(b.labels + 5 * r, want + 1, 5 * sizeof *want);
        }
        sl_loader_recycle(loader, b.slot);
      }
      sl_loader_free(loader);
    }
  sl_dataset_free(data);
}

/* Windows in shuffled order; the last batch is short, its spare rows count nowhere. */
static void windows_can_be_shuffled(void **state) {
  (void)state;
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_batch b;
  bool seen[20] = {false};
  int32_t numbers[101];
  for (int i = 0; i < 101; i++) numbers[i] = i;
  OK(sl_tokens_new("numbers", numbers, 101, 5, 101, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 8, .shuffle = true, .seed = 3},
                   &loader));
  assert_int_equal(sl_loader_length(loader), 3);
  for (int k = 0; k < 3; k++) {
    OK(sl_loader_next(loader, &b));
    assert_int_equal(b.valid, k < 2 ? 40 : 20);
    for (int64_t r = 0; r < 8; r++) {
      int32_t first = b.tokens[5 * r];
      assert_int_equal(first % 5, 0);
      for (int32_t s = 0; s < 5; s++) {
        assert_int_equal(b.tokens[5 * r + s], first + s);
        assert_int_equal(b.labels[5 * r + s], 5 * r < b.valid ? first + s + 1 : SL_IGNORE);
      }
      if (5 * r < b.valid) {
        assert_false(seen[first / 5]);
        seen[first / 5] = true;
      }
    }
    sl_loader_recycle(loader, b.slot);
  }
  sl_loader_free(loader);
  sl_dataset_free(data);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  struct sl_dataset *data, *images;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  int32_t outside[] = {0, 1, 2, 11, 4};
  assert_int_equal(sl_tokens_new("t", text, 5, 5, WORDS, &data), SL_BAD_ARGUMENT);
  assert_int_equal(sl_tokens_new("t", text, 5, 0, WORDS, &data), SL_BAD_ARGUMENT);
  assert_int_equal(sl_tokens_new("t", outside, 5, 2, WORDS, &data), SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "token 3 is 11"));
  OK(sl_tokens_new("t", text, 101, 5, WORDS, &data));
  assert_int_equal(
      sl_loader_new(data, &(struct sl_loader_options){.batch = 21, .contiguous = true}, &loader),
      SL_BAD_ARGUMENT);
  assert_int_equal(
      sl_loader_new(data,
                    &(struct sl_loader_options){.batch = 2, .contiguous = true, .shuffle = true},
                    &loader),
      SL_BAD_ARGUMENT);
  OK(sl_digits_new(40, 1, true, &images));
  assert_int_equal(
      sl_loader_new(images, &(struct sl_loader_options){.batch = 2, .contiguous = true}, &loader),
      SL_BAD_ARGUMENT);
  float values[5];
  int32_t label;
  assert_int_equal(sl_dataset_get(data, 0, values, &label), SL_UNSUPPORTED);

  /* a text of other windows; images where tokens are taken; a model that ends in a state */
  struct sl_model *m = language_model(6, 0);
  OK(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL, NULL, &trainer));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 8}, &loader));
  assert_int_equal(sl_trainer_step(trainer, loader, &report, &reported), SL_BAD_SHAPE);
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  sl_model_free(m);
  OK(sl_model_new(context, &SL_SHAPE(5), &m));
  assert_int_equal(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = 3}), SL_BAD_SHAPE);
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 4, .features = 6}));
  assert_int_equal(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = 0}), SL_BAD_ARGUMENT);
  OK(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = 3}));
  OK(sl_dense(m, "out", &(struct sl_dense_options){.features = 4}));
  assert_int_equal(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL, NULL, &trainer),
                   SL_BAD_SHAPE);
  assert_non_null(strstr(sl_error(), "positions"));
  sl_model_free(m);
  OK(sl_model_new(context, &SL_SHAPE(28, 28), &m)); /* numbers, not tokens */
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 4}));
  assert_int_equal(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL,
                                  &(struct sl_trainer_options){.chunk = 2}, &trainer),
                   SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "chunks: only models of tokens"));
  assert_null(strstr(sl_error(), "layer fc"));
  assert_int_equal(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL,
                                  &(struct sl_trainer_options){.chunk = -1}, &trainer),
                   SL_BAD_ARGUMENT);
  sl_model_free(m);
  sl_dataset_free(data);
  sl_dataset_free(images);
}

int main(void) {
  setenv("STARPU_NCPU", "4", 0);
  setenv("STARPU_WORKERS_NOBIND", "1", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(any_cut_gives_the_serial_curve),
                                     cmocka_unit_test(touched_rows_are_enough),
                                     cmocka_unit_test(weight_decay_reaches_all_rows),
                                     cmocka_unit_test(any_chunk_gives_the_serial_curve),
                                     cmocka_unit_test(one_slice_is_halved),
                                     cmocka_unit_test(any_placement_gives_the_same_bits),
                                     cmocka_unit_test(a_carried_state_is_one_long_window),
                                     cmocka_unit_test(a_late_start_begins_with_zeros),
                                     cmocka_unit_test(an_evaluation_has_a_state_of_its_own),
                                     cmocka_unit_test(gradients_match_finite_differences),
                                     cmocka_unit_test(contiguous_rows_go_on),
                                     cmocka_unit_test(windows_can_be_shuffled),
                                     cmocka_unit_test(what_does_not_fit_is_refused)};
  return cmocka_run_group_tests_name("sequence", tests, open_text, close_context);
}
