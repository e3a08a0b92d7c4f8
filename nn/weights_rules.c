/* Weights of other programs: each parameter is one tensor of a file, or several that are joined, by
 * a table of rules. The same table loads and saves. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/tensor_files.h"
#include "core/base/text.h"
#include "nn/layer.h"

enum { MOST_NAME = 256 };

/* A tensor of a file. */
struct piece {
  char name[MOST_NAME];
  int optional; /* length of the name's beginning that may be missing */
  struct sl_shape shape;
  const struct sl__safetensors_entry *entry;
  const struct sl__safetensors *file;
};

/* A rule for this model. */
struct source {
  const struct sl_weight_rule *rule;
  int parameter; /* its number; -1: for tensors that are not needed */
  bool second;   /* the second name of a shared weight */
  bool found;    /* has tensors in the file */
  struct piece pieces[SL_MOST_JOINED];
  int count;
};

struct plan {
  struct sl_model *model;
  struct source *sources;
  int count;
  const struct source **of; /* [parameters of the model] */
  int parameters;
  struct sl__tensor_files files;
};

/* ---- rules ---- */

static enum sl_status fail_rule(const struct sl_weight_rule *rule, const char *what) {
  return sl__fail(SL_BAD_ARGUMENT, "the rule for %.80s (%.120s) %s", rule->parameter, rule->tensors,
                  what);
}

/* "[transformer.]wte.weight" */
static enum sl_status read_name(const struct sl_weight_rule *rule, const char *text, size_t length,
                                struct piece *piece) {
  const char *bracket = *text == '[' ? memchr(text, ']', length) : NULL;
  if (*text == '[' && !bracket) return fail_rule(rule, "has a '[' without ']'");
  int optional = bracket ? (int)(bracket - text) - 1 : 0;
  int skipped = bracket ? optional + 2 : 0, rest = (int)length - skipped;
  if (rest < 1) return fail_rule(rule, "has an empty name");
  piece->optional = optional;
  int size = snprintf(piece->name, MOST_NAME, "%.*s%.*s", optional, text + 1, rest, text + skipped);
  return size < MOST_NAME ? SL_OK : fail_rule(rule, "has a name of more than 255 characters");
}

static enum sl_status read_names(struct source *source) {
  const char *text = source->rule->tensors;
  for (bool more = true; more;) {
    text += strspn(text, " ");
    size_t length = strcspn(text, ",");
    more = text[length] == ',';
    if (source->count == SL_MOST_JOINED)
      return fail_rule(source->rule, "joins more than 4 tensors");
    enum sl_status status = read_name(source->rule, text, length, &source->pieces[source->count++]);
    if (status != SL_OK) return status;
    text += length + more;
  }
  return SL_OK;
}

/* The shapes that the tensors have in the file. */
static enum sl_status set_shapes(struct source *source, const struct sl_shape *whole) {
  const struct sl_weight_rule *rule = source->rule;
  int64_t sum = 0;
  bool given = false;
  if (rule->transposed && whole->ndim != 2)
    return fail_rule(rule, "is transposed, which needs a parameter of two axes");
  if (source->count > 1 && !whole->ndim) return fail_rule(rule, "joins parts of a single number");
  for (int i = 0; i < SL_MOST_JOINED; i++) given |= rule->sizes[i] != 0;
  for (int i = 0; i < source->count; i++) {
    struct sl_shape *shape = &source->pieces[i].shape;
    *shape = *whole;
    if (!whole->ndim) return SL_OK;
    shape->dim[0] = given ? rule->sizes[i] : whole->dim[0] / source->count;
    if (shape->dim[0] < 1 || shape->dim[0] > whole->dim[0])
      return fail_rule(rule, "has a part of no rows, or of more than the parameter has");
    sum += shape->dim[0];
    if (rule->transposed) *shape = SL_SHAPE(shape->dim[1], shape->dim[0]);
  }
  if (sum == whole->dim[0]) return SL_OK;
  char dims[96];
  return sl__fail(SL_BAD_ARGUMENT,
                  "the rule for %.80s (%.120s) has parts of %" PRId64
                  " rows in all; the parameter "
                  "is %s",
                  rule->parameter, rule->tensors, sum, sl_shape_text(whole, dims, sizeof dims));
}

