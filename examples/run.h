/* What every trainer does, from the options to the last line; a trainer adds its model. */
#ifndef SL_EXAMPLES_RUN_H
#define SL_EXAMPLES_RUN_H

#include "cli.h"

struct program {
  const char *about; /* the first lines of --help */
  /* defaults; lr is that of SGD (Adam's is the library's) */
  int64_t epochs, batch;
  float lr;
  /* options of its own, or NULL; input is handed to their parser and to build */
  const struct argp *options;
  void *input;
  /* Append the layers; the last one gives data->classes logits. */
  enum sl_status (*build)(struct sl_model *model, const struct sl_dataset_info *data,
                          enum sl_init init, const void *input);
};

/* Train as the command line says. Returns the exit code. */
int run_program(const struct program *program, int argc, char **argv);

#endif
