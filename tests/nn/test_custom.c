/* Layers of kinds that this program registers: their gradients by finite differences of the loss,
 * any cut of the batch or of time against the serial run, files to the bit; and whatever is wrong
 * with a kind, its options or its kernels ends in a message that names it. All but the look at
 * footprints goes by the public headers. */
#include <math.h>

#include "tests/common/files.h"
#include "nn/layer.h"
#include "tests/common/small_model.h"

/* ---- a kind with two inputs, two parameters, something saved and an option of each type:
 * y = a s + bias, s = sigmoid(scale w b), over the last axis ---- */

struct gate_options {
  struct sl_layer_options layer;
  bool no_bias;
  int fails;     /* 1: forward, 2: forward without a word, 3: backward_weight */
  int64_t width; /* 0, or what the last axis must be */
  float scale;   /* 0 means 1 */
  enum sl_activation activation;
};

static const struct sl_field gate_fields[] = {
    SL_FIELD(gate_options, BOOL, no_bias),          SL_FIELD(gate_options, INT, fails),
    SL_FIELD(gate_options, INT64, width),           SL_FIELD(gate_options, FLOAT, scale),
    SL_FIELD(gate_options, ACTIVATION, activation), {0}};

static enum sl_status gate_infer(struct sl_layer_plan *p) {
  const struct gate_options *o = p->options;
  int64_t width = p->in[0].dim[p->in[0].ndim - 1];
  if (p->input_count != 2 || !sl_shape_equal(&p->in[0], &p->in[1])) {
    snprintf(p->message, sizeof p->message, "needs two inputs that are alike");
    return SL_BAD_SHAPE;
  }
  if (o->width && o->width != width) {
    snprintf(p->message, sizeof p->message, "width is %d, the input's %d", (int)o->width,
             (int)width);
    return SL_BAD_ARGUMENT;
  }
  p->out = p->saved = p->in[0];
  p->over_time = p->out.ndim > 1;
  p->flops = 8 * (double)sl_shape_count(&p->out);
  p->parameter[0] = (struct sl_layer_parameter){
      .suffix = "weight", .shape = {1, {width}}, .fan_in = width, .fan_out = width};
  p->parameter[1] = (struct sl_layer_parameter){
      .suffix = "bias", .shape = {1, {width}}, .is_bias = true, .filled = true, .fill = 0.5f};
  p->parameter_count = o->no_bias ? 1 : 2;
  return SL_OK;
}

static float scale_of(const struct sl_layer_task *t) {
  const struct gate_options *o = t->options;
  return o->scale != 0 ? o->scale : 1;
}

static int64_t values_of(const struct sl_layer_task *t) {
  return t->rows * sl_shape_count(&t->out);
}

static enum sl_status gate_forward(struct sl_layer_task *t) {
  const struct gate_options *o = t->options;
  int64_t width = t->out.dim[t->out.ndim - 1];
  if (o->fails == 2) return (enum sl_status)777;
  if (o->fails == 1) {
    snprintf(t->message, sizeof t->message, "%lld rows are not to my taste", (long long)t->rows);
    return SL_NOT_FINITE;
  }
  for (int64_t i = 0; i < values_of(t); i++) {
    t->saved[i] = 1 / (1 + expf(-scale_of(t) * t->param[0][i % width] * t->x[1][i]));
    t->y[i] = t->x[0][i] * t->saved[i] + (o->no_bias ? 0 : t->param[1][i % width]);
  }
  return SL_OK;
}

static enum sl_status gate_backward_data(struct sl_layer_task *t) {
  int64_t width = t->out.dim[t->out.ndim - 1];
  for (int64_t i = 0; i < values_of(t); i++) {
    float s = t->saved[i];
    t->dx[i] += t->input == 0
                    ? t->dy[i] * s
                    : t->dy[i] * t->x[0][i] * s * (1 - s) * scale_of(t) * t->param[0][i % width];
  }
  return SL_OK;
}

static enum sl_status gate_backward_weight(struct sl_layer_task *t) {
  const struct gate_options *o = t->options;
  int64_t width = t->out.dim[t->out.ndim - 1];
  if (o->fails == 3) return SL_BAD_SHAPE;
  for (int64_t i = 0; i < values_of(t); i++) {
    float s = t->saved[i];
    t->grad[0][i % width] += t->dy[i] * t->x[0][i] * s * (1 - s) * scale_of(t) * t->x[1][i];
    if (!o->no_bias) t->grad[1][i % width] += t->dy[i];
  }
  return SL_OK;
}

static const struct sl_layer_kind gate = {.version = SL_LAYER_VERSION,
                                          .name = "gate",
                                          .options_size = sizeof(struct gate_options),
                                          .fields = gate_fields,
                                          .infer = gate_infer,
                                          .forward = gate_forward,
                                          .backward_data = gate_backward_data,
                                          .backward_weight = gate_backward_weight};

