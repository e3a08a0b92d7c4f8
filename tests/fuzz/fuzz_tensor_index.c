/* The index of weights in several files: whatever parses names files of the same folder. */
#include <jansson.h>

#include "core/base/tensor_files.h"
#include "tests/fuzz/fuzz.h"

FUZZER(tensor_index)(const uint8_t *bytes, size_t size) {
  const char *tensor;
  const json_t *shard;
  json_t *map;
  if (sl__tensor_index_parse("file", bytes, size, &map) != SL_OK) return 0;
  json_object_foreach(map, tensor, shard) if (!json_is_string(shard) ||
                                              strchr(json_string_value(shard), '/')) abort();
  json_decref(map);
  return 0;
}
