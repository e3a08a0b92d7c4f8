/* Metrics of an evaluation, computed in double precision from what it collected of its outputs
 * (predictions.c). */
#include "parallel/train/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/net/net.h"
#include "parallel/train/trainer.h"

/* ---- metrics of labels ---- */

static double share_of(const struct sl__predictions *p, int64_t right) {
  return p->rows ? (double)right / (double)p->rows : NAN;
}

static double perplexity(const struct sl__predictions *p, double *each) {
  (void)each;
  return p->rows ? exp(p->loss) : NAN;
}

/* each[label][answer]: number of rows; the value: number of all. */
static double confusion(const struct sl__predictions *p, double *each) {
  for (int64_t i = 0; i < p->width * p->width; i++) each[i] = (double)p->pairs[i];
  return (double)p->rows;
}

/* ---- metrics of targets ---- */

/* The unit of output i: predictions and targets are normalised. */
static double unit_of(const struct sl__predictions *p, int64_t i) {
  const struct sl_dataset_info *info = p->info;
  int64_t plane = sl_shape_count(&info->target) / info->target.dim[0];
  i += p->first_target;
  return fabs((double)info->target_deviation[info->target_channels > 1 ? i / plane : 0]);
}

struct error_sums {
  double absolute, squared, target, terms;
};

static struct error_sums sum_errors(const struct sl__predictions *p, int64_t i) {
  struct error_sums s = {0, 0, 0, 0};
  double unit = unit_of(p, i);
  for (int64_t row = 0; row < p->rows; row++) {
    double t = (double)p->targets[row * p->width + i];
    double error = unit * ((double)p->outputs[row * p->width + i] - t);
    if (isnan(t)) continue;
    s.absolute += fabs(error);
    s.squared += error * error;
    s.target += unit * t;
    s.terms += 1;
  }
  return s;
}

static double mean_absolute(const struct sl__predictions *p, double *each) {
  double sum = 0, terms = 0;
  for (int64_t i = 0; i < p->width; i++) {
    const struct error_sums s = sum_errors(p, i);
    each[i] = s.terms > 0 ? s.absolute / s.terms : NAN;
    sum += s.absolute;
    terms += s.terms;
  }
  return terms > 0 ? sum / terms : NAN;
}

static double root_mean_square(const struct sl__predictions *p, double *each) {
  double sum = 0, terms = 0;
  for (int64_t i = 0; i < p->width; i++) {
    const struct error_sums s = sum_errors(p, i);
    each[i] = s.terms > 0 ? sqrt(s.squared / s.terms) : NAN;
    sum += s.squared;
    terms += s.terms;
  }
  return terms > 0 ? sqrt(sum / terms) : NAN;
}

/* The mean of those that are numbers. */
static double mean_of(const double *each, int64_t count) {
  double sum = 0, terms = 0;
  for (int64_t i = 0; i < count; i++)
    if (!isnan(each[i])) sum += each[i], terms += 1;
  return terms > 0 ? sum / terms : NAN;
}

/* 1 - squared errors / squared distances from the mean target; NaN where all targets are equal. */
static double determination(const struct sl__predictions *p, double *each) {
  for (int64_t i = 0; i < p->width; i++) {
    const struct error_sums s = sum_errors(p, i);
    double spread = 0, unit = unit_of(p, i);
    for (int64_t row = 0; row < p->rows; row++) {
      double t = unit * (double)p->targets[row * p->width + i];
      if (!isnan(t)) spread += (t - s.target / s.terms) * (t - s.target / s.terms);
    }
    each[i] = spread > 0 ? 1 - s.squared / spread : NAN;
  }
  return mean_of(each, p->width);
}

/* ---- metrics of yes and no ---- */

static int by_score(const void *a, const void *b) {
  float x = ((const struct sl__scored *)a)->score, y = ((const struct sl__scored *)b)->score;
  return (x > y) - (x < y);
}

/* The area under the ROC curve: the share of pairs in which the positive one has the higher score;
 * equal scores count half (Mann, Whitney 1947). NaN without positives or negatives. */
static double auc(struct sl__scored *all, int64_t count) {
  double rank_sum = 0, positives = 0;
  qsort(all, (size_t)count, sizeof *all, by_score);
  for (int64_t i = 0, end; i < count; i = end) {
    double in_tie = 0;
    for (end = i; end < count && !(all[end].score > all[i].score); end++)
      in_tie += all[end].positive;
    rank_sum += in_tie * ((double)(i + 1 + end) / 2);
    positives += in_tie;
  }
  double negatives = (double)count - positives;
  if (positives == 0 || negatives == 0) return NAN;
  return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives);
}

static double auc_of_outputs(const struct sl__predictions *p, double *each) {
  for (int64_t i = 0; i < p->width; i++) {
    int64_t count = 0;
    for (int64_t row = 0; row < p->rows; row++) {
      float t = p->targets[row * p->width + i];
      if (isnan(t)) continue;
      p->scored[count++] = (struct sl__scored){p->outputs[row * p->width + i], t >= 0.5f};
    }
    each[i] = auc(p->scored, count);
  }
  return mean_of(each, p->width);
}

