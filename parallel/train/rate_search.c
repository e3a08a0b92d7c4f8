/* A search for a learning rate (Smith, arXiv 1506.01186): steps with a rate that rises, after which
 * the training is as it was before. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/batches.h"
#include "parallel/train/manifest.h"
#include "parallel/train/rate_search.h"
#include "parallel/train/signals.h"
#include "parallel/train/snapshot.h"

static const double DIVERGED = 4; /* times the least smoothed loss */

/* ---- steps ---- */

static enum sl_status check_options(const struct sl_trainer *t,
                                    const struct sl_rate_search_options *o) {
  if (!(o->low > 0) || !(o->low < o->high) || !(o->high < HUGE_VALF))
    return sl__fail(SL_BAD_ARGUMENT, "a search from rate %g to %g: must rise, from above 0", o->low,
                    o->high);
  if (o->steps < 10 || o->steps > 1000000)
    return sl__fail(SL_BAD_ARGUMENT, "a search of %lld steps: must be from 10 to 1000000",
                    (long long)o->steps);
  if (!(o->smoothing >= 0) || !(o->smoothing < 1))
    return sl__fail(SL_BAD_ARGUMENT, "smoothing %g: must be from 0 to below 1", o->smoothing);
  if (t->is_async)
    return sl__fail(SL_BAD_ARGUMENT,
                    "a search needs steps that all ranks make together: take "
                    "dist_sync");
  return SL_OK;
}

/* Each owner updates by its own rank's rates, and all ranks make the same number of steps. */
static enum sl_status agree_on_options(const struct sl_trainer *t,
                                       const struct sl_rate_search_options *o) {
  char line[160];
  enum sl_status status = check_options(t, o);
  if (t->is_async) return status; /* an error, on all ranks */
  SL__TRY(sl__trainer_share(t, status));
  if (t->ranks.size < 2) return SL_OK;
  snprintf(line, sizeof line, "a search from rate %.9g to %.9g, steps %lld, smoothing %.9g", o->low,
           o->high, (long long)o->steps, o->smoothing);
  status = sl__net_agree(t->model->context->net, line);
out:
  return status;
}

static enum sl_status note(struct sl_rate_search *s, const struct sl_rate_search_options *o,
                           const struct sl_report *report) {
  struct sl_rate_point *p = &s->points[s->count];
  const struct sl_rate_point *last = s->count ? p - 1 : NULL;
  if (!isfinite(report->loss)) return SL_NOT_FINITE;
  p->lr = report->lr;
  p->loss = report->loss;
  /* a mean whose weights fall by `smoothing`, over the weight that it has so far */
  double before = last ? 1 - pow(o->smoothing, (double)s->count) : 0;
  double now = 1 - pow(o->smoothing, (double)s->count + 1);
  p->smoothed = o->smoothing > 0 && last
                    ? (o->smoothing * last->smoothed * before + (1 - o->smoothing) * p->loss) / now
                    : p->loss;
  s->count++;
  return SL_OK;
}

/* Has the loss left for good? By what all ranks know alike. */
static bool has_diverged(const struct sl_rate_search *s) {
  double least = INFINITY;
  for (int64_t i = 0; i < s->count; i++) least = fmin(least, s->points[i].smoothed);
  return s->count && s->points[s->count - 1].smoothed > DIVERGED * fmax(least, 1e-12);
}

/* Reports of the steps that are pending; of those behind a divergence the loss is of no use. */
static enum sl_status drain(struct sl_trainer *t, struct sl_rate_search *s,
                            const struct sl_rate_search_options *o, bool *diverged) {
  struct sl_report report;
  enum sl_status status;
  for (bool more = true; more;) {
    more = t->submitted > t->finished;
    bool reported;
    status = sl_trainer_drain(t, &report, &reported);
    if (status == SL_OK && reported && !*diverged) status = note(s, o, &report);
    if (status == SL_NOT_FINITE) {
      *diverged = true;
      t->failed = false;
      status = SL_OK;
    }
    if (status != SL_OK) return status;
    *diverged |= has_diverged(s);
  }
  return SL_OK;
}

static enum sl_status take_steps(struct sl_trainer *t, struct sl_loader *loader,
                                 const struct sl_rate_search_options *o, struct sl_rate_search *s) {
  struct sl_report report;
  bool reported, diverged = false, stopped = false;
  for (int64_t i = 0; i < o->steps && !diverged && !stopped; i++) {
    if (sl__signals_ask_stop()) sl_trainer_stop(t); /* seen by all ranks after the same step */
    enum sl_status status = sl_trainer_step(t, loader, &report, &reported);
    if (status == SL_OK && reported) stopped |= report.stop;
    if (status == SL_OK && reported) status = note(s, o, &report);
    if (status == SL_NOT_FINITE) {
      diverged = true;
      t->failed = false;
    } else if (status != SL_OK) {
      return status;
    }
    diverged |= has_diverged(s);
  }
  enum sl_status status = drain(t, s, o, &diverged);
  if (diverged) s->divergence = o->low * pow(t->ramp->factor, (double)s->count - has_diverged(s));
  return status;
}

/* ---- what they say ---- */

/* The line of least squares through the losses of `half` points on each side of a point. */
struct line {
  double mean, slope; /* a step */
  double error;       /* the slope's standard error, by the losses' distances from the line */
};

static struct line line_at(const struct sl_rate_point *p, int64_t half) {
  double count = 2 * (double)half + 1, squares = 0, distances = 0;
  struct line line = {0, 0, 0};
  for (int64_t k = -half; k <= half; k++) {
    line.mean += p[k].loss / count;
    squares += (double)(k * k);
  }
  for (int64_t k = -half; k <= half; k++)
    line.slope += (double)k * (p[k].loss - line.mean) / squares;
  for (int64_t k = -half; k <= half; k++) {
    double distance = p[k].loss - line.mean - line.slope * (double)k;
    distances += distance * distance;
  }
  line.error = sqrt(distances / (count - 2) / squares);
  return line;
}

