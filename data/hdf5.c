/* Datasets of HDF5 files as arrays (https://docs.hdfgroup.org/hdf5/v1_14/), read by rows, of a
 * slice by hyperslabs. libhdf5 converts the elements. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "core/base/error.h"
#include "data/array.h"

#ifdef SL_HAVE_HDF5
#include <errno.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_CACHE ((size_t)64 << 20) /* bytes a dataset: unpacked chunks, for rows nearby */
#define CHUNK_SLOTS 12421              /* a prime number, as libhdf5's manual asks for */

/* Most builds of libhdf5 have state of the whole process and no lock of their own. */
static pthread_mutex_t library = PTHREAD_MUTEX_INITIALIZER;

static void enter(void) {
  pthread_mutex_lock(&library);
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* failures are reported by the callers */
}

static void leave(void) { pthread_mutex_unlock(&library); }

static hid_t dataset_of(const struct sl__array *array) { return (hid_t)(intptr_t)array->handle; }

static hid_t memory_type(const struct sl__array *array) {
  char kind = array->layout.element.kind;
  return kind == 'f' ? H5T_NATIVE_FLOAT : kind == 'u' ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64;
}

/* Only the slice's elements are read: libhdf5 unpacks the chunks that have some. */
static enum sl_status read_row(const struct sl__array *array, int64_t i, uint8_t *row) {
  const struct sl__slice *slice = &array->slice;
  hsize_t start[SL_MAX_DIMS], step[SL_MAX_DIMS], count[SL_MAX_DIMS];
  for (int d = 0; d < slice->ndim; d++) {
    start[d] = (hsize_t)(slice->first[d] + (d ? 0 : i * slice->step[d]));
    step[d] = (hsize_t)slice->step[d];
    count[d] = d ? (hsize_t)slice->count[d] : 1;
  }
  enter();
  hid_t file = H5Dget_space(dataset_of(array));
  hid_t memory = H5Screate_simple(slice->ndim, count, NULL);
  bool done = file >= 0 && memory >= 0 &&
              H5Sselect_hyperslab(file, H5S_SELECT_SET, start, step, count, NULL) >= 0 &&
              H5Dread(dataset_of(array), memory_type(array), memory, file, H5P_DEFAULT, row) >= 0;
  if (memory >= 0) H5Sclose(memory);
  if (file >= 0) H5Sclose(file);
  leave();
  if (done) return SL_OK;
  return sl__fail(SL_BAD_FILE, "%s: row %lld cannot be read; is the file damaged?", array->name,
                  (long long)i);
}

static void close_dataset(struct sl__array *array) {
  enter();
  if (dataset_of(array) > 0) H5Dclose(dataset_of(array));
  leave();
}

/* As in sl__element; 0: no numbers. HDF5 has no truth values: h5py makes enums of two values. */
static char kind_of(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_FLOAT: return 'f';
    case H5T_INTEGER: return H5Tget_sign(type) == H5T_SGN_NONE ? 'u' : 'i';
    case H5T_ENUM: return H5Tget_size(type) == 1 && H5Tget_nmembers(type) == 2 ? 'i' : 0;
    default: return 0;
  }
}

static enum sl_status read_type(struct sl__array *array) {
  static const uint16_t one = 1;
  hid_t type = H5Dget_type(dataset_of(array));
  char kind = type >= 0 ? kind_of(type) : 0;
  if (type >= 0) H5Tclose(type);
  if (!kind) return sl__fail(SL_BAD_FILE, "%s: its elements are no numbers", array->name);
  array->layout.element = (struct sl__element){
      .kind = kind, .size = kind == 'f' ? 4 : 8, .big_endian = *(const uint8_t *)&one == 0};
  return SL_OK;
}

