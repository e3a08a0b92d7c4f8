/* Learns merges from texts. The counts, their order and what breaks ties are those of Hugging
 * Face's BpeTrainer, so that both learn the same tokens:
 *
 * The pair with the highest count is merged next, of equal ones the one with the smaller ids. A
 * pair waits in a heap with the words that had it when it came; its count may have changed when it
 * is on top: then it waits again with its new count. Counts are of places in all words, so "aaa"
 * has the pair (a, a) twice. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "data/tokenizer.h"

/* A pair of tokens, and the words in which it came up since it was last put into the heap. */
struct pair {
  uint64_t key; /* left << 32 | right */
  int64_t count;
  uint32_t words; /* chain of links; 0: none */
};

struct link {
  uint32_t word, next;
};

struct waiting {
  int64_t count;
  uint64_t key;
  uint32_t words;
};

struct trainer {
  const struct sl_tokenizer_options *options;
  struct sl__word_table words; /* different pieces of the text, and how often each occurs */
  int32_t *symbols;            /* tokens of all words */
  size_t *first;               /* [words + 1], of each word among the symbols */
  uint32_t *length;            /* [words], symbols left */
  struct sl__token *tokens;    /* [size, of at most options->size], their bytes to be freed */
  struct sl__word_table known; /* tokens by bytes, special ones by the bytes that a file's alphabet
                                  has for their characters; an entry's count is the id */
  uint32_t alphabet[SL__BYTE_TOKENS];
  char *spelled; /* those bytes of the special tokens, one behind the other */
  int64_t size;
  struct sl__token_pair *merges; /* [merge_count] */
  size_t merge_count, merge_room;
  struct pair *pairs; /* [pair_slots], a power of two; a key of SL__NO_PAIR is free */
  size_t pair_count, pair_slots;
  struct link *links; /* [link_count], from 1 on */
  size_t link_count, link_room;
  uint64_t *touched; /* [touched_count], pairs with words that do not wait yet */
  size_t touched_count, touched_room;
  struct waiting *heap;
  size_t heap_count, heap_room;
};

/* Room for one more element. */
static enum sl_status grow(void *array, size_t count, size_t *room, size_t size) {
  void **block = array;
  if (count < *room) return SL_OK;
  size_t wanted = *room ? *room * 2 : 256;
  void *grown = sl__realloc(*block, wanted, size, "the training of a tokenizer");
  if (!grown) return SL_NO_MEMORY;
  *block = grown;
  *room = wanted;
  return SL_OK;
}

/* ---- pairs ---- */

static struct pair *find_slot(const struct trainer *t, uint64_t key) {
  size_t i = (size_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 32);
  for (;; i++) {
    struct pair *slot = &t->pairs[i & (t->pair_slots - 1)];
    if (slot->key == key || slot->key == SL__NO_PAIR) return slot;
  }
}

static enum sl_status reserve_pair(struct trainer *t) {
  if (2 * t->pair_count < t->pair_slots) return SL_OK;
  struct trainer old = *t;
  t->pair_slots = old.pair_slots ? 2 * old.pair_slots : 1024;
  t->pairs = sl__alloc(t->pair_slots, sizeof *t->pairs, "pairs of tokens");
  if (!t->pairs) {
    *t = old;
    return SL_NO_MEMORY;
  }
  for (size_t i = 0; i < t->pair_slots; i++) t->pairs[i].key = SL__NO_PAIR;
  for (size_t i = 0; i < old.pair_slots; i++)
    if (old.pairs[i].key != SL__NO_PAIR) *find_slot(t, old.pairs[i].key) = old.pairs[i];
  free(old.pairs);
  return SL_OK;
}

/* Adds to a pair's count; one that comes up gets the word into its chain, once. */
static enum sl_status count_pair(struct trainer *t, int32_t left, int32_t right, int64_t change,
                                 uint32_t word) {
  enum sl_status status = SL_OK;
  uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  SL__TRY(reserve_pair(t));
  struct pair *pair = find_slot(t, key);
  if (pair->key == SL__NO_PAIR) {
    *pair = (struct pair){.key = key};
    t->pair_count++;
  }
  pair->count += change;
  if (change < 0 || (pair->words && t->links[pair->words].word == word)) return SL_OK;
  if (!pair->words) {
    SL__TRY(grow(&t->touched, t->touched_count, &t->touched_room, sizeof *t->touched));
    t->touched[t->touched_count++] = key;
  }
  SL__TRY(grow(&t->links, t->link_count, &t->link_room, sizeof *t->links));
  if (t->link_count > UINT32_MAX)
    SL__TRY(sl__fail(SL_NO_MEMORY, "the text is too large to train a tokenizer; take a part"));
  t->links[t->link_count] = (struct link){word, pair->words};
  pair->words = (uint32_t)t->link_count++;
out:
  return status;
}

