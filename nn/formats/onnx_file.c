/* A graph as an ONNX file's bytes, and back, by protobuf-c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/half.h"
#include "nn/formats/onnx.h"
#include "nn/formats/onnx.pb-c.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "(unconfigured)"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "ONNX files are read and written as they lie in memory: little-endian hosts only"
#endif

#define MOST_VALUES SL__MOST_VALUES
enum { LEAST_OPSET = 7, MOST_OPSET = 26, MOST_NODES = 20000, IN_ANOTHER_FILE = 1 };

/* Allocates the elements of a repeated field, and the pointers to them. */
#define LIST(graph, message, count, list)                                                          \
  ((list) = sl__onnx_alloc(graph, (size_t)(count), sizeof *(list)),                                \
   (message) = sl__onnx_alloc(graph, (size_t)(count), sizeof *(message)), (list) && (message))

/* ---- writing ---- */

static bool put_tensor(struct sl__onnx_graph *graph, const struct sl__onnx_tensor *from,
                       SlOnnx__Tensor *to) {
  const void *values = from->type == SL__ONNX_FLOAT ? (const void *)from->reals : from->wholes;
  size_t size = from->type == SL__ONNX_FLOAT ? sizeof *from->reals : sizeof *from->wholes;
  sl_onnx__tensor__init(to);
  to->name = (char *)from->name;
  to->has_data_type = true;
  to->data_type = from->type;
  to->n_dims = (size_t)from->ndim;
  to->dims = sl__onnx_alloc(graph, to->n_dims, sizeof *to->dims);
  if (!to->dims) return false;
  memcpy(to->dims, from->dim, to->n_dims * sizeof *to->dims);
  to->has_raw_data = true;
  to->raw_data = (ProtobufCBinaryData){(size_t)from->count * size, (uint8_t *)values};
  return true;
}

static void put_attribute(const struct sl__onnx_attribute *from, SlOnnx__Attribute *to) {
  sl_onnx__attribute__init(to);
  to->name = (char *)from->name;
  to->has_type = true;
  to->type = from->type;
  to->has_f = from->type == SL__ONNX_F;
  to->f = from->f;
  to->has_i = from->type == SL__ONNX_I;
  to->i = from->i;
  to->has_s = from->type == SL__ONNX_S;
  if (to->has_s) to->s = (ProtobufCBinaryData){strlen(from->s), (uint8_t *)from->s};
  if (from->type != SL__ONNX_INTS) return;
  to->n_ints = (size_t)from->count;
  to->ints = (int64_t *)from->ints;
}

static bool put_node(struct sl__onnx_graph *graph, const struct sl__onnx_node *from,
                     SlOnnx__Node *to) {
  SlOnnx__Attribute *attribute;
  sl_onnx__node__init(to);
  to->name = (char *)from->name;
  to->op_type = (char *)from->op;
  to->n_input = (size_t)from->inputs;
  to->input = (char **)from->input;
  to->n_output = (size_t)from->outputs;
  to->output = (char **)from->output;
  to->n_attribute = (size_t)from->attributes;
  if (!LIST(graph, attribute, from->attributes, to->attribute)) return false;
  for (int i = 0; i < from->attributes; i++) {
    to->attribute[i] = &attribute[i];
    put_attribute(&from->attribute[i], &attribute[i]);
  }
  return true;
}

static bool put_end(struct sl__onnx_graph *graph, const struct sl__onnx_end *from,
                    SlOnnx__Value *to) {
  SlOnnx__Dimension *dimension;
  SlOnnx__Type *type = sl__onnx_alloc(graph, 1, sizeof *type);
  SlOnnx__TensorType *tensor = sl__onnx_alloc(graph, 1, sizeof *tensor);
  SlOnnx__Shape *shape = sl__onnx_alloc(graph, 1, sizeof *shape);
  if (!type || !tensor || !shape || !LIST(graph, dimension, from->ndim, shape->dim)) return false;
  SlOnnx__Dimension **list = shape->dim;
  sl_onnx__value__init(to);
  sl_onnx__type__init(type);
  sl_onnx__tensor_type__init(tensor);
  sl_onnx__shape__init(shape);
  to->name = (char *)from->name;
  to->type = type;
  type->tensor_type = tensor;
  tensor->has_elem_type = true;
  tensor->elem_type = from->type;
  tensor->shape = shape;
  shape->n_dim = (size_t)from->ndim;
  shape->dim = list;
  for (int i = 0; i < from->ndim; i++) {
    list[i] = &dimension[i];
    sl_onnx__dimension__init(&dimension[i]);
    dimension[i].has_dim_value = from->dim[i] >= 0;
    dimension[i].dim_value = from->dim[i];
    if (from->dim[i] < 0) dimension[i].dim_param = (char *)"N";
  }
  return true;
}

