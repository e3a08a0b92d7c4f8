/* Tests of the stand-in for a GPU itself: its results, and that it finds the mistakes that it is
 * made to find. Each test is a process with its own environment, since a device's failure is
 * permanent. */
#include <cublasLt.h>
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static int failures;
#define EXPECT(condition)                                                                          \
  ((condition) ? (void)0 : (void)(failures++, printf("# line %d: %s\n", __LINE__, #condition)))
#define OK(call) EXPECT((call) == 0)
#define NEAR(a, b, tolerance)                                                                      \
  EXPECT(fabs((double)(a) - (double)(b)) <= (tolerance) * (1 + fabs((double)(b))))

template <class T>
struct Array { /* on the device, with a copy here */
  std::vector<T> host;
  T *device = nullptr;
  explicit Array(size_t n, T value = T()) : host(n, value) {
    OK(cudaMalloc(&device, n * sizeof(T)));
    put();
  }
  Array(const Array &) = delete;
  void put() {
    OK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  void get() {
    OK(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost));
  }
};
static float number(int i) {
  return (float)((i * 7919 + 13) % 201 - 100) / 64;
} /* short of mantissa */
static void fill(std::vector<float> &v, int seed) {
  for (size_t i = 0; i < v.size(); i++) v[i] = number((int)i + seed);
}

/* ---- kernels ------------------------------------------------------------------------------------
 */
template <class T>
__global__ void index_2d(T *y, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && row < height) y[row * width + x] = (T)(1000 * row + x);
}
__global__ void __launch_bounds__(256) block_sum(const float *__restrict__ x, float *y, int n) {
  __shared__ float part[256];
  SL__SHARED(float, copy);
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  part[threadIdx.x] = i < n ? x[i] : 0.0f;
  for (unsigned half = blockDim.x / 2; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  copy[threadIdx.x] = part[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) y[blockIdx.x] = copy[0];
}
template <class T>
__global__ void shuffles(T *y) {
  int t = threadIdx.x;
  T v = (T)t;
  for (int bit = 16; bit; bit /= 2) v += __shfl_xor_sync(0xffffffffu, v, bit);
  y[t] = v;
  y[64 + t] = __shfl_down_sync(0xffffffffu, (T)t, 3, 8);
  y[128 + t] = __shfl_up_sync(0xffffffffu, (T)t, 2);
  y[192 + t] = __shfl_sync(0xffffffffu, (T)t, 5, 16);
  if (t % 32 < 8) y[256 + t] = __shfl_sync(0xffu, (T)t, 1);
}
__global__ void votes(unsigned *y) {
  int t = threadIdx.x;
  y[t] = __ballot_sync(0xffffffffu, t % 3 == 0);
  y[32 + t] = 2 * __any_sync(0xffffffffu, t == 7) + __all_sync(0xffffffffu, t < 31);
  y[64 + t] =
      10 * __syncthreads_count(t & 1) + 2 * __syncthreads_or(t == 4) + __syncthreads_and(t < 32);
}
__global__ void early_exit(int *y) { /* no thread waits for the ended threads */
  if (threadIdx.x >= 40) return;
  __syncthreads();
  y[threadIdx.x] = 1;
}
__global__ void parted_barrier() {
  if (threadIdx.x < 5)
    __syncthreads();
  else
    __shfl_sync(0xffffffffu, 1, 0);
}
__global__ void two_barriers(int) {
  if (threadIdx.x % 2)
    __syncthreads();
  else
    __syncthreads();
}
__global__ void exited_lane() {
  if (threadIdx.x == 9) return;
  __syncwarp();
}
__global__ void half_warp() { __ballot_sync(0xffffffffu, 1); }
__global__ void foreign_mask() { __syncwarp(2); }
__global__ void race(int *y) { *y = blockIdx.x * blockDim.x + threadIdx.x; }
__global__ void set_value(float *y, float value, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = value;
}
__global__ void copy_value(const float *x, float *y) { *y = *x; }
__global__ void shared_is_nan(int *y) {
  SL__SHARED(float, s);
  y[blockIdx.x] = isnan(s[3]);
  s[3] = 1;
}

/* ---- what runs ----------------------------------------------------------------------------------
 */
static void test_indices() {
  Array<int> y(37 * 11);
  SL__LAUNCH((index_2d<int>), dim3(5, 3), dim3(8, 4), 0, 0, y.device, 37, 11);
  y.get();
  for (int r = 0; r < 11; r++)
    for (int x = 0; x < 37; x++) EXPECT(y.host[r * 37 + x] == 1000 * r + x);
}
static void test_barriers() {
  Array<float> x(1000), y(4);
  fill(x.host, 1);
  x.put();
  SL__LAUNCH(block_sum, 4, 256, 256 * sizeof(float), nullptr, x.device, y.device, 1000);
  y.get();
  for (int b = 0; b < 4; b++) {
    double sum = 0;
    for (int i = 256 * b; i < 256 * (b + 1) && i < 1000; i++) sum += x.host[i];
    NEAR(y.host[b], sum, 1e-6);
  }
  Array<int> z(64, 0);
  SL__LAUNCH(early_exit, 1, 64, 0, 0, z.device);
  z.get();
  EXPECT(z.host[39] == 1 && z.host[40] == 0);
  Array<int> nan(2, 0);
  SL__LAUNCH(shared_is_nan, 2, 1, 16, 0, nan.device);
  nan.get();
  EXPECT(nan.host[0] && nan.host[1]);
}
template <class T>
static void check_shuffles() {
  Array<T> y(320, (T)0);
  SL__LAUNCH(shuffles<T>, 1, 64, 0, 0, y.device);
  y.get();
  for (int t = 0; t < 64; t++) {
    EXPECT(y.host[t] == (T)(t < 32 ? 496 : 1520));
    EXPECT(y.host[64 + t] == (T)(t % 8 < 5 ? t + 3 : t));
    EXPECT(y.host[128 + t] == (T)(t % 32 < 2 ? t : t - 2));
    EXPECT(y.host[192 + t] == (T)(t / 16 * 16 + 5));
    EXPECT(y.host[256 + t] == (T)(t % 32 < 8 ? t / 32 * 32 + 1 : 0));
  }
}
static void test_shuffles() {
  check_shuffles<float>();
  check_shuffles<int>();
  check_shuffles<unsigned>();
  check_shuffles<double>();
  Array<unsigned> y(96);
  SL__LAUNCH(votes, 1, 32, 0, 0, y.device);
  y.get();
  EXPECT(y.host[4] == 0x49249249u && y.host[36] == 2 && y.host[70] == 163);
}
template <class... P>
static void must_break(void (*kernel)(P...), int threads, P... args) {
  SL__LAUNCH(kernel, 1, threads, 0, 0, args...);
  OK(cudaGetLastError()); /* the launch itself is fine */
  EXPECT(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  void *p;
  EXPECT(cudaMalloc(&p, 4) == cudaErrorLaunchFailure);
  EXPECT(cudaGetLastError() == cudaErrorLaunchFailure &&
         cudaPeekAtLastError() == cudaErrorLaunchFailure);
  OK(cudaDeviceReset());
  Array<int> z(64, 0); /* the abandoned fibers do no harm */
  SL__LAUNCH(early_exit, 1, 64, 0, 0, z.device);
  z.get();
  EXPECT(z.host[39] == 1);
}
static void test_divergence() {
  must_break(parted_barrier, 32);
  must_break(two_barriers, 64, 1);
  must_break(exited_lane, 32);
  must_break(half_warp, 16);
  must_break(foreign_mask, 32);
}
static void test_order() {
  Array<int> y(1);
  SL__LAUNCH(race, 8, 32, 0, 0, y.device);
  y.get();
  EXPECT(y.host[0] == (getenv("SL_STANDIN_ORDER") ? 0 : 255));
  test_barriers();
  test_shuffles();
}

/* ---- streams ------------------------------------------------------------------------------------
 */
static void test_streams() {
  cudaStream_t a, b, free_one;
  cudaEvent_t event;
  OK(cudaStreamCreate(&a));
  OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&free_one, cudaStreamNonBlocking));
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  Array<float> x(8, 1), y(1, 2);
  float here[8] = {1, 2, 3, 4, 5, 6, 7, 8}, there = -1;

  OK(cudaMemcpyAsync(x.device, here, sizeof here, cudaMemcpyHostToDevice, a));
  here[0] = 9; /* too early: the copy has not been made */
  OK(cudaMemcpyAsync(&there, x.device, sizeof there, cudaMemcpyDeviceToHost, a));
  EXPECT(there == -1);
  OK(cudaStreamSynchronize(a));
  EXPECT(there == 9);

  SL__LAUNCH(set_value, 1, 32, 0, a, x.device, 5.0f, 8);
  SL__LAUNCH(copy_value, 1, 1, 0, b, x.device, y.device); /* no event: reads the old value */
  OK(cudaStreamSynchronize(b));
  OK(cudaMemcpyAsync(&there, y.device, 4, cudaMemcpyDeviceToHost, b));
  OK(cudaStreamSynchronize(b));
  EXPECT(there == 9);
  OK(cudaEventRecord(event, a));
  OK(cudaStreamWaitEvent(b, event, 0));
  SL__LAUNCH(copy_value, 1, 1, 0, b, x.device, y.device);
  OK(cudaMemcpyAsync(&there, y.device, 4, cudaMemcpyDeviceToHost, b));
  OK(cudaStreamSynchronize(b));
  EXPECT(there == 5);
  OK(cudaEventQuery(event));

  SL__LAUNCH(set_value, 1, 32, 0, a, x.device, 6.0f, 8);
  OK(cudaMemcpy(&there, x.device, 4,
                cudaMemcpyDeviceToHost)); /* the null stream waits for a, not for b */
  EXPECT(there == 6);
  SL__LAUNCH(set_value, 1, 32, 0, free_one, x.device, 7.0f, 8);
  OK(cudaMemcpy(&there, x.device, 4, cudaMemcpyDeviceToHost));
  EXPECT(there == 6);
  OK(cudaMemset(x.device, 0, 4)); /* returns before it is done */
  OK(cudaStreamDestroy(a));
  EXPECT(cudaStreamSynchronize(a) == cudaErrorInvalidResourceHandle);
  OK(cudaDeviceSynchronize());
  x.get();
  EXPECT(x.host[0] == 7 || x.host[0] == 0);
}
static void test_lazy() {
  cudaStream_t s;
  cudaEvent_t event;
  OK(cudaStreamCreate(&s));
  OK(cudaEventCreate(&event));
  Array<float> x(1, 1);
  OK(cudaEventQuery(event)); /* nothing recorded: nothing to wait for */
  SL__LAUNCH(set_value, 1, 1, 0, s, x.device, 2.0f, 1);
  OK(cudaEventRecord(event, s));
  EXPECT(cudaStreamQuery(s) == cudaErrorNotReady);
  EXPECT(cudaEventQuery(event) == cudaErrorNotReady);
  OK(cudaGetLastError()); /* not an error */
  OK(cudaEventQuery(event));
  OK(cudaStreamQuery(s));
}
static void test_unpinned() {
  float host[4] = {1, 2, 3, 4};
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  Array<float> x(4, 1);
  for (bool in_time : {true, false}) {
    OK(cudaHostRegister(host, sizeof host, 0));
    OK(cudaMemcpyAsync(x.device, host, sizeof host, cudaMemcpyHostToDevice, s));
    if (in_time) OK(cudaStreamSynchronize(s));
    OK(cudaHostUnregister(host));
    cudaError_t expected = in_time ? cudaSuccess : cudaErrorLaunchFailure;
    EXPECT(cudaStreamSynchronize(s) == expected);
  }
}
static void note_call(void *data) { *(cudaError_t *)data = cudaDeviceSynchronize(); }
static void test_events() {
  cudaEvent_t from, to, elsewhere;
  cudaStream_t one, other;
  float ms = -1;
  OK(cudaEventCreate(&from));
  OK(cudaEventCreate(&to));
  OK(cudaStreamCreate(&one));
  Array<float> x(4, 1);
  OK(cudaEventRecord(from, one));
  SL__LAUNCH(set_value, 1, 1, 0, one, x.device, 3.0f, 4);
  OK(cudaEventRecord(to, one));
  EXPECT(cudaEventElapsedTime(&ms, from, to) == cudaErrorNotReady);
  cudaError_t called = cudaSuccess;
  OK(cudaLaunchHostFunc(one, note_call, &called));
  OK(cudaEventSynchronize(to));
  OK(cudaEventElapsedTime(&ms, from, to));
  EXPECT(ms >= 0 && called == cudaSuccess);
  OK(cudaStreamSynchronize(one));
  EXPECT(called == cudaErrorNotPermitted);

  SL__LAUNCH(set_value, 1, 1, 0, one, x.device, 4.0f, 4); /* the other device waits for it */
  OK(cudaEventRecord(to, one));
  OK(cudaSetDevice(1));
  OK(cudaStreamCreate(&other));
  OK(cudaEventCreate(&elsewhere));
  OK(cudaStreamWaitEvent(other, to, 0));
  Array<float> y(4, 0);
  OK(cudaMemcpyPeerAsync(y.device, 1, x.device, 0, 16, other));
  OK(cudaStreamSynchronize(other));
  y.get();
  EXPECT(y.host[3] == 4);
  EXPECT(cudaEventRecord(elsewhere, one) == cudaErrorInvalidResourceHandle);
  (void)cudaGetLastError();
  SL__LAUNCH(set_value, 1, 1, 0, one, y.device, 4.0f,
             4); /* a stream of a device that is not the current one */
  EXPECT(cudaGetLastError() == cudaErrorInvalidResourceHandle);
}

/* ---- refusals and failures ----------------------------------------------------------------------
 */
template <class... A>
static cudaError_t launched(A... args) {
  SL__LAUNCH(set_value, args..., (float *)nullptr, 0.0f, 0);
  return cudaGetLastError();
}
static void test_configurations() {
  EXPECT(launched(1, 1025, 0, nullptr) == cudaErrorInvalidConfiguration);
  EXPECT(launched(1, dim3(1, 1, 65), 0, nullptr) == cudaErrorInvalidConfiguration);
  EXPECT(launched(0, 32, 0, nullptr) == cudaErrorInvalidConfiguration);
  EXPECT(launched(dim3(1, 65536), 32, 0, nullptr) == cudaErrorInvalidConfiguration);
  EXPECT(launched(1, 32, 49 * 1024, nullptr) == cudaErrorInvalidConfiguration);
  OK(cudaFuncSetAttribute(set_value, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024));
  OK(launched(1, 32, 49 * 1024, nullptr));
  OK(launched(1, 1024, 0, nullptr));
  OK(cudaDeviceSynchronize()); /* a refused launch breaks nothing */
}
static void test_memory() {
  size_t available, total;
  void *p, *q;
  OK(cudaMemGetInfo(&available, &total));
  EXPECT(total == 1 << 20 && available == total);
  OK(cudaMalloc(&p, 700 << 10));
  EXPECT(cudaMalloc(&q, 700 << 10) == cudaErrorMemoryAllocation && !q);
  EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);
  OK(cudaGetLastError());
  float value;
  OK(cudaMemcpy(&value, p, 4, cudaMemcpyDeviceToHost));
  EXPECT(isnan(value));
  char host[64] = {0};
  EXPECT(cudaMemcpy(p, host, (700 << 10) + 1, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(host + 32, host, 8, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(p, p, 8, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  EXPECT(cudaMemset((char *)p + (700 << 10) - 4, 0, 8) == cudaErrorInvalidValue);
  OK(cudaFree(p));
  EXPECT(cudaFree(p) == cudaErrorInvalidValue);
  OK(cudaMalloc(&q, 700 << 10));
  OK(cudaHostAlloc(&p, 100, 0));
  cudaPointerAttributes a;
  OK(cudaPointerGetAttributes(&a, p));
  EXPECT(a.type == cudaMemoryTypeHost);
  OK(cudaPointerGetAttributes(&a, q));
  EXPECT(a.type == cudaMemoryTypeDevice && a.device == 0);
  OK(cudaPointerGetAttributes(&a, host));
  EXPECT(a.type == cudaMemoryTypeUnregistered);
  OK(cudaHostRegister(host, sizeof host, 0));
  EXPECT(cudaHostRegister(host, sizeof host, 0) == cudaErrorHostMemoryAlreadyRegistered);
  OK(cudaHostUnregister(host));
  EXPECT(cudaHostUnregister(host) == cudaErrorHostMemoryNotRegistered);
  OK(cudaFreeHost(p));
}
static void test_host_pointer() {
  float here;
  SL__LAUNCH(set_value, 1, 1, 0, 0, &here, 1.0f, 1);
  OK(cudaGetLastError());
  EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
}
static void test_peer_pointer() {
  Array<float> x(1, 1);
  OK(cudaSetDevice(1));
  OK(cudaDeviceEnablePeerAccess(0, 0));
  SL__LAUNCH(set_value, 1, 1, 0, 0, x.device, 2.0f, 1);
  OK(cudaDeviceSynchronize());
  OK(cudaDeviceDisablePeerAccess(0));
  SL__LAUNCH(set_value, 1, 1, 0, 0, x.device, 2.0f, 1);
  EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  OK(cudaSetDevice(0)); /* the other device is well */
  x.get();
  EXPECT(x.host[0] == 2);
}
static void test_beside() {
  float *p;
  OK(cudaMalloc(&p, 40));
#ifdef __SANITIZE_ADDRESS__ /* it ends the process, on the spot */
  pid_t child = fork();
  if (!child) {
    if (!freopen("/dev/null", "w", stderr)) _exit(0);
    SL__LAUNCH(set_value, 1, 1, 0, 0, p, 2.0f, 11);
    cudaDeviceSynchronize();
    _exit(0);
  }
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child && status != 0);
  OK(cudaFree(p));
#else
  SL__LAUNCH(set_value, 1, 1, 0, 0, p, 2.0f, 11);
  EXPECT(cudaFree(p) == cudaErrorIllegalAddress);
#endif
}
/* Returns whether a process that reads p ends by that. */
static bool dies_of(const float *p) {
  pid_t child = fork();
  if (!child) {
    if (!freopen("/dev/null", "w", stderr)) _exit(0);
    volatile float value = *(const volatile float *)p;
    (void)value;
    _exit(0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && status != 0;
}
static void test_reading() {
  Array<float> x(1, 1);
  float *pinned, here = 1;
  int key = pkey_alloc(0, 0);
  OK(cudaHostAlloc((void **)&pinned, 4, 0));
  EXPECT(!dies_of(&here) && !dies_of(pinned));
  EXPECT(dies_of(x.device) == (key >= 0)); /* not on a processor without keys */
  SL__LAUNCH(set_value, 1, 1, 0, 0, x.device, 2.0f, 1);
  OK(cudaDeviceSynchronize());
  EXPECT(dies_of(x.device) == (key >= 0)); /* not only before the first work */
  x.get();
  EXPECT(x.host[0] == 2);
  OK(cudaFreeHost(pinned));
}
static void test_reading_by_mpi() {
  Array<float> x(1, 1);
  EXPECT(!dies_of(x.device));
}
static void test_fail() {
  Array<float> x(1, 1);
  for (int i = 1; i <= 3; i++) {
    SL__LAUNCH(set_value, 1, 1, 0, 0, x.device, (float)i, 1);
    OK(cudaGetLastError());
    if (i == 2) OK(cudaDeviceSynchronize());
  }
  EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  EXPECT(!strcmp(cudaGetErrorName(cudaGetLastError()), "cudaErrorIllegalAddress"));
}
/* What s records: x[0..7] = 1, then y[0] = x[0]; an asynchronous copy of y to `pinned`. */
static cudaGraphExec_t record(cudaStream_t s, float *x, float *y, float *pinned) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaStreamCaptureStatus status;
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  SL__LAUNCH(set_value, 1, 32, 0, s, x, 1.0f, 8);
  SL__LAUNCH(copy_value, 1, 1, 0, s, x, y);
  OK(cudaMemcpyAsync(pinned, y, sizeof *y, cudaMemcpyDeviceToHost, s));
  OK(cudaGetLastError());
  OK(cudaStreamIsCapturing(s, &status));
  EXPECT(status == cudaStreamCaptureStatusActive);
  OK(cudaStreamEndCapture(s, &graph));
  OK(cudaGraphInstantiateWithFlags(&executable, graph, 0));
  OK(cudaGraphDestroy(graph));
  return executable;
}
static void test_graphs() {
  cudaStream_t s, other;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  OK(cudaStreamCreate(&other));
  Array<float> x(8, 5), y(1, 5);
  float *pinned;
  OK(cudaMallocHost((void **)&pinned, sizeof *pinned));
  *pinned = -1;
  cudaGraphExec_t graph = record(s, x.device, y.device, pinned);
  OK(cudaDeviceSynchronize());
  x.get();
  EXPECT(x.host[0] == 5 && *pinned == -1); /* recorded, not run */
  for (int i = 0; i < 3; i++) {
    SL__LAUNCH(set_value, 1, 32, 0, other, x.device, 9.0f, 8);
    SL__LAUNCH(set_value, 1, 32, 0, other, y.device, 9.0f, 1);
    *pinned = -1;
    OK(cudaGraphLaunch(graph, other)); /* after what the stream has */
    EXPECT(*pinned == -1);
    OK(cudaStreamSynchronize(other));
    EXPECT(*pinned == 1);
  }
  OK(cudaGraphLaunch(graph, other));
  OK(cudaGraphExecDestroy(graph)); /* its work goes on */
  *pinned = -1;
  OK(cudaStreamSynchronize(other));
  EXPECT(*pinned == 1);
  EXPECT(cudaGraphLaunch(graph, other) == cudaErrorInvalidValue);
  EXPECT(cudaGraphExecDestroy(graph) == cudaErrorInvalidValue);
  cudaGetLastError();
  OK(cudaSetDevice(1));
  cudaStream_t there;
  OK(cudaStreamCreate(&there));
  OK(cudaSetDevice(0));
  graph = record(s, x.device, y.device, pinned);
  EXPECT(cudaGraphLaunch(graph, there) == cudaErrorInvalidValue);
}

/* A call that is not permitted while a stream captures; it makes the capture invalid. */
static void must_invalidate(cudaError_t (*call)(cudaStream_t s, float *x)) {
  cudaStream_t s;
  cudaGraph_t graph = (cudaGraph_t)1;
  Array<float> x(8, 5);
  OK(cudaStreamCreate(&s));
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  EXPECT(call(s, x.device) != cudaSuccess);
  cudaGetLastError();
  SL__LAUNCH(set_value, 1, 32, 0, s, x.device, 1.0f, 8);
  EXPECT(cudaGetLastError() == cudaErrorStreamCaptureInvalidated);
  EXPECT(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated && !graph);
  EXPECT(cudaGetLastError() == cudaErrorStreamCaptureInvalidated);
  SL__LAUNCH(set_value, 1, 32, 0, s, x.device, 2.0f, 8); /* the stream works as before */
  OK(cudaStreamSynchronize(s));
  x.get();
  EXPECT(x.host[0] == 2);
  EXPECT(cudaStreamEndCapture(s, &graph) == cudaErrorIllegalState);
}
static void test_captures_refused() {
  must_invalidate([](cudaStream_t s, float *) { return cudaStreamSynchronize(s); });
  must_invalidate([](cudaStream_t s, float *) { return cudaStreamQuery(s); });
  must_invalidate([](cudaStream_t, float *) { return cudaDeviceSynchronize(); });
  must_invalidate([](cudaStream_t, float *) {
    void *p;
    return cudaMalloc(&p, 64);
  });
  must_invalidate([](cudaStream_t, float *x) {
    float here;
    return cudaMemcpy(&here, x, 4, cudaMemcpyDeviceToHost);
  });
  must_invalidate([](cudaStream_t s, float *x) {
    float here = 0; /* not pinned */
    return cudaMemcpyAsync(x, &here, 4, cudaMemcpyHostToDevice, s);
  });
  must_invalidate([](cudaStream_t, float *x) { /* s synchronises with the null stream */
                                               return cudaMemsetAsync(x, 0, 4, cudaStreamLegacy);
  });
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  EXPECT(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal) == cudaErrorIllegalState);
  EXPECT(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal) ==
         cudaErrorStreamCaptureUnsupported);
  std::thread([s] {
    cudaGraph_t graph;
    void *p;
    OK(cudaMalloc(&p, 64)); /* of another thread */
    EXPECT(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureWrongThread);
  }).join();
}
static void test_refuse() {
  cudaStream_t s;
  cudaGraph_t graph;
  Array<float> x(8, 5);
  OK(cudaStreamCreate(&s));
  for (int i = 0; i < 3; i++) { /* the fifth kernel that is recorded */
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    SL__LAUNCH(set_value, 1, 32, 0, s, x.device, 1.0f, 8);
    SL__LAUNCH(set_value, 1, 32, 0, s, x.device, 2.0f, 8);
    cudaGetLastError();
    EXPECT((cudaStreamEndCapture(s, &graph) == cudaSuccess) == (i < 2));
  }
}
static void test_absent() {
  int count = -1;
  cudaError_t expected =
      getenv("SL_STANDIN_DRIVER") ? cudaErrorInsufficientDriver : cudaErrorNoDevice;
  EXPECT(cudaGetDeviceCount(&count) == expected && count == 0);
  void *p;
  EXPECT(cudaMalloc(&p, 4) == expected);
}
static void test_boxes() {
  Array<float> x(6 * 10);
  fill(x.host, 3);
  x.put();
  float box[4][3];
  OK(cudaMemcpy2D(box, sizeof box[0], x.device + 11, 10 * sizeof(float), sizeof box[0], 4,
                  cudaMemcpyDeviceToHost));
  for (int r = 0; r < 4; r++)
    for (int c = 0; c < 3; c++) EXPECT(box[r][c] == x.host[11 + 10 * r + c]);
  EXPECT(cudaMemcpy2D(box, 12, x.device + 31, 40, 12, 4, cudaMemcpyDeviceToHost) ==
         cudaErrorInvalidValue);
  Array<float> y(24, 0);
  cudaMemcpy3DParms p{};
  p.srcPtr = make_cudaPitchedPtr(x.device, 5 * 4, 5, 6); /* 5 x 6 x 2, of which 4 x 3 x 2 */
  p.dstPtr = make_cudaPitchedPtr(y.device, 4 * 4, 4, 3);
  p.extent = make_cudaExtent(4 * 4, 3, 2);
  p.kind = cudaMemcpyDeviceToDevice;
  OK(cudaMemcpy3D(&p));
  y.get();
  for (int z = 0; z < 2; z++)
    for (int r = 0; r < 3; r++)
      for (int c = 0; c < 4; c++) EXPECT(y.host[12 * z + 4 * r + c] == x.host[30 * z + 5 * r + c]);
}
static void work_on(int device) {
  OK(cudaSetDevice(device));
  cudaStream_t s;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  float *x, *y, result;
  OK(cudaMalloc(&x, 1024 * 4));
  OK(cudaMalloc(&y, 4 * 4));
  for (int i = 0; i < 100; i++) {
    SL__LAUNCH(set_value, 1, 256, 0, s, x, (float)i, 1024);
    SL__LAUNCH(block_sum, 4, 256, 1024, s, x, y, 1024);
    OK(cudaMemcpyAsync(&result, y, 4, cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    EXPECT(result == 256.0f * (float)i);
  }
}
static void test_threads() {
  std::thread one(work_on, 0), two(work_on, 1), three(work_on, 1);
  one.join(), two.join(), three.join();
}

/* ---- products -----------------------------------------------------------------------------------
 */
static uint16_t bf16(float x) { /* of numbers that it holds exactly */
  return (uint16_t)(__float_as_uint(x) >> 16);
}
struct Matrix { /* values in both types; rows x cols of a batch */
  Array<float> f;
  Array<uint16_t> h;
  int rows, cols, ld, order, type, stride;
  cublasLtMatrixLayout_t layout;
  Matrix(int rows, int cols, int order, int type, int batch, int seed)
      : f((size_t)batch * (rows + 2) * (cols + 3)),
        h(f.host.size()),
        rows(rows),
        cols(cols),
        order(order),
        type(type) {
    ld = order == CUBLASLT_ORDER_COL ? rows + 2 : cols + 3;
    stride = (rows + 2) * (cols + 3);
    fill(f.host, seed);
    for (size_t i = 0; i < f.host.size(); i++) h.host[i] = bf16(f.host[i]);
    f.put(), h.put();
    int64_t step = stride;
    OK(cublasLtMatrixLayoutCreate(&layout, (cudaDataType)type, rows, cols, ld));
    OK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, 4));
    OK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, 4));
    OK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                        8));
  }
  ~Matrix() { cublasLtMatrixLayoutDestroy(layout); }
  void *data() { return type == CUDA_R_32F ? (void *)f.device : (void *)h.device; }
  float at(int b, int r, int c) const {
    return f.host[(size_t)b * stride + (order == CUBLASLT_ORDER_COL ? r + c * ld : c + r * ld)];
  }
};
static void check_product(int ta, int tb, int order, int in, int out, int epilogue, float beta,
                          int compute) {
  const int m = 5, n = 7, k = 6, batch = 2;
  Matrix a(ta ? k : m, ta ? m : k, order, in, batch, 1),
      b(tb ? n : k, tb ? k : n, order, in, batch, 2);
  Matrix c(m, n, order, out, batch, 3), d(m, n, order, out, batch, 4),
      bias(m, 1, CUBLASLT_ORDER_COL, out, 1, 5);
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t desc;
  float alpha = 2;
  OK(cublasLtCreate(&handle));
  OK(cublasLtMatmulDescCreate(&desc, (cublasComputeType_t)compute, CUDA_R_32F));
  OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, 4));
  OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, 4));
  OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, 4));
  void *p = bias.data();
  OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p, 8));
  OK(cublasLtMatmul(handle, desc, &alpha, a.data(), a.layout, b.data(), b.layout, &beta,
                    beta != 0 ? c.data() : nullptr, c.layout, d.data(), d.layout, nullptr, nullptr,
                    0, nullptr));
  std::vector<float> before = d.f.host;
  d.f.get(), d.h.get();
  if (out == CUDA_R_16BF)
    for (size_t i = 0; i < d.f.host.size(); i++)
      d.f.host[i] = __uint_as_float((unsigned)d.h.host[i] << 16);
  for (int i = 0; i < batch; i++)
    for (int row = 0; row < m; row++)
      for (int col = 0; col < n; col++) {
        double sum = 0;
        for (int l = 0; l < k; l++)
          sum += (double)(ta ? a.at(i, l, row) : a.at(i, row, l)) *
                 (tb ? b.at(i, col, l) : b.at(i, l, col));
        sum = alpha * sum + beta * c.at(i, row, col);
        if (epilogue & CUBLASLT_EPILOGUE_BIAS) sum += bias.at(0, row, 0);
        if (epilogue & CUBLASLT_EPILOGUE_RELU) sum = fmax(sum, 0);
        NEAR(d.at(i, row, col), sum, out == CUDA_R_32F ? 1e-6 : 4e-3);
      }
  if (out == CUDA_R_32F)
    EXPECT(d.f.host[order == CUBLASLT_ORDER_COL ? m : n] ==
           before[order == CUBLASLT_ORDER_COL ? m : n]);
  OK(cublasLtMatmulDescDestroy(desc));
  OK(cublasLtDestroy(handle));
}
static void test_products() {
  for (int t = 0; t < 4; t++)
    for (int order = 0; order < 2; order++)
      for (int types = 0; types < 3; types++)
        check_product(t & 1, t >> 1, order, types ? CUDA_R_16BF : CUDA_R_32F,
                      types == 2 ? CUDA_R_16BF : CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT,
                      types ? 0.0f : 0.5f, CUBLAS_COMPUTE_32F);
  for (int epilogue : {CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS})
    for (int type : {CUDA_R_32F, CUDA_R_16BF})
      check_product(0, 1, 0, type, type, epilogue, 1, CUBLAS_COMPUTE_32F);
  check_product(1, 0, 0, CUDA_R_32F, CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT, 0,
                CUBLAS_COMPUTE_32F_FAST_TF32);
}
static void test_product_refusals() {
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t desc;
  cublasLtMatmulPreference_t wish;
  cublasLtMatmulHeuristicResult_t found[4];
  int count;
  float one = 1, nothing = 0;
  Matrix a(4, 4, 0, CUDA_R_32F, 1, 1), b(4, 4, 0, CUDA_R_32F, 1, 2), d(4, 4, 0, CUDA_R_32F, 1, 3),
      wide(4, 5, 0, CUDA_R_32F, 1, 4);
  OK(cublasLtCreate(&handle));
  OK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F));
  OK(cublasLtMatmulPreferenceCreate(&wish));
  auto product = [&](void *left, Matrix &right, cublasLtMatmulAlgo_t *algo, void *workspace,
                     size_t bytes, float *beta) {
    return cublasLtMatmul(handle, desc, &one, left, a.layout, right.data(), right.layout, beta,
                          nullptr, d.layout, d.data(), d.layout, algo, workspace, bytes, nullptr);
  };
  OK(product(a.data(), b, nullptr, nullptr, 0, &nothing));
  EXPECT(product(a.data(), wide, nullptr, nullptr, 0, &nothing) == CUBLAS_STATUS_INVALID_VALUE);
  EXPECT(product(nullptr, b, nullptr, nullptr, 0, &nothing) == CUBLAS_STATUS_INVALID_VALUE);
  EXPECT(product(a.data(), b, nullptr, nullptr, 0, &one) == CUBLAS_STATUS_INVALID_VALUE);
  OK(cublasLtMatmulAlgoGetHeuristic(handle, desc, a.layout, b.layout, d.layout, d.layout, wish, 4,
                                    found, &count));
  EXPECT(count == 1 && found[0].workspaceSize == 0);
  EXPECT(product((float *)a.data() + 1, b, &found[0].algo, nullptr, 0, &nothing) ==
         CUBLAS_STATUS_INVALID_VALUE);
  uint64_t most = 1 << 20;
  uint32_t alignment = 4;
  OK(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                          8));
  OK(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                          &alignment, 4));
  EXPECT(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                              4) == CUBLAS_STATUS_INVALID_VALUE);
  OK(cublasLtMatmulAlgoGetHeuristic(handle, desc, a.layout, b.layout, d.layout, d.layout, wish, 4,
                                    found, &count));
  EXPECT(count == 2 && found[0].workspaceSize > 0);
  Array<char> workspace(found[0].workspaceSize);
  EXPECT(product(a.data(), b, &found[0].algo, workspace.device, found[0].workspaceSize - 1,
                 &nothing) == CUBLAS_STATUS_INVALID_VALUE);
  OK(product((float *)a.data() + 1, b, &found[0].algo, workspace.device, found[0].workspaceSize,
             &nothing));
  int64_t ld = 3;
  OK(cublasLtMatrixLayoutSetAttribute(a.layout, CUBLASLT_MATRIX_LAYOUT_LD, &ld, 8));
  EXPECT(product(a.data(), b, nullptr, nullptr, 0, &nothing) == CUBLAS_STATUS_INVALID_VALUE);
  ld = 40; /* reaches beyond A: seen when the work runs */
  OK(cublasLtMatrixLayoutSetAttribute(a.layout, CUBLASLT_MATRIX_LAYOUT_LD, &ld, 8));
  OK(product(a.data(), b, nullptr, nullptr, 0, &nothing));
  EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
}

