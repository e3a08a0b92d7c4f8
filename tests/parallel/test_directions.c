/* Recurrent layers in both directions, and with their last state as output, in a whole training.
 * Reference: the same network of one-way layers, flips, slices and concatenations with the same
 * weights; and what a layer that needs the whole sample must refuse. */
#include <math.h>

#include "core/base/random.h"
#include "tests/common/small_model.h"
#include "tests/common/training.h"

enum { COUNT = 24, T = 7, IN = 3, H = 5, CLASSES = 4, STEPS = 12 };

static float samples[COUNT * T * IN];
static int32_t labels[COUNT];

static int make_samples(void **state) {
  for (int i = 0; i < COUNT * T * IN; i++) samples[i] = 2 * sl__uniform(3, 1, (uint64_t)i) - 1;
  for (int n = 0; n < COUNT; n++) labels[n] = (int32_t)(n % CLASSES);
  return open_context(state);
}

static void add_cell(struct sl_model *m, bool lstm, const char *name, const char *from, bool both,
                     bool last) {
  const struct sl_layer_options layer = {.inputs = from};
  if (lstm)
    OK(sl_lstm(m, name,
               &(struct sl_lstm_options){
                   .layer = layer, .features = H, .bidirectional = both, .last = last}));
  else
    OK(sl_gru(m, name,
              &(struct sl_gru_options){
                  .layer = layer, .features = H, .bidirectional = both, .last = last}));
}

static void add_slice(struct sl_model *m, const char *name, const char *from, int64_t step) {
  OK(sl_slice(
      m, name,
      &(struct sl_slice_options){.axis = 0, .first = step, .count = 1, .layer.inputs = from}));
}

/* both: two directions, all steps, of which a second layer gives the last states. */
static struct sl_model *whole(bool lstm) {
  struct sl_model *m = new_model(SL_SHAPE(T, IN));
  add_cell(m, lstm, "both", NULL, true, false);
  add_cell(m, lstm, "last", NULL, true, true);
  add_dense(m, "fc", CLASSES, SL_INIT_DEFAULT);
  OK(sl_model_build(m));
  return m;
}

static struct sl_model *parts(bool lstm) {
  struct sl_model *m = new_model(SL_SHAPE(T, IN));
  add_cell(m, lstm, "both", "input", false, false);
  OK(sl_flip(m, "turned", &(struct sl_flip_options){.layer.inputs = "input"}));
  add_cell(m, lstm, "both_back", "turned", false, false);
  OK(sl_flip(m, "back", &(struct sl_flip_options){.layer.inputs = "both_back"}));
  OK(sl_concatenate(m, "pair",
                    &(struct sl_concatenate_options){.axis = 1, .layer.inputs = "both,back"}));
  add_cell(m, lstm, "last", "pair", false, false);
  OK(sl_flip(m, "turned2", &(struct sl_flip_options){.layer.inputs = "pair"}));
  add_cell(m, lstm, "last_back", "turned2", false, false);
  add_slice(m, "end", "last", T - 1);
  add_slice(m, "first", "last_back", T - 1);
  OK(sl_concatenate(m, "ends",
                    &(struct sl_concatenate_options){.axis = 1, .layer.inputs = "end,first"}));
  add_dense(m, "fc", CLASSES, SL_INIT_DEFAULT);
  OK(sl_model_build(m));
  return m;
}

/* "both.bias_ih_l0_reverse" is "both_back.bias_ih_l0" there. */
static void name_there(const char *name, char there[96]) {
  const char *dot = strchr(name, '.'), *tail = strstr(name, "_reverse");
  if (tail)
    snprintf(there, 96, "%.*s_back%.*s", (int)(dot - name), name, (int)(tail - dot), dot);
  else
    snprintf(there, 96, "%s", name);
}

static void copy_weights(struct sl_model *from, struct sl_model *to) {
  char there[96];
  for (int i = 0; i < sl_model_parameter_count(from); i++) {
    struct sl_shape shape;
    const char *name = sl_model_parameter(from, i, &shape);
    float *values = get_values(from, name);
    name_there(name, there);
    OK(sl_model_set(to, there, values));
    free(values);
  }
}

static void train(struct sl_model *m, const struct sl_trainer_options *options) {
  struct sl_dataset *set;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  const struct sl_dataset_options description = {
      .name = "frames", .sample = SL_SHAPE(T, IN), .count = COUNT, .classes = CLASSES};
  OK(sl_dataset_floats(&description, samples, NULL, labels, false, &set));
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = 12}, &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){.lr = 0.3f}, NULL, options, &trainer));
  take_steps(trainer, loader, STEPS, NULL);
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  sl_dataset_free(set);
}

