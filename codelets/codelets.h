/* Every operation, in one page. Each function submits one task and returns; shapes are in brackets.
 * `l` gives the task's place, priority and name, and whether the result is added to the output
 * (l->accumulate, where "(+)=" is written) or overwrites it. The function reads sizes from the
 * tensors' shapes and checks them: SL_BAD_SHAPE.
 *
 * A layer's parameters are one flat tensor, weight first, then bias; so is its gradient. */
#ifndef SL_CODELETS_CODELETS_H
#define SL_CODELETS_CODELETS_H

#include "core/runtime/submit.h"
#include <starling/layer.h>
#include <starling/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The rows of ops.def, as sl__op_add and so on. */
#define SL__OP(name, modes, where) extern struct sl__op sl__op_##name;
#include "codelets/ops.def"
#undef SL__OP

/* Dense: y = act(x W^T + b). x [N, I] (further axes count as one), param W [O, I] then b [O] (or
 * none: has_bias false), y [N, O]; or x [N, T..., I], y [N, T..., O], each position alike. The
 * activation is fused. */
enum sl_status sl__dense_forward(struct sl_context *context, const struct sl__launch *l,
                                 struct sl__tensor *x, struct sl__tensor *param,
                                 struct sl__tensor *y, bool has_bias,
                                 enum sl_activation activation);
/* The same with weight [O, I] and bias [O] in separate tensors: the weight belongs to another
 * layer, too. */
enum sl_status sl__dense_shared_forward(struct sl_context *context, const struct sl__launch *l,
                                        struct sl__tensor *x, struct sl__tensor *weight,
                                        struct sl__tensor *bias, struct sl__tensor *y,
                                        enum sl_activation activation);
/* The same two, which leave x W^T + b in `saved` (y's shape) for the backward pass of an activation
 * that needs it (sl__activation_saves_input); saved NULL: they do not. */
enum sl_status sl__dense_forward_saving(struct sl_context *context, const struct sl__launch *l,
                                        struct sl__tensor *x, struct sl__tensor *param,
                                        struct sl__tensor *y, struct sl__tensor *saved,
                                        bool has_bias, enum sl_activation activation);
enum sl_status sl__dense_shared_forward_saving(struct sl_context *context,
                                               const struct sl__launch *l, struct sl__tensor *x,
                                               struct sl__tensor *weight, struct sl__tensor *bias,
                                               struct sl__tensor *y, struct sl__tensor *saved,
                                               enum sl_activation activation);
/* grad [O] (+)= the sum of dy's rows [..., O]. */
enum sl_status sl__bias_backward(struct sl_context *context, const struct sl__launch *l,
                                 struct sl__tensor *dy, struct sl__tensor *grad);
/* dx (+)= dy W */
enum sl_status sl__dense_backward_data(struct sl_context *context, const struct sl__launch *l,
                                       struct sl__tensor *dy, struct sl__tensor *param,
                                       struct sl__tensor *dx);
/* grad (+)= [dy^T x, column sums of dy] */
enum sl_status sl__dense_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                         struct sl__tensor *x, struct sl__tensor *dy,
                                         struct sl__tensor *grad, bool has_bias);

/* 2-D convolution (cross-correlation as in PyTorch; a sample may also be [C, L], a plane of one
 * row, here and in pooling): x [N, C, H, W], param weight [K, C, R, S] then bias [K], y [N, K, H',
 * W'], H' = (H + 2 pad_h - R) / stride_h + 1. */
struct sl__conv2d {
  int channels, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w; /* channels: K */
  bool has_bias;
  enum sl_activation activation; /* fused: NONE, RELU, TANH, SIGMOID */
};
enum sl_status sl__conv2d_forward(struct sl_context *context, const struct sl__launch *l,
                                  struct sl__tensor *x, struct sl__tensor *param,
                                  struct sl__tensor *y, const struct sl__conv2d *conv);
enum sl_status sl__conv2d_backward_data(struct sl_context *context, const struct sl__launch *l,
                                        struct sl__tensor *dy, struct sl__tensor *param,
                                        struct sl__tensor *dx, const struct sl__conv2d *conv);
enum sl_status sl__conv2d_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                          struct sl__tensor *x, struct sl__tensor *dy,
                                          struct sl__tensor *grad, const struct sl__conv2d *conv);

/* The same with groups (weight [K, C / groups, R, S]; K and C are multiples of groups) and dilation
 * (a tap every dilation-th pixel), each at least 1. transposed: x [N, C, H, W] with weight [C, K /
 * groups, R, S] to y [N, K, H', W'], of which the convolution of these options makes [H, W]. */
struct sl__groupconv2d {
  struct sl__conv2d conv;
  int groups, dilation_h, dilation_w;
  bool transposed;
};
enum sl_status sl__groupconv2d_forward(struct sl_context *context, const struct sl__launch *l,
                                       struct sl__tensor *x, struct sl__tensor *param,
                                       struct sl__tensor *y, const struct sl__groupconv2d *conv);
