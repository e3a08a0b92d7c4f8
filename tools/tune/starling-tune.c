/* starling-tune: tries a trainer's settings for a few steps each and tells the best command line.
 */
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/tune/tune.h"

enum {
  KEY_SECONDS = 256,
  KEY_COMPARE,
  KEY_ROUNDS,
  KEY_TRIAL_SECONDS,
  KEY_STEPS,
  KEY_LIMIT,
  KEY_LEAST,
  KEY_WORKERS,
  KEY_SCHEDULERS,
  KEY_REPLICAS,
  KEY_MICROBATCHES,
  KEY_SAME_BITS,
  KEY_JSON
};

static const struct argp_option options[] = {
    {"seconds", KEY_SECONDS, "S", 0, "Time for all of it (default 120; --compare: no limit)", 0},
    {"compare", KEY_COMPARE, "SETTING", 0,
     "No search: this setting beside the command line as given, such as \"STARPU_SCHED=dmda "
     "--replicas 2\"; may be repeated",
     0},
    {"same-bits", KEY_SAME_BITS, NULL, 0,
     "Only what keeps the trained weights the same to the bit: no other replicas, microbatches, "
     "stages, kernels, devices",
     0},
    {"workers", KEY_WORKERS, "LIST", 0, "Numbers of CPU workers to try, such as 1,2,4", 1},
    {"schedulers", KEY_SCHEDULERS, "LIST", 0, "Schedulers to try, such as prio,dmda", 1},
    {"replicas", KEY_REPLICAS, "LIST", 0, "Numbers of replicas to try", 1},
    {"microbatches", KEY_MICROBATCHES, "LIST", 0, "Numbers of microbatches to try", 1},
    {"rounds", KEY_ROUNDS, "N", 0, "Runs of each setting in a comparison (default 3; --compare: 5)",
     2},
    {"trial-seconds", KEY_TRIAL_SECONDS, "S", 0,
     "A run goes on for so long from its first step on (default 1.5)", 2},
    {"steps", KEY_STEPS, "N", 0, "And for N steps at most", 2},
    {"limit", KEY_LIMIT, "S", 0, "A run without a step for so long has failed (default 60)", 2},
    {"least", KEY_LEAST, "PERCENT", 0, "A smaller gain counts as none (default 2)", 2},
    {"json", KEY_JSON, "FILE", 0, "Write the table and the result there, too", 3},
    {"quiet", 'q', NULL, 0, "Print nothing on the way", 3},
    {0}};

struct question {
  char **program;
  const char **settings; /* of --compare; the first one is "" */
  size_t setting_count;
  struct wishes wishes;
  double seconds, trial_seconds, limit, least; /* seconds 0: not given */
  int rounds;
  long steps;
  const char *json;
  bool quiet;
};

/* ---- what is asked for ---- */

static double read_number(const char *option, const char *text, double least, double most) {
  char *end;
  double value = strtod(text, &end);
  if (strspn(text, "0123456789.") != strlen(text) || !*text || *end ||
      !(value >= least && value <= most))
    tune_die(EXIT_USAGE, "%s '%s': must be a number from %g to %g", option, text, least, most);
  return value;
}

static int read_whole(const char *option, const char *text, double most) {
  double value = read_number(option, text, 1, most);
  if (value != floor(value)) tune_die(EXIT_USAGE, "%s '%s': must be a whole number", option, text);
  return (int)value;
}

/* "1,2,4"; names where numbers is false. */
static const char *read_list(const char *option, const char *text, bool numbers) {
  const char *allowed = numbers ? "0123456789," : "abcdefghijklmnopqrstuvwxyz0123456789-_,";
  if (!*text || strspn(text, allowed) != strlen(text))
    tune_die(EXIT_USAGE, "%s '%s': must be a list such as %s", option, text,
             numbers ? "1,2,4" : "prio,dmda");
  return text;
}

static void add_setting(struct question *q, const char *text) {
  struct words words = words_of_setting(text);
  if (!words.count) tune_die(EXIT_USAGE, "--compare '%s': the setting is empty", text);
  if (!word_is_variable(words.word[0]) && words.word[0][0] != '-')
    tune_die(EXIT_USAGE, "--compare '%s': a setting is NAME=VALUE or --option VALUE", text);
  words_free(&words);
  q->settings = tune_grow(q->settings, q->setting_count + 2, sizeof *q->settings);
  if (!q->setting_count) q->settings[q->setting_count++] = "";
  q->settings[q->setting_count++] = text;
}

