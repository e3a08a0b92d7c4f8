/* A small network in double precision: a convolution and a dense layer, each with tanh, a dense
 * layer, softmax with cross-entropy, and the formulas of torch.optim. It goes through a batch in
 * one loop over the samples, and knows nothing of slices, stages, shards, devices or ranks:
 * trainings that are cut in any way are compared with it. Only the public headers are needed. */
#ifndef SL_TESTS_COMMON_EXACT_NETWORK_H
#define SL_TESTS_COMMON_EXACT_NETWORK_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <starling.h>

enum {
  EXACT_SIDE = 28, /* of an image */
  EXACT_WINDOW = 3,
  EXACT_ACROSS = 9, /* windows in a row: they lie side by side */
  EXACT_MAPS = 4,
  EXACT_FLAT = EXACT_MAPS * EXACT_ACROSS * EXACT_ACROSS,
  EXACT_HIDDEN = 12,
  EXACT_CLASSES = 10,
  EXACT_TENSORS = 6
};

/* The parameters, one after the other, as PyTorch has them. */
static const struct {
  const char *name;
  int count;
} exact_tensors[EXACT_TENSORS] = {{"conv1.weight", EXACT_MAPS *EXACT_WINDOW *EXACT_WINDOW},
                                  {"conv1.bias", EXACT_MAPS},
                                  {"fc1.weight", EXACT_HIDDEN *EXACT_FLAT},
                                  {"fc1.bias", EXACT_HIDDEN},
                                  {"fc2.weight", EXACT_CLASSES *EXACT_HIDDEN},
                                  {"fc2.bias", EXACT_CLASSES}};
enum {
  EXACT_PARAMETERS = EXACT_MAPS * (EXACT_WINDOW * EXACT_WINDOW + 1) +
                     EXACT_HIDDEN * (EXACT_FLAT + 1) + EXACT_CLASSES * (EXACT_HIDDEN + 1)
};

struct exact_network {
  double parameter[EXACT_PARAMETERS], gradient[EXACT_PARAMETERS];
  double first[EXACT_PARAMETERS], second[EXACT_PARAMETERS]; /* the optimizer's state */
  double average[EXACT_PARAMETERS];
  int step; /* number of steps made */
};

/* The same network for the library. */
static inline enum sl_status exact_build(struct sl_model *m) {
  const struct sl_conv2d_options conv = {.channels = EXACT_MAPS,
                                         .kernel_h = EXACT_WINDOW,
                                         .stride_h = EXACT_WINDOW,
                                         .activation = SL_ACTIVATION_TANH};
  const struct sl_dense_options hidden = {.features = EXACT_HIDDEN,
                                          .activation = SL_ACTIVATION_TANH},
                                last = {.features = EXACT_CLASSES};
  enum sl_status status = sl_conv2d(m, "conv1", &conv);
  if (status == SL_OK) status = sl_dense(m, "fc1", &hidden);
  if (status == SL_OK) status = sl_dense(m, "fc2", &last);
  return status == SL_OK ? sl_model_build(m) : status;
}

/* Begins with the model's parameters. */
static inline enum sl_status exact_begin(struct sl_model *m, struct exact_network *net) {
  static float values[EXACT_PARAMETERS];
  int at = 0;
  memset(net, 0, sizeof *net);
  for (int t = 0; t < EXACT_TENSORS; at += exact_tensors[t++].count) {
    enum sl_status status = sl_model_get(m, exact_tensors[t].name, values);
    if (status != SL_OK) return status;
    for (int i = 0; i < exact_tensors[t].count; i++) net->parameter[at + i] = (double)values[i];
  }
  return SL_OK;
}

/* Where a tensor's values begin. */
static inline int exact_offset(int tensor) {
  int at = 0;
  for (int t = 0; t < tensor; t++) at += exact_tensors[t].count;
  return at;
}

/* The pixel that output o of the convolution meets with weight k. */
static inline int exact_pixel(int o, int k) {
  int row = o / EXACT_ACROSS * EXACT_WINDOW + k / EXACT_WINDOW;
  return row * EXACT_SIDE + o % EXACT_ACROSS * EXACT_WINDOW + k % EXACT_WINDOW;
}

/* y = W x + b of one sample, for W [rows, columns] and the b behind it. */
static inline void exact_dense(const double *w, const double *x, int rows, int columns, double *y) {
  for (int r = 0; r < rows; r++) {
    y[r] = w[rows * columns + r];
    for (int c = 0; c < columns; c++) y[r] += w[r * columns + c] * x[c];
  }
}

