/* Evaluations after the epochs, and what follows from them: what is best, and when to end. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "parallel/fit/fit.h"
#include "parallel/train/metrics.h"

/* ---- metrics ---- */

static const struct {
  const char *name, *title; /* the option's, and for people */
  size_t field;
  bool larger; /* is better */
  bool share;  /* of 1: printed in percent */
} metrics[] = {
#define SL__FIT_METRIC(key, title, larger, share)                                                  \
  {#key, title, offsetof(struct sl_fit_evaluation, key), larger, share},
#include "parallel/fit/metrics.def"
#undef SL__FIT_METRIC
};
enum { METRICS = sizeof metrics / sizeof *metrics, LOSS = 0, ACCURACY = 1 };

/* The last dot of "OUTPUT.METRIC"; NULL: it is a metric of all outputs. */
static const char *dot_of(const char *name) { return strrchr(name, '.'); }

/* The kind of a metric, also of one output's. METRICS: there is none of that name. */
static int find_metric(const char *name) {
  const char *dot = dot_of(name);
  int i = 0;
  while (i < METRICS && strcmp(metrics[i].name, dot ? dot + 1 : name) != 0) i++;
  return i;
}

enum sl_status sl__fit_check_metric_name(const char *name) {
  if (!name || find_metric(name) < METRICS) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "metric %s: unknown; take loss, accuracy, top2, top3, top5, top10, auc, mae, "
                  "rmse or r2, or one of an output, as OUTPUT.accuracy",
                  name);
}

static double *field_of(struct sl_fit_evaluation *e, int metric) {
  return (double *)(void *)((char *)e + metrics[metric].field);
}

double sl__fit_metric(const struct sl_fit_evaluation *evaluation, const char *name) {
  struct sl_fit_evaluation copy = *evaluation;
  return *field_of(&copy, find_metric(name));
}

static bool takes_labels(const struct sl__fit *fit) {
  return sl__loss_takes_labels(&fit->trainer->loss);
}

/* Needs the outputs of the whole epoch: labels alone have an accuracy without them. */
static bool needs_outputs(const struct sl__fit *fit) {
  int metric = find_metric(fit->options.metric);
  return dot_of(fit->options.metric) || metric > ACCURACY ||
         (metric == ACCURACY && !takes_labels(fit));
}

static enum sl_status check_confusion(const struct sl__fit *fit) {
  const struct sl_dataset_info *info;
  if (!fit->options.confusion) return SL_OK;
  info = sl_dataset_info(sl_loader_dataset(fit->options.validation));
  if (sl__metric_applies(fit->trainer, info, "confusion")) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "confusion: %s has no matrix with this loss and these outputs; it is of class "
                  "labels, up to 1,024 classes",
                  info->name);
}

/* Why there is no such metric, as far as its name tells; or "". */
static const char *missing_text(const struct sl__fit *fit, const char *name) {
  const char *dot = dot_of(name);
  if (!fit->trainer->loss.part_count && dot) return "; there is one output: leave its name out";
  if (fit->trainer->loss.part_count && !dot)
    return "; there are several outputs: name one, as OUTPUT.loss";
  if (!strncmp(dot ? dot + 1 : name, "top", 3))
    return "; a top-N accuracy is of class labels, of more than N classes";
  return "";
}

enum sl_status sl__fit_check_metric(const struct sl__fit *fit) {
  const struct sl_loader *validation = fit->options.validation;
  enum sl_status status = check_confusion(fit);
  if (status != SL_OK) return status;
  if (!validation || !needs_outputs(fit)) return SL_OK;
  const char *name = fit->options.metric;
  const struct sl_dataset_info *info = sl_dataset_info(sl_loader_dataset(validation));
  status = sl__loss_fit(&fit->trainer->loss, info);
  if (status != SL_OK || sl__metric_applies(fit->trainer, info, name)) return status;
  return sl__fail(SL_BAD_ARGUMENT,
                  "metric %s: an evaluation with this loss and these outputs does not have it%s",
                  name, missing_text(fit, name));
}

