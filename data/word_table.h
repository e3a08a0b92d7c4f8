/* A table of words: entries in the order of their ids, found by hashing. */
#ifndef SL_DATA_WORD_TABLE_H
#define SL_DATA_WORD_TABLE_H

#include <starling/base.h>

struct sl__word {
  const char *bytes;
  size_t length;
  int64_t count;
};

/* Zeroed: empty. */
struct sl__word_table {
  struct sl__word *entries;
  size_t count, capacity;
  int32_t *slots; /* id + 1, or 0 if free; a power of two of slots, at most half of them used */
  size_t slot_count;
};

enum sl_status sl__words_reserve(struct sl__word_table *table, size_t capacity);
/* The word's entry; a new one of count 0 if there is none. The bytes are not copied. */
enum sl_status sl__words_add(struct sl__word_table *table, const char *bytes, size_t length,
                             struct sl__word **entry);
/* The word's id, or -1. The table must have been reserved or added to. */
int64_t sl__words_find(const struct sl__word_table *table, const char *bytes, size_t length);
void sl__words_free(struct sl__word_table *table);

#endif
