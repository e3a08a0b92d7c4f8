#include "tools/trace/gantt.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/palette.h"
#include "tools/common/output.h"

enum {
  WIDTH = 1600,
  LEFT = 190,
  RIGHT = 1570,
  TOP = 84,
  GAP = 6,
  AXIS = 30,
  HEADING = 44,
  ROW = 24
};
enum { INK = 0x1d2733, FAINT = 0x6b7785, PAPER = 0xffffff };
enum {
  IDLE = 0xedf0f3,
  OVERHEAD = 0xb4bdc8,
  WAITING = 0xf0b9b9,
  MOVING = 0x7b3fb8,
  PATH = 0x101418
};

static const struct {
  unsigned colour;
  const char *text;
} others[] = {{IDLE, "idle"},
              {OVERHEAD, "StarPU's own work"},
              {WAITING, "waiting for data"},
              {MOVING, "transfer or message"},
              {PATH, "critical path"}};

/* A line of the picture: a worker, the transfers into its memory, or the messages between its rank
 * and others (the worker is then the first of the rank). */
enum kind { WORKER, TRANSFERS, MESSAGES };

struct lane {
  int worker;
  enum kind kind;
};

struct picture {
  const struct report *report;
  const struct trace *trace;
  struct canvas *canvas;
  struct lane *lanes;
  int lane_count;
  bool *critical; /* for each task: is it on the critical path? */
  double *steps;  /* beginning of each known step, ms; INFINITY: unknown */
  long first_step, step_count;
  const char *path; /* the picture's file */
};

/* A part of the time, drawn from y down. */
struct panel {
  double from, to, y, height; /* height: of a lane */
  bool labels;                /* draw the tasks' names */
};

/* ---- lanes and steps ---- */

static bool has_tasks(const struct report *r, int worker) {
  return r->numbers->devices[worker].tasks > 0;
}

/* Does the transfer belong into a lane of this kind for this worker's memory node, or rank? */
static bool belongs(const struct trace_transfer *t, const struct trace_worker *w, enum kind kind) {
  if (t->rank != w->rank || (t->peer >= 0) != (kind == MESSAGES)) return false;
  return kind == MESSAGES || t->to == w->node;
}

static bool has_any(const struct trace *t, int worker, enum kind kind) {
  for (size_t i = 0; i < t->transfer_count; i++)
    if (belongs(&t->transfers[i], &t->workers[worker], kind)) return true;
  return false;
}

static int by_node(const void *a, const void *b, void *context) {
  const struct trace_worker *workers = context;
  const struct trace_worker *v = &workers[((const struct lane *)a)->worker];
  const struct trace_worker *w = &workers[((const struct lane *)b)->worker];
  if (v->rank != w->rank) return v->rank < w->rank ? -1 : 1;
  if (v->node != w->node) return v->node < w->node ? -1 : 1;
  return v->number - w->number;
}

static bool is_first_of_node(const struct picture *p, int lane) {
  if (!lane) return true;
  const struct trace_worker *before = &p->trace->workers[p->lanes[lane - 1].worker];
  const struct trace_worker *own = &p->trace->workers[p->lanes[lane].worker];
  return before->node != own->node || before->rank != own->rank;
}

static void add_lane(struct picture *p, int worker, enum kind kind) {
  p->lanes[p->lane_count++] = (struct lane){worker, kind};
}

/* A node's transfers come before its workers, a rank's messages with its first node. */
static void add_lanes(struct picture *p, int worker, bool is_first) {
  add_lane(p, worker, WORKER);
  bool first_of_node = is_first_of_node(p, p->lane_count - 1);
  p->lane_count--;
  if (is_first && has_any(p->trace, worker, MESSAGES)) add_lane(p, worker, MESSAGES);
  if (first_of_node && has_any(p->trace, worker, TRANSFERS)) add_lane(p, worker, TRANSFERS);
  if (has_tasks(p->report, worker)) add_lane(p, worker, WORKER);
}

/* Lists all workers that have a task or transfers into their memory. */
static bool list_lanes(struct picture *p) {
  const struct trace *t = p->trace;
  size_t count = 0;
  p->lanes = calloc(3 * (size_t)t->worker_count + 1, sizeof *p->lanes);
  struct lane *workers = calloc((size_t)t->worker_count, sizeof *workers);
  for (int w = 0; p->lanes && workers && w < t->worker_count; w++)
    if (has_tasks(p->report, w) || has_any(t, w, TRANSFERS)) workers[count++].worker = w;
  if (count) qsort_r(workers, count, sizeof *workers, by_node, t->workers);
  for (size_t i = 0; i < count; i++) {
    const struct trace_worker *w = &t->workers[workers[i].worker];
    add_lanes(p, workers[i].worker, !i || t->workers[workers[i - 1].worker].rank != w->rank);
  }
  free(workers);
  return p->lanes && count;
}

