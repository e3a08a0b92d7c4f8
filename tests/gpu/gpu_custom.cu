/* The CUDA kernels of a layer kind as a program would register it: y = w (x0 + 2 x1 + ...), one w;
 * and of losses of its own: the squared error of a row, and the distance of the label's output
 * from 1. */
#include "codelets/kernels/cuda.h"
extern "C" {
#include "tests/gpu/gpu_custom.h"
}

/* k: the input's number, from 1. */
static __global__ void scale(const float *w, int k, const float *x, float *y, float *saved,
                             int64_t n) {
  int64_t i = sl::thread_index();
  if (i >= n) return;
  y[i] = (k > 1 ? y[i] : 0) + *w * (static_cast<float>(k) * x[i]);
  if (saved && k == 1) saved[i] = x[i] / 2;
}

static __global__ void add_scaled(const float *w, int k, const float *dy, float *dx, int64_t n) {
  int64_t i = sl::thread_index();
  if (i < n) dx[i] += static_cast<float>(k) * *w * dy[i];
}

/* One block, so that the sum has one order. */
static __global__ void add_products(int k, const float *x, const float *dy, float *grad,
                                    int64_t n) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += static_cast<float>(k) * x[i] * dy[i];
  sum = sl::block_sum(sum);
  if (threadIdx.x == 0) *grad += sum;
}

static int64_t count_of(const struct sl_layer_task *t) { return t->rows * sl_shape_count(&t->out); }

static enum sl_status forward(struct sl_layer_task *t, void *stream) {
  int64_t n = count_of(t);
  for (int k = 0; k < t->input_count; k++)
    SL__LAUNCH(scale, sl::blocks(n), sl::THREADS, 0, static_cast<cudaStream_t>(stream), t->param[0],
               k + 1, t->x[k], t->y, t->saved, n);
  return SL_OK;
}

static enum sl_status backward_data(struct sl_layer_task *t, void *stream) {
  int64_t n = count_of(t);
  SL__LAUNCH(add_scaled, sl::blocks(n), sl::THREADS, 0, static_cast<cudaStream_t>(stream),
             t->param[0], t->input + 1, t->dy, t->dx, n);
  return SL_OK;
}

static enum sl_status backward_weight(struct sl_layer_task *t, void *stream) {
  for (int k = 0; k < t->input_count; k++)
    SL__LAUNCH(add_products, 1, sl::THREADS, 0, static_cast<cudaStream_t>(stream), k + 1, t->x[k],
               t->dy, t->grad[0], count_of(t));
  return SL_OK;
}

void gpu_custom_kernels(struct sl_layer_kind *kind) {
  kind->forward_cuda = forward;
  kind->backward_data_cuda = backward_data;
  kind->backward_weight_cuda = backward_weight;
}

/* A thread has a row. Rows that do not count get nonsense, which the library must not read. */
static __global__ void squared(int64_t rows, int64_t size, const float *y, const float *target,
                               float *dy, float *loss) {
  int64_t n = sl::thread_index();
  if (n >= rows) return;
  loss[n] = 0;
  for (int64_t i = n * size; i < (n + 1) * size; i++) {
    float d = y[i] - target[i];
    loss[n] += d * d;
    if (dy) dy[i] = 2 * d;
  }
}

static __global__ void label_near_one(int64_t rows, int64_t size, const float *y,
                                      const int32_t *label, float *dy, float *loss) {
  int64_t n = sl::thread_index();
  if (n >= rows) return;
  bool counts = label[n] >= 0 && label[n] < size;
  float d = counts ? y[n * size + label[n]] - 1 : NAN;
  loss[n] = d * d;
  for (int64_t i = 0; dy && i < size; i++)
    dy[n * size + i] = !counts ? NAN : i == label[n] ? 2 * d : 0;
}

static enum sl_status loss_rows(struct sl_loss_rows *r, void *stream) {
  auto *s = static_cast<cudaStream_t>(stream);
  if (r->label)
    SL__LAUNCH(label_near_one, sl::blocks(r->count), sl::THREADS, 0, s, r->count, r->size, r->y,
               r->label, r->dy, r->loss);
  else
    SL__LAUNCH(squared, sl::blocks(r->count), sl::THREADS, 0, s, r->count, r->size, r->y, r->target,
               r->dy, r->loss);
  return SL_OK;
}

void gpu_custom_loss(struct sl_own_loss *loss) { loss->rows_cuda = loss_rows; }
