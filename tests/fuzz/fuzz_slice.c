/* The slice behind an array's name, of an array whose axes are the first bytes: whatever is
 * accepted stays within it, and has as many elements as it says. */
#include "data/slice.h"
#include "tests/fuzz/fuzz.h"

FUZZER(slice)(const uint8_t *bytes, size_t size) {
  int64_t dim[SL_MAX_DIMS];
  uint8_t first[1 + SL_MAX_DIMS];
  struct sl__slice slice;
  fuzz_take(&bytes, &size, first, sizeof first);
  int ndim = 1 + first[0] % SL_MAX_DIMS;
  for (int d = 0; d < ndim; d++) dim[d] = 1 + first[1 + d];
  char *name = fuzz_text(bytes, size);
  const char *text = sl__slice_find(name);
  sl__slice_all(ndim, dim, &slice);
  if (text && sl__slice_parse(name, text, &slice) == SL_OK) {
    struct sl_shape shape = sl__slice_shape(&slice);
    if (shape.ndim < 1 || shape.dim[0] != slice.count[0]) abort();
    for (int d = 0; d < ndim; d++) {
      int64_t last = slice.first[d] + (slice.count[d] - 1) * slice.step[d];
      if (slice.first[d] < 0 || slice.step[d] < 1 || slice.count[d] < 1 || last >= dim[d]) abort();
      if (slice.drops[d] && slice.count[d] != 1) abort();
    }
  }
  free(name);
  return 0;
}
