/* A model's metadata: the normalisation of its inputs, the columns of its table, the names of its
 * classes, what its outputs say. Older readers skip these keys and still read the whole model. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "nn/layer.h"

double sl__short_real(float value) {
  char text[32];
  for (int digits = 6; digits <= 9; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, (double)value);
    if (strtof(text, NULL) == value) break;
  }
  return strtod(text, NULL);
}

/* ---- in memory ---- */

const struct sl_model_notes *sl_model_notes(const struct sl_model *model) {
  SL__NEEDS_OR(NULL, model);
  return &model->metadata;
}

/* Names that were copied (copy_names). */
static void free_names(int count, const char *const *names) {
  for (int i = 0; names && i < count; i++) free((char *)names[i]);
  free((char **)names);
}

static void free_columns(int count, const struct sl_column *columns) {
  for (int i = 0; columns && i < count; i++) {
    free((char *)columns[i].name);
    free_names(columns[i].text_count, columns[i].texts);
  }
  free((struct sl_column *)columns);
}

static void clear(struct sl_model_notes *metadata) {
  free_names(metadata->class_count, metadata->class_names);
  free_names(metadata->target_name_count, metadata->target_names);
  free_columns(metadata->column_count, metadata->columns);
  free((float *)metadata->mean); /* the deviations follow */
  free((float *)metadata->target_mean);
  *metadata = (struct sl_model_notes){0};
}

void sl__metadata_free(struct sl_model *model) { clear(&model->metadata); }

/* The last dimension other than 1: 10 for [10], for [10, 1, 1] and for seven positions [7, 10]. */
static int64_t count_classes(const struct sl_shape *output) {
  int last = output->ndim - 1;
  while (last > 0 && output->dim[last] == 1) last--;
  return output->dim[last];
}

/* what: "input" or "output", whose first axis has `axis` entries. */
static enum sl_status check_normal(const char *what, int count, int64_t axis, const float *mean,
                                   const float *deviation) {
  if (count && count != 1 && count != axis)
    return sl__fail(SL_BAD_ARGUMENT,
                    "normalisation for %d channels: the model's %s has %lld; give one for all, or "
                    "one each",
                    count, what, (long long)axis);
  for (int c = 0; c < count; c++)
    if (!isfinite(mean[c]) || !isfinite(deviation[c]) || deviation[c] == 0)
      return sl__fail(SL_BAD_ARGUMENT, "normalisation: channel %d has mean %g and deviation %g", c,
                      (double)mean[c], (double)deviation[c]);
  return SL_OK;
}

/* what: "class", "column" */
static enum sl_status check_name(const char *what, int i, const char *name) {
  if (sl__is_utf8(name)) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT, "the name of %s %d is no UTF-8; convert it", what, i);
}

/* The columns must make the model's inputs. */
static enum sl_status check_columns(const struct sl_model *model,
                                    const struct sl_model_notes *metadata) {
  int64_t inputs = 0;
  enum sl_status status = SL_OK;
  for (int i = 0; i < metadata->column_count; i++) {
    const struct sl_column *column = &metadata->columns[i];
    inputs += column->text_count ? column->text_count : 1;
    SL__TRY(check_name("column", i + 1, column->name));
    for (int k = 0; k < column->text_count; k++)
      SL__TRY(check_name("a text of column", i + 1, column->texts[k]));
  }
  for (int i = 0; i < metadata->target_name_count; i++)
    SL__TRY(check_name("target", i + 1, metadata->target_names[i]));
  if (metadata->column_count && inputs != sl_shape_count(&model->sample))
    return sl__fail(SL_BAD_ARGUMENT, "columns of %lld inputs, but the model takes %lld",
                    (long long)inputs, (long long)sl_shape_count(&model->sample));
out:
  return status;
}

static enum sl_status check(const struct sl_model *model, const struct sl_model_notes *metadata) {
  const struct sl_shape *output = sl_model_output(model);
  int64_t classes = count_classes(output);
  enum sl_status status;
  SL__TRY(check_normal("input", metadata->channels, model->sample.dim[0], metadata->mean,
                       metadata->deviation));
  SL__TRY(check_normal("output", metadata->target_channels, output->dim[0], metadata->target_mean,
                       metadata->target_deviation));
  if (metadata->class_count && metadata->class_count != classes)
    return sl__fail(SL_BAD_ARGUMENT, "%d names of classes, but the model has %lld classes",
                    metadata->class_count, (long long)classes);
  for (int i = 0; i < metadata->class_count; i++)
    SL__TRY(check_name("class", i, metadata->class_names[i]));
  if (metadata->task > SL_TASK_LABELS)
    return sl__fail(SL_BAD_ARGUMENT, "there is no task %d", (int)metadata->task);
  SL__TRY(check_columns(model, metadata));
out:
  return status;
}

