/* starling-report: training logs and traces as one HTML page. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/command_line.h"
#include "tools/common/memory_text.h"
#include "tools/common/option_table.h"
#include "tools/common/output.h"
#include "tools/report/page.h"

enum { MOST_TRACES = 64 };
struct input {
  struct report report;
  const char *output;
  const char *folders[MOST_TRACES];
  char **logs;
  size_t log_count, folder_count;
};

/* ---- the command line ---- */

static const char *parse_smooth(const struct option_row *row, const char *text, void *values) {
  int64_t steps;
  const char *why = option_whole(text, (int64_t)row->least, (int64_t)row->most, &steps);
  if (!why) ((struct input *)values)->report.smooth = (double)steps;
  return why;
}

static const char *parse_trace(const struct option_row *row, const char *text, void *values) {
  struct input *input = values;
  (void)row;
  if (input->folder_count == MOST_TRACES) return option_problem("at most %d folders", MOST_TRACES);
  input->folders[input->folder_count++] = text;
  return NULL;
}

#define FIELD(member) OPTION_FIELD(struct input, member)

static const struct option_row rows[] = {
    {"output", "FILE", "The page, .html or .htm", FIELD(output), .flags = OPTION_WRITES,
     .letter = 'o'},
    {"trace", "DIR",
     "Add the summary and the picture of the trace that a trainer's --trace DIR wrote; may be "
     "given several times",
     .parse = parse_trace},
    {"title", "TEXT", "A title", FIELD(report.title)},
    {"log-scale", NULL, "Logarithmic axis of the loss", FIELD(report.log_scale), .letter = 'l'},
    {"smooth", "STEPS", "Mean of about STEPS steps for bold curves; 1: none", .least = 1,
     .most = 1e9, .parse = parse_smooth, .unset = "a hundredth of the longest run"}};

static int take_logs(void *values, char **words, int count, const char **why) {
  struct input *input = values;
  (void)why;
  input->logs = words;
  input->log_count = (size_t)count;
  return count;
}

static const char *check(void *input) {
  const struct input *in = input;
  if (!in->log_count) return "no log is named; see --help";
  return output_is_page(in->output)
             ? NULL
             : option_problem("--output %s: the name must end in .html or .htm", in->output);
}

static void parse(struct input *input, int argc, char **argv) {
  const struct option_program program = {
      .usage = "LOG.jsonl...",
      .about = "Write a report of one or several training runs as one HTML page.",
      .description =
          "LOG is the log of a trainer (--log FILE.jsonl); in a run over several ranks each rank "
          "has its own. The page holds all it needs (curves as SVG, no scripts): it can be mailed, "
          "archived and printed, and fetches nothing. It has the results, the curves of loss, "
          "accuracy or perplexity, throughput and learning rate, the course (starts, what resuming "
          "changed, checkpoints, the end), devices, where each layer ran and which rank owned it, "
          "the settings (of several runs, those that differ first), and the traces' numbers.\n\n"
          "Logs of older versions can be read; they know less. FILE is written aside and renamed.",
      .exit_status =
          "0 done; 1 a file cannot be read, is damaged, of a newer version or no log, or the page "
          "cannot be written (one line says which and why; nothing is written then); 2 bad usage.",
      .examples =
          "  lenet --log run1.jsonl --trace run1.trace\n"
          "  starling-report run1.jsonl --trace run1.trace -o run1.html\n"
          "  starling-report run1.jsonl run2.jsonl --title 'lr 0.1 and 0.2'\n",
      .manual.see_also =
          "lenet(1), lstm_lm(1), mlp(1), resnet(1), starling-plot(1), starling-trace(1)",
      .sets = {{rows, sizeof rows / sizeof *rows, input, NULL, NULL}},
      .input = input,
      .argument = take_logs,
      .check = check};
  option_parse(&program, argc, argv);
}

/* ---- the page ---- */

static int fail(const char *what, const char *why) {
  fprintf(stderr, "starling-report: %s%s\n", what, why);
  return EXIT_FAILED;
}

/* Names runs by their files; by whole paths if two would be alike, as a/run.jsonl and b/run.jsonl.
 */
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

/* Reads all files before anything is written. The counts in `report` include a file that failed. */
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
    if (!trace_report_read(input->folders[i], &report->traces[i], message, sizeof message))
      return fail(message, "");
  }
  return tell_apart(report->runs, report->count, input->logs) ? EXIT_DONE : fail("no memory", "");
}

static int write_page(const struct input *input) {
  struct memory_text stream;
  size_t size = 0;
  bool good = memory_text_begin(&stream) && report_write(stream.out, &input->report);
  char *bytes = memory_text_end(&stream, &size);
  int error = good && bytes ? output_bytes(input->output, bytes, size) : ENOMEM;
  free(bytes);
  if (!error) return EXIT_DONE;
  fprintf(stderr, "starling-report: %s: cannot be written: %s\n", input->output, strerror(error));
  return EXIT_FAILED;
}

int main(int argc, char **argv) {
  struct input input = {.output = "report.html"};
  struct report *report = &input.report;
  parse(&input, argc, argv);
  int code = read_all(&input);
  if (code == EXIT_DONE) code = write_page(&input);
  for (size_t i = 0; i < report->count; i++) curves_free(&report->runs[i]);
  for (size_t i = 0; i < report->trace_count; i++) trace_report_free(&report->traces[i]);
  free(report->runs);
  free(report->facts);
  free(report->traces);
  return code;
}
