/* ZIP archives (PKWARE, APPNOTE.TXT 6.3.10), as numpy.savez and savez_compressed write them:
 * members are stored or deflated, sizes may have 64 bits. Numbers are little-endian. The directory
 * at the end says where each member is. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/base/error.h"
#include "data/npy.h"

enum { END = 22, LOCATOR = 20, END64 = 56, ENTRY = 46, LOCAL = 30, MOST_COMMENT = 65535 };
enum { STORED = 0, DEFLATED = 8 };

static uint64_t number(const uint8_t *at, int size) {
  uint64_t value = 0;
  while (size--) value = value << 8 | at[size];
  return value;
}

static bool is_signed(const uint8_t *at, uint32_t signature) { return number(at, 4) == signature; }

static enum sl_status damaged(const struct sl__zip *zip, const char *what) {
  return sl__fail(SL_BAD_FILE, "%s: %s; was the copy complete?", zip->path, what);
}

/* The end of the directory, which only a comment may follow; 0 if there is none. */
static size_t find_end(const struct sl__zip *zip) {
  if (zip->size < END) return 0;
  size_t last = zip->size - END, first = last > MOST_COMMENT ? last - MOST_COMMENT : 0;
  for (size_t at = last + 1; at-- > first;)
    if (is_signed(zip->bytes + at, 0x06054b50) &&
        number(zip->bytes + at + 20, 2) == zip->size - END - at)
      return at;
  return 0;
}

/* Archives above 4 GB have a second end, which a locator before the first one points at. */
static enum sl_status read_end64(struct sl__zip *zip, size_t end, uint64_t *at) {
  if (end < LOCATOR || !is_signed(zip->bytes + end - LOCATOR, 0x07064b50)) return SL_OK;
  uint64_t far = number(zip->bytes + end - LOCATOR + 8, 8);
  if (zip->size < END64 || far > zip->size - END64 || !is_signed(zip->bytes + far, 0x06064b50))
    return damaged(zip, "damaged: its 64-bit directory is not where it should be");
  zip->left = number(zip->bytes + far + 32, 8);
  *at = number(zip->bytes + far + 48, 8);
  return SL_OK;
}

enum sl_status sl__zip_parse(const char *path, const uint8_t *bytes, size_t size,
                             struct sl__zip *zip) {
  *zip = (struct sl__zip){.path = path, .bytes = bytes, .size = size};
  size_t end = find_end(zip);
  if (!end) return damaged(zip, "is no ZIP archive (.npz), or cut short");
  uint64_t at = number(bytes + end + 16, 4);
  zip->left = number(bytes + end + 10, 2);
  enum sl_status status = read_end64(zip, end, &at);
  if (status != SL_OK) return status;
  if (at > size) return damaged(zip, "damaged: its directory is not where it should be");
  zip->at = (size_t)at;
  return SL_OK;
}

/* The 64-bit field of an entry stands in an extra field of number 1, if its 32 bits are all ones:
 * the unpacked size, the packed one, the place, those of them that need it. */
static bool read_wide(const uint8_t *extra, size_t size, uint64_t *fields, int count) {
  for (size_t at = 0; at + 4 <= size;) {
    size_t length = (size_t)number(extra + at + 2, 2), from = at + 4;
    if (length > size - from) return false;
    if (number(extra + at, 2) == 1)
      for (int i = 0; i < count; i++) {
        if (fields[i] != UINT32_MAX) continue;
        if (from + 8 > at + 4 + length) return false;
        fields[i] = number(extra + from, 8);
        from += 8;
      }
    at += 4 + length;
  }
  return true;
}

/* Finds the bytes of a member behind its own header, which repeats the name and may have other
 * extra fields. */
static enum sl_status find_bytes(const struct sl__zip *zip, uint64_t at,
                                 struct sl__zip_member *member) {
  if (zip->size < LOCAL || at > zip->size - LOCAL || !is_signed(zip->bytes + at, 0x04034b50))
    return damaged(zip, "damaged: a member is not where it should be");
  const uint8_t *header = zip->bytes + at;
  size_t skip = LOCAL + (size_t)number(header + 26, 2) + (size_t)number(header + 28, 2);
  if (skip > zip->size - at || member->packed_size > zip->size - at - skip)
    return damaged(zip, "damaged: a member runs over the end");
  member->packed = header + skip;
  return SL_OK;
}

