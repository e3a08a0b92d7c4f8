/* Cuts a text into the pieces within which merges take place: the regular expressions of GPT-2 and
 * Llama 3 by hand. Each case names its alternative of the expression. */
#include "data/tokenizer.h"
#include "data/unicode_classes.h"

/* ---- characters ---- */

size_t sl__utf8_next(const char *text, size_t size, uint32_t *point) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  uint8_t first = (uint8_t)text[0];
  size_t length = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  *point = 0xFFFD;
  if (!length || length > size || first > 0xF4) return 1;
  uint32_t value = length == 1 ? first : first & (0x7Fu >> length);
  for (size_t i = 1; i < length; i++) {
    if (((uint8_t)text[i] & 0xC0) != 0x80) return 1;
    value = value << 6 | ((uint8_t)text[i] & 0x3F);
  }
  if (value < least[length] || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return 1;
  *point = value;
  return length;
}

static enum unicode_class class_of(uint32_t point) {
  size_t low = 0, high = sizeof unicode_ranges / sizeof *unicode_ranges;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (unicode_ranges[middle].last < point)
      low = middle + 1;
    else
      high = middle;
  }
  bool inside =
      low < sizeof unicode_ranges / sizeof *unicode_ranges && unicode_ranges[low].first <= point;
  return inside ? unicode_ranges[low].kind : OTHER;
}

static enum unicode_class ascii_class(char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return LETTER;
  if (c >= '0' && c <= '9') return NUMBER;
  return c == ' ' || (c >= '\t' && c <= '\r') ? SPACE : OTHER;
}

/* The class of the first character, and its length. */
static inline enum unicode_class first_class(const char *text, size_t size, size_t *length) {
  uint32_t point;
  *length = 1;
  if ((uint8_t)text[0] < 0x80) return ascii_class(text[0]);
  *length = sl__utf8_next(text, size, &point);
  return class_of(point);
}

/* Bytes of the run of a class from `at` on, of at most `most` characters; returns its end. */
static size_t run_end(const char *text, size_t size, size_t at, enum unicode_class kind,
                      size_t most) {
  size_t length;
  for (; most > 0 && at < size && first_class(text + at, size - at, &length) == kind; most--)
    at += length;
  return at;
}

size_t sl__blanks_at_begin(const char *text, size_t size) {
  return run_end(text, size, 0, SPACE, SIZE_MAX);
}

size_t sl__blanks_at_end(const char *text, size_t size) {
  size_t end = size, length;
  for (;;) {
    size_t at = end;
    while (at > 0 && end - at < 4 && ((uint8_t)text[--at] & 0xC0) == 0x80) continue;
    if (at == end || first_class(text + at, end - at, &length) != SPACE || at + length != end)
      return size - end;
    end = at;
  }
}

/* ---- parts of both patterns ---- */

/* \s+(?!\S)|\s+: a run of blanks without its last one if more text follows. */
static size_t blanks(const char *text, size_t size) {
  size_t at = 0, last = 0, length;
  while (at < size && first_class(text + at, size - at, &length) == SPACE) {
    last = at;
    at += length;
  }
  return at < size && last > 0 ? last : at;
}

/* Letters of a contraction behind the apostrophe: s, t, m, d, re, ve, ll; 0: none. The long s
 * folds to s, as case-insensitive regular expressions have it. */
static size_t contraction(const char *text, size_t size, bool any_case) {
  static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
  if (any_case && size > 1 && text[0] == '\xC5' && text[1] == '\xBF') return 2;
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    size_t k = 0;
    while (endings[i][k] && k < size &&
           (text[k] == endings[i][k] || (any_case && text[k] == endings[i][k] - 'a' + 'A')))
      k++;
    if (!endings[i][k]) return k;
  }
  return 0;
}

/* ---- '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ ---- */

static size_t gpt2_piece(const char *text, size_t size) {
  size_t first, length = text[0] == '\'' ? contraction(text + 1, size - 1, false) : 0;
  if (length) return 1 + length;
  size_t at = text[0] == ' ' && size > 1;
  enum unicode_class kind = first_class(text + at, size - at, &first);
  if (kind != SPACE) return run_end(text, size, at + first, kind, SIZE_MAX);
  return blanks(text, size);
}

/* ---- Llama 3's ---- */

/* \s*[\r\n]+: the blanks up to the last line end of the run; 0: it has none. */
static size_t blanks_to_line_end(const char *text, size_t size) {
  size_t end = sl__blanks_at_begin(text, size);
  while (end > 0 && text[end - 1] != '\n' && text[end - 1] != '\r') end--;
  return end;
}

static size_t llama3_piece(const char *text, size_t size) {
  size_t first, second;
  if (text[0] == '\'') { /* (?i:'s|'t|'re|'ve|'m|'ll|'d) */
    size_t length = contraction(text + 1, size - 1, true);
    if (length) return 1 + length;
  }
  enum unicode_class kind = first_class(text, size, &first), next = SPACE;
  if (kind == LETTER) return run_end(text, size, first, LETTER, SIZE_MAX);
  if (kind == NUMBER) return run_end(text, size, first, NUMBER, 2); /* \p{N}{1,3} */
  if (first < size) next = first_class(text + first, size - first, &second);
  if (next == LETTER && text[0] != '\r' && text[0] != '\n') /* [^\r\n\p{L}\p{N}]?\p{L}+ */
    return run_end(text, size, first, LETTER, SIZE_MAX);
  if (kind == OTHER || (text[0] == ' ' && next == OTHER)) { /*  ?[^\s\p{L}\p{N}]+[\r\n]* */
    size_t end = run_end(text, size, first, OTHER, SIZE_MAX);
    while (end < size && (text[end] == '\r' || text[end] == '\n')) end++;
    return end;
  }
  size_t lines = blanks_to_line_end(text, size);
  return lines ? lines : blanks(text, size);
}

size_t sl__piece_length(enum sl_token_pattern pattern, const char *text, size_t size) {
  return pattern == SL_PATTERN_GPT2 ? gpt2_piece(text, size) : llama3_piece(text, size);
}
