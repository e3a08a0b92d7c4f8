/* ONNX files. What is saved reads back as the same model, to the bit, whatever its layers; what
 * PyTorch's exporters wrote (tests/fixtures, by tools/make_fixture.py) gives PyTorch's answers;
 * what no layer does is refused with the node's name; damage never does harm. onnxruntime's answers
 * are compared by tests/tools/test_check_onnx.sh. */
#include "tests/common/many_kinds.h"

#include <float.h>
#include <math.h>

#include "core/base/safetensors.h"
#include "core/base/hash.h"
#include "nn/formats/onnx.h"
#include "tests/common/files.h"

enum { SAMPLES = 3 };

static struct sl_model *positions(void) {
  struct sl_model *m = new_model(SL_SHAPE(9));
  OK(sl_dense(
      m, "fc1",
      &(struct sl_dense_options){
          .features = 6, .positions = true, .no_bias = true, .activation = SL_ACTIVATION_SIGMOID}));
  OK(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 2}));
  return m;
}

/* No bias and no statistic keeps its initial value. */
static struct sl_model *filled(struct sl_model *(*make)(void)) {
  struct sl_model *m = make();
  struct sl_shape shape;
  uint32_t random = 12345;
  OK(sl_model_build(m));
  for (int i = 0; i < sl_model_parameter_count(m); i++) {
    const char *name = sl_model_parameter(m, i, &shape);
    float *values = get_values(m, name);
    for (int64_t k = 0; k < sl_shape_count(&shape); k++) {
      random = random * 1664525u + 1013904223u;
      values[k] = (float)(random >> 8) / (float)(1 << 24) - (strstr(name, "var") ? -0.5f : 0.5f);
    }
    OK(sl_model_set(m, name, values));
    free(values);
  }
  return m;
}

static const char *fixture(const char *name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/tests/fixtures/%s", source_folder(), name);
  return path;
}

#ifndef SL_HAVE_ONNX

/* ---- a build without protobuf-c ---- */

static void without_protobuf_it_says_so(void **state) {
  (void)state;
  struct sl_model *m = filled(positions);
  FAILS(sl_model_save(m, in_folder("m.onnx")), SL_UNSUPPORTED, "libprotobuf-c-dev");
  sl_model_free(m);
  FAILS(sl_model_open(context, fixture("onnx_words.onnx"), &m), SL_UNSUPPORTED,
        "libprotobuf-c-dev");
  assert_null(m);
}

#else

/* ---- models with every kind of layer and every option that an ONNX file keeps ---- */

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
                                           .activation = SL_ACTIVATION_RELU}));
  OK(sl_batchnorm(m, "bn1", &(struct sl_batchnorm_options){.epsilon = 1e-3f, .momentum = 0.3f}));
  OK(sl_conv2d(m, "conv2",
               &(struct sl_conv2d_options){
                   .channels = 4, .kernel_h = 3, .pad_h = 1, .layer.inputs = "bn1"}));
  OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = "conv2,bn1"}));
  OK(sl_maxpool2d(m, "pool1",
                  &(struct sl_pool2d_options){.kernel_h = 2, .stride_h = 1, .pad_w = 1}));
  OK(sl_avgpool2d(m, "pool2", &(struct sl_pool2d_options){.kernel_h = 3, .pad_h = 1}));
  OK(sl_activate(m, "act", &(struct sl_activation_options){.activation = SL_ACTIVATION_GELU}));
  OK(sl_activate(m, "t", &(struct sl_activation_options){.activation = SL_ACTIVATION_GELU_TANH}));
  OK(sl_activate(m, "silu", &(struct sl_activation_options){.activation = SL_ACTIVATION_SILU}));
  OK(sl_avgpool2d(m, "pool3", &(struct sl_pool2d_options){.global = true}));
  OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.1f}));
  OK(sl_dense(m, "fc1",
              &(struct sl_dense_options){.features = 5, .activation = SL_ACTIVATION_TANH}));
  OK(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 4, .no_bias = true}));
  /* layers of their own, however alike to fused ones */
  OK(sl_activate(m, "s", &(struct sl_activation_options){.activation = SL_ACTIVATION_SIGMOID}));
  return m;
}

static struct sl_model *flat(void) {
  struct sl_model *m = new_model(SL_SHAPE(2, 6, 6));
  OK(sl_conv2d(m, "output", &(struct sl_conv2d_options){.channels = 3, .kernel_h = 2}));
  OK(sl_conv2d(m, "tall",
               &(struct sl_conv2d_options){
                   .channels = 3, .kernel_h = 5, .kernel_w = 1, .pad_h = 2, .pad_h_only = true}));
  OK(sl_maxpool2d(
      m, "low",
      &(struct sl_pool2d_options){.kernel_h = 3, .stride_h = 1, .pad_h = 1, .pad_h_only = true}));
  OK(sl_activate(m, "relu", &(struct sl_activation_options){.activation = SL_ACTIVATION_RELU}));
  OK(sl_maxpool2d(m, "pool", &(struct sl_pool2d_options){.global = true}));
  OK(sl_activate(m, "tanh", &(struct sl_activation_options){.activation = SL_ACTIVATION_TANH}));
  OK(sl_dense(m, "fc",
              &(struct sl_dense_options){.features = 3, .activation = SL_ACTIVATION_RELU}));
  return m;
}

static struct sl_model *words(void) {
  struct sl_model *m = new_model(SL_SHAPE(7));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 11, .features = 6}));
  OK(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = 8}));
  OK(sl_gru(m, "gru", &(struct sl_gru_options){.features = 6}));
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
             &(struct sl_mean_options){.axes = SL_SHAPE(0, 1, 2), .layer.inputs = "middle"}));
  OK(sl_concatenate(m, "out", &(struct sl_concatenate_options){.layer.inputs = "columns,all"}));
  OK(sl_reshape(m, "flat", &(struct sl_reshape_options){0}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 3}));
  return m;
}

/* Sums and products that broadcast; one input has fewer axes. */
static struct sl_model *broadcast(void) {
  struct sl_model *m = new_model(SL_SHAPE(4, 6, 5));
  OK(sl_mean(m, "squeeze", &(struct sl_mean_options){.keep = true}));
  OK(sl_multiply(m, "scaled", &(struct sl_multiply_options){.layer.inputs = "input,squeeze"}));
  OK(sl_dense(m, "columns", &(struct sl_dense_options){.layer.inputs = "squeeze", .features = 5}));
  OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = "scaled,columns,squeeze"}));
  OK(sl_multiply(m, "product", &(struct sl_multiply_options){.layer.inputs = "sum,columns,input"}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 3}));
  return m;
}

/* Layers of twenty inputs each. */
static struct sl_model *crowded(void) {
  char names[128] = "", name[8];
  struct sl_model *m = new_model(SL_SHAPE(4));
  for (int i = 0; i < 20; i++) {
    snprintf(name, sizeof name, "b%d", i);
    OK(sl_dense(m, name, &(struct sl_dense_options){.features = 3, .layer.inputs = "input"}));
    strcat(strcat(names, i ? "," : ""), name);
  }
  OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = names}));
  OK(sl_multiply(m, "product", &(struct sl_multiply_options){.layer.inputs = names}));
  OK(sl_concatenate(m, "row", &(struct sl_concatenate_options){.layer.inputs = names}));
  OK(sl_concatenate(m, "all", &(struct sl_concatenate_options){.layer.inputs = "row,sum,product"}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 3}));
  return m;
}