static void assert_same_weights(struct sl_model *m, struct sl_model *other) {
  char there[96];
  for (int i = 0; i < sl_model_parameter_count(m); i++) {
    struct sl_shape shape;
    const char *name = sl_model_parameter(m, i, &shape);
    name_there(name, there);
    float *a = get_values(m, name), *b = get_values(other, there);
    for (int64_t k = 0; k < sl_shape_count(&shape); k++)
      if (!(fabsf(a[k] - b[k]) < 2e-5f))
        fail_msg("%s [%lld]: %.9g, of parts %.9g", name, (long long)k, (double)a[k], (double)b[k]);
    free(a), free(b);
  }
}

static void both_directions_train_as_their_parts(void **state) {
  (void)state;
  const struct sl_trainer_options ways[] = {
      {.replicas = 1}, {.replicas = 2, .microbatches = 2}, {.replicas = 1, .eager = true}};
  for (int lstm = 0; lstm < 2; lstm++)
    for (int w = 0; w < 3; w++) {
      struct sl_model *m = whole(lstm), *other = parts(lstm);
      copy_weights(m, other);
      float *before = get_values(m, "last.weight_hh_l0_reverse");
      train(m, &ways[w]);
      train(other, &(struct sl_trainer_options){.replicas = 1});
      assert_same_weights(m, other);
      float *after = get_values(m, "last.weight_hh_l0_reverse");
      assert_true(fabsf(before[0] - after[0]) > 1e-4f);
      free(before), free(after);
      sl_model_free(m);
      sl_model_free(other);
    }
}

/* One sample alone goes by the kernels for few rows. */
static void answers_do_not_depend_on_the_batch(void **state) {
  (void)state;
  for (int lstm = 0; lstm < 2; lstm++) {
    static float all[COUNT * CLASSES], one[CLASSES];
    struct sl_model *m = whole(lstm);
    struct sl_predictor *predictor;
    OK(sl_predictor_open(m, NULL, &predictor));
    OK(sl_predict(predictor, samples, COUNT, all));
    for (int n = 0; n < COUNT; n++) {
      OK(sl_predict(predictor, samples + n * T * IN, 1, one));
      for (int c = 0; c < CLASSES; c++) assert_true(fabsf(one[c] - all[n * CLASSES + c]) < 1e-6f);
    }
    sl_predictor_free(predictor);
    sl_model_free(m);
  }
}

/* A model of tokens whose second layer has these options. */
static struct sl_model *words(const struct sl_gru_options *options) {
  struct sl_model *m = new_model(SL_SHAPE(4));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 9, .features = 6}));
  OK(sl_gru(m, "gru", options));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 9, .positions = true}));
  OK(sl_model_build(m));
  return m;
}

static void a_cut_in_time_is_refused(void **state) {
  (void)state;
  const int32_t tokens[33] = {0};
  const struct sl_gru_options ways[] = {{.features = 4, .bidirectional = true},
                                        {.features = 4, .reverse = true}};
  for (int w = 0; w < 2; w++) {
    struct sl_trainer *trainer;
    struct sl_model *m = words(&ways[w]);
    FAILS(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL,
                         &(struct sl_trainer_options){.chunk = 2}, &trainer),
          SL_BAD_ARGUMENT, "layer gru (gru) needs a whole sample");
    FAILS(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL,
                         &(struct sl_trainer_options){.carry_state = true}, &trainer),
          SL_BAD_ARGUMENT, "carry_state: layer gru (gru)");
    int32_t text[4];
    FAILS(
        sl_generate(m, &(struct sl_generate_options){.prompt = tokens, .prompt_count = 1}, 4, text),
        SL_BAD_ARGUMENT, "layer gru (gru) needs a whole sample");
    sl_model_free(m);
  }
}

static void contradictions_are_refused(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(T, IN));
  FAILS(sl_lstm(m, "a",
                &(struct sl_lstm_options){.features = 2, .bidirectional = true, .reverse = true}),
        SL_BAD_ARGUMENT, "bidirectional and reverse");
  FAILS(sl_gru(m, "a",
               &(struct sl_gru_options){.features = 2, .bidirectional = true, .reverse = true}),
        SL_BAD_ARGUMENT, "bidirectional and reverse");
  sl_model_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(both_directions_train_as_their_parts),
                                     cmocka_unit_test(answers_do_not_depend_on_the_batch),
                                     cmocka_unit_test(a_cut_in_time_is_refused),
                                     cmocka_unit_test(contradictions_are_refused)};
  return cmocka_run_group_tests_name("directions", tests, make_samples, close_context);
}
