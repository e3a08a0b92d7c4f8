/* Layers that join, cut and turn samples: values and gradients against references in double
 * precision; the effect of repeated inputs; options that are refused. */
#include "tests/common/layer_check.h"

/* ---- references ---- */

/* The index of a sample's element i along each axis, and back. */
static void index_of(const struct sl_shape *shape, int64_t i, int64_t at[SL_MAX_DIMS]) {
  for (int d = shape->ndim - 1; d >= 0; d--) {
    at[d] = i % shape->dim[d];
    i /= shape->dim[d];
  }
}

static int64_t place_of(const struct sl_shape *shape, const int64_t *at) {
  int64_t place = 0;
  for (int d = 0; d < shape->ndim; d++) place = place * shape->dim[d] + at[d];
  return place;
}

/* The place of the output's element i in input k, whose values repeat along axes of size 1. */
static int64_t place_in(const struct sl__layer *layer, int k, int64_t i) {
  const struct sl_shape *in = &layer->in[k];
  int64_t values = sl_shape_count(&layer->out), at[SL_MAX_DIMS], own[SL_MAX_DIMS];
  index_of(&layer->out, i % values, at);
  for (int d = 0; d < in->ndim; d++)
    own[d] = in->dim[d] == 1 ? 0 : at[d + layer->out.ndim - in->ndim];
  return i / values * sl_shape_count(in) + place_of(in, own);
}

static void sum(const struct sl__layer *layer, int64_t rows, const double *const *x,
                const double *param, double *y) {
  (void)param;
  int64_t n = rows * sl_shape_count(&layer->out);
  for (int64_t i = 0; i < n; i++)
    for (int k = 0; k < layer->input_count; k++) y[i] += x[k][place_in(layer, k, i)];
}

static void product(const struct sl__layer *layer, int64_t rows, const double *const *x,
                    const double *param, double *y) {
  (void)param;
  int64_t n = rows * sl_shape_count(&layer->out);
  for (int64_t i = 0; i < n; i++) {
    y[i] = 1;
    for (int k = 0; k < layer->input_count; k++) y[i] *= x[k][place_in(layer, k, i)];
  }
}

static void concatenated(const struct sl__layer *layer, int64_t rows, const double *const *x,
                         const double *param, double *y) {
  (void)param;
  int axis = ((const struct sl_concatenate_options *)layer->options)->axis;
  int64_t values = sl_shape_count(&layer->out);
  for (int64_t i = 0; i < rows * values; i++) {
    int64_t at[SL_MAX_DIMS];
    int k = 0;
    index_of(&layer->out, i % values, at);
    while (at[axis] >= layer->in[k].dim[axis]) at[axis] -= layer->in[k++].dim[axis];
    y[i] = x[k][i / values * sl_shape_count(&layer->in[k]) + place_of(&layer->in[k], at)];
  }
}

/* The rows of all inputs behind each other. */
static void joined(const struct sl__layer *layer, int64_t rows, const double *const *x,
                   const double *param, double *y) {
  (void)param;
  for (int64_t row = 0; row < rows; row++)
    for (int k = 0; k < layer->input_count; k++) {
      int64_t values = sl_shape_count(&layer->in[k]);
      for (int64_t i = 0; i < values; i++) *y++ = x[k][row * values + i];
    }
}

static void cut(const struct sl__layer *layer, int64_t rows, const double *const *x,
                const double *param, double *y) {
  (void)param;
  const struct sl_slice_options *o = layer->options;
  int64_t values = sl_shape_count(&layer->in[0]), each = values / layer->in[0].dim[0];
  for (int64_t row = 0; row < rows; row++)
    for (int64_t i = 0; i < sl_shape_count(&layer->out); i++)
      *y++ = x[0][row * values + o->first * each + i];
}

static void sliced(const struct sl__layer *layer, int64_t rows, const double *const *x,
                   const double *param, double *y) {
  (void)param;
  const struct sl_slice_options *o = layer->options;
  int64_t values = sl_shape_count(&layer->out);
  for (int64_t i = 0; i < rows * values; i++) {
    int64_t at[SL_MAX_DIMS];
    index_of(&layer->out, i % values, at);
    at[o->axis] += o->first;
    y[i] = x[0][i / values * sl_shape_count(&layer->in[0]) + place_of(&layer->in[0], at)];
  }
}

