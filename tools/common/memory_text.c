#include "tools/common/memory_text.h"

#include <stdbool.h>
#include <stdlib.h>

FILE *memory_text_begin(struct memory_text *text) {
  *text = (struct memory_text){0};
  return text->out = open_memstream(&text->text, &text->size);
}

char *memory_text_end(struct memory_text *text, size_t *size) {
  if (!text->out) return NULL;
  bool whole = !ferror(text->out);
  whole &= fclose(text->out) == 0;
  if (size) *size = text->size;
  if (whole) return text->text;
  free(text->text);
  return NULL;
}
