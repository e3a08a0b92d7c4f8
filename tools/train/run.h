/* The framework of all trainers, from the options to the last line; a trainer adds its model. */
#ifndef SL_TOOLS_TRAIN_RUN_H
#define SL_TOOLS_TRAIN_RUN_H

#include "tools/train/cli.h"

struct program {
  struct cli_program cli; /* --help, and the program's own options */
  const char *data;       /* NULL: digits */
  /* defaults; lr, momentum, weight_decay and beta2 (0: the library's) are those of the program's
   * optimizer: others have the library's */
  int64_t epochs, batch;
  const char *optimizer; /* NULL: sgd */
  float lr, momentum, weight_decay, beta2;
  bool decay_weights_only;
  float clip;              /* 0: none */
  const char *lr_schedule; /* NULL: constant */
  enum sl_init init;
  bool augment; /* of images, unless told otherwise */
  bool windows; /* a text's samples are windows that know nothing of each other: they come in an
                   order of their own in each epoch, and no state is carried from one to the next */
  /* Append the layers; the last one has program_outputs(data) outputs. */
  enum sl_status (*build)(struct sl_model *model, const struct sl_dataset_info *data,
                          enum sl_init init, const void *input);
  /* Instead of build: a whole model, which need not be built yet. */
  enum sl_status (*open_model)(struct sl_context *context, enum sl_init init, const void *input,
                               struct sl_model **model);
  /* NULL: images by --data. Else opens the training set and the test set; for a text the messages
   * have the perplexity. */
  enum sl_status (*open_data)(const struct cli *cli, void *input, struct sl_dataset **train,
                              struct sl_dataset **test);
  /* NULL, or: do the sets have a text? Then options of other data are refused before it is read. */
  bool (*takes_text)(const void *input);
  /* NULL, or instead of sl_model_load and sl_model_save: reads and writes the weights of --load,
   * and of --save and --best, which may be folders then. */
  enum sl_status (*load)(struct sl_model *model, const char *path, const void *input);
  enum sl_status (*write)(struct sl_model *model, const char *path, const void *input);
  /* NULL, or writes further files beside the weights at path, which cli.beside names. */
  enum sl_status (*save)(const char *path, const void *input);
  /* NULL, or after the last epoch: one more line of the result. */
  void (*tell)(const void *input, char *line, size_t size);
  /* NULL, or above 0: `instead` is called instead of training, with the weights of --load and
   * without data. Returns a status and sets sl_error, as the library does. */
  const int64_t *asks_instead;
  enum sl_status (*instead)(struct sl_context *context, const struct cli *cli, void *input);
  /* NULL: images; else what the loss is a mean of, and what throughput counts: "words". */
  const char *(*unit)(const void *input);
  /* NULL, or epochs after which the learning rate is halved, again and again; 0: never. */
  const int64_t *half_life;
  /* NULL, or time steps a task; 0: the whole sequence. */
  const int64_t *chunk;
};

/* A logit for each class, or an output for each value of the targets. */
int64_t program_outputs(const struct sl_dataset_info *data);

/* Opens --data as the options of the data say. */
enum sl_status program_read_data(const struct cli *cli, struct sl_dataset **train,
                                 struct sl_dataset **test);

/* Train as the command line says. Returns the exit code. */
int run_program(const struct program *program, int argc, char **argv);

#endif
