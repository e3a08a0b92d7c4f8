/* Arrays in files, by name: .npy files of a folder, members of an .npz archive, datasets of an HDF5
 * file, or a slice of one. The first axis counts samples; one sample's elements are a row. */
#ifndef SL_DATA_ARRAY_H
#define SL_DATA_ARRAY_H

#include "core/base/file.h"
#include "data/npy.h"
#include "data/slice.h"

struct sl__array {
  char *name;              /* of messages: "data.npz: x" */
  struct sl__npy layout;   /* its values are in the mapping or in memory; NULL: `read` has them */
  struct sl__slice slice;  /* what is read of the file's array; the layout has the slice's shape */
  struct sl__mapping file; /* of its own */
  uint8_t *memory;         /* an unpacked member; NULL: none */
  size_t row_elements, row_size; /* of a row: elements, bytes */
  /* of formats that are not mapped: reads row i into `row`; callable by several threads */
  enum sl_status (*read)(const struct sl__array *array, int64_t i, uint8_t *row);
  void (*close)(struct sl__array *array);
  void *handle;
};

/* path: a folder, an .npz or HDF5 file; or an .npy file, whatever the name. A slice may stand
 * behind the name ("x[:, 0:2]"), unless an array is called just that. *array is zeroed before, and
 * is closed by sl__array_close in any case. \return SL_IO, SL_BAD_FILE; among them an array that is
 * not there; SL_BAD_ARGUMENT for a slice that it does not have. */
enum sl_status sl__array_open(const char *path, const char *name, struct sl__array *array);

void sl__array_close(struct sl__array *array); /* of a zeroed one, too */

/* Is there an array of that name, with a slice or without? A damaged file has none. */
bool sl__array_exists(const char *path, const char *name);

/* Row i in C order as *row; it points into the array, or into `room` (row_size bytes). */
enum sl_status sl__array_row(const struct sl__array *array, int64_t i, uint8_t *room,
                             const uint8_t **row);

/* Of HDF5 files (data/hdf5.c); *array has its name. Its `read` reads the rows of array->slice. */
enum sl_status sl__hdf5_open(const char *path, const char *name, struct sl__array *array);
bool sl__hdf5_exists(const char *path, const char *name);
bool sl__is_hdf5(const char *path); /* by its ending */
bool sl__is_npy(const char *path);  /* by its ending, which a slice may follow */
/* The colon of "data.h5:/inputs"; NULL: there is none. */
const char *sl__hdf5_colon(const char *path);

/* These rows will be read soon: the system may begin to read them all at once. */
void sl__array_expect(const struct sl__array *array, int64_t count, const int64_t *rows);

/* May the memory of mapped arrays be used? See sl__file_map_check. */
enum sl_status sl__array_check(const struct sl__array *array);

#endif