enum sl_status sl__groupconv2d_backward_data(struct sl_context *context, const struct sl__launch *l,
                                             struct sl__tensor *dy, struct sl__tensor *param,
                                             struct sl__tensor *dx,
                                             const struct sl__groupconv2d *conv);
enum sl_status sl__groupconv2d_backward_weight(struct sl_context *context,
                                               const struct sl__launch *l, struct sl__tensor *x,
                                               struct sl__tensor *dy, struct sl__tensor *grad,
                                               const struct sl__groupconv2d *conv);

/* Pooling over windows: x [N, C, H, W] -> y [N, C, H', W']. index [N, C, H', W'] i32: where in the
 * H W plane the maximum was (the first one). Average: padding counts as zeros and in the divisor
 * (PyTorch's default). */
struct sl__pool2d {
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
};
enum sl_status sl__maxpool2d_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *x, struct sl__tensor *y,
                                     struct sl__tensor *index, const struct sl__pool2d *pool);
enum sl_status sl__maxpool2d_backward(struct sl_context *context, const struct sl__launch *l,
                                      struct sl__tensor *dy, struct sl__tensor *index,
                                      struct sl__tensor *dx, const struct sl__pool2d *pool);
enum sl_status sl__avgpool2d_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *x, struct sl__tensor *y,
                                     const struct sl__pool2d *pool);
enum sl_status sl__avgpool2d_backward(struct sl_context *context, const struct sl__launch *l,
                                      struct sl__tensor *dy, struct sl__tensor *dx,
                                      const struct sl__pool2d *pool);

/* Upsampling by whole factors: x [N, C, H, W] -> y [N, C, H scale_h, W scale_w], nearest or
 * bilinear (PyTorch's align_corners=False). [N, C, L] are planes of one row. */
struct sl__upsample2d {
  int scale_h, scale_w;
  bool bilinear;
};
enum sl_status sl__upsample2d_forward(struct sl_context *context, const struct sl__launch *l,
                                      struct sl__tensor *x, struct sl__tensor *y,
                                      const struct sl__upsample2d *options);
/* dx (+)= */
enum sl_status sl__upsample2d_backward(struct sl_context *context, const struct sl__launch *l,
                                       struct sl__tensor *dy, struct sl__tensor *dx,
                                       const struct sl__upsample2d *options);

/* y = act(x), elementwise, any shape. */
enum sl_status sl__activation_forward(struct sl_context *context, const struct sl__launch *l,
                                      struct sl__tensor *x, struct sl__tensor *y,
                                      enum sl_activation activation);
/* dx (+)= act' dy. saved is y for relu, tanh, sigmoid and x for gelu, gelu_tanh and silu
 * (sl__activation_saves_input). */
bool sl__activation_saves_input(enum sl_activation activation);
enum sl_status sl__activation_backward(struct sl_context *context, const struct sl__launch *l,
                                       struct sl__tensor *saved, struct sl__tensor *dy,
                                       struct sl__tensor *dx, enum sl_activation activation);
/* dy *= act', in place: the backward of a fused activation; saved as in activation_backward. */
enum sl_status sl__activation_backward_inplace(struct sl_context *context,
                                               const struct sl__launch *l, struct sl__tensor *saved,
                                               struct sl__tensor *dy,
                                               enum sl_activation activation);

/* y [N, T..., F] = silu(gate) up; x [N, T..., 2 F]: rows of F values gate, F values up. */
enum sl_status sl__swiglu_forward(struct sl_context *context, const struct sl__launch *l,
                                  struct sl__tensor *x, struct sl__tensor *y);
/* dx (+)=, from x: nothing is saved. */
enum sl_status sl__swiglu_backward(struct sl_context *context, const struct sl__launch *l,
                                   struct sl__tensor *x, struct sl__tensor *dy,
                                   struct sl__tensor *dx);

/* y[n, t] = x[n, t] + table[first + t]; x, y [N, T, C], table [length, C]. SL_BAD_ARGUMENT if the
 * table ends before the last time step. */
enum sl_status sl__position_forward(struct sl_context *context, const struct sl__launch *l,
                                    struct sl__tensor *x, struct sl__tensor *table,
                                    struct sl__tensor *y, int64_t first);
/* grad[first + t] (+)= the sum of dy[n, t] over n, in the order of n; other rows (+)= 0. */
enum sl_status sl__position_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                            struct sl__tensor *dy, struct sl__tensor *grad,
                                            int64_t first);

/* Batch normalisation over N and the axes after C (Ioffe, Szegedy, arXiv 1502.03167): x [N, C,
 * ...], param gamma [C] then beta [C], saved [4C]: the batch's mean, 1 / sqrt(variance + epsilon),
 * and after batchnorm_backward_sums the sums of dy and of dy (x - mean); running [2C]: running
 * mean, then running variance (unbiased), as PyTorch's. has_relu: y is the relu of the normalised
 * values, and dy the gradient of that y. */