static double auc_of_classes(const struct sl__predictions *p, double *each) {
  (void)each;
  return auc(p->scored, p->rows);
}

static double accuracy(const struct sl__predictions *p, double *each) {
  (void)each;
  if (p->has_labels) return share_of(p, p->within[0]);
  double right = 0, terms = 0;
  for (int64_t i = 0; i < p->rows * p->width; i++) {
    if (isnan(p->targets[i])) continue;
    right += (p->outputs[i] > 0) == (p->targets[i] >= 0.5f);
    terms += 1;
  }
  return terms > 0 ? right / terms : NAN;
}

/* ---- the table ---- */

enum { OF_LABELS = 1, OF_VALUES = 2, OF_BINARY = 4, OF_TEXT = 8 };

enum entries { WHOLE, BY_OUTPUT, BY_PAIR };

struct row {
  const char *name;
  unsigned of;                         /* what the loss must take */
  enum entries entries;                /* of `each` */
  int64_t least_outputs, most_outputs; /* 0: any */
  int64_t top; /* share of the labels among that many largest outputs, instead of compute */
  double (*compute)(const struct sl__predictions *p, double *each);
};

static const struct row rows[] = {
#define SL__METRIC(...) {__VA_ARGS__},
#include "parallel/train/metrics.def"
#undef SL__METRIC
};

enum { ROWS = sizeof rows / sizeof *rows };

static bool applies(const struct row *row, const struct sl__loss *loss,
                    const struct sl__predictions *p) {
  unsigned of = sl__loss_takes_labels(loss)      ? OF_LABELS
                : loss->row->kind == SL_LOSS_BCE ? OF_BINARY
                                                 : OF_VALUES;
  if (p->info->tokens) of |= OF_TEXT;
  return (row->of & of) && p->width >= row->least_outputs && p->width > row->top &&
         (!row->most_outputs || p->width <= row->most_outputs);
}

static bool has_metric(const struct sl__loss *loss, const struct sl__predictions *p,
                       const char *name) {
  bool does = false;
  for (int i = 0; i < ROWS; i++) does |= !strcmp(rows[i].name, name) && applies(&rows[i], loss, p);
  return does;
}

/* "OUTPUT.METRIC" */
static bool part_has_metric(const struct sl__loss_part *part, const struct sl_dataset_info *info,
                            const char *name) {
  size_t length = strlen(part->field.name);
  const struct sl__predictions p = {.info = info, .width = sl__part_width(part)};
  if (strncmp(name, part->field.name, length) != 0 || name[length] != '.') return false;
  name += length + 1;
  return !strcmp(name, "loss") || has_metric(&part->loss, &p, name);
}

bool sl__metric_applies(const struct sl_trainer *t, const struct sl_dataset_info *info,
                        const char *name) {
  const struct sl__predictions p = {.info = info,
                                    .width = sl__outputs_of_row(info, sl_model_output(t->model))};
  bool does = false;
  if (!t->loss.part_count) return has_metric(&t->loss, &p, name);
  for (int i = 0; i < t->loss.part_count; i++)
    does |= part_has_metric(&t->loss.parts[i], info, name);
  return does;
}

/* An evaluation with the names of its metrics, which are "OUTPUT.METRIC" for a loss of parts. */
struct named_evaluation {
  struct sl_evaluation evaluation;
  struct sl_metric *metrics;
  char (*names)[96];
};

static struct sl_metric *next_metric(struct named_evaluation *e, const char *output,
                                     const char *name) {
  int i = e->evaluation.metric_count++;
  snprintf(e->names[i], sizeof *e->names, "%s%s%s", output ? output : "", output ? "." : "", name);
  e->metrics[i].name = e->names[i];
  return &e->metrics[i];
}

/* computes: else another rank does. */
static enum sl_status add_metric(const struct row *row, const struct sl__predictions *p,
                                 bool computes, struct sl_metric *metric) {
  int64_t count = row->entries == WHOLE       ? 0
                  : row->entries == BY_OUTPUT ? p->width
                                              : p->width * p->width;
  double *each = count ? sl__alloc((size_t)count, sizeof *each, "a metric") : NULL;
  if (count && !each) return SL_NO_MEMORY;
  metric->value = !computes  ? NAN
                  : row->top ? share_of(p, p->within[row->top - 1])
                             : row->compute(p, each);
  metric->count = count;
  metric->each = each;
  return SL_OK;
}

/* output: of a part; else NULL. */
static enum sl_status compute_one(const struct sl__loss *loss, const char *output,
                                  const struct sl__predictions *p, bool computes,
                                  struct named_evaluation *e) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < ROWS && status == SL_OK; i++)
    if (applies(&rows[i], loss, p))
      status = add_metric(&rows[i], p, computes, next_metric(e, output, rows[i].name));
  return status;
}

