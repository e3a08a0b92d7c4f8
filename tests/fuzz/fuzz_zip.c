/* ZIP archives, as .npz files are: every member is unpacked. */
#include "data/npy.h"
#include "tests/fuzz/fuzz.h"

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
    free(unpacked);
  }
  return 0;
}
