/* Layers, models, initial weights, losses, optimizers, learning-rate schedules, weight files. */
#ifndef STARLING_NN_H
#define STARLING_NN_H

#include <starling/base.h>
#include <starling/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup layer Layers
 * A layer appended to a model takes the output of the one before it, unless it names its inputs.
 * Shapes are those of one sample; the batch axis is the trainer's business. */
enum sl_activation {
  SL_ACTIVATION_NONE,
  SL_ACTIVATION_RELU,
  SL_ACTIVATION_TANH,
  SL_ACTIVATION_SIGMOID,
  SL_ACTIVATION_GELU,      /**< exact: x Phi(x), Hendrycks and Gimpel, arXiv 1606.08415 */
  SL_ACTIVATION_GELU_TANH, /**< GPT-2's: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
  SL_ACTIVATION_SILU       /**< x sigmoid(x), Elfwing et al., arXiv 1702.03118 */
};

/** "relu" to SL_ACTIVATION_RELU, and so on. \return SL_BAD_ARGUMENT for an unknown name. */
SL_API enum sl_status sl_activation_parse(const char *name, enum sl_activation *activation);
SL_API const char *sl_activation_name(enum sl_activation activation);

/** How a layer's weights begin. Fans are those of PyTorch's nn.init; of LSTM and GRU those of each
 * gate's matrix. */
enum sl_init {
  SL_INIT_DEFAULT, /**< PyTorch's default for the layer: U(-1/sqrt(fan_in), 1/sqrt(fan_in)), bias
                      too */
  SL_INIT_XAVIER,  /**< U(-a, a), a = sqrt(6 / (fan_in + fan_out)); bias 0 (Glorot, Bengio 2010) */
  SL_INIT_HE,      /**< N(0, 2 / fan_in); bias 0 (He et al., arXiv 1502.01852) */
  SL_INIT_UNIFORM, /**< U(-0.07, 0.07), as MXNet's default; bias 0 */
  SL_INIT_ZERO,
  SL_INIT_NORMAL /**< N(0, deviation^2), as GPT-2's 0.02; bias 0. Needs the layer's deviation. */
};

/** "xavier" to SL_INIT_XAVIER, and so on. \return SL_BAD_ARGUMENT for an unknown name. */
SL_API enum sl_status sl_init_parse(const char *name, enum sl_init *init);
SL_API const char *sl_init_name(enum sl_init init);

struct sl_model;

/** Options every layer takes. Zero value: input from the layer before, PyTorch's initial weights.
 */
struct sl_layer_options {
  const char
      *inputs; /**< names of the input layers, "conv2" or "bn2,shortcut"; "input" is the model's */
  enum sl_init init;
  const char *group;  /**< a name shared by layers that are placed together; see sl_place */
  const char *shares; /**< sl_dense: name of an earlier layer whose weight this one takes instead of
                         having its own, [O, I]: a decoder tied to the embedding (Press, Wolf: arXiv
                         1608.05859) */
  float deviation;    /**< of the weights of SL_INIT_NORMAL, above 0; with any other init: 0 */
};

/** An empty model, whose samples have this shape. \return SL_BAD_SHAPE unless it has 1 to
 * SL_MAX_DIMS - 1 dimensions, each at least 1, and at most 2^40 values. */
SL_API enum sl_status sl_model_new(struct sl_context *context, const struct sl_shape *sample,
                                   struct sl_model **model);

/** A model with several inputs, which layers name in layer.inputs: "state", "control". A sample is
 * one row, sl_model_input [values], with the fields one behind the other. Each field is a layer of
 * kind slice. \return SL_BAD_ARGUMENT unless there are 1 to SL_MAX_FIELDS fields with different
 * names; SL_BAD_SHAPE for an impossible shape. */
SL_API enum sl_status sl_model_new_fields(struct sl_context *context,
                                          const struct sl_row_field *inputs, int count,
                                          struct sl_model **model);

/** End a model with several outputs: the layers' (from 1 to SL_MAX_FIELDS, "mask,edge") values one
 * behind the other become sl_model_output [values], as the last layer, "outputs". A loss of parts
 * (struct sl_loss_part) has a part for each. \return SL_BAD_ARGUMENT for an unknown name or one
 * that is there twice; no layer can follow. */
SL_API enum sl_status sl_outputs(struct sl_model *model, const char *layers);

/** Dense, x [I...] -> [O]: all axes of a sample count as one, so no flatten is needed. weight [O,
 * I], bias [O]. */
struct sl_dense_options {
  struct sl_layer_options layer;
  int64_t features;
  bool no_bias;
  enum sl_activation activation;
  bool positions; /**< along the last axis only, x [T..., I] -> [T..., O], as torch.nn.Linear */
};
SL_API enum sl_status sl_dense(struct sl_model *model, const char *name,
                               const struct sl_dense_options *options);

/** 2-D convolution, cross-correlation as in PyTorch: x [C, H, W], weight [K, C / groups, R, S],
 * bias [K] -> y [K, H', W'], H' = (H + 2 pad - dilation (R - 1) - 1) / stride + 1. stride, dilation
 * and groups 0 mean 1; kernel_w, stride_w, dilation_w and pad_w follow *_h if they are 0;
 * pad_h_only: pad_w stays 0. groups = C is a depthwise convolution. \return SL_BAD_SHAPE if the
 * input is not [C, H, W], H' or W' < 1, or a plane with its padding has 2^31 values or more;
 * SL_BAD_ARGUMENT for pad_h_only with a pad_w, unless groups divides C and K, for a pad that
 * is not below the dilated kernel's size, dilation (R - 1) + 1, and for the activations GELU,
 * GELU_TANH and SILU: append those as a layer, sl_activate. */
struct sl_conv2d_options {
  struct sl_layer_options layer;
  int channels;
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
  bool no_bias;
  enum sl_activation activation;
  bool pad_h_only;
  int groups, dilation_h, dilation_w;
};
SL_API enum sl_status sl_conv2d(struct sl_model *model, const char *name,
                                const struct sl_conv2d_options *options);