static void flipped(const struct sl__layer *layer, int64_t rows, const double *const *x,
                    const double *param, double *y) {
  (void)param;
  int axis = ((const struct sl_flip_options *)layer->options)->axis;
  int64_t values = sl_shape_count(&layer->out);
  for (int64_t i = 0; i < rows * values; i++) {
    int64_t at[SL_MAX_DIMS];
    index_of(&layer->out, i % values, at);
    at[axis] = layer->out.dim[axis] - 1 - at[axis];
    y[i] = x[0][i / values * values + place_of(&layer->out, at)];
  }
}

static void reshaped(const struct sl__layer *layer, int64_t rows, const double *const *x,
                     const double *param, double *y) {
  (void)param;
  memcpy(y, x[0], (size_t)(rows * sl_shape_count(&layer->out)) * sizeof *y);
}

static void permuted(const struct sl__layer *layer, int64_t rows, const double *const *x,
                     const double *param, double *y) {
  (void)param;
  const struct sl_permute_options *o = layer->options;
  int64_t values = sl_shape_count(&layer->out);
  for (int64_t i = 0; i < rows * values; i++) {
    int64_t at[SL_MAX_DIMS], from[SL_MAX_DIMS];
    index_of(&layer->out, i % values, at);
    for (int d = 0; d < layer->out.ndim; d++)
      from[o->axes.ndim ? o->axes.dim[d] : layer->out.ndim - 1 - d] = at[d];
    y[i] = x[0][i / values * values + place_of(&layer->in[0], from)];
  }
}

static void averaged(const struct sl__layer *layer, int64_t rows, const double *const *x,
                     const double *param, double *y) {
  (void)param;
  const struct sl_mean_options *o = layer->options;
  int64_t values = sl_shape_count(&layer->in[0]), results = sl_shape_count(&layer->out);
  for (int64_t i = 0; i < rows * values; i++) {
    int64_t at[SL_MAX_DIMS], place = 0;
    index_of(&layer->in[0], i % values, at);
    for (int d = 0; d < layer->in[0].ndim; d++) {
      bool stays = o->axes.ndim || d == 0;
      for (int k = 0; k < o->axes.ndim; k++) stays &= o->axes.dim[k] != d;
      if (stays) place = place * layer->in[0].dim[d] + at[d];
    }
    y[i / values * results + place] += x[0][i] * (double)results / (double)values;
  }
}

/* ---- cases ---- */

/* a, b, ..., z, A, B, ... */
static char name_of(int i) { return (char)(i < 26 ? 'a' + i : 'A' + i - 26); }

/* Layers a, b, ... of these shapes, as inputs; they are not computed. */
static struct sl_model *with_inputs(int count, const struct sl_shape *shapes) {
  struct sl_model *m = new_model(shapes[0]);
  for (int i = 0; i < count; i++) {
    const char name[2] = {name_of(i)};
    char dense[3] = {'d', name[0]};
    OK(sl_dense(m, dense,
                &(struct sl_dense_options){.features = sl_shape_count(&shapes[i]),
                                           .layer.inputs = "input"}));
    OK(sl_reshape(m, name, &(struct sl_reshape_options){.shape = shapes[i]}));
  }
  return m;
}

enum { MANY = 40 }; /* inputs: more than a task's masks of buffers have bits */

/* "a,b,c,...,A,B,C,...": the layers of with_inputs */
static const char *all_names(int count) {
  static char names[2 * MANY];
  for (int i = 0; i < count; i++) {
    names[2 * i] = name_of(i);
    names[2 * i + 1] = i < count - 1 ? ',' : '\0';
  }
  return names;
}