/* A copy of the means, which the deviations follow; NULL without memory. */
static float *copy_normal(size_t count, const float *mean, const float *deviation) {
  float *normal = sl__alloc(2 * count, sizeof *normal, "a model's metadata");
  if (!normal) return NULL;
  memcpy(normal, mean, count * sizeof *mean);
  memcpy(normal + count, deviation, count * sizeof *deviation);
  return normal;
}

/* *mine: how many are copied, those that are to be freed. */
static enum sl_status copy_names(int count, const char *const *names, int *mine,
                                 const char *const **copies) {
  if (!count) return SL_OK;
  char **room = sl__alloc((size_t)count, sizeof *room, "names of a model's metadata");
  if (!room) return SL_NO_MEMORY;
  *copies = (const char *const *)room;
  for (; *mine < count; ++*mine) {
    room[*mine] = sl__strdup(names[*mine]);
    if (!room[*mine]) return SL_NO_MEMORY;
  }
  return SL_OK;
}

static enum sl_status copy_columns(const struct sl_model_notes *metadata,
                                   struct sl_model_notes *mine) {
  enum sl_status status = SL_OK;
  if (!metadata->column_count) return SL_OK;
  struct sl_column *columns =
      sl__alloc((size_t)metadata->column_count, sizeof *columns, "a model's columns");
  if (!columns) return SL_NO_MEMORY;
  mine->columns = columns;
  for (int i = 0; i < metadata->column_count && status == SL_OK; i++) {
    const struct sl_column *from = &metadata->columns[i];
    columns[i].missing = from->missing;
    columns[i].name = sl__strdup(from->name);
    mine->column_count = i + 1;
    status = columns[i].name ? copy_names(from->text_count, from->texts, &columns[i].text_count,
                                          &columns[i].texts)
                             : SL_NO_MEMORY;
  }
  return status;
}

static enum sl_status copy(const struct sl_model_notes *metadata, struct sl_model_notes *mine) {
  mine->channels = metadata->channels;
  mine->values = metadata->values;
  mine->target_channels = metadata->target_channels;
  if (mine->channels) {
    mine->mean = copy_normal((size_t)mine->channels, metadata->mean, metadata->deviation);
    if (!mine->mean) return SL_NO_MEMORY;
    mine->deviation = mine->mean + mine->channels;
  }
  if (mine->target_channels) {
    mine->target_mean = copy_normal((size_t)mine->target_channels, metadata->target_mean,
                                    metadata->target_deviation);
    if (!mine->target_mean) return SL_NO_MEMORY;
    mine->target_deviation = mine->target_mean + mine->target_channels;
  }
  mine->task = metadata->task;
  enum sl_status status = copy_names(metadata->class_count, metadata->class_names,
                                     &mine->class_count, &mine->class_names);
  if (status == SL_OK)
    status = copy_names(metadata->target_name_count, metadata->target_names,
                        &mine->target_name_count, &mine->target_names);
  return status == SL_OK ? copy_columns(metadata, mine) : status;
}

enum sl_status sl_model_note(struct sl_model *model, const struct sl_model_notes *notes) {
  SL__NEEDS(model, notes);
  struct sl_model_notes mine = {0};
  enum sl_status status = check(model, notes);
  if (status == SL_OK) status = copy(notes, &mine);
  if (status != SL_OK) {
    clear(&mine);
    return status;
  }
  clear(&model->metadata);
  model->metadata = mine;
  return SL_OK;
}

enum sl_task sl_model_output_task(const struct sl_model *model, int i) {
  SL__NEEDS_OR(SL_TASK_UNKNOWN, model);
  return i >= 0 && i < model->output_count ? model->output_task[i] : SL_TASK_UNKNOWN;
}

enum sl_status sl_model_note_task(struct sl_model *model, int i, enum sl_task task) {
  SL__NEEDS(model);
  if (i < 0 || i >= model->output_count)
    return sl__fail(SL_BAD_ARGUMENT, "a task for output %d, but the model names %d outputs", i,
                    model->output_count);
  if (task > SL_TASK_LABELS) return sl__fail(SL_BAD_ARGUMENT, "there is no task %d", (int)task);
  model->output_task[i] = task;
  return SL_OK;
}

