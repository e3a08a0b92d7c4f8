/* The dataset of two arrays, inputs and targets, whose rows are read from their files batch by
 * batch: they may be larger than memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "data/array.h"
#include "data/floats.h"
#include "data/folder.h"
#include "data/reader.h"

struct array_set {
  struct sl_dataset set;
  struct sl__array inputs, targets;
  int32_t *labels; /* [count]; NULL: the targets are values */
};

static enum sl_status fill(const struct sl_dataset *dataset, int64_t count, const int64_t *samples,
                           const struct sl__rows *rows) {
  const struct array_set *set = (const struct array_set *)dataset;
  const struct sl__array *inputs = &set->inputs, *targets = &set->targets;
  size_t size = inputs->row_size > targets->row_size ? inputs->row_size : targets->row_size;
  const uint8_t *bytes;
  enum sl_status status;
  uint8_t *room = sl__alloc(size, 1, "a row");
  if (!room) return SL_NO_MEMORY;
  SL__TRY(sl__array_check(inputs));
  SL__TRY(sl__array_check(targets));
  for (int64_t row = 0; row < count; row++) {
    SL__TRY(sl__array_row(inputs, samples[row], room, &bytes));
    sl__elements_to_floats(&inputs->layout.element, bytes, inputs->row_elements,
                           rows->x + (size_t)row * inputs->row_elements);
    if (set->labels) {
      rows->labels[row] = set->labels[samples[row]];
      continue;
    }
    SL__TRY(sl__array_row(targets, samples[row], room, &bytes));
    sl__elements_to_floats(&targets->layout.element, bytes, targets->row_elements,
                           rows->targets + (size_t)row * targets->row_elements);
  }
out:
  free(room);
  return status;
}

static void free_arrays(struct sl_dataset *dataset) {
  struct array_set *set = (struct array_set *)dataset;
  sl__array_close(&set->inputs);
  sl__array_close(&set->targets);
  free(set->labels);
}

static const struct sl__dataset_kind array_kind = {.fill = fill, .free = free_arrays};

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

/* ---- opening ---- */

/* A sample's shape: that of a row; of an array of one axis, one value. */
static struct sl_shape row_shape(const struct sl__array *array) {
  struct sl_shape shape = SL_SHAPE(1);
  if (array->layout.ndim > 1) shape.ndim = array->layout.ndim - 1;
  for (int i = 1; i < array->layout.ndim; i++) shape.dim[i - 1] = array->layout.dim[i];
  return shape;
}

/* The names of the two arrays, in `path`. A pair of .npy files has two paths. */
struct names {
  const char *path, *inputs, *target_path, *targets;
  char suffixed[2][256]; /* "x_train", "y_train" */
  char file[4096];       /* of "data.h5:/inputs" */
};

static enum sl_status choose_names(const char *path, const struct sl_reader_options *options,
                                   enum sl__reader_part part, struct names *names) {
  const char *suffix = part == SL__PART_TRAIN ? "_train" : "_test";
  *names = (struct names){path, options->inputs ? options->inputs : "x", path,
                          options->target ? options->target : "y"};
  if (sl__ends_in(path, ".npy")) {
    if (!options->target)
      return sl__fail(SL_BAD_ARGUMENT,
                      "%s: holds the inputs; name the file of the targets, such as y.npy", path);
    names->target_path = options->target;
    return SL_OK;
  }
  const char *colon = sl__hdf5_colon(path);
  if (colon) {
    if (options->inputs)
      return sl__fail(SL_BAD_ARGUMENT, "%s: names the inputs already; leave the other name out",
                      path);
    snprintf(names->file, sizeof names->file, "%.*s", (int)(colon - path), path);
    names->path = names->target_path = names->file;
    names->inputs = colon + 1;
  }
  if (part == SL__PART_WHOLE) return SL_OK;
  snprintf(names->suffixed[0], sizeof names->suffixed[0], "%s%s", names->inputs, suffix);
  snprintf(names->suffixed[1], sizeof names->suffixed[1], "%s%s", names->targets, suffix);
  names->inputs = names->suffixed[0];
  names->targets = names->suffixed[1];
  return SL_OK;
}

