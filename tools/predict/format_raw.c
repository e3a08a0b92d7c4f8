/* Raw f32 values, as the model takes them. Only --format raw selects this format. */
#include <math.h>

#include "tools/predict/failure.h"
#include "tools/predict/sample_format.h"

static int next_raw(struct samples *s, float *values, int64_t *label, bool *none) {
  (void)label;
  int64_t count = sl_shape_count(&s->options->preparation.shape);
  int code = samples_take(s, s->stream, values, (size_t)count * sizeof *values, none);
  for (int64_t i = 0; code == EXIT_DONE && !*none && i < count; i++)
    if (!isfinite(values[i]))
      code = fail(EXIT_FAILED, "%s: value %lld of sample %lld is infinite or not a number", s->path,
                  (long long)i, (long long)s->index);
  return code;
}

const struct sample_format raw_format = {.is_values = true, .next = next_raw};
