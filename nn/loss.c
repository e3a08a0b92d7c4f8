/* Losses' settings: names, defaults and ranges, by the table losses.def; the operations are in
 * codelets/. */
#include "nn/loss.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/numbers.h"

static enum sl_status submit_cross_entropy(struct sl_context *context,
                                           const struct sl__launch *launch,
                                           const struct sl__loss *loss,
                                           const struct sl__loss_task *task) {
  return sl__softmax_xent(context, launch, task, loss->settings.label_smoothing,
                          loss->weight_tensor);
}

static enum sl_status submit_elementwise(struct sl_context *context,
                                         const struct sl__launch *launch,
                                         const struct sl__loss *loss,
                                         const struct sl__loss_task *task) {
  return sl__elementwise_loss(context, launch, task, loss->row->kind, loss->settings.delta);
}

static enum sl_status submit_cosine(struct sl_context *context, const struct sl__launch *launch,
                                    const struct sl__loss *loss, const struct sl__loss_task *task) {
  (void)loss;
  return sl__cosine_loss(context, launch, task);
}

static enum sl_status submit_own(struct sl_context *context, const struct sl__launch *launch,
                                 const struct sl__loss *loss, const struct sl__loss_task *task) {
  return sl__custom_loss(context, launch, task, &loss->settings.own);
}

static const struct sl__loss_row losses[] = {
#define SL__LOSS(...) {__VA_ARGS__},
#include "nn/losses.def"
#undef SL__LOSS
};

enum { LOSSES = sizeof losses / sizeof *losses, NAMED = LOSSES - 1 };

/* ---- names ---- */

const char *sl_loss_name(int i) { return i >= 0 && i < NAMED ? losses[i].name : NULL; }

/* "cross-entropy[:LABEL_SMOOTHING], mse, ... or cosine" */
static const char *list_names(char *list, size_t size) {
  size_t used = 0;
  for (int i = 0; i < NAMED && used < size; i++)
    used += (size_t)snprintf(list + used, size - used, "%s%s%s%s%s",
                             !i              ? ""
                             : i < NAMED - 1 ? ", "
                                             : " or ",
                             losses[i].name, losses[i].parameter ? "[:" : "",
                             losses[i].parameter ? losses[i].parameter : "",
                             losses[i].parameter ? "]" : "");
  return list;
}

static const struct sl__loss_row *find(enum sl_loss_kind kind) {
  for (int i = 0; i < LOSSES; i++)
    if (losses[i].kind == kind) return &losses[i];
  return NULL;
}

static float *parameter_of(const struct sl__loss_row *row, struct sl_loss *loss) {
  return (float *)(void *)((char *)loss + row->field);
}

enum sl_status sl_loss_parse(const char *text, struct sl_loss *loss) {
  SL__NEEDS(text, loss);
  char list[256];
  size_t length = strcspn(text, ":");
  const char *value = text[length] ? text + length + 1 : NULL;
  for (int i = 0; i < NAMED; i++) {
    const struct sl__loss_row *row = &losses[i];
    struct sl_loss found = {.kind = row->kind};
    double number;
    if (strlen(row->name) != length || strncmp(row->name, text, length) != 0) continue;
    if (value && !row->parameter)
      return sl__fail(SL_BAD_ARGUMENT, "loss '%s': %s takes no parameter", text, row->name);
    if (value && (!sl__parse_real(value, 0, (double)row->most, &number) ||
                  (row->standard > 0 && !(number > 0))))
      return sl__fail(SL_BAD_ARGUMENT, "loss '%s': %s is a number %s 0%s", text, row->parameter,
                      row->standard > 0 ? "above" : "from", row->most > 1 ? "" : " to 1");
    if (value) *parameter_of(row, &found) = (float)number;
    *loss = found;
    return SL_OK;
  }
  return sl__fail(SL_BAD_ARGUMENT, "loss '%s' is unknown; use %s", text,
                  list_names(list, sizeof list));
}

bool sl_loss_takes_labels(const struct sl_loss *loss) {
  SL__NEEDS_OR(false, loss);
  const struct sl__loss_row *row = find(loss->kind);
  return row &&
         (row->terms == SL__TERMS_LABELS || (loss->kind == SL_LOSS_OWN && loss->own.takes_labels));
}

/* ---- checks ---- */

static enum sl_status check_weights(const struct sl_loss *loss) {
  double sum = 0;
  if (loss->class_count < 1)
    return sl__fail(SL_BAD_ARGUMENT, "the loss has weights of %d classes; give one for each output",
                    loss->class_count);
  for (int c = 0; c < loss->class_count; c++) {
    if (!(loss->class_weights[c] >= 0) || !isfinite(loss->class_weights[c]))
      return sl__fail(SL_BAD_ARGUMENT, "the loss's weight of class %d is %g; it must be at least 0",
                      c, (double)loss->class_weights[c]);
    sum += (double)loss->class_weights[c];
  }
  if (sum > 0) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT, "the loss's weights of all classes are 0");
}

