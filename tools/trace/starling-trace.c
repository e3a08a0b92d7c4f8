/* starling-trace: how busy the devices were, from StarPU's trace, as numbers and as a picture. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/command_line.h"
#include "tools/common/memory_text.h"
#include "tools/common/option_table.h"
#include "tools/common/output.h"
#include "tools/trace/gantt.h"

enum { MOST_PATHS = 64 };
struct question {
  char *paths[MOST_PATHS];
  int path_count;
  const char *output, *title, *json;
  bool draw;
  double from, to;
  struct roof roof;
  int stages, microbatches;
};

/* ---- the command line ---- */

#define FIELD(member) OPTION_FIELD(struct question, member)

static const struct option_row rows[] = {
    {"output", "FILE", "Draw the tasks, .svg or .png, a line a worker", FIELD(output),
     .flags = OPTION_WRITES, .letter = 'o'},
    {"title", "TEXT", "The picture's title", FIELD(title),
     .unset = "the program, its steps and devices"},
    {"json", "FILE", "Write the numbers there, as JSON", FIELD(json), .flags = OPTION_WRITES},
    {"draw", NULL,
     "Write trace.svg, trace.txt, trace.json and, with cairo, trace.png into DIR, print nothing",
     FIELD(draw)},
    {"from", "MS", "Leave out tasks that began earlier; MS counts from the first task on",
     FIELD(from), .least = 0, .most = 1e12},
    {"to", "MS", "Leave out tasks that ended later", FIELD(to), .least = 0, .most = 1e12},
    {"peak", "GFLOPS", "Peak of one CPU core in f32", FIELD(roof.gflops),
     .unset = "as the trainer measured", .least = 1e-3, .most = 1e9},
    {"bandwidth", "GB/S", "Memory bandwidth of one CPU core, the roof's other half",
     FIELD(roof.gigabytes), .least = 1e-3, .most = 1e9},
    {"stages", "P", "With --microbatches: the theory of GPipe and 1F1B beside the measured bubble",
     FIELD(stages), .least = 1, .most = 4096},
    {"microbatches", "M", "Microbatches a step", FIELD(microbatches), .least = 1, .most = 1e6}};

static int take_path(void *input, char **words, int count, const char **why) {
  struct question *q = input;
  (void)count;
  if (q->path_count == MOST_PATHS)
    *why = option_problem("'%s': more than %d files", words[0], MOST_PATHS);
  else
    q->paths[q->path_count++] = words[0];
  return 1;
}

/* The name of a file that a trace's folder has. */
static bool is_traces_own(const char *path) {
  static const char *const names[] = {"tasks.rec", "paje.trace", "trace.window.json"};
  static const char recorded[] = "prof_file_";
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i])) return true;
  return !strncmp(name, recorded, strlen(recorded));
}

static const char *check(void *input) {
  const struct question *q = input;
  if (!q->path_count) return "no trace is named: a folder, or files; see --help";
  if (!q->stages != !q->microbatches) return "--stages and --microbatches belong together";
  if (q->json && is_traces_own(q->json))
    return option_problem("--json %s: a trace has a file of this name; take another", q->json);
  if (q->draw && (q->path_count > 1 || q->output || q->json))
    return "--draw: takes one folder, and no -o or --json";
  return NULL;
}

static void parse(struct question *q, int argc, char **argv) {
  const struct option_program program = {
      .usage = "DIR\nFILE...",
      .about = "Print how busy the devices were, from a trace.",
      .description =
          "DIR is the folder in which a trainer recorded a trace with --trace DIR. FILE is one of "
          "StarPU's own: its prof_file_*, which are read by starpu_fxt_tool, or the tasks.rec that "
          "it makes of them.\n\n"
          "busy: a task runs. transfer: its data are fetched or let go, or it waits for other "
          "ranks. overhead: StarPU looks for a task, or releases those that waited. idle: there is "
          "no task that the worker could run.\n\n"
          "bubble: share of the time in which workers that had tasks ran none.\n\n"
          "critical path: among all chains of tasks in which each waits for the one before, the "
          "chain with the largest sum of times; two tasks of one worker do not wait for each "
          "other. No number of workers makes these steps shorter.\n\n"
          "of roof: the rate of a layer's tasks on CPUs, as a share of one core's peak, or of the "
          "lower rate that --bandwidth allows.",
      .examples =
          "  lenet --steps 30 --trace run.trace\n"
          "  starling-trace run.trace\n"
          "  starling-trace --from 5 --to 20 -o part.svg run.trace\n",
      .manual = {.environment = "TMPDIR: folder for the files that starpu_fxt_tool makes (default "
                                "/tmp).",
                 .files = "DIR/prof_file_*: what StarPU recorded.\n\n"
                          "DIR/trace.window.json: which steps they are, and how long they took.",
                 .see_also = "lenet(1), lstm_lm(1), mlp(1), resnet(1), starling-report(1)"},
      .sets = {{rows, sizeof rows / sizeof *rows, q, NULL, NULL}},
      .input = q,
      .argument = take_path,
      .check = check};
  option_parse(&program, argc, argv);
}