static enum sl_status make_set(struct array_set *opened, enum sl_target_kind wanted,
                               struct sl_dataset **dataset) {
  const struct sl__array *inputs = &opened->inputs, *targets = &opened->targets;
  struct sl_dataset_options about = {.name = inputs->name, .count = inputs->layout.dim[0]};
  enum sl_status status = SL_OK;
  if (inputs->layout.dim[0] != targets->layout.dim[0])
    return sl__fail(SL_BAD_SHAPE, "%s: %lld samples, but %s has %lld targets", inputs->name,
                    (long long)inputs->layout.dim[0], targets->name,
                    (long long)targets->layout.dim[0]);
  if (are_classes(targets, wanted))
    status = read_labels(targets, &opened->labels, &about.classes);
  else
    about.target = row_shape(targets);
  about.sample = row_shape(inputs);
  if (status == SL_OK) status = sl__float_set_begin(&array_kind, sizeof *opened, &about, dataset);
  if (status != SL_OK) return status;
  opened->set = **dataset;
  *(struct array_set *)*dataset = *opened;
  return SL_OK;
}

/* A pair that was named by its inputs has no name for the validation's targets. */
static enum sl_status check_like(const char *path, const struct sl_dataset *like) {
  if (like && like->kind != &array_kind)
    return sl__fail(SL_BAD_ARGUMENT, "%s: has arrays, but %s has none", path, like->info.name);
  if (like && sl__ends_in(path, ".npy"))
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: an .npy file for the validation has no targets; take an .npz file, or a "
                    "folder of x.npy and y.npy",
                    path);
  return SL_OK;
}

static enum sl_status read_arrays(const char *path, const struct sl_reader_options *options,
                                  enum sl__reader_part part, const struct sl_dataset *like,
                                  struct sl_dataset **dataset) {
  enum sl_status status;
  struct array_set opened = {0};
  struct names names;
  SL__TRY(check_like(path, like));
  SL__TRY(choose_names(path, options, part, &names));
  SL__TRY(sl__array_open(names.path, names.inputs, &opened.inputs));
  SL__TRY(sl__array_open(names.target_path, names.targets, &opened.targets));
  SL__TRY(make_set(&opened, like && like->info.classes ? SL_TARGET_CLASSES : options->targets,
                   dataset));
  return SL_OK;
out:
  sl__array_close(&opened.inputs);
  sl__array_close(&opened.targets);
  free(opened.labels);
  return status;
}

/* x_train and y_train, beside x_test and y_test. */
static bool has_parts(const char *path, const struct sl_reader_options *options) {
  struct names names;
  if (sl__ends_in(path, ".npy") || sl__hdf5_colon(path)) return false;
  return choose_names(path, options, SL__PART_TRAIN, &names) == SL_OK &&
         sl__array_exists(path, names.inputs);
}

static bool is_npy(const char *path, const char *name) {
  return sl__ends_in(name, ".npy") && !sl__is_folder(path);
}

/* A file, or a folder of some. */
static bool is_in(const char *path) {
  return sl__ends_in(path, ".npz") || sl__ends_in(path, ".npy") || sl__is_hdf5(path) ||
         sl__hdf5_colon(path) || sl__folder_any(path, is_npy);
}

const struct sl__reader sl__arrays_reader = {
    .format = {.name = "arrays",
               .about = "inputs x and targets y of any shape",
               .files = "x.npy and y.npy, or one .npz or .h5 file",
               .own = true},
    .uses = SL__USES_INPUTS | SL__USES_TARGET | SL__USES_VALIDATION,
    .is_in = is_in,
    .has_parts = has_parts,
    .read = read_arrays};