static void sums_and_products(void **state) {
  (void)state;
  static const int counts[] = {2, 3, 4, 15, MANY};
  struct sl_shape shapes[MANY];
  for (int i = 0; i < MANY; i++) shapes[i] = SL_SHAPE(3, 5);
  for (int i = 0; i < 5; i++) {
    struct sl_model *m = with_inputs(counts[i], shapes);
    OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = all_names(counts[i])}));
    check_layer(m, 2, sum);
    m = with_inputs(counts[i], shapes);
    OK(sl_multiply(m, "product",
                   &(struct sl_multiply_options){.layer.inputs = all_names(counts[i])}));
    check_layer(m, 2, product);
  }
}

/* A third of the inputs of each shape. */
static void many_inputs_broadcast_and_join(void **state) {
  (void)state;
  struct sl_shape shapes[MANY];
  for (int i = 0; i < MANY; i++)
    shapes[i] = i % 3 == 0 ? SL_SHAPE(2, 3) : i % 3 == 1 ? SL_SHAPE(2, 1) : SL_SHAPE(3);
  const char *names = all_names(MANY);
  struct sl_model *m = with_inputs(MANY, shapes);
  OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = names}));
  check_layer(m, 2, sum);
  m = with_inputs(MANY, shapes);
  OK(sl_multiply(m, "product", &(struct sl_multiply_options){.layer.inputs = names}));
  check_layer(m, 2, product);
  m = with_inputs(MANY, shapes);
  OK(sl_concatenate(m, "rows",
                    &(struct sl_concatenate_options){.flat = true, .layer.inputs = names}));
  check_layer(m, 2, joined);
  for (int i = 0; i < MANY; i++) shapes[i] = SL_SHAPE(2, 1 + i % 3);
  m = with_inputs(MANY, shapes);
  OK(sl_concatenate(m, "columns",
                    &(struct sl_concatenate_options){.axis = 1, .layer.inputs = names}));
  check_layer(m, 2, concatenated);
}

static void sums_and_products_broadcast(void **state) {
  (void)state;
  static const struct sl_shape cases[][3] = {
      {{3, {4, 3, 5}}, {3, {4, 1, 1}}, {3, {4, 3, 5}}}, /* squeeze and excitation */
      {{3, {4, 3, 5}}, {3, {1, 3, 5}}, {2, {3, 1}}},    /* masks, and a column */
      {{3, {2, 3, 17}}, {1, {17}}, {3, {2, 1, 17}}},    /* sums of rows */
      {{2, {3, 20}}, {2, {3, 1}}, {1, {1}}},
      {{4, {2, 3, 2, 4}}, {4, {2, 1, 2, 1}}, {4, {1, 3, 1, 4}}},
      {{1, {7}}, {1, {1}}, {1, {7}}},
      {{2, {1, 1}}, {1, {1}}, {2, {1, 1}}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int count = 2; count < 4; count++) {
      const char *names = count == 2 ? "a,b" : "a,b,c";
      struct sl_model *m = with_inputs(count, cases[i]);
      OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = names}));
      check_layer(m, 2, sum);
      m = with_inputs(count, cases[i]);
      OK(sl_multiply(m, "product", &(struct sl_multiply_options){.layer.inputs = names}));
      check_layer(m, 2, product);
    }
}

/* Rows longer than the block that a kernel works on at a time. */
static void long_rows_broadcast(void **state) {
  (void)state;
  enum { ROWS = 2, LONG = 5000 };
  static double x[ROWS * LONG];
  const double gate[ROWS] = {0.5, -2}, zero[ROWS] = {0};
  double sum[ROWS] = {0};
  const struct sl__launch plain = {.name = "x"}, add = {.name = "x", .accumulate = true};
  for (int i = 0; i < ROWS * LONG; i++) {
    x[i] = i % 7 - 3;
    sum[i / LONG] += x[i] * x[i] * gate[i / LONG];
  }
  struct sl__tensor *tx = tensor(SL_SHAPE(ROWS, LONG), x), *tg = tensor(SL_SHAPE(ROWS, 1), gate),
                    *ty = tensor(SL_SHAPE(ROWS, LONG), NULL), *ts = tensor(SL_SHAPE(ROWS, 1), zero);
  OK(sl__multiply_broadcast(context, &plain, 3, (struct sl__tensor *[]){tx, tx, tg}, ty));
  OK(sl__multiply_broadcast(context, &add, 3, (struct sl__tensor *[]){tx, tx, tg}, ts));
  OK(sl__multiply_broadcast(context, &add, 3, (struct sl__tensor *[]){tx, tx, tg}, ts));
  double *y = take(ty), *s = take(ts);
  for (int i = 0; i < ROWS * LONG; i++) assert_true(y[i] == x[i] * x[i] * gate[i / LONG]);
  for (int i = 0; i < ROWS; i++) assert_true(s[i] == 2 * sum[i]);
  free(y), free(s);
  sl__tensor_free(tx), sl__tensor_free(tg);
}

