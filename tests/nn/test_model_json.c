/* Saved models: what is written reads back as the same model, whatever its layers; what is damaged,
 * strange or newer is refused with the layer's and the key's name, and nothing leaks. */
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "tests/common/many_kinds.h"

static char folder[] = "/tmp/starling_architecture_XXXXXX";

static const char *in_folder(const char *name) {
  static char path[2][128];
  static int turn;
  turn = !turn;
  snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
  return path[turn];
}

/* ---- models with every kind of layer and every option ---- */

static struct sl_model *images(void) {
  struct sl_model *m = new_model(SL_SHAPE(3, 12, 10));
  OK(sl_conv2d(m, "conv1",
               &(struct sl_conv2d_options){.channels = 4,
                                           .kernel_h = 3,
                                           .kernel_w = 5,
                                           .stride_h = 2,
                                           .stride_w = 1,
                                           .pad_h = 1,
                                           .pad_w = 2,
                                           .no_bias = true,
                                           .activation = SL_ACTIVATION_RELU,
                                           .layer = {.init = SL_INIT_HE, .group = "first"}}));
  OK(sl_batchnorm(m, "bn1", &(struct sl_batchnorm_options){.epsilon = 1e-3f, .momentum = 0.3f}));
  OK(sl_conv2d(m, "conv2",
               &(struct sl_conv2d_options){
                   .channels = 4, .kernel_h = 3, .pad_h = 1, .layer.inputs = "bn1"}));
  OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = "conv2,bn1"}));
  OK(sl_maxpool2d(m, "pool1",
                  &(struct sl_pool2d_options){.kernel_h = 2, .stride_h = 1, .pad_w = 1}));
  OK(sl_conv2d(m, "tall",
               &(struct sl_conv2d_options){
                   .channels = 4, .kernel_h = 5, .kernel_w = 1, .pad_h = 2, .pad_h_only = true}));
  OK(sl_activate(m, "act", &(struct sl_activation_options){.activation = SL_ACTIVATION_GELU}));
  OK(sl_avgpool2d(m, "pool2", &(struct sl_pool2d_options){.global = true}));
  OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.1f}));
  OK(sl_dense(m, "fc",
              &(struct sl_dense_options){.features = 5,
                                         .activation = SL_ACTIVATION_TANH,
                                         .layer = {.init = SL_INIT_NORMAL, .deviation = 0.02f}}));
  return m;
}

static struct sl_model *words(void) {
  struct sl_model *m = new_model(SL_SHAPE(7));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 11, .features = 6}));
  OK(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = 8, .layer.init = SL_INIT_XAVIER}));
  OK(sl_gru(m, "gru", &(struct sl_gru_options){.features = 3, .bidirectional = true}));
  OK(sl_gru(m, "back", &(struct sl_gru_options){.features = 6, .reverse = true}));
  OK(sl_dense(
      m, "decoder",
      &(struct sl_dense_options){.features = 11, .positions = true, .layer.shares = "embed"}));
  return m;
}

/* Layers that join, cut and turn samples. */
static struct sl_model *joined(void) {
  struct sl_model *m = new_model(SL_SHAPE(4, 6, 5));
  OK(sl_slice(m, "left", &(struct sl_slice_options){.axis = 2, .count = 2}));
  OK(sl_slice(m, "right",
              &(struct sl_slice_options){.axis = 2, .first = 2, .layer.inputs = "input"}));
  OK(sl_slice(
      m, "middle",
      &(struct sl_slice_options){.axis = 1, .first = 1, .count = 3, .layer.inputs = "right"}));
  OK(sl_concatenate(m, "back",
                    &(struct sl_concatenate_options){.axis = 2, .layer.inputs = "right,left"}));
  OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = "back,input,back"}));
  OK(sl_multiply(m, "pair", &(struct sl_multiply_options){.layer.inputs = "sum,input"}));
  OK(sl_multiply(m, "product",
                 &(struct sl_multiply_options){.layer.inputs = "pair,input,sum,back"}));
  OK(sl_permute(m, "turned", &(struct sl_permute_options){.axes = SL_SHAPE(1, 0, 2)}));
  OK(sl_permute(m, "round", &(struct sl_permute_options){0}));
  OK(sl_flip(m, "flip", &(struct sl_flip_options){.axis = 1}));
  OK(sl_mean(m, "rows", &(struct sl_mean_options){.axes = SL_SHAPE(1), .keep = true}));
  OK(sl_reshape(m, "view", &(struct sl_reshape_options){.shape = SL_SHAPE(6, 5)}));
  OK(sl_mean(m, "columns", &(struct sl_mean_options){0}));
  OK(sl_mean(m, "all",
             &(struct sl_mean_options){.axes = SL_SHAPE(2, 0, 1), .layer.inputs = "middle"}));
  OK(sl_concatenate(m, "out", &(struct sl_concatenate_options){.layer.inputs = "columns,all"}));
  OK(sl_reshape(m, "flat", &(struct sl_reshape_options){0}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 3}));
  return m;
}

