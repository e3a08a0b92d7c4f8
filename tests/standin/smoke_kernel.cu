/* The kernels of smoke.c: y = factor * y + index of the part, and a sum over blocks with barriers.
 */
#include <starpu.h>

struct smoke_args {
  float factor, add;
};

__global__ void scale_add(float *y, unsigned n, smoke_args args) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = args.factor * y[i] + args.add;
}

/* One block: fixed order, so the same bits on every machine. */
__global__ void sum(const float *x, unsigned n, float *result) {
  __shared__ float part[128];
  float mine = 0;
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) mine += x[i];
  part[threadIdx.x] = mine;
  for (unsigned half = blockDim.x / 2; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (!threadIdx.x) *result = part[0];
}

extern "C" void smoke_scale_add_cuda(void *buffers[], void *arg) {
  float *y = (float *)STARPU_VECTOR_GET_PTR(buffers[0]);
  unsigned n = STARPU_VECTOR_GET_NX(buffers[0]);
  SL__LAUNCH(scale_add, (n + 255) / 256, 256, 0, starpu_cuda_get_local_stream(), y, n,
             *(const smoke_args *)arg);
}

extern "C" void smoke_sum_cuda(void *buffers[], void *) {
  const float *x = (const float *)STARPU_VECTOR_GET_PTR(buffers[0]);
  float *y = (float *)STARPU_VARIABLE_GET_PTR(buffers[1]);
  SL__LAUNCH(sum, 1, 128, 0, starpu_cuda_get_local_stream(), x, STARPU_VECTOR_GET_NX(buffers[0]),
             y);
}
