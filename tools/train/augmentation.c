#include "tools/train/augmentation.h"

#include <stdio.h>
#include <string.h>

#define USUAL_COLOUR 0.2

/* The words of a list; those that take a number have a range. */
struct word {
  const char *name;
  double least, most; /* of the number; most 0: there is none */
  double usual;       /* without the number; 0: it must be there */
  void (*set)(struct augmentation *a, double value);
};

static void set_shift(struct augmentation *a, double value) { a->shift = (int)value; }
static void set_flip(struct augmentation *a, double value) { (void)value, a->flip = true; }
static void set_brightness(struct augmentation *a, double value) { a->brightness = value; }
static void set_contrast(struct augmentation *a, double value) { a->contrast = value; }
static void set_saturation(struct augmentation *a, double value) { a->saturation = value; }
static void set_hue(struct augmentation *a, double value) { a->hue = value; }
static void set_colour(struct augmentation *a, double value) {
  a->brightness = a->contrast = a->saturation = value;
}

static const struct word words[] = {{"shift", 1, 1000, SHIFT_USUAL, set_shift},
                                    {"flip", 0, 0, 0, set_flip},
                                    {"colour", 0, 10, USUAL_COLOUR, set_colour},
                                    {"brightness", 0, 10, 0, set_brightness},
                                    {"contrast", 0, 10, 0, set_contrast},
                                    {"saturation", 0, 10, 0, set_saturation},
                                    {"hue", 0, 0.5, 0, set_hue}};

/* "shift=2" */
static const char *take_word(const char *text, struct augmentation *a) {
  size_t length = strcspn(text, "=");
  const char *number = text[length] ? text + length + 1 : NULL, *why = NULL;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    const struct word *word = &words[i];
    double value = word->usual;
    if (strlen(word->name) != length || strncmp(word->name, text, length) != 0) continue;
    if (number && !(word->most > 0)) return option_problem("%s takes no number", word->name);
    if (!number && word->most > 0 && value == 0)
      return option_problem("%s needs a strength: %s=0.2", word->name, word->name);
    if (number) why = option_real(number, word->least, word->most, &value);
    if (!why && number && word->set == set_shift && value != (double)(int)value)
      why = "must be a whole number";
    if (!why) word->set(a, value);
    return why;
  }
  return option_problem(
      "'%s' is unknown; use shift, flip, colour, brightness, contrast, "
      "saturation or hue",
      text);
}

const char *augmentation_parse(const char *text, struct augmentation *augmentation) {
  *augmentation = (struct augmentation){.text = text};
  if (text && !*text) return "is empty; leave the = out for what is usual";
  while (text) {
    char word[64];
    size_t length = strcspn(text, ",");
    if (length >= sizeof word) return "has a word that is too long";
    snprintf(word, length + 1, "%s", text);
    const char *why = take_word(word, augmentation);
    if (why) return why;
    text = text[length] ? text + length + 1 : NULL;
  }
  return NULL;
}

/* In pixels; below the size of a picture, or of the window that is cut out of it. */
static int usual_shift(const struct cli *cli, const struct sl_dataset_info *info) {
  if (info->sample.ndim != 3) return 2; /* which is refused */
  const int64_t *dim = info->sample.dim;
  int64_t height = cli->crop_h ? cli->crop_h : dim[1], width = cli->crop_w ? cli->crop_w : dim[2];
  int64_t least = height < width ? height : width;
  int shift = dim[0] == 3 ? 4 : 2;
  while (shift >= least) shift /= 2;
  return shift;
}

void augmentation_set(const struct cli *cli, const struct sl_dataset_info *info,
                      struct sl_loader_options *options) {
  const struct augmentation *a = &cli->augmentation;
  bool colour = info->sample.ndim == 3 && info->sample.dim[0] == 3;
  options->crop_random = cli->crop_h && !cli->whole;
  if (!cli->augment) return;
  options->shift = !a->text || a->shift == SHIFT_USUAL ? usual_shift(cli, info) : a->shift;
  options->flip = a->text ? a->flip : colour; /* a mirrored digit is not a digit */
  options->brightness = (float)a->brightness;
  options->contrast = (float)a->contrast;
  options->saturation = (float)a->saturation;
  options->hue = (float)a->hue;
}
