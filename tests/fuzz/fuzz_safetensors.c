/* safetensors: whatever parses is read through to its last byte, by entry and as floats. */
#include <stdlib.h>

#include "core/base/safetensors.h"
#include "tests/fuzz/fuzz.h"

static void read_entry(const struct sl__safetensors *file,
                       const struct sl__safetensors_entry *entry) {
  static volatile uint8_t sum;
  for (size_t i = 0; i < entry->bytes; i++) sum += ((const uint8_t *)entry->data)[i];
  if (sl__safetensors_find(file, entry->name) != entry) abort(); /* a name comes once */
  size_t count = (size_t)sl_shape_count(&entry->shape);
  float *values = malloc((count + 1) * sizeof *values);
  if (values) sl__safetensors_floats(file, entry->name, &entry->shape, values);
  free(values);
}

FUZZER(safetensors)(const uint8_t *bytes, size_t size) {
  struct sl__safetensors *file;
  if (sl__safetensors_parse("file", bytes, size, &file) != SL_OK) return 0;
  for (size_t i = 0; i < sl__safetensors_count(file); i++)
    read_entry(file, sl__safetensors_at(file, i));
  sl__safetensors_close(file);
  return 0;
}