/* A relu behind a sum that broadcasts is a layer of its own. */
static void a_relu_follows_a_broadcast_sum(void **state) {
  (void)state;
  static const float x[2][4] = {{1, -2, 3, -4}, {-1, 2, -3, 4}}, y[2] = {1, 2};
  const struct sl_dataset_options about = {
      .name = "rows", .sample = {1, {4}}, .target = {1, {1}}, .count = 2};
  struct sl_dataset *set;
  struct sl_loader *loader;
  double loss[2], unused;
  OK(sl_dataset_floats(&about, &x[0][0], y, NULL, true, &set));
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = 2}, &loader));
  for (int order = 0; order < 2; order++) {
    struct sl_model *m = new_model(SL_SHAPE(4));
    struct sl_trainer *trainer;
    struct sl_report report;
    bool reported = false;
    OK(sl_dense(m, "a", &(struct sl_dense_options){.features = 4}));
    OK(sl_dense(m, "b", &(struct sl_dense_options){.features = order ? 4 : 1}));
    OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = "a,b"}));
    OK(sl_activate(m, "relu", &(struct sl_activation_options){.activation = SL_ACTIVATION_RELU}));
    OK(sl_dense(m, "c", &(struct sl_dense_options){.features = 1}));
    OK(sl_model_build(m));
    const float weight[16] = {1, 2, -1, 0.5f, 1, 2, -1, 0.5f, 1, 2, -1, 0.5f, 1, 2, -1, 0.5f};
    const float bias[4] = {-0.25f, -0.25f, -0.25f, -0.25f};
    OK(sl_model_set(m, "b.weight", weight)); /* the same row four times, or once */
    OK(sl_model_set(m, "b.bias", bias));
    OK(sl_trainer_new(m, &(struct sl_optimizer){.lr = 0.01f}, NULL,
                      &(struct sl_trainer_options){.loss.kind = SL_LOSS_MSE}, &trainer));
    OK(sl_trainer_evaluate(trainer, loader, &loss[order], &unused));
    OK(sl_trainer_step(trainer, loader, &report, &reported));
    while (!reported) OK(sl_trainer_drain(trainer, &report, &reported));
    assert_true(fabs(report.loss - loss[order]) < 1e-6 * (1 + loss[order]));
    sl_trainer_free(trainer);
    sl_model_free(m);
  }
  assert_true(fabs(loss[0] - loss[1]) < 1e-6 * (1 + loss[0]));
  sl_loader_free(loader);
  sl_dataset_free(set);
}

static void concatenations(void **state) {
  (void)state;
  static const struct sl_shape shapes[3][3] = {{{3, {2, 3, 4}}, {3, {1, 3, 4}}, {3, {5, 3, 4}}},
                                               {{3, {2, 3, 4}}, {3, {2, 1, 4}}, {3, {2, 2, 4}}},
                                               {{3, {2, 3, 4}}, {3, {2, 3, 1}}, {3, {2, 3, 19}}}};
  for (int axis = 0; axis < 3; axis++) {
    struct sl_model *m = with_inputs(3, shapes[axis]);
    OK(sl_concatenate(m, "joined",
                      &(struct sl_concatenate_options){.axis = axis, .layer.inputs = "a,b,c"}));
    check_layer(m, 3, concatenated);
  }
  struct sl_model *m = with_inputs(1, shapes[0]);
  OK(sl_concatenate(m, "one", &(struct sl_concatenate_options){0}));
  check_layer(m, 1, concatenated);
}

