/* manifest.json, the list of a folder's checkpoints: each entry that is taken has all its parts. */
#include <jansson.h>

#include "tests/fuzz/fuzz.h"
#include "parallel/fit/checkpoints.h"

FUZZER(manifest)(const uint8_t *bytes, size_t size) {
  json_error_t error;
  json_t *list, *entry, *root;
  size_t i;
  root = json_loadb((const char *)bytes, size, JSON_REJECT_DUPLICATES, &error);
  if (root && !sl__checkpoints_listed(root, &list)) json_array_foreach(list, i, entry) {
      const char *hash = json_string_value(json_object_get(entry, "xxh64"));
      if (!json_string_value(json_object_get(entry, "file")) || !hash || strlen(hash) != 16)
        abort();
      if (json_integer_value(json_object_get(entry, "step")) < 0) abort();
    }
  json_decref(root);
  return 0;
}
