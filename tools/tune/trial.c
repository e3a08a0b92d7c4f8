/* One run of the program, in a process group of its own. The log is read while it grows; SIGTERM
 * ends the run as soon as there are enough steps. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/tune/tune.h"

enum { WARM_UP_STEPS = 5, ENOUGH_STEPS = 10 };

struct watched {
  const struct runner *runner;
  char *log, *out, *err; /* paths */
  pid_t pid;
  int status;
  bool ended;
  off_t read; /* bytes of the log that have been read */
  double *rates;
  size_t count;
  double began, first, last; /* times of its start, of its first step, of its last step */
};

static void rest(void) { nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); }

/* ---- the start ---- */

static void redirect(int to, const char *path, int flags) {
  int fd = open(path, flags, 0600);
  if (fd >= 0) dup2(fd, to);
}

/* In the child: sets variables and redirections, then executes the program. */
static void become(const struct watched *w, struct words *words, const struct words *setting,
                   int report) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM); /* a trial must not outlive the tuner */
  redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
  redirect(STDOUT_FILENO, w->out, O_WRONLY | O_CREAT | O_TRUNC);
  redirect(STDERR_FILENO, w->err, O_WRONLY | O_CREAT | O_TRUNC);
  for (size_t i = 0; i < setting->count; i++)
    if (word_is_variable(setting->word[i])) putenv(setting->word[i]);
  execvp(words->word[0], words->word);
  int error = errno;
  if (write(report, &error, sizeof error) < 0) _exit(126);
  _exit(127);
}

static struct words make_words(const struct watched *w, const struct words *setting) {
  const struct runner *runner = w->runner;
  struct words words = {0};
  char steps[32];
  snprintf(steps, sizeof steps, "%ld", runner->steps ? runner->steps : 1000000000);
  for (size_t i = 0; i < runner->place; i++)
    words_add(&words, runner->program.word[i], strlen(runner->program.word[i]));
  for (size_t i = 0; i < setting->count; i++)
    if (!word_is_variable(setting->word[i]))
      words_add(&words, setting->word[i], strlen(setting->word[i]));
  words_add(&words, "--steps", strlen("--steps"));
  words_add(&words, steps, strlen(steps));
  words_add(&words, "--log", strlen("--log"));
  words_add(&words, w->log, strlen(w->log));
  for (size_t i = runner->place; i < runner->program.count; i++)
    words_add(&words, runner->program.word[i], strlen(runner->program.word[i]));
  return words;
}

/* Returns errno's value if the program could not be started, else 0. */
static int start(struct watched *w, const char *text) {
  struct words setting = words_of_setting(text), words = make_words(w, &setting);
  int report[2], error = 0;
  if (pipe2(report, O_CLOEXEC) != 0) tune_die(EXIT_FAILED, "no pipe: %s", strerror(errno));
  w->pid = fork();
  if (w->pid < 0) tune_die(EXIT_FAILED, "no further process: %s", strerror(errno));
  if (w->pid == 0) become(w, &words, &setting, report[1]);
  setpgid(w->pid, w->pid); /* parent and child both do this: either may run first */
  close(report[1]);
  if (read(report[0], &error, sizeof error) != sizeof error) error = 0;
  close(report[0]);
  if (error) waitpid(w->pid, &w->status, 0);
  words_free(&setting);
  words_free(&words);
  return error;
}

/* ---- the log ---- */

/* Lines of steps have a rate; other lines are skipped. */
static void read_line(struct watched *w, const char *line, size_t length) {
  json_t *object = json_loadb(line, length, 0, NULL);
  const json_t *step = json_object_get(object, "step");
  const json_t *number = json_object_get(object, "samples_per_s");
  double rate = json_is_number(number) && json_is_number(step) ? json_number_value(number) : 0;
  json_decref(object);
  if (!(rate > 0) || isinf(rate)) return;
  w->rates = tune_grow(w->rates, w->count + 1, sizeof *w->rates);
  w->rates[w->count++] = rate;
  w->last = tune_now();
  if (w->count == 1) w->first = w->last;
}

/* Reads new lines of the log, if they are complete. */
static void read_log(struct watched *w) {
  FILE *file = fopen(w->log, "re");
  char *line = NULL;
  size_t size = 0;
  ssize_t length;
  if (!file) return;
  if (fseeko(file, w->read, SEEK_SET) == 0)
    while ((length = getline(&line, &size, file)) > 0 && line[length - 1] == '\n') {
      read_line(w, line, (size_t)length);
      w->read += length;
    }
  free(line);
  fclose(file);
}

/* ---- the end ---- */

static bool has_ended(struct watched *w) {
  if (!w->ended) w->ended = waitpid(w->pid, &w->status, WNOHANG) == w->pid;
  return w->ended;
}

/* Ends the program and the processes that it started. */
static void end(struct watched *w) {
  const double timeout = 10;
  double until = tune_now() + timeout;
  if (!has_ended(w)) kill(-w->pid, SIGTERM);
  while (!has_ended(w) && tune_now() < until) rest();
  kill(-w->pid, SIGKILL);
  if (!w->ended) waitpid(w->pid, &w->status, 0);
  w->ended = true;
}

static bool is_enough(const struct watched *w) {
  const double most = 10; /* of long steps, a few are enough */
  double seconds = tune_now() - w->first;
  if (w->count < 2 || seconds < w->runner->seconds) return false;
  return w->count >= WARM_UP_STEPS + ENOUGH_STEPS || seconds > most * w->runner->seconds;
}