/* ---- the heap ---- */

static bool goes_before(const struct waiting *a, const struct waiting *b) {
  return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static enum sl_status heap_push(struct trainer *t, struct waiting pair) {
  enum sl_status status = grow(&t->heap, t->heap_count, &t->heap_room, sizeof *t->heap);
  if (status != SL_OK) return status;
  size_t at = t->heap_count++;
  for (; at > 0 && goes_before(&pair, &t->heap[(at - 1) / 2]); at = (at - 1) / 2)
    t->heap[at] = t->heap[(at - 1) / 2];
  t->heap[at] = pair;
  return SL_OK;
}

static struct waiting heap_pop(struct trainer *t) {
  struct waiting top = t->heap[0], last = t->heap[--t->heap_count];
  size_t at = 0, child;
  while ((child = 2 * at + 1) < t->heap_count) {
    if (child + 1 < t->heap_count && goes_before(&t->heap[child + 1], &t->heap[child])) child++;
    if (!goes_before(&t->heap[child], &last)) break;
    t->heap[at] = t->heap[child];
    at = child;
  }
  t->heap[at] = last;
  return top;
}

/* The pairs that came up begin to wait. */
static enum sl_status put_touched(struct trainer *t) {
  enum sl_status status = SL_OK;
  for (size_t i = 0; i < t->touched_count && status == SL_OK; i++) {
    struct pair *pair = find_slot(t, t->touched[i]);
    if (pair->count > 0)
      status = heap_push(t, (struct waiting){pair->count, pair->key, pair->words});
    pair->words = 0;
  }
  t->touched_count = 0;
  return status;
}

/* ---- tokens ---- */

/* The last token is found under these bytes from now on. */
static enum sl_status know(struct trainer *t, const char *bytes, size_t length) {
  struct sl__word *entry;
  enum sl_status status = sl__words_add(&t->known, bytes, length, &entry);
  if (status == SL_OK) entry->count = t->size - 1;
  return status;
}

/* Takes the bytes, which sl__alloc made; NULL: no memory. */
static enum sl_status add_token(struct trainer *t, char *bytes, uint32_t length, uint32_t flags) {
  if (!bytes) return SL_NO_MEMORY;
  t->tokens[t->size++] = (struct sl__token){bytes, length, flags | SL__TOKEN_USED};
  return flags & SL__TOKEN_SPECIAL ? SL_OK : know(t, bytes, length);
}

static bool is_ascii(const char *text) {
  for (; *text; text++)
    if (*text < '!' || *text > '~') return false;
  return true;
}

/* spelled: where its bytes in the alphabet go; it moves on. */
static enum sl_status add_special(struct trainer *t, const char *text, char **spelled) {
  uint32_t flags = SL__TOKEN_VOCABULARY | SL__TOKEN_ADDED | SL__TOKEN_SPECIAL;
  for (int64_t id = 0; id < t->size; id++)
    if (!strcmp(t->tokens[id].bytes, text))
      return sl__fail(SL_BAD_ARGUMENT, "the special token '%s' is given twice", text);
  enum sl_status status = add_token(t, sl__strdup(text), (uint32_t)strlen(text),
                                    is_ascii(text) ? flags : flags | SL__TOKEN_LITERAL);
  size_t length;
  if (status != SL_OK || !sl__alphabet_bytes(t->alphabet, text, strlen(text), *spelled, &length))
    return status;
  status = know(t, *spelled, length);
  *spelled += length;
  return status;
}

static enum sl_status add_specials(struct trainer *t) {
  const struct sl_tokenizer_options *o = t->options;
  size_t room = 1;
  for (int i = 0; i < o->special_count; i++) room += strlen(o->specials[i]);
  char *spelled = t->spelled = sl__alloc(room, 1, "special tokens");
  enum sl_status status = spelled ? SL_OK : SL_NO_MEMORY;
  sl__byte_alphabet(t->alphabet);
  for (int i = 0; i < o->special_count && status == SL_OK; i++)
    status = add_special(t, o->specials[i], &spelled);
  return status;
}

/* The special tokens, then the bytes in the order of the alphabet's characters: first those that
 * are printed as they are. */
static enum sl_status add_alphabet(struct trainer *t) {
  enum sl_status status = sl__words_reserve(&t->known, (size_t)t->options->size);
  if (status == SL_OK) status = add_specials(t);
  for (int printed = 1; printed >= 0; printed--)
    for (int b = 0; b < SL__BYTE_TOKENS && status == SL_OK; b++) {
      if (sl__byte_is_printed(b) != printed) continue;
      int64_t at = sl__words_find(&t->known, &(char){(char)b}, 1);
      if (at >= 0)
        return sl__fail(SL_BAD_ARGUMENT,
                        "the special token '%s' stands for a byte in a tokenizer.json; take "
                        "longer ones",
                        t->tokens[t->known.entries[at].count].bytes);
      char *bytes = sl__alloc(2, 1, "a token");
      if (bytes) bytes[0] = (char)b;
      status = add_token(t, bytes, 1, SL__TOKEN_VOCABULARY);
    }
  return status;
}

/* The token of two others' bytes, which may be there already. */
static enum sl_status join_tokens(struct trainer *t, struct sl__token_pair pair, int32_t *id) {
  const struct sl__token *left = &t->tokens[pair.left], *right = &t->tokens[pair.right];
  uint32_t length = left->length + right->length;
  char *bytes = sl__alloc(length + 1, 1, "a token");
  if (!bytes) return SL_NO_MEMORY;
  memcpy(bytes, left->bytes, left->length);
  memcpy(bytes + left->length, right->bytes, right->length);
  int64_t at = sl__words_find(&t->known, bytes, length);
  *id = (int32_t)(at < 0 ? t->size : t->known.entries[at].count);
  if (at < 0) return add_token(t, bytes, length, SL__TOKEN_VOCABULARY);
  free(bytes);
  if (!(t->tokens[*id].flags & SL__TOKEN_LITERAL)) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "the special token '%s' is spelled as a tokenizer.json spells a token that the "
                  "texts have; take another",
                  t->tokens[*id].bytes);
}

