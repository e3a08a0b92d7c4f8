/* Some tensors of a file into a model: those that fit by name, as a map has it, and by shape. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "nn/layer.h"

enum { MOST_RULES = 64, MOST_NAME = 256 };

/* ---- the map ---- */

/* to NULL: tensors of this prefix are left out. */
struct rule {
  const char *from, *to;
  bool fits; /* a tensor of the file */
};

struct map {
  char *text;
  struct rule rule[MOST_RULES];
  int count;
};

static enum sl_status read_rule(struct map *map, char *text) {
  char *equals = strchr(text, '=');
  if (map->count == MOST_RULES)
    return sl__fail(SL_BAD_ARGUMENT, "the map has more than %d rules", MOST_RULES);
  if (*text == '!' ? equals || !text[1] : !equals || strchr(equals + 1, '='))
    return sl__fail(SL_BAD_ARGUMENT,
                    "the map's '%s' is no rule; write FROM=TO for the beginning of names, or !FROM "
                    "for tensors to be left out",
                    text);
  struct rule *rule = &map->rule[map->count++];
  *rule = (struct rule){.from = text};
  if (*text == '!') {
    rule->from = text + 1;
  } else {
    *equals = '\0';
    rule->to = equals + 1;
  }
  return SL_OK;
}

static enum sl_status map_read(const char *text, struct map *map) {
  enum sl_status status = SL_OK;
  *map = (struct map){.text = sl__strdup(text ? text : "")};
  if (!map->text) return SL_NO_MEMORY;
  char *rest = map->text;
  for (char *rule = strsep(&rest, ",\n"); rule && status == SL_OK; rule = strsep(&rest, ",\n"))
    if (*(rule = sl__trim(rule))) status = read_rule(map, rule);
  return status;
}

/* The model's name of a tensor; false: it is left out. */
static bool map_name(struct map *map, const char *name, char mapped[MOST_NAME]) {
  for (int i = 0; i < map->count; i++) {
    struct rule *rule = &map->rule[i];
    size_t length = strlen(rule->from);
    if (strncmp(name, rule->from, length) != 0) continue;
    rule->fits = true;
    snprintf(mapped, MOST_NAME, "%s%s", rule->to ? rule->to : "", name + length);
    return rule->to != NULL;
  }
  snprintf(mapped, MOST_NAME, "%s", name);
  return true;
}

static enum sl_status map_check(const struct map *map, const char *path) {
  for (int i = 0; i < map->count; i++)
    if (!map->rule[i].fits)
      return sl__fail(SL_BAD_ARGUMENT,
                      "%s: no tensor's name begins with the map's '%s', or an earlier rule fits "
                      "them all",
                      path, map->rule[i].from);
  return SL_OK;
}

/* ---- the match ---- */

enum fate { ONLY_IN_FILE, LEFT_OUT, NOT_NEEDED, FITS, OTHER_SHAPE };

struct match {
  struct sl_model *model;
  const struct sl__safetensors *file;
  struct sl__copy copy;
  enum fate *fate;                             /* [tensors of the file] */
  const struct sl__safetensors_entry **source; /* [parameters of the model]; NULL: none */
  int loaded;
  int64_t values; /* number of loaded ones */
};

static enum sl_status load(struct match *m, const struct sl__safetensors_entry *entry, int to,
                           enum fate *fate) {
  struct sl_shape shape;
  const char *name = sl_model_parameter(m->model, to, &shape);
  if (m->source[to])
    return sl__fail(SL_BAD_ARGUMENT, "%s: \"%.60s\" and \"%.60s\" are both for the model's %s",
                    sl__safetensors_path(m->file), m->source[to]->name, entry->name, name);
  m->source[to] = entry;
  *fate = sl_shape_equal(&shape, &entry->shape) ? FITS : OTHER_SHAPE;
  if (*fate == OTHER_SHAPE) return SL_OK;
  m->loaded++;
  m->values += sl_shape_count(&shape);
  return sl__safetensors_floats(m->file, entry->name, &shape,
                                sl__copy_values(&m->copy, m->model, to));
}

