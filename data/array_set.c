/* The dataset of arrays, inputs and targets, whose rows are read from their files batch by
 * batch: they may be larger than memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "data/array.h"
#include "data/floats.h"
#include "data/folder.h"
#include "data/reader.h"

/* The arrays of one side: one without a name, or fields. */
struct side {
  struct sl__array array[SL_MAX_FIELDS];
  int count;
};

struct array_set {
  struct sl_dataset set;
  struct side inputs, targets; /* no targets: options->inputs_only */
  int32_t *labels;             /* [count]; NULL: the targets are values */
};

static enum sl_status check_side(const struct side *side) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < side->count && status == SL_OK; i++)
    status = sl__array_check(&side->array[i]);
  return status;
}

static size_t largest_row(const struct side *side) {
  size_t most = 0;
  for (int i = 0; i < side->count; i++)
    if (side->array[i].row_size > most) most = side->array[i].row_size;
  return most;
}

/* The arrays' rows of a sample, one behind the other. Floats are read to their place at once. */
static enum sl_status read_row(const struct side *side, int64_t sample, uint8_t *room, float *row) {
  const uint8_t *bytes;
  for (int i = 0; i < side->count; i++) {
    const struct sl__array *array = &side->array[i];
    const struct sl__element *element = &array->layout.element;
    uint8_t *place = (uint8_t *)(void *)row;
    enum sl_status status =
        sl__array_row(array, sample, sl__element_is_float(element) ? place : room, &bytes);
    if (status != SL_OK) return status;
    if (bytes != place) sl__elements_to_floats(element, bytes, array->row_elements, row);
    row += array->row_elements;
  }
  return SL_OK;
}

static enum sl_status fill(const struct sl_dataset *dataset, int64_t count, const int64_t *samples,
                           const struct sl__rows *rows) {
  const struct array_set *set = (const struct array_set *)dataset;
  size_t inputs = largest_row(&set->inputs), targets = largest_row(&set->targets);
  enum sl_status status;
  uint8_t *room = sl__alloc(inputs > targets ? inputs : targets, 1, "a row");
  if (!room) return SL_NO_MEMORY;
  SL__TRY(check_side(&set->inputs));
  SL__TRY(check_side(&set->targets));
  for (int64_t row = 0; row < count; row++) {
    SL__TRY(
        read_row(&set->inputs, samples[row], room, rows->x + (size_t)row * dataset->sample_size));
    if (set->labels)
      rows->labels[row] = set->labels[samples[row]];
    else if (!set->targets.count) /* the samples are for answers */
      rows->targets[row] = NAN;
    else
      SL__TRY(read_row(&set->targets, samples[row], room,
                       rows->targets + (size_t)row * dataset->target_size));
  }
out:
  free(room);
  return status;
}

static void expect_side(const struct side *side, int64_t count, const int64_t *samples) {
  for (int i = 0; i < side->count; i++) sl__array_expect(&side->array[i], count, samples);
}

static void expect(const struct sl_dataset *dataset, int64_t count, const int64_t *samples) {
  const struct array_set *set = (const struct array_set *)dataset;
  expect_side(&set->inputs, count, samples);
  if (!set->labels) expect_side(&set->targets, count, samples);
}

/* Only sets with classes are asked. */
static enum sl_status fill_labels(const struct sl_dataset *set, int64_t count,
                                  const int64_t *samples, int32_t *labels) {
  for (int64_t row = 0; row < count; row++)
    labels[row] = ((const struct array_set *)set)->labels[samples[row]];
  return SL_OK;
}

static void close_side(struct side *side) {
  for (int i = 0; i < side->count; i++) sl__array_close(&side->array[i]);
}

static void free_arrays(struct sl_dataset *dataset) {
  struct array_set *set = (struct array_set *)dataset;
  close_side(&set->inputs);
  close_side(&set->targets);
  free(set->labels);
}

static const struct sl__dataset_kind array_kind = {
    .fill = fill, .expect = expect, .fill_labels = fill_labels, .free = free_arrays};

