#include "tools/train/failure_report.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/memory_text.h"
#include "tools/train/ranks.h"

extern char **environ;

/* ---- the parts ---- */

static void print_options(FILE *out, const struct option_set *set) {
  for (size_t i = 0; i < set->count; i++) {
    const struct option_row *row = &set->rows[i];
    const struct option_set one = {.rows = row,
                                   .count = 1,
                                   .values = set->values,
                                   .given = set->given ? set->given + i : NULL};
    struct memory_text text;
    if (!row->name || !memory_text_begin(&text)) continue;
    option_print(text.out, &one, 0);
    char *line = memory_text_end(&text, NULL);
    if (!line) continue;
    line[strcspn(line, "\n")] = '\0';
    const char *value = strchr(line, ' ') ? strchr(line, ' ') + 1 : "";
    if (!*line) {
      free(line); /* a row that does not apply to this run */
      continue;
    }
    if (!strcmp(value, "given") || !private_text_is_own(row, value))
      fprintf(out, "%s\n", line);
    else if (strcmp(value, "(not given)") != 0)
      fprintf(out, "--%s (given)\n", row->name);
    free(line);
  }
}

/* A variable that names files may have a path without '/'. */
static bool names_files(const char *variable) {
  static const char *const words[] = {"HOME", "DIR", "PATH", "PREFIX", "FILE"};
  size_t length = strcspn(variable, "=");
  if (strchr(variable, '/')) return true;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    const char *found = strstr(variable, words[i]);
    if (found && found < variable + length) return true;
  }
  return false;
}

static void print_environment(FILE *out, const struct private_texts *texts) {
  static const char *const known[] = {"STARPU_",
                                      "OMP_",
                                      "OPENBLAS_",
                                      "CUDA_VISIBLE_DEVICES=",
                                      "MALLOC_",
                                      "OMPI_COMM_WORLD_SIZE=",
                                      "SLURM_JOB_NUM_NODES=",
                                      "SLURM_NTASKS="};
  for (char **variable = environ; *variable; variable++)
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
      if (!strncmp(*variable, known[k], strlen(known[k]))) {
        if (names_files(*variable))
          fprintf(out, "%.*s=(path)", (int)strcspn(*variable, "="), *variable);
        else
          private_texts_print(texts, *variable, out);
        fputc('\n', out);
      }
}

static void print_steps(FILE *out, const struct failure_report *report) {
  long long first = report->step_count > REPORT_STEPS ? report->step_count - REPORT_STEPS : 0;
  for (long long i = first; i < report->step_count; i++) {
    const struct sl_report *step = &report->step[i % REPORT_STEPS];
    fprintf(out, "step %lld of epoch %lld: loss %.9g, learning rate %g\n",
            (long long)step->step + 1, (long long)step->epoch + 1, step->loss, step->lr);
  }
  if (!report->step_count) fputs("none\n", out);
}

static void print_lines(FILE *out, const struct failure_report *report) {
  long long first = report->line_count > REPORT_LINES ? report->line_count - REPORT_LINES : 0;
  for (long long i = first; i < report->line_count; i++) {
    fprintf(out, "%s\n", report->line[i % REPORT_LINES]);
  }
  if (!report->line_count) fputs("none\n", out);
}

static void print_state(FILE *out, const struct failure_report *report) {
  char *text = NULL;
  fputs("\n== Versions, machine, devices, tasks\n", out);
  if (!report->context)
    fprintf(out, "%s; StarPU had not started\n", program_version());
  else if (sl_context_report(report->context, &text) == SL_OK)
    private_texts_print(&report->private, text, out);
  free(text);
  fputs("\n== Options\n", out);
  print_options(out, &report->cli->own);
  const struct option_set shared = cli_set(report->cli);
  print_options(out, &shared);
  fputs("\n== Environment\n", out);
  print_environment(out, &report->private);
}

static char *compose(const struct failure_report *report, const char *message) {
  struct memory_text text;
  FILE *out = memory_text_begin(&text);
  if (!out) return NULL;
  fprintf(out,
          "Report of a failure of %s (Starling). Paths, addresses and the names of this host and "
          "user are left out;\nread it before you send it: a message may name other hosts.\n",
          report->program);
  if (message) {
    fputs("\n== Failure\n", out);
    private_texts_print(&report->private, message, out);
    fputs("\n\n== Last steps\n", out);
    print_steps(out, report);
    fputs("\n== Last messages of the library\n", out);
    print_lines(out, report);
  }
  print_state(out, report);
  return memory_text_end(&text, NULL);
}

/* ---- fatal signals ---- */

static struct failure_report *watched; /* a handler gets no argument */
static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
enum { FATAL = sizeof fatal / sizeof *fatal };
static struct sigaction before[FATAL];

static void put(int file, const char *text) {
  size_t length = strlen(text);
  while (length) {
    ssize_t written = write(file, text, length);
    if (written <= 0) return;
    text += written;
    length -= (size_t)written;
  }
}

