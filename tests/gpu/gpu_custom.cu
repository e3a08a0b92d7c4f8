/* The CUDA kernels of a layer kind as a program would register it: y = w x, one w. */
#include "codelets/kernels/cuda.h"
extern "C" {
#include "tests/gpu/gpu_custom.h"
}

static __global__ void scale(const float *w, const float *x, float *y, float *saved, int64_t n) {
  int64_t i = sl::thread_index();
  if (i >= n) return;
  y[i] = *w * x[i];
  if (saved) saved[i] = x[i] / 2;
}

static __global__ void add_scaled(const float *w, const float *dy, float *dx, int64_t n) {
  int64_t i = sl::thread_index();
  if (i < n) dx[i] += *w * dy[i];
}

/* One block, so that the sum has one order. */
static __global__ void add_products(const float *x, const float *dy, float *grad, int64_t n) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += x[i] * dy[i];
  sum = sl::block_sum(sum);
  if (threadIdx.x == 0) *grad += sum;
}

static int64_t count_of(const struct sl_layer_task *t) { return t->rows * sl_shape_count(&t->out); }

static enum sl_status forward(struct sl_layer_task *t, void *stream) {
  int64_t n = count_of(t);
  SL__LAUNCH(scale, sl::blocks(n), sl::THREADS, 0, static_cast<cudaStream_t>(stream), t->param[0],
             t->x[0], t->y, t->saved, n);
  return SL_OK;
}

static enum sl_status backward_data(struct sl_layer_task *t, void *stream) {
  int64_t n = count_of(t);
  SL__LAUNCH(add_scaled, sl::blocks(n), sl::THREADS, 0, static_cast<cudaStream_t>(stream),
             t->param[0], t->dy, t->dx, n);
  return SL_OK;
}

static enum sl_status backward_weight(struct sl_layer_task *t, void *stream) {
  SL__LAUNCH(add_products, 1, sl::THREADS, 0, static_cast<cudaStream_t>(stream), t->x[0], t->dy,
             t->grad[0], count_of(t));
  return SL_OK;
}

void gpu_custom_kernels(struct sl_layer_kind *kind) {
  kind->forward_cuda = forward;
  kind->backward_data_cuda = backward_data;
  kind->backward_weight_cuda = backward_weight;
}
