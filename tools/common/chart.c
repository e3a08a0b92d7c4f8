#include "tools/common/chart.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/metric_names.h"

/* Okabe and Ito's colours, which colour-blind people tell apart; yellow left out, it is too pale
 * for lines. */
const unsigned chart_colours[CHART_COLOURS] = {0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7,
                                               0xe69f00, 0x56b4e9, 0x444444};
static const unsigned INK = 0x333333, FAINT = 0xdddddd, PAPER = 0xffffff;
enum {
  FONT = 12,
  MARGIN_LEFT = 62,
  MARGIN_RIGHT = 24,
  MARGIN_TOP = 34,
  MARGIN_BOTTOM = 40,
  GAP = 52
};

struct axis {
  double least, most;
  bool log;
};

/* One coordinate system on the canvas. */
struct panel {
  struct point corner; /* upper left */
  double width, height;
  struct axis x, y;
};

static double share(const struct axis *axis, double value) {
  if (axis->log) return log(value / axis->least) / log(axis->most / axis->least);
  return (value - axis->least) / (axis->most - axis->least);
}

/* Values outside are drawn on the edge. */
static double clamped(double value, double least, double most) {
  return !(value > least) ? least : value > most ? most : value;
}

static struct point place(const struct panel *panel, double x, double y) {
  y = clamped(y, panel->y.least, panel->y.most);
  return (struct point){panel->corner.x + panel->width * share(&panel->x, x),
                        panel->corner.y + panel->height * (1 - share(&panel->y, y))};
}

/* ---- axes ---- */

/* The distance of ticks, 1, 2 or 5 times a power of ten, that gives at most `most` of them. */
static double tick_distance(double range, int most) {
  double power = pow(10, floor(log10(range / most)));
  static const double steps[] = {1, 2, 5, 10};
  for (int i = 0; i < 3; i++)
    if (range / (power * steps[i]) <= most) return power * steps[i];
  return power * 10;
}

static void draw_tick_x(struct canvas *canvas, const struct panel *panel, double value) {
  const struct pen pen = {FAINT, 1, 1, false};
  char text[32];
  struct point top = place(panel, value, panel->y.most), foot = place(panel, value, panel->y.least);
  struct point line[] = {top, foot};
  canvas->line(canvas, line, 2, &pen);
  snprintf(text, sizeof text, "%.10g", value);
  canvas->text(canvas, (struct point){foot.x, foot.y + 16}, ANCHOR_MIDDLE, FONT, INK, text);
}

static void draw_tick_y(struct canvas *canvas, const struct panel *panel, double value,
                        bool percent) {
  const struct pen pen = {FAINT, 1, 1, false};
  char text[32];
  struct point left = place(panel, panel->x.least, value),
               right = place(panel, panel->x.most, value);
  struct point line[] = {left, right};
  canvas->line(canvas, line, 2, &pen);
  snprintf(text, sizeof text, percent ? "%.6g %%" : "%.6g", percent ? 100 * value : value);
  canvas->text(canvas, (struct point){left.x - 6, left.y + 4}, ANCHOR_END, FONT, INK, text);
}

static void draw_ticks_linear(struct canvas *canvas, const struct panel *panel, bool percent) {
  double distance = tick_distance(panel->y.most - panel->y.least, 6);
  double first = ceil(panel->y.least / distance - 1e-9) + 0.0; /* no "-0" */
  for (double i = first; i * distance <= panel->y.most * (1 + 1e-9); i++)
    draw_tick_y(canvas, panel, i * distance, percent);
}

/* Every power of ten, and 2 and 5 between them while there are few. */
static void draw_ticks_log(struct canvas *canvas, const struct panel *panel) {
  static const double between[] = {1, 2, 5};
  double decades = log10(panel->y.most / panel->y.least);
  for (double power = floor(log10(panel->y.least)); pow(10, power) <= panel->y.most; power++)
    for (int i = 0; i < (decades < 3.5 ? 3 : 1); i++) {
      double value = between[i] * pow(10, power);
      if (value >= panel->y.least * (1 - 1e-9) && value <= panel->y.most * (1 + 1e-9))
        draw_tick_y(canvas, panel, value, false);
    }
}

