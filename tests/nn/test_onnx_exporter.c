/* Graphs as PyTorch's TorchScript exporter writes them, made by hand: each becomes the layer that
 * the module was, with the answers of a reference in double precision. */
#include "tests/common/small_model.h"

#include <math.h>

#include "nn/formats/onnx.h"
#include "tests/common/files.h"

#ifdef SL_HAVE_ONNX

enum { SAMPLES = 3, NODES = 16, TENSORS = 10, MOST = 256 };

struct graph {
  struct sl__onnx_graph file;
  struct sl__onnx_node node[NODES];
  struct sl__onnx_tensor tensor[TENSORS];
  struct sl__onnx_end input, output;
  const char *in[NODES][6], *out[NODES][4];
};

/* x [batch, sample], and an output y whose shape the file does not say. batch -1: any. */
static void start(struct graph *g, const struct sl_shape *sample, int64_t batch) {
  *g = (struct graph){.input = {"x", SL__ONNX_FLOAT, sample->ndim + 1, {batch}},
                      .output = {"y", SL__ONNX_FLOAT, 0, {0}}};
  for (int d = 0; d < sample->ndim; d++) g->input.dim[d + 1] = sample->dim[d];
  g->file = (struct sl__onnx_graph){.most = SIZE_MAX,
                                    .producer = "pytorch",
                                    .opset = 17,
                                    .node = g->node,
                                    .tensor = g->tensor,
                                    .input = &g->input,
                                    .output = &g->output,
                                    .inputs = 1,
                                    .outputs = 1};
}

/* attribute: one, or NULL. */
static void add(struct graph *g, const char *op, const char *name, const char *const *in,
                const char *const *out, const struct sl__onnx_attribute *attribute) {
  int n = g->file.nodes++;
  struct sl__onnx_node *node = &g->node[n];
  assert_true(n < NODES);
  *node = (struct sl__onnx_node){.name = name,
                                 .op = op,
                                 .domain = "",
                                 .input = g->in[n],
                                 .output = g->out[n],
                                 .attribute = attribute,
                                 .attributes = attribute != NULL};
  for (; in[node->inputs]; node->inputs++) g->in[n][node->inputs] = in[node->inputs];
  for (; out[node->outputs]; node->outputs++) g->out[n][node->outputs] = out[node->outputs];
}

static struct sl__onnx_tensor *add_tensor(struct graph *g, const char *name,
                                          const struct sl_shape *shape) {
  assert_true(g->file.tensors < TENSORS);
  struct sl__onnx_tensor *t = &g->tensor[g->file.tensors++];
  *t = (struct sl__onnx_tensor){.name = name, .ndim = shape->ndim, .count = sl_shape_count(shape)};
  memcpy(t->dim, shape->dim, (size_t)shape->ndim * sizeof *t->dim);
  return t;
}

static void add_reals(struct graph *g, const char *name, struct sl_shape shape,
                      const float *values) {
  struct sl__onnx_tensor *t = add_tensor(g, name, &shape);
  t->type = SL__ONNX_FLOAT;
  t->reals = values;
}

static void add_wholes(struct graph *g, const char *name, int64_t count, const int64_t *values) {
  struct sl__onnx_tensor *t = add_tensor(g, name, &SL_SHAPE(count));
  t->type = SL__ONNX_INT64;
  t->wholes = values;
}

static const char *write_graph(struct graph *g) {
  const char *path = in_folder("x.onnx");
  OK(sl__onnx_file_write(&g->file, path));
  sl__onnx_graph_free(&g->file);
  return path;
}

static void fill(float *values, int64_t count, float shift) {
  for (int64_t i = 0; i < count; i++) values[i] = sinf((float)i + shift);
}

static void check_answers(struct sl_model *m, const float *x, const double *want) {
  int64_t count = SAMPLES * sl_shape_count(sl_model_output(m));
  float y[MOST];
  struct sl_predictor *predictor;
  assert_true(count <= MOST);
  OK(sl_predictor_open(m, &(struct sl_predictor_options){0}, &predictor));
  OK(sl_predict(predictor, x, SAMPLES, y));
  sl_predictor_free(predictor);
  for (int64_t i = 0; i < count; i++)
    if (!(fabs((double)y[i] - want[i]) <= 1e-5 * (1 + fabs(want[i]))))
      fail_msg("value %lld is %g, not %g", (long long)i, (double)y[i], want[i]);
}

/* The answers of the file's model, and of the same model saved and read again. */
static void check_graph(struct graph *g, int layers, const char *kind, const float *x,
                        const double *want) {
  struct sl_model *m;
  char *text;
  OK(sl_model_open(context, write_graph(g), &m));
  assert_int_equal(m->count, layers);
  OK(sl_model_architecture(m, NULL, &text));
  if (!strstr(text, kind)) fail_msg("there is no %s in %s", kind, text);
  free(text);
  check_answers(m, x, want);
  OK(sl_model_save(m, in_folder("again.onnx")));
  sl_model_free(m);
  OK(sl_model_open(context, in_folder("again.onnx"), &m));
  check_answers(m, x, want);
  sl_model_free(m);
}

/* ---- group normalisation ---- */

/* One sample after the relu; weight NULL: 1 and 0. */
static void normalise(const struct sl_shape *sample, int64_t groups, const float *weight,
                      const float *bias, double *y) {
  int64_t count = sl_shape_count(sample), size = count / groups, plane = count / sample->dim[0];
  for (int64_t g = 0; g < groups; g++) {
    double *v = y + g * size, mean = 0, variance = 0;
    for (int64_t i = 0; i < size; i++) mean += v[i] / (double)size;
    for (int64_t i = 0; i < size; i++) variance += (v[i] - mean) * (v[i] - mean) / (double)size;
    for (int64_t i = 0; i < size; i++) v[i] = (v[i] - mean) / sqrt(variance + 1e-5);
  }
  for (int64_t i = 0; weight && i < count; i++)
    y[i] = y[i] * (double)weight[i / plane] + (double)bias[i / plane];
}

struct group_case {
  struct sl_shape sample;
  int64_t groups, batch;
  bool first, plain; /* the model's first layer; affine=False */
  bool said;         /* the shape afterwards is a constant */
};

/* Relu, then nn.GroupNorm as exported: a group becomes a channel. */
static void make_group(struct graph *g, const struct group_case *c, const float *weight,
                       const float *bias, int64_t rows[3], int64_t back[SL_MAX_DIMS]) {
  static const float ones[] = {1, 1, 1, 1, 1, 1}, zeros[6];
  const char *x = c->first ? "x" : "c";
  struct sl_shape spread = {.ndim = c->sample.ndim, .dim = {c->sample.dim[0]}};
  for (int d = 1; d < spread.ndim; d++) spread.dim[d] = 1;
  if (c->plain) spread.dim[0] = 1;
  start(g, &c->sample, c->batch);
  memcpy(rows, ((int64_t[]){0, c->groups, -1}), 3 * sizeof *rows);
  back[0] = -1;
  memcpy(back + 1, c->sample.dim, (size_t)c->sample.ndim * sizeof *back);
  add_wholes(g, "rows", 3, rows);
  add_wholes(g, "said", c->sample.ndim + 1, back);
  add_reals(g, "ones", SL_SHAPE(c->groups), ones);
  add_reals(g, "zeros", SL_SHAPE(c->groups), zeros);
  add_reals(g, "w", spread, c->plain ? ones : weight);
  add_reals(g, "b", spread, c->plain ? zeros : bias);
  if (!c->first) add(g, "Relu", "/0/Relu", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("c"), NULL);
  add(g, "Reshape", "/1/Reshape", SL__ONNX_NAMES(x, "rows"), SL__ONNX_NAMES("r"), NULL);
  add(g, "InstanceNormalization", "/1/Norm", SL__ONNX_NAMES("r", "ones", "zeros"),
      SL__ONNX_NAMES("n"), NULL);
  add(g, "Shape", "/1/Shape", SL__ONNX_NAMES(x), SL__ONNX_NAMES("s"), NULL);
  add(g, "Reshape", "/1/Reshape_1", SL__ONNX_NAMES("n", c->said ? "said" : "s"),
      SL__ONNX_NAMES("v"), NULL);
  add(g, "Mul", "/1/Mul", SL__ONNX_NAMES("v", "w"), SL__ONNX_NAMES("m"), NULL);
  add(g, "Add", "/1/Add", SL__ONNX_NAMES("m", "b"), SL__ONNX_NAMES("y"), NULL);
}

