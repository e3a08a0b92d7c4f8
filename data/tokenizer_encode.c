/* Texts to tokens: added tokens are found first; what is between them is cut into pieces; each
 * piece is merged on its own, and pieces that came before are copied. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "data/tokenizer.h"

enum { MAX_CACHED = 64, LEAST_SLOTS = 64, MOST_SLOTS = 1 << 16 };

/* A symbol of a piece: bytes that are one token so far. */
struct symbol {
  int32_t token;
  uint32_t rank;           /* of the merge with the next symbol; SL__NO_RANK: none */
  uint32_t previous, next; /* NO_SYMBOL: none */
};
#define NO_SYMBOL UINT32_MAX

/* A piece that was encoded, and where its tokens are among those of the text. */
struct cached {
  const char *bytes;
  size_t first;
  uint32_t length, count;
};

struct encoder {
  const struct sl_tokenizer *tokenizer;
  bool specials;
  int32_t *ids;
  size_t count, capacity;
  struct cached *cache; /* [slots], a power of two */
  size_t slots;
  struct symbol *symbols; /* [room] */
  uint64_t *heap;         /* [3 room], of rank << 32 | symbol */
  size_t room, heap_count;
  char *prefixed; /* copies of texts with a blank before them, since the cache points at them */
  size_t prefixed_used;
};

static enum sl_status reserve_ids(struct encoder *e, size_t more) {
  if (e->count + more <= e->capacity) return SL_OK;
  size_t capacity = (e->count + more) * 3 / 2;
  int32_t *grown = sl__realloc(e->ids, capacity, sizeof *grown, "tokens");
  if (!grown) return SL_NO_MEMORY;
  e->ids = grown;
  e->capacity = capacity;
  return SL_OK;
}

/* ---- a heap of merges, the one of least rank, then the leftmost, on top ---- */

static void heap_push(struct encoder *e, uint64_t key) {
  size_t at = e->heap_count++;
  for (; at > 0 && e->heap[(at - 1) / 2] > key; at = (at - 1) / 2)
    e->heap[at] = e->heap[(at - 1) / 2];
  e->heap[at] = key;
}

static uint64_t heap_pop(struct encoder *e) {
  uint64_t top = e->heap[0], key = e->heap[--e->heap_count];
  size_t at = 0, child;
  while ((child = 2 * at + 1) < e->heap_count) {
    if (child + 1 < e->heap_count && e->heap[child + 1] < e->heap[child]) child++;
    if (e->heap[child] >= key) break;
    e->heap[at] = e->heap[child];
    at = child;
  }
  e->heap[at] = key;
  return top;
}

/* ---- one piece ---- */

static void rank_symbol(struct encoder *e, uint32_t at) {
  struct symbol *s = &e->symbols[at];
  const struct sl__merge *merge =
      s->next == NO_SYMBOL ? NULL
                           : sl__tokenizer_merge(e->tokenizer, s->token, e->symbols[s->next].token);
  s->rank = merge ? merge->rank : SL__NO_RANK;
  if (merge) heap_push(e, (uint64_t)merge->rank << 32 | at);
}

/* Makes one symbol of this one and the next. */
static void merge_symbol(struct encoder *e, uint32_t at) {
  struct symbol *s = &e->symbols[at], *gone = &e->symbols[s->next];
  s->token = sl__tokenizer_merge(e->tokenizer, s->token, gone->token)->token;
  s->next = gone->next;
  gone->rank = SL__NO_RANK;
  if (s->next != NO_SYMBOL) e->symbols[s->next].previous = at;
  rank_symbol(e, at);
  if (s->previous != NO_SYMBOL) rank_symbol(e, s->previous);
}

static enum sl_status reserve_symbols(struct encoder *e, size_t length) {
  if (length <= e->room) return SL_OK;
  if (length >= SL__NO_RANK / 4)
    return sl__fail(SL_BAD_ARGUMENT,
                    "the text has a piece of %zu bytes without a place to cut it; is it a text?",
                    length);
  size_t room = length + length / 2;
  struct symbol *symbols = sl__realloc(e->symbols, room, sizeof *symbols, "symbols of a piece");
  if (!symbols) return SL_NO_MEMORY;
  e->symbols = symbols;
  uint64_t *heap = sl__realloc(e->heap, 3 * room, sizeof *heap, "merges of a piece");
  if (!heap) return SL_NO_MEMORY;
  e->heap = heap;
  e->room = room;
  return SL_OK;
}

static enum sl_status merge_piece(struct encoder *e, const char *piece, size_t length) {
  enum sl_status status = reserve_symbols(e, length);
  if (status == SL_OK) status = reserve_ids(e, length);
  if (status != SL_OK) return status;
  e->heap_count = 0;
  for (uint32_t i = 0; i < length; i++)
    e->symbols[i] = (struct symbol){e->tokenizer->bytes[(uint8_t)piece[i]], SL__NO_RANK, i - 1,
                                    i + 1 < length ? i + 1 : NO_SYMBOL};
  for (uint32_t i = 0; i < length; i++) rank_symbol(e, i);
  while (e->heap_count) {
    uint64_t top = heap_pop(e);
    if (e->symbols[(uint32_t)top].rank == top >> 32) merge_symbol(e, (uint32_t)top);
  }
  for (uint32_t i = 0; i != NO_SYMBOL; i = e->symbols[i].next)
    e->ids[e->count++] = e->symbols[i].token;
  return SL_OK;
}