static void draw_axes(struct canvas *canvas, const struct panel *panel, const char *name,
                      bool percent, enum chart_x x_unit) {
  static const char *const x_names[] = {
      [CHART_STEPS] = "step", [CHART_EPOCHS] = "epoch", [CHART_SECONDS] = "seconds"};
  const struct pen pen = {INK, 1, 1, false};
  double distance = tick_distance(panel->x.most, 8);
  if (x_unit == CHART_STEPS) distance = fmax(1, distance);
  for (double i = 0; i * distance <= panel->x.most; i++) draw_tick_x(canvas, panel, i * distance);
  if (panel->y.log)
    draw_ticks_log(canvas, panel);
  else
    draw_ticks_linear(canvas, panel, percent);
  struct point left = panel->corner, foot = {left.x, left.y + panel->height};
  struct point axes[] = {left, foot, {left.x + panel->width, foot.y}};
  canvas->line(canvas, axes, 3, &pen);
  canvas->text(canvas, (struct point){left.x - 6, left.y - 10}, ANCHOR_START, FONT + 1, INK, name);
  canvas->text(canvas, (struct point){axes[2].x, foot.y + 32}, ANCHOR_END, FONT, INK,
               x_names[x_unit]);
}

/* ---- curves ---- */

/* A run's curves in one coordinate system; an empty series draws nothing. */
struct curve {
  struct series raw, bold, tested;
};

/* Above e^34 the value no longer matters. */
static double perplexity(double loss) { return exp(fmin(loss, 34)); }

static double same(double value) { return value; }

static bool append_all(struct series *to, const struct series *from, double (*map)(double)) {
  for (size_t i = 0; i < from->count; i++)
    if (!series_append(to, from->samples[i].x, map(from->samples[i].y))) return false;
  return true;
}

static bool smooth_all(struct series *to, const struct series *from, double window,
                       double (*map)(double)) {
  if (!series_smooth(from, window, to)) return false;
  for (size_t i = 0; i < to->count; i++) to->samples[i].y = map(to->samples[i].y);
  return true;
}

/* Throughput once it is warm. A rate is the mean of about a second, and the first second of a run
 * allocates memory and loads libraries; so two seconds are left out, of a run shorter than eight
 * the first quarter. */
static bool append_warm(struct series *to, const struct run_curves *run) {
  double steps = run->loss.samples[run->loss.count - 1].x, warm = steps / 4;
  for (size_t i = 0; i < run->seconds.count && run->seconds.samples[i].x < steps / 4; i++)
    if (run->seconds.samples[i].y >= 2) {
      warm = run->seconds.samples[i].x;
      break;
    }
  for (size_t i = 0; i < run->rate.count; i++)
    if (run->rate.samples[i].x >= warm &&
        !series_append(to, run->rate.samples[i].x, run->rate.samples[i].y))
      return false;
  return true;
}

static bool append_metric(struct series *to, const struct run_curves *run, const char *key) {
  const struct series *from = curves_metric(run, key);
  return !from || append_all(to, from, same);
}

static bool make_curve(enum chart_kind kind, const char *metric, const struct run_curves *run,
                       double window, struct curve *curve) {
  switch (kind) {
    case CHART_LOSS:
      return append_all(&curve->raw, &run->loss, same) &&
             smooth_all(&curve->bold, &run->loss, window, same) &&
             append_all(&curve->tested, &run->test_loss, same);
    case CHART_PERPLEXITY:
      return !run->tokens || (smooth_all(&curve->bold, &run->loss, window, perplexity) &&
                              append_all(&curve->tested, &run->test_loss, perplexity));
    case CHART_ACCURACY: return append_all(&curve->tested, &run->test_accuracy, same);
    case CHART_METRIC: return append_metric(&curve->tested, run, metric);
    case CHART_LR: return append_all(&curve->bold, &run->lr, same);
    case CHART_RATE:
      return append_warm(&curve->raw, run) && smooth_all(&curve->bold, &curve->raw, window, same);
    default: return true;
  }
}

