/* starling-trace: how busy the devices were, from StarPU's trace, and a picture of it. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "trace.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "(unconfigured)"
#endif

/* visible, or argp does not find it */
__attribute__((visibility("default"))) const char *argp_program_version =
    "Starling " PACKAGE_VERSION;

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };
enum { KEY_FROM = 256, KEY_TO, KEY_STAGES, KEY_MICROBATCHES };

static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0, "Draw the tasks, .svg or .png, a line a worker", 0},
    {"from", KEY_FROM, "MS", 0, "Leave out what began before, from the first task on", 0},
    {"to", KEY_TO, "MS", 0, "Leave out what ended after", 0},
    {"stages", KEY_STAGES, "P", 0, "With --microbatches: the theory of GPipe and 1F1B beside it",
     0},
    {"microbatches", KEY_MICROBATCHES, "M", 0, "Microbatches a step", 0},
    {0}};

struct question {
  const char *path, *output;
  double from, to;
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

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct question *q = state->input;
  switch (key) {
    case 'o': q->output = text; break;
    case KEY_FROM: q->from = read_number(state, "--from", text, 0, 1e12); break;
    case KEY_TO: q->to = read_number(state, "--to", text, 0, 1e12); break;
    case KEY_STAGES: q->stages = (int)read_number(state, "--stages", text, 1, 4096); break;
    case KEY_MICROBATCHES:
      q->microbatches = (int)read_number(state, "--microbatches", text, 1, 1e6);
      break;
    case ARGP_KEY_ARG:
      if (q->path) argp_failure(state, EXIT_USAGE, 0, "'%s': one trace at a time", text);
      q->path = text;
      break;
    case ARGP_KEY_END:
      if (!q->path) argp_failure(state, EXIT_USAGE, 0, "no tasks.rec is named; see --help");
      if (!q->stages != !q->microbatches)
        argp_failure(state, EXIT_USAGE, 0, "--stages and --microbatches belong together");
      break;
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

/* Only the window's tasks; its ends are those of its first and last task. */
static bool cut_window(struct trace *trace, const struct question *q, double *begin, double *end) {
  double first = trace->tasks[0].start;
  size_t kept = 0;
  *end = -INFINITY;
  for (size_t i = 0; i < trace->count; i++) {
    const struct trace_task *t = &trace->tasks[i];
    if (t->start < first + q->from || t->end > first + q->to) continue;
    if (t->end > *end) *end = t->end;
    trace->tasks[kept++] = *t;
  }
  trace->count = kept;
  *begin = kept ? trace->tasks[0].start : 0;
  return kept > 0;
}

/* The layers whose tasks ran there, the optimizer's aside. */
static void print_layers(const struct trace *trace, int worker) {
  for (int l = 0; l < trace->layer_count; l++)
    for (size_t i = 0; i < trace->count; i++) {
      const struct trace_task *t = &trace->tasks[i];
      if (t->worker != worker || t->layer != l || t->update) continue;
      printf(" %s", trace->layers[l]);
      break;
    }
}

static int by_time(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* ms in which two or more workers computed. Beginnings and ends are walked through side by side. */
static double overlap(const struct trace *trace) {
  size_t n = trace->count, ended = 0;
  double *ends = malloc(n * sizeof *ends), sum = 0, since = 0;
  if (!ends) return NAN;
  for (size_t i = 0; i < n; i++) ends[i] = trace->tasks[i].end;
  qsort(ends, n, sizeof *ends, by_time);
  for (size_t begun = 0; ended < n;) { /* a worker runs one task at a time */
    size_t busy = begun - ended;
    bool begins = begun < n && trace->tasks[begun].start < ends[ended];
    double now = begins ? trace->tasks[begun].start : ends[ended];
    if (busy >= 2) sum += now - since;
    since = now;
    begins ? begun++ : ended++;
  }
  free(ends);
  return sum;
}

static void print_shares(const struct trace *trace, const struct question *q, double begin,
                         double end) {
  double total = 0, span = end - begin;
  int used = 0;
  printf("window  %.3f ms, %zu tasks\n", span, trace->count);
  for (int w = 0; w < trace->workers; w++) {
    double busy = 0;
    size_t tasks = 0;
    for (size_t i = 0; i < trace->count; i++) {
      if (trace->tasks[i].worker != w) continue;
      busy += trace->tasks[i].end - trace->tasks[i].start;
      tasks++;
    }
    if (!tasks) continue;
    printf("worker %-3d %8zu tasks  busy %10.3f ms  %5.1f %% ", w, tasks, busy, 100 * busy / span);
    print_layers(trace, w);
    putchar('\n');
    total += busy;
    used++;
  }
  printf("bubble  %.1f %% of %d workers\n", 100 * (1 - total / (span * used)), used);
  printf("overlap %.1f %% of the window: two or more workers at once\n",
         100 * overlap(trace) / span);
  if (q->stages)
    printf("theory  %.1f %% for GPipe and 1F1B: (p - 1) / (m + p - 1), p = %d, m = %d\n",
           100.0 * (q->stages - 1) / (q->microbatches + q->stages - 1), q->stages, q->microbatches);
}

/* Colours that differ by the layer; what goes backwards is darker. */
static unsigned layer_colour(int layer, bool backward) {
  static const unsigned light[] = {0x56b4e9, 0xe69f00, 0x35c49a, 0xe08bb8,
                                   0xd9c828, 0xff8f4d, 0x9a9af0, 0xb0b0b0};
  unsigned c = light[layer % 8];
  if (!backward) return c;
  return (c >> 16 & 0xff) * 3 / 5 << 16 | (c >> 8 & 0xff) * 3 / 5 << 8 | (c & 0xff) * 3 / 5;
}

enum { WIDTH = 1000, LEFT = 80, LANE = 44, TOP = 30, LEGEND = 22 };

static void draw_legend(struct canvas *canvas, const struct trace *trace, double y) {
  double x = LEFT;
  for (int i = 0; i < trace->layer_count; i++) {
    canvas->box(canvas, (struct point){x, y - 9}, 10, 10, layer_colour(i, false), 1);
    canvas->box(canvas, (struct point){x + 10, y - 9}, 10, 10, layer_colour(i, true), 1);
    canvas->text(canvas, (struct point){x + 24, y}, ANCHOR_START, 11, 0x333333, trace->layers[i]);
    x += 34 + 7 * (double)strlen(trace->layers[i]);
    if (x < WIDTH - 100) continue;
    x = LEFT;
    y += LEGEND;
  }
}

static void draw_tasks(struct canvas *canvas, const struct trace *trace, double begin, double end) {
  char text[64];
  double scale = (WIDTH - LEFT - 20) / (end - begin);
  for (int w = 0; w < trace->workers; w++) {
    snprintf(text, sizeof text, "worker %d", w);
    canvas->text(canvas, (struct point){LEFT - 8, TOP + LANE * w + 20}, ANCHOR_END, 12, 0x333333,
                 text);
    canvas->box(canvas, (struct point){LEFT, TOP + LANE * w}, WIDTH - LEFT - 20, LANE - 10,
                0xeeeeee, 1);
  }
  for (size_t i = 0; i < trace->count; i++) {
    const struct trace_task *t = &trace->tasks[i];
    canvas->box(canvas, (struct point){LEFT + (t->start - begin) * scale, TOP + LANE * t->worker},
                (t->end - t->start) * scale, LANE - 10, layer_colour(t->layer, t->backward), 1);
  }
  snprintf(text, sizeof text, "%.2f ms", end - begin);
  canvas->text(canvas, (struct point){WIDTH - 20, TOP - 10}, ANCHOR_END, 12, 0x333333, text);
}

static int draw(const struct trace *trace, const char *output, double begin, double end) {
  int lines = 1 + trace->layer_count / 8, error;
  int height = TOP + LANE * trace->workers + LEGEND * (lines + 1);
  struct canvas *canvas = output_canvas(output, WIDTH, height);
  if (!canvas) return fail("%s: cannot be drawn: %s", output, "no memory");
  canvas->box(canvas, (struct point){0, 0}, WIDTH, height, 0xffffff, 1);
  draw_tasks(canvas, trace, begin, end);
  draw_legend(canvas, trace, TOP + LANE * trace->workers + 14);
  error = output_write(output, canvas);
  canvas->free(canvas);
  return error ? fail("%s: cannot be written: %s", output, strerror(error)) : EXIT_DONE;
}

int main(int argc, char **argv) {
  static const struct argp argp = {
      options,
      parse_option,
      "tasks.rec",
      "Busy shares and pipeline bubbles from a trace of StarPU. Run the program with "
      "STARPU_FXT_TRACE=1 STARPU_FXT_PREFIX=DIR/, then in DIR: starpu_fxt_tool -i prof_file_*",
      NULL,
      NULL,
      NULL};
  struct question q = {.to = INFINITY};
  struct trace trace;
  char message[512];
  double begin, end;
  argp_err_exit_status = EXIT_USAGE;
  argp_parse(&argp, argc, argv, 0, NULL, &q);
  if (q.output && !output_name_is_fine(q.output)) {
    fail("%s: the name must end in .svg or .png%s", q.output, "");
    return EXIT_USAGE;
  }
  if (q.output && output_is_png(q.output) && !canvas_has_png())
    return fail("%s: this build has no cairo, which writes PNG; name a .svg%s", q.output, "");
  if (!trace_read(q.path, &trace, message, sizeof message)) return fail("%s%s", message, "");
  int code = EXIT_DONE;
  if (!cut_window(&trace, &q, &begin, &end))
    code = fail("%s: no task lies between --from and --to%s", q.path, "");
  if (code == EXIT_DONE) print_shares(&trace, &q, begin, end);
  if (code == EXIT_DONE && q.output) code = draw(&trace, q.output, begin, end);
  trace_free(&trace);
  return code;
}
