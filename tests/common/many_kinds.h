/* Networks with many kinds of layers, for the tests of files that hold a model. */
#ifndef TESTS_MANY_KINDS_H
#define TESTS_MANY_KINDS_H

#include "tests/common/small_model.h"

/* Normalisations of each sample. */
static inline struct sl_model *normed(void) {
  struct sl_model *m = new_model(SL_SHAPE(6, 4, 5));
  OK(sl_groupnorm(m, "groups", &(struct sl_groupnorm_options){.groups = 3, .epsilon = 0.01f}));
  OK(sl_groupnorm(m, "one", &(struct sl_groupnorm_options){.groups = 1, .plain = true}));
  OK(sl_groupnorm(m, "instance", &(struct sl_groupnorm_options){0}));
  OK(sl_groupnorm(m, "alone", &(struct sl_groupnorm_options){.plain = true}));
  OK(sl_layernorm(m, "rows", &(struct sl_layernorm_options){0}));
  OK(sl_layernorm(m, "planes", &(struct sl_layernorm_options){.axes = 2, .epsilon = 0.1f}));
  OK(sl_layernorm(m, "plain", &(struct sl_layernorm_options){.axes = 3, .plain = true}));
  OK(sl_layernorm(m, "rms", &(struct sl_layernorm_options){.rms = true}));
  OK(sl_layernorm(m, "plain_rms",
                  &(struct sl_layernorm_options){.axes = 2, .plain = true, .rms = true}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 3}));
  return m;
}

/* Planes that grow. */
static inline struct sl_model *grown(void) {
  struct sl_model *m = new_model(SL_SHAPE(2, 4, 3));
  OK(sl_upsample2d(m, "nearest", &(struct sl_upsample2d_options){.scale_h = 2}));
  OK(sl_upsample2d(m, "linear",
                   &(struct sl_upsample2d_options){.scale_h = 1, .scale_w = 3, .bilinear = true}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 3}));
  return m;
}

/* Windows over rows. */
static inline struct sl_model *rows(void) {
  struct sl_model *m = new_model(SL_SHAPE(4, 21));
  OK(sl_conv1d(m, "conv1",
               &(struct sl_conv1d_options){
                   .channels = 6, .kernel = 3, .pad = 1, .activation = SL_ACTIVATION_RELU}));
  OK(sl_maxpool1d(m, "pool1", &(struct sl_pool1d_options){.kernel = 3, .stride = 2, .pad = 1}));
  OK(sl_conv1d(m, "conv2",
               &(struct sl_conv1d_options){
                   .channels = 4, .kernel = 2, .dilation = 3, .groups = 2, .no_bias = true}));
  OK(sl_avgpool1d(m, "pool2", &(struct sl_pool1d_options){.kernel = 2}));
  OK(sl_conv1d(m, "conv3", &(struct sl_conv1d_options){.channels = 3, .kernel = 2, .stride = 2}));
  OK(sl_conv_transpose1d(m, "up",
                         &(struct sl_conv_transpose1d_options){.channels = 4,
                                                               .kernel = 3,
                                                               .stride = 2,
                                                               .pad = 1,
                                                               .output_pad = 1,
                                                               .activation = SL_ACTIVATION_TANH}));
  OK(sl_conv_transpose1d(
      m, "wide",
      &(struct sl_conv_transpose1d_options){
          .channels = 6, .kernel = 2, .dilation = 2, .groups = 2, .no_bias = true}));
  OK(sl_upsample1d(m, "nearest", &(struct sl_upsample1d_options){.scale = 2}));
  OK(sl_upsample1d(m, "linear", &(struct sl_upsample1d_options){.scale = 3, .linear = true}));
  OK(sl_avgpool1d(m, "pool3", &(struct sl_pool1d_options){.global = true}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 3}));
  return m;
}

#endif
