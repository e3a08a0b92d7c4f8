/* HDF5 files: of the dataset "x", if it opens, the first rows are read. libhdf5 itself is not
 * instrumented. */
#include "data/array.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_ROWS = 16, MOST_BYTES = 1 << 16 };

static void read_rows(struct sl__array *array) {
  const struct sl__npy *layout = &array->layout;
  size_t elements = 1;
  sl__slice_all(layout->ndim, layout->dim, &array->slice);
  for (int i = 1; i < layout->ndim; i++) elements *= (size_t)layout->dim[i];
  size_t size = elements * (size_t)layout->element.size;
  if (size > MOST_BYTES) return;
  uint8_t *row = malloc(size);
  float *values = malloc(elements * sizeof *values);
  if (!row || !values) abort();
  for (int64_t i = 0; i < layout->dim[0] && i < MOST_ROWS; i++)
    if (array->read(array, i, row) == SL_OK)
      sl__elements_to_floats(&layout->element, row, elements, values);
  free(values);
  free(row);
}

FUZZER(hdf5)(const uint8_t *bytes, size_t size) {
  struct sl__array array = {.name = "a.h5: x"};
  const char *path = fuzz_file(0, bytes, size);
  sl__hdf5_exists(path, "y");
  if (sl__hdf5_open(path, "x", &array) == SL_OK) read_rows(&array);
  if (array.close) array.close(&array);
  return 0;
}
