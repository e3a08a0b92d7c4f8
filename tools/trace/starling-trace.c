/* starling-trace: how busy the devices were, from StarPU's trace: numbers, and a picture. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/trace/gantt.h"
#include "tools/common/output.h"
#include "tools/common/command_line.h"

enum { MOST_PATHS = 64 };
enum {
  KEY_FROM = 256,
  KEY_TO,
  KEY_STAGES,
  KEY_MICROBATCHES,
  KEY_JSON,
  KEY_PEAK,
  KEY_BANDWIDTH,
  KEY_DRAW
};

static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0, "Draw the tasks, .svg or .png, a line a worker", 0},
    {"json", KEY_JSON, "FILE", 0, "Write the numbers there, as JSON", 0},
    {"draw", KEY_DRAW, NULL, 0,
     "Write trace.svg, trace.txt, trace.json and, with cairo, trace.png into DIR, print nothing",
     0},
    {"from", KEY_FROM, "MS", 0, "Leave out what began before, from the first task on", 0},
    {"to", KEY_TO, "MS", 0, "Leave out what ended after", 0},
    {"peak", KEY_PEAK, "GFLOPS", 0,
     "What one CPU core can do in f32 (default: as the trainer measured)", 0},
    {"bandwidth", KEY_BANDWIDTH, "GB/S", 0, "Memory's for one CPU core: the roof's other half", 0},
    {"stages", KEY_STAGES, "P", 0, "With --microbatches: the theory of GPipe and 1F1B beside it",
     0},
    {"microbatches", KEY_MICROBATCHES, "M", 0, "Microbatches a step", 0},
    {0}};

struct question {
  char *paths[MOST_PATHS];
  int path_count;
  const char *output, *json;
  bool draw;
  double from, to;
  struct roof roof;
  int stages, microbatches;
};

static double read_number(const struct argp_state *state, const char *option, const char *text,
                          double least, double most) {
  char *end;
  double value = strtod(text, &end);
  if (strspn(text, "0123456789.") != strlen(text) || !*text || *end ||
      !(value >= least && value <= most))
    argp_failure(state, EXIT_USAGE, 0, "%s '%s': must be a number from %g to %g", option, text,
                 least, most);
  return value;
}

static void take_path(struct question *q, char *text, const struct argp_state *state) {
  if (q->path_count == MOST_PATHS)
    argp_failure(state, EXIT_USAGE, 0, "'%s': more than %d files", text, MOST_PATHS);
  q->paths[q->path_count++] = text;
}

static void check(const struct question *q, const struct argp_state *state) {
  if (!q->path_count)
    argp_failure(state, EXIT_USAGE, 0, "no trace is named: a folder, or files; see --help");
  if (!q->stages != !q->microbatches)
    argp_failure(state, EXIT_USAGE, 0, "--stages and --microbatches belong together");
  if (q->draw && (q->path_count > 1 || q->output || q->json))
    argp_failure(state, EXIT_USAGE, 0, "--draw: takes one folder, and no -o or --json");
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct question *q = state->input;
  switch (key) {
    case 'o': q->output = text; break;
    case KEY_JSON: q->json = text; break;
    case KEY_DRAW: q->draw = true; break;
    case KEY_FROM: q->from = read_number(state, "--from", text, 0, 1e12); break;
    case KEY_TO: q->to = read_number(state, "--to", text, 0, 1e12); break;
    case KEY_PEAK: q->roof.gflops = read_number(state, "--peak", text, 1e-3, 1e9); break;
    case KEY_BANDWIDTH:
      q->roof.gigabytes = read_number(state, "--bandwidth", text, 1e-3, 1e9);
      break;
    case KEY_STAGES: q->stages = (int)read_number(state, "--stages", text, 1, 4096); break;
    case KEY_MICROBATCHES:
      q->microbatches = (int)read_number(state, "--microbatches", text, 1, 1e6);
      break;
    case ARGP_KEY_ARG: take_path(q, text, state); break;
    case ARGP_KEY_END: check(q, state); break;
    default: return ARGP_ERR_UNKNOWN;
  }
  return 0;
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

/* ---- what comes out ---- */