static void slices(void **state) {
  (void)state;
  static const int64_t cases[][3] = {{0, 0, 0}, {0, 1, 2}, {1, 2, 3}, {1, 4, 0},
                                     {2, 0, 1}, {2, 3, 5}, {2, 8, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sl_model *m = new_model(SL_SHAPE(3, 5, 9));
    OK(sl_slice(m, "part",
                &(struct sl_slice_options){
                    .axis = (int)cases[i][0], .first = cases[i][1], .count = cases[i][2]}));
    check_layer(m, 2, sliced);
  }
}

static void rows_are_joined_and_cut(void **state) {
  (void)state;
  const struct sl_shape shapes[3] = {SL_SHAPE(2, 3), SL_SHAPE(5), SL_SHAPE(1, 2, 2)};
  struct sl_model *m = with_inputs(3, shapes);
  OK(sl_concatenate(m, "rows",
                    &(struct sl_concatenate_options){.flat = true, .layer.inputs = "a,b,c"}));
  assert_true(sl_shape_equal(sl_model_output(m), &SL_SHAPE(15)));
  check_layer(m, 3, joined);
  m = new_model(SL_SHAPE(5, 4));
  OK(sl_slice(m, "part",
              &(struct sl_slice_options){.first = 1, .count = 3, .shape = SL_SHAPE(2, 3, 2)}));
  assert_true(sl_shape_equal(sl_model_output(m), &SL_SHAPE(2, 3, 2)));
  check_layer(m, 3, cut);
}

static void flips(void **state) {
  (void)state;
  for (int axis = 0; axis < 3; axis++) {
    struct sl_model *m = new_model(SL_SHAPE(3, 5, 17));
    OK(sl_flip(m, "back", &(struct sl_flip_options){.axis = axis}));
    check_layer(m, 2, flipped);
  }
  struct sl_model *m = new_model(SL_SHAPE(1, 4));
  OK(sl_flip(m, "back", &(struct sl_flip_options){0}));
  check_layer(m, 3, flipped);
}

static void reshapes(void **state) {
  (void)state;
  static const struct sl_shape to[] = {
      {0}, {1, {60}}, {2, {12, 5}}, {3, {2, 0, 3}}, {4, {1, 1, 4}}};
  static const struct sl_shape are[] = {
      {1, {60}}, {1, {60}}, {2, {12, 5}}, {3, {2, 10, 3}}, {4, {1, 1, 4, 15}}};
  for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
    struct sl_model *m = new_model(SL_SHAPE(3, 4, 5));
    OK(sl_reshape(m, "view", &(struct sl_reshape_options){.shape = to[i]}));
    assert_true(sl_shape_equal(sl_model_output(m), &are[i]));
    check_layer(m, 2, reshaped);
  }
}

static void permutations(void **state) {
  (void)state;
  static const struct sl_shape axes[] = {
      {0},         {3, {0, 1, 2}}, {3, {0, 2, 1}}, {3, {1, 0, 2}},
      {3, {1, 2}}, {3, {2, 0, 1}}, {3, {2, 1}}};
  for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
    struct sl_model *m = new_model(SL_SHAPE(3, 4, 5));
    OK(sl_permute(m, "turned", &(struct sl_permute_options){.axes = axes[i]}));
    check_layer(m, 2, permuted);
  }
  struct sl_model *m = new_model(SL_SHAPE(2, 3, 2, 5));
  OK(sl_permute(m, "turned", &(struct sl_permute_options){.axes = SL_SHAPE(2, 0, 3, 1)}));
  check_layer(m, 2, permuted);
}

