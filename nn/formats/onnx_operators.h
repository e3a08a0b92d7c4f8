/* ONNX's operators as layers: a table (onnx_operators.c), and a reader for each operator, grouped
 * into files. An operator, or a part of it, that no layer has is refused with the node's name. */
#ifndef SL_NN_FORMATS_ONNX_OPERATORS_H
#define SL_NN_FORMATS_ONNX_OPERATORS_H

#include "nn/formats/onnx_read.h"

typedef struct sl__onnx_reader reader;
typedef struct sl__onnx_node node_of;
typedef struct sl__onnx_value value_of;

enum {
  SL__ONNX_MOST = 1 << 20
}; /* largest kernel, stride, padding and size of a recurrent layer */

/* ---- onnx_operands.c ---- */

/* Shape of the layer's output, before reshapes. */
const struct sl_shape *sl__onnx_shape_of(const reader *r, const value_of *v);
/* Takes input i, which must be a layer's output. */
enum sl_status sl__onnx_take(const reader *r, const node_of *node, int i, value_of *v);
/* The same; the value must not be an unfinished gelu. */
enum sl_status sl__onnx_take_plain(const reader *r, const node_of *node, int i, value_of *v);
/* The same; the batch's axis must be the first. A reshaped output becomes a layer's. */
enum sl_status sl__onnx_take_whole(reader *r, const node_of *node, int i, value_of *v);
/* Takes a constant of f32 with ndim dimensions; ndim below 0: any number. */
enum sl_status sl__onnx_take_weight(const reader *r, const node_of *node, int i, int ndim,
                                    const struct sl__onnx_tensor **weight);
enum sl_status sl__onnx_give_first(reader *r, const node_of *node, const value_of *as);
/* Defines another name for a layer's output, with another view, order or factor. */
enum sl_status sl__onnx_rename_to(reader *r, const node_of *node, const value_of *v);

/* ---- onnx_elementwise.c ---- */

/* The only node that takes the named value; NULL if there is none, or several. */
const node_of *sl__onnx_only_user(const reader *r, const char *name);
/* May the part be fused with the layer? In Starling's own files only "fc/relu" belongs to "fc"; a
 * separate layer has a name of its own. */
bool sl__onnx_belongs(const reader *r, const node_of *part, const node_of *layer);
/* The activation after a layer's last node, if it can be fused into the layer: *last becomes its
 * node. */
enum sl_activation sl__onnx_fuse(reader *r, const node_of *layer, const node_of **last);
/* Appends an activation layer, named after the node. */
enum sl_status sl__onnx_append_activation(reader *r, const node_of *node,
                                          enum sl_activation activation, const value_of *x);
/* The value of a constant input that has exactly one, and no more axes than the value of the name,
 * to which it is added, say; false: it is no such input. */
bool sl__onnx_number(const reader *r, const node_of *node, int i, const char *name, float *value);
enum sl_status sl__onnx_read_activation(reader *r, const node_of *node);
enum sl_status sl__onnx_read_mul(reader *r, const node_of *node);
enum sl_status sl__onnx_read_erf(reader *r, const node_of *node);
enum sl_status sl__onnx_read_add(reader *r, const node_of *node);

/* ---- onnx_activations.c ---- */

/* The activation of several nodes behind a layer of the library's own file: sl__onnx_fuse. */
enum sl_activation sl__onnx_fuse_parts(reader *r, const node_of *layer, const node_of **last);
/* An activation of several nodes that begins with this one. *found: it was one. */
enum sl_status sl__onnx_read_parts(reader *r, const node_of *node, bool *found);
enum sl_status sl__onnx_read_pow(reader *r, const node_of *node);
/* A gated linear unit: Split, then silu of the first half times the second one; else slices. */
enum sl_status sl__onnx_read_split(reader *r, const node_of *node);
/* The same with a SequenceAt for each part. */
enum sl_status sl__onnx_read_split_sequence(reader *r, const node_of *node);

/* ---- onnx_windows.c ---- */

/* Reads a bias; *values NULL: there is none. */
enum sl_status sl__onnx_read_bias(const reader *r, const node_of *node, int i, int64_t count,
                                  const float **values);
