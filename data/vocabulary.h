/* The members of a vocabulary, for the two files that make one: from a text (vocabulary.c) and from
 * a file (vocabulary_json.c). */
#ifndef SL_DATA_VOCABULARY_H
#define SL_DATA_VOCABULARY_H

#include <starling/text.h>

#include "data/word_table.h"

#define SL__MOST_WORDS ((size_t)1 << 26) /* ids and slots fit 32 bits with room to spare */
#define SL__WORD_UNKNOWN "<unk>"
#define SL__WORD_LINE_END "<eos>"

struct sl_vocabulary {
  enum sl_text_level level;
  struct sl__word_table table;
  char *storage; /* all words, each ended by a zero */
};

/* Makes a vocabulary of the given words, which are copied. */
enum sl_status sl__vocabulary_make(enum sl_text_level level, const struct sl__word *entries,
                                   size_t count, struct sl_vocabulary **result);

/* The vocabulary of a file's bytes; path is for messages. */
enum sl_status sl__vocabulary_parse(const char *path, const uint8_t *bytes, size_t size,
                                    struct sl_vocabulary **vocabulary);

/* Adds the words that come before all others to an empty table: <unk>, and for words <eos>. */
enum sl_status sl__vocabulary_specials(enum sl_text_level level, struct sl__word_table *table);

static inline bool sl__is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r'); /* '\n' is a blank, too */
}

#endif