/* Parts of transformers: activations that several nodes make, fused and alone. */
static struct sl_model *blocks(void) {
  struct sl_model *m = new_model(SL_SHAPE(5, 6));
#define DENSE(name, size, along, act)                                                              \
  OK(sl_dense(m, name,                                                                             \
              &(struct sl_dense_options){                                                          \
                  .features = size, .positions = along, .activation = SL_ACTIVATION_##act}))
  OK(sl_position(m, "wpe", &(struct sl_position_options){.length = 9}));
  DENSE("fc1", 8, true, GELU_TANH);
  OK(sl_swiglu(m, "gate", NULL));
  OK(sl_position(m, "again", &(struct sl_position_options){0}));
  DENSE("fc2", 4, true, GELU);
  DENSE("fc3", 4, true, NONE); /* layers of their own, however alike to fused ones */
  OK(sl_activate(m, "s", &(struct sl_activation_options){.activation = SL_ACTIVATION_SIGMOID}));
  OK(sl_multiply(m, "product", &(struct sl_multiply_options){.layer.inputs = "fc3,s"}));
  OK(sl_multiply(m, "square", &(struct sl_multiply_options){.layer.inputs = "product,product"}));
  DENSE("fc4", 3, false, SILU);
#undef DENSE
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
                                                               .groups = 2}));
  OK(sl_conv_transpose2d(m, "last",
                         &(struct sl_conv_transpose2d_options){.channels = 2,
                                                               .kernel_h = 2,
                                                               .pad_h = 1,
                                                               .output_pad_h = 1,
                                                               .dilation_h = 2,
                                                               .no_bias = true,
                                                               .activation = SL_ACTIVATION_TANH}));
  return m;
}

/* Weights in common with others than the first embedding. */
static struct sl_model *tied(void) {
  struct sl_model *m = new_model(SL_SHAPE(7));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 11, .features = 6}));
  OK(sl_embedding(
      m, "other",
      &(struct sl_embedding_options){.vocabulary = 11, .features = 6, .layer.inputs = "input"}));
  OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = "embed,other"}));
  OK(sl_dense(m, "same",
              &(struct sl_dense_options){.features = 6, .positions = true, .no_bias = true}));
  OK(sl_dense(m, "again",
              &(struct sl_dense_options){.features = 6,
                                         .positions = true,
                                         .activation = SL_ACTIVATION_TANH,
                                         .layer.shares = "same"}));
  OK(sl_dense(
      m, "words",
      &(struct sl_dense_options){.features = 11, .positions = true, .layer.shares = "other"}));
  OK(sl_dense(m, "fc1", &(struct sl_dense_options){.features = 77, .no_bias = true}));
  OK(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 77, .layer.shares = "fc1"}));
  return m;
}

/* Recurrent layers that go backward, in both directions, or end in their last state. */
static struct sl_model *directions(void) {
  struct sl_model *m = new_model(SL_SHAPE(6, 3));
  OK(sl_lstm(m, "both", &(struct sl_lstm_options){.features = 4, .bidirectional = true}));
  OK(sl_gru(m, "back", &(struct sl_gru_options){.features = 5, .reverse = true}));
  OK(sl_gru(m, "wide", &(struct sl_gru_options){.features = 3, .bidirectional = true}));
  OK(sl_lstm(m, "last",
             &(struct sl_lstm_options){.features = 2, .bidirectional = true, .last = true}));
  OK(sl_gru(m, "end",
            &(struct sl_gru_options){.features = 5, .last = true, .layer.inputs = "wide"}));
  OK(sl_concatenate(m, "ends", &(struct sl_concatenate_options){.layer.inputs = "last,end"}));
  return m;
}

/* Several inputs and outputs by name; ranges of rows that get a shape, and rows of all shapes. */
static struct sl_model *fields(void) {
  static const struct sl_row_field inputs[] = {{.name = "picture", .shape = {3, {2, 5, 4}}},
                                               {.name = "speed", .shape = {1, {3}}}};
  struct sl_model *m;
  OK(sl_model_new_fields(context, inputs, 2, &m));
  OK(sl_conv2d(m, "conv",
               &(struct sl_conv2d_options){
                   .channels = 3, .kernel_h = 3, .pad_h = 1, .layer.inputs = "picture"}));
  OK(sl_concatenate(m, "joined",
                    &(struct sl_concatenate_options){.flat = true, .layer.inputs = "conv,speed"}));
  OK(sl_slice(m, "cut", &(struct sl_slice_options){.first = 3, .shape = SL_SHAPE(3, 5, 4)}));
  OK(sl_conv2d(m, "mask",
               &(struct sl_conv2d_options){.channels = 1, .kernel_h = 1, .layer.inputs = "cut"}));
  OK(sl_dense(m, "turn", &(struct sl_dense_options){.features = 2, .layer.inputs = "joined"}));
  OK(sl_outputs(m, "turn,mask"));
  return m;
}

static struct sl_model *(*const models[])(void) = {fields, images,     flat,   words,     positions,
                                                   tied,   joined,     normed, grown,     convolved,
                                                   rows,   directions, blocks, broadcast, crowded};
enum { MODELS = sizeof models / sizeof *models };

/* ---- answers ---- */

/* Of samples whose values follow a formula, tokens below 11; to be freed. */
static float *answers(struct sl_model *m, const void *inputs, int64_t n) {
  struct sl_predictor *predictor;
  float *outputs = calloc((size_t)(n * sl_shape_count(sl_model_output(m))), sizeof *outputs);
  assert_non_null(outputs);
  OK(sl_predictor_open(m, &(struct sl_predictor_options){0}, &predictor));
  OK(sl_predict(predictor, inputs, n, outputs));
  sl_predictor_free(predictor);
  return outputs;
}

static void check_same_answers(struct sl_model *a, struct sl_model *b) {
  float values[SAMPLES * 3 * 12 * 10];
  int32_t tokens[SAMPLES * 7];
  for (int i = 0; i < SAMPLES * 3 * 12 * 10; i++) values[i] = sinf((float)i);
  for (int i = 0; i < SAMPLES * 7; i++) tokens[i] = i * 5 % 11;
  const void *inputs =
      !strcmp(sl_model_parameter(a, 0, NULL), "embed.weight") ? (void *)tokens : (void *)values;
  float *x = answers(a, inputs, SAMPLES), *y = answers(b, inputs, SAMPLES);
  assert_true(sl_shape_equal(sl_model_output(a), sl_model_output(b)));
  assert_memory_equal(x, y, (size_t)(SAMPLES * sl_shape_count(sl_model_output(a))) * sizeof *x);
  free(x), free(y);
}

static char *text_of(const struct sl_model *m) {
  char *text;
  OK(sl_model_architecture(m, NULL, &text));
  return text;
}

static void what_is_saved_reads_back(void **state) {
  (void)state;
  for (int i = 0; i < MODELS; i++) {
    const char *path = in_folder("m.onnx");
    struct sl_model *m = filled(models[i]), *opened;
    OK(sl_model_save(m, path));
    OK(sl_model_open(context, path, &opened));
    char *first = text_of(m), *second = text_of(opened);
    assert_string_equal(first, second);
    check_same_answers(m, opened);
    free(first), free(second);
    sl_model_free(opened);
    sl_model_free(m);
  }
  assert_int_equal(count_files(), 1); /* nothing was left aside */
}