static bool put_graph(struct sl__onnx_graph *from, SlOnnx__Graph *to) {
  SlOnnx__Node *node;
  SlOnnx__Tensor *tensor;
  SlOnnx__Value *input, *output;
  sl_onnx__graph__init(to);
  to->name = (char *)"model";
  if (!LIST(from, node, from->nodes, to->node) ||
      !LIST(from, tensor, from->tensors, to->initializer) ||
      !LIST(from, input, from->inputs, to->input) || !LIST(from, output, from->outputs, to->output))
    return false;
  to->n_node = (size_t)from->nodes;
  for (int i = 0; i < from->nodes; i++)
    if (!put_node(from, &from->node[i], to->node[i] = &node[i])) return false;
  to->n_initializer = (size_t)from->tensors;
  for (int i = 0; i < from->tensors; i++)
    if (!put_tensor(from, &from->tensor[i], to->initializer[i] = &tensor[i])) return false;
  to->n_input = (size_t)from->inputs;
  for (int i = 0; i < from->inputs; i++)
    if (!put_end(from, &from->input[i], to->input[i] = &input[i])) return false;
  to->n_output = (size_t)from->outputs;
  for (int i = 0; i < from->outputs; i++)
    if (!put_end(from, &from->output[i], to->output[i] = &output[i])) return false;
  return true;
}

/* Pieces go to the file as protobuf-c writes them. */
struct file_buffer {
  ProtobufCBuffer base;
  struct sl__file *file;
};

static void append(ProtobufCBuffer *buffer, size_t size, const uint8_t *bytes) {
  sl__file_write(((struct file_buffer *)buffer)->file, bytes, size);
}

enum sl_status sl__onnx_file_write(struct sl__onnx_graph *graph, const char *path) {
  struct file_buffer buffer = {.base.append = append};
  SlOnnx__Graph body;
  SlOnnx__OperatorSet set = SL_ONNX__OPERATOR_SET__INIT, *sets = &set;
  SlOnnx__Model model = SL_ONNX__MODEL__INIT;
  if (!put_graph(graph, &body)) return sl__onnx_no_memory(graph);
  set.domain = (char *)"";
  set.has_version = model.has_ir_version = true;
  set.version = graph->opset;
  model.ir_version = SL__ONNX_IR_VERSION;
  model.producer_name = (char *)graph->producer;
  model.producer_version = (char *)PACKAGE_VERSION;
  model.graph = &body;
  model.n_opset_import = 1;
  model.opset_import = &sets;
  size_t size = sl_onnx__model__get_packed_size(&model);
  if (size > SL__ONNX_MOST_BYTES)
    return sl__fail(SL_UNSUPPORTED,
                    "%s: would have %zu bytes, and an ONNX file may have 2^31 - 1; save the model "
                    "as .json and .safetensors",
                    path, size);
  enum sl_status status = sl__file_create(path, &buffer.file);
  if (status != SL_OK) return status;
  sl_onnx__model__pack_to_buffer(&model, &buffer.base);
  return sl__file_commit(buffer.file, NULL);
}

/* ---- reading ---- */

/* protobuf-c's memory is counted, too: two bytes in a file can become an element of 100 bytes. */
static void *message_alloc(void *graph, size_t size) { return sl__onnx_alloc(graph, 1, size); }

static void message_free(void *graph, void *memory) { (void)graph, (void)memory; }

static const char *known(const char *text) { return text ? text : ""; }

static bool is_plain(const SlOnnx__Tensor *t) {
  return !t->n_external_data && t->data_location != IN_ANOTHER_FILE;
}