static int fail(const char *format, const char *what, const char *detail) {
  fprintf(stderr, "starling-trace: ");
  fprintf(stderr, format, what, detail);
  fputc('\n', stderr);
  return EXIT_FAILED;
}

static int fail_file(const char *path, int error) {
  return fail("%s: cannot be written: %s", path, strerror(error));
}

/* ---- output ---- */

static int write_text(const struct report *report, const char *path) {
  struct memory_text stream;
  size_t size = 0;
  bool whole = memory_text_begin(&stream) && report_print(report, stream.out);
  char *text = memory_text_end(&stream, &size);
  int error = whole && text ? output_bytes(path, text, size) : ENOMEM;
  free(text);
  return error;
}

/* Writes every output that a folder can hold. */
static int draw_folder(const struct report *report, const char *folder) {
  char path[PATH_MAX];
  int error;
  snprintf(path, sizeof path, "%s/trace.txt", folder);
  error = write_text(report, path);
  if (error) return fail_file(path, error);
  snprintf(path, sizeof path, "%s/trace.json", folder);
  error = report_write_json(report, path);
  if (error) return fail_file(path, error);
  snprintf(path, sizeof path, "%s/trace.svg", folder);
  error = gantt_draw(report, path);
  if (error || !canvas_has_png()) return error ? fail_file(path, error) : EXIT_DONE;
  snprintf(path, sizeof path, "%s/trace.png", folder);
  error = gantt_draw(report, path);
  return error ? fail_file(path, error) : EXIT_DONE;
}

static int tell(const struct question *q, const struct report *report) {
  if (q->draw) return draw_folder(report, q->paths[0]);
  if (!report_print(report, stdout)) return fail("%s: no memory%s", q->paths[0], "");
  int error = q->json ? report_write_json(report, q->json) : 0;
  if (error) return fail_file(q->json, error);
  error = q->output ? gantt_draw(report, q->output) : 0;
  return error ? fail_file(q->output, error) : EXIT_DONE;
}

/* ---- input ---- */

/* Frees the tasks if the other file cannot be read. */
static bool read_files(const struct source *source, struct trace *trace, char *message,
                       size_t size) {
  if (!trace_read_tasks(source->tasks, trace, message, size)) return false;
  if (!*source->paje || trace_read_paje(source->paje, trace, message, size)) return true;
  trace_free(trace);
  return false;
}

/* Reads the files of a trace. Values that the command line does not give are taken from the
 * trainer's description. */
static int read_trace(struct question *q, struct source *source, struct trace *trace,
                      struct window *window) {
  char message[PATH_MAX + 512];
  if (*source->window && !window_read(source->window, window, message, sizeof message))
    return fail("%s%s", message, "");
  bool fine = read_files(source, trace, message, sizeof message);
  while (!fine && source_renew(source, q->paths[0]))
    fine = read_files(source, trace, message, sizeof message);
  if (!fine) return fail("%s%s", message, "");
  int error = trace_cut(trace, q->from, q->to);
  if (error == ENOMEM) return fail("%s: no memory%s", q->paths[0], "");
  if (error) return fail("%s: no task lies between --from and --to%s", q->paths[0], "");
  if (q->from > 0 || isfinite(q->to)) window->known = false; /* the description is of all steps */
  if (!q->roof.gflops) q->roof.gflops = window->peak;
  if (!q->stages && window->stages > 1) {
    q->stages = window->stages;
    q->microbatches = window->microbatches;
  }
  return EXIT_DONE;
}

static int work(struct question *q, struct source *source) {
  struct trace trace = {0};
  struct window window = {0};
  struct numbers numbers = {0};
  int code = read_trace(q, source, &trace, &window);
  source_close(source); /* before there is output, which a signal would cut */
  if (code == EXIT_DONE && !numbers_take(&trace, &q->roof, &numbers))
    code = fail("%s: no memory%s", q->paths[0], "");
  const struct report report = {.trace = &trace,
                                .numbers = &numbers,
                                .window = &window,
                                .roof = &q->roof,
                                .title = q->title,
                                .stages = q->stages,
                                .microbatches = q->microbatches};
  if (code == EXIT_DONE) code = tell(q, &report);
  numbers_free(&numbers);
  trace_free(&trace);
  return code;
}

int main(int argc, char **argv) {
  struct question q = {.to = INFINITY};
  struct source source;
  char message[PATH_MAX + 512];
  parse(&q, argc, argv);
  if (q.output && !output_name_is_fine(q.output)) {
    fail("%s: the name must end in .svg or .png%s", q.output, "");
    return EXIT_USAGE;
  }
  if (q.output && output_is_png(q.output) && !canvas_has_png())
    return fail("%s: this build has no cairo, which writes PNG; name a .svg%s", q.output, "");
  bool fine = source_open(&source, q.path_count, q.paths, message, sizeof message);
  int code = fine ? work(&q, &source) : fail("%s%s", message, "");
  source_close(&source);
  return finish_output("starling-trace", code);
}
