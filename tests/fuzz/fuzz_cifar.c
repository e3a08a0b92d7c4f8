/* CIFAR-10: the bytes as one file, and split in two (by their first two bytes) as two files of a
 * set. */
#include "data/dataset.h"
#include "tests/fuzz/fuzz.h"

static void read_set(uint8_t *const *bytes, const size_t *sizes, int files) {
  static const char *const paths[2] = {"first", "second"};
  static float values[3 * 32 * 32];
  struct sl_dataset *set;
  int32_t label;
  if (sl__cifar10_parse("set", paths, bytes, sizes, files, &set) != SL_OK) return;
  sl_dataset_get(set, set->info.count - 1, values, &label);
  sl_dataset_free(set);
}

FUZZER(cifar)(const uint8_t *bytes, size_t size) {
  if (size < 2) return 0;
  size_t first = (size_t)bytes[0] << 8 | bytes[1];
  uint8_t *rest = (uint8_t *)bytes + 2; /* only read */
  size -= 2;
  if (first > size) first = size;
  read_set((uint8_t *[]){rest}, (size_t[]){size}, 1);
  read_set((uint8_t *[]){rest, rest + first}, (size_t[]){first, size - first}, 2);
  return 0;
}
