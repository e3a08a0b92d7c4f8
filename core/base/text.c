#include "core/base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/numbers.h"

FILE *sl__text_begin(struct sl__text *t) {
  *t = (struct sl__text){.locale = sl__locale_begin()};
  t->out = open_memstream(&t->text, &t->size);
  return t->out;
}

enum sl_status sl__text_end(struct sl__text *t, const char *what, char **text) {
  bool fine = t->out && !ferror(t->out);
  if (t->out && fclose(t->out) != 0) fine = false;
  if (!t->text) fine = false; /* glibc's fclose does not tell that it had no memory */
  sl__locale_end(t->locale);
  *text = t->text;
  if (fine) return SL_OK;
  free(t->text);
  *text = NULL;
  return sl__fail(SL_NO_MEMORY, "no memory for %s", what);
}

int sl__megabyte_digits(double bytes, double other) {
  const int most = 6;
  char text[32], others[sizeof text];
  for (int digits = 1; digits < most; digits++) {
    snprintf(text, sizeof text, "%.*f", digits, bytes / 1e6);
    snprintf(others, sizeof others, "%.*f", digits, other / 1e6);
    if (strcmp(text, others) != 0) return digits;
  }
  return most;
}

char *sl__trim(char *text) {
  while (isspace((unsigned char)*text)) text++;
  size_t length = strlen(text);
  while (length && isspace((unsigned char)text[length - 1])) text[--length] = 0;
  return text;
}
