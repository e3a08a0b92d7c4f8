/* The parts of starling-tune: command lines, single runs, comparisons, the search, what is told. */
#ifndef SL_TOOLS_TUNE_TUNE_H
#define SL_TOOLS_TUNE_TUNE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "tools/common/command_line.h"

/* Prints one line on the error stream and ends the program. */
void tune_die(int code, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
void *tune_grow(void *memory, size_t count, size_t size); /* realloc; no memory: tune_die */
char *tune_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
double tune_now(void); /* seconds */

/* ---- command lines (tune_words.c) ----
 * A setting is a text of words with blanks between: variables of the environment and options,
 * "STARPU_SCHED=dmda --replicas 2". "" is the command line as it was given. */

struct words {
  char **word; /* ends with NULL */
  size_t count;
};

void words_add(struct words *words, const char *text, size_t length);
void words_free(struct words *words);
bool word_is_variable(const char *word); /* "NAME=VALUE" */
struct words words_of_setting(const char *setting);

/* The program's words without the options that a trial must not use or sets itself: checkpoints,
 * saved weights, logs, traces, the number of steps. */
struct words words_for_trials(char *const *program);

/* Did the user say this already, "--replicas" on the command line or "STARPU_NCPU" in the
 * environment? */
bool is_fixed(char *const *program, const char *name);

/* The whole command line, quoted for a shell, with the variables that the search respected. */
char *command_line(char *const *program, const char *setting, const char *const *variables);

/* ---- one run (tune_trial.c) ---- */

struct runner {
  struct words program; /* of trials */
  const char *folder;   /* for logs */
  double seconds;       /* length of a run, from its first step on */
  double limit;         /* a run without a step in this time hangs */
  long steps;           /* at most; 0: as many as fit */
  const volatile sig_atomic_t *stop;
};

enum trial_end { TRIAL_DONE, TRIAL_FAILED, TRIAL_CUT };

struct trial {
  enum trial_end end;
  double rate; /* samples a second: the median of the later half of the steps */
  double cost; /* seconds that it took in all */
  long steps;
  int code;          /* its exit code, where it failed by itself; else 0 */
  char failure[256]; /* in one line */
  /* what the program said of itself; -1: nothing */
  int cpus, gpus, replicas;
  char scheduler[40];
};

/* Run the program once. At the deadline (tune_now()) it is cut off. */
void trial_run(const struct runner *runner, const char *setting, double deadline,
               struct trial *trial);

/* ---- comparisons (tune_contest.c) ---- */

/* Of some numbers: the median, and half of the range without the extremes, where there are five. */
struct estimate {
  double value, spread;
  size_t count;
};
struct estimate estimate_of(const double *numbers, size_t count);

/* All that is known of a setting. */
struct entry {
  char *setting;
  double *rates, *ratios; /* of all runs; to the default's of the same round */
  size_t rate_count, ratio_count;
  bool failed;
  char failure[256];
};

struct contest {
  const char *name;
  const char **settings; /* the first one is what the others must beat */
  size_t count;
  int rounds;
  bool whole; /* all settings run to the end */
  double deadline;
};

struct tuner {
  struct runner runner;
  struct entry *entries; /* the first one is the default, "" */
  size_t count;
  double least; /* a smaller gain counts as none, as a share */
  double cost;  /* seconds of a run, the mean so far */
  int runs;     /* number of runs of a setting */
  bool quiet;
};

struct entry *tuner_entry(struct tuner *tuner, const char *setting);
void tuner_free(struct tuner *tuner);

/* Runs all settings in turns, forth and back, so that a machine that becomes slower does so for
 * all. Each round has the default, too. gains[i] is the ratio of settings[i] to settings[0], from
 * rounds that had both. Returns the index of the winner: 0, unless another one is better by more
 * than the noise; of several that are alike the first one. */
size_t contest_run(struct tuner *tuner, const struct contest *contest, struct estimate *gains);

/* Is it a gain, beyond the noise? */
bool is_gain(const struct tuner *tuner, struct estimate ratio);

/* ---- the search (tune_search.c) ---- */

struct wishes { /* lists with commas, from the command line; NULL: made for the machine */
  const char *workers, *schedulers, *replicas, *microbatches;
  bool same_bits;
};

struct search {
  char *const *program;
  struct wishes wishes;
  int rounds;
  double end; /* tune_now() */
};

struct verdict {
  char *setting; /* the best one; "" */
  struct estimate gain;
  bool confirmed; /* in a comparison of its own with the default */
  bool tried;     /* there was time for anything */
};

/* Coordinate by coordinate: workers, replicas, schedulers, ..., and again where others have changed
 * meanwhile. */
struct verdict search_run(struct tuner *tuner, const struct search *search,
                          const struct trial *first);

/* The variables of the environment that the search leaves alone where they are set. */
extern const char *const search_variables[];

/* ---- what is told (tune_print.c) ---- */

/* sorted: the quickest first; else in the order of their first runs. */
void print_table(const struct tuner *tuner, bool sorted);
void print_verdict(const struct tuner *tuner, const struct verdict *verdict, char *const *program);

/* verdict may be NULL. errno's value, or 0. */
int write_json(const char *path, const struct tuner *tuner, const struct verdict *verdict,
               char *const *program);

#endif
