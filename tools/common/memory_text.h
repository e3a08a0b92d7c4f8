/* A text that is printed into memory. What does not fit is no text: neither open_memstream's fclose
 * nor the functions that print tell that memory ended in the middle. */
#ifndef SL_TOOLS_COMMON_MEMORY_TEXT_H
#define SL_TOOLS_COMMON_MEMORY_TEXT_H

#include <stdio.h>

struct memory_text {
  FILE *out; /* where to print; NULL: no memory */
  char *text;
  size_t size;
};

/* \return its `out`. */
FILE *memory_text_begin(struct memory_text *text);

/* The whole text, which the caller frees; NULL: no memory for it. size, unless NULL, gets its bytes
 * without the '\0' behind them. Also after a begin without memory. */
char *memory_text_end(struct memory_text *text, size_t *size);

#endif