/** 1-D convolution, as torch.nn.Conv1d: x [C, L], weight [K, C / groups, R], bias [K] -> y [K, L'],
 * L' = (L + 2 pad - dilation (R - 1) - 1) / stride + 1. Defaults and errors as sl_conv2d's: pad is
 * below the dilated kernel's size, and GELU, GELU_TANH and SILU are refused (sl_activate). */
struct sl_conv1d_options {
  struct sl_layer_options layer;
  int channels;
  int kernel, stride, pad, dilation, groups;
  bool no_bias;
  enum sl_activation activation;
};
SL_API enum sl_status sl_conv1d(struct sl_model *model, const char *name,
                                const struct sl_conv1d_options *options);

/** Transposed 2-D convolution, as torch.nn.ConvTranspose2d: x [C, H, W], weight [C, K / groups, R,
 * S], bias [K] -> y [K, H', W'], H' = (H - 1) stride - 2 pad + dilation (R - 1) + output_pad + 1.
 * Defaults as sl_conv2d's; output_pad_w does not follow output_pad_h.
 * \return as sl_conv2d: SL_BAD_ARGUMENT for a pad that is not below the dilated kernel's size and
 * for GELU, GELU_TANH and SILU (sl_activate); also for an output_pad that is not below stride or
 * dilation. */
struct sl_conv_transpose2d_options {
  struct sl_layer_options layer;
  int channels;
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
  bool no_bias;
  enum sl_activation activation;
  bool pad_h_only;
  int groups, dilation_h, dilation_w, output_pad_h, output_pad_w;
};
SL_API enum sl_status sl_conv_transpose2d(struct sl_model *model, const char *name,
                                          const struct sl_conv_transpose2d_options *options);

/** Transposed 1-D convolution, as torch.nn.ConvTranspose1d: x [C, L], weight [C, K / groups, R],
 * bias [K] -> y [K, L'], L' = (L - 1) stride - 2 pad + dilation (R - 1) + output_pad + 1. Defaults
 * and errors as sl_conv_transpose2d's, of pad and of the activations, too. */
struct sl_conv_transpose1d_options {
  struct sl_layer_options layer;
  int channels;
  int kernel, stride, pad, output_pad, dilation, groups;
  bool no_bias;
  enum sl_activation activation;
};
SL_API enum sl_status sl_conv_transpose1d(struct sl_model *model, const char *name,
                                          const struct sl_conv_transpose1d_options *options);

/** Max and average pooling: x [C, H, W] -> [C, H', W'] as in sl_conv2d; stride 0 means the kernel's
 * size; global: the kernel is the whole plane. Errors as sl_conv2d's. */
struct sl_pool2d_options {
  struct sl_layer_options layer;
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
  bool global;
  bool pad_h_only;
};
SL_API enum sl_status sl_maxpool2d(struct sl_model *model, const char *name,
                                   const struct sl_pool2d_options *options);
SL_API enum sl_status sl_avgpool2d(struct sl_model *model, const char *name,
                                   const struct sl_pool2d_options *options);

/** The same over rows: x [C, L] -> [C, L']. */
struct sl_pool1d_options {
  struct sl_layer_options layer;
  int kernel, stride, pad;
  bool global;
};
SL_API enum sl_status sl_maxpool1d(struct sl_model *model, const char *name,
                                   const struct sl_pool1d_options *options);
SL_API enum sl_status sl_avgpool1d(struct sl_model *model, const char *name,
                                   const struct sl_pool1d_options *options);

/** Upsampling by whole factors, as torch.nn.Upsample with scale_factor: x [C, H, W] -> [C, H
 * scale_h, W scale_w]; nearest, or bilinear (align_corners=False). scale_w follows scale_h if it is
 * 0. \return SL_BAD_SHAPE if the input is not [C, H, W]; SL_BAD_ARGUMENT unless the scales are from
 * 1 to 1024.
 */
struct sl_upsample2d_options {
  struct sl_layer_options layer;
  int scale_h, scale_w;
  bool bilinear;
};
SL_API enum sl_status sl_upsample2d(struct sl_model *model, const char *name,
                                    const struct sl_upsample2d_options *options);

/** The same for rows: x [C, L] -> [C, L scale]; nearest, or linear (align_corners=False). */
struct sl_upsample1d_options {
  struct sl_layer_options layer;
  int scale;
  bool linear;
};
SL_API enum sl_status sl_upsample1d(struct sl_model *model, const char *name,
                                    const struct sl_upsample1d_options *options);

/** A function of each value, as a layer of its own. \return SL_BAD_ARGUMENT for none. */
struct sl_activation_options {
  struct sl_layer_options layer;
  enum sl_activation activation;
};
SL_API enum sl_status sl_activate(struct sl_model *model, const char *name,
                                  const struct sl_activation_options *options);

/** Gated linear unit with SiLU (Shazeer, arXiv 2002.05202), as Llama's: x [T..., 2 F] has the
 * gate's F values, then the F values up, -> y [T..., F] = silu(gate) up. options NULL: no options.
 * \return SL_BAD_SHAPE if x's last axis is odd. */
struct sl_swiglu_options {
  struct sl_layer_options layer;
};
SL_API enum sl_status sl_swiglu(struct sl_model *model, const char *name,
                                const struct sl_swiglu_options *options);

/** Batch normalisation over the first axis of a sample (arXiv 1502.03167): x [C, ...], weight [C],
 * bias [C], running_mean [C], running_var [C]. In training each slice of the batch (replica,
 * microbatch) has its own statistics. The slices update the running ones in turn, each with
 * momentum 1 - (1 - momentum)^(1 / slices). epsilon 0 means 1e-5, momentum 0 means 0.1. */
