/* A model from an ONNX graph: names, order and weights. onnx_operators.c has the table of
 * operators. */
#include "nn/formats/onnx_read.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits of the memory for reading: a constant, and a multiple of the file's size. */
#define ROOM ((size_t)32 << 20)
#define PARAMETER_ROOM ((size_t)4 << 20) /* the same for parameters, in bytes of f32 */
enum { TIMES = 12, PARAMETER_TIMES = 4 };

static enum sl_status define_constant(struct sl__onnx_reader *r,
                                      const struct sl__onnx_tensor *tensor) {
  struct sl__onnx_value value = {.is = SL__ONNX_CONSTANT, .constant = tensor};
  return sl__onnx_define(r, NULL, tensor->name, &value);
}

static bool is_initializer(const struct sl__onnx_reader *r, const char *name) {
  const struct sl__onnx_value *value = sl__onnx_find(r, name);
  return value && value->is == SL__ONNX_CONSTANT;
}

/* Lists the inputs that are no initializers: before IR version 4, files list initializers as
 * inputs, too. */
static enum sl_status find_inputs(const struct sl__onnx_reader *r,
                                  const struct sl__onnx_end *inputs[SL_MAX_FIELDS], int *count) {
  *count = 0;
  for (int i = 0; i < r->graph.inputs; i++) {
    if (is_initializer(r, r->graph.input[i].name)) continue;
    if (*count == SL_MAX_FIELDS)
      return sl__fail(SL_UNSUPPORTED, "%s: has more than %d inputs", r->graph.path, SL_MAX_FIELDS);
    inputs[(*count)++] = &r->graph.input[i];
  }
  if (*count) return SL_OK;
  return sl__fail(SL_BAD_FILE, "%s: has no input", r->graph.path);
}

static enum sl_status take_input(struct sl__onnx_reader *r, const struct sl__onnx_end *input,
                                 bool *tokens, struct sl_shape *sample) {
  const char *path = r->graph.path;
  if (input->type != SL__ONNX_FLOAT && input->type != SL__ONNX_INT32 &&
      input->type != SL__ONNX_INT64)
    return sl__fail(
        SL_UNSUPPORTED,
        "%s: input '%.64s' is of type %d; f32 (1) and, for tokens, i32 and i64 (6, 7) are read",
        path, input->name, input->type);
  *tokens = input->type != SL__ONNX_FLOAT;
  if (input->ndim < 2 || input->ndim > SL_MAX_DIMS)
    return sl__fail(
        SL_UNSUPPORTED,
        "%s: input '%.64s' has %d dimensions; the batch's and 1 to %d of a sample are read", path,
        input->name, input->ndim, SL_MAX_DIMS - 1);
  r->batch = input->dim[0] > 0 ? input->dim[0] : 0;
  sample->ndim = input->ndim - 1;
  for (int i = 0; i < sample->ndim; i++) {
    sample->dim[i] = input->dim[i + 1];
    if (sample->dim[i] < 1)
      return sl__fail(
          SL_UNSUPPORTED,
          "%s: dimension %d of input '%.64s' is not fixed; only the batch's, the first, "
          "may be: export the model with the shape of a sample",
          path, i + 1, input->name);
  }
  return SL_OK;
}

/* A field's name: the library's own files have theirs. */
static void field_name(const char *from, char name[64]) {
  snprintf(name, 64, "%.63s", !*from ? "_" : strcmp(from, "input") ? from : "input_0");
  for (char *c = name; *c; c++)
    if (!isalnum((unsigned char)*c) && !strchr("_.-", *c)) *c = '_';
}

/* Has the model names for its only input, or output? Other programs' names are not kept then. */
static bool has_names(const struct sl__onnx_reader *r, int count, const char *first,
                      const char *unnamed) {
  return count > 1 || (r->own && strcmp(first, unnamed) != 0);
}