/* ---- the x axis ---- */

static const struct series *positions_of(enum chart_x x, const struct run_curves *run) {
  return x == CHART_EPOCHS ? &run->epochs : &run->seconds;
}

static void move_series(struct series *series, const struct series *positions) {
  for (size_t i = 0; i < series->count; i++)
    series->samples[i].x = series_at(positions, series->samples[i].x);
}

/* From steps, in which logs count, to the unit of the axis. */
static void move_curve(struct curve *curve, enum chart_x x, const struct run_curves *run) {
  if (x == CHART_STEPS) return;
  move_series(&curve->raw, positions_of(x, run));
  move_series(&curve->bold, positions_of(x, run));
  move_series(&curve->tested, positions_of(x, run));
}

static double last_step(const struct run_curves *runs, size_t count) {
  double last = 1;
  for (size_t i = 0; i < count; i++)
    last = fmax(last, runs[i].loss.samples[runs[i].loss.count - 1].x);
  return last;
}

static double last_x(enum chart_x x, const struct run_curves *runs, size_t count) {
  double last = 0;
  if (x == CHART_STEPS) return last_step(runs, count);
  for (size_t i = 0; i < count; i++)
    last = fmax(last, series_at(positions_of(x, &runs[i]), DBL_MAX));
  return last > 0 ? last : 1;
}

const struct run_curves *chart_lacks(enum chart_x x, const struct run_curves *runs, size_t count) {
  for (size_t i = 0; i < count && x != CHART_STEPS; i++)
    if (!positions_of(x, &runs[i])->count) return &runs[i];
  return NULL;
}

static void free_curves(struct curve *curves, size_t count) {
  for (size_t i = 0; curves && i < count; i++) {
    free(curves[i].raw.samples);
    free(curves[i].bold.samples);
    free(curves[i].tested.samples);
  }
  free(curves);
}

static struct curve *make_curves(enum chart_kind kind, const struct chart_options *options,
                                 const struct run_curves *runs, size_t count, double window) {
  struct curve *curves = calloc(count, sizeof *curves);
  for (size_t i = 0; i < count && curves; i++) {
    if (!make_curve(kind, options->metric, &runs[i], window, &curves[i])) {
      free_curves(curves, count);
      return NULL;
    }
    move_curve(&curves[i], options->x, &runs[i]);
  }
  return curves;
}

/* A million steps would make a picture of a million points: of every pixel column, the least and
 * the greatest are enough to look the same. */
static bool draw_series(struct canvas *canvas, const struct panel *panel,
                        const struct series *series, const struct pen *pen) {
  size_t columns = (size_t)panel->width, stride = series->count / columns + 1, used = 0;
  if (!series->count) return true;
  struct point *points = malloc((2 * (series->count / stride) + 2) * sizeof *points);
  if (!points) return false;
  for (size_t first = 0; first < series->count; first += stride) {
    size_t low = first, high = first;
    for (size_t i = first; i < series->count && i < first + stride; i++) {
      if (series->samples[i].y < series->samples[low].y) low = i;
      if (series->samples[i].y > series->samples[high].y) high = i;
    }
    size_t left = low < high ? low : high, right = low < high ? high : low;
    points[used++] = place(panel, series->samples[left].x, series->samples[left].y);
    if (right != left)
      points[used++] = place(panel, series->samples[right].x, series->samples[right].y);
  }
  canvas->line(canvas, points, used, pen);
  free(points);
  return true;
}

