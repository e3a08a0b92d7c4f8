/* NumPy's arrays: all elements of an array that is accepted can be read. */
#include "data/npy.h"
#include "tests/fuzz/fuzz.h"

FUZZER(npy)(const uint8_t *bytes, size_t size) {
  struct sl__npy npy;
  if (sl__npy_parse("a.npy", bytes, size, &npy) != SL_OK) return 0;
  size_t count = 1, each = (size_t)npy.element.size;
  for (int i = 0; i < npy.ndim; i++) count *= (size_t)npy.dim[i];
  for (size_t i = 0; i < count; i++) {
    float value;
    sl__elements_to_floats(&npy.element, npy.values + i * each, 1, &value);
    if (npy.element.kind != 'f') sl__element_whole(&npy.element, npy.values + i * each);
  }
  return 0;
}