/* ---- targets ---- */

/* Whole numbers, one a sample, are classes unless the caller wants values. */
static bool are_classes(const struct sl__array *targets, enum sl_target_kind wanted) {
  if (wanted != SL_TARGET_AUTO) return wanted == SL_TARGET_CLASSES;
  return targets->layout.element.kind != 'f' && targets->row_elements == 1;
}

/* Label i; -1 for a number that is none. */
static int64_t label_of(const struct sl__element *element, const uint8_t *bytes) {
  float value;
  if (element->kind != 'f') return sl__element_whole(element, bytes);
  sl__elements_to_floats(element, bytes, 1, &value);
  bool whole = value >= 0 && value < SL_MAX_CLASSES && value == (float)(int64_t)value;
  return whole ? (int64_t)value : -1;
}

static enum sl_status read_labels(const struct sl__array *targets, int32_t **labels, int *classes) {
  int64_t count = targets->layout.dim[0];
  uint8_t room[8];
  const uint8_t *bytes;
  if (targets->row_elements != 1)
    return sl__fail(SL_BAD_SHAPE, "%s: has %zu numbers for each sample; classes take one",
                    targets->name, targets->row_elements);
  *labels = sl__alloc((size_t)count, sizeof **labels, targets->name);
  if (!*labels) return SL_NO_MEMORY;
  for (int64_t i = 0; i < count; i++) {
    enum sl_status status = sl__array_row(targets, i, room, &bytes);
    if (status != SL_OK) return status;
    int64_t label = label_of(&targets->layout.element, bytes);
    if (label < 0 || label >= SL_MAX_CLASSES)
      return sl__fail(SL_BAD_FILE, "%s: sample %lld is no class (0 to %d); are the targets values?",
                      targets->name, (long long)i, SL_MAX_CLASSES - 1);
    (*labels)[i] = (int32_t)label;
    if (label >= *classes) *classes = (int)label + 1;
  }
  return SL_OK;
}

/* Classes of a field of targets, which are class labels of any shape, or the tokens of inputs. */
static enum sl_status count_classes(const struct sl__array *targets, bool tokens, int *classes) {
  int64_t count = targets->layout.dim[0];
  size_t size = (size_t)targets->layout.element.size;
  const uint8_t *bytes;
  enum sl_status status = SL_OK;
  uint8_t *room = sl__alloc(targets->row_size, 1, "a row");
  if (!room) return SL_NO_MEMORY;
  for (int64_t i = 0; i < count; i++) {
    SL__TRY(sl__array_row(targets, i, room, &bytes));
    for (size_t k = 0; k < targets->row_elements; k++) {
      int64_t label = sl__element_whole(&targets->layout.element, bytes + k * size);
      if (label < 0 || label >= SL_MAX_CLASSES)
        SL__TRY(sl__fail(SL_BAD_FILE, "%s: sample %lld is no %s (0 to %d), but has %lld%s",
                         targets->name, (long long)i, tokens ? "token" : "class",
                         SL_MAX_CLASSES - 1, (long long)label,
                         tokens ? "" : "; store values as floats"));
      if (label >= *classes) *classes = (int)label + 1;
    }
  }
out:
  free(room);
  return status;
}

/* ---- opening ---- */

/* A sample's shape: that of a row; of an array of one axis, one value. */
static struct sl_shape row_shape(const struct sl__array *array) {
  struct sl_shape shape = SL_SHAPE(1);
  if (array->layout.ndim > 1) shape.ndim = array->layout.ndim - 1;
  for (int i = 1; i < array->layout.ndim; i++) shape.dim[i - 1] = array->layout.dim[i];
  return shape;
}

/* The names of one side's arrays, in `path`. */
struct names {
  const char *path;
  char name[SL_MAX_FIELDS][256];
  int count;
};

struct both {
  struct names inputs, targets;
  char file[4096]; /* of "data.h5:/inputs" */
};

/* The length of the first name of a list; a comma in brackets belongs to a slice. -1: a bracket is
 * not closed. */
