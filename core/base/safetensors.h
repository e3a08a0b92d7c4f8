/* The safetensors file format (https://github.com/huggingface/safetensors, README "Format"): 8
 * bytes little-endian header length, a JSON header, then the data. Little-endian hosts only. */
#ifndef SL_CORE_BASE_SAFETENSORS_H
#define SL_CORE_BASE_SAFETENSORS_H

#include <starling/base.h>

#include "core/base/file.h"

/* An open file: its header is checked, every range is inside the data, without overlap or hole. */
struct sl__safetensors;
enum sl_status sl__safetensors_open(const char *path, struct sl__safetensors **file);
/* The same from bytes that the caller keeps until the close; path is for messages. */
enum sl_status sl__safetensors_parse(const char *path, const uint8_t *bytes, size_t size,
                                     struct sl__safetensors **file);
/* The file mapped instead of read: what is used is in memory, as long as there is room. */
enum sl_status sl__safetensors_map(const char *path, struct sl__safetensors **file);
void sl__safetensors_close(struct sl__safetensors *file); /* NULL is legal */

struct sl__safetensors_entry {
  const char *name;
  const char *dtype; /* "F32", "F16", "BF16", "F64", "I64", ... as written in the file */
  struct sl_shape shape;
  const void *data;
  size_t bytes;
  size_t dimensions; /* in the file; if above SL_MAX_DIMS, shape is that of all values in a row */
};

size_t sl__safetensors_count(const struct sl__safetensors *file);
const struct sl__safetensors_entry *sl__safetensors_at(const struct sl__safetensors *file,
                                                       size_t i);
/* NULL if there is no tensor of that name. */
const struct sl__safetensors_entry *sl__safetensors_find(const struct sl__safetensors *file,
                                                         const char *name);
const char *sl__safetensors_path(const struct sl__safetensors *file);
/* The metadata's text for that key; NULL if there is none. */
const char *sl__safetensors_metadata(const struct sl__safetensors *file, const char *key);
/* All data behind the header. */
const void *sl__safetensors_data(const struct sl__safetensors *file, size_t *size);
/* SL_UNSUPPORTED if the tensor has a type that is not known, or more than SL_MAX_DIMS dimensions.
 * Such tensors do not hinder a program that needs others of the file. */
enum sl_status sl__safetensors_check_read(const struct sl__safetensors *file,
                                          const struct sl__safetensors_entry *entry);
/* values[count] as f32 from F32, F16, BF16 or F64. SL_BAD_FILE for whole numbers and truth
 * values, SL_UNSUPPORTED as above, SL_BAD_SHAPE unless entry has this shape. */
enum sl_status sl__safetensors_floats(const struct sl__safetensors *file, const char *name,
                                      const struct sl_shape *shape, float *values);

/* Write F32/I64 entries, in the given order, aside and renamed. metadata: a JSON-free list of
 * key, value, key, value, ..., NULL; may be NULL, as may sum: of the file. */
enum sl_status sl__safetensors_write(const char *path, const struct sl__safetensors_entry *entries,
                                     size_t count, const char *const *metadata,
                                     struct sl__file_sum *sum);

#endif
