/* Dense layer on a GPU: products by cuBLASLt. With both bias and activation, the product adds the
 * bias and the activation is a pass in place: the library's own relu may turn NaN into 0, which
 * would hide it from the loss check. */
#include "codelets/dense.h"

#include "codelets/kernels/activate_cuda.h"
#include "codelets/kernels/gemm_cuda.h"

namespace {

template <class T>
void forward(const sl__dense_args *a, const void *cl_arg, struct sl__cuda *cuda, const T *x,
             const T *weight, const T *bias, T *saved, T *y) {
  enum sl_activation activation = static_cast<enum sl_activation>(a->activation);
  sl::product p = {.ta = false,
                   .tb = true,
                   .m = a->rows,
                   .n = a->out,
                   .k = a->in,
                   .alpha = 1,
                   .lda = a->in,
                   .ldb = a->in,
                   .beta = 0,
                   .ldc = a->out,
                   .tf32 = sl__tf32(cl_arg),
                   .epilogue = bias ? sl::EPILOGUE_BIAS : sl::EPILOGUE_NONE,
                   .bias = bias,
                   .activation = saved ? SL_ACTIVATION_NONE : activation};
  if (sl::gemm(cuda, p, x, weight, saved ? saved : y) && saved)
    sl::map_activation<sl::activation_forward>(
        cuda, activation, static_cast<int64_t>(a->rows) * a->out, y, static_cast<const T *>(saved));
}

template <class T>
void forward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__dense_args *a = sl::args<sl__dense_args>(cl_arg);
  const T *weight = sl::in<T>(buffers, 1);
  const T *bias = a->has_bias ? weight + static_cast<int64_t>(a->out) * a->in : nullptr;
  T *saved = sl__buffer_count(cl_arg) > 3 ? sl::out<T>(buffers, 3) : nullptr;
  forward(a, cl_arg, cuda, sl::in<T>(buffers, 0), weight, bias, saved, sl::out<T>(buffers, 2));
}

template <class T>
void shared_forward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  T *saved = sl__buffer_count(cl_arg) > 4 ? sl::out<T>(buffers, 4) : nullptr;
  forward(sl::args<sl__dense_args>(cl_arg), cl_arg, cuda, sl::in<T>(buffers, 0),
          sl::in<T>(buffers, 1), sl::in<T>(buffers, 2), saved, sl::out<T>(buffers, 3));
}

template <class T>
void data_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__dense_args *a = sl::args<sl__dense_args>(cl_arg);
  sl::product p = {.ta = false,
                   .tb = false,
                   .m = a->rows,
                   .n = a->in,
                   .k = a->out,
                   .alpha = 1,
                   .lda = a->out,
                   .ldb = a->in,
                   .beta = sl__accumulate(cl_arg) ? 1.0f : 0.0f,
                   .ldc = a->in,
                   .tf32 = sl__tf32(cl_arg),
                   .epilogue = sl::EPILOGUE_NONE,
                   .bias = nullptr,
                   .activation = SL_ACTIVATION_NONE};
  sl::gemm(cuda, p, sl::in<T>(buffers, 0), sl::in<T>(buffers, 1), sl::out<T>(buffers, 2));
}

template <class T>
void weight_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__dense_args *a = sl::args<sl__dense_args>(cl_arg);
  const T *x = sl::in<T>(buffers, 0), *dy = sl::in<T>(buffers, 1);
  float *grad = sl::out<float>(buffers, 2);
  bool add = sl__accumulate(cl_arg);
  sl::product p = {.ta = true,
                   .tb = false,
                   .m = a->out,
                   .n = a->in,
                   .k = a->rows,
                   .alpha = 1,
                   .lda = a->out,
                   .ldb = a->in,
                   .beta = add ? 1.0f : 0.0f,
                   .ldc = a->in,
                   .tf32 = sl__tf32(cl_arg),
                   .epilogue = sl::EPILOGUE_NONE,
                   .bias = nullptr,
                   .activation = SL_ACTIVATION_NONE};
  if (sl::gemm(cuda, p, dy, x, grad) && a->has_bias)
    sl::column_sums(cuda, dy, a->rows, a->out, a->out, grad + static_cast<int64_t>(a->out) * a->in,
                    add);
}

template <class T>
void bias_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__dense_args *a = sl::args<sl__dense_args>(cl_arg);
  sl::column_sums(cuda, sl::in<T>(buffers, 0), a->rows, a->out, a->out, sl::out<float>(buffers, 1),
                  sl__accumulate(cl_arg));
}

}  // namespace

SL__CUDA(dense_forward) { SL__BY_TYPE(cl_arg, 0, T, forward_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(dense_shared_forward) {
  SL__BY_TYPE(cl_arg, 0, T, shared_forward_task<T>(buffers, cl_arg, cuda));
}

SL__CUDA(bias_backward) { SL__BY_TYPE(cl_arg, 0, T, bias_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(dense_backward_data) { SL__BY_TYPE(cl_arg, 0, T, data_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(dense_backward_weight) {
  SL__BY_TYPE(cl_arg, 0, T, weight_task<T>(buffers, cl_arg, cuda));
}
