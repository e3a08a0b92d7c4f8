/* starling-tune: tries settings of a trainer for a few steps each and prints the best command line.
 */
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/common/option_table.h"
#include "tools/common/output_bytes.h"
#include "tools/tune/tune.h"

struct question {
  char **program;
  const char **settings; /* for --compare; the first one is "" */
  size_t setting_count;
  struct wishes wishes;
  double seconds, trial_seconds, limit, least; /* seconds 0: not given */
  int rounds;
  int64_t steps;
  const char *json;
  bool quiet;
};

/* ---- the command line ---- */

static bool is_list(const char *text, const char *allowed) {
  return *text && strspn(text, allowed) == strlen(text);
}

static const char *parse_numbers(const struct option_row *row, const char *text, void *values) {
  return is_list(text, "0123456789,") ? option_take(row, text, values)
                                      : "must be a list such as 1,2,4";
}

static const char *parse_names(const struct option_row *row, const char *text, void *values) {
  return is_list(text, "abcdefghijklmnopqrstuvwxyz0123456789-_,")
             ? option_take(row, text, values)
             : "must be a list such as prio,dmda";
}

static const char *parse_setting(const struct option_row *row, const char *text, void *values) {
  struct question *q = values;
  struct words words = words_of_setting(text);
  bool empty = !words.count;
  bool fine = !empty && (word_is_variable(words.word[0]) || words.word[0][0] == '-');
  (void)row;
  words_free(&words);
  if (!fine) return empty ? "the setting is empty" : "a setting is NAME=VALUE or --option VALUE";
  q->settings = tune_grow(q->settings, q->setting_count + 2, sizeof *q->settings);
  if (!q->setting_count) q->settings[q->setting_count++] = "";
  q->settings[q->setting_count++] = text;
  return NULL;
}

#define FIELD(member) OPTION_FIELD(struct question, member)
#define NUMBERS(member) FIELD(wishes.member), .parse = parse_numbers

static const struct option_row rows[] = {
    OPTION_TITLE("Kind of search:"),
    {"seconds", "S", "Time for the whole search (--compare: no limit)", FIELD(seconds),
     .unset = "120", .least = 1, .most = 1e6},
    {"compare", "SETTING",
     "No search: this setting beside the command line as given, such as \"STARPU_SCHED=dmda "
     "--replicas 2\"; may be repeated",
     .parse = parse_setting},
    {"same-bits", NULL,
     "Try only settings that keep the trained weights the same to the bit: no other replicas, "
     "microbatches, stages, kernels, devices",
     FIELD(wishes.same_bits)},

    OPTION_TITLE("Settings to try:"),
    {"workers", "LIST", "Numbers of CPU workers, such as 1,2,4", NUMBERS(workers)},
    {"schedulers", "LIST", "StarPU's schedulers, such as prio,dmda", FIELD(wishes.schedulers),
     .parse = parse_names},
    {"replicas", "LIST", "Numbers of replicas", NUMBERS(replicas)},
    {"microbatches", "LIST", "Numbers of microbatches", NUMBERS(microbatches)},

    OPTION_TITLE("Measurement:"),
    {"rounds", "N", "Runs of each setting in a comparison", FIELD(rounds),
     .unset = "3; --compare: 5", .least = 1, .most = 1000},
    {"trial-seconds", "S", "Length of a run from its first step on", FIELD(trial_seconds),
     .least = 0.01, .most = 1e5},
    {"steps", "N", "Steps of a run at most", FIELD(steps), .least = 1, .most = 1e9},
    {"limit", "S", "A run without a step for S seconds has failed", FIELD(limit), .least = 0.1,
     .most = 1e6},
    {"least", "PERCENT", "A smaller gain counts as none", FIELD(least), .least = 0, .most = 100},

    OPTION_TITLE("Output:"),
    {"json", "FILE", "Write the table and the result there, too", FIELD(json),
     .flags = OPTION_WRITES},
    {"quiet", NULL, "Print the table and the result only", FIELD(quiet), .letter = 'q'}};

/* The remaining words are the program and its arguments. */
static int take_program(void *input, char **words, int count, const char **why) {
  (void)why;
  ((struct question *)input)->program = words;
  return count;
}

static const char *check(void *input) {
  const struct question *q = input;
  const struct wishes *w = &q->wishes;
  bool searches = w->workers || w->schedulers || w->replicas || w->microbatches || w->same_bits;
  if (q->settings && searches)
    return "--compare: there is no search then; leave --same-bits, --workers, --schedulers, "
           "--replicas and --microbatches out, or --compare";
  if (w->same_bits && (w->replicas || w->microbatches))
    return "--same-bits: other replicas and microbatches change the bits; leave one of them out";
  return q->program && **q->program ? NULL : "no program is named; see --help";
}

static void parse(struct question *q, int argc, char **argv) {
  const struct option_program program = {
      .usage = "[--] PROGRAM ARGUMENTS...",
      .about = "Find the fastest settings of a trainer.",
      .description =
          "Each setting (workers, replicas, schedulers, microbatches, ...) is tried for a few "
          "steps; a table has the gain of each, and the last lines have the best command line. "
          "Settings on PROGRAM's command line or in the environment are kept as they are. "
          "Checkpoints, logs and weights of PROGRAM are left alone.",
      .examples =
          "  starling-tune lenet --data mnist\n"
          "  starling-tune --same-bits --seconds 60 resnet\n"
          "  starling-tune --compare 'STARPU_SCHED=dmda' --compare '--replicas 4' mlp\n",
      .manual = {.environment = "TMPDIR: folder for the logs of the runs (default /tmp).",
                 .see_also = "lenet(1), lstm_lm(1), mlp(1), resnet(1)"},
      .sets = {{rows, sizeof rows / sizeof *rows, q, NULL, NULL}},
      .in_order = true,
      .input = q,
      .argument = take_program,
      .check = check};
  option_parse(&program, argc, argv);
}