/* Where the kernels are for CPUs alone, they go there from wherever the layer is placed. */
static void begin(void) { assert_int_equal(open_context(NULL), 0); }

static int setup(void **state) {
  (void)state;
  begin();
  OK(sl_layer_register(context, &gate));
  return 0;
}

/* Two branches meet in a gate; a second one has the first twice. */
static struct sl_model *images(int fails) {
  struct sl_model *m = new_model(SL_SHAPE(1, 28, 28));
  const struct sl_dense_options left = {.features = 12, .activation = SL_ACTIVATION_TANH};
  const struct sl_dense_options right = {.features = 12, .layer.inputs = "input"};
  OK(sl_dense(m, "left", &left));
  OK(sl_dense(m, "right", &right));
  OK(sl_layer(
      m, "meet", "gate",
      &(struct gate_options){
          .scale = 0.75f, .fails = fails, .layer = {.inputs = "left,right", .group = "g"}}));
  OK(sl_layer(m, "self", "gate",
              &(struct gate_options){.no_bias = true, .layer.inputs = "meet,meet"}));
  add_dense(m, "fc", 10, SL_INIT_DEFAULT);
  return m;
}

/* ---- a training ---- */

struct run {
  struct sl_trainer_options options;
  float lr;              /* 0 means 0.2 */
  enum sl_status status; /* the first failure */
  double loss[8];
};

static struct sl_dataset *words(int64_t steps) {
  struct sl_dataset *data;
  int32_t tokens[1025];
  for (int i = 0; i < 1025; i++) tokens[i] = (i * i + i / 7) % 11;
  OK(sl_tokens_new("words", tokens, 1025, steps, 11, &data));
  return data;
}

static void train(struct run *run, struct sl_model *m) {
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported = true;
  if (m->sample.ndim == 1)
    data = words(m->sample.dim[0]);
  else
    OK(sl_digits_new(200, 3, true, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 18}, &loader));
  const struct sl_optimizer sgd = {.lr = run->lr > 0 ? run->lr : 0.2f};
  OK(sl_trainer_new(m, &sgd, NULL, &run->options, &trainer));
  for (int s = 0; s < 8 && run->status == SL_OK; s++) {
    run->status = sl_trainer_step(trainer, loader, &report, &reported);
    if (run->status == SL_OK && reported) run->loss[report.step] = report.loss;
  }
  for (reported = true; run->status == SL_OK && reported;) {
    run->status = sl_trainer_drain(trainer, &report, &reported);
    if (run->status == SL_OK && reported) run->loss[report.step] = report.loss;
  }
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

/* The loss that a training's first step has, which is undone; after it a parameter's values. */
static double loss_at(struct sl_model *m, const struct sl_dataset *data, const char *name,
                      float *after) {
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  int count = sl_model_parameter_count(m);
  float *saved[32];
  for (int i = 0; i < count; i++) saved[i] = get_values(m, sl_model_parameter(m, i, NULL));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 24}, &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){.lr = 1}, NULL,
                    &(struct sl_trainer_options){.replicas = 1}, &trainer));
  OK(sl_trainer_step(trainer, loader, &report, &reported));
  OK(sl_trainer_drain(trainer, &report, &reported));
  assert_true(reported);
  if (after) OK(sl_model_get(m, name, after));
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  for (int i = 0; i < count; i++) {
    OK(sl_model_set(m, sl_model_parameter(m, i, NULL), saved[i]));
    free(saved[i]);
  }
  return report.loss;
}

/* A step of plain descent at rate 1 moves a parameter by its gradient; the loss a bit along it and
 * against it tells the slope. */
static void gradients_are_those_of_the_loss(void **state) {
  (void)state;
  struct sl_model *m = images(0);
  struct sl_dataset *data;
  OK(sl_model_build(m));
  assert_int_equal(sl_model_parameter_count(m), 9);
  OK(sl_digits_new(24, 9, true, &data));
  for (int i = 0; i < sl_model_parameter_count(m); i++) {
    const char *name = sl_model_parameter(m, i, NULL);
    int64_t n = value_count(m, name);
    float *begin = get_values(m, name), *moved = get_values(m, name);
    double square = 0, loss[2];
    loss_at(m, data, name, moved);
    for (int64_t k = 0; k < n; k++) square += pow((double)(begin[k] - moved[k]), 2);
    assert_true(square > 1e-9); /* all of them learn */
    double step = 0.02 / sqrt(square);
    for (int side = 0; side < 2; side++) {
      float *w = calloc((size_t)n, sizeof *w);
      for (int64_t k = 0; k < n; k++)
        w[k] = begin[k] + (float)((side ? 1 : -1) * step * (double)(begin[k] - moved[k]));
      OK(sl_model_set(m, name, w));
      loss[side] = loss_at(m, data, NULL, NULL);
      free(w);
    }
    OK(sl_model_set(m, name, begin));
    double slope = (loss[1] - loss[0]) / (2 * step);
    if (!(fabs(slope - square) <= 0.02 * square))
      fail_msg("%s: squared gradient %.6g, by differences %.6g", name, square, slope);
    free(begin), free(moved);
  }
  sl_dataset_free(data);
  sl_model_free(m);
}

