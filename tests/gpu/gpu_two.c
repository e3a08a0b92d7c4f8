/* Two models trained alternately in one program on one device, step by step, while other contexts
 * open, fail to open, and close: the weights must be those of each model trained alone, to the bit.
 * And the trainers' KVStore, which is not given, must be the one of the device. One thread opens
 * the context, a second one trains, others free: none makes CUDA use a GPU that StarPU does not use
 * (tests/gpu/test_gpu_memory.sh looks). With GPU the first thread chooses that one before, and must
 * keep it.
 *
 *     gpu_two DEVICE [GPU] */
#include <pthread.h>
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <starling.h>

enum { STEPS = 12, BATCH = 24, SAMPLES = 240, CONTEXTS = 18 };

struct training {
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_model *model;
  struct sl_trainer *trainer;
  int done;
};

static enum sl_status build_dense(struct sl_model *model) {
  enum sl_status status = sl_dense(
      model, "fc1", &(struct sl_dense_options){.features = 70, .activation = SL_ACTIVATION_TANH});
  if (status == SL_OK) status = sl_dense(model, "fc2", &(struct sl_dense_options){.features = 10});
  return status;
}

static enum sl_status build_conv(struct sl_model *model) {
  enum sl_status status =
      sl_conv2d(model, "conv", &(struct sl_conv2d_options){.channels = 6, .kernel_h = 3});
  if (status == SL_OK) status = sl_batchnorm(model, "norm", &(struct sl_batchnorm_options){0});
  if (status == SL_OK)
    status = sl_activate(model, "relu",
                         &(struct sl_activation_options){.activation = SL_ACTIVATION_RELU});
  if (status == SL_OK)
    status = sl_maxpool2d(model, "pool", &(struct sl_pool2d_options){.kernel_h = 2});
  if (status == SL_OK) status = sl_dense(model, "fc", &(struct sl_dense_options){.features = 10});
  return status;
}

static enum sl_status check_store(struct sl_context *context, const struct training *t) {
  const char *wanted =
      strncmp(sl_device_name(context, 0), "cuda", 4) ? "KVStore local" : "KVStore device";
  char *text = NULL;
  enum sl_status status = sl_trainer_summary(t->trainer, &text);
  if (status == SL_OK && !strstr(text, wanted)) {
    fprintf(stderr, "gpu_two: the trainer has no %s\n", wanted);
    status = SL_BAD_ARGUMENT;
  }
  free(text);
  return status;
}

static enum sl_status start(struct sl_context *context, struct training *t, bool conv) {
  const struct sl_loader_options loader = {.batch = BATCH, .seed = 2};
  const struct sl_optimizer optimizer = {.lr = 0.05f, .momentum = 0.9f};
  const struct sl_trainer_options options = {.replicas = 1};
  enum sl_status status = sl_digits_new(SAMPLES, 1, true, &t->data);
  if (status == SL_OK) status = sl_loader_new(t->data, &loader, &t->loader);
  if (status == SL_OK) status = sl_model_new(context, &sl_dataset_info(t->data)->sample, &t->model);
  if (status == SL_OK) status = (conv ? build_conv : build_dense)(t->model);
  if (status == SL_OK) status = sl_trainer_new(t->model, &optimizer, NULL, &options, &t->trainer);
  if (status == SL_OK) status = check_store(context, t);
  return status;
}

static enum sl_status step(struct training *t) {
  struct sl_report report;
  bool reported;
  return sl_trainer_step(t->trainer, t->loader, &report, &reported);
}

static void *stop_here(void *argument) {
  struct training *t = argument;
  sl_trainer_free(t->trainer);
  sl_model_free(t->model);
  sl_loader_free(t->loader);
  sl_dataset_free(t->data);
  *t = (struct training){0};
  return NULL;
}

/* In a new thread, to which no device was ever current. */
static void stop(struct training *t) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, stop_here, t)) abort();
  pthread_join(thread, NULL);
}

/* All parameters and buffers, one after the other; *count values. */
static float *weights(struct sl_model *model, int64_t *count) {
  struct sl_shape shape;
  int64_t at = 0;
  *count = 0;
  for (int i = 0; i < sl_model_parameter_count(model); i++) {
    sl_model_parameter(model, i, &shape);
    *count += sl_shape_count(&shape);
  }
  float *values = calloc((size_t)*count, sizeof *values);
  for (int i = 0; values && i < sl_model_parameter_count(model); i++) {
    const char *name = sl_model_parameter(model, i, &shape);
    if (sl_model_get(model, name, values + at) != SL_OK) {
      free(values);
      return NULL;
    }
    at += sl_shape_count(&shape);
  }
  return values;
}

