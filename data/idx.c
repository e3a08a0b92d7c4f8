/* IDX, the file format of MNIST (LeCun, Cortes, Burges; http://yann.lecun.com/exdb/mnist). Numbers
 * have 32 bits, big-endian: the magic number 0x0000TTDD (TT 08: bytes; DD: dimensions), a size for
 * each dimension, then the values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "data/dataset.h"
#include "data/folder.h"
#include "data/reader.h"

#define MAX_FILE ((size_t)1 << 30) /* 20 times MNIST: a packed file cannot expand to more */
#define SIDE 28
#define CLASSES 10

static uint32_t big_endian(const uint8_t *bytes) {
  return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Checks that the file's size is the header's. */
static enum sl_status check_size(const char *path, size_t size, size_t header, int64_t count,
                                 size_t each) {
  size_t whole;
  if (__builtin_mul_overflow((size_t)count, each, &whole) ||
      __builtin_add_overflow(whole, header, &whole))
    return sl__fail(SL_BAD_FILE, "%s: damaged: its header promises more than any file can hold",
                    path);
  if (size < whole)
    return sl__fail(SL_BAD_FILE, "%s: cut short after item %zu of %lld; was the download complete?",
                    path, (size - header) / each, (long long)count);
  if (size > whole)
    return sl__fail(SL_BAD_FILE, "%s: %zu bytes too many at the end; is it the right file?", path,
                    size - whole);
  return SL_OK;
}

enum sl_status sl__idx_parse(const char *path, const uint8_t *bytes, size_t size, int ndim,
                             struct sl__idx *idx) {
  size_t header = 4 * (size_t)(1 + ndim), each;
  uint32_t magic = 0x0800 | (uint32_t)ndim;
  if (size < header)
    return sl__fail(SL_BAD_FILE, "%s: %zu bytes are too short for an IDX file", path, size);
  if (big_endian(bytes) != magic)
    return sl__fail(SL_BAD_FILE, "%s: magic number is 0x%08x instead of 0x%08x; is it IDX %s?",
                    path, (unsigned)big_endian(bytes), (unsigned)magic,
                    ndim == 3 ? "images" : "labels");
  idx->count = big_endian(bytes + 4);
  idx->height = ndim == 3 ? big_endian(bytes + 8) : 1;
  idx->width = ndim == 3 ? big_endian(bytes + 12) : 1;
  idx->values = bytes + header;
  each = (size_t)idx->height * (size_t)idx->width; /* cannot overflow: 32 bits times 32 bits */
  if (idx->count == 0 || each == 0)
    return sl__fail(SL_BAD_FILE, "%s: is empty: %lld items of %lld x %lld", path,
                    (long long)idx->count, (long long)idx->height, (long long)idx->width);
  return check_size(path, size, header, idx->count, each);
}

enum sl_status sl__mnist_parse(const char *name, const char *image_path, const uint8_t *image_bytes,
                               size_t image_size, const char *label_path,
                               const uint8_t *label_bytes, size_t label_size,
                               struct sl_dataset **result) {
  enum sl_status status;
  struct sl__idx images = {0}, labels = {0};
  const float mean = SL__MNIST_MEAN, deviation = SL__MNIST_DEVIATION;
  struct sl__byte_set *set = NULL;
  SL__TRY(sl__idx_parse(image_path, image_bytes, image_size, 3, &images));
  SL__TRY(sl__idx_parse(label_path, label_bytes, label_size, 1, &labels));
  if (images.height != SIDE || images.width != SIDE)
    return sl__fail(SL_BAD_FILE, "%s: images are %lld x %lld, MNIST's are 28 x 28", image_path,
                    (long long)images.height, (long long)images.width);
  if (images.count != labels.count)
    return sl__fail(SL_BAD_FILE, "%s: %lld images, but %s has %lld labels; are they of one set?",
                    image_path, (long long)images.count, label_path, (long long)labels.count);
  SL__TRY(sl__byte_set_new(name, &SL_SHAPE(1, SIDE, SIDE), images.count, CLASSES, &mean, &deviation,
                           &set));
  memcpy(set->samples, images.values, (size_t)images.count * SIDE * SIDE);
  for (int64_t i = 0; i < labels.count; i++) set->labels[i] = labels.values[i];
  SL__TRY(sl__dataset_check_labels(label_path, set->labels, labels.count, CLASSES));
  *result = &set->set;
  set = NULL;
out:
  if (set) sl_dataset_free(&set->set);
  return status;
}

/* ---- files ---- */

/* The file's path, with .gz if only the packed file exists; NULL without memory. */
static char *find_idx(const char *folder, const char *name) {
  char packed[64];
  snprintf(packed, sizeof packed, "%s.gz", name);
  bool only_packed = !sl__has_file(folder, name) && sl__has_file(folder, packed);
  return sl__join(folder, only_packed ? packed : name);
}

enum sl_status sl_mnist_open(const char *folder, bool train, struct sl_dataset **dataset) {
  SL__NEEDS(folder, dataset);
  enum sl_status status;
  uint8_t *images = NULL, *labels = NULL;
  size_t image_size, label_size;
  char *label_path = NULL;
  char *image_path = find_idx(folder, train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte");
  if (!image_path) SL__TRY(SL_NO_MEMORY);
  label_path = find_idx(folder, train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte");
  if (!label_path) SL__TRY(SL_NO_MEMORY);
  SL__TRY(sl__file_read(image_path, MAX_FILE, &images, &image_size));
  SL__TRY(sl__file_read(label_path, MAX_FILE, &labels, &label_size));
  SL__TRY(sl__mnist_parse(train ? "MNIST, training set" : "MNIST, test set", image_path, images,
                          image_size, label_path, labels, label_size, dataset));
out:
  free(images);
  free(labels);
  free(image_path);
  free(label_path);
  return status;
}

static bool is_in(const char *folder) {
  return sl__has_file(folder, "train-images-idx3-ubyte") ||
         sl__has_file(folder, "train-images-idx3-ubyte.gz") ||
         sl__has_file(folder, "t10k-images-idx3-ubyte") ||
         sl__has_file(folder, "t10k-images-idx3-ubyte.gz");
}

const struct sl__reader sl__mnist_reader = {
    .format = {.name = "MNIST",
               .about = "grey images of 28x28 pixels, 10 classes",
               .files = "train-images-idx3-ubyte, plain or .gz"},
    .is_in = is_in,
    .open = sl_mnist_open};
