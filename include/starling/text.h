/* Text for language models: files, generated sentences, and vocabularies that turn both into
 * numbers. */
#ifndef STARLING_TEXT_H
#define STARLING_TEXT_H

#include <starling/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup text Texts
 * Bytes in memory, not ended by a zero; free() them. */

/** A whole text file, plain or gzip, of at most 4 GB.
 * \return SL_IO for a file that is missing or unreadable, SL_BAD_FILE for one that is empty, too
 * large, or has zero bytes (then it is no text, or in UTF-16). */
SL_API enum sl_status sl_text_read(const char *path, char **text, size_t *size);

/** Generated English-like sentences, one a line, of 92 words, with the agreement of subject and
 * verb over any distance: "the dogs that the old farmer near these rivers sees often sleep".
 * Sentence i depends on (seed, train, i) only. *entropy_per_word (NULL is legal) becomes the
 * generator's entropy in nats a word, the line end counted as one: a model of the words cannot get
 * below the perplexity exp(entropy_per_word), but for luck.
 * \return SL_BAD_ARGUMENT if sentences is not positive. */
SL_API enum sl_status sl_grammar_new(uint64_t seed, bool train, int64_t sentences, char **text,
                                     size_t *size, double *entropy_per_word);

/** \defgroup vocabulary Vocabularies
 * The words, or the bytes, that a model knows, each with a number (its id) from 0. */
struct sl_vocabulary;

enum sl_text_level {
  SL_TEXT_WORD, /**< words are what blanks separate; every '\n' is the word `<eos>` */
  SL_TEXT_CHAR  /**< every byte is a word, '\n' too */
};

/** "word" or "char". \return SL_BAD_ARGUMENT for anything else. */
SL_API enum sl_status sl_text_level_parse(const char *name, enum sl_text_level *level);

/** The vocabulary of a text. Words: `<unk>` is 0, `<eos>` is 1, then by falling count, equal counts
 * by their bytes. Bytes: `<unk>` is 0, then by value. What occurs less than least_count times (0
 * means 1), or is not among the most frequent that fill most_words entries (`<unk>` and `<eos>` are
 * two of them; 0: all), is left out. `<unk>` and `<eos>` written out in a text of words mean these
 * two. \return SL_BAD_ARGUMENT for an empty text, one with zero bytes or more than 2^26 different
 * words, a negative bound, or most_words 1. */
SL_API enum sl_status sl_vocabulary_new(enum sl_text_level level, const char *text, size_t size,
                                        int64_t least_count, int64_t most_words,
                                        struct sl_vocabulary **vocabulary);

SL_API enum sl_text_level sl_vocabulary_level(const struct sl_vocabulary *vocabulary);

/** Number of entries, `<unk>` and `<eos>` among them: the classes of a model's output. */
SL_API int64_t sl_vocabulary_size(const struct sl_vocabulary *vocabulary);

/** An entry's bytes (of one byte, for SL_TEXT_CHAR), ended by a zero; NULL if there is no such
 * id. */
SL_API const char *sl_vocabulary_word(const struct sl_vocabulary *vocabulary, int64_t id);

/** The id of a word of `length` bytes; 0 (`<unk>`) if the vocabulary does not have it. bytes
 * may be NULL if length is 0. */
SL_API int32_t sl_vocabulary_find(const struct sl_vocabulary *vocabulary, const char *bytes,
                                  size_t length);

/** A text's ids, in a block to free(). A last line that does not end in '\n' gets no `<eos>`, so
 * that it may be continued. An empty text has 0 tokens, and may be NULL. */
SL_API enum sl_status sl_vocabulary_encode(const struct sl_vocabulary *vocabulary, const char *text,
                                           size_t size, int32_t **tokens, int64_t *count);

/** As JSON: `{"level":"word","words":["<unk>","<eos>","the", ...]}`. A word that is not UTF-8 is a
 * list of its bytes' values, a byte of SL_TEXT_CHAR just its value. Written aside and renamed.
 * \return SL_IO if the file cannot be written. */
SL_API enum sl_status sl_vocabulary_save(const struct sl_vocabulary *vocabulary, const char *path);

/** \return SL_IO for a file that is missing or unreadable, SL_BAD_FILE for one that
 * sl_vocabulary_save cannot have written: no JSON, cut short, an entry twice, `<unk>` not first. */
SL_API enum sl_status sl_vocabulary_load(const char *path, struct sl_vocabulary **vocabulary);

SL_API void sl_vocabulary_free(struct sl_vocabulary *vocabulary);