/* ---- an evaluation ---- */

/* The metrics of single outputs: those that every run has, and the one that decides. */
static void take_outputs(const struct sl_evaluation *all, const char *deciding,
                         struct sl_fit_evaluation *e) {
  static const char *const kept[] = {".loss", ".accuracy", ".auc", ".rmse", ".r2"};
  const int most = sizeof e->outputs / sizeof *e->outputs;
  for (int i = 0; i < all->metric_count && e->output_count < most; i++) {
    const struct sl_metric *metric = &all->metrics[i];
    const char *dot = strrchr(metric->name, '.');
    bool wanted = dot && !strcmp(metric->name, deciding);
    for (size_t k = 0; dot && k < sizeof kept / sizeof *kept; k++) wanted |= !strcmp(dot, kept[k]);
    if (!wanted || isnan(metric->value)) continue;
    snprintf(e->outputs[e->output_count].name, sizeof e->outputs->name, "%s", metric->name);
    e->outputs[e->output_count++].value = metric->value;
  }
}

static enum sl_status measure(struct sl__fit *fit, struct sl_fit_evaluation *e) {
  struct sl_evaluation *all;
  enum sl_status status = sl_trainer_measure(fit->trainer, fit->options.validation, &all);
  if (status != SL_OK) return status;
  for (int i = ACCURACY; i < METRICS; i++) {
    const struct sl_metric *metric = sl_evaluation_metric(all, metrics[i].name);
    if (metric) *field_of(e, i) = metric->value;
  }
  e->loss = all->loss;
  if (dot_of(fit->options.metric))
    e->deciding = sl_evaluation_metric(all, fit->options.metric)->value;
  if (fit->trainer->loss.part_count) take_outputs(all, fit->options.metric, e);
  sl_evaluation_free(all);
  return SL_OK;
}

/* Losses of targets have metrics of the whole epoch. */
static enum sl_status evaluate(struct sl__fit *fit, int64_t epoch) {
  struct sl_fit_evaluation e = {.epoch = epoch};
  for (int i = 0; i < METRICS; i++) *field_of(&e, i) = NAN;
  enum sl_status status;
  if (needs_outputs(fit) || !takes_labels(fit))
    status = measure(fit, &e);
  else
    status = sl_trainer_evaluate(fit->trainer, fit->options.validation, &e.loss, &e.accuracy);
  if (!dot_of(fit->options.metric)) e.deciding = sl__fit_metric(&e, fit->options.metric);
  if (status == SL_OK) fit->result.last = e;
  return status;
}

enum sl_status sl__fit_log_confusion(struct sl__fit *fit) {
  const struct sl_loader *validation = fit->options.validation;
  struct sl_evaluation *all;
  bool elsewhere = fit->distributed && !fit->in_step && fit->rank; /* rank 0 evaluates alone */
  bool interrupted = fit->stopped && !fit->gave_up && fit->progress.done < fit->steps;
  if (!fit->options.confusion || interrupted || elsewhere) return SL_OK;
  enum sl_status status = sl_trainer_measure(fit->trainer, fit->options.validation, &all);
  if (status != SL_OK) return status;
  int error = sl__run_log_confusion(fit->log, sl_dataset_info(sl_loader_dataset(validation)),
                                    sl_evaluation_metric(all, "confusion"));
  sl_evaluation_free(all);
  return error ? sl__fit_fail_file(fit->own_log, error) : SL_OK;
}

/* ---- the best one ---- */

/* Is `value` better than `than` by more than `by`? Any number is better than NaN. */
static bool is_better(int metric, double value, double than, double by) {
  if (isnan(value) || isnan(than)) return !isnan(value);
  return metrics[metric].larger ? value > than + by : value < than - by;
}