enum sl_status sl__batchnorm_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *x, struct sl__tensor *param,
                                     struct sl__tensor *y, struct sl__tensor *saved, float epsilon,
                                     bool has_relu);
enum sl_status sl__batchnorm_inference(struct sl_context *context, const struct sl__launch *l,
                                       struct sl__tensor *x, struct sl__tensor *param,
                                       struct sl__tensor *running, struct sl__tensor *y,
                                       float epsilon, bool has_relu);
/* Both gradients need the sums first. dx (+)=, grad [2C] (+)=. */
enum sl_status sl__batchnorm_backward_sums(struct sl_context *context, const struct sl__launch *l,
                                           struct sl__tensor *x, struct sl__tensor *param,
                                           struct sl__tensor *saved, struct sl__tensor *dy,
                                           bool has_relu);
enum sl_status sl__batchnorm_backward_data(struct sl_context *context, const struct sl__launch *l,
                                           struct sl__tensor *x, struct sl__tensor *param,
                                           struct sl__tensor *saved, struct sl__tensor *dy,
                                           struct sl__tensor *dx, bool has_relu);
enum sl_status sl__batchnorm_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                             struct sl__tensor *saved, struct sl__tensor *grad);
/* running = (1 - momentum) running + momentum batch's; values: the number of values behind each
 * channel's statistics. */
enum sl_status sl__batchnorm_running(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *saved, struct sl__tensor *running,
                                     float momentum, float epsilon, int64_t values);
/* saved [4C] = running's statistics and sums of 0: batchnorm_backward_data then gives the gradient
 * of batchnorm_inference. */
enum sl_status sl__batchnorm_take_running(struct sl_context *context, const struct sl__launch *l,
                                          struct sl__tensor *running, struct sl__tensor *saved,
                                          float epsilon);

/* Normalisation of each sample alone, by rows of `size` values with statistics of their own; x [N,
 * ...], each sample of sample / size rows. Layer normalisation (arXiv 1607.06450): size is the
 * product of the last axes, groups 1, params = size. Group normalisation (arXiv 1803.08494) of C
 * channels: groups G, params C, size the values of a group; with G = C it is instance normalisation
 * (arXiv 1607.08022). param gamma [params] then beta [params], or NULL: 1 and 0. rms (arXiv
 * 1910.07467): the mean is not subtracted, and there is no beta. */
struct sl__layernorm {
  int64_t size, groups, params;
  float epsilon;
  bool rms;
};
enum sl_status sl__layernorm_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *x, struct sl__tensor *param,
                                     struct sl__tensor *y, const struct sl__layernorm *options);
enum sl_status sl__layernorm_backward_data(struct sl_context *context, const struct sl__launch *l,
                                           struct sl__tensor *x, struct sl__tensor *param,
                                           struct sl__tensor *dy, struct sl__tensor *dx,
                                           const struct sl__layernorm *options);
/* grad [params], and [params] of beta, (+)= */
enum sl_status sl__layernorm_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                             struct sl__tensor *x, struct sl__tensor *dy,
                                             struct sl__tensor *grad,
                                             const struct sl__layernorm *options);

/* y = x / (1 - rate) if kept, else 0. Whether element i is kept depends on (seed, stream, step,
 * first + i) only, so replicas drop the same elements as one device would; the backward pass draws
 * the same numbers again. If run is not 0, the index skips by stride after each run of `run`
 * elements: for a part of each row. */
struct sl__dropout {
  float rate;
  uint64_t seed, stream, first;
  uint64_t step; /* of the training: each has numbers of its own */
  int64_t run, stride;
};
enum sl_status sl__dropout_forward(struct sl_context *context, const struct sl__launch *l,
                                   struct sl__tensor *x, struct sl__tensor *y,
                                   const struct sl__dropout *dropout);
enum sl_status sl__dropout_backward(struct sl_context *context, const struct sl__launch *l,
                                    struct sl__tensor *dy, struct sl__tensor *dx,
                                    const struct sl__dropout *dropout);

/* Causal attention: y = softmax(q k^T / sqrt(D)) v, of the keys up to the query's position. x [N,
 * T, (H + 2 Hkv) D]: the queries of all heads, then the keys, then the values; each run of H / Hkv
 * heads shares a key and a value (Ainslie et al., arXiv 2305.13245). y [N, T, H D]; lse [N, T, H]
 * f32: the logarithm of each softmax's sum, for the backward half.
 * state [N, context, 2 Hkv D] f32 holds the keys and the values of a sequence's steps so far: step
 * 0 of x is the step `position`, forward adds T steps, and queries read all up to their own. NULL:
 * x has the whole sequence. dstate, of the same shape, goes from the gradient of the steps' keys
 * and values by later queries to that by these queries, too; chunks come in the opposite order.
 * rope_dims of a head's values, 0: none, are turned by the position in pairs (i, i + rope_dims / 2)
 * (rotary position embedding, arXiv 2104.09864), as in Hugging Face's models.
 * dropout: of the probabilities; `first` is the number of row 0 in the batch. run and stride have
 * no meaning. A number depends on row, head, query and key only. */
