#include "data/colour.h"

#include <math.h>

#include "core/base/error.h"
#include "core/base/random.h"

/* Mark the streams of the factors and of the order; SL__STREAM_AUGMENT's own is the views'. */
#define FACTORS_OF (1ull << 54)
#define ORDER_OF (1ull << 53)

/* Values that rounding has put this far outside of 0 to 1 are taken as 0 and 1. */
#define ROUNDING 1e-3f

bool sl__colour_wanted(const struct sl_loader_options *o) {
  return o->brightness != 0 || o->contrast != 0 || o->saturation != 0 || o->hue != 0;
}

enum sl_status sl__colour_check(const struct sl_dataset_info *info,
                                const struct sl_loader_options *o) {
  const struct {
    const char *name;
    float value, most;
  } strengths[] = {{"brightness", o->brightness, 10},
                   {"contrast", o->contrast, 10},
                   {"saturation", o->saturation, 10},
                   {"hue", o->hue, 0.5f}};
  if (!sl__colour_wanted(o)) return SL_OK;
  for (int i = 0; i < SL__COLOUR_CHANGES; i++)
    if (!(strengths[i].value >= 0 && strengths[i].value <= strengths[i].most))
      return sl__fail(SL_BAD_ARGUMENT, "%s: %s changes by %g; give 0 to %g", info->name,
                      strengths[i].name, (double)strengths[i].value, (double)strengths[i].most);
  if (info->sample.ndim == 3 && (info->sample.dim[0] == 1 || info->sample.dim[0] == 3))
    return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "%s: only pictures [C, H, W] of 1 or 3 channels have colours that can change",
                  info->name);
}

/* A factor from 1 - strength, at least 0, to 1 + strength. */
static float draw_factor(float strength, uint32_t bits) {
  float least = strength < 1 ? 1 - strength : 0;
  return least + (1 + strength - least) * sl__unit(bits);
}

struct sl__colour sl__colour_draw(const struct sl_loader_options *o, int64_t epoch, int64_t i) {
  struct sl__random4 r = sl__philox(
      o->seed, sl__stream(SL__STREAM_AUGMENT, (uint64_t)epoch | FACTORS_OF), (uint64_t)i);
  struct sl__random4 places =
      sl__philox(o->seed, sl__stream(SL__STREAM_AUGMENT, (uint64_t)epoch | ORDER_OF), (uint64_t)i);
  struct sl__colour colour = {.brightness = draw_factor(o->brightness, r.v[0]),
                              .contrast = draw_factor(o->contrast, r.v[1]),
                              .saturation = draw_factor(o->saturation, r.v[2]),
                              .hue = o->hue * (2 * sl__unit(r.v[3]) - 1),
                              .order = {0, 1, 2, 3}};
  for (int last = SL__COLOUR_CHANGES - 1; last > 0; last--) { /* Fisher and Yates */
    int other = (int)(((uint64_t)places.v[last] * ((uint64_t)last + 1)) >> 32);
    int moved = colour.order[last];
    colour.order[last] = colour.order[other];
    colour.order[other] = moved;
  }
  return colour;
}

/* ---- the four changes, of values from 0 to 1 ---- */

struct pixels {
  float *values;
  size_t plane; /* pixels of a channel */
  int channels; /* 1 or 3 */
};

static inline float clamp(float value) { return value < 0 ? 0 : value > 1 ? 1 : value; }

/* torchvision's greyscale */
static inline float grey(const struct pixels *p, size_t i) {
  const float *v = p->values + i;
  return p->channels == 1 ? v[0] : 0.2989f * v[0] + 0.587f * v[p->plane] + 0.114f * v[2 * p->plane];
}

static void change_brightness(const struct pixels *p, float factor) {
  for (size_t i = 0; i < p->plane * (size_t)p->channels; i++)
    p->values[i] = clamp(factor * p->values[i]);
}

static void change_contrast(const struct pixels *p, float factor) {
  double sum = 0;
  for (size_t i = 0; i < p->plane; i++) sum += (double)grey(p, i);
  float rest = (1 - factor) * (float)(sum / (double)p->plane);
  for (size_t i = 0; i < p->plane * (size_t)p->channels; i++)
    p->values[i] = clamp(factor * p->values[i] + rest);
}