static void group_norms_are_read(void **state) {
  (void)state;
  static const struct group_case cases[] = {
      {{.ndim = 3, .dim = {4, 3, 2}}, .groups = 2, .batch = -1},
      {{.ndim = 3, .dim = {4, 3, 2}}, .groups = 2, .batch = 1},
      {{.ndim = 3, .dim = {4, 3, 2}}, .groups = 2, .batch = 1, .said = true},
      {{.ndim = 3, .dim = {6, 2, 3}}, .groups = 3, .batch = -1, .first = true},
      {{.ndim = 3, .dim = {4, 3, 2}}, .groups = 1, .batch = -1},
      {{.ndim = 3, .dim = {4, 3, 2}}, .groups = 4, .batch = -1},
      {{.ndim = 3, .dim = {4, 3, 2}}, .groups = 2, .batch = -1, .plain = true},
      {{.ndim = 2, .dim = {4, 5}}, .groups = 2, .batch = -1},
      {{.ndim = 2, .dim = {4, 5}}, .groups = 4, .batch = -1}, /* the groups are the shape's own */
      {{.ndim = 2, .dim = {4, 5}}, .groups = 4, .batch = 1, .first = true, .plain = true},
      {{.ndim = 2, .dim = {1, 5}}, .groups = 1, .batch = -1},
      {{.ndim = 1, .dim = {6}}, .groups = 2, .batch = -1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct group_case *c = &cases[i];
    int64_t count = sl_shape_count(&c->sample), rows[3], back[SL_MAX_DIMS];
    float x[MOST], weight[6], bias[6];
    double want[MOST];
    struct graph g;
    fill(x, SAMPLES * count, 0), fill(weight, 6, 1), fill(bias, 6, 2);
    for (int64_t k = 0; k < SAMPLES * count; k++) want[k] = c->first || x[k] > 0 ? (double)x[k] : 0;
    for (int n = 0; n < SAMPLES; n++)
      normalise(&c->sample, c->groups, c->plain ? NULL : weight, bias, want + n * count);
    make_group(&g, c, weight, bias, rows, back);
    check_graph(&g, c->first ? 1 : 2, "groupnorm", x, want);
  }
}

/* Without the way back to the channels each group stays a channel: a reshape and a norm. */
static void a_norm_of_a_view_is_read(void **state) {
  (void)state;
  static const struct group_case c = {{.ndim = 2, .dim = {4, 5}}, .groups = 2, .batch = -1};
  int64_t count = 20, rows[3], back[SL_MAX_DIMS];
  float x[MOST], weight[6], bias[6];
  double want[MOST];
  struct graph g;
  fill(x, SAMPLES * count, 0), fill(weight, 2, 1), fill(bias, 2, 2);
  for (int64_t k = 0; k < SAMPLES * count; k++) want[k] = x[k] > 0 ? (double)x[k] : 0;
  for (int n = 0; n < SAMPLES; n++) normalise(&SL_SHAPE(2, 10), 2, weight, bias, want + n * count);
  make_group(&g, &c, weight, bias, rows, back);
  g.tensor[2].reals = weight, g.tensor[3].reals = bias;
  g.file.nodes = 3;
  g.out[2][0] = "y";
  check_graph(&g, 3, "groupnorm", x, want);
}

/* x [4, 5], as PyTorch's newer exporter writes it without optimizing: constants that get the type
 * of outputs, lists of one number, a range of axes. */
static void unfolded_group_norms_are_read(void **state) {
  (void)state;
  static const float one[] = {1}, none[] = {0};
  static const int64_t wholes[] = {2, 1, 3, 0, 2, -1};
  static const char *const names[] = {"groups", "first", "rank"};
  float x[MOST], weight[4], bias[4];
  double want[MOST];
  struct graph g;
  fill(x, SAMPLES * 20, 0), fill(weight, 4, 1), fill(bias, 4, 2);
  for (int64_t k = 0; k < SAMPLES * 20; k++) want[k] = x[k] > 0 ? (double)x[k] : 0;
  for (int n = 0; n < SAMPLES; n++) normalise(&SL_SHAPE(4, 5), 2, weight, bias, want + n * 20);
  start(&g, &SL_SHAPE(4, 5), -1);
  for (int i = 0; i < 3; i++) add_wholes(&g, names[i], 1, wholes + i);
  g.tensor[1].ndim = g.tensor[2].ndim = 0;
  add_wholes(&g, "rows", 3, wholes + 3);
  add_reals(&g, "one", SL_SHAPE(1), one);
  add_reals(&g, "none", SL_SHAPE(1), none);
  add_reals(&g, "w", SL_SHAPE(4), weight);
  add_reals(&g, "b", SL_SHAPE(4), bias);
  add(&g, "Relu", "relu", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("c"), NULL);
  add(&g, "Reshape", "n0", SL__ONNX_NAMES("c", "rows"), SL__ONNX_NAMES("r"), NULL);
  add(&g, "CastLike", "n1", SL__ONNX_NAMES("one", "c"), SL__ONNX_NAMES("o"), NULL);
  add(&g, "Expand", "n2", SL__ONNX_NAMES("o", "groups"), SL__ONNX_NAMES("ones"), NULL);
  add(&g, "Expand", "n3", SL__ONNX_NAMES("none", "groups"), SL__ONNX_NAMES("zeros"), NULL);
  add(&g, "InstanceNormalization", "n4", SL__ONNX_NAMES("r", "ones", "zeros"), SL__ONNX_NAMES("i"),
      NULL);
  add(&g, "Shape", "n5", SL__ONNX_NAMES("c"), SL__ONNX_NAMES("s"), NULL);
  add(&g, "Reshape", "n6", SL__ONNX_NAMES("i", "s"), SL__ONNX_NAMES("v"), NULL);
  add(&g, "Sub", "n7", SL__ONNX_NAMES("rank", "first"), SL__ONNX_NAMES("d"), NULL);
  add(&g, "Range", "n8", SL__ONNX_NAMES("first", "d", "first"), SL__ONNX_NAMES("a"), NULL);
  add(&g, "Unsqueeze", "n9", SL__ONNX_NAMES("w", "a"), SL__ONNX_NAMES("wa"), NULL);
  add(&g, "Unsqueeze", "n10", SL__ONNX_NAMES("b", "a"), SL__ONNX_NAMES("ba"), NULL);
  add(&g, "CastLike", "n11", SL__ONNX_NAMES("wa", "v"), SL__ONNX_NAMES("wl"), NULL);
  add(&g, "Mul", "n12", SL__ONNX_NAMES("v", "wl"), SL__ONNX_NAMES("m"), NULL);
  add(&g, "Add", "n13", SL__ONNX_NAMES("m", "ba"), SL__ONNX_NAMES("q"), NULL);
  add(&g, "CastLike", "n14", SL__ONNX_NAMES("q", "c"), SL__ONNX_NAMES("y"), NULL);
  check_graph(&g, 2, "\"groups\": 2", x, want);
}

/* The operator itself: before operator set 21 a group has one scale and shift. */
static void group_operators_are_read(void **state) {
  (void)state;
  static const struct sl__onnx_attribute groups = SL__ONNX_WHOLE("num_groups", 2),
                                         none = SL__ONNX_WHOLE("num_groups", 0);
  float x[MOST], values[2][4], each[2][4];
  double want[MOST];
  struct sl_model *m;
  struct graph g;
  fill(x, SAMPLES * 20, 0), fill(values[0], 4, 1), fill(values[1], 4, 2);
  for (int set = 18; set <= 21; set += 3) {
    for (int k = 0; k < 8; k++) each[k / 4][k % 4] = values[k / 4][set < 21 ? k % 4 / 2 : k % 4];
    for (int64_t k = 0; k < SAMPLES * 20; k++) want[k] = (double)x[k];
    for (int n = 0; n < SAMPLES; n++)
      normalise(&SL_SHAPE(4, 5), 2, each[0], each[1], want + n * 20);
    for (int i = 0; i < 3; i++) {
      int64_t count = (set < 21) == (i < 2) ? 2 : 4; /* the last time the other set's number */
      start(&g, &SL_SHAPE(4, 5), -1);
      g.file.opset = set;
      add_reals(&g, "w", SL_SHAPE(count), values[0]);
      add_reals(&g, "b", SL_SHAPE(count), values[1]);
      add(&g, "GroupNormalization", "norm", SL__ONNX_NAMES("x", "w", "b"), SL__ONNX_NAMES("y"),
          i == 1 ? &none : &groups);
      if (i == 0)
        check_graph(&g, 1, "\"groups\": 2", x, want);
      else
        FAILS(sl_model_open(context, write_graph(&g), &m), SL_BAD_FILE,
              i == 1 ? "4 channels are not 0 equal groups" : "its input 1 has ");
    }
  }
}

/* A scale of the last axis instead of the channels'. */
static void scales_of_other_axes_are_refused(void **state) {
  (void)state;
  static const struct group_case c = {{.ndim = 2, .dim = {4, 4}}, .groups = 2, .batch = -1};
  int64_t rows[3], back[SL_MAX_DIMS];
  float weight[6], bias[6];
  struct sl_model *m;
  struct graph g;
  fill(weight, 6, 1), fill(bias, 6, 2);
  make_group(&g, &c, weight, bias, rows, back);
  g.tensor[4].dim[0] = 1, g.tensor[4].dim[1] = 4;
  FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED, "/1/Mul");
  make_group(&g, &c, weight, bias, rows, back);
  g.tensor[5].dim[0] = 1, g.tensor[5].dim[1] = 4; /* the scale is the channels', the shift not */
  FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED, "/1/Mul");
}

/* ---- layer normalisation before operator set 17 ---- */

/* x [3, 4] -> a norm of its parts over the last axes -> y */
static void make_parts(struct graph *g, const struct sl__onnx_attribute *axes,
                       const struct sl_shape *places, const float *weight, const float *bias) {
  static const float two[] = {2}, epsilon[] = {1e-5f};
  start(g, &SL_SHAPE(3, 4), -1);
  add_reals(g, "two", SL_SHAPE(1), two);
  add_reals(g, "epsilon", SL_SHAPE(1), epsilon);
  add_reals(g, "w", *places, weight);
  add_reals(g, "b", *places, bias);
  add(g, "ReduceMean", "/n/Mean", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("m"), axes);
  add(g, "Sub", "/n/Sub", SL__ONNX_NAMES("x", "m"), SL__ONNX_NAMES("c"), NULL);
  add(g, "Pow", "/n/Pow", SL__ONNX_NAMES("c", "two"), SL__ONNX_NAMES("q"), NULL);
  add(g, "ReduceMean", "/n/Mean_1", SL__ONNX_NAMES("q"), SL__ONNX_NAMES("v"), axes);
  add(g, "Add", "/n/Add", SL__ONNX_NAMES("v", "epsilon"), SL__ONNX_NAMES("e"), NULL);
  add(g, "Sqrt", "/n/Sqrt", SL__ONNX_NAMES("e"), SL__ONNX_NAMES("s"), NULL);
  add(g, "Div", "/n/Div", SL__ONNX_NAMES("c", "s"), SL__ONNX_NAMES("d"), NULL);
  add(g, "Mul", "/n/Mul", SL__ONNX_NAMES("d", "w"), SL__ONNX_NAMES("u"), NULL);
  add(g, "Add", "/n/Add_1", SL__ONNX_NAMES("u", "b"), SL__ONNX_NAMES("y"), NULL);
}

static void layer_norms_of_parts_are_read(void **state) {
  (void)state;
  static const int64_t lists[2][2] = {{-1}, {-2, -1}};
  float x[SAMPLES * 12], weight[12], bias[12];
  fill(x, SAMPLES * 12, 0), fill(weight, 12, 1), fill(bias, 12, 2);
  for (int i = 0; i < 4; i++) { /* over one axis and two, with and without scale and shift */
    int count = 1 + i / 2, size = count == 1 ? 4 : 12;
    bool plain = i % 2;
    struct sl__onnx_attribute axes = {
        .name = "axes", .type = SL__ONNX_INTS, .ints = lists[count - 1], .count = count};
    double want[SAMPLES * 12];
    struct graph g;
    for (int k = 0; k < SAMPLES * 12; k++) want[k] = (double)x[k];
    for (int k = 0; k < SAMPLES * 12 / size; k++)
      normalise(&SL_SHAPE(1, size), 1, NULL, NULL, want + k * size);
    for (int k = 0; !plain && k < SAMPLES * 12; k++)
      want[k] = want[k] * (double)weight[k % size] + (double)bias[k % size];
    make_parts(&g, &axes, count == 1 ? &SL_SHAPE(4) : &SL_SHAPE(3, 4), weight, bias);
    if (plain) {
      g.file.nodes = 7;
      g.out[6][0] = "y";
    }
    check_graph(&g, 1, "layernorm", x, want);
  }
}

