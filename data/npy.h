/* NumPy's files: .npy is one array, .npz a ZIP archive of them. The parsers work on bytes, without
 * files. */
#ifndef SL_DATA_NPY_H
#define SL_DATA_NPY_H

#include <starling/base.h>

#include "data/element.h"

/* An array of 1 to SL_MAX_DIMS axes, each at least 1 long. */
struct sl__npy {
  struct sl__element element;
  int ndim;
  int64_t dim[SL_MAX_DIMS];
  bool fortran;          /* the first axis runs fastest, else the last */
  const uint8_t *values; /* all of them, in the parsed bytes, not aligned */
};

/* path is for the messages. \return SL_BAD_FILE for a header that is damaged, elements other than
 * numbers, an array that is empty, of more axes, or of another length than the bytes. */
enum sl_status sl__npy_parse(const char *path, const uint8_t *bytes, size_t size,
                             struct sl__npy *npy);

/* A ZIP archive, and its members one after the other. */
struct sl__zip {
  const char *path;
  const uint8_t *bytes;
  size_t size;
  size_t at;     /* of the next member's entry in the directory */
  uint64_t left; /* members that follow */
};

struct sl__zip_member {
  const char *name; /* not ended by a zero */
  size_t name_size;
  const uint8_t *packed; /* in the archive's bytes */
  size_t packed_size, size;
  bool deflated; /* else stored: the packed bytes are the member's */
  uint32_t crc;
};

enum sl_status sl__zip_parse(const char *path, const uint8_t *bytes, size_t size,
                             struct sl__zip *zip);
/* *found becomes false behind the last member. */
enum sl_status sl__zip_next(struct sl__zip *zip, struct sl__zip_member *member, bool *found);
/* The bytes of a deflated member, whose checksum is tested, to be freed. */
enum sl_status sl__zip_inflate(const struct sl__zip *zip, const struct sl__zip_member *member,
                               uint8_t **bytes);

#endif