static void means(void **state) {
  (void)state;
  static const struct sl_shape axes[] = {{0},         {1, {0}},       {1, {1}},
                                         {1, {2}},    {2, {0}},       {2, {2, 1}},
                                         {2, {0, 2}}, {3, {0, 1, 2}}, {1, {1}}};
  for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
    for (int keep = 0; keep < 2; keep++) {
      struct sl_model *m = new_model(SL_SHAPE(3, 5, 19));
      struct sl_mean_options o = {.axes = axes[i], .keep = keep};
      if (axes[i].ndim == 2 && !axes[i].dim[1]) o.axes.dim[1] = 1;
      OK(sl_mean(m, "mean", &o));
      assert_int_equal(sl_model_output(m)->ndim, keep               ? 3
                                                 : o.axes.ndim == 3 ? 1
                                                 : o.axes.ndim      ? 3 - o.axes.ndim
                                                                    : 1);
      check_layer(m, 2, averaged);
    }
}

/* ---- repeated inputs, and refused options ---- */

/* y = x x x: dx = 3 x^2 dy, which three terms add up to. */
/* Long sums of one value, along the last axis and along the first one. */
static void long_means_keep_their_digits(void **state) {
  (void)state;
  enum { N = 90001, OTHERS = 3 };
  double *x = zeros(N * OTHERS), want[OTHERS];
  for (int i = 0; i < N * OTHERS; i++) x[i] = (double)0.7f;
  for (int i = 0; i < OTHERS; i++) want[i] = (double)0.7f;
  for (int along = 0; along < 2; along++) {
    struct sl__tensor *tx = tensor(along ? SL_SHAPE(N, OTHERS) : SL_SHAPE(OTHERS, N), x),
                      *ty = tensor(SL_SHAPE(OTHERS), NULL);
    OK(sl__mean(context, &plain, tx, ty, along ? 1u << 0 : 1u << 1));
    assert_near("mean", take(ty), want, OTHERS, 10, 1);
    sl__tensor_free(tx);
  }
  free(x);
}

static void repeated_inputs_add_up(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(3));
  add_dense(m, "fc", 3, SL_INIT_DEFAULT);
  OK(sl_multiply(m, "cube", &(struct sl_multiply_options){.layer.inputs = "fc,fc,fc"}));
  OK(sl_model_build(m));
  const struct sl__layer *cube = &m->layers[1];
  const double x[3] = {1, -2, 3}, dy[3] = {1, 2, -1};
  struct sl__tensor *tx = tensor(SL_SHAPE(1, 3), x), *tdx = tensor(SL_SHAPE(1, 3), NULL),
                    *ty = tensor(SL_SHAPE(1, 3), NULL), *tdy = tensor(SL_SHAPE(1, 3), dy);
  struct sl__pass p = {.context = context,
                       .x = (struct sl__tensor *[]){tx, tx, tx},
                       .y = ty,
                       .dy = tdy,
                       .dx = (struct sl__tensor *[]){tdx, tdx, tdx},
                       .add_dx = (bool[3]){false}};
  OK(cube->kind->forward(cube, &p));
  OK(cube->kind->backward_data(cube, &p));
  double *y = take(ty), *dx = take(tdx);
  for (int i = 0; i < 3; i++) {
    assert_true(y[i] == x[i] * x[i] * x[i]);
    assert_true(dx[i] == 3 * x[i] * x[i] * dy[i]);
  }
  free(y), free(dx);
  sl__tensor_free(tx), sl__tensor_free(tdy);
  sl_model_free(m);
}

static void strange_options_are_refused(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(3, 4, 5));
  OK(sl_slice(m, "a", &(struct sl_slice_options){.count = 2}));
