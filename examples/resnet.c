/* A ResNet for CIFAR-10, trained as in the paper (see resnet_model.c). */
#include <stdlib.h>

#include "examples/resnet_model.h"
#include "tools/train/run.h"

struct resnet {
  int depth;
  const char *write_data; /* folder for the data as files; NULL: none */
};

static enum sl_status build(struct sl_model *model, const struct sl_dataset_info *data,
                            enum sl_init init, const void *input) {
  const struct resnet *resnet = input;
  return resnet_build(model, resnet->depth, program_outputs(data), init);
}

static enum sl_status open_data(const struct cli *cli, void *input, struct sl_dataset **train,
                                struct sl_dataset **test) {
  const char *folder = ((const struct resnet *)input)->write_data;
  enum sl_status status = program_read_data(cli, train, test);
  if (status == SL_OK && folder) status = sl_cifar10_write(*train, folder, true);
  if (status == SL_OK && folder) status = sl_cifar10_write(*test, folder, false);
  return status;
}

/* ---- the program's own options ---- */

static const char *parse_depth(const struct option_row *row, const char *text, void *values) {
  struct resnet *resnet = values;
  const char *why = option_take(row, text, values);
  if (why || resnet_has_depth(resnet->depth)) return why;
  return "must be 6 n + 2, such as 8, 14, 20, 32, 44, 56 or 110";
}

static const struct option_row rows[] = {
    {"depth", "N", "Layers with weights, 6 n + 2: 8, 14, 20, 32, 44 ...",
     OPTION_FIELD(struct resnet, depth), .least = RESNET_LEAST_DEPTH, .most = RESNET_MOST_DEPTH,
     .parse = parse_depth, .flags = OPTION_OWN},
    {"write-data", "DIR", "Write the data as CIFAR-10's files, too",
     OPTION_FIELD(struct resnet, write_data), .least = 1, .flags = OPTION_OWN}};

int main(int argc, char **argv) {
  struct resnet resnet = {.depth = 20};
  const struct program program = {
      .cli = {.about = "Train a ResNet on CIFAR-10 or generated shapes.",
              .description =
                  "The network is the one of He et al., arXiv 1512.03385, section 4.2, with "
                  "projections as shortcuts where the shape changes.",
              .examples = "  resnet --depth 8 --epochs 2\n"
                          "  resnet --data cifar-10 --math bf16 --save resnet.json\n",
              .rows = rows,
              .row_count = sizeof rows / sizeof *rows,
              .input = &resnet},
      .data = "shapes",
      .augment = true,
      .init = SL_INIT_HE,
      .epochs = 20,
      .batch = 128,
      .lr = 0.1f,
      .momentum = 0.9f,
      .weight_decay = 1e-4f,
      .lr_schedule = "drops:50%:75%,warmup:2%",
      .build = build,
      .open_data = open_data};
  return run_program(&program, argc, argv);
}
