/* starling-plot: learning curves from training logs, as a picture. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/common/chart.h"
#include "tools/common/command_line.h"
#include "tools/common/option_table.h"
#include "tools/common/output.h"

struct plot {
  struct chart_options chart;
  const char *output;
  char **logs;
  size_t count;
};

/* ---- the command line ---- */

static const char *parse_smooth(const struct option_row *row, const char *text, void *values) {
  int64_t steps;
  const char *why = option_whole(text, (int64_t)row->least, (int64_t)row->most, &steps);
  if (!why) ((struct plot *)values)->chart.smooth = (double)steps;
  return why;
}

static const char *const x_units[] = {
    [CHART_STEPS] = "steps", [CHART_EPOCHS] = "epochs", [CHART_SECONDS] = "seconds", NULL};

#define FIELD(member) OPTION_FIELD(struct plot, member)
#define PIXELS .least = 200, .most = 10000

static const struct option_row rows[] = {
    {"output", "FILE", "The picture, .svg or .png", FIELD(output), .flags = OPTION_WRITES,
     .letter = 'o'},
    {"log-scale", NULL, "Logarithmic axis of the loss", FIELD(chart.log_scale), .letter = 'l'},
    {"x", "UNIT", "The x axis in steps, epochs or seconds", FIELD(chart.x), .names = x_units},
    {"smooth", "STEPS", "Mean of about STEPS steps for the bold curve; 1: none", .least = 1,
     .most = 1e9, .parse = parse_smooth, .unset = "a hundredth of the run"},
    {"title", "TEXT", "A title", FIELD(chart.title)},
    {"width", "PIXELS", "Width of the picture", FIELD(chart.width), PIXELS},
    {"height", "PIXELS", "Height of the picture", FIELD(chart.height), PIXELS}};

static int take_logs(void *input, char **words, int count, const char **why) {
  struct plot *plot = input;
  (void)why;
  plot->logs = words;
  plot->count = (size_t)count;
  return count;
}

static const char *check(void *input) {
  return ((struct plot *)input)->count ? NULL : "no log is named; see --help";
}

static void parse(struct plot *plot, int argc, char **argv) {
  const struct option_program program = {
      .usage = "LOG.jsonl...",
      .about = "Draw the learning curves in training logs.",
      .description =
          "LOG is the log of a trainer (--log FILE.jsonl); it may still grow. The picture has the "
          "loss and, where the logs have them, accuracy or perplexity, throughput and learning "
          "rate of each run.",
      .examples =
          "  lenet --log run.jsonl && starling-plot -o curve.svg run.jsonl\n"
          "  starling-plot --log-scale -o both.png run1.jsonl run2.jsonl\n"
          "  starling-plot --x seconds --title 'Two learning rates' run1.jsonl run2.jsonl\n",
      .manual.see_also = "lenet(1), lstm_lm(1), mlp(1), resnet(1), starling-report(1)",
      .sets = {{rows, sizeof rows / sizeof *rows, plot, NULL, NULL}},
      .input = plot,
      .argument = take_logs,
      .check = check};
  option_parse(&program, argc, argv);
}

/* ---- the picture ---- */

static int fail(const char *format, const char *what, const char *detail) {
  fprintf(stderr, "starling-plot: ");
  fprintf(stderr, format, what, detail);
  fputc('\n', stderr);
  return EXIT_FAILED;
}

static int draw(const struct plot *plot, const struct run_curves *runs) {
  const struct chart_options *chart = &plot->chart;
  int code = EXIT_DONE, error = 0;
  struct canvas *canvas = output_canvas(plot->output, chart->width, chart->height);
  if (!canvas || !chart_draw(canvas, chart, runs, plot->count) ||
      (error = output_write(plot->output, canvas)) == ENOMEM)
    code = fail("%s: cannot be drawn: %s", plot->output, "no memory");
  else if (error)
    code = fail("%s: cannot be written: %s", plot->output, strerror(error));
  if (canvas) canvas->free(canvas);
  return code;
}

static int read_and_draw(const struct plot *plot) {
  struct run_curves *runs = calloc(plot->count, sizeof *runs);
  char message[512];
  size_t read = 0;
  int code = runs ? EXIT_DONE : fail("%s%s", "no memory", "");
  while (code == EXIT_DONE && read < plot->count) {
    const char *path = plot->logs[read];
    if (!curves_read(path, &runs[read++], message, sizeof message))
      code = fail("%s%s", message, "");
  }
  const struct run_curves *lacking =
      code == EXIT_DONE ? chart_lacks(plot->chart.x, runs, plot->count) : NULL;
  if (lacking)
    code = fail("%s: has no %s of its steps; was it written by an older version? Take --x steps",
                plot->logs[lacking - runs], x_units[plot->chart.x]);
  if (code == EXIT_DONE) code = draw(plot, runs);
  for (size_t i = 0; i < read; i++) curves_free(&runs[i]);
  free(runs);
  return code;
}

int main(int argc, char **argv) {
  struct plot plot = {.chart = {.width = 800, .height = 560}, .output = "curve.svg"};
  parse(&plot, argc, argv);
  if (!output_name_is_fine(plot.output)) {
    fail("%s: the name must end in .svg or .png%s", plot.output, "");
    return EXIT_USAGE;
  }
  if (output_is_png(plot.output) && !canvas_has_png())
    return fail("%s: this build has no cairo, which writes PNG; name a .svg%s", plot.output, "");
  return read_and_draw(&plot);
}
