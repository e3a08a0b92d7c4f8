/* ZIP archives, as .npz files are: every member is unpacked, and its array read. */
#include "data/npy.h"
#include "tests/fuzz/fuzz.h"

/* The array of a member, if it is one. */
static void read_array(const uint8_t *bytes, size_t size) {
  struct sl__npy npy;
  float value;
  if (sl__npy_parse("a.npz: x", bytes, size, &npy) != SL_OK) return;
  size_t count = 1, each = (size_t)npy.element.size;
  for (int i = 0; i < npy.ndim; i++) count *= (size_t)npy.dim[i];
  for (size_t i = 0; i < count; i++)
    sl__elements_to_floats(&npy.element, npy.values + i * each, 1, &value);
}

FUZZER(zip)(const uint8_t *bytes, size_t size) {
  struct sl__zip zip;
  struct sl__zip_member member;
  bool found = true;
  if (sl__zip_parse("a.npz", bytes, size, &zip) != SL_OK) return 0;
  while (sl__zip_next(&zip, &member, &found) == SL_OK && found) {
    uint8_t *unpacked = NULL;
    uint64_t sum = 0;
    if (member.deflated && sl__zip_inflate(&zip, &member, &unpacked) != SL_OK) continue;
    const uint8_t *from = unpacked ? unpacked : member.packed;
    for (size_t i = 0; i < member.size; i++) sum += from[i];
    if (sum > 255 * (uint64_t)member.size) abort();
    read_array(from, member.size);
    free(unpacked);
  }
  return 0;
}
