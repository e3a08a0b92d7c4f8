/* Checkpoints. The reference is the undisturbed run: one that was saved, freed, made anew and
 * loaded must end with the same checkpoint file to the byte: weights, optimizer's state, place in
 * the data. A file that is damaged or of another training is refused, and nothing changes. */
#include <math.h>
#include <pthread.h>
#include <zlib.h>

#include "tests/common/files.h"

#include "core/base/random.h"
#include "core/runtime/context.h"
#include "parallel/train/manifest.h"
#include "tests/common/harness.h"

#define WORDS 7
#define TOKENS 1201

static int32_t text[TOKENS];

enum network { MLP, LENET, LANGUAGE };

/* A training; zero values are the plain ones. */
struct setup {
  enum network network;
  struct sl_optimizer optimizer;
  struct sl_trainer_options options;
  int64_t features;              /* of the first dense layer; 0: 20 */
  struct sl_loader_options data; /* batch 0: 24 */
  bool in_order;                 /* not shuffled, though nothing is shifted */
  struct sl_context *context;    /* NULL: the tests' */
};

struct training {
  struct sl_dataset *set;
  struct sl_loader *loader;
  struct sl_model *model;
  struct sl_trainer *trainer;
};

static void images_model(const struct setup *s, struct sl_model *m) {
  if (s->network == LENET) {
    OK(sl_conv2d(m, "conv1", &(struct sl_conv2d_options){.channels = 3, .kernel_h = 3}));
    OK(sl_batchnorm(m, "bn1", &(struct sl_batchnorm_options){0}));
    OK(sl_maxpool2d(m, "pool1", &(struct sl_pool2d_options){.kernel_h = 2}));
  }
  OK(sl_dense(m, "fc1",
              &(struct sl_dense_options){.features = s->features ? s->features : 20,
                                         .activation = SL_ACTIVATION_TANH}));
  OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.3f}));
  OK(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 10}));
}

static void language_model(struct sl_model *m) {
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 5}));
  OK(sl_lstm(m, "lstm0", &(struct sl_lstm_options){.features = 6}));
  OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.2f}));
  OK(sl_gru(m, "gru1", &(struct sl_gru_options){.features = 6}));
  OK(sl_dense(m, "decoder", &(struct sl_dense_options){.features = WORDS, .positions = true}));
}

static struct training begin(const struct setup *s) {
  struct training t;
  bool tokens = s->network == LANGUAGE;
  struct sl_loader_options data = s->data;
  if (!data.batch) data.batch = tokens ? 8 : 24;
  if (!data.seed) data.seed = 5;
  data.contiguous = tokens;
  data.shuffle = !tokens && !data.shift && !s->in_order;
  struct sl_trainer_options options = s->options;
  options.carry_state = tokens;
  struct sl_schedule schedule = {.warmup = 7};
  if (tokens)
    OK(sl_tokens_new("text", text, TOKENS, 12, WORDS, &t.set));
  else
    OK(sl_digits_new(200, 3, true, &t.set));
  OK(sl_loader_new(t.set, &data, &t.loader));
  OK(sl_model_new(s->context ? s->context : context, &sl_dataset_info(t.set)->sample, &t.model));
  if (tokens)
    language_model(t.model);
  else
    images_model(s, t.model);
  OK(sl_trainer_new(t.model, &s->optimizer, &schedule, &options, &t.trainer));
  return t;
}

static void end(struct training *t) {
  sl_trainer_free(t->trainer);
  sl_model_free(t->model);
  sl_loader_free(t->loader);
  sl_dataset_free(t->set);
}

/* The reports must count on from the trainer's own place. */
static void train(struct training *t, int steps) {
  int64_t next = sl_trainer_position(t->trainer).step, last = next + steps;
  struct sl_report report;
  bool reported = true;
  for (int s = 0; s < steps; s++) {
    OK(sl_trainer_step(t->trainer, t->loader, &report, &reported));
    if (reported) assert_int_equal(report.step, next++);
  }
  while (reported || next < last) {
    OK(sl_trainer_drain(t->trainer, &report, &reported));
    if (reported) assert_int_equal(report.step, next++);
  }
  assert_int_equal(next, last);
  assert_int_equal(sl_trainer_position(t->trainer).step, last);
}