static enum sl_task task_of(const struct sl_loss *loss) {
  if (loss->part_count) return SL_TASK_UNKNOWN;
  if (sl_loss_takes_labels(loss)) return SL_TASK_CLASSES;
  return loss->kind == SL_LOSS_BCE ? SL_TASK_LABELS : SL_TASK_VALUES;
}

/* The output's part of the loss; NULL if it has none. */
static const struct sl_loss_part *part_of(const struct sl_loss *loss, const char *output) {
  for (int k = 0; k < loss->part_count; k++)
    if (!strcmp(loss->parts[k].output, output)) return &loss->parts[k];
  return NULL;
}

/* An output's task is that of its part of the loss; without a part it is not known. */
static void note_tasks(struct sl_model *model, const struct sl_loss *loss) {
  struct sl_row_field output;
  for (int i = 0; sl_model_output_field(model, i, &output); i++) {
    const struct sl_loss_part *part = part_of(loss, output.name);
    model->output_task[i] = task_of(part ? &part->loss : loss);
  }
}

/* The name of the output's target. */
static const char *target_for(const struct sl_loss *loss, const char *output) {
  const struct sl_loss_part *part = part_of(loss, output);
  return part && *part->target ? part->target : output;
}

/* Mean and deviation of each of the model's outputs, which has more than its target if that is a
 * class. Targets without names have outputs of their own shape. */
static void spread_normal(const struct sl_model *model, const struct sl_dataset_info *info,
                          const struct sl_loss *loss, float *mean, float *deviation) {
  int64_t values = sl_shape_count(&info->target) / info->target_channels;
  struct sl_row_field output;
  for (int i = 0; sl_model_output_field(model, i, &output); i++)
    for (int f = 0; f < info->target_count; f++) {
      const struct sl_row_field *target = &info->targets[f];
      if (strcmp(target->name, target_for(loss, output.name)) != 0) continue;
      /* the trainer refuses such an output, and says why */
      if (!target->classes && !sl_shape_equal(&target->shape, &output.shape)) continue;
      for (int64_t k = 0; k < sl_shape_count(&output.shape); k++) {
        int64_t from = (target->first + k) / values;
        mean[output.first + k] = target->classes ? 0.0f : info->target_mean[from];
        deviation[output.first + k] = target->classes ? 1.0f : info->target_deviation[from];
      }
    }
}

static enum sl_status note_fields(struct sl_model *model, const struct sl_dataset_info *info,
                                  const struct sl_loss *loss, struct sl_model_notes *notes) {
  size_t count = (size_t)sl_shape_count(sl_model_output(model));
  float *mean = sl__alloc(2 * count, sizeof *mean, "a model's metadata"), *deviation = mean + count;
  if (!mean) return SL_NO_MEMORY;
  for (size_t i = 0; i < count; i++) deviation[i] = 1.0f;
  spread_normal(model, info, loss, mean, deviation);
  notes->target_channels = (int)count;
  notes->target_mean = mean;
  notes->target_deviation = deviation;
  enum sl_status status = sl_model_note(model, notes);
  free(mean);
  return status;
}

enum sl_status sl_model_note_data(struct sl_model *model, const struct sl_dataset *dataset,
                                  const struct sl_loss *loss) {
  SL__NEEDS(model, dataset, loss);
  const struct sl_dataset_info *info = sl_dataset_info(dataset);
  struct sl_model_notes notes = {.channels = info->channels,
                                 .mean = info->mean,
                                 .deviation = info->deviation,
                                 .values = !info->bytes && !info->tokens,
                                 .target_channels = info->target_channels,
                                 .target_mean = info->target_mean,
                                 .target_deviation = info->target_deviation,
                                 .class_count = info->class_names ? info->classes : 0,
                                 .class_names = info->class_names,
                                 .task = task_of(loss),
                                 .column_count = info->column_count,
                                 .columns = info->columns,
                                 .target_name_count = info->target_name_count,
                                 .target_names = info->target_names};
  note_tasks(model, loss);
  if (info->target_count && model->output_count) return note_fields(model, info, loss, &notes);
  if (info->target_count) notes.target_channels = 0; /* the trainer refuses such a model */
  return sl_model_note(model, &notes);
}

/* ---- in JSON ---- */

static const char *const task_names[] = {
    [SL_TASK_CLASSES] = "classes", [SL_TASK_VALUES] = "values", [SL_TASK_LABELS] = "labels"};

static json_t *list_of(const float *values, int count) {
  json_t *list = json_array();
  for (int i = 0; i < count; i++) sl__json_append(&list, json_real(sl__short_real(values[i])));
  return list;
}

static json_t *normal_of(int count, const float *mean, const float *deviation) {
  return json_pack("{s:o, s:o}", "mean", list_of(mean, count), "deviation",
                   list_of(deviation, count));
}

