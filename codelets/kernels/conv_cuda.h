/* cuDNN's convolutions, planned once a shape; included by codelets' *_cuda.cu only. Only algorithms
 * are used that give the same bits in every run, sum the products directly (Winograd's and
 * Fourier's transforms lose more digits than a tolerance from the sum's length covers) and fit into
 * the workspace; if none fits, half as many images are taken at a time, and so on. Where none fits
 * one image, there is no algorithm: see convolve_cuda.h. */
#ifndef SL_CODELETS_KERNELS_CONV_CUDA_H
#define SL_CODELETS_KERNELS_CONV_CUDA_H

#include "codelets/groupconv2d.h"
#include "codelets/kernels/conv.h"
#include "codelets/kernels/gemm_cuda.h"
#include "codelets/kernels/plan_cache.h"

namespace sl::convolution {

enum way { FORWARD, DATA, WEIGHT };

struct key {
  sl__groupconv_args a; /* fields that the plan does not depend on are 0 */
  int32_t way, half, tf32;
};

struct plan {
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t weight = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  int algorithm = 0; /* in the direction's own enumeration */
  size_t workspace = 0;
  int32_t images = 0; /* images at a time; 0: there is no algorithm */

  ~plan() {
    if (convolution) cudnn.DestroyConvolutionDescriptor(convolution);
    if (weight) cudnn.DestroyFilterDescriptor(weight);
    if (y) cudnn.DestroyTensorDescriptor(y);
    if (x) cudnn.DestroyTensorDescriptor(x);
  }
};

/* ---- the three directions, each with types and functions of its own ------------------------ */

template <enum way W>
struct library;

template <>
struct library<FORWARD> {
  using choice = cudnnConvolutionFwdAlgoPerf_t;
  using algorithm = cudnnConvolutionFwdAlgo_t;
  static bool is_plain_sum(algorithm i) {
    return i == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM ||
           i == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM ||
           i == CUDNN_CONVOLUTION_FWD_ALGO_GEMM || i == CUDNN_CONVOLUTION_FWD_ALGO_DIRECT;
  }
  static cudnnStatus_t choices(cudnnHandle_t h, const plan *p, int most, int *count, choice *list) {
    return cudnn.GetConvolutionForwardAlgorithm_v7(h, p->x, p->weight, p->convolution, p->y, most,
                                                   count, list);
  }
  static cudnnStatus_t size(cudnnHandle_t h, const plan *p, algorithm i, size_t *bytes) {
    return cudnn.GetConvolutionForwardWorkspaceSize(h, p->x, p->weight, p->convolution, p->y, i,
                                                    bytes);
  }
};

template <>
struct library<DATA> {
  using choice = cudnnConvolutionBwdDataAlgoPerf_t;
  using algorithm = cudnnConvolutionBwdDataAlgo_t;
  static bool is_plain_sum(algorithm i) { return i == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1; }
  static cudnnStatus_t choices(cudnnHandle_t h, const plan *p, int most, int *count, choice *list) {
    return cudnn.GetConvolutionBackwardDataAlgorithm_v7(h, p->weight, p->y, p->convolution, p->x,
                                                        most, count, list);
  }
  static cudnnStatus_t size(cudnnHandle_t h, const plan *p, algorithm i, size_t *bytes) {
    return cudnn.GetConvolutionBackwardDataWorkspaceSize(h, p->weight, p->y, p->convolution, p->x,
                                                         i, bytes);
  }
};

template <>
struct library<WEIGHT> {
  using choice = cudnnConvolutionBwdFilterAlgoPerf_t;
  using algorithm = cudnnConvolutionBwdFilterAlgo_t;
  static bool is_plain_sum(algorithm i) { return i == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1; }
  static cudnnStatus_t choices(cudnnHandle_t h, const plan *p, int most, int *count, choice *list) {
    return cudnn.GetConvolutionBackwardFilterAlgorithm_v7(h, p->x, p->y, p->convolution, p->weight,
                                                          most, count, list);
  }
  static cudnnStatus_t size(cudnnHandle_t h, const plan *p, algorithm i, size_t *bytes) {
    return cudnn.GetConvolutionBackwardFilterWorkspaceSize(h, p->x, p->y, p->convolution, p->weight,
                                                           i, bytes);
  }
};

/* ---- plans ------------------------------------------------------------------------------- */

inline cudnnMathType_t math(const key &q) {
  if (q.half) return CUDNN_TENSOR_OP_MATH;
  return q.tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH; /* the default has TensorFloat-32 */
}

inline bool create(const key &q, plan *p) {
  const sl__groupconv_args &a = q.a;
  cudnnDataType_t type = q.half ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  return succeeded(cudnn.CreateTensorDescriptor(&p->x)) &&
         succeeded(cudnn.CreateTensorDescriptor(&p->y)) &&
         succeeded(cudnn.CreateFilterDescriptor(&p->weight)) &&
         succeeded(cudnn.CreateConvolutionDescriptor(&p->convolution)) &&
         succeeded(cudnn.SetFilter4dDescriptor(p->weight, type, CUDNN_TENSOR_NCHW, a.out_channels,
                                               a.channels / a.groups, a.kernel_h, a.kernel_w)) &&
         succeeded(cudnn.SetConvolution2dDescriptor(p->convolution, a.pad_h, a.pad_w, a.stride_h,
                                                    a.stride_w, a.dilation_h, a.dilation_w,
                                                    CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT)) &&
         (a.groups == 1 || succeeded(cudnn.SetConvolutionGroupCount(p->convolution, a.groups)));
}

/* Does the status say that the library does not take such a convolution? Others, as of memory that
 * is short, say nothing about the shape. */
inline bool is_refusal(cudnnStatus_t status) {
#if CUDNN_MAJOR < 9
  return status == CUDNN_STATUS_BAD_PARAM || status == CUDNN_STATUS_NOT_SUPPORTED ||
         status == CUDNN_STATUS_ARCH_MISMATCH;
#else
  switch (status) { /* these are about the installation */
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER:
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART:
    case CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING:
    case CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE: return false;
    default: break;
  }
  int category = CUDNN_STATUS_CATEGORY(static_cast<int>(status));
  return category == CUDNN_STATUS_BAD_PARAM || category == CUDNN_STATUS_NOT_SUPPORTED;
#endif
}

inline cudnnStatus_t set_images(const key &q, plan *p, int32_t images) {
  const sl__groupconv_args &a = q.a;
  cudnnDataType_t type = q.half ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  cudnnStatus_t status = cudnn.SetTensor4dDescriptor(p->x, CUDNN_TENSOR_NCHW, type, images,
                                                     a.channels, a.height, a.width);
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnn.SetTensor4dDescriptor(p->y, CUDNN_TENSOR_NCHW, type, images, a.out_channels,
                                         a.out_height, a.out_width);
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnn.SetConvolutionMathType(p->convolution, math(q));
  return status;
}

/* cuDNN also offers choices for other math types than the requested one. If tensor cores are
 * allowed, the offered math type is used; plain floats stay plain, and the workspace's size shows
 * whether the algorithm supports them. */
inline cudnnStatus_t agree_on_math(const key &q, cudnnMathType_t offered, plan *p) {
  if (math(q) == CUDNN_FMA_MATH) return CUDNN_STATUS_SUCCESS;
  if (offered == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION) /* floats as binary16 */
    return CUDNN_STATUS_NOT_SUPPORTED;
  return cudnn.SetConvolutionMathType(p->convolution, offered);
}

/* Takes the first suitable choice; the library lists them by expected time. */
template <enum way W>
cudnnStatus_t choose(struct sl__cuda *cuda, const key &q, plan *p) {
  typename library<W>::choice list[16];
  int count = 0;
  cudnnStatus_t status = library<W>::choices(cuda->dnn, p, 16, &count, list);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  for (int i = 0; i < count; i++) {
    if (list[i].determinism != CUDNN_DETERMINISTIC || !library<W>::is_plain_sum(list[i].algo))
      continue;
    status = list[i].status;
    if (status == CUDNN_STATUS_SUCCESS) status = agree_on_math(q, list[i].mathType, p);
    if (status == CUDNN_STATUS_SUCCESS)
      status = library<W>::size(cuda->dnn, p, list[i].algo, &p->workspace);
    p->algorithm = list[i].algo;
    if (status == CUDNN_STATUS_SUCCESS && p->workspace <= SL__CUDA_WORKSPACE) return status;
    if (status != CUDNN_STATUS_SUCCESS && !is_refusal(status)) return status;
  }
  return CUDNN_STATUS_NOT_SUPPORTED;
}

/* Returns false if the task has failed. */
template <enum way W>
bool make(struct sl__cuda *cuda, const key &q, plan *p) {
  if (!create(q, p)) return false;
  for (int32_t images = q.a.images;; images = (images + 1) / 2) {
    cudnnStatus_t status = set_images(q, p, images);
    if (status == CUDNN_STATUS_SUCCESS) status = choose<W>(cuda, q, p);
    if (status == CUDNN_STATUS_SUCCESS) p->images = images;
    if (status != CUDNN_STATUS_SUCCESS && !is_refusal(status)) return succeeded(status);
    if (p->images || images == 1) return true;
  }
}

/* Returns the plan for `images` images; NULL: the task has failed. */
template <enum way W>
const plan *find(struct sl__cuda *cuda, const sl__groupconv_args &a, bool half, bool tf32,
                 int32_t images) {
  key q;
  memset(&q, 0, sizeof q);
  q.a = a;
  q.a.images = images;
  q.a.has_bias = q.a.activation = q.a.transposed = 0;
  q.a.method = q.a.implementation = 0; /* of a CPU */
  q.way = W;
  q.half = half;
  q.tf32 = tf32 && !half;
  plan_cache<key, plan> *plans = plan_cache<key, plan>::of(cuda, SL__CUDA_CONVOLUTIONS);
  return plans ? plans->find(q, [&](plan *p) { return make<W>(cuda, q, p); }) : nullptr;
}

/* Calls step(plan, first image) for all images, as many at a time as a plan takes. Returns false if
 * the task has failed, or, at the latest behind the first parts, if there is no algorithm
 * (*lacks). */
template <enum way W, class F>
bool each_part(struct sl__cuda *cuda, const sl__groupconv_args &a, bool half, bool tf32,
               bool *lacks, F step) {
  for (int32_t n = 0; n < a.images;) {
    const plan *p = find<W>(cuda, a, half, tf32, a.images - n);
    *lacks = p && !p->images;
    if (!p || *lacks) return false;
    for (; n + p->images <= a.images; n += p->images)
      if (!succeeded(step(p, n))) return false;
  }
  return true;
}

/* Does the library have algorithms for all images? True if the task has failed, too. */
template <enum way W>
bool has_plans(struct sl__cuda *cuda, const sl__groupconv_args &a, bool half, bool tf32) {
  bool lacks = false;
  each_part<W>(cuda, a, half, tf32, &lacks,
               [](const plan *, int32_t) { return CUDNN_STATUS_SUCCESS; });
  return !lacks;
}

}  // namespace sl::convolution

#endif