static int name_length(const char *list) {
  int length = 0;
  for (; list[length] && list[length] != ','; length++) {
    const char *end = list[length] == '[' ? strchr(list + length, ']') : list + length;
    if (!end) return -1;
    length = (int)(end - list);
  }
  return length;
}

/* "x[:,0:2]" with the suffix "_test" becomes "x_test[:,0:2]"; false: it is too long. */
static bool add_suffix(char name[256], const char *suffix) {
  const char *slice = sl__slice_find(name);
  size_t before = slice ? (size_t)(slice - name) : strlen(name);
  size_t behind = strlen(name) - before + 1, more = strlen(suffix);
  if (before + more + behind > 256) return false;
  memmove(name + before + more, name + before, behind);
  memcpy(name + before, suffix, more);
  return true;
}

/* "state,control" into its names, each with the suffix. */
static enum sl_status list_names(const char *path, const char *list, const char *suffix,
                                 struct names *names) {
  names->path = path;
  names->count = 0;
  for (const char *at = list;; at++) {
    int length = name_length(at);
    if (length < 0)
      return sl__fail(SL_BAD_ARGUMENT,
                      "%s: '%.64s': a bracket is not closed; a slice is like x[:,0:2]", path, at);
    if (names->count == SL_MAX_FIELDS)
      return sl__fail(SL_BAD_ARGUMENT, "%s: '%.64s' names more than %d arrays", path, list,
                      SL_MAX_FIELDS);
    char *name = names->name[names->count++];
    if (snprintf(name, sizeof *names->name, "%.*s", length, at) >= (int)sizeof *names->name ||
        !add_suffix(name, suffix) || (!length && strchr(list, ',')))
      return sl__fail(SL_BAD_ARGUMENT, "%s: '%.64s' is no list of arrays, such as mask,edge", path,
                      list);
    at += length;
    if (!*at) return SL_OK;
  }
}

static enum sl_status choose_names(const char *path, const struct sl_reader_options *options,
                                   const char *suffix, struct both *names) {
  const char *inputs = options->inputs ? options->inputs : "x";
  const char *targets = options->target ? options->target : "y";
  const char *colon = sl__hdf5_colon(path);
  enum sl_status status;
  if (sl__is_npy(path)) { /* a pair of files has two paths */
    if (!options->target && !options->inputs_only)
      return sl__fail(SL_BAD_ARGUMENT,
                      "%s: holds the inputs; name the file of the targets, such as y.npy", path);
    names->inputs = (struct names){.path = path, .count = 1};
    names->targets = (struct names){.path = options->target, .count = 1};
    return SL_OK;
  }
  if (colon) {
    if (options->inputs)
      return sl__fail(SL_BAD_ARGUMENT, "%s: names the inputs already; leave the other name out",
                      path);
    snprintf(names->file, sizeof names->file, "%.*s", (int)(colon - path), path);
    path = names->file;
    inputs = colon + 1;
  }
  status = list_names(path, inputs, suffix, &names->inputs);
  return status == SL_OK ? list_names(path, targets, suffix, &names->targets) : status;
}

static enum sl_status open_side(const struct names *names, struct side *side) {
  enum sl_status status = SL_OK;
  while (side->count < names->count && status == SL_OK) {
    struct sl__array *array = &side->array[side->count];
    status = sl__array_open(names->path, names->name[side->count++], array);
  }
  return status;
}

/* All arrays have as many samples as the first one of the inputs. */
static enum sl_status check_counts(const struct array_set *opened) {
  const struct sl__array *first = &opened->inputs.array[0];
  for (int i = 0; i < opened->inputs.count + opened->targets.count; i++) {
    bool is_target = i >= opened->inputs.count;
    const struct sl__array *array =
        is_target ? &opened->targets.array[i - opened->inputs.count] : &opened->inputs.array[i];
    if (array->layout.dim[0] != first->layout.dim[0])
      return sl__fail(SL_BAD_SHAPE, "%s: %lld samples, but %s has %lld%s", first->name,
                      (long long)first->layout.dim[0], array->name, (long long)array->layout.dim[0],
                      is_target ? " targets" : "");
  }
  return SL_OK;
}

