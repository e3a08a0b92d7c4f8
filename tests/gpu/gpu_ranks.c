/* Trains a small network over ranks on a device and prints where its tasks ran, as StarPU counted
 * them; tests/gpu/test_gpu_ranks.sh starts it.
 *
 *     gpu_ranks train DEVICES KVSTORE SERVERS MATH COMPRESSION BATCH WEIGHTS
 *     gpu_ranks compare WEIGHTS WEIGHTS
 *
 * train: every rank prints one line of NAME=VALUE: for a few operations the tasks on CPU and on GPU
 * workers (send=3+4), and the bytes sent. Rank 0 writes the weights to WEIGHTS, 32-bit floats.
 * compare: prints the greatest distance, and how many in a million are further apart than 1e-5,
 * both relative to the largest weight.
 *
 * Each of the first layer's two shards is larger than the messages that are sent together with
 * others (SL__SMALL_MESSAGE_BYTES), in 16 bits, too; those of the second layer are smaller. With
 * two GPUs, kept=1 says that the main thread has the second one after a barrier if it had it
 * before. */
#include <math.h>
#include <starling.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codelets/codelets.h"
#include "core/net/net.h"

#define TRY(call)                                                                                  \
  do {                                                                                             \
    if ((call) != SL_OK) {                                                                         \
      fprintf(stderr, "%s: %s\n", #call, sl_error());                                              \
      return 1;                                                                                    \
    }                                                                                              \
  } while (0)

enum { STEPS = 12, IMAGES = 96, FEATURES = 128, BOUND = 60000, MOST = 110000 };

struct setup {
  enum sl_kvstore_kind kvstore;
  int servers, batch;
  enum sl_math math;
  const char *compress, *weights;
  int rank, ranks;
};

/* ---- where tasks ran ---- */

static void tell(const char *name, const struct sl__op *op) {
  unsigned long on_cpu = 0, on_gpu = 0;
  for (unsigned w = 0; w < starpu_worker_get_count(); w++)
    if (starpu_worker_get_type((int)w) == STARPU_CUDA_WORKER)
      on_gpu += op->codelet.per_worker_stats[w];
    else
      on_cpu += op->codelet.per_worker_stats[w];
  printf(" %s=%lu+%lu", name, on_cpu, on_gpu);
}

/* The numbers that CUDA has for this rank's GPUs. */
static void tell_gpus(void) {
  printf(" gpus=");
  for (int i = 0; i < starpu_worker_get_count_by_type(STARPU_CUDA_WORKER); i++)
    printf("%s%d", i ? "," : "",
           starpu_worker_get_devid(starpu_worker_get_by_type(STARPU_CUDA_WORKER, i)));
}

static void tell_kept(struct sl__net *net) {
#ifdef SL_HAVE_CUDA /* then StarPU's header has CUDA's functions */
  int count = 0, device = -1;
  if (!net || cudaGetDeviceCount(&count) || count < 2) return;
  cudaSetDevice(1);
  if (sl__net_barrier(net) == SL_OK) cudaGetDevice(&device);
  printf(" kept=%d", device);
#else
  (void)net;
#endif
}

static void tell_all(const struct sl_context *context, const struct setup *setup) {
  printf("rank=%d", setup->rank);
  tell_gpus();
  tell_kept(context->net);
  tell("send", &sl__op_send);
  tell("receive", &sl__op_receive);
  tell("reduce", &sl__op_reduce);
  tell("update", &sl__op_sgd_momentum);
  tell("compress_half", &sl__op_compress_half);
  tell("compress_residual", &sl__op_compress_residual);
  tell("decompress", &sl__op_decompress);
  printf(" bytes=%lld\n", context->net ? (long long)sl__net_bytes_sent(context->net) : 0ll);
}

/* ---- training ---- */

static int take_steps(struct sl_trainer *trainer, struct sl_loader *loader) {
  struct sl_report report;
  bool reported;
  for (int s = 0; s < STEPS; s++) TRY(sl_trainer_step(trainer, loader, &report, &reported));
  do TRY(sl_trainer_drain(trainer, &report, &reported));
  while (reported);
  return 0;
}

static int write_weights(struct sl_model *model, const char *path) {
  static float values[MOST];
  struct sl_shape shape;
  FILE *out = fopen(path, "wb");
  if (!out) return 1;
  for (int i = 0; i < sl_model_parameter_count(model); i++) {
    const char *name = sl_model_parameter(model, i, &shape);
    size_t count = (size_t)sl_shape_count(&shape);
    if (count > MOST) return 1;
    TRY(sl_model_get(model, name, values));
    if (fwrite(values, sizeof *values, count, out) != count) return 1;
  }
  return fclose(out) != 0;
}

static int train(struct sl_context *context, const struct setup *setup) {
  const struct sl_optimizer optimizer = {
      .lr = 0.05f, .momentum = 0.9f, .weight_decay = 1e-3f, .clip = 1};
  int workers = setup->ranks - setup->servers;
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_model *model;
  struct sl_trainer *trainer;
  TRY(sl_digits_new(IMAGES, 3, true, &data));
  TRY(sl_loader_new(data,
                    &(struct sl_loader_options){.batch = setup->batch,
                                                .seed = 5,
                                                .shuffle = true,
                                                .num_parts = workers,
                                                .part_index = setup->rank % workers},
                    &loader));
  TRY(sl_model_new(context, &sl_dataset_info(data)->sample, &model));
  TRY(sl_dense(model, "fc1",
               &(struct sl_dense_options){.features = FEATURES, .activation = SL_ACTIVATION_TANH}));
  TRY(sl_dense(model, "fc2", &(struct sl_dense_options){.features = 10}));
  TRY(sl_trainer_new(model, &optimizer, NULL,
                     &(struct sl_trainer_options){.eager = true, /* so that sums are tasks */
                                                  .replicas = 2,
                                                  .kvstore = setup->kvstore,
                                                  .servers = setup->servers,
                                                  .math = setup->math,
                                                  .compress = setup->compress,
                                                  .bigarray_bound = setup->ranks > 1 ? BOUND : 0},
                     &trainer));
  if (take_steps(trainer, loader)) return 1;
  sl_trainer_free(trainer);
  tell_all(context, setup);
  if (!setup->rank && write_weights(model, setup->weights)) return 1;
  sl_model_free(model);
  sl_loader_free(loader);
  sl_dataset_free(data);
  return 0;
}

static int run(char **argv) {
  struct setup setup = {.servers = atoi(argv[2]),
                        .batch = atoi(argv[5]),
                        .compress = strcmp(argv[4], "none") != 0 ? argv[4] : NULL,
                        .weights = argv[6],
                        .ranks = 1};
  struct sl_context *context;
  TRY(sl_kvstore_parse(argv[1], &setup.kvstore));
  TRY(sl_math_parse(argv[3], &setup.math));
  TRY(sl_open(
      &(struct sl_context_options){
          .devices = argv[0], .seed = 11, .distributed = setup.kvstore >= SL_KVSTORE_DIST_SYNC},
      &context));
  if (context->net) {
    setup.rank = sl__net_rank(context->net);
    setup.ranks = sl__net_size(context->net);
  }
  if (train(context, &setup)) return 1;
  sl_close(context);
  return 0;
}

/* ---- comparison ---- */

static int read_weights(const char *path, float *values) {
  FILE *in = fopen(path, "rb");
  int count = in ? (int)fread(values, sizeof *values, MOST, in) : 0;
  if (in) fclose(in);
  return count;
}

static int compare(const char *a, const char *b) {
  static float x[MOST], y[MOST];
  const double near = 1e-5;
  int count = read_weights(a, x), apart = 0;
  double worst = 0, largest = 0;
  if (!count || read_weights(b, y) != count) return 1;
  for (int i = 0; i < count; i++) largest = fmax(largest, fabs((double)y[i]));
  for (int i = 0; i < count; i++) {
    double distance = fabs((double)x[i] - (double)y[i]) / largest;
    if (!(distance <= worst)) worst = isfinite(distance) ? distance : INFINITY;
    apart += !(distance <= near);
  }
  printf("%.1e %.0f\n", worst, 1e6 * apart / count);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 9 && !strcmp(argv[1], "train")) return run(argv + 2);
  if (argc == 4 && !strcmp(argv[1], "compare")) return compare(argv[2], argv[3]);
  return 2;
}