static enum sl_status match_all(struct match *m, struct map *map) {
  enum sl_status status = SL_OK;
  for (size_t i = 0; i < sl__safetensors_count(m->file); i++) {
    const struct sl__safetensors_entry *entry = sl__safetensors_at(m->file, i);
    char name[MOST_NAME];
    bool wanted = map_name(map, entry->name, name);
    int to = wanted ? sl__find_parameter(m->model, name) : -1;
    if (!wanted) m->fate[i] = LEFT_OUT;
    if (wanted && sl__is_batch_count(name)) m->fate[i] = NOT_NEEDED;
    if (to >= 0) SL__TRY(load(m, entry, to, &m->fate[i]));
  }
out:
  return status;
}

/* Has the file this parameter's own name, which the map may leave out? */
static bool has_own_name(const struct match *m, int parameter) {
  return sl__safetensors_find(m->file, sl_model_parameter(m->model, parameter, NULL));
}

/* A tensor with the second name of a shared weight: it is the weight where the file has no other
 * name of it. Else both must be the same. */
static enum sl_status match_second(struct match *m, size_t i, const char *name) {
  const struct sl__safetensors_entry *entry = sl__safetensors_at(m->file, i);
  int to = sl__find_shared(m->model, name);
  struct sl_shape shape;
  bool found;
  if (to < 0) return SL_OK;
  if (!m->source[to] && !has_own_name(m, to)) return load(m, entry, to, &m->fate[i]);
  sl_model_parameter(m->model, to, &shape);
  if (m->source[to] && !sl_shape_equal(&m->source[to]->shape, &shape)) return SL_OK;
  m->fate[i] = NOT_NEEDED;
  if (!m->source[to]) return SL_OK;
  if (!sl_shape_equal(&entry->shape, &shape)) return SL_OK;
  return sl__check_shared(m->model, m->file, &m->copy, entry->name, name, &found);
}

static enum sl_status match_shared(struct match *m, struct map *map) {
  enum sl_status status = SL_OK;
  for (size_t i = 0; i < sl__safetensors_count(m->file); i++) {
    char name[MOST_NAME];
    if (m->fate[i] == ONLY_IN_FILE && map_name(map, sl__safetensors_at(m->file, i)->name, name))
      SL__TRY(match_second(m, i, name));
  }
out:
  return status;
}

/* The first parameter for which the file has another shape; -1: none. Nothing is loaded. */
static int other_shape(const struct match *m) {
  for (int i = 0; i < sl_model_parameter_count(m->model); i++)
    if (m->source[i]) return i;
  return -1;
}

static bool leaves_all_out(const struct match *m) {
  size_t out = 0, count = sl__safetensors_count(m->file);
  for (size_t i = 0; i < count; i++) out += m->fate[i] == LEFT_OUT;
  return count && out == count;
}

static enum sl_status fail_by_shape(const struct match *m, int parameter) {
  const struct sl__safetensors_entry *entry = m->source[parameter];
  char here[96], there[96];
  struct sl_shape shape;
  const char *name = sl_model_parameter(m->model, parameter, &shape);
  return sl__fail(SL_BAD_FILE,
                  "%s: no tensor has the shape of its parameter: \"%.60s\" is %s, the model's "
                  "\"%.60s\" %s; give the layers the sizes of the file's",
                  sl__safetensors_path(m->file), entry->name,
                  sl_shape_text(&entry->shape, there, sizeof there), name,
                  sl_shape_text(&shape, here, sizeof here));
}

static enum sl_status check_loaded(const struct match *m) {
  if (m->loaded) return SL_OK;
  if (other_shape(m) >= 0) return fail_by_shape(m, other_shape(m));
  if (leaves_all_out(m))
    return sl__fail(SL_BAD_FILE, "%s: the map leaves out all of its %zu tensors; leave out fewer",
                    sl__safetensors_path(m->file), sl__safetensors_count(m->file));
  const char *there = sl__safetensors_count(m->file) ? sl__safetensors_at(m->file, 0)->name : NULL;
  const char *here =
      sl_model_parameter_count(m->model) ? sl_model_parameter(m->model, 0, NULL) : NULL;
  return sl__fail(SL_BAD_FILE,
                  "%s: no tensor has the name and shape of a parameter; its names are like "
                  "\"%.60s\", the model's like \"%.60s\"; give a map, such as PREFIX.=",
                  sl__safetensors_path(m->file), there ? there : "", here ? here : "");
}

