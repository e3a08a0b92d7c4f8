/* Datasets of bytes and labels in memory, normalised when they are read. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "data/byte_normal.h"
#include "data/dataset.h"

/* A call for fewer bytes takes longer than their loads from a table. */
enum { LEAST_MULTIPLIED = 16 };

struct sl__byte_channel {
  struct sl__byte_normal normal;
  bool multiplies;  /* products give the table's bits */
  float table[256]; /* normalised value of every byte */
};

static void convert(const struct sl__byte_channel *channel, const uint8_t *from, size_t count,
                    float *x) {
  if (channel->multiplies && count >= LEAST_MULTIPLIED)
    sl__bytes_multiply(from, count, channel->normal, x);
  else
    for (size_t i = 0; i < count; i++) x[i] = channel->table[from[i]];
}

static void prepare(struct sl__byte_channel *channel, float mean, float deviation) {
  channel->normal = sl__byte_normal(mean, deviation);
  channel->multiplies = sl__products_are_exact(channel->normal);
  for (int v = 0; v < 256; v++) channel->table[v] = sl__by_division((uint8_t)v, channel->normal);
}

enum { NOT_DRAWN, BEING_DRAWN, DRAWN };

const uint8_t *sl__byte_set_sample(const struct sl__byte_set *set, int64_t i) {
  uint8_t *sample = set->samples + (size_t)i * set->set.sample_size, expected = NOT_DRAWN;
  if (!set->drawn) return sample;
  uint8_t *state = set->drawn + i;
  if (__atomic_load_n(state, __ATOMIC_ACQUIRE) == DRAWN) return sample;
  if (__atomic_compare_exchange_n(state, &expected, BEING_DRAWN, false, __ATOMIC_ACQUIRE,
                                  __ATOMIC_ACQUIRE)) {
    const struct sl__drawing *d = &set->drawing;
    d->draw(d->seed, d->train, i, sample);
    __atomic_store_n(state, DRAWN, __ATOMIC_RELEASE);
  }
  while (__atomic_load_n(state, __ATOMIC_ACQUIRE) != DRAWN) sched_yield(); /* some microseconds */
  return sample;
}

enum sl_status sl__byte_set_draw(struct sl__byte_set *set, const struct sl__drawing *drawing,
                                 struct sl_dataset **dataset) {
  const struct sl_dataset_info *info = &set->set.info;
  set->drawn = sl__alloc((size_t)info->count, sizeof *set->drawn, info->name);
  if (!set->drawn) {
    sl_dataset_free(&set->set);
    return SL_NO_MEMORY;
  }
  set->drawing = *drawing;
  for (int64_t i = 0; i < info->count; i++)
    set->labels[i] = drawing->draw(drawing->seed, drawing->train, i, NULL);
  *dataset = &set->set;
  return SL_OK;
}

static enum sl_status fill(const struct sl_dataset *set, int64_t count, const int64_t *samples,
                           const struct sl__rows *rows) {
  const struct sl__byte_set *bytes = (const struct sl__byte_set *)set;
  size_t channels = (size_t)set->info.channels, plane = set->sample_size / channels;
  float *x = rows->x;
  for (int64_t row = 0; row < count; row++) {
    const uint8_t *from = sl__byte_set_sample(bytes, samples[row]);
    for (size_t c = 0; c < channels; c++, from += plane, x += plane)
      convert(&bytes->channels[c], from, plane, x);
    rows->labels[row] = bytes->labels[samples[row]];
  }
  return SL_OK;
}

static void free_bytes(struct sl_dataset *set) {
  struct sl__byte_set *bytes = (struct sl__byte_set *)set;
  free(bytes->samples);
  free(bytes->drawn);
  free(bytes->labels);
  free(bytes->channels);
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
  bytes->channels = sl__alloc((size_t)set->info.channels, sizeof *bytes->channels, name);
  if (!bytes->samples || !bytes->labels || !bytes->channels) SL__TRY(SL_NO_MEMORY);
  for (int c = 0; c < set->info.channels; c++)
    prepare(&bytes->channels[c], set->info.mean[c], set->info.deviation[c]);
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