/* Attention of all its options. */
static struct sl_model *attentive(void) {
  struct sl_model *m = new_model(SL_SHAPE(5, 24));
  OK(sl_attention(m, "heads", &(struct sl_attention_options){.heads = 2}));
  OK(sl_dense(m, "qkv", &(struct sl_dense_options){.features = 48, .positions = true}));
  OK(sl_attention(m, "groups",
                  &(struct sl_attention_options){.heads = 4,
                                                 .kv_heads = 2,
                                                 .rope_base = 10000,
                                                 .rope_dims = 4,
                                                 .dropout = 0.1f,
                                                 .context = 9}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 3}));
  return m;
}

/* Parts of transformers. */
static struct sl_model *blocks(void) {
  struct sl_model *m = new_model(SL_SHAPE(5, 6));
  OK(sl_position(m, "wpe", &(struct sl_position_options){.length = 9}));
  OK(sl_position(m, "again", &(struct sl_position_options){0}));
  OK(sl_dense(m, "fc",
              &(struct sl_dense_options){
                  .features = 8, .positions = true, .activation = SL_ACTIVATION_GELU_TANH}));
  OK(sl_swiglu(m, "gate", NULL));
  return m;
}

/* Convolutions with groups, dilation, and transposed ones. */
static struct sl_model *convolved(void) {
  struct sl_model *m = new_model(SL_SHAPE(4, 9, 8));
  OK(sl_conv2d(m, "depth", &(struct sl_conv2d_options){.channels = 8, .kernel_h = 3, .groups = 4}));
  OK(sl_conv2d(m, "wide",
               &(struct sl_conv2d_options){.channels = 6,
                                           .kernel_h = 3,
                                           .kernel_w = 2,
                                           .pad_h = 2,
                                           .dilation_h = 2,
                                           .dilation_w = 3,
                                           .groups = 2,
                                           .no_bias = true,
                                           .activation = SL_ACTIVATION_RELU}));
  OK(sl_conv_transpose2d(m, "up",
                         &(struct sl_conv_transpose2d_options){.channels = 4,
                                                               .kernel_h = 3,
                                                               .kernel_w = 2,
                                                               .stride_h = 2,
                                                               .pad_h = 1,
                                                               .output_pad_h = 1,
                                                               .groups = 2,
                                                               .pad_h_only = true}));
  OK(sl_conv_transpose2d(m, "last",
                         &(struct sl_conv_transpose2d_options){.channels = 2,
                                                               .kernel_h = 2,
                                                               .dilation_h = 2,
                                                               .no_bias = true,
                                                               .activation = SL_ACTIVATION_TANH}));
  return m;
}

static char *text_of(const struct sl_model *m) {
  char *text;
  OK(sl_model_architecture(m, "w.safetensors", &text));
  return text;
}

static void check_round_trip(struct sl_model *m) {
  char *first = text_of(m);
  struct sl_model *read;
  OK(sl_model_parse(context, "text", first, strlen(first), &read));
  char *second = text_of(read);
  assert_string_equal(first, second);
  free(first), free(second);
  sl_model_free(read);
  sl_model_free(m);
}

static void what_is_written_reads_back(void **state) {
  (void)state;
  check_round_trip(images());
  check_round_trip(words());
  check_round_trip(joined());
  check_round_trip(normed());
  check_round_trip(attentive());
  check_round_trip(blocks());
  check_round_trip(grown());
  check_round_trip(convolved());
  check_round_trip(rows());
}

/* The text has the keys and names of the public header. */
static void the_text_is_readable(void **state) {
  (void)state;
  struct sl_model *m = images();
  char *text = text_of(m);
  assert_non_null(strstr(text, "\"format\": \"starling model\""));
  assert_non_null(strstr(text, "\"input\": [3, 12, 10]"));
  assert_non_null(strstr(text,
                         "{\"name\": \"conv1\", \"kind\": \"conv2d\", \"inputs\": [\"input\"], "
                         "\"init\": \"he\", \"group\": \"first\", \"channels\": 4"));
  assert_non_null(strstr(text, "\"epsilon\": 0.001"));
  assert_non_null(strstr(text, "\"inputs\": [\"conv2\", \"bn1\"]"));
  assert_null(strstr(text, "no_bias\": false")); /* what is as by default is left out */
  free(text);
  sl_model_free(m);
}

