/* CIFAR-10's binary version (Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html). A
 * record is a label byte and 3072 values, 32 x 32 red, then green, then blue. Files have no header.
 * The original ones hold 10,000 records each; smaller sets are read, too, if the five training
 * files have the same size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "data/dataset.h"
#include "data/folder.h"
#include "data/reader.h"

#define PIXELS (3 * 32 * 32)
#define RECORD (1 + PIXELS)
#define CLASSES 10
#define MAX_FILE ((size_t)1 << 30)
#define TRAINING_FILES 5

static const struct sl_shape sample_shape = {3, {3, 32, 32}};

/* Number of records in a file, which must not be empty or end within a record. */
static enum sl_status count_records(const char *path, size_t size, int64_t *count) {
  *count = (int64_t)(size / RECORD);
  if (size == 0) return sl__fail(SL_BAD_FILE, "%s: is empty; was the download complete?", path);
  if (size % RECORD != 0)
    return sl__fail(SL_BAD_FILE,
                    "%s: cut short: %zu bytes after record %lld, of %d a record; was the download "
                    "complete?",
                    path, size % RECORD, (long long)*count, RECORD);
  return SL_OK;
}

/* All files must be as long as the first: this finds a file that was cut between two records. */
static enum sl_status check_files(const char *const *paths, const size_t *sizes, int files,
                                  int64_t *count) {
  for (int f = 0; f < files; f++) {
    enum sl_status status = count_records(paths[f], sizes[f], count);
    if (status != SL_OK) return status;
    if (sizes[f] != sizes[0])
      return sl__fail(SL_BAD_FILE, "%s: %lld records, but %s has %zu; was the download complete?",
                      paths[f], (long long)*count, paths[0], sizes[0] / RECORD);
  }
  return SL_OK;
}

enum sl_status sl__cifar10_alloc(const char *name, int64_t count, struct sl__byte_set **set) {
  /* means and deviations of the training set's values / 255 */
  static const float mean[3] = {0.4914f, 0.4822f, 0.4465f};
  static const float deviation[3] = {0.2470f, 0.2435f, 0.2616f};
  return sl__byte_set_new(name, &sample_shape, count, CLASSES, mean, deviation, set);
}

enum sl_status sl__cifar10_parse(const char *name, const char *const *paths, uint8_t *const *bytes,
                                 const size_t *sizes, int files, struct sl_dataset **result) {
  /* from batches.meta.txt */
  static const char *const names[CLASSES] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                             "dog",      "frog",       "horse", "ship", "truck"};
  enum sl_status status;
  struct sl__byte_set *set = NULL;
  int64_t each = 0;
  SL__TRY(check_files(paths, sizes, files, &each));
  SL__TRY(sl__cifar10_alloc(name, each * files, &set));
  set->set.info.class_names = names;
  for (int f = 0; f < files; f++) {
    uint8_t *samples = set->samples + (size_t)f * (size_t)each * PIXELS;
    int32_t *labels = set->labels + (size_t)f * (size_t)each;
    for (int64_t i = 0; i < each; i++) {
      const uint8_t *record = bytes[f] + (size_t)i * RECORD;
      labels[i] = record[0];
      memcpy(samples + (size_t)i * PIXELS, record + 1, PIXELS);
    }
    SL__TRY(sl__dataset_check_labels(paths[f], labels, each, CLASSES));
  }
  *result = &set->set;
  return SL_OK;
out:
  if (set) sl_dataset_free(&set->set);
  return status;
}

/* ---- files ---- */

static const char *file_name(bool train, int f, char name[32]) {
  if (train)
    snprintf(name, 32, "data_batch_%d.bin", f + 1);
  else
    snprintf(name, 32, "test_batch.bin");
  return name;
}

static bool holds_files(const char *folder) {
  return sl__has_file(folder, "data_batch_1.bin") || sl__has_file(folder, "test_batch.bin");
}

