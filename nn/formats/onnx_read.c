/* A model from an ONNX graph: names, order and weights. onnx_operators.c has the table of
 * operators. */
#include "nn/formats/onnx_read.h"

#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/hash.h"

/* Limits of the memory for reading: a constant, and a multiple of the file's size. */
#define ROOM ((size_t)32 << 20)
#define PARAMETER_ROOM ((size_t)4 << 20) /* the same for parameters, in bytes of f32 */
enum { TIMES = 12, PARAMETER_TIMES = 4, MOST_PROBES = 512 };

enum sl_status sl__onnx_refuse(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                               enum sl_status status, const char *format, ...) {
  char text[400];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  const char *name = *node->name ? node->name : node->outputs ? node->output[0] : "";
  return sl__fail(status, "%s: node %.64s (%.32s): %s", r->graph.path, name, node->op, text);
}

/* ---- names: a hash table, at most half full ---- */

/* The name's place, or a free one for it. NULL if there is neither within MOST_PROBES; among some
 * hundred thousand names that happens only if they are chosen to collide. */
static struct sl__onnx_value *place_of(const struct sl__onnx_reader *r, const char *name) {
  size_t place = (size_t)sl__hash_name(name);
  for (int i = 0; i < MOST_PROBES; i++, place++) {
    struct sl__onnx_value *value = &r->table[place & (r->places - 1)];
    if (!value->name || !strcmp(value->name, name)) return value;
  }
  return NULL;
}

struct sl__onnx_value *sl__onnx_find(const struct sl__onnx_reader *r, const char *name) {
  struct sl__onnx_value *value = place_of(r, name);
  return value && value->name ? value : NULL;
}

static enum sl_status find_or_add(struct sl__onnx_reader *r, const char *name,
                                  struct sl__onnx_value **value) {
  *value = place_of(r, name);
  if (!*value)
    return sl__fail(SL_BAD_FILE, "%s: its names are made to collide: no place is left near '%.64s'",
                    r->graph.path, name);
  (*value)->name = name;
  return SL_OK;
}

static enum sl_status make_table(struct sl__onnx_reader *r) {
  const struct sl__onnx_graph *g = &r->graph;
  size_t names = (size_t)g->tensors + (size_t)g->inputs + (size_t)g->outputs;
  for (int i = 0; i < g->nodes; i++)
    names += (size_t)g->node[i].inputs + (size_t)g->node[i].outputs;
  for (r->places = 64; r->places < 2 * names;) r->places *= 2;
  r->table = sl__onnx_alloc(&r->graph, r->places, sizeof *r->table);
  r->needed = sl__onnx_alloc(&r->graph, (size_t)g->nodes, sizeof *r->needed);
  r->done = sl__onnx_alloc(&r->graph, (size_t)g->nodes, sizeof *r->done);
  return r->table && r->needed && r->done ? SL_OK : sl__onnx_no_memory(&r->graph);
}

bool sl__onnx_has(const struct sl__onnx_node *node, int i) {
  return i < node->inputs && *node->input[i];
}

const struct sl__onnx_tensor *sl__onnx_constant(const struct sl__onnx_reader *r,
                                                const struct sl__onnx_node *node, int i) {
  const struct sl__onnx_value *value =
      sl__onnx_has(node, i) ? sl__onnx_find(r, node->input[i]) : NULL;
  return value && value->is == SL__ONNX_CONSTANT ? value->constant : NULL;
}

enum sl_status sl__onnx_define(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                               const char *name, const struct sl__onnx_value *value) {
  struct sl__onnx_value *place;
  enum sl_status status = find_or_add(r, name, &place);
  if (status != SL_OK) return status;
  struct sl__onnx_value old = *place;
  if (old.is != SL__ONNX_NOTHING || !*name)
    return node ? sl__onnx_refuse(r, node, SL_BAD_FILE, "'%.64s' is made twice, or has no name",
                                  name)
                : sl__fail(SL_BAD_FILE, "%s: '%.64s' is there twice, or has no name", r->graph.path,
                           name);
  *place = *value;
  place->name = old.name;
  place->uses = old.uses;
  place->user = old.user;
  return SL_OK;
}

static enum sl_status define_constant(struct sl__onnx_reader *r,
                                      const struct sl__onnx_tensor *tensor) {
  struct sl__onnx_value value = {.is = SL__ONNX_CONSTANT, .constant = tensor};
  return sl__onnx_define(r, NULL, tensor->name, &value);
}

/* ---- attributes ---- */

