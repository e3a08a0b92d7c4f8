#include "parallel/train/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/base/numbers.h"

#define FORMAT_NAME "starling checkpoint"
#define FORMAT_VERSION 1

enum key {
  KEY_FORMAT,
  KEY_VERSION,
  KEY_PRODUCER,
  KEY_STEP,
  KEY_EPOCH,
  KEY_SAMPLES,
  KEY_BATCH,
  KEY_WORKERS,
  KEY_SEED,
  KEY_OPTIMIZER,
  KEY_ORDER
};
static const char *const keys[SL__MANIFEST_KEYS] = {"format", "version",   "producer", "step",
                                                    "epoch",  "samples",   "batch",    "workers",
                                                    "seed",   "optimizer", "order"};
#define KEY_OF_CRC "crc32"
#define KEY_OF_NUMERICS "numerics"
#define KEY_OF_MATH "math" /* only if it is not f32: older files, which are f32, do not have it */
#define KEY_OF_FROZEN "frozen"         /* only if layers are frozen */
#define KEY_OF_TENSORS "tensors_crc32" /* not in older files */
#define KEY_OF_OPTIONS "options"       /* only if the program gave some */

/* ---- the trainer's values ---- */

static const char *optimizer_name(const struct sl_optimizer *o) {
  const struct sl__optimizer *row = sl__optimizer_of(o);
  return row->saved_as ? row->saved_as : row->name;
}

int64_t sl__whole_batch(const struct sl_loader *loader) {
  return sl_loader_batch(loader) * sl_loader_settings(loader)->num_parts;
}

/* Every setting that decides which sample comes when, and how it is augmented. */
static void order_text(const struct sl_loader *loader, char *text, size_t size) {
  const struct sl_loader_options *o = sl_loader_settings(loader);
  const struct sl_dataset_info *info = sl_dataset_info(sl_loader_dataset(loader));
  snprintf(text, size,
           "seed %" PRIu64 ", shuffle %d, contiguous %d, shift %d, flip %d, samples %" PRId64
           ", buckets %d",
           o->seed, o->shuffle, o->contiguous, o->shift, o->flip, info->count, info->bucket_count);
  /* only if there are some: older files, which have none, do not have them */
  size_t used = strlen(text);
  if (o->crop_random)
    used += (size_t)snprintf(text + used, size - used, ", crop %" PRId64 "x%" PRId64, o->crop_h,
                             o->crop_w);
  if (o->brightness > 0 || o->contrast > 0 || o->saturation > 0 || o->hue > 0)
    snprintf(text + used, size - used, ", colours %g %g %g %g", (double)o->brightness,
             (double)o->contrast, (double)o->saturation, (double)o->hue);
}

void sl__manifest_fill(const struct sl_trainer *t, struct sl__manifest *m) {
  const size_t size = sizeof m->text[0];
  const struct sl__data_position *next = &t->next_batch;
  int64_t batch = sl__whole_batch(next->loader);
  snprintf(m->text[KEY_FORMAT], size, "%s", FORMAT_NAME);
  snprintf(m->text[KEY_VERSION], size, "%d", FORMAT_VERSION);
  snprintf(m->text[KEY_PRODUCER], size, "starling");
  snprintf(m->text[KEY_STEP], size, "%" PRId64, t->step);
  snprintf(m->text[KEY_EPOCH], size, "%" PRId64, next->epoch);
  snprintf(m->text[KEY_SAMPLES], size, "%" PRId64, next->index * batch);
  snprintf(m->text[KEY_BATCH], size, "%" PRId64, batch);
  snprintf(m->text[KEY_WORKERS], size, "%d", sl__trainer_workers(t));
  snprintf(m->text[KEY_SEED], size, "%" PRIu64, t->model->context->seed);
  snprintf(m->text[KEY_OPTIMIZER], size, "%s", optimizer_name(&t->optimizer));
  order_text(next->loader, m->text[KEY_ORDER], size);
  snprintf(m->math, sizeof m->math, "%s", sl_math_name(t->grid.math));
  sl__numerics_text(t->model->context, m->numerics);
  *m->tensors = '\0';
  m->frozen = t->model->frozen;
  m->options = NULL;
}

/* ---- into a file ---- */

static bool has_math(const struct sl__manifest *m) {
  return strcmp(m->math, sl_math_name(SL_MATH_F32)) != 0;
}

static uLong add_text(uLong crc, const char *text) {
  return crc32_z(crc, (const Bytef *)text, strlen(text) + 1);
}

