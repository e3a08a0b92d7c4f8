/* Optimizers' settings: names, defaults, ranges. The arithmetic is in codelets/. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include <starling/nn.h>

enum sl_status sl_optimizer_parse(const char *name, struct sl_optimizer *optimizer) {
  static const struct {
    const char *name;
    struct sl_optimizer zero_value;
  } known[] = {{"sgd", {.kind = SL_SGD}},
               {"nag", {.kind = SL_SGD, .nesterov = true, .momentum = 0.9f}},
               {"adam", {.kind = SL_ADAM}},
               {"adamw", {.kind = SL_ADAMW}}};
  for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
    if (!strcmp(name, known[i].name)) {
      *optimizer = known[i].zero_value;
      return SL_OK;
    }
  return sl__fail(SL_BAD_ARGUMENT, "optimizer '%s' is unknown; use sgd, nag, adam or adamw",
                  name ? name : "");
}

/* Written so that NaN fails too. */
static enum sl_status check_range(const char *field, float value, bool above_zero, float below) {
  if ((above_zero ? value > 0 : value >= 0) && value < below) return SL_OK;
  char limit[32] = "finite";
  if (below < HUGE_VALF) snprintf(limit, sizeof limit, "below %g", (double)below);
  return sl__fail(SL_BAD_ARGUMENT, "the optimizer's %s is %g; it must be %s 0 and %s", field,
                  (double)value, above_zero ? "above" : "at least", limit);
}

static enum sl_status check_sgd(struct sl_optimizer *o) {
  if (o->lr == 0) o->lr = 0.01f;
  if (o->nesterov && o->momentum == 0)
    return sl__fail(SL_BAD_ARGUMENT, "nesterov needs a momentum above 0 (0.9 is usual)");
  if (o->beta1 != 0 || o->beta2 != 0 || o->epsilon != 0)
    return sl__fail(SL_BAD_ARGUMENT,
                    "beta1, beta2 and epsilon are for adam and adamw, not for sgd");
  return check_range("momentum", o->momentum, false, 1.0f);
}

static enum sl_status check_adam(struct sl_optimizer *o) {
  enum sl_status status;
  if (o->momentum != 0 || o->nesterov)
    return sl__fail(SL_BAD_ARGUMENT, "momentum and nesterov are for sgd; adam has beta1 instead");
  if (o->lr == 0) o->lr = 0.001f;
  if (o->beta1 == 0) o->beta1 = 0.9f;
  if (o->beta2 == 0) o->beta2 = 0.999f;
  if (o->epsilon == 0) o->epsilon = 1e-8f;
  SL__TRY(check_range("beta1", o->beta1, true, 1.0f));
  SL__TRY(check_range("beta2", o->beta2, true, 1.0f));
  SL__TRY(check_range("epsilon", o->epsilon, true, HUGE_VALF));
out:
  return status;
}

enum sl_status sl_optimizer_check(struct sl_optimizer *optimizer) {
  enum sl_status status;
  struct sl_optimizer o = *optimizer; /* a refused one stays as it was */
  if ((unsigned)o.kind > SL_ADAMW)
    return sl__fail(SL_BAD_ARGUMENT, "%d is no kind of optimizer (SL_SGD, SL_ADAM, SL_ADAMW)",
                    (int)o.kind);
  SL__TRY(o.kind == SL_SGD ? check_sgd(&o) : check_adam(&o));
  SL__TRY(check_range("lr", o.lr, true, HUGE_VALF));
  SL__TRY(check_range("weight_decay", o.weight_decay, false, HUGE_VALF));
  SL__TRY(check_range("clip", o.clip, false, HUGE_VALF));
  *optimizer = o;
out:
  return status;
}