static json_t *names_of(int count, const char *const *names) {
  json_t *list = json_array();
  for (int i = 0; i < count; i++) sl__json_append(&list, json_string(names[i]));
  return list;
}

/* A column of numbers is its name alone. */
static json_t *columns_of(const struct sl_model_notes *m) {
  json_t *list = json_array();
  for (int i = 0; i < m->column_count; i++) {
    const struct sl_column *column = &m->columns[i];
    json_t *item = json_string(column->name);
    if (column->text_count || column->missing) item = json_pack("{s:o}", "name", item);
    if (column->text_count)
      sl__json_set(&item, "texts", names_of(column->text_count, column->texts));
    if (column->missing) sl__json_set(&item, "missing", json_true());
    sl__json_append(&list, item);
  }
  return list;
}

/* The task of each output that has a known one; NULL: of none. */
static json_t *tasks_of(const struct sl_model *model) {
  struct sl_row_field output;
  json_t *tasks = NULL;
  for (int i = 0; sl_model_output_field(model, i, &output); i++) {
    if (!model->output_task[i]) continue;
    if (!tasks) tasks = json_object();
    sl__json_set(&tasks, output.name, json_string(task_names[model->output_task[i]]));
  }
  return tasks;
}

void sl__metadata_write(const struct sl_model *model, json_t **object) {
  const struct sl_model_notes *m = &model->metadata;
  if (m->channels) {
    json_t *normalize = normal_of(m->channels, m->mean, m->deviation);
    if (m->values) sl__json_set(&normalize, "of", json_string("values"));
    sl__json_set(object, "normalize", normalize);
  }
  if (m->target_channels)
    sl__json_set(object, "targets",
                 normal_of(m->target_channels, m->target_mean, m->target_deviation));
  if (m->class_count) sl__json_set(object, "classes", names_of(m->class_count, m->class_names));
  if (m->task) sl__json_set(object, "task", json_string(task_names[m->task]));
  json_t *tasks = tasks_of(model);
  if (tasks) sl__json_set(object, "tasks", tasks);
  if (m->column_count) sl__json_set(object, "columns", columns_of(m));
  if (m->target_name_count)
    sl__json_set(object, "target", names_of(m->target_name_count, m->target_names));
}

static enum sl_status bad(const char *path, const char *key, const char *what) {
  return sl__fail(SL_BAD_FILE, "%s: \"%s\" %s", path, key, what);
}

/* in: the key of the object that has the list. */
static enum sl_status read_list(const char *path, const char *in, const char *key,
                                const json_t *object, size_t count, float *values) {
  const json_t *list = json_object_get(object, key);
  if (json_array_size(list) != count)
    return bad(path, in, "must have lists \"mean\" and \"deviation\" of one length");
  for (size_t i = 0; i < count; i++) {
    const json_t *value = json_array_get(list, i);
    values[i] = (float)json_number_value(value);
    if (!json_is_number(value)) return bad(path, key, "must be a list of numbers");
  }
  return SL_OK;
}

/* The means, then the deviations, under that key; *entries stays 0 if there are none. */
static enum sl_status read_normal(const char *path, const json_t *object, const char *key,
                                  int *entries, float **room) {
  const json_t *normalize = json_object_get(object, key);
  size_t count = json_array_size(json_object_get(normalize, "mean"));
  if (!normalize) return SL_OK;
  if (count < 1 || count > INT32_MAX)
    return bad(path, key, "must have a \"mean\" and a \"deviation\" for each channel");
  *room = sl__alloc(2 * count, sizeof **room, "a model's metadata");
  if (!*room) return SL_NO_MEMORY;
  enum sl_status status = read_list(path, key, "mean", normalize, count, *room);
  if (status == SL_OK) status = read_list(path, key, "deviation", normalize, count, *room + count);
  *entries = (int)count;
  return status;
}

/* The list of names at that key, if there is one; *room has their addresses, in the JSON. */
static enum sl_status read_names(const char *path, const json_t *object, const char *key,
                                 int *count, const char ***room) {
  const json_t *list = json_object_get(object, key);
  size_t size = json_array_size(list);
  if (!list) return SL_OK;
  if (size < 1 || size > INT32_MAX) return bad(path, key, "must be a list of names");
  *room = sl__alloc(size, sizeof **room, "names of a model's metadata");
  if (!*room) return SL_NO_MEMORY;
  for (size_t i = 0; i < size; i++) {
    (*room)[i] = json_string_value(json_array_get(list, i));
    if (!(*room)[i]) return bad(path, key, "must be a list of names");
  }
  *count = (int)size;
  return SL_OK;
}