static bool list_steps(struct picture *p) {
  long first = 0, last = 0;
  for (size_t i = 0; i < p->trace->count; i++) {
    long step = p->trace->tasks[i].step;
    if (step <= 0) continue;
    if (!first || step < first) first = step;
    if (step > last) last = step;
  }
  p->first_step = first;
  p->step_count = first ? last - first + 1 : 0;
  p->steps = calloc((size_t)p->step_count + 1, sizeof *p->steps);
  if (!p->steps) return false;
  for (long s = 0; s < p->step_count; s++) p->steps[s] = INFINITY;
  p->steps[p->step_count] = p->trace->window;
  for (size_t i = 0; i < p->trace->count; i++) {
    const struct trace_task *t = &p->trace->tasks[i];
    if (t->step > 0 && t->start < p->steps[t->step - first]) p->steps[t->step - first] = t->start;
  }
  return true;
}

static bool list_critical(struct picture *p) {
  const struct numbers *n = p->report->numbers;
  p->critical = calloc(p->trace->count + 1, sizeof *p->critical);
  if (!p->critical) return false;
  for (size_t i = 0; i < n->path_count; i++) p->critical[n->path[i]] = true;
  return true;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The step for the large picture: of median length, and if possible neither the first nor the last.
 * -1: no memory. */
static long typical_step(const struct picture *p) {
  double *lengths = calloc((size_t)p->step_count + 1, sizeof *lengths);
  long first = p->step_count > 2, last = p->step_count - (p->step_count > 3), best = first;
  size_t count = 0;
  if (!lengths) return -1;
  for (long s = first; s < last; s++) lengths[count++] = p->steps[s + 1] - p->steps[s];
  qsort(lengths, count, sizeof *lengths, by_value);
  for (long s = first; s < last; s++)
    if (p->steps[s + 1] - p->steps[s] == lengths[count / 2]) best = s;
  free(lengths);
  return best;
}

/* ---- tasks ---- */

static double x_of(const struct panel *v, double ms) {
  double x = LEFT + (RIGHT - LEFT) * (ms - v->from) / (v->to - v->from);
  return x < LEFT ? LEFT : x > RIGHT ? RIGHT : x;
}

/* Estimates the width: the letters of these fonts are a bit more than half as wide as high. */
static double width_of(const char *text, double size) { return 0.56 * size * (double)strlen(text); }

static void add_mark(char *text, size_t size, char letter, int number) {
  size_t used = strlen(text);
  if (number >= 0) snprintf(text + used, size - used, " %c%d", letter, number);
}

/* Chooses the longest label that fits: "conv2 s0 r1 m3", or parts of it. */
static bool choose_label(const struct trace *trace, const struct trace_task *t, double room,
                         double size, char *text, size_t bytes) {
  const char *layer = trace->layers[t->layer];
  snprintf(text, bytes, "%s", layer);
  add_mark(text, bytes, 's', t->stage);
  add_mark(text, bytes, 'r', t->replica);
  add_mark(text, bytes, 'm', t->microbatch);
  if (width_of(text, size) <= room) return true;
  snprintf(text, bytes, "%s", layer);
  add_mark(text, bytes, 'm', t->microbatch);
  if (width_of(text, size) <= room) return true;
  snprintf(text, bytes, "%s", layer);
  if (width_of(text, size) <= room) return true;
  *text = '\0';
  add_mark(text, bytes, 'm', t->microbatch);
  memmove(text, text + (*text == ' '), strlen(text + (*text == ' ')) + 1);
  return *text && width_of(text, size) <= room;
}

static void draw_task(struct picture *p, const struct panel *v, size_t i, double y) {
  static const enum sl__work works[] = {SL__WORK_FORWARD, SL__WORK_BACKWARD_DATA,
                                        SL__WORK_BACKWARD_WEIGHT, SL__WORK_UPDATE,
                                        SL__WORK_FORWARD};
  const double size = 11;
  const struct trace_task *t = &p->trace->tasks[i];
  double x = x_of(v, t->start), width = x_of(v, t->end) - x;
  double path = v->height > 30 ? 5 : 3;
  unsigned colour = t->pass == PASS_MESSAGE ? MOVING : sl__layer_colour(t->layer, works[t->pass]);
  bool dark = t->pass >= PASS_BACKWARD_WEIGHT;
  char text[80];
  if (width > 3) width -= 0.6; /* a gap separates neighbours */
  p->canvas->box(p->canvas, (struct point){x, y}, width < 0.3 ? 0.3 : width, v->height - path,
                 colour, 1);
  if (p->critical[i])
    p->canvas->box(p->canvas, (struct point){x, y + v->height - path}, width < 0.3 ? 0.3 : width,
                   path, PATH, 1);
  if (v->labels && choose_label(p->trace, t, width - 4, size, text, sizeof text))
    p->canvas->text(p->canvas, (struct point){x + width / 2, y + (v->height - path) / 2 + 4},
                    ANCHOR_MIDDLE, size, dark ? PAPER : INK, text);
}

static void draw_states(struct picture *p, const struct panel *v, int worker, double y) {
  const struct trace_worker *w = &p->trace->workers[worker];
  double drawn = -1;
  for (size_t i = 0; i < w->state_count; i++) {
    const struct trace_interval *s = &w->states[i];
    if (s->end <= v->from || s->start >= v->to) continue;
    if (s->state != STATE_OVERHEAD && s->state != STATE_TRANSFER) continue;
    double x = x_of(v, s->start), end = x_of(v, s->end);
    if (end < drawn + 0.3 || end - x < 0.05) continue; /* too narrow to be visible */
    p->canvas->box(p->canvas, (struct point){x, y}, end - x, v->height,
                   s->state == STATE_OVERHEAD ? OVERHEAD : WAITING, 1);
    drawn = end;
  }
}

static void draw_worker(struct picture *p, const struct panel *v, int worker, double y) {
  double drawn = -1;
  draw_states(p, v, worker, y);
  for (size_t i = 0; i < p->trace->count; i++) {
    const struct trace_task *t = &p->trace->tasks[i];
    if (t->worker != worker || t->end <= v->from || t->start >= v->to) continue;
    double end = x_of(v, t->end);
    if (end < drawn + 0.2) continue; /* hidden by the task before */
    draw_task(p, v, i, y);
    drawn = end;
  }
}

static void draw_moves(struct picture *p, const struct panel *v, const struct lane *lane,
                       double y) {
  const struct trace_worker *w = &p->trace->workers[lane->worker];
  for (size_t i = 0; i < p->trace->transfer_count; i++) {
    const struct trace_transfer *t = &p->trace->transfers[i];
    if (!belongs(t, w, lane->kind) || t->end <= v->from || t->start >= v->to) continue;
    double x = x_of(v, t->start), width = x_of(v, t->end) - x;
    p->canvas->box(p->canvas, (struct point){x, y}, width < 0.5 ? 0.5 : width, v->height, MOVING,
                   lane->kind == MESSAGES ? 0.35 : 0.8); /* messages overlap each other */
  }
}

/* ---- names, axis, steps, legend ---- */

/* The stage of a worker's tasks, or -1 if they have several, or none. */
static int stage_of(const struct trace *trace, int worker) {
  int stage = -1;
  for (size_t i = 0; i < trace->count; i++) {
    const struct trace_task *t = &trace->tasks[i];
    if (t->worker != worker || t->stage < 0) continue;
    if (stage >= 0 && stage != t->stage) return -1;
    stage = t->stage;
  }
  return stage;
}

static void name_lane(struct picture *p, const struct panel *v, int lane, double y) {
  const struct trace *t = p->trace;
  const struct lane *l = &p->lanes[lane];
  const struct trace_worker *w = &t->workers[l->worker];
  double busy = p->report->numbers->devices[l->worker].ms[STATE_BUSY] / t->window;
  int stage = stage_of(t, l->worker);
  char text[120], node[80];
  bool small = v->height < 30;
  report_node(t, w, node, sizeof node);
  if (is_first_of_node(p, lane))
    p->canvas->text(p->canvas, (struct point){16, y + (small ? 12 : 16)}, ANCHOR_START, 13, FAINT,
                    node);
  static const char *const names[] = {"%s", "transfers in", "messages"};
  snprintf(text, sizeof text, names[l->kind], w->name);
  p->canvas->text(p->canvas, (struct point){LEFT - 10, y + (small ? v->height / 2 + 4 : 16)},
                  ANCHOR_END, small ? 11 : 14, INK, text);
  if (small || l->kind != WORKER) return;
  if (stage >= 0)
    snprintf(text, sizeof text, "stage %d, %.0f %% busy", stage, 100 * busy);
  else
    snprintf(text, sizeof text, "%.0f %% busy", 100 * busy);
  p->canvas->text(p->canvas, (struct point){LEFT - 10, y + 32}, ANCHOR_END, 12, FAINT, text);
}

/* Distance of the axis marks: 1, 2 or 5 times a power of ten, for about a dozen marks. */
static double tick_of(double span) {
  double power = pow(10, floor(log10(span / 12))), ratio = span / 12 / power;
  return power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
}

static void draw_axis(struct picture *p, const struct panel *v, double top, double bottom) {
  const struct pen line = {.colour = 0xd5dae0, .width = 1, .opacity = 1};
  double tick = tick_of(v->to - v->from);
  for (long i = lround(ceil(v->from / tick)); (double)i * tick <= v->to; i++) {
    double x = x_of(v, (double)i * tick);
    const struct point ends[] = {{x, top}, {x, bottom + 4}};
    char text[32];
    p->canvas->line(p->canvas, ends, 2, &line);
    snprintf(text, sizeof text, "%g", (double)i * tick);
    p->canvas->text(p->canvas, (struct point){x, bottom + 18}, ANCHOR_MIDDLE, 11, FAINT, text);
  }
  p->canvas->text(p->canvas, (struct point){LEFT - 10, bottom + 18}, ANCHOR_END, 11, FAINT,
                  "time, ms");
}

/* Marks where each step's first task begins; steps may overlap. A label without room is left out.
 */
static void draw_steps(struct picture *p, const struct panel *v, double top, double bottom) {
  const struct pen line = {.colour = INK, .width = 1.2, .opacity = 0.8, .dashed = true};
  double last = -100;
  for (long s = 0; s < p->step_count; s++) {
    if (!(p->steps[s] >= v->from && p->steps[s] < v->to)) continue;
    double x = x_of(v, p->steps[s]);
    const struct point ends[] = {{x, top - 4}, {x, bottom}};
    char text[32];
    p->canvas->line(p->canvas, ends, 2, &line);
    if (x < last + 60) continue;
    snprintf(text, sizeof text, "step %ld", p->first_step + s);
    p->canvas->text(p->canvas, (struct point){x + 2, top - 8}, ANCHOR_START, 11, INK, text);
    last = x;
  }
}

static double lane_height(const struct panel *v, const struct lane *lane) {
  return lane->kind == WORKER ? v->height : v->height * 0.4;
}

static double panel_height(const struct picture *p, const struct panel *v) {
  double sum = HEADING + AXIS;
  for (int i = 0; i < p->lane_count; i++) sum += lane_height(v, &p->lanes[i]) + GAP;
  return sum;
}

static void draw_panel(struct picture *p, const struct panel *v, const char *heading) {
  double top = v->y + HEADING, y = top;
  double bottom = v->y + panel_height(p, v) - AXIS;
  p->canvas->text(p->canvas, (struct point){16, v->y + 22}, ANCHOR_START, 14, INK, heading);
  for (int i = 0; i < p->lane_count; i++) {
    struct panel lane = *v;
    lane.height = lane_height(v, &p->lanes[i]);
    p->canvas->box(p->canvas, (struct point){LEFT, y}, RIGHT - LEFT, lane.height, IDLE, 1);
    y += lane.height + GAP;
  }
  draw_axis(p, v, top, bottom);
  y = top;
  for (int i = 0; i < p->lane_count; i++) {
    struct panel lane = *v;
    lane.height = lane_height(v, &p->lanes[i]);
    if (p->lanes[i].kind == WORKER)
      draw_worker(p, &lane, p->lanes[i].worker, y);
    else
      draw_moves(p, &lane, &p->lanes[i], y);
    name_lane(p, &lane, i, y);
    y += lane.height + GAP;
  }
  draw_steps(p, v, top, bottom);
}

/* Draws the legend and returns its height; without a canvas it only measures. */
static double draw_legend(struct picture *p, double y) {
  struct canvas *c = p->canvas;
  double x = 16, begun = y;
  for (int l = 0; l < p->trace->layer_count; l++) {
    const char *name = p->trace->layers[l];
    double width = 82 + width_of(name, 13);
    if (x + width > RIGHT) {
      x = 16;
      y += ROW;
    }
    for (int s = 0; c && s < 4; s++)
      c->box(c, (struct point){x + 12 * s, y}, 12, 14, sl__layer_colour(l, (enum sl__work)s), 1);
    if (c) c->text(c, (struct point){x + 54, y + 12}, ANCHOR_START, 13, INK, name);
    x += width;
  }
  y += ROW + 4;
  x = 16;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    bool moves = others[i].colour == MOVING, waits = others[i].colour == WAITING;
    if ((moves && !p->trace->transfer_count) || (waits && !p->trace->has_states)) continue;
    if (c) c->box(c, (struct point){x, y}, 20, 14, others[i].colour, 1);
    if (c) c->text(c, (struct point){x + 26, y + 12}, ANCHOR_START, 13, INK, others[i].text);
    x += 50 + width_of(others[i].text, 13);
  }
  if (c)
    c->text(c, (struct point){RIGHT, y + 12}, ANCHOR_END, 13, FAINT,
            "shades of a layer, from light to dark: forward, backward for data, backward for "
            "weights, update");
  return y + ROW + 10 - begun;
}

