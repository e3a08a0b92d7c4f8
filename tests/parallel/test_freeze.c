/* Frozen layers, and rates and decays by layer: what is frozen, that no backward work is left for
 * it, that its values stay to the bit; the same bits with every kind of trainer; checkpoints. */
#include "core/runtime/dry_run.h"
#include "core/runtime/tensor.h"
#include "parallel/params/model_shards.h"
#include "parallel/step/plan.h"
#include "tests/common/files.h"
#include "tests/common/small_model.h"
#include "tests/common/training.h"

enum { SAMPLES = 96, PIXELS = 64, BATCH = 16, STEPS = 5, CLASSES = 3, WORDS = 9 };

static struct sl_dataset *images, *words;

static int open_data(void **state) {
  static uint8_t bytes[SAMPLES * PIXELS];
  static int32_t labels[SAMPLES];
  static int32_t text[400];
  if (folder_setup(state) || open_context(state)) return 1;
  for (int i = 0; i < SAMPLES; i++) labels[i] = i * 7 % CLASSES;
  for (int i = 0; i < SAMPLES * PIXELS; i++)
    bytes[i] = (uint8_t)(i * 37 % 101 + 50 * labels[i / PIXELS]);
  for (int i = 0; i < 400; i++) text[i] = i * i % WORDS;
  OK(sl_dataset_new("images", &SL_SHAPE(1, 8, 8), SAMPLES, CLASSES, bytes, labels, NULL, NULL,
                    &images));
  OK(sl_tokens_new("words", text, 400, 5, WORDS, &words));
  return 0;
}

static int close_data(void **state) {
  sl_dataset_free(images);
  sl_dataset_free(words);
  return close_context(state) || folder_teardown(state);
}

static struct sl_model *network(void) {
  struct sl_model *m = new_model(SL_SHAPE(1, 8, 8));
  const struct sl_conv2d_options conv = {
      .layer.group = "bottom", .channels = 3, .kernel_h = 3, .activation = SL_ACTIVATION_RELU};
  OK(sl_conv2d(m, "conv1", &conv));
  OK(sl_maxpool2d(m, "pool1", &(struct sl_pool2d_options){.kernel_h = 2}));
  OK(sl_conv2d(m, "conv2", &(struct sl_conv2d_options){.channels = 4, .kernel_h = 2}));
  OK(sl_batchnorm(m, "bn2", &(struct sl_batchnorm_options){.momentum = 0.3f}));
  OK(sl_activate(m, "relu2", &(struct sl_activation_options){.activation = SL_ACTIVATION_RELU}));
  OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.5f}));
  OK(sl_dense(m, "fc1", &(struct sl_dense_options){.layer.group = "top1", .features = 6}));
  OK(sl_dense(m, "fc2", &(struct sl_dense_options){.layer.group = "top2", .features = CLASSES}));
  return m;
}

static struct sl_model *tied_words(void) {
  struct sl_model *m = new_model(SL_SHAPE(5));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 4}));
  OK(sl_gru(m, "gru", &(struct sl_gru_options){.features = 4}));
  OK(sl_dense(
      m, "decoder",
      &(struct sl_dense_options){.layer.shares = "embed", .features = WORDS, .positions = true}));
  return m;
}

/* ---- training ---- */

/* `settings` of a model, before its trainer is made. */
struct settings {
  const char *freeze, *rates, *decays, *placement;
  bool weights_only;
};

static void set(struct sl_model *m, struct settings s) {
  OK(sl_freeze(m, s.freeze));
  OK(sl_group_rate(m, s.rates));
  OK(sl_group_decay(m, s.decays));
  OK(sl_decay_weights_only(m, s.weights_only));
  if (s.placement) OK(sl_place(m, s.placement));
}

