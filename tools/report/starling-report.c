/* starling-report: what training logs and traces tell, as one HTML page. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/output.h"
#include "tools/report/page.h"
#include "tools/common/command_line.h"

enum { MOST_TRACES = 64 };
enum { KEY_SMOOTH = 256, KEY_TITLE, KEY_TRACE };

static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0, "The page (default report.html)", 0},
    {"trace", KEY_TRACE, "DIR", 0,
     "Add the summary and the picture of the trace that a trainer's --trace DIR wrote; may be "
     "given "
     "several times",
     0},
    {"title", KEY_TITLE, "TEXT", 0, "A title", 0},
    {"log-scale", 'l', NULL, 0, "Logarithmic axis of the loss", 0},
    {"smooth", KEY_SMOOTH, "STEPS", 0,
     "Mean of about so many steps for bold curves (default: a hundredth of the longest run; 1: "
     "none)",
     0},
    {0}};

static const char about[] =
    "Write a report of a training run, or of several beside each other, as one HTML page."
    "\v"
    "LOG is what a trainer wrote by --log FILE.jsonl; of a run over several ranks, each rank has "
    "its own. The page holds all it needs (curves as SVG, no scripts): it can be mailed, archived "
    "and printed, and fetches nothing. It has what came out, the curves of loss, accuracy or "
    "perplexity, throughput and learning rate, the course (starts, what resuming changed, "
    "checkpoints, the end), devices, where each layer ran and who owned it, the settings (of "
    "several runs, those that differ first), and what traces tell.\n\n"
    "Logs of older versions can be read; they know less. FILE is written aside and renamed.\n\n"
    "Exit status: 0 done; 1 a file cannot be read, is damaged, of a newer version or no log, or "
    "the page cannot be written (one line says which and why; nothing is written then); 2 bad "
    "usage.\n\n"
    "Examples:\n"
    "  lenet --log run1.jsonl --trace run1.trace\n"
    "  starling-report run1.jsonl --trace run1.trace -o run1.html\n"
    "  starling-report run1.jsonl run2.jsonl --title 'lr 0.1 and 0.2'";

struct input {
  struct report report;
  const char *output;
  const char *folders[MOST_TRACES];
  char **logs;
  size_t log_count, folder_count;
};

static double read_steps(const struct argp_state *state, const char *text) {
  char *end;
  double value = strtod(text, &end);
  if (strspn(text, "0123456789") != strlen(text) || !*text || *end || !(value >= 1 && value <= 1e9))
    argp_failure(state, EXIT_USAGE, 0, "--smooth '%s': must be a whole number from 1 to 1e+09",
                 text);
  return value;
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct input *input = state->input;
  switch (key) {
    case 'o': input->output = text; break;
    case 'l': input->report.log_scale = true; break;
    case KEY_TITLE: input->report.title = text; break;
    case KEY_SMOOTH: input->report.smooth = read_steps(state, text); break;
    case KEY_TRACE:
      if (input->folder_count == MOST_TRACES)
        argp_failure(state, EXIT_USAGE, 0, "--trace: at most %d folders", MOST_TRACES);
      input->folders[input->folder_count++] = text;
      break;
    case ARGP_KEY_ARGS:
      input->logs = state->argv + state->next;
      input->log_count = (size_t)(state->argc - state->next);
      break;
    case ARGP_KEY_NO_ARGS: argp_failure(state, EXIT_USAGE, 0, "no log is named; see --help"); break;
    default: return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

static int fail(const char *what, const char *why) {
  fprintf(stderr, "starling-report: %s%s\n", what, why);
  return EXIT_FAILED;
}

/* a/run.jsonl and b/run.jsonl would both be "run": by their paths then. */
static bool tell_apart(struct run_curves *runs, size_t count, char **paths) {
  for (size_t i = 1; i < count; i++)
    for (size_t j = 0; j < i; j++) {
      if (strcmp(runs[i].label, runs[j].label) != 0) continue;
      for (size_t k = 0; k < count; k++) {
        char *label = strdup(paths[k]);
        if (!label) return false;
        free(runs[k].label);
        runs[k].label = label;
      }
      return true;
    }
  return true;
}

/* Reads all before anything is written. report's counts are what has been begun. */
static int read_all(struct input *input) {
  struct report *report = &input->report;
  char message[1024];
  report->runs = calloc(input->log_count, sizeof *report->runs);
  report->facts = calloc(input->log_count, sizeof *report->facts);
  report->traces = calloc(input->folder_count + 1, sizeof *report->traces);
  if (!report->runs || !report->facts || !report->traces) return fail("no memory", "");
  for (size_t i = 0; i < input->log_count; i++) {
    report->count = i + 1;
    if (!curves_read(input->logs[i], &report->runs[i], message, sizeof message))
      return fail(message, "");
    if (!facts_find(&report->runs[i], &report->facts[i])) return fail("no memory", "");
  }
  for (size_t i = 0; i < input->folder_count; i++) {
    report->trace_count = i + 1;
    if (!trace_read(input->folders[i], &report->traces[i], message, sizeof message))
      return fail(message, "");
  }
  return tell_apart(report->runs, report->count, input->logs) ? EXIT_DONE : fail("no memory", "");
}

static int write_page(const struct input *input) {
  char *bytes = NULL;
  size_t size;
  FILE *out = open_memstream(&bytes, &size);
  bool good = out && report_write(out, &input->report);
  if (out && fclose(out) != 0) good = false;
  int error = good ? output_bytes(input->output, bytes, size) : ENOMEM;
  free(bytes);
  if (!error) return EXIT_DONE;
  fprintf(stderr, "starling-report: %s: cannot be written: %s\n", input->output, strerror(error));
  return EXIT_FAILED;
}

int main(int argc, char **argv) {
  static const struct argp argp = {options, parse_option, "LOG.jsonl...", about, NULL, NULL, NULL};
  struct input input = {.output = "report.html"};
  struct report *report = &input.report;
  start_program(&argp, 0, argc, argv, &input);
  int code = read_all(&input);
  if (code == EXIT_DONE) code = write_page(&input);
  for (size_t i = 0; i < report->count; i++) curves_free(&report->runs[i]);
  for (size_t i = 0; i < report->trace_count; i++) trace_free(&report->traces[i]);
  free(report->runs);
  free(report->facts);
  free(report->traces);
  return code;
}