static enum sl_status new_model(struct sl__onnx_reader *r, struct sl_context *context,
                                const struct sl__onnx_end *const *inputs, int count,
                                struct sl_shape *sample) {
  struct sl_row_field fields[SL_MAX_FIELDS] = {{0}};
  char names[SL_MAX_FIELDS][64], text[400];
  enum sl_status status = SL_OK;
  for (int i = 0; i < count; i++) {
    int64_t batch = r->batch;
    SL__TRY(take_input(r, inputs[i], &r->tokens[i], &sample[i]));
    if (i && r->batch != batch)
      return sl__fail(SL_UNSUPPORTED, "%s: input '%.64s' has another batch's size than the others",
                      r->graph.path, inputs[i]->name);
    field_name(inputs[i]->name, names[i]);
    fields[i] = (struct sl_row_field){.name = names[i], .shape = sample[i]};
  }
  status = has_names(r, count, inputs[0]->name, "input")
               ? sl_model_new_fields(context, fields, count, &r->model)
               : sl_model_new(context, &sample[0], &r->model);
  if (status != SL_OK && status != SL_NO_MEMORY) {
    snprintf(text, sizeof text, "%s", sl_error());
    status = sl__fail(SL_BAD_FILE, "%s: %s", r->graph.path, text);
  }
out:
  return status;
}

/* Goes backwards from the outputs: marks the nodes that they need and counts the uses of each
 * value. A folded node takes none.
 */
static enum sl_status mark(struct sl__onnx_reader *r) {
  const struct sl__onnx_graph *g = &r->graph;
  struct sl__onnx_value *end, *input;
  enum sl_status status;
  for (size_t i = 0; i < r->places; i++) r->table[i].uses = r->table[i].user = 0;
  for (int i = 0; i < g->outputs; i++) {
    SL__TRY(sl__onnx_find_or_add(r, g->output[i].name, &end));
    end->uses++;
    end->user = -1;
  }
  for (int n = g->nodes - 1; n >= 0; n--) {
    const struct sl__onnx_node *node = &g->node[n];
    r->needed[n] = false;
    if (r->done[n]) continue;
    for (int i = 0; i < node->outputs && !r->needed[n]; i++) {
      const struct sl__onnx_value *output = sl__onnx_find(r, node->output[i]);
      r->needed[n] = *node->output[i] && output && output->uses > 0;
    }
    for (int i = 0; i < node->inputs && r->needed[n]; i++) {
      if (!*node->input[i]) continue;
      SL__TRY(sl__onnx_find_or_add(r, node->input[i], &input));
      input->uses++;
      input->user = n;
    }
  }
out:
  return status;
}

static enum sl_status begin(struct sl__onnx_reader *r, struct sl_context *context) {
  const struct sl__onnx_graph *g = &r->graph;
  const struct sl__onnx_end *inputs[SL_MAX_FIELDS];
  struct sl_shape sample[SL_MAX_FIELDS] = {{0}};
  enum sl_status status;
  int count;
  SL__TRY(sl__onnx_make_table(r));
  for (int i = 0; i < g->tensors; i++) SL__TRY(define_constant(r, &g->tensor[i]));
  if (g->outputs < 1 || g->outputs > SL_MAX_FIELDS)
    return sl__fail(g->outputs ? SL_UNSUPPORTED : SL_BAD_FILE,
                    "%s: has %d outputs; a model has 1 to %d", g->path, g->outputs, SL_MAX_FIELDS);
  r->own = !strcmp(g->producer, SL__ONNX_PRODUCER);
  SL__TRY(find_inputs(r, inputs, &count));
  SL__TRY(new_model(r, context, inputs, count, sample));
  for (int i = 0; i < count; i++)
    SL__TRY(sl__onnx_define(r, NULL, inputs[i]->name,
                            &(struct sl__onnx_value){.is = SL__ONNX_OUTPUT,
                                                     .layer = r->model->input_count ? i : SL__INPUT,
                                                     .view = sample[i],
                                                     .factor = 1,
                                                     .has_x = true}));
  status = mark(r);
out:
  return status;
}

