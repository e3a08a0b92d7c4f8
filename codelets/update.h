/* The optimizers' arithmetic per element, which CPU and CUDA have in common. For each row
 * SL__UPDATE(NAME, ...) of ops.def there are
 *
 * - struct sl__NAME_rates: the factors that are the same for all elements of a step,
 * - sl__NAME_begin, which computes them once a task,
 * - sl__NAME_step, which moves one parameter p by its gradient; a and b are its state's values, of
 *   which an optimizer with fewer states leaves the later ones alone. */
#ifndef SL_CODELETS_UPDATE_H
#define SL_CODELETS_UPDATE_H

#include "codelets/kernels/update.h"

/* ---- sgd: torch.optim.SGD without momentum ---- */

struct sl__sgd_rates {
  float lr, weight_decay;
};

static inline struct sl__sgd_rates sl__sgd_begin(const struct sl__update *u) {
  struct sl__sgd_rates r = {u->lr, u->weight_decay};
  return r;
}

SL__HOST_DEVICE SL__INLINE void sl__sgd_step(const struct sl__sgd_rates *r, float gradient,
                                             float *p, float *a, float *b) {
  (void)a, (void)b;
  *p -= r->lr * (gradient + r->weight_decay * *p);
}

/* ---- sgd_momentum: torch.optim.SGD with momentum, dampening 0; a is the velocity ---- */

struct sl__sgd_momentum_rates {
  float lr, weight_decay, momentum;
  float ahead, behind; /* shares of the gradient and of the velocity (Nesterov: both count) */
};

static inline struct sl__sgd_momentum_rates sl__sgd_momentum_begin(const struct sl__update *u) {
  struct sl__sgd_momentum_rates r = {u->lr, u->weight_decay, u->momentum, u->nesterov ? 1.0f : 0.0f,
                                     u->nesterov ? u->momentum : 1.0f};
  return r;
}

SL__HOST_DEVICE SL__INLINE void sl__sgd_momentum_step(const struct sl__sgd_momentum_rates *r,
                                                      float gradient, float *p, float *a,
                                                      float *b) {
  (void)b;
  float g = gradient + r->weight_decay * *p;
  *a = r->momentum * *a + g;
  *p -= r->lr * (r->ahead * g + r->behind * *a);
}

/* ---- adam: Adam (Kingma, Ba, arXiv 1412.6980) and AdamW (Loshchilov, Hutter, arXiv 1711.05101),
 * as torch.optim's; a and b are the means of the gradient and of its square ---- */

struct sl__adam_rates {
  float b1, b2, coupled, keep, rate, scale, epsilon;
};

static inline struct sl__adam_rates sl__adam_begin(const struct sl__update *u) {
  struct sl__adam_rates r;
  r.b1 = u->beta1;
  r.b2 = u->beta2;
  r.coupled = u->decoupled ? 0 : u->weight_decay;
  r.keep = u->decoupled ? 1 - u->lr * u->weight_decay : 1;
  /* the means start at 0: both are divided by the weight that gradients have in them so far */
  r.rate = (float)((double)u->lr / (1 - pow((double)u->beta1, (double)u->step)));
  r.scale = (float)(1 / sqrt(1 - pow((double)u->beta2, (double)u->step)));
  r.epsilon = u->epsilon;
  return r;
}

SL__HOST_DEVICE SL__INLINE void sl__adam_step(const struct sl__adam_rates *r, float gradient,
                                              float *p, float *a, float *b) {
  float g = gradient + r->coupled * *p;
  *a = r->b1 * *a + (1 - r->b1) * g;
  *b = r->b2 * *b + (1 - r->b2) * g * g;
  *p = r->keep * *p - r->rate * *a / (sqrtf(*b) * r->scale + r->epsilon);
}

/* ---- rmsprop: torch.optim.RMSprop without momentum, not centered (Tieleman, Hinton, Lecture 6.5,
 * 2012); a is the mean of the gradient's square, beta2 PyTorch's alpha ---- */

struct sl__rmsprop_rates {
  float lr, weight_decay, b2, epsilon;
};

static inline struct sl__rmsprop_rates sl__rmsprop_begin(const struct sl__update *u) {
  struct sl__rmsprop_rates r = {u->lr, u->weight_decay, u->beta2, u->epsilon};
  return r;
}

SL__HOST_DEVICE SL__INLINE void sl__rmsprop_step(const struct sl__rmsprop_rates *r, float gradient,
                                                 float *p, float *a, float *b) {
  (void)b;
  float g = gradient + r->weight_decay * *p;
  *a = r->b2 * *a + (1 - r->b2) * g * g;
  *p -= r->lr * g / (sqrtf(*a) + r->epsilon);
}

/* ---- adagrad: torch.optim.Adagrad without lr_decay (Duchi et al., JMLR 12, 2011); a is the sum of
 * the gradient's squares ---- */

struct sl__adagrad_rates {
  float lr, weight_decay, epsilon;
};

static inline struct sl__adagrad_rates sl__adagrad_begin(const struct sl__update *u) {
  struct sl__adagrad_rates r = {u->lr, u->weight_decay, u->epsilon};
  return r;
}

SL__HOST_DEVICE SL__INLINE void sl__adagrad_step(const struct sl__adagrad_rates *r, float gradient,
                                                 float *p, float *a, float *b) {
  (void)b;
  float g = gradient + r->weight_decay * *p;
  *a += g * g;
  *p -= r->lr * g / (sqrtf(*a) + r->epsilon);
}

/* ---- lion: Chen et al., arXiv 2302.06675, algorithm 2; a is the mean of the gradient ---- */

struct sl__lion_rates {
  float lr, keep, b1, b2;
};

static inline struct sl__lion_rates sl__lion_begin(const struct sl__update *u) {
  struct sl__lion_rates r = {u->lr, 1 - u->lr * u->weight_decay, u->beta1, u->beta2};
  return r;
}

SL__HOST_DEVICE SL__INLINE void sl__lion_step(const struct sl__lion_rates *r, float gradient,
                                              float *p, float *a, float *b) {
  (void)b;
  float c = r->b1 * *a + (1 - r->b1) * gradient;
  float sign = c > 0 ? 1 : c < 0 ? -1 : c; /* NaN stays */
  *p = r->keep * *p - r->lr * sign;
  *a = r->b2 * *a + (1 - r->b2) * gradient;
}

/* ---- moving_average: no optimizer; p is an average, of the values that come as gradients. The
 * first step copies them, bit by bit ---- */

struct sl__moving_average_rates {
  float rate;
};

static inline struct sl__moving_average_rates sl__moving_average_begin(const struct sl__update *u) {
  struct sl__moving_average_rates r = {u->step > 1 ? 1 - u->average : 1};
  return r;
}

SL__HOST_DEVICE SL__INLINE void sl__moving_average_step(const struct sl__moving_average_rates *r,
                                                        float gradient, float *p, float *a,
                                                        float *b) {
  (void)a, (void)b;
  *p = r->rate < 1 ? *p + r->rate * (gradient - *p) : gradient;
}

#endif
