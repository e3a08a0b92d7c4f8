/* cuDNN's 2-D convolutions without a GPU, by plain loops with sums in double precision. Part of the
 * stand-in for a GPU, which only tests use. The first algorithms that it offers are not
 * deterministic and really give other bits at every second call; the last one fails. */
#include <cudnn.h>
#include <stdarg.h>
#include <stdio.h>

#include <algorithm>
#include <atomic>

#pragma GCC diagnostic ignored                                                                     \
    "-Wdeprecated-declarations" /* the interface without graphs is, and will do */

/* ---- descriptors: the toolkit's names for opaque structs ----------------------------------------
 */
struct cudnnContext {
  int device;
  cudaStream_t stream;
};
struct cudnnTensorStruct {
  cudnnDataType_t type;
  int count = 0, dims[CUDNN_DIM_MAX], strides[CUDNN_DIM_MAX];
};
struct cudnnFilterStruct {
  cudnnDataType_t type;
  int count = 0, dims[4];
};
struct cudnnConvolutionStruct {
  bool set = false;
  int pad[2], stride[2], dilation[2], groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

namespace {

thread_local char last_message[300] = "";
cudnnStatus_t refuse(cudnnStatus_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
cudnnStatus_t refuse(cudnnStatus_t status, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(last_message, sizeof last_message, format, list);
  va_end(list);
  fprintf(stderr, "stand-in: cudnn: %s\n", last_message);
  return status;
}
#define BAD(...) return refuse(CUDNN_STATUS_BAD_PARAM, __VA_ARGS__)
#define UNSUPPORTED(...) return refuse(CUDNN_STATUS_NOT_SUPPORTED, __VA_ARGS__)

struct Algorithm {
  int number;
  bool deterministic, supported;
  size_t workspace;
  bool dilates = true, takes_bf16 = true; /* as NVIDIA's table of the algorithms */
  size_t matrices = 1;                    /* of windows, in a workspace that is not empty */
};
const Algorithm forward_algorithms[] = {
    {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED, false, true, 131072},
    {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, true, true, 32768, false},
    {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, true, true, 0, true, false},
    {CUDNN_CONVOLUTION_FWD_ALGO_FFT, true, false, 0}};
const Algorithm data_algorithms[] = {
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, false, true, 0},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED, true, true, 1 << 20},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, true, true, 49152},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, true, false, 0}};
const Algorithm filter_algorithms[] = {
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, false, true, 0},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, false, true, 4096},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, true, true, 65536, true, true, 8},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, true, false, 0}};
const Algorithm *find(const Algorithm (&all)[4], int number) {
  for (auto &algorithm : all)
    if (algorithm.number == number && algorithm.supported) return &algorithm;
  return nullptr;
}

/* ---- one convolution: its checks and its loops
 * --------------------------------------------------- */
/* Convolutions work on copies of our own. Sanitizers look at the copying from and to the caller's
 * memory (dense, store); here they would take most of the time. */
#define UNCHECKED __attribute__((no_sanitize("address,undefined")))

struct Convolution {
  cudnnTensorStruct x, y;
  cudnnFilterStruct w;
  cudnnConvolutionStruct c;

  /* run(weight, output, input, count, step): a row of outputs and the inputs, step apart, that meet
   * one weight. */
  template <class Run>
  UNCHECKED void each(Run run) const {
    int per_group = w.dims[0] / c.groups, R = w.dims[2], S = w.dims[3], H = x.dims[2],
        W = x.dims[3], P = y.dims[2], Q = y.dims[3];
    for (int n = 0; n < x.dims[0]; n++)
      for (int k = 0; k < w.dims[0]; k++)
        for (int ci = 0; ci < w.dims[1]; ci++)
          for (int r = 0; r < R; r++)
            for (int s = 0; s < S; s++)
              for (int p = 0; p < P; p++) {
                int h = p * c.stride[0] - c.pad[0] + r * c.dilation[0],
                    first = s * c.dilation[1] - c.pad[1], step = c.stride[1];
                if (h < 0 || h >= H) continue;
                int from = first < 0 ? (-first + step - 1) / step : 0;
                int to = first >= W ? 0 : std::min(Q, (W - 1 - first) / step + 1);
                if (from >= to) continue;
                size_t channel = (size_t)n * x.dims[1] + k / per_group * w.dims[1] + ci;
                run((((size_t)k * w.dims[1] + ci) * R + r) * S + s,
                    (((size_t)n * w.dims[0] + k) * P + p) * Q + from,
                    (channel * H + h) * W + first + from * step, to - from, step);
              }
  }
};

