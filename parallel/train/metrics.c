/* Metrics of an evaluation: the predictions of all its samples are collected, and each metric is
 * computed from them in double precision, in the order of the data. */
#include "parallel/train/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "parallel/train/trainer.h"

/* ---- predictions ---- */

enum sl_status sl__predictions_begin(const struct sl_dataset_info *info, int64_t batch,
                                     const struct sl_shape *output, struct sl__predictions *p) {
  size_t rows = (size_t)info->count, width = (size_t)sl_shape_count(output);
  *p = (struct sl__predictions){.info = info, .width = (int64_t)width};
  p->outputs = sl__alloc(rows * width, sizeof(float), "an evaluation's outputs");
  p->scored = sl__alloc(rows, sizeof *p->scored, "an evaluation's scores");
  p->batch = sl__alloc((size_t)batch * width, sizeof(float), "an evaluation's outputs");
  if (info->target.ndim)
    p->targets = sl__alloc(rows * width, sizeof(float), "an evaluation's targets");
  else
    p->labels = sl__alloc(rows, sizeof(int32_t), "an evaluation's labels");
  if (p->outputs && p->scored && p->batch && (p->targets || p->labels)) return SL_OK;
  sl__predictions_end(p);
  return SL_NO_MEMORY;
}

void sl__predictions_end(struct sl__predictions *p) {
  free(p->outputs);
  free(p->targets);
  free(p->labels);
  free(p->batch);
  free(p->scored);
  *p = (struct sl__predictions){0};
}

/* Reads a slice's outputs as floats. */
static enum sl_status read_outputs(struct sl__tensor *y, float *values) {
  int64_t count = sl_shape_count(&y->shape);
  enum sl_status status = sl__tensor_read(y, values);
  if (y->type != SL_BF16) return status;
  uint16_t *codes = (uint16_t *)(void *)values; /* from the end: each value needs twice its code */
  for (int64_t i = count - 1; i >= 0; i--) values[i] = sl__bf16_value(codes[i]);
  return status;
}

static bool row_counts(const struct sl__predictions *p, const struct sl_batch *batch, int64_t row) {
  if (p->labels) return batch->labels[row] >= 0;
  for (int64_t i = 0; i < p->width; i++)
    if (!isnan(batch->targets[row * p->width + i])) return true;
  return false;
}

enum sl_status sl__predictions_append(struct sl__predictions *p, const struct sl__plan *plan,
                                      const struct sl_batch *batch) {
  enum sl_status status = SL_OK;
  int last = plan->model->count - 1;
  size_t bytes = (size_t)p->width * sizeof(float);
  for (int s = 0; s < plan->count && status == SL_OK; s++) {
    const struct sl__slice *slice = &plan->slices[s];
    status = read_outputs(slice->y[last], p->batch + slice->first_row * p->width);
    sl__tensor_invalidate(slice->y[last]);
  }
  for (int64_t row = 0; row < batch->batch && status == SL_OK; row++) {
    if (!row_counts(p, batch, row) || p->rows == p->info->count) continue;
    memcpy(p->outputs + p->rows * p->width, p->batch + row * p->width, bytes);
    if (p->labels)
      p->labels[p->rows] = batch->labels[row];
    else
      memcpy(p->targets + p->rows * p->width, batch->targets + row * p->width, bytes);
    p->rows++;
  }
  return status;
}

/* ---- metrics of labels ---- */

/* Classes with a larger output than the label's; of equal ones the first is larger. */
static int64_t classes_before(const struct sl__predictions *p, int64_t row) {
  const float *y = p->outputs + row * p->width;
  int32_t label = p->labels[row];
  int64_t before = 0;
  for (int64_t c = 0; c < p->width; c++)
    before += y[c] > y[label] || (y[c] == y[label] && c < label);
  return before;
}

static double share_within(const struct sl__predictions *p, int64_t top) {
  int64_t right = 0;
  for (int64_t row = 0; row < p->rows; row++) right += classes_before(p, row) < top;
  return p->rows ? (double)right / (double)p->rows : NAN;
}

static double top5(const struct sl__predictions *p, double *each) {
  (void)each;
  return share_within(p, 5);
}

/* each[label][answer]: number of samples; the value: number of all. */
static double confusion(const struct sl__predictions *p, double *each) {
  for (int64_t row = 0; row < p->rows; row++) {
    const float *y = p->outputs + row * p->width;
    int64_t answer = 0;
    for (int64_t c = 1; c < p->width; c++)
      if (y[c] > y[answer]) answer = c;
    each[p->labels[row] * p->width + answer] += 1;
  }
  return (double)p->rows;
}

/* ---- metrics of targets ---- */

/* The unit of output i: predictions and targets are normalised. */
static double unit_of(const struct sl__predictions *p, int64_t i) {
  const struct sl_dataset_info *info = p->info;
  int64_t plane = p->width / info->target.dim[0];
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
  for (int64_t row = 0; row < p->rows; row++)
    p->scored[row] =
        (struct sl__scored){p->outputs[2 * row + 1] - p->outputs[2 * row], p->labels[row] == 1};
  return auc(p->scored, p->rows);
}