/* Nearly the same nodes. */
static void other_parts_are_refused(void **state) {
  (void)state;
  static const int64_t list[] = {-1}, other[] = {-2};
  struct sl__onnx_attribute last = {
      .name = "axes", .type = SL__ONNX_INTS, .ints = list, .count = 1};
  struct sl__onnx_attribute first = {
      .name = "axes", .type = SL__ONNX_INTS, .ints = other, .count = 1};
  static const float three[] = {3};
  float weight[12], bias[12];
  fill(weight, 12, 1), fill(bias, 12, 2);
  for (int i = 0; i < 4; i++) {
    struct sl_model *m;
    struct graph g;
    make_parts(&g, i == 0 ? &first : &last, &SL_SHAPE(4), weight, bias);
    if (i == 1) g.node[0].attribute = &first;
    if (i == 2) g.tensor[0].reals = three;
    if (i == 3) g.in[1][0] = "m", g.in[1][1] = "x";
    FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED, "/n/Sub");
  }
}

/* x [4, 4] -> x / sqrt(mean(x^2) + epsilon) times w -> y */
static void make_rms(struct graph *g, const struct sl_shape *places, const float *weight) {
  static const float epsilon[] = {1e-5f};
  static const int64_t list[] = {-1};
  static const struct sl__onnx_attribute last = {
      .name = "axes", .type = SL__ONNX_INTS, .ints = list, .count = 1};
  start(g, &SL_SHAPE(4, 4), -1);
  add_reals(g, "epsilon", SL_SHAPE(1), epsilon);
  add_reals(g, "w", *places, weight);
  add(g, "Mul", "/n/Mul", SL__ONNX_NAMES("x", "x"), SL__ONNX_NAMES("q"), NULL);
  add(g, "ReduceMean", "/n/Mean", SL__ONNX_NAMES("q"), SL__ONNX_NAMES("v"), &last);
  add(g, "Add", "/n/Add", SL__ONNX_NAMES("v", "epsilon"), SL__ONNX_NAMES("e"), NULL);
  add(g, "Sqrt", "/n/Sqrt", SL__ONNX_NAMES("e"), SL__ONNX_NAMES("s"), NULL);
  add(g, "Div", "/n/Div", SL__ONNX_NAMES("x", "s"), SL__ONNX_NAMES("d"), NULL);
  add(g, "Mul", "/n/Mul_1", SL__ONNX_NAMES("d", "w"), SL__ONNX_NAMES("y"), NULL);
}

/* How exporters write a square, and a quotient. */
struct rms_case {
  bool power, turned; /* turned: of [T, N, C], as around recurrent layers */
  enum { BY_ROOT, TIMES_RECIPROCAL, RECIPROCAL_TIMES, TIMES_ONE_BY_ROOT } quotient;
};

static void make_rms_of(struct graph *g, const struct rms_case *c, const float *weight) {
  static const float numbers[] = {1e-5f, 2, 1};
  static const char *const names[] = {"epsilon", "two", "one"};
  static const int64_t list[] = {-1};
  static const struct sl__onnx_attribute last = {
      .name = "axes", .type = SL__ONNX_INTS, .ints = list, .count = 1};
  static const int64_t perm[] = {1, 0, 2};
  static const struct sl__onnx_attribute turn = {
      .name = "perm", .type = SL__ONNX_INTS, .ints = perm, .count = 3};
  const char *x = c->turned ? "t" : "x";
  start(g, &SL_SHAPE(4, 4), -1);
  for (int i = 0; i < 3; i++) add_reals(g, names[i], SL_SHAPE(1), numbers + i);
  add_reals(g, "w", SL_SHAPE(4), weight);
  if (c->turned) add(g, "Transpose", "turn", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("t"), &turn);
  add(g, c->power ? "Pow" : "Mul", "square", SL__ONNX_NAMES(x, c->power ? "two" : x),
      SL__ONNX_NAMES("q"), NULL);
  add(g, "ReduceMean", "mean", SL__ONNX_NAMES("q"), SL__ONNX_NAMES("v"), &last);
  add(g, "Add", "add", SL__ONNX_NAMES("v", "epsilon"), SL__ONNX_NAMES("e"), NULL);
  add(g, "Sqrt", "root", SL__ONNX_NAMES("e"), SL__ONNX_NAMES("s"), NULL);
  if (c->quotient == BY_ROOT)
    add(g, "Div", "div", SL__ONNX_NAMES(x, "s"), SL__ONNX_NAMES("d"), NULL);
  else if (c->quotient == TIMES_ONE_BY_ROOT)
    add(g, "Div", "one", SL__ONNX_NAMES("one", "s"), SL__ONNX_NAMES("f"), NULL);
  else
    add(g, "Reciprocal", "one", SL__ONNX_NAMES("s"), SL__ONNX_NAMES("f"), NULL);
  if (c->quotient == RECIPROCAL_TIMES)
    add(g, "Mul", "times", SL__ONNX_NAMES("f", x), SL__ONNX_NAMES("d"), NULL);
  else if (c->quotient != BY_ROOT)
    add(g, "Mul", "times", SL__ONNX_NAMES(x, "f"), SL__ONNX_NAMES("d"), NULL);
  add(g, "Mul", "scale", SL__ONNX_NAMES("w", "d"), SL__ONNX_NAMES("y"), NULL);
}

static void answer_rms(const float *x, const float *weight, double *want) {
  for (int k = 0; k < SAMPLES * 16; k++) {
    double sum = 0;
    for (int i = k / 4 * 4; i < k / 4 * 4 + 4; i++) sum += (double)x[i] * (double)x[i] / 4;
    want[k] = (double)x[k] / sqrt(sum + 1e-5) * (double)weight[k % 4];
  }
}

static void rms_norms_are_read_in_all_forms(void **state) {
  (void)state;
  static const float two[] = {2};
  float x[SAMPLES * 16], weight[4];
  double want[SAMPLES * 16];
  struct sl_model *m;
  struct graph g;
  fill(x, SAMPLES * 16, 0), fill(weight, 4, 1);
  answer_rms(x, weight, want);
  for (int power = 0; power < 2; power++)
    for (int way = BY_ROOT; way <= TIMES_ONE_BY_ROOT; way++) {
      const struct rms_case c = {.power = power, .quotient = way};
      make_rms_of(&g, &c, weight);
      check_graph(&g, 1, "\"rms\": true", x, want);
    }
  const struct rms_case last = {.power = true, .quotient = TIMES_ONE_BY_ROOT};
  const struct rms_case turned = {.turned = true};
  for (int i = 0; i < 4; i++) { /* nearly the same */
    make_rms_of(&g, &last, weight);
    if (i == 0) g.tensor[1].reals = g.tensor[2].reals; /* x^1 */
    if (i == 1) g.tensor[2].reals = two;               /* 2 / root */
    if (i == 2) g.in[4][0] = "s", g.in[4][1] = "one";  /* root / 1 */
    if (i == 3)
      g.tensor[2].ndim = 4, g.tensor[2].dim[1] = g.tensor[2].dim[2] = 1,
      g.tensor[2].dim[3] = 1; /* more axes */
    FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED, "node square (Pow): is no");
  }
  make_rms_of(&g, &turned, weight);
  FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED, "node ");
}

/* The operator that sets 23 and newer have. */
static void rms_operators_are_read(void **state) {
  (void)state;
  float x[SAMPLES * 16], weight[4];
  double want[SAMPLES * 16];
  struct graph g;
  fill(x, SAMPLES * 16, 0), fill(weight, 4, 1);
  answer_rms(x, weight, want);
  start(&g, &SL_SHAPE(4, 4), -1);
  g.file.opset = 23;
  add_reals(&g, "w", SL_SHAPE(4), weight);
  add(&g, "RMSNormalization", "norm", SL__ONNX_NAMES("x", "w"), SL__ONNX_NAMES("y"), NULL);
  check_graph(&g, 1, "\"rms\": true", x, want);
}

/* x [4, 4] -> LayerNormalization of the last axis -> y */
static void make_norm(struct graph *g, const struct sl_shape *places, const struct sl_shape *shifts,
                      const float *weight) {
  start(g, &SL_SHAPE(4, 4), -1);
  add_reals(g, "w", *places, weight);
  add_reals(g, "b", *shifts, weight + 1);
  add(g, "LayerNormalization", "/n/Norm", SL__ONNX_NAMES("x", "w", "b"), SL__ONNX_NAMES("y"), NULL);
}

/* A scale is the features', with axes of size 1 before theirs, not that of other axes. */
static void scales_of_norms_have_the_last_axes(void **state) {
  (void)state;
  static const struct sl_shape rows = {2, {1, 4}}, columns = {2, {4, 1}}, features = {1, {4}};
  static const struct sl_shape deep = {4, {1, 1, 1, 4}};
  float x[SAMPLES * 16], weight[16];
  double rms[SAMPLES * 16], norm[SAMPLES * 16];
  struct sl_model *m;
  struct graph g;
  fill(x, SAMPLES * 16, 0), fill(weight, 16, 1);
  for (int k = 0; k < SAMPLES * 16; k++) norm[k] = (double)x[k];
  for (int k = 0; k < SAMPLES * 4; k++) normalise(&SL_SHAPE(1, 4), 1, NULL, NULL, norm + 4 * k);
  for (int k = 0; k < SAMPLES * 16; k++) {
    double sum = 0;
    for (int i = k / 4 * 4; i < k / 4 * 4 + 4; i++) sum += (double)x[i] * (double)x[i] / 4;
    rms[k] = (double)x[k] / sqrt(sum + 1e-5) * (double)weight[k % 4];
    norm[k] = norm[k] * (double)weight[k % 4] + (double)weight[1 + k % 4];
  }
  for (int i = 0; i < 2; i++) {
    make_rms(&g, i ? &rows : &features, weight);
    check_graph(&g, 1, "\"rms\": true", x, rms);
    make_norm(&g, i ? &rows : &features, &features, weight);
    check_graph(&g, 1, "layernorm", x, norm);
    make_rms(&g, i ? &deep : &columns, weight);
    FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED, "/n/Mul_1 (Mul): its scale");
    make_norm(&g, i ? &deep : &columns, &features, weight);
    FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED, "/n/Norm");
    make_norm(&g, &features, i ? &deep : &columns, weight);
    FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED, "/n/Norm");
  }
}

static void refuse_epsilon(struct graph *g, const float *epsilon) {
  struct sl_model *m;
  struct sl__onnx_tensor *t = g->tensor;
  while (strcmp(t->name, "epsilon") != 0) t++;
  t->reals = epsilon;
  FAILS(sl_model_open(context, write_graph(g), &m), SL_UNSUPPORTED,
        "/n/Add (Add): epsilon is 0; it must be above 0");
}