static enum sl_status get(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                          const char *name, int type, const struct sl__onnx_attribute **found) {
  *found = NULL;
  for (int i = 0; i < node->attributes; i++)
    if (!strcmp(node->attribute[i].name, name)) *found = &node->attribute[i];
  if (!*found || (*found)->type == type) return SL_OK;
  return sl__onnx_refuse(r, node, SL_BAD_FILE, "attribute %s is of type %d, not %d", name,
                         (*found)->type, type);
}

enum sl_status sl__onnx_get_whole(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                  const char *name, int64_t usual, int64_t *whole) {
  const struct sl__onnx_attribute *found;
  enum sl_status status = get(r, node, name, SL__ONNX_I, &found);
  *whole = status == SL_OK && found ? found->i : usual;
  return status;
}

enum sl_status sl__onnx_get_real(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                 const char *name, float usual, float *real) {
  const struct sl__onnx_attribute *found;
  enum sl_status status = get(r, node, name, SL__ONNX_F, &found);
  *real = status == SL_OK && found ? found->f : usual;
  return status;
}

enum sl_status sl__onnx_get_text(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                 const char *name, const char **text) {
  const struct sl__onnx_attribute *found;
  enum sl_status status = get(r, node, name, SL__ONNX_S, &found);
  *text = status == SL_OK && found ? found->s : NULL;
  return status;
}

enum sl_status sl__onnx_get_list(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                 const char *name, const int64_t **list, int *count) {
  const struct sl__onnx_attribute *found;
  enum sl_status status = get(r, node, name, SL__ONNX_INTS, &found);
  bool there = status == SL_OK && found && found->count > 0;
  *list = there ? found->ints : NULL;
  *count = there ? found->count : 0;
  return status;
}

enum sl_status sl__onnx_get_either(const struct sl__onnx_reader *r,
                                   const struct sl__onnx_node *node, const char *name, int i,
                                   const int64_t **list, int *count) {
  const struct sl__onnx_tensor *t = sl__onnx_constant(r, node, i);
  enum sl_status status = sl__onnx_get_list(r, node, name, list, count);
  if (status != SL_OK || !sl__onnx_has(node, i)) return status;
  if (!t || !t->wholes || t->ndim > 1 || t->count > SL__ONNX_DIMS)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "its %s is no short constant list", name);
  *list = t->wholes;
  *count = (int)t->count;
  return SL_OK;
}

enum sl_status sl__onnx_must_be(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                const char *name, int64_t usual, int64_t needed) {
  int64_t whole;
  enum sl_status status = sl__onnx_get_whole(r, node, name, usual, &whole);
  if (status != SL_OK || whole == needed) return status;
  return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "attribute %s is %lld; only %lld is supported",
                         name, (long long)whole, (long long)needed);
}

enum sl_status sl__onnx_axis(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                             int64_t axis, int ndim, int *found) {
  if (axis < -ndim || axis >= ndim)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "axis %lld of %d", (long long)axis, ndim);
  *found = (int)(axis < 0 ? axis + ndim : axis);
  return SL_OK;
}

/* ---- layers ---- */

static bool is_taken(const struct sl_model *model, const char *name) {
  for (int i = 0; i < model->count; i++)
    if (!strcmp(model->layers[i].name, name)) return true;
  return !strcmp(name, "input");
}

/* PyTorch's name of a module: "/layer1/layer1.0/conv1/Conv" is layer1.0.conv1. The last part is the
 * operator; a part that begins with the part before it replaces that part. */
static void module_path(const char *node, char *path, size_t size) {
  const char *last = strrchr(node, '/');
  size_t used = 0, part_at = 0;
  path[0] = 0;
  for (const char *part = node + 1; last && part < last + 1;) {
    size_t length = strcspn(part, "/");
    if (part - 1 == last) break;
    bool goes_on = used && length > used - part_at && part[used - part_at] == '.' &&
                   !strncmp(path + part_at, part, used - part_at);
    if (goes_on)
      used = part_at;
    else if (used)
      path[used++] = '.';
    if (used + length + 2 > size) break;
    part_at = used;
    memcpy(path + used, part, length);
    path[used += length] = 0;
    part += length + 1;
  }
}

/* "conv1" for "conv1.weight" and "conv1.bias". */
static void weight_layer(const char *weight, char *name, size_t size) {
  const char *dot = weight ? strrchr(weight, '.') : NULL;
  if (!dot || (strcmp(dot, ".weight") != 0 && strcmp(dot, ".bias") != 0)) return;
  size_t length = (size_t)(dot - weight);
  if (length < size) snprintf(name, size, "%.*s", (int)length, weight);
}