int extent(const Convolution &c, int i) { /* of the output, along height (0) or width (1) */
  return (c.x.dims[2 + i] + 2 * c.c.pad[i] - c.c.dilation[i] * (c.w.dims[2 + i] - 1) - 1) /
             c.c.stride[i] +
         1;
}

cudnnStatus_t check(Convolution *c, cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                    cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t conv,
                    cudnnTensorDescriptor_t y) {
  int device;
  if (!handle || !x || !w || !conv || !y) BAD("a handle or descriptor is NULL");
  if (cudaGetDevice(&device) || device != handle->device) BAD("the handle is another device's");
  if (x->count != 4 || y->count != 4 || w->count != 4 || !conv->set)
    BAD("a descriptor is not set, or not of 4 dimensions");
  c->x = *x, c->w = *w, c->c = *conv, c->y = *y;
  if (x->type != w->type || x->type != y->type)
    UNSUPPORTED("x, w and y of types %d, %d, %d", x->type, w->type, y->type);
  const int *xd = x->dims, *wd = w->dims, *yd = y->dims;
  if (xd[1] != wd[1] * conv->groups || wd[0] % conv->groups)
    BAD("%d channels, filters of %d, %d groups", xd[1], wd[1], conv->groups);
  if (yd[0] != xd[0] || yd[1] != wd[0] || yd[2] != extent(*c, 0) || yd[3] != extent(*c, 1))
    BAD("y is %dx%dx%dx%d, it should be %dx%dx%dx%d", yd[0], yd[1], yd[2], yd[3], xd[0], wd[0],
        extent(*c, 0), extent(*c, 1));
  return CUDNN_STATUS_SUCCESS;
}

