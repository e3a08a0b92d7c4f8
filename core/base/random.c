#include "core/base/random.h"

#include <math.h>

double sl__normal(uint64_t seed, uint64_t stream, uint64_t index) {
  struct sl__random4 r = sl__philox(seed, stream, index >> 1);
  /* (0, 1]: the logarithm must stay finite */
  double u = (r.v[(index & 1) * 2] + 1.0) / 4294967296.0;
  double angle = 2.0 * 3.14159265358979323846 * (r.v[(index & 1) * 2 + 1] / 4294967296.0);
  return sqrt(-2.0 * log(u)) * cos(angle);
}

void sl__permutation(uint64_t seed, uint64_t stream, uint32_t *order, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) order[i] = i;
  for (uint32_t i = n; i > 1; i--) {
    struct sl__random4 r = sl__philox(seed, stream, i);
    /* 64 bits times n: the bias of the multiplication is below 2^-32 */
    uint64_t bits = (uint64_t)r.v[0] << 32 | r.v[1];
    uint32_t j = (uint32_t)(((unsigned __int128)bits * i) >> 64);
    uint32_t swap = order[i - 1];
    order[i - 1] = order[j];
    order[j] = swap;
  }
}