static enum sl_status read_shape(struct sl__array *array) {
  hsize_t dim[H5S_MAX_RANK];
  hid_t space = H5Dget_space(dataset_of(array));
  int ndim = space >= 0 ? H5Sget_simple_extent_dims(space, dim, NULL) : -1;
  size_t whole = sizeof(int64_t);
  if (space >= 0) H5Sclose(space);
  if (ndim < 1 || ndim > SL_MAX_DIMS)
    return sl__fail(SL_BAD_FILE, "%s: has %d axes; 1 to %d can be read, the first counts samples",
                    array->name, ndim, SL_MAX_DIMS);
  for (int d = 0; d < ndim; d++) {
    if (dim[d] == 0)
      return sl__fail(SL_BAD_FILE, "%s: is empty: axis %d is 0 long", array->name, d);
    if (dim[d] > INT64_MAX || __builtin_mul_overflow(whole, (size_t)dim[d], &whole))
      return sl__fail(SL_BAD_FILE, "%s: damaged: it promises more than any file can hold",
                      array->name);
    array->layout.dim[d] = (int64_t)dim[d];
  }
  array->layout.ndim = ndim;
  return SL_OK;
}

/* Why H5Dopen2 failed: nothing of that name, a group, or an object that this libhdf5 cannot open.
 */
static enum sl_status refuse_dataset(hid_t file, const char *path, const char *name) {
  unsigned major = 0, minor = 0, release = 0;
  bool exists = H5Oexists_by_name(file, name, H5P_DEFAULT) > 0;
  hid_t object = exists ? H5Oopen(file, name, H5P_DEFAULT) : H5I_INVALID_HID;
  if (exists && object < 0) {
    H5get_libversion(&major, &minor, &release);
    return sl__fail(
        SL_BAD_FILE,
        "%s: libhdf5 %u.%u.%u cannot open its dataset \"%s\": it is damaged, or written "
        "for newer versions (h5py: do not write it with libver=\"latest\")",
        path, major, minor, release, name);
  }
  if (object >= 0) H5Oclose(object);
  return sl__fail(SL_BAD_FILE, "%s: has no dataset \"%s\"; h5ls -r lists those that it has%s", path,
                  name, strchr(name, '[') ? "; a slice of one is like x[:,0:2]" : "");
}

/* Opens the dataset; the file stays open as long as it. */
static enum sl_status open_dataset(const char *path, const char *name, struct sl__array *array) {
  if (access(path, R_OK) != 0)
    return sl__fail(SL_IO, "%s: cannot be opened: %s; is the path right?", path, strerror(errno));
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT),
        properties = H5Pcreate(H5P_DATASET_ACCESS);
  if (file < 0)
    return sl__fail(SL_BAD_FILE, "%s: is no HDF5 file, or damaged; was the copy complete?", path);
  if (properties >= 0)
    H5Pset_chunk_cache(properties, CHUNK_SLOTS, CHUNK_CACHE, H5D_CHUNK_CACHE_W0_DEFAULT);
  hid_t dataset = H5Dopen2(file, name, properties >= 0 ? properties : H5P_DEFAULT);
  if (properties >= 0) H5Pclose(properties);
  enum sl_status status = dataset < 0 ? refuse_dataset(file, path, name) : SL_OK;
  H5Fclose(file);
  if (status != SL_OK) return status;
  array->handle = (void *)(intptr_t)dataset;
  status = read_type(array);
  return status == SL_OK ? read_shape(array) : status;
}

enum sl_status sl__hdf5_open(const char *path, const char *name, struct sl__array *array) {
  array->close = close_dataset;
  array->read = read_row;
  enter();
  enum sl_status status = open_dataset(path, name, array);
  leave();
  return status;
}

bool sl__hdf5_exists(const char *path, const char *name) {
  enter();
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  hid_t dataset = file >= 0 ? H5Dopen2(file, name, H5P_DEFAULT) : -1;
  if (dataset >= 0) H5Dclose(dataset);
  if (file >= 0) H5Fclose(file);
  leave();
  return dataset >= 0;
}
#else
enum sl_status sl__hdf5_open(const char *path, const char *name, struct sl__array *array) {
  (void)name, (void)array;
  return sl__fail(SL_UNSUPPORTED,
                  "%s: this build reads no HDF5; install libhdf5-dev and build Starling again",
                  path);
}

bool sl__hdf5_exists(const char *path, const char *name) {
  (void)path, (void)name;
  return false;
}
#endif