/* Waits until there are enough steps, the program ends, or it must be stopped. */
static enum trial_end watch(struct watched *w, double deadline, struct trial *trial) {
  while (!has_ended(w)) {
    read_log(w);
    double now = tune_now(), since = w->count ? w->last : w->began;
    if (is_enough(w)) return TRIAL_DONE;
    if (*w->runner->stop || now > deadline) return TRIAL_CUT;
    if (now - since > w->runner->limit) {
      snprintf(trial->failure, sizeof trial->failure, "no step for %g s", w->runner->limit);
      return TRIAL_FAILED;
    }
    rest();
  }
  read_log(w);
  if (WIFEXITED(w->status) && WEXITSTATUS(w->status) == 0 && w->count) return TRIAL_DONE;
  return TRIAL_FAILED;
}

/* ---- the program's messages ---- */

/* Takes the last line that is not blank: libraries print warnings before the error message. Behind
 * that of a wrong option stands getopt's hint at --help. */
static void read_message(const char *path, char *message, size_t size) {
  FILE *file = fopen(path, "re");
  char *line = NULL;
  size_t capacity = 0;
  ssize_t length;
  while (file && (length = getline(&line, &capacity, file)) > 0) {
    line[strcspn(line, "\n")] = '\0';
    for (char *c = line; *c; c++)
      if ((unsigned char)*c < ' ') *c = ' ';
    bool hint = *message && !strncmp(line, "Try ", 4);
    if (line[strspn(line, " ")] && !hint) snprintf(message, size, "%s", line);
  }
  free(line);
  if (file) fclose(file);
}

static void explain(const struct watched *w, struct trial *trial) {
  if (WIFEXITED(w->status)) trial->code = WEXITSTATUS(w->status);
  if (trial->code) read_message(w->err, trial->failure, sizeof trial->failure);
  if (*trial->failure) return;
  if (WIFSIGNALED(w->status))
    snprintf(trial->failure, sizeof trial->failure, "ended by signal %d (%s)", WTERMSIG(w->status),
             strsignal(WTERMSIG(w->status)));
  else if (trial->code)
    snprintf(trial->failure, sizeof trial->failure, "ended with code %d", trial->code);
  else
    snprintf(trial->failure, sizeof trial->failure,
             "wrote no step with samples_per_s into its --log");
}

/* Reads "StarPU 1.4.10, scheduler lws, 2 CPU and 0 CUDA workers" and "...; 2 replicas, batch 64;
 * ...". */
static void read_plan(const char *path, struct trial *trial) {
  FILE *file = fopen(path, "re");
  char line[512];
  trial->cpus = trial->gpus = trial->replicas = -1;
  for (int i = 0; file && i < 50 && fgets(line, sizeof line, file); i++) {
    const char *scheduler = strstr(line, ", scheduler "), *replicas = strstr(line, " parameters; ");
    if (scheduler && trial->cpus < 0)
      sscanf(scheduler, ", scheduler %39[^,], %d CPU and %d CUDA", trial->scheduler, &trial->cpus,
             &trial->gpus);
    if (replicas && trial->replicas < 0)
      sscanf(replicas, " parameters; %d replicas", &trial->replicas);
  }
  if (file) fclose(file);
}

/* Fails a trial with an unknown scheduler: StarPU takes its default instead and only warns. */
static void check_scheduler(const char *setting, struct trial *trial) {
  static const char name[] = "STARPU_SCHED=";
  struct words words = words_of_setting(setting);
  for (size_t i = 0; i < words.count && trial->end == TRIAL_DONE && trial->cpus >= 0; i++) {
    const char *wanted = words.word[i] + strlen(name);
    if (strncmp(words.word[i], name, strlen(name)) != 0 || !strcmp(wanted, trial->scheduler))
      continue;
    trial->end = TRIAL_FAILED;
    snprintf(trial->failure, sizeof trial->failure, "StarPU takes %s for it", trial->scheduler);
  }
  words_free(&words);
}

/* Median of the later half: the rate is a mean over several steps and reaches back into the
 * warm-up. */
static double median_rate(const struct watched *w) {
  size_t first = w->count / 2;
  if (first < WARM_UP_STEPS && w->count > WARM_UP_STEPS) first = WARM_UP_STEPS;
  return estimate_of(w->rates + first, w->count - first).value;
}

void trial_run(const struct runner *runner, const char *setting, double deadline,
               struct trial *trial) {
  struct watched w = {.runner = runner, .began = tune_now()};
  *trial = (struct trial){.end = TRIAL_FAILED};
  w.log = tune_text("%s/log", runner->folder);
  w.out = tune_text("%s/out", runner->folder);
  w.err = tune_text("%s/err", runner->folder);
  unlink(w.log);
  int error = start(&w, setting);
  if (error) {
    snprintf(trial->failure, sizeof trial->failure, "cannot be started: %s", strerror(error));
  } else {
    trial->end = watch(&w, deadline, trial);
    if (trial->end == TRIAL_FAILED && w.ended) explain(&w, trial);
    end(&w);
    read_plan(w.out, trial);
    check_scheduler(setting, trial);
  }
  trial->steps = (long)w.count;
  if (w.count) trial->rate = median_rate(&w);
  trial->cost = tune_now() - w.began;
  free(w.rates);
  free(w.log);
  free(w.out);
  free(w.err);
}