/* The parameter itself, or the one that the layer of this name shares. */
static enum sl_status find_target(const struct sl_model *model, struct source *source) {
  const char *name = source->rule->parameter;
  source->parameter = sl__find_parameter(model, name);
  if (source->parameter < 0) {
    source->parameter = sl__find_shared(model, name);
    source->second = source->parameter >= 0;
  }
  return source->parameter >= 0 ? SL_OK
                                : fail_rule(source->rule, "is for no parameter of the model");
}

static enum sl_status plan_rule(struct plan *plan, const struct sl_weight_rule *rule) {
  enum sl_status status;
  struct source *source = &plan->sources[plan->count++];
  struct sl_shape shape;
  *source = (struct source){.rule = rule, .parameter = -1};
  if (!rule->tensors) return sl__fail(SL_BAD_ARGUMENT, "rule %d names no tensors", plan->count - 1);
  if (!rule->parameter) return SL_OK;
  SL__TRY(find_target(plan->model, source));
  sl_model_parameter(plan->model, source->parameter, &shape);
  SL__TRY(read_names(source));
  SL__TRY(set_shapes(source, &shape));
  if (source->second) return SL_OK;
  if (plan->of[source->parameter]) SL__TRY(fail_rule(rule, "is the second one for it"));
  plan->of[source->parameter] = source;
out:
  return status;
}

static enum sl_status plan_new(struct sl_model *model, const struct sl_weight_rule *rules,
                               int count, struct plan *plan) {
  enum sl_status status;
  *plan = (struct plan){.model = model};
  if (count < 1) return sl__fail(SL_BAD_ARGUMENT, "count %d: there must be rules", count);
  SL__TRY(sl_model_build(model));
  plan->parameters = sl_model_parameter_count(model);
  plan->sources = sl__alloc((size_t)count, sizeof *plan->sources, "a table of weights");
  plan->of = sl__alloc((size_t)plan->parameters + 1, sizeof *plan->of, "a table of weights");
  if (!plan->sources || !plan->of) SL__TRY(SL_NO_MEMORY);
  for (int i = 0; i < count; i++) SL__TRY(plan_rule(plan, &rules[i]));
  for (int i = 0; i < plan->parameters; i++)
    if (!plan->of[i])
      SL__TRY(sl__fail(SL_BAD_ARGUMENT, "no rule is for the model's %s",
                       sl_model_parameter(model, i, NULL)));
out:
  return status;
}

static void plan_free(struct plan *plan) {
  sl__tensor_files_close(&plan->files);
  free(plan->sources);
  free(plan->of);
}

/* ---- loading: what is in the file ---- */

static bool look_up(const struct plan *plan, struct piece *piece) {
  piece->entry = sl__tensor_files_find(&plan->files, piece->name, &piece->file);
  if (!piece->entry && piece->optional)
    piece->entry = sl__tensor_files_find(&plan->files, piece->name + piece->optional, &piece->file);
  return piece->entry;
}

static enum sl_status find_piece(const struct plan *plan, const struct source *source,
                                 struct piece *piece) {
  char has[96], wanted[96];
  if (!look_up(plan, piece) && source->second && source->count == 1) return SL_OK;
  if (!piece->entry)
    return sl__fail(SL_BAD_FILE,
                    "%s: has no tensor \"%.80s\" for the model's %s; is it of another "
                    "model?",
                    plan->files.path, piece->name + piece->optional, source->rule->parameter);
  enum sl_status status = sl__safetensors_check_read(piece->file, piece->entry);
  if (status != SL_OK) return status;
  if (!sl_shape_equal(&piece->entry->shape, &piece->shape))
    return sl__fail(SL_BAD_SHAPE, "%s: tensor \"%.80s\" is %s, the model's %s needs %s",
                    sl__safetensors_path(piece->file), piece->entry->name,
                    sl_shape_text(&piece->entry->shape, has, sizeof has), source->rule->parameter,
                    sl_shape_text(&piece->shape, wanted, sizeof wanted));
  return SL_OK;
}

/* Lets a shared weight be read by the rule for its second name if the file has none of the tensors
 * of the first one. */