static void train(struct sl_model *m, const struct sl_dataset *data,
                  const struct sl_optimizer *optimizer, const struct sl_trainer_options *options,
                  int steps) {
  struct sl_loader *loader;
  struct sl_trainer *t;
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = BATCH}, &loader));
  OK(sl_trainer_new(m, optimizer, NULL, options, &t));
  take_steps(t, loader, steps, NULL);
  sl_trainer_free(t);
  sl_loader_free(loader);
}

static bool is_same(struct sl_model *a, struct sl_model *b, const char *parameter) {
  float *x = get_values(a, parameter), *y = get_values(b, parameter);
  bool same = !memcmp(x, y, (size_t)value_count(a, parameter) * sizeof *x);
  free(x), free(y);
  return same;
}

static void assert_same(struct sl_model *a, struct sl_model *b) {
  for (int i = 0; i < sl_model_parameter_count(a); i++)
    if (!is_same(a, b, sl_model_parameter(a, i, NULL)))
      fail_msg("%s differs", sl_model_parameter(a, i, NULL));
}

/* Do the layer's parameters and buffers still have their first values? */
static void assert_kept(struct sl_model *trained, struct sl_model *start, const char *layers,
                        bool kept) {
  for (int i = 0; i < sl_model_parameter_count(trained); i++) {
    const char *name = sl_model_parameter(trained, i, NULL);
    size_t length = strcspn(name, ".");
    char layer[64];
    snprintf(layer, sizeof layer, "%.*s,", (int)length, name);
    if (strstr(layers, layer) && is_same(trained, start, name) != kept)
      fail_msg("%s has %schanged", name, kept ? "" : "not ");
  }
}

static const struct sl_optimizer adam = {.kind = SL_ADAM, .lr = 0.01f, .clip = 0.7f};
static const struct sl_optimizer momentum = {.lr = 0.1f, .momentum = 0.9f};

/* ---- cases ---- */

static void lists_are_read(void **state) {
  (void)state;
  struct sl_model *m = network();
  const struct {
    const char *list, *frozen;
  } good[] = {{"conv1", "conv1"},
              {"conv1-2", "conv1,conv2"},
              {"conv*", "conv1,conv2"},
              {"bottom, fc2", "conv1,fc2"},
              {"fc1-2,fc1", "fc1-2"},
              {"top1-2", "fc1-2"},
              {"*2,*o*1*", "conv1,pool1,conv2,bn2,relu2,fc2"},
              {"", NULL},
              {NULL, NULL}};
  const char *const bad[] = {"conv3",   "conv1-3",    "conv2-1", "x*",      "*x*",
                             "conv1*3", "conv1,,fc1", ",",       "conv1=2", "top1-3"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    OK(sl_freeze(m, good[i].list));
    if (good[i].frozen)
      assert_string_equal(sl_frozen(m), good[i].frozen);
    else
      assert_null(sl_frozen(m));
  }
  OK(sl_freeze(m, "pool1,fc1"));
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    FAILS(sl_freeze(m, bad[i]), SL_BAD_ARGUMENT, "freeze: ");
  assert_string_equal(sl_frozen(m), "pool1,fc1");
  sl_model_free(m);
}

static void shared_weights_are_frozen_together(void **state) {
  (void)state;
  const char *const either[] = {"embed", "decoder"};
  for (int i = 0; i < 2; i++) {
    struct sl_model *m = tied_words(), *start = tied_words();
    OK(sl_freeze(m, either[i]));
    assert_string_equal(sl_frozen(m), "embed,decoder");
    train(m, words, &momentum, &(struct sl_trainer_options){.replicas = 2, .chunk = 2}, STEPS);
    assert_kept(m, start, "embed,decoder,", true);
    assert_kept(m, start, "gru,", false);
    sl_model_free(m);
    sl_model_free(start);
  }
}

