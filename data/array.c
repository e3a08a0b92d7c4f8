#include "data/array.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "data/folder.h"

/* ---- .npy ---- */

static enum sl_status open_npy(const char *path, struct sl__array *array) {
  enum sl_status status = SL_OK;
  array->name = sl__strdup(path);
  if (!array->name) SL__TRY(SL_NO_MEMORY);
  SL__TRY(sl__file_map(path, &array->file));
  SL__TRY(sl__npy_parse(path, array->file.bytes, array->file.size, &array->layout));
out:
  return status;
}

/* "FOLDER/NAME.npy" into path; false if that is too long. */
static bool npy_path(const char *folder, const char *name, char path[PATH_MAX]) {
  return snprintf(path, PATH_MAX, "%s/%s.npy", folder, name) < PATH_MAX;
}

static enum sl_status open_in_folder(const char *folder, const char *name,
                                     struct sl__array *array) {
  char path[PATH_MAX];
  if (npy_path(folder, name, path)) return open_npy(path, array);
  return sl__fail(SL_BAD_ARGUMENT, "%s: the name of its array is too long", folder);
}

/* ---- .npz ---- */

/* "x.npy" for the name x */
static bool is_member(const struct sl__zip_member *member, const char *name) {
  size_t length = strlen(name);
  return member->name_size == length + strlen(".npy") && !memcmp(member->name, name, length) &&
         !memcmp(member->name + length, ".npy", strlen(".npy"));
}

static enum sl_status find_member(struct sl__zip *zip, const char *name,
                                  struct sl__zip_member *member, bool *found) {
  enum sl_status status;
  do {
    status = sl__zip_next(zip, member, found);
  } while (status == SL_OK && *found && !is_member(member, name));
  return status;
}

/* The message lists the names that there are. */
static enum sl_status fail_missing(const struct sl__zip *zip, const char *name) {
  struct sl__zip all;
  struct sl__zip_member member;
  struct sl__text t;
  bool found = true;
  char *names;
  FILE *out = sl__text_begin(&t);
  if (out && sl__zip_parse(zip->path, zip->bytes, zip->size, &all) == SL_OK)
    for (int i = 0; sl__zip_next(&all, &member, &found) == SL_OK && found; i++) {
      int length = (int)member.name_size - (int)strlen(".npy");
      if (length > 0 && i < 16) fprintf(out, "%s%.*s", i ? ", " : "", length, member.name);
    }
  enum sl_status status = sl__text_end(&t, "a list of arrays", &names);
  if (status != SL_OK) return status;
  status = sl__fail(SL_BAD_FILE, "%s: has no array \"%s\"; it has %s", zip->path, name,
                    *names ? names : "none");
  free(names);
  return status;
}

static enum sl_status use_member(struct sl__array *array, const struct sl__zip *zip,
                                 const struct sl__zip_member *member) {
  if (!member->deflated)
    return sl__npy_parse(array->name, member->packed, member->size, &array->layout);
  enum sl_status status = sl__zip_inflate(zip, member, &array->memory);
  sl__file_unmap(&array->file);
  return status == SL_OK ? sl__npy_parse(array->name, array->memory, member->size, &array->layout)
                         : status;
}

/* "data.npz: x" */
static enum sl_status name_array(const char *path, const char *name, struct sl__array *array) {
  size_t size = strlen(path) + strlen(name) + sizeof ": ";
  array->name = sl__alloc(size, 1, "a name");
  if (!array->name) return SL_NO_MEMORY;
  snprintf(array->name, size, "%s: %s", path, name);
  return SL_OK;
}

static enum sl_status open_npz(const char *path, const char *name, struct sl__array *array) {
  enum sl_status status;
  struct sl__zip zip;
  struct sl__zip_member member;
  bool found;
  SL__TRY(name_array(path, name, array));
  SL__TRY(sl__file_map(path, &array->file));
  SL__TRY(sl__zip_parse(path, array->file.bytes, array->file.size, &zip));
  SL__TRY(find_member(&zip, name, &member, &found));
  SL__TRY(found ? use_member(array, &zip, &member) : fail_missing(&zip, name));
out:
  return status;
}

static bool exists_in_npz(const char *path, const char *name) {
  struct sl__mapping file = {0};
  struct sl__zip zip;
  struct sl__zip_member member;
  bool found = false;
  if (sl__file_map(path, &file) != SL_OK) return false;
  if (sl__zip_parse(path, file.bytes, file.size, &zip) != SL_OK ||
      find_member(&zip, name, &member, &found) != SL_OK)
    found = false;
  sl__file_unmap(&file);
  return found;
}

