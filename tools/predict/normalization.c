/* Means and deviations of the training's inputs: three at most of pictures, any
 * number of numbers. */
#include <stdio.h>
#include <string.h>

#include "tools/predict/predict.h"

static void set_normal(struct preparation *how, int count, const float *mean,
                       const float *deviation) {
  for (int c = 0; c < 3; c++) {
    how->mean[c] = mean[count == 3 ? c : 0];
    how->deviation[c] = deviation[count == 3 ? c : 0];
  }
  how->known = true;
}

/* Pictures and numbers alike. What the model's file says of the inputs' kind holds on; where it
 * says nothing, `values` does. */
static void set_all(struct preparation *how, int count, const float *mean, const float *deviation,
                    bool values) {
  how->given = *how->notes;
  if (!how->notes->channels) how->given.values = values;
  how->given.channels = count;
  how->given.mean = mean;
  how->given.deviation = deviation;
  how->notes = &how->given;
  if (how->pictures) set_normal(how, count, mean, deviation);
}

static const float mnist[2] = {0.1307f, 0.3081f};
static const float cifar10[2][3] = {{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}};
static const float none[2] = {0, 1};

static int set_named(struct program *p, struct preparation *how) {
  const char *name = p->normalize;
  bool is_none = !strcmp(name, "none"), colour = !strcmp(name, "cifar10");
  if (!how->pictures && !is_none)
    return fail(EXIT_USAGE,
                "--normalize %s: is of pictures, and %s takes none; give --mean and --deviation",
                name, p->engine.model);
  if (colour && how->shape.dim[0] != 3)
    return fail(EXIT_USAGE, "--normalize cifar10: is of 3 channels, and %s takes 1",
                p->engine.model);
  if (colour)
    set_all(how, 3, cifar10[0], cifar10[1], false);
  else
    set_all(how, 1, is_none ? &none[0] : &mnist[0], is_none ? &none[1] : &mnist[1], !how->pictures);
  return EXIT_DONE;
}

/* A list of 1 becomes one of `count`. */
static int spread(struct numbers *list, float unset, int count, int64_t channels) {
  if (!list->count) *list = (struct numbers){{unset}, 1};
  if (list->count != 1 && list->count != channels)
    return fail(EXIT_USAGE, "--mean, --deviation: %d numbers, but the model has %lld %s",
                list->count, (long long)channels, channels > 3 ? "inputs" : "channels");
  for (; list->count < count; list->count++) list->value[list->count] = list->value[0];
  return EXIT_DONE;
}

static int set_given(struct program *p, struct preparation *how) {
  int64_t channels = how->shape.dim[0];
  int count = p->mean.count > p->deviation.count ? p->mean.count : p->deviation.count;
  int code = spread(&p->mean, 0, count, channels);
  if (code == EXIT_DONE) code = spread(&p->deviation, 1, count, channels);
  if (code == EXIT_DONE) set_all(how, count, p->mean.value, p->deviation.value, true);
  return code;
}

/* The usual sets' shapes; said, because it is a guess. */
static int set_usual(struct program *p, struct preparation *how) {
  bool grey = sl_shape_equal(&how->shape, &SL_SHAPE(1, 28, 28));
  if (!grey && !sl_shape_equal(&how->shape, &SL_SHAPE(3, 32, 32)))
    return fail(EXIT_FAILED,
                "%s: does not say how its inputs were normalised; give --normalize, or --mean and "
                "--deviation",
                p->engine.model);
  if (grey)
    set_normal(how, 1, &mnist[0], &mnist[1]);
  else
    set_normal(how, 3, cifar10[0], cifar10[1]);
  if (!p->quiet)
    remark(
        "%s does not say how its inputs were normalised; pictures are taken as %s's, numbers as "
        "they are",
        p->engine.model, grey ? "mnist" : "cifar10");
  return EXIT_DONE;
}

static int set_noted(struct program *p, struct preparation *how) {
  const struct sl_model_notes *notes = how->notes;
  if (!how->pictures) return EXIT_DONE;
  if (!notes->channels) return set_usual(p, how);
  set_normal(how, notes->channels, notes->mean, notes->deviation);
  return EXIT_DONE;
}

int choose_normalization(struct program *p, const struct engine *engine) {
  struct preparation *how = &p->images.preparation;
  how->shape = engine->input;
  how->notes = sl_model_notes(engine->model);
  how->pictures = how->shape.ndim == 3 && (how->shape.dim[0] == 1 || how->shape.dim[0] == 3);
  if (p->images.format == FORMAT_RAW) return EXIT_DONE;
  if (p->mean.count || p->deviation.count) return set_given(p, how);
  return p->normalize ? set_named(p, how) : set_noted(p, how);
}