static uint8_t *bytes_of(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  rewind(file);
  uint8_t *bytes = malloc(*size);
  assert_int_equal(fread(bytes, 1, *size, file), *size);
  fclose(file);
  return bytes;
}

static void assert_same_file(const char *a, const char *b) {
  size_t size, other;
  uint8_t *x = bytes_of(a, &size), *y = bytes_of(b, &other);
  assert_int_equal(size, other);
  assert_memory_equal(x, y, size);
  free(x);
  free(y);
}

static const char *saved(struct training *t, const char *name) {
  const char *path = in_folder(name);
  OK(sl_trainer_save(t->trainer, path));
  return path;
}

/* ---- going on ---- */

static const struct sl_optimizer plain = {.lr = 0.05f},
                                 momentum = {.lr = 0.05f, .momentum = 0.9f, .clip = 1},
                                 adam = {.kind = SL_ADAM},
                                 adamw = {.kind = SL_ADAMW, .weight_decay = 0.01f},
                                 lamb = {.kind = SL_LAMB,
                                         .weight_decay = 0.01f,
                                         .clip = 1,
                                         .average = 0.9f};

/* 200 samples are 9 batches of 24, the text 12 of 8; 23 steps end in the third, or second, epoch.
 */
static void go_on_to_the_bit(const struct setup *s) {
  enum { STEPS = 23 };
  static const int stops[] = {1, 9, 12, 13, 20};
  struct training whole = begin(s);
  train(&whole, STEPS);
  saved(&whole, "whole");
  for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
    struct training first = begin(s), second = begin(s);
    train(&first, stops[i]);
    saved(&first, "stop");
    end(&first);
    OK(sl_trainer_load(second.trainer, second.loader, in_folder("stop")));
    assert_same_file(saved(&second, "again"), in_folder("stop"));
    train(&second, STEPS - stops[i]);
    assert_same_file(saved(&second, "end"), in_folder("whole"));
    end(&second);
  }
  end(&whole);
}

static void images_go_on_to_the_bit(void **state) {
  (void)state;
  const struct setup setups[] = {
      {MLP, .optimizer = plain},
      {MLP, .optimizer = adam, .options = {.big_shard = 1000, .replicas = 3}},
      {MLP, .optimizer = adam, .data = {.shift = 2}}, /* augmented, and in the files' order */
      {MLP, .optimizer = plain, .data = {.contrast = 0.5f, .brightness = 0.2f}},
      {LENET, .optimizer = momentum, .options = {.big_shard = 100, .kvstore = SL_KVSTORE_DEVICE}},
      {LENET, .optimizer = adamw, .options = {.microbatches = 2, .replicas = 2}},
      {LENET, .optimizer = lamb, .options = {.big_shard = 100, .replicas = 2}}};
  for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) go_on_to_the_bit(&setups[i]);
}

/* Plain descent and the others take different ways for the embedding's gradient. */
static void texts_go_on_to_the_bit(void **state) {
  (void)state;
  const struct setup setups[] = {
      {LANGUAGE, .optimizer = {.lr = 1, .clip = 0.5f}, .options = {.replicas = 2}},
      {LANGUAGE, .optimizer = momentum, .options = {.replicas = 3, .chunk = 5, .big_shard = 20}},
      {LANGUAGE, .optimizer = adam, .options = {.replicas = 2, .microbatches = 2}}};
  for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) go_on_to_the_bit(&setups[i]);
}

/* Else the tests above would prove nothing. */
static void weights_alone_do_not_go_on(void **state) {
  (void)state;
  struct setup s = {MLP, .optimizer = momentum};
  struct training whole = begin(&s), resumed = begin(&s);
  train(&whole, 5);
  OK(sl_model_save(whole.model, in_folder("weights")));
  train(&whole, 5);
  OK(sl_model_load(resumed.model, in_folder("weights")));
  OK(sl_loader_seek_batch(resumed.loader, 0, 5));
  train(&resumed, 5);
  float a[200], b[200];
  OK(sl_model_get(whole.model, "fc2.weight", a));
  OK(sl_model_get(resumed.model, "fc2.weight", b));
  assert_memory_not_equal(a, b, sizeof a);
  end(&resumed);
  end(&whole);
}

