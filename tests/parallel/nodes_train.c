/* Trains three small networks with replicas and writes their weights; run once alone and once with
 * master-slave processes as further memory nodes (check-nodes.sh), the files must be the same to
 * the bit. It finds wrong access modes, forgotten transfers, host pointers kept across
 * tasks. usage: nodes_train PREFIX [STAGES]; prints how many tasks other processes ran. */
#include <math.h>
#include <starling.h>
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                                                                                  \
  do {                                                                                             \
    if ((call) != SL_OK) {                                                                         \
      fprintf(stderr, "%s: %s\n", #call, sl_error());                                              \
      return 1;                                                                                    \
    }                                                                                              \
  } while (0)

/* A layer of this program's own, x / (1 + e^-wx): its kernels' addresses mean nothing in another
 * process, so that its tasks must stay, wherever it is placed. */
static enum sl_status swish_infer(struct sl_layer_plan *plan) {
  plan->out = plan->in[0];
  plan->parameter[plan->parameter_count++] =
      (struct sl_layer_parameter){.suffix = "weight", .shape = {1, {1}}, .filled = true, .fill = 1};
  return SL_OK;
}

static enum sl_status swish(struct sl_layer_task *t) {
  for (int64_t i = 0; i < t->rows * sl_shape_count(&t->out); i++)
    t->y[i] = t->x[0][i] / (1 + expf(-*t->param[0] * t->x[0][i]));
  return SL_OK;
}

static enum sl_status swish_data(struct sl_layer_task *t) {
  for (int64_t i = 0; i < t->rows * sl_shape_count(&t->out); i++) {
    float wx = *t->param[0] * t->x[0][i], s = 1 / (1 + expf(-wx));
    t->dx[i] += t->dy[i] * s * (1 + wx * (1 - s));
  }
  return SL_OK;
}

static enum sl_status swish_weight(struct sl_layer_task *t) {
  for (int64_t i = 0; i < t->rows * sl_shape_count(&t->out); i++) {
    float x = t->x[0][i], s = 1 / (1 + expf(-*t->param[0] * x));
    *t->grad[0] += t->dy[i] * x * x * s * (1 - s);
  }
  return SL_OK;
}

static const struct sl_layer_kind swish_kind = {.version = SL_LAYER_VERSION,
                                                .name = "swish",
                                                .options_size = sizeof(struct sl_layer_options),
                                                .infer = swish_infer,
                                                .forward = swish,
                                                .backward_data = swish_data,
                                                .backward_weight = swish_weight};

static int lenet(struct sl_context *context, struct sl_model **model) {
  TRY(sl_model_new(context, &SL_SHAPE(1, 28, 28), model));
  struct sl_model *m = *model;
  TRY(sl_conv2d(
      m, "conv1",
      &(struct sl_conv2d_options){.channels = 6, .kernel_h = 5, .activation = SL_ACTIVATION_TANH}));
  TRY(sl_maxpool2d(m, "pool1", &(struct sl_pool2d_options){.kernel_h = 2}));
  TRY(sl_conv2d(m, "conv2", &(struct sl_conv2d_options){.channels = 8, .kernel_h = 5}));
  TRY(sl_activate(m, "act2", &(struct sl_activation_options){.activation = SL_ACTIVATION_RELU}));
  TRY(sl_avgpool2d(m, "pool2", &(struct sl_pool2d_options){.kernel_h = 2}));
  TRY(sl_layer(m, "swish", "swish", &(struct sl_layer_options){0}));
  TRY(sl_dense(m, "fc1",
               &(struct sl_dense_options){.features = 32, .activation = SL_ACTIVATION_SIGMOID}));
  TRY(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.2f}));
  TRY(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 10}));
  return 0;
}

static int residual(struct sl_context *context, struct sl_model **model) {
  TRY(sl_model_new(context, &SL_SHAPE(1, 28, 28), model));
  struct sl_model *m = *model;
  TRY(sl_conv2d(m, "conv0",
                &(struct sl_conv2d_options){.channels = 4, .kernel_h = 3, .stride_h = 3}));
  TRY(sl_batchnorm(m, "bn0", &(struct sl_batchnorm_options){.momentum = 0.2f}));
  TRY(sl_activate(m, "act0", &(struct sl_activation_options){.activation = SL_ACTIVATION_GELU}));
  TRY(sl_conv2d(m, "conv1", &(struct sl_conv2d_options){.channels = 4, .kernel_h = 3, .pad_h = 1}));
  TRY(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = "act0,conv1"}));
  TRY(sl_dense(m, "fc", &(struct sl_dense_options){.features = 10}));
  return 0;
}