/* The array's name without HDF5's groups, the suffix and the slice. */
static void name_field(const char *name, const char *suffix, char own[256]) {
  const char *slash = strrchr(name, '/'), *from = slash ? slash + 1 : name;
  const char *slice = sl__slice_find(from);
  size_t length = slice ? (size_t)(slice - from) : strlen(from);
  snprintf(own, 256, "%.*s", (int)(length - strlen(suffix)), from);
}

/* Two slices of one array need two names: "x[:,0:2]" becomes "x_0.2", "x[0:9,:,3]" "x_0.9_._3". */
static void add_slice(const char *slice, char own[256]) {
  size_t used = strlen(own), skipped = strcspn(slice, ",]");
  bool all = strspn(slice + 1, ": ") == skipped - 1 && slice[skipped] == ','; /* "[:," */
  for (const char *at = all ? slice + skipped : slice; *at != ']' && used < 255; at++)
    if (*at != ' ') own[used++] = *at == ':' ? '.' : *at == ',' || *at == '[' ? '_' : *at;
  own[used] = '\0';
}

static void list_fields(const struct side *side, const struct names *names, const char *suffix,
                        char own[][256], struct sl_row_field *fields) {
  bool again[SL_MAX_FIELDS] = {false};
  for (int i = 0; i < side->count; i++) {
    name_field(names->name[i], suffix, own[i]);
    fields[i] = (struct sl_row_field){.name = own[i], .shape = row_shape(&side->array[i])};
    for (int k = 0; k < i; k++)
      if (!strcmp(own[k], own[i])) again[k] = again[i] = true;
  }
  for (int i = 0; i < side->count; i++)
    if (again[i] && sl__slice_find(names->name[i]))
      add_slice(sl__slice_find(names->name[i]), own[i]);
}

/* Whole numbers are classes, unless the caller wants values. */
static enum sl_status label_targets(const struct side *side, enum sl_target_kind wanted,
                                    struct sl_row_field *fields) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < side->count && status == SL_OK; i++)
    if (wanted != SL_TARGET_VALUES && side->array[i].layout.element.kind != 'f')
      status = count_classes(&side->array[i], false, &fields[i].classes);
  return status;
}

/* The inputs that are tokens: "words,tags". */
static enum sl_status label_inputs(const struct side *side, const char *tokens,
                                   struct sl_row_field *fields) {
  enum sl_status status = SL_OK;
  for (const char *name = tokens; status == SL_OK && *name; name += strspn(name, ",")) {
    size_t length = strcspn(name, ",");
    int i = 0;
    while (i < side->count &&
           (strlen(fields[i].name) != length || strncmp(fields[i].name, name, length) != 0))
      i++;
    if (i == side->count)
      return sl__fail(SL_BAD_ARGUMENT, "tokens '%.*s' are none of the inputs; name them there, too",
                      (int)length, name);
    if (side->array[i].layout.element.kind == 'f')
      return sl__fail(SL_BAD_FILE, "%s: has no whole numbers, so they are no tokens",
                      side->array[i].name);
    status = count_classes(&side->array[i], true, &fields[i].classes);
    name += length;
  }
  return status;
}

