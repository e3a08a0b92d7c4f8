/* A learning-rate schedule's text; its first two bytes are the number of steps. The factor of any
 * step is from 0 to 1. */
#include <starling/nn.h>

#include "tests/fuzz/fuzz.h"

FUZZER(schedule)(const uint8_t *bytes, size_t size) {
  static const int64_t steps[] = {0, 1, 2, 99, 1000, (int64_t)1 << 40, INT64_MAX};
  struct sl_schedule schedule;
  uint16_t total;
  fuzz_take(&bytes, &size, &total, sizeof total);
  char *text = fuzz_text(bytes, size);
  if (sl_schedule_parse(text, total, &schedule) == SL_OK)
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
      float factor = sl_schedule_factor(&schedule, steps[i]);
      if (!(factor >= 0 && factor <= 1)) abort();
    }
  free(text);
  return 0;
}