/* Adds to W's and b's gradient; dx = W' dy. */
static inline void exact_dense_back(const double *w, const double *x, const double *dy, int rows,
                                    int columns, double *gradient, double *dx) {
  for (int c = 0; c < columns; c++) dx[c] = 0;
  for (int r = 0; r < rows; r++) {
    gradient[rows * columns + r] += dy[r];
    for (int c = 0; c < columns; c++) {
      gradient[r * columns + c] += dy[r] * x[c];
      dx[c] += w[r * columns + c] * dy[r];
    }
  }
}

/* Adds the sample's part of the gradient of `share` times the loss; returns the loss. */
static inline double exact_sample(struct exact_network *net, const float *x, int label,
                                  double share) {
  enum { PLACES = EXACT_ACROSS * EXACT_ACROSS, WEIGHTS = EXACT_WINDOW * EXACT_WINDOW };
  const double *conv = net->parameter, *fc1 = conv + exact_offset(2), *fc2 = conv + exact_offset(4);
  double *grad = net->gradient;
  double a[EXACT_FLAT], h[EXACT_HIDDEN], z[EXACT_CLASSES], da[EXACT_FLAT], dh[EXACT_HIDDEN];
  double most = -INFINITY, sum = 0;
  for (int i = 0; i < EXACT_FLAT; i++) {
    double v = conv[EXACT_MAPS * WEIGHTS + i / PLACES];
    for (int k = 0; k < WEIGHTS; k++)
      v += conv[i / PLACES * WEIGHTS + k] * (double)x[exact_pixel(i % PLACES, k)];
    a[i] = tanh(v);
  }
  exact_dense(fc1, a, EXACT_HIDDEN, EXACT_FLAT, h);
  for (int i = 0; i < EXACT_HIDDEN; i++) h[i] = tanh(h[i]);
  exact_dense(fc2, h, EXACT_CLASSES, EXACT_HIDDEN, z);
  for (int c = 0; c < EXACT_CLASSES; c++) most = fmax(most, z[c]);
  for (int c = 0; c < EXACT_CLASSES; c++) sum += exp(z[c] - most);
  double loss = log(sum) + most - z[label];
  for (int c = 0; c < EXACT_CLASSES; c++)
    z[c] = share * (exp(z[c] - most) / sum - (c == label ? 1 : 0));
  exact_dense_back(fc2, h, z, EXACT_CLASSES, EXACT_HIDDEN, grad + exact_offset(4), dh);
  for (int i = 0; i < EXACT_HIDDEN; i++) dh[i] *= 1 - h[i] * h[i];
  exact_dense_back(fc1, a, dh, EXACT_HIDDEN, EXACT_FLAT, grad + exact_offset(2), da);
  for (int i = 0; i < EXACT_FLAT; i++) {
    double dv = da[i] * (1 - a[i] * a[i]);
    grad[EXACT_MAPS * WEIGHTS + i / PLACES] += dv;
    for (int k = 0; k < WEIGHTS; k++)
      grad[i / PLACES * WEIGHTS + k] += dv * (double)x[exact_pixel(i % PLACES, k)];
  }
  return loss;
}

/* LAMB's step of a tensor (You et al., arXiv 1904.00962, algorithm 2), whose means have moved. */
static inline void exact_lamb(struct exact_network *net, int tensor, const struct sl_optimizer *o) {
  double direction[EXACT_PARAMETERS], *p = net->parameter + exact_offset(tensor), pp = 0, dd = 0;
  const double *a = net->first + exact_offset(tensor), *b = net->second + exact_offset(tensor);
  for (int i = 0; i < exact_tensors[tensor].count; i++) {
    direction[i] = a[i] / (1 - pow((double)o->beta1, net->step)) /
                       (sqrt(b[i] / (1 - pow((double)o->beta2, net->step))) + (double)o->epsilon) +
                   (double)o->weight_decay * p[i];
    pp += p[i] * p[i];
    dd += direction[i] * direction[i];
  }
  double trust = pp > 0 && dd > 0 ? sqrt(pp / dd) : 1;
  for (int i = 0; i < exact_tensors[tensor].count; i++)
    p[i] -= (double)o->lr * trust * direction[i];
}

/* LAMB, or torch.optim's SGD, Adam or AdamW, with torch.nn.utils.clip_grad_norm_ before it. All
 * settings must be given. */
