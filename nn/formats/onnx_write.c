/* A model as an ONNX graph: each layer's kind writes its own nodes. */
#include "nn/formats/onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX ".onnx"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

struct sl__onnx_writer {
  struct sl__onnx_graph graph;
  const struct sl_model *model;
  const struct sl__layer *layer; /* which is being written */
  const struct sl__copy *copy;   /* of all values */
  const char **value;            /* what each layer's output is called */
  int node_room, tensor_room;
  enum sl_status status;
};

bool sl__is_onnx(const char *path) {
  size_t length = strlen(path);
  return length > strlen(SUFFIX) && !strcmp(path + length - strlen(SUFFIX), SUFFIX);
}

/* ---- pieces ---- */

/* NULL, and the writer has failed. */
static void *piece(struct sl__onnx_writer *w, size_t count, size_t size) {
  void *memory = w->status == SL_OK ? sl__onnx_alloc(&w->graph, count, size) : NULL;
  if (!memory && w->status == SL_OK) w->status = SL_NO_MEMORY;
  return memory;
}

static const char *text(struct sl__onnx_writer *w, const char *first, const char *between,
                        const char *second) {
  size_t size = strlen(first) + strlen(between) + strlen(second) + 1;
  char *joined = piece(w, size, 1);
  if (joined) snprintf(joined, size, "%s%s%s", first, between, second);
  return joined ? joined : "";
}

/* Room for one more element of an array that is not the graph's. */
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

/* ---- for the kinds ---- */

static const struct sl__onnx_attribute *attributes_of(struct sl__onnx_writer *w,
                                                      const struct sl__onnx_attribute *from,
                                                      int *count) {
  for (*count = 0; from && from[*count].name; ++*count) {
  }
  struct sl__onnx_attribute *copy = piece(w, (size_t)*count, sizeof *copy);
  for (int i = 0; copy && i < *count; i++) {
    copy[i] = from[i];
    if (from[i].type != SL__ONNX_INTS) continue;
    int64_t *ints = piece(w, (size_t)from[i].count, sizeof *ints);
    if (ints) memcpy(ints, from[i].ints, (size_t)from[i].count * sizeof *ints);
    copy[i].ints = ints;
  }
  return copy;
}

const char *sl__onnx_node(struct sl__onnx_writer *w, const char *part, const char *op,
                          const char *const *inputs, const struct sl__onnx_attribute *attributes) {
  if (!room(w, (void **)&w->graph.node, w->graph.nodes, &w->node_room, sizeof *w->graph.node))
    return "";
  struct sl__onnx_node node = {.op = op, .domain = "", .outputs = 1};
  while (inputs[node.inputs]) node.inputs++;
  node.name = part ? text(w, w->layer->name, "/", part) : w->layer->name;
  node.attribute = attributes_of(w, attributes, &node.attributes);
  node.input = piece(w, (size_t)node.inputs, sizeof *node.input);
  node.output = piece(w, 1, sizeof *node.output);
  const char *output = text(w, node.name, "/", "y"); /* '/' is in no layer's name */
  if (w->status != SL_OK) return "";
  memcpy(node.input, inputs, (size_t)node.inputs * sizeof *inputs);
  node.output[0] = output;
  w->graph.node[w->graph.nodes++] = node;
  return output;
}

const char *sl__onnx_input(const struct sl__onnx_writer *w, int i) {
  int from = w->layer->input[i];
  return from == SL__INPUT ? "input" : w->value[from];
}

/* Its block's place in the copy is told by is_buffer. */
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
  if (w->layer->shares >= 0 && !strcmp(suffix, "weight"))
    return w->model->layers[w->layer->shares].params.part[0].name;
  if (!part) return NULL;
  struct sl__onnx_tensor *t = tensor(w, part->name, SL__ONNX_FLOAT, &part->shape);
  if (t) t->reals = sl__onnx_values(w, suffix);
  return part->name;
}

const char *sl__onnx_reals(struct sl__onnx_writer *w, const char *suffix,
                           const struct sl_shape *shape, float **reals) {
  const char *name = text(w, w->layer->name, ".", suffix);
  struct sl__onnx_tensor *t = tensor(w, name, SL__ONNX_FLOAT, shape);
  *reals = t ? piece(w, (size_t)t->count, sizeof **reals) : NULL;
  if (*reals) t->reals = *reals;
  return name;
}

const char *sl__onnx_scalar(struct sl__onnx_writer *w, const char *suffix, float value) {
  float *reals;
  const char *name = sl__onnx_reals(w, suffix, &(struct sl_shape){0}, &reals);
  if (reals) *reals = value;
  return name;
}

const char *sl__onnx_whole(struct sl__onnx_writer *w, const char *suffix, int64_t value) {
  const char *name = text(w, w->layer->name, ".", suffix);
  struct sl__onnx_tensor *t = tensor(w, name, SL__ONNX_INT64, &SL_SHAPE(1));
  int64_t *whole = t ? piece(w, 1, sizeof *whole) : NULL;
  if (!whole) return "";
  *whole = value;
  t->wholes = whole;
  return name;
}

/* ---- the whole ---- */

static struct sl__onnx_end *end(struct sl__onnx_writer *w, const char *name, int type,
                                const struct sl_shape *sample) {
  struct sl__onnx_end *e = piece(w, 1, sizeof *e);
  if (!e) return NULL;
  *e = (struct sl__onnx_end){.name = name, .type = type, .ndim = sample->ndim + 1};
  e->dim[0] = -1;
  memcpy(e->dim + 1, sample->dim, (size_t)sample->ndim * sizeof *sample->dim);
  return e;
}

static enum sl_status write_layers(struct sl__onnx_writer *w) {
  const struct sl_model *model = w->model;
  w->value = piece(w, (size_t)model->count, sizeof *w->value);
  for (int l = 0; l < model->count && w->status == SL_OK; l++) {
    w->layer = &model->layers[l];
    if (!w->layer->kind->onnx_write)
      return sl__layer_fail(w->layer, SL_UNSUPPORTED,
                            "ONNX has no operator for this kind of layer; save the model as .json");
    w->value[l] = w->layer->kind->onnx_write(w->layer, w);
  }
  if (w->status != SL_OK) return w->status;
  w->graph.node[w->graph.nodes - 1].output[0] = "output"; /* which no other node takes */
  w->graph.input =
      end(w, "input", model->takes_tokens ? SL__ONNX_INT64 : SL__ONNX_FLOAT, &model->sample);
  w->graph.output = end(w, "output", SL__ONNX_FLOAT, sl_model_output(model));
  w->graph.inputs = w->graph.outputs = 1;
  return w->status;
}

enum sl_status sl__onnx_save(struct sl_model *model, const char *path) {
  struct sl__copy copy = {0};
  struct sl__onnx_writer w = {.graph = {.most = SIZE_MAX,
                                        .path = path,
                                        .producer = SL__ONNX_PRODUCER,
                                        .opset = SL__ONNX_OPSET},
                              .model = model,
                              .copy = &copy};
  enum sl_status status;
  SL__TRY(sl_model_build(model));
  SL__TRY(sl__copy_new(model, &copy));
  SL__TRY(sl__copy_read(model, &copy));
  SL__TRY(sl__copy_check(&copy, model, path));
  SL__TRY(write_layers(&w));
  status = sl__onnx_file_write(&w.graph, path);
out:
  free(w.graph.node);
  free(w.graph.tensor);
  sl__onnx_graph_free(&w.graph);
  sl__copy_free(&copy);
  return status;
}
