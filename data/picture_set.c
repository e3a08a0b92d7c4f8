/* The dataset of a folder with a folder of pictures for each class. The list of the files is in
 * memory; pictures are decoded when a batch needs them, by the loader's threads. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "data/floats.h"
#include "data/folder.h"
#include "data/picture.h"
#include "data/reader.h"

#define MAX_FILE ((size_t)1 << 28)

struct picture_set {
  struct sl_dataset set;
  char *folder;
  struct sl__names classes, files; /* files: "cat/7.jpg" */
  int32_t *labels;                 /* of the files */
  struct sl_shape shape;           /* [C, H, W] that all pictures get */
  bool resize;                     /* else they have that height and width */
};

static enum sl_status bad_picture(const struct picture_set *set, size_t file, const char *why) {
  bool asks = *why && why[strlen(why) - 1] == '?';
  return sl__fail(SL_BAD_FILE,
                  "%s/%s: %s%s replace it, or leave out the pictures that cannot be decoded "
                  "(skip_bad)",
                  set->folder, set->files.name[file], why, asks ? "" : ";");
}

/* Reads and decodes a file. *why: the reason, if it cannot be decoded, which is no failure yet.
 * Missing memory is one: the picture may be good. */
static enum sl_status decode(const struct picture_set *set, size_t file,
                             struct sl__picture *picture, const char **why) {
  uint8_t *bytes = NULL;
  size_t size = 0;
  char *path = sl__join(set->folder, set->files.name[file]);
  if (!path) return SL_NO_MEMORY;
  enum sl_status status = sl__file_read(path, MAX_FILE, &bytes, &size);
  int64_t height = set->resize ? set->shape.dim[1] : 0, width = set->resize ? set->shape.dim[2] : 0;
  if (status == SL_OK) *why = sl__picture_read(bytes, size, width, height, picture);
  if (status == SL_OK && *why == sl__picture_no_memory) {
    status = sl__fail(SL_NO_MEMORY, "%s: %s; end other programs, or make it smaller", path, *why);
    *why = NULL;
  }
  free(bytes);
  free(path);
  return status;
}

/* Where pictures go that need no resizing; without the planes yet. */
static struct sl__direct direct_of(const struct sl_dataset_info *info) {
  const int64_t *dim = info->sample.dim;
  struct sl__direct direct = {.width = dim[2], .height = dim[1], .channels = (int)dim[0]};
  for (int c = 0; c < direct.channels; c++) {
    direct.mean[c] = info->mean[info->channels > 1 ? c : 0];
    direct.deviation[c] = info->deviation[info->channels > 1 ? c : 0];
  }
  sl__direct_prepare(&direct);
  return direct;
}

/* The picture as values [C, H, W] from 0 to 1, of the set's size. */
static enum sl_status fit(const struct picture_set *set, size_t file,
                          const struct sl__picture *picture, float *x) {
  const int64_t *dim = set->shape.dim;
  if (picture->height == dim[1] && picture->width == dim[2]) {
    sl__picture_planes(picture, (int)dim[0], false, x);
    return SL_OK;
  }
  if (!set->resize)
    return sl__fail(SL_BAD_FILE,
                    "%s/%s: is %lld x %lld, but the first picture %lld x %lld; give the size that "
                    "all are to get",
                    set->folder, set->files.name[file], (long long)picture->height,
                    (long long)picture->width, (long long)dim[1], (long long)dim[2]);
  size_t values = (size_t)(dim[0] * picture->height * picture->width);
  float *planes = sl__alloc(values, sizeof *planes, "a picture");
  bool done = planes != NULL;
  if (done) sl__picture_planes(picture, (int)dim[0], false, planes);
  if (done) done = sl__picture_fit(SL__RESIZE_BILINEAR, picture, &set->shape, planes, x);
  free(planes);
  return done ? SL_OK : sl__fail(SL_NO_MEMORY, "no memory for a picture");
}