struct sl__attention {
  int heads, kv_heads, rope_dims;
  float rope_base;
  int64_t position;
  int64_t context; /* the longest sequence */
  struct sl__dropout dropout;
};
enum sl_status sl__attention_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *x, struct sl__tensor *y,
                                     struct sl__tensor *lse, struct sl__tensor *state,
                                     const struct sl__attention *options);
/* dx (+)= */
enum sl_status sl__attention_backward(struct sl_context *context, const struct sl__launch *l,
                                      struct sl__tensor *x, struct sl__tensor *y,
                                      struct sl__tensor *lse, struct sl__tensor *dy,
                                      struct sl__tensor *dx, struct sl__tensor *state,
                                      struct sl__tensor *dstate,
                                      const struct sl__attention *options);

/* y[n] = table[tokens[n]]; tokens [N...] i32, param [V, D], y [N..., D]. A token outside 0..V-1
 * gives NaN, which the loss check reports. y may have fewer positions [N, T', D] than the tokens
 * [N, T]: it then covers the positions from `from` on. */
enum sl_status sl__embedding_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *tokens, struct sl__tensor *param,
                                     struct sl__tensor *y, int64_t vocabulary, int64_t from);
/* grad[tokens[n]] (+)= dy[n], in the order of n */
enum sl_status sl__embedding_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                             struct sl__tensor *tokens, struct sl__tensor *dy,
                                             struct sl__tensor *grad, int64_t vocabulary,
                                             int64_t from);
/* The same as a row-sparse gradient (rows.c), which has at most as many rows as there are tokens.
 */
enum sl_status sl__embedding_backward_rows(struct sl_context *context, const struct sl__launch *l,
                                           struct sl__tensor *tokens, struct sl__tensor *dy,
                                           struct sl__tensor *rows, struct sl__tensor *values,
                                           int64_t vocabulary, int64_t from);

/* Row-sparse gradients of a table [table, D]: rows [1 + capacity] (i32), values [capacity, D]. */
/* The terms' sum, in their order. */
enum sl_status sl__rows_reduce(struct sl_context *context, const struct sl__launch *l,
                               struct sl__tensor *rows, struct sl__tensor *values, int count,
                               struct sl__tensor *const *term_rows,
                               struct sl__tensor *const *term_values, int64_t table);
/* sum [1] = the sum of their squares. */
enum sl_status sl__rows_square(struct sl_context *context, const struct sl__launch *l,
                               struct sl__tensor *rows, struct sl__tensor *values,
                               struct sl__tensor *sum);
/* dense [table * D], with zeros elsewhere. */
enum sl_status sl__rows_dense(struct sl_context *context, const struct sl__launch *l,
                              struct sl__tensor *rows, struct sl__tensor *values,
                              struct sl__tensor *dense);

/* LSTM over T time steps, as torch.nn.LSTM (batch first, one layer): x [N, T, I], y [N, T, H];
 * param weight_ih [4H, I], weight_hh [4H, H], bias_ih [4H], bias_hh [4H], the gates in the order i,
 * f, g, o. state [N, 2H]: h then c; the task reads it before the first step and writes it after the
 * last one. saved [N, T, 6H] is for the backward half, whose first task replaces it by the gates'
 * gradients: dstate [N, 2H] goes from the state's gradient after the last step to that before the
 * first. time: a set of enum sl__time (codelets/kernels/recurrent.h). With SL__TIME_BOTH param has
 * the parameters of both directions, one after the other, and each row of y, state and saved has
 * the forward direction's part, then the backward one's. With SL__TIME_LAST y is [N, H] or [N, 2H].
 */
enum sl_status sl__lstm_forward(struct sl_context *context, const struct sl__launch *l,
                                struct sl__tensor *x, struct sl__tensor *param,
                                struct sl__tensor *state, struct sl__tensor *y,
                                struct sl__tensor *saved, int time);
enum sl_status sl__lstm_backward_gates(struct sl_context *context, const struct sl__launch *l,
                                       struct sl__tensor *param, struct sl__tensor *saved,
                                       struct sl__tensor *dy, struct sl__tensor *dstate,
                                       int64_t features, int time);
/* dx (+)= dgates W_ih; dgates is saved after lstm_backward_gates */
enum sl_status sl__lstm_backward_data(struct sl_context *context, const struct sl__launch *l,
                                      struct sl__tensor *dgates, struct sl__tensor *param,
                                      struct sl__tensor *dx, int time);