/* A layer's name in another program's file: from the weight's name, as in PyTorch's state dict,
 * else from the node's. */
static void foreign_name(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                         const char *weight, char name[64]) {
  static const char prefix[] = "node_"; /* prefix of PyTorch's newer exporter */
  char path[256] = "";
  size_t most = 48; /* leaves room for a number */
  weight_layer(weight, path, sizeof path);
  /* exporters write equal weights once: two layers can have a weight of the same name */
  if (*node->name == '/' && is_taken(r->model, path)) *path = 0;
  if (!*path && *node->name == '/') module_path(node->name, path, sizeof path);
  if (!*path) snprintf(path, sizeof path, "%.200s", *node->name ? node->name : node->op);
  const char *from = *path == '/' ? path + 1 : path;
  if (!strncmp(from, prefix, strlen(prefix))) from += strlen(prefix);
  if (strlen(from) > most) from += strlen(from) - most;
  snprintf(name, 64, "%.63s", *from ? from : "layer");
  for (char *c = name; *c; c++)
    if (!isalnum((unsigned char)*c) && !strchr("_.-", *c)) *c = '_';
  size_t length = strlen(name);
  if (r->number < r->model->count) r->number = r->model->count;
  while (is_taken(r->model, name)) snprintf(name + length, 64 - length, "_%d", r->number++);
}

static const char *name_of(const struct sl__onnx_reader *r, const struct sl__onnx_value *value) {
  return value->layer == SL__INPUT ? "input" : r->model->layers[value->layer].name;
}

/* Turns the library's last error into an error of the node. */
static enum sl_status of_node(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                              enum sl_status status) {
  char text[400];
  if (status == SL_OK || status == SL_NO_MEMORY) return status;
  snprintf(text, sizeof text, "%s", sl_error());
  return sl__onnx_refuse(r, node, SL_BAD_FILE, "%s", text);
}

enum sl_status sl__onnx_append(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                               const char *weight, const struct sl__layer_kind *kind, void *options,
                               const struct sl__onnx_value *first,
                               const struct sl__onnx_value *second) {
  char name[64], inputs[130];
  if (r->tokens && kind != &sl__embedding_kind &&
      (first->layer == SL__INPUT || (second && second->layer == SL__INPUT)))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "takes the model's input, which are whole numbers; only an embedding "
                           "(Gather) can");
  foreign_name(r, node, weight, name);
  snprintf(inputs, sizeof inputs, "%s%s%s", name_of(r, first), second ? "," : "",
           second ? name_of(r, second) : "");
  ((struct sl_layer_options *)options)->inputs = inputs; /* first member of every options struct */
  return of_node(r, node, sl__layer_append(r->model, r->own ? node->name : name, kind, options));
}

static enum sl_status count_bytes(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                  int64_t count) {
  r->parameter_bytes += (size_t)count * sizeof(float);
  if (r->parameter_bytes <= r->most_parameters) return SL_OK;
  return sl__onnx_refuse(
      r, node, SL_UNSUPPORTED,
      "the layers up to this one have more parameters than the file; only a dense "
      "layer and an embedding can share a weight");
}

enum sl_status sl__onnx_set(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                            const char *suffix, const float *values, int64_t count,
                            const struct sl__onnx_setting *how) {
  const struct sl__layer *layer = &r->model->layers[r->model->count - 1];
  struct sl__onnx_setting setting = how ? *how : (struct sl__onnx_setting){0};
  if (r->setting_count == r->setting_room) {
    int room = r->setting_room ? 2 * r->setting_room : 64;
    void *grown = sl__realloc(r->settings, (size_t)room, sizeof *r->settings, "a model's weights");
    if (!grown) return SL_NO_MEMORY;
    r->settings = grown;
    r->setting_room = room;
  }
  const struct sl__param *part = NULL;
  for (int b = 0; b < 2 && !part; b++) {
    const struct sl__block *block = b ? &layer->buffers : &layer->params;
    setting.is_buffer = b;
    for (setting.part = 0; setting.part < block->count; setting.part++)
      if (!strcmp(block->part[setting.part].suffix, suffix)) {
        part = &block->part[setting.part];
        break;
      }
  }
  if (!part || sl_shape_count(&part->shape) != count)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "its %s has %lld values, the layer needs %lld",
                           suffix, (long long)count,
                           part ? (long long)sl_shape_count(&part->shape) : 0);
  setting.layer = r->model->count - 1;
  setting.values = values;
  r->settings[r->setting_count++] = setting;
  return count_bytes(r, node, count);
}

