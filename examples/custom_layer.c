/* Your own kind of layer, in your own program: PReLU (He et al., arXiv 1502.01852), a relu whose
 * slope below zero is learned for each channel. The program trains it between layers of the
 * library, saves the model, opens it again and predicts with it. To build it:
 *
 *     gcc custom_layer.c $(pkg-config --cflags --libs starling) -o custom_layer
 *     ./custom_layer prelu.json digits
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <starling.h>

#define TRY(call)                                                                                  \
  if ((call) != SL_OK) return fprintf(stderr, "custom_layer: %s\n", sl_error()), 1

/* ---- the layer: options, shapes, kernels ---- */

struct prelu_options {
  struct sl_layer_options layer; /* the options of every layer come first */
  float slope;                   /* initial slope; 0 means 0.25 */
};

static const struct sl_field fields[] = {SL_FIELD(prelu_options, FLOAT, slope), {0}};

static enum sl_status infer(struct sl_layer_plan *plan) {
  const struct prelu_options *o = plan->options;
  if (plan->input_count != 1) {
    snprintf(plan->message, sizeof plan->message, "takes one input, not %d", plan->input_count);
    return SL_BAD_ARGUMENT;
  }
  plan->out = plan->in[0];
  plan->flops = (double)sl_shape_count(&plan->out);
  plan->parameter[plan->parameter_count++] =
      (struct sl_layer_parameter){.suffix = "weight", /* as torch.nn.PReLU(C) has it */
                                  .shape = {1, {plan->in[0].dim[0]}},
                                  .filled = true,
                                  .fill = o->slope != 0 ? o->slope : 0.25f};
  return SL_OK;
}

/* Number of values of a channel; a sample is [C, ...]. */
static int64_t plane(const struct sl_layer_task *t) {
  return sl_shape_count(&t->out) / t->out.dim[0];
}

static enum sl_status forward(struct sl_layer_task *t) {
  int64_t channels = t->out.dim[0], count = plane(t);
  for (int64_t r = 0; r < t->rows * channels; r++)
    for (int64_t i = r * count; i < (r + 1) * count; i++)
      t->y[i] = t->x[0][i] > 0 ? t->x[0][i] : t->param[0][r % channels] * t->x[0][i];
  return SL_OK;
}

static enum sl_status backward_data(struct sl_layer_task *t) {
  int64_t channels = t->out.dim[0], count = plane(t);
  for (int64_t r = 0; r < t->rows * channels; r++)
    for (int64_t i = r * count; i < (r + 1) * count; i++)
      t->dx[i] += t->x[0][i] > 0 ? t->dy[i] : t->param[0][r % channels] * t->dy[i];
  return SL_OK;
}

static enum sl_status backward_weight(struct sl_layer_task *t) {
  int64_t channels = t->out.dim[0], count = plane(t);
  for (int64_t r = 0; r < t->rows * channels; r++)
    for (int64_t i = r * count; i < (r + 1) * count; i++)
      if (!(t->x[0][i] > 0)) t->grad[0][r % channels] += t->x[0][i] * t->dy[i];
  return SL_OK;
}

static const struct sl_layer_kind prelu = {.version = SL_LAYER_VERSION,
                                           .name = "prelu",
                                           .options_size = sizeof(struct prelu_options),
                                           .fields = fields,
                                           .infer = infer,
                                           .forward = forward,
                                           .backward_data = backward_data,
                                           .backward_weight = backward_weight};

/* ---- a network with it ---- */

static enum sl_status build(struct sl_context *context, const struct sl_dataset_info *info,
                            struct sl_model **model) {
  const struct sl_conv2d_options conv = {.channels = 8, .kernel_h = 5, .stride_h = 2};
  const struct prelu_options slope = {.slope = 0.1f};
  const struct sl_dense_options dense = {.features = info->classes};
  enum sl_status status = sl_model_new(context, &info->sample, model);
  if (status == SL_OK) status = sl_conv2d(*model, "conv1", &conv);
  if (status == SL_OK) status = sl_layer(*model, "act1", "prelu", &slope);
  if (status == SL_OK) status = sl_dense(*model, "fc1", &dense);
  return status;
}