/* CastLike takes the type of its second input, not the values: f32, if the model has no tokens. */
static bool takes_type(const struct sl__onnx_reader *r, const struct sl__onnx_node *node, int i) {
  bool tokens = false;
  for (int k = 0; k < SL_MAX_FIELDS; k++) tokens |= r->tokens[k];
  return i == 1 && !tokens && !strcmp(node->op, "CastLike");
}

/* Are all inputs of the node constants? *missing: an input that does not exist yet, or NULL. */
static bool takes_constants(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                            const char **missing) {
  bool all = true;
  *missing = NULL;
  for (int i = 0; i < node->inputs; i++) {
    if (!*node->input[i]) continue;
    const struct sl__onnx_value *value = sl__onnx_find(r, node->input[i]);
    if (!value || value->is == SL__ONNX_NOTHING) *missing = node->input[i];
    all &= takes_type(r, node, i) || (value && value->is == SL__ONNX_CONSTANT);
  }
  return all;
}

/* ONNX's nodes are sorted: each comes after the nodes whose outputs it takes. */
static enum sl_status read_node(struct sl__onnx_reader *r, int n) {
  const struct sl__onnx_node *node = &r->graph.node[n];
  const char *missing;
  bool folded = false;
  if (*node->domain && strcmp(node->domain, "ai.onnx") != 0)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "is of the operators '%.64s'; only ONNX's own are read", node->domain);
  bool constant = takes_constants(r, node, &missing);
  if (missing)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "takes '%.64s', which no node before it makes",
                           missing);
  if (constant) {
    enum sl_status status = sl__onnx_fold(r, node, &folded);
    if (status != SL_OK || folded) return status;
  }
  return sl__onnx_operator(r, node);
}

static enum sl_status fold_constants(struct sl__onnx_reader *r) {
  enum sl_status status = SL_OK;
  const char *missing;
  for (int n = 0; n < r->graph.nodes && status == SL_OK; n++) {
    const struct sl__onnx_node *node = &r->graph.node[n];
    if (r->needed[n] && takes_constants(r, node, &missing))
      status = sl__onnx_fold(r, node, &r->done[n]);
  }
  return status;
}

static enum sl_status check_end(const struct sl__onnx_reader *r, const char *name) {
  const struct sl__onnx_value *end = sl__onnx_find(r, name);
  if (!end || end->is != SL__ONNX_OUTPUT)
    return sl__fail(SL_BAD_FILE, "%s: no node makes the output '%.64s' of the input", r->graph.path,
                    name);
  if (r->model->count == r->model->input_count)
    return sl__fail(SL_UNSUPPORTED, "%s: its output is its input; the model has no layers",
                    r->graph.path);
  if (end->order == SL__ONNX_BATCH_FIRST && end->factor == 1 && end->has_x &&
      end->erf == SL__ONNX_PLAIN)
    return SL_OK;
  if (end->factor != 1 && end->has_x && end->erf == SL__ONNX_PLAIN)
    return sl__fail(SL_UNSUPPORTED,
                    "%s: the output '%.64s' is a layer's output times %g, for which there is no "
                    "layer; multiply that layer's weights instead",
                    r->graph.path, name, (double)end->factor);
  return sl__fail(SL_UNSUPPORTED,
                  "%s: the output '%.64s' is no layer's, with the batch's axis first",
                  r->graph.path, name);
}