static enum sl_status encode_new(struct encoder *e, const char *piece, size_t length) {
  if (e->tokenizer->settings.ignore_merges) {
    int64_t at = sl__words_find(&e->tokenizer->table, piece, length);
    enum sl_status status = at < 0 ? SL_OK : reserve_ids(e, 1);
    if (status != SL_OK) return status;
    if (at >= 0) e->ids[e->count++] = (int32_t)e->tokenizer->table.entries[at].count;
    if (at >= 0) return SL_OK;
  }
  return merge_piece(e, piece, length);
}

static enum sl_status encode_piece(struct encoder *e, const char *piece, size_t length) {
  if (length > MAX_CACHED) return encode_new(e, piece, length);
  uint64_t hash = sl__fnv1a(piece, length);
  struct cached *known = &e->cache[(hash ^ hash >> 32) & (e->slots - 1)];
  if (known->length == length && memcmp(known->bytes, piece, length) == 0) {
    enum sl_status status = reserve_ids(e, known->count);
    if (status != SL_OK) return status;
    for (uint32_t i = 0; i < known->count; i++) e->ids[e->count + i] = e->ids[known->first + i];
    e->count += known->count;
    return SL_OK;
  }
  size_t first = e->count;
  enum sl_status status = encode_new(e, piece, length);
  *known = (struct cached){piece, first, (uint32_t)length, (uint32_t)(e->count - first)};
  return status;
}

/* ---- the text ---- */

static enum sl_status encode_pieces(struct encoder *e, const char *text, size_t size) {
  const struct sl__tokenizer_settings *settings = &e->tokenizer->settings;
  enum sl_status status = SL_OK;
  if (settings->prefix_space && size > 0 && text[0] != ' ') {
    char *copy = e->prefixed + e->prefixed_used;
    copy[0] = ' ';
    memcpy(copy + 1, text, size);
    e->prefixed_used += ++size;
    text = copy;
  }
  while (size > 0 && status == SL_OK) {
    size_t length = sl__piece_length(settings->pattern, text, size);
    status = encode_piece(e, text, length);
    text += length;
    size -= length;
  }
  return status;
}

/* The longest added token, of those that are late or not, that a text begins with; -1: none. */
static int32_t added_at(const struct sl_tokenizer *t, bool late, const char *text, size_t size) {
  for (int64_t i = 0; i < t->added_count; i++) {
    const struct sl__token *token = &t->tokens[t->added[i]];
    if (!(token->flags & SL__TOKEN_LATE) == !late && token->length <= size &&
        memcmp(token->bytes, text, token->length) == 0)
      return t->added[i];
  }
  return -1;
}

/* Encodes a text between added tokens, and the ones in it: first those that are not late. */
static enum sl_status encode_text(struct encoder *e, bool late, const char *text, size_t size) {
  const struct sl_tokenizer *t = e->tokenizer;
  enum sl_status status = SL_OK;
  size_t begin = 0, at = 0;
  while (at < size) {
    int32_t id = t->begins_added[(uint8_t)text[at]] ? added_at(t, late, text + at, size - at) : -1;
    if (id < 0) {
      at++;
      continue;
    }
    uint32_t flags = t->tokens[id].flags;
    size_t first = at;
    at += t->tokens[id].length;
    if (flags & SL__TOKEN_SPECIAL && !e->specials) continue;
    if (flags & SL__TOKEN_TAKES_LEFT) first -= sl__blanks_at_end(text + begin, first - begin);
    if (flags & SL__TOKEN_TAKES_RIGHT) at += sl__blanks_at_begin(text + at, size - at);
    SL__TRY(late ? encode_pieces(e, text + begin, first - begin)
                 : encode_text(e, true, text + begin, first - begin));
    SL__TRY(reserve_ids(e, 1));
    e->ids[e->count++] = id;
    begin = at;
  }
  SL__TRY(late ? encode_pieces(e, text + begin, size - begin)
               : encode_text(e, true, text + begin, size - begin));
out:
  return status;
}

static enum sl_status prepare(struct encoder *e, size_t size) {
  e->slots = LEAST_SLOTS;
  while (e->slots < MOST_SLOTS && e->slots < size / 16) e->slots *= 2;
  e->cache = sl__alloc(e->slots, sizeof *e->cache, "known pieces of a text");
  if (!e->cache) return SL_NO_MEMORY;
  if (e->tokenizer->settings.prefix_space) e->prefixed = sl__alloc(2, size + 1, "a text");
  if (e->tokenizer->settings.prefix_space && !e->prefixed) return SL_NO_MEMORY;
  return reserve_ids(e, size / 4 + 16);
}

enum sl_status sl_tokenizer_encode(const struct sl_tokenizer *tokenizer, const char *text,
                                   size_t size, bool specials, int32_t **tokens, int64_t *count) {
  SL__NEEDS(tokenizer, tokens, count);
  if (size) SL__NEEDS(text);
  struct encoder e = {.tokenizer = tokenizer, .specials = specials};
  enum sl_status status = prepare(&e, size);
  if (status == SL_OK && size) status = encode_text(&e, false, text, size);
  if (status == SL_OK) {
    *tokens = e.ids;
    *count = (int64_t)e.count;
    e.ids = NULL;
  }
  free(e.ids);
  free(e.cache);
  free(e.symbols);
  free(e.heap);
  free(e.prefixed);
  return status;
}