struct sl_batchnorm_options {
  struct sl_layer_options layer;
  float epsilon, momentum;
};
SL_API enum sl_status sl_batchnorm(struct sl_model *model, const char *name,
                                   const struct sl_batchnorm_options *options);

/** Layer normalisation (Ba et al., arXiv 1607.06450) over the last `axes` axes of a sample, 0
 * meaning 1, as torch.nn.LayerNorm: x [..., D] -> the same, weight and bias of the axes' shape.
 * Each position before them has its own mean and deviation. epsilon 0 means 1e-5; plain: without
 * weight and bias; rms: as torch.nn.RMSNorm (Zhang, Sennrich, arXiv 1910.07467), without mean and
 * bias. \return SL_BAD_ARGUMENT for more axes than x has, or an epsilon that is negative or not
 * finite. */
struct sl_layernorm_options {
  struct sl_layer_options layer;
  int axes;
  float epsilon;
  bool plain, rms;
};
SL_API enum sl_status sl_layernorm(struct sl_model *model, const char *name,
                                   const struct sl_layernorm_options *options);

/** Group normalisation (Wu, He, arXiv 1803.08494), as torch.nn.GroupNorm: x [C, ...] in groups of C
 * / groups channels, each with its own mean and deviation; weight [C], bias [C]. groups 0: one a
 * channel, which is instance normalisation (torch.nn.InstanceNorm2d; its default has no weight and
 * bias: plain). epsilon 0 means 1e-5. \return SL_BAD_ARGUMENT if groups does not divide C. */
struct sl_groupnorm_options {
  struct sl_layer_options layer;
  int groups;
  float epsilon;
  bool plain;
};
SL_API enum sl_status sl_groupnorm(struct sl_model *model, const char *name,
                                   const struct sl_groupnorm_options *options);

/** Dropout: in training each value is 0 with probability rate, else divided by 1 - rate. The same
 * values are dropped whatever the number of replicas. \return SL_BAD_ARGUMENT unless 0 <= rate < 1.
 */
struct sl_dropout_options {
  struct sl_layer_options layer;
  float rate;
};
SL_API enum sl_status sl_dropout(struct sl_model *model, const char *name,
                                 const struct sl_dropout_options *options);

/** Causal attention (Vaswani et al., arXiv 1706.03762): x [T, (heads + 2 kv_heads) D] -> [T, heads
 * D], D being a head's values. A step of x has the queries of all heads, then all keys, then all
 * values, as one dense layer with `positions` makes them. y of step t is softmax(q k^T / sqrt(D)) v
 * over steps 0 to t. heads / kv_heads heads, one after the other, share a key and a value (Ainslie
 * et al., arXiv 2305.13245); kv_heads 0 means heads. rope_base above 0 (Llama: 10000) turns the
 * first rope_dims values of queries and keys by their position, in pairs (i, i + rope_dims / 2) as
 * Hugging Face's models (Su et al., arXiv 2104.09864); rope_dims 0 means D. dropout: of the
 * probabilities, in training. context: steps of the longest sequence, in generation, too; 0 means
 * T. The layer has no parameters. \return SL_BAD_ARGUMENT unless kv_heads divides heads, rope_dims
 * is even and at most D, dropout is at least 0 and below 1, and context is T at least; SL_BAD_SHAPE
 * if x does not divide into such heads, or D is above 256. */
struct sl_attention_options {
  struct sl_layer_options layer;
  int heads, kv_heads;
  float rope_base;
  int rope_dims;
  float dropout;
  int64_t context;
};
SL_API enum sl_status sl_attention(struct sl_model *model, const char *name,
                                   const struct sl_attention_options *options);

/** Embedding: x [T...] of whole numbers, at most 3 axes, -> [T..., D]; weight [V, D], V being
 * vocabulary and D features. It takes the model's input, then tokens (i32), or a field of it
 * (sl_model_new_fields), whose values are then tokens for all its readers. \return SL_BAD_SHAPE for
 * more axes; SL_BAD_ARGUMENT for a size below 1. */
struct sl_embedding_options {
  struct sl_layer_options layer;
  int64_t vocabulary, features;
};
SL_API enum sl_status sl_embedding(struct sl_model *model, const char *name,
                                   const struct sl_embedding_options *options);

/** Learned positions, as GPT-2's: x [T, C] -> y [T, C], y[t] = x[t] + weight[t]; weight [length,
 * C], by default from N(0, 1) as torch.nn.Embedding's. A time step's place is that in its sequence,
 * also in chunks of it and in generated text. length 0: the sample's T. \return SL_BAD_SHAPE if x
 * is not [T, C]; SL_BAD_ARGUMENT for a length below T. A sequence that runs past the table fails
 * with SL_BAD_ARGUMENT when its pass is submitted. */
struct sl_position_options {
  struct sl_layer_options layer;
  int64_t length;
};
SL_API enum sl_status sl_position(struct sl_model *model, const char *name,
                                  const struct sl_position_options *options);

/** LSTM over a sample's time steps: x [T, I] -> [T, H], H being features; as torch.nn.LSTM with one
 * layer and batch_first: weight_ih_l0 [4H, I], weight_hh_l0 [4H, H], bias_ih_l0 [4H], bias_hh_l0
 * [4H], gates in the order i, f, g, o (Hochreiter, Schmidhuber 1997). The state before the first
 * step is zero, or the one after the batch before (sl_trainer_options.carry_state).
 *
 * bidirectional: a second direction goes from the last step to the first (Schuster, Paliwal 1997),
 * with parameters of its own: weight_ih_l0_reverse and so on, as torch.nn.LSTM's. The output is
 * [T, 2H]: for each step the first direction's h, then the second's. reverse: the one direction
 * goes from the last step to the first. last: the output is h after a direction's last step, [H];
 * for two directions [2H], the second's being h of the first time step: PyTorch's h_n, side by
 * side. A layer with one of these needs whole samples: it refuses chunks, carry_state and sentences
 * of several lengths (padding would be read first). \return SL_BAD_ARGUMENT for bidirectional with
 * reverse. */