static const char *signal_text(int number) {
  return number == SIGSEGV  ? "SIGSEGV"
         : number == SIGBUS ? "SIGBUS"
         : number == SIGFPE ? "SIGFPE"
         : number == SIGILL ? "SIGILL"
                            : "SIGABRT";
}

/* "libstarling.so.0+0x2fa1f sl_trainer_step": without the file's folder. */
static void put_function(int file, const void *address) {
  char text[32];
  Dl_info info;
  if (!dladdr(address, &info) || !info.dli_fname) return;
  const char *name = strrchr(info.dli_fname, '/');
  put(file, name ? name + 1 : info.dli_fname);
  snprintf(text, sizeof text, "+0x%zx ",
           (size_t)((const char *)address - (const char *)info.dli_fbase));
  put(file, text);
  put(file, info.dli_sname ? info.dli_sname : "");
  put(file, "\n");
}

/* Only functions that signal handlers may call, and backtrace, dladdr and snprintf of a number,
 * which allocate nothing here: failure_report_watch has called backtrace once. */
static void on_fatal(int number) {
  void *frames[64];
  char words[1000], shown[2000];
  struct failure_report *report = watched;
  watched = NULL;
  int file = report && report->path
                 ? open(report->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)
                 : -1;
  if (file >= 0) {
    put(file, report->crash_text);
    put(file, "\n== Failure\nended by ");
    put(file, signal_text(number));
    if (number == SIGABRT && sl_last_words(words, sizeof words)) {
      put(file, "\n");
      private_texts_hide(&report->private, words, shown, sizeof shown);
      put(file, shown);
    }
    put(file, "\n\n== Functions\n");
    for (int f = 0, count = backtrace(frames, 64); f < count; f++) put_function(file, frames[f]);
    put(file, "\n== Last messages of the library\n");
    long long first = report->line_count > REPORT_LINES ? report->line_count - REPORT_LINES : 0;
    for (long long i = first; i < report->line_count; i++) {
      put(file, report->line[i % REPORT_LINES]);
      put(file, "\n");
    }
    close(file);
  }
  for (int f = 0; f < FATAL; f++)
    if (fatal[f] == number) sigaction(number, &before[f], NULL);
  raise(number);
}

/* ---- for the session ---- */

void failure_report_begin(struct failure_report *report, const char *program,
                          const struct cli *cli) {
  int rank;
  *report = (struct failure_report){.program = program, .cli = cli};
  if (!cli->report_failure) return;
  sl_launched(&rank);
  report->path = ranks_path(cli->report_failure, ranks_wanted(cli) ? rank : 0);
  if (report->path && private_texts_open(&report->private, cli)) return;
  fprintf(stderr, "%s: no memory for the report of a failure; none will be written\n", program);
  failure_report_end(report);
}

void failure_report_log(void *user, enum sl_level level, const char *line) {
  struct failure_report *report = user;
  const char *kind = level == SL_LOG_WARNING ? "warning: " : level == SL_LOG_INFO ? "" : "debug: ";
  fprintf(stderr, "starling: %s%s\n", kind, line);
  if (!report->path) return;
  char *place = report->line[report->line_count % REPORT_LINES];
  size_t used = (size_t)snprintf(place, sizeof *report->line, "%s", kind);
  private_texts_hide(&report->private, line, place + used, sizeof *report->line - used);
  report->line_count++;
}

void failure_report_watch(struct failure_report *report, struct sl_context *context) {
  struct sigaction action = {.sa_handler = on_fatal, .sa_flags = SA_NODEFER};
  void *frame;
  report->context = context;
  if (!report->path || !(report->crash_text = compose(report, NULL))) return;
  backtrace(&frame, 1);
  watched = report;
  sigemptyset(&action.sa_mask);
  for (int f = 0; f < FATAL; f++) sigaction(fatal[f], &action, &before[f]);
}

void failure_report_step(struct failure_report *report, const struct sl_report *step) {
  report->step[report->step_count++ % REPORT_STEPS] = *step;
}

void failure_report_write(struct failure_report *report, const char *message) {
  if (!report->path) return;
  char *text = compose(report, message);
  if (!text)
    fprintf(stderr, "%s: no memory for the report of the failure\n", report->program);
  else if (sl_file_write(report->path, text, strlen(text)) != SL_OK)
    fprintf(stderr, "%s: --report-failure: %s\n", report->program, sl_error());
  else
    fprintf(stderr, "%s: %s has a report of this failure; read it before you send it\n",
            report->program, report->path);
  free(text);
  free(report->path);
  report->path = NULL;
}

void failure_report_end(struct failure_report *report) {
  if (watched == report) {
    watched = NULL;
    for (int f = 0; f < FATAL; f++) sigaction(fatal[f], &before[f], NULL);
  }
  free(report->crash_text);
  free(report->path);
  private_texts_close(&report->private);
  report->crash_text = report->path = NULL;
  report->context = NULL;
}