static void draw_title(struct picture *p) {
  const struct report *r = p->report;
  const struct numbers *n = r->numbers;
  char text[256];
  int used = 0;
  for (int w = 0; w < p->trace->worker_count; w++) used += has_tasks(r, w);
  if (r->title)
    snprintf(text, sizeof text, "%s", r->title);
  else if (r->window->known)
    snprintf(text, sizeof text, "%s: steps %ld to %ld on %d worker%s, %.2f ms a step",
             r->window->program, r->window->first, r->window->last, used, used == 1 ? "" : "s",
             p->trace->window / (double)(r->window->last - r->window->first + 1));
  else
    snprintf(text, sizeof text, "%.2f ms on %d worker%s", p->trace->window, used,
             used == 1 ? "" : "s");
  p->canvas->text(p->canvas, (struct point){16, 36}, ANCHOR_START, 22, INK, text);
  snprintf(
      text, sizeof text,
      "bubble %.1f %%; two or more workers at once %.1f %% of the time; critical path %.1f %%; "
      "%zu tasks in %.1f ms",
      100 * n->bubble, 100 * n->together, 100 * n->path_ms / p->trace->window, p->trace->count,
      p->trace->window);
  p->canvas->text(p->canvas, (struct point){16, 62}, ANCHOR_START, 14, FAINT, text);
}