struct sl_lstm_options {
  struct sl_layer_options layer;
  int64_t features;
  bool bidirectional, reverse, last;
};
SL_API enum sl_status sl_lstm(struct sl_model *model, const char *name,
                              const struct sl_lstm_options *options);

/** GRU over a sample's time steps: x [T, I] -> [T, H]; as torch.nn.GRU with one layer and
 * batch_first: weight_ih_l0 [3H, I], weight_hh_l0 [3H, H], bias_ih_l0 [3H], bias_hh_l0 [3H], gates
 * in the order r, z, n (Cho et al., arXiv 1406.1078). Its state and directions are as
 * sl_lstm's. */
struct sl_gru_options {
  struct sl_layer_options layer;
  int64_t features;
  bool bidirectional, reverse, last;
};
SL_API enum sl_status sl_gru(struct sl_model *model, const char *name,
                             const struct sl_gru_options *options);

/** y = a + b + ..., the end of a residual edge: layer.inputs names all, 2 or more. The others
 * broadcast to the shape of the first, as in NumPy: where one's axis has size 1, or its first axes
 * are missing, its values repeat. \return SL_BAD_SHAPE if they do not fit. */
struct sl_add_options {
  struct sl_layer_options layer;
};
SL_API enum sl_status sl_add(struct sl_model *model, const char *name,
                             const struct sl_add_options *options);

/** Concatenation of the inputs along an axis of a sample: layer.inputs names 1 or more.
 * flat: all values of the inputs, one input behind the other, [values]; their shapes may differ.
 * \return SL_BAD_ARGUMENT if there is no such axis; SL_BAD_SHAPE if the inputs differ along another
 * axis. */
struct sl_concatenate_options {
  struct sl_layer_options layer;
  int axis;
  bool flat;
};
SL_API enum sl_status sl_concatenate(struct sl_model *model, const char *name,
                                     const struct sl_concatenate_options *options);

/** The range first, ..., first + count - 1 along an axis of a sample; count 0: up to the end.
 * shape: the range's values as a sample of this shape; of axis 0 only. \return SL_BAD_ARGUMENT for
 * an axis or a range that x does not have; SL_BAD_SHAPE if the numbers of values differ. */
struct sl_slice_options {
  struct sl_layer_options layer;
  int axis;
  int64_t first, count;
  struct sl_shape shape;
};
SL_API enum sl_status sl_slice(struct sl_model *model, const char *name,
                               const struct sl_slice_options *options);

/** The opposite order along an axis of a sample, as torch.flip: before and behind an sl_lstm it
 * makes one that goes backward in time. \return SL_BAD_ARGUMENT for an axis that x does not have.
 */
struct sl_flip_options {
  struct sl_layer_options layer;
  int axis;
};
SL_API enum sl_status sl_flip(struct sl_model *model, const char *name,
                              const struct sl_flip_options *options);

/** The same values as a sample of another shape. A dimension of 0 is what the others leave; without
 * a shape the sample becomes flat, [values]. \return SL_BAD_SHAPE if the numbers of values differ.
 */
struct sl_reshape_options {
  struct sl_layer_options layer;
  struct sl_shape shape;
};
SL_API enum sl_status sl_reshape(struct sl_model *model, const char *name,
                                 const struct sl_reshape_options *options);

/** A sample's axes in another order, as torch.permute without the batch's axis: axes SL_SHAPE(1, 2,
 * 0) makes [H, W, C] of [C, H, W]; without axes their order is reversed. \return
 * SL_BAD_ARGUMENT unless axes has each axis once. */
struct sl_permute_options {
  struct sl_layer_options layer;
  struct sl_shape axes;
};
SL_API enum sl_status sl_permute(struct sl_model *model, const char *name,
                                 const struct sl_permute_options *options);

/** The mean over axes of a sample: axes SL_SHAPE(1, 2) makes [C] of [C, H, W], and so does none:
 * all but the first. keep: the axes stay, with size 1. \return SL_BAD_ARGUMENT for an axis that x
 * does not have, or one named twice. */
struct sl_mean_options {
  struct sl_layer_options layer;
  struct sl_shape axes;
  bool keep;
};
SL_API enum sl_status sl_mean(struct sl_model *model, const char *name,
                              const struct sl_mean_options *options);

/** y = a b ..., value by value: layer.inputs names all, 2 or more. The others broadcast as those
 * of sl_add: [C, H, W] times [C, 1, 1] scales channels. \return SL_BAD_SHAPE if they do not fit. */
struct sl_multiply_options {
  struct sl_layer_options layer;
};
SL_API enum sl_status sl_multiply(struct sl_model *model, const char *name,
                                  const struct sl_multiply_options *options);

/** \defgroup model Models */

/** Fix the graph and draw the initial weights from the context's seed (each from the seed, the
 * layer's name and the index: not from the order of the layers). The last layer's output is the
 * model's: for cross-entropy logits [classes], or [T, classes] of tokens [T]; for other losses of
 * the targets' shape. Trainers and predictors call it if it was not called. */
SL_API enum sl_status sl_model_build(struct sl_model *model);

/** Free its trainers and predictors before. NULL is legal. */
SL_API void sl_model_free(struct sl_model *model);

/** Values of all parameters, of frozen layers too; without buffers, and a shared weight once. */
SL_API int64_t sl_model_parameters(const struct sl_model *model);
SL_API const struct sl_shape *sl_model_input(const struct sl_model *model);  /**< of one sample */
SL_API const struct sl_shape *sl_model_output(const struct sl_model *model); /**< of one sample */

/** Input or output i of a model with several, from 0, as sl_model_new_fields and sl_outputs named
 * them; false behind the last one. The name lives as long as the model. An input's `classes` is the
 * number of tokens that its embedding knows, 0 of numbers. */
SL_API bool sl_model_input_field(const struct sl_model *model, int i, struct sl_row_field *field);
SL_API bool sl_model_output_field(const struct sl_model *model, int i, struct sl_row_field *field);