/* 0 is the layers' own default. */
static void norms_without_epsilon_are_refused(void **state) {
  (void)state;
  static const int64_t list[] = {-1};
  static const float none[] = {0};
  const struct sl__onnx_attribute last = {
      .name = "axes", .type = SL__ONNX_INTS, .ints = list, .count = 1};
  float weight[12];
  struct graph g;
  fill(weight, 12, 1);
  make_parts(&g, &last, &SL_SHAPE(4), weight, weight);
  refuse_epsilon(&g, none);
  make_rms(&g, &SL_SHAPE(4), weight);
  refuse_epsilon(&g, none);
}

/* Without keepdims the means of samples [4, 4] are those of other rows; an epsilon of more axes
 * gives the output more, too. */
static void means_of_other_shapes_are_no_norms(void **state) {
  (void)state;
  static const int64_t list[] = {-1};
  const struct sl__onnx_attribute dropped[] = {
      {.name = "axes", .type = SL__ONNX_INTS, .ints = list, .count = 1},
      SL__ONNX_WHOLE("keepdims", 0)};
  float weight[4];
  struct sl_model *m;
  struct graph g;
  fill(weight, 4, 1);
  make_rms(&g, &SL_SHAPE(4), weight);
  g.node[1].attribute = dropped, g.node[1].attributes = 2;
  FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED, "/n/Add (Add)");
  for (int axes = 3; axes <= 4; axes++) {
    make_rms(&g, &SL_SHAPE(4), weight);
    g.tensor[0].ndim = axes;
    for (int d = 0; d < axes; d++) g.tensor[0].dim[d] = 1;
    if (axes == 3) {
      OK(sl_model_open(context, write_graph(&g), &m));
      sl_model_free(m);
    } else {
      FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED, "/n/Add (Add)");
    }
  }
}

/* x [4] -> gelu in parts, whose constants have names and shapes of their own -> y */
static void make_gelu(struct graph *g, int longer, int axes) {
  static const char *const names[] = {"root", "one", "half"};
  static const float values[] = {1.41421356f, 1, 0.5f};
  start(g, &SL_SHAPE(4), -1);
  for (int i = 0; i < 3; i++) {
    add_reals(g, names[i], SL_SHAPE(1), values + i);
    if (i != longer) continue;
    g->tensor[i].ndim = axes;
    for (int d = 0; d < axes; d++) g->tensor[i].dim[d] = 1;
  }
  add(g, "Div", "/g/Div", SL__ONNX_NAMES("x", "root"), SL__ONNX_NAMES("d"), NULL);
  add(g, "Erf", "/g/Erf", SL__ONNX_NAMES("d"), SL__ONNX_NAMES("e"), NULL);
  add(g, "Add", "/g/Add", SL__ONNX_NAMES("e", "one"), SL__ONNX_NAMES("a"), NULL);
  add(g, "Mul", "/g/Mul", SL__ONNX_NAMES("x", "a"), SL__ONNX_NAMES("m"), NULL);
  add(g, "Mul", "/g/Mul_1", SL__ONNX_NAMES("m", "half"), SL__ONNX_NAMES("y"), NULL);
}

/* A number of as many axes as the batch's values adds none to them; one of more does. */
static void numbers_that_add_axes_are_refused(void **state) {
  (void)state;
  static const char *const nodes[] = {"/g/Div (Div)", "/g/Add (Add)", "/g/Mul_1 (Mul)"};
  float x[SAMPLES * 4];
  double gelu[SAMPLES * 4];
  struct sl_model *m;
  struct graph g;
  fill(x, SAMPLES * 4, 0);
  for (int k = 0; k < SAMPLES * 4; k++)
    gelu[k] = (double)x[k] * (1 + erf((double)x[k] / sqrt(2))) / 2;
  for (int i = 0; i < 3; i++) {
    make_gelu(&g, i, 2);
    check_graph(&g, 1, "gelu", x, gelu);
    make_gelu(&g, i, 3);
    FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED, nodes[i]);
  }
}

/* The share of the old statistics is none below 0 and above 1, nor one that is not a number. */
static void shares_of_statistics_are_from_0_to_1(void **state) {
  (void)state;
  static const char *const names[] = {"n.weight", "n.bias", "n.running_mean", "n.running_var"};
  static const float kept[] = {-0.1f, 1.1f, NAN, 0, 1}, ones[] = {1, 1, 1, 1};
  for (int i = 0; i < 5; i++) {
    const struct sl__onnx_attribute momentum = {
        .name = "momentum", .type = SL__ONNX_F, .f = kept[i]};
    struct sl_model *m;
    struct graph g;
    start(&g, &SL_SHAPE(4), -1);
    for (int k = 0; k < 4; k++) add_reals(&g, names[k], SL_SHAPE(4), ones);
    add(&g, "BatchNormalization", "/n/Norm",
        SL__ONNX_NAMES("x", "n.weight", "n.bias", "n.running_mean", "n.running_var"),
        SL__ONNX_NAMES("y"), &momentum);
    if (i < 3) {
      FAILS(sl_model_open(context, write_graph(&g), &m), SL_BAD_FILE,
            "/n/Norm (BatchNormalization): attribute momentum is");
    } else {
      OK(sl_model_open(context, write_graph(&g), &m));
      sl_model_free(m);
    }
  }
}

/* ---- splits, and transposes around recurrent layers ---- */

enum { STEPS = 3, INPUTS = 2, HIDDEN = 2 };

/* x [I, T] or [T, I] -> LSTM in both directions -> both last states side by side. */
struct state_case {
  bool rows_first, two_turns; /* x is [I, T]; one Transpose for each of two turns */
  bool splits;                /* the states are parts of a Split, else picked by Gather */
  bool cuts;                  /* the parts are Slices */
};

static void make_states(struct graph *g, const struct state_case *c) {
  static float weight[2 * 4 * HIDDEN * (INPUTS + HIDDEN)];
  static const int64_t numbers[] = {0, 1, 2};
  static const int64_t samples[] = {0, 2, 1}, time[] = {1, 0, 2}, both[] = {2, 0, 1};
  static struct sl__onnx_attribute turn[2], way[1], axis0, axis1;
  const int64_t *perm = c->rows_first && !c->two_turns ? both : time;
  struct sl_shape sample = c->rows_first ? SL_SHAPE(INPUTS, STEPS) : SL_SHAPE(STEPS, INPUTS);
  turn[0] = (struct sl__onnx_attribute){
      .name = "perm", .type = SL__ONNX_INTS, .ints = samples, .count = 3};
  turn[1] =
      (struct sl__onnx_attribute){.name = "perm", .type = SL__ONNX_INTS, .ints = perm, .count = 3};
  way[0] =
      (struct sl__onnx_attribute){.name = "direction", .type = SL__ONNX_S, .s = "bidirectional"};
  axis0 = (struct sl__onnx_attribute)SL__ONNX_WHOLE("axis", 0);
  axis1 = (struct sl__onnx_attribute)SL__ONNX_WHOLE("axis", 1);
  fill(weight, (int64_t)(sizeof weight / sizeof *weight), 1);
  start(g, &sample, -1);
  add_reals(g, "w", SL_SHAPE(2, 4 * HIDDEN, INPUTS), weight);
  add_reals(g, "r", SL_SHAPE(2, 4 * HIDDEN, HIDDEN), weight + 2 * 4 * HIDDEN * INPUTS);
  add_wholes(g, "first", 1, numbers);
  add_wholes(g, "second", 1, numbers + 1);
  if (!c->splits) g->tensor[2].ndim = g->tensor[3].ndim = 0; /* Gather takes away the axis */
  if (c->rows_first && !c->two_turns) { /* the shape of zeros for the first state */
    add(g, "Transpose", "t2", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("v"), &turn[0]);
    add(g, "Shape", "shape", SL__ONNX_NAMES("v"), SL__ONNX_NAMES("s"), NULL);
    add(g, "ConstantOfShape", "zeros", SL__ONNX_NAMES("s"), SL__ONNX_NAMES("z"), NULL);
  }
  if (c->two_turns) add(g, "Transpose", "t0", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("u"), &turn[0]);
  add(g, "Transpose", "t1", SL__ONNX_NAMES(c->two_turns ? "u" : "x"), SL__ONNX_NAMES("t"),
      &turn[1]);
  if (c->rows_first && !c->two_turns)
    add(g, "LSTM", "lstm", SL__ONNX_NAMES("t", "w", "r", "", "", "z"), SL__ONNX_NAMES("", "h"),
        way);
  else
    add(g, "LSTM", "lstm", SL__ONNX_NAMES("t", "w", "r"), SL__ONNX_NAMES("", "h"), way);
  if (c->splits) {
    add_wholes(g, "end", 1, numbers + 2);
    if (c->cuts) {
      add(g, "Slice", "c0", SL__ONNX_NAMES("h", "first", "second", "first"), SL__ONNX_NAMES("p"),
          NULL);
      add(g, "Slice", "c1", SL__ONNX_NAMES("h", "second", "end", "first"), SL__ONNX_NAMES("q"),
          NULL);
    } else {
      add(g, "Split", "split", SL__ONNX_NAMES("h"), SL__ONNX_NAMES("p", "q"), &axis0);
    }
    add(g, "Squeeze", "s0", SL__ONNX_NAMES("p", "first"), SL__ONNX_NAMES("a"), NULL);
    add(g, "Squeeze", "s1", SL__ONNX_NAMES("q", "first"), SL__ONNX_NAMES("b"), NULL);
  } else {
    add(g, "Gather", "g0", SL__ONNX_NAMES("h", "first"), SL__ONNX_NAMES("a"), &axis0);
    add(g, "Gather", "g1", SL__ONNX_NAMES("h", "second"), SL__ONNX_NAMES("b"), &axis0);
  }
  add(g, "Concat", "join", SL__ONNX_NAMES("a", "b"), SL__ONNX_NAMES("y"), &axis1);
}

static void answer_states(const struct state_case *c, const float *x, float *y) {
  struct sl_predictor *predictor;
  struct sl_model *m;
  struct graph g;
  make_states(&g, c);
  OK(sl_model_open(context, write_graph(&g), &m));
  assert_true(sl_shape_equal(sl_model_output(m), &SL_SHAPE(2 * HIDDEN)));
  OK(sl_predictor_open(m, &(struct sl_predictor_options){0}, &predictor));
  OK(sl_predict(predictor, x, SAMPLES, y));
  sl_predictor_free(predictor);
  sl_model_free(m);
}

