/* Vocabularies: words (or bytes) to ids and back, made from a text. */
#include "data/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

enum sl_status sl__vocabulary_make(enum sl_text_level level, const struct sl__word *entries,
                                   size_t count, struct sl_vocabulary **result) {
  enum sl_status status;
  size_t size = 0;
  struct sl_vocabulary *v = sl__alloc(1, sizeof *v, "a vocabulary");
  if (!v) return SL_NO_MEMORY;
  v->level = level;
  for (size_t i = 0; i < count; i++) size += entries[i].length + 1;
  v->storage = sl__alloc(size, 1, "a vocabulary's words");
  if (!v->storage) SL__TRY(SL_NO_MEMORY);
  SL__TRY(sl__words_reserve(&v->table, count));
  char *to = v->storage;
  for (size_t i = 0; i < count; i++) {
    struct sl__word *added;
    memcpy(to, entries[i].bytes, entries[i].length); /* storage is zeroed: the word has its end */
    SL__TRY(sl__words_add(&v->table, to, entries[i].length, &added));
    to += entries[i].length + 1;
  }
  *result = v;
  v = NULL;
out:
  sl_vocabulary_free(v);
  return status;
}

void sl_vocabulary_free(struct sl_vocabulary *vocabulary) {
  if (!vocabulary) return;
  sl__words_free(&vocabulary->table);
  free(vocabulary->storage);
  free(vocabulary);
}

enum sl_text_level sl_vocabulary_level(const struct sl_vocabulary *vocabulary) {
  SL__NEEDS_OR(SL_TEXT_WORD, vocabulary);
  return vocabulary->level;
}

int64_t sl_vocabulary_size(const struct sl_vocabulary *vocabulary) {
  SL__NEEDS_OR(0, vocabulary);
  return (int64_t)vocabulary->table.count;
}

const char *sl_vocabulary_word(const struct sl_vocabulary *vocabulary, int64_t id) {
  SL__NEEDS_OR(NULL, vocabulary);
  return id >= 0 && (size_t)id < vocabulary->table.count ? vocabulary->table.entries[id].bytes
                                                         : NULL;
}

int32_t sl_vocabulary_find(const struct sl_vocabulary *vocabulary, const char *bytes,
                           size_t length) {
  SL__NEEDS_OR(0, vocabulary);
  if (length) SL__NEEDS_OR(0, bytes);
  int64_t id = sl__words_find(&vocabulary->table, bytes, length);
  return id < 0 ? 0 : (int32_t)id;
}

/* ---- tokens of a text ---- */

/* The next token after *at; false at the end. A line end is the word <eos>. */
static bool next_token(enum sl_text_level level, const char **at, const char *end,
                       const char **bytes, size_t *length) {
  const char *p = *at;
  if (level == SL_TEXT_WORD)
    while (p < end && sl__is_blank(*p) && *p != '\n') p++;
  if (p == end) return false;
  *bytes = p++;
  if (level == SL_TEXT_WORD && **bytes == '\n') {
    *bytes = SL__WORD_LINE_END;
    *length = strlen(SL__WORD_LINE_END);
  } else {
    while (level == SL_TEXT_WORD && p < end && !sl__is_blank(*p)) p++;
    *length = (size_t)(p - *bytes);
  }
  *at = p;
  return true;
}

enum sl_status sl_vocabulary_encode(const struct sl_vocabulary *vocabulary, const char *text,
                                    size_t size, int32_t **tokens, int64_t *count) {
  SL__NEEDS(vocabulary, tokens, count);
  if (size) SL__NEEDS(text);
  const char *at = text, *end = text + size, *bytes;
  size_t length, n = 0;
  while (next_token(vocabulary->level, &at, end, &bytes, &length)) n++;
  int32_t *ids = sl__alloc(n, sizeof *ids, "tokens");
  if (!ids) return SL_NO_MEMORY;
  at = text;
  for (size_t i = 0; next_token(vocabulary->level, &at, end, &bytes, &length); i++)
    ids[i] = sl_vocabulary_find(vocabulary, bytes, length);
  *tokens = ids;
  *count = (int64_t)n;
  return SL_OK;
}

