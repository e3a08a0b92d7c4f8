/* The options that all trainers share, read strictly: a number is a number and nothing else. */
#ifndef SL_TOOLS_TRAIN_CLI_H
#define SL_TOOLS_TRAIN_CLI_H

#include <argp.h>
#include <starling.h>

/* Exit codes of all programs. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

enum { CLI_MOST_OWN = 32 }; /* options of one program */

struct cli {
  /* data */
  const char *data; /* a folder, a text file, "digits" or "grammar" */
  int64_t batch;
  bool shuffle, augment;
  /* training; steps 0: as many as the epochs have, epochs 0: as many as the steps need */
  int64_t epochs, steps;
  uint64_t seed;
  enum sl_init init;
  const char *optimizer_name, *lr_schedule;
  double lr, momentum, weight_decay, clip; /* negative: not given */
  struct sl_optimizer optimizer;           /* made of the five above, checked */
  /* devices */
  const char *devices;
  int replicas, microbatches, stages;
  const char *split;                      /* NULL: even */
  const char *placement, *placement_file; /* NULL: none */
  enum sl_kvstore_kind kvstore;
  bool has_kvstore; /* given; else device where all devices are GPUs */
  enum sl_math math;
  bool tune;
  const char *memory_limit, *swap; /* NULL: none */
  double stall_timeout;            /* seconds; 0: none */
  /* ranks */
  int servers;
  int64_t bigarray_bound; /* 0: the library's */
  const char *compress;   /* NULL: nothing is */
  int max_staleness;      /* 0: any */
  enum sl_exchange exchange;
  double timeout; /* seconds; 0: none */
  /* files; NULL: none */
  const char *load, *save, *log;
  const char *checkpoint;         /* a folder */
  int64_t checkpoint_every, keep; /* steps, 0: each epoch; the newest ones */
  double checkpoint_minutes;      /* above 0: by the clock instead */
  bool resume;
  const char *trace;               /* a folder; NULL: none */
  int64_t trace_first, trace_last; /* steps; 0: the default */
  /* output */
  bool summary, quiet;
  /* the program's own options as they were given, for ranks to compare; NULL: not given */
  const struct argp_option *own;
  const char *own_text[CLI_MOST_OWN];
};

/* Read argv into cli, which holds the program's defaults (cli_default() first). own may be NULL:
 * the program's own options, whose parser gets own_input as its input. Prints one line and exits
 * with 2 for bad usage. */
void cli_default(struct cli *cli);
const char *cli_name(const char *path);
void cli_parse(struct cli *cli, const char *about, const struct argp *own, void *own_input,
               int argc, char **argv);

/* For the programs' own options: the number that text is, or one line and exit code 2. option is
 * "--hidden". */
int64_t cli_whole(const struct argp_state *state, const char *option, const char *text,
                  int64_t least, int64_t most);
double cli_real(const struct argp_state *state, const char *option, const char *text, double least,
                double most);

/* --placement auto: else a text for sl_place, or none. */
bool cli_is_automatic(const struct cli *cli);

/* --split auto: else weights, or none. */
bool cli_splits_itself(const struct cli *cli);

/* Where several ranks fail for the same reason before they know of each other, the first one speaks
 * for all and the launcher ends the others (mpirun after a second): they wait for that. false: it
 * asked this one to end. */
bool cli_let_first_speak(void);

/* One line and exit code 2. */
void cli_refuse(const struct argp_state *state, const char *format, ...) SL_PRINTF(2, 3)
    __attribute__((noreturn));

#endif