/* A checkpoint is of the training, not of its cut: into other shards, slices and owners and out
 * again it is the same to the byte. */
static void other_cuts_load(void **state) {
  (void)state;
  const struct setup from[] = {
      {LENET, .optimizer = adam, .options = {.replicas = 3, .big_shard = 100}},
      {LANGUAGE, .optimizer = momentum, .options = {.replicas = 3, .big_shard = 20}}};
  for (size_t i = 0; i < 2; i++) {
    struct setup s = from[i];
    struct training t = begin(&s);
    train(&t, 14);
    saved(&t, "one");
    end(&t);
    const struct sl_trainer_options others[] = {
        {.replicas = 1},
        {.replicas = 2, .microbatches = 2, .big_shard = 37},
        {.replicas = 4, .kvstore = SL_KVSTORE_DEVICE, .big_shard = 64}};
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
      s.options = others[k];
      t = begin(&s);
      OK(sl_trainer_load(t.trainer, t.loader, in_folder("one")));
      assert_same_file(saved(&t, "other"), in_folder("one"));
      train(&t, 12);
      end(&t);
    }
  }
}

/* Into a trainer that was elsewhere before. */
static void a_used_trainer_loads(void **state) {
  (void)state;
  struct setup s = {LANGUAGE, .optimizer = adam, .options = {.replicas = 2}};
  struct training t = begin(&s);
  train(&t, 5);
  saved(&t, "five");
  train(&t, 9);
  saved(&t, "fourteen");
  OK(sl_trainer_load(t.trainer, t.loader, in_folder("five")));
  train(&t, 9);
  assert_same_file(saved(&t, "end"), in_folder("fourteen"));
  end(&t);
}

/* ---- in the background ---- */

static struct training bystander(const struct setup *s);

/* Holds the writer until it is let go; then it fails, if it is to. */
struct gate {
  pthread_mutex_t lock;
  pthread_cond_t moved;
  bool reached, open;
  enum sl_status status;
  struct sl_saved saved;
};

static enum sl_status wait_at_gate(void *user, const struct sl_saved *saved) {
  struct gate *gate = user;
  pthread_mutex_lock(&gate->lock);
  gate->saved = *saved;
  gate->reached = true;
  pthread_cond_broadcast(&gate->moved);
  while (!gate->open) pthread_cond_wait(&gate->moved, &gate->lock);
  pthread_mutex_unlock(&gate->lock);
  return gate->status == SL_OK ? SL_OK : sl__fail(gate->status, "the gate is shut");
}

static void reach_gate(struct gate *gate) {
  pthread_mutex_lock(&gate->lock);
  while (!gate->reached) pthread_cond_wait(&gate->moved, &gate->lock);
  pthread_mutex_unlock(&gate->lock);
}

static void open_gate(struct gate *gate) {
  pthread_mutex_lock(&gate->lock);
  gate->open = true;
  pthread_cond_broadcast(&gate->moved);
  pthread_mutex_unlock(&gate->lock);
}

#define GATE(...)                                                                                  \
  { .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER, __VA_ARGS__ }

/* While it is written the training goes on, for as long as it takes; what is written is the state
 * at the call. */