static enum sl_status make_set(struct array_set *opened, const struct both *names,
                               const char *suffix, const char *tokens, enum sl_target_kind wanted,
                               struct sl_dataset **dataset) {
  const struct sl__array *inputs = &opened->inputs.array[0], *targets = &opened->targets.array[0];
  struct sl_row_field fields[2][SL_MAX_FIELDS];
  char own[2][SL_MAX_FIELDS][256];
  struct sl_dataset_options about = {.name = inputs->name,
                                     .count = inputs->layout.dim[0],
                                     .inputs = fields[0],
                                     .targets = fields[1]};
  enum sl_status status;
  SL__TRY(check_counts(opened));
  if (opened->inputs.count > 1 || tokens) {
    list_fields(&opened->inputs, &names->inputs, suffix, own[0], fields[0]);
    if (tokens) SL__TRY(label_inputs(&opened->inputs, tokens, fields[0]));
    about.input_count = opened->inputs.count;
  } else {
    about.sample = row_shape(inputs);
  }
  about.missing = !opened->targets.count;
  if (about.missing) {
    about.target = SL_SHAPE(1);
  } else if (opened->targets.count > 1) {
    list_fields(&opened->targets, &names->targets, suffix, own[1], fields[1]);
    SL__TRY(label_targets(&opened->targets, wanted, fields[1]));
    about.target_count = opened->targets.count;
  } else if (are_classes(targets, wanted)) {
    SL__TRY(read_labels(targets, &opened->labels, &about.classes));
  } else {
    about.target = row_shape(targets);
  }
  SL__TRY(sl__float_set_begin(&array_kind, sizeof *opened, &about, dataset));
  opened->set = **dataset;
  *(struct array_set *)*dataset = *opened;
out:
  return status;
}

/* A pair that was named by its inputs has no name for the validation's targets. */
static enum sl_status check_like(const char *path, const struct sl_dataset *like) {
  if (like && like->kind != &array_kind)
    return sl__fail(SL_BAD_ARGUMENT, "%s: has arrays, but %s has none", path, like->info.name);
  if (like && sl__is_npy(path))
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: an .npy file for the validation has no targets; take an .npz file, or a "
                    "folder of x.npy and y.npy",
                    path);
  return SL_OK;
}

static enum sl_status read_arrays(const char *path, const struct sl_reader_options *options,
                                  enum sl__reader_part part, const struct sl_dataset *like,
                                  struct sl_dataset **dataset) {
  const char *suffix = part == SL__PART_WHOLE ? "" : part == SL__PART_TRAIN ? "_train" : "_test";
  enum sl_status status;
  struct array_set opened = {0};
  struct both names;
  SL__TRY(check_like(path, like));
  SL__TRY(choose_names(path, options, suffix, &names));
  SL__TRY(open_side(&names.inputs, &opened.inputs));
  if (!options->inputs_only) SL__TRY(open_side(&names.targets, &opened.targets));
  SL__TRY(make_set(&opened, &names, suffix, options->tokens,
                   like && like->info.classes ? SL_TARGET_CLASSES : options->targets, dataset));
  return SL_OK;
out:
  close_side(&opened.inputs);
  close_side(&opened.targets);
  free(opened.labels);
  return status;
}

/* x_train and y_train, beside x_test and y_test; not if arrays are named and there are some of just
 * these names. */
static bool has_parts(const char *path, const struct sl_reader_options *options) {
  struct both names;
  if (sl__is_npy(path) || sl__hdf5_colon(path)) return false;
  if ((options->inputs || options->target) && choose_names(path, options, "", &names) == SL_OK &&
      sl__array_exists(path, names.inputs.name[0]))
    return false;
  return choose_names(path, options, "_train", &names) == SL_OK &&
         sl__array_exists(path, names.inputs.name[0]);
}

static bool is_npy(const char *path, const char *name) {
  return sl__ends_in(name, ".npy") && !sl__is_folder(path);
}

/* A file, or a folder of some. */
static bool is_in(const char *path) {
  return sl__ends_in(path, ".npz") || sl__is_npy(path) || sl__is_hdf5(path) ||
         sl__hdf5_colon(path) || sl__folder_any(path, is_npy);
}

const struct sl__reader sl__arrays_reader = {
    .format = {.name = "arrays",
               .about = "inputs x and targets y of any shape",
               .files = "x.npy and y.npy, or one .npz or .h5 file",
               .own = true},
    .uses = SL__USES_INPUTS | SL__USES_TARGET | SL__USES_VALIDATION | SL__USES_INPUTS_ONLY,
    .is_in = is_in,
    .has_parts = has_parts,
    .read = read_arrays};
