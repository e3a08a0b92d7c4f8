/* NULL where it is no legal value, for every pointer of every public function: refused, with a
 * message that names the argument, and nothing changes. NULL where it is legal: accepted. */
#include "tests/common/small_model.h"

#define CLASSES 4

static const struct sl_shape sample = {3, {1, 2, 2}};
static const struct sl_optimizer optimizer;
static float values[16], *floats = values;
static const float *const arrays[] = {values};
static int32_t tokens[16], *integers = tokens;
static uint8_t bytes[16];
static const struct sl_dataset_options set_options = {.name = "x"};
static const struct sl_weight_rule rules[] = {{"fc.weight", "x"}};
static enum sl_status fill_nothing(struct sl_fill *rows) {
  (void)rows;
  return SL_OK;
}

static struct sl_dataset *dataset;
static struct sl_loader *loader;
static struct sl_model *model, *open_model; /* built, and not */
static struct sl_trainer *trainer;
static struct sl_predictor *predictor;
static struct sl_kvstore *kvstore;
static struct sl_vocabulary *vocabulary;
static struct sl_tokenizer *tokenizer;
static const struct sl_tokenizer_options token_options = {.size = 256};

/* Where a call that is not refused would put its results. */
static struct {
  struct sl_dataset *dataset;
  struct sl_loader *loader;
  struct sl_model *model;
  struct sl_trainer *trainer;
  struct sl_predictor *predictor;
  struct sl_prediction *prediction;
  struct sl_evaluation *evaluation;
  struct sl_rate_search *search;
  struct sl_kvstore *kvstore;
  struct sl_vocabulary *vocabulary;
  struct sl_tokenizer *tokenizer;
  struct sl_optimizer optimizer;
  struct sl_shape shape;
  char *text, *table;
} made;

/* Clears the thread's message, so that an older one cannot pass for the call's. */
static void forget(void) { FAILS(sl_exchange_parse("?", &(enum sl_exchange){0}), 1, "?"); }

