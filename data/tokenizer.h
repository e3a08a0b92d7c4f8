/* The members of a tokenizer, for the files that make one, from a text (tokenizer_train.c) or from
 * a file (tokenizer_json.c), and for the one that uses it (tokenizer_encode.c). */
#ifndef SL_DATA_TOKENIZER_H
#define SL_DATA_TOKENIZER_H

#include <starling/text.h>

#include "data/word_table.h"

#define SL__MOST_TOKENS ((int64_t)1 << 22) /* of a vocabulary, against damaged ids */
#define SL__BYTE_TOKENS 256

enum sl__token_flags {
  SL__TOKEN_USED = 1,        /* the id has a token: ids of a file may have gaps */
  SL__TOKEN_VOCABULARY = 2,  /* in the model's vocabulary: the result of merges, or a byte */
  SL__TOKEN_LITERAL = 4,     /* a file has its bytes as they are, not in the byte-level alphabet */
  SL__TOKEN_ADDED = 8,       /* found in the text before it is cut into pieces */
  SL__TOKEN_SPECIAL = 16,    /* added, and found only if the caller asks for it */
  SL__TOKEN_LATE = 32,       /* added, found after all that are not ("normalized") */
  SL__TOKEN_TAKES_LEFT = 64, /* added, with the blanks before it */
  SL__TOKEN_TAKES_RIGHT = 128, /* and behind it */
};

struct sl__token {
  const char *bytes;
  uint32_t length;
  uint32_t flags;
};

struct sl__token_pair {
  int32_t left, right;
};

/* A slot of the table of merges. */
struct sl__merge {
  uint64_t pair; /* left << 32 | right; SL__NO_PAIR: free */
  int32_t token;
  uint32_t rank;
};
#define SL__NO_PAIR UINT64_MAX
#define SL__NO_RANK UINT32_MAX

struct sl__tokenizer_settings {
  enum sl_token_pattern pattern;
  bool prefix_space;  /* a text that does not begin with a blank gets one */
  bool ignore_merges; /* a piece that is a token becomes it, whatever the merges say */
};

struct sl_tokenizer {
  struct sl__tokenizer_settings settings;
  struct sl__token *tokens; /* [size], by id */
  int64_t size;
  char *storage;               /* all tokens' bytes */
  struct sl__word_table table; /* the vocabulary by bytes; an entry's count is the id */
  int32_t bytes[SL__BYTE_TOKENS];
  struct sl__token_pair *pairs; /* [pair_count], by rank */
  size_t pair_count;
  struct sl__merge *merges; /* [merge_slots], a power of two, at most half of them used */
  size_t merge_slots;
  int32_t *added; /* [added_count], ids, longest first */
  int64_t added_count;
  bool begins_added[SL__BYTE_TOKENS]; /* first bytes of added tokens */
  char *post_processor;               /* JSON of the file, kept for sl_tokenizer_save; or NULL */
};

/* Makes a tokenizer; everything is copied. name: of the file, for messages. SL_BAD_FILE if a byte
 * has no token, or a merge makes none. */
enum sl_status sl__tokenizer_make(const char *name, const struct sl__tokenizer_settings *settings,
                                  const struct sl__token *tokens, int64_t size,
                                  const struct sl__token_pair *pairs, size_t pair_count,
                                  struct sl_tokenizer **tokenizer);

/* Whether a byte's character of the byte-level alphabet is the byte itself, as Latin-1 has it; all
 * others are U+0100 on, in their order. */
static inline bool sl__byte_is_printed(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
}

/* The merge of two tokens, or NULL. */
const struct sl__merge *sl__tokenizer_merge(const struct sl_tokenizer *tokenizer, int32_t left,
                                            int32_t right);

/* ---- tokenizer_json.c ---- */

/* The character that stands for each byte in a file. */
void sl__byte_alphabet(uint32_t alphabet[SL__BYTE_TOKENS]);
/* The bytes that characters stand for; false if one is not of the alphabet. */
bool sl__alphabet_bytes(const uint32_t *alphabet, const char *text, size_t size, char *to,
                        size_t *length);

/* The tokenizer of a file's bytes; path is for messages. */
enum sl_status sl__tokenizer_parse(const char *path, const uint8_t *bytes, size_t size,
                                   struct sl_tokenizer **tokenizer);

/* ---- token_pieces.c ---- */

/* The length of the piece that a text begins with; size is at least 1. */
size_t sl__piece_length(enum sl_token_pattern pattern, const char *text, size_t size);

/* Bytes of the blanks (\s) at a text's end, and at its beginning. */
size_t sl__blanks_at_end(const char *text, size_t size);
size_t sl__blanks_at_begin(const char *text, size_t size);

/* The length of the UTF-8 character that a text begins with, and the character; 1 and U+FFFD for a
 * byte that begins none. */
size_t sl__utf8_next(const char *text, size_t size, uint32_t *point);

#endif