/* Weights alone, into a model that is there; of another model, none. */
static void weights_are_loaded(void **state) {
  (void)state;
  struct sl_model *m = filled(images), *same = images(), *other = positions();
  const char *path = in_folder("m.onnx");
  OK(sl_model_save(m, path));
  OK(sl_model_load(same, path));
  check_same_answers(m, same);
  FAILS(sl_model_load(other, path), SL_BAD_FILE, "m.onnx");
  sl_model_free(other);
  sl_model_free(same);
  sl_model_free(m);
}

static struct sl_model *conv_relu_bn(void) {
  struct sl_model *m = new_model(SL_SHAPE(1, 6, 6));
  OK(sl_conv2d(m, "conv1", &(struct sl_conv2d_options){.channels = 4, .kernel_h = 3}));
  OK(sl_activate(m, "relu", &(struct sl_activation_options){.activation = SL_ACTIVATION_GELU}));
  OK(sl_batchnorm(m, "bn1", &(struct sl_batchnorm_options){0}));
  return m;
}

static struct sl_model *conv_bn_relu(void) {
  struct sl_model *m = new_model(SL_SHAPE(1, 6, 6));
  OK(sl_conv2d(m, "conv1", &(struct sl_conv2d_options){.channels = 4, .kernel_h = 3}));
  OK(sl_batchnorm(m, "bn1", &(struct sl_batchnorm_options){0}));
  OK(sl_activate(m, "relu", &(struct sl_activation_options){.activation = SL_ACTIVATION_GELU}));
  return m;
}

static struct sl_model *dense_act(void) {
  struct sl_model *m = new_model(SL_SHAPE(40));
  OK(sl_dense(m, "fc1", &(struct sl_dense_options){.features = 90}));
  OK(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 40}));
  OK(sl_activate(m, "act", &(struct sl_activation_options){.activation = SL_ACTIVATION_GELU}));
  return m;
}

static struct sl_model *act_dense(void) {
  struct sl_model *m = new_model(SL_SHAPE(40));
  OK(sl_activate(m, "act", &(struct sl_activation_options){.activation = SL_ACTIVATION_GELU}));
  OK(sl_dense(m, "fc1", &(struct sl_dense_options){.features = 90}));
  OK(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 40}));
  return m;
}

static struct sl_model *dense_only(void) {
  struct sl_model *m = new_model(SL_SHAPE(40));
  OK(sl_dense(m, "fc1", &(struct sl_dense_options){.features = 90}));
  OK(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 40}));
  return m;
}

/* The same parameters in the same order, but layers without any in other places. */
static void weights_go_by_parameter(void **state) {
  static struct sl_model *(*const pairs[][2])(void) = {
      {conv_relu_bn, conv_bn_relu}, {dense_act, act_dense}, {dense_only, act_dense}};
  (void)state;
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    struct sl_model *own = pairs[i][0](), *file = filled(pairs[i][1]);
    struct sl_shape shape;
    OK(sl_model_save(file, in_folder("m.onnx")));
    OK(sl_model_load(own, in_folder("m.onnx")));
    for (int k = 0; k < sl_model_parameter_count(own); k++) {
      const char *name = sl_model_parameter(own, k, &shape);
      float *a = get_values(own, name), *b = get_values(file, name);
      assert_memory_equal(a, b, (size_t)sl_shape_count(&shape) * sizeof *a);
      free(a), free(b);
    }
    sl_model_free(own), sl_model_free(file);
  }
}

/* doc/models.md says what is lost. */
static void init_and_group_are_lost(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(3)), *opened;
  OK(sl_dense(
      m, "fc",
      &(struct sl_dense_options){.features = 2, .layer = {.init = SL_INIT_HE, .group = "first"}}));
  OK(sl_model_save(m, in_folder("m.onnx")));
  OK(sl_model_open(context, in_folder("m.onnx"), &opened));
  char *text = text_of(opened);
  assert_null(strstr(text, "\"init\""));
  assert_null(strstr(text, "\"group\""));
  check_same_answers(m, opened);
  free(text);
  sl_model_free(opened);
  sl_model_free(m);
}

/* ---- a kind that a program has registered: ONNX has no operator for it ---- */

static enum sl_status same_shape(struct sl_layer_plan *plan) {
  plan->out = plan->in[0];
  return SL_OK;
}

static enum sl_status copy_values(struct sl_layer_task *task) {
  memcpy(task->y, task->x[0], (size_t)(task->rows * sl_shape_count(&task->out)) * sizeof *task->y);
  return SL_OK;
}

static void a_programs_own_kind_is_refused(void **state) {
  static const struct sl_layer_kind kind = {.version = SL_LAYER_VERSION,
                                            .name = "copy",
                                            .options_size = sizeof(struct sl_layer_options),
                                            .infer = same_shape,
                                            .forward = copy_values};
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(3));
  OK(sl_layer_register(context, &kind));
  OK(sl_layer(m, "own", "copy", &(struct sl_layer_options){0}));
  FAILS(sl_model_save(m, in_folder("own.onnx")), SL_UNSUPPORTED, "layer own (copy): ONNX");
  assert_int_equal(access(in_folder("own.onnx"), F_OK), -1);
  sl_model_free(m);
}

/* ---- files of PyTorch's exporters ---- */

/* The recorded input and output; both to be freed. */
static void read_recorded(const char *name, const struct sl_shape *in, const struct sl_shape *out,
                          float **x, float **y) {
  struct sl__safetensors *file;
  OK(sl__safetensors_open(fixture(name), &file));
  *x = calloc((size_t)sl_shape_count(in), sizeof **x);
  *y = calloc((size_t)sl_shape_count(out), sizeof **y);
  OK(sl__safetensors_floats(file, "input", in, *x));
  OK(sl__safetensors_floats(file, "output", out, *y));
  sl__safetensors_close(file);
}

static void check_close(const float *own, const float *expected, int64_t count) {
  float greatest = 0, error = 0;
  for (int64_t i = 0; i < count; i++) {
    greatest = fmaxf(greatest, fabsf(expected[i]));
    error = fmaxf(error, fabsf(own[i] - expected[i]));
  }
  if (!(error <= 1e-5f * greatest)) fail_msg("off by %g of %g", (double)error, (double)greatest);
}

static void an_older_exporters_file_is_read(void **state) {
  (void)state;
  struct sl_model *m;
  float *x, *y;
  OK(sl_model_open(context, fixture("onnx_residual.onnx"), &m));
  char *text = text_of(m);
  assert_non_null(strstr(text, "\"name\": \"conv1\", \"kind\": \"conv2d\""));
  assert_non_null(strstr(text, "\"kind\": \"batchnorm\""));
  assert_non_null(strstr(text, "\"activation\": \"gelu\""));
  read_recorded("onnx_residual.safetensors", &SL_SHAPE(3, 2, 6, 6), &SL_SHAPE(3, 3), &x, &y);
  float *own = answers(m, x, 3);
  check_close(own, y, 9);
  free(own), free(x), free(y), free(text);
  sl_model_free(m);
}

