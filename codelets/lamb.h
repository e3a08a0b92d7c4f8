/* The arithmetic of LAMB (You et al., arXiv 1904.00962, algorithm 2), which CPU and CUDA have in
 * common. A step takes two tasks a shard: lamb_moments moves the means of the gradient and of its
 * square and adds up squares of the parameters and of their directions; lamb, once the squares of
 * all shards are added, moves the parameters. Directions are computed twice, not stored. */
#ifndef SL_CODELETS_LAMB_H
#define SL_CODELETS_LAMB_H

#include "codelets/kernels/update.h"

struct sl__lamb_args {
  int64_t count;
  int64_t param_first, gradient_first; /* the first element in its tensor */
  int32_t has_norm, parts;
  int64_t end[SL__MOST_PARTS]; /* of each parameter's elements in the shard */
  float decay[SL__MOST_PARTS];
  struct sl__update u;
};

struct sl__lamb_rates {
  float b1, b2, mean_scale, root_scale, epsilon;
};

static inline struct sl__lamb_rates sl__lamb_begin(const struct sl__update *u) {
  struct sl__lamb_rates r;
  r.b1 = u->beta1;
  r.b2 = u->beta2;
  /* the means start at 0: both are divided by the weight that gradients have in them so far */
  r.mean_scale = (float)(1 / (1 - pow((double)u->beta1, (double)u->step)));
  r.root_scale = (float)(1 / sqrt(1 - pow((double)u->beta2, (double)u->step)));
  r.epsilon = u->epsilon;
  return r;
}

SL__HOST_DEVICE SL__INLINE void sl__lamb_move_means(const struct sl__lamb_rates *r, float gradient,
                                                    float *mean, float *square) {
  *mean = r->b1 * *mean + (1 - r->b1) * gradient;
  *square = r->b2 * *square + (1 - r->b2) * gradient * gradient;
}

SL__HOST_DEVICE SL__INLINE float sl__lamb_direction(const struct sl__lamb_rates *r, float decay,
                                                    float p, float mean, float square) {
  return mean * r->mean_scale / (sqrtf(square) * r->root_scale + r->epsilon) + decay * p;
}

/* |parameter| / |direction| of their squares; 1 where one of them is 0. */
SL__HOST_DEVICE SL__INLINE float sl__lamb_trust(const float *squares) {
  return squares[0] > 0 && squares[1] > 0 ? sqrtf(squares[0]) / sqrtf(squares[1]) : 1;
}

#endif
