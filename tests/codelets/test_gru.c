/* GRU against PyTorch's equations, naively in double precision, and all else in recurrent.h. */
#define CELL_NAME "gru"
#define OP(name) sl__gru_##name
#define TORCH(name) torch_gru_##name
enum { GATES = 3, STATES = 1, SAVED = 5 };

#include "tests/common/recurrent.h"

static void naive(const struct cell *l, double *y, double *last) {
  int64_t H = l->h, I = l->i;
  const double *wi = l->param, *wh = wi + 3 * H * I, *bi = wh + 3 * H * H, *bh = bi + 3 * H;
  double *by_x = zeros(3 * H), *by_h = zeros(3 * H);
  for (int64_t n = 0; n < l->n; n++) {
    double *h = last + n * H;
    memcpy(h, l->state + n * H, (size_t)H * sizeof *h);
    for (int64_t t = 0; t < l->t; t++) {
      const double *x = l->x + (n * l->t + t) * I;
      for (int64_t g = 0; g < 3 * H; g++) {
        by_x[g] = dot(wi + g * I, x, I) + bi[g];
        by_h[g] = dot(wh + g * H, h, H) + bh[g];
      }
      for (int64_t j = 0; j < H; j++) {
        double r = sigmoid(by_x[j] + by_h[j]), z = sigmoid(by_x[H + j] + by_h[H + j]);
        double new = tanh(by_x[2 * H + j] + r * by_h[2 * H + j]);
        h[j] = (1 - z) * new + z *h[j];
        y[(n * l->t + t) * H + j] = h[j];
      }
    }
  }
  free(by_x);
  free(by_h);
}