/* Of a plane of one pixel, as a global pooling leaves it, the channels are the classes. */
static void classes_of_one_pixel_have_names(void **state) {
  (void)state;
  static const char *const names[3] = {"a", "b", "c"};
  struct sl_model *m = new_model(SL_SHAPE(3, 4, 4));
  OK(sl_avgpool2d(m, "pool", &(struct sl_pool2d_options){.global = true}));
  assert_int_equal(sl_model_output(m)->ndim, 3);
  OK(sl_model_note(m, &(struct sl_model_notes){.class_count = 3, .class_names = names}));
  FAILS(sl_model_note(m, &(struct sl_model_notes){.class_count = 1, .class_names = names}),
        SL_BAD_ARGUMENT, "has 3");
  sl_model_free(m);
}

static long allocations_left; /* until one fails */

static void *allocate(size_t size) {
  return allocations_left && !--allocations_left ? NULL : malloc(size);
}

/* Without memory for its check a name is not taken for a bad one. */
static void names_without_memory_are_no_bad_ones(void **state) {
  (void)state;
  static const char *const good[2] = {"ja", "nein"}, *const bad[2] = {"ja", "\xff"};
  struct sl_model *m = new_model(SL_SHAPE(2));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 2}));
  json_set_alloc_funcs(allocate, free);
  for (long n = 1; n < 10; n++) {
    allocations_left = n;
    enum sl_status status =
        sl_model_note(m, &(struct sl_model_notes){.class_count = 2, .class_names = good});
    assert_true(status == SL_OK || status == SL_NO_MEMORY);
  }
  json_set_alloc_funcs(malloc, free);
  FAILS(sl_model_note(m, &(struct sl_model_notes){.class_count = 2, .class_names = bad}),
        SL_BAD_ARGUMENT, "the name of class 1 is no UTF-8");
  sl_model_free(m);
}

/* Means, deviations and names of classes go into the text and come back; older models have none. */
static void notes_are_kept(void **state) {
  (void)state;
  static const float mean[3] = {0.4914f, 0.1f, -2}, deviation[3] = {0.2470f, 1e-3f, 3};
  static const char *const names[5] = {"a", "b \"quoted\"", "\303\251", "d", ""};
  const struct sl_model_notes notes = {
      .channels = 3, .mean = mean, .deviation = deviation, .class_count = 5, .class_names = names};
  struct sl_model *m = images(), *read;
  assert_int_equal(sl_model_notes(m)->channels, 0);
  OK(sl_model_note(m, &notes));
  char *text = text_of(m);
  assert_non_null(
      strstr(text, "\"normalize\": {\"mean\": [0.4914, 0.1, -2.0], \"deviation\": [0.247, 0.001"));
  OK(sl_model_parse(context, "text", text, strlen(text), &read));
  const struct sl_model_notes *back = sl_model_notes(read);
  assert_int_equal(back->channels, 3);
  assert_memory_equal(back->mean, mean, sizeof mean);
  assert_memory_equal(back->deviation, deviation, sizeof deviation);
  assert_int_equal(back->class_count, 5);
  for (int i = 0; i < 5; i++) assert_string_equal(back->class_names[i], names[i]);
  FAILS(sl_model_note(
            read, &(struct sl_model_notes){.channels = 2, .mean = mean, .deviation = deviation}),
        SL_BAD_ARGUMENT, "2 channels");
  FAILS(sl_model_note(read, &(struct sl_model_notes){.class_count = 4, .class_names = names}),
        SL_BAD_ARGUMENT, "has 5");
  FAILS(sl_model_note(
            read, &(struct sl_model_notes){.channels = 1, .mean = mean, .deviation = (float[]){0}}),
        SL_BAD_ARGUMENT, "deviation 0");
  assert_int_equal(sl_model_notes(read)->channels, 3); /* a refused call changes nothing */
  free(text);
  sl_model_free(read);
  check_round_trip(m);
}