/* Steps and last states, forward and in both directions. */
static void both_outputs_of_a_recurrent_layer_are_read(void **state) {
  (void)state;
  struct sl_model *m;
  float *x, *y;
  OK(sl_model_open(context, fixture("onnx_states.onnx"), &m));
  read_recorded("onnx_states.safetensors", &SL_SHAPE(3, 6, 3), &SL_SHAPE(3, 18), &x, &y);
  float *own = answers(m, x, 3);
  check_close(own, y, 3 * 18);
  /* what is read can be written, and read again */
  OK(sl_model_save(m, in_folder("states.onnx")));
  sl_model_free(m);
  OK(sl_model_open(context, in_folder("states.onnx"), &m));
  float *again = answers(m, x, 3);
  check_close(again, y, 3 * 18);
  free(again), free(own), free(x), free(y);
  sl_model_free(m);
}

static void a_newer_exporters_file_is_read(void **state) {
  (void)state;
  struct sl_model *m;
  int32_t tokens[12];
  float *x, *y;
  OK(sl_model_open(context, fixture("onnx_words.onnx"), &m));
  read_recorded("onnx_words.safetensors", &SL_SHAPE(3, 4), &SL_SHAPE(3, 4, 13), &x, &y);
  for (int i = 0; i < 12; i++) tokens[i] = (int32_t)x[i];
  float *own = answers(m, tokens, 3);
  check_close(own, y, 3 * 4 * 13);
  free(own), free(x), free(y);
  sl_model_free(m);
}

/* ---- refusals: one small graph, changed in one place at a time ---- */

static float weight1[2 * 1 * 3 * 3], weight2[4 * 32], bias2[4];
static int64_t axis1[] = {1};

struct small {
  struct sl__onnx_node node[5];
  struct sl__onnx_tensor tensor[4];
  struct sl__onnx_end input[2], output;
  struct sl__onnx_graph graph;
  const char *in[5][4], *out[5][2];
  struct sl__onnx_attribute attribute[5][3];
};

static void add_node(struct small *s, const char *op, const char *name, const char *a,
                     const char *b, const char *c, const char *y) {
  int n = s->graph.nodes++;
  s->in[n][0] = a, s->in[n][1] = b, s->in[n][2] = c;
  s->out[n][0] = y;
  s->node[n] = (struct sl__onnx_node){.name = name,
                                      .op = op,
                                      .domain = "",
                                      .input = s->in[n],
                                      .output = s->out[n],
                                      .attribute = s->attribute[n],
                                      .inputs = !!a + !!b + !!c,
                                      .outputs = 1};
}

/* x [N, 1, 6, 6] -> conv -> relu -> flatten -> gemm */
static void make_small(struct small *s) {
  *s = (struct small){0};
  s->graph = (struct sl__onnx_graph){.most = SIZE_MAX,
                                     .producer = "test",
                                     .opset = 17,
                                     .node = s->node,
                                     .tensor = s->tensor,
                                     .input = s->input,
                                     .output = &s->output,
                                     .tensors = 3,
                                     .inputs = 1,
                                     .outputs = 1};
  add_node(s, "Conv", "conv", "x", "w1", NULL, "c");
  add_node(s, "Relu", "relu", "c", NULL, NULL, "r");
  add_node(s, "Flatten", "flatten", "r", NULL, NULL, "f");
  add_node(s, "Gemm", "fc", "f", "w2", "b2", "y");
  s->attribute[3][0] = (struct sl__onnx_attribute)SL__ONNX_WHOLE("transB", 1);
  s->node[3].attributes = 1;
  s->tensor[0] = (struct sl__onnx_tensor){"w1", SL__ONNX_FLOAT, 4, {2, 1, 3, 3}, 18, weight1};
  s->tensor[1] = (struct sl__onnx_tensor){"w2", SL__ONNX_FLOAT, 2, {4, 32}, 128, weight2};
  s->tensor[2] = (struct sl__onnx_tensor){"b2", SL__ONNX_FLOAT, 1, {4}, 4, bias2};
  s->input[0] = (struct sl__onnx_end){"x", SL__ONNX_FLOAT, 4, {-1, 1, 6, 6}};
  s->output = (struct sl__onnx_end){"y", SL__ONNX_FLOAT, 2, {-1, 4}};
}

static const char *write_small(struct small *s) {
  const char *path = in_folder("x.onnx");
  OK(sl__onnx_file_write(&s->graph, path));
  sl__onnx_graph_free(&s->graph);
  return path;
}

static void set_list(struct small *s, int node, const char *name, const int64_t *ints, int count) {
  static int64_t kept[64][4];
  static int turn;
  int64_t *list = kept[turn++ % 64];
  memcpy(list, ints, (size_t)count * sizeof *list);
  s->attribute[node][s->node[node].attributes++] = (struct sl__onnx_attribute){
      .name = name, .type = SL__ONNX_INTS, .ints = list, .count = count};
}

static void set_whole(struct small *s, int node, const char *name, int64_t whole) {
  s->attribute[node][s->node[node].attributes++] =
      (struct sl__onnx_attribute){.name = name, .type = SL__ONNX_I, .i = whole};
}