static void training_goes_on_meanwhile(void **state) {
  (void)state;
  const struct setup setups[] = {{MLP, .optimizer = adam, .options = {.replicas = 2}},
                                 {LANGUAGE, .optimizer = momentum, .options = {.replicas = 2}}};
  for (size_t i = 0; i < 2; i++) {
    struct training t = begin(&setups[i]), same = begin(&setups[i]);
    struct gate gate = GATE(0);
    struct sl_saved what;
    uint64_t bytes, hash;
    train(&t, 3);
    train(&same, 3);
    OK(sl_trainer_save_begin(t.trainer, in_folder("slow"),
                             &(struct sl_save_options){.committed = wait_at_gate, .user = &gate}));
    train(&t, 5);
    reach_gate(&gate);
    train(&t, 4);
    assert_false(sl_trainer_save_ended(t.trainer, &what));
    open_gate(&gate);
    OK(sl_trainer_save_wait(t.trainer, &what));
    assert_int_equal(what.position.step, 3);
    assert_same_file(in_folder("slow"), saved(&same, "quick"));
    OK(sl_file_sum(in_folder("slow"), &bytes, &hash));
    assert_true(bytes == what.bytes && hash == what.xxh64 && hash == gate.saved.xxh64);
    assert_false(sl_trainer_save_ended(t.trainer, &what)); /* told already */
    OK(sl_trainer_save_wait(t.trainer, &what));
    assert_int_equal(what.position.step, 0);
    train(&same, 9);
    assert_same_file(saved(&t, "end"), saved(&same, "other end"));
    end(&same);
    end(&t);
  }
}

/* A failure of the writer's is told once, by whichever call comes next; then all goes on. */
static void late_failures_are_told(void **state) {
  (void)state;
  struct setup s = {MLP, .optimizer = plain};
  struct training t = bystander(&s);
  struct gate gate = GATE(.open = true, .status = SL_IO);
  const struct sl_save_options shut = {.committed = wait_at_gate, .user = &gate};
  const char *nowhere = in_folder("no/folder");
  struct sl_saved saved;
  OK(sl_trainer_save_begin(t.trainer, nowhere, NULL));
  train(&t, 1);
  FAILS(sl_trainer_save_wait(t.trainer, &saved), SL_IO, "its folder does not exist");
  assert_string_equal(saved.message, sl_error());
  assert_int_equal(saved.position.step, 2);
  OK(sl_trainer_save_begin(t.trainer, nowhere, NULL));
  FAILS(sl_trainer_save_begin(t.trainer, in_folder("good"), NULL), SL_IO, "no/folder");
  assert_int_equal(access(in_folder("good"), F_OK), -1);
  OK(sl_trainer_save_begin(t.trainer, nowhere, NULL));
  while (!sl_trainer_save_ended(t.trainer, &saved)) usleep(1000);
  assert_int_equal(saved.status, SL_IO);
  OK(sl_trainer_save_begin(t.trainer, in_folder("good"), &shut));
  FAILS(sl_trainer_save(t.trainer, in_folder("good")), SL_IO, "the gate is shut");
  OK(sl_trainer_save(t.trainer, in_folder("good")));
  OK(sl_trainer_save_begin(t.trainer, in_folder("last"), NULL));
  end(&t); /* waits */
  assert_same_file(in_folder("good"), in_folder("last"));
}

static void options_are_kept(void **state) {
  (void)state;
  static const char text[] = "{\"batch\":24,\"data\":\"d\\u00e4ta \\\"x\\\"\"}";
  struct setup s = {MLP, .optimizer = plain};
  struct training t = bystander(&s);
  char own[sizeof text];
  memcpy(own, text, sizeof text);
  OK(sl_trainer_save_begin(t.trainer, in_folder("with"),
                           &(struct sl_save_options){.options = own}));
  memset(own, 0, sizeof own); /* a copy was made */
  OK(sl_trainer_load(t.trainer, t.loader, in_folder("with")));
  assert_string_equal(sl_trainer_loaded_options(t.trainer), text);
  OK(sl_trainer_load(t.trainer, t.loader, in_folder("bystander")));
  assert_null(sl_trainer_loaded_options(t.trainer));
  end(&t);
}

static void wishes_are_reported(void **state) {
  (void)state;
  struct setup s = {MLP, .optimizer = plain};
  struct training t = begin(&s);
  struct sl_report report = {0};
  bool reported = true;
  sl_trainer_ask_save(t.trainer);
  while (!report.save) OK(sl_trainer_step(t.trainer, t.loader, &report, &reported));
  while (reported) OK(sl_trainer_drain(t.trainer, &report, &reported));
  saved(&t, "wish");
  OK(sl_trainer_step(t.trainer, t.loader, &report, &reported));
  OK(sl_trainer_drain(t.trainer, &report, &reported));
  assert_true(reported && !report.save);
  OK(sl_trainer_drain(t.trainer, &report, &reported));
  end(&t);
}

