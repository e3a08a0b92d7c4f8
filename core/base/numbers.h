/* Numbers that people write: on command lines, in files and in the environment. strtol and strtod
 * alone would also take blanks, signs, hexadecimal, "inf" and "nan", and numbers with a tail.
 * Inline, since programs use them, too, and the library exports no internal function. */
#ifndef SL_CORE_BASE_NUMBERS_H
#define SL_CORE_BASE_NUMBERS_H

#include <errno.h>
#include <locale.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From here to sl__locale_end this thread reads and writes numbers with a decimal point, whatever
 * locale the program has set. The C library shares one object of the C locale: nothing is freed. */
static inline locale_t sl__locale_begin(void) {
  locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  return c ? uselocale(c) : (locale_t)0;
}

static inline void sl__locale_end(locale_t before) {
  if (before) uselocale(before);
}

/* strtod with a decimal point. */
static inline double sl__strtod(const char *text, char **end) {
  locale_t before = sl__locale_begin();
  double value = strtod(text, end);
  sl__locale_end(before);
  return value;
}

/* The value with the fewest digits that tell it from all other floats, of 6 and 9. */
#define SL__FLOAT_TEXT 24
static inline const char *sl__float_text(float value, char text[SL__FLOAT_TEXT]) {
  locale_t saved = sl__locale_begin();
  snprintf(text, SL__FLOAT_TEXT, "%g", (double)value);
  if (strtof(text, NULL) != value) snprintf(text, SL__FLOAT_TEXT, "%.9g", (double)value);
  sl__locale_end(saved);
  return text;
}

/* The digits that text begins with. Returns the place after them; NULL if there are none, or if
 * the number is above INT64_MAX. */
static inline const char *sl__scan_whole(const char *text, int64_t *value) {
  size_t digits = strspn(text, "0123456789");
  int before = errno;
  errno = 0;
  *value = strtoll(text, NULL, 10);
  bool fits = digits && errno != ERANGE;
  errno = before;
  return fits ? text + digits : NULL;
}

/* "128": digits alone, from least to most. */
static inline bool sl__parse_whole(const char *text, int64_t least, int64_t most, int64_t *value) {
  const char *end = sl__scan_whole(text, value);
  return end && !*end && *value >= least && *value <= most;
}

/* "0.5" or "1e-3", from least to most; a number that is too large is infinite, a text
 * that is no number gives 0. */
static inline bool sl__parse_real(const char *text, double least, double most, double *value) {
  char *end;
  *value = 0;
  if (!*text || text[strspn(text, "0123456789.eE+-")]) return false;
  *value = sl__strtod(text, &end);
  return !*end && *value >= least && *value <= most;
}

#endif