/* The folder, or the one inside it that the archive creates; NULL without memory. */
static char *find_folder(const char *folder) {
  char *inner = sl__join(folder, "cifar-10-batches-bin");
  if (inner && !holds_files(folder) && holds_files(inner)) return inner;
  free(inner);
  return inner ? sl__strdup(folder) : NULL;
}

enum sl_status sl_cifar10_open(const char *folder, bool train, struct sl_dataset **dataset) {
  SL__NEEDS(folder, dataset);
  enum sl_status status;
  char *paths[TRAINING_FILES] = {0};
  uint8_t *bytes[TRAINING_FILES] = {0};
  size_t sizes[TRAINING_FILES];
  char name[32];
  int files = train ? TRAINING_FILES : 1;
  char *found = find_folder(folder);
  if (!found) SL__TRY(SL_NO_MEMORY);
  for (int f = 0; f < files; f++) {
    paths[f] = sl__join(found, file_name(train, f, name));
    if (!paths[f]) SL__TRY(SL_NO_MEMORY);
    SL__TRY(sl__file_read(paths[f], MAX_FILE, &bytes[f], &sizes[f]));
  }
  SL__TRY(sl__cifar10_parse(train ? "CIFAR-10, training set" : "CIFAR-10, test set",
                            (const char *const *)paths, bytes, sizes, files, dataset));
out:
  for (int f = 0; f < files; f++) {
    free(paths[f]);
    free(bytes[f]);
  }
  free(found);
  return status;
}

static bool is_in(const char *folder) {
  return holds_files(folder) || sl__has_file(folder, "cifar-10-batches-bin/data_batch_1.bin") ||
         sl__has_file(folder, "cifar-10-batches-bin/test_batch.bin");
}

const struct sl__reader sl__cifar10_reader = {
    .format = {.name = "CIFAR-10",
               .about = "colour images of 32x32 pixels, 10 classes",
               .files = "data_batch_1.bin"},
    .is_in = is_in,
    .open = sl_cifar10_open};

/* ---- writing ---- */

static enum sl_status check_writable(const struct sl_dataset *set, bool train) {
  const struct sl_dataset_info *info = &set->info;
  if (!sl__as_byte_set(set) || info->classes > CLASSES ||
      !sl_shape_equal(&info->sample, &sample_shape))
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: CIFAR-10's files hold images [3, 32, 32] of at most %d classes",
                    info->name, CLASSES);
  if (train && info->count % TRAINING_FILES != 0)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: %lld samples do not fill CIFAR-10's %d training files evenly; take a "
                    "multiple of %d",
                    info->name, (long long)info->count, TRAINING_FILES, TRAINING_FILES);
  return SL_OK;
}

/* Writes samples first .. first + count - 1. */
static enum sl_status write_file(const struct sl__byte_set *set, int64_t first, int64_t count,
                                 const char *path) {
  struct sl__file *file;
  enum sl_status status = sl__file_create(path, &file);
  if (status != SL_OK) return status;
  for (int64_t i = first; i < first + count; i++) {
    const uint8_t label = (uint8_t)set->labels[i];
    sl__file_write(file, &label, 1);
    sl__file_write(file, sl__byte_set_sample(set, i), PIXELS);
  }
  return sl__file_commit(file, NULL);
}

enum sl_status sl_cifar10_write(const struct sl_dataset *dataset, const char *folder, bool train) {
  SL__NEEDS(dataset, folder);
  const int files = train ? TRAINING_FILES : 1;
  const int64_t each = dataset->info.count / files;
  enum sl_status status = check_writable(dataset, train);
  for (int f = 0; f < files && status == SL_OK; f++) {
    char name[32], *path = sl__join(folder, file_name(train, f, name));
    status = path ? write_file(sl__as_byte_set(dataset), f * each, each, path) : SL_NO_MEMORY;
    free(path);
  }
  return status;
}
