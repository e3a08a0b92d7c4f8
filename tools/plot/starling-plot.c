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
#include "tools/common/output.h"
#include "tools/common/command_line.h"

enum { KEY_SMOOTH = 256, KEY_WIDTH, KEY_HEIGHT, KEY_TITLE };

static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0, "The picture, .svg or .png (default curve.svg)", 0},
    {"log-scale", 'l', NULL, 0, "Logarithmic axis of the loss", 0},
    {"smooth", KEY_SMOOTH, "STEPS", 0,
     "Mean of about so many steps for the bold curve (default: a hundredth of the run; 1: none)",
     0},
    {"title", KEY_TITLE, "TEXT", 0, "A title", 0},
    {"width", KEY_WIDTH, "PIXELS", 0, "Width of the picture (default 800)", 0},
    {"height", KEY_HEIGHT, "PIXELS", 0, "Height of the picture (default 560)", 0},
    {0}};

struct plot {
  struct chart_options chart;
  const char *output;
  char **logs;
  size_t count;
};

static double read_number(const struct argp_state *state, const char *option, const char *text,
                          double least, double most) {
  char *end;
  double value = strtod(text, &end);
  if (strspn(text, "0123456789") != strlen(text) || !*text || *end ||
      !(value >= least && value <= most))
    argp_failure(state, EXIT_USAGE, 0, "%s '%s': must be a whole number from %g to %g", option,
                 text, least, most);
  return value;
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct plot *plot = state->input;
  switch (key) {
    case 'o': plot->output = text; break;
    case 'l': plot->chart.log_scale = true; break;
    case KEY_SMOOTH: plot->chart.smooth = read_number(state, "--smooth", text, 1, 1e9); break;
    case KEY_TITLE: plot->chart.title = text; break;
    case KEY_WIDTH: plot->chart.width = (int)read_number(state, "--width", text, 200, 10000); break;
    case KEY_HEIGHT:
      plot->chart.height = (int)read_number(state, "--height", text, 200, 10000);
      break;
    case ARGP_KEY_ARGS:
      plot->logs = state->argv + state->next;
      plot->count = (size_t)(state->argc - state->next);
      break;
    case ARGP_KEY_NO_ARGS: argp_failure(state, EXIT_USAGE, 0, "no log is named; see --help"); break;
    default: return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

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
  if (code == EXIT_DONE) code = draw(plot, runs);
  for (size_t i = 0; i < read; i++) curves_free(&runs[i]);
  free(runs);
  return code;
}

int main(int argc, char **argv) {
  static const struct argp argp = {
      options, parse_option, "LOG.jsonl...", "Draw the learning curves in training logs.", NULL,
      NULL,    NULL};
  struct plot plot = {.chart = {.width = 800, .height = 560}, .output = "curve.svg"};
  start_program(&argp, 0, argc, argv, &plot);
  if (!output_name_is_fine(plot.output)) {
    fail("%s: the name must end in .svg or .png%s", plot.output, "");
    return EXIT_USAGE;
  }
  if (output_is_png(plot.output) && !canvas_has_png())
    return fail("%s: this build has no cairo, which writes PNG; name a .svg%s", plot.output, "");
  return read_and_draw(&plot);
}