static enum sl_status compute_all(const struct sl_trainer *t, const struct sl__predictions *p,
                                  const double *means, bool computes, struct named_evaluation *e) {
  enum sl_status status = SL_OK;
  e->evaluation.samples = p->rows;
  if (!t->loss.part_count) return compute_one(&t->loss, NULL, p, computes, e);
  for (int i = 0; i < t->loss.part_count && status == SL_OK; i++) {
    const struct sl__loss_part *part = &t->loss.parts[i];
    struct sl__predictions own = {0};
    next_metric(e, part->field.name, "loss")->value = means[i];
    status = sl__predictions_select(p, part, &own);
    if (status == SL_OK) status = compute_one(&part->loss, part->field.name, &own, computes, e);
    sl__predictions_end(&own);
  }
  return status;
}

/* All ranks get the values of rank 0. */
static enum sl_status share_values(struct sl__net *net, struct named_evaluation *e) {
  enum sl_status status;
  SL__TRY(sl__net_broadcast(net, &e->evaluation.samples, sizeof e->evaluation.samples));
  for (int i = 0; i < e->evaluation.metric_count; i++) {
    struct sl_metric *metric = &e->metrics[i];
    SL__TRY(sl__net_broadcast(net, &metric->value, sizeof metric->value));
    if (metric->count)
      SL__TRY(sl__net_broadcast(net, (double *)metric->each,
                                (size_t)metric->count * sizeof *metric->each));
  }
out:
  return status;
}

/* The metrics of all ranks' rows: rank 0 has them after the others' have come, and computes. */
static enum sl_status compute_over_ranks(const struct sl_trainer *t, struct sl__predictions *p,
                                         const double *means, struct named_evaluation *e) {
  struct sl_context *context = t->model->context;
  enum sl_status status;
  SL__TRY(sl__predictions_gather(context, p));
  SL__TRY(sl__trainer_share(t, compute_all(t, p, means, !sl__net_rank(context->net), e)));
  status = share_values(context->net, e);
out:
  return status;
}

static struct named_evaluation *new_evaluation(const struct sl__loss *loss) {
  size_t most = (size_t)sl__loss_terms(loss) * (ROWS + 1);
  struct named_evaluation *e = sl__alloc(1, sizeof *e, "an evaluation");
  if (!e) return NULL;
  e->metrics = sl__alloc(most, sizeof *e->metrics, "an evaluation");
  e->names = sl__alloc(most, sizeof *e->names, "an evaluation");
  e->evaluation.metrics = e->metrics;
  if (e->metrics && e->names) return e;
  sl_evaluation_free(&e->evaluation);
  return NULL;
}

/* Memory for all that an evaluation collects. */
static enum sl_status begin(const struct sl_trainer *t, struct sl_loader *loader,
                            struct sl__predictions *p, struct named_evaluation **e) {
  *e = new_evaluation(&t->loss);
  if (!*e) return SL_NO_MEMORY;
  return sl__predictions_begin(sl_dataset_info(sl_loader_dataset(loader)), sl_loader_batch(loader),
                               sl_model_output(t->model), p);
}

enum sl_status sl_trainer_measure(struct sl_trainer *trainer, struct sl_loader *loader,
                                  struct sl_evaluation **evaluation) {
  SL__NEEDS(trainer, loader, evaluation);
  struct sl__predictions predictions = {0};
  struct named_evaluation *e = NULL;
  bool in_step = trainer->ranks.size && !trainer->is_async; /* all ranks measure together */
  double accuracy_of_all, parts[SL_MAX_FIELDS];
  enum sl_status status = begin(trainer, loader, &predictions, &e);
  if (in_step) status = sl__trainer_share(trainer, status);
  SL__TRY(status);
  trainer->predictions = &predictions;
  status = sl__trainer_evaluate(trainer, loader, &e->evaluation.loss, parts, &accuracy_of_all);
  trainer->predictions = NULL;
  SL__TRY(status);
  predictions.loss = e->evaluation.loss;
  SL__TRY(in_step ? compute_over_ranks(trainer, &predictions, parts, e)
                  : compute_all(trainer, &predictions, parts, true, e));
  *evaluation = &e->evaluation;
  e = NULL;
out:
  if (e) sl_evaluation_free(&e->evaluation);
  sl__predictions_end(&predictions);
  return status;
}

const struct sl_metric *sl_evaluation_metric(const struct sl_evaluation *evaluation,
                                             const char *name) {
  SL__NEEDS_OR(NULL, evaluation, name);
  for (int i = 0; i < evaluation->metric_count; i++)
    if (!strcmp(evaluation->metrics[i].name, name)) return &evaluation->metrics[i];
  return NULL;
}

void sl_evaluation_free(struct sl_evaluation *evaluation) {
  struct named_evaluation *e = (struct named_evaluation *)evaluation;
  if (!evaluation) return;
  for (int i = 0; i < evaluation->metric_count; i++) free((double *)e->metrics[i].each);
  free(e->metrics);
  free(e->names);
  free(e);
}
