/* How a kind's onnx_write() adds nodes and constants to a graph. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/onnx_graph.h"

void *sl__onnx_piece(struct sl__onnx_writer *w, size_t count, size_t size) {
  void *memory = w->status == SL_OK ? sl__onnx_alloc(&w->graph, count, size) : NULL;
  if (!memory && w->status == SL_OK) w->status = SL_NO_MEMORY;
  return memory;
}

static const char *text(struct sl__onnx_writer *w, const char *first, const char *between,
                        const char *second) {
  size_t size = strlen(first) + strlen(between) + strlen(second) + 1;
  char *joined = sl__onnx_piece(w, size, 1);
  if (joined) snprintf(joined, size, "%s%s%s", first, between, second);
  return joined ? joined : "";
}

/* Makes room for one more element of an array; the graph does not own the array. */
static bool room(struct sl__onnx_writer *w, void **array, int count, int *room, size_t size) {
  if (w->status != SL_OK) return false;
  if (count < *room) return true;
  int more = *room ? 2 * *room : 64;
  void *grown = sl__realloc(*array, (size_t)more, size, "an ONNX graph");
  if (!grown) {
    w->status = SL_NO_MEMORY;
    return false;
  }
  *array = grown;
  *room = more;
  return true;
}

static struct sl__onnx_tensor *tensor(struct sl__onnx_writer *w, const char *name, int type,
                                      const struct sl_shape *shape) {
  if (!room(w, (void **)&w->graph.tensor, w->graph.tensors, &w->tensor_room,
            sizeof *w->graph.tensor))
    return NULL;
  struct sl__onnx_tensor *t = &w->graph.tensor[w->graph.tensors++];
  *t = (struct sl__onnx_tensor){.name = name, .type = type, .ndim = shape->ndim};
  memcpy(t->dim, shape->dim, sizeof shape->dim);
  t->count = sl_shape_count(shape);
  return t;
}

/* ---- functions for the kinds' onnx_write() ---- */

static const struct sl__onnx_attribute *attributes_of(struct sl__onnx_writer *w,
                                                      const struct sl__onnx_attribute *from,
                                                      int *count) {
  for (*count = 0; from && from[*count].name; ++*count) {
  }
  struct sl__onnx_attribute *copy = sl__onnx_piece(w, (size_t)*count, sizeof *copy);
  for (int i = 0; copy && i < *count; i++) {
    copy[i] = from[i];
    if (from[i].type != SL__ONNX_INTS) continue;
    int64_t *ints = sl__onnx_piece(w, (size_t)from[i].count, sizeof *ints);
    if (ints) memcpy(ints, from[i].ints, (size_t)from[i].count * sizeof *ints);
    copy[i].ints = ints;
  }
  return copy;
}

const char *sl__onnx_node_output(struct sl__onnx_writer *w, const char *part, const char *op,
                                 const char *const *inputs,
                                 const struct sl__onnx_attribute *attributes, int index) {
  if (!room(w, (void **)&w->graph.node, w->graph.nodes, &w->node_room, sizeof *w->graph.node))
    return "";
  struct sl__onnx_node node = {.op = op, .domain = "", .outputs = index + 1};
  while (inputs[node.inputs]) node.inputs++;
  node.name = part ? text(w, w->layer->name, "/", part) : w->layer->name;
  node.attribute = attributes_of(w, attributes, &node.attributes);
  node.input = sl__onnx_piece(w, (size_t)node.inputs, sizeof *node.input);
  node.output = sl__onnx_piece(w, (size_t)node.outputs, sizeof *node.output);
  const char *output = text(w, node.name, "/", "y"); /* no layer's name has a '/' */
  if (w->status != SL_OK) return "";
  memcpy(node.input, inputs, (size_t)node.inputs * sizeof *inputs);
  for (int i = 0; i < index; i++) node.output[i] = ""; /* left out */
  node.output[index] = output;
  w->graph.node[w->graph.nodes++] = node;
  return output;
}

void sl__onnx_node_outputs(struct sl__onnx_writer *w, const char *part, const char *op,
                           const char *const *inputs, const struct sl__onnx_attribute *attributes,
                           int count, const char **output) {
  char number[16];
  output[count - 1] = sl__onnx_node_output(w, part, op, inputs, attributes, count - 1);
  for (int i = 0; i < count - 1; i++) {
    snprintf(number, sizeof number, "%d", i);
    output[i] = text(w, output[count - 1], "", number);
    if (w->status == SL_OK) w->graph.node[w->graph.nodes - 1].output[i] = output[i];
  }
}

const char *sl__onnx_node(struct sl__onnx_writer *w, const char *part, const char *op,
                          const char *const *inputs, const struct sl__onnx_attribute *attributes) {
  return sl__onnx_node_output(w, part, op, inputs, attributes, 0);
}

const char *sl__onnx_input(const struct sl__onnx_writer *w, int i) {
  int from = w->layer->input[i];
  return from == SL__INPUT ? "input" : w->value[from];
}

/* is_buffer selects the part's block in the copy. */
static const struct sl__param *find_part(const struct sl__layer *layer, const char *suffix,
                                         bool *is_buffer) {
  for (int b = 0; b < 2; b++) {
    const struct sl__block *block = b ? &layer->buffers : &layer->params;
    *is_buffer = b;
    for (int i = 0; i < block->count; i++)
      if (!strcmp(block->part[i].suffix, suffix)) return &block->part[i];
  }
  return NULL;
}

const float *sl__onnx_values(const struct sl__onnx_writer *w, const char *suffix) {
  bool is_buffer;
  const struct sl__param *part = find_part(w->layer, suffix, &is_buffer);
  return part ? w->copy->blocks[2 * (w->layer - w->model->layers) + is_buffer] + part->offset
              : NULL;
}

const char *sl__onnx_param(struct sl__onnx_writer *w, const char *suffix) {
  bool is_buffer;
  const struct sl__param *part = find_part(w->layer, suffix, &is_buffer);
  if (w->layer->tied_to >= 0 && !strcmp(suffix, "weight"))
    return w->model->layers[w->layer->tied_to].params.part[0].name;
  if (!part) return NULL;
  struct sl__onnx_tensor *t = tensor(w, part->name, SL__ONNX_FLOAT, &part->shape);
  if (t) t->reals = sl__onnx_values(w, suffix);
  return part->name;
}

const char *sl__onnx_reals(struct sl__onnx_writer *w, const char *suffix,
                           const struct sl_shape *shape, float **reals) {
  const char *name = text(w, w->layer->name, ".", suffix);
  struct sl__onnx_tensor *t = tensor(w, name, SL__ONNX_FLOAT, shape);
  *reals = t ? sl__onnx_piece(w, (size_t)t->count, sizeof **reals) : NULL;
  if (*reals) t->reals = *reals;
  return name;
}

const char *sl__onnx_scalar(struct sl__onnx_writer *w, const char *suffix, float value) {
  float *reals;
  const char *name = sl__onnx_reals(w, suffix, &(struct sl_shape){0}, &reals);
  if (reals) *reals = value;
  return name;
}

const char *sl__onnx_wholes(struct sl__onnx_writer *w, const char *suffix, const int64_t *values,
                            int count) {
  const char *name = text(w, w->layer->name, ".", suffix);
  struct sl__onnx_tensor *t = tensor(w, name, SL__ONNX_INT64, &SL_SHAPE(count));
  int64_t *wholes = t ? sl__onnx_piece(w, (size_t)count, sizeof *wholes) : NULL;
  if (!wholes) return "";
  memcpy(wholes, values, (size_t)count * sizeof *wholes);
  t->wholes = wholes;
  return name;
}
