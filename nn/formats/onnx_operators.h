/* How ONNX's operators become layers: a table (onnx_operators.c), and a reader for each operator,
 * grouped into files. What ONNX has and no layer does is refused with the node's name. */
#ifndef SL_NN_FORMATS_ONNX_OPERATORS_H
#define SL_NN_FORMATS_ONNX_OPERATORS_H

#include "nn/formats/onnx_read.h"

typedef struct sl__onnx_reader reader;
typedef struct sl__onnx_node node_of;
typedef struct sl__onnx_value value_of;

enum {
  SL__ONNX_MOST = 1 << 20
}; /* of a kernel, a stride, a padding and a recurrent layer's size */

/* ---- onnx_operands.c ---- */

/* The layer's output as it is, before reshapes. */
const struct sl_shape *sl__onnx_shape_of(const reader *r, const value_of *v);
/* Input i, which must be a layer's output. */
enum sl_status sl__onnx_take(const reader *r, const node_of *node, int i, value_of *v);
/* The same, and it is no gelu in its parts. */
enum sl_status sl__onnx_take_plain(const reader *r, const node_of *node, int i, value_of *v);
/* The same, of the layer's own shape, the batch's axis first. */
enum sl_status sl__onnx_take_whole(const reader *r, const node_of *node, int i, value_of *v);
/* Of f32; ndim below 0: any. */
enum sl_status sl__onnx_take_weight(const reader *r, const node_of *node, int i, int ndim,
                                    const struct sl__onnx_tensor **weight);
enum sl_status sl__onnx_give_first(reader *r, const node_of *node, const value_of *as);
/* Another name for a layer's output, changed in view, order or factor. */
enum sl_status sl__onnx_rename_to(reader *r, const node_of *node, const value_of *v);

/* ---- onnx_elementwise.c ---- */

/* The node that alone takes the named value; NULL: none, or several. */
const node_of *sl__onnx_only_user(const reader *r, const char *name);
/* In a file of ours "fc/relu" is fused with fc, and a layer of its own has a name of its own. */
bool sl__onnx_belongs(const reader *r, const node_of *part, const node_of *layer);
/* The activation after a layer's last node that can be fused into it: *last becomes its node. */
enum sl_activation sl__onnx_fuse(reader *r, const node_of *layer, const node_of **last);
enum sl_status sl__onnx_read_activation(reader *r, const node_of *node);
enum sl_status sl__onnx_read_mul(reader *r, const node_of *node);
enum sl_status sl__onnx_read_erf(reader *r, const node_of *node);
enum sl_status sl__onnx_read_add(reader *r, const node_of *node);

/* ---- onnx_windows.c ---- */

/* A bias, or none: *values NULL. */
enum sl_status sl__onnx_read_bias(const reader *r, const node_of *node, int i, int64_t count,
                                  const float **values);
enum sl_status sl__onnx_read_conv(reader *r, const node_of *node);
enum sl_status sl__onnx_read_pool(reader *r, const node_of *node);
enum sl_status sl__onnx_read_global(reader *r, const node_of *node);
/* Over the whole plane of [C, H, W]: as a newer exporter writes a global average. */
enum sl_status sl__onnx_read_mean(reader *r, const node_of *node);

/* ---- onnx_weights.c ---- */

enum sl_status sl__onnx_read_batchnorm(reader *r, const node_of *node);
enum sl_status sl__onnx_read_gemm(reader *r, const node_of *node);
enum sl_status sl__onnx_read_matmul(reader *r, const node_of *node);
enum sl_status sl__onnx_read_gather(reader *r, const node_of *node);
enum sl_status sl__onnx_read_dropout(reader *r, const node_of *node);

/* ---- onnx_recurrent.c ---- */

enum sl_status sl__onnx_read_cell(reader *r, const node_of *node);

/* ---- onnx_views.c ---- */

enum sl_status sl__onnx_read_shape(reader *r, const node_of *node);
enum sl_status sl__onnx_read_identity(reader *r, const node_of *node);
enum sl_status sl__onnx_read_transpose(reader *r, const node_of *node);
enum sl_status sl__onnx_read_reshape(reader *r, const node_of *node);
enum sl_status sl__onnx_read_flatten(reader *r, const node_of *node);
/* Out go axes of 1, of a sample or that of directions. */
enum sl_status sl__onnx_read_squeeze(reader *r, const node_of *node);
enum sl_status sl__onnx_read_unsqueeze(reader *r, const node_of *node);

#endif
