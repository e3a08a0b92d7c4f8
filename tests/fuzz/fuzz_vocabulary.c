/* A vocabulary's file: whatever parses has words that it finds again. */
#include "data/vocabulary.h"
#include "tests/fuzz/fuzz.h"

FUZZER(vocabulary)(const uint8_t *bytes, size_t size) {
  struct sl_vocabulary *v;
  if (sl__vocabulary_parse("file", bytes, size, &v) != SL_OK) return 0;
  for (int64_t id = 0; id < sl_vocabulary_size(v); id++) {
    const char *word = sl_vocabulary_word(v, id);
    if (!word || sl_vocabulary_find(v, word, strlen(word)) != id) abort();
  }
  sl_vocabulary_free(v);
  return 0;
}
