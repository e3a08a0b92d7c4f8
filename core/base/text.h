/* A text that is written piece by piece, with decimal points whatever the program's locale. */
#ifndef SL_CORE_BASE_TEXT_H
#define SL_CORE_BASE_TEXT_H

#include <locale.h>
#include <starling/base.h>
#include <stdio.h>

struct sl__text {
  FILE *out; /* NULL: no memory */
  char *text;
  size_t size;
  locale_t locale;
};

/* Begins a text, in the C locale of numbers, until sl__text_end by the same thread. Returns where
 * to print; NULL without memory. */
FILE *sl__text_begin(struct sl__text *t);

/* Ends it, also after a begin without memory. *text is the text, which the caller frees; on failure
 * NULL. what: "a summary". \return SL_NO_MEMORY. */
enum sl_status sl__text_end(struct sl__text *t, const char *what, char **text);

/* Decimals of MB, 1 or more, with which two numbers of bytes differ in a message. */
int sl__megabyte_digits(double bytes, double other);

/* The text without the blanks around it; changes the text. */
char *sl__trim(char *text);

#endif
