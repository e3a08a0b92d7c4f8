/* A multi-layer perceptron: dense layers with relu between them, 784-512-512-10 unless told
 * otherwise. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/train/run.h"

enum { MOST_LAYERS = 32 };

struct mlp {
  int layers; /* hidden ones */
  int64_t hidden[MOST_LAYERS];
};

static enum sl_status build(struct sl_model *model, const struct sl_dataset_info *data,
                            enum sl_init init, const void *input) {
  const struct mlp *mlp = input;
  enum sl_status status = SL_OK;
  for (int i = 0; i <= mlp->layers && status == SL_OK; i++) {
    char name[16];
    bool last = i == mlp->layers;
    const struct sl_dense_options dense = {
        .layer = {.init = init},
        .features = last ? data->classes : mlp->hidden[i],
        .activation = last ? SL_ACTIVATION_NONE : SL_ACTIVATION_RELU};
    snprintf(name, sizeof name, "fc%d", i + 1);
    status = sl_dense(model, name, &dense);
  }
  return status;
}

/* ---- its own option ---- */

enum { KEY_HIDDEN = 1000 };

static const struct argp_option options[] = {
    {"hidden", KEY_HIDDEN, "N[,N...]", 0, "Widths of the hidden layers (default 512,512)", 0}, {0}};

static void read_hidden(const struct argp_state *state, const char *text, struct mlp *mlp) {
  mlp->layers = 0;
  for (;;) {
    char width[24];
    size_t length = strcspn(text, ",");
    if (mlp->layers == MOST_LAYERS) cli_refuse(state, "--hidden: more than %d layers", MOST_LAYERS);
    if (length >= sizeof width) length = sizeof width - 1; /* too long for any number allowed */
    memcpy(width, text, length);
    width[length] = '\0';
    mlp->hidden[mlp->layers++] = cli_whole(state, "--hidden", width, 1, 100000);
    text += length;
    if (*text == '\0') return;
    text++;
  }
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
  if (key != KEY_HIDDEN) return ARGP_ERR_UNKNOWN;
  read_hidden(state, text, state->input);
  return 0;
}

int main(int argc, char **argv) {
  static const struct argp own = {options, parse_option, NULL, NULL, NULL, NULL, NULL};
  struct mlp mlp = {.layers = 2, .hidden = {512, 512}};
  const struct program program = {
      .about = "Train a multi-layer perceptron on MNIST, CIFAR-10 or generated digits.",
      .epochs = 20,
      .batch = 128,
      .lr = 0.1f,
      .options = &own,
      .input = &mlp,
      .build = build};
  return run_program(&program, argc, argv);
}