/* Trains for three epochs. */
static enum sl_status train(struct sl_model *model, const struct sl_dataset *data) {
  const struct sl_optimizer adam = {.kind = SL_ADAM};
  struct sl_loader *loader = NULL;
  struct sl_trainer *trainer = NULL;
  struct sl_report report = {0};
  bool reported = false;
  enum sl_status status =
      sl_loader_new(data, &(struct sl_loader_options){.batch = 64, .shuffle = true}, &loader);
  if (status == SL_OK) status = sl_trainer_new(model, &adam, NULL, NULL, &trainer);
  int64_t steps = status == SL_OK ? 3 * sl_loader_length(loader) : 0;
  for (int64_t i = 0; i < steps && status == SL_OK; i++)
    status = sl_trainer_step(trainer, loader, &report, &reported);
  do {
    if (status == SL_OK) status = sl_trainer_drain(trainer, &report, &reported);
  } while (status == SL_OK && reported);
  printf("%lld steps, last loss %.4f\n", (long long)steps, report.loss);
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  return status;
}

/* Number of samples of the test set that are classified correctly; -1 after a failure. */
static int64_t count_right(struct sl_predictor *predictor, const struct sl_dataset *data,
                           int64_t classes) {
  const struct sl_dataset_info *info = sl_dataset_info(data);
  float *x = malloc((size_t)sl_shape_count(&info->sample) * sizeof *x);
  float *y = malloc((size_t)classes * sizeof *y);
  int64_t right = x && y ? 0 : -1;
  for (int64_t i = 0; i < info->count && right >= 0; i++) {
    int32_t label = 0, best = 0;
    enum sl_status status = sl_dataset_get(data, i, x, &label);
    if (status == SL_OK) status = sl_predict(predictor, x, 1, y);
    for (int32_t c = 1; c < classes; c++)
      if (y[c] > y[best]) best = c;
    right = status == SL_OK ? right + (best == label) : -1;
  }
  free(x), free(y);
  return right;
}

int main(int argc, char **argv) {
  struct sl_context *context;
  struct sl_dataset *images, *tests;
  struct sl_model *model, *opened;
  struct sl_predictor *predictor;
  const char *end = argc == 3 ? strrchr(argv[1], '.') : NULL;
  if (!end || strcmp(end, ".json") != 0)
    return fprintf(stderr, "Usage: custom_layer MODEL.json FOLDER|digits\n"), 2;

  /* a name that cannot be written is told before the training */
  TRY(sl_fit_check(NULL, &(struct sl_fit_options){.save = argv[1]}));
  TRY(sl_open(&(struct sl_context_options){.seed = 1}, &context));
  /* register the kind before you open a file that names it */
  TRY(sl_layer_register(context, &prelu));
  TRY(sl_dataset_open(argv[2], 1, true, &images));
  TRY(sl_dataset_open(argv[2], 1, false, &tests));
  TRY(build(context, sl_dataset_info(images), &model));
  TRY(train(model, images));
  TRY(sl_model_save(model, argv[1]));

  TRY(sl_model_open(context, argv[1], &opened));
  float slopes[8];
  TRY(sl_model_get(opened, "act1.weight", slopes));
  printf("slopes");
  for (int c = 0; c < 8; c++) printf(" %.3f", (double)slopes[c]);
  TRY(sl_predictor_open(opened, NULL, &predictor));
  int64_t right = count_right(predictor, tests, sl_model_output(opened)->dim[0]);
  if (right < 0) return fprintf(stderr, "custom_layer: %s\n", sl_error()), 1;
  printf("\n%lld of %lld right\n", (long long)right, (long long)sl_dataset_info(tests)->count);
  if (fflush(stdout) != 0) return perror("custom_layer"), 1;

  sl_predictor_free(predictor);
  sl_model_free(opened);
  sl_model_free(model);
  sl_dataset_free(tests);
  sl_dataset_free(images);
  sl_close(context);
  return 0;
}