/** One layer of a model; the texts live as long as the model. */
struct sl_layer_info {
  const char *name, *kind; /**< "conv1", "conv2d" */
  struct sl_shape output;  /**< of one sample */
  int64_t parameters;      /**< its own: a shared weight counts where it is */
  double flops;            /**< multiplications and additions of a forward pass of one sample */
};
SL_API int sl_model_layer_count(const struct sl_model *model);

/** Layer i, from 0, in the order of the model. \return SL_BAD_ARGUMENT if there is none. */
SL_API enum sl_status sl_model_layer(const struct sl_model *model, int i,
                                     struct sl_layer_info *info);

/** A table of the layers: shapes, parameters, multiply-adds, memory; text is to be freed by free().
 */
SL_API enum sl_status sl_model_summary(const struct sl_model *model, char **text);

/** Copy a parameter or buffer ("conv1.weight") out or in; values holds sl_shape_count of its shape.
 * \return SL_BAD_ARGUMENT for an unknown name. */
SL_API enum sl_status sl_model_get(struct sl_model *model, const char *parameter, float *values);
SL_API enum sl_status sl_model_set(struct sl_model *model, const char *parameter,
                                   const float *values);

/** Freeze layers: a list of names, ranges ("conv1-3"), patterns ("bn*", * for any characters) and
 * groups (sl_layer_options.group), separated by commas. The listed layers are frozen, all others
 * train; NULL or "" freezes none. A frozen layer keeps its parameters: it has no gradient, no state
 * of the optimizer and no update, and below the first layer that trains there is no backward work
 * at all. As PyTorch's requires_grad_(False) and eval() together: frozen batch normalisation uses
 * its running statistics and keeps them, frozen dropout drops nothing. Layers that share a weight
 * are frozen together. Call this after the last layer and before sl_trainer_new. A saved model does
 * not say which layers were frozen; checkpoints do, and a training goes on with the same ones only.
 * \return SL_BAD_ARGUMENT for a layer that is unknown, or if a trainer uses the model. After a
 * failure the same layers are frozen as before. sl_trainer_new refuses a model in which all
 * parameters are frozen. */
SL_API enum sl_status sl_freeze(struct sl_model *model, const char *layers);

/** The frozen layers, as such a list; NULL: none. Valid until the next sl_freeze. */
SL_API const char *sl_frozen(const struct sl_model *model);

/** Factors of the optimizer's learning rate by layer: rules LAYERS=FACTOR with sl_freeze's lists,
 * "fc*=10,conv1,conv2=0.1": fc* have 10, conv1 and conv2 have 0.1, all others 1. Factors from 1e-6
 * to 1e6. A shared weight has the factor of the layer that owns it. NULL or "": 1 for all. To be
 * called as sl_freeze. \return SL_BAD_ARGUMENT for a layer that is unknown or in two rules, a
 * factor out of range, text that is no rule, or if a trainer uses the model; nothing has changed
 * then. */
SL_API enum sl_status sl_group_rate(struct sl_model *model, const char *rules);

/** The same for the optimizer's weight decay; factors from 0 to 1e6. */
SL_API enum sl_status sl_group_decay(struct sl_model *model, const char *rules);

/** Weight decay for weights alone: none for parameters of one dimension, which are biases and the
 * factors of a normalisation. To be called as sl_freeze. */
SL_API enum sl_status sl_decay_weights_only(struct sl_model *model, bool weights_only);

/** Number of parameters and buffers, and the name and shape of one. The name lives as long as the
 * model, once it is built. shape may be NULL. */
SL_API int sl_model_parameter_count(const struct sl_model *model);
SL_API const char *sl_model_parameter(const struct sl_model *model, int i, struct sl_shape *shape);

/** safetensors with PyTorch's names and layouts. Saving writes aside, then renames. Loading changes
 * nothing unless the file has every parameter, with its shape, and nothing else
 * (num_batches_tracked may be there). \return SL_IO, SL_BAD_FILE; SL_BAD_SHAPE names the tensor and
 * both shapes; SL_NOT_FINITE if a weight is not finite (nothing is written). */
SL_API enum sl_status sl_model_save(struct sl_model *model, const char *path);
SL_API enum sl_status sl_model_load(struct sl_model *model, const char *path);

/** May a model be saved under this name? sl_model_save refuses names that other programs take for
 * formats of their own (".pt", ".h5", ".npz"), and its own endings in capitals (".JSON"). \return
 * SL_BAD_ARGUMENT. */
SL_API enum sl_status sl_model_check_path(const char *path);

/** How tensors of a file are found in the model. Zero value: by equal names. */
struct sl_load_part_options {
  /** Rules, separated by commas; the first one that fits a tensor's name in the file holds.
   * "FROM=TO": a name that begins with FROM begins with TO instead ("backbone.=" takes the prefix
   * off, "fc.=head." renames, "=net." puts one before). "!FROM": tensors whose names begin so are
   * left out. NULL: no rules. */
  const char *map;
};

/** Load the tensors that the model has, too, with name and shape, from a file of another model: a
 * safetensors file, also a checkpoint, or a .json model. All other parameters and buffers keep
 * their values. *report (or NULL) is a table of all tensors: loaded, only in the file, only in the
 * model, or of another shape there; free it with free(). Nothing is changed after a failure.
 * \return SL_BAD_FILE if no tensor fits, naming some of both sides, or as sl_model_load for a
 * damaged file; SL_BAD_ARGUMENT for a rule that no tensor of the file fits, or two tensors for
 * one parameter; SL_NOT_FINITE; SL_UNSUPPORTED for ONNX. */
SL_API enum sl_status sl_model_load_part(struct sl_model *model, const char *path,
                                         const struct sl_load_part_options *options, char **report);

enum { SL_MOST_JOINED = 4 };