static double accuracy(const struct sl__predictions *p, double *each) {
  (void)each;
  if (p->labels) return share_within(p, 1);
  double right = 0, terms = 0;
  for (int64_t i = 0; i < p->rows * p->width; i++) {
    if (isnan(p->targets[i])) continue;
    right += (p->outputs[i] > 0) == (p->targets[i] >= 0.5f);
    terms += 1;
  }
  return terms > 0 ? right / terms : NAN;
}

/* ---- the table ---- */

enum { OF_LABELS = 1, OF_VALUES = 2, OF_BINARY = 4 };

enum entries { WHOLE, BY_OUTPUT, BY_PAIR };

struct row {
  const char *name;
  unsigned of;                         /* what the loss must take */
  enum entries entries;                /* of `each` */
  int64_t least_outputs, most_outputs; /* 0: any */
  double (*compute)(const struct sl__predictions *p, double *each);
};

static const struct row rows[] = {
#define SL__METRIC(...) {__VA_ARGS__},
#include "parallel/train/metrics.def"
#undef SL__METRIC
};

enum { ROWS = sizeof rows / sizeof *rows };

static bool applies(const struct row *row, const struct sl__loss *loss, int64_t outputs) {
  unsigned of = sl__loss_takes_labels(loss)      ? OF_LABELS
                : loss->row->kind == SL_LOSS_BCE ? OF_BINARY
                                                 : OF_VALUES;
  return (row->of & of) && outputs >= row->least_outputs &&
         (!row->most_outputs || outputs <= row->most_outputs);
}

bool sl__metric_applies(const struct sl_trainer *t, const char *name) {
  int64_t outputs = sl_shape_count(sl_model_output(t->model));
  bool does = false;
  for (int i = 0; i < ROWS; i++)
    does |= !strcmp(rows[i].name, name) && applies(&rows[i], &t->loss, outputs);
  return does;
}

static enum sl_status add_metric(const struct row *row, const struct sl__predictions *p,
                                 struct sl_metric *metric) {
  int64_t count = row->entries == WHOLE       ? 0
                  : row->entries == BY_OUTPUT ? p->width
                                              : p->width * p->width;
  double *each = count ? sl__alloc((size_t)count, sizeof *each, "a metric") : NULL;
  if (count && !each) return SL_NO_MEMORY;
  *metric = (struct sl_metric){row->name, row->compute(p, each), count, each};
  return SL_OK;
}

static enum sl_status compute_all(const struct sl_trainer *t, const struct sl__predictions *p,
                                  struct sl_evaluation *e) {
  enum sl_status status = SL_OK;
  struct sl_metric *metrics = sl__alloc(ROWS, sizeof *metrics, "an evaluation");
  if (!metrics) return SL_NO_MEMORY;
  e->metrics = metrics;
  e->samples = p->rows;
  for (int i = 0; i < ROWS && status == SL_OK; i++)
    if (applies(&rows[i], &t->loss, p->width))
      status = add_metric(&rows[i], p, &metrics[e->metric_count++]);
  return status;
}

static enum sl_status check_measurable(const struct sl_trainer *t, const struct sl_loader *loader) {
  const struct sl_dataset_info *info = sl_dataset_info(sl_loader_dataset(loader));
  if (t->ranks.size && !t->is_async)
    return sl__fail(SL_UNSUPPORTED,
                    "metrics over ranks: call sl_trainer_evaluate, or measure the saved model in "
                    "one process");
  if (info->tokens)
    return sl__fail(SL_UNSUPPORTED, "%s: metrics are not for texts; call sl_trainer_evaluate",
                    info->name);
  if (t->grid.chunk)
    return sl__fail(SL_UNSUPPORTED, "metrics of sequences in chunks; leave chunk out");
  return SL_OK;
}

enum sl_status sl_trainer_measure(struct sl_trainer *trainer, struct sl_loader *loader,
                                  struct sl_evaluation **evaluation) {
  SL__NEEDS(trainer, loader, evaluation);
  struct sl__predictions predictions = {0};
  struct sl_evaluation *e = NULL;
  double accuracy_of_all;
  enum sl_status status;
  SL__TRY(check_measurable(trainer, loader));
  SL__TRY(sl__predictions_begin(sl_dataset_info(sl_loader_dataset(loader)), sl_loader_batch(loader),
                                sl_model_output(trainer->model), &predictions));
  e = sl__alloc(1, sizeof *e, "an evaluation");
  if (!e) SL__TRY(SL_NO_MEMORY);
  trainer->predictions = &predictions;
  status = sl_trainer_evaluate(trainer, loader, &e->loss, &accuracy_of_all);
  trainer->predictions = NULL;
  SL__TRY(status);
  SL__TRY(compute_all(trainer, &predictions, e));
  *evaluation = e;
  e = NULL;
out:
  sl_evaluation_free(e);
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
  if (!evaluation) return;
  for (int i = 0; i < evaluation->metric_count; i++) free((double *)evaluation->metrics[i].each);
  free((struct sl_metric *)evaluation->metrics);
  free(evaluation);
}