/* Both ways to write the same network give the same bits. */
static void ways_to_write_states_are_alike(void **state) {
  (void)state;
  static const struct state_case first[] = {{.splits = false},
                                            {.rows_first = true, .two_turns = true},
                                            {.splits = true}},
                                 second[] = {{.splits = true},
                                             {.rows_first = true},
                                             {.splits = true, .cuts = true}};
  float x[SAMPLES * STEPS * INPUTS], a[SAMPLES * 2 * HIDDEN], b[SAMPLES * 2 * HIDDEN];
  fill(x, SAMPLES * STEPS * INPUTS, 0);
  for (int i = 0; i < 3; i++) {
    answer_states(&first[i], x, a);
    answer_states(&second[i], x, b);
    assert_memory_equal(a, b, sizeof a);
    assert_true(fabsf(a[0] - a[2]) > 1e-3f); /* the directions differ */
  }
}

/* x [T, I] -> two LSTMs, the second one on the first one's steps -> number `at` of both last
 * states, which is picked from both joined, or from the layer's own. */
static void make_layers(struct graph *g, int64_t at, bool joined) {
  static float weight[2 * 4 * HIDDEN * (INPUTS + HIDDEN)];
  static int64_t number, one[] = {1};
  static const int64_t list[] = {1, 0, 2};
  static const struct sl__onnx_attribute turn = {
      .name = "perm", .type = SL__ONNX_INTS, .ints = list, .count = 3};
  static const struct sl__onnx_attribute axis = SL__ONNX_WHOLE("axis", 0);
  fill(weight, (int64_t)(sizeof weight / sizeof *weight), 1);
  number = joined ? at : 0;
  start(g, &SL_SHAPE(STEPS, INPUTS), -1);
  add_reals(g, "w", SL_SHAPE(1, 4 * HIDDEN, INPUTS), weight);
  add_reals(g, "r", SL_SHAPE(1, 4 * HIDDEN, HIDDEN), weight + 4 * HIDDEN * INPUTS);
  add_wholes(g, "at", 1, &number);
  g->tensor[2].ndim = 0;
  add_wholes(g, "one", 1, one);
  add(g, "Transpose", "turn", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("t"), &turn);
  add(g, "LSTM", "first", SL__ONNX_NAMES("t", "w", "r"), SL__ONNX_NAMES("a", "ha"), NULL);
  add(g, "Squeeze", "steps", SL__ONNX_NAMES("a", "one"), SL__ONNX_NAMES("s"), NULL);
  add(g, "LSTM", "second", SL__ONNX_NAMES("s", "w", "r"), SL__ONNX_NAMES("b", "hb"), NULL);
  if (joined) add(g, "Concat", "join", SL__ONNX_NAMES("ha", "hb"), SL__ONNX_NAMES("h"), &axis);
  add(g, "Gather", "pick",
      SL__ONNX_NAMES(joined                ? "h"
                     : at == 0 || at == -2 ? "ha"
                                           : "hb",
                     "at"),
      SL__ONNX_NAMES("y"), &axis);
}

/* As h_n[-1]: the state of one layer, and no layers for the states that no node takes. */
static void states_of_layers_are_picked(void **state) {
  (void)state;
  float x[SAMPLES * STEPS * INPUTS], y[2][SAMPLES * HIDDEN];
  struct sl_predictor *predictor;
  struct sl_model *m;
  struct graph g;
  fill(x, SAMPLES * STEPS * INPUTS, 0);
  for (int64_t at = -2; at < 2; at++) {
    int layers[2];
    for (int joined = 0; joined < 2; joined++) {
      make_layers(&g, at, joined);
      OK(sl_model_open(context, write_graph(&g), &m));
      assert_true(sl_shape_equal(sl_model_output(m), &SL_SHAPE(HIDDEN)));
      layers[joined] = m->count;
      OK(sl_predictor_open(m, &(struct sl_predictor_options){0}, &predictor));
      OK(sl_predict(predictor, x, SAMPLES, y[joined]));
      sl_predictor_free(predictor);
      sl_model_free(m);
    }
    assert_int_equal(layers[0], layers[1]);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
  }
  make_layers(&g, 2, true); /* there is none */
  FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED,
        "node join (Concat): joins last states");
}

/* Writes a list of strings, which the writer has not, into the place of a text of 19 letters. */
static const char *put_strings(const char *path, const char *text, const char *strings) {
  char bytes[8192];
  size_t size, at = 0;
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  size = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  while (at + 22 < size && memcmp(bytes + at, text, 19) != 0) at++;
  assert_true(at + 22 < size);
  memcpy(bytes + at - 2, strings, 21);
  assert_int_equal(bytes[at + 21], SL__ONNX_S); /* behind the key of the type */
  bytes[at + 21] = SL__ONNX_STRINGS;
  return put("x.onnx", bytes, size);
}

/* Some exporters write out what is ONNX's default. */
static void usual_activations_are_read(void **state) {
  (void)state;
  static const char *const lists[] = {"\x4a\7Sigmoid\x4a\4Tanh\x4a\4Tanh",
                                      "\x4a\4Tanh\x4a\7Sigmoid\x4a\4Tanh"};
  const struct sl__onnx_attribute text = {
      .name = "activations", .type = SL__ONNX_S, .s = "nineteen letters ab"};
  struct sl_model *m;
  struct graph g;
  for (int i = 0; i < 2; i++) {
    make_layers(&g, 1, false);
    g.node[1].attribute = &text, g.node[1].attributes = 1;
    const char *path = put_strings(write_graph(&g), text.s, lists[i]);
    if (i) {
      FAILS(sl_model_open(context, path, &m), SL_UNSUPPORTED,
            "attribute activations is 'Tanh Sigmoid Tanh'; only 'Sigmoid Tanh Tanh' is");
    } else {
      OK(sl_model_open(context, path, &m));
      sl_model_free(m);
    }
  }
}

static void turns_name_each_axis_once(void **state) {
  (void)state;
  static const int64_t perms[][3] = {{0, 0, 1}, {2, 0, 2}, {0, 1, 1}};
  for (int i = 0; i < 3; i++) {
    struct sl__onnx_attribute perm = {
        .name = "perm", .type = SL__ONNX_INTS, .ints = perms[i], .count = 3};
    struct sl_model *m;
    struct graph g;
    start(&g, &SL_SHAPE(4, 3), -1);
    add(&g, "Transpose", "turn", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("y"), &perm);
    FAILS(sl_model_open(context, write_graph(&g), &m), SL_BAD_FILE, "names an axis twice");
  }
}

struct split_case {
  int64_t axis, size[3];
  enum sl_status status;
  const char *words;
};

/* x [4, 3] -> Split in three or two, of which the last part is the output. */
static void splits_become_slices(void **state) {
  (void)state;
  static const struct split_case cases[] = {
      {.axis = 1, .size = {1, 1, 2}},
      {.axis = 2, .size = {1, 1, 1}},
      {.axis = -2, .size = {2, 1, 1}},
      {.axis = 0, .size = {1, 1, 1}, SL_UNSUPPORTED, "the batch's axis"},
      {.axis = 1, .size = {1, 1, 1}, SL_BAD_FILE, "axis of size 4"},
      {.axis = 1, .size = {2, 2, 1}, SL_BAD_FILE, "axis of size 4"},
      {.axis = 1, .size = {1, INT64_MAX, 2}, SL_BAD_FILE, "axis of size 4"},
      {.axis = 1, .size = {2, 0, 2}, SL_BAD_FILE, "axis of size 4"}};
  float x[SAMPLES * 12];
  double want[SAMPLES * 12];
  fill(x, SAMPLES * 12, 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct split_case *c = &cases[i];
    struct sl__onnx_attribute axis = SL__ONNX_WHOLE("axis", c->axis);
    struct sl_model *m;
    struct graph g;
    int64_t count = 0;
    start(&g, &SL_SHAPE(4, 3), -1);
    add_wholes(&g, "sizes", 3, c->size);
    add(&g, "Split", "split", SL__ONNX_NAMES("x", "sizes"), SL__ONNX_NAMES("a", "b", "y"), &axis);
    if (c->words) {
      FAILS(sl_model_open(context, write_graph(&g), &m), c->status, c->words);
      continue;
    }
    for (int k = 0; k < SAMPLES * 12; k++)
      if (c->axis == 2 ? k % 3 == 2 : k / 3 % 4 >= 4 - c->size[2]) want[count++] = (double)x[k];
    check_graph(&g, 1, "slice", x, want);
  }
}

/* x [4, 6] -> SplitToSequence of parts of `size` -> the second and the first one's product. */
static void make_sequence(struct graph *g, const int64_t *size, const int64_t *numbers) {
  static const struct sl__onnx_attribute axis = SL__ONNX_WHOLE("axis", -1);
  static const char *const names[] = {"first", "second"};
  start(g, &SL_SHAPE(4, 6), -1);
  add_wholes(g, "size", 1, size);
  for (int i = 0; i < 2; i++) add_wholes(g, names[i], 1, numbers + i);
  for (int i = 0; i < 3; i++) g->tensor[i].ndim = 0;
  add(g, "SplitToSequence", "split", SL__ONNX_NAMES("x", "size"), SL__ONNX_NAMES("s"), &axis);
  add(g, "SequenceAt", "at0", SL__ONNX_NAMES("s", "first"), SL__ONNX_NAMES("a"), NULL);
  add(g, "SequenceAt", "at1", SL__ONNX_NAMES("s", "second"), SL__ONNX_NAMES("b"), NULL);
  add(g, "Mul", "mul", SL__ONNX_NAMES("a", "b"), SL__ONNX_NAMES("y"), NULL);
}

static void splits_into_sequences_become_slices(void **state) {
  (void)state;
  static const int64_t size[] = {3}, uneven[] = {4}, one[] = {1};
  static const int64_t numbers[][2] = {{0, 1}, {-1, 0}, {0, 0}, {0, 2}};
  float x[SAMPLES * 24];
  double want[SAMPLES * 12];
  struct sl_model *m;
  struct graph g;
  fill(x, SAMPLES * 24, 0);
  for (int k = 0; k < SAMPLES * 12; k++)
    want[k] = (double)x[k / 3 * 6 + k % 3] * (double)x[k / 3 * 6 + 3 + k % 3];
  for (int i = 0; i < 2; i++) {
    make_sequence(&g, size, numbers[i]);
    check_graph(&g, 3, "slice", x, want);
    make_sequence(&g, size, numbers[2 + i]); /* one part twice; one that is none */
    FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED, "at1 (SequenceAt): takes");
  }
  make_sequence(&g, uneven, numbers[0]);
  FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED,
        "node split (SplitToSequence): splits other than");
  make_sequence(&g, one, numbers[0]); /* the others are taken by no node */
  OK(sl_model_open(context, write_graph(&g), &m));
  assert_true(sl_shape_equal(sl_model_output(m), &SL_SHAPE(4, 1)));
  sl_model_free(m);
}

