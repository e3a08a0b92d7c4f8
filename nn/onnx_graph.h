/* An ONNX graph in memory (https://onnx.ai, version 8 of the format), between a model and a file.
 * The kinds of layers write nodes into a graph with the functions below; nn/formats/ turns graphs
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
  int type; /* type in the file */
  int ndim;
  int64_t dim[SL__ONNX_DIMS], count;
  const float *reals;    /* values are in reals or in wholes; both are NULL without values, */
  const int64_t *wholes; /* or if they have a type that no reader takes */
  bool zeros; /* all values are 0, of a shape that depends on the batch's size; ndim 0: unknown */
  const struct sl__onnx_tensor *transposed; /* this matrix is its transpose */
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
  const char *s; /* of strings: all of them, with spaces between */
  const float *floats;
  const int64_t *ints;
  int count; /* number of floats, ints or strings */
  const struct sl__onnx_tensor *t;
};

/* A node. An input that is left out is "". */
struct sl__onnx_node {
  const char *name, *op, *domain;
  const char **input, **output;
  const struct sl__onnx_attribute *attribute;
  int inputs, outputs, attributes;
};

/* An input or output of the model. A dimension that is a name is -1. */
struct sl__onnx_end {
  const char *name;
  int type; /* 0: the file does not say it */
  int ndim;
  int64_t dim[SL__ONNX_DIMS];
};

struct sl__onnx_graph {
  struct sl__onnx_chunk *memory; /* chunks of all members below, freed together */
  size_t used, most;             /* bytes of memory, and their limit */
  bool failed;                   /* an allocation has failed */
  const char *path;              /* for messages */
  const char *producer;
  int64_t opset;
  struct sl__onnx_node *node;
  struct sl__onnx_tensor *tensor; /* initializers */
  struct sl__onnx_end *input, *output;
  int nodes, tensors, inputs, outputs;
};

/* Zeroed memory that the graph frees. Returns NULL if memory is short or the graph has reached its
 * limit; sl__onnx_no_memory then gives SL_NO_MEMORY or SL_BAD_FILE. */
void *sl__onnx_alloc(struct sl__onnx_graph *graph, size_t count, size_t size);
enum sl_status sl__onnx_no_memory(const struct sl__onnx_graph *graph);
char *sl__onnx_text(struct sl__onnx_graph *graph, const char *format, ...) SL_PRINTF(2, 3);
/* Frees the memory; a zeroed graph is legal. */
void sl__onnx_graph_free(struct sl__onnx_graph *graph);

/* ---- writing: functions for a kind's onnx_write() ---- */

/* The writer remembers its first failure: later calls do nothing and return "". */
struct sl__onnx_writer {
  struct sl__onnx_graph graph;
  const struct sl_model *model;
  const struct sl__layer *layer; /* the layer whose nodes are written */
  const struct sl__copy *copy;   /* copy of all values */
  const char **value;            /* name of each layer's output */
  int node_room, tensor_room;
  enum sl_status status;
};

/* Names of inputs end with NULL. Attributes end with one that has no name; NULL: none. */
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

/* Appends a node. Its name is the layer's if part is NULL, else "LAYER/part". Returns the name of
 * its output. */
const char *sl__onnx_node(struct sl__onnx_writer *writer, const char *part, const char *op,
                          const char *const *inputs, const struct sl__onnx_attribute *attributes);
/* The same for a node of which only the output with this index is used. */
const char *sl__onnx_node_output(struct sl__onnx_writer *writer, const char *part, const char *op,
                                 const char *const *inputs,
                                 const struct sl__onnx_attribute *attributes, int index);
/* The same for a node of which all of its `count` outputs are used; output[] gets their names. */
void sl__onnx_node_outputs(struct sl__onnx_writer *writer, const char *part, const char *op,
                           const char *const *inputs, const struct sl__onnx_attribute *attributes,
                           int count, const char **output);
/* Name of the value that is the layer's input i. */
const char *sl__onnx_input(const struct sl__onnx_writer *writer, int i);
/* The same with first axes of size 1, where it has fewer than the layer's output: ONNX broadcasts
 * whole batches. */
const char *sl__onnx_broadcast_input(struct sl__onnx_writer *w, int k);
/* Adds the layer's parameter or buffer unchanged, also a shared weight. Returns its name, or NULL
 * if the layer has none. */
const char *sl__onnx_param(struct sl__onnx_writer *writer, const char *suffix);
/* The present values of the parameter or buffer, in the order of its block. */
const float *sl__onnx_values(const struct sl__onnx_writer *writer, const char *suffix);
/* Constants "LAYER.suffix". The caller fills in *reals at once; NULL if the writer has failed. */
const char *sl__onnx_scalar(struct sl__onnx_writer *writer, const char *suffix, float value);
const char *sl__onnx_wholes(struct sl__onnx_writer *writer, const char *suffix,
                            const int64_t *values, int count);
const char *sl__onnx_reals(struct sl__onnx_writer *writer, const char *suffix,
                           const struct sl_shape *shape, float **reals);
/* Zeroed memory that the graph frees. NULL: the writer has failed. */
void *sl__onnx_piece(struct sl__onnx_writer *writer, size_t count, size_t size);

#endif