/* Ranks in common steps have computed the same numbers, so that all of them decide alike. */
static bool note_best(struct sl__fit *fit, bool is_epoch) {
  struct sl__best *best = &fit->best;
  int metric = find_metric(fit->options.metric);
  double value = fit->result.last.deciding;
  double than = best->evaluation.epoch ? best->evaluation.deciding : NAN;
  bool is_best = is_better(metric, value, than, 0);
  best->since += is_epoch;
  if (is_epoch && is_better(metric, value, best->reference, fit->options.min_delta)) {
    best->reference = value;
    best->since = 0;
  }
  if (is_best) best->evaluation = fit->result.last;
  return is_best;
}

/* Why an evaluation has no number for the metric, and what to do. That is due to the validation
 * set's targets, so later evaluations will have none either. */
static const char *no_number_text(const struct sl__fit *fit, char *text, size_t size) {
  const char *metric = fit->options.metric, *kind = metrics[find_metric(metric)].name;
  const char *set = sl_dataset_info(sl_loader_dataset(fit->options.validation))->name;
  const char *why = "all its targets or labels are missing", *other = NULL;
  int output = dot_of(metric) ? (int)(dot_of(metric) - metric) + 1 : 0; /* with the dot */
  if (!strcmp(kind, "r2")) why = "all its targets are equal", other = "rmse";
  if (!strcmp(kind, "auc"))
    why = "all its samples are positive, or all negative", other = "accuracy";
  int used = snprintf(text, size, "metric %s: is no number on %s: %s; take ", metric, set, why);
  if (other)
    used += snprintf(text + used, size - (size_t)used, "%.*s%s or %.*sloss, or ", output, metric,
                     other, output, metric);
  snprintf(text + used, size - (size_t)used, "another validation set");
  return text;
}

/* Nothing can be the best by such a metric: a run that asked for it would end without a file, or
 * too early. */
static enum sl_status check_number(struct sl__fit *fit) {
  char text[1024];
  if (!isnan(fit->result.last.deciding)) return SL_OK;
  if (fit->options.best || fit->options.patience)
    return sl__fail(SL_BAD_ARGUMENT, "%s", no_number_text(fit, text, sizeof text));
  if (!fit->warned && !fit->rank) sl__fit_warn(fit, no_number_text(fit, text, sizeof text));
  fit->warned = true;
  return SL_OK;
}

bool sl__fit_is_patient(const struct sl__fit *fit) {
  return !fit->options.patience || fit->best.since < fit->options.patience;
}

/* ---- messages ---- */

/* Does result_text have it, or, of the loss, the line before it? */
static bool is_printed(const struct sl_fit_evaluation *test, const char *metric) {
  const char *dot = dot_of(metric);
  if (dot) return !strcmp(dot, ".accuracy") || !strcmp(dot, ".rmse");
  const char *const printed = !isnan(test->rmse)       ? "loss rmse r2"
                              : !isnan(test->auc)      ? "loss accuracy auc"
                              : !isnan(test->accuracy) ? "loss accuracy"
                                                       : "loss";
  return strstr(printed, metric) != NULL;
}

/* "  MAE 0.1234" if the line has not got what decides. */
static const char *deciding_text(const struct sl__fit *fit, bool is_text, char *text, size_t size) {
  const char *name = fit->options.metric, *dot = dot_of(name);
  int metric = find_metric(name), output = dot ? (int)(dot - name) : 0;
  double value = fit->result.last.deciding;
  *text = '\0';
  if ((metric == LOSS && !dot) || (!is_text && is_printed(&fit->result.last, name))) return text;
  int used =
      snprintf(text, size, "  %.*s%s%s ", output, name, dot ? " " : "", metrics[metric].title);
  snprintf(text + used, size - (size_t)used, metrics[metric].share ? "%.2f %%" : "%.4g",
           metrics[metric].share ? 100 * value : value);
  return text;
}

