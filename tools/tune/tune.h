/* The parts of starling-tune: command lines, single runs, comparisons, the search, output. */
#ifndef SL_TOOLS_TUNE_TUNE_H
#define SL_TOOLS_TUNE_TUNE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "tools/common/command_line.h"

/* Prints one line on the error stream and ends the program. */
void tune_die(int code, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
/* As realloc; without memory it calls tune_die. */
void *tune_grow(void *memory, size_t count, size_t size);
char *tune_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
double tune_now(void); /* seconds */

/* ---- command lines (arguments.c) ----
 * A setting is a text of words, separated by blanks: variables of the environment and options, such
 * as "STARPU_SCHED=dmda --replicas 2". "" is the command line as given. */

struct words {
  char **word; /* ends with NULL */
  size_t count;
};

void words_add(struct words *words, const char *text, size_t length);
void words_free(struct words *words);
bool word_is_variable(const char *word); /* "NAME=VALUE" */
struct words words_of_setting(const char *setting);

/* The program's words without the options that a trial must not use or sets itself: checkpoints,
 * saved weights, logs, traces, the number of steps. *place: of these words as many as
 * words_before_more gives of the program's. */
struct words words_for_trials(char *const *program, size_t *place);

/* Has the user fixed this: "--replicas" on the command line, or "STARPU_NCPU" in the environment?
 */
bool is_fixed(char *const *program, const char *name);

/* The number of words before which further options go: all, or those before a "--" that ends the
 * program's options. In `taskset 1 -- lenet`, where a program follows it, it ends another one's. */
size_t words_before_more(char *const *program);

/* The whole command line, quoted for a shell, with the search variables that the user has set. */
char *command_line(char *const *program, const char *setting, const char *const *variables);

/* ---- one run (trial.c) ---- */

struct runner {
  struct words program; /* command line of trials */
  size_t place;         /* of further options among these words */
  const char *folder;   /* for logs */
  double seconds;       /* length of a run, counted from its first step */
  double limit;         /* a run without a step for this time has failed */
  long steps;           /* largest number of steps; 0: as many as fit */
  const volatile sig_atomic_t *stop;
};

enum trial_end { TRIAL_DONE, TRIAL_FAILED, TRIAL_CUT };

struct trial {
  enum trial_end end;
  double rate; /* samples a second: the median of the later half of the steps */
  double cost; /* seconds of the whole run */
  long steps;
  int code;          /* exit code, if it failed by itself; else 0 */
  char failure[256]; /* one line */
  /* numbers from the program's output; -1: unknown */
  int cpus, gpus, replicas;
  char scheduler[40];
};

/* Runs the program once, at most until the deadline (as tune_now()). */
void trial_run(const struct runner *runner, const char *setting, double deadline,
               struct trial *trial);

/* ---- comparisons (contest.c) ---- */

/* Median of some numbers, and half of their range; from five numbers on without the two extremes.
 */
struct estimate {
  double value, spread;
  size_t count;
};
struct estimate estimate_of(const double *numbers, size_t count);

/* All results of a setting. */
struct entry {
  char *setting;
  double *rates, *ratios; /* of all runs; ratios are to the default in the same round */
  size_t rate_count, ratio_count;
  bool failed;
  char failure[256];
};

struct contest {
  const char *name;
  const char **settings; /* the others are compared with the first one */
  size_t count;
  int rounds;
  bool whole; /* no setting is dropped before the last round */
  double deadline;
};

struct tuner {
  struct runner runner;
  struct entry *entries; /* the first one is the default, "" */
  size_t count;
  double least; /* a gain below this share does not count */
  double cost;  /* mean duration of a run so far, in seconds */
  int runs;     /* number of runs so far */
  bool quiet;
};

struct entry *tuner_entry(struct tuner *tuner, const char *setting);
void tuner_free(struct tuner *tuner);

/* Runs all settings in turns, forwards and backwards, so that a machine that slows down does so for
 * all. Each round includes the default. gains[i] is the ratio of settings[i] to settings[0] in
 * rounds that have both. Returns the index of the winner: 0, unless another setting is better by
 * more than the noise; of several equal ones the first. */
size_t contest_run(struct tuner *tuner, const struct contest *contest, struct estimate *gains);

/* Is the ratio a gain beyond the noise? */
bool is_gain(const struct tuner *tuner, struct estimate ratio);

/* ---- the search (search.c) ---- */

struct wishes { /* comma-separated lists from the command line; NULL: chosen for the machine */
  const char *workers, *schedulers, *replicas, *microbatches;
  bool same_bits;
};

struct search {
  char *const *program;
  struct wishes wishes;
  int rounds;
  double end; /* as tune_now() */
};

struct verdict {
  char *setting; /* the best setting; "": the command line as given */
  struct estimate gain;
  bool confirmed; /* compared with the default again, in a contest of its own */
  bool tried;     /* another setting than the default had a run */
};

/* Goes through the dimensions (workers, replicas, schedulers, ...) one by one, and repeats those
 * that were compared before others changed. */
struct verdict search_run(struct tuner *tuner, const struct search *search,
                          const struct trial *first);

/* Environment variables that the search does not change if the user has set them. */
extern const char *const search_variables[];

/* ---- output (print.c) ---- */

/* sorted: the fastest first; else in the order of their first runs. */
void print_table(const struct tuner *tuner, bool sorted);
void print_verdict(const struct tuner *tuner, const struct verdict *verdict, char *const *program);

/* verdict may be NULL. Returns errno's value, or 0. */
int write_json(const char *path, const struct tuner *tuner, const struct verdict *verdict,
               char *const *program);

#endif