/** A parameter as tensors of another program's file. */
struct sl_weight_rule {
  /** Of the model, as sl_model_parameter names it. The second name of a shared weight
   * ("head.weight", where the layer shares another one's): the tensor may be missing, must have the
   * weight's values, is the weight where its own tensors are missing, and is not written. NULL:
   * tensors that are in the file for other programs. */
  const char *parameter;
  /** The tensor's name in the file, or up to SL_MOST_JOINED names, separated by commas, of tensors
   * that follow each other along the parameter's first axis. A beginning in brackets may be missing
   * in a file, and is written: "[transformer.]wte.weight". Where parameter is NULL, a '*' at the
   * beginning stands for any text: "*.attn.bias". */
  const char *tensors;
  /** Of the joined tensors along that axis; all 0: equal ones. */
  int64_t sizes[SL_MOST_JOINED];
  /** Each tensor is [inputs, outputs], where the parameter is [outputs, inputs]. */
  bool transposed;
};

/** Load all parameters from tensors that another program wrote, by one rule for each parameter.
 * path: a safetensors file, or a folder with model.safetensors, or with the files that its
 * model.safetensors.index.json lists. F32, F16, BF16 and F64 are read. The files are mapped, and
 * parameters converted one layer at a time. *report (or NULL) is a table of what was loaded; free
 * it with free(). All is checked before anything changes.
 * \return SL_BAD_FILE for a damaged file or index, a tensor that is missing, or that no rule names;
 * SL_BAD_SHAPE names the tensor and both shapes; SL_BAD_ARGUMENT for a parameter without a rule or
 * with two, or a rule that does not fit the model; SL_NOT_FINITE; SL_IO. */
SL_API enum sl_status sl_model_load_tensors(struct sl_model *model, const char *path,
                                            const struct sl_weight_rule *rules, int count,
                                            char **report);

/** The reverse: write one safetensors file of F32 tensors. path: of the file; or of a folder, which
 * is made if it is missing, for its model.safetensors. \return as sl_model_save, and
 * SL_BAD_ARGUMENT as above. */
SL_API enum sl_status sl_model_save_tensors(struct sl_model *model, const char *path,
                                            const struct sl_weight_rule *rules, int count);

/** A saved model is two files: its architecture, "lenet.json" (doc/models.md), and the weights
 * beside it, "lenet.safetensors". sl_model_save writes both if path ends in ".json", each aside
 * and renamed, the weights first: a save that fails leaves the pair that was there. sl_model_load
 * takes the weights alone from such a pair.
 *
 * sl_model_open makes the model that path describes, with the weights that it names, which are in
 * the same folder; it is built then. \return as sl_model_load; SL_BAD_FILE for JSON that is
 * damaged, or describes no model, naming the layer and the key; SL_UNSUPPORTED for a version that
 * is newer than the library, or a kind of layer that is neither the library's nor registered
 * (starling/layer.h). *model is NULL then.
 *
 * ONNX: if path ends in ".onnx", sl_model_save writes one file with architecture and weights,
 * for inference elsewhere (operator set 17, the batch's axis open, "input" to "output", or fields
 * by their names), and sl_model_open reads such a file, or another program's of which every
 * operator is a layer; sl_model_load takes the weights alone, of the same layers. doc/models.md
 * lists the operators that are read and the settings that a file loses. \return SL_UNSUPPORTED,
 * naming the node, its operator and the part of it that no layer has, or if the build has no
 * protobuf-c; SL_BAD_FILE for a damaged file. */
SL_API enum sl_status sl_model_open(struct sl_context *context, const char *path,
                                    struct sl_model **model);

/** The architecture alone, as text, and back: without weights, not built yet. weights: the name of
 * their file for the text, or NULL; path is for messages; text is to be freed by free(). \return
 * as sl_model_open. */
SL_API enum sl_status sl_model_architecture(const struct sl_model *model, const char *weights,
                                            char **text);
SL_API enum sl_status sl_model_parse(struct sl_context *context, const char *path, const char *text,
                                     size_t size, struct sl_model **model);

/** What the outputs of a model say. */
enum sl_task {
  SL_TASK_UNKNOWN,
  SL_TASK_CLASSES, /**< logits of classes, one of which is right */
  SL_TASK_VALUES,  /**< numbers, as the targets are */
  SL_TASK_LABELS /**< logits of labels, each of which may be right; of [C, H, W] each is a pixel of
                    a mask */
};

/** Metadata of a model, which its layers do not hold: how its inputs are prepared and how its
 * outputs are named. A saved model's file has it. Zero value: nothing is known. */
struct sl_model_notes {
  int channels; /**< entries of mean and deviation: one for all channels, or one each; 0: unknown */
  const float *mean, *deviation;  /**< value = (byte / 255 - mean[c]) / deviation[c] */
  int class_count;                /**< the output's last dimension other than 1; 0: no names */
  const char *const *class_names; /**< of the logits, in UTF-8 */
  bool values; /**< inputs are numbers, no bytes: value = (number - mean[c]) / deviation[c] */
  /** Of a regression: answer = output * target_deviation[c] + target_mean[c]; target_channels:
   * their number, 1 for all outputs, or one for each entry of the output's first axis; 0: no
   * regression. */
  int target_channels;
  const float *target_mean, *target_deviation;
  enum sl_task task;
  int column_count;
  const struct sl_column *columns; /**< of the table that the model was trained on, in the order of
                                      its inputs; 0 and NULL: it was no table */
  int target_name_count;
  const char *const *target_names; /**< of the columns that are the targets, or the class */
};

/** Set them, once all layers are there; a copy is made. \return SL_BAD_ARGUMENT for a number that
 * is not finite, a deviation of 0, channels other than 1 and the input's, another number of
 * names than there are logits, or of columns' inputs than the model has, or a name that is no
 * UTF-8.
 */
SL_API enum sl_status sl_model_note(struct sl_model *model, const struct sl_model_notes *notes);

struct sl_loss;