/* ---- cuts ---- */

static void assert_like(const struct run *a, const struct run *b, double tolerance) {
  OK(a->status);
  OK(b->status);
  for (int s = 0; s < 8; s++)
    if (!(fabs(a->loss[s] - b->loss[s]) <= tolerance * a->loss[s]))
      fail_msg("step %d: loss %.9g and %.9g", s, a->loss[s], b->loss[s]);
}

static void any_cut_of_the_batch_gives_the_serial_curve(void **state) {
  (void)state;
  static const struct sl_trainer_options cuts[] = {
      {.replicas = 2}, {.replicas = 1, .microbatches = 3}, {.replicas = 2, .microbatches = 2}};
  struct run serial = {.options.replicas = 1}, again = serial;
  struct sl_model *m = images(0);
  train(&serial, m);
  sl_model_free(m);
  assert_true(serial.loss[7] < serial.loss[0]);
  m = images(0);
  train(&again, m);
  sl_model_free(m);
  assert_like(&serial, &again, 0);
  for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
    struct run run = {.options = cuts[c]};
    m = images(0);
    train(&run, m);
    sl_model_free(m);
    assert_like(&serial, &run, 1e-5);
  }
}

/* Kernels know floats only; they get bf16's values as floats, and their results are rounded. */
static void a_training_in_bf16_goes_the_same_way(void **state) {
  (void)state;
  struct run serial = {.options.replicas = 1}, half = {.options = {1, .math = SL_MATH_BF16}};
  struct sl_model *m = images(0);
  train(&serial, m);
  sl_model_free(m);
  m = images(0);
  train(&half, m);
  sl_model_free(m);
  assert_like(&serial, &half, 0.02);
  assert_true(serial.loss[3] != half.loss[3]);
}

static struct sl_model *sentences(void) {
  struct sl_model *m = new_model(SL_SHAPE(8));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 11, .features = 6}));
  OK(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = 6}));
  OK(sl_layer(m, "meet", "gate", &(struct gate_options){.layer.inputs = "lstm,embed"}));
  OK(sl_dense(m, "decoder", &(struct sl_dense_options){.features = 11, .positions = true}));
  return m;
}

static void time_may_be_cut_too(void **state) {
  (void)state;
  struct run whole = {.options.replicas = 1}, cut = {.options = {1, .chunk = 3}};
  struct sl_model *m = sentences();
  train(&whole, m);
  sl_model_free(m);
  m = sentences();
  train(&cut, m);
  sl_model_free(m);
  assert_like(&whole, &cut, 1e-5);
}

/* ---- a kind whose backward halves read the output: y = tanh(w x) over the last axis ---- */

static enum sl_status squash_infer(struct sl_layer_plan *p) {
  p->out = p->in[0];
  p->over_time = true;
  p->parameter[0] = (struct sl_layer_parameter){.suffix = "weight",
                                                .shape = {1, {p->out.dim[p->out.ndim - 1]}},
                                                .filled = true,
                                                .fill = 0.9f};
  p->parameter_count = 1;
  return SL_OK;
}

static enum sl_status squash_forward(struct sl_layer_task *t) {
  int64_t width = t->out.dim[t->out.ndim - 1];
  for (int64_t i = 0; i < values_of(t); i++) t->y[i] = tanhf(t->param[0][i % width] * t->x[0][i]);
  return SL_OK;
}

static enum sl_status squash_backward_data(struct sl_layer_task *t) {
  int64_t width = t->out.dim[t->out.ndim - 1];
  for (int64_t i = 0; i < values_of(t); i++)
    t->dx[i] += t->dy[i] * (1 - t->y[i] * t->y[i]) * t->param[0][i % width];
  return SL_OK;
}

static enum sl_status squash_backward_weight(struct sl_layer_task *t) {
  int64_t width = t->out.dim[t->out.ndim - 1];
  for (int64_t i = 0; i < values_of(t); i++)
    t->grad[0][i % width] += t->dy[i] * (1 - t->y[i] * t->y[i]) * t->x[0][i];
  return SL_OK;
}

static const struct sl_layer_kind squash = {.version = SL_LAYER_VERSION,
                                            .name = "squash",
                                            .options_size = sizeof(struct sl_layer_options),
                                            .infer = squash_infer,
                                            .forward = squash_forward,
                                            .backward_data = squash_backward_data,
                                            .backward_weight = squash_backward_weight};

/* Without a recurrent state a chunk changes no bit: parameters' gradients are sums over all steps,
 * of layers with two inputs, with one twice, and that read their output. */