static int write_text(const struct report *report, const char *path) {
  FILE *out = fopen(path, "w");
  if (!out) return errno;
  report_print(report, out);
  bool whole = !ferror(out);
  return fclose(out) == 0 && whole ? 0 : EIO;
}

/* All that a folder can hold. */
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
  report_print(report, stdout);
  int error = q->json ? report_write_json(report, q->json) : 0;
  if (error) return fail_file(q->json, error);
  error = q->output ? gantt_draw(report, q->output) : 0;
  return error ? fail_file(q->output, error) : EXIT_DONE;
}

/* ---- what goes in ---- */

/* What the trainer noted stands in for what is not given. */
static int read_trace(struct question *q, const struct source *source, struct trace *trace,
                      struct window *window) {
  char message[PATH_MAX + 512];
  bool fine = !*source->window || window_read(source->window, window, message, sizeof message);
  fine = fine && trace_read_tasks(source->tasks, trace, message, sizeof message);
  if (fine && *source->paje) fine = trace_read_paje(source->paje, trace, message, sizeof message);
  if (!fine) return fail("%s%s", message, "");
  if (!trace_cut(trace, q->from, q->to))
    return fail("%s: no task lies between --from and --to%s", q->paths[0], "");
  if (q->from > 0 || isfinite(q->to)) window->known = false; /* it tells of all steps */
  if (!q->roof.gflops) q->roof.gflops = window->peak;
  if (!q->stages && window->stages > 1) {
    q->stages = window->stages;
    q->microbatches = window->microbatches;
  }
  return EXIT_DONE;
}

static int work(struct question *q, const struct source *source) {
  struct trace trace = {0};
  struct window window = {0};
  struct numbers numbers = {0};
  int code = read_trace(q, source, &trace, &window);
  if (code == EXIT_DONE && !numbers_take(&trace, &q->roof, &numbers))
    code = fail("%s: no memory%s", q->paths[0], "");
  const struct report report = {.trace = &trace,
                                .numbers = &numbers,
                                .window = &window,
                                .roof = &q->roof,
                                .stages = q->stages,
                                .microbatches = q->microbatches};
  if (code == EXIT_DONE) code = tell(q, &report);
  numbers_free(&numbers);
  trace_free(&trace);
  return code;
}

static const char about[] =
    "How busy the devices were, from a trace that a trainer recorded with --trace DIR, or from "
    "StarPU's own: its prof_file_*, which are read by starpu_fxt_tool, or the tasks.rec that it "
    "makes of them.\v"
    "busy: a task runs. transfer: its data are fetched or let go, or it waits for other ranks. "
    "overhead: StarPU looks for a "
    "task, or releases those that waited. idle: there is no task that the worker could run.\n\n"
    "bubble: share of the time of the workers that had tasks in which they ran none.\n\n"
    "critical path: of all chains of tasks in which each waits for the one before, the one whose "
    "times add up to most; two tasks of one worker do not wait for each other. No number of "
    "workers makes these steps shorter.\n\n"
    "of roof: what a layer's tasks on CPUs compute a second, against the peak of one core, or "
    "against what --bandwidth lets them have where that is less.";

int main(int argc, char **argv) {
  static const struct argp argp = {options, parse_option, "DIR\nFILE...", about, NULL, NULL, NULL};
  struct question q = {.to = INFINITY};
  struct source source;
  char message[PATH_MAX + 512];
  start_program(&argp, 0, argc, argv, &q);
  if (q.output && !output_name_is_fine(q.output)) {
    fail("%s: the name must end in .svg or .png%s", q.output, "");
    return EXIT_USAGE;
  }
  if (q.output && output_is_png(q.output) && !canvas_has_png())
    return fail("%s: this build has no cairo, which writes PNG; name a .svg%s", q.output, "");
  bool fine = source_open(&source, q.path_count, q.paths, message, sizeof message);
  int code = fine ? work(&q, &source) : fail("%s%s", message, "");
  source_close(&source);
  return code;
}