static bool take_second(struct plan *plan, struct source *first) {
  for (int k = 0; k < first->count; k++)
    if (look_up(plan, &first->pieces[k])) return false;
  for (int i = 0; i < plan->count; i++) {
    const struct source *other = &plan->sources[i];
    if (!other->second || !other->found || other->parameter != first->parameter) continue;
    plan->of[first->parameter] = other;
    return true;
  }
  return false;
}

/* Second names first: a first name may be missing beside them. */
static enum sl_status find_all(struct plan *plan) {
  enum sl_status status = SL_OK;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < plan->count; i++) {
      struct source *source = &plan->sources[i];
      if (!source->count || source->second == (pass == 1)) continue;
      if (!source->second && take_second(plan, source)) continue;
      for (int k = 0; k < source->count; k++) SL__TRY(find_piece(plan, source, &source->pieces[k]));
      source->found = source->pieces[0].entry;
    }
out:
  return status;
}

/* Of a rule without a parameter; a '*' stands for any beginning. */
static bool is_ignored(const char *pattern, const char *name) {
  if (*pattern != '*') return !strcmp(pattern, name);
  size_t end = strlen(pattern + 1), length = strlen(name);
  return length >= end && !strcmp(name + length - end, pattern + 1);
}

static bool is_taken(const struct plan *plan, const struct sl__safetensors_entry *entry) {
  for (int i = 0; i < plan->count; i++) {
    const struct source *source = &plan->sources[i];
    if (source->parameter < 0 && is_ignored(source->rule->tensors, entry->name)) return true;
    for (int k = 0; k < source->count; k++)
      if (source->pieces[k].entry == entry) return true;
  }
  return false;
}

static enum sl_status check_surplus(const struct plan *plan) {
  enum { SHOWN = 3 };
  char names[SHOWN * 70] = "";
  int surplus = 0;
  for (size_t f = 0; f < plan->files.count; f++)
    for (size_t i = 0; i < sl__safetensors_count(plan->files.files[f]); i++) {
      const struct sl__safetensors_entry *entry = sl__safetensors_at(plan->files.files[f], i);
      if (is_taken(plan, entry)) continue;
      size_t length = strlen(names);
      if (surplus++ < SHOWN)
        snprintf(names + length, sizeof names - length, "%s\"%.60s\"", length ? ", " : "",
                 entry->name);
    }
  if (!surplus) return SL_OK;
  return sl__fail(SL_BAD_FILE,
                  "%s: %d tensor%s belong%s to no layer: %s%s; is it of another model?",
                  plan->files.path, surplus, surplus > 1 ? "s" : "", surplus > 1 ? "" : "s", names,
                  surplus > SHOWN ? ", ..." : "");
}

/* ---- loading: values ---- */

/* from [rows, columns] -> to [columns, rows] */
static void transpose(const float *from, int64_t rows, int64_t columns, float *to) {
  enum { TILE = 16 }; /* so that both are read and written by whole cache lines */
  for (int64_t r0 = 0; r0 < rows; r0 += TILE)
    for (int64_t c = 0; c < columns; c++)
      for (int64_t r = r0; r < rows && r < r0 + TILE; r++) to[c * rows + r] = from[r * columns + c];
}

/* Room for one layer at a time. */
struct room {
  float *block;   /* the largest block of parameters or buffers */
  float *scratch; /* the largest parameter */
};

static const struct sl__block *block_of(const struct sl_model *model, int i) {
  const struct sl__layer *layer = &model->layers[i / 2];
  return i % 2 ? &layer->buffers : &layer->params;
}

static enum sl_status room_new(const struct plan *plan, struct room *room) {
  int64_t block = 0, part = 0;
  for (int i = 0; i < 2 * plan->model->count; i++) {
    int64_t total = block_of(plan->model, i)->total;
    if (total > block) block = total;
  }
  for (int i = 0; i < plan->parameters; i++) {
    struct sl_shape shape;
    sl_model_parameter(plan->model, i, &shape);
    if (sl_shape_count(&shape) > part) part = sl_shape_count(&shape);
  }
  room->block = sl__alloc_large((size_t)block, sizeof(float), "a layer's weights");
  room->scratch = sl__alloc_large((size_t)part, sizeof(float), "a layer's weights");
  return room->block && room->scratch ? SL_OK : SL_NO_MEMORY;
}

static void room_free(struct room *room) {
  free(room->block);
  free(room->scratch);
}