static bool draw_evaluations(struct canvas *canvas, const struct panel *panel,
                             const struct series *series, unsigned colour) {
  const struct pen pen = {colour, 1.5, 1, true};
  for (size_t i = 0; i < series->count && series->count <= 200; i++)
    canvas->dot(canvas, place(panel, series->samples[i].x, series->samples[i].y), 3, colour);
  return draw_series(canvas, panel, series, &pen);
}

static bool draw_curve(struct canvas *canvas, const struct panel *panel, const struct curve *curve,
                       unsigned colour) {
  const struct pen raw = {colour, 0.7, 0.25, false};
  const struct pen bold = {colour, 1.8, 1, false};
  return draw_series(canvas, panel, &curve->raw, &raw) &&
         draw_series(canvas, panel, &curve->bold, &bold) &&
         draw_evaluations(canvas, panel, &curve->tested, colour);
}

/* ---- the legend ---- */

/* Above the grid: entries from left to right, in as many rows as they need. No format measures
 * text, so widths are estimates. Without a canvas it only counts. */
struct legend {
  struct canvas *canvas; /* or NULL */
  double left, right, x, y;
};

enum { LEGEND_ROW = 18, LEGEND_STROKE = 26 };

/* The text, or as much of it as a row has room for, of whole characters. */
static const char *fitting(const struct legend *legend, const char *text, char *cut, size_t size) {
  static const char more[] = "...";
  double room = (legend->right - legend->left - LEGEND_STROKE - 6) / (0.55 * FONT);
  size_t most = room < sizeof more ? 0 : (size_t)room;
  if (strlen(text) <= most) return text;
  size_t length = most < sizeof more ? 0 : most - strlen(more);
  if (length > size - sizeof more) length = size - sizeof more;
  while (length && ((unsigned char)text[length] & 0xc0) == 0x80) length--;
  snprintf(cut, size, "%.*s%s", (int)length, text, more);
  return cut;
}

static void draw_entry(struct legend *legend, const struct pen *pen, bool dot, const char *label) {
  char cut[1024];
  const char *text = fitting(legend, label, cut, sizeof cut);
  double width = LEGEND_STROKE + 6 + 0.55 * FONT * (double)strlen(text) + 18;
  if (legend->x > legend->left && legend->x + width > legend->right) {
    legend->x = legend->left;
    legend->y += LEGEND_ROW;
  }
  struct point stroke[] = {{legend->x, legend->y - 4}, {legend->x + LEGEND_STROKE, legend->y - 4}};
  struct point middle = {legend->x + LEGEND_STROKE / 2.0, legend->y - 4};
  if (legend->canvas) {
    legend->canvas->line(legend->canvas, stroke, 2, pen);
    if (dot) legend->canvas->dot(legend->canvas, middle, 3, pen->colour);
    legend->canvas->text(legend->canvas, (struct point){stroke[1].x + 6, legend->y}, ANCHOR_START,
                         FONT, INK, text);
  }
  legend->x += width;
}

/* Returns its height. */
static double draw_legend(struct canvas *canvas, const struct chart_options *options, double top,
                          const struct run_curves *runs, size_t count, double smooth) {
  char training[80];
  const struct pen bold = {INK, 1.8, 1, false}, dashed = {INK, 1.5, 1, true};
  struct legend legend = {canvas, MARGIN_LEFT, options->width - MARGIN_RIGHT, MARGIN_LEFT,
                          top + LEGEND_ROW - 4};
  if (smooth > 1)
    snprintf(training, sizeof training, "training, mean of about %.0f steps", smooth);
  else
    snprintf(training, sizeof training, "training");
  for (size_t i = 0; i < count; i++) {
    const struct pen pen = {chart_colours[i % CHART_COLOURS], 4, 1, false};
    draw_entry(&legend, &pen, false, runs[i].label);
  }
  draw_entry(&legend, &bold, false, training);
  draw_entry(&legend, &dashed, true, "test");
  return legend.y + 4 - top;
}

