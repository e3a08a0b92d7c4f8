/* The table of ONNX's operators and the functions that turn them into layers. */
#include <stdio.h>
#include <string.h>

#include "nn/formats/onnx_operators.h"

/* attributes: names that the reader knows, as " a b "; other attributes are refused. */
static const struct {
  const char *op;
  enum sl_status (*read)(reader *r, const node_of *node);
  const char *attributes;
} operators[] = {
    {"Add", sl__onnx_read_add, ""},
    {"AveragePool", sl__onnx_read_pool,
     " auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides "},
    {"BatchNormalization", sl__onnx_read_batchnorm, " epsilon momentum spatial training_mode "},
    {"Cast", sl__onnx_read_identity, " to "},
    {"CastLike", sl__onnx_read_cast_like, ""},
    {"Concat", sl__onnx_read_concat, " axis "},
    {"Conv", sl__onnx_read_conv, " auto_pad dilations group kernel_shape pads strides "},
    {"ConvTranspose", sl__onnx_read_conv_transpose,
     " auto_pad dilations group kernel_shape output_padding pads strides "},
    {"Div", sl__onnx_read_mul, ""},
    {"Dropout", sl__onnx_read_dropout, " ratio seed "},
    {"Erf", sl__onnx_read_erf, ""},
    {"Flatten", sl__onnx_read_flatten, " axis "},
    {"GRU", sl__onnx_read_cell,
     " activations activation_alpha activation_beta clip direction hidden_size layout "
     "linear_before_reset "},
    {"Gather", sl__onnx_read_gather, " axis "},
    {"Gelu", sl__onnx_read_activation, " approximate "},
    {"Gemm", sl__onnx_read_gemm, " alpha beta transA transB "},
    {"GlobalAveragePool", sl__onnx_read_global, ""},
    {"GlobalMaxPool", sl__onnx_read_global, ""},
    {"GroupNormalization", sl__onnx_read_groupnorm, " epsilon num_groups stash_type "},
    {"Identity", sl__onnx_read_identity, ""},
    {"InstanceNormalization", sl__onnx_read_instancenorm, " epsilon "},
    {"LSTM", sl__onnx_read_cell,
     " activations activation_alpha activation_beta clip direction hidden_size input_forget "
     "layout "},
    {"LayerNormalization", sl__onnx_read_layernorm, " axis epsilon stash_type "},
    {"MatMul", sl__onnx_read_matmul, ""},
    {"MaxPool", sl__onnx_read_pool,
     " auto_pad ceil_mode dilations kernel_shape pads storage_order strides "},
    {"Mul", sl__onnx_read_mul, ""},
    {"Pow", sl__onnx_read_pow, ""},
    {"RMSNormalization", sl__onnx_read_layernorm, " axis epsilon stash_type "},
    {"ReduceMean", sl__onnx_read_mean, " axes keepdims noop_with_empty_axes "},
    {"Relu", sl__onnx_read_activation, ""},
    {"Reshape", sl__onnx_read_reshape, " allowzero "},
    {"Resize", sl__onnx_read_resize,
     " antialias coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value "
     "keep_aspect_ratio_policy mode nearest_mode "},
    {"Shape", sl__onnx_read_shape, " end start "},
    {"Sigmoid", sl__onnx_read_activation, ""},
    {"Slice", sl__onnx_read_slice, " axes ends starts "},
    {"Split", sl__onnx_read_split, " axis num_outputs split "},
    {"SplitToSequence", sl__onnx_read_split_sequence, " axis keepdims "},
    {"Squeeze", sl__onnx_read_squeeze, " axes "},
    {"Sum", sl__onnx_read_add, ""},
    {"Tanh", sl__onnx_read_activation, ""},
    {"Transpose", sl__onnx_read_transpose, " perm "},
    {"Unsqueeze", sl__onnx_read_unsqueeze, " axes "},
    {"Upsample", sl__onnx_read_resize, " mode "}};

static enum sl_status check_attributes(const reader *r, const node_of *node, const char *known) {
  for (int i = 0; i < node->attributes; i++) {
    char word[64];
    snprintf(word, sizeof word, " %.60s ", node->attribute[i].name);
    if (!strstr(known, word))
      return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "attribute %.60s is not known",
                             node->attribute[i].name);
  }
  return SL_OK;
}

/* Refuses a used output other than the first. Recurrent layers and Split have a check of
 * their own. */
static enum sl_status check_outputs(const reader *r, const node_of *node) {
  for (int i = 1; i < node->outputs; i++) {
    const value_of *v = *node->output[i] ? sl__onnx_find(r, node->output[i]) : NULL;
    if (v && v->uses && strcmp(node->op, "LSTM") != 0 && strcmp(node->op, "GRU") != 0 &&
        strcmp(node->op, "Split") != 0)
      return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "its output '%.64s' is not supported",
                             v->name);
  }
  return SL_OK;
}

enum sl_status sl__onnx_operator(reader *r, const node_of *node) {
  enum sl_status status;
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
    if (strcmp(operators[i].op, node->op) != 0) continue;
    SL__TRY(check_attributes(r, node, operators[i].attributes));
    SL__TRY(check_outputs(r, node));
    return operators[i].read(r, node);
  }
  status = sl__onnx_refuse(r, node, SL_UNSUPPORTED, "%s",
                           strcmp(node->op, "Softmax") && strcmp(node->op, "LogSoftmax")
                               ? "there is no layer for this operator"
                               : "models end in logits, before the softmax: export it without");
out:
  return status;
}