static void chunks_have_the_same_bits(void **state) {
  (void)state;
  static const int64_t chunks[] = {8, 4, 3, 1};
  struct run run[4];
  OK(sl_layer_register(context, &squash));
  for (int i = 0; i < 4; i++) {
    struct sl_model *m = new_model(SL_SHAPE(8));
    run[i] = (struct run){.options = {.replicas = 2, .chunk = chunks[i]}};
    OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 11, .features = 6}));
    OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 6, .positions = true}));
    OK(sl_layer(m, "meet", "gate", &(struct gate_options){.layer.inputs = "fc,embed"}));
    OK(sl_layer(m, "self", "gate", &(struct gate_options){.layer.inputs = "meet,meet"}));
    OK(sl_layer(m, "squash", "squash", &(struct sl_layer_options){0}));
    OK(sl_dense(m, "decoder", &(struct sl_dense_options){.features = 11, .positions = true}));
    train(&run[i], m);
    sl_model_free(m);
    assert_like(&run[0], &run[i], on_gpu() ? 1e-5 : 0);
  }
}

/* ---- a kind with any number of inputs: their sum ---- */

static enum sl_status total_infer(struct sl_layer_plan *p) {
  for (int i = 1; i < p->input_count; i++)
    if (!sl_shape_equal(&p->in[i], &p->in[0])) {
      snprintf(p->message, sizeof p->message, "its inputs 0 and %d differ", i);
      return SL_BAD_SHAPE;
    }
  p->out = p->in[0];
  return SL_OK;
}

static enum sl_status total_forward(struct sl_layer_task *t) {
  for (int64_t i = 0; i < values_of(t); i++) {
    t->y[i] = t->x[0][i];
    for (int k = 1; k < t->input_count; k++) t->y[i] += t->x[k][i];
  }
  return SL_OK;
}

static enum sl_status total_backward_data(struct sl_layer_task *t) {
  for (int64_t i = 0; i < t->rows * sl_shape_count(&t->in[t->input]); i++) t->dx[i] += t->dy[i];
  return SL_OK;
}

static const struct sl_layer_kind total = {.version = SL_LAYER_VERSION,
                                           .name = "total",
                                           .options_size = sizeof(struct sl_layer_options),
                                           .infer = total_infer,
                                           .forward = total_forward,
                                           .backward_data = total_backward_data};

/* Forty branches meet, in an own layer or in one of the library's; the last branch twice. */
static struct sl_model *branches(const char *kind) {
  enum { MANY = 40 };
  char names[8 * MANY] = "", name[16];
  struct sl_model *m = new_model(SL_SHAPE(1, 28, 28));
  for (int i = 0; i < MANY; i++) {
    snprintf(name, sizeof name, "b%d", i);
    OK(sl_dense(m, name, &(struct sl_dense_options){.features = 4, .layer.inputs = "input"}));
    strcat(strcat(names, name), ",");
  }
  strcat(names, name);
  OK(sl_layer(m, "meet", kind, &(struct sl_layer_options){.inputs = names}));
  add_dense(m, "fc", 10, SL_INIT_DEFAULT);
  return m;
}

static void any_number_of_inputs_meet(void **state) {
  (void)state;
  static const struct sl_trainer_options ways[] = {{.replicas = 1},
                                                   {.replicas = 1, .eager = true},
                                                   {.replicas = 2, .microbatches = 2},
                                                   {.replicas = 1, .math = SL_MATH_BF16}};
  OK(sl_layer_register(context, &total));
  for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
    struct run own = {.options = ways[w], .lr = 0.005f}, theirs = own;
    struct sl_model *m = branches("total");
    train(&own, m);
    sl_model_free(m);
    m = branches("add");
    train(&theirs, m);
    sl_model_free(m);
    assert_true(own.loss[7] < own.loss[0]);
    assert_like(&own, &theirs, ways[w].math ? 0.02 : 1e-6);
  }
  struct sl_model *m = new_model(SL_SHAPE(3));
  OK(sl_dense(m, "a", &(struct sl_dense_options){.features = 3}));
  OK(sl_dense(m, "b", &(struct sl_dense_options){.features = 2}));
  FAILS(sl_layer(m, "c", "total", &(struct sl_layer_options){.inputs = "a,a,b"}), SL_BAD_SHAPE,
        "its inputs 0 and 2 differ");
  sl_model_free(m);
}

/* ---- files ---- */

static void predict(struct sl_model *m, float *y) {
  struct sl_predictor *p;
  static float x[5 * 784];
  for (int i = 0; i < 5 * 784; i++) x[i] = (float)(i % 17) / 17;
  OK(sl_predictor_open(m, NULL, &p));
  OK(sl_predict(p, x, 5, y));
  sl_predictor_free(p);
}