/* grad (+)= [dgates^T x, dgates^T (h of the step before), column sums twice] */
enum sl_status sl__lstm_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                        struct sl__tensor *x, struct sl__tensor *dgates,
                                        struct sl__tensor *grad, int time);

/* GRU over T time steps, as torch.nn.GRU, in the same four parts: param weight_ih [3H, I],
 * weight_hh [3H, H], bias_ih [3H], bias_hh [3H], the gates in the order r, z, n; state [N, H];
 * saved [N, T, 5H]. */
enum sl_status sl__gru_forward(struct sl_context *context, const struct sl__launch *l,
                               struct sl__tensor *x, struct sl__tensor *param,
                               struct sl__tensor *state, struct sl__tensor *y,
                               struct sl__tensor *saved, int time);
enum sl_status sl__gru_backward_gates(struct sl_context *context, const struct sl__launch *l,
                                      struct sl__tensor *param, struct sl__tensor *saved,
                                      struct sl__tensor *dy, struct sl__tensor *dstate,
                                      int64_t features, int time);
enum sl_status sl__gru_backward_data(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *dgates, struct sl__tensor *param,
                                     struct sl__tensor *dx, int time);
enum sl_status sl__gru_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                       struct sl__tensor *x, struct sl__tensor *dgates,
                                       struct sl__tensor *grad, int time);

/* y = a + b, or relu(a + b) */
enum sl_status sl__add(struct sl_context *context, const struct sl__launch *l, struct sl__tensor *a,
                       struct sl__tensor *b, struct sl__tensor *y, bool has_relu);
/* The same of terms[0] + terms[1] + ..., in that order; count from 2 to 15 */
enum sl_status sl__add_terms(struct sl_context *context, const struct sl__launch *l, int count,
                             struct sl__tensor *const *terms, struct sl__tensor *y, bool has_relu);
/* da (+)= and db (+)= the gradient before the relu; y, dy: behind it. */
enum sl_status sl__add_relu_backward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *y, struct sl__tensor *dy,
                                     struct sl__tensor *da, struct sl__tensor *db);
/* y (+)= factors[0] * factors[1] * ..., in that order; count from 2 to 15 */
enum sl_status sl__multiply(struct sl_context *context, const struct sl__launch *l, int count,
                            struct sl__tensor *const *factors, struct sl__tensor *y);
/* The same of factors that broadcast: y (+)= sums of their product over the axes that y lacks. The
 * first factor has all axes. The others and y lack an axis of a sample if it is 1 there, or if they
 * have fewer axes: then the first ones (NumPy's rule). Sums have a fixed order. count from 1 */
enum sl_status sl__multiply_broadcast(struct sl_context *context, const struct sl__launch *l,
                                      int count, struct sl__tensor *const *factors,
                                      struct sl__tensor *y);
/* Copies that move axes (the batch's is axis 0). y (+)= x with the axes in another order: y's axis
 * d is x's axis axes[d]. */
enum sl_status sl__permute(struct sl_context *context, const struct sl__launch *l,
                           struct sl__tensor *x, struct sl__tensor *y, const int *axes);
/* y (+)= the range of x along the axis that begins at `first`; y's size is the range's. */
enum sl_status sl__slice(struct sl_context *context, const struct sl__launch *l,
                         struct sl__tensor *x, struct sl__tensor *y, int axis, int64_t first);
/* The range of dx (+)= dy; elsewhere dx is 0, or stays if the launch accumulates. */
enum sl_status sl__slice_backward(struct sl_context *context, const struct sl__launch *l,
                                  struct sl__tensor *dy, struct sl__tensor *dx, int axis,
                                  int64_t first);
/* y (+)= x in the opposite order along the axis; its own gradient. */
enum sl_status sl__flip(struct sl_context *context, const struct sl__launch *l,
                        struct sl__tensor *x, struct sl__tensor *y, int axis);
/* y = x[0], x[1], ... one after the other along the axis; count from 1 to 15 */
enum sl_status sl__concatenate(struct sl_context *context, const struct sl__launch *l, int count,
                               struct sl__tensor *const *x, struct sl__tensor *y, int axis);
/* The same of rows, whatever the shapes of a row's values: y [N, ...] (+)= as many values of each
 * row of x [N, ...], from value `first` on; and the other way, as sl__slice_backward; and
 * y [N, ...] = the rows of x[0], x[1], ... one behind the other. */
enum sl_status sl__columns(struct sl_context *context, const struct sl__launch *l,
                           struct sl__tensor *x, struct sl__tensor *y, int64_t first);
enum sl_status sl__columns_backward(struct sl_context *context, const struct sl__launch *l,
                                    struct sl__tensor *dy, struct sl__tensor *dx, int64_t first);
enum sl_status sl__columns_join(struct sl_context *context, const struct sl__launch *l, int count,
                                struct sl__tensor *const *x, struct sl__tensor *y);