/* ---- functions for all parts ---- */

static char *place; /* folder for logs */

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
  (void)info, (void)type, (void)walk;
  remove(path);
  return 0;
}

static void remove_folder(void) {
  const int most_open = 8;
  if (place) nftw(place, remove_one, most_open, FTW_DEPTH | FTW_PHYS);
  free(place);
  place = NULL;
}

void tune_die(int code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  fflush(stdout);
  fprintf(stderr, "starling-tune: ");
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  va_end(list);
  remove_folder();
  exit(code);
}

void *tune_grow(void *memory, size_t count, size_t size) {
  void *grown = reallocarray(memory, count, size);
  if (!grown) tune_die(EXIT_FAILED, "no memory for %zu x %zu bytes", count, size);
  return grown;
}

char *tune_text(const char *format, ...) {
  char *text;
  va_list list;
  va_start(list, format);
  if (vasprintf(&text, format, list) < 0) tune_die(EXIT_FAILED, "no memory for a text");
  va_end(list);
  return text;
}

double tune_now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- the run ---- */

static volatile sig_atomic_t stopped; /* number of the signal, or 0 */

static void on_signal(int number) { stopped = number; }

/* Catches each signal once: a second one ends the program immediately. */
static void catch_signals(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND | SA_RESTART};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGHUP, &action, NULL);
}

static void make_folder(void) {
  const char *above = getenv("TMPDIR");
  place = tune_text("%s/starling-tune-XXXXXX", above && *above ? above : "/tmp");
  if (mkdtemp(place)) return;
  int error = errno;
  char *name = place;
  place = NULL; /* the folder does not exist: nothing to remove */
  tune_die(EXIT_FAILED, "%s: cannot be made: %s", name, strerror(error));
}

/* Checks that the file can be written before the measurements, which take minutes. */
static void check_json(const char *path) {
  int error = output_check(path);
  if (error)
    tune_die(EXIT_FAILED, "--json %s: cannot be written: %s", path,
             error == EISDIR ? "it is a folder" : strerror(error));
}

/* Runs the program as given, to see that it works. The run also warms caches and is not counted. */
static void try_first(struct tuner *tuner, const struct question *q, struct trial *first) {
  trial_run(&tuner->runner, "", INFINITY, first);
  tuner->cost = first->cost;
  tuner->runs = 1;
  if (first->end == TRIAL_DONE || stopped) return;
  tune_die(first->code == EXIT_USAGE ? EXIT_USAGE : EXIT_FAILED, "%s: %s", q->program[0],
           first->failure);
}

static void compare_only(struct tuner *tuner, const struct question *q) {
  struct estimate *gains = tune_grow(NULL, q->setting_count, sizeof *gains);
  struct contest contest = {"comparison",
                            q->settings,
                            q->setting_count,
                            q->rounds ? q->rounds : 5,
                            true,
                            q->seconds ? tune_now() + q->seconds : INFINITY};
  contest_run(tuner, &contest, gains);
  free(gains);
  print_table(tuner, false);
}

static struct verdict search(struct tuner *tuner, const struct question *q,
                             const struct trial *first, double began) {
  const double usual = 120;
  struct search search = {.program = q->program,
                          .wishes = q->wishes,
                          .rounds = q->rounds ? q->rounds : 3,
                          .end = began + (q->seconds ? q->seconds : usual)};
  struct verdict verdict = search_run(tuner, &search, first);
  print_table(tuner, true);
  print_verdict(tuner, &verdict, q->program);
  return verdict;
}

/* Ends by the signal after the clean-up, so that the parent process sees it. */
static void end_by_signal(void) {
  if (!stopped) return;
  fprintf(stderr, "starling-tune: interrupted: the table has the runs up to now\n");
  fflush(stdout);
  signal(stopped, SIG_DFL);
  raise(stopped);
}

int main(int argc, char **argv) {
  struct question q = {.trial_seconds = 1.5, .limit = 60, .least = 2};
  double began = tune_now();
  parse(&q, argc, argv);
  if (q.json) check_json(q.json);
  make_folder();
  catch_signals();
  struct tuner tuner = {.least = q.least / 100, .quiet = q.quiet};
  size_t at = 0;
  struct words words = words_for_trials(q.program, &at);
  tuner.runner = (struct runner){.program = words,
                                 .place = at,
                                 .folder = place,
                                 .seconds = q.trial_seconds,
                                 .limit = q.limit,
                                 .steps = q.steps,
                                 .stop = &stopped};
  tuner_entry(&tuner, ""); /* the default is the first entry */
  struct trial first;
  struct verdict verdict = {0};
  try_first(&tuner, &q, &first);
  if (!stopped && q.settings) compare_only(&tuner, &q);
  if (!stopped && !q.settings) verdict = search(&tuner, &q, &first, began);
  int error = q.json ? write_json(q.json, &tuner, verdict.setting ? &verdict : NULL, q.program) : 0;
  if (error) tune_die(EXIT_FAILED, "--json %s: cannot be written: %s", q.json, strerror(error));
  remove_folder();
  end_by_signal();
  free(verdict.setting);
  free(q.settings);
  tuner_free(&tuner);
  return finish_output("starling-tune", EXIT_DONE);
}