static void a_saved_model_opens_to_the_bit(void **state) {
  (void)state;
  const char *path = in_folder("gate.json");
  char *first, *second;
  float y[50], again[50];
  struct run run = {.options.replicas = 2};
  struct sl_model *m = images(0), *opened;
  train(&run, m);
  OK(run.status);
  OK(sl_model_save(m, path));
  OK(sl_model_open(context, path, &opened));
  OK(sl_model_architecture(m, NULL, &first));
  OK(sl_model_architecture(opened, NULL, &second));
  assert_string_equal(first, second);
  assert_non_null(strstr(first,
                         "\"kind\": \"gate\", \"inputs\": [\"meet\", \"meet\"], "
                         "\"no_bias\": true}"));
  assert_non_null(strstr(first, "\"scale\": 0.75"));
  predict(m, y);
  predict(opened, again);
  assert_memory_equal(y, again, sizeof y);
  free(first), free(second);
  sl_model_free(opened);
  sl_model_free(m);
}

#define FILE_OF(layer)                                                                             \
  "{\"format\": \"starling model\", \"version\": 1, \"input\": [4], \"layers\": [" layer "]}"

static void refused(const char *text, enum sl_status status, const char *words) {
  struct sl_model *m;
  FAILS(sl_model_parse(context, "some.json", text, strlen(text), &m), status, words);
  assert_null(m);
}

static void files_that_do_not_fit_are_refused(void **state) {
  (void)state;
#define LAYER(more) FILE_OF("{\"name\": \"l\", \"inputs\": [\"input\", \"input\"], " more "}")
  refused(LAYER("\"kind\": \"gates\""), SL_UNSUPPORTED, "register it first");
  refused(LAYER("\"kind\": \"gates\""), SL_UNSUPPORTED, "layer l is of kind \"gates\"");
  refused(LAYER("\"kind\": \"gate\", \"slope\": 1"), SL_BAD_FILE, "\"slope\" is no option");
  refused(LAYER("\"kind\": \"gate\", \"scale\": \"1\""), SL_BAD_FILE, "must be a number");
  refused(LAYER("\"kind\": \"gate\", \"fails\": -1"), SL_BAD_FILE, "from 0 to");
  refused(LAYER("\"kind\": \"gate\", \"activation\": \"swish\""), SL_BAD_FILE, "swish");
  refused(LAYER("\"kind\": \"gate\", \"width\": 5"), SL_BAD_FILE,
          "some.json: layer l (gate): width is 5, the input's 4");
  refused(FILE_OF("{\"name\": \"l\", \"inputs\": [\"input\"], \"kind\": \"gate\"}"), SL_BAD_FILE,
          "two inputs that are alike");
#undef LAYER
}

/* A value that a model's file could not hold is no option: a model that trains can be saved. */
static void options_have_the_limits_of_files(void **state) {
  (void)state;
  struct sl_layer_kind lists = gate;
  struct list_options {
    struct sl_layer_options layer;
    struct sl_shape list;
  };
  const struct sl_field fields[] = {SL_FIELD(list_options, SHAPE, list), {0}};
  struct sl_model *m = new_model(SL_SHAPE(4));
  lists.name = "lists";
  lists.options_size = sizeof(struct list_options);
  lists.fields = fields;
  OK(sl_layer_register(context, &lists));
#define REFUSED(words, ...)                                                                        \
  FAILS(sl_layer(m, "l", "gate",                                                                   \
                 &(struct gate_options){.layer.inputs = "input,input", __VA_ARGS__}),              \
        SL_BAD_ARGUMENT, "layer l (gate): " words)
  REFUSED("fails is -1; it must be a whole number from 0 to 2147483647", .fails = -1);
  REFUSED("width is -1; it must be a whole number from 0 to 1099511627776", .width = -1);
  REFUSED("width is 1125899906842624", .width = 1ll << 50);
  REFUSED("scale is nan; it must be finite", .scale = NAN);
  REFUSED("scale is -inf", .scale = -INFINITY);
  REFUSED("activation is 55; there is no such", .activation = (enum sl_activation)55);
  REFUSED("activation is -1; there is no such", .activation = (enum sl_activation) - 1);
#undef REFUSED
#define REFUSED(words, ...)                                                                        \
  FAILS(sl_layer(m, "l", "lists", &(struct list_options){.list = __VA_ARGS__}), SL_BAD_ARGUMENT,   \
        "layer l (lists): list" words)
  REFUSED(" has the number -2; each must be from 0 to 1099511627776", SL_SHAPE(3, -2));
  REFUSED(" has the number 1125899906842624", SL_SHAPE(1ll << 50));
  REFUSED(" has 6 numbers; at most 5", {.ndim = 6});
  REFUSED(" has -1 numbers; at most 5", {.ndim = -1});
#undef REFUSED
  assert_int_equal(sl_model_layer_count(m), 0);
  sl_model_free(m);
}

/* Another context has other kinds. */
static void a_kind_is_its_contexts(void **state) {
  (void)state;
  struct sl_model *m;
  sl_close(context);
  begin();
  FAILS(sl_model_open(context, in_folder("gate.json"), &m), SL_UNSUPPORTED, "register it first");
  assert_null(m);
  m = new_model(SL_SHAPE(4));
  FAILS(sl_layer(m, "l", "gate", &(struct gate_options){0}), SL_UNSUPPORTED, "sl_layer_register");
  FAILS(sl_layer(m, "l", "", &(struct gate_options){0}), SL_UNSUPPORTED, "''");
  /* the library's own go by their names, too */
  OK(sl_layer(m, "l", "dense", &(struct sl_dense_options){.features = 2}));
  sl_model_free(m);
}