/* ---- the place in the data ---- */

static void assert_place(const struct setup *s, const char *path, int64_t epoch, int64_t index) {
  struct training t = begin(s);
  struct sl_batch batch;
  OK(sl_trainer_load(t.trainer, t.loader, path));
  struct sl_position at = sl_trainer_position(t.trainer);
  OK(sl_loader_next(t.loader, &batch));
  assert_int_equal(at.epoch, epoch);
  assert_int_equal(at.index, index);
  assert_int_equal(batch.epoch, epoch);
  assert_int_equal(batch.index, index);
  end(&t);
}

static void other_batches_find_the_place(void **state) {
  (void)state;
  struct setup s = {MLP, .optimizer = plain};
  struct training t = begin(&s);
  train(&t, 9);
  saved(&t, "epoch");
  train(&t, 3);
  saved(&t, "midst"); /* 72 samples into the second epoch */
  end(&t);
  assert_place(&s, in_folder("epoch"), 1, 0);
  assert_place(&s, in_folder("midst"), 1, 3);
  s.data = (struct sl_loader_options){.batch = 12, .num_parts = 2, .part_index = 1};
  assert_place(&s, in_folder("midst"), 1, 3);
  s.data = (struct sl_loader_options){.batch = 36};
  assert_place(&s, in_folder("midst"), 1, 2);
  s.data = (struct sl_loader_options){.batch = 48};
  assert_place(&s, in_folder("midst"), 1, 1);
  s.data = (struct sl_loader_options){.batch = 200};
  assert_place(&s, in_folder("midst"), 1, 0);
}

static void texts_need_the_same_batch(void **state) {
  (void)state;
  struct setup s = {LANGUAGE, .optimizer = plain};
  struct training t = begin(&s);
  train(&t, 3);
  saved(&t, "midst");
  train(&t, 9);
  saved(&t, "epoch");
  end(&t);
  s.data.batch = 10;
  t = begin(&s);
  FAILS(sl_trainer_load(t.trainer, t.loader, in_folder("midst")), SL_BAD_ARGUMENT,
        "batches of 8, but the loader's batches are of 10");
  OK(sl_trainer_load(t.trainer, t.loader, in_folder("epoch")));
  train(&t, 3);
  end(&t);
}

/* ---- refusals ---- */

/* A training some steps on, and what its checkpoint is then. */
static struct training bystander(const struct setup *s) {
  struct training t = begin(s);
  train(&t, 2);
  saved(&t, "bystander");
  return t;
}

static void assert_unchanged(struct training *t) {
  assert_same_file(saved(t, "after"), in_folder("bystander"));
}

/* Loading must fail so, and change nothing; the training can go on. */
static void assert_refused(const struct setup *s, const char *name, enum sl_status expected,
                           const char *words) {
  struct training t = bystander(s);
  FAILS(sl_trainer_load(t.trainer, t.loader, in_folder(name)), expected, words);
  assert_non_null(strstr(sl_error(), name));
  assert_unchanged(&t);
  train(&t, 2);
  end(&t);
}

