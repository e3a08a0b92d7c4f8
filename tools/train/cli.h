/* The command line of a trainer: the options that all trainers share, and the trainer's own. */
#ifndef SL_TOOLS_TRAIN_CLI_H
#define SL_TOOLS_TRAIN_CLI_H

#include <starling.h>

#include "tools/common/command_line.h"
#include "tools/common/option_table.h"

enum { CLI_MOST_OWN = 32 }; /* options of one program */

enum { SHIFT_USUAL = -1 }; /* pixels that suit the data */

/* --augment=LIST */
struct augmentation {
  const char *text; /* the list; NULL: what is usual for the data */
  int shift;        /* pixels; 0: none */
  bool flip;
  double brightness, contrast, saturation, hue; /* strengths; 0: none */
};

struct cli {
  /* data */
  const char *data; /* a folder, a text file, "digits" or "grammar" */
  int64_t batch;
  bool shuffle, augment;
  struct augmentation augmentation; /* if there is one */
  bool whole;                       /* --no-augment: windows of --crop are not random */
  int64_t crop_h, crop_w;           /* 0: not cropped */
  const char *target, *inputs, *tokens, *ignore,
      *validation;  /* of sl_reader_options; NULL: not given */
  const char *fold; /* "2/5"; NULL: not given */
  enum sl_missing missing;
  int64_t height, width;
  bool skip_bad, raw;
  int readers; /* 0: the library's */
  /* training; steps 0: as many as the epochs have, epochs 0: as many as the steps need */
  int64_t epochs, steps;
  int64_t usual_epochs; /* without either */
  int64_t patience;     /* evaluations without an improvement; 0: any number */
  const char *metric;   /* that decides what is best; NULL: the loss */
  uint64_t seed;
  enum sl_init init;
  const char *loss, *task;   /* NULL: as the data say */
  const char *class_weights; /* NULL: all 1 */
  const char *optimizer_name, *lr_schedule;
  const char *own_optimizer, *own_schedule; /* the program's, where the options are not given */
  bool chose_updates;                       /* the task did, instead of options */
  double lr, momentum, weight_decay, clip;  /* before the check negative: not given */
  bool find_rate;
  int64_t search_steps;          /* of --find-rate; 0: the usual number */
  double average;                /* of the weights; 0: none */
  struct sl_optimizer optimizer; /* made of the six above, checked */
  bool decay_weights_only;
  const char *lr_of, *decay_of, *freeze; /* layers and factors; NULL: none */
  /* devices */
  const char *devices;
  int replicas, microbatches, stages;
  const char *recompute;                  /* layers; NULL: none */
  const char *split;                      /* NULL: even */
  const char *placement, *placement_file; /* NULL: none */
  enum sl_kvstore_kind kvstore;
  enum sl_math math;
  bool tune, eager, log_gradients, confusion;
  const char *memory_limit, *swap; /* NULL: none */
  double stall_timeout;            /* seconds; 0: none */
  /* ranks */
  int servers;
  int64_t bigarray_bound; /* 0: the library's */
  const char *compress;   /* NULL: no compression */
  int max_staleness;      /* 0: any */
  enum sl_exchange exchange;
  double timeout;                        /* seconds; 0: none; before the check -1: not said */
  const char *net_interface, *net_ports; /* of rank 0's heartbeat; NULL: any */
  /* files; NULL: none */
  const char *load, *load_part, *save, *best, *log;
  const char *checkpoint;         /* a folder */
  int64_t checkpoint_every, keep; /* steps, 0: each epoch; the newest ones */
  double checkpoint_minutes;      /* above 0: by the clock instead */
  bool resume;
  const char *trace;               /* a folder; NULL: none */
  int64_t trace_first, trace_last; /* steps; 0: the default */
  /* output */
  bool summary, quiet;
  const char *report_failure; /* NULL: none */
  /* the program's own options, and their texts as they were given; NULL: not given */
  struct option_set own;
  const char *own_given[CLI_MOST_OWN];
};

/* The rows of the shared options; their fields are struct cli's (tools/common/trainer_options.def).
 */
extern const struct option_row cli_rows[];
extern const size_t cli_row_count;

/* The shared rows with the values of cli. */
struct option_set cli_set(const struct cli *cli);

/* A trainer's part of the command line. */
struct cli_program {
  const char *about, *description, *examples; /* of --help and the man page */
  const char *usage, *argument;  /* NULL: there are options alone; else what --help calls the word
                                    that is no option, and the name of the row that takes it */
  const struct option_row *rows; /* of its own, at most CLI_MOST_OWN */
  size_t row_count;
  void *input;                       /* the struct that they fill */
  const char *(*check)(void *input); /* NULL, or as option_program's */
  /* The same, of --save and --best. */
  const char *(*beside)(void *input, const char *weights, int index, char *path, size_t size);
};

/* The defaults that all trainers share. */
void cli_default(struct cli *cli);

/* Reads argv into cli, which holds the program's defaults. Prints one line and exits with 2 for bad
 * usage. */
void cli_parse(struct cli *cli, const struct cli_program *program, int argc, char **argv);

/* Makes the optimizer and checks options against each other. Returns NULL, or the message. */
const char *cli_check(struct cli *cli);

/* --placement auto: else a text for sl_place, or none. */
bool cli_is_automatic(const struct cli *cli);

/* --split auto: else weights, or none. */
bool cli_splits_itself(const struct cli *cli);

/* Where several ranks fail for the same reason before they know of each other, the first one speaks
 * for all and the launcher ends the others (mpirun after a second): they wait for that. false: the
 * launcher asked this one to end. */
bool cli_let_first_speak(void);

#endif