/* ---- kinds that cannot be registered ---- */

static void wrong_kinds_are_refused(void **state) {
  (void)state;
  char name[80];
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = '\0';
#define REFUSED(status, words, change)                                                             \
  do {                                                                                             \
    struct sl_layer_kind k = gate;                                                                 \
    k.name = "other";                                                                              \
    change;                                                                                        \
    FAILS(sl_layer_register(context, &k), status, words);                                          \
  } while (0)
  REFUSED(SL_BAD_ARGUMENT, "'gate' already", k.name = "gate");
  REFUSED(SL_BAD_ARGUMENT, "'dense' already", k.name = "dense");
  REFUSED(SL_BAD_ARGUMENT, "cannot name", k.name = "");
  REFUSED(SL_BAD_ARGUMENT, "cannot name", k.name = NULL);
  REFUSED(SL_BAD_ARGUMENT, "cannot name", k.name = "a \"b\"");
  REFUSED(SL_BAD_ARGUMENT, "1 to 63", k.name = name);
  REFUSED(SL_UNSUPPORTED, "SL_LAYER_VERSION", k.version = SL_LAYER_VERSION + 1);
  REFUSED(SL_UNSUPPORTED, "version 0", k.version = 0);
  REFUSED(SL_BAD_ARGUMENT, "infer and forward", k.forward = NULL);
  REFUSED(SL_BAD_ARGUMENT, "infer and forward", k.infer = NULL);
  REFUSED(SL_BAD_ARGUMENT, "begins with", k.options_size = 4);
#define FIELDS(...)                                                                                \
  k.fields = (const struct sl_field[]) {                                                           \
    __VA_ARGS__, { 0 }                                                                             \
  }
  const size_t inside = offsetof(struct gate_options, scale);
  REFUSED(SL_BAD_ARGUMENT, "option scale", FIELDS({"scale", SL_FIELD_FLOAT, 0}));
  REFUSED(SL_BAD_ARGUMENT, "option scale",
          FIELDS({"scale", SL_FIELD_INT64, sizeof(struct gate_options) - 4}));
  REFUSED(SL_BAD_ARGUMENT, "option scale", FIELDS({"scale", SL_FIELD_INT64, SIZE_MAX - 3}));
  REFUSED(SL_BAD_ARGUMENT, "option scale", FIELDS({"scale", SL_FIELD_INT, inside + 1}));
  REFUSED(SL_BAD_ARGUMENT, "option scale",
          FIELDS({"scale", SL_FIELD_INT64, offsetof(struct gate_options, width) - 4}));
  REFUSED(SL_BAD_ARGUMENT, "type 9", FIELDS({"scale", (enum sl_field_type)9, inside}));
  REFUSED(SL_BAD_ARGUMENT, "'inputs'", FIELDS({"inputs", SL_FIELD_INT, inside}));
  REFUSED(SL_BAD_ARGUMENT, "'a b'", FIELDS({"a b", SL_FIELD_INT, inside}));
  REFUSED(SL_BAD_ARGUMENT, "twice",
          FIELDS({"scale", SL_FIELD_INT, inside}, {"scale", SL_FIELD_INT, inside}));
#undef FIELDS
#undef REFUSED
}

/* A kind and a layer of it, of which any allocation may fail; each success has a name of its own.
 */
static enum sl_status register_and_append(void) {
  static int number;
  struct sl_layer_kind k = gate;
  struct sl_model *m;
  char name[16];
  snprintf(name, sizeof name, "gate%d", number++);
  k.name = name;
  enum sl_status status = sl_layer_register(context, &k);
  if (status == SL_OK) status = sl_model_new(context, &SL_SHAPE(3), &m);
  if (status != SL_OK) return status;
  status = sl_layer(m, "l", name, &(struct gate_options){.layer.inputs = "input,input"});
  sl_model_free(m);
  return status;
}

static void memory_may_end_anywhere(void **state) {
  (void)state;
  check_allocations(register_and_append);
}

/* ---- infer functions that say nonsense ---- */

static struct sl_layer_plan says; /* what the next infer answers */

static enum sl_status infer_as_told(struct sl_layer_plan *plan) {
  plan->out = says.out;
  plan->saved = says.saved;
  plan->flops = says.flops;
  plan->over_time = says.over_time;
  plan->parameter_count = says.parameter_count;
  memcpy(plan->parameter, says.parameter, sizeof says.parameter);
  return says.input_count ? (enum sl_status)says.input_count : SL_OK;
}

