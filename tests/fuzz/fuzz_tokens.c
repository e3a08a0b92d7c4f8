/* The tokenizer: a vocabulary is made of a text, words or bytes by the first byte, and encodes that
 * text and a part of it. The second and the third byte bound the vocabulary. */
#include "data/vocabulary.h"
#include "tests/fuzz/fuzz.h"

static void encode(const struct sl_vocabulary *v, const char *text, size_t size) {
  int32_t *tokens;
  int64_t count;
  if (sl_vocabulary_encode(v, text, size, &tokens, &count) != SL_OK) abort();
  if ((size_t)count > size) abort();
  for (int64_t i = 0; i < count; i++)
    if (!sl_vocabulary_word(v, tokens[i])) abort();
  free(tokens);
}

FUZZER(tokens)(const uint8_t *bytes, size_t size) {
  uint8_t head[3];
  struct sl_vocabulary *v;
  fuzz_take(&bytes, &size, head, sizeof head);
  enum sl_text_level level = head[0] & 1 ? SL_TEXT_CHAR : SL_TEXT_WORD;
  if (sl_vocabulary_new(level, (const char *)bytes, size, head[1], head[2], &v) != SL_OK) return 0;
  encode(v, (const char *)bytes, size);
  encode(v, (const char *)bytes + size / 2, size - size / 2);
  sl_vocabulary_free(v);
  return 0;
}