static enum sl_status read_source(const struct source *source, float *scratch, float *values) {
  enum sl_status status = SL_OK;
  for (int k = 0; k < source->count; k++) {
    const struct piece *piece = &source->pieces[k];
    const struct sl_shape *shape = &piece->shape;
    bool turned = source->rule->transposed;
    SL__TRY(
        sl__safetensors_floats(piece->file, piece->entry->name, shape, turned ? scratch : values));
    if (turned) transpose(scratch, shape->dim[0], shape->dim[1], values);
    values += sl_shape_count(shape);
  }
out:
  return status;
}

static enum sl_status check_finite(const struct plan *plan, const struct source *source,
                                   const float *values) {
  struct sl_shape shape;
  const char *name = sl_model_parameter(plan->model, source->parameter, &shape);
  for (int64_t i = 0, count = sl_shape_count(&shape); i < count; i++)
    if (!isfinite(values[i]))
      return sl__fail(SL_NOT_FINITE, "%s: value %" PRId64 " of %s (%.120s) is %g", plan->files.path,
                      i, name, source->rule->tensors, (double)values[i]);
  return SL_OK;
}

/* All blocks: checked, or written to the model. */
static enum sl_status pass_over(struct plan *plan, const struct room *room, bool writes) {
  enum sl_status status = SL_OK;
  int parameter = 0;
  for (int i = 0; i < 2 * plan->model->count; i++) {
    const struct sl__block *block = block_of(plan->model, i);
    for (int k = 0; k < block->count; k++, parameter++) {
      float *values = room->block + block->part[k].offset;
      SL__TRY(read_source(plan->of[parameter], room->scratch, values));
      if (!writes) SL__TRY(check_finite(plan, plan->of[parameter], values));
    }
    if (writes && block->count) SL__TRY(sl__tensor_write(block->tensor, room->block));
  }
out:
  return status;
}

/* The second name of a shared weight must have the same values. */
static enum sl_status check_shared(const struct plan *plan, const struct source *second,
                                   const struct room *room) {
  enum sl_status status;
  struct sl_shape shape;
  const struct source *first = plan->of[second->parameter];
  sl_model_parameter(plan->model, second->parameter, &shape);
  size_t count = (size_t)sl_shape_count(&shape);
  float *other = sl__alloc_large(count, sizeof *other, "a shared weight");
  if (!other) return SL_NO_MEMORY;
  SL__TRY(read_source(first, room->scratch, room->block));
  SL__TRY(read_source(second, room->scratch, other));
  if (memcmp(room->block, other, count * sizeof *other))
    status =
        sl__fail(SL_BAD_FILE,
                 "%s: \"%.60s\" and \"%.60s\" differ, but the model has one weight for both "
                 "layers; it was trained without sharing",
                 plan->files.path, second->pieces[0].entry->name, first->pieces[0].entry->name);
out:
  free(other);
  return status;
}

static enum sl_status load_all(struct plan *plan) {
  enum sl_status status;
  struct room room = {0};
  SL__TRY(room_new(plan, &room));
  SL__TRY(pass_over(plan, &room, false));
  for (int i = 0; i < plan->count; i++)
    if (plan->sources[i].second && plan->sources[i].found)
      SL__TRY(check_shared(plan, &plan->sources[i], &room));
  SL__TRY(pass_over(plan, &room, true));
out:
  room_free(&room);
  return status;
}

/* ---- the report ---- */

static void print_sources(FILE *out, const struct source *source) {
  for (int k = 0; k < source->count; k++)
    fprintf(out, "%s%s", k ? ", " : "", source->pieces[k].entry->name);
  fprintf(out, "%s\n", source->rule->transposed ? ", transposed" : "");
}