/* The layer that is the output of that name: one of another name or shape is copied. */
static enum sl_status name_output(struct sl__onnx_reader *r, const char *output, char name[64]) {
  const struct sl__onnx_value *end = sl__onnx_find(r, output);
  const struct sl__layer *layer = end->layer == SL__INPUT ? NULL : &r->model->layers[end->layer];
  char wanted[64];
  field_name(output, wanted);
  snprintf(name, 64, "%s", wanted);
  if (layer && !strcmp(layer->name, name) && sl_shape_equal(&layer->out, &end->view)) return SL_OK;
  for (int i = 0; sl__onnx_is_taken(r->model, name); i++) /* the library's own names are short */
    snprintf(name, 64, "%.50s_%d", wanted, i);
  const struct sl_reshape_options copy = {.layer = {.inputs = layer ? layer->name : "input"},
                                          .shape = end->view};
  return sl__layer_append(r->model, name, &sl__reshape_kind, &copy);
}

/* The model's output is its last layer's; a shape at the end of the graph becomes that layer. */
static enum sl_status end_alone(struct sl__onnx_reader *r) {
  const char *name = r->graph.output[0].name;
  char layer[64];
  enum sl_status status = check_end(r, name);
  if (status != SL_OK) return status;
  const struct sl__onnx_value *end = sl__onnx_find(r, name);
  if (end->layer != r->model->count - 1)
    return sl__fail(SL_UNSUPPORTED, "%s: the output '%.64s' is not the last layer's", r->graph.path,
                    name);
  bool is_seen = sl_shape_equal(&end->view, &r->model->layers[end->layer].out);
  return is_seen ? SL_OK : name_output(r, name, layer);
}

static enum sl_status end_fields(struct sl__onnx_reader *r) {
  char names[64 * SL_MAX_FIELDS], name[64];
  enum sl_status status = SL_OK;
  size_t used = 0;
  for (int i = 0; i < r->graph.outputs; i++) {
    SL__TRY(check_end(r, r->graph.output[i].name));
    SL__TRY(name_output(r, r->graph.output[i].name, name));
    used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? "," : "", name);
  }
  status = sl_outputs(r->model, names);
out:
  return status;
}

/* A layer must take each input; a node that takes its shape alone is no layer. */
static enum sl_status check_inputs(const struct sl__onnx_reader *r) {
  const struct sl__onnx_end *inputs[SL_MAX_FIELDS];
  int count;
  enum sl_status status = find_inputs(r, inputs, &count);
  for (int i = 0; status == SL_OK && i < r->model->input_count; i++)
    if (!r->model->layers[i].consumers)
      status = sl__fail(SL_UNSUPPORTED,
                        "%s: no node takes the values of its input '%.64s'; export the model "
                        "without this input",
                        r->graph.path, inputs[i]->name);
  return status;
}

/* Is this softmax multiplied by values soon, whatever exporters put between? One at a model's end
 * is not. */
static bool is_attention(const struct sl__onnx_reader *r, int n) {
  const struct sl__onnx_graph *graph = &r->graph;
  static const char *const between[] = {"Cast", "Dropout", "Identity", "Where"};
  const char *value = graph->node[n].output[0];
  for (int k = n + 1; k < graph->nodes && k < n + 16; k++) {
    const struct sl__onnx_node *node = &graph->node[k];
    bool takes = false, by_weights = false;
    for (int i = 0; i < node->inputs; i++) {
      takes |= !strcmp(node->input[i], value);
      by_weights |= sl__onnx_constant(r, node, i) != NULL;
    }
    if (takes && !by_weights && !strcmp(node->op, "MatMul")) return true;
    for (size_t i = 0; takes && i < sizeof between / sizeof *between; i++)
      if (!strcmp(node->op, between[i]) && node->outputs) value = node->output[0];
  }
  return false;
}

/* Before a layer is made of its first nodes, a Reshape or a Slice of the heads, whose message would
 * be of these. */
static enum sl_status refuse_attention(const struct sl__onnx_reader *r) {
  for (int n = 0; n < r->graph.nodes; n++) {
    const struct sl__onnx_node *node = &r->graph.node[n];
    if (r->needed[n] && !r->done[n] && !strcmp(node->op, "Softmax") && is_attention(r, n))
      return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                             "attention is written to ONNX files, not read; keep such a model "
                             "as .json");
  }
  return SL_OK;
}