static void other_trainings_are_refused(void **state) {
  (void)state;
  struct setup s = {MLP, .optimizer = momentum}, other = s;
  struct training t = begin(&s);
  train(&t, 4);
  saved(&t, "other");
  end(&t);
  other.features = 21;
  assert_refused(&other, "other", SL_BAD_SHAPE,
                 "another model, which has layer fc1 (weight [20, 784]) where this one has layer "
                 "fc1 (weight [21, 784])");
  other = s;
  other.network = LENET;
  assert_refused(
      &other, "other", SL_BAD_SHAPE,
      "layer fc1 (weight [20, 784]) where this one has layer conv1 (weight [3, 1, 3, 3])");
  other = s;
  other.optimizer = plain;
  assert_refused(&other, "other", SL_BAD_ARGUMENT,
                 "by sgd with momentum, this trainer's optimizer is sgd");
  other.optimizer = adam;
  assert_refused(&other, "other", SL_BAD_ARGUMENT, "optimizer is adam");
  other = s;
  other.data.seed = 6;
  assert_refused(&other, "other", SL_BAD_ARGUMENT, "another order (seed 5");
  other.data = (struct sl_loader_options){.shift = 1};
  assert_refused(&other, "other", SL_BAD_ARGUMENT, "shuffle 1");
  other = s;
  other.in_order = true;
  assert_refused(&other, "other", SL_BAD_ARGUMENT, "shuffle 1, contiguous 0, shift 0, flip 0");
  other = s;
  other.data.flip = true;
  assert_refused(&other, "other", SL_BAD_ARGUMENT, "the loader has (seed 5, shuffle 1");
  other = s;
  other.data.contrast = 0.25f;
  assert_refused(&other, "other", SL_BAD_ARGUMENT, "buckets 0, colours 0 0.25 0 0)");
  other = s;
  other.data.crop_h = other.data.crop_w = 28; /* the whole picture, but drawn */
  other.data.crop_random = true;
  assert_refused(&other, "other", SL_BAD_ARGUMENT, "buckets 0, crop 28x28)");
  other = s;
  OK(sl_open(&(struct sl_context_options){.seed = 8}, &other.context));
  assert_refused(&other, "other", SL_BAD_ARGUMENT, "with seed 7, this run has 8");
  sl_close(other.context);
  s.network = LENET;
  t = begin(&s);
  train(&t, 1);
  saved(&t, "other");
  OK(sl_model_save(t.model, in_folder("weights")));
  end(&t);
  s.network = MLP;
  assert_refused(&s, "other", SL_BAD_SHAPE, "where this one has layer fc1 (weight [20, 784])");
  assert_refused(&s, "weights", SL_BAD_FILE, "is not a checkpoint");
  assert_refused(&s, "nowhere", SL_IO, "nowhere");
}

/* Two trainings that differ in how far images are shifted, and in nothing else. */
static void other_shifts_are_refused(void **state) {
  (void)state;
  struct setup s = {MLP, .optimizer = plain, .data = {.shift = 1}};
  struct training t = begin(&s);
  train(&t, 3);
  saved(&t, "other");
  end(&t);
  s.data.shift = 2;
  assert_refused(&s, "other", SL_BAD_ARGUMENT, "shift 1");
}

/* A higher version, too, is damage if the CRC says so. */
static void any_bit_of_the_version(struct training *t, uint8_t *bytes, size_t size) {
  static const char key[] = "\"version\":\"";
  uint8_t *digit = bytes + 8 + sizeof key - 1;
  while (memcmp(digit - sizeof key + 1, key, sizeof key - 1) != 0)
    assert_true(++digit < bytes + size);
  for (int bit = 0; bit < 8; bit++) {
    *digit ^= (uint8_t)(1 << bit);
    FAILS(sl_trainer_load(t->trainer, t->loader, put("flip", bytes, size)), SL_BAD_FILE, "flip");
    *digit ^= (uint8_t)(1 << bit);
  }
}

static void damaged_files_are_refused(void **state) {
  (void)state;
  /* not f32, and with options, so that the metadata have all that there can be */
  const struct setup s = {MLP, .optimizer = adam, .features = 2, .options.math = SL_MATH_BF16};
  struct training t = bystander(&s);
  size_t size, length;
  train(&t, 1);
  OK(sl_trainer_save_begin(t.trainer, in_folder("good"),
                           &(struct sl_save_options){.options = "{\"batch\": 24}"}));
  OK(sl_trainer_save_wait(t.trainer, NULL));
  uint8_t *bytes = bytes_of(in_folder("good"), &size);
  OK(sl_trainer_load(t.trainer, t.loader, in_folder("bystander")));
  memcpy(&length, bytes, 8);
  for (size_t cut = 0; cut < size; cut += cut < 8 + length ? 7 : 401)
    FAILS(sl_trainer_load(t.trainer, t.loader, put("cut", bytes, cut)), SL_BAD_FILE, "cut");
  FAILS(sl_trainer_load(t.trainer, t.loader, put("cut", bytes, size - 1)), SL_BAD_FILE, "cut");
  /* every byte of the header and some of the data; the data's are for the CRC alone to see */
  for (size_t at = 0; at < size; at += at < 8 + length ? 1 : 397) {
    bytes[at] ^= 1;
    enum sl_status status = sl_trainer_load(t.trainer, t.loader, put("flip", bytes, size));
    if (status == SL_OK) fail_msg("byte %zu of %zu may be flipped", at, size);
    /* as of a damaged file, so that a run goes on from an older one */
    if (status != SL_BAD_FILE) fail_msg("byte %zu of %zu: %s", at, size, sl_error());
    if (at >= 8 + length) FAILS(status, SL_BAD_FILE, "its CRC-32 is");
    bytes[at] ^= 1;
  }
  any_bit_of_the_version(&t, bytes, size);
  assert_unchanged(&t);
  OK(sl_trainer_load(t.trainer, t.loader, put("whole", bytes, size)));
  free(bytes);
  end(&t);
}