static void as_it_is(struct small *s) { (void)s; }
static void group(struct small *s) { set_whole(s, 0, "group", 2); }
static void no_group(struct small *s) { set_whole(s, 0, "group", 0); }
static void dilations(struct small *s) {
  s->node[1].op = "MaxPool";
  set_list(s, 1, "kernel_shape", (int64_t[]){2, 2}, 2);
  set_list(s, 1, "dilations", (int64_t[]){2, 2}, 2);
}
static void uneven_pads(struct small *s) { set_list(s, 0, "pads", (int64_t[]){0, 0, 1, 1}, 4); }
static void uneven_height(struct small *s) { set_list(s, 0, "pads", (int64_t[]){1, 1, 0, 1}, 4); }
static void uneven_width(struct small *s) { set_list(s, 0, "pads", (int64_t[]){1, 1, 1, 0}, 4); }
static void large_pads(struct small *s) { set_list(s, 0, "pads", (int64_t[]){3, 3, 3, 3}, 4); }
/* Pads of a transposed one, and perhaps an output padding, with stride 2. */
static void set_growing(struct small *s, const int64_t pads[4], int64_t more) {
  s->node[0].op = "ConvTranspose";
  s->tensor[0].dim[0] = 1, s->tensor[0].dim[1] = 2;
  set_list(s, 0, "strides", (int64_t[]){2, 2}, 2);
  set_list(s, 0, "pads", pads, 4);
  set_list(s, 0, "output_padding", (int64_t[]){more, more}, 2);
}
static void grows_higher(struct small *s) { set_growing(s, (int64_t[]){2, 0, 0, 0}, 0); }
static void grows_wider(struct small *s) { set_growing(s, (int64_t[]){0, 2, 0, 0}, 0); }
static void grows_at_both(struct small *s) { set_growing(s, (int64_t[]){2, 2, 1, 1}, 1); }
static void much_output_padding(struct small *s) { set_growing(s, (int64_t[]){0, 0, 0, 0}, 2); }
static void one_stride(struct small *s) { set_list(s, 0, "strides", (int64_t[]){1}, 1); }
static void zero_stride(struct small *s) { set_list(s, 0, "strides", (int64_t[]){0, 1}, 2); }
static void strange_type(struct small *s) { set_whole(s, 0, "pads", 1); }
static void strange_attribute(struct small *s) { set_whole(s, 0, "speed", 1); }
static void strange_operator(struct small *s) { s->node[1].op = "Celu"; }
static void strange_domain(struct small *s) {
  s->node[1].name = "";
  s->node[1].op = "Softmax";
}
static void attention(struct small *s) {
  s->node[1].op = "Softmax";
  s->node[2].op = "MatMul";
}
static void softmax_by_weights(struct small *s) {
  attention(s);
  s->in[2][1] = "w2";
  s->node[2].inputs = 2;
}
static void ceil_mode(struct small *s) {
  s->node[1].op = "MaxPool";
  set_list(s, 1, "kernel_shape", (int64_t[]){2, 2}, 2);
  set_whole(s, 1, "ceil_mode", 1);
}
static void average_of_less(struct small *s) {
  s->node[1].op = "AveragePool";
  set_list(s, 1, "kernel_shape", (int64_t[]){2, 2}, 2);
  set_list(s, 1, "pads", (int64_t[]){1, 1, 1, 1}, 4);
}
static void no_kernel(struct small *s) { s->node[1].op = "MaxPool"; }
static void flat_all(struct small *s) { set_whole(s, 2, "axis", 0); }
static void no_flatten(struct small *s) { s->in[3][0] = "r"; }
static void turned(struct small *s) { set_whole(s, 3, "transA", 1); }
static void half_weight(struct small *s) { s->tensor[0].dim[0] = 1, s->tensor[0].count = 9; }
static void other_weight(struct small *s) { s->tensor[1].dim[1] = 16, s->tensor[1].count = 64; }
static void short_tensor(struct small *s) { s->tensor[1].count = 100; }
static void huge_tensor(struct small *s) { s->tensor[1].dim[0] = INT64_MAX; }
static void negative_tensor(struct small *s) { s->tensor[1].dim[0] = -4; }
static void no_tensor(struct small *s) { s->graph.tensors = 2; }
static void twice(struct small *s) { s->tensor[2].name = "w2"; }
static void made_twice(struct small *s) {
  s->out[1][0] = "c";
  s->in[2][0] = "c";
}
static void circle(struct small *s) { s->in[0][0] = "r"; }
static void unsorted(struct small *s) {
  struct sl__onnx_node conv = s->node[0];
  s->node[0] = s->node[1];
  s->node[1] = conv;
}
static void no_name(struct small *s) {
  s->out[3][0] = "";
  s->output.name = "";
}
static void no_output(struct small *s) { s->output.name = "z"; }
static void input_is_output(struct small *s) { s->output.name = "x"; }
static void constant_input(struct small *s) { s->in[0][0] = "w1"; }
static void computed_weight(struct small *s) { s->in[3][1] = "x"; }
static void open_input(struct small *s) { s->input[0].dim[2] = -1; }
static void flat_input(struct small *s) { s->input[0].ndim = 1; }
static void deep_input(struct small *s) {
  s->input[0].ndim = 7;
  for (int i = 4; i < 7; i++) s->input[0].dim[i] = 1;
}
static void huge_input(struct small *s) { s->input[0].dim[2] = s->input[0].dim[3] = 1ll << 40; }
static void whole_input(struct small *s) { s->input[0].type = SL__ONNX_INT64; }
static void strange_input(struct small *s) { s->input[0].type = 2; }
static void old_set(struct small *s) { s->graph.opset = 6; }
static void new_set(struct small *s) { s->graph.opset = 99; }
static void nan_weight(struct small *s) {
  static float values[4] = {0, NAN, 0, 0};
  s->tensor[2].reals = values;
}
static void whole_weight(struct small *s) {
  static int64_t wholes[4];
  s->tensor[2].type = SL__ONNX_INT64;
  s->tensor[2].wholes = wholes;
}
static void add_constant(struct small *s) {
  s->node[1].op = "Add";
  s->node[1].inputs = 2;
  s->in[1][1] = "b2";
}
static void add_unlike(struct small *s) {
  s->node[1].op = "Add";
  s->node[1].inputs = 2;
  s->in[1][1] = "x";
}
static void turn_all(struct small *s) {
  s->node[1].op = "Transpose";
  set_list(s, 1, "perm", (int64_t[]){2, 1, 0, 3}, 4);
}
static void squeeze_much(struct small *s) {
  s->node[1].op = "Squeeze";
  s->node[1].inputs = 2;
  s->in[1][1] = "axes";
  s->tensor[3] = (struct sl__onnx_tensor){
      .name = "axes", .type = SL__ONNX_INT64, .ndim = 1, .dim = {1}, .count = 1, .wholes = axis1};
  s->graph.tensors = 4;
}

static const struct {
  void (*change)(struct small *s);
  enum sl_status status;
  const char *words;
} cases[] = {
    {as_it_is, SL_OK, ""},
    {group, SL_BAD_FILE, "node conv (Conv): its weight does not fit"},
    {no_group, SL_BAD_FILE, "node conv (Conv): attribute group is 0"},
    {dilations, SL_UNSUPPORTED, "node relu (MaxPool): attribute dilations is 2, 2"},
    {uneven_pads, SL_UNSUPPORTED, "node conv (Conv): attribute pads: both sides"},
    {uneven_height, SL_UNSUPPORTED, "node conv (Conv): attribute pads: both sides"},
    {uneven_width, SL_UNSUPPORTED, "node conv (Conv): attribute pads: both sides"},
    {large_pads, SL_UNSUPPORTED, "node conv (Conv): attribute pads is 3, 3"},
    {grows_higher, SL_UNSUPPORTED,
     "conv (ConvTranspose): attribute pads: the end may have 1, 1 less"},
    {grows_wider, SL_UNSUPPORTED,
     "conv (ConvTranspose): attribute pads: the end may have 1, 1 less"},
    {grows_at_both, SL_UNSUPPORTED,
     "conv (ConvTranspose): attribute pads: the end may have 0, 0 less"},
    {much_output_padding, SL_UNSUPPORTED, "output_pad 2x2"},
    {one_stride, SL_UNSUPPORTED, "attribute strides has 1 numbers"},
    {zero_stride, SL_BAD_FILE, "attribute strides is 0, 1"},
    {strange_type, SL_BAD_FILE, "attribute pads is of type 2, not 7"},
    {strange_attribute, SL_UNSUPPORTED, "attribute speed is not known"},
    {strange_operator, SL_UNSUPPORTED, "node relu (Celu): there is no layer"},
    {strange_domain, SL_UNSUPPORTED, "node r (Softmax): models end in logits"},
    {attention, SL_UNSUPPORTED,
     "node relu (Softmax): attention is written to ONNX files, not read"},
    {softmax_by_weights, SL_UNSUPPORTED, "node relu (Softmax): models end in logits"},
    {ceil_mode, SL_UNSUPPORTED, "node relu (MaxPool): attribute ceil_mode is 1"},
    {average_of_less, SL_UNSUPPORTED, "(AveragePool): attribute count_include_pad is 0"},
    {no_kernel, SL_BAD_FILE, "attribute kernel_shape must be there"},
    {flat_all, SL_UNSUPPORTED, "node flatten (Flatten): attribute axis"},
    {no_flatten, SL_BAD_FILE, "node fc (Gemm): takes a matrix, not 4"},
    {turned, SL_UNSUPPORTED, "attribute transA is 1"},
    {half_weight, SL_BAD_FILE, "node fc (Gemm): its weight takes 32 values, its input has 16"},
    {other_weight, SL_BAD_FILE, "its weight takes 16 values"},
    {short_tensor, SL_BAD_FILE, "tensor w2: has 400 bytes"},
    {huge_tensor, SL_BAD_FILE, "tensor w2: dimension 0 is 9223372036854775807"},
    {negative_tensor, SL_BAD_FILE, "tensor w2: dimension 0 is -4"},
    {no_tensor, SL_BAD_FILE, "takes 'b2', which no node before it makes"},
    {twice, SL_BAD_FILE, "'w2' is there twice"},
    {made_twice, SL_BAD_FILE, "'c' is made twice"},
    {circle, SL_BAD_FILE, "node conv (Conv): takes 'r', which no node before it makes"},
    {unsorted, SL_BAD_FILE, "takes 'c', which no node before it makes"},
    {no_name, SL_BAD_FILE, "no node makes the output"},
    {no_output, SL_BAD_FILE, "no node makes the output 'z'"},
    {input_is_output, SL_UNSUPPORTED, "the model has no layers"},
    {constant_input, SL_UNSUPPORTED, "its input 'w1' is a constant"},
    {computed_weight, SL_UNSUPPORTED, "its input 1 must be a constant"},
    {open_input, SL_UNSUPPORTED, "dimension 2 of input 'x' is not fixed"},
    {flat_input, SL_UNSUPPORTED, "input 'x' has 1 dimensions"},
    {deep_input, SL_UNSUPPORTED, "input 'x' has 7 dimensions"},
    {huge_input, SL_BAD_FILE, "2^40"},
    {whole_input, SL_UNSUPPORTED, "takes the model's input, which are whole numbers"},
    {strange_input, SL_UNSUPPORTED, "input 'x' is of type 2"},
    {old_set, SL_UNSUPPORTED, "operator set 6"},
    {new_set, SL_UNSUPPORTED, "operator set 99"},
    {nan_weight, SL_NOT_FINITE, "fc.bias"},
    {whole_weight, SL_UNSUPPORTED, "its input 2 has no values of a type that is read"},
    {add_constant, SL_UNSUPPORTED, "node relu (Add): adds a constant"},
    {add_unlike, SL_UNSUPPORTED, "takes outputs of different shapes"},
    {turn_all, SL_UNSUPPORTED, "attribute perm"},
    {squeeze_much, SL_UNSUPPORTED, "(Squeeze): axes"},
};