/* ---- from a text ---- */

/* Order of strcmp: a word comes before longer words that begin with it. */
static int by_bytes(const void *a, const void *b) {
  const struct sl__word *one = a, *other = b;
  size_t shorter = one->length < other->length ? one->length : other->length;
  int order = memcmp(one->bytes, other->bytes, shorter);
  return order ? order : (one->length > other->length) - (one->length < other->length);
}

static int by_count(const void *a, const void *b) {
  const struct sl__word *one = a, *other = b;
  if (one->count != other->count) return one->count < other->count ? 1 : -1;
  return by_bytes(a, b);
}

enum sl_status sl__vocabulary_specials(enum sl_text_level level, struct sl__word_table *table) {
  struct sl__word *entry;
  enum sl_status status = sl__words_add(table, SL__WORD_UNKNOWN, strlen(SL__WORD_UNKNOWN), &entry);
  if (status == SL_OK && level == SL_TEXT_WORD)
    status = sl__words_add(table, SL__WORD_LINE_END, strlen(SL__WORD_LINE_END), &entry);
  return status;
}

static enum sl_status count_tokens(enum sl_text_level level, const char *text, size_t size,
                                   struct sl__word_table *table) {
  const char *at = text, *end = text + size, *bytes;
  struct sl__word *entry;
  size_t length;
  while (next_token(level, &at, end, &bytes, &length)) {
    enum sl_status status = sl__words_add(table, bytes, length, &entry);
    if (status != SL_OK) return status;
    entry->count++;
    if (table->count > SL__MOST_WORDS)
      return sl__fail(SL_BAD_ARGUMENT,
                      "the text has more than %zu different words; take its characters instead",
                      SL__MOST_WORDS);
  }
  return SL_OK;
}

static enum sl_status check_arguments(enum sl_text_level level, const char *text, size_t size,
                                      int64_t least_count, int64_t most_words) {
  if (level != SL_TEXT_WORD && level != SL_TEXT_CHAR)
    return sl__fail(SL_BAD_ARGUMENT, "text level %d is unknown; use SL_TEXT_WORD or SL_TEXT_CHAR",
                    (int)level);
  if (size == 0) return sl__fail(SL_BAD_ARGUMENT, "the text is empty; a vocabulary needs some");
  if (memchr(text, 0, size))
    return sl__fail(SL_BAD_ARGUMENT, "the text has zero bytes; is it one?");
  if (least_count < 0 || most_words < 0 || most_words == 1)
    return sl__fail(
        SL_BAD_ARGUMENT,
        "a vocabulary of at most %lld words that occur %lld times cannot be made; use 0 "
        "for no bound, or at least 2 words",
        (long long)most_words, (long long)least_count);
  return SL_OK;
}

/* Sorts frequent words to the front; returns the number of words to keep. */
static size_t cut_off(struct sl__word_table *table, size_t specials, int64_t least_count,
                      int64_t most_words) {
  size_t kept = table->count;
  qsort(table->entries + specials, table->count - specials, sizeof *table->entries, by_count);
  if (most_words > 0 && kept > (size_t)most_words) kept = (size_t)most_words;
  while (kept > specials && table->entries[kept - 1].count < least_count) kept--;
  return kept;
}

enum sl_status sl_vocabulary_new(enum sl_text_level level, const char *text, size_t size,
                                 int64_t least_count, int64_t most_words,
                                 struct sl_vocabulary **vocabulary) {
  SL__NEEDS(text, vocabulary);
  enum sl_status status;
  struct sl__word_table table = {0};
  SL__TRY(check_arguments(level, text, size, least_count, most_words));
  SL__TRY(sl__vocabulary_specials(level, &table));
  size_t specials = table.count;
  SL__TRY(count_tokens(level, text, size, &table));
  size_t kept = cut_off(&table, specials, least_count, most_words);
  if (level == SL_TEXT_CHAR)
    qsort(table.entries + specials, kept - specials, sizeof *table.entries, by_bytes);
  SL__TRY(sl__vocabulary_make(level, table.entries, kept, vocabulary));
out:
  sl__words_free(&table);
  return status;
}