/* ---- the whole ---- */

static void widen(const struct series *series, double *least, double *most) {
  for (size_t i = 0; i < series->count; i++) {
    double y = series->samples[i].y;
    if (y > 0 && y < *least) *least = y;
    if (y > *most) *most = y;
  }
}

/* Raw values may lie outside: they are many, and one among them would flatten the others. */
static void range_of(const struct curve *curves, size_t count, double *least, double *most) {
  *least = DBL_MAX;
  *most = 0;
  for (size_t i = 0; i < count; i++) {
    widen(&curves[i].bold, least, most);
    widen(&curves[i].tested, least, most);
  }
  if (*most <= 1e-200) *least = *most = 1; /* all zero */
  /* what no training has must not break the arithmetic to come */
  *most = fmin(*most, 1e200);
  *least = fmin(fmax(*least, 1e-200), *most);
}

static struct axis axis_from_zero(const struct curve *curves, size_t count, bool log_scale) {
  double least, most;
  range_of(curves, count, &least, &most);
  if (!log_scale) return (struct axis){0, 1.05 * most, false};
  return (struct axis){least / 1.2, 1.2 * most, true};
}

/* It falls by orders of magnitude, or hardly at all. */
static struct axis perplexity_axis(const struct curve *curves, size_t count) {
  double least, most;
  range_of(curves, count, &least, &most);
  most = fmin(most, 1e15);
  if (most > 4 * least) return (struct axis){least / 1.2, 1.2 * most, true};
  double margin = fmax(0.05 * (most - least), 0.01 * most);
  return (struct axis){least - margin, most + margin, false};
}

static double least_tested(const struct curve *curves, size_t count, double least) {
  for (size_t i = 0; i < count; i++)
    for (size_t k = 0; k < curves[i].tested.count; k++)
      least = fmin(least, curves[i].tested.samples[k].y);
  return least;
}

/* From a round number below the worst, or from the floor, to 1. */
static struct axis axis_to_one(const struct curve *curves, size_t count, double floor_of_all) {
  double least = fmax(floor_of_all, least_tested(curves, count, 1));
  double distance = tick_distance(fmax(1 - least, 1e-3) * 1.1, 5);
  double foot = floor((least - 0.02 * (1 - least)) / distance) * distance;
  foot = fmax(floor_of_all, fmin(foot, 1 - distance)); /* also where all is right */
  return (struct axis){foot, 1, false};
}

/* An R2 below -1 says no more than that the model is useless. */
static struct axis metric_axis(const struct curve *curves, size_t count, const char *metric) {
  if (metric_kind(metric).larger)
    return axis_to_one(curves, count, least_tested(curves, count, 0) < 0 ? -1 : 0);
  struct axis axis = axis_from_zero(curves, count, false);
  axis.least = fmax(1.05 * least_tested(curves, count, 0), -1e200);
  return axis;
}

static struct axis axis_of(enum chart_kind kind, const struct chart_options *options,
                           const struct curve *curves, size_t count) {
  switch (kind) {
    case CHART_ACCURACY: return axis_to_one(curves, count, 0);
    case CHART_METRIC: return metric_axis(curves, count, options->metric);
    case CHART_PERPLEXITY: return perplexity_axis(curves, count);
    default: return axis_from_zero(curves, count, kind == CHART_LOSS && options->log_scale);
  }
}

/* What stands above the y axis. Returns text. */
static const char *axis_name(enum chart_kind kind, const struct chart_options *options,
                             const struct run_curves *runs, size_t count, char *text, size_t size) {
  static const char *const names[] = {[CHART_LOSS] = "loss",
                                      [CHART_ACCURACY] = "test accuracy",
                                      [CHART_PERPLEXITY] = "perplexity",
                                      [CHART_LR] = "learning rate"};
  char metric[160];
  if (kind == CHART_RATE)
    snprintf(text, size, "%s/s", curves_unit(runs, count));
  else if (kind == CHART_METRIC)
    snprintf(text, size, "test %s", metric_name(options->metric, metric, sizeof metric));
  else
    snprintf(text, size, "%s", names[kind]);
  return text;
}