/* labels [N, ...] i32 = as many values of each row of targets [N, ...] f32, from value `first` on:
 * NaN becomes SL_IGNORE, and what is no whole number from 0 to SL_MAX_CLASSES - 1 becomes -2, a
 * label outside of any classes. */
enum sl_status sl__labels(struct sl_context *context, const struct sl__launch *l,
                          struct sl__tensor *targets, struct sl__tensor *labels, int64_t first);
/* y = the mean of x over the axes, a mask with bit d for axis d; y has x's other axes. */
enum sl_status sl__mean(struct sl_context *context, const struct sl__launch *l,
                        struct sl__tensor *x, struct sl__tensor *y, uint32_t axes);
/* y (+)= factor x, repeated along the axes (a mask) that x does not have. */
enum sl_status sl__broadcast(struct sl_context *context, const struct sl__launch *l, float factor,
                             struct sl__tensor *x, struct sl__tensor *y, uint32_t axes);
/* y (+)= alpha x: a copy when alpha is 1 and nothing is accumulated */
enum sl_status sl__axpy(struct sl_context *context, const struct sl__launch *l, float alpha,
                        struct sl__tensor *x, struct sl__tensor *y);
enum sl_status sl__fill(struct sl_context *context, const struct sl__launch *l,
                        struct sl__tensor *y, float value);

/* The tensors of a loss. logits: the model's outputs [N, ...]. targets: labels [N] or [N, T] i32,
 * or f32 targets of the outputs' shape. stats [4] f32: sum of the losses; a second count; number of
 * terms of the mean; labels or targets outside the loss's domain, which the caller reports.
 * dlogits, of the outputs' shape: scale times the sum's gradient, 0 for what does not count; NULL:
 * the loss only. Outputs of T' < T time steps (axis 1) cover the targets' steps from `from` on. */
struct sl__loss_task {
  struct sl__tensor *logits, *targets, *stats, *dlogits;
  float scale;
  int64_t from;
  int part; /* of a loss of several parts; else 0 */
};

/* Softmax and cross-entropy in one: logits [N, C] (or [N, T, C]). stats[1]: number of rows whose
 * largest logit is the label's; stats[2]: rows counted; stats[3]: rows with a label outside 0..C-1
 * that is not SL_IGNORE (neither counted nor learned from). smoothing: the target is 1 - smoothing
 * at the label and smoothing / C at each class (Szegedy et al., arXiv 1512.00567). class_weights
 * [C] (NULL: 1): each class's term is multiplied by its weight, as torch.nn.CrossEntropyLoss does.
 */
enum sl_status sl__softmax_xent(struct sl_context *context, const struct sl__launch *l,
                                const struct sl__loss_task *t, float smoothing,
                                struct sl__tensor *class_weights);

/* A dense layer without an activation, at each position, and softmax and cross-entropy of its
 * outputs, in chunks of rows: only a chunk's logits exist at a time, as floats in scratch memory
 * (on a GPU of x's type). x [N, ..., I]; param [O, I], then the biases [O] if has_bias; or `bias`
 * [O] in a tensor of its own. targets, stats, scale, from and part as in struct sl__loss_task,
 * smoothing and class_weights as above. dx of x's shape is written; grad as param, and bias_grad
 * [O] where there is a bias, get the gradient's sum over the chunks in their order (accumulate:
 * added to what they have). dx NULL: the loss only; then grad and bias_grad are NULL, too. */
struct sl__linear_xent {
  struct sl__tensor *x, *param, *bias, *targets, *stats, *dx, *grad, *bias_grad, *class_weights;
  bool has_bias;
  float scale, smoothing;
  int64_t from;
  int part;
};
enum sl_status sl__linear_xent(struct sl_context *context, const struct sl__launch *l,
                               const struct sl__linear_xent *t);
/* The largest number of logits that a chunk holds: a batch with no more gains nothing. */
int64_t sl__linear_xent_limit(void);
/* Bytes of the scratch memory for this number of rows and classes. */
size_t sl__linear_xent_scratch(int64_t rows, int64_t classes);
/* For tests: another limit, for all threads; 0 ends that. */
void sl__linear_xent_force(int64_t logits);

/* Losses that are means over single values; a NaN target does not count. stats[1]: lines (of axis
 * 0) with a target that counts (of their first time steps only); stats[2]: targets that count.
 * delta: SL_LOSS_HUBER's. */
enum sl_status sl__elementwise_loss(struct sl_context *context, const struct sl__launch *l,
                                    const struct sl__loss_task *t, enum sl_loss_kind kind,
                                    float delta);

/* 1 - cos of each row (the last axis) of outputs and targets; a row with a NaN target does not
 * count. stats[1], stats[2]: rows that count. */
enum sl_status sl__cosine_loss(struct sl_context *context, const struct sl__launch *l,
                               const struct sl__loss_task *t);