/* Before the constants are folded: their message would be of a node that computes the pads. */
static enum sl_status refuse_pads(const struct sl__onnx_reader *r) {
  for (int n = 0; n < r->graph.nodes; n++)
    if (r->needed[n] && !strcmp(r->graph.node[n].op, "Pad"))
      return sl__onnx_refuse(r, &r->graph.node[n], SL_UNSUPPORTED,
                             "there is no layer that pads; give the padding, the same at both "
                             "sides, to the convolution or pooling behind it");
  return SL_OK;
}

static enum sl_status read_graph(struct sl__onnx_reader *r, struct sl_context *context) {
  enum sl_status status;
  SL__TRY(begin(r, context));
  SL__TRY(refuse_pads(r));
  SL__TRY(fold_constants(r)); /* first: a layer looks ahead to the nodes after it */
  SL__TRY(sl__onnx_pick_states(r));
  SL__TRY(mark(r)); /* again: fewer nodes take a value now */
  SL__TRY(refuse_attention(r));
  for (int n = 0; n < r->graph.nodes; n++)
    if (r->needed[n] && !r->done[n]) SL__TRY(read_node(r, n));
  SL__TRY(has_names(r, r->graph.outputs, r->graph.output[0].name, "output") ? end_fields(r)
                                                                            : end_alone(r));
  status = check_inputs(r);
out:
  return status;
}

/* ---- weights ---- */

static void fill(const struct sl__onnx_setting *s, const struct sl__param *part, float *to) {
  int64_t count = sl_shape_count(&part->shape);
  if (!s->values) {
    memset(to, 0, (size_t)count * sizeof *to);
  } else if (s->columns > 0) {
    int64_t rows = count / s->columns;
    for (int64_t i = 0; i < rows; i++)
      for (int64_t k = 0; k < s->columns; k++) to[i * s->columns + k] = s->values[k * rows + i];
  } else if (s->gates) {
    int64_t gates = (int64_t)strlen(s->gates), size = count / gates;
    for (int64_t g = 0; g < gates; g++)
      memcpy(to + g * size, s->values + (s->gates[g] - '0') * size, (size_t)size * sizeof *to);
  } else {
    memcpy(to, s->values, (size_t)count * sizeof *to);
  }
}

/* Fills the copy's blocks from the file's values. Needs no StarPU. */
static enum sl_status fill_copy(const struct sl__onnx_reader *r, struct sl__copy *copy) {
  enum sl_status status = sl__copy_new(r->model, copy);
  if (status != SL_OK) return status;
  for (int i = 0; i < r->setting_count; i++) {
    const struct sl__onnx_setting *s = &r->settings[i];
    const struct sl__layer *layer = &r->model->layers[s->layer];
    const struct sl__block *block = s->is_buffer ? &layer->buffers : &layer->params;
    fill(s, &block->part[s->part],
         copy->blocks[2 * s->layer + s->is_buffer] + block->part[s->part].offset);
  }
  return sl__copy_check(copy, r->model, r->graph.path);
}

enum sl_status sl__onnx_parse(struct sl_context *context, const char *path, const uint8_t *bytes,
                              size_t size, struct sl_model **model, struct sl__copy *copy) {
  struct sl__onnx_reader r = {.graph = {.path = path, .most = ROOM + TIMES * size},
                              .most_parameters = PARAMETER_ROOM + PARAMETER_TIMES * size};
  enum sl_status status;
  *model = NULL;
  SL__TRY(sl__onnx_file_parse(&r.graph, bytes, size));
  SL__TRY(read_graph(&r, context));
  status = fill_copy(&r, copy);
out:
  free(r.settings);
  sl__onnx_graph_free(&r.graph);
  if (status == SL_OK)
    *model = r.model;
  else
    sl_model_free(r.model);
  return status;
}
