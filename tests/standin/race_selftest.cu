/* Tests of the race checker (race.cu): kernels with a race, which it must report, and kernels
 * without one, of which it must say nothing. Each is a process: its launch must fail with a line
 * that has the expected words, or succeed in silence, whichever order threads and blocks run in. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

const int THREADS = 64;

/* ---- with a race ---------------------------------------------------------------------------- */
__global__ void no_barrier(float *y) { /* thread t reads what thread t + 1 writes */
  __shared__ float part[THREADS];
  part[threadIdx.x] = (float)threadIdx.x;
  y[threadIdx.x] = part[(threadIdx.x + 1) % THREADS];
}
__global__ void barrier_too_early(float *y) { /* the next round overwrites what is being read */
  SL__SHARED(float, part);
  for (int round = 0; round < 2; round++) {
    part[threadIdx.x] = (float)round;
    __syncthreads();
    y[threadIdx.x] += part[THREADS - 1 - threadIdx.x];
  }
}
__global__ void no_syncwarp(float *y) { /* within one warp */
  __shared__ float part[32];
  part[threadIdx.x] = 1;
  if (threadIdx.x < 16) y[threadIdx.x] = part[threadIdx.x + 16];
}
__global__ void shuffle_for_syncwarp(float *y) { /* a shuffle orders no memory */
  __shared__ float part[32];
  part[threadIdx.x] = 1;
  float sum = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
  y[threadIdx.x] = part[31 - threadIdx.x] + sum;
}
__global__ void syncwarp_for_barrier(float *y) { /* two warps */
  __shared__ float part[THREADS];
  part[threadIdx.x] = 1;
  __syncwarp();
  y[threadIdx.x] = part[(threadIdx.x + 32) % THREADS];
}
__global__ void syncwarp_of_others(float *y) { /* halves of a warp wait apart */
  __shared__ float part[32];
  part[threadIdx.x] = 1;
  if (threadIdx.x < 16)
    __syncwarp(0xffffu);
  else
    __syncwarp(0xffff0000u);
  y[threadIdx.x] = part[31 - threadIdx.x];
}
__global__ void blocks_write_one(float *y) {
  if (threadIdx.x == 0) y[3] = 1; /* the same value: a race all the same */
}
__global__ void block_reads_other(float *y) {
  y[blockIdx.x * THREADS + threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 5) y[1000 + blockIdx.x] = y[(blockIdx.x ^ 1) * THREADS];
}
__global__ void block_writes_read(float *y) { /* all read, the last writes */
  y[1 + blockIdx.x * THREADS + threadIdx.x] = y[0];
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) y[0] = 1;
}
__global__ void halves_of_word(uint16_t *y) { /* one half too many */
  y[threadIdx.x] = 1;
  if (threadIdx.x == 7) y[8] = 2;
}
__global__ void packs_overlap(float *y) {
  *(float4 *)(y + 4 * threadIdx.x) = float4{1, 2, 3, 4};
  if (threadIdx.x == 1) y[3] = 0;
}
__global__ void copies_overlap(float *y) { memcpy(y + threadIdx.x, y + 500, 8); }
__global__ void atomic_and_plain(int *y) {
  atomicAdd(&y[0], 1);
  if (threadIdx.x == 2) y[0] = 0;
}
__global__ void many_read_one_writes(float *y) {
  __shared__ float scale;
  if (threadIdx.x == 0) scale = 2;
  __syncthreads();
  y[threadIdx.x] = scale;
  if (threadIdx.x == 40) scale = 3;
}