/* ---- shapes that are computed ---- */

struct number_case {
  const char *op;
  int64_t a, b;
  bool as_in_c; /* of Mod */
};

/* x [8] -> Relu -> Reshape to [N, a op b, -1], whose list is made of parts. */
static void make_numbers(struct graph *g, const struct number_case *c) {
  static const int64_t wholes[] = {-1, 1, INT64_MAX};
  static const char *const names[] = {"rest", "one", "far"};
  static const struct sl__onnx_attribute first[] = {SL__ONNX_WHOLE("start", 0),
                                                    SL__ONNX_WHOLE("end", 1)};
  static const struct sl__onnx_attribute axis = SL__ONNX_WHOLE("axis", 0),
                                         fmod = SL__ONNX_WHOLE("fmod", 1);
  start(g, &SL_SHAPE(8), -1);
  for (int i = 0; i < 3; i++) add_wholes(g, names[i], 1, wholes + i);
  add_wholes(g, "a", 1, &c->a);
  add_wholes(g, "b", 1, &c->b);
  g->tensor[4].ndim = 0;
  add(g, "Relu", "relu", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("r"), NULL);
  add(g, "Shape", "shape", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("s"), first);
  g->node[1].attributes = 2;
  add(g, "Squeeze", "squeeze", SL__ONNX_NAMES("s"), SL__ONNX_NAMES("n"), NULL);
  add(g, "Mul", "times", SL__ONNX_NAMES("n", "one"), SL__ONNX_NAMES("l"), NULL);
  add(g, c->op, "number", SL__ONNX_NAMES("a", "b"), SL__ONNX_NAMES("k"), c->as_in_c ? &fmod : NULL);
  add(g, "Slice", "none", SL__ONNX_NAMES("s", "one", "far"), SL__ONNX_NAMES("e"), NULL);
  add(g, "Concat", "list", SL__ONNX_NAMES("l", "k", "rest", "e"), SL__ONNX_NAMES("t"), &axis);
  add(g, "Reshape", "view", SL__ONNX_NAMES("r", "t"), SL__ONNX_NAMES("y"), NULL);
}

static void shapes_are_computed(void **state) {
  (void)state;
  static const struct number_case fine[] = {{"Add", 3, -1},
                                            {"Sub", 1, -1},
                                            {"Mul", -2, -1},
                                            {"Div", 9, 4},
                                            {"Div", -9, -4},
                                            {"Mod", -1, 3},
                                            {"Mod", 5, 3},
                                            {"Mod", 5, 3, .as_in_c = true},
                                            {"Mod", 2, -3, .as_in_c = true}};
  static const struct number_case bad[] = {
      {"Div", 1, 0},         {"Mod", 1, 0},         {"Div", INT64_MIN, -1}, {"Mod", INT64_MIN, -1},
      {"Add", INT64_MAX, 1}, {"Sub", INT64_MIN, 1}, {"Mul", INT64_MAX, 2}};
  float x[SAMPLES * 8];
  double want[SAMPLES * 8];
  struct sl_model *m;
  struct graph g;
  fill(x, SAMPLES * 8, 0);
  for (int k = 0; k < SAMPLES * 8; k++) want[k] = x[k] > 0 ? (double)x[k] : 0;
  for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
    make_numbers(&g, &fine[i]);
    check_graph(&g, 2, "\"shape\": [2, 4]", x, want);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    make_numbers(&g, &bad[i]);
    FAILS(sl_model_open(context, write_graph(&g), &m), SL_BAD_FILE, "give no whole number");
  }
  make_numbers(&g, &fine[0]);
  g.in[3][1] = "a"; /* the batch's size times 3 */
  FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED,
        "node times (Mul): computes with the batch's size");
}

/* ---- ranges ---- */

/* "n" is the batch's size as a list: Shape, Gather, Unsqueeze. */
static void add_batch_size(struct graph *g) {
  static const int64_t zero[] = {0};
  add_wholes(g, "zero", 1, zero);
  add_wholes(g, "first", 1, zero);
  g->tensor[g->file.tensors - 1].ndim = 0;
  add(g, "Shape", "shape", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("s"), NULL);
  add(g, "Gather", "gather", SL__ONNX_NAMES("s", "first"), SL__ONNX_NAMES("g"), NULL);
  add(g, "Unsqueeze", "unsqueeze", SL__ONNX_NAMES("g", "zero"), SL__ONNX_NAMES("n"), NULL);
}

/* x[:, n:], x[:, :n] and x * table[:n] have another meaning with each batch. */
static void ranges_of_the_batch_are_refused(void **state) {
  (void)state;
  static const int64_t one[] = {1}, far[] = {INT64_MAX};
  float table[12];
  struct sl_model *m;
  struct graph g;
  fill(table, 12, 0);
  for (int i = 0; i < 4; i++) {
    start(&g, &SL_SHAPE(4, 3), -1);
    add_wholes(&g, "one", 1, one);
    add_wholes(&g, "far", 1, far);
    add_reals(&g, "table", SL_SHAPE(4, 3), table);
    add_batch_size(&g);
    add(&g, "Slice", "cut",
        SL__ONNX_NAMES(i < 2 ? "x" : "table", i % 2 ? "n" : "zero", i % 2 ? "far" : "n",
                       i < 2 ? "one" : "zero"),
        SL__ONNX_NAMES(i < 2 ? "y" : "t"), NULL);
    if (i > 1) add(&g, "Add", "add", SL__ONNX_NAMES("x", "t"), SL__ONNX_NAMES("y"), NULL);
    FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED,
          "node cut (Slice): its range depends on the batch's size");
  }
}

/* The least number of all is an exporter's word for "from the beginning". */
static void the_least_number_is_the_beginning(void **state) {
  (void)state;
  static const int64_t numbers[] = {INT64_MIN, 2, 1, -1};
  static const char *const names[] = {"least", "two", "one", "back"};
  float x[SAMPLES * 12];
  double want[SAMPLES * 12];
  struct graph g;
  fill(x, SAMPLES * 12, 0);
  for (int i = 0; i < 2; i++) {
    int64_t count = i ? 12 : 6;
    start(&g, &SL_SHAPE(4, 3), -1);
    for (int k = 0; k < 4; k++) add_wholes(&g, names[k], 1, numbers + k);
    if (i)
      add(&g, "Slice", "flip", SL__ONNX_NAMES("x", "back", "least", "one", "back"),
          SL__ONNX_NAMES("y"), NULL);
    else
      add(&g, "Slice", "cut", SL__ONNX_NAMES("x", "least", "two", "one"), SL__ONNX_NAMES("y"),
          NULL);
    for (int64_t k = 0; k < SAMPLES * count; k++) {
      int64_t row = k % count / 3;
      want[k] = (double)x[k / count * 12 + (i ? 3 - row : row) * 3 + k % 3];
    }
    check_graph(&g, 1, i ? "flip" : "slice", x, want);
  }
}

/* Exporters write the first ":" of y[:, -1] as a node; a part of the batch is no model's. */
static void all_of_the_batch_is_no_slice(void **state) {
  (void)state;
  static const int64_t numbers[] = {0, INT64_MAX, 2};
  static const char *const names[] = {"zero", "far", "two"};
  float x[SAMPLES * 12];
  double want[SAMPLES * 12];
  struct sl_model *m;
  struct graph g;
  fill(x, SAMPLES * 12, 0);
  for (int k = 0; k < SAMPLES * 12; k++) want[k] = x[k] > 0 ? (double)x[k] : 0;
  for (int i = 0; i < 2; i++) {
    start(&g, &SL_SHAPE(4, 3), -1);
    for (int k = 0; k < 3; k++) add_wholes(&g, names[k], 1, numbers + k);
    add(&g, "Slice", "cut", SL__ONNX_NAMES("x", "zero", i ? "two" : "far", "zero"),
        SL__ONNX_NAMES("c"), NULL);
    add(&g, "Relu", "relu", SL__ONNX_NAMES("c"), SL__ONNX_NAMES("y"), NULL);
    if (i == 0)
      check_graph(&g, 1, "relu", x, want);
    else
      FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED, "the batch's axis");
  }
}

/* ---- a sum of several ---- */

/* x [3, 4] -> Relu and Tanh -> Sum of both and a constant table, which is in any place. */
static void sums_keep_all_their_inputs(void **state) {
  (void)state;
  static const char *const inputs[][4] = {
      {"a", "b", "a"}, {"t", "a", "b"}, {"a", "t", "b"}, {"a", "b", "t"}, {"t"}};
  float x[SAMPLES * 12], table[12];
  double want[SAMPLES * 12];
  fill(x, SAMPLES * 12, 0), fill(table, 12, 1);
  for (int k = 0; k < SAMPLES * 12; k++)
    want[k] = tanh((double)x[k]) + 2 * (x[k] > 0 ? (double)x[k] : 0);
  for (int i = 0; i < 5; i++) {
    struct sl_model *m;
    struct graph g;
    start(&g, &SL_SHAPE(3, 4), -1);
    add_reals(&g, "t", SL_SHAPE(3, 4), table);
    add(&g, "Relu", "/a/Relu", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("a"), NULL);
    add(&g, "Tanh", "/b/Tanh", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("b"), NULL);
    add(&g, "Sum", "/Sum", inputs[i], SL__ONNX_NAMES("y"), NULL);
    if (i)
      FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED, "node /Sum (Sum)");
    else
      check_graph(&g, 3, "\"kind\": \"add\"", x, want);
  }
}

/* x [3] -> Unsqueeze -> its product with its Tanh's mean, which has more axes than x's layer. */
static void views_broadcast_as_they_are_seen(void **state) {
  (void)state;
  static const int64_t axis[1] = {1}, axes[2] = {1, 2};
  const struct sl__onnx_attribute along = {
      .name = "axes", .type = SL__ONNX_INTS, .ints = axes, .count = 2};
  float x[SAMPLES * 3];
  double want[SAMPLES * 3];
  struct graph g;
  fill(x, SAMPLES * 3, 0);
  for (int k = 0; k < SAMPLES * 3; k++) {
    const float *sample = x + k / 3 * 3;
    want[k] = (double)x[k] / 3 *
              (tanh((double)sample[0]) + tanh((double)sample[1]) + tanh((double)sample[2]));
  }
  start(&g, &SL_SHAPE(3), -1);
  add_wholes(&g, "axis", 1, axis);
  add(&g, "Unsqueeze", "/Unsqueeze", SL__ONNX_NAMES("x", "axis"), SL__ONNX_NAMES("u"), NULL);
  add(&g, "Tanh", "/Tanh", SL__ONNX_NAMES("u"), SL__ONNX_NAMES("t"), NULL);
  add(&g, "ReduceMean", "/ReduceMean", SL__ONNX_NAMES("t"), SL__ONNX_NAMES("m"), &along);
  add(&g, "Mul", "/Mul", SL__ONNX_NAMES("u", "m"), SL__ONNX_NAMES("y"), NULL);
  check_graph(&g, 5, "\"kind\": \"multiply\"", x, want);
}

