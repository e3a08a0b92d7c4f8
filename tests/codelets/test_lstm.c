/* LSTM against PyTorch's equations, naively in double precision, and all else in recurrent.h. */
#define CELL_NAME "lstm"
#define OP(name) sl__lstm_##name
#define TORCH(name) torch_lstm_##name
enum { GATES = 4, STATES = 2, SAVED = 6 };

#include "tests/common/recurrent.h"

static void naive(const struct cell *l, double *y, double *last) {
  int64_t H = l->h, I = l->i;
  const double *wi = l->param, *wh = wi + 4 * H * I, *bi = wh + 4 * H * H, *bh = bi + 4 * H;
  double *gate = zeros(4 * H);
  for (int64_t n = 0; n < l->n; n++) {
    double *h = last + n * 2 * H, *c = h + H;
    memcpy(h, l->state + n * 2 * H, (size_t)(2 * H) * sizeof *h);
    for (int64_t t = 0; t < l->t; t++) {
      const double *x = l->x + (n * l->t + t) * I;
      for (int64_t g = 0; g < 4 * H; g++)
        gate[g] = dot(wi + g * I, x, I) + dot(wh + g * H, h, H) + bi[g] + bh[g];
      for (int64_t j = 0; j < H; j++) {
        c[j] = sigmoid(gate[H + j]) * c[j] + sigmoid(gate[j]) * tanh(gate[2 * H + j]);
        h[j] = sigmoid(gate[3 * H + j]) * tanh(c[j]);
        y[(n * l->t + t) * H + j] = h[j];
      }
    }
  }
  free(gate);
}
