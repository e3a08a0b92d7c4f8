/* An ONNX graph (https://onnx.ai, the format's version 8) in memory: what lies between a model and
 * a file. Layers' kinds write their nodes into one by the functions below; nn/formats/ turns graphs
 * into files and models. */
#ifndef SL_NN_ONNX_GRAPH_H
#define SL_NN_ONNX_GRAPH_H

#include "nn/layer.h"

enum { SL__ONNX_DIMS = 8, SL__ONNX_IR_VERSION = 8, SL__ONNX_OPSET = 17 };
#define SL__ONNX_PRODUCER "Starling"
#define SL__ONNX_MOST_BYTES ((size_t)INT32_MAX) /* protobuf's own limit */

/* Types of elements, by ONNX's numbers. */
enum sl__onnx_type {
  SL__ONNX_FLOAT = 1,
  SL__ONNX_INT32 = 6,
  SL__ONNX_INT64 = 7,
  SL__ONNX_BOOL = 9,
  SL__ONNX_FLOAT16 = 10,
  SL__ONNX_DOUBLE = 11,
  SL__ONNX_BFLOAT16 = 16
};

struct sl__onnx_tensor {
  const char *name;
  int type; /* in the file */
  int ndim;
  int64_t dim[SL__ONNX_DIMS], count;
  const float *reals;                       /* one of both; none where there are no values */
  const int64_t *wholes;                    /* or they are of a type that nothing here takes */
  bool zeros;                               /* of a shape that depends on the batch's size */
  const struct sl__onnx_tensor *transposed; /* the matrix that this one is the transpose of */
};

/* Kinds of attributes, by ONNX's numbers. */
enum sl__onnx_attribute_type {
  SL__ONNX_F = 1,
  SL__ONNX_I = 2,
  SL__ONNX_S = 3,
  SL__ONNX_T = 4,
  SL__ONNX_FLOATS = 6,
  SL__ONNX_INTS = 7,
  SL__ONNX_STRINGS = 8
};

struct sl__onnx_attribute {
  const char *name; /* NULL: the end of a list */
  int type;
  float f;
  int64_t i;
  const char *s;
  const float *floats;
  const int64_t *ints;
  int count; /* of floats, ints or strings */
  const struct sl__onnx_tensor *t;
};

/* A node. Inputs that are left out are "". */
struct sl__onnx_node {
  const char *name, *op, *domain;
  const char **input, **output;
  const struct sl__onnx_attribute *attribute;
  int inputs, outputs, attributes;
};

/* The model's input or output; a dimension that is a name is -1. */
struct sl__onnx_end {
  const char *name;
  int type; /* 0: it is not said */
  int ndim;
  int64_t dim[SL__ONNX_DIMS];
};

struct sl__onnx_graph {
  struct sl__onnx_chunk *memory; /* of all below, freed together */
  size_t used, most;             /* bytes of it, and their limit */
  bool failed;                   /* there was no memory for it */
  const char *path;              /* for messages */
  const char *producer;
  int64_t opset;
  struct sl__onnx_node *node;
  struct sl__onnx_tensor *tensor; /* initializers */
  struct sl__onnx_end *input, *output;
  int nodes, tensors, inputs, outputs;
};

/* Zeroed memory of the graph's, NULL where there is none: SL_NO_MEMORY, or SL_BAD_FILE where it
 * would be above the graph's most (sl__onnx_no_memory says which). */
void *sl__onnx_alloc(struct sl__onnx_graph *graph, size_t count, size_t size);
enum sl_status sl__onnx_no_memory(const struct sl__onnx_graph *graph);
char *sl__onnx_text(struct sl__onnx_graph *graph, const char *format, ...) SL_PRINTF(2, 3);
/* A zeroed graph is legal. */
void sl__onnx_graph_free(struct sl__onnx_graph *graph);

/* ---- writing: functions for a kind's onnx_write() ---- */

/* A failure stays with the writer: later calls do nothing and return "". */
struct sl__onnx_writer {
  struct sl__onnx_graph graph;
  const struct sl_model *model;
  const struct sl__layer *layer; /* the one that is being written */
  const struct sl__copy *copy;   /* of all values */
  const char **value;            /* name of each layer's output */
  int node_room, tensor_room;
  enum sl_status status;
};

/* Names of inputs, to the first NULL; attributes to the first without name, or NULL. */
#define SL__ONNX_NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SL__ONNX_ATTRIBUTES(...) ((const struct sl__onnx_attribute[]){__VA_ARGS__, {0}})
#define SL__ONNX_REAL(key, value)                                                                  \
  { .name = key, .type = SL__ONNX_F, .f = value }
#define SL__ONNX_WHOLE(key, value)                                                                 \
  { .name = key, .type = SL__ONNX_I, .i = value }
#define SL__ONNX_LIST(key, ...)                                                                    \
  {                                                                                                \
    .name = key, .type = SL__ONNX_INTS, .ints = (const int64_t[]){__VA_ARGS__},                    \
    .count = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))                             \
  }

/* Append a node, called as the layer where part is NULL, else "LAYER/part". Gives its output. */
const char *sl__onnx_node(struct sl__onnx_writer *writer, const char *part, const char *op,
                          const char *const *inputs, const struct sl__onnx_attribute *attributes);
/* The value that the layer's input i is. */
const char *sl__onnx_input(const struct sl__onnx_writer *writer, int i);
/* The layer's parameter or buffer as it is; NULL where it has none such. The weight may be the one
 * that it shares. */
const char *sl__onnx_param(struct sl__onnx_writer *writer, const char *suffix);
/* Its values now, in the order of its block. */
const float *sl__onnx_values(const struct sl__onnx_writer *writer, const char *suffix);
/* Constants "LAYER.suffix". reals: to be filled in at once; NULL where the writer has failed. */
const char *sl__onnx_scalar(struct sl__onnx_writer *writer, const char *suffix, float value);
const char *sl__onnx_whole(struct sl__onnx_writer *writer, const char *suffix, int64_t value);
const char *sl__onnx_reals(struct sl__onnx_writer *writer, const char *suffix,
                           const struct sl_shape *shape, float **reals);
/* Zeroed memory of the graph's; NULL, and the writer has failed. */
void *sl__onnx_piece(struct sl__onnx_writer *writer, size_t count, size_t size);

#endif