/* Bytes of an element in raw_data; 0: a type that no reader takes. */
static size_t raw_size(int type) {
  switch (type) {
    case SL__ONNX_BOOL: return 1;
    case SL__ONNX_FLOAT16:
    case SL__ONNX_BFLOAT16: return 2;
    case SL__ONNX_FLOAT:
    case SL__ONNX_INT32: return 4;
    case SL__ONNX_INT64:
    case SL__ONNX_DOUBLE: return 8;
    default: return 0;
  }
}

/* Number of elements in the field for the tensor's type. */
static size_t field_count(const SlOnnx__Tensor *t) {
  switch (t->data_type) {
    case SL__ONNX_FLOAT: return t->n_float_data;
    case SL__ONNX_INT64: return t->n_int64_data;
    case SL__ONNX_DOUBLE: return t->n_double_data;
    default: return t->n_int32_data;
  }
}

static float half_value(int type, uint16_t code) {
  return type == SL__ONNX_FLOAT16 ? sl__fp16_value(code) : sl__bits_float((uint32_t)code << 16);
}

static float real_at(const SlOnnx__Tensor *t, size_t i) {
  const uint8_t *raw = t->raw_data.data;
  uint16_t code;
  double wide;
  switch (t->data_type) {
    case SL__ONNX_DOUBLE:
      if (!t->has_raw_data) return (float)t->double_data[i];
      memcpy(&wide, raw + i * sizeof wide, sizeof wide);
      return (float)wide;
    default:
      if (!t->has_raw_data) return half_value(t->data_type, (uint16_t)t->int32_data[i]);
      memcpy(&code, raw + i * sizeof code, sizeof code);
      return half_value(t->data_type, code);
  }
}

static int64_t whole_at(const SlOnnx__Tensor *t, size_t i) {
  int32_t whole;
  if (!t->has_raw_data) return t->int32_data[i];
  if (t->data_type == SL__ONNX_BOOL) return t->raw_data.data[i];
  memcpy(&whole, t->raw_data.data + i * sizeof whole, sizeof whole);
  return whole;
}

/* Takes the values from the message itself if they have the right type there, else converts them.
 */
static enum sl_status take_values(struct sl__onnx_graph *graph, const SlOnnx__Tensor *from,
                                  struct sl__onnx_tensor *to) {
  size_t count = (size_t)to->count;
  float *reals = NULL;
  int64_t *wholes = NULL;
  switch (from->data_type) {
    case SL__ONNX_FLOAT:
      to->reals =
          from->has_raw_data ? (const float *)(void *)from->raw_data.data : from->float_data;
      break;
    case SL__ONNX_INT64:
      to->wholes =
          from->has_raw_data ? (const int64_t *)(void *)from->raw_data.data : from->int64_data;
      break;
    case SL__ONNX_FLOAT16:
    case SL__ONNX_BFLOAT16:
    case SL__ONNX_DOUBLE:
      to->reals = reals = sl__onnx_alloc(graph, count, sizeof *reals);
      if (!reals) return sl__onnx_no_memory(graph);
      for (size_t i = 0; i < count; i++) reals[i] = real_at(from, i);
      break;
    default:
      to->wholes = wholes = sl__onnx_alloc(graph, count, sizeof *wholes);
      if (!wholes) return sl__onnx_no_memory(graph);
      for (size_t i = 0; i < count; i++) wholes[i] = whole_at(from, i);
  }
  return SL_OK;
}

static enum sl_status take_shape(const struct sl__onnx_graph *graph, const SlOnnx__Tensor *from,
                                 struct sl__onnx_tensor *to) {
  if (from->n_dims > SL__ONNX_DIMS)
    return sl__fail(SL_UNSUPPORTED, "%s: tensor %.64s has %zu dimensions; %d are read", graph->path,
                    to->name, from->n_dims, SL__ONNX_DIMS);
  to->ndim = (int)from->n_dims;
  to->count = 1;
  for (int i = 0; i < to->ndim; i++) {
    to->dim[i] = from->dims[i];
    /* all dimensions are bounded, also if the product is 0 */
    if (to->dim[i] < 0 || to->dim[i] > MOST_VALUES ||
        __builtin_mul_overflow(to->count, to->dim[i], &to->count) || to->count > MOST_VALUES)
      return sl__fail(SL_BAD_FILE, "%s: tensor %.64s: dimension %d is %lld", graph->path, to->name,
                      i, (long long)to->dim[i]);
  }
  return SL_OK;
}