static enum sl_status fill_normal(const struct sl_dataset *dataset,
                                  const struct sl_dataset_info *info, int64_t count,
                                  const int64_t *samples, const struct sl__rows *rows) {
  const struct picture_set *set = (const struct picture_set *)dataset;
  struct sl__direct direct = direct_of(info);
  struct sl__picture picture = {.direct = &direct};
  enum sl_status status = SL_OK;
  const char *why = NULL;
  for (int64_t row = 0; row < count && status == SL_OK; row++) {
    size_t file = (size_t)samples[row];
    float *x = direct.planes = rows->x + (size_t)row * dataset->sample_size;
    rows->labels[row] = set->labels[file];
    status = decode(set, file, &picture, &why);
    if (status == SL_OK && why) status = bad_picture(set, file, why);
    if (status != SL_OK || picture.is_direct) continue;
    status = fit(set, file, &picture, x);
    if (status == SL_OK) sl__normalise_rows(info, 1, &(struct sl__rows){.x = x});
  }
  sl__picture_free(&picture);
  return status;
}

static enum sl_status fill(const struct sl_dataset *set, int64_t count, const int64_t *samples,
                           const struct sl__rows *rows) {
  return fill_normal(set, &set->info, count, samples, rows);
}

static enum sl_status fill_labels(const struct sl_dataset *set, int64_t count,
                                  const int64_t *samples, int32_t *labels) {
  for (int64_t row = 0; row < count; row++)
    labels[row] = ((const struct picture_set *)set)->labels[samples[row]];
  return SL_OK;
}

static void free_members(struct picture_set *set) {
  sl__names_free(&set->classes);
  sl__names_free(&set->files);
  free(set->folder);
  free(set->labels);
}

static void free_pictures(struct sl_dataset *dataset) {
  free_members((struct picture_set *)dataset);
}

static const struct sl__dataset_kind picture_kind = {
    .fill = fill, .fill_normal = fill_normal, .fill_labels = fill_labels, .free = free_pictures};

/* ---- the list of files ---- */

static bool is_picture(const char *name) {
  static const char *const endings[] = {".jpg", ".jpeg", ".png", ".ppm", ".pgm"};
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
    if (sl__ends_in(name, endings[i])) return true;
  return false;
}

/* Adds "class/name" for each picture of a class's folder. */
static enum sl_status add_class(struct picture_set *set, const char *class) {
  struct sl__names names = {0};
  size_t before = set->files.count;
  char *folder = sl__join(set->folder, class);
  enum sl_status status = folder ? sl__folder_list(folder, false, &names) : SL_NO_MEMORY;
  for (size_t i = 0; i < names.count && status == SL_OK; i++) {
    char *file = is_picture(names.name[i]) ? sl__join(class, names.name[i]) : NULL;
    if (file) status = sl__names_add(&set->files, file);
    if (!file && is_picture(names.name[i])) status = SL_NO_MEMORY;
    free(file);
  }
  if (status == SL_OK && set->files.count == before)
    status =
        sl__fail(SL_BAD_FILE, "%s: holds no pictures; remove the folder of this class", folder);
  sl__names_free(&names);
  free(folder);
  return status;
}

/* The number of a class of the training's; -1: there is none of that name. */
static int find_class(const struct sl__names *classes, const char *name) {
  for (size_t i = 0; i < classes->count; i++)
    if (!strcmp(classes->name[i], name)) return (int)i;
  return -1;
}

/* Labels files first, ... with that class. */
static enum sl_status add_labels(struct picture_set *set, size_t first, int label) {
  int32_t *grown = sl__realloc(set->labels, set->files.count, sizeof *grown, "labels");
  if (!grown) return SL_NO_MEMORY;
  set->labels = grown;
  for (size_t i = first; i < set->files.count; i++) grown[i] = label;
  return SL_OK;
}

