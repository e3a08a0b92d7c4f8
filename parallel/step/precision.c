#include "parallel/step/precision.h"

#include <string.h>

#include "core/graph/graph.h"
#include "core/runtime/dry_run.h"

#include "parallel/step/plan.h"

static const char *const names[] = {
    [SL_MATH_F32] = "f32", [SL_MATH_TF32] = "tf32", [SL_MATH_BF16] = "bf16"};

enum sl_status sl_math_parse(const char *name, enum sl_math *math) {
  SL__NEEDS(name, math);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i])) {
      *math = (enum sl_math)i;
      return SL_OK;
    }
  return sl__fail(SL_BAD_ARGUMENT, "math '%s' is unknown; use f32, tf32 or bf16", name);
}

const char *sl_math_name(enum sl_math math) {
  return (size_t)math < sizeof names / sizeof *names ? names[math] : "?";
}

enum sl_status sl__bf16_copy_make(struct sl_model *model, int i) {
  struct sl__block *block = &model->layers[i].params;
  if (block->half || !sl__has_bf16_copy(&model->layers[i], SL_MATH_BF16)) return SL_OK;
  block->half_of = UINT64_MAX;
  return sl__tensor_temporary(model->context, &SL_SHAPE(block->total), SL_BF16, &block->half);
}

enum sl_status sl__bf16_copy_submit(struct sl_model *model, int i, const struct sl__place *place) {
  const struct sl__layer *layer = &model->layers[i];
  const struct sl__launch launch = {
      .name = layer->name, .place = *place, .priority = SL__PRIORITY_UPDATE + model->count - i};
  if (!sl__has_bf16_copy(layer, SL_MATH_BF16)) return SL_OK;
  return sl__axpy(model->context, &launch, 1.0f, layer->params.tensor, layer->params.half);
}

/* A dry run lists the task, whether the copy is up to date or not. */
enum sl_status sl__bf16_copy_refresh(struct sl_model *model, int i, const struct sl__place *place) {
  struct sl__block *block = &model->layers[i].params;
  bool is_dry_run = sl__is_dry_run(model->context);
  if (!sl__has_bf16_copy(&model->layers[i], SL_MATH_BF16)) return SL_OK;
  if (sl__graph_capturing(model->context)) return SL_OK; /* the copy is made before the run */
  if (block->half_of == sl__tensor_writes(block->tensor) && !is_dry_run) return SL_OK;
  enum sl_status status = sl__bf16_copy_submit(model, i, place);
  if (status == SL_OK && !is_dry_run) sl__bf16_copy_made(model, i);
  return status;
}

void sl__bf16_copy_made(struct sl_model *model, int i) {
  struct sl__block *block = &model->layers[i].params;
  if (sl__has_bf16_copy(&model->layers[i], SL_MATH_BF16))
    block->half_of = sl__tensor_writes(block->tensor);
}