float from_bf16(uint16_t bits) { return __uint_as_float((uint32_t)bits << 16); }
uint16_t to_bf16(float x) {
  uint32_t bits = __float_as_uint(x);
  return x != x ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float to_tf32(float x) {
  uint32_t bits = __float_as_uint(x);
  return isfinite(x) ? __uint_as_float((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu) : x;
}

cudnnTensorStruct packed(const cudnnFilterStruct &w) {
  cudnnTensorStruct t;
  t.type = w.type, t.count = 4;
  for (int i = 3, stride = 1; i >= 0; i--)
    t.dims[i] = w.dims[i], t.strides[i] = stride, stride *= w.dims[i];
  return t;
}
size_t bytes_of(cudnnDataType_t type) { return type == CUDNN_DATA_FLOAT ? 4 : 2; }
sl_standin::Range range(const void *data, const cudnnTensorStruct &t) {
  size_t last = 0;
  for (int i = 0; i < t.count; i++) last += (size_t)(t.dims[i] - 1) * t.strides[i];
  return {data, (last + 1) * bytes_of(t.type)};
}
template <class Visit>
void each_element(const cudnnTensorStruct &t, Visit visit) {
  size_t i = 0;
  for (int n = 0; n < t.dims[0]; n++)
    for (int c = 0; c < t.dims[1]; c++)
      for (int h = 0; h < t.dims[2]; h++)
        for (int w = 0; w < t.dims[3]; w++)
          visit(i++, (size_t)n * t.strides[0] + (size_t)c * t.strides[1] +
                         (size_t)h * t.strides[2] + (size_t)w * t.strides[3]);
}
/* Inputs row after row, rounded as the math type lets tensor cores do it (f32 by default, too, as
 * of Ampere). */
std::vector<float> dense(const void *data, const cudnnTensorStruct &t, cudnnMathType_t math) {
  std::vector<float> result((size_t)t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3]);
  each_element(t, [&](size_t i, size_t at) {
    if (t.type == CUDNN_DATA_FLOAT)
      result[i] =
          math == CUDNN_FMA_MATH ? ((const float *)data)[at] : to_tf32(((const float *)data)[at]);
    else
      result[i] = from_bf16(((const uint16_t *)data)[at]);
  });
  return result;
}
void store(const std::vector<double> &sums, float alpha, float beta, void *data,
           const cudnnTensorStruct &t, bool deterministic) {
  static std::atomic<unsigned> calls{0};
  float noise = deterministic || calls++ % 2 ? 1.0f : 1.0000005f; /* sums in another order */
  each_element(t, [&](size_t i, size_t at) {
    float y = alpha * noise * (float)sums[i];
    if (t.type == CUDNN_DATA_FLOAT) {
      float *p = (float *)data + at;
      *p = beta != 0 ? y + beta * *p : y;
    } else {
      uint16_t *p = (uint16_t *)data + at;
      *p = to_bf16(beta != 0 ? y + beta * from_bf16(*p) : y);
    }
  });
}

/* An algorithm's workspace and, if it is not empty, the matrices of windows: more images need more.
 * For the weights' gradient of large images 64 MiB are too little, as on an H200. */
size_t workspace_of(const Algorithm &algorithm, const Convolution &c) {
  size_t windows = (size_t)c.y.dims[0] * c.y.dims[2] * c.y.dims[3];
  size_t taps = (size_t)c.w.dims[1] * c.w.dims[2] * c.w.dims[3];
  size_t matrices = algorithm.matrices * windows * taps * bytes_of(c.x.type);
  return algorithm.workspace ? algorithm.workspace + matrices : 0;
}

const char *math_name(cudnnMathType_t math) {
  switch (math) {
    case CUDNN_DEFAULT_MATH: return "DEFAULT";
    case CUDNN_TENSOR_OP_MATH: return "TENSOR_OP";
    case CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION: return "TENSOR_OP_ALLOW_CONVERSION";
    default: return "FMA";
  }
}
/* The log of combinations. Layouts other than packed NCHW are named so. */
void note_key(const char *name, const Convolution &c, int algorithm, float beta) {
  char key[300];
  auto is_nchw = [](const cudnnTensorStruct &t) {
    return t.strides[3] == 1 && t.strides[2] == t.dims[3] &&
           t.strides[1] == t.dims[2] * t.dims[3] &&
           t.strides[0] == t.dims[1] * t.dims[2] * t.dims[3];
  };
  const cudnnConvolutionStruct &d = c.c;
  snprintf(key, sizeof key,
           "%s data=%s layout=%s filter=KCRS compute=f32 math=%s algorithm=%d dilation=%s "
           "groups=%s beta=%s",
           name, c.x.type == CUDNN_DATA_FLOAT ? "f32" : "bf16",
           is_nchw(c.x) && is_nchw(c.y) ? "NCHW" : "other", math_name(d.math), algorithm,
           d.dilation[0] == 1 && d.dilation[1] == 1 ? "1" : "more", d.groups == 1 ? "1" : "more",
           beta != 0 ? "1" : "0");
  sl_standin::note_library_key(key);
}

bool supports(const Algorithm &algorithm, const Convolution &c) {
  bool dilated = c.c.dilation[0] > 1 || c.c.dilation[1] > 1, half = c.x.type == CUDNN_DATA_BFLOAT16;
  return algorithm.supported && (algorithm.dilates || !dilated) && (algorithm.takes_bf16 || !half);
}

/* Puts the work on the handle's stream. left and right are read, result is written. */
template <class Compute>
cudnnStatus_t enqueue(cudnnHandle_t handle, const char *name, const Convolution &c,
                      const Algorithm *algorithm, const void *alpha, const void *beta,
                      void *workspace, size_t workspace_size, const void *left,
                      cudnnTensorStruct left_shape, const void *right,
                      cudnnTensorStruct right_shape, void *result, cudnnTensorStruct shape,
                      Compute compute) {
  if (!algorithm || !supports(*algorithm, c))
    UNSUPPORTED("%s: this algorithm is not here, or not for these", name);
  if (!alpha || !beta || !left || !right || !result) BAD("%s: a pointer is NULL", name);
  size_t needs = workspace_of(*algorithm, c);
  if (workspace_size < needs || (needs && !workspace))
    BAD("%s: a workspace of %zu bytes, %zu are needed", name, workspace_size, needs);
  float factor = *(const float *)alpha, keep = *(const float *)beta;
  bool deterministic = algorithm->deterministic;
  note_key(name, c, algorithm->number, keep);
  cudaError_t error = sl_standin::work(
      handle->stream, name,
      {range(left, left_shape),
       range(right, right_shape),
       range(result, shape),
       {workspace, needs}},
      [=] {
        std::vector<double> sums((size_t)shape.dims[0] * shape.dims[1] * shape.dims[2] *
                                 shape.dims[3]);
        compute(c, dense(left, left_shape, c.c.math).data(),
                dense(right, right_shape, c.c.math).data(), sums.data());
        store(sums, factor, keep, result, shape, deterministic);
        if (needs) memset(workspace, 0xff, needs); /* no other work may use it at this time */
      });
  return error ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}

template <class Result>
cudnnStatus_t offer(const Algorithm (&all)[4], const Convolution &c, int requested, int *returned,
                    Result *results) {
  if (requested < 1 || !returned || !results) BAD("algorithms: nothing to answer with");
  *returned = 0;
  for (auto &algorithm : all) {
    if (*returned == requested) break;
    Result *result = &results[(*returned)++];
    memset((void *)result, 0, sizeof *result);
    result->algo = (decltype(result->algo))algorithm.number;
    result->status = supports(algorithm, c) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
    result->time = -1; /* of a heuristic */
    result->memory = workspace_of(algorithm, c);
    result->determinism = algorithm.deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
    result->mathType = c.c.math;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t workspace_size(const Algorithm *algorithm, const Convolution &c, size_t *bytes) {
  if (!algorithm || !supports(*algorithm, c))
    UNSUPPORTED("workspace: this algorithm is not here, or not for these");
  *bytes = workspace_of(*algorithm, c);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_type(cudnnDataType_t type) {
  if (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_BFLOAT16)
    UNSUPPORTED("data type %d (float and bfloat16 are here)", type);
  return CUDNN_STATUS_SUCCESS;
}

} /* namespace */

#define CHECKED(call)                                                                              \
  if (cudnnStatus_t status = (call)) return status
#define PLANTED() CHECKED((cudnnStatus_t)sl_standin::planted_status(__func__))

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }
size_t cudnnGetCudartVersion() { return CUDART_VERSION; }
const char *cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
    case CUDNN_STATUS_ALLOC_FAILED: return "CUDNN_STATUS_ALLOC_FAILED";
    default: return "CUDNN_UNKNOWN_STATUS";
  }
}
void cudnnGetLastErrorString(char *message, size_t size) {
  snprintf(message, size, "%s", last_message);
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
  int device;
  if (!handle) BAD("cudnnCreate: NULL");
  if (cudaGetDevice(&device)) return CUDNN_STATUS_NOT_INITIALIZED;
  *handle = new cudnnContext{device, nullptr};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return delete handle, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (!handle) BAD("cudnnSetStream: no handle");
  return handle->stream = stream, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
  return *stream = handle->stream, CUDNN_STATUS_SUCCESS;
}