uint32_t sl__manifest_add_tensor(uint32_t crc, const struct sl__safetensors_entry *entry) {
  uLong sum = add_text(add_text(crc, entry->name), entry->dtype);
  for (int i = 0; i < entry->shape.ndim; i++)
    sum = crc32_z(sum, (const Bytef *)&entry->shape.dim[i], sizeof entry->shape.dim[i]);
  return (uint32_t)sum;
}

uint32_t sl__manifest_crc(const struct sl__manifest *m) {
  uLong crc = crc32(0, NULL, 0);
  for (int k = 0; k < SL__MANIFEST_KEYS; k++) crc = add_text(crc, m->text[k]);
  if (has_math(m)) crc = add_text(crc, m->math);
  if (*m->numerics) crc = add_text(crc, m->numerics);
  if (*m->tensors) crc = add_text(crc, m->tensors);
  if (m->frozen) crc = add_text(crc, m->frozen);
  if (m->options) crc = add_text(crc, m->options);
  return (uint32_t)crc;
}

void sl__manifest_metadata(const struct sl__manifest *m, const char *crc,
                           const char *metadata[SL__MANIFEST_METADATA]) {
  int n = 0;
  for (int k = 0; k < SL__MANIFEST_KEYS; k++) {
    metadata[n++] = keys[k];
    metadata[n++] = m->text[k];
  }
  metadata[n++] = KEY_OF_CRC;
  metadata[n++] = crc;
  if (has_math(m)) {
    metadata[n++] = KEY_OF_MATH;
    metadata[n++] = m->math;
  }
  if (*m->numerics) {
    metadata[n++] = KEY_OF_NUMERICS;
    metadata[n++] = m->numerics;
  }
  if (*m->tensors) {
    metadata[n++] = KEY_OF_TENSORS;
    metadata[n++] = m->tensors;
  }
  if (m->frozen) {
    metadata[n++] = KEY_OF_FROZEN;
    metadata[n++] = m->frozen;
  }
  if (m->options) {
    metadata[n++] = KEY_OF_OPTIONS;
    metadata[n++] = m->options;
  }
  metadata[n] = NULL;
}

/* ---- out of a file ---- */

static enum sl_status read_texts(const struct sl__safetensors *file, struct sl__manifest *m) {
  const char *path = sl__safetensors_path(file);
  const char *format = sl__safetensors_metadata(file, keys[KEY_FORMAT]);
  if (!format || strcmp(format, FORMAT_NAME) != 0)
    return sl__fail(SL_BAD_FILE, "%s: is not a checkpoint; are these weights alone?", path);
  for (int k = 0; k < SL__MANIFEST_KEYS; k++) {
    const char *text = sl__safetensors_metadata(file, keys[k]);
    if (!text || strlen(text) >= sizeof m->text[k])
      return sl__fail(SL_BAD_FILE, "%s: damaged: its metadata have no \"%s\"", path, keys[k]);
    snprintf(m->text[k], sizeof m->text[k], "%s", text);
  }
  const char *math = sl__safetensors_metadata(file, KEY_OF_MATH);
  snprintf(m->math, sizeof m->math, "%s", math ? math : sl_math_name(SL_MATH_F32));
  const char *numerics = sl__safetensors_metadata(file, KEY_OF_NUMERICS);
  snprintf(m->numerics, sizeof m->numerics, "%s", numerics ? numerics : "");
  const char *tensors = sl__safetensors_metadata(file, KEY_OF_TENSORS);
  snprintf(m->tensors, sizeof m->tensors, "%s", tensors ? tensors : "");
  m->frozen = sl__safetensors_metadata(file, KEY_OF_FROZEN);
  m->options = sl__safetensors_metadata(file, KEY_OF_OPTIONS);
  return SL_OK;
}

static enum sl_status check_crc(const struct sl__safetensors *file, const struct sl__manifest *m) {
  const char *path = sl__safetensors_path(file);
  const char *stored = sl__safetensors_metadata(file, KEY_OF_CRC);
  size_t size;
  char found[16];
  const void *data = sl__safetensors_data(file, &size);
  snprintf(found, sizeof found, "%08" PRIx32, (uint32_t)crc32_z(sl__manifest_crc(m), data, size));
  if (stored && strcmp(stored, found) == 0) return SL_OK;
  return sl__fail(SL_BAD_FILE, "%s: damaged: its CRC-32 is %s, not %.16s; take another one", path,
                  found, stored ? stored : "stored");
}

