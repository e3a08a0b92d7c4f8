/* Losses' settings: names, defaults and ranges, by the table losses.def; the operations are in
 * codelets/. */
#include "nn/loss.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/hash.h"
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

enum { LOSSES = sizeof losses / sizeof *losses, NAMED = LOSSES - 2, OF_PARTS = LOSSES - 1 };

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
  for (int i = 0; i < OF_PARTS; i++)
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

/* "OUTPUT[:TARGET]", `length` characters */
static bool parse_names(const char *text, size_t length, struct sl_loss_part *part) {
  const char *colon = memchr(text, ':', length);
  size_t output = colon ? (size_t)(colon - text) : length;
  size_t target = colon ? length - output - 1 : 0;
  if (!output || output >= sizeof part->output || target >= sizeof part->target) return false;
  if (colon && (!target || memchr(colon + 1, ':', target))) return false;
  memcpy(part->output, text, output);
  if (colon) memcpy(part->target, colon + 1, target);
  return true;
}

/* "OUTPUT[:TARGET]=LOSS[*WEIGHT]" */
static enum sl_status parse_part(char *text, struct sl_loss_part *part) {
  char *equals = strchr(text, '='), *times = strchr(text, '*');
  double weight = 1;
  *part = (struct sl_loss_part){.weight = 1};
  if (!equals || !parse_names(text, (size_t)(equals - text), part))
    return sl__fail(SL_BAD_ARGUMENT,
                    "the loss's part '%s' is no OUTPUT[:TARGET]=LOSS[*WEIGHT], such as "
                    "mask=bce*0.5",
                    text);
  if (times) {
    *times = 0;
    if (!sl__parse_real(times + 1, 0, FLT_MAX, &weight) || !((float)weight > 0))
      return sl__fail(SL_BAD_ARGUMENT,
                      "the loss's part '%s' has the weight '%s'; it is a number "
                      "above 0",
                      text, times + 1);
  }
  part->weight = (float)weight;
  return sl_loss_parse(equals + 1, &part->loss);
}

enum sl_status sl_loss_parse_parts(const char *text, struct sl_loss_part *parts,
                                   struct sl_loss *loss) {
  SL__NEEDS(text, parts, loss);
  if (!strchr(text, '=')) return sl_loss_parse(text, loss);
  struct sl_loss found = {.parts = parts};
  enum sl_status status = SL_OK;
  char *copy = sl__strdup(text), *rest = copy;
  if (!copy) return SL_NO_MEMORY;
  for (char *part = strsep(&rest, ","); part && status == SL_OK; part = strsep(&rest, ",")) {
    if (found.part_count == SL_MAX_FIELDS)
      status = sl__fail(SL_BAD_ARGUMENT, "loss '%s' has more than %d parts", text, SL_MAX_FIELDS);
    else
      status = parse_part(part, &parts[found.part_count++]);
  }
  free(copy);
  if (status == SL_OK) status = sl_loss_check(&found);
  if (status == SL_OK) *loss = found;
  return status;
}

bool sl_loss_takes_labels(const struct sl_loss *loss) {
  SL__NEEDS_OR(false, loss);
  if (loss->part_count) return false;
  const struct sl__loss_row *row = find(loss->kind);
  return row &&
         (row->terms == SL__TERMS_LABELS || (loss->kind == SL_LOSS_OWN && loss->own.takes_labels));
}

/* ---- checks ---- */