/* A loss of the program's own, on a CPU of this process, or on a GPU if the program has a function
 * for it and the outputs are floats: rows are those of the last axis, each with a label or a row of
 * targets; one that is SL_IGNORE or has a NaN does not count. stats[1]: with labels, rows whose
 * largest output is the label's, else rows that count; stats[2]: rows that count. */
enum sl_status sl__custom_loss(struct sl_context *context, const struct sl__launch *l,
                               const struct sl__loss_task *t, const struct sl_own_loss *own);

/* sum (+)= terms[0] + terms[1] + ..., in that order: the same bits whichever task finished first.
 */
enum sl_status sl__reduce(struct sl_context *context, const struct sl__launch *l,
                          struct sl__tensor *sum, int count, struct sl__tensor *const *terms);
/* sum [1] = sum of x's squares, in a fixed order, accumulated in double precision */
enum sl_status sl__square_sum(struct sl_context *context, const struct sl__launch *l,
                              struct sl__tensor *x, struct sl__tensor *sum);

/* Gradient compression: 32-bit words for a shard's n values (formats and their sources:
 * compress.c). A value that is not finite stays so after decompression (1bit: the whole shard). */
enum sl__compression {
  SL__COMPRESS_NONE,
  SL__COMPRESS_2BIT,
  SL__COMPRESS_1BIT,
  SL__COMPRESS_FP16,
  SL__COMPRESS_BF16
};
struct sl__compress {
  enum sl__compression method;
  float threshold; /* 2bit; above 0, finite */
};
/* Parses "none", "2bit:0.5" ("2bit" alone has that threshold), "1bit", "fp16", "bf16"; on error
 * returns SL_BAD_ARGUMENT and leaves c as it was. */
enum sl_status sl__compress_parse(const char *text, struct sl__compress *c);
/* The text of which it was parsed, "2bit:0.5". Returns text. */
#define SL__COMPRESS_TEXT 32
const char *sl__compress_text(const struct sl__compress *c, char text[SL__COMPRESS_TEXT]);
/* Words of the packed form of count values: 2bit count / 16, 1bit 2 + count / 32, fp16 and bf16
 * count / 2, all rounded up; none: count. */
int64_t sl__compress_words(const struct sl__compress *c, int64_t count);
/* 2bit and 1bit keep the rest that a step does not send for the next step. */
bool sl__compress_has_residual(const struct sl__compress *c);
/* packed [words] i32 = gradient [n] (2bit, 1bit: gradient + residual; residual [n] receives the
 * rest; zeros before the first step). residual is NULL for fp16 and bf16. SL_BAD_ARGUMENT for none.
 */
enum sl_status sl__compress(struct sl_context *context, const struct sl__launch *l,
                            const struct sl__compress *c, struct sl__tensor *gradient,
                            struct sl__tensor *residual, struct sl__tensor *packed);
/* values [n] (+)= the values that packed [words] encodes; c as in compression. */
enum sl_status sl__decompress(struct sl_context *context, const struct sl__launch *l,
                              const struct sl__compress *c, struct sl__tensor *packed,
                              struct sl__tensor *values);

/* One optimizer step on a shard, by an SL__UPDATE row of ops.def: the gradient is the sum of
 * gradients[0..count-1] in that order; where norm [1] (the square of the global norm) is given, it
 * is scaled by min(1, max_norm / sqrt(norm)). state[0..sl__update_states(op)-1] are of the
 * parameter's size. nn/optimizers.def says which operation is which optimizer's. */
struct sl__update {
  float lr, weight_decay;
  float momentum;
  int nesterov;
  float beta1, beta2, epsilon;
  int decoupled; /* weight decay shrinks the parameter itself, not by the gradient (AdamW) */
  int64_t step;  /* from 1 */
  float max_norm;
  float average;        /* of moving_average: share of the average that stays */
  float lr_factor;      /* lr / the step's rate, of one shard; 0 means 1 */
  int64_t first, count; /* the elements to be updated; count 0: all */
  bool streams;         /* parameters are written by streaming stores (core/base/streaming.h) */
};
enum sl_status sl__update(struct sl_context *context, struct sl__op *op, const struct sl__launch *l,
                          struct sl__tensor *param, struct sl__tensor *const *state, int count,
                          struct sl__tensor *const *gradients, struct sl__tensor *norm,
                          const struct sl__update *update);
int sl__update_states(const struct sl__op *op);

enum { SL__MOST_PARTS = 8 }; /* parameters of a block */

/* The parameters of a layer in a shard, which LAMB moves each by its own norm: elements
 * end[k - 1] .. end[k] - 1 are the k-th's, perhaps none. */
struct sl__update_parts {
  int count;
  int64_t end[SL__MOST_PARTS];
  bool decays[SL__MOST_PARTS]; /* false: it has no weight decay */
};

/* LAMB's step (You et al., arXiv 1904.00962) on a shard, in two halves. The first, with the
 * arguments of sl__update, moves both means of the gradient (state) and writes squares [2 count of
 * parts]: of each part the sum of the squares of its parameters and of their directions. The second
 * takes the sums over all shards of the layer. */
