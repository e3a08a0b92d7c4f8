/* The reader of an ONNX graph: its names, and the model that is being built. */
#ifndef SL_NN_FORMATS_ONNX_READ_H
#define SL_NN_FORMATS_ONNX_READ_H

#include "nn/formats/onnx.h"

/* The batch's size in a constant shape; the size is not known. A number that no file needs:
 * exporters write INT64_MIN for the end of a slice that runs backward. */
#define SL__ONNX_BATCH (INT64_MIN + 0x5717)

/* Position of the batch's axis: around recurrent layers PyTorch puts it after the time's. */
enum sl__onnx_order {
  SL__ONNX_BATCH_FIRST,
  SL__ONNX_TIME_FIRST,     /* [T, N, ...] */
  SL__ONNX_TIME_DIRECTION, /* [T, 1, N, ...], the output of a recurrent operator */
  SL__ONNX_TIME_BATCH_DIRECTION,
  SL__ONNX_TIME_DIRECTIONS, /* [T, D, N, H], the output of two directions; the view is [T, D, H] */
  SL__ONNX_ORDERS
};

/* The value of a name: a constant, or a layer's output x (the model's input: SL__INPUT). While a
 * gelu is read part by part, the value is factor * (x or 1) * (1, erf or 1 + erf)(x / sqrt 2). */
struct sl__onnx_value {
  const char *name; /* NULL: this place of the table is free */
  enum { SL__ONNX_NOTHING, SL__ONNX_CONSTANT, SL__ONNX_OUTPUT } is;
  const struct sl__onnx_tensor *constant;
  int layer;
  struct sl_shape view; /* shape of a sample after reshapes; the values keep the layer's order */
  enum sl__onnx_order order;
  float factor;
  bool has_x;
  enum { SL__ONNX_PLAIN, SL__ONNX_ERF, SL__ONNX_ONE_AND_ERF } erf;
  int uses, user; /* number of nodes that take it; the first of them in the file, -1: the graph's
                     output */
};

struct sl__onnx_reader;
/* Is it an input of the model that is whole numbers? (onnx_append.c) */
bool sl__onnx_is_tokens(const struct sl__onnx_reader *r, const struct sl__onnx_value *value);

/* The source of a parameter's values. */
struct sl__onnx_setting {
  int layer, part;
  bool is_buffer;
  const float *values; /* NULL: zeros */
  int64_t columns;     /* above 0: values is the transpose, with this number of rows */
  const char *gates;   /* for each of our gates the file's gate, as digits; NULL: the same order */
  const struct sl__onnx_tensor *matrix; /* a weight that a dense layer may share; NULL: none */
  bool transposed;                      /* the layer's weight is the transpose of that matrix */
};

struct sl__onnx_reader {
  struct sl__onnx_graph graph;
  struct sl_model *model;
  bool own;                   /* the library's own writer made the file */
  bool tokens[SL_MAX_FIELDS]; /* the model's inputs that are whole numbers */
  int64_t batch;              /* batch size in the file; 0: any */
  struct sl__onnx_value *table;
  size_t places; /* a power of 2 */
  bool *needed, *done;
  struct sl__onnx_setting *settings;
  int setting_count, setting_room;
  int number; /* next number to append to a name that is taken; it only grows, so a free one is
                 found soon */
  size_t parameter_bytes, most_parameters;
  const struct sl__onnx_tensor *embedding; /* weight of the first embedding */
  int embedding_layer;
};

/* Fails with the message "FILE: node NAME (OP): ..." */
enum sl_status sl__onnx_refuse(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                               enum sl_status status, const char *format, ...) SL_PRINTF(4, 5);

/* ---- names (onnx_names.c) ---- */

/* Makes the table for all names of the graph, and the marks of its nodes. */
enum sl_status sl__onnx_make_table(struct sl__onnx_reader *r);
/* A name's entry in the table, which is added if it is new. SL_BAD_FILE if too many names collide.
 */
enum sl_status sl__onnx_find_or_add(struct sl__onnx_reader *r, const char *name,
                                    struct sl__onnx_value **value);
/* The value of a name; NULL if no node has defined or used it. */
struct sl__onnx_value *sl__onnx_find(const struct sl__onnx_reader *r, const char *name);
/* The constant at input i; NULL if the input is missing or no constant. */
const struct sl__onnx_tensor *sl__onnx_constant(const struct sl__onnx_reader *r,
                                                const struct sl__onnx_node *node, int i);
/* Does the node have an input i? */
bool sl__onnx_has(const struct sl__onnx_node *node, int i);
/* Gives a name its value. SL_BAD_FILE if it has one already. */
enum sl_status sl__onnx_define(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                               const char *name, const struct sl__onnx_value *value);

/* ---- attributes (onnx_attributes.c): SL_BAD_FILE if one has another type ---- */

enum sl_status sl__onnx_get_whole(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                  const char *name, int64_t usual, int64_t *whole);
enum sl_status sl__onnx_get_real(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                 const char *name, float usual, float *real);
/* *text NULL: the attribute is missing. */
enum sl_status sl__onnx_get_text(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                 const char *name, const char **text);
enum sl_status sl__onnx_get_list(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                 const char *name, const int64_t **list, int *count);
/* A list that is an attribute, or, from some operator set on, input i. *list NULL: both are
 * missing. */
enum sl_status sl__onnx_get_either(const struct sl__onnx_reader *r,
                                   const struct sl__onnx_node *node, const char *name, int i,
                                   const int64_t **list, int *count);
/* SL_UNSUPPORTED if the attribute (or its default `usual`) is not `needed`. */
enum sl_status sl__onnx_must_be(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                const char *name, int64_t usual, int64_t needed);
/* The number of an axis, counted from the front. SL_BAD_FILE if there is no such axis. */
enum sl_status sl__onnx_axis(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                             int64_t axis, int ndim, int *found);
/* Refuses a slice whose start or end is the batch's size. */
enum sl_status sl__onnx_check_range(const struct sl__onnx_reader *r,
                                    const struct sl__onnx_node *node, int64_t start, int64_t end);

/* ---- nodes (onnx_constant.c, onnx_operators.c) ---- */

/* Folds a node whose inputs are all constants. *folded: its output is a constant now. */
enum sl_status sl__onnx_fold(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                             bool *folded);
/* Makes the result of a Shape node: dim[0 to ndim - 1], or the part that its attributes say. */
enum sl_status sl__onnx_list_shape(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                   const int64_t *dim, int ndim, struct sl__onnx_tensor *y);
/* Nodes that take one of several layers' joined last states take the layer's own instead
 * (onnx_recurrent.c). */
enum sl_status sl__onnx_pick_states(struct sl__onnx_reader *r);
/* Appends the layers for a node. SL_UNSUPPORTED names the part that no layer has. */
enum sl_status sl__onnx_operator(struct sl__onnx_reader *r, const struct sl__onnx_node *node);

/* ---- layers (onnx_append.c) ---- */

/* Does a layer have the name, or none may? */
bool sl__onnx_is_taken(const struct sl_model *model, const char *name);
/* Appends a layer with 1 to SL__MOST_INPUTS inputs, named after the weight or the node. */
enum sl_status sl__onnx_append(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                               const char *weight, const struct sl__layer_kind *kind, void *options,
                               const struct sl__onnx_value *inputs, int count);
/* Sets a parameter of the last layer, from the whole tensor or as `how` says. SL_BAD_FILE if the
 * sizes differ. */
enum sl_status sl__onnx_set(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                            const char *suffix, const float *values, int64_t count,
                            const struct sl__onnx_setting *how);

#endif