static void what_is_not_had_is_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct small s;
    struct sl_model *m = (struct sl_model *)&s;
    make_small(&s);
    cases[i].change(&s);
    const char *path = write_small(&s);
    enum sl_status status = sl_model_open(context, path, &m);
    if (status != cases[i].status || (status != SL_OK && !strstr(sl_error(), cases[i].words)))
      fail_msg("case %zu: %s: %s; expected \"%s\"", i, sl_status_name(status), sl_error(),
               cases[i].words);
    if (status != SL_OK) assert_null(m);
    if (status != SL_OK) assert_non_null(strstr(sl_error(), "x.onnx"));
    sl_model_free(m);
  }
}

/* x [N, T, I] -> Transpose -> LSTM or GRU -> Squeeze -> Transpose, with one more attribute. */
static enum sl_status open_node(const char *op, const char *attribute, int64_t value,
                                const char *direction) {
  enum { T = 3, I = 2, H = 2, MOST_GATES = 4 };
  static float w[MOST_GATES * H * I], u[MOST_GATES * H * H], b[2 * MOST_GATES * H];
  int64_t rows = (*op == 'L' ? 4 : 3) * H;
  struct sl_model *m;
  struct small s;
  make_small(&s);
  s.graph.nodes = 0;
  add_node(&s, "Transpose", "first", "x", NULL, NULL, "t");
  add_node(&s, op, "cell", "t", "w", "u", "h");
  s.in[1][3] = "b";
  s.node[1].inputs = 4;
  add_node(&s, "Squeeze", "squeeze", "h", "axes", NULL, "q");
  add_node(&s, "Transpose", "last", "q", NULL, NULL, "y");
  for (int n = 0; n < 4; n++) s.node[n].attributes = 0;
  set_list(&s, 0, "perm", (int64_t[]){1, 0, 2}, 3);
  set_list(&s, 3, "perm", (int64_t[]){1, 0, 2}, 3);
  set_whole(&s, 1, "hidden_size", H);
  if (attribute) set_whole(&s, 1, attribute, value);
  if (direction) {
    set_whole(&s, 1, "direction", 0);
    struct sl__onnx_attribute *set = &s.attribute[1][s.node[1].attributes - 1];
    set->type = SL__ONNX_S;
    set->s = direction;
  }
  s.tensor[0] = (struct sl__onnx_tensor){"w", SL__ONNX_FLOAT, 3, {1, rows, I}, rows * I, w};
  s.tensor[1] = (struct sl__onnx_tensor){"u", SL__ONNX_FLOAT, 3, {1, rows, H}, rows * H, u};
  s.tensor[2] = (struct sl__onnx_tensor){"b", SL__ONNX_FLOAT, 2, {1, 2 * rows}, 2 * rows, b};
  s.tensor[3] = (struct sl__onnx_tensor){
      .name = "axes", .type = SL__ONNX_INT64, .ndim = 1, .dim = {1}, .count = 1, .wholes = axis1};
  s.graph.tensors = 4;
  s.input[0] = (struct sl__onnx_end){"x", SL__ONNX_FLOAT, 3, {-1, T, I}};
  s.output = (struct sl__onnx_end){"y", SL__ONNX_FLOAT, 3, {-1, T, H}};
  enum sl_status status = sl_model_open(context, write_small(&s), &m);
  sl_model_free(m);
  return status;
}

static enum sl_status open_cell(const char *op, const char *attribute, int64_t value) {
  return open_node(op, attribute, value, NULL);
}

static enum sl_status open_way(const char *direction) {
  return open_node("LSTM", NULL, 0, direction);
}

/* ONNX's GRU resets before the product with h unless an attribute says otherwise; ours resets
 * after it. */
static void cells_that_compute_otherwise_are_refused(void **state) {
  (void)state;
  const char *words = "node cell (GRU): attribute linear_before_reset is 0";
  OK(open_cell("GRU", "linear_before_reset", 1));
  FAILS(open_cell("GRU", NULL, 0), SL_UNSUPPORTED, words);
  FAILS(open_cell("GRU", "linear_before_reset", 0), SL_UNSUPPORTED, words);
  OK(open_cell("LSTM", NULL, 0));
  FAILS(open_cell("LSTM", "input_forget", 1), SL_UNSUPPORTED, "attribute input_forget is 1");
  FAILS(open_cell("LSTM", "layout", 1), SL_UNSUPPORTED, "attribute layout is 1");
  FAILS(open_way("sideways"), SL_BAD_FILE, "attribute direction is sideways");
  FAILS(open_way("bidirectional"), SL_BAD_FILE, "its weights do not fit");
  OK(open_way("reverse"));
}