enum sl_status sl__lamb_moments(struct sl_context *context, const struct sl__launch *l,
                                struct sl__tensor *param, struct sl__tensor *const state[2],
                                int count, struct sl__tensor *const *gradients,
                                struct sl__tensor *norm, const struct sl__update *update,
                                const struct sl__update_parts *parts, struct sl__tensor *squares);
enum sl_status sl__lamb(struct sl_context *context, const struct sl__launch *l,
                        struct sl__tensor *param, struct sl__tensor *const state[2],
                        struct sl__tensor *squares, const struct sl__update *update,
                        const struct sl__update_parts *parts);

/* Plain descent (no momentum, no weight decay) of the touched rows only; param holds the elements
 * of the table from `first` on. */
enum sl_status sl__rows_sgd(struct sl_context *context, const struct sl__launch *l,
                            struct sl__tensor *param, int64_t first, struct sl__tensor *rows,
                            struct sl__tensor *values, struct sl__tensor *norm,
                            const struct sl__update *update);

/* Layers whose kernels belong to the program (starling/layer.h). The data in their tasks' arguments
 * must outlive the tasks. */
struct sl__custom {
  const struct sl_layer_kind *kind;
  const void *options;
  int inputs, params;
  int64_t offset[SL_LAYER_PARAMETERS], total; /* of the parameters in their block */
  double flops;                               /* of a sample */
  uint32_t footprint;                         /* of the kind and its options */
};
/* param, f32, and saved may be NULL. */
enum sl_status sl__custom_forward(struct sl_context *context, const struct sl__launch *l,
                                  const struct sl__custom *layer, struct sl__tensor *const *x,
                                  struct sl__tensor *param, struct sl__tensor *y,
                                  struct sl__tensor *saved, bool training);
struct sl__custom_buffers {
  struct sl__tensor *const *x;
  struct sl__tensor *param, *y, *saved, *dy;
};
/* dx (+)= the gradient of x[input] */
enum sl_status sl__custom_backward_data(struct sl_context *context, const struct sl__launch *l,
                                        const struct sl__custom *layer,
                                        const struct sl__custom_buffers *buffers, int input,
                                        struct sl__tensor *dx);
enum sl_status sl__custom_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                          const struct sl__custom *layer,
                                          const struct sl__custom_buffers *buffers,
                                          struct sl__tensor *grad);

/* y [n] = values, n at most SL__SET_VALUES_MOST. */
#define SL__SET_VALUES_MOST 4
enum sl_status sl__set_values(struct sl_context *context, const struct sl__launch *l,
                              struct sl__tensor *y, const float *values);
/* y [SL__ASKS] = asks; in a captured step those of the step record. */
enum sl_status sl__set_asks(struct sl_context *context, const struct sl__launch *l,
                            struct sl__tensor *y, const float asks[SL__ASKS]);

/* The task that writes the first tensor next waits until the others are written, and takes no
 * memory for it before. The first tensor's values are lost. Fewer than two tensors: nothing to do.
 */
enum sl_status sl__wait_for(struct sl_context *context, const struct sl__launch *l, int count,
                            struct sl__tensor *const *tensors);

/* `count` ranks first, first + stride, ..., except skip (-1: none). */
struct sl__peers {
  int first, count, skip;
  int stride;         /* 0 means 1 */
  int timeout_policy; /* enum sl__timeout_policy (core/net/net.h) */
};
static inline struct sl__peers sl__peer(int rank) {
  struct sl__peers one = {rank, 1, -1, 0, 0};
  return one;
}
/* Sends the tensors, as one message, to each of the ranks; the task ends when their memory may
 * change. l->name must outlive it. It runs on a CPU, on that of l->place if it names one. It runs
 * on the GPU of l->place if MPI takes GPU memory, for one tensor, or if one tensor is large (tags
 * below SL__TAG_MPI_ONLY): each tensor is then a message of its own, and the sender must send all
 * that the receiver expects. */
enum sl_status sl__send(struct sl_context *context, const struct sl__launch *l, int tag,
                        const struct sl__peers *to, int count, struct sl__tensor *const *tensors);
/* Receives a message from each of the ranks, into count / ranks tensors for each, rank by rank. If
 * a rank is lost their contents are undefined, and sl__net_check reports it. */
enum sl_status sl__receive(struct sl_context *context, const struct sl__launch *l, int tag,
                           const struct sl__peers *from, int count,
                           struct sl__tensor *const *tensors);
/* Tensors that StarPU-MPI receives arrive one by one: after this task, tasks on the first tensor
 * wait for all of them. */
enum sl_status sl__unite(struct sl_context *context, const struct sl__launch *l, int count,
                         struct sl__tensor *const *tensors);

#ifdef __cplusplus
}
#endif

#endif