/** Set them as the data and the loss of a training say. Errors as sl_model_note. */
SL_API enum sl_status sl_model_note_data(struct sl_model *model, const struct sl_dataset *dataset,
                                         const struct sl_loss *loss);

/** What output i of sl_outputs says: sl_model_note_data notes it of each output as its part of the
 * loss says, and a saved model's file has it. SL_TASK_UNKNOWN: that is not known, or there is no
 * such output. */
SL_API enum sl_task sl_model_output_task(const struct sl_model *model, int i);

/** Note what output i of sl_outputs says. \return SL_BAD_ARGUMENT for an output or a task that
 * there is not. */
SL_API enum sl_status sl_model_note_task(struct sl_model *model, int i, enum sl_task task);

/** A model's metadata; it lives until the next sl_model_note, or as long as the model. */
SL_API const struct sl_model_notes *sl_model_notes(const struct sl_model *model);

/** \defgroup optimizer Optimizers, schedules */
enum sl_optimizer_kind {
  SL_SGD,
  SL_ADAM,
  SL_ADAMW,
  SL_RMSPROP, /**< as torch.optim.RMSprop without momentum (Tieleman, Hinton, Lecture 6.5, 2012) */
  SL_ADAGRAD, /**< as torch.optim.Adagrad (Duchi et al., JMLR 12, 2011) */
  SL_LION,    /**< Chen et al., arXiv 2302.06675; weight decay as AdamW's */
  /** You et al., arXiv 1904.00962, algorithm 2: AdamW's step of each parameter (a layer's weight,
   * its bias), scaled by |parameter| / |step|, or by 1 where one of them is 0. Of a trainer whose
   * ranks step together: no KVStore of the program's own, no dist_async. */
  SL_LAMB
};

/** Zero value: SGD at 0.01. Fields at 0 take the value in the comment. */
struct sl_optimizer {
  enum sl_optimizer_kind kind;
  float lr;           /**< SGD, RMSprop, Adagrad: 0.01; Adam, AdamW, LAMB: 0.001; Lion: 0.0001 */
  float momentum;     /**< SGD: 0 */
  bool nesterov;      /**< SGD: Nesterov's momentum; needs momentum > 0 */
  float weight_decay; /**< 0 */
  /** Adam, LAMB: 0.9 and 0.999; Lion: 0.9 and 0.99; RMSprop: beta2 0.99 (alpha) */
  float beta1, beta2;
  float epsilon; /**< Adam, RMSprop: 1e-8; Adagrad: 1e-10; LAMB: 1e-6 */
  /** 0: none; else the greatest global norm of the gradient. A norm above 1.8e19, whose square is
   * no float, cannot be clipped: the parameters become NaN, and the next step fails
   * (SL_NOT_FINITE). */
  float clip;
  /** Averages of the parameters (Polyak, Juditsky 1992), of a trainer: after each update average =
   * average * that + parameter * (1 - that), from the first step's parameters on, as PyTorch's
   * torch.optim.swa_utils.get_ema_multi_avg_fn. From 0 to below 1; 0: none. Evaluations use them
   * (sl_trainer_swap_average). */
  float average;
};

/** The names that sl_optimizer_parse knows, "sgd" first: the one at i, from 0, or NULL behind the
 * last. */
SL_API const char *sl_optimizer_name(int i);

/** "sgd", "nag" (SGD with Nesterov's momentum of 0.9), "adam", "adamw", "rmsprop", "adagrad",
 * "lion", "lamb": their settings, all others at 0. \return SL_BAD_ARGUMENT for an unknown name,
 * naming the known ones. */
SL_API enum sl_status sl_optimizer_parse(const char *name, struct sl_optimizer *optimizer);

/** Fill in the values in the comments above and check. \return SL_BAD_ARGUMENT, naming the field.
 */
SL_API enum sl_status sl_optimizer_check(struct sl_optimizer *optimizer);

/** \defgroup loss Losses
 * A loss is the mean over a batch's terms that count. Labels SL_IGNORE and targets NaN do not
 * count: they have no loss and no gradient. */
enum sl_loss_kind {
  SL_LOSS_CROSS_ENTROPY, /**< softmax and cross-entropy of class labels */
  SL_LOSS_MSE,           /**< (y - t)^2, of each value */
  SL_LOSS_MAE,           /**< |y - t|, of each value */
  SL_LOSS_HUBER,  /**< (y - t)^2 / 2 up to |y - t| = delta, a straight line beyond (Huber 1964) */
  SL_LOSS_BCE,    /**< binary cross-entropy of logits with targets from 0 to 1, of each value:
                     several labels a sample; a target outside ends the training with
                     SL_BAD_ARGUMENT */
  SL_LOSS_COSINE, /**< 1 - cos(y, t), of each row (the last axis); t of zeros has no direction: its
                     loss is 1, without a gradient */
  SL_LOSS_OWN     /**< a function of the program's own (struct sl_own_loss) */
};

/** A row of outputs (the last axis of a sample's output) for a loss of the program's own. */
struct sl_loss_row {
  void *user;
  int64_t size;        /**< entries of y, target and dy */
  const float *y;      /**< the model's outputs */
  const float *target; /**< none of them is NaN; NULL if the loss takes labels */
  int32_t label;       /**< of a loss that takes labels; not SL_IGNORE */
  float *dy;           /**< 0; to be written: the gradient of loss by y. NULL: it is not wanted */
  double loss;         /**< 0; to be written */
  char message[200];   /**< the fault, if the function does not return SL_OK */
};

/** Rows of outputs, in a GPU's memory, for a loss of the program's own. What is written for rows
 * that do not count is not read. */
struct sl_loss_rows {
  void *user;
  int64_t count, size;  /**< rows, and entries of each */
  const float *y;       /**< the model's outputs, [count, size] */
  const float *target;  /**< [count, size]: a row with a NaN does not count; NULL if the loss takes
                           labels */
  const int32_t *label; /**< [count], of a loss that takes labels: one that is not from 0 to
                           size - 1 (such as SL_IGNORE) does not count; else NULL */
  float *dy;         /**< [count, size], to be written: the gradient of each row's loss by y. NULL:
                        it is not wanted */
  float *loss;       /**< [count], to be written */
  char message[200]; /**< the fault, if the function does not return SL_OK */
};

