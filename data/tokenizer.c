/* Tokenizers: tokens by id and by their bytes, and the table of merges. */
#include "data/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

enum sl_status sl_token_pattern_parse(const char *name, enum sl_token_pattern *pattern) {
  SL__NEEDS(name, pattern);
  if (!strcmp(name, "gpt2"))
    *pattern = SL_PATTERN_GPT2;
  else if (!strcmp(name, "llama3"))
    *pattern = SL_PATTERN_LLAMA3;
  else
    return sl__fail(SL_BAD_ARGUMENT, "token pattern '%s' is unknown; use gpt2 or llama3", name);
  return SL_OK;
}

/* ---- the table of merges ---- */

static struct sl__merge *find_merge(const struct sl_tokenizer *t, uint64_t pair) {
  size_t i = (size_t)((pair * UINT64_C(0x9E3779B97F4A7C15)) >> 32);
  for (;; i++) {
    struct sl__merge *slot = &t->merges[i & (t->merge_slots - 1)];
    if (slot->pair == pair || slot->pair == SL__NO_PAIR) return slot;
  }
}

static uint64_t pair_of(int32_t left, int32_t right) {
  return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

const struct sl__merge *sl__tokenizer_merge(const struct sl_tokenizer *t, int32_t left,
                                            int32_t right) {
  const struct sl__merge *slot = find_merge(t, pair_of(left, right));
  return slot->pair == SL__NO_PAIR ? NULL : slot;
}

static enum sl_status enter_merge(const char *name, struct sl_tokenizer *t, size_t rank,
                                  char *room) {
  const struct sl__token_pair pair = t->pairs[rank];
  const struct sl__token *left = &t->tokens[pair.left], *right = &t->tokens[pair.right];
  memcpy(room, left->bytes, left->length);
  memcpy(room + left->length, right->bytes, right->length);
  int64_t at = sl__words_find(&t->table, room, left->length + right->length);
  if (at < 0)
    return sl__fail(SL_BAD_FILE,
                    "%s: merge %zu, of tokens %d and %d, makes a token that the vocabulary does "
                    "not have; is the file damaged?",
                    name, rank, pair.left, pair.right);
  /* of a pair that comes twice the last one counts, as Hugging Face has it */
  *find_merge(t, pair_of(pair.left, pair.right)) = (struct sl__merge){
      pair_of(pair.left, pair.right), (int32_t)t->table.entries[at].count, (uint32_t)rank};
  return SL_OK;
}

static enum sl_status make_merges(const char *name, struct sl_tokenizer *t,
                                  const struct sl__token_pair *pairs, size_t count) {
  enum sl_status status = SL_OK;
  size_t longest = 0;
  for (int64_t id = 0; id < t->size; id++)
    if (t->tokens[id].length > longest) longest = t->tokens[id].length;
  char *room = sl__alloc(2 * longest + 1, 1, "a merge");
  t->merge_slots = 16;
  while (t->merge_slots < 2 * count) t->merge_slots *= 2;
  t->merges = sl__alloc(t->merge_slots, sizeof *t->merges, "a tokenizer's merges");
  t->pairs = sl__alloc(count + 1, sizeof *t->pairs, "a tokenizer's merges");
  if (!room || !t->merges || !t->pairs) SL__TRY(SL_NO_MEMORY);
  if (count) memcpy(t->pairs, pairs, count * sizeof *pairs);
  t->pair_count = count;
  for (size_t i = 0; i < t->merge_slots; i++) t->merges[i].pair = SL__NO_PAIR;
  for (size_t rank = 0; rank < count; rank++) SL__TRY(enter_merge(name, t, rank, room));
out:
  free(room);
  return status;
}

/* ---- tokens ---- */

static enum sl_status copy_tokens(struct sl_tokenizer *t, const struct sl__token *tokens,
                                  int64_t size) {
  size_t bytes = 0;
  for (int64_t id = 0; id < size; id++) bytes += tokens[id].length + 1;
  t->tokens = sl__alloc((size_t)size, sizeof *tokens, "a tokenizer");
  t->storage = sl__alloc(bytes, 1, "a tokenizer's tokens");
  if (!t->tokens || !t->storage) return SL_NO_MEMORY;
  memcpy(t->tokens, tokens, (size_t)size * sizeof *tokens);
  t->size = size;
  char *to = t->storage; /* zeroed: each token has its end */
  for (int64_t id = 0; id < size; id++) {
    if (tokens[id].length) memcpy(to, tokens[id].bytes, tokens[id].length);
    t->tokens[id].bytes = to;
    to += tokens[id].length + 1;
  }
  return SL_OK;
}

static enum sl_status make_table(const char *name, struct sl_tokenizer *t) {
  size_t count = 0;
  struct sl__word *entry;
  for (int64_t id = 0; id < t->size; id++)
    count += (t->tokens[id].flags & SL__TOKEN_VOCABULARY) > 0;
  enum sl_status status = sl__words_reserve(&t->table, count + 1);
  for (int64_t id = 0; id < t->size && status == SL_OK; id++) {
    const struct sl__token *token = &t->tokens[id];
    if (!(token->flags & SL__TOKEN_VOCABULARY) || token->flags & SL__TOKEN_LITERAL) continue;
    status = sl__words_add(&t->table, token->bytes, token->length, &entry);
    if (status == SL_OK) entry->count = id;
  }
  for (int b = 0; b < SL__BYTE_TOKENS && status == SL_OK; b++) {
    int64_t at = sl__words_find(&t->table, &(char){(char)b}, 1);
    if (at < 0)
      return sl__fail(SL_BAD_FILE,
                      "%s: its vocabulary has no token for the byte 0x%02X; only byte-level BPE "
                      "with all 256 bytes is read",
                      name, (unsigned)b);
    t->bytes[b] = (int32_t)t->table.entries[at].count;
  }
  return status;
}

/* An added token and its place in the order of the search. */
struct added {
  uint32_t length;
  int32_t id;
};

static int longest_first(const void *a, const void *b) {
  const struct added *one = a, *other = b;
  if (one->length != other->length) return one->length < other->length ? 1 : -1;
  return one->id < other->id ? -1 : 1;
}

static enum sl_status list_added(struct sl_tokenizer *t) {
  int64_t count = 0;
  for (int64_t id = 0; id < t->size; id++) count += (t->tokens[id].flags & SL__TOKEN_ADDED) > 0;
  struct added *list = sl__alloc((size_t)count + 1, sizeof *list, "added tokens");
  t->added = sl__alloc((size_t)count + 1, sizeof *t->added, "added tokens");
  if (list && t->added) {
    for (int64_t id = 0; id < t->size; id++) {
      const struct sl__token *token = &t->tokens[id];
      if (!(token->flags & SL__TOKEN_ADDED)) continue;
      list[t->added_count++] = (struct added){token->length, (int32_t)id};
      t->begins_added[(uint8_t)token->bytes[0]] = true;
    }
    qsort(list, (size_t)count, sizeof *list, longest_first);
    for (int64_t i = 0; i < count; i++) t->added[i] = list[i].id;
  }
  free(list);
  return list && t->added ? SL_OK : SL_NO_MEMORY;
}

enum sl_status sl__tokenizer_make(const char *name, const struct sl__tokenizer_settings *settings,
                                  const struct sl__token *tokens, int64_t size,
                                  const struct sl__token_pair *pairs, size_t pair_count,
                                  struct sl_tokenizer **tokenizer) {
  enum sl_status status;
  struct sl_tokenizer *t = sl__alloc(1, sizeof *t, "a tokenizer");
  if (!t) return SL_NO_MEMORY;
  t->settings = *settings;
  SL__TRY(copy_tokens(t, tokens, size));
  SL__TRY(make_table(name, t));
  SL__TRY(make_merges(name, t, pairs, pair_count));
  SL__TRY(list_added(t));
  *tokenizer = t;
  t = NULL;
out:
  sl_tokenizer_close(t);
  return status;
}

void sl_tokenizer_close(struct sl_tokenizer *tokenizer) {
  if (!tokenizer) return;
  sl__words_free(&tokenizer->table);
  free(tokenizer->tokens);
  free(tokenizer->storage);
  free(tokenizer->pairs);
  free(tokenizer->merges);
  free(tokenizer->added);
  free(tokenizer->post_processor);
  free(tokenizer);
}

/* ---- a tokenizer's properties ---- */

int64_t sl_tokenizer_size(const struct sl_tokenizer *tokenizer) {
  SL__NEEDS_OR(0, tokenizer);
  return tokenizer->size;
}

const char *sl_tokenizer_token(const struct sl_tokenizer *tokenizer, int64_t id, size_t *length) {
  SL__NEEDS_OR(NULL, tokenizer, length);
  if (id < 0 || id >= tokenizer->size || !(tokenizer->tokens[id].flags & SL__TOKEN_USED))
    return NULL;
  *length = tokenizer->tokens[id].length;
  return tokenizer->tokens[id].bytes;
}

bool sl_tokenizer_is_special(const struct sl_tokenizer *tokenizer, int64_t id) {
  SL__NEEDS_OR(false, tokenizer);
  return id >= 0 && id < tokenizer->size && tokenizer->tokens[id].flags & SL__TOKEN_SPECIAL;
}

int32_t sl_tokenizer_find(const struct sl_tokenizer *tokenizer, const char *bytes, size_t length) {
  SL__NEEDS_OR(-1, tokenizer, bytes);
  for (int64_t i = 0; i < tokenizer->added_count; i++) {
    const struct sl__token *token = &tokenizer->tokens[tokenizer->added[i]];
    if (token->length == length && memcmp(token->bytes, bytes, length) == 0)
      return tokenizer->added[i];
  }
  int64_t at = sl__words_find(&tokenizer->table, bytes, length);
  return at < 0 ? -1 : (int32_t)tokenizer->table.entries[at].count;
}

enum sl_status sl_tokenizer_decode(const struct sl_tokenizer *tokenizer, const int32_t *tokens,
                                   int64_t count, char **text, size_t *size) {
  SL__NEEDS(tokenizer, text, size);
  if (count) SL__NEEDS(tokens);
  size_t total = 0, length;
  for (int64_t i = 0; i < count; i++) {
    if (!sl_tokenizer_token(tokenizer, tokens[i], &length))
      return sl__fail(SL_BAD_ARGUMENT,
                      "token %lld is %d, which the tokenizer does not have: it has 0 to %lld; are "
                      "the tokens of another one?",
                      (long long)i, tokens[i], (long long)tokenizer->size - 1);
    total += length;
  }
  char *bytes = sl__alloc(total + 1, 1, "a text"), *to = bytes;
  if (!bytes) return SL_NO_MEMORY;
  for (int64_t i = 0; i < count; i++) {
    const char *token = sl_tokenizer_token(tokenizer, tokens[i], &length);
    memcpy(to, token, length);
    to += length;
  }
  *text = bytes;
  *size = total;
  return SL_OK;
}
