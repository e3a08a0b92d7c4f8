/* The linear partition problem by dynamic programming. */
#include <math.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "parallel/step/grid.h"

enum sl_status sl__partition(int n, const double *cost, int parts, int *first) {
  size_t width = (size_t)n + 1;
  double *sum = sl__alloc(width, sizeof *sum, "a partition");
  /* best[p * width + i]: the dearest run where the first i costs make p + 1 runs */
  double *best = sl__alloc(width * (size_t)parts, sizeof *best, "a partition");
  int *cut = sl__alloc(width * (size_t)parts, sizeof *cut, "a partition");
  enum sl_status status = sum && best && cut ? SL_OK : SL_NO_MEMORY;
  if (status != SL_OK) goto out;
  for (int i = 0; i < n; i++) sum[i + 1] = sum[i] + cost[i];
  for (int i = 0; i <= n; i++) best[i] = i ? sum[i] : INFINITY;
  for (int p = 1; p < parts; p++)
    for (int i = 0; i <= n; i++) {
      double *here = &best[(size_t)p * width + (size_t)i];
      *here = INFINITY;
      for (int k = p; k < i; k++) {
        double before = best[(size_t)(p - 1) * width + (size_t)k], last = sum[i] - sum[k];
        double dearest = before > last ? before : last;
        if (dearest >= *here) continue;
        *here = dearest;
        cut[(size_t)p * width + (size_t)i] = k;
      }
    }
  for (int p = parts - 1, end = n; p >= 0; p--) {
    first[p] = p ? cut[(size_t)p * width + (size_t)end] : 0;
    end = first[p];
  }
out:
  free(sum);
  free(best);
  free(cut);
  return status;
}