/* A regression's inputs are numbers, and its targets have a mean and a deviation. */
static void units_of_targets_are_kept(void **state) {
  (void)state;
  static const float mean[2] = {3, -0.1f}, deviation[2] = {0.5f, 100};
  struct sl_model *m = new_model(SL_SHAPE(4)), *read;
  add_dense(m, "fc", 2, SL_INIT_ZERO);
  struct sl_model_notes notes = {.channels = 1,
                                 .mean = mean,
                                 .deviation = deviation,
                                 .values = true,
                                 .target_channels = 2,
                                 .target_mean = mean,
                                 .target_deviation = deviation};
  OK(sl_model_note(m, &notes));
  char *text = text_of(m);
  assert_non_null(
      strstr(text, "\"targets\": {\"mean\": [3.0, -0.1], \"deviation\": [0.5, 100.0]}"));
  assert_non_null(strstr(text, "\"of\": \"values\""));
  OK(sl_model_parse(context, "text", text, strlen(text), &read));
  const struct sl_model_notes *back = sl_model_notes(read);
  assert_true(back->values && back->channels == 1 && back->target_channels == 2);
  assert_memory_equal(back->target_mean, mean, sizeof mean);
  assert_memory_equal(back->target_deviation, deviation, sizeof deviation);
  notes.target_channels = 3;
  FAILS(sl_model_note(read, &notes), SL_BAD_ARGUMENT, "3 channels: the model's output has 2");
  notes.target_channels = 1;
  notes.target_deviation = (float[]){0};
  FAILS(sl_model_note(read, &notes), SL_BAD_ARGUMENT, "deviation 0");
  free(text);
  sl_model_free(read);
  check_round_trip(m);
}

/* Each output's task, by the output's name; an output without a known task is left out. */
static void tasks_of_outputs_are_kept(void **state) {
  (void)state;
  static const struct sl_row_field input = {.name = "x", .shape = {1, {3}}};
  struct sl_model *m, *read;
  OK(sl_model_new_fields(context, &input, 1, &m));
  OK(sl_dense(m, "a", &(struct sl_dense_options){.layer.inputs = "x", .features = 2}));
  OK(sl_dense(m, "b", &(struct sl_dense_options){.layer.inputs = "x", .features = 1}));
  OK(sl_dense(m, "c", &(struct sl_dense_options){.layer.inputs = "x", .features = 1}));
  FAILS(sl_model_note_task(m, 0, SL_TASK_LABELS), SL_BAD_ARGUMENT, "names 0 outputs");
  OK(sl_outputs(m, "a,b,c"));
  OK(sl_model_note_task(m, 0, SL_TASK_CLASSES));
  OK(sl_model_note_task(m, 2, SL_TASK_LABELS));
  FAILS(sl_model_note_task(m, 3, SL_TASK_LABELS), SL_BAD_ARGUMENT, "for output 3");
  FAILS(sl_model_note_task(m, 0, (enum sl_task)9), SL_BAD_ARGUMENT, "no task 9");
  char *text = text_of(m);
  assert_non_null(strstr(text, "\"tasks\": {\"a\": \"classes\", \"c\": \"labels\"}"));
  OK(sl_model_parse(context, "text", text, strlen(text), &read));
  static const enum sl_task tasks[] = {SL_TASK_CLASSES, SL_TASK_UNKNOWN, SL_TASK_LABELS,
                                       SL_TASK_UNKNOWN};
  for (int i = 0; i < 4; i++) assert_int_equal(sl_model_output_task(read, i), tasks[i]);
  assert_int_equal(sl_model_output_task(read, -1), SL_TASK_UNKNOWN);
  free(text);
  sl_model_free(read);
  sl_model_free(m);
}