/* ---- words ---- */

static enum sl_status count_words(struct trainer *t, const char *text, size_t size) {
  struct sl__word *entry;
  while (size > 0) {
    size_t length = sl__piece_length(t->options->pattern, text, size);
    enum sl_status status = sl__words_add(&t->words, text, length, &entry);
    if (status != SL_OK) return status;
    entry->count++;
    if (t->words.count > ((size_t)1 << 26) || length > INT32_MAX)
      return sl__fail(SL_BAD_ARGUMENT,
                      "the text has too many or too long pieces to train a "
                      "tokenizer; take a part of it");
    text += length;
    size -= length;
  }
  return SL_OK;
}

static enum sl_status split_words(struct trainer *t) {
  size_t total = 0;
  for (size_t w = 0; w < t->words.count; w++) total += t->words.entries[w].length;
  t->symbols = sl__alloc(total, sizeof *t->symbols, "a text's words");
  t->first = sl__alloc(t->words.count, sizeof *t->first, "a text's words");
  t->length = sl__alloc(t->words.count, sizeof *t->length, "a text's words");
  if (!t->symbols || !t->first || !t->length) return SL_NO_MEMORY;
  size_t at = 0;
  for (size_t w = 0; w < t->words.count; w++) {
    const struct sl__word *word = &t->words.entries[w];
    t->first[w] = at;
    t->length[w] = (uint32_t)word->length;
    for (size_t i = 0; i < word->length; i++) {
      int64_t token = sl__words_find(&t->known, word->bytes + i, 1);
      t->symbols[at++] = (int32_t)t->known.entries[token].count;
    }
  }
  return SL_OK;
}

static enum sl_status count_pairs(struct trainer *t) {
  enum sl_status status = SL_OK;
  t->link_count = 1;
  for (size_t w = 0; w < t->words.count; w++)
    for (size_t i = 0; i + 1 < t->length[w] && status == SL_OK; i++) {
      const int32_t *s = t->symbols + t->first[w] + i;
      status = count_pair(t, s[0], s[1], t->words.entries[w].count, (uint32_t)w);
    }
  return status == SL_OK ? put_touched(t) : status;
}

/* Merges the pair wherever the word has it, from left to right. */
static enum sl_status merge_in_word(struct trainer *t, struct sl__token_pair pair, int32_t id,
                                    uint32_t w) {
  enum sl_status status = SL_OK;
  int64_t count = t->words.entries[w].count;
  int32_t *s = t->symbols + t->first[w];
  uint32_t kept = 0;
  for (uint32_t i = 0; i < t->length[w]; i++) {
    if (s[i] != pair.left || i + 1 == t->length[w] || s[i + 1] != pair.right) {
      s[kept++] = s[i];
      continue;
    }
    if (kept > 0) {
      SL__TRY(count_pair(t, s[kept - 1], pair.left, -count, w));
      SL__TRY(count_pair(t, s[kept - 1], id, count, w));
    }
    i++;
    if (i + 1 < t->length[w]) {
      SL__TRY(count_pair(t, pair.right, s[i + 1], -count, w));
      SL__TRY(count_pair(t, id, s[i + 1], count, w));
    }
    s[kept++] = id;
  }
  t->length[w] = kept;
out:
  return status;
}

/* ---- the training ---- */

