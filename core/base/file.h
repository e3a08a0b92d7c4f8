/* Reads whole files, and writes them whole: no file is ever half-written. */
#ifndef SL_CORE_BASE_FILE_H
#define SL_CORE_BASE_FILE_H

#include <starling/base.h>

/* The whole file, plain or gzip (by its first bytes), into *bytes (free() it), *size. limit bounds
 * the unpacked size, against a file that would fill the memory: SL_BAD_FILE above it. */
enum sl_status sl__file_read(const char *path, size_t limit, uint8_t **bytes, size_t *size);

/* The same of a file that is not packed, such as weights: gzip is refused, since a small file could
 * unpack to a thousand times its size. */
enum sl_status sl__file_read_plain(const char *path, size_t limit, uint8_t **bytes, size_t *size);

/* The same of a cache: a link, and a file that belongs to another user, are refused. */
enum sl_status sl__file_read_own(const char *path, size_t limit, uint8_t **bytes, size_t *size);

/* A regular file in the address space: the system reads its pages when they are used, and forgets
 * them when memory is short. */
struct sl__mapping {
  const uint8_t *bytes;
  size_t size;
  int file; /* a descriptor */
};
enum sl_status sl__file_map(const char *path, struct sl__mapping *mapping);
/* SL_BAD_FILE if the file has become shorter: the use of its lost bytes would end the process. */
enum sl_status sl__file_map_check(const char *path, const struct sl__mapping *mapping);
/* Copies bytes of the file by calls of the system, which for more than a page takes less time than
 * the use of pages that are not in memory. SL_IO, SL_BAD_FILE. */
enum sl_status sl__file_map_read(const char *path, const struct sl__mapping *mapping,
                                 const uint8_t *from, size_t size, uint8_t *to);
/* These bytes are used soon: the system may begin to read them. */
void sl__file_map_expect(const struct sl__mapping *mapping, const uint8_t *from, size_t size);
void sl__file_unmap(struct sl__mapping *mapping); /* legal for a zeroed one */

/* Length and XXH64 (seed 0) of the bytes that the program has written. */
struct sl__file_sum {
  uint64_t bytes, xxh64;
};

/* A file in the making: without a name until it is flushed, so that nothing is left of it if the
 * process is killed, or path.XXXXXX in the same folder where the file system cannot do that, as
 * NFS, where links are forbidden, or with a umask of 0. commit does fsync, rename and fsync of the
 * folder; abandon removes it. commit reports errors of earlier writes. */
struct sl__file;
enum sl_status sl__file_create(const char *path, struct sl__file **file);

/* SL_IO if sl__file_create would refuse what is there now: it is no regular file. */
enum sl_status sl__file_check_target(const char *path);
void sl__file_write(struct sl__file *file, const void *bytes, size_t size);
/* Brings the written bytes to the disk, as path.XXXXXX. After SL_OK only the renaming is left. */
enum sl_status sl__file_flush(struct sl__file *file);
/* Frees file in any case. sum may be NULL. */
enum sl_status sl__file_commit(struct sl__file *file, struct sl__file_sum *sum);
void sl__file_abandon(struct sl__file *file); /* NULL is legal */

#endif