static enum sl_task find_task(const json_t *value) {
  const char *name = json_string_value(value);
  for (int i = SL_TASK_CLASSES; name && i <= SL_TASK_LABELS; i++)
    if (!strcmp(task_names[i], name)) return (enum sl_task)i;
  return SL_TASK_UNKNOWN;
}

static enum sl_status read_task(const char *path, const json_t *object, enum sl_task *task) {
  const json_t *value = json_object_get(object, "task");
  *task = find_task(value);
  return *task || !value ? SL_OK : bad(path, "task", "must be classes, values or labels");
}

/* {"kind": "classes", "place": "values"}, by the outputs' names */
static enum sl_status read_tasks(const char *path, const json_t *object, struct sl_model *model) {
  json_t *tasks = json_object_get(object, "tasks");
  struct sl_row_field output;
  size_t found = 0;
  for (int i = 0; sl_model_output_field(model, i, &output); i++) {
    const json_t *value = json_object_get(tasks, output.name);
    if (!value) continue;
    found++;
    model->output_task[i] = find_task(value);
    if (!model->output_task[i])
      return bad(path, "tasks", "must have classes, values or labels for each output");
  }
  if (!tasks || (json_is_object(tasks) && json_object_size(tasks) == found)) return SL_OK;
  return bad(path, "tasks", "must be an object whose keys are the model's outputs");
}

/* "x1", or {"name": "kind", "texts": ["down", "up"], "missing": true} */
static enum sl_status read_column(const char *path, const json_t *item, struct sl_column *column) {
  const char **texts = NULL;
  const json_t *missing = json_object_get(item, "missing");
  column->name = json_string_value(json_is_object(item) ? json_object_get(item, "name") : item);
  if (!column->name || (missing && !json_is_boolean(missing)))
    return bad(path, "columns", "must be a list of names, or of objects with a \"name\"");
  column->missing = json_is_true(missing);
  enum sl_status status = read_names(path, item, "texts", &column->text_count, &texts);
  column->texts = texts;
  return status;
}

static enum sl_status read_columns(const char *path, const json_t *object,
                                   struct sl_model_notes *metadata, struct sl_column **room) {
  const json_t *list = json_object_get(object, "columns");
  size_t size = json_array_size(list);
  enum sl_status status = SL_OK;
  if (!list) return SL_OK;
  if (size < 1 || size > INT32_MAX) return bad(path, "columns", "must be a list of columns");
  *room = sl__alloc(size, sizeof **room, "a model's columns");
  if (!*room) return SL_NO_MEMORY;
  metadata->columns = *room;
  for (size_t i = 0; i < size && status == SL_OK; i++) {
    metadata->column_count = (int)i + 1;
    status = read_column(path, json_array_get(list, i), &(*room)[i]);
  }
  return status;
}

enum sl_status sl__metadata_read(struct sl_model *model, const char *path, const void *object) {
  struct sl_model_notes metadata = {0};
  const char **names = NULL, **target_names = NULL, *of;
  struct sl_column *columns = NULL;
  float *normal = NULL, *targets = NULL;
  char why[512];
  enum sl_status status;
  SL__TRY(read_normal(path, object, "normalize", &metadata.channels, &normal));
  SL__TRY(read_normal(path, object, "targets", &metadata.target_channels, &targets));
  metadata.mean = normal;
  metadata.deviation = normal ? normal + metadata.channels : NULL;
  metadata.target_mean = targets;
  metadata.target_deviation = targets ? targets + metadata.target_channels : NULL;
  of = json_string_value(json_object_get(json_object_get(object, "normalize"), "of"));
  metadata.values = of && !strcmp(of, "values");
  SL__TRY(read_names(path, object, "classes", &metadata.class_count, &names));
  metadata.class_names = names;
  SL__TRY(read_names(path, object, "target", &metadata.target_name_count, &target_names));
  metadata.target_names = target_names;
  SL__TRY(read_task(path, object, &metadata.task));
  SL__TRY(read_tasks(path, object, model));
  SL__TRY(read_columns(path, object, &metadata, &columns));
  status = sl_model_note(model, &metadata);
  if (status == SL_BAD_ARGUMENT) {
    snprintf(why, sizeof why, "%s", sl_error());
    status = sl__fail(SL_BAD_FILE, "%s: %s", path, why);
  }
out:
  for (int i = 0; i < metadata.column_count; i++) free((char **)columns[i].texts);
  free(columns);
  free(target_names);
  free(names);
  free(normal);
  free(targets);
  return status;
}
