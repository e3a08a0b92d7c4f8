#include "data/array.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
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

/* The last one of that name: an archive that was written to again has the older ones, too. */
static enum sl_status find_member(struct sl__zip *zip, const char *name,
                                  struct sl__zip_member *member, bool *found) {
  struct sl__zip_member next;
  enum sl_status status;
  bool more = false;
  *found = false;
  do {
    status = sl__zip_next(zip, &next, &more);
    if (status != SL_OK || !more || !is_member(&next, name)) continue;
    *member = next;
    *found = true;
  } while (status == SL_OK && more);
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

bool sl__is_npy(const char *path) {
  const char *slice = sl__slice_find(path), *end = slice ? slice : path + strlen(path);
  return end - path > 4 && !strncasecmp(end - 4, ".npy", 4);
}

bool sl__is_hdf5(const char *path) {
  return sl__ends_in(path, ".h5") || sl__ends_in(path, ".hdf5");
}

const char *sl__hdf5_colon(const char *path) {
  for (const char *colon = path + strlen(path); colon > path + 3; colon--)
    if (*colon == ':' &&
        (!strncmp(colon - 3, ".h5", 3) || (colon > path + 5 && !strncmp(colon - 5, ".hdf5", 5))))
      return colon; /* a slice behind the name has others */
  return NULL;
}

static enum sl_status open_hdf5(const char *path, const char *name, struct sl__array *array) {
  enum sl_status status = name_array(path, name, array);
  return status == SL_OK ? sl__hdf5_open(path, name, array) : status;
}

static enum sl_status open_whole(const char *path, const char *name, struct sl__array *array) {
  enum sl_status status = sl__ends_in(path, ".npz") ? open_npz(path, name, array)
                          : sl__is_npy(path)        ? open_npy(path, array)
                          : sl__is_hdf5(path)       ? open_hdf5(path, name, array)
                                                    : open_in_folder(path, name, array);
  if (status == SL_OK) sl__slice_all(array->layout.ndim, array->layout.dim, &array->slice);
  return status;
}

/* Takes the slice of a text "[:, 0:2]", which messages have behind the name from here on. */
static enum sl_status cut(struct sl__array *array, const char *text) {
  size_t size = strlen(array->name) + strlen(text) + 1;
  char *name = sl__realloc(array->name, size, 1, "a name");
  if (!name) return SL_NO_MEMORY;
  array->name = strcat(name, text);
  enum sl_status status = sl__slice_parse(name, text, &array->slice);
  if (status != SL_OK) return status;
  struct sl_shape shape = sl__slice_shape(&array->slice);
  array->layout.ndim = shape.ndim;
  memcpy(array->layout.dim, shape.dim, sizeof shape.dim);
  return SL_OK;
}

static bool exists(const char *path, const char *name) {
  char file[PATH_MAX];
  if (sl__ends_in(path, ".npz")) return exists_in_npz(path, name);
  if (sl__is_hdf5(path)) return sl__hdf5_exists(path, name);
  return npy_path(path, name, file) && access(file, F_OK) == 0;
}

/* The slice behind a name, and the name without it in `own`, to be freed; NULL: it has none. */
static enum sl_status split_name(const char *name, const char **slice, char **own) {
  *slice = sl__slice_find(name);
  *own = NULL;
  if (!*slice) return SL_OK;
  *own = sl__strdup(name);
  if (!*own) return SL_NO_MEMORY;
  (*own)[*slice - name] = '\0';
  return SL_OK;
}

enum sl_status sl__array_open(const char *path, const char *name, struct sl__array *array) {
  const char *slice = NULL;
  char *own = NULL;
  bool alone = sl__is_npy(path); /* what has a slice is the path */
  bool whole = alone ? access(path, F_OK) == 0 : !sl__slice_find(name) || exists(path, name);
  enum sl_status status = whole ? SL_OK : split_name(alone ? path : name, &slice, &own);
  if (status == SL_OK)
    status = open_whole(alone && own ? own : path, !alone && own ? own : name, array);
  if (status == SL_OK && slice) status = cut(array, slice);
  free(own);
  array->row_elements = 1;
  for (int i = 1; i < array->layout.ndim; i++) array->row_elements *= (size_t)array->layout.dim[i];
  array->row_size = array->row_elements * (size_t)array->layout.element.size;
  return status;
}

bool sl__array_exists(const char *path, const char *name) {
  const char *slice;
  char *own;
  if (exists(path, name)) return true;
  bool found = split_name(name, &slice, &own) == SL_OK && slice && exists(path, own);
  free(own);
  return found;
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

/* Row i, of which all elements are read. */
static const uint8_t *row_of(const struct sl__array *array, int64_t i) {
  const struct sl__slice *slice = &array->slice;
  return array->layout.values + (size_t)(slice->first[0] + i * slice->step[0]) * array->row_size;
}

/* Do a row's elements lie apart? */
static bool is_gathered(const struct sl__array *array) {
  return !array->slice.whole_rows || (array->layout.fortran && array->slice.ndim > 1);
}

void sl__array_expect(const struct sl__array *array, int64_t count, const int64_t *rows) {
  if (!array->file.bytes || is_gathered(array)) return;
  bool joins = array->slice.step[0] == 1;
  for (int64_t first = 0, end; first < count; first = end) {
    for (end = first + 1; joins && end < count && rows[end] == rows[end - 1] + 1;) end++;
    size_t size = (size_t)(end - first) * array->row_size;
    if (size >= LEAST_READ) sl__file_map_expect(&array->file, row_of(array, rows[first]), size);
  }
}

/* Elements from one to the next of each axis of the array in its file. */
static void find_strides(const struct sl__array *array, int64_t stride[SL_MAX_DIMS]) {
  const struct sl__slice *slice = &array->slice;
  int64_t whole = 1;
  for (int i = 0; i < slice->ndim; i++) {
    int d = array->layout.fortran ? i : slice->ndim - 1 - i;
    stride[d] = whole;
    whole *= slice->dim[d];
  }
}

/* Row i, whose elements lie apart, in C order. */
static void gather_row(const struct sl__array *array, int64_t i, uint8_t *row) {
  const struct sl__slice *slice = &array->slice;
  size_t each = (size_t)array->layout.element.size;
  int64_t index[SL_MAX_DIMS] = {i}, stride[SL_MAX_DIMS];
  find_strides(array, stride);
  for (size_t k = 0; k < array->row_elements; k++) {
    int64_t from = 0;
    for (int d = 0; d < slice->ndim; d++)
      from += (slice->first[d] + index[d] * slice->step[d]) * stride[d];
    memcpy(row + k * each, array->layout.values + (size_t)from * each, each);
    for (int d = slice->ndim - 1; d > 0 && ++index[d] == slice->count[d]; d--) index[d] = 0;
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
