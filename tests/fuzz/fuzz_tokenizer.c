/* A tokenizer's file, and a text behind it, after a zero byte: a tokenizer that opens gives tokens
 * that are the text again, also after it was saved and opened anew. Without a file, merges are
 * learned from the text itself. */
#include "data/tokenizer.h"
#include "tests/fuzz/fuzz.h"

/* Added tokens may take blanks with them, and a blank may come before a text: then only the ids are
 * checked. */
static bool keeps_text(const struct sl_tokenizer *t) {
  for (int64_t id = 0; id < t->size; id++)
    if (t->tokens[id].flags & (SL__TOKEN_TAKES_LEFT | SL__TOKEN_TAKES_RIGHT)) return false;
  return !t->settings.prefix_space;
}

static void check(const struct sl_tokenizer *t, const char *text, size_t size, bool specials) {
  int32_t *tokens;
  int64_t count;
  char *again;
  size_t length;
  if (sl_tokenizer_encode(t, text, size, specials, &tokens, &count) != SL_OK) abort();
  if (sl_tokenizer_decode(t, tokens, count, &again, &length) != SL_OK) abort();
  if (keeps_text(t) && (length != size || (size && memcmp(again, text, size) != 0))) abort();
  free(tokens);
  free(again);
}

static void check_saved(const struct sl_tokenizer *t, const char *text, size_t size) {
  char path[] = "/tmp/starling-fuzz-XXXXXX";
  struct sl_tokenizer *again;
  int file = mkstemp(path);
  if (file < 0) abort();
  close(file);
  if (sl_tokenizer_save(t, path) != SL_OK || sl_tokenizer_open(path, &again) != SL_OK) abort();
  unlink(path);
  check(again, text, size, true);
  sl_tokenizer_close(again);
}

FUZZER(tokenizer)(const uint8_t *bytes, size_t size) {
  struct sl_tokenizer *t;
  const uint8_t *end = size ? memchr(bytes, 0, size) : NULL;
  size_t json = end ? (size_t)(end - bytes) : size;
  const char *text = (const char *)bytes + json + (end != NULL);
  size_t length = size - json - (end != NULL);
  if (json <= 1) {
    const struct sl_tokenizer_options options = {
        .size = 300, .pattern = json && bytes[0] & 1 ? SL_PATTERN_LLAMA3 : SL_PATTERN_GPT2};
    if (sl_tokenizer_train(&options, &text, &length, 1, &t) != SL_OK) abort();
  } else if (sl__tokenizer_parse("file", bytes, json, &t) != SL_OK) {
    return 0;
  }
  check(t, text, length, true);
  check(t, text, length, false);
  if (bytes && size && bytes[size - 1] == '.') check_saved(t, text, length);
  sl_tokenizer_close(t);
  return 0;
}