/* The middle of the points that have the least mean: a fall behind it is from a rise before. */
static int64_t lowest(const struct sl_rate_search *s, int64_t half) {
  int64_t at = half;
  for (int64_t i = half; i + half < s->count; i++)
    if (line_at(&s->points[i], half).mean < line_at(&s->points[at], half).mean) at = i;
  return at;
}

/* A batch's loss tells little, and so does a mean that begins with it: the fall is that of lines
 * through a fifth of the points, where it is larger than the batches' differences explain. */
void sl__rate_search_judge(struct sl_rate_search *s, int64_t steps) {
  const double sure = 4; /* standard errors */
  int64_t half = steps / 10 > 4 ? steps / 10 : 4, least = 0;
  double steepest = 0;
  if (half > (s->count - 1) / 2) half = (s->count - 1) / 2;
  int64_t last = lowest(s, half);
  for (int64_t i = half; half > 0 && i <= last && i + half < s->count; i++) {
    const struct line line = line_at(&s->points[i], half);
    if (line.slope >= steepest || line.slope > -sure * line.error) continue;
    steepest = line.slope;
    s->steepest = s->points[i].lr;
    least = i;
  }
  for (int64_t i = least + 1; i < s->count; i++)
    if (s->points[i].smoothed < s->points[least].smoothed) least = i;
  if (s->count) s->least = s->points[least].lr;
}

/* ---- the training as it was ---- */

struct before {
  struct sl__snapshot snapshot;
  struct sl__plan *plan;
  struct sl__data_position next_batch;
  int64_t step, epoch, index; /* the last two are the loader's */
};

static enum sl_status keep(struct sl_trainer *t, struct sl_loader *loader, struct before *b) {
  enum sl_status status;
  b->step = t->step;
  b->next_batch = t->next_batch;
  if (b->next_batch.loader) sl__loader_hold(b->next_batch.loader);
  sl_loader_tell(loader, &b->epoch, &b->index);
  status = sl__snapshot_new(t, t->next_batch.index, sl__whole_batch(loader), sl__trainer_workers(t),
                            &b->snapshot);
  SL__TRY(sl__trainer_share(t, status));
  SL__TRY(sl__carried_state_plan(t, &b->snapshot, &b->plan));
  status = sl__snapshot_from_trainer(t, "a search for a learning rate", &b->snapshot);
  SL__TRY(sl__trainer_share(t, status));
  status = sl__snapshot_share(t, &b->snapshot);
out:
  return status;
}

static enum sl_status restore(struct sl_trainer *t, struct sl_loader *loader,
                              const struct before *b) {
  enum sl_status status;
  SL__TRY(sl__snapshot_to_trainer(t, b->plan, &b->snapshot));
  SL__TRY(sl_loader_seek_batch(loader, b->epoch, b->index));
  for (int i = 0; i < t->plan_count && !b->next_batch.loader; i++)
    t->plans[i]->has_state = false; /* no step was made before */
  t->step = b->step;
  sl__trainer_move_to(t, &b->next_batch);
out:
  return status;
}

/* ---- all of it ---- */

static enum sl_status search_new(int64_t steps, struct sl_rate_search **search) {
  struct sl_rate_search *s = sl__alloc(1, sizeof *s, "a search for a rate");
  *search = s;
  if (!s) return SL_NO_MEMORY;
  s->points = sl__alloc((size_t)steps, sizeof *s->points, "a search for a rate");
  return s->points ? SL_OK : SL_NO_MEMORY;
}

void sl_rate_search_free(struct sl_rate_search *search) {
  if (!search) return;
  free(search->points);
  free(search);
}

enum sl_status sl_find_rate(struct sl_trainer *trainer, struct sl_loader *loader,
                            const struct sl_rate_search_options *options,
                            struct sl_rate_search **search) {
  SL__NEEDS(trainer, loader, search);
  struct sl_rate_search_options o = options ? *options : (struct sl_rate_search_options){0};
  struct before before = {0};
  struct sl_rate_search *s = NULL;
  enum sl_status status;
  *search = NULL;
  if (o.low == 0) o.low = 1e-6;
  if (o.high == 0) o.high = 10;
  if (!o.steps) o.steps = 100;
  if (o.smoothing == 0) o.smoothing = 0.9;
  SL__TRY(sl__trainer_drained(trainer));
  SL__TRY(sl__trainer_check_raw(trainer));
  SL__TRY(agree_on_options(trainer, &o));
  SL__TRY(sl__trainer_share(trainer, sl__trainer_check_loader(trainer, loader)));
  SL__TRY(search_new(o.steps, &s));
  SL__TRY(keep(trainer, loader, &before));
  const struct sl__rate_ramp ramp = {.low = o.low,
                                     .factor = pow(o.high / o.low, 1.0 / (double)(o.steps - 1)),
                                     .from = before.step};
  trainer->stop = trainer->shards->stop = false; /* of a run before */
  trainer->ramp = &ramp;
  status = take_steps(trainer, loader, &o, s);
  trainer->ramp = NULL;
  trainer->stop = trainer->shards->stop = false; /* it was for the search */
  SL__TRY(status);
  SL__TRY(restore(trainer, loader, &before));
  sl__rate_search_judge(s, o.steps);
  *search = s;
  s = NULL;
out:
  sl__snapshot_clear(&before.snapshot);
  sl__loader_release(before.next_batch.loader);
  sl_rate_search_free(s);
  return status;
}