/* A file of before there was a CRC of the tensors' names and shapes; and a whole one of a later
 * version is refused as that. */
static void older_files_are_read(void **state) {
  (void)state;
  const struct setup s = {MLP, .optimizer = adam};
  struct training t = begin(&s);
  struct sl__safetensors *file;
  struct sl__manifest manifest;
  const char *metadata[SL__MANIFEST_METADATA];
  struct sl__safetensors_entry entries[64];
  char crc[16];
  size_t size;
  train(&t, 1);
  OK(sl__safetensors_open(saved(&t, "new"), &file));
  OK(sl__manifest_read(file, &manifest));
  assert_int_equal(strlen(manifest.tensors), 8);
  *manifest.tensors = '\0';
  const void *data = sl__safetensors_data(file, &size);
  for (size_t i = 0; i < sl__safetensors_count(file); i++)
    entries[i] = *sl__safetensors_at(file, i);
  for (int is_newer = 0; is_newer < 2; is_newer++) {
    if (is_newer) strcpy(manifest.text[1], "9"); /* the format's version */
    snprintf(crc, sizeof crc, "%08lx", crc32_z(sl__manifest_crc(&manifest), data, size));
    sl__manifest_metadata(&manifest, crc, metadata);
    OK(sl__safetensors_write(in_folder(is_newer ? "newer" : "old"), entries,
                             sl__safetensors_count(file), metadata, NULL));
  }
  sl__safetensors_close(file);
  OK(sl_trainer_load(t.trainer, t.loader, in_folder("old")));
  FAILS(sl_trainer_load(t.trainer, t.loader, in_folder("newer")), SL_UNSUPPORTED, "version 9");
  assert_same_file(saved(&t, "again"), in_folder("new"));
  end(&t);
}

static char logged[1000];
static void keep_line(void *user, enum sl_level level, const char *line) {
  (void)user, (void)level;
  snprintf(logged, sizeof logged, "%s", line);
}

/* A checkpoint of another StarPU goes on, with a warning; one of this StarPU without. */
static void other_builds_are_reported(void **state) {
  (void)state;
  struct setup s = {MLP, .optimizer = plain};
  OK(sl_open(&(struct sl_context_options){.seed = 7, .log = keep_line}, &s.context));
  struct training t = begin(&s);
  char version[sizeof s.context->version];
  train(&t, 1);
  memcpy(version, s.context->version, sizeof version);
  saved(&t, "same");
  strcpy(s.context->version, "0.0.0");
  saved(&t, "elsewhere");
  memcpy(s.context->version, version, sizeof version);
  logged[0] = '\0';
  OK(sl_trainer_load(t.trainer, t.loader, in_folder("same")));
  assert_string_equal(logged, "");
  OK(sl_trainer_load(t.trainer, t.loader, in_folder("elsewhere")));
  assert_non_null(strstr(logged, "StarPU 0.0.0"));
  assert_non_null(strstr(logged, version));
  end(&t);
  sl_close(s.context);
}