/* The columns of a training's table, the names of its targets and the task, too. */
static void columns_are_kept(void **state) {
  (void)state;
  static const char *const texts[] = {"down", "\303\251"}, *const targets[] = {"y", "z"};
  struct sl_column columns[] = {{.name = "a"},
                                {.name = "kind", .text_count = 2, .texts = texts},
                                {.name = "b", .missing = true}};
  struct sl_model *m = new_model(SL_SHAPE(4)), *read;
  add_dense(m, "fc", 2, SL_INIT_ZERO);
  struct sl_model_notes notes = {.task = SL_TASK_LABELS,
                                 .column_count = 3,
                                 .columns = columns,
                                 .target_name_count = 2,
                                 .target_names = targets};
  OK(sl_model_note(m, &notes));
  char *text = text_of(m);
  assert_non_null(strstr(text, "\"task\": \"labels\""));
  assert_non_null(strstr(text, "\"columns\": [\"a\", {\"name\": \"kind\", \"texts\": [\"down\", "));
  assert_non_null(strstr(text, "{\"name\": \"b\", \"missing\": true}]"));
  OK(sl_model_parse(context, "text", text, strlen(text), &read));
  const struct sl_model_notes *back = sl_model_notes(read);
  assert_true(back->task == SL_TASK_LABELS && back->column_count == 3);
  for (int i = 0; i < 3; i++) {
    assert_string_equal(back->columns[i].name, columns[i].name);
    assert_true(back->columns[i].missing == columns[i].missing);
    assert_int_equal(back->columns[i].text_count, columns[i].text_count);
  }
  assert_string_equal(back->columns[1].texts[1], texts[1]);
  assert_int_equal(back->target_name_count, 2);
  assert_string_equal(back->target_names[1], "z");
  columns[1].text_count = 1;
  FAILS(sl_model_note(read, &notes), SL_BAD_ARGUMENT, "3 inputs, but the model takes 4");
  columns[1].text_count = 2;
  columns[2].name = "\377";
  FAILS(sl_model_note(read, &notes), SL_BAD_ARGUMENT, "column 3 is no UTF-8");
  assert_string_equal(sl_model_notes(read)->columns[2].name, "b");
  free(text);
  sl_model_free(read);
  check_round_trip(m);
}

/* A layer that names no inputs takes the layer before it; the first one the model's input. */
static void inputs_may_be_left_out(void **state) {
  (void)state;
  static const char text[] =
      "{\"format\": \"starling model\", \"version\": 1, \"input\": [3], \"layers\": ["
      "{\"name\": \"a\", \"kind\": \"dense\", \"features\": 2},"
      "{\"name\": \"b\", \"kind\": \"dense\", \"features\": 4}]}";
  struct sl_model *m;
  OK(sl_model_parse(context, "text", text, strlen(text), &m));
  assert_true(sl_shape_equal(sl_model_output(m), &SL_SHAPE(4)));
  char *written = text_of(m);
  assert_non_null(strstr(written, "\"inputs\": [\"input\"]"));
  assert_non_null(strstr(written, "\"inputs\": [\"a\"]"));
  free(written);
  sl_model_free(m);
}

static void assert_same_values(struct sl_model *a, struct sl_model *b) {
  struct sl_shape shape;
  assert_int_equal(sl_model_parameter_count(a), sl_model_parameter_count(b));
  for (int i = 0; i < sl_model_parameter_count(a); i++) {
    const char *name = sl_model_parameter(a, i, &shape);
    size_t count = (size_t)sl_shape_count(&shape);
    float *x = calloc(count, sizeof *x), *y = calloc(count, sizeof *y);
    assert_string_equal(name, sl_model_parameter(b, i, NULL));
    OK(sl_model_get(a, name, x));
    OK(sl_model_get(b, name, y));
    assert_memory_equal(x, y, count * sizeof *x);
    free(x), free(y);
  }
}

static void files_keep_the_weights(void **state) {
  (void)state;
  struct sl_model *models[] = {images(), words()}, *opened;
  for (int i = 0; i < 2; i++) {
    const char *path = in_folder("m.json");
    OK(sl_model_build(models[i]));
    OK(sl_model_save(models[i], path));
    OK(sl_model_open(context, path, &opened));
    assert_same_values(models[i], opened);
    const char *first = sl_model_parameter(opened, 0, NULL);
    float zeros[1000] = {0};
    OK(sl_model_set(opened, first, zeros));
    OK(sl_model_load(opened, path));
    assert_same_values(models[i], opened);
    sl_model_free(opened);
    sl_model_free(models[i]);
  }
  assert_int_equal(access(in_folder("m.safetensors"), R_OK), 0);
}

static void assert_same_file(const char *path, const uint64_t before[2]) {
  uint64_t now[2];
  OK(sl_file_sum(path, &now[0], &now[1]));
  assert_memory_equal(now, before, sizeof now);
}

