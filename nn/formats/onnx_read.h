/* What the readers of an ONNX graph share: its names, and the model that grows out of it. */
#ifndef SL_NN_FORMATS_ONNX_READ_H
#define SL_NN_FORMATS_ONNX_READ_H

#include "nn/formats/onnx.h"

/* In a constant that says shapes: the batch's size, which is not known. */
#define SL__ONNX_BATCH INT64_MIN

/* Where the batch's axis is: PyTorch's recurrent layers turn it behind the time's. */
enum sl__onnx_order {
  SL__ONNX_BATCH_FIRST,
  SL__ONNX_TIME_FIRST,     /* [T, N, ...] */
  SL__ONNX_TIME_DIRECTION, /* [T, 1, N, ...], as a recurrent operator gives it */
  SL__ONNX_TIME_BATCH_DIRECTION,
  SL__ONNX_ORDERS
};

/* The value of a name: a constant, or a layer's output x (the model's input: SL__INPUT). A gelu
 * that comes in its parts is seen by factor * (x or 1) * (1, erf or 1 + erf)(x / sqrt 2). */
struct sl__onnx_value {
  const char *name; /* NULL: a free place of the table */
  enum { SL__ONNX_NOTHING, SL__ONNX_CONSTANT, SL__ONNX_OUTPUT } is;
  const struct sl__onnx_tensor *constant;
  int layer;
  struct sl_shape view; /* of a sample, after reshapes; the values are the layer's, in order */
  enum sl__onnx_order order;
  float factor;
  bool has_x;
  enum { SL__ONNX_PLAIN, SL__ONNX_ERF, SL__ONNX_ONE_AND_ERF } erf;
  int uses, user; /* how many take it; the first node in the file that does, -1: the graph's end */
};

/* Where the values of a parameter come from. */
struct sl__onnx_setting {
  int layer, part;
  bool is_buffer;
  const float *values; /* NULL: zeros */
  int64_t columns;     /* above 0: values is the transpose, with this number of rows */
  const char *gates;   /* which of the file's gates each of ours is, digits; NULL: as they lie */
  const struct sl__onnx_tensor *matrix; /* a weight that a dense layer may share; NULL: none such */
  bool turned;                          /* that matrix is the weight's transpose */
};

struct sl__onnx_reader {
  struct sl__onnx_graph graph;
  struct sl_model *model;
  bool own;      /* the library's own writer made the file */
  bool tokens;   /* the input are whole numbers */
  int64_t batch; /* that the file was made for; 0: any */
  struct sl__onnx_value *table;
  size_t places; /* a power of 2 */
  bool *needed, *done;
  struct sl__onnx_setting *settings;
  int setting_count, setting_room;
  int number; /* the next behind a name that is taken; only grows, so that it is soon found */
  size_t parameter_bytes, most_parameters;
  const struct sl__onnx_tensor *embedding; /* the weight of the first embedding */
  int embedding_layer;
};

/* "FILE: node NAME (OP): ..." */
enum sl_status sl__onnx_refuse(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                               enum sl_status status, const char *format, ...) SL_PRINTF(4, 5);

/* ---- names ---- */

/* NULL where no such name was seen. */
struct sl__onnx_value *sl__onnx_find(const struct sl__onnx_reader *r, const char *name);
/* The constant that input i is, NULL: none, or it is no constant. */
const struct sl__onnx_tensor *sl__onnx_constant(const struct sl__onnx_reader *r,
                                                const struct sl__onnx_node *node, int i);
/* Is there such an input? */
bool sl__onnx_has(const struct sl__onnx_node *node, int i);
/* A name gets its meaning, once: SL_BAD_FILE. */
enum sl_status sl__onnx_define(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                               const char *name, const struct sl__onnx_value *value);

/* ---- attributes: SL_BAD_FILE where one is of another type ---- */

enum sl_status sl__onnx_get_whole(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                  const char *name, int64_t usual, int64_t *whole);
enum sl_status sl__onnx_get_real(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                 const char *name, float usual, float *real);
/* NULL where there is none. */
enum sl_status sl__onnx_get_text(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                 const char *name, const char **text);
enum sl_status sl__onnx_get_list(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                 const char *name, const int64_t **list, int *count);
/* A list that is an attribute, or from some operator set on input i; NULL where there is none. */
enum sl_status sl__onnx_get_either(const struct sl__onnx_reader *r,
                                   const struct sl__onnx_node *node, const char *name, int i,
                                   const int64_t **list, int *count);
/* SL_UNSUPPORTED where it is not as needed. */
enum sl_status sl__onnx_must_be(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                const char *name, int64_t usual, int64_t needed);
/* An axis from the front. SL_BAD_FILE. */
enum sl_status sl__onnx_axis(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                             int64_t axis, int ndim, int *found);

/* ---- nodes ---- */

/* A node whose inputs are all constants: *folded says whether it has become one, too. */
enum sl_status sl__onnx_fold(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                             bool *folded);
/* Append the layers that the node stands for. SL_UNSUPPORTED names what is not had. */
enum sl_status sl__onnx_operator(struct sl__onnx_reader *r, const struct sl__onnx_node *node);

/* Append a layer of these inputs (second: NULL), called after the weight's name or the node's. */
enum sl_status sl__onnx_append(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                               const char *weight, const struct sl__layer_kind *kind, void *options,
                               const struct sl__onnx_value *first,
                               const struct sl__onnx_value *second);
/* The last layer's parameter is the tensor, or the part of it that `how` names. SL_BAD_FILE if
 * they differ in size. */
enum sl_status sl__onnx_set(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                            const char *suffix, const float *values, int64_t count,
                            const struct sl__onnx_setting *how);

#endif