static enum sl_status make_report(const struct plan *plan, char **report) {
  struct sl__text text;
  FILE *out = sl__text_begin(&text);
  char dims[96];
  int64_t values = 0;
  for (int i = 0; out && i < plan->parameters; i++) {
    struct sl_shape shape;
    const char *name = sl_model_parameter(plan->model, i, &shape);
    values += sl_shape_count(&shape);
    fprintf(out, "%-32s %-18s loaded from ", name, sl_shape_text(&shape, dims, sizeof dims));
    print_sources(out, plan->of[i]);
  }
  for (size_t f = 0; out && f < plan->files.count; f++)
    for (size_t i = 0; i < sl__safetensors_count(plan->files.files[f]); i++) {
      const struct sl__safetensors_entry *entry = sl__safetensors_at(plan->files.files[f], i);
      bool used = false;
      for (int p = 0; p < plan->parameters && !used; p++)
        for (int k = 0; k < plan->of[p]->count; k++) used |= plan->of[p]->pieces[k].entry == entry;
      if (!used) sl__report_row(out, entry->name, &entry->shape, "not needed", "");
    }
  if (out)
    fprintf(out, "%d tensors of the model loaded, %" PRId64 " values\n", plan->parameters, values);
  return sl__text_end(&text, "a report", report);
}

enum sl_status sl_model_load_tensors(struct sl_model *model, const char *path,
                                     const struct sl_weight_rule *rules, int count, char **report) {
  SL__NEEDS(model, path, rules);
  enum sl_status status;
  struct plan plan = {0};
  char *text = NULL;
  if (report) *report = NULL;
  SL__TRY(plan_new(model, rules, count, &plan));
  SL__TRY(sl__tensor_files_open(path, &plan.files));
  SL__TRY(find_all(&plan));
  SL__TRY(check_surplus(&plan));
  if (report) SL__TRY(make_report(&plan, &text));
  SL__TRY(load_all(&plan));
  if (report) *report = text;
  text = NULL;
out:
  free(text);
  plan_free(&plan);
  return status;
}

/* ---- saving ---- */

/* Turns each tensor of the parameter in its place. */
static void turn(const struct source *source, float *scratch, float *values) {
  for (int k = 0; k < source->count; k++) {
    const struct sl_shape *shape = &source->pieces[k].shape;
    int64_t count = sl_shape_count(shape);
    memcpy(scratch, values, (size_t)count * sizeof *values);
    transpose(scratch, shape->dim[1], shape->dim[0], values);
    values += count;
  }
}

static enum sl_status write_all(const struct plan *plan, const struct sl__copy *copy,
                                const char *path) {
  static const char *const metadata[] = {"format", "pt", "producer", "starling", NULL};
  enum sl_status status;
  size_t filled = 0;
  struct room room = {0};
  struct sl__safetensors_entry *entries =
      sl__alloc((size_t)plan->parameters * SL_MOST_JOINED, sizeof *entries, "a file's entries");
  if (!entries) return SL_NO_MEMORY;
  SL__TRY(room_new(plan, &room));
  for (int i = 0; i < plan->parameters; i++) {
    const struct source *source = plan->of[i];
    float *values = sl__copy_values(copy, plan->model, i);
    if (source->rule->transposed) turn(source, room.scratch, values);
    for (int k = 0; k < source->count; k++) {
      const struct piece *piece = &source->pieces[k];
      int64_t count = sl_shape_count(&piece->shape);
      entries[filled++] = (struct sl__safetensors_entry){.name = piece->name,
                                                         .dtype = "F32",
                                                         .shape = piece->shape,
                                                         .data = values,
                                                         .bytes = (size_t)count * sizeof *values};
      values += count;
    }
  }
  status = sl__safetensors_write(path, entries, filled, metadata, NULL);
out:
  room_free(&room);
  free(entries);
  return status;
}

enum sl_status sl_model_save_tensors(struct sl_model *model, const char *path,
                                     const struct sl_weight_rule *rules, int count) {
  SL__NEEDS(model, path, rules);
  enum sl_status status;
  struct plan plan = {0};
  struct sl__copy copy = {0};
  char *file = NULL;
  SL__TRY(plan_new(model, rules, count, &plan));
  SL__TRY(sl__copy_new(model, &copy));
  SL__TRY(sl__copy_read(model, &copy));
  SL__TRY(sl__copy_check(&copy, model, path));
  bool folder = sl__names_folder(path);
  file = folder ? sl__path_in(path, SL__FOLDER_WEIGHTS) : sl__strdup(path);
  if (!file) SL__TRY(SL_NO_MEMORY);
  if (folder) SL__TRY(sl_folder_make(path));
  SL__TRY(write_all(&plan, &copy, file));
out:
  free(file);
  sl__copy_free(&copy);
  plan_free(&plan);
  return status;
}