/* The panel's place is the caller's. */
static bool draw_panel(struct canvas *canvas, const struct chart_options *options,
                       enum chart_kind kind, const struct run_curves *runs, size_t count,
                       struct panel panel) {
  char name[200];
  bool percent = kind == CHART_ACCURACY;
  if (kind == CHART_METRIC) percent = metric_kind(options->metric).share;
  double window = options->smooth > 0 ? options->smooth : chart_window(runs, count);
  struct curve *curves = make_curves(kind, options, runs, count, window);
  bool good = curves != NULL;
  if (good) {
    panel.x = (struct axis){0, last_x(options->x, runs, count), false};
    panel.y = axis_of(kind, options, curves, count);
    draw_axes(canvas, &panel, axis_name(kind, options, runs, count, name, sizeof name), percent,
              options->x);
  }
  for (size_t i = 0; i < count && good; i++)
    good = draw_curve(canvas, &panel, &curves[i], chart_colours[i % CHART_COLOURS]);
  free_curves(curves, count);
  return good;
}

static bool draw_overview(struct canvas *canvas, const struct chart_options *options,
                          const struct run_curves *runs, size_t count) {
  bool accuracy = chart_has(CHART_ACCURACY, runs, count);
  double window = options->smooth > 0 ? options->smooth : chart_window(runs, count);
  double above = 10 + (options->title ? 22 : 0);
  double top = MARGIN_TOP + above - 10 + draw_legend(NULL, options, above, runs, count, window);
  double room = options->height - top - MARGIN_BOTTOM - (accuracy ? GAP : 0);
  struct panel panel = {.corner = {MARGIN_LEFT, top},
                        .width = options->width - MARGIN_LEFT - MARGIN_RIGHT,
                        .height = accuracy ? 0.6 * room : room};
  canvas->box(canvas, (struct point){0, 0}, options->width, options->height, PAPER, 1);
  if (options->title)
    canvas->text(canvas, (struct point){options->width / 2.0, 22}, ANCHOR_MIDDLE, FONT + 4, INK,
                 options->title);
  draw_legend(canvas, options, above, runs, count, window);
  if (!draw_panel(canvas, options, CHART_LOSS, runs, count, panel)) return false;
  if (!accuracy) return true;
  panel.corner.y += panel.height + GAP;
  panel.height = 0.4 * room;
  return draw_panel(canvas, options, CHART_ACCURACY, runs, count, panel);
}

bool chart_has(enum chart_kind kind, const struct run_curves *runs, size_t count) {
  for (size_t i = 0; i < count; i++)
    if ((kind == CHART_ACCURACY && runs[i].test_accuracy.count) ||
        (kind == CHART_PERPLEXITY && runs[i].tokens) || (kind == CHART_LR && runs[i].lr.count) ||
        (kind == CHART_RATE && runs[i].rate.count) || kind == CHART_LOSS || kind == CHART_OVERVIEW)
      return true;
  return false;
}

double chart_window(const struct run_curves *runs, size_t count) {
  return floor(last_step(runs, count) / 100);
}

bool chart_draw(struct canvas *canvas, const struct chart_options *options,
                const struct run_curves *runs, size_t count) {
  if (options->kind == CHART_OVERVIEW) return draw_overview(canvas, options, runs, count);
  struct panel panel = {.corner = {MARGIN_LEFT, MARGIN_TOP},
                        .width = options->width - MARGIN_LEFT - MARGIN_RIGHT,
                        .height = options->height - MARGIN_TOP - MARGIN_BOTTOM};
  return draw_panel(canvas, options, options->kind, runs, count, panel);
}