/* What the test line has behind the loss. */
static const char *result_text(const struct sl_fit_evaluation *test, char *text, size_t size) {
  size_t used = 0;
  *text = '\0';
  for (int i = 0; i < test->output_count && used < size; i++) {
    const char *name = test->outputs[i].name, *dot = strrchr(name, '.');
    int length = (int)(dot - name);
    double value = test->outputs[i].value;
    if (!strcmp(dot, ".accuracy"))
      used += (size_t)snprintf(text + used, size - used, "  %.*s accuracy %.2f %%", length, name,
                               100 * value);
    if (!strcmp(dot, ".rmse"))
      used += (size_t)snprintf(text + used, size - used, "  %.*s RMSE %.4g", length, name, value);
  }
  if (!isnan(test->rmse))
    snprintf(text, size, "  test RMSE %.4g  R2 %.4f", test->rmse, test->r2);
  else if (!isnan(test->auc))
    snprintf(text, size, "  test accuracy %.2f %%  AUC %.4f", 100 * test->accuracy, test->auc);
  else if (!isnan(test->accuracy))
    snprintf(text, size, "  test accuracy %.2f %%", 100 * test->accuracy);
  return text;
}

static void print_epoch(struct sl__fit *fit, int64_t epoch, double train) {
  char text[1024], deciding[160], train_loss[32], test_loss[32];
  const struct sl_fit_evaluation *test = &fit->result.last;
  long long number = (long long)epoch, all = (long long)fit->epochs;
  bool is_text = sl_dataset_info(sl_loader_dataset(fit->train))->tokens;
  deciding_text(fit, is_text, deciding, sizeof deciding);
  if (is_text)
    sl__progress_print(&fit->progress,
                       "epoch %lld/%lld  train perplexity %.3f  validation perplexity %.3f%s",
                       number, all, exp(train), exp(test->loss), deciding);
  else
    sl__progress_print(&fit->progress, "epoch %lld/%lld  train loss %s  test loss %s%s%s", number,
                       all, sl__progress_loss(train, train_loss, sizeof train_loss),
                       sl__progress_loss(test->loss, test_loss, sizeof test_loss),
                       result_text(test, text, sizeof text), deciding);
}

static enum sl_status call_back(struct sl__fit *fit, bool is_best) {
  const struct sl_fit_options *o = &fit->options;
  if (!o->on_evaluation) return SL_OK;
  sl__fit_callback_begin(fit);
  return sl__fit_callback_end(fit, "on_evaluation",
                              o->on_evaluation(o->user, &fit->result.last, is_best));
}

enum sl_status sl__fit_evaluate(struct sl__fit *fit, int64_t done, bool *is_best) {
  int64_t epoch = (done - 1) / fit->epoch_steps + 1;
  double train = fit->epoch_loss / fit->epoch_terms;
  *is_best = false;
  if (!fit->options.validation) {
    char text[32];
    sl__progress_print(&fit->progress, "epoch %lld/%lld  train loss %s", (long long)epoch,
                       (long long)fit->epochs, sl__progress_loss(train, text, sizeof text));
    return SL_OK;
  }
  enum sl_status status = evaluate(fit, epoch);
  if (status == SL_OK) status = check_number(fit);
  if (status != SL_OK) return status;
  *is_best = note_best(fit, done % fit->epoch_steps == 0);
  print_epoch(fit, epoch, train);
  int error = sl__run_log_evaluation(fit->log, &fit->result.last);
  return error ? sl__fit_fail_file(fit->own_log, error) : call_back(fit, *is_best);
}

enum sl_status sl__fit_evaluate_again(struct sl__fit *fit) {
  sl__progress_print(&fit->progress, "Nothing is left to train");
  int64_t epoch = (fit->begun_at + fit->epoch_steps - 1) / fit->epoch_steps;
  enum sl_status status = fit->options.validation ? evaluate(fit, epoch) : SL_OK;
  return status == SL_OK ? sl__fit_save_weights(fit, fit->options.save) : status;
}