/* ---- without one ---------------------------------------------------------------------------- */
__global__ void tree_sum(float *y) {
  __shared__ float part[THREADS];
  part[threadIdx.x] = 1;
  for (int half = THREADS / 2; half; half /= 2) {
    __syncthreads();
    if ((int)threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
__global__ void warp_sums(float *y) { /* shuffles, then one value a warp */
  __shared__ float part[32];
  float sum = 1;
  for (int bit = 16; bit; bit /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) y[blockIdx.x] = part[0] + part[1];
}
__global__ void warp_exchange(float *y) {
  __shared__ float part[THREADS];
  for (int round = 0; round < 3; round++) {
    part[threadIdx.x] = (float)round;
    __syncwarp();
    y[blockIdx.x * THREADS + threadIdx.x] = part[threadIdx.x ^ 5];
    __syncwarp();
  }
}
__global__ void half_warps(float *y) {
  __shared__ float part[THREADS];
  unsigned mask = threadIdx.x % 32 < 16 ? 0xffffu : 0xffff0000u;
  part[threadIdx.x] = 1;
  if (threadIdx.x % 32 < 16)
    __syncwarp(mask);
  else
    __syncwarp(mask);
  y[blockIdx.x * THREADS + threadIdx.x] = part[threadIdx.x ^ 15];
}
__global__ void tiles(float *y) { /* transposes a tile in dynamic shared memory, twice */
  SL__SHARED(float, tile);
  for (int round = 0; round < 2; round++) {
    tile[threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    y[blockIdx.x * THREADS + threadIdx.x] = tile[threadIdx.x % 8 * 8 + threadIdx.x / 8];
    __syncthreads();
  }
}
__global__ void own_bytes(uint8_t *y) {
  unsigned i = blockIdx.x * THREADS + threadIdx.x;
  y[i] = 1;
  y[i] += y[i];
}
__global__ void read_by_all(float *y) { y[1 + blockIdx.x * THREADS + threadIdx.x] = y[0]; }
__global__ void atomics(int *y) { atomicAdd(&y[threadIdx.x % 2], 1); }
__global__ void local_array(float *y) {
  float own[8];
  float *volatile p = own; /* its address is taken: the compiler tells of each access */
  for (int i = 0; i < 8; i++) p[i] = (float)i;
  y[blockIdx.x * THREADS + threadIdx.x] = p[threadIdx.x % 8];
}

struct Test {
  const char *name, *words; /* words: of the report; NULL: there must be none */
  int blocks, threads;
  std::function<void(const Test &, void *)> launch;
};
template <class T>
static Test test(const char *name, void (*kernel)(T *), int blocks, int threads,
                 const char *words) {
  return {name, words, blocks, threads, [kernel](const Test &t, void *y) {
            sl_standin::launch_kernel(t.name, kernel, t.blocks, t.threads, THREADS * sizeof(float),
                                      nullptr, (T *)y);
          }};
}
#define RACE(kernel, blocks, threads, words) test(#kernel, kernel, blocks, threads, words)
#define CLEAN(kernel) test(#kernel, kernel, 3, THREADS, nullptr)
static const char no_barrier_between[] = "no barrier is between",
                  nothing_between[] = "neither a barrier nor a __syncwarp is between",
                  blocks_apart[] = "blocks have no order";
static const Test tests[] = {
    RACE(no_barrier, 1, THREADS, no_barrier_between),
    RACE(barrier_too_early, 1, THREADS, "of the dynamic shared memory"),
    RACE(no_syncwarp, 1, 32, nothing_between),
    RACE(shuffle_for_syncwarp, 1, 32, nothing_between),
    RACE(syncwarp_for_barrier, 1, THREADS, no_barrier_between),
    RACE(syncwarp_of_others, 1, 32, nothing_between),
    RACE(blocks_write_one, 2, THREADS, "byte 12 of the 8192 bytes"),
    RACE(block_reads_other, 2, THREADS, blocks_apart),
    RACE(block_writes_read, 3, THREADS, blocks_apart),
    RACE(halves_of_word, 1, THREADS, "byte 16 of the 8192 bytes"),
    RACE(packs_overlap, 1, THREADS, "byte 12 of the 8192 bytes"),
    RACE(copies_overlap, 1, THREADS, "race on byte"),
    RACE(atomic_and_plain, 1, THREADS, "race on byte 0 of"),
    RACE(many_read_one_writes, 1, THREADS, "static shared memory"),
    CLEAN(tree_sum),
    CLEAN(warp_sums),
    CLEAN(warp_exchange),
    CLEAN(half_warps),
    CLEAN(tiles),
    CLEAN(own_bytes),
    CLEAN(read_by_all),
    CLEAN(atomics),
    CLEAN(local_array),
};

/* In the child: the launch's outcome, 0 or 1; 2 if nothing could be launched. A kernel
 * without a race runs twice: writes of an earlier launch are no race. */
static int run(const Test &test) {
  void *y;
  if (cudaMalloc(&y, 8192) || cudaMemset(y, 0, 8192)) return 2;
  test.launch(test, y);
  if (!test.words) test.launch(test, y);
  return cudaDeviceSynchronize() != cudaSuccess;
}

static bool passes(const Test &test, bool reverse) {
  int ends[2], status;
  if (pipe(ends)) return false;
  pid_t child = fork();
  if (!child) {
    dup2(ends[1], STDERR_FILENO);
    if (reverse) setenv("SL_STANDIN_ORDER", "reverse", 1);
    _exit(run(test));
  }
  close(ends[1]);
  std::string said;
  char text[512];
  for (ssize_t n; (n = read(ends[0], text, sizeof text)) > 0;) said.append(text, (size_t)n);
  close(ends[0]);
  if (child < 0 || waitpid(child, &status, 0) != child) return false;
  /* the line has the kernel's name, a place in this file, and the expected words */
  bool good = test.words ? status == 1 << 8 && said.find(test.words) != std::string::npos &&
                               said.find(std::string("kernel ") + test.name) != std::string::npos &&
                               said.find("race_selftest.cu:") != std::string::npos
                         : status == 0 && said.empty();
  if (!good) printf("# status %d: %s\n", status, said.c_str());
  return good;
}

int main() {
  int count = (int)(sizeof tests / sizeof *tests), failed = 0;
  printf("1..%d\n", 2 * count);
  for (int i = 0; i < 2 * count; i++) {
    const Test &test = tests[i / 2];
    fflush(stdout);
    bool good = passes(test, i % 2);
    failed |= !good;
    printf("%s %d - %s: %s%s\n", good ? "ok" : "not ok", i + 1, test.name,
           test.words ? "a race" : "no race", i % 2 ? ", in reverse order" : "");
  }
  return failed;
}