static void nonsense_of_infer_is_refused(void **state) {
  (void)state;
  const struct sl_layer_kind kind = {.version = SL_LAYER_VERSION,
                                     .name = "odd",
                                     .options_size = sizeof(struct sl_layer_options),
                                     .infer = infer_as_told,
                                     .forward = gate_forward};
  struct sl_model *m = new_model(SL_SHAPE(3, 4));
  OK(sl_layer_register(context, &kind));
#define REFUSED(status, words, ...)                                                                \
  says = (struct sl_layer_plan){.out = {1, {5}}};                                                  \
  __VA_ARGS__;                                                                                     \
  FAILS(sl_layer(m, "l", "odd", &(struct sl_layer_options){0}), status, words)
#define PARAMETER(...)                                                                             \
  says.parameter[says.parameter_count++] = (struct sl_layer_parameter){__VA_ARGS__}
  REFUSED(SL_BAD_SHAPE, "layer l (odd): its kind gives an output", says.out.ndim = 0);
  REFUSED(SL_BAD_SHAPE, "output of [?]", says.out.ndim = 77);
  REFUSED(SL_BAD_SHAPE, "output of [?]", says.out.ndim = -1);
  REFUSED(SL_BAD_SHAPE, "output of [0]", says.out.dim[0] = 0);
  REFUSED(SL_BAD_SHAPE, "2^40", says.out.dim[0] = 1ll << 41);
  REFUSED(SL_BAD_SHAPE, "saves [-1]", says.saved = (struct sl_shape){1, {-1}});
  REFUSED(SL_BAD_SHAPE, "over time", says.over_time = true);
  REFUSED(SL_BAD_ARGUMENT, "nan flops", says.flops = NAN);
  REFUSED(SL_BAD_ARGUMENT, "inf flops", says.flops = INFINITY);
  REFUSED(SL_BAD_ARGUMENT, "fills weight with nan",
          PARAMETER("weight", {1, {2}}, .filled = true, .fill = NAN));
  REFUSED(SL_BAD_ARGUMENT, "fills weight with -inf",
          PARAMETER("weight", {1, {2}}, .filled = true, .fill = -INFINITY));
  REFUSED(SL_BAD_ARGUMENT, "5 parameters", says.parameter_count = 5);
  REFUSED(SL_BAD_ARGUMENT, "-1 parameters", says.parameter_count = -1);
  REFUSED(SL_BAD_ARGUMENT, "parameter 0 ''", PARAMETER(.shape = {1, {2}}, .filled = true));
  REFUSED(SL_BAD_ARGUMENT, "'a.b'", PARAMETER("a.b", {1, {2}}, .filled = true));
  REFUSED(SL_BAD_SHAPE, "gives weight no shape", PARAMETER("weight", .filled = true));
  REFUSED(SL_BAD_ARGUMENT, "how does it begin", PARAMETER("weight", {1, {2}}, .fan_in = 2));
  REFUSED(SL_BAD_ARGUMENT, "weight twice", PARAMETER("weight", {1, {2}}, .filled = true);
          PARAMETER("weight", {1, {2}}, .filled = true));
  REFUSED(SL_BAD_SHAPE, "2^32 - 1 parameters",
          PARAMETER("weight", {2, {1ll << 39, 1ll << 39}}, .filled = true));
  REFUSED(SL_BAD_SHAPE, "layer l (odd): it has more than 2^32 - 1 parameters",
          PARAMETER("weight", {2, {1 << 16, (1 << 16) - 1}}, .filled = true);
          PARAMETER("bias", {1, {1 << 16}}, .filled = true));
  REFUSED(SL_NO_MEMORY, "refuses these options", says.input_count = SL_NO_MEMORY);
  REFUSED(SL_BAD_ARGUMENT, "refuses these options", says.input_count = 777);
#undef REFUSED
#undef PARAMETER
  assert_int_equal(sl_model_layer_count(m), 0);
  sl_model_free(m);
}

/* ---- kernels that fail ---- */

static void a_failing_kernel_tells_who_waits(void **state) {
  (void)state;
  struct sl_model *m = images(1);
  struct sl_predictor *p;
  static float x[784], y[10];
  OK(sl_predictor_open(m, NULL, &p));
  FAILS(sl_predict(p, x, 1, y), SL_NOT_FINITE, "custom_forward_saving (layer meet) on cpu:");
  FAILS(sl_predict(p, x, 1, y), SL_NOT_FINITE, "gate: 1 rows are not to my taste");
  sl_predictor_free(p);
  sl_model_free(m);
}

static void a_failure_without_a_word_is_one_too(void **state) {
  (void)state;
  struct sl_model *m = images(2);
  struct run run = {.options.replicas = 1};
  train(&run, m);
  FAILS(run.status, SL_BAD_ARGUMENT, "(layer meet)");
  FAILS(run.status, SL_BAD_ARGUMENT, "gate: its kernel returned ? (777)");
  sl_model_free(m);
}

static void a_failing_backward_ends_the_training(void **state) {
  (void)state;
  struct sl_model *m = images(3);
  struct run run = {.options.replicas = 2};
  train(&run, m);
  FAILS(run.status, SL_BAD_SHAPE, "custom_backward_weight (layer meet)");
  sl_model_free(m);
}

