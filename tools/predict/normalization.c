/* Means and deviations of the training's inputs. */
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

static const float mnist[2] = {0.1307f, 0.3081f};
static const float cifar10[2][3] = {{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}};

static void set_named(struct preparation *how, const char *name) {
  static const float none[2] = {0, 1};
  if (!strcmp(name, "mnist")) set_normal(how, 1, &mnist[0], &mnist[1]);
  if (!strcmp(name, "cifar10")) set_normal(how, 3, cifar10[0], cifar10[1]);
  if (!strcmp(name, "none")) set_normal(how, 1, &none[0], &none[1]);
}

static int set_given(struct program *p, struct preparation *how) {
  int64_t channels = how->shape.dim[0];
  const struct numbers none = {{0}, 1}, one = {{1}, 1};
  const struct numbers *lists[2] = {p->mean.count ? &p->mean : &none,
                                    p->deviation.count ? &p->deviation : &one};
  float values[2][3];
  for (int k = 0; k < 2; k++) {
    if (lists[k]->count != 1 && lists[k]->count != channels)
      return fail(EXIT_USAGE, "--mean, --deviation: %d numbers, but the model has %lld channels",
                  lists[k]->count, (long long)channels);
    for (int c = 0; c < 3; c++) values[k][c] = lists[k]->value[lists[k]->count == 1 ? 0 : c];
  }
  set_normal(how, 3, values[0], values[1]);
  return EXIT_DONE;
}

/* The usual sets' shapes; said, because it is a guess. */
static int set_usual(struct program *p, struct preparation *how) {
  const char *name = sl_shape_equal(&how->shape, &SL_SHAPE(1, 28, 28))   ? "mnist"
                     : sl_shape_equal(&how->shape, &SL_SHAPE(3, 32, 32)) ? "cifar10"
                                                                         : NULL;
  if (!name)
    return fail(EXIT_FAILED,
                "%s: does not say how its inputs were normalised; give --normalize, or --mean and "
                "--deviation",
                p->engine.model);
  set_named(how, name);
  if (!p->quiet)
    remark("%s does not say how its inputs were normalised; taken as %s's", p->engine.model, name);
  return EXIT_DONE;
}

int choose_normalization(struct program *p, const struct engine *engine) {
  struct preparation *how = &p->images.preparation;
  const struct sl_model_notes *notes = sl_model_notes(engine->model);
  how->shape = engine->input;
  how->notes = notes;
  how->pictures = how->shape.ndim == 3 && (how->shape.dim[0] == 1 || how->shape.dim[0] == 3);
  if (!how->pictures || p->images.format == FORMAT_RAW) return EXIT_DONE;
  if (p->mean.count || p->deviation.count) return set_given(p, how);
  if (p->normalize)
    set_named(how, p->normalize);
  else if (notes->channels)
    set_normal(how, notes->channels, notes->mean, notes->deviation);
  return how->known ? EXIT_DONE : set_usual(p, how);
}
