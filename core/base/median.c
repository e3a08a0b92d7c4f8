#include "core/base/median.h"

#include <stdlib.h>

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double sl__median(int count, double *values) {
  qsort(values, (size_t)count, sizeof *values, by_size);
  return (values[(count - 1) / 2] + values[count / 2]) / 2;
}
