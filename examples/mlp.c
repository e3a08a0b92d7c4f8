/* A multi-layer perceptron: dense layers with relu between them, by default 784-512-512-10. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/train/run.h"

enum { MOST_LAYERS = 32 };

struct mlp {
  int layers; /* widths of the hidden layers */
  int64_t hidden[MOST_LAYERS];
};

/* A layer with the target's name: its values, or a logit for each of its classes. */
static enum sl_status add_output(struct sl_model *model, const struct sl_row_field *target,
                                 const char *input, enum sl_init init) {
  struct sl_shape shape = target->shape;
  int64_t values = sl_shape_count(&shape);
  char name[64];
  if (target->classes && values > 1) shape.dim[shape.ndim++] = target->classes;
  snprintf(name, sizeof name, "%.58s%s", target->name, shape.ndim > 1 ? "_flat" : "");
  const struct sl_dense_options dense = {
      .layer = {.inputs = input, .init = init},
      .features = values * (target->classes ? target->classes : 1)};
  enum sl_status status = sl_dense(model, shape.ndim > 1 ? name : target->name, &dense);
  if (status != SL_OK || shape.ndim == 1) return status;
  return sl_reshape(model, target->name, &(struct sl_reshape_options){.shape = shape});
}

/* Several targets: each has an output on top of the hidden layers. */
static enum sl_status add_outputs(struct sl_model *model, const struct sl_dataset_info *data,
                                  const char *input, enum sl_init init) {
  char names[64 * SL_MAX_FIELDS];
  enum sl_status status = SL_OK;
  size_t used = 0;
  for (int i = 0; i < data->target_count && status == SL_OK; i++) {
    used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? "," : "",
                             data->targets[i].name);
    status = add_output(model, &data->targets[i], input, init);
  }
  return status == SL_OK ? sl_outputs(model, names) : status;
}

/* Several inputs become one row again. */
static enum sl_status join_inputs(struct sl_model *model, const struct sl_dataset_info *data) {
  char names[64 * SL_MAX_FIELDS];
  size_t used = 0;
  for (int i = 0; i < data->input_count; i++)
    used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? "," : "",
                             data->inputs[i].name);
  return sl_concatenate(model, "inputs",
                        &(struct sl_concatenate_options){.layer.inputs = names, .flat = true});
}

static enum sl_status build(struct sl_model *model, const struct sl_dataset_info *data,
                            enum sl_init init, const void *input) {
  const struct mlp *mlp = input;
  enum sl_status status = data->input_count ? join_inputs(model, data) : SL_OK;
  char name[16];
  for (int i = 0; i <= mlp->layers && status == SL_OK; i++) {
    bool last = i == mlp->layers;
    if (last && data->target_count) return add_outputs(model, data, name, init);
    const struct sl_dense_options dense = {
        .layer = {.init = init},
        .features = last ? program_outputs(data) : mlp->hidden[i],
        .activation = last ? SL_ACTIVATION_NONE : SL_ACTIVATION_RELU};
    snprintf(name, sizeof name, "fc%d", i + 1);
    status = sl_dense(model, name, &dense);
  }
  return status;
}

/* ---- the program's own option ---- */

static const char *parse_hidden(const struct option_row *row, const char *text, void *values) {
  struct mlp *mlp = values;
  (void)row;
  for (mlp->layers = 0; mlp->layers < MOST_LAYERS; text++) {
    char width[24];
    size_t length = strcspn(text, ",");
    if (length >= sizeof width) length = sizeof width - 1; /* longer than any allowed number */
    memcpy(width, text, length);
    width[length] = '\0';
    const char *why = option_whole(width, 1, 100000, &mlp->hidden[mlp->layers++]);
    if (why) return option_problem("'%s' %s", width, why);
    text += length;
    if (*text == '\0') return NULL;
  }
  return option_problem("more than %d layers", MOST_LAYERS);
}

static const char *default_hidden(const void *values) {
  static char text[MOST_LAYERS * 8];
  const struct mlp *mlp = values;
  size_t used = 0;
  for (int i = 0; i < mlp->layers && used < sizeof text; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld", i ? "," : "",
                             (long long)mlp->hidden[i]);
  return text;
}

static const struct option_row rows[] = {{"hidden", "N[,N...]", "Widths of the hidden layers",
                                          .parse = parse_hidden, .unset_of = default_hidden,
                                          .flags = OPTION_OWN}};

int main(int argc, char **argv) {
  struct mlp mlp = {.layers = 2, .hidden = {512, 512}};
  const struct program program = {
      .cli = {.about = "Train a multi-layer perceptron on MNIST, CIFAR-10 or generated digits.",
              .description = "The network has dense layers only, with relu between them.",
              .examples = "  mlp --epochs 2\n"
                          "  mlp --data mnist --hidden 1024,256 --optimizer adam\n",
              .rows = rows,
              .row_count = sizeof rows / sizeof *rows,
              .input = &mlp},
      .epochs = 20,
      .batch = 128,
      .lr = 0.1f,
      .build = build};
  return run_program(&program, argc, argv);
}