/* x [3] -> Relu, seen as [1, 3], plus the mean over the first axis of x, seen so, too. */
static void sums_are_of_what_is_seen(void **state) {
  (void)state;
  static const int64_t axis[1] = {1};
  const struct sl__onnx_attribute along = {
      .name = "axes", .type = SL__ONNX_INTS, .ints = axis, .count = 1};
  float x[SAMPLES * 3];
  double want[SAMPLES * 3];
  struct graph g;
  fill(x, SAMPLES * 3, 0);
  for (int k = 0; k < SAMPLES * 3; k++) want[k] = (x[k] > 0 ? 4.0 : 2.0) * (double)x[k];
  start(&g, &SL_SHAPE(3), -1);
  add_wholes(&g, "axis", 1, axis);
  add(&g, "Relu", "/Relu", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("a"), NULL);
  add(&g, "Unsqueeze", "/Unsqueeze", SL__ONNX_NAMES("a", "axis"), SL__ONNX_NAMES("u"), NULL);
  add(&g, "Unsqueeze", "/Unsqueeze_1", SL__ONNX_NAMES("x", "axis"), SL__ONNX_NAMES("v"), NULL);
  add(&g, "ReduceMean", "/ReduceMean", SL__ONNX_NAMES("v"), SL__ONNX_NAMES("m"), &along);
  add(&g, "Sum", "/Sum", SL__ONNX_NAMES("u", "u", "m", "m"), SL__ONNX_NAMES("y"), NULL);
  check_graph(&g, 6, "\"kind\": \"add\"", x, want);
}

/* x [12] -> Relu -> seen as [2, 2, 3], whose last axis a linear layer without a bias takes. */
static void products_are_of_what_is_seen(void **state) {
  (void)state;
  static const int64_t shape[4] = {-1, 2, 2, 3};
  float x[SAMPLES * 12], w[3 * 2];
  double want[SAMPLES * 8] = {0};
  struct graph g;
  fill(x, SAMPLES * 12, 0), fill(w, 6, 1);
  for (int k = 0; k < SAMPLES * 8; k++)
    for (int i = 0; i < 3; i++) {
      float value = x[k / 2 * 3 + i];
      want[k] += (value > 0 ? (double)value : 0) * (double)w[i * 2 + k % 2];
    }
  start(&g, &SL_SHAPE(12), -1);
  add_wholes(&g, "shape", 4, shape);
  add_reals(&g, "w", SL_SHAPE(3, 2), w);
  add(&g, "Relu", "/Relu", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("a"), NULL);
  add(&g, "Reshape", "/Reshape", SL__ONNX_NAMES("a", "shape"), SL__ONNX_NAMES("v"), NULL);
  add(&g, "MatMul", "/fc/MatMul", SL__ONNX_NAMES("v", "w"), SL__ONNX_NAMES("y"), NULL);
  check_graph(&g, 3, "\"name\": \"fc\", \"kind\": \"dense\"", x, want);
}

/* x [12], seen as [3, 4], whose time becomes the first axis, and the batch again: no layer. */
static void turns_of_the_batch_are_no_layers(void **state) {
  (void)state;
  static const int64_t shape[3] = {-1, 3, 4}, axes[3] = {1, 0, 2};
  const struct sl__onnx_attribute perm = {
      .name = "perm", .type = SL__ONNX_INTS, .ints = axes, .count = 3};
  float x[SAMPLES * 12];
  double want[SAMPLES * 12];
  struct graph g;
  fill(x, SAMPLES * 12, 0);
  for (int k = 0; k < SAMPLES * 12; k++) want[k] = x[k] > 0 ? (double)x[k] : 0;
  start(&g, &SL_SHAPE(12), -1);
  add_wholes(&g, "shape", 3, shape);
  add(&g, "Reshape", "/Reshape", SL__ONNX_NAMES("x", "shape"), SL__ONNX_NAMES("v"), NULL);
  add(&g, "Transpose", "/rnn/Transpose", SL__ONNX_NAMES("v"), SL__ONNX_NAMES("t"), &perm);
  add(&g, "Transpose", "/rnn/Transpose_1", SL__ONNX_NAMES("t"), SL__ONNX_NAMES("b"), &perm);
  add(&g, "Relu", "/Relu", SL__ONNX_NAMES("b"), SL__ONNX_NAMES("y"), NULL);
  check_graph(&g, 2, "\"name\": \"rnn.view\"", x, want);
}

/* ---- files of ours that another program has changed ---- */

/* A sum, or a product that is the second factor, with the names of a product of three. */
static void a_sum_is_no_part_of_a_product(void **state) {
  (void)state;
  static const char *const factors[][3] = {{"s", "t"}, {"t", "s"}};
  for (int i = 0; i < 2; i++) {
    struct sl_model *m;
    struct graph g;
    start(&g, &SL_SHAPE(3), -1);
    g.file.producer = SL__ONNX_PRODUCER;
    add(&g, "Tanh", "tanh", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("t"), NULL);
    add(&g, i ? "Mul" : "Add", "product/1", SL__ONNX_NAMES("x", "t"), SL__ONNX_NAMES("s"), NULL);
    add(&g, "Mul", "product", factors[i], SL__ONNX_NAMES("y"), NULL);
    FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED, "node product/1");
  }
}

/* x [2, 3] plus rows 1 and 2 of the weight of four rows, as Slice takes them. */
static void positions_are_the_rows_that_are_taken(void **state) {
  (void)state;
  static const int64_t first[1] = {1}, end[1] = {3}, axis[1] = {0};
  float x[SAMPLES * 6], w[12];
  double want[SAMPLES * 6];
  struct graph g;
  fill(x, SAMPLES * 6, 0), fill(w, 12, 1);
  for (int k = 0; k < SAMPLES * 6; k++) want[k] = (double)x[k] + (double)w[3 + k % 6];
  start(&g, &SL_SHAPE(2, 3), -1);
  g.file.producer = SL__ONNX_PRODUCER;
  g.input.name = "input", g.output.name = "output";
  add_reals(&g, "wpe.weight", SL_SHAPE(4, 3), w);
  add_wholes(&g, "first", 1, first);
  add_wholes(&g, "end", 1, end);
  add_wholes(&g, "axis", 1, axis);
  add(&g, "Slice", "wpe/slice", SL__ONNX_NAMES("wpe.weight", "first", "end", "axis"),
      SL__ONNX_NAMES("t"), NULL);
  add(&g, "Add", "wpe", SL__ONNX_NAMES("input", "t"), SL__ONNX_NAMES("output"), NULL);
  check_graph(&g, 1, "\"kind\": \"position\"", x, want);
}

/* ---- Resize ---- */

struct resize_case {
  int opset;
  const char *mode, *places, *rounds, *policy; /* NULL: the attribute is missing */
  bool is_read;
};

static void make_resize(struct graph *g, const struct resize_case *c,
                        struct sl__onnx_attribute attribute[4]) {
  static const float scales[] = {1, 1, 2, 2};
  const char *const names[] = {"mode", "coordinate_transformation_mode", "nearest_mode",
                               "keep_aspect_ratio_policy"};
  const char *const texts[] = {c->mode, c->places, c->rounds, c->policy};
  int count = 0;
  start(g, &SL_SHAPE(1, 2, 2), -1);
  g->file.opset = c->opset;
  add_reals(g, "scales", SL_SHAPE(4), scales);
  for (int i = 0; i < 4; i++)
    if (texts[i])
      attribute[count++] =
          (struct sl__onnx_attribute){.name = names[i], .type = SL__ONNX_S, .s = texts[i]};
  if (c->opset < 11)
    add(g, "Resize", "grow", SL__ONNX_NAMES("x", "scales"), SL__ONNX_NAMES("y"), attribute);
  else
    add(g, "Resize", "grow", SL__ONNX_NAMES("x", "", "scales"), SL__ONNX_NAMES("y"), attribute);
  g->node[0].attributes = count;
}

/* Only what upsampling computes is read; operator set 10 has no attribute for the pixels' places,
 * which are asymmetric there. */
static void resizes_that_compute_otherwise_are_refused(void **state) {
  (void)state;
  static const struct resize_case cases[] = {
      {10, "nearest", .is_read = true},
      {10, "linear"},
      {13, "nearest", "asymmetric", "floor", .is_read = true},
      {13, "nearest", "asymmetric"},
      {13, "nearest", "half_pixel", "floor"},
      {13, "linear", .is_read = true},
      {13, "linear", "half_pixel", .is_read = true},
      {13, "linear", "pytorch_half_pixel", .is_read = true},
      {19, "linear", "half_pixel_symmetric", .is_read = true},
      {11, "linear", "tf_half_pixel_for_nn"},
      {13, "linear", "align_corners"},
      {13, "linear", "asymmetric"},
      {19, "linear", "half_pixel", .policy = "stretch", .is_read = true},
      {19, "linear", "half_pixel", .policy = "not_larger"},
      {19, "nearest", "asymmetric", "floor", "not_smaller"}};
  float x[SAMPLES * 4];
  double want[SAMPLES * 16];
  fill(x, SAMPLES * 4, 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct resize_case *c = &cases[i];
    struct sl__onnx_attribute attribute[4];
    struct sl_model *m;
    struct graph g;
    make_resize(&g, c, attribute);
    if (!c->is_read) {
      FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED, "node grow (Resize)");
      continue;
    }
    for (int k = 0; k < SAMPLES * 16; k++) { /* pixel k of 4 x 4, from a quarter before or behind */
      const float *from = x + k / 16 * 4;
      double down = fmin(fmax((k / 4 % 4 + 0.5) / 2 - 0.5, 0), 1);
      double right = fmin(fmax((k % 4 + 0.5) / 2 - 0.5, 0), 1);
      if (*c->mode == 'n') down = k / 8 % 2, right = k / 2 % 2;
      want[k] = (1 - down) * ((1 - right) * (double)from[0] + right * (double)from[1]) +
                down * ((1 - right) * (double)from[2] + right * (double)from[3]);
    }
    check_graph(&g, 1, "upsample2d", x, want);
  }
}

/* ---- several inputs ---- */