/* deflate makes no more than 1,032 bytes of one: a small archive cannot ask for all memory. */
static enum sl_status check_member(const struct sl__zip *zip, const uint8_t *entry,
                                   struct sl__zip_member *member) {
  const size_t most = 1032;
  unsigned method = (unsigned)number(entry + 10, 2);
  if (number(entry + 8, 2) & 1)
    return sl__fail(SL_BAD_FILE, "%s: is encrypted; save it without a password", zip->path);
  if (method != STORED && method != DEFLATED)
    return sl__fail(SL_BAD_FILE,
                    "%s: packed by method %u; only stored and deflated members can be read: save "
                    "it with numpy.savez",
                    zip->path, method);
  member->deflated = method == DEFLATED;
  if (member->deflated ? member->size / most > member->packed_size
                       : member->size != member->packed_size)
    return damaged(zip, "damaged: the sizes of a member do not fit each other");
  return SL_OK;
}

enum sl_status sl__zip_next(struct sl__zip *zip, struct sl__zip_member *member, bool *found) {
  *found = zip->left > 0;
  if (!*found) return SL_OK;
  if (zip->size - zip->at < ENTRY || !is_signed(zip->bytes + zip->at, 0x02014b50))
    return damaged(zip, "damaged: its directory ends early");
  const uint8_t *entry = zip->bytes + zip->at;
  size_t name = (size_t)number(entry + 28, 2), extra = (size_t)number(entry + 30, 2);
  size_t whole = ENTRY + name + extra + (size_t)number(entry + 32, 2);
  if (whole > zip->size - zip->at) return damaged(zip, "damaged: its directory ends early");
  uint64_t fields[3] = {number(entry + 24, 4), number(entry + 20, 4), number(entry + 42, 4)};
  if (!read_wide(entry + ENTRY + name, extra, fields, 3))
    return damaged(zip, "damaged: the extra fields of a member");
  *member = (struct sl__zip_member){.name = (const char *)entry + ENTRY,
                                    .name_size = name,
                                    .size = (size_t)fields[0],
                                    .packed_size = (size_t)fields[1],
                                    .crc = (uint32_t)number(entry + 16, 4)};
  zip->at += whole;
  zip->left--;
  enum sl_status status = find_bytes(zip, fields[2], member);
  return status == SL_OK ? check_member(zip, entry, member) : status;
}

/* All of a member into `to`, in pieces that fit zlib's 32-bit counts. Returns zlib's last result:
 * Z_STREAM_END, with `size` bytes written, if the member is whole. */
static int inflate_member(const struct sl__zip_member *member, uint8_t *to, size_t *written) {
  const size_t piece = 1 << 30;
  z_stream stream = {.next_in = (uint8_t *)member->packed, .next_out = to};
  size_t in = member->packed_size, out = member->size;
  int result = inflateInit2(&stream, -15);
  while (result == Z_OK) {
    if (!stream.avail_in) {
      stream.avail_in = (unsigned)(in < piece ? in : piece);
      in -= stream.avail_in;
    }
    if (!stream.avail_out) {
      stream.avail_out = (unsigned)(out < piece ? out : piece);
      out -= stream.avail_out;
    }
    result = inflate(&stream, Z_NO_FLUSH);
  }
  *written = member->size - out - stream.avail_out;
  inflateEnd(&stream);
  return result;
}

enum sl_status sl__zip_inflate(const struct sl__zip *zip, const struct sl__zip_member *member,
                               uint8_t **bytes) {
  size_t written = 0;
  int length = (int)member->name_size;
  uint8_t *to = sl__alloc(member->size ? member->size : 1, 1, "an array of an archive");
  if (!to) return SL_NO_MEMORY;
  int result = inflate_member(member, to, &written);
  bool whole = result == Z_STREAM_END && written == member->size;
  if (whole && crc32_z(0, to, member->size) == member->crc) {
    *bytes = to;
    return SL_OK;
  }
  free(to);
  if (result == Z_MEM_ERROR) return sl__fail(SL_NO_MEMORY, "no memory for unpacking");
  return sl__fail(SL_BAD_FILE, "%s: %.*s is damaged (%s); copy the file again", zip->path, length,
                  member->name, whole ? "its checksum differs" : "it cannot be unpacked");
}