#define DESCRIPTOR(name, type)                                                                     \
  cudnnStatus_t cudnnCreate##name##Descriptor(type *descriptor) {                                  \
    return *descriptor = new std::remove_pointer_t<type>, CUDNN_STATUS_SUCCESS;                    \
  }                                                                                                \
  cudnnStatus_t cudnnDestroy##name##Descriptor(type descriptor) {                                  \
    return delete descriptor, CUDNN_STATUS_SUCCESS;                                                \
  }
DESCRIPTOR(Tensor, cudnnTensorDescriptor_t)
DESCRIPTOR(Filter, cudnnFilterDescriptor_t)
DESCRIPTOR(Convolution, cudnnConvolutionDescriptor_t)

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t t, cudnnDataType_t type, int count,
                                         const int dims[], const int strides[]) {
  if (!t || count < 3 || count > CUDNN_DIM_MAX) BAD("a tensor of %d dimensions", count);
  CHECKED(check_type(type));
  for (int i = 0; i < count; i++)
    if (dims[i] < 1 || strides[i] < 1)
      BAD("tensor: dimension %d is %d, %d apart", i, dims[i], strides[i]);
  t->type = type, t->count = count;
  std::copy_n(dims, count, t->dims);
  std::copy_n(strides, count, t->strides);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t t, cudnnDataType_t type, int n,
                                           int c, int h, int w, int n_stride, int c_stride,
                                           int h_stride, int w_stride) {
  int dims[] = {n, c, h, w}, strides[] = {n_stride, c_stride, h_stride, w_stride};
  return cudnnSetTensorNdDescriptor(t, type, 4, dims, strides);
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t t, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  PLANTED();
  if (format == CUDNN_TENSOR_NCHW)
    return cudnnSetTensor4dDescriptorEx(t, type, n, c, h, w, c * h * w, h * w, w, 1);
  if (format == CUDNN_TENSOR_NHWC)
    return cudnnSetTensor4dDescriptorEx(t, type, n, c, h, w, c * h * w, 1, w * c, c);
  UNSUPPORTED("tensor format %d", format);
}
cudnnStatus_t cudnnGetTensorSizeInBytes(cudnnTensorDescriptor_t t, size_t *bytes) {
  if (!t || !t->count) BAD("the tensor is not set");
  return *bytes = range(nullptr, *t).bytes, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t f, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  if (!f || k < 1 || c < 1 || h < 1 || w < 1) BAD("a filter of %dx%dx%dx%d", k, c, h, w);
  CHECKED(check_type(type));
  if (format != CUDNN_TENSOR_NCHW) UNSUPPORTED("filter format %d", format);
  *f = cudnnFilterStruct{type, 4, {k, c, h, w}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t c, int pad_h, int pad_w,
                                              int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  if (!c || pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1 || dilation_h < 1 ||
      dilation_w < 1)
    BAD("convolution: padding %d %d, stride %d %d, dilation %d %d", pad_h, pad_w, stride_h,
        stride_w, dilation_h, dilation_w);
  if (mode != CUDNN_CROSS_CORRELATION || compute != CUDNN_DATA_FLOAT)
    UNSUPPORTED("convolution mode %d, compute type %d", mode, compute);
  *c = cudnnConvolutionStruct{true, {pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t c, cudnnMathType_t math) {
  PLANTED();
  if (!c || (unsigned)math > CUDNN_FMA_MATH) BAD("math type %d", math);
  return c->math = math, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionMathType(cudnnConvolutionDescriptor_t c, cudnnMathType_t *math) {
  return *math = c->math, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t c, int groups) {
  if (!c || groups < 1) BAD("%d groups", groups);
  return c->groups = groups, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(const cudnnConvolutionDescriptor_t conv,
                                                    const cudnnTensorDescriptor_t x,
                                                    const cudnnFilterDescriptor_t w, int *n, int *c,
                                                    int *h, int *width) {
  if (!conv || !x || !w || !conv->set || x->count != 4 || w->count != 4)
    BAD("a descriptor is not set");
  Convolution all{*x, {}, *w, *conv};
  *n = x->dims[0], *c = w->dims[0], *h = extent(all, 0), *width = extent(all, 1);
  return CUDNN_STATUS_SUCCESS;
}

/* ---- forward ------------------------------------------------------------------------------------
 */
cudnnStatus_t cudnnGetConvolutionForwardAlgorithmMaxCount(cudnnHandle_t, int *count) {
  return *count = 4, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t y, const int requested,
    int *returned, cudnnConvolutionFwdAlgoPerf_t *results) {
  PLANTED();
  Convolution c;
  CHECKED(check(&c, handle, x, w, conv, y));
  return offer(forward_algorithms, c, requested, returned, results);
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t y,
    cudnnConvolutionFwdAlgo_t algo, size_t *bytes) {
  PLANTED();
  Convolution c;
  CHECKED(check(&c, handle, x, w, conv, y));
  return workspace_size(find(forward_algorithms, algo), c, bytes);
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
                                      const cudnnTensorDescriptor_t x_desc, const void *x,
                                      const cudnnFilterDescriptor_t w_desc, const void *w,
                                      const cudnnConvolutionDescriptor_t conv,
                                      cudnnConvolutionFwdAlgo_t algo, void *workspace, size_t bytes,
                                      const void *beta, const cudnnTensorDescriptor_t y_desc,
                                      void *y) {
  Convolution c;
  CHECKED(check(&c, handle, x_desc, w_desc, conv, y_desc));
  return enqueue(handle, "cudnnConvolutionForward", c, find(forward_algorithms, algo), alpha, beta,
                 workspace, bytes, x, c.x, w, packed(c.w), y, c.y,
                 [](const Convolution &c, const float *x, const float *w, double *y) {
                   c.each([=](size_t weight, size_t out, size_t in, int count, int step) UNCHECKED {
                     for (int i = 0; i < count; i++)
                       y[out + i] += (double)w[weight] * x[in + (size_t)i * step];
                   });
                 });
}

/* ---- backward: the input's gradient -------------------------------------------------------------
 */
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithmMaxCount(cudnnHandle_t, int *count) {
  return *count = 4, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t dx, const int requested,
    int *returned, cudnnConvolutionBwdDataAlgoPerf_t *results) {
  PLANTED();
  Convolution c;
  CHECKED(check(&c, handle, dx, w, conv, dy));
  return offer(data_algorithms, c, requested, returned, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t dx,
    cudnnConvolutionBwdDataAlgo_t algo, size_t *bytes) {
  PLANTED();
  Convolution c;
  CHECKED(check(&c, handle, dx, w, conv, dy));
  return workspace_size(find(data_algorithms, algo), c, bytes);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                           const cudnnFilterDescriptor_t w_desc, const void *w,
                                           const cudnnTensorDescriptor_t dy_desc, const void *dy,
                                           const cudnnConvolutionDescriptor_t conv,
                                           cudnnConvolutionBwdDataAlgo_t algo, void *workspace,
                                           size_t bytes, const void *beta,
                                           const cudnnTensorDescriptor_t dx_desc, void *dx) {
  Convolution c;
  CHECKED(check(&c, handle, dx_desc, w_desc, conv, dy_desc));
  return enqueue(handle, "cudnnConvolutionBackwardData", c, find(data_algorithms, algo), alpha,
                 beta, workspace, bytes, w, packed(c.w), dy, c.y, dx, c.x,
                 [](const Convolution &c, const float *w, const float *dy, double *dx) {
                   c.each([=](size_t weight, size_t out, size_t in, int count, int step) UNCHECKED {
                     for (int i = 0; i < count; i++)
                       dx[in + (size_t)i * step] += (double)w[weight] * dy[out + i];
                   });
                 });
}

/* ---- backward: the filter's gradient ------------------------------------------------------------
 */
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(cudnnHandle_t, int *count) {
  return *count = 4, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t conv, const cudnnFilterDescriptor_t dw, const int requested,
    int *returned, cudnnConvolutionBwdFilterAlgoPerf_t *results) {
  PLANTED();
  Convolution c;
  CHECKED(check(&c, handle, x, dw, conv, dy));
  return offer(filter_algorithms, c, requested, returned, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t conv, const cudnnFilterDescriptor_t dw,
    cudnnConvolutionBwdFilterAlgo_t algo, size_t *bytes) {
  PLANTED();
  Convolution c;
  CHECKED(check(&c, handle, x, dw, conv, dy));
  return workspace_size(find(filter_algorithms, algo), c, bytes);
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                             const cudnnTensorDescriptor_t x_desc, const void *x,
                                             const cudnnTensorDescriptor_t dy_desc, const void *dy,
                                             const cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void *workspace,
                                             size_t bytes, const void *beta,
                                             const cudnnFilterDescriptor_t dw_desc, void *dw) {
  Convolution c;
  CHECKED(check(&c, handle, x_desc, dw_desc, conv, dy_desc));
  return enqueue(handle, "cudnnConvolutionBackwardFilter", c, find(filter_algorithms, algo), alpha,
                 beta, workspace, bytes, x, c.x, dy, c.y, dw, packed(c.w),
                 [](const Convolution &c, const float *x, const float *dy, double *dw) {
                   c.each([=](size_t weight, size_t out, size_t in, int count, int step) UNCHECKED {
                     double sum = 0;
                     for (int i = 0; i < count; i++)
                       sum += (double)x[in + (size_t)i * step] * dy[out + i];
                     dw[weight] += sum;
                   });
                 });
}

} /* extern "C" */