enum sl_status sl__onnx_read_conv(reader *r, const node_of *node);
enum sl_status sl__onnx_read_conv_transpose(reader *r, const node_of *node);
enum sl_status sl__onnx_read_pool(reader *r, const node_of *node);
enum sl_status sl__onnx_read_global(reader *r, const node_of *node);

/* Resize, and the older Upsample. */
enum sl_status sl__onnx_read_resize(reader *r, const node_of *node);

/* ---- onnx_axes.c ---- */

/* Appends a layer that makes the values of a reshaped output, if it is reshaped: v is that layer's
 * output then. */
enum sl_status sl__onnx_make_view(reader *r, const node_of *node, value_of *v);
/* Appends a permute layer; axes are the sample's, ndim of them. The next nodes see its output in
 * that order. */
enum sl_status sl__onnx_append_permute(reader *r, const node_of *node, value_of *x, const int *axes,
                                       enum sl__onnx_order order);
enum sl_status sl__onnx_read_concat(reader *r, const node_of *node);
enum sl_status sl__onnx_read_slice(reader *r, const node_of *node);
/* Split of a sample along an axis: a slice for each output that a node takes. */
enum sl_status sl__onnx_append_parts(reader *r, const node_of *node);
/* Gather with one constant index: a slice of size 1, whose axis goes. */
enum sl_status sl__onnx_read_pick(reader *r, const node_of *node);
/* The mean over the whole plane of [C, H, W] is a global average: newer exporters write it so. */
enum sl_status sl__onnx_read_mean(reader *r, const node_of *node);

/* ---- onnx_weights.c ---- */

enum sl_status sl__onnx_read_batchnorm(reader *r, const node_of *node);
enum sl_status sl__onnx_read_gemm(reader *r, const node_of *node);
enum sl_status sl__onnx_read_matmul(reader *r, const node_of *node);
enum sl_status sl__onnx_read_gather(reader *r, const node_of *node);
enum sl_status sl__onnx_read_dropout(reader *r, const node_of *node);

/* ---- onnx_norms.c ---- */

/* The attribute as the layers' option, of which 0 is the default. */
enum sl_status sl__onnx_get_epsilon(const reader *r, const node_of *node, float *epsilon);

/* LayerNormalization and RMSNormalization. */
enum sl_status sl__onnx_read_layernorm(reader *r, const node_of *node);
enum sl_status sl__onnx_read_groupnorm(reader *r, const node_of *node);
/* Also group normalisation, as exporters write it: Reshape, InstanceNormalization, Reshape, Mul,
 * Add.
 */
enum sl_status sl__onnx_read_instancenorm(reader *r, const node_of *node);
/* x / sqrt(mean(x^2) + epsilon), from its parts; node: the square, a Mul or a Pow. *found: it was
 * one. */
enum sl_status sl__onnx_read_rms(reader *r, const node_of *node, const value_of *x, bool *found);

/* Layer normalisation from its parts; mean: the ReduceMean of x. *found: it was one. */
enum sl_status sl__onnx_read_centred(reader *r, const node_of *mean, const value_of *x,
                                     bool *found);

/* ---- onnx_recurrent.c ---- */

enum sl_status sl__onnx_read_cell(reader *r, const node_of *node);

/* ---- onnx_views.c ---- */

/* The shape in which a Reshape node shows samples x; false if its shape is no constant that keeps
 * the batch's axis apart. */
bool sl__onnx_find_view(const reader *r, const node_of *node, const value_of *x,
                        struct sl_shape *view);
enum sl_status sl__onnx_read_shape(reader *r, const node_of *node);
enum sl_status sl__onnx_read_identity(reader *r, const node_of *node);
enum sl_status sl__onnx_read_cast_like(reader *r, const node_of *node);
enum sl_status sl__onnx_read_transpose(reader *r, const node_of *node);
enum sl_status sl__onnx_read_reshape(reader *r, const node_of *node);
enum sl_status sl__onnx_read_flatten(reader *r, const node_of *node);
/* Removes axes of size 1 from a sample, or the axis of directions. */
enum sl_status sl__onnx_read_squeeze(reader *r, const node_of *node);
enum sl_status sl__onnx_read_unsqueeze(reader *r, const node_of *node);

#endif