/* Of the two files none changes if one of them cannot be written. */
static void a_failed_save_changes_nothing(void **state) {
  (void)state;
  struct sl_model *saved = new_model(SL_SHAPE(3)), *other = new_model(SL_SHAPE(3));
  uint64_t weights[2], text[2];
  const float damaged[] = {NAN, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  OK(sl_dense(saved, "fc", &(struct sl_dense_options){.features = 2}));
  OK(sl_dense(other, "other", &(struct sl_dense_options){.features = 5}));
  OK(sl_model_save(saved, in_folder("m.json")));
  OK(sl_file_sum(in_folder("m.safetensors"), &weights[0], &weights[1]));
  OK(sl_file_sum(in_folder("m.json"), &text[0], &text[1]));
  OK(sl_model_set(other, "other.weight", damaged));
  FAILS(sl_model_save(other, in_folder("m.json")), SL_NOT_FINITE, "other.weight");
  assert_same_file(in_folder("m.safetensors"), weights);
  assert_same_file(in_folder("m.json"), text);
  assert_int_equal(unlink(in_folder("m.json")), 0);
  assert_int_equal(mkdir(in_folder("m.json"), 0777), 0);
  OK(sl_model_set(other, "other.weight", (float[15]){0}));
  FAILS(sl_model_save(other, in_folder("m.json")), SL_IO, "m.json");
  assert_same_file(in_folder("m.safetensors"), weights);
  assert_int_equal(rmdir(in_folder("m.json")), 0);
  FAILS(sl_model_save(other, in_folder("\xff.json")), SL_BAD_ARGUMENT, "UTF-8");
  assert_int_not_equal(access(in_folder("\xff.safetensors"), F_OK), 0);
  sl_model_free(saved);
  sl_model_free(other);
}

/* ---- refusals ---- */

static const char good[] =
    "{\"format\": \"starling model\", \"version\": 1, \"weights\": \"w.safetensors\",\n"
    " \"input\": [1, 4, 4], \"layers\": [\n"
    " {\"name\": \"conv\", \"kind\": \"conv2d\", \"inputs\": [\"input\"], \"channels\": 2, "
    "\"kernel_h\": 3, \"activation\": \"relu\"},\n"
    " {\"name\": \"drop\", \"kind\": \"dropout\", \"inputs\": [\"conv\"], \"rate\": 0.5},\n"
    " {\"name\": \"fc\", \"kind\": \"dense\", \"inputs\": [\"drop\"], \"features\": 10, "
    "\"no_bias\": true}]}";

/* good, with its first `from` as `to`. */
static char *changed(const char *from, const char *to) {
  const char *at = strstr(good, from);
  assert_non_null(at);
  size_t before = (size_t)(at - good), size = sizeof good + strlen(to);
  char *text = malloc(size);
  snprintf(text, size, "%.*s%s%s", (int)before, good, to, at + strlen(from));
  return text;
}

static void strange_texts_are_refused(void **state) {
  static const struct {
    const char *from, *to;
    enum sl_status status;
    const char *words;
  } cases[] = {
      {"starling model", "other", SL_BAD_FILE, "is no model"},
      {"\"version\": 1", "\"version\": 3", SL_UNSUPPORTED, "version 3, this library reads 2"},
      {"\"version\": 1", "\"version\": 0", SL_BAD_FILE, "\"version\""},
      {"\"version\": 1", "\"version\": \"1\"", SL_BAD_FILE, "\"version\""},
      {"\"version\": 1", "\"version\": 1, \"targets\": {\"mean\": [1], \"deviation\": []}",
       SL_BAD_FILE, "\"targets\" must have lists"},
      {"\"version\": 1", "\"version\": 1, \"targets\": {\"mean\": [1, 2], \"deviation\": [1, 2]}",
       SL_BAD_FILE, "2 channels: the model's output has 10"},
      {"[1, 4, 4]", "[]", SL_BAD_FILE, "\"input\""},
      {"[1, 4, 4]", "[1, 4, 4, 4, 4, 4]", SL_BAD_FILE, "\"input\""},
      {"[1, 4, 4]", "[1, 4, 4.5]", SL_BAD_FILE, "\"input\" must be a whole number"},
      {"[1, 4, 4]", "[1, 4, -4]", SL_BAD_FILE, "\"input\""},
      {"[1, 4, 4]", "[1, 0, 4]", SL_BAD_FILE, "cannot have shape"},
      {"[1, 4, 4]", "[1099511627776, 1099511627776]", SL_BAD_FILE, "2^40"},
      {"[1, 4, 4]", "[1, 2, 2]", SL_BAD_FILE, "layer conv (conv2d)"},
      {"\"layers\": [", "\"layer\": [", SL_BAD_FILE, "\"layers\""},
      {"\"kind\": \"conv2d\"", "\"kind\": \"conv3d\"", SL_UNSUPPORTED,
       "layer conv is of kind \"conv3d\""},
      {"\"kind\": \"conv2d\"", "\"kind\": 2", SL_BAD_FILE, "layer conv: \"kind\""},
      {"\"name\": \"conv\"", "\"name\": \"a b\"", SL_BAD_FILE, "'a b' cannot name a layer"},
      {"\"name\": \"conv\"", "\"title\": \"conv\"", SL_BAD_FILE,
       "layer 1 of 3 (conv2d): \"name\" must be there"},
      {"\"name\": \"drop\"", "\"name\": 1", SL_BAD_FILE, "layer 2 of 3 (dropout): \"name\""},
      {"\"layers\": [", "\"layers\": [7, ", SL_BAD_FILE, "layer 1 of 4: \"layers\" must be a list"},
      {"\"name\": \"drop\"", "\"name\": \"conv\"", SL_BAD_FILE, "a layer 'conv' already"},
      {"[\"conv\"]", "[\"cnov\"]", SL_BAD_FILE, "'cnov' is no layer"},
      {"[\"conv\"]", "[\"conv,conv\"]", SL_BAD_FILE, "layer drop: \"inputs\""},
      {"[\"conv\"]", "[]", SL_BAD_FILE, "layer drop: \"inputs\""},
      {"[\"conv\"]", "\"conv\"", SL_BAD_FILE, "layer drop: \"inputs\""},
      {"\"channels\": 2", "\"channels\": 2.0", SL_BAD_FILE, "layer conv: \"channels\""},
      {"\"channels\": 2", "\"channels\": -2", SL_BAD_FILE, "layer conv: \"channels\""},
      {"\"channels\": 2", "\"channels\": 4294967296", SL_BAD_FILE, "layer conv: \"channels\""},
      {"\"channels\": 2", "\"channel\": 2", SL_BAD_FILE, "\"channel\" is no option"},
      {"\"relu\"", "\"rely\"", SL_BAD_FILE, "activation 'rely' is unknown"},
      {"\"relu\"", "1", SL_BAD_FILE, "layer conv: \"activation\""},
      {"0.5", "1.5", SL_BAD_FILE, "layer drop (dropout)"},
      {"0.5", "1e300", SL_BAD_FILE, "layer drop: \"rate\""},
      {"0.5", "\"0.5\"", SL_BAD_FILE, "layer drop: \"rate\""},
      {"\"features\": 10", "\"features\": 1099511627776", SL_BAD_FILE, "layer fc (dense)"},
      {"\"features\": 10", "\"features\": 10, \"features\": 11", SL_BAD_FILE, "duplicate"},
      {"\"features\": 10", "\"features\": 10, \"init\": \"nice\"", SL_BAD_FILE, "'nice'"},
      {"\"features\": 10", "\"features\": 10, \"shares\": \"conv\"", SL_BAD_FILE,
       "cannot be shared"},
      {"\"no_bias\": true", "\"no_bias\": 1", SL_BAD_FILE, "layer fc: \"no_bias\""},
      {"]}", "]", SL_BAD_FILE, "line"},
      {"]}", "], \"normalize\": 3}", SL_BAD_FILE, "\"normalize\""},
      {"]}", "], \"normalize\": {\"mean\": [0, 0], \"deviation\": [1, 1]}}", SL_BAD_FILE,
       "2 channels"},
      {"]}", "], \"normalize\": {\"mean\": [0], \"deviation\": [1, 1]}}", SL_BAD_FILE,
       "one length"},
      {"]}", "], \"normalize\": {\"mean\": [0], \"deviation\": [0]}}", SL_BAD_FILE, "deviation 0"},
      {"]}", "], \"normalize\": {\"mean\": [1e99], \"deviation\": [1]}}", SL_BAD_FILE, "mean inf"},
      {"]}", "], \"normalize\": {\"mean\": [\"x\"], \"deviation\": [1]}}", SL_BAD_FILE, "\"mean\""},
      {"]}", "], \"classes\": [\"a\"]}", SL_BAD_FILE, "has 10"},
      {"]}", "], \"classes\": [1]}", SL_BAD_FILE, "\"classes\""},
      {"]}", "], \"classes\": []}", SL_BAD_FILE, "\"classes\""},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *text = changed(cases[i].from, cases[i].to);
    struct sl_model *m = (struct sl_model *)text;
    FAILS(sl_model_parse(context, "a/b.json", text, strlen(text), &m), cases[i].status,
          cases[i].words);
    assert_non_null(strstr(sl_error(), "a/b.json"));
    assert_null(m);
    free(text);
  }
}

static void write_text(const char *path, const char *text, size_t size) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, size, file), size);
  fclose(file);
}

