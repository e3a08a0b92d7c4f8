/* StarPU's own CUDA driver on the stand-in: two devices, data that goes between both and main
 * memory, and less memory on the devices than the data needs, so that StarPU must evict. The result
 * is computed here as well and compared to the bit. */
#include <math.h>
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTS 12
#define ROUNDS 6
#define N (256 * 1024) /* a megabyte each; 12 of them, and a device has room for 3 */

struct smoke_args {
  float factor, add;
};
void smoke_scale_add_cuda(void *buffers[], void *arg);
void smoke_sum_cuda(void *buffers[], void *arg);

static void smoke_scale_add_cpu(void *buffers[], void *arg) {
  float *y = (float *)STARPU_VECTOR_GET_PTR(buffers[0]);
  const struct smoke_args *args = arg;
  for (unsigned i = 0; i < STARPU_VECTOR_GET_NX(buffers[0]); i++)
    y[i] = args->factor * y[i] + args->add;
}

static struct starpu_codelet scale_add = {
    .cuda_funcs = {smoke_scale_add_cuda},
    .cpu_funcs = {smoke_scale_add_cpu},
    .cuda_flags = {STARPU_CUDA_ASYNC},
    .nbuffers = 1,
    .modes = {STARPU_RW},
    .name = "scale_add",
};
static struct starpu_codelet sum = {
    .cuda_funcs = {smoke_sum_cuda},
    .cuda_flags = {STARPU_CUDA_ASYNC},
    .nbuffers = 2,
    .modes = {STARPU_R, STARPU_W},
    .name = "sum",
};

static starpu_data_handle_t parts[PARTS], sums[PARTS];
static float *data[PARTS], result[PARTS];

static int submit(struct starpu_codelet *codelet, int part, const struct smoke_args *args,
                  int worker) {
  struct starpu_task *task = starpu_task_create();
  task->cl = codelet;
  task->handles[0] = parts[part];
  if (codelet->nbuffers == 2) task->handles[1] = sums[part];
  if (args) {
    task->cl_arg = malloc(sizeof *args);
    task->cl_arg_size = sizeof *args;
    memcpy(task->cl_arg, args, sizeof *args);
    task->cl_arg_free = 1;
  }
  if (worker >= 0) {
    task->execute_on_a_specific_worker = 1;
    task->workerid = worker;
  }
  return starpu_task_submit(task);
}

static float expected(int part) {
  float lanes[128] = {0};
  for (unsigned i = 0; i < N; i++) {
    float y = (float)part;
    for (int round = 0; round < ROUNDS; round++) y = 0.5f * y + (float)round;
    lanes[i % 128] += y;
  }
  for (int half = 64; half; half /= 2)
    for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
  return lanes[0];
}

int main(void) {
  setenv("SL_STANDIN_GPUS", "2", 1);
  setenv("STARPU_NCUDA", "2", 1);
  setenv("STARPU_NCPU", "1", 1);
  setenv("STARPU_LIMIT_CUDA_MEM", "3", 1);
  /* with prefetching StarPU 1.4.10 may stall for good in so little memory */
  setenv("STARPU_PREFETCH", "0", 1);
  /* its chunks of 32 MB are more than there is */
  setenv("STARPU_SUBALLOCATOR", "0", 1);
  printf("1..2\n");
  if (starpu_init(NULL)) return printf("Bail out! starpu_init\n"), 1;
  int workers[3], count = starpu_worker_get_ids_by_type(STARPU_CUDA_WORKER, workers, 2);
  printf("%s 1 - two devices\n", count == 2 ? "ok" : "not ok");
  if (count != 2) return 1;
  starpu_worker_get_ids_by_type(STARPU_CPU_WORKER, workers + 2, 1);
  for (int p = 0; p < PARTS; p++) {
    data[p] = malloc(N * sizeof(float));
    for (int i = 0; i < N; i++) data[p][i] = (float)p;
    starpu_vector_data_register(&parts[p], STARPU_MAIN_RAM, (uintptr_t)data[p], N, sizeof(float));
    starpu_variable_data_register(&sums[p], STARPU_MAIN_RAM, (uintptr_t)&result[p], sizeof(float));
  }
  int failed = 0;
  for (int round = 0; round < ROUNDS; round++)
    for (int p = 0; p < PARTS; p++) /* device, other device, CPU in turn */
      failed |=
          submit(&scale_add, p, &(struct smoke_args){0.5f, (float)round}, workers[(p + round) % 3]);
  for (int p = 0; p < PARTS; p++) failed |= submit(&sum, p, NULL, -1);
  starpu_task_wait_for_all();
  for (int p = 0; p < PARTS; p++) {
    starpu_data_unregister(parts[p]);
    starpu_data_unregister(sums[p]);
    if (result[p] != expected(p)) {
      printf("# part %d: sum %.9g, expected %.9g\n", p, result[p], expected(p));
      failed = 1;
    }
    free(data[p]);
  }
  printf("%s 2 - data over two devices and main memory\n", failed ? "not ok" : "ok");
  starpu_shutdown();
  return failed;
}
