/* Whole files in, whole files out: nothing is ever half-written. */
#ifndef SL_CORE_FILE_H
#define SL_CORE_FILE_H

#include <starling/base.h>

/* The whole file, plain or gzip (by its first bytes), into *bytes (free() it), *size. limit bounds
 * the unpacked size, against a file that would fill the memory: SL_BAD_FILE above it. */
enum sl_status sl__file_read(const char *path, size_t limit, uint8_t **bytes, size_t *size);

/* A file being written aside (path.XXXXXX in the same folder). commit does fsync, rename and fsync
 * of the folder; abandon removes it. Errors of write are kept and reported by commit. */
struct sl_file;
enum sl_status sl__file_create(const char *path, struct sl_file **file);
void sl__file_write(struct sl_file *file, const void *bytes, size_t size);
enum sl_status sl__file_commit(struct sl_file *file); /* frees file in any case */
void sl__file_abandon(struct sl_file *file);          /* NULL is legal */

#endif