static enum sl_status take_tensor(struct sl__onnx_graph *graph, const SlOnnx__Tensor *from,
                                  struct sl__onnx_tensor *to) {
  size_t size = raw_size(from->data_type);
  *to = (struct sl__onnx_tensor){.name = known(from->name), .type = from->data_type};
  if (!is_plain(from))
    return sl__fail(
        SL_UNSUPPORTED,
        "%s: tensor %.64s lies in another file (external data); save the model with its weights "
        "inside (torch.onnx.export: external_data=False)",
        graph->path, to->name);
  enum sl_status status = take_shape(graph, from, to);
  if (status != SL_OK || !size)
    return status; /* the reader that takes this tensor refuses its type */
  size_t there = from->has_raw_data ? from->raw_data.len : field_count(from);
  if (there != (size_t)to->count * (from->has_raw_data ? size : 1))
    return sl__fail(SL_BAD_FILE, "%s: tensor %.64s: has %zu %s, its shape needs %lld values",
                    graph->path, to->name, there, from->has_raw_data ? "bytes" : "values",
                    (long long)to->count);
  return to->count ? take_values(graph, from, to) : SL_OK;
}

/* The strings with a space between them. Only lists as long as those of a recurrent operator's
 * activations, 3 in each direction, are read. */
static const char *join_strings(struct sl__onnx_graph *graph, const SlOnnx__Attribute *from) {
  char *text = sl__onnx_text(graph, "%s", "");
  for (size_t i = 0; text && from->n_strings <= 6 && i < from->n_strings; i++)
    text = sl__onnx_text(graph, "%s%s%.*s", text, i ? " " : "",
                         (int)(from->strings[i].len > 64 ? 64 : from->strings[i].len),
                         from->strings[i].len ? (const char *)from->strings[i].data : "");
  return text;
}

static enum sl_status take_attribute(struct sl__onnx_graph *graph, const SlOnnx__Attribute *from,
                                     struct sl__onnx_attribute *to) {
  *to = (struct sl__onnx_attribute){.name = known(from->name),
                                    .type = from->type,
                                    .f = from->f,
                                    .i = from->i,
                                    .floats = from->floats,
                                    .ints = from->ints};
  if (from->type == SL__ONNX_S) {
    to->s = sl__onnx_text(graph, "%.*s", (int)(from->s.len > 4096 ? 4096 : from->s.len),
                          from->s.len ? (const char *)from->s.data : "");
    if (!to->s) return sl__onnx_no_memory(graph);
  }
  if (from->type == SL__ONNX_STRINGS) {
    to->s = join_strings(graph, from);
    if (!to->s) return sl__onnx_no_memory(graph);
  }
  to->count = (int)(from->type == SL__ONNX_FLOATS ? from->n_floats
                    : from->type == SL__ONNX_INTS ? from->n_ints
                                                  : from->n_strings);
  if (from->type != SL__ONNX_T || !from->t) return SL_OK;
  struct sl__onnx_tensor *t = sl__onnx_alloc(graph, 1, sizeof *t);
  to->t = t;
  return t ? take_tensor(graph, from->t, t) : sl__onnx_no_memory(graph);
}

static enum sl_status take_node(struct sl__onnx_graph *graph, const SlOnnx__Node *from,
                                struct sl__onnx_node *to) {
  enum sl_status status = SL_OK;
  struct sl__onnx_attribute *attribute =
      sl__onnx_alloc(graph, from->n_attribute, sizeof *attribute);
  *to = (struct sl__onnx_node){.name = known(from->name),
                               .op = known(from->op_type),
                               .domain = known(from->domain),
                               .input = (const char **)from->input,
                               .output = (const char **)from->output,
                               .attribute = attribute,
                               .inputs = (int)from->n_input,
                               .outputs = (int)from->n_output,
                               .attributes = (int)from->n_attribute};
  if (!attribute) return sl__onnx_no_memory(graph);
  for (int i = 0; i < to->attributes && status == SL_OK; i++)
    status = take_attribute(graph, from->attribute[i], &attribute[i]);
  return status;
}