#define REFUSED(kind, options_type, status, words, ...)                                            \
  FAILS(kind(m, "x", &(struct options_type){__VA_ARGS__}), status, words)
  REFUSED(sl_concatenate, sl_concatenate_options, SL_BAD_ARGUMENT, "axis is 3", .axis = 3);
  REFUSED(sl_concatenate, sl_concatenate_options, SL_BAD_ARGUMENT, "axis is -1", .axis = -1);
  REFUSED(sl_concatenate, sl_concatenate_options, SL_BAD_SHAPE, "[3, 4, 5] and [2, 4, 5]",
          .axis = 1, .layer.inputs = "input,a");
  REFUSED(sl_slice, sl_slice_options, SL_BAD_ARGUMENT, "axis is 3", .axis = 3);
  REFUSED(sl_slice, sl_slice_options, SL_BAD_ARGUMENT, "one input", .layer.inputs = "a,a");
  REFUSED(sl_slice, sl_slice_options, SL_BAD_ARGUMENT, "0 values from 2 on", .first = 2);
  REFUSED(sl_slice, sl_slice_options, SL_BAD_ARGUMENT, "5 values from 1 on", .axis = 2, .first = 1,
          .count = 5);
  REFUSED(sl_slice, sl_slice_options, SL_BAD_ARGUMENT, "from -1 on", .axis = 2, .first = -1);
  REFUSED(sl_slice, sl_slice_options, SL_BAD_ARGUMENT, "only a range of axis 0", .axis = 1,
          .shape = SL_SHAPE(60));
  REFUSED(sl_slice, sl_slice_options, SL_BAD_SHAPE, "[1, 4, 5] cannot become [39]", .first = 1,
          .shape = SL_SHAPE(39));
  REFUSED(sl_slice, sl_slice_options, SL_BAD_SHAPE, "cannot become [-8, -5]", .first = 1,
          .shape = SL_SHAPE(-8, -5));
  REFUSED(sl_concatenate, sl_concatenate_options, SL_BAD_ARGUMENT, "a flat one has axis 0",
          .axis = 1, .flat = true);
  REFUSED(sl_flip, sl_flip_options, SL_BAD_ARGUMENT, "axis is 3", .axis = 3);
  REFUSED(sl_flip, sl_flip_options, SL_BAD_ARGUMENT, "axis is -1", .axis = -1);
  REFUSED(sl_flip, sl_flip_options, SL_BAD_ARGUMENT, "one input", .layer.inputs = "a,a");
  REFUSED(sl_reshape, sl_reshape_options, SL_BAD_SHAPE, "[2, 4, 5] cannot become [3, 13]",
          .shape = SL_SHAPE(3, 13));
  REFUSED(sl_reshape, sl_reshape_options, SL_BAD_SHAPE, "[0, 0]", .shape = SL_SHAPE(0, 0));
  REFUSED(sl_reshape, sl_reshape_options, SL_BAD_SHAPE, "[7, 0]", .shape = SL_SHAPE(7, 0));
  REFUSED(sl_reshape, sl_reshape_options, SL_BAD_SHAPE, "[-8, -5]", .shape = SL_SHAPE(-8, -5));
  REFUSED(sl_reshape, sl_reshape_options, SL_BAD_SHAPE, "1 to 4 axes",
          .shape = SL_SHAPE(40, 1, 1, 1, 1));
  REFUSED(sl_reshape, sl_reshape_options, SL_BAD_ARGUMENT, "shape has 6 numbers", .shape.ndim = 6);
  REFUSED(sl_permute, sl_permute_options, SL_BAD_ARGUMENT, "each once", .axes = SL_SHAPE(0, 1, 1));
  REFUSED(sl_permute, sl_permute_options, SL_BAD_ARGUMENT, "0 to 2", .axes = SL_SHAPE(0, 1, 3));
  REFUSED(sl_permute, sl_permute_options, SL_BAD_ARGUMENT, "axes are 2", .axes = SL_SHAPE(1, 0));
  REFUSED(sl_mean, sl_mean_options, SL_BAD_ARGUMENT, "axes are [1, 1]", .axes = SL_SHAPE(1, 1));
  REFUSED(sl_mean, sl_mean_options, SL_BAD_ARGUMENT, "axes are [-1]", .axes = SL_SHAPE(-1));
  REFUSED(sl_multiply, sl_multiply_options, SL_BAD_ARGUMENT, "two inputs or more",
          .layer.inputs = NULL);
  REFUSED(sl_multiply, sl_multiply_options, SL_BAD_SHAPE, "[3, 4, 5] and [2, 4, 5]",
          .layer.inputs = "input,a");
  static char names[2 * 4097] = "a";
  for (int i = 1; i < 4097; i++) memcpy(names + 2 * i - 1, ",a", 3);
  REFUSED(sl_add, sl_add_options, SL_BAD_ARGUMENT, "more than 4096", .layer.inputs = names);