static bool parse_candidates(int key, char *text, struct question *q) {
  struct wishes *wishes = &q->wishes;
  switch (key) {
    case KEY_WORKERS: wishes->workers = read_list("--workers", text, true); break;
    case KEY_SCHEDULERS: wishes->schedulers = read_list("--schedulers", text, false); break;
    case KEY_REPLICAS: wishes->replicas = read_list("--replicas", text, true); break;
    case KEY_MICROBATCHES: wishes->microbatches = read_list("--microbatches", text, true); break;
    case KEY_SAME_BITS: wishes->same_bits = true; break;
    case KEY_COMPARE: add_setting(q, text); break;
    default: return false;
  }
  return true;
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct question *q = state->input;
  switch (key) {
    case KEY_SECONDS: q->seconds = read_number("--seconds", text, 1, 1e6); break;
    case KEY_TRIAL_SECONDS:
      q->trial_seconds = read_number("--trial-seconds", text, 0.01, 1e5);
      break;
    case KEY_LIMIT: q->limit = read_number("--limit", text, 0.1, 1e6); break;
    case KEY_LEAST: q->least = read_number("--least", text, 0, 100) / 100; break;
    case KEY_ROUNDS: q->rounds = read_whole("--rounds", text, 1000); break;
    case KEY_STEPS: q->steps = read_whole("--steps", text, 1e9); break;
    case KEY_JSON: q->json = text; break;
    case 'q': q->quiet = true; break;
    case ARGP_KEY_ARG: /* it and all that follows is the program's */
      q->program = state->argv + state->next - 1;
      state->next = state->argc;
      break;
    case ARGP_KEY_END:
      if (!q->program || !**q->program) tune_die(EXIT_USAGE, "no program is named; see --help");
      break;
    default: return parse_candidates(key, text, q) ? 0 : ARGP_ERR_UNKNOWN;
  }
  return 0;
}

/* ---- for all parts ---- */

static char *place; /* the folder of logs */

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

static volatile sig_atomic_t stopped; /* by which signal */

static void on_signal(int number) { stopped = number; }

/* Once: a second one ends it at once. */
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
  place = NULL; /* nothing to remove */
  tune_die(EXIT_FAILED, "%s: cannot be made: %s", name, strerror(error));
}

/* Before the measuring, which takes minutes. */
static void check_json(const char *path) {
  struct stat info;
  bool there = stat(path, &info) == 0;
  char *name = tune_text("%s.%d", path, (int)getpid());
  FILE *file = there && !S_ISREG(info.st_mode) ? NULL : fopen(name, "wxe");
  if (!file)
    tune_die(EXIT_FAILED, "--json %s: cannot be written: %s", path,
             there && S_ISDIR(info.st_mode) ? "it is a folder" : strerror(errno ? errno : EEXIST));
  fclose(file);
  unlink(name);
  free(name);
}

/* The program as given: does it run at all? It also warms caches, and is not counted. */
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

/* Orderly, but to whoever waits for us like what it is. */
static void end_by_signal(void) {
  if (!stopped) return;
  fprintf(stderr, "starling-tune: interrupted: the table has what there was time for\n");
  fflush(stdout);
  signal(stopped, SIG_DFL);
  raise(stopped);
}

int main(int argc, char **argv) {
  static const struct argp argp = {
      options,
      parse_option,
      "[--] PROGRAM ARGUMENTS...",
      "Tries a trainer's settings for a few steps each (workers, replicas, schedulers, "
      "microbatches, ...) and prints what they bring and the best command line. What is given on "
      "PROGRAM's command line or in the environment stays; its checkpoints, logs and weights are "
      "left alone.",
      NULL,
      NULL,
      NULL};
  struct question q = {.trial_seconds = 1.5, .limit = 60, .least = 0.02};
  double began = tune_now();
  start_program(&argp, ARGP_IN_ORDER, argc, argv, &q);
  if (q.json) check_json(q.json);
  make_folder();
  catch_signals();
  struct tuner tuner = {.least = q.least, .quiet = q.quiet};
  tuner.runner = (struct runner){.program = words_for_trials(q.program),
                                 .folder = place,
                                 .seconds = q.trial_seconds,
                                 .limit = q.limit,
                                 .steps = q.steps,
                                 .stop = &stopped};
  tuner_entry(&tuner, ""); /* the first one */
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
  return EXIT_DONE;
}
