/* A dense layer and its cross-entropy on a GPU, in chunks of rows: products by cuBLASLt, and the
 * kernels of softmax_xent on a chunk's logits, which their gradient replaces. */
#include "codelets/linear_xent.h"

#include "codelets/kernels/gemm_cuda.h"
#include "codelets/kernels/xent_cuda.h"

namespace {

/* Adds a chunk's statistics to those of the chunks before; the last ones are the task's. total is
 * between the kernels' own workspace and its end. */
__global__ void add_stats(double *total, float *stats, bool first, bool last) {
  int k = static_cast<int>(threadIdx.x);
  if (k >= 4) return;
  double sum = (first ? 0.0 : total[k]) + static_cast<double>(stats[k]);
  total[k] = sum;
  if (last) stats[k] = static_cast<float>(sum);
}

template <class T>
struct head {
  const T *x, *weight, *bias; /* bias: or NULL */
  const int32_t *labels;
  const float *class_weights; /* or NULL */
  T *dx;                      /* NULL: the loss only */
  float *grad, *bias_grad, *stats;
  T *logits;
};

sl::product product_of(bool ta, bool tb, int64_t m, int64_t n, int64_t k, bool tf32) {
  return {.ta = ta,
          .tb = tb,
          .m = m,
          .n = n,
          .k = k,
          .alpha = 1,
          .lda = ta ? m : k,
          .ldb = tb ? k : n,
          .beta = 0,
          .ldc = n,
          .tf32 = tf32,
          .epilogue = sl::EPILOGUE_NONE,
          .bias = nullptr,
          .activation = SL_ACTIVATION_NONE};
}

/* The rows [first, first + rows). Returns false if the task has failed. */
template <class T>
bool one_chunk(const sl__linear_xent_args &a, const head<T> &h, int64_t first, int64_t rows,
               const void *cl_arg, struct sl__cuda *cuda) {
  int64_t in = a.in, out = a.xent.classes;
  bool add = first > 0 || sl__accumulate(cl_arg), tf32 = sl__tf32(cl_arg);
  const T *x = h.x + first * in;
  sl__xent_args xent = a.xent;
  xent.first = first;
  xent.rows = rows;
  sl::product p = product_of(false, true, rows, out, in, tf32);
  if (h.bias) p.epilogue = sl::EPILOGUE_BIAS;
  p.bias = h.bias;
  if (!sl::gemm(cuda, p, x, h.weight, h.logits)) return false;
  sl::xent_rows<T>(xent, {h.logits, h.labels, h.class_weights, h.dx ? h.logits : nullptr, h.stats},
                   cuda);
  auto *total =
      reinterpret_cast<double *>(static_cast<char *>(cuda->workspace) + sl::GEMM_WORKSPACE);
  SL__LAUNCH(add_stats, 1, 32, 0, cuda->stream, total, h.stats, first == 0,
             first + rows == a.xent.rows);
  if (!h.dx) return true;
  p = product_of(false, false, rows, in, out, tf32);
  if (!sl::gemm(cuda, p, h.logits, h.weight, h.dx + first * in)) return false;
  p = product_of(true, false, out, in, rows, tf32);
  p.beta = add ? 1.0f : 0.0f;
  if (!sl::gemm(cuda, p, h.logits, x, h.grad)) return false;
  if (h.bias_grad) sl::column_sums(cuda, h.logits, rows, out, out, h.bias_grad, add);
  return true;
}

template <class T>
void run(void *buffers[], void *cl_arg, int gradients, struct sl__cuda *cuda) {
  const sl__linear_xent_args *a = sl::args<sl__linear_xent_args>(cl_arg);
  int64_t rows = a->xent.rows, weights = a->xent.classes * a->in;
  head<T> h = {.x = sl::in<T>(buffers, 0),
               .weight = sl::in<T>(buffers, 1),
               .bias = nullptr,
               .labels = sl::in<int32_t>(buffers, 2),
               .class_weights = nullptr,
               .dx = nullptr,
               .grad = nullptr,
               .bias_grad = nullptr,
               .stats = sl::out<float>(buffers, 3),
               .logits = sl::out<T>(buffers, sl__head_scratch(gradients))};
  if (a->bias == SL__BIAS_IN_BLOCK) h.bias = h.weight + weights;
  if (a->bias == SL__BIAS_ALONE) h.bias = sl::in<T>(buffers, sl__head_bias(gradients));
  if (a->xent.weighted) h.class_weights = sl::in<float>(buffers, sl__head_weights(a, gradients));
  if (gradients) {
    h.dx = sl::out<T>(buffers, SL__HEAD_DX);
    h.grad = sl::out<float>(buffers, SL__HEAD_GRAD);
    if (a->bias == SL__BIAS_IN_BLOCK) h.bias_grad = h.grad + weights;
    if (a->bias == SL__BIAS_ALONE) h.bias_grad = sl::out<float>(buffers, SL__HEAD_BIAS_GRAD);
  }
  for (int64_t first = 0; first < rows; first += a->chunk) {
    int64_t left = rows - first;
    if (!one_chunk(*a, h, first, a->chunk < left ? a->chunk : left, cl_arg, cuda)) return;
  }
}

}  // namespace

SL__CUDA(linear_xent) { SL__BY_TYPE(cl_arg, 0, T, run<T>(buffers, cl_arg, 0, cuda)); }

SL__CUDA(linear_xent_gradient) { SL__BY_TYPE(cl_arg, 0, T, run<T>(buffers, cl_arg, 2, cuda)); }

SL__CUDA(linear_xent_bias_gradient) { SL__BY_TYPE(cl_arg, 0, T, run<T>(buffers, cl_arg, 3, cuda)); }