static int language_model(struct sl_context *context, struct sl_model **model) {
  TRY(sl_model_new(context, &SL_SHAPE(6), model));
  struct sl_model *m = *model;
  TRY(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 13, .features = 7}));
  TRY(sl_lstm(m, "lstm0", &(struct sl_lstm_options){.features = 9}));
  TRY(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.2f}));
  TRY(sl_gru(m, "gru1", &(struct sl_gru_options){.features = 8}));
  TRY(sl_dense(m, "decoder", &(struct sl_dense_options){.features = 13, .positions = true}));
  return 0;
}

/* Generated digits, or tokens that follow from one another. */
static int open_data(bool tokens, struct sl_dataset **data) {
  int32_t text[1000] = {1};
  for (int i = 1; i < 1000; i++) text[i] = (text[i - 1] * 5 + (i % 7 == 0) + 3) % 13;
  if (tokens)
    TRY(sl_tokens_new("text", text, 1000, 6, 13, data));
  else
    TRY(sl_digits_new(100, 3, true, data));
  return 0;
}

static int stages; /* 0: not cut */

static int train(struct sl_context *context, struct sl_model *m,
                 const struct sl_optimizer *optimizer, enum sl_kvstore_kind kvstore,
                 const char *prefix, const char *name) {
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  char path[512];
  double loss, accuracy;
  (void)context;
  bool tokens = sl_model_output(m)->ndim == 2;
  if (open_data(tokens, &data)) return 1;
  TRY(sl_loader_new(
      data,
      &(struct sl_loader_options){.batch = 21, .seed = 5, .shuffle = !tokens, .contiguous = tokens},
      &loader));
  TRY(sl_trainer_new(m, optimizer, NULL,
                     &(struct sl_trainer_options){.replicas = 3,
                                                  .microbatches = 2,
                                                  .kvstore = kvstore,
                                                  .big_shard = 500,
                                                  .stages = stages,
                                                  .chunk = tokens ? 4 : 0,
                                                  .carry_state = tokens},
                     &trainer));
  for (int s = 0; s < 12; s++) TRY(sl_trainer_step(trainer, loader, &report, &reported));
  do TRY(sl_trainer_drain(trainer, &report, &reported));
  while (reported);
  TRY(sl_loader_seek(loader, 0));
  TRY(sl_trainer_evaluate(trainer, loader, &loss, &accuracy));
  printf("%s: loss %.9g\n", name, loss);
  sl_trainer_free(trainer);
  snprintf(path, sizeof path, "%s-%s.safetensors", prefix, name);
  TRY(sl_model_save(m, path));
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
  return 0;
}

static long tasks_elsewhere(void) {
  long tasks = 0;
  for (int w = 0; w < (int)starpu_worker_get_count(); w++) {
    struct starpu_profiling_worker_info info;
    starpu_profiling_worker_get_info(w, &info);
    if (starpu_worker_get_type(w) == STARPU_TCPIP_MS_WORKER) tasks += info.executed_tasks;
  }
  return tasks;
}

int main(int argc, char **argv) {
  struct sl_context *context;
  struct sl_model *model;
  if (argc < 2 || argc > 3) return 2;
  if (argc == 3) stages = atoi(argv[2]);
  TRY(sl_open(&(struct sl_context_options){.seed = 11}, &context));
  TRY(sl_layer_register(context, &swish_kind));
  starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
  struct sl_optimizer sgd = {.lr = 0.05f, .momentum = 0.9f},
                      adam = {.kind = SL_ADAMW, .clip = 0.5f};
  if (lenet(context, &model) || train(context, model, &sgd, SL_KVSTORE_LOCAL, argv[1], "lenet"))
    return 1;
  if (residual(context, &model) ||
      train(context, model, &adam, SL_KVSTORE_DEVICE, argv[1], "residual"))
    return 1;
  if (language_model(context, &model) ||
      train(context, model, &sgd, SL_KVSTORE_LOCAL, argv[1], "language"))
    return 1;
  printf("tasks run by other processes: %ld\n", tasks_elsewhere());
  sl_close(context);
  return 0;
}