/* like: the training's classes; NULL: those of this folder. */
static enum sl_status list_files(struct picture_set *set, const struct sl__names *like) {
  struct sl__names folders = {0};
  enum sl_status status = sl__folder_list(set->folder, true, &folders);
  for (size_t i = 0; i < folders.count && status == SL_OK; i++) {
    size_t first = set->files.count;
    int label = like ? find_class(like, folders.name[i]) : (int)i;
    if (label < 0)
      status = sl__fail(SL_BAD_FILE, "%s: the training has no class \"%s\"", set->folder,
                        folders.name[i]);
    if (status == SL_OK) status = add_class(set, folders.name[i]);
    if (status == SL_OK) status = add_labels(set, first, label);
  }
  for (size_t i = 0; i < (like ? like->count : folders.count) && status == SL_OK; i++)
    status = sl__names_add(&set->classes, like ? like->name[i] : folders.name[i]);
  sl__names_free(&folders);
  if (status == SL_OK && !set->files.count)
    return sl__fail(SL_BAD_FILE, "%s: holds no pictures", set->folder);
  return status;
}

/* ---- the pictures' shape, and bad ones ---- */

/* The first picture that can be decoded decides the size, unless one is given; the set is in colour
 * if the first one of any class is. */
static enum sl_status find_shape(struct picture_set *set, const struct sl_reader_options *options) {
  struct sl__picture picture = {0};
  enum sl_status status = SL_OK;
  set->shape = SL_SHAPE(1, options->height, options->width);
  int32_t seen = -1; /* the class of the last picture that was decoded */
  for (size_t i = 0; i < set->files.count && status == SL_OK && set->shape.dim[0] == 1; i++) {
    const char *why = NULL;
    if (set->labels[i] == seen) continue;
    status = decode(set, i, &picture, &why);
    if (status == SL_OK && why && !options->skip_bad) status = bad_picture(set, i, why);
    if (status != SL_OK || why) continue;
    seen = set->labels[i];
    set->shape.dim[0] = picture.channels;
    if (set->shape.dim[1]) continue;
    set->shape.dim[1] = picture.height;
    set->shape.dim[2] = picture.width;
  }
  sl__picture_free(&picture);
  if (status == SL_OK && !set->shape.dim[1])
    return sl__fail(SL_BAD_FILE, "%s: none of its pictures can be decoded", set->folder);
  return status;
}

/* Decodes all pictures once, and takes those out of the list that cannot be. *first_bad: the name
 * of the first of them, to be freed. */
static enum sl_status skip_bad(struct picture_set *set, size_t *bad, char **first_bad) {
  struct sl__picture picture = {0};
  enum sl_status status = SL_OK;
  size_t kept = 0, count = set->files.count;
  for (size_t i = 0; i < count; i++) {
    const char *why = NULL;
    if (status == SL_OK) status = decode(set, i, &picture, &why);
    if (why) {
      if ((*bad)++)
        free(set->files.name[i]);
      else
        *first_bad = set->files.name[i];
      continue;
    }
    set->labels[kept] = set->labels[i];
    set->files.name[kept++] = set->files.name[i];
  }
  set->files.count = kept;
  sl__picture_free(&picture);
  if (status == SL_OK && !kept)
    return sl__fail(SL_BAD_FILE, "%s: none of its pictures can be decoded", set->folder);
  return status;
}

/* ---- opening ---- */

static const char training_folder[] = "train";
static const char *const test_folders[] = {"val", "valid", "validation", "test"};
enum { TEST_FOLDERS = sizeof test_folders / sizeof *test_folders };

/* The folder of a part, to be freed; NULL: there is none, or no memory. */
static char *part_folder(const char *path, enum sl__reader_part part) {
  if (part == SL__PART_WHOLE) return sl__strdup(path);
  if (part == SL__PART_TRAIN) return sl__join(path, training_folder);
  for (size_t i = 0; i < TEST_FOLDERS; i++) {
    char *folder = sl__join(path, test_folders[i]);
    if (!folder || sl__is_folder(folder)) return folder;
    free(folder);
  }
  return NULL;
}