/* No node takes the second input, or only its shape. */
static void unused_inputs_are_named(void **state) {
  (void)state;
  static const int64_t numbers[] = {0, 1, 4};
  const struct sl__onnx_attribute axis = SL__ONNX_WHOLE("axis", 0);
  for (int i = 0; i < 2; i++) {
    struct sl__onnx_end inputs[] = {{"x", SL__ONNX_FLOAT, 2, {-1, 4}},
                                    {"spare time", SL__ONNX_FLOAT, 2, {-1, 3}}};
    struct sl_model *m;
    struct graph g;
    start(&g, &SL_SHAPE(4), -1);
    g.file.input = inputs;
    g.file.inputs = 2;
    add_wholes(&g, "zero", 1, numbers);
    add_wholes(&g, "one", 1, numbers + 1);
    add_wholes(&g, "four", 1, numbers + 2);
    add_wholes(&g, "said", 2, (const int64_t[]){0, 4});
    add(&g, "Shape", "shape", SL__ONNX_NAMES("spare time"), SL__ONNX_NAMES("s"), NULL);
    add(&g, "Slice", "n", SL__ONNX_NAMES("s", "zero", "one"), SL__ONNX_NAMES("n"), NULL);
    add(&g, "Concat", "list", SL__ONNX_NAMES("n", "four"), SL__ONNX_NAMES("list"), &axis);
    add(&g, "Relu", "relu", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("r"), NULL);
    add(&g, "Reshape", "view", SL__ONNX_NAMES("r", i ? "list" : "said"), SL__ONNX_NAMES("y"), NULL);
    FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED,
          "x.onnx: no node takes the values of its input 'spare time'");
    assert_null(m);
  }
}

/* Of Relu(x) nodes take only the shape. */
static void layers_that_none_takes_are_named(void **state) {
  (void)state;
  struct sl_model *m;
  struct graph g;
  start(&g, &SL_SHAPE(4), -1);
  add(&g, "Relu", "/spare/Relu", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("r"), NULL);
  add(&g, "Shape", "/Shape", SL__ONNX_NAMES("r"), SL__ONNX_NAMES("s"), NULL);
  add(&g, "Reshape", "/Reshape", SL__ONNX_NAMES("x", "s"), SL__ONNX_NAMES("v"), NULL);
  add(&g, "Tanh", "/Tanh", SL__ONNX_NAMES("v"), SL__ONNX_NAMES("y"), NULL);
  FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED,
        "x.onnx: layer spare (activation): no layer takes its output");
}

/* Tokens beside numbers: words [2] by an embedding, then joined with x [4]. */
static void tokens_beside_numbers_are_read(void **state) {
  (void)state;
  static const struct sl__onnx_attribute axis = SL__ONNX_WHOLE("axis", 1);
  struct sl__onnx_end inputs[] = {{"words", SL__ONNX_INT64, 2, {-1, 2}},
                                  {"x", SL__ONNX_FLOAT, 2, {-1, 4}}};
  float x[SAMPLES * 6], table[7 * 3];
  double want[SAMPLES * 10];
  struct graph g;
  fill(x, SAMPLES * 6, 0), fill(table, 7 * 3, 1);
  for (int n = 0; n < SAMPLES; n++) {
    for (int t = 0; t < 2; t++) {
      int word = (5 * n + 3 * t) % 7;
      x[6 * n + t] = (float)word;
      for (int k = 0; k < 3; k++) want[10 * n + 3 * t + k] = (double)table[3 * word + k];
    }
    for (int k = 0; k < 4; k++) want[10 * n + 6 + k] = (double)x[6 * n + 2 + k];
  }
  start(&g, &SL_SHAPE(4), -1);
  g.file.input = inputs;
  g.file.inputs = 2;
  add_reals(&g, "table", SL_SHAPE(7, 3), table);
  add(&g, "Gather", "gather", SL__ONNX_NAMES("table", "words"), SL__ONNX_NAMES("e"), NULL);
  add(&g, "Flatten", "flatten", SL__ONNX_NAMES("e"), SL__ONNX_NAMES("f"), NULL);
  add(&g, "Concat", "join", SL__ONNX_NAMES("f", "x"), SL__ONNX_NAMES("y"), &axis);
  check_graph(&g, 4, "embedding", x, want);
}

/* ---- what no layer does ---- */

/* The message is of the Pad, not of the nodes that compute its numbers. */
static void pads_and_factors_are_named(void **state) {
  (void)state;
  static const int64_t four[] = {4}, sides[] = {0, 1, 0, 0};
  static const float half[] = {0.5f};
  const struct sl__onnx_attribute axis = SL__ONNX_WHOLE("axis", 1);
  struct sl_model *m;
  struct graph g;
  start(&g, &SL_SHAPE(4, 3, 2), -1);
  add_wholes(&g, "four", 1, four);
  add_wholes(&g, "sides", 4, sides);
  add(&g, "ConstantOfShape", "rest", SL__ONNX_NAMES("four"), SL__ONNX_NAMES("r"), NULL);
  add(&g, "Concat", "all", SL__ONNX_NAMES("sides", "r"), SL__ONNX_NAMES("p"), &axis);
  add(&g, "Pad", "pad", SL__ONNX_NAMES("x", "p"), SL__ONNX_NAMES("y"), NULL);
  FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED,
        "node pad (Pad): there is no layer that pads");
  start(&g, &SL_SHAPE(4), -1);
  add_reals(&g, "half", SL_SHAPE(1), half);
  add(&g, "Relu", "relu", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("r"), NULL);
  add(&g, "Mul", "mul", SL__ONNX_NAMES("r", "half"), SL__ONNX_NAMES("y"), NULL);
  FAILS(sl_model_open(context, write_graph(&g), &m), SL_UNSUPPORTED,
        "the output 'y' is a layer's output times 0.5");
}

/* ---- a new shape at the end ---- */

/* x [4, 3, 2] -> Relu -> Reshape or Flatten -> y, as the last nodes. */
static void a_last_shape_is_the_outputs(void **state) {
  (void)state;
  static const int64_t lists[][4] = {{0, 6, 4}, {-1, 24}, {0, 4, 3, 2}};
  static const struct sl_shape shapes[] = {{2, {6, 4}}, {1, {24}}, {3, {4, 3, 2}}, {1, {24}}};
  float x[SAMPLES * 24];
  double want[SAMPLES * 24];
  fill(x, SAMPLES * 24, 0);
  for (int k = 0; k < SAMPLES * 24; k++) want[k] = x[k] > 0 ? (double)x[k] : 0;
  for (int i = 0; i < 4; i++) {
    bool flat = i == 3;
    struct sl_model *m;
    struct graph g;
    start(&g, &SL_SHAPE(4, 3, 2), -1);
    add(&g, "Relu", "/act/Relu", SL__ONNX_NAMES("x"), SL__ONNX_NAMES("r"), NULL);
    if (!flat) add_wholes(&g, "shape", shapes[i].ndim + 1, lists[i]);
    if (flat)
      add(&g, "Flatten", "/Flatten", SL__ONNX_NAMES("r"), SL__ONNX_NAMES("y"), NULL);
    else
      add(&g, "Reshape", "/Reshape", SL__ONNX_NAMES("r", "shape"), SL__ONNX_NAMES("y"), NULL);
    const char *path = write_graph(&g);
    OK(sl_model_open(context, path, &m));
    assert_true(sl_shape_equal(sl_model_output(m), &shapes[i]));
    assert_int_equal(m->count, i == 2 ? 1 : 2);
    check_answers(m, x, want);
    OK(sl_model_load(m, path));
    OK(sl_model_save(m, in_folder("again.onnx")));
    sl_model_free(m);
    OK(sl_model_open(context, in_folder("again.onnx"), &m));
    assert_true(sl_shape_equal(sl_model_output(m), &shapes[i]));
    sl_model_free(m);
  }
}

#else

static void built_without_protobuf(void **state) {
  (void)state;
  skip();
}

#endif

static int setup(void **state) { return folder_setup(state) || open_context(state); }

static int teardown(void **state) {
  int failed = close_context(state);
  return folder_teardown(state) || failed;
}

int main(void) {
#ifdef SL_HAVE_ONNX
  const struct CMUnitTest tests[] = {cmocka_unit_test(group_norms_are_read),
                                     cmocka_unit_test(a_norm_of_a_view_is_read),
                                     cmocka_unit_test(unfolded_group_norms_are_read),
                                     cmocka_unit_test(group_operators_are_read),
                                     cmocka_unit_test(scales_of_other_axes_are_refused),
                                     cmocka_unit_test(ways_to_write_states_are_alike),
                                     cmocka_unit_test(layer_norms_of_parts_are_read),
                                     cmocka_unit_test(other_parts_are_refused),
                                     cmocka_unit_test(rms_norms_are_read_in_all_forms),
                                     cmocka_unit_test(rms_operators_are_read),
                                     cmocka_unit_test(scales_of_norms_have_the_last_axes),
                                     cmocka_unit_test(norms_without_epsilon_are_refused),
                                     cmocka_unit_test(means_of_other_shapes_are_no_norms),
                                     cmocka_unit_test(numbers_that_add_axes_are_refused),
                                     cmocka_unit_test(shares_of_statistics_are_from_0_to_1),
                                     cmocka_unit_test(states_of_layers_are_picked),
                                     cmocka_unit_test(usual_activations_are_read),
                                     cmocka_unit_test(turns_name_each_axis_once),
                                     cmocka_unit_test(splits_become_slices),
                                     cmocka_unit_test(shapes_are_computed),
                                     cmocka_unit_test(splits_into_sequences_become_slices),
                                     cmocka_unit_test(ranges_of_the_batch_are_refused),
                                     cmocka_unit_test(the_least_number_is_the_beginning),
                                     cmocka_unit_test(all_of_the_batch_is_no_slice),
                                     cmocka_unit_test(sums_keep_all_their_inputs),
                                     cmocka_unit_test(views_broadcast_as_they_are_seen),
                                     cmocka_unit_test(sums_are_of_what_is_seen),
                                     cmocka_unit_test(products_are_of_what_is_seen),
                                     cmocka_unit_test(turns_of_the_batch_are_no_layers),
                                     cmocka_unit_test(a_sum_is_no_part_of_a_product),
                                     cmocka_unit_test(positions_are_the_rows_that_are_taken),
                                     cmocka_unit_test(resizes_that_compute_otherwise_are_refused),
                                     cmocka_unit_test(unused_inputs_are_named),
                                     cmocka_unit_test(layers_that_none_takes_are_named),
                                     cmocka_unit_test(tokens_beside_numbers_are_read),
                                     cmocka_unit_test(pads_and_factors_are_named),
                                     cmocka_unit_test(a_last_shape_is_the_outputs)};
#else
  const struct CMUnitTest tests[] = {cmocka_unit_test(built_without_protobuf)};
#endif
  return cmocka_run_group_tests_name("onnx_exporter", tests, setup, teardown);
}