static void wrong_moments_are_refused(void **state) {
  (void)state;
  struct setup s = {MLP, .optimizer = plain};
  struct training t = begin(&s);
  struct sl_report report;
  bool reported;
  const char *path = in_folder("early");
  FAILS(sl_trainer_save(t.trainer, path), SL_BAD_ARGUMENT, "no step was made");
  OK(sl_trainer_step(t.trainer, t.loader, &report, &reported));
  FAILS(sl_trainer_save(t.trainer, path), SL_BAD_ARGUMENT, "sl_trainer_drain");
  FAILS(sl_trainer_load(t.trainer, t.loader, path), SL_BAD_ARGUMENT, "sl_trainer_drain");
  OK(sl_trainer_drain(t.trainer, &report, &reported));
  assert_int_equal(access(path, F_OK), -1);
  float bias[10] = {0, 0, 0, HUGE_VALF};
  OK(sl_model_set(t.model, "fc2.bias", bias));
  FAILS(sl_trainer_save(t.trainer, path), SL_NOT_FINITE, "value 3 of fc2.bias");
  assert_int_equal(access(path, F_OK), -1);
  end(&t);
}

/* A batch that is out keeps the loader where it is. */
static void batches_out_are_refused(void **state) {
  (void)state;
  struct setup s = {MLP, .optimizer = plain};
  struct training t = bystander(&s);
  struct sl_batch batch;
  train(&t, 3);
  saved(&t, "five");
  OK(sl_trainer_load(t.trainer, t.loader, in_folder("bystander")));
  OK(sl_loader_next(t.loader, &batch));
  FAILS(sl_trainer_load(t.trainer, t.loader, in_folder("five")), SL_BAD_ARGUMENT, "still out");
  assert_unchanged(&t);
  sl_loader_recycle(t.loader, batch.slot);
  end(&t);
}

static struct training *allocating;
static enum sl_status save_once(void) {
  return sl_trainer_save(allocating->trainer, in_folder("memory"));
}
static enum sl_status load_once(void) {
  return sl_trainer_load(allocating->trainer, allocating->loader, in_folder("memory"));
}

static void exhausted_memory_is_reported(void **state) {
  (void)state;
  const struct setup s = {LANGUAGE, .optimizer = adam, .options = {.replicas = 2}};
  struct training t = begin(&s), fresh = begin(&s);
  train(&t, 3);
  allocating = &t;
  check_allocations(save_once);
  allocating = &fresh;
  check_allocations(load_once);
  assert_same_file(saved(&fresh, "after"), in_folder("memory"));
  end(&fresh);
  end(&t);
}

static int setup(void **state) {
  for (int i = 1; i < TOKENS; i++) {
    struct sl__random4 r = sl__philox(4, 4, (uint64_t)i);
    text[i] = r.v[0] % 4 ? (text[i - 1] * 3 + 1) % WORDS : (int32_t)(r.v[1] % WORDS);
  }
  setenv("STARPU_NCPU", "2", 0);
  return open_context_with(&(struct sl_context_options){.seed = 7}) || folder_setup(state);
}

static int teardown(void **state) {
  sl_close(context);
  return folder_teardown(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(images_go_on_to_the_bit),    cmocka_unit_test(texts_go_on_to_the_bit),
      cmocka_unit_test(weights_alone_do_not_go_on), cmocka_unit_test(other_cuts_load),
      cmocka_unit_test(training_goes_on_meanwhile), cmocka_unit_test(late_failures_are_told),
      cmocka_unit_test(options_are_kept),           cmocka_unit_test(wishes_are_reported),
      cmocka_unit_test(a_used_trainer_loads),       cmocka_unit_test(other_batches_find_the_place),
      cmocka_unit_test(texts_need_the_same_batch),  cmocka_unit_test(other_trainings_are_refused),
      cmocka_unit_test(other_shifts_are_refused),   cmocka_unit_test(damaged_files_are_refused),
      cmocka_unit_test(older_files_are_read),       cmocka_unit_test(wrong_moments_are_refused),
      cmocka_unit_test(batches_out_are_refused),    cmocka_unit_test(exhausted_memory_is_reported),
      cmocka_unit_test(other_builds_are_reported)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
