/* Numbers of files in their many formats, as floats and as whole numbers. */
#ifndef SL_DATA_ELEMENT_H
#define SL_DATA_ELEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl__element {
  char kind; /* 'f' floating point, 'i' signed, 'u' unsigned, 'b' true (1) or false (0) */
  int size;  /* bytes: 1, 2, 4, 8; of 'f' not 1, of 'b' 1 */
  bool big_endian;
};

/* Is there such a format? */
bool sl__element_exists(const struct sl__element *element);

/* Are they this machine's floats? */
bool sl__element_is_float(const struct sl__element *element);

/* Numbers that a float cannot hold are rounded, or become infinite. */
void sl__elements_to_floats(const struct sl__element *element, const uint8_t *from, size_t count,
                            float *to);

/* A whole number, of a kind other than 'f'; one above INT64_MAX is INT64_MAX. */
int64_t sl__element_whole(const struct sl__element *element, const uint8_t *from);

#endif