/* Draws the whole window and, if it has several steps, one of them larger. */
static int draw(struct picture *p) {
  char heading[64];
  bool zooms = p->step_count > 2;
  long step = zooms ? typical_step(p) : 0;
  if (step < 0) return ENOMEM;
  double room = zooms ? 300 : 600, lane = room / p->lane_count;
  struct panel all = {.to = p->trace->window, .y = TOP - 8};
  all.height = lane > 56 ? 56 : lane < 10 ? 10 : lane;
  all.labels = true;
  struct panel one = all;
  lane = 500.0 / p->lane_count;
  one.height = lane > 80 ? 80 : lane < 14 ? 14 : lane;
  one.y = all.y + panel_height(p, &all) + 6;
  double legend = zooms ? one.y + panel_height(p, &one) + 8 : one.y + 8;
  double height = legend + draw_legend(p, legend);
  p->canvas = output_canvas(p->path, WIDTH, (int)height);
  if (!p->canvas) return ENOMEM;
  p->canvas->box(p->canvas, (struct point){0, 0}, WIDTH, height, PAPER, 1);
  draw_title(p);
  draw_panel(p, &all, zooms ? "All" : "");
  if (zooms) {
    one.from = p->steps[step];
    one.to = p->steps[step + 1];
    snprintf(heading, sizeof heading, "Step %ld", p->first_step + step);
    draw_panel(p, &one, heading);
  }
  draw_legend(p, legend);
  int error = output_write(p->path, p->canvas);
  p->canvas->free(p->canvas);
  return error;
}

int gantt_draw(const struct report *report, const char *path) {
  struct picture p = {.report = report, .trace = report->trace, .path = path};
  int error = list_lanes(&p) && list_steps(&p) && list_critical(&p) ? draw(&p) : ENOMEM;
  free(p.lanes);
  free(p.critical);
  free(p.steps);
  return error;
}