/* Written so that NaN fails too. */
static enum sl_status check_parameter(const struct sl__loss_row *row, struct sl_loss *loss) {
  if (!row->parameter) return SL_OK;
  float *value = parameter_of(row, loss);
  if (*value == 0) *value = row->standard;
  if (*value >= 0 && *value <= row->most) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT, "the loss's %s is %g; it must be %s 0%s", row->parameter,
                  (double)*value, row->standard > 0 ? "above" : "from",
                  row->most > 1 ? "" : " to 1");
}

enum sl_status sl_loss_check(struct sl_loss *loss) {
  SL__NEEDS(loss);
  char list[256];
  const struct sl__loss_row *row = find(loss->kind);
  if (!row)
    return sl__fail(SL_BAD_ARGUMENT, "%d is not a kind of loss; use %s", (int)loss->kind,
                    list_names(list, sizeof list));
  if (loss->class_weights && row->terms != SL__TERMS_LABELS)
    return sl__fail(SL_BAD_ARGUMENT, "class weights are for %s, not for %s", losses[0].name,
                    row->name);
  if (loss->delta != 0 && row->field != offsetof(struct sl_loss, delta))
    return sl__fail(SL_BAD_ARGUMENT, "delta is for huber, not for %s", row->name);
  if (loss->label_smoothing != 0 && row->terms != SL__TERMS_LABELS)
    return sl__fail(SL_BAD_ARGUMENT, "label_smoothing is for %s, not for %s", losses[0].name,
                    row->name);
  if (loss->kind == SL_LOSS_OWN && (!loss->own.row || !loss->own.name))
    return sl__fail(SL_BAD_ARGUMENT, "a loss of the program's own needs a name and a function");
  enum sl_status status = loss->class_weights ? check_weights(loss) : SL_OK;
  return status == SL_OK ? check_parameter(row, loss) : status;
}

/* ---- a loss in use ---- */

enum sl_status sl__loss_begin(struct sl_context *context, const struct sl_loss *settings,
                              int64_t outputs, struct sl__loss *loss) {
  enum sl_status status;
  *loss = (struct sl__loss){.settings = *settings};
  SL__TRY(sl_loss_check(&loss->settings));
  loss->row = find(settings->kind);
  if (!settings->class_weights) return SL_OK;
  size_t count = (size_t)settings->class_count;
  if (settings->class_count != outputs)
    SL__TRY(sl__fail(SL_BAD_SHAPE,
                     "the loss has weights of %d classes, but the model has %lld "
                     "outputs",
                     settings->class_count, (long long)outputs));
  loss->weights = sl__alloc(count, sizeof *loss->weights, "class weights");
  if (!loss->weights) SL__TRY(SL_NO_MEMORY);
  memcpy(loss->weights, settings->class_weights, count * sizeof *loss->weights);
  loss->settings.class_weights = loss->weights;
  SL__TRY(sl__tensor_host(context, &SL_SHAPE(outputs), SL_F32, NULL, &loss->weight_tensor));
  SL__TRY(sl__tensor_write(loss->weight_tensor, loss->weights));
  return SL_OK;
out:
  sl__loss_end(loss);
  return status;
}

void sl__loss_end(struct sl__loss *loss) {
  sl__tensor_free(loss->weight_tensor);
  free(loss->weights);
  *loss = (struct sl__loss){0};
}

bool sl__loss_takes_labels(const struct sl__loss *loss) {
  return sl_loss_takes_labels(&loss->settings);
}

const char *sl__loss_text(const struct sl__loss *loss, char text[SL__LOSS_TEXT]) {
  const struct sl__loss_row *row = loss->row;
  struct sl_loss settings = loss->settings;
  locale_t before = sl__locale_begin();
  size_t used = (size_t)snprintf(text, SL__LOSS_TEXT, "%s", row->name);
  if (row->parameter && *parameter_of(row, &settings) != 0)
    used += (size_t)snprintf(text + used, SL__LOSS_TEXT - used, ":%g",
                             (double)*parameter_of(row, &settings));
  sl__locale_end(before);
  return text;
}

/* Rows of the targets without NaN. */
static int64_t whole_rows(const float *targets, int64_t rows, int64_t size) {
  int64_t whole = 0;
  for (int64_t n = 0; n < rows; n++) {
    int64_t i = 0;
    while (i < size && !isnan(targets[n * size + i])) i++;
    whole += i == size;
  }
  return whole;
}

double sl__loss_divisor(const struct sl__loss *loss, const struct sl_batch *batch,
                        const struct sl_dataset_info *info, bool all) {
  int64_t valid = all ? batch->valid_all : batch->valid;
  double weight = 0;
  if (loss->row->terms == SL__TERMS_ROWS && !sl__loss_takes_labels(loss)) {
    int64_t size = info->target.dim[info->target.ndim - 1];
    int64_t rows = batch->batch * sl_shape_count(&info->target) / size;
    return (double)(info->missing ? whole_rows(batch->targets, rows, size) : valid / size);
  }
  if (!loss->weights) return (double)valid;
  int64_t labels = batch->batch * (info->tokens ? info->sample.dim[0] : 1);
  for (int64_t i = 0; i < labels; i++)
    if (batch->labels[i] >= 0 && batch->labels[i] < loss->settings.class_count)
      weight += (double)loss->weights[batch->labels[i]];
  return weight;
}