#define MESSAGE_NAMES(call, argument)                                                              \
  do {                                                                                             \
    if (*(argument) && (!strstr(sl_error(), "NULL") || !strstr(sl_error(), argument)))             \
      fail_msg("%s: \"%s\" names no argument '%s'", #call, sl_error(), argument);                  \
  } while (0)

#define REFUSED(call, argument)                                                                    \
  do {                                                                                             \
    forget();                                                                                      \
    FAILS(call, SL_BAD_ARGUMENT, "NULL");                                                          \
    MESSAGE_NAMES(call, argument);                                                                 \
  } while (0)
#define RETURNS(call, argument)                                                                    \
  do {                                                                                             \
    forget();                                                                                      \
    assert_true(call);                                                                             \
    MESSAGE_NAMES(call, argument);                                                                 \
  } while (0)
#define IGNORED(call, argument)                                                                    \
  do {                                                                                             \
    forget();                                                                                      \
    call;                                                                                          \
    MESSAGE_NAMES(call, argument);                                                                 \
  } while (0)
#define TEXT(call, argument) RETURNS(!strcmp(call, "?"), argument)

static void test_refused(void **state) {
  (void)state;
#include "tests/parallel/null_calls.def"
  static const char nothing[sizeof made];
  assert_memory_equal(&made, nothing, sizeof made);
}

static void test_legal(void **state) {
  (void)state;
  char text[32];
  int64_t count = 1;
  OK(sl_dataset_floats(
      &(struct sl_dataset_options){.name = "x", .sample = sample, .count = 1, .classes = CLASSES},
      values, NULL, tokens, false, &made.dataset));
  sl_dataset_free(made.dataset);
  sl_close(NULL);
  sl_dataset_free(NULL);
  sl_loader_free(NULL);
  sl_model_free(NULL);
  sl_trainer_free(NULL);
  sl_rate_search_free(NULL);
  sl_evaluation_free(NULL);
  sl_predictor_free(NULL);
  sl_vocabulary_free(NULL);
  sl_tokenizer_close(NULL);
  sl_leave(NULL, NULL);
  OK(sl_kvstore_close(NULL));
  OK(sl_predict_wait(NULL));
  OK(sl_share(context, SL_OK, NULL));
  OK(sl_broadcast(context, NULL, 0));
  sl_launched(NULL);
  assert_null(sl_shape_text(&sample, NULL, 0));
  assert_string_equal(sl_shape_text(NULL, text, sizeof text), "");
  assert_non_null(sl_model_parameter(model, 0, NULL));
  assert_int_equal(sl_vocabulary_find(vocabulary, NULL, 0), 0);
  OK(sl_vocabulary_encode(vocabulary, NULL, 0, &integers, &count));
  assert_int_equal(count, 0);
  free(integers);
  integers = tokens;
  OK(sl_grammar_new(1, true, 1, &made.text, &(size_t){0}, NULL));
  free(made.text);
  OK(sl_model_architecture(model, NULL, &made.text));
  free(made.text);
  OK(sl_dataset_new("x", &sample, 1, CLASSES, bytes, integers, NULL, NULL, &made.dataset));
  sl_dataset_free(made.dataset);
  OK(sl_file_write("test_null.empty", NULL, 0));
  OK(sl_trainer_settle(trainer, NULL));
}

static void test_names(void **state) {
  (void)state;
  assert_string_equal(sl_status_name(99), "?");
  assert_string_equal(sl_exchange_name(99), "?");
  assert_string_equal(sl_init_name(99), "?");
  assert_string_equal(sl_activation_name(99), "?");
  assert_string_equal(sl_kvstore_name(99), "?");
  assert_string_equal(sl_math_name(99), "?");
}

static void test_legal_in_plans(void **state) {
  (void)state;
  struct sl_trainer_options options = {.replicas = 1};
  add_dense(open_model, "fc1", CLASSES, SL_INIT_DEFAULT);
  OK(sl_freeze(open_model, NULL));
  struct sl_model *pair;
  OK(sl_model_new(context, &SL_SHAPE(4), &pair));
  OK(sl_swiglu(pair, "gate", NULL));
  sl_model_free(pair);
  OK(sl_group_rate(open_model, NULL));
  OK(sl_group_decay(open_model, NULL));
  OK(sl_place_auto(open_model, &optimizer, NULL, 8, NULL, NULL));
  struct sl_model *other = new_model(sample);
  add_dense(other, "fc1", CLASSES, SL_INIT_DEFAULT);
  /* refused for another reason: the context has no named devices */
  FAILS(sl_split_auto(other, &optimizer, &options, 8, &made.text, NULL), SL_BAD_ARGUMENT, "any");
  sl_model_free(other);
}

static void test_legal_in_trainings(void **state) {
  (void)state;
  struct sl_report report;
  bool reported;
  OK(sl_trainer_step(trainer, loader, &report, &reported));
  OK(sl_trainer_drain(trainer, &report, &reported));
  OK(sl_trainer_save_begin(trainer, "test_null.checkpoint", NULL));
  OK(sl_trainer_save_wait(trainer, NULL));
  assert_false(sl_trainer_save_ended(trainer, NULL));
  OK(sl_fit_check(NULL, &(struct sl_fit_options){.steps = 1}));
  OK(sl_fit(trainer, loader, NULL, NULL));
}

static void open_objects(void) {
  OK(sl_digits_new(8, 1, true, &dataset));
  OK(sl_loader_new(dataset, &(struct sl_loader_options){.batch = 4}, &loader));
  model = new_model(sl_dataset_info(dataset)->sample);
  add_dense(model, "fc1", 10, SL_INIT_DEFAULT);
  open_model = new_model(sample);
  OK(sl_trainer_new(model, &optimizer, NULL, NULL, &trainer));
  OK(sl_predictor_open(model, NULL, &predictor));
  OK(sl_kvstore_open(context, SL_KVSTORE_LOCAL, NULL, &kvstore));
  OK(sl_kvstore_init(kvstore, 1, 1, values));
  OK(sl_vocabulary_new(SL_TEXT_CHAR, "text", 4, 0, 0, &vocabulary));
  OK(sl_tokenizer_train(&token_options, &(const char *){"x"}, &(size_t){1}, 1, &tokenizer));
}

static int open_all(void **state) {
  (void)state;
  if (sl_open(NULL, &context) != SL_OK) return 1;
  open_objects();
  return 0;
}

static int close_all(void **state) {
  sl_vocabulary_free(vocabulary);
  sl_tokenizer_close(tokenizer);
  sl_predictor_free(predictor);
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_model_free(open_model);
  sl_loader_free(loader);
  sl_dataset_free(dataset);
  return sl_kvstore_close(kvstore) != SL_OK || close_context(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_legal),
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_legal_in_plans),
      cmocka_unit_test(test_legal_in_trainings),
  };
  return cmocka_run_group_tests(tests, open_all, close_all);
}
