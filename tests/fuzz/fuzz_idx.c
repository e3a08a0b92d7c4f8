/* IDX and MNIST: the bytes as images, as labels, and split in two (by their first two bytes) as a
 * whole set. */
#include "data/dataset.h"
#include "tests/fuzz/fuzz.h"

FUZZER(idx)(const uint8_t *bytes, size_t size) {
  struct sl__idx idx;
  struct sl_dataset *set;
  if (size < 2) return 0;
  size_t images = (size_t)bytes[0] << 8 | bytes[1];
  bytes += 2;
  size -= 2;
  if (images > size) images = size;
  sl__idx_parse("images", bytes, size, 3, &idx);
  sl__idx_parse("labels", bytes, size, 1, &idx);
  if (sl__mnist_parse("set", "images", bytes, images, "labels", bytes + images, size - images,
                      &set) == SL_OK) {
    static float values[28 * 28];
    int32_t label;
    sl_dataset_get(set, set->info.count - 1, values, &label);
    sl_dataset_free(set);
  }
  return 0;
}
