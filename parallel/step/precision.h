/* The types of a training's numbers (enum sl_math). With bf16, activations and their gradients are
 * bf16, and passes read a bf16 copy of the parameters; the parameters, their gradients and the
 * optimizer's state stay f32, so that updates far below bf16's resolution add up (Micikevicius et
 * al., arXiv 1710.03740).
 */
#ifndef SL_PARALLEL_STEP_PRECISION_H
#define SL_PARALLEL_STEP_PRECISION_H

#include <starling/parallel.h>

#include "nn/layer.h"

/* Of activations and their gradients. */
static inline enum sl_type sl__value_type(enum sl_math math) {
  return math == SL_MATH_BF16 ? SL_BF16 : SL_F32;
}

/* Of a layer's output: bf16 would round tokens. */
static inline enum sl_type sl__output_type(const struct sl__layer *layer, enum sl_math math) {
  return layer->gives_tokens ? SL_F32 : sl__value_type(math);
}

/* Of the tensor that a layer saves: statistics of a slice stay f32, indices are i32. */
static inline enum sl_type sl__saved_type(const struct sl__layer *layer, enum sl_math math) {
  bool is_value = layer->saved_per_row && layer->saved_type == SL_F32 && !layer->wide_saved;
  return is_value ? sl__value_type(math) : layer->saved_type;
}

/* Do passes read a bf16 copy of the layer's parameters? */
static inline bool sl__has_bf16_copy(const struct sl__layer *layer, enum sl_math math) {
  return math == SL_MATH_BF16 && layer->params.total && !layer->kind->wide_params;
}

/* The tensor that passes read. */
static inline struct sl__tensor *sl__param_of(const struct sl_model *model, int layer,
                                              enum sl_math math) {
  const struct sl__layer *l = &model->layers[layer];
  return sl__has_bf16_copy(l, math) ? l->params.half : l->params.tensor;
}

/* Room for a layer's copy, where it is to have one and has none yet. It goes with the model. */
enum sl_status sl__bf16_copy_make(struct sl_model *model, int layer);

/* Submits, where the layer has a copy: make it again. */
enum sl_status sl__bf16_copy_submit(struct sl_model *model, int layer,
                                    const struct sl__place *place);

/* The same if the parameters were written since. To be called before each pass that reads it. */
enum sl_status sl__bf16_copy_refresh(struct sl_model *model, int layer,
                                     const struct sl__place *place);

/* To be called where a captured graph made the copy behind the parameters' last write. */
void sl__bf16_copy_made(struct sl_model *model, int layer);

#endif