/** \defgroup tokenizer Tokenizers
 * Byte-level byte-pair encoding (Sennrich, Haddow, Birch 2016; Radford et al. 2019): a text is cut
 * into pieces, each piece begins as its bytes, and the pairs of neighbours that a training found
 * frequent become one token, the most frequent first. Each text has tokens, and they are the text
 * again. Files are tokenizer.json of Hugging Face, and tokens are those of its `tokenizers`, as
 * with `encode(text, add_special_tokens=False)`.
 *
 * A text is UTF-8. A byte that is none counts as a character that is no letter, number or blank,
 * and comes back as it was. Texts may have zero bytes. */
struct sl_tokenizer;

/** What cuts a text into pieces. */
enum sl_token_pattern {
  SL_PATTERN_GPT2,  /**< words with the blank before them, all digits of a number together */
  SL_PATTERN_LLAMA3 /**< the same, of either case, line ends apart, at most three digits together */
};

/** "gpt2" or "llama3". \return SL_BAD_ARGUMENT for anything else. */
SL_API enum sl_status sl_token_pattern_parse(const char *name, enum sl_token_pattern *pattern);

/** The tokenizer that a training makes. The zero value of a member but `size` is its default. */
struct sl_tokenizer_options {
  int64_t size; /**< tokens: 256 of bytes, the special ones, and those of merges; at most 2^22 */
  enum sl_token_pattern pattern;
  const char *const *specials; /**< [special_count], "<|endoftext|>"; they get the first ids */
  int special_count;
  int64_t least_count; /**< a pair that occurs less often is not merged; 0: 1 */
};

/** A tokenizer of texts [count], of sizes [count] in bytes: the tokens and merges that BpeTrainer
 * of `tokenizers` finds (train_from_iterator, a text an item, ByteLevel's alphabet). It has less
 * than options->size tokens if the texts have no more pairs. \return SL_BAD_ARGUMENT for a size
 * that is too small or too large, a special token that is empty, given twice, no UTF-8,
 * spelled as a file spells a byte (U+00A7 is 0xA7), or not ASCII and spelled as a token of the
 * texts; one of ASCII is then the same token. */
SL_API enum sl_status sl_tokenizer_train(const struct sl_tokenizer_options *options,
                                         const char *const *texts, const size_t *sizes, int count,
                                         struct sl_tokenizer **tokenizer);

/** Reads a tokenizer.json, plain or gzip. Its "truncation" and "padding" are left out: a text has
 * all of its tokens and no others. \return SL_IO for a file that is missing or unreadable;
 * SL_BAD_FILE for one that is damaged, whose vocabulary lacks a byte or the token of a merge, or
 * whose "added_tokens" lack an id or a content, or share one;
 * SL_UNSUPPORTED for another model than byte-level BPE, another pattern than those of GPT-2 and
 * Llama 3, a normalizer: the message names it. */
SL_API enum sl_status sl_tokenizer_open(const char *path, struct sl_tokenizer **tokenizer);

/** Writes a tokenizer.json, which `tokenizers` opens, aside, and renames it. \return SL_IO if the
 * file cannot be written. */
SL_API enum sl_status sl_tokenizer_save(const struct sl_tokenizer *tokenizer, const char *path);

/** The largest id + 1: the classes of a model's output. */
SL_API int64_t sl_tokenizer_size(const struct sl_tokenizer *tokenizer);

/** A token's bytes, ended by a zero, and their number; NULL if there is no such id. */
SL_API const char *sl_tokenizer_token(const struct sl_tokenizer *tokenizer, int64_t id,
                                      size_t *length);

/** Whether the id is a special token's. */
SL_API bool sl_tokenizer_is_special(const struct sl_tokenizer *tokenizer, int64_t id);

/** The id of the token with these bytes, special or not; -1: there is none. */
SL_API int32_t sl_tokenizer_find(const struct sl_tokenizer *tokenizer, const char *bytes,
                                 size_t length);

/** A text's tokens, in a block to free(). specials: special tokens that are written out in the text
 * are meant; false: they are text like any other, as is right for texts of unknown origin. An empty
 * text has 0 tokens, and may be NULL. Threads may share a tokenizer. \return SL_BAD_ARGUMENT for a
 * piece of more than 2^30 bytes. */
SL_API enum sl_status sl_tokenizer_encode(const struct sl_tokenizer *tokenizer, const char *text,
                                          size_t size, bool specials, int32_t **tokens,
                                          int64_t *count);

/** The text of tokens, special ones written out, in a block to free(), ended by a zero. One token
 * may be a part of a UTF-8 character. \return SL_BAD_ARGUMENT for an id without a token. */
SL_API enum sl_status sl_tokenizer_decode(const struct sl_tokenizer *tokenizer,
                                          const int32_t *tokens, int64_t count, char **text,
                                          size_t *size);

SL_API void sl_tokenizer_close(struct sl_tokenizer *tokenizer);

#ifdef __cplusplus
}
#endif
#endif