static void change_saturation(const struct pixels *p, float factor) {
  for (size_t i = 0; i < p->plane && p->channels == 3; i++) {
    float rest = (1 - factor) * grey(p, i);
    for (size_t c = 0; c < 3; c++) {
      float *value = p->values + c * p->plane + i;
      *value = clamp(factor * *value + rest);
    }
  }
}

/* The hue of a colour, 0 to below 1. chroma: greatest less smallest value, above 0. */
static float hue_of(const float rgb[3], float most, float chroma) {
  float r = (most - rgb[0]) / chroma, g = (most - rgb[1]) / chroma, b = (most - rgb[2]) / chroma;
  float sixths = most == rgb[0] ? b - g : most == rgb[1] ? 2 + r - b : 4 + g - r;
  return fmodf(sixths / 6 + 1, 1);
}

/* The colour of hue (0 to below 1), saturation and value (Smith 1978, as Python's colorsys). */
static void colour_of(float hue, float saturation, float value, float rgb[3]) {
  float sixths = hue * 6, whole = floorf(sixths), part = sixths - whole;
  float p = clamp(value * (1 - saturation)), q = clamp(value * (1 - saturation * part));
  float t = clamp(value * (1 - saturation * (1 - part)));
  const float colours[6][3] = {{value, t, p}, {q, value, p}, {p, value, t},
                               {p, q, value}, {t, p, value}, {value, p, q}};
  for (int c = 0; c < 3; c++) rgb[c] = colours[(int)whole % 6][c];
}

static void change_hue(const struct pixels *p, float turn) {
  for (size_t i = 0; i < p->plane && p->channels == 3; i++) {
    float *v = p->values + i, rgb[3] = {v[0], v[p->plane], v[2 * p->plane]};
    float most = fmaxf(rgb[0], fmaxf(rgb[1], rgb[2]));
    float chroma = most - fminf(rgb[0], fminf(rgb[1], rgb[2]));
    if (!(chroma > 0)) continue; /* grey has no hue */
    float hue = hue_of(rgb, most, chroma) + turn;
    colour_of(hue - floorf(hue), chroma / most, most, rgb);
    for (size_t c = 0; c < 3; c++) v[c * p->plane] = rgb[c];
  }
}

/* ---- all of it ---- */

/* To values from 0 to 1; false if one is outside. */
static bool take_values(const struct sl_dataset_info *info, const struct pixels *p, float *bad) {
  for (int c = 0; c < p->channels; c++) {
    const float mean = info->mean[info->channels > 1 ? c : 0];
    const float deviation = info->deviation[info->channels > 1 ? c : 0];
    float *values = p->values + (size_t)c * p->plane, least = 0, most = 1;
    for (size_t i = 0; i < p->plane; i++) {
      float value = values[i] * deviation + mean;
      least = value < least ? value : least;
      most = value > most ? value : most;
      values[i] = clamp(value);
    }
    *bad = least < -ROUNDING ? least : most;
    if (least < -ROUNDING || most > 1 + ROUNDING) return false;
  }
  return true;
}

static void normalise(const struct sl_dataset_info *info, const struct pixels *p) {
  for (int c = 0; c < p->channels; c++) {
    const float mean = info->mean[info->channels > 1 ? c : 0];
    const float deviation = info->deviation[info->channels > 1 ? c : 0];
    float *values = p->values + (size_t)c * p->plane;
    for (size_t i = 0; i < p->plane; i++) values[i] = (values[i] - mean) / deviation;
  }
}

bool sl__colour_change(const struct sl_dataset_info *info, const struct sl_shape *shape,
                       const struct sl__colour *colour, float *picture, float *value) {
  const struct pixels p = {picture, (size_t)(shape->dim[1] * shape->dim[2]), (int)shape->dim[0]};
  if (!take_values(info, &p, value)) return false;
  for (int i = 0; i < SL__COLOUR_CHANGES; i++) {
    int change = colour->order[i];
    if (change == 0 && colour->brightness != 1) change_brightness(&p, colour->brightness);
    if (change == 1 && colour->contrast != 1) change_contrast(&p, colour->contrast);
    if (change == 2 && colour->saturation != 1) change_saturation(&p, colour->saturation);
    if (change == 3 && colour->hue != 0) change_hue(&p, colour->hue);
  }
  normalise(info, &p);
  return true;
}
