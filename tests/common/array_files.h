/* NumPy's files, made in memory: .npy arrays, and .npz archives of them. */
#ifndef SL_TESTS_COMMON_ARRAY_FILES_H
#define SL_TESTS_COMMON_ARRAY_FILES_H

#include <zlib.h>

#include "tests/common/files.h"

struct bytes {
  uint8_t at[1 << 14];
  size_t size;
};

static inline void add(struct bytes *to, const void *from, size_t size) {
  assert_true(to->size + size <= sizeof to->at);
  memcpy(to->at + to->size, from, size);
  to->size += size;
}

/* Little-endian, in `size` bytes. */
static inline void add_number(struct bytes *to, uint64_t number, int size) {
  for (int i = 0; i < size; i++) {
    uint8_t byte = (uint8_t)(number >> 8 * i);
    add(to, &byte, 1);
  }
}

/* An array with this header and these elements. */
static inline struct bytes npy_of(int version, const char *header, const void *values,
                                  size_t size) {
  struct bytes npy = {.size = 0};
  size_t length = strlen(header);
  add(&npy, "\x93NUMPY", 6);
  add_number(&npy, (unsigned)version, 2);
  add_number(&npy, length, version == 1 ? 2 : 4);
  add(&npy, header, length);
  if (size) add(&npy, values, size);
  return npy;
}

#define NPY_HEADER(descr, order, shape)                                                            \
  "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }    \n"

/* A member of an archive. */
struct member {
  const char *name; /* "x.npy" */
  struct bytes bytes;
  bool deflate;
};

/* deflate without zlib's own header. */
static inline struct bytes deflated(const struct bytes *from) {
  struct bytes to = {.size = 0};
  z_stream stream = {.next_in = (uint8_t *)from->at,
                     .avail_in = (unsigned)from->size,
                     .next_out = to.at,
                     .avail_out = sizeof to.at};
  assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
  assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
  to.size = stream.total_out;
  deflateEnd(&stream);
  return to;
}

/* Both headers of a member: from the version needed to the sizes. wide: sizes are all ones, the
 * numbers stand in an extra field. */
static inline void add_member_header(struct bytes *zip, const struct member *m, size_t packed,
                                     bool wide) {
  add_number(zip, 20, 2), add_number(zip, 0, 2);
  add_number(zip, m->deflate ? 8 : 0, 2), add_number(zip, 0, 4);
  add_number(zip, crc32(0, m->bytes.at, (unsigned)m->bytes.size), 4);
  add_number(zip, wide ? UINT32_MAX : packed, 4);
  add_number(zip, wide ? UINT32_MAX : m->bytes.size, 4);
  add_number(zip, strlen(m->name), 2);
}

/* A ZIP archive, as numpy.savez writes it. wide: all sizes and places have 64 bits. */
static inline struct bytes zip_of(const struct member *members, int count, bool wide) {
  struct bytes zip = {.size = 0};
  size_t at[8], packed_size[8], directory;
  for (int i = 0; i < count; i++) {
    const struct member *m = &members[i];
    struct bytes packed = m->deflate ? deflated(&m->bytes) : m->bytes;
    at[i] = zip.size;
    packed_size[i] = packed.size;
    add(&zip, "PK\3\4", 4);
    add_member_header(&zip, m, packed.size, true);
    add_number(&zip, 20, 2);
    add(&zip, m->name, strlen(m->name));
    add_number(&zip, 1, 2), add_number(&zip, 16, 2);
    add_number(&zip, m->bytes.size, 8), add_number(&zip, packed.size, 8);
    add(&zip, packed.at, packed.size);
  }
  directory = zip.size;
  for (int i = 0; i < count; i++) {
    const struct member *m = &members[i];
    add(&zip, "PK\1\2", 4);
    add_number(&zip, 20, 2);
    add_member_header(&zip, m, packed_size[i], wide);
    add_number(&zip, wide ? 28 : 0, 2), add_number(&zip, 0, 2); /* extra fields, comment */
    add_number(&zip, 0, 8);                                     /* disk, attributes */
    add_number(&zip, wide ? UINT32_MAX : at[i], 4);
    add(&zip, m->name, strlen(m->name));
    if (!wide) continue;
    add_number(&zip, 1, 2), add_number(&zip, 24, 2);
    add_number(&zip, m->bytes.size, 8), add_number(&zip, packed_size[i], 8);
    add_number(&zip, at[i], 8);
  }
  size_t end = zip.size;
  if (wide) {
    add(&zip, "PK\6\6", 4);
    add_number(&zip, 44, 8), add_number(&zip, 45, 4), add_number(&zip, 0, 8);
    add_number(&zip, (unsigned)count, 8), add_number(&zip, (unsigned)count, 8);
    add_number(&zip, end - directory, 8), add_number(&zip, directory, 8);
    add(&zip, "PK\6\7", 4);
    add_number(&zip, 0, 4), add_number(&zip, end, 8), add_number(&zip, 1, 4);
  }
  add(&zip, "PK\5\6", 4);
  add_number(&zip, 0, 4);
  add_number(&zip, wide ? 0xffff : (unsigned)count, 2);
  add_number(&zip, wide ? 0xffff : (unsigned)count, 2);
  add_number(&zip, end - directory, 4);
  add_number(&zip, wide ? UINT32_MAX : directory, 4);
  add_number(&zip, 0, 2);
  return zip;
}

#endif