/* ---- for inference only ---- */

static enum sl_status twice_infer(struct sl_layer_plan *plan) {
  plan->out = plan->in[0];
  return SL_OK;
}

static enum sl_status twice_forward(struct sl_layer_task *t) {
  if (t->saved || t->param[0] || t->dy || t->dx || t->grad[0] || t->training) return SL_BAD_SHAPE;
  for (int64_t i = 0; i < values_of(t); i++) t->y[i] = 2 * t->x[0][i];
  return SL_OK;
}

static void a_trainer_refuses_what_cannot_learn(void **state) {
  (void)state;
  const struct sl_layer_kind twice = {.version = SL_LAYER_VERSION,
                                      .name = "twice",
                                      .options_size = sizeof(struct sl_layer_options),
                                      .infer = twice_infer,
                                      .forward = twice_forward};
  struct sl_layer_kind stiff = gate;
  struct sl_trainer *trainer;
  struct sl_predictor *p;
  float x[3] = {1, -2, 3}, y[3];
  stiff.name = "stiff";
  stiff.backward_weight = NULL;
  OK(sl_layer_register(context, &twice));
  OK(sl_layer_register(context, &stiff));
  struct sl_model *m = new_model(SL_SHAPE(3));
  OK(sl_layer(m, "double", "twice", &(struct sl_layer_options){0}));
  OK(sl_predictor_open(m, NULL, &p));
  OK(sl_predict(p, x, 1, y));
  for (int i = 0; i < 3; i++) assert_true(y[i] == 2 * x[i]);
  sl_predictor_free(p);
  const struct sl_optimizer sgd = {0};
  const struct sl_trainer_options options = {.replicas = 1};
  FAILS(sl_trainer_new(m, &sgd, NULL, &options, &trainer), SL_UNSUPPORTED,
        "layer double (twice): is for inference only");
  assert_null(trainer);
  FAILS(sl_place_auto(m, &sgd, &options, 4, NULL, NULL), SL_UNSUPPORTED, "double");
  sl_model_free(m);
  m = new_model(SL_SHAPE(3));
  OK(sl_layer(m, "l", "stiff", &(struct gate_options){.layer.inputs = "input,input"}));
  FAILS(sl_trainer_new(m, &sgd, NULL, &options, &trainer), SL_UNSUPPORTED, "backward_weight");
  sl_model_free(m);
}

/* ---- performance models ---- */

static uint32_t footprint(const char *kind, struct gate_options options) {
  struct sl_model *m = new_model(SL_SHAPE(3));
  options.layer.inputs = "input,input";
  OK(sl_layer(m, "l", kind, &options));
  uint32_t hash = m->layers[0].custom->footprint;
  sl_model_free(m);
  return hash;
}

static void kinds_and_options_have_times_of_their_own(void **state) {
  (void)state;
  struct sl_layer_kind other = gate;
  other.name = "gate2";
  OK(sl_layer_register(context, &other));
  uint32_t all[] = {footprint("gate", (struct gate_options){0}),
                    footprint("gate2", (struct gate_options){0}),
                    footprint("gate", (struct gate_options){.no_bias = true}),
                    footprint("gate", (struct gate_options){.fails = 1}),
                    footprint("gate", (struct gate_options){.width = 3}),
                    footprint("gate", (struct gate_options){.scale = 2}),
                    footprint("gate", (struct gate_options){.activation = SL_ACTIVATION_TANH})};
  for (int i = 0; i < 7; i++)
    for (int k = 0; k < i; k++) assert_int_not_equal(all[i], all[k]);
  assert_int_equal(all[0], footprint("gate", (struct gate_options){.layer.group = "elsewhere"}));
}

int main(void) {
#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, close_context)
  const struct CMUnitTest tests[] = {CASE(gradients_are_those_of_the_loss),
                                     CASE(any_cut_of_the_batch_gives_the_serial_curve),
                                     CASE(a_training_in_bf16_goes_the_same_way),
                                     CASE(time_may_be_cut_too),
                                     CASE(chunks_have_the_same_bits),
                                     CASE(any_number_of_inputs_meet),
                                     CASE(a_saved_model_opens_to_the_bit),
                                     CASE(a_kind_is_its_contexts),
                                     CASE(files_that_do_not_fit_are_refused),
                                     CASE(options_have_the_limits_of_files),
                                     CASE(wrong_kinds_are_refused),
                                     CASE(memory_may_end_anywhere),
                                     CASE(nonsense_of_infer_is_refused),
                                     CASE(a_failing_kernel_tells_who_waits),
                                     CASE(a_failure_without_a_word_is_one_too),
                                     CASE(a_failing_backward_ends_the_training),
                                     CASE(a_trainer_refuses_what_cannot_learn),
                                     CASE(kinds_and_options_have_times_of_their_own)};
  return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
