/* Datasets that the library opens: generated ones, and folders. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/predict/failure.h"
#include "tools/predict/sample_format.h"

bool is_dataset(const char *name) {
  const struct sl_dataset_format *format = sl_dataset_detect(name);
  return format && (!format->generated || access(name, F_OK) != 0);
}

static int open_dataset(struct samples *s) {
  enum sl_status status = sl_dataset_open(s->path, s->options->seed, s->options->train, &s->set);
  if (status != SL_OK) return fail_library(status);
  const struct sl_dataset_info *info = sl_dataset_info(s->set);
  const int64_t *dim = info->sample.dim;
  const char *why = picture_room(&s->picture, dim[2], dim[1], (int)dim[0]);
  if (why) return samples_bad(s, why);
  s->size = (size_t)sl_shape_count(&info->sample) * sizeof(float);
  s->bytes = malloc(s->size);
  s->count = info->count;
  s->picture.most = 255;
  return s->bytes ? EXIT_DONE : fail_memory();
}

/* Turns the values back into bytes, which are then normalised for the model. */
static int next_of_dataset(struct samples *s, float *values, int64_t *label, bool *none) {
  const struct sl_dataset_info *info = sl_dataset_info(s->set);
  int64_t channels = info->sample.dim[0], plane = info->sample.dim[1] * info->sample.dim[2];
  float *floats = (float *)s->bytes;
  int32_t class;
  (void)values;
  *none = s->index == s->count;
  if (*none) return EXIT_DONE;
  enum sl_status status = sl_dataset_get(s->set, s->index, floats, &class);
  if (status != SL_OK) return fail_library(status);
  for (int64_t c = 0; c < channels; c++) {
    int k = info->channels > 1 ? (int)c : 0;
    for (int64_t i = 0; i < plane; i++)
      s->picture.values[i * channels + c] =
          (uint16_t)lrintf((floats[c * plane + i] * info->deviation[k] + info->mean[k]) * 255);
  }
  *label = class;
  return EXIT_DONE;
}

const struct sample_format dataset_format = {.open = open_dataset, .next = next_of_dataset};