static enum sl_status take_end(const struct sl__onnx_graph *graph, const SlOnnx__Value *from,
                               struct sl__onnx_end *to) {
  const SlOnnx__TensorType *type = from->type ? from->type->tensor_type : NULL;
  const SlOnnx__Shape *shape = type ? type->shape : NULL;
  to->name = known(from->name);
  to->type = type ? type->elem_type : 0;
  if (shape && shape->n_dim > SL__ONNX_DIMS)
    return sl__fail(SL_UNSUPPORTED, "%s: '%.64s' has %zu dimensions; %d are read", graph->path,
                    to->name, shape->n_dim, SL__ONNX_DIMS);
  to->ndim = shape ? (int)shape->n_dim : 0;
  for (int i = 0; i < to->ndim; i++)
    to->dim[i] = shape->dim[i]->has_dim_value ? shape->dim[i]->dim_value : -1;
  return SL_OK;
}

static enum sl_status take_ends(struct sl__onnx_graph *graph, SlOnnx__Value **from, size_t count,
                                struct sl__onnx_end **to) {
  enum sl_status status = SL_OK;
  *to = sl__onnx_alloc(graph, count, sizeof **to);
  if (!*to) return sl__onnx_no_memory(graph);
  for (size_t i = 0; i < count && status == SL_OK; i++)
    status = take_end(graph, from[i], &(*to)[i]);
  return status;
}

static enum sl_status check_head(struct sl__onnx_graph *graph, const SlOnnx__Model *model) {
  for (size_t i = 0; i < model->n_opset_import; i++) {
    const char *domain = known(model->opset_import[i]->domain);
    if (!*domain || !strcmp(domain, "ai.onnx")) graph->opset = model->opset_import[i]->version;
  }
  if (!model->graph || !graph->opset)
    return sl__fail(SL_BAD_FILE, "%s: is no ONNX model: it has no graph, or no operator set",
                    graph->path);
  if (graph->opset < LEAST_OPSET || graph->opset > MOST_OPSET)
    return sl__fail(SL_UNSUPPORTED, "%s: is of operator set %lld; %d to %d are read", graph->path,
                    (long long)graph->opset, LEAST_OPSET, MOST_OPSET);
  if (model->n_functions || model->graph->n_sparse_initializer)
    return sl__fail(SL_UNSUPPORTED,
                    "%s: has functions or sparse weights of its own; export it without",
                    graph->path);
  if (!model->graph->n_node || model->graph->n_node > MOST_NODES)
    return sl__fail(SL_UNSUPPORTED, "%s: has %zu nodes; from 1 to %d are read", graph->path,
                    model->graph->n_node, MOST_NODES);
  return SL_OK;
}

static enum sl_status take_graph(struct sl__onnx_graph *graph, const SlOnnx__Graph *from) {
  enum sl_status status = SL_OK;
  graph->nodes = (int)from->n_node;
  graph->tensors = (int)from->n_initializer;
  graph->inputs = (int)from->n_input;
  graph->outputs = (int)from->n_output;
  graph->node = sl__onnx_alloc(graph, from->n_node, sizeof *graph->node);
  graph->tensor = sl__onnx_alloc(graph, from->n_initializer, sizeof *graph->tensor);
  if (!graph->node || !graph->tensor) return sl__onnx_no_memory(graph);
  for (int i = 0; i < graph->tensors; i++)
    SL__TRY(take_tensor(graph, from->initializer[i], &graph->tensor[i]));
  for (int i = 0; i < graph->nodes; i++) SL__TRY(take_node(graph, from->node[i], &graph->node[i]));
  SL__TRY(take_ends(graph, from->input, from->n_input, &graph->input));
  status = take_ends(graph, from->output, from->n_output, &graph->output);
out:
  return status;
}

enum sl_status sl__onnx_file_parse(struct sl__onnx_graph *graph, const uint8_t *bytes,
                                   size_t size) {
  ProtobufCAllocator allocator = {message_alloc, message_free, graph};
  SlOnnx__Model *model = sl_onnx__model__unpack(&allocator, size, bytes);
  if (!model && graph->failed) return sl__onnx_no_memory(graph);
  if (!model)
    return sl__fail(SL_BAD_FILE, "%s: is no ONNX model, or is damaged; was the download complete?",
                    graph->path);
  graph->producer = known(model->producer_name);
  enum sl_status status = check_head(graph, model);
  return status == SL_OK ? take_graph(graph, model->graph) : status;
}