/* ---- convolutions -------------------------------------------------------------------------------
 */
struct Shape {
  int n, c, h, w, k, r, s, pad, stride, dilation, groups;
};
/* Visits the products of a convolution one by one: run(x's index, w's, y's). */
template <class Run>
static void each_product(const Shape &a, int p, int q, Run run) {
  int per = a.c / a.groups;
  for (int n = 0; n < a.n; n++)
    for (int k = 0; k < a.k; k++)
      for (int i = 0; i < p; i++)
        for (int j = 0; j < q; j++)
          for (int c = 0; c < per; c++)
            for (int r = 0; r < a.r; r++)
              for (int s = 0; s < a.s; s++) {
                int h = i * a.stride - a.pad + r * a.dilation,
                    w = j * a.stride - a.pad + s * a.dilation;
                if (h < 0 || h >= a.h || w < 0 || w >= a.w) continue;
                int channel = k / (a.k / a.groups) * per + c;
                run(((n * a.c + channel) * a.h + h) * a.w + w, ((k * per + c) * a.r + r) * a.s + s,
                    ((n * a.k + k) * p + i) * q + j);
              }
}
template <class Perf>
static const Perf *choose(const Perf *all, int count) {
  EXPECT(count > 1 && all[0].determinism == CUDNN_NON_DETERMINISTIC);
  for (int i = 0; i < count; i++)
    if (all[i].status == CUDNN_STATUS_SUCCESS && all[i].determinism == CUDNN_DETERMINISTIC)
      return &all[i];
  return nullptr;
}
static void check_convolution(const Shape &a, bool half) {
  int p, q, n, k, count;
  cudnnDataType_t type = half ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t x_desc, y_desc;
  cudnnFilterDescriptor_t w_desc;
  cudnnConvolutionDescriptor_t conv;
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  OK(cudnnCreate(&handle));
  OK(cudnnSetStream(handle, stream));
  OK(cudnnCreateTensorDescriptor(&x_desc));
  OK(cudnnCreateTensorDescriptor(&y_desc));
  OK(cudnnCreateFilterDescriptor(&w_desc));
  OK(cudnnCreateConvolutionDescriptor(&conv));
  OK(cudnnSetTensor4dDescriptor(x_desc, CUDNN_TENSOR_NCHW, type, a.n, a.c, a.h, a.w));
  OK(cudnnSetFilter4dDescriptor(w_desc, type, CUDNN_TENSOR_NCHW, a.k, a.c / a.groups, a.r, a.s));
  OK(cudnnSetConvolution2dDescriptor(conv, a.pad, a.pad, a.stride, a.stride, a.dilation, a.dilation,
                                     CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  OK(cudnnSetConvolutionGroupCount(conv, a.groups));
  OK(cudnnSetConvolutionMathType(conv, CUDNN_FMA_MATH));
  OK(cudnnGetConvolution2dForwardOutputDim(conv, x_desc, w_desc, &n, &k, &p, &q));
  EXPECT(n == a.n && k == a.k &&
         p == (a.h + 2 * a.pad - a.dilation * (a.r - 1) - 1) / a.stride + 1);
  OK(cudnnSetTensor4dDescriptor(y_desc, CUDNN_TENSOR_NCHW, type, n, k, p, q));
  Array<float> x((size_t)a.n * a.c * a.h * a.w), w((size_t)a.k * (a.c / a.groups) * a.r * a.s),
      y((size_t)n * k * p * q);
  Array<float> *all[] = {&x, &w, &y};
  auto pack = [&](Array<float> *v) { /* bf16 in the first half of the same memory */
                                     uint16_t *to = (uint16_t *)v->host.data();
                                     for (size_t i = 0; i < v->host.size(); i++)
                                       to[i] = bf16(v->host[i]);
  };
  auto result = [&](Array<float> &v) {
    OK(cudaStreamSynchronize(stream));
    v.get();
    std::vector<float> f = v.host;
    if (half)
      for (size_t i = 0; i < f.size(); i++)
        f[i] = __uint_as_float((unsigned)((uint16_t *)v.host.data())[i] << 16);
    return f;
  };
  std::vector<float> in[3];
  auto prepare = [&] {
    for (int i = 0; i < 3; i++) {
      fill(all[i]->host, i + 1);
      in[i] = all[i]->host;
      if (half) pack(all[i]);
      all[i]->put();
    }
  };
  float alpha = 0.5f, beta = 2;
  Array<char> workspace(1 << 21);
  auto compare = [&](const std::vector<float> &got, const std::vector<double> &sums,
                     const std::vector<float> &old) {
    for (size_t i = 0; i < got.size(); i++)
      NEAR(got[i], alpha * sums[i] + beta * old[i], half ? 4e-3 : 1e-6);
  };

  prepare();
  cudnnConvolutionFwdAlgoPerf_t forward[8];
  OK(cudnnGetConvolutionForwardAlgorithm_v7(handle, x_desc, w_desc, conv, y_desc, 8, &count,
                                            forward));
  auto f = choose(forward, count);
  /* as in NVIDIA's table: no deterministic forward pass of bf16 with dilation */
  EXPECT(!f == (half && a.dilation > 1));
  size_t bytes;
  std::vector<double> sums(y.host.size());
  if (f) {
    OK(cudnnGetConvolutionForwardWorkspaceSize(handle, x_desc, w_desc, conv, y_desc, f->algo,
                                               &bytes));
    EXPECT(bytes == f->memory);
    if (f->memory)
      EXPECT(cudnnConvolutionForward(handle, &alpha, x_desc, x.device, w_desc, w.device, conv,
                                     f->algo, workspace.device, f->memory - 1, &beta, y_desc,
                                     y.device) == CUDNN_STATUS_BAD_PARAM);
    OK(cudnnConvolutionForward(handle, &alpha, x_desc, x.device, w_desc, w.device, conv, f->algo,
                               workspace.device, f->memory, &beta, y_desc, y.device));
    each_product(a, p, q, [&](int i, int j, int o) { sums[o] += (double)in[0][i] * in[1][j]; });
    compare(result(y), sums, in[2]);
  } else {
    EXPECT(cudnnConvolutionForward(handle, &alpha, x_desc, x.device, w_desc, w.device, conv,
                                   CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                                   workspace.device, 1 << 21, &beta, y_desc,
                                   y.device) == CUDNN_STATUS_NOT_SUPPORTED);
  }

  prepare();
  cudnnConvolutionBwdDataAlgoPerf_t data[8];
  OK(cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w_desc, y_desc, conv, x_desc, 8, &count,
                                                 data));
  auto d = choose(data, count);
  OK(cudnnConvolutionBackwardData(handle, &alpha, w_desc, w.device, y_desc, y.device, conv, d->algo,
                                  workspace.device, d->memory, &beta, x_desc, x.device));
  sums.assign(x.host.size(), 0);
  each_product(a, p, q, [&](int i, int j, int o) { sums[i] += (double)in[2][o] * in[1][j]; });
  compare(result(x), sums, in[0]);

  prepare();
  cudnnConvolutionBwdFilterAlgoPerf_t filter[8];
  OK(cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, x_desc, y_desc, conv, w_desc, 8, &count,
                                                   filter));
  auto g = choose(filter, count);
  OK(cudnnConvolutionBackwardFilter(handle, &alpha, x_desc, x.device, y_desc, y.device, conv,
                                    g->algo, workspace.device, g->memory, &beta, w_desc, w.device));
  sums.assign(w.host.size(), 0);
  each_product(a, p, q, [&](int i, int j, int o) { sums[j] += (double)in[0][i] * in[2][o]; });
  compare(result(w), sums, in[1]);

  /* the offered favourite gives other bits each time */
  beta = 0;
  std::vector<float> twice[2];
  for (auto &bits : twice) {
    OK(cudnnConvolutionBackwardFilter(handle, &alpha, x_desc, x.device, y_desc, y.device, conv,
                                      filter[0].algo, workspace.device, filter[0].memory, &beta,
                                      w_desc, w.device));
    bits = result(w);
  }
  if (!half) EXPECT(twice[0] != twice[1]);
  OK(cudnnSetTensor4dDescriptor(y_desc, CUDNN_TENSOR_NCHW, type, n, k, p + 1, q));
  EXPECT(cudnnGetConvolutionForwardAlgorithm_v7(handle, x_desc, w_desc, conv, y_desc, 8, &count,
                                                forward) == CUDNN_STATUS_BAD_PARAM);
  OK(cudnnDestroyTensorDescriptor(x_desc));
  OK(cudnnDestroyTensorDescriptor(y_desc));
  OK(cudnnDestroyFilterDescriptor(w_desc));
  OK(cudnnDestroyConvolutionDescriptor(conv));
  OK(cudnnDestroy(handle));
}
static void test_convolutions() {
  for (bool half : {false, true}) {
    check_convolution(Shape{2, 3, 7, 6, 4, 3, 3, 1, 1, 1, 1}, half);
    check_convolution(Shape{1, 4, 9, 8, 6, 3, 2, 2, 2, 1, 2}, half);
    check_convolution(Shape{3, 2, 10, 11, 2, 3, 3, 2, 3, 2, 1}, half);
    check_convolution(Shape{1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1}, half);
    check_convolution(Shape{1, 2, 3, 3, 2, 5, 5, 4, 1, 1, 2}, half);
  }
}

