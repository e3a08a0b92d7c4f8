/* Datasets of bytes and labels in memory. A table normalises the bytes when they are read. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "data/dataset.h"

static enum sl_status fill(const struct sl_dataset *set, int64_t count, const int64_t *samples,
                           const struct sl__rows *rows) {
  const struct sl__byte_set *bytes = (const struct sl__byte_set *)set;
  size_t channels = (size_t)set->info.sample.dim[0], plane = set->sample_size / channels;
  float *x = rows->x;
  for (int64_t row = 0; row < count; row++) {
    const uint8_t *from = bytes->samples + (size_t)samples[row] * set->sample_size;
    for (size_t c = 0; c < channels; c++, from += plane, x += plane) {
      const float *table = bytes->table[set->info.channels > 1 ? c : 0];
      for (size_t i = 0; i < plane; i++) x[i] = table[from[i]];
    }
    rows->labels[row] = bytes->labels[samples[row]];
  }
  return SL_OK;
}

static void free_bytes(struct sl_dataset *set) {
  struct sl__byte_set *bytes = (struct sl__byte_set *)set;
  free(bytes->samples);
  free(bytes->labels);
  free(bytes->table);
}

static const struct sl__dataset_kind byte_kind = {.fill = fill, .free = free_bytes};

struct sl__byte_set *sl__as_byte_set(const struct sl_dataset *set) {
  return set->kind == &byte_kind ? (struct sl__byte_set *)set : NULL;
}

enum sl_status sl__byte_set_new(const char *name, const struct sl_shape *sample, int64_t count,
                                int classes, const float *mean, const float *deviation,
                                struct sl__byte_set **result) {
  struct sl_dataset *set = NULL;
  const struct sl__normal normal = {(int)sample->dim[0], mean, deviation};
  enum sl_status status;
  SL__TRY(sl__dataset_begin(
      &byte_kind, sizeof(struct sl__byte_set),
      &(struct sl_dataset_info){
          .name = name, .sample = *sample, .count = count, .classes = classes, .bytes = true},
      &set));
  struct sl__byte_set *bytes = (struct sl__byte_set *)set;
  SL__TRY(sl__dataset_normalise(set, &normal, NULL));
  bytes->samples = sl__alloc((size_t)count, set->sample_size, name);
  bytes->labels = sl__alloc((size_t)count, sizeof *bytes->labels, name);
  bytes->table = sl__alloc((size_t)set->info.channels, sizeof *bytes->table, name);
  if (!bytes->samples || !bytes->labels || !bytes->table) SL__TRY(SL_NO_MEMORY);
  for (int c = 0; c < set->info.channels; c++)
    for (int v = 0; v < 256; v++)
      bytes->table[c][v] = ((float)v / 255.0f - set->info.mean[c]) / set->info.deviation[c];
  *result = bytes;
  return SL_OK;
out:
  sl_dataset_free(set);
  return status;
}

enum sl_status sl_dataset_new(const char *name, const struct sl_shape *sample, int64_t count,
                              int classes, const uint8_t *samples, const int32_t *labels,
                              const float *mean, const float *deviation,
                              struct sl_dataset **dataset) {
  SL__NEEDS(name, sample, samples, labels, dataset);
  struct sl__byte_set *bytes;
  enum sl_status status = sl__byte_set_new(name, sample, count, classes, mean, deviation, &bytes);
  if (status != SL_OK) return status;
  int64_t bad = sl__first_bad_label(labels, count, classes, false);
  if (bad < count) {
    sl_dataset_free(&bytes->set);
    return sl__fail(SL_BAD_ARGUMENT, "%s: label %lld is %d, but classes are 0 to %d", name,
                    (long long)bad, labels[bad], classes - 1);
  }
  memcpy(bytes->samples, samples, (size_t)count * bytes->set.sample_size);
  memcpy(bytes->labels, labels, (size_t)count * sizeof *labels);
  *dataset = &bytes->set;
  return SL_OK;
}