/* A table of rows has no gradient then, and the decoder above trains. */
static void an_embedding_is_frozen(void **state) {
  (void)state;
  struct sl_model *m[2];
  for (int i = 0; i < 2; i++) {
    m[i] = new_model(SL_SHAPE(5));
    OK(sl_embedding(m[i], "embed",
                    &(struct sl_embedding_options){.vocabulary = WORDS, .features = 4}));
    OK(sl_dense(m[i], "decoder", &(struct sl_dense_options){.features = WORDS, .positions = true}));
    OK(sl_freeze(m[i], "embed"));
  }
  train(m[0], words, &momentum, &(struct sl_trainer_options){.replicas = 2}, STEPS);
  assert_kept(m[0], m[1], "embed,", true);
  assert_kept(m[0], m[1], "decoder,", false);
  sl_model_free(m[0]);
  sl_model_free(m[1]);
}

static void bad_uses_are_refused(void **state) {
  (void)state;
  struct sl_model *m = network();
  struct sl_trainer *t;
  OK(sl_freeze(m, "*"));
  FAILS(sl_trainer_new(m, &momentum, NULL, NULL, &t), SL_BAD_ARGUMENT, "all layers");
  OK(sl_freeze(m, "conv1"));
  OK(sl_trainer_new(m, &momentum, NULL, NULL, &t));
  FAILS(sl_freeze(m, NULL), SL_BAD_ARGUMENT, "a trainer uses the model");
  FAILS(sl_group_rate(m, NULL), SL_BAD_ARGUMENT, "a trainer uses the model");
  FAILS(sl_group_decay(m, NULL), SL_BAD_ARGUMENT, "a trainer uses the model");
  FAILS(sl_decay_weights_only(m, true), SL_BAD_ARGUMENT, "a trainer uses the model");
  sl_trainer_free(t);
  OK(sl_freeze(m, NULL));
  const struct {
    const char *rules, *words;
  } bad[] = {{"fc1", "no factor"},          {"fc1=", "must be a number"},
             {"fc1=0", "must be a number"}, {"fc1=-1", "must be a"},
             {"fc1=nan", "must be a"},      {"fc1=2,fc*=3", "two factors"},
             {"fc9=2", "no layer"},         {"=2", "empty"},
             {"fc1=2,fc2", "no factor"},    {"fc1=1e9", "must be a"},
             {"fc1=2=3", "must be a"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    FAILS(sl_group_rate(m, bad[i].rules), SL_BAD_ARGUMENT, bad[i].words);
  OK(sl_group_decay(m, "fc1=0"));
  OK(sl_group_rate(m, " fc1 , conv* = 0.5 ; fc2=3, "));
  sl_model_free(m);
}

/* "half", y = x / 2: a kind without a backward pass. */
static enum sl_status infer_half(struct sl_layer_plan *plan) {
  plan->out = plan->in[0];
  return SL_OK;
}

static enum sl_status forward_half(struct sl_layer_task *task) {
  int64_t count = task->rows * sl_shape_count(&task->out);
  for (int64_t i = 0; i < count; i++) task->y[i] = task->x[0][i] / 2;
  return SL_OK;
}

static void inference_only_layers_may_stand_below(void **state) {
  (void)state;
  const struct sl_layer_kind half = {.version = SL_LAYER_VERSION,
                                     .name = "half",
                                     .options_size = sizeof(struct sl_layer_options),
                                     .infer = infer_half,
                                     .forward = forward_half};
  struct sl_trainer *t;
  struct sl_model *m = new_model(SL_SHAPE(1, 8, 8));
  OK(sl_layer_register(context, &half));
  add_dense(m, "fc1", 6, SL_INIT_DEFAULT);
  OK(sl_layer(m, "half", "half", &(struct sl_layer_options){0}));
  add_dense(m, "fc2", CLASSES, SL_INIT_DEFAULT);
  OK(sl_freeze(m, "half"));
  FAILS(sl_trainer_new(m, &momentum, NULL, NULL, &t), SL_UNSUPPORTED, "inference only");
  OK(sl_freeze(m, "fc1"));
  train(m, images, &momentum, &(struct sl_trainer_options){.replicas = 1}, STEPS);
  sl_model_free(m);
}

/* Tasks of a step by layer, from a dry run. */
static int count_tasks(struct sl_model *m, const char *layer, const char *operation) {
  struct sl__grid grid;
  struct sl__plan *plan;
  struct sl__model_shards *shards;
  struct sl__tensor *x, *labels;
  struct sl__dry_run run = {0};
  struct sl__loss loss;
  struct sl_optimizer optimizer = momentum;
  int count = 0;
  OK(sl_optimizer_check(&optimizer));
  OK(sl_model_build(m));
  OK(sl__grid_new(m, &(struct sl_trainer_options){.replicas = 1}, &grid));
  OK(sl__plan_new(m, &grid, BATCH, 0, true, &plan));
  OK(sl__model_shards_new(m, &optimizer, &(struct sl__model_shards_options){.big_shard = 1 << 20},
                          &grid, &shards));
  OK(sl__tensor_host(context, &SL_SHAPE(BATCH, 1, 8, 8), SL_F32, NULL, &x));
  OK(sl__tensor_host(context, &SL_SHAPE(BATCH), SL_I32, NULL, &labels));
  OK(sl__loss_begin(m, &(struct sl_loss){0}, &loss));
  const struct sl__step step = {.training = true,
                                .loss = &loss,
                                .scale = {1},
                                .x = x,
                                .labels = labels,
                                .grads = shards->grads,
                                .rows = shards->rows};
  OK(sl__dry_run_begin(context, &run));
  OK(sl__plan_submit(plan, &step));
  OK(sl__model_shards_update(shards, 0, 0.1f));
  sl__dry_run_end(context, &run);
  for (int i = 0; i < run.count; i++)
    count += run.tasks[i].name && !strcmp(run.tasks[i].name, layer) &&
             strstr(run.tasks[i].op->codelet.name, operation);
  free(run.tasks);
  sl__loss_end(&loss);
  sl__tensor_free(x);
  sl__tensor_free(labels);
  sl__plan_free(plan);
  sl__model_shards_free(shards);
  sl__grid_clear(&grid);
  return count;
}

static void frozen_layers_have_no_backward_work(void **state) {
  (void)state;
  struct sl_model *m = network();
  assert_int_equal(count_tasks(m, "conv1", ""), 3); /* forward, weight gradient, update */
  assert_int_equal(count_tasks(m, "pool1", "backward"), 2);
  OK(sl_freeze(m, "conv1,fc1"));
  assert_int_equal(count_tasks(m, "conv1", ""), 1);
  assert_int_equal(count_tasks(m, "pool1", ""), 1);
  assert_int_equal(count_tasks(m, "conv2", "backward"), 1); /* no gradient for pool1 */
  assert_int_equal(count_tasks(m, "conv2", "sgd"), 1);
  assert_int_equal(count_tasks(m, "fc1", "backward"), 1); /* the data's, for conv2 */
  assert_int_equal(count_tasks(m, "fc1", "sgd"), 0);
  OK(sl_freeze(m, "conv*,bn2,fc1"));
  assert_int_equal(count_tasks(m, "bn2", ""), 1);
  assert_int_equal(count_tasks(m, "fc1", ""), 1);
  assert_int_equal(count_tasks(m, "fc2", "backward"), 1);
  sl_model_free(m);
}

static void frozen_values_stay(void **state) {
  (void)state;
  struct sl_model *start = network(), *m = network();
  OK(sl_model_build(start));
  set(m, (struct settings){.freeze = "conv1,bn2"});
  train(m, images, &adam, &(struct sl_trainer_options){.replicas = 2}, STEPS);
  assert_kept(m, start, "conv1,bn2,", true);
  assert_kept(m, start, "conv2,fc1,fc2,", false);
  sl_model_free(m);
  sl_model_free(start);
}

/* Frozen dropout drops nothing: as a rate of 0. */
static void frozen_dropout_drops_nothing(void **state) {
  (void)state;
  struct sl_model *m[2];
  for (int i = 0; i < 2; i++) {
    m[i] = new_model(SL_SHAPE(1, 8, 8));
    add_dense(m[i], "fc1", 7, SL_INIT_DEFAULT);
    OK(sl_dropout(m[i], "drop", &(struct sl_dropout_options){.rate = i ? 0 : 0.5f}));
    add_dense(m[i], "fc2", CLASSES, SL_INIT_DEFAULT);
    if (!i) OK(sl_freeze(m[i], "drop"));
    train(m[i], images, &momentum, &(struct sl_trainer_options){.replicas = 1}, STEPS);
  }
  assert_same(m[0], m[1]);
  sl_model_free(m[0]);
  sl_model_free(m[1]);
}

/* With two replicas of two microbatches: captured or eager, on stages, with device owners, with cut
 * blocks. */
static void all_trainers_have_the_same_bits(void **state) {
  (void)state;
  const struct settings settings = {
      .freeze = "conv1,bn2", .rates = "fc2=4,conv2=0.25", .decays = "fc1=3", .weights_only = true};
  const struct sl_optimizer decaying = {.lr = 0.05f, .momentum = 0.9f, .weight_decay = 0.02f};
  struct sl_trainer_options options[5] = {{.eager = true},
                                          {.eager = false},
                                          {.eager = false},
                                          {.kvstore = SL_KVSTORE_DEVICE},
                                          {.big_shard = 17}};
  struct sl_model *first = NULL;
  for (int i = 0; i < 5; i++) {
    struct settings own = settings;
    struct sl_model *m = network();
    options[i].replicas = options[i].microbatches = 2;
    if (i == 2) own.placement = "conv1,pool1,conv2=any;bn2,relu2,drop,fc1-2=any";
    set(m, own);
    train(m, images, &decaying, &options[i], STEPS);
    if (first) assert_same(first, m);
    if (first) sl_model_free(m);
    if (!first) first = m;
  }
  sl_model_free(first);
}

static struct sl_model *trained(struct settings s, struct sl_optimizer optimizer, int steps) {
  struct sl_model *m = network();
  set(m, s);
  train(m, images, &optimizer, &(struct sl_trainer_options){.replicas = 1}, steps);
  return m;
}

static void assert_equal_trainings(struct settings a, struct sl_optimizer of_a, struct settings b,
                                   struct sl_optimizer of_b, const char *parameter, bool equal) {
  struct sl_model *one = trained(a, of_a, 1), *other = trained(b, of_b, 1);
  if (is_same(one, other, parameter) != equal)
    fail_msg("%s: %s", parameter, equal ? "differs" : "is the same");
  sl_model_free(one);
  sl_model_free(other);
}

static void factors_multiply_rates_and_decays(void **state) {
  (void)state;
  const struct sl_optimizer slow = {.lr = 0.125f, .weight_decay = 0.25f},
                            fast = {.lr = 0.25f, .weight_decay = 0.25f}, plain = {.lr = 0.125f},
                            stronger = {.lr = 0.125f, .weight_decay = 0.5f};
  const struct settings none = {0}, twice = {.rates = "*=2"}, decay2 = {.decays = "*=2"},
                        no_decay = {.decays = "fc*=0"}, only = {.weights_only = true};
  assert_equal_trainings(twice, slow, none, fast, "conv2.weight", true);
  assert_equal_trainings(decay2, slow, none, stronger, "fc1.weight", true);
  assert_equal_trainings(no_decay, slow, none, plain, "fc2.weight", true);
  assert_equal_trainings(no_decay, slow, none, plain, "conv1.weight", false);
  assert_equal_trainings(only, slow, none, plain, "fc1.bias", true);
  assert_equal_trainings(only, slow, none, plain, "bn2.weight", true);
  assert_equal_trainings(only, slow, none, plain, "fc1.weight", false);
  assert_equal_trainings(only, slow, none, slow, "fc1.weight", true);
  assert_equal_trainings(only, slow, none, slow, "fc1.bias", false);
}

static void check_resumed(struct sl_optimizer optimizer) {
  const struct settings settings = {.freeze = "conv1,bn2", .rates = "fc2=2"};
  const char *path = in_folder("checkpoint");
  struct sl_model *whole = network(), *m;
  struct sl_loader *loader;
  struct sl_trainer *t;
  set(whole, settings);
  train(whole, images, &optimizer, &(struct sl_trainer_options){.replicas = 2}, 2 * STEPS);
  for (int part = 0; part < 3; part++) {
    struct settings own = settings;
    if (part == 2) own.freeze = "conv1";
    m = network();
    set(m, own);
    OK(sl_loader_new(images, &(struct sl_loader_options){.batch = BATCH}, &loader));
    OK(sl_trainer_new(m, &optimizer, NULL, &(struct sl_trainer_options){.replicas = 2}, &t));
    if (part == 1) OK(sl_trainer_load(t, loader, path));
    if (part == 2)
      FAILS(sl_trainer_load(t, loader, path), SL_BAD_ARGUMENT,
            "frozen layers (conv1,bn2) than this trainer's (conv1)");
    if (part < 2) take_steps(t, loader, STEPS, NULL);
    if (part == 0) OK(sl_trainer_save(t, path));
    if (part == 1) assert_same(m, whole);
    sl_trainer_free(t);
    sl_loader_free(loader);
    sl_model_free(m);
  }
  sl_model_free(whole);
}

static void trainings_go_on_to_the_bit(void **state) {
  (void)state;
  const enum sl_optimizer_kind kinds[] = {SL_ADAM, SL_RMSPROP, SL_ADAGRAD, SL_LION, SL_LAMB};
  for (int i = 0; i < 5; i++)
    check_resumed((struct sl_optimizer){.kind = kinds[i], .weight_decay = 0.01f, .clip = 0.7f});
}

static void summaries_name_frozen_layers(void **state) {
  (void)state;
  struct sl_model *m = network();
  struct sl_trainer *t;
  char *text;
  OK(sl_freeze(m, "conv1-2"));
  OK(sl_model_summary(m, &text));
  assert_non_null(strstr(text, "conv2d, frozen"));
  assert_non_null(strstr(text, "MB of them frozen"));
  free(text);
  OK(sl_trainer_new(m, &momentum, NULL, NULL, &t));
  OK(sl_trainer_summary(t, &text));
  assert_non_null(strstr(text, "Frozen layers: conv1,conv2\n"));
  free(text);
  sl_trainer_free(t);
  sl_model_free(m);
}

static struct sl_model *to_freeze;
static enum sl_status freeze_once(void) { return sl_freeze(to_freeze, "conv1-2,bn*"); }
static enum sl_status rate_once(void) { return sl_group_rate(to_freeze, "conv1-2=2,bn*=3"); }

static void short_memory_is_reported(void **state) {
  (void)state;
  to_freeze = network();
  check_allocations(freeze_once);
  check_allocations(rate_once);
  sl_model_free(to_freeze);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(lists_are_read),
                                     cmocka_unit_test(shared_weights_are_frozen_together),
                                     cmocka_unit_test(an_embedding_is_frozen),
                                     cmocka_unit_test(bad_uses_are_refused),
                                     cmocka_unit_test(inference_only_layers_may_stand_below),
                                     cmocka_unit_test(frozen_layers_have_no_backward_work),
                                     cmocka_unit_test(frozen_values_stay),
                                     cmocka_unit_test(frozen_dropout_drops_nothing),
                                     cmocka_unit_test(all_trainers_have_the_same_bits),
                                     cmocka_unit_test(factors_multiply_rates_and_decays),
                                     cmocka_unit_test(trainings_go_on_to_the_bit),
                                     cmocka_unit_test(summaries_name_frozen_layers),
                                     cmocka_unit_test(short_memory_is_reported)};
  return cmocka_run_group_tests(tests, open_data, close_data);
}