/* Returns how many weights of the models trained alternately differ from those trained alone. */
static enum sl_status compare(float *const alone[2], const struct training two[2], int *different) {
  for (int i = 0; i < 2; i++) {
    int64_t count;
    float *together = weights(two[i].model, &count);
    if (!together) return SL_NO_MEMORY;
    *different += memcmp(together, alone[i], (size_t)count * sizeof *together) != 0;
    free(together);
  }
  return SL_OK;
}

/* Contexts beside the one that trains; a GPU of 1 GiB, such as the stand-in's, has no room for a
 * workspace each. */
static enum sl_status disturb(const char *devices) {
  const struct sl_context_options good = {.devices = devices}, bad = {.devices = "cuda:99"};
  struct sl_context *others[CONTEXTS] = {0}, *none;
  enum sl_status status = SL_OK;
  for (int i = 0; i < CONTEXTS && status == SL_OK; i++) status = sl_open(&good, &others[i]);
  for (int i = 0; i < CONTEXTS; i++) sl_close(others[i]);
  if (status == SL_OK && sl_open(&bad, &none) == SL_OK) {
    fprintf(stderr, "gpu_two: there is a GPU 99\n");
    sl_close(none);
    status = SL_BAD_ARGUMENT;
  }
  return status;
}

static enum sl_status try(struct sl_context *context, float *alone[2], int *different) {
  struct training two[2] = {0};
  enum sl_status status = SL_OK;
  for (int i = 0; i < 2 && status == SL_OK; i++) {
    int64_t count;
    status = start(context, &two[i], i == 1);
    for (int s = 0; s < STEPS && status == SL_OK; s++) status = step(&two[i]);
    if (status == SL_OK && !(alone[i] = weights(two[i].model, &count))) status = SL_NO_MEMORY;
    stop(&two[i]);
  }
  for (int i = 0; i < 2 && status == SL_OK; i++) status = start(context, &two[i], i == 1);
  for (int s = 0; s < 2 * STEPS && status == SL_OK; s++) {
    if (s == 1 || s == STEPS) status = disturb(sl_device_name(context, 0));
    if (status == SL_OK) status = step(&two[s % 2]);
  }
  if (status == SL_OK) status = compare(alone, two, different);
  stop(&two[0]);
  stop(&two[1]);
  return status;
}

struct trial {
  struct sl_context *context;
  float *alone[2];
  int different;
  enum sl_status status;
};

static void *try_here(void *argument) {
  struct trial *t = argument;
  t->status = try(t->context, t->alone, &t->different);
  if (t->status != SL_OK) fprintf(stderr, "gpu_two: %s\n", sl_error());
  return NULL;
}

static void choose_gpu(int gpu) {
#ifdef SL_HAVE_CUDA /* then StarPU's header has CUDA's functions */
  if (gpu >= 0) cudaSetDevice(gpu);
#else
  (void)gpu;
#endif
}

static bool keeps_gpu(int gpu) {
  int device = gpu;
#ifdef SL_HAVE_CUDA
  if (gpu >= 0) cudaGetDevice(&device);
#endif
  if (device != gpu) fprintf(stderr, "gpu_two: the thread has GPU %d, not %d\n", device, gpu);
  return device == gpu;
}

int main(int argc, char **argv) {
  const struct sl_context_options options = {.devices = argc > 1 ? argv[1] : "cuda:0", .seed = 1};
  struct training brief = {0};
  struct trial t = {0};
  pthread_t thread;
  int gpu = argc > 2 ? atoi(argv[2]) : -1;
  choose_gpu(gpu);
  enum sl_status status = sl_open(&options, &t.context);
  if (status == SL_OK) status = start(t.context, &brief, false);
  stop_here(&brief);
  if (status != SL_OK) {
    fprintf(stderr, "gpu_two: %s\n", sl_error());
    return status == SL_NO_DEVICE ? 77 : 1;
  }
  if (pthread_create(&thread, NULL, try_here, &t)) return 1;
  pthread_join(thread, NULL);
  if (t.different) fprintf(stderr, "gpu_two: %d of 2 models have other weights\n", t.different);
  free(t.alone[0]);
  free(t.alone[1]);
  bool kept = keeps_gpu(gpu);
  sl_close(t.context);
  return !kept || t.status != SL_OK || t.different;
}