/* One Conv's weight for many nodes: small in the file, not in memory. */
static void weights_in_common_are_counted(void **state) {
  (void)state;
  enum { NODES = 200, SIDE = 200 };
  struct sl__onnx_node node[NODES];
  const char *in[NODES][2], *out[NODES][1];
  char names[NODES + 1][16];
  float *weight = calloc(SIDE * SIDE, sizeof *weight);
  struct sl__onnx_tensor w = {"w", SL__ONNX_FLOAT, 4, {SIDE, SIDE, 1, 1}, SIDE * SIDE, weight};
  struct sl__onnx_end x = {"v0", SL__ONNX_FLOAT, 4, {-1, SIDE, 1, 1}}, y = x;
  struct sl__onnx_graph graph = {.most = SIZE_MAX,
                                 .producer = "test",
                                 .opset = 17,
                                 .node = node,
                                 .tensor = &w,
                                 .input = &x,
                                 .output = &y,
                                 .nodes = NODES,
                                 .tensors = 1,
                                 .inputs = 1,
                                 .outputs = 1};
  struct sl_model *m;
  for (int i = 0; i <= NODES; i++) snprintf(names[i], sizeof names[i], "v%d", i);
  for (int i = 0; i < NODES; i++) {
    in[i][0] = names[i], in[i][1] = "w", out[i][0] = names[i + 1];
    node[i] = (struct sl__onnx_node){.name = "",
                                     .op = "Conv",
                                     .domain = "",
                                     .input = in[i],
                                     .output = out[i],
                                     .inputs = 2,
                                     .outputs = 1};
  }
  x.name = names[0], y.name = names[NODES];
  y.ndim = 4;
  OK(sl__onnx_file_write(&graph, in_folder("x.onnx")));
  sl__onnx_graph_free(&graph);
  /* 32 MB of them, against a file of 160 kB */
  FAILS(sl_model_open(context, in_folder("x.onnx"), &m), SL_UNSUPPORTED,
        "more parameters than the file");
  assert_null(m);
  free(weight);
}

/* ---- constants without values, or of a size that only an empty tensor can have ---- */

/* The weight is Slice(w2, [0], [rows]); its values are of another type, or it is empty. */
static void slice_of(struct small *s, int type, const int64_t *dim, int ndim) {
  s->graph.nodes = 3;
  s->attribute[4][0] = s->attribute[3][0];
  add_node(s, "Slice", "slice", "w2", NULL, NULL, "cut");
  set_list(s, 3, "starts", (int64_t[]){0}, 1);
  set_list(s, 3, "ends", (int64_t[]){2}, 1);
  add_node(s, "Gemm", "fc", "f", "cut", "b2", "y");
  s->node[4].attributes = 1;
  s->tensor[1].type = type;
  s->tensor[1].ndim = ndim;
  memcpy(s->tensor[1].dim, dim, (size_t)ndim * sizeof *dim);
}

static void check_slice(int type, const int64_t *dim, int ndim, const char *words) {
  struct small s;
  struct sl_model *m;
  make_small(&s);
  slice_of(&s, type, dim, ndim);
  s.tensor[1].reals = NULL;
  s.tensor[1].wholes = NULL;
  s.tensor[1].count = 0;
  OK(sl__onnx_file_write(&s.graph, in_folder("x.onnx")));
  sl__onnx_graph_free(&s.graph);
  enum sl_status status = sl_model_open(context, in_folder("x.onnx"), &m);
  assert_int_not_equal(status, SL_OK);
  if (!strstr(sl_error(), words)) fail_msg("%s; expected \"%s\"", sl_error(), words);
}

static void constants_without_values_are_refused(void **state) {
  const int64_t large = (int64_t)1 << 62;
  (void)state;
  check_slice(2, (int64_t[]){4}, 1, "node slice (Slice): its input 0 has no values");
  check_slice(SL__ONNX_FLOAT, (int64_t[]){4, 0}, 2, "its input 0 has no values");
  check_slice(SL__ONNX_FLOAT, (int64_t[]){1ll << 50, 0, 5}, 3, "tensor w2: dimension 0 is");
  check_slice(SL__ONNX_FLOAT, (int64_t[]){0, large, large, 2}, 4, "tensor w2: dimension 1 is");
}

/* ---- names whose hashes fall together ---- */

static void colliding_names_are_refused(void **state) {
  enum { NAMES = 800, PLACES = 4096 }; /* more than twice all names: the table has no more */
  (void)state;
  static struct sl__onnx_tensor tensor[3 + NAMES];
  static char names[NAMES][16];
  struct small s;
  struct sl_model *m;
  make_small(&s);
  memcpy(tensor, s.tensor, 3 * sizeof *tensor);
  for (int i = 0, number = 0; i < NAMES; number++) {
    snprintf(names[i], sizeof names[i], "n%d", number);
    if (sl__hash_name(names[i]) % PLACES) continue;
    tensor[3 + i] = (struct sl__onnx_tensor){names[i], SL__ONNX_FLOAT, 1, {4}, 4, bias2};
    i++;
  }
  s.graph.tensor = tensor;
  s.graph.tensors = 3 + NAMES;
  const char *path = write_small(&s);
  FAILS(sl_model_open(context, path, &m), SL_BAD_FILE, "names are made to collide");
  assert_null(m);
}

/* Two layers called alike, and a third that has the name a number would give. */
static void layers_get_names_of_their_own(void **state) {
  (void)state;
  struct small s;
  struct sl_model *m;
  make_small(&s);
  s.graph.nodes = 0;
  add_node(&s, "Tanh", "a", "x", NULL, NULL, "t");
  add_node(&s, "Relu", "a_2", "t", NULL, NULL, "u");
  add_node(&s, "Tanh", "a", "u", NULL, NULL, "v");
  add_node(&s, "Tanh", "a", "v", NULL, NULL, "y");
  s.node[1].attributes = s.node[2].attributes = s.node[3].attributes = 0;
  OK(sl_model_open(context, write_small(&s), &m));
  char *text = text_of(m);
  assert_non_null(strstr(text, "\"name\": \"a_3\""));
  free(text);
  sl_model_free(m);
}

/* ---- damage ---- */

struct bytes {
  uint8_t *at;
  size_t size;
};

static struct bytes read_bytes(const char *path) {
  struct bytes b;
  OK(sl__file_read(path, 1 << 20, &b.at, &b.size));
  return b;
}

static enum sl_status parse(const uint8_t *bytes, size_t size) {
  struct sl_model *m;
  struct sl__copy copy = {0};
  enum sl_status status = sl__onnx_parse(context, "file.onnx", bytes, size, &m, &copy);
  sl__copy_free(&copy);
  if (status != SL_OK) assert_null(m);
  sl_model_free(m);
  return status;
}

static void check_list(const struct sl__onnx_node *node, const char *name, int64_t first,
                       int64_t last) {
  int i = 0;
  while (strcmp(node->attribute[i].name, name) != 0) assert_true(++i < node->attributes);
  const struct sl__onnx_attribute *a = &node->attribute[i];
  assert_true(a->ints[0] == first && a->ints[a->count - 1] == last);
}

/* ONNX's output_padding is below the stride, the layer's perhaps only below the dilation: the rest
 * becomes padding that the end has less, as far as there is some. */