/* ---- all formats ---- */

bool sl__is_hdf5(const char *path) {
  return sl__ends_in(path, ".h5") || sl__ends_in(path, ".hdf5");
}

const char *sl__hdf5_colon(const char *path) {
  const char *colon = strrchr(path, ':');
  bool is_file =
      colon && colon - path > 3 &&
      (!strncmp(colon - 3, ".h5", 3) || (colon - path > 5 && !strncmp(colon - 5, ".hdf5", 5)));
  return is_file ? colon : NULL;
}

static enum sl_status open_hdf5(const char *path, const char *name, struct sl__array *array) {
  enum sl_status status = name_array(path, name, array);
  return status == SL_OK ? sl__hdf5_open(path, name, array) : status;
}

enum sl_status sl__array_open(const char *path, const char *name, struct sl__array *array) {
  enum sl_status status = sl__ends_in(path, ".npz")   ? open_npz(path, name, array)
                          : sl__ends_in(path, ".npy") ? open_npy(path, array)
                          : sl__is_hdf5(path)         ? open_hdf5(path, name, array)
                                                      : open_in_folder(path, name, array);
  array->row_elements = 1;
  for (int i = 1; i < array->layout.ndim; i++) array->row_elements *= (size_t)array->layout.dim[i];
  array->row_size = array->row_elements * (size_t)array->layout.element.size;
  return status;
}

bool sl__array_exists(const char *path, const char *name) {
  char file[PATH_MAX];
  if (sl__ends_in(path, ".npz")) return exists_in_npz(path, name);
  if (sl__is_hdf5(path)) return sl__hdf5_exists(path, name);
  return npy_path(path, name, file) && access(file, F_OK) == 0;
}

void sl__array_close(struct sl__array *array) {
  if (array->close) array->close(array);
  sl__file_unmap(&array->file);
  free(array->memory);
  free(array->name);
  *array = (struct sl__array){0};
}

enum sl_status sl__array_check(const struct sl__array *array) {
  return array->file.bytes ? sl__file_map_check(array->name, &array->file) : SL_OK;
}

/* Smaller pieces are not worth a call of the system. */
#define LEAST_READ ((size_t)1 << 12)

static const uint8_t *row_of(const struct sl__array *array, int64_t i) {
  return array->layout.values + (size_t)i * array->row_size;
}

static bool is_gathered(const struct sl__array *array) {
  return array->layout.fortran && array->layout.ndim > 1;
}

void sl__array_expect(const struct sl__array *array, int64_t count, const int64_t *rows) {
  if (!array->file.bytes || is_gathered(array)) return;
  for (int64_t first = 0, end; first < count; first = end) {
    for (end = first + 1; end < count && rows[end] == rows[end - 1] + 1;) end++;
    size_t size = (size_t)(end - first) * array->row_size;
    if (size >= LEAST_READ) sl__file_map_expect(&array->file, row_of(array, rows[first]), size);
  }
}

/* Row i of an array whose first axis runs fastest, in C order. */
static void gather_row(const struct sl__array *array, int64_t i, uint8_t *row) {
  const struct sl__npy *npy = &array->layout;
  size_t each = (size_t)npy->element.size;
  int64_t index[SL_MAX_DIMS] = {i}, stride[SL_MAX_DIMS] = {1};
  for (int d = 1; d < npy->ndim; d++) stride[d] = stride[d - 1] * npy->dim[d - 1];
  for (size_t k = 0; k < array->row_elements; k++) {
    int64_t from = 0;
    for (int d = 0; d < npy->ndim; d++) from += index[d] * stride[d];
    memcpy(row + k * each, npy->values + (size_t)from * each, each);
    for (int d = npy->ndim - 1; d > 0 && ++index[d] == npy->dim[d]; d--) index[d] = 0;
  }
}

enum sl_status sl__array_row(const struct sl__array *array, int64_t i, uint8_t *room,
                             const uint8_t **row) {
  *row = room;
  if (array->read) return array->read(array, i, room);
  if (array->file.bytes && !is_gathered(array) && array->row_size >= LEAST_READ)
    return sl__file_map_read(array->name, &array->file, row_of(array, i), array->row_size, room);
  if (is_gathered(array))
    gather_row(array, i, room);
  else
    *row = row_of(array, i);
  return SL_OK;
}
