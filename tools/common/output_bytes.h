/* A result as a file: written aside and renamed; or, where the path names an open file, a pipe or a
 * device, written through it. Each function returns errno's value, or 0. */
#ifndef SL_TOOLS_COMMON_OUTPUT_BYTES_H
#define SL_TOOLS_COMMON_OUTPUT_BYTES_H

#include <stddef.h>

int output_bytes(const char *path, const char *bytes, size_t size);

/* Whether output_bytes could write there, before work that takes minutes. */
int output_check(const char *path);

#endif