/* ---- the graph ---- */

static bool is_initializer(const struct sl__onnx_reader *r, const char *name) {
  const struct sl__onnx_value *value = sl__onnx_find(r, name);
  return value && value->is == SL__ONNX_CONSTANT;
}

/* Finds the only input that is no initializer: before IR version 4, files list initializers as
 * inputs, too. */
static enum sl_status find_input(struct sl__onnx_reader *r, const struct sl__onnx_end **input) {
  *input = NULL;
  for (int i = 0; i < r->graph.inputs; i++) {
    if (is_initializer(r, r->graph.input[i].name)) continue;
    if (*input)
      return sl__fail(SL_UNSUPPORTED,
                      "%s: has the inputs '%.64s' and '%.64s'; a model has one (initial states of "
                      "recurrent layers are to be zeros)",
                      r->graph.path, (*input)->name, r->graph.input[i].name);
    *input = &r->graph.input[i];
  }
  if (*input) return SL_OK;
  return sl__fail(SL_BAD_FILE, "%s: has no input", r->graph.path);
}

static enum sl_status take_input(struct sl__onnx_reader *r, const struct sl__onnx_end *input,
                                 struct sl_shape *sample) {
  const char *path = r->graph.path;
  if (input->type != SL__ONNX_FLOAT && input->type != SL__ONNX_INT32 &&
      input->type != SL__ONNX_INT64)
    return sl__fail(
        SL_UNSUPPORTED,
        "%s: input '%.64s' is of type %d; f32 (1) and, for tokens, i32 and i64 (6, 7) are read",
        path, input->name, input->type);
  r->tokens = input->type != SL__ONNX_FLOAT;
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

/* Goes backwards from the output: marks the nodes that it needs and counts the uses of each value.
 */
static enum sl_status mark(struct sl__onnx_reader *r) {
  const struct sl__onnx_graph *g = &r->graph;
  struct sl__onnx_value *end, *input;
  enum sl_status status;
  SL__TRY(find_or_add(r, g->output[0].name, &end));
  end->uses = 1;
  end->user = -1;
  for (int n = g->nodes - 1; n >= 0; n--) {
    const struct sl__onnx_node *node = &g->node[n];
    for (int i = 0; i < node->outputs && !r->needed[n]; i++) {
      const struct sl__onnx_value *output = sl__onnx_find(r, node->output[i]);
      r->needed[n] = *node->output[i] && output && output->uses > 0;
    }
    for (int i = 0; i < node->inputs && r->needed[n]; i++) {
      if (!*node->input[i]) continue;
      SL__TRY(find_or_add(r, node->input[i], &input));
      input->uses++;
      input->user = n;
    }
  }
out:
  return status;
}

static enum sl_status begin(struct sl__onnx_reader *r, struct sl_context *context) {
  const struct sl__onnx_graph *g = &r->graph;
  const struct sl__onnx_end *input;
  struct sl_shape sample = {0};
  enum sl_status status;
  char text[400];
  SL__TRY(make_table(r));
  for (int i = 0; i < g->tensors; i++) SL__TRY(define_constant(r, &g->tensor[i]));
  if (g->outputs != 1)
    return sl__fail(g->outputs ? SL_UNSUPPORTED : SL_BAD_FILE,
                    "%s: has %d outputs; a model has one", g->path, g->outputs);
  SL__TRY(find_input(r, &input));
  SL__TRY(take_input(r, input, &sample));
  status = sl_model_new(context, &sample, &r->model);
  if (status != SL_OK && status != SL_NO_MEMORY) {
    snprintf(text, sizeof text, "%s", sl_error());
    status = sl__fail(SL_BAD_FILE, "%s: %s", g->path, text);
  }
  if (status != SL_OK) goto out;
  r->own = !strcmp(g->producer, SL__ONNX_PRODUCER);
  SL__TRY(sl__onnx_define(
      r, NULL, input->name,
      &(struct sl__onnx_value){
          .is = SL__ONNX_OUTPUT, .layer = SL__INPUT, .view = sample, .factor = 1, .has_x = true}));
  status = mark(r);
out:
  return status;
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
    all &= value && value->is == SL__ONNX_CONSTANT;
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

static enum sl_status check_end(const struct sl__onnx_reader *r) {
  const char *name = r->graph.output[0].name;
  const struct sl__onnx_value *end = sl__onnx_find(r, name);
  if (!end || end->is != SL__ONNX_OUTPUT)
    return sl__fail(SL_BAD_FILE, "%s: no node makes the output '%.64s' of the input", r->graph.path,
                    name);
  if (!r->model->count)
    return sl__fail(SL_UNSUPPORTED, "%s: its output is its input; the model has no layers",
                    r->graph.path);
  if (end->order != SL__ONNX_BATCH_FIRST || end->factor != 1 || !end->has_x ||
      end->erf != SL__ONNX_PLAIN || end->layer != r->model->count - 1)
    return sl__fail(SL_UNSUPPORTED,
                    "%s: the output '%.64s' is no layer's, with the batch's axis first",
                    r->graph.path, name);
  return SL_OK;
}

static enum sl_status read_graph(struct sl__onnx_reader *r, struct sl_context *context) {
  enum sl_status status;
  SL__TRY(begin(r, context));
  SL__TRY(fold_constants(r)); /* first: a layer looks ahead to the nodes after it */
  for (int n = 0; n < r->graph.nodes; n++)
    if (r->needed[n] && !r->done[n]) SL__TRY(read_node(r, n));
  status = check_end(r);
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

enum sl_status sl__onnx_open(struct sl_context *context, const char *path,
                             struct sl_model **model) {
  struct sl__copy copy = {0};
  enum sl_status status;
  uint8_t *bytes = NULL;
  size_t size;
  *model = NULL;
  SL__TRY(sl__file_read(path, SL__ONNX_MOST_BYTES, &bytes, &size));
  SL__TRY(sl__onnx_parse(context, path, bytes, size, model, &copy));
  SL__TRY(sl_model_build(*model));
  status = sl__copy_write(*model, &copy);
out:
  sl__copy_free(&copy);
  free(bytes);
  if (status == SL_OK) return SL_OK;
  sl_model_free(*model);
  *model = NULL;
  return status;
}

/* Do both models have the same parameters in the same order? Layers without parameters may differ.
 */
static enum sl_status check_alike(const struct sl_model *model, const struct sl_model *other,
                                  const char *path) {
  int count = sl_model_parameter_count(model), others = sl_model_parameter_count(other);
  if (count != others)
    return sl__fail(SL_BAD_FILE, "%s: has %d parameters, the model %d", path, others, count);
  for (int i = 0; i < count; i++) {
    struct sl_shape a, b;
    char own[96], theirs[96];
    const char *name = sl_model_parameter(model, i, &a), *there = sl_model_parameter(other, i, &b);
    if (strcmp(name, there) != 0)
      return sl__fail(SL_BAD_FILE, "%s: has \"%.60s\" where the model has \"%.60s\"", path, there,
                      name);
    if (!sl_shape_equal(&a, &b))
      return sl__fail(SL_BAD_SHAPE, "%s: \"%.60s\" is %s, in the model %s", path, name,
                      sl_shape_text(&b, theirs, sizeof theirs), sl_shape_text(&a, own, sizeof own));
  }
  return SL_OK;
}

/* Copies the values of another model into a copy for this one: offsets in their blocks may differ.
 */
static enum sl_status copy_for(const struct sl_model *model, const struct sl_model *other,
                               const struct sl__copy *theirs, struct sl__copy *own) {
  struct sl_shape shape;
  enum sl_status status = sl__copy_new(model, own);
  for (int i = 0; status == SL_OK && i < sl_model_parameter_count(model); i++) {
    sl_model_parameter(model, i, &shape);
    memcpy(sl__copy_values(own, model, i), sl__copy_values(theirs, other, i),
           (size_t)sl_shape_count(&shape) * sizeof(float));
  }
  return status;
}

enum sl_status sl__onnx_load(struct sl_model *model, const char *path) {
  struct sl_model *other = NULL;
  struct sl__copy copy = {0}, own = {0};
  enum sl_status status;
  uint8_t *bytes = NULL;
  size_t size;
  SL__TRY(sl_model_build(model));
  SL__TRY(sl__file_read(path, SL__ONNX_MOST_BYTES, &bytes, &size));
  SL__TRY(sl__onnx_parse(model->context, path, bytes, size, &other, &copy));
  SL__TRY(check_alike(model, other, path));
  SL__TRY(copy_for(model, other, &copy, &own));
  status = sl__copy_write(model, &own);
out:
  sl_model_free(other);
  sl__copy_free(&copy);
  sl__copy_free(&own);
  free(bytes);
  return status;
}
