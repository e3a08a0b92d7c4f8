/* Fine-tuning: LeNet, which knows ten digits, learns to tell even from odd ones. Its layers are
 * loaded under a new head; first the head learns alone, then the whole network, the old layers at a
 * tenth of the rate. To build and run it:
 *
 *     lenet --save lenet.json
 *     gcc finetune.c $(pkg-config --cflags --libs starling) -o finetune
 *     ./finetune lenet.json digits
 */
#include <stdio.h>
#include <stdlib.h>

#include <starling.h>

#define TRY(call)                                                                                  \
  if ((status = (call)) != SL_OK) goto out

enum { CLASSES = 2, BATCH = 64, SAMPLES = 2000 };

/* The first samples of a set of digits, labelled odd or even. The model's inputs stay as they were
 * in its training: the new set has the old one's mean and deviation. */
static enum sl_status open_parity(const char *name, bool train, struct sl_dataset **parity) {
  enum sl_status status = SL_NO_MEMORY;
  struct sl_dataset *digits = NULL;
  uint8_t *bytes = NULL;
  int32_t *labels = NULL;
  float *values = NULL;
  TRY(sl_dataset_open(name, 1, train, &digits));
  const struct sl_dataset_info *info = sl_dataset_info(digits);
  int64_t pixels = sl_shape_count(&info->sample), plane = pixels / info->channels;
  int64_t count = info->count < SAMPLES ? info->count : SAMPLES;
  bytes = malloc((size_t)(count * pixels)), labels = malloc((size_t)count * sizeof *labels);
  values = malloc((size_t)pixels * sizeof *values);
  status = SL_NO_MEMORY;
  if (!bytes || !labels || !values) goto out;
  for (int64_t i = 0; i < count; i++) {
    TRY(sl_dataset_get(digits, i, values, &labels[i]));
    labels[i] %= CLASSES;
    for (int64_t p = 0; p < pixels; p++) {
      int64_t c = p / plane;
      bytes[i * pixels + p] =
          (uint8_t)(255 * (values[p] * info->deviation[c] + info->mean[c]) + 0.5f);
    }
  }
  status = sl_dataset_new("parity", &info->sample, count, CLASSES, bytes, labels, info->mean,
                          info->deviation, parity);
out:
  free(bytes), free(labels), free(values);
  sl_dataset_free(digits);
  return status;
}

/* LeNet's layers by their names in the file, under another last layer. */
static enum sl_status build(struct sl_model *model) {
  const struct sl_pool2d_options pool = {.kernel_h = 2};
  struct sl_conv2d_options conv = {.channels = 20, .kernel_h = 5, .activation = SL_ACTIVATION_TANH};
  enum sl_status status;
  TRY(sl_conv2d(model, "conv1", &conv));
  TRY(sl_maxpool2d(model, "pool1", &pool));
  conv.channels = 50;
  TRY(sl_conv2d(model, "conv2", &conv));
  TRY(sl_maxpool2d(model, "pool2", &pool));
  TRY(sl_dense(model, "fc1",
               &(struct sl_dense_options){.features = 500, .activation = SL_ACTIVATION_TANH}));
  TRY(sl_dense(model, "head", &(struct sl_dense_options){.features = CLASSES}));
out:
  return status;
}

/* Trains with the model's present settings, and prints the accuracy. */
static enum sl_status train(struct sl_model *model, struct sl_loader *batches,
                            struct sl_loader *test, float lr, int epochs, const char *what) {
  struct sl_trainer *trainer = NULL;
  struct sl_report report;
  bool reported = true;
  double loss, accuracy;
  enum sl_status status;
  TRY(sl_trainer_new(model, &(struct sl_optimizer){.lr = lr, .momentum = 0.9f}, NULL, NULL,
                     &trainer));
  for (int64_t step = 0; step < epochs * sl_loader_length(batches); step++)
    TRY(sl_trainer_step(trainer, batches, &report, &reported));
  for (reported = true; reported;) TRY(sl_trainer_drain(trainer, &report, &reported));
  TRY(sl_trainer_evaluate(trainer, test, &loss, &accuracy));
  printf("%s: test loss %.4f, accuracy %.2f %%\n", what, loss, 100 * accuracy);
out:
  sl_trainer_free(trainer);
  return status;
}

int main(int argc, char **argv) {
  struct sl_context *context = NULL;
  struct sl_model *model = NULL;
  struct sl_dataset *train_set = NULL, *test_set = NULL;
  struct sl_loader *batches = NULL, *test = NULL;
  char *report = NULL;
  enum sl_status status;
  if (argc < 3 || argc > 4)
    return fprintf(stderr, "Usage: finetune WEIGHTS FOLDER|digits [MAP]\n"), 2;
  const char *map = argc > 3 ? argv[3] : NULL;

  TRY(open_parity(argv[2], true, &train_set));
  TRY(open_parity(argv[2], false, &test_set));
  TRY(sl_loader_new(train_set, &(struct sl_loader_options){.batch = BATCH, .shuffle = true},
                    &batches));
  TRY(sl_loader_new(test_set, &(struct sl_loader_options){.batch = BATCH}, &test));
  TRY(sl_open(&(struct sl_context_options){.seed = 1}, &context));
  TRY(sl_model_new(context, &sl_dataset_info(train_set)->sample, &model));
  TRY(build(model));

  TRY(sl_model_load_part(model, argv[1], &(struct sl_load_part_options){.map = map}, &report));
  fputs(report, stdout);
  TRY(sl_freeze(model, "conv1-2,fc1"));
  TRY(train(model, batches, test, 0.02f, 2, "the head alone"));
  TRY(sl_freeze(model, NULL));
  TRY(sl_group_rate(model, "conv1-2,fc1=0.1"));
  TRY(train(model, batches, test, 0.02f, 2, "all layers"));
  TRY(sl_model_save(model, "parity.json"));
out:
  if (status != SL_OK)
    fprintf(stderr, "finetune: %s\n", sl_error());
  else if (fflush(stdout) != 0 || ferror(stdout))
    status = SL_IO, fprintf(stderr, "finetune: the output cannot be written\n");
  free(report);
  sl_model_free(model);
  sl_close(context);
  sl_loader_free(test), sl_loader_free(batches);
  sl_dataset_free(test_set), sl_dataset_free(train_set);
  return status == SL_OK ? 0 : 1;
}