static void output_padding_is_below_the_stride(void **state) {
  (void)state;
  struct sl_conv_transpose1d_options o = {
      .channels = 3, .kernel = 3, .stride = 2, .pad = 2, .output_pad = 3, .dilation = 4};
  struct sl_model *m = new_model(SL_SHAPE(2, 7)), *opened;
  const char *path = in_folder("m.onnx");
  OK(sl_conv_transpose1d(m, "up", &o));
  OK(sl_model_save(m, path));
  struct bytes b = read_bytes(path);
  struct sl__onnx_graph graph = {.path = path, .most = SIZE_MAX};
  OK(sl__onnx_file_parse(&graph, b.at, b.size));
  check_list(&graph.node[0], "output_padding", 1, 1);
  check_list(&graph.node[0], "pads", 2, 0);
  sl__onnx_graph_free(&graph);
  free(b.at);
  OK(sl_model_open(context, path, &opened));
  check_same_answers(m, opened);
  sl_model_free(opened), sl_model_free(m);
  m = new_model(SL_SHAPE(2, 7));
  o.pad = 1;
  OK(sl_conv_transpose1d(m, "up", &o));
  FAILS(sl_model_save(m, path), SL_UNSUPPORTED, "layer up (conv_transpose1d): ONNX has no");
  sl_model_free(m);
}

/* ONNX's momentum of 1 is not the layer's default, which the option's 0 is. */
static void statistics_that_stay_are_kept(void **state) {
  (void)state;
  static const float kept[] = {1, 0.9f};
  for (int i = 0; i < 2; i++) {
    struct sl_batchnorm_options o = {.momentum = i ? 0 : FLT_MIN};
    struct sl_model *m = new_model(SL_SHAPE(2, 3)), *opened;
    const char *path = in_folder("m.onnx");
    OK(sl_batchnorm(m, "bn", &o));
    OK(sl_model_save(m, path));
    struct bytes b = read_bytes(path);
    struct sl__onnx_graph graph = {.path = path, .most = SIZE_MAX};
    OK(sl__onnx_file_parse(&graph, b.at, b.size));
    const struct sl__onnx_attribute *a = graph.node[0].attribute;
    while (strcmp(a->name, "momentum") != 0) a++;
    assert_true(a->f == kept[i]);
    sl__onnx_graph_free(&graph);
    free(b.at);
    OK(sl_model_open(context, path, &opened));
    char *first = text_of(m), *second = text_of(opened);
    assert_string_equal(first, second);
    free(first), free(second);
    sl_model_free(opened), sl_model_free(m);
  }
}

/* A file may end in any place; the last field says of which operator set it is. */
static void cut_files_are_refused(void **state) {
  static const char *const names[] = {"onnx_residual.onnx", "onnx_words.onnx"};
  (void)state;
  for (int i = 0; i < 2; i++) {
    struct bytes b = read_bytes(fixture(names[i]));
    assert_int_equal(parse(b.at, b.size), SL_OK);
    for (size_t size = 0; size < b.size; size++) {
      uint8_t *cut = malloc(size ? size : 1); /* of its own, so that a byte too far is seen */
      memcpy(cut, b.at, size);
      assert_int_equal(parse(cut, size), SL_BAD_FILE);
      free(cut);
    }
    free(b.at);
  }
}

/* Any bytes changed: a model or a message, never anything else. */
static void damage_does_no_harm(void **state) {
  static const char *const names[] = {"onnx_residual.onnx", "onnx_words.onnx"};
  uint64_t random = 88172645463325252ull;
  int read = 0;
  (void)state;
  for (int n = 0; n < 6000; n++) {
    struct bytes b = read_bytes(fixture(names[n % 2]));
    for (int k = 0; k <= n % 4; k++) {
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      b.at[random % b.size] = (uint8_t)(random >> 32);
    }
    read += parse(b.at, b.size) == SL_OK;
    free(b.at);
  }
  assert_in_range(read, 1, 5999);
}

/* A tensor more, whose values are in another file: fields that come twice are put together. */
static void other_files_are_not_read(void **state) {
  static const uint8_t more[] = {0x3a, 7, 0x2a, 5, 0x42, 1, 'x', 0x70, 1};
  (void)state;
  struct bytes b = read_bytes(fixture("onnx_residual.onnx"));
  uint8_t *both = malloc(b.size + sizeof more);
  memcpy(both, b.at, b.size);
  memcpy(both + b.size, more, sizeof more);
  assert_int_equal(parse(both, b.size + sizeof more), SL_UNSUPPORTED);
  assert_non_null(strstr(sl_error(), "tensor x lies in another file"));
  free(both), free(b.at);
}

/* Two bytes a node, of which a reader makes a hundred. */
static void small_files_stay_small(void **state) {
  enum { NODES = 1 << 20 };
  (void)state;
  uint8_t *bytes = calloc(2 * NODES + 5, 1);
  bytes[0] = 0x3a; /* graph */
  for (int i = 0; i < 4; i++) bytes[1 + i] = (uint8_t)((2u * NODES >> 7 * i & 127) | (i < 3) << 7);
  for (int i = 0; i < NODES; i++) bytes[5 + 2 * i] = 0x0a;
  assert_int_equal(parse(bytes, 2 * NODES + 5), SL_BAD_FILE);
  assert_non_null(strstr(sl_error(), "more memory than"));
  free(bytes);
}

static enum sl_status parse_fixture(void) {
  struct bytes b = {0};
  enum sl_status status = sl__file_read(fixture("onnx_words.onnx"), 1 << 20, &b.at, &b.size);
  if (status == SL_OK) status = parse(b.at, b.size);
  free(b.at);
  return status;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  check_allocations(parse_fixture);
}

#endif

static int setup(void **state) { return folder_setup(state) || open_context(state); }

static int teardown(void **state) {
  int failed = close_context(state);
  return folder_teardown(state) || failed;
}

int main(void) {
#ifdef SL_HAVE_ONNX
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_saved_reads_back),
                                     cmocka_unit_test(weights_are_loaded),
                                     cmocka_unit_test(weights_go_by_parameter),
                                     cmocka_unit_test(init_and_group_are_lost),
                                     cmocka_unit_test(output_padding_is_below_the_stride),
                                     cmocka_unit_test(statistics_that_stay_are_kept),
                                     cmocka_unit_test(a_programs_own_kind_is_refused),
                                     cmocka_unit_test(an_older_exporters_file_is_read),
                                     cmocka_unit_test(both_outputs_of_a_recurrent_layer_are_read),
                                     cmocka_unit_test(a_newer_exporters_file_is_read),
                                     cmocka_unit_test(what_is_not_had_is_refused),
                                     cmocka_unit_test(cells_that_compute_otherwise_are_refused),
                                     cmocka_unit_test(weights_in_common_are_counted),
                                     cmocka_unit_test(constants_without_values_are_refused),
                                     cmocka_unit_test(colliding_names_are_refused),
                                     cmocka_unit_test(layers_get_names_of_their_own),
                                     cmocka_unit_test(cut_files_are_refused),
                                     cmocka_unit_test(damage_does_no_harm),
                                     cmocka_unit_test(other_files_are_not_read),
                                     cmocka_unit_test(small_files_stay_small),
                                     cmocka_unit_test(every_allocation_may_fail)};
#else
  const struct CMUnitTest tests[] = {cmocka_unit_test(without_protobuf_it_says_so)};
#endif
  return cmocka_run_group_tests_name("onnx", tests, setup, teardown);
}