/** A loss of the program's own: the mean of its values over all rows that count. `row` runs on
 * StarPU's CPU workers, several at once, and gets floats also if activations are bf16. It reads and
 * writes its row alone and depends on nothing else, if two runs are to give the same bits.
 * `rows_cuda` does the same for many rows on a GPU, in one call for a slice or in several: it puts
 * its work on the stream (a cudaStream_t) and returns. It is called in every step: its work becomes
 * no part of a CUDA graph. The loss runs on a CPU, wherever the last layer is placed, if rows_cuda
 * is NULL, if activations are bf16, and for more than 2^22 rows, or entries of a row, in a slice.
 * An error that they return becomes that of the step. */
struct sl_own_loss {
  const char *name;  /**< for messages; must outlive the trainer */
  bool takes_labels; /**< class labels; false: targets of the output's shape */
  enum sl_status (*row)(struct sl_loss_row *row); /**< needed, also with rows_cuda */
  void *user;
  enum sl_status (*rows_cuda)(struct sl_loss_rows *rows, void *stream);
};

struct sl_loss_part;

/** Zero value: softmax cross-entropy. Values and gradients are those of PyTorch's losses. */
struct sl_loss {
  enum sl_loss_kind kind;
  float delta;           /**< SL_LOSS_HUBER: above 0; 0 means 1 */
  float label_smoothing; /**< SL_LOSS_CROSS_ENTROPY: from 0 to 1 */
  /** SL_LOSS_CROSS_ENTROPY: a weight above or equal 0 for each output, [class_count]; the mean is
   * divided by the labels' weights. A class of weight 0 may have logits of -infinity. NULL: all 1.
   * It is copied. */
  const float *class_weights;
  int class_count;
  struct sl_own_loss own; /**< SL_LOSS_OWN */
  /** Of a model with several outputs (sl_outputs): the sum of each part's weight times its mean,
   * [part_count] up to SL_MAX_FIELDS; copied. All other members are 0 then. NULL: no parts. */
  const struct sl_loss_part *parts;
  int part_count;
};

/** The loss of one output against the field of the targets that has the output's name, or `target`;
 * what does not count (SL_IGNORE, NaN) does not count in this part. Several outputs may have the
 * same target. An output without a part has no loss. */
struct sl_loss_part {
  char output[64];
  float weight;        /**< above 0; 0 means 1 */
  struct sl_loss loss; /**< without parts */
  char target[64];     /**< "": the target has the output's name */
};

/** The names that sl_loss_parse knows, "cross-entropy" first: the one at i, from 0, or NULL behind
 * the last. */
SL_API const char *sl_loss_name(int i);

/** "cross-entropy[:SMOOTHING]", "mse", "mae", "huber[:DELTA]", "bce", "cosine". \return
 * SL_BAD_ARGUMENT for an unknown name or a bad parameter, naming the known ones. */
SL_API enum sl_status sl_loss_parse(const char *text, struct sl_loss *loss);

/** The same, or a loss of parts, "OUTPUT[:TARGET]=LOSS[*WEIGHT],...", such as
 * "mask=bce,edge=mse*0.5" or "kind=cross-entropy,early:kind=cross-entropy*0.3", whose parts are
 * written to `parts`, [SL_MAX_FIELDS], where loss->parts then points. \return
 * SL_BAD_ARGUMENT also for an output without a name, one that is there twice, a weight that is not
 * above 0. */
SL_API enum sl_status sl_loss_parse_parts(const char *text, struct sl_loss_part *parts,
                                          struct sl_loss *loss);

/** Does the loss take class labels (else targets)? A loss of parts takes targets. */
SL_API bool sl_loss_takes_labels(const struct sl_loss *loss);

/** Fill in the values in the comments above and check. \return SL_BAD_ARGUMENT, naming the field.
 */
SL_API enum sl_status sl_loss_check(struct sl_loss *loss);

enum sl_schedule_kind { SL_CONSTANT, SL_STEP, SL_COSINE, SL_DROPS };

#define SL_MAX_DROPS 8

/** Learning rate as a factor of the optimizer's. Zero value: constant, no warm-up. A trainer
 * takes numbers of steps from 0, a period and a total from 1, a total above warmup, and gamma and
 * floor from 0 to 1; it looks at the members of the kind only. */
struct sl_schedule {
  enum sl_schedule_kind kind;
  int64_t warmup; /**< steps of linear rise: step k of them, from 1, has k / warmup */
  int64_t period; /**< SL_STEP: steps between two multiplications by gamma */
  float gamma;    /**< SL_STEP, SL_DROPS; 0 means 0.1 */
  int64_t total;  /**< SL_COSINE: steps until it reaches floor (arXiv 1608.03983, no restarts) */
  float floor;    /**< SL_COSINE: the last factor, 0 by default */
  int64_t drop[SL_MAX_DROPS]; /**< SL_DROPS: from each of these steps on once more times gamma;
                                 ascending, counted from the training's first step */
  int drop_count;
};

/** "constant", "step:PERIOD[:GAMMA]", "drops:STEP[:STEP...]", "cosine[:FLOOR]", each with
 * ",warmup:STEPS". Steps are whole numbers or shares of total_steps, "50%"; the cosine needs
 * total_steps, too. \return SL_BAD_ARGUMENT, saying what is understood. */
SL_API enum sl_status sl_schedule_parse(const char *text, int64_t total_steps,
                                        struct sl_schedule *schedule);

/** The factor at a step, from 0. */
SL_API float sl_schedule_factor(const struct sl_schedule *schedule, int64_t step);

#ifdef __cplusplus
}
#endif
#endif
