/* The remembered choices of implementations; the bytes behind a first line are asked for as a
 * key. */
#include "codelets/kernels/tuning.h"
#include "tests/fuzz/fuzz.h"

FUZZER(tuning)(const uint8_t *bytes, size_t size) {
  const uint8_t *end = size ? memchr(bytes, '\n', size) : NULL;
  char *key = fuzz_text(bytes, end ? (size_t)(end - bytes) : 0);
  bool whole;
  if (end) size -= (size_t)(end + 1 - bytes), bytes = end + 1;
  struct sl__tuning *tuning = sl__tuning_parse("machine", bytes, size, &whole);
  if (!tuning) abort();
  if (!whole && sl__tuning_find(tuning, key) != -1) abort();
  if (sl__tuning_find(tuning, key) < -1) abort();
  sl__tuning_close(tuning);
  free(key);
  return 0;
}