static enum sl_status merge_next(struct trainer *t, const struct waiting *top) {
  enum sl_status status = SL_OK;
  struct sl__token_pair pair = {(int32_t)(top->key >> 32), (int32_t)(uint32_t)top->key};
  int32_t id;
  SL__TRY(join_tokens(t, pair, &id));
  SL__TRY(grow(&t->merges, t->merge_count, &t->merge_room, sizeof *t->merges));
  t->merges[t->merge_count++] = pair;
  for (uint32_t at = top->words; at; at = t->links[at].next)
    SL__TRY(merge_in_word(t, pair, id, t->links[at].word));
  SL__TRY(put_touched(t));
out:
  return status;
}

static enum sl_status learn(struct trainer *t) {
  enum sl_status status = SL_OK;
  int64_t least = t->options->least_count > 1 ? t->options->least_count : 1;
  while (t->size < t->options->size && t->heap_count && status == SL_OK) {
    struct waiting top = heap_pop(t);
    int64_t count = find_slot(t, top.key)->count;
    if (count != top.count) {
      top.count = count;
      status = heap_push(t, top);
      continue;
    }
    if (count < least) break;
    status = merge_next(t, &top);
  }
  return status;
}

/* A token that is no UTF-8 could not be saved: a tokenizer.json has special tokens as they are. */
static enum sl_status check_special(int i, const char *text) {
  uint32_t point;
  if (!text || !*text) return sl__fail(SL_BAD_ARGUMENT, "special token %d is empty", i);
  for (size_t left = strlen(text), at = 0, n; left > 0; at += n, left -= n) {
    n = sl__utf8_next(text + at, left, &point);
    if (n == 1 && point == 0xFFFD)
      return sl__fail(SL_BAD_ARGUMENT,
                      "special token %d, '%.60s', is no UTF-8 (its byte %zu is 0x%02X); a "
                      "tokenizer.json cannot hold it, take another",
                      i, text, at, (uint8_t)text[at]);
  }
  return SL_OK;
}

static enum sl_status check_options(const struct sl_tokenizer_options *o) {
  int64_t least = SL__BYTE_TOKENS + o->special_count;
  if (o->pattern != SL_PATTERN_GPT2 && o->pattern != SL_PATTERN_LLAMA3)
    return sl__fail(SL_BAD_ARGUMENT,
                    "token pattern %d is unknown; use SL_PATTERN_GPT2 or SL_PATTERN_LLAMA3",
                    (int)o->pattern);
  if (o->special_count < 0 || (o->special_count && !o->specials))
    return sl__fail(SL_BAD_ARGUMENT, "%d special tokens cannot be; give their texts",
                    o->special_count);
  for (int i = 0; i < o->special_count; i++) {
    enum sl_status status = check_special(i, o->specials[i]);
    if (status != SL_OK) return status;
  }
  if (o->size < least || o->size > SL__MOST_TOKENS)
    return sl__fail(SL_BAD_ARGUMENT,
                    "a vocabulary of %lld tokens cannot be made; take %lld (the bytes and the "
                    "special tokens) to %lld",
                    (long long)o->size, (long long)least, (long long)SL__MOST_TOKENS);
  return SL_OK;
}

static void free_trainer(struct trainer *t) {
  for (int64_t id = 0; id < t->size; id++) free((char *)t->tokens[id].bytes);
  free(t->tokens);
  free(t->spelled);
  sl__words_free(&t->words);
  sl__words_free(&t->known);
  free(t->symbols);
  free(t->first);
  free(t->length);
  free(t->merges);
  free(t->pairs);
  free(t->links);
  free(t->touched);
  free(t->heap);
}

enum sl_status sl_tokenizer_train(const struct sl_tokenizer_options *options,
                                  const char *const *texts, const size_t *sizes, int count,
                                  struct sl_tokenizer **tokenizer) {
  SL__NEEDS(options, texts, sizes, tokenizer);
  enum sl_status status;
  struct trainer t = {.options = options};
  const struct sl__tokenizer_settings settings = {.pattern = options->pattern};
  SL__TRY(check_options(options));
  t.tokens = sl__alloc((size_t)options->size, sizeof *t.tokens, "a tokenizer");
  if (!t.tokens) SL__TRY(SL_NO_MEMORY);
  SL__TRY(add_alphabet(&t));
  for (int i = 0; i < count; i++) SL__TRY(count_words(&t, texts[i], sizes[i]));
  SL__TRY(split_words(&t));
  SL__TRY(count_pairs(&t));
  SL__TRY(learn(&t));
  SL__TRY(sl__tokenizer_make("the trained tokenizer", &settings, t.tokens, t.size, t.merges,
                             t.merge_count, tokenizer));
out:
  free_trainer(&t);
  return status;
}