static enum sl_status make_set(struct picture_set *listed, const char *name,
                               struct sl_dataset **dataset) {
  struct sl_dataset_options about = {.name = name,
                                     .sample = listed->shape,
                                     .count = (int64_t)listed->files.count,
                                     .classes = (int)listed->classes.count,
                                     .class_names = (const char *const *)listed->classes.name};
  enum sl_status status = sl__float_set_begin(&picture_kind, sizeof *listed, &about, dataset);
  if (status != SL_OK) return status;
  listed->set = **dataset;
  *(struct picture_set *)*dataset = *listed;
  return SL_OK;
}

static enum sl_status check_size(const char *path, const struct sl_reader_options *options) {
  const int64_t most = 1 << 14;
  if (!options->height && !options->width) return SL_OK;
  if (options->height >= 1 && options->width >= 1 && options->height <= most &&
      options->width <= most)
    return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT, "%s: pictures of %lld x %lld; give 1 to %lld", path,
                  (long long)options->height, (long long)options->width, (long long)most);
}

static enum sl_status read_pictures(const char *path, const struct sl_reader_options *options,
                                    enum sl__reader_part part, const struct sl_dataset *like,
                                    struct sl_dataset **dataset) {
  enum sl_status status;
  const struct picture_set *training = (const struct picture_set *)like;
  struct picture_set listed = {.folder = part_folder(path, part), .resize = options->height > 0};
  size_t bad = 0;
  char *first_bad = NULL, *name = NULL;
  SL__TRY(check_size(path, options));
  if (like && like->kind != &picture_kind)
    SL__TRY(sl__fail(SL_BAD_ARGUMENT, "%s: has pictures, but %s has none", path, like->info.name));
  if (!listed.folder && part != SL__PART_TEST) SL__TRY(SL_NO_MEMORY);
  if (!listed.folder) SL__TRY(sl__fail(SL_IO, "%s: has no folder \"test\" or \"val\"", path));
  SL__TRY(list_files(&listed, like ? &training->classes : NULL));
  if (like)
    listed.shape = training->shape;
  else
    SL__TRY(find_shape(&listed, options));
  if (options->skip_bad) SL__TRY(skip_bad(&listed, &bad, &first_bad));
  name = sl__name_without(listed.folder, (int64_t)bad, "bad picture", "bad pictures", first_bad);
  if (!name) SL__TRY(SL_NO_MEMORY);
  SL__TRY(make_set(&listed, name, dataset));
  (*dataset)->info.left_out = (int64_t)bad;
  listed = (struct picture_set){0}; /* the set has it now */
out:
  free_members(&listed);
  free(first_bad);
  free(name);
  return status;
}

/* ---- detection ---- */

static bool is_picture_file(const char *path, const char *name) {
  return is_picture(name) && !sl__is_folder(path);
}

static bool is_class(const char *path, const char *name) {
  (void)name;
  return sl__is_folder(path) && sl__folder_any(path, is_picture_file);
}

static bool has_classes(const char *folder) { return sl__folder_any(folder, is_class); }

static bool part_has_classes(const char *path, const char *part) {
  char folder[PATH_MAX];
  int length = snprintf(folder, sizeof folder, "%s/%s", path, part);
  return length < PATH_MAX && has_classes(folder);
}

static bool has_parts(const char *path, const struct sl_reader_options *options) {
  (void)options;
  if (!part_has_classes(path, training_folder)) return false;
  for (size_t i = 0; i < TEST_FOLDERS; i++)
    if (part_has_classes(path, test_folders[i])) return true;
  return false;
}

static bool is_in(const char *path) { return has_parts(path, NULL) || has_classes(path); }

const struct sl__reader sl__pictures_reader = {
    .format = {.name = "pictures",
               .about = "colour or grey pictures, a folder for each class",
               .files = "CLASS/*.jpg, *.png, *.ppm",
               .own = true},
    .uses = SL__USES_VALIDATION | SL__USES_SIZE | SL__USES_SKIP_BAD,
    .is_in = is_in,
    .has_parts = has_parts,
    .read = read_pictures};