static enum sl_status check_tensors(const struct sl__safetensors *file,
                                    const struct sl__manifest *m) {
  uint32_t crc = 0;
  char found[16];
  for (size_t i = 0; i < sl__safetensors_count(file); i++)
    crc = sl__manifest_add_tensor(crc, sl__safetensors_at(file, i));
  snprintf(found, sizeof found, "%08" PRIx32, crc);
  if (!*m->tensors || !strcmp(m->tensors, found)) return SL_OK;
  return sl__fail(SL_BAD_FILE,
                  "%s: damaged: the CRC-32 of its tensors' names and shapes is %s, not %s; take "
                  "another one",
                  sl__safetensors_path(file), found, m->tensors);
}

static enum sl_status read_number(const struct sl__manifest *m, const struct sl__safetensors *file,
                                  enum key key, int64_t least, int64_t *value) {
  const char *text = m->text[key];
  if (sl__parse_whole(text, least, INT64_MAX, value)) return SL_OK;
  return sl__fail(SL_BAD_FILE, "%s: its %s \"%.20s\" is no number", sl__safetensors_path(file),
                  keys[key], text);
}

enum sl_status sl__manifest_read(const struct sl__safetensors *file, struct sl__manifest *m) {
  enum sl_status status;
  int64_t version;
  SL__TRY(read_texts(file, m));
  SL__TRY(check_crc(file, m)); /* first: a damaged version is damage */
  SL__TRY(read_number(m, file, KEY_VERSION, 1, &version));
  if (version > FORMAT_VERSION)
    return sl__fail(SL_UNSUPPORTED, "%s: is of version %" PRId64 ", this library reads %d",
                    sl__safetensors_path(file), version, FORMAT_VERSION);
  status = check_tensors(file, m);
out:
  return status;
}

/* Layers that have begun to train would have no state of the optimizer. */
static enum sl_status check_frozen(const struct sl__manifest *m, const struct sl_model *model,
                                   const char *path) {
  const char *there = m->frozen ? m->frozen : "none",
             *here = model->frozen ? model->frozen : "none";
  if (!strcmp(there, here)) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "%s: was trained with other frozen layers (%.200s) than this trainer's (%.200s); "
                  "freeze the same ones, or begin a new training from the checkpoint's weights",
                  path, there, here);
}

enum sl_status sl__manifest_check(const struct sl__manifest *m, const struct sl_trainer *t,
                                  const struct sl_loader *loader, const char *path) {
  char text[sizeof m->text[0]];
  const char *optimizer = optimizer_name(&t->optimizer);
  if (strcmp(m->text[KEY_OPTIMIZER], optimizer) != 0)
    return sl__fail(SL_BAD_ARGUMENT, "%s: was trained by %s, this trainer's optimizer is %s", path,
                    m->text[KEY_OPTIMIZER], optimizer);
  snprintf(text, sizeof text, "%" PRIu64, t->model->context->seed);
  if (strcmp(m->text[KEY_SEED], text) != 0)
    return sl__fail(SL_BAD_ARGUMENT, "%s: was trained with seed %s, this run has %s", path,
                    m->text[KEY_SEED], text);
  order_text(loader, text, sizeof text);
  if (strcmp(m->text[KEY_ORDER], text) != 0)
    return sl__fail(SL_BAD_ARGUMENT, "%s: its data came in another order (%s), the loader has (%s)",
                    path, m->text[KEY_ORDER], text);
  return check_frozen(m, t->model, path);
}

enum sl_status sl__manifest_resume_point(const struct sl__manifest *m, struct sl_loader *loader,
                                         const struct sl__safetensors *file,
                                         struct sl__resume_point *point) {
  enum sl_status status;
  struct sl_position *position = &point->position;
  int64_t samples, batch, own = sl__whole_batch(loader);
  bool by_sample = !sl_loader_settings(loader)->contiguous &&
                   !sl_dataset_info(sl_loader_dataset(loader))->bucket_count;
  SL__TRY(read_number(m, file, KEY_STEP, 1, &position->step));
  SL__TRY(read_number(m, file, KEY_EPOCH, 0, &position->epoch));
  SL__TRY(read_number(m, file, KEY_SAMPLES, 0, &samples));
  SL__TRY(read_number(m, file, KEY_BATCH, 1, &batch));
  if (samples && batch != own && !by_sample)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: is from the middle of an epoch in batches of %" PRId64
                    ", but the loader's batches are of %" PRId64
                    "; texts and buckets need the same",
                    sl__safetensors_path(file), batch, own);
  position->index = samples / own;
  SL__TRY(read_number(m, file, KEY_WORKERS, 1, &point->workers));
  if (point->workers > 1000000)
    return sl__fail(SL_BAD_FILE, "%s: says it is of %" PRId64 " workers",
                    sl__safetensors_path(file), point->workers);
out:
  return status;
}