/* ---- the report ---- */

void sl__report_row(FILE *out, const char *name, const struct sl_shape *shape, const char *what,
                    const char *more) {
  char dims[96];
  fprintf(out, "%-32s %-18s %s%s\n", name, sl_shape_text(shape, dims, sizeof dims), what, more);
}

static void print_parameter(FILE *out, const struct match *m, int i) {
  struct sl_shape shape;
  char dims[96];
  const char *name = sl_model_parameter(m->model, i, &shape);
  const struct sl__safetensors_entry *source = m->source[i];
  if (!source)
    sl__report_row(out, name, &shape, "only in the model", "");
  else if (!sl_shape_equal(&shape, &source->shape))
    sl__report_row(out, name, &shape,
                   "other shape in the file: ", sl_shape_text(&source->shape, dims, sizeof dims));
  else if (strcmp(name, source->name) != 0)
    sl__report_row(out, name, &shape, "loaded from ", source->name);
  else
    sl__report_row(out, name, &shape, "loaded", "");
}

static enum sl_status print_report(const struct match *m, char **report) {
  static const char *const texts[] = {
      [ONLY_IN_FILE] = "only in the file", [LEFT_OUT] = "left out", [NOT_NEEDED] = "not needed"};
  struct sl__text text;
  FILE *out = sl__text_begin(&text);
  int count = sl_model_parameter_count(m->model);
  int64_t all = 0;
  for (int i = 0; out && i < count; i++) {
    struct sl_shape shape;
    sl_model_parameter(m->model, i, &shape);
    all += sl_shape_count(&shape);
    print_parameter(out, m, i);
  }
  for (size_t i = 0; out && i < sl__safetensors_count(m->file); i++) {
    const struct sl__safetensors_entry *entry = sl__safetensors_at(m->file, i);
    if (m->fate[i] < FITS) sl__report_row(out, entry->name, &entry->shape, texts[m->fate[i]], "");
  }
  if (out)
    fprintf(out, "%d of the model's %d tensors loaded, %" PRId64 " of %" PRId64 " values\n",
            m->loaded, count, m->values, all);
  return sl__text_end(&text, "a report", report);
}

/* ---- all of it ---- */

static enum sl_status match_open(struct match *m) {
  size_t tensors = sl__safetensors_count(m->file);
  size_t parameters = (size_t)sl_model_parameter_count(m->model);
  m->fate = sl__alloc(tensors + 1, sizeof *m->fate, "a report");
  m->source = sl__alloc(parameters + 1, sizeof *m->source, "a report");
  if (!m->fate || !m->source) return SL_NO_MEMORY;
  enum sl_status status = sl__copy_new(m->model, &m->copy);
  return status == SL_OK ? sl__copy_read(m->model, &m->copy) : status;
}

enum sl_status sl__weights_load_part(struct sl_model *model, const char *path, const char *map,
                                     char **report) {
  enum sl_status status;
  struct map rules = {0};
  struct match m = {.model = model};
  struct sl__safetensors *file = NULL;
  char *text = NULL;
  SL__TRY(map_read(map, &rules));
  SL__TRY(sl_model_build(model));
  SL__TRY(sl__safetensors_open(path, &file));
  m.file = file;
  SL__TRY(match_open(&m));
  SL__TRY(match_all(&m, &rules));
  SL__TRY(match_shared(&m, &rules));
  SL__TRY(map_check(&rules, path));
  SL__TRY(check_loaded(&m));
  SL__TRY(sl__copy_check(&m.copy, model, path));
  if (report) SL__TRY(print_report(&m, &text));
  SL__TRY(sl__copy_write(model, &m.copy));
  if (report) *report = text;
  text = NULL;
out:
  free(text);
  sl__copy_free(&m.copy);
  free(m.source);
  free(m.fate);
  sl__safetensors_close(file);
  free(rules.text);
  return status;
}
