#include "codelets/kernels/conv_epilogue.h"

#include "codelets/batchnorm.h"
#include "core/base/simd.h"

/* The choices are constants in each call. */
SL__INLINE void finish_as(const struct sl__runs *r, const bool norm, const bool residual,
                          const bool relu) {
  for (int64_t k = 0; k < r->channels; k++) {
    float *restrict y = r->y + k * r->plane;
    const float *restrict other = residual ? r->epilogue.residual + k * r->plane : NULL;
    float mean = norm ? r->epilogue.mean[k] : 0, scale = norm ? r->epilogue.scale[k] : 1;
    float shift = norm ? r->epilogue.shift[k] : 0;
    for (int64_t i = 0; i < r->count; i++) {
      float v = y[i];
      if (norm) v = sl__norm_value(v, mean, scale, shift);
      if (residual) v = v + other[i];
      y[i] = relu ? sl__activation_value(SL_ACTIVATION_RELU, v) : v;
    }
  }
}

SL__SIMD static void finish(const struct sl__runs *r, bool relu) {
  bool norm = r->epilogue.scale, residual = r->epilogue.residual;
  if (norm && residual && relu)
    finish_as(r, true, true, true);
  else if (norm && residual)
    finish_as(r, true, true, false);
  else if (norm && relu)
    finish_as(r, true, false, true);
  else if (norm)
    finish_as(r, true, false, false);
  else if (residual && relu)
    finish_as(r, false, true, true);
  else if (residual)
    finish_as(r, false, true, false);
  else if (relu)
    finish_as(r, false, false, true);
}

struct sl__runs sl__runs_of(const struct sl__conv_args *a, const struct sl__conv_epilogue *epilogue,
                            float *y, int64_t first, int64_t end) {
  int64_t pixels = sl__conv_pixels(a);
  struct sl__runs r = {
      .channels = end - first, .plane = pixels, .count = pixels, .y = y + first * pixels};
  if (epilogue->scale)
    r.epilogue = (struct sl__conv_epilogue){epilogue->mean + first, epilogue->scale + first,
                                            epilogue->shift + first, NULL};
  if (epilogue->residual) r.epilogue.residual = epilogue->residual + first * pixels;
  return r;
}

void sl__conv_epilogue_apply(const struct sl__runs *r, enum sl_activation activation, int64_t from,
                             int64_t end) {
  struct sl__runs part = *r;
  part.y += from;
  part.count = end - from;
  if (part.epilogue.residual) part.epilogue.residual += from;
  finish(&part, activation == SL_ACTIVATION_RELU);
  bool is_done = activation == SL_ACTIVATION_NONE || activation == SL_ACTIVATION_RELU;
  for (int64_t k = 0; k < r->channels && !is_done; k++)
    sl__activate(activation, part.y + k * r->plane, part.y + k * r->plane, part.count);
}