struct Test {
  const char *name;
  void (*run)();
  std::vector<std::pair<const char *, const char *>> environment;
};
static const Test tests[] = {
    {"indices of threads and blocks", test_indices, {}},
    {"barriers and shared memory", test_barriers, {}},
    {"shuffles and votes", test_shuffles, {}},
    {"threads that part at a barrier", test_divergence, {}},
    {"threads in order", test_order, {}},
    {"threads in reverse order", test_order, {{"SL_STANDIN_ORDER", "reverse"}}},
    {"streams", test_streams, {}},
    {"a lazy device", test_lazy, {{"SL_STANDIN_LAZY", "1"}}},
    {"memory that is unpinned before its copy", test_unpinned, {}},
    {"events", test_events, {{"SL_STANDIN_GPUS", "2"}}},
    {"configurations", test_configurations, {}},
    {"memory", test_memory, {{"SL_STANDIN_MEMORY", "1048576"}}},
    {"a pointer to the host", test_host_pointer, {}},
    {"a pointer to another device", test_peer_pointer, {{"SL_STANDIN_GPUS", "2"}}},
    {"writing beside", test_beside, {}},
    {"the CPU reads device memory", test_reading, {}},
    {"memory that MPI may read", test_reading_by_mpi, {{"SL_STANDIN_MPI_AWARE", "1"}}},
    {"the third kernel fails", test_fail, {{"SL_STANDIN_FAIL", "3"}}},
    {"graphs", test_graphs, {{"SL_STANDIN_GPUS", "2"}}},
    {"calls that a capture does not allow", test_captures_refused, {}},
    {"the fifth recorded kernel is refused", test_refuse, {{"SL_STANDIN_REFUSE", "5"}}},
    {"no driver", test_absent, {{"SL_STANDIN_DRIVER", "none"}}},
    {"no device", test_absent, {{"SL_STANDIN_GPUS", "0"}}},
    {"copies of boxes", test_boxes, {}},
    {"several threads", test_threads, {{"SL_STANDIN_GPUS", "2"}}},
    {"products", test_products, {}},
    {"products refused", test_product_refusals, {}},
    {"convolutions", test_convolutions, {}},
};

int main() {
  int count = (int)(sizeof tests / sizeof *tests), failed = 0;
  printf("1..%d\n", count);
  for (int i = 0; i < count; i++) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
      for (auto &[name, value] : tests[i].environment) setenv(name, value, 1);
      tests[i].run();
      fflush(stdout);
      _exit(failures != 0);
    }
    int status = -1;
    bool good = child > 0 && waitpid(child, &status, 0) == child && status == 0;
    failed |= !good;
    printf("%s %d - %s\n", good ? "ok" : "not ok", i + 1, tests[i].name);
  }
  return failed;
}