static inline void exact_update(struct exact_network *net, const struct sl_optimizer *o) {
  double lr = (double)o->lr, decay = (double)o->weight_decay, norm = 0, b1 = (double)o->beta1,
         b2 = (double)o->beta2;
  for (int i = 0; i < EXACT_PARAMETERS; i++) norm += net->gradient[i] * net->gradient[i];
  norm = sqrt(norm);
  double factor = o->clip > 0 && norm > (double)o->clip ? (double)o->clip / norm : 1;
  net->step++;
  for (int i = 0; i < EXACT_PARAMETERS; i++) {
    double g = factor * net->gradient[i], *p = &net->parameter[i], *a = &net->first[i],
           *b = &net->second[i];
    if (o->kind == SL_ADAMW) *p *= 1 - lr * decay;
    if (o->kind != SL_ADAMW && o->kind != SL_LAMB) g += decay * *p;
    if (o->kind == SL_SGD) {
      *a = (double)o->momentum * *a + g;
      *p -= lr * (o->nesterov ? g + (double)o->momentum * *a : *a);
      continue;
    }
    *a = b1 * *a + (1 - b1) * g;
    *b = b2 * *b + (1 - b2) * g * g;
    if (o->kind == SL_LAMB) continue;
    *p -= lr * *a / (1 - pow(b1, net->step)) /
          (sqrt(*b / (1 - pow(b2, net->step))) + (double)o->epsilon);
  }
  for (int t = 0; t < EXACT_TENSORS && o->kind == SL_LAMB; t++) exact_lamb(net, t, o);
  double stays = net->step > 1 ? (double)o->average : 0;
  for (int i = 0; i < EXACT_PARAMETERS; i++)
    net->average[i] = stays * net->average[i] + (1 - stays) * net->parameter[i];
}

/* One step with samples [first, first + count) of the set; *loss is their mean loss before it. */
static inline enum sl_status exact_step(struct exact_network *net, const struct sl_dataset *set,
                                        int64_t first, int64_t count,
                                        const struct sl_optimizer *optimizer, double *loss) {
  float x[EXACT_SIDE * EXACT_SIDE];
  int32_t label;
  *loss = 0;
  memset(net->gradient, 0, sizeof net->gradient);
  for (int64_t i = first; i < first + count; i++) {
    enum sl_status status = sl_dataset_get(set, i, x, &label);
    if (status != SL_OK) return status;
    *loss += exact_sample(net, x, label, 1.0 / (double)count) / (double)count;
  }
  exact_update(net, optimizer);
  return SL_OK;
}

static inline double exact_square(const double *values) {
  double square = 0;
  for (int i = 0; i < EXACT_PARAMETERS; i++) square += values[i] * values[i];
  return square;
}

/* The square of the gradient of these samples, and the estimates of arXiv 1812.06162, appendix A.1,
 * from `parts` parts of the same size, each of one of `workers` workers, who have every workers-th
 * sample: noise[0] = |G|^2, noise[1] = tr Cov. */
static inline enum sl_status exact_noise(const struct exact_network *net,
                                         const struct sl_dataset *set, int64_t first, int64_t count,
                                         int parts, int workers, double *square, double noise[2]) {
  static struct exact_network whole, part;
  float x[EXACT_SIDE * EXACT_SIDE];
  int32_t label;
  double small = 0, least = (double)count / parts, most = (double)count;
  whole = *net;
  memset(whole.gradient, 0, sizeof whole.gradient);
  for (int64_t i = 0; i < count; i++) {
    if (i % (count / parts) == 0) {
      part = *net;
      memset(part.gradient, 0, sizeof part.gradient);
    }
    int64_t mine = count / workers, sample = first + i % mine * workers + i / mine;
    enum sl_status status = sl_dataset_get(set, sample, x, &label);
    if (status != SL_OK) return status;
    exact_sample(&whole, x, label, 1 / most);
    exact_sample(&part, x, label, 1 / least);
    if ((i + 1) % (count / parts) == 0) small += exact_square(part.gradient) / parts;
  }
  *square = exact_square(whole.gradient);
  noise[0] = (most * *square - least * small) / (most - least);
  noise[1] = (small - *square) / (1 / least - 1 / most);
  return SL_OK;
}

/* How far the model's parameters are from these of the network's size: the worst tensor's largest
 * difference, as a part of its largest value. */
static inline enum sl_status exact_distance(struct sl_model *m, const double *all,
                                            double *distance) {
  static float values[EXACT_PARAMETERS];
  *distance = 0;
  for (int t = 0; t < EXACT_TENSORS; t++) {
    const double *want = all + exact_offset(t);
    double apart = 0, largest = 1e-30;
    enum sl_status status = sl_model_get(m, exact_tensors[t].name, values);
    if (status != SL_OK) return status;
    for (int i = 0; i < exact_tensors[t].count; i++) {
      double d = fabs((double)values[i] - want[i]);
      if (!(d <= apart)) apart = isfinite(d) ? d : 1e30;
      largest = fmax(largest, fabs(want[i]));
    }
    *distance = fmax(*distance, apart / largest);
  }
  return SL_OK;
}

#endif