/* The inverse of a weight's sum must be finite, so subnormal numbers are no weights. */
static enum sl_status check_weights(const struct sl_loss *loss) {
  double sum = 0;
  if (loss->class_count < 1)
    return sl__fail(SL_BAD_ARGUMENT, "the loss has weights of %d classes; give one for each output",
                    loss->class_count);
  for (int c = 0; c < loss->class_count; c++) {
    if (!(loss->class_weights[c] >= 0) || !isfinite(loss->class_weights[c]))
      return sl__fail(SL_BAD_ARGUMENT, "the loss's weight of class %d is %g; it must be at least 0",
                      c, (double)loss->class_weights[c]);
    if (loss->class_weights[c] > 0 && loss->class_weights[c] < FLT_MIN)
      return sl__fail(SL_BAD_ARGUMENT,
                      "the loss's weight of class %d is %g; multiply all weights, so that none is "
                      "that small",
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

/* Defaults of the parts are filled in where they are used. */
static enum sl_status check_parts(const struct sl_loss *loss) {
  enum sl_status status = SL_OK;
  if (loss->part_count < 0 || loss->part_count > SL_MAX_FIELDS || !loss->parts)
    return sl__fail(SL_BAD_ARGUMENT, "a loss of %d parts; there can be 1 to %d", loss->part_count,
                    SL_MAX_FIELDS);
  if (loss->kind || loss->delta != 0 || loss->label_smoothing != 0 || loss->class_weights)
    return sl__fail(SL_BAD_ARGUMENT, "a loss of parts has settings of its own; give them to parts");
  for (int i = 0; i < loss->part_count && status == SL_OK; i++) {
    const struct sl_loss_part *part = &loss->parts[i];
    struct sl_loss copy = part->loss;
    for (int k = 0; k < i; k++)
      if (!strncmp(loss->parts[k].output, part->output, sizeof part->output))
        return sl__fail(SL_BAD_ARGUMENT, "the loss has two parts for output '%.63s'; give one",
                        part->output);
    if (!(part->weight >= 0) || !isfinite(part->weight))
      return sl__fail(SL_BAD_ARGUMENT,
                      "the loss's part '%.63s' has the weight %g; it must be above 0, or 0 for 1",
                      part->output, (double)part->weight);
    if (!memchr(part->target, 0, sizeof part->target))
      return sl__fail(SL_BAD_ARGUMENT, "the loss's part '%.63s': its target's name does not end",
                      part->output);
    if (part->loss.part_count)
      return sl__fail(SL_BAD_ARGUMENT, "the loss's part '%.63s' has parts; give it a kind",
                      part->output);
    status = sl_loss_check(&copy);
  }
  return status;
}

enum sl_status sl_loss_check(struct sl_loss *loss) {
  SL__NEEDS(loss);
  char list[256];
  if (loss->part_count) return check_parts(loss);
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
    return sl__fail(SL_BAD_ARGUMENT,
                    "a loss of the program's own needs a name and a function `row`");
  enum sl_status status = loss->class_weights ? check_weights(loss) : SL_OK;
  return status == SL_OK ? check_parameter(row, loss) : status;
}

/* ---- a loss in use ---- */

/* outputs: classes of the output. */
static enum sl_status begin(struct sl_context *context, const struct sl_loss *settings,
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

static int64_t last_axis(const struct sl_shape *shape) { return shape->dim[shape->ndim - 1]; }

/* The part for output i of the settings; NULL: there is none. */
static const struct sl_loss_part *part_for(const struct sl_loss *settings, const char *output) {
  for (int i = 0; i < settings->part_count; i++)
    if (!strcmp(settings->parts[i].output, output)) return &settings->parts[i];
  return NULL;
}

static enum sl_status check_outputs(const struct sl_model *model, const struct sl_loss *settings) {
  struct sl_row_field field;
  for (int i = 0; i < settings->part_count; i++) {
    bool found = false;
    for (int k = 0; sl_model_output_field(model, k, &field); k++)
      found |= !strcmp(field.name, settings->parts[i].output);
    if (!found && !model->output_count)
      return sl__fail(SL_BAD_ARGUMENT,
                      "the loss has parts, but the model's output has none; name its outputs with "
                      "sl_outputs");
    if (!found)
      return sl__fail(SL_BAD_ARGUMENT,
                      "the loss has a part for '%.63s', which is no output of the model; its first "
                      "one is '%s'",
                      settings->parts[i].output,
                      model->layers[model->layers[model->count - 1].input[0]].name);
  }
  return SL_OK;
}

static enum sl_status begin_parts(const struct sl_model *model, const struct sl_loss *settings,
                                  struct sl__loss *loss) {
  enum sl_status status;
  struct sl_row_field field;
  *loss = (struct sl__loss){.row = &losses[OF_PARTS], .settings = *settings};
  loss->settings.parts = NULL; /* the caller's; the copies are below */
  SL__TRY(check_parts(settings));
  SL__TRY(check_outputs(model, settings));
  loss->parts = sl__alloc((size_t)settings->part_count, sizeof *loss->parts, "a loss");
  if (!loss->parts) SL__TRY(SL_NO_MEMORY);
  for (int i = 0; sl_model_output_field(model, i, &field); i++) {
    const struct sl_loss_part *from = part_for(settings, field.name);
    if (!from) continue;
    struct sl__loss_part *part = &loss->parts[loss->part_count++];
    part->weight = from->weight > 0 ? from->weight : 1;
    part->output = i;
    part->field = field;
    snprintf(part->target_name, sizeof part->target_name, "%s",
             *from->target ? from->target : field.name);
    SL__TRY(begin(model->context, &from->loss, last_axis(&field.shape), &part->loss));
  }
  return SL_OK;
out:
  sl__loss_end(loss);
  return status;
}

enum sl_status sl__loss_begin(const struct sl_model *model, const struct sl_loss *settings,
                              struct sl__loss *loss) {
  if (settings->part_count) return begin_parts(model, settings, loss);
  return begin(model->context, settings, last_axis(sl_model_output(model)), loss);
}

void sl__loss_end(struct sl__loss *loss) {
  for (int i = 0; i < loss->part_count; i++) sl__loss_end(&loss->parts[i].loss);
  sl__tensor_free(loss->weight_tensor);
  free(loss->parts);
  free(loss->weights);
  *loss = (struct sl__loss){0};
}

/* ---- the data of a loss of parts ---- */

/* Does the part take such targets? */
static enum sl_status check_target(const struct sl__loss_part *part, const char *set,
                                   const struct sl_row_field *target) {
  const struct sl_shape *out = &part->field.shape;
  bool labels = sl__loss_takes_labels(&part->loss);
  int64_t count = sl_shape_count(&target->shape), outputs = sl_shape_count(out);
  char have[96], want[96];
  if (labels && !target->classes)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: target '%s' has numbers, but the loss %s takes class labels: store them "
                    "as whole numbers, or choose a loss such as mse",
                    set, target->name, part->loss.row->name);
  if (labels && target->classes > last_axis(out))
    return sl__fail(SL_BAD_SHAPE,
                    "%s: target '%s' has %d classes, but output '%s' only %lld values", set,
                    target->name, target->classes, part->field.name, (long long)last_axis(out));
  if (labels ? count != outputs / last_axis(out) : !sl_shape_equal(&target->shape, out))
    return sl__fail(SL_BAD_SHAPE, "%s: target '%s' is %s, but the model's output '%s' is %s%s", set,
                    target->name, sl_shape_text(&target->shape, have, sizeof have),
                    part->field.name, sl_shape_text(out, want, sizeof want),
                    labels ? ", whose last axis are the classes" : "");
  return SL_OK;
}

static enum sl_status fit_part(struct sl__loss_part *part, const struct sl_dataset_info *info) {
  const struct sl_row_field *target = NULL;
  for (int i = 0; i < info->target_count; i++)
    if (!strcmp(info->targets[i].name, part->target_name)) target = &info->targets[i];
  if (!target)
    return sl__fail(SL_BAD_ARGUMENT, "%s: has no target '%s', which the loss needs; %s%s",
                    info->name, part->target_name,
                    info->target_count ? "the first one is " : "its targets have no names",
                    info->target_count ? info->targets[0].name : "");
  enum sl_status status = check_target(part, info->name, target);
  if (status != SL_OK) return status;
  if (part->target.ndim &&
      (part->target_first != target->first || !sl_shape_equal(&part->target, &target->shape)))
    return sl__fail(SL_BAD_SHAPE,
                    "%s: target '%s' has another place in the row than in the set before; give all "
                    "sets the same targets",
                    info->name, target->name);
  part->target = target->shape;
  part->target_first = target->first;
  part->rows = sl_shape_count(&target->shape);
  if (part->loss.row->terms == SL__TERMS_ROWS && !sl__loss_takes_labels(&part->loss))
    part->rows /= last_axis(&target->shape);
  return SL_OK;
}

enum sl_status sl__loss_fit(struct sl__loss *loss, const struct sl_dataset_info *info) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < loss->part_count && status == SL_OK; i++)
    status = fit_part(&loss->parts[i], info);
  return status;
}

bool sl__loss_takes_labels(const struct sl__loss *loss) {
  return sl_loss_takes_labels(&loss->settings);
}

/* "huber:2" */
static size_t print_loss(const struct sl__loss *loss, char *text, size_t size) {
  const struct sl__loss_row *row = loss->row;
  struct sl_loss settings = loss->settings;
  char number[SL__FLOAT_TEXT];
  size_t used = (size_t)snprintf(text, size, "%s", row->name);
  if (row->parameter && *parameter_of(row, &settings) != 0)
    used += (size_t)snprintf(text + used, size - used, ":%s",
                             sl__float_text(*parameter_of(row, &settings), number));
  if (loss->weights)
    used += (size_t)snprintf(
        text + used, size - used, " with class weights %016llx",
        (unsigned long long)sl__fnv1a(loss->weights,
                                      (size_t)loss->settings.class_count * sizeof *loss->weights));
  return used;
}

const char *sl__loss_text(const struct sl__loss *loss, char text[SL__LOSS_TEXT]) {
  char number[SL__FLOAT_TEXT];
  size_t used = 0;
  if (!loss->part_count) print_loss(loss, text, SL__LOSS_TEXT);
  /* a part takes less than 250 characters */
  for (int i = 0; i < loss->part_count; i++) {
    const struct sl__loss_part *part = &loss->parts[i];
    used += (size_t)snprintf(text + used, SL__LOSS_TEXT - used, "%s%s:%s=", i ? "," : "",
                             part->field.name, part->target_name);
    used += print_loss(&part->loss, text + used, SL__LOSS_TEXT - used);
    used += (size_t)snprintf(text + used, SL__LOSS_TEXT - used, "*%s",
                             sl__float_text(part->weight, number));
  }
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

static double weight_of(const struct sl__loss *loss, int64_t label) {
  return label >= 0 && label < loss->settings.class_count ? (double)loss->weights[label] : 0;
}

static double whole_divisor(const struct sl__loss *loss, const struct sl_batch *batch,
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
  for (int64_t i = 0; i < labels; i++) weight += weight_of(loss, batch->labels[i]);
  return weight;
}

/* Without missing targets a sample has all of them, or, behind the last sample, none. Else they are
 * counted, which one part of the data can: see check_loss in the trainer. */
static double part_divisor(const struct sl__loss_part *part, const struct sl_batch *batch,
                           const struct sl_dataset_info *info, bool all) {
  int64_t stride = sl_shape_count(&info->target), size = sl_shape_count(&part->target) / part->rows;
  int64_t valid = all ? batch->valid_all : batch->valid;
  double sum = 0;
  if (!part->loss.weights && !info->missing) return (double)(valid / stride * part->rows);
  for (int64_t n = 0; n < batch->batch; n++) {
    const float *targets = batch->targets + n * stride + part->target_first;
    if (!part->loss.weights) sum += (double)whole_rows(targets, part->rows, size);
    for (int64_t i = 0; part->loss.weights && i < part->rows; i++)
      if (!isnan(targets[i])) sum += weight_of(&part->loss, (int64_t)targets[i]);
  }
  return sum;
}

void sl__loss_divisors(const struct sl__loss *loss, const struct sl_batch *batch,
                       const struct sl_dataset_info *info, bool all,
                       double divisor[SL_MAX_FIELDS]) {
  if (!loss->part_count) divisor[0] = whole_divisor(loss, batch, info, all);
  for (int i = 0; i < loss->part_count; i++)
    divisor[i] = part_divisor(&loss->parts[i], batch, info, all);
}
