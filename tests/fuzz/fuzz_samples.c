/* Samples of starling-predict's files: the first byte is the format or `auto`, the second selects
 * the model's input and how pictures are fitted to it; the rest is the file. */
#include <math.h>

#include "tests/fuzz/fuzz.h"
#include "tools/predict/failure.h"
#include "tools/predict/samples.h"

FUZZER(samples)(const uint8_t *bytes, size_t size) {
  static const struct sl_shape shapes[] = {
      {3, {1, 28, 28}}, {3, {3, 32, 32}}, {3, {1, 3, 5}}, {1, {7}}};
  uint8_t head[2];
  fuzz_take(&bytes, &size, head, sizeof head);
  const struct sl_shape *shape = &shapes[head[1] % 4];
  struct image_options options = {.format = (enum format)(head[0] % FORMAT_TEXT),
                                  .preparation = {.shape = *shape,
                                                  .pictures = shape->ndim == 3,
                                                  .known = head[1] & 4,
                                                  .deviation = {1, 1, 1},
                                                  .invert = head[1] & 8,
                                                  .resize = (enum sl__resize)(head[1] / 16 % 3)}};
  float values[3 * 32 * 32];
  struct origin origin;
  int code = EXIT_DONE;
  struct samples *samples = samples_open(&options, fuzz_file(0, bytes, size));
  for (int i = 0; i < 8 && samples && samples_next(samples, values, &origin, &code); i++)
    for (int64_t k = 0; k < sl_shape_count(shape); k++)
      if (!isfinite(values[k])) abort();
  samples_close(samples);
  return 0;
}
