#include "tools/common/metric_names.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct metric_kind kinds[] = {
#define SL__FIT_METRIC(key, name, larger, share) {#key, name, larger, share},
#include "parallel/fit/metrics.def"
#undef SL__FIT_METRIC
};

/* Behind the output's name. */
static const char *kind_of(const char *key) {
  const char *dot = strrchr(key, '.');
  return dot ? dot + 1 : key;
}

struct metric_kind metric_kind(const char *key) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(kinds[i].key, kind_of(key))) return kinds[i];
  return (struct metric_kind){kind_of(key), kind_of(key), false, false};
}

const char *metric_name(const char *key, char *text, size_t size) {
  const char *kind = kind_of(key);
  int output = kind > key ? (int)(kind - key) - 1 : 0;
  snprintf(text, size, "%.*s%s%s", output, key, kind > key ? " " : "", metric_kind(key).name);
  return text;
}

const char *metric_value(const char *key, double value, char *text, size_t size) {
  bool fixed = fabs(value) < 1e6 && (value == 0 || fabs(value) >= 0.1);
  if (metric_kind(key).share)
    snprintf(text, size, "%.2f %%", 100 * value);
  else
    snprintf(text, size, fixed ? "%.4f" : "%.4g", value);
  return text;
}