#undef REFUSED
  OK(sl_reshape(m, "flat", &(struct sl_reshape_options){0}));
  FAILS(sl_mean(m, "x", &(struct sl_mean_options){0}), SL_BAD_ARGUMENT, "one axis");
  sl_model_free(m);
}

static void operations_check_shapes(void **state) {
  (void)state;
  struct sl__tensor *a = tensor(SL_SHAPE(2, 3), NULL), *b = tensor(SL_SHAPE(3, 2), NULL),
                    *c = tensor(SL_SHAPE(2, 2), NULL);
  struct sl__tensor *const both[2] = {c, c};
  assert_int_equal(sl__permute(context, &plain, a, b, (int[]){0, 1}), SL_BAD_SHAPE);
  assert_int_equal(sl__permute(context, &plain, a, b, (int[]){1, 2}), SL_BAD_SHAPE);
  assert_int_equal(sl__slice(context, &plain, a, b, 0, 0), SL_BAD_SHAPE);
  assert_int_equal(sl__flip(context, &plain, a, b, 0), SL_BAD_SHAPE);
  assert_int_equal(sl__flip(context, &plain, a, a, 2), SL_BAD_SHAPE);
  assert_int_equal(sl__slice(context, &plain, a, c, 1, 2), SL_BAD_SHAPE);
  assert_int_equal(sl__slice_backward(context, &plain, a, c, 1, 0), SL_BAD_SHAPE);
  assert_int_equal(sl__concatenate(context, &plain, 2, both, a, 1), SL_BAD_SHAPE);
  assert_int_equal(sl__concatenate(context, &plain, 1, both, a, 1), SL_BAD_SHAPE);
  assert_int_equal(sl__columns(context, &plain, a, b, 0), SL_BAD_SHAPE);
  assert_int_equal(sl__columns(context, &plain, a, c, 2), SL_BAD_SHAPE);
  assert_int_equal(sl__columns_backward(context, &plain, c, a, -1), SL_BAD_SHAPE);
  assert_int_equal(sl__columns_join(context, &plain, 2, both, a), SL_BAD_SHAPE);
  assert_int_equal(sl__columns_join(context, &plain, 1, both, a), SL_BAD_SHAPE);
  assert_int_equal(sl__labels(context, &plain, a, b, 0), SL_BAD_SHAPE);
  assert_int_equal(sl__labels(context, &plain, a, c, 2), SL_BAD_SHAPE);
  assert_int_equal(sl__mean(context, &plain, a, c, 2), SL_BAD_SHAPE);
  assert_int_equal(sl__broadcast(context, &plain, 1, c, a, 2), SL_BAD_SHAPE);
  assert_int_equal(sl__multiply(context, &plain, 2, both, a), SL_BAD_SHAPE);
  assert_int_equal(sl__multiply_broadcast(context, &plain, 2, both, a), SL_BAD_SHAPE);
  assert_int_equal(sl__add_terms(context, &plain, 2, both, a, false), SL_BAD_SHAPE);
  sl__tensor_free(a), sl__tensor_free(b), sl__tensor_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sums_and_products),
                                     cmocka_unit_test(many_inputs_broadcast_and_join),
                                     cmocka_unit_test(sums_and_products_broadcast),
                                     cmocka_unit_test(long_rows_broadcast),
                                     cmocka_unit_test(a_relu_follows_a_broadcast_sum),
                                     cmocka_unit_test(concatenations),
                                     cmocka_unit_test(slices),
                                     cmocka_unit_test(rows_are_joined_and_cut),
                                     cmocka_unit_test(flips),
                                     cmocka_unit_test(reshapes),
                                     cmocka_unit_test(permutations),
                                     cmocka_unit_test(means),
                                     cmocka_unit_test(long_means_keep_their_digits),
                                     cmocka_unit_test(repeated_inputs_add_up),
                                     cmocka_unit_test(strange_options_are_refused),
                                     cmocka_unit_test(operations_check_shapes)};
  return cmocka_run_group_tests_name("axes", tests, open_operations, close_context);
}