static void strange_files_are_refused(void **state) {
  (void)state;
  struct sl_model *m;
  const char *path = in_folder("x.json");
  FAILS(sl_model_open(context, in_folder("none.json"), &m), SL_IO, "none.json");
  write_text(path, good, sizeof good - 1); /* no weights beside it */
  unlink(in_folder("w.safetensors"));
  FAILS(sl_model_open(context, path, &m), SL_IO, "w.safetensors");
  assert_null(m);
  static const char *const names[] = {"../w.safetensors", "x.json", ""};
  for (int i = 0; i < 3; i++) {
    char *strange = changed("w.safetensors", names[i]);
    write_text(path, strange, strlen(strange));
    FAILS(sl_model_open(context, path, &m), SL_BAD_FILE, "\"weights\"");
    free(strange);
  }
  struct sl_model *other = words(); /* weights of another model */
  OK(sl_model_build(other));
  OK(sl_model_save(other, in_folder("w.safetensors")));
  sl_model_free(other);
  write_text(path, good, sizeof good - 1);
  FAILS(sl_model_open(context, path, &m), SL_BAD_FILE, "w.safetensors");
  assert_null(m);
}

/* Weights given as a model, and names that other programs take for formats of their own. */
static void other_kinds_are_named(void **state) {
  (void)state;
  struct sl_model *m;
  OK(sl_model_new(context, &SL_SHAPE(4), &m));
  OK(sl_dense(m, "fc1", &(struct sl_dense_options){.features = 2}));
  OK(sl_model_save(m, in_folder("alone.safetensors")));
  static const char *const names[] = {"w.pt", "w.PTH", "w.h5", "w.npz"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    FAILS(sl_model_save(m, in_folder(names[i])), SL_BAD_ARGUMENT, "name it .safetensors");
    assert_int_equal(access(in_folder(names[i]), F_OK), -1);
  }
  FAILS(sl_model_check_path("m.JSON"), SL_BAD_ARGUMENT, "the ending in small letters, .json");
  FAILS(sl_model_check_path("a/w.SafeTensors"), SL_BAD_ARGUMENT, "small letters, .safetensors");
  OK(sl_model_check_path("weights"));
  OK(sl_model_check_path(".pt/model.onnx"));
  sl_model_free(m);
  FAILS(sl_model_open(context, in_folder("alone.safetensors"), &m), SL_BAD_FILE,
        "holds weights alone");
  assert_null(m);
}

