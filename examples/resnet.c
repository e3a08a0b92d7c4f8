/* A ResNet for CIFAR-10, trained as in its paper (see resnet_model.c). */
#include <stdlib.h>

#include "examples/resnet_model.h"
#include "tools/train/run.h"

struct resnet {
  int depth;
  const char *write_data; /* a folder; NULL: none */
};

static enum sl_status build(struct sl_model *model, const struct sl_dataset_info *data,
                            enum sl_init init, const void *input) {
  const struct resnet *resnet = input;
  return resnet_build(model, resnet->depth, data->classes, init);
}

static enum sl_status open_data(const struct cli *cli, void *input, struct sl_dataset **train,
                                struct sl_dataset **test) {
  const char *folder = ((const struct resnet *)input)->write_data;
  enum sl_status status = sl_dataset_open(cli->data, cli->seed, true, train);
  if (status == SL_OK) status = sl_dataset_open(cli->data, cli->seed, false, test);
  if (status == SL_OK && folder) status = sl_cifar10_write(*train, folder, true);
  if (status == SL_OK && folder) status = sl_cifar10_write(*test, folder, false);
  return status;
}

/* ---- its own options ---- */

enum { KEY_DEPTH = 1000, KEY_WRITE_DATA };

static const struct argp_option options[] = {
    {"depth", KEY_DEPTH, "N", 0, "Layers with weights, 6 n + 2: 8, 14, 20 (default), 32, 44 ...",
     0},
    {"write-data", KEY_WRITE_DATA, "DIR", 0, "Write the data as CIFAR-10's files, too", 0},
    {0}};

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct resnet *resnet = state->input;
  switch (key) {
    case KEY_DEPTH:
      resnet->depth = (int)cli_whole(state, "--depth", text, RESNET_LEAST_DEPTH, RESNET_MOST_DEPTH);
      if (!resnet_has_depth(resnet->depth))
        cli_refuse(state, "--depth '%s': must be 6 n + 2, such as 8, 14, 20, 32, 44, 56 or 110",
                   text);
      break;
    case KEY_WRITE_DATA:
      if (*text == '\0') cli_refuse(state, "--write-data: the name is empty");
      resnet->write_data = text;
      break;
    default: return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

int main(int argc, char **argv) {
  static const struct argp own = {options, parse_option, NULL, NULL, NULL, NULL, NULL};
  struct resnet resnet = {.depth = 20};
  const struct program program = {
      .about =
          "Train a ResNet on CIFAR-10 or generated shapes.\vUnless told otherwise: --data "
          "shapes --augment --init he --momentum 0.9 --weight-decay 0.0001 --lr-schedule "
          "drops:50%:75%,warmup:2%.",
      .data = "shapes",
      .augment = true,
      .init = SL_INIT_HE,
      .epochs = 20,
      .batch = 128,
      .lr = 0.1f,
      .momentum = 0.9f,
      .weight_decay = 1e-4f,
      .lr_schedule = "drops:50%:75%,warmup:2%",
      .options = &own,
      .input = &resnet,
      .build = build,
      .open_data = open_data};
  return run_program(&program, argc, argv);
}