/* Any byte changed, any length: a model or a message, never anything else. */
static void damage_does_no_harm(void **state) {
  (void)state;
  uint64_t random = 88172645463325252ull;
  char text[sizeof good];
  int read = 0;
  for (int n = 0; n < 4000; n++) {
    struct sl_model *m;
    size_t size = sizeof good - 1;
    memcpy(text, good, sizeof good);
    for (int k = 0; k <= n % 3; k++) {
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      text[random % size] = (char)(random >> 32);
    }
    if (n % 5 == 0) size = (size_t)(random >> 20) % size;
    bool ok = sl_model_parse(context, "text", text, size, &m) == SL_OK;
    assert_true(ok ? m != NULL : !m && strlen(sl_error()) > 0);
    read += ok;
    sl_model_free(m);
  }
  assert_in_range(read, 1, 3999);
}

static int setup(void **state) {
  assert_non_null(mkdtemp(folder));
  return open_context(state);
}

static int teardown(void **state) {
  static const char *const names[] = {"m.json", "m.safetensors", "x.json", "w.safetensors"};
  for (int i = 0; i < 4; i++) unlink(in_folder(names[i]));
  rmdir(folder);
  return close_context(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_written_reads_back),
                                     cmocka_unit_test(names_without_memory_are_no_bad_ones),
                                     cmocka_unit_test(notes_are_kept),
                                     cmocka_unit_test(units_of_targets_are_kept),
                                     cmocka_unit_test(columns_are_kept),
                                     cmocka_unit_test(tasks_of_outputs_are_kept),
                                     cmocka_unit_test(inputs_may_be_left_out),
                                     cmocka_unit_test(classes_of_one_pixel_have_names),
                                     cmocka_unit_test(the_text_is_readable),
                                     cmocka_unit_test(files_keep_the_weights),
                                     cmocka_unit_test(a_failed_save_changes_nothing),
                                     cmocka_unit_test(strange_texts_are_refused),
                                     cmocka_unit_test(strange_files_are_refused),
                                     cmocka_unit_test(other_kinds_are_named),
                                     cmocka_unit_test(damage_does_no_harm)};
  return cmocka_run_group_tests_name("architecture", tests, setup, teardown);
}
