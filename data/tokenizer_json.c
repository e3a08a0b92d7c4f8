/* Tokenizers as tokenizer.json of Hugging Face. A setting that this library does not support is
 * refused: ids that are nearly right would ruin a model without a message. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "data/tokenizer.h"

#define MAX_FILE ((size_t)1 << 30)

static const char *const pattern_texts[] = {
    [SL_PATTERN_GPT2] =
        "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
        "\\s+(?!\\S)|\\s+",
    [SL_PATTERN_LLAMA3] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
        " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
};
/* as OpenAI's program has it; the same pieces */
static const char gpt2_text[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
    "\\s+(?!\\S)|\\s+";

/* ---- the byte-level alphabet: a character for each byte ---- */

void sl__byte_alphabet(uint32_t alphabet[SL__BYTE_TOKENS]) {
  uint32_t next = 0x100;
  for (int b = 0; b < SL__BYTE_TOKENS; b++)
    alphabet[b] = sl__byte_is_printed(b) ? (uint32_t)b : next++;
}

/* A token's bytes in its characters, UTF-8 of at most two bytes each. Returns the length. */
static size_t to_characters(const uint32_t *alphabet, const struct sl__token *token, char *to) {
  size_t length = 0;
  for (size_t i = 0; i < token->length; i++) {
    uint32_t c = alphabet[(uint8_t)token->bytes[i]];
    if (c >= 0x80) to[length++] = (char)(0xC0 | c >> 6);
    to[length++] = (char)(c < 0x80 ? c : 0x80 | (c & 0x3F));
  }
  return length;
}

bool sl__alphabet_bytes(const uint32_t *alphabet, const char *text, size_t size, char *to,
                        size_t *length) {
  uint32_t point;
  for (*length = 0; size > 0;) {
    size_t n = sl__utf8_next(text, size, &point);
    int b = (int)point;
    if (point >= 0x100) /* its place among the bytes that are not printed */
      for (b = 0; b < SL__BYTE_TOKENS && alphabet[b] != point;) b++;
    if (b >= SL__BYTE_TOKENS || alphabet[b] != point) return false;
    to[(*length)++] = (char)b;
    text += n;
    size -= n;
  }
  return true;
}

/* ---- from a file ---- */

struct reader {
  const char *path;
  uint32_t alphabet[SL__BYTE_TOKENS];
  struct sl__tokenizer_settings settings;
  struct sl__token *tokens; /* [size] */
  int64_t size;
  struct sl__word_table table; /* vocabulary by bytes, for the merges; an entry's count is the id */
  struct sl__word_table added; /* contents of the added tokens; an entry's count is the id */
  char *room;                  /* bytes of the vocabulary's tokens */
  char *pieces;                /* room for the longest side of a merge, or added token */
  struct sl__token_pair *pairs;
};

static enum sl_status refuse(const struct reader *r, const char *what, const char *found,
                             const char *supported) {
  return sl__fail(SL_UNSUPPORTED, "%s: its %s is '%.60s'; %s", r->path, what, found, supported);
}

/* The member "type" of a part; "null" for null, "" for nonsense. */
static const char *type_of(const json_t *part) {
  if (!part || json_is_null(part)) return "null";
  const char *type = json_string_value(json_object_get(part, "type"));
  return type ? type : "";
}

/* Whether the member is true; one that is absent has the value that is assumed. */
static bool is_set(const json_t *object, const char *key, bool absent) {
  const json_t *value = json_object_get(object, key);
  return value ? json_is_true(value) : absent;
}

/* ---- the pre-tokenizer ---- */

static enum sl_status read_split(struct reader *r, const json_t *split) {
  static const char supported[] = "only those of GPT-2 and Llama 3 are read";
  const json_t *pattern = json_object_get(split, "pattern");
  const char *regex = json_string_value(json_object_get(pattern, "Regex"));
  const char *behavior = json_string_value(json_object_get(split, "behavior"));
  if (!regex) return refuse(r, "split pattern", "no regular expression", supported);
  if (!behavior || strcmp(behavior, "Isolated") || is_set(split, "invert", false))
    return refuse(r, "split behavior", behavior ? behavior : "", "only Isolated is read");
  if (!strcmp(regex, pattern_texts[SL_PATTERN_LLAMA3]))
    r->settings.pattern = SL_PATTERN_LLAMA3;
  else if (!strcmp(regex, pattern_texts[SL_PATTERN_GPT2]) || !strcmp(regex, gpt2_text))
    r->settings.pattern = SL_PATTERN_GPT2;
  else
    return refuse(r, "split pattern", regex, supported);
  return SL_OK;
}

static enum sl_status read_pre_tokenizer(struct reader *r, const json_t *part) {
  static const char supported[] =
      "only ByteLevel, and a sequence of Split and ByteLevel without a pattern, are read";
  if (!strcmp(type_of(part), "ByteLevel")) {
    r->settings.pattern = SL_PATTERN_GPT2;
    r->settings.prefix_space = is_set(part, "add_prefix_space", true);
    if (!is_set(part, "use_regex", true))
      return refuse(r, "pre_tokenizer", "ByteLevel without a pattern", supported);
    return SL_OK;
  }
  const json_t *list = json_object_get(part, "pretokenizers");
  const json_t *split = json_array_get(list, 0), *level = json_array_get(list, 1);
  if (strcmp(type_of(part), "Sequence") || json_array_size(list) != 2 ||
      strcmp(type_of(split), "Split") || strcmp(type_of(level), "ByteLevel") ||
      is_set(level, "use_regex", true) || is_set(level, "add_prefix_space", true))
    return refuse(r, "pre_tokenizer", type_of(part), supported);
  return read_split(r, split);
}

/* ---- the model ---- */

static enum sl_status check_parts(const struct reader *r, const json_t *root) {
  const json_t *model = json_object_get(root, "model");
  const json_t *normalizer = json_object_get(root, "normalizer");
  const json_t *decoder = json_object_get(root, "decoder");
  const json_t *dropout = json_object_get(model, "dropout");
  if (!json_is_object(model))
    return sl__fail(SL_BAD_FILE, "%s: has no \"model\"; is it a tokenizer.json?", r->path);
  /* older files do not name the type */
  if (json_object_get(model, "type") && strcmp(type_of(model), "BPE"))
    return refuse(r, "model", type_of(model), "only byte-level BPE is read");
  if (normalizer && !json_is_null(normalizer))
    return refuse(r, "normalizer", type_of(normalizer), "only files without one are read");
  if (strcmp(type_of(decoder), "null") && strcmp(type_of(decoder), "ByteLevel"))
    return refuse(r, "decoder", type_of(decoder), "only ByteLevel is read");
  if (is_set(model, "byte_fallback", false))
    return refuse(r, "model", "BPE with byte_fallback", "only byte-level BPE is read");
  if (json_number_value(dropout) != 0)
    return refuse(r, "model", "BPE with dropout", "only merges without chance are read");
  for (int i = 0; i < 2; i++) {
    const char *key = i ? "end_of_word_suffix" : "continuing_subword_prefix";
    const json_t *affix = json_object_get(model, key);
    if (affix && !json_is_null(affix) && json_string_length(affix))
      return refuse(r, "model", key, "only byte-level BPE without it is read");
  }
  return SL_OK;
}

static enum sl_status check_id(const struct reader *r, const char *where, const char *name,
                               const json_t *id) {
  json_int_t value = json_integer_value(id);
  if (json_is_integer(id) && value >= 0 && value < SL__MOST_TOKENS) return SL_OK;
  return sl__fail(SL_BAD_FILE, "%s: the id of '%.60s' in %s is no number of 0 to %lld", r->path,
                  name, where, (long long)SL__MOST_TOKENS - 1);
}

/* An added token has an id, a content, and flags, which may be left out. */
static enum sl_status check_added(const struct reader *r, size_t i, const json_t *entry) {
  static const char *const flags[] = {"single_word", "lstrip", "rstrip", "normalized", "special"};
  const char *content = json_string_value(json_object_get(entry, "content"));
  if (!content || !*content)
    return sl__fail(SL_BAD_FILE, "%s: entry %zu of \"added_tokens\" has no \"content\"", r->path,
                    i);
  for (size_t f = 0; f < sizeof flags / sizeof *flags; f++) {
    const json_t *flag = json_object_get(entry, flags[f]);
    if (flag && !json_is_boolean(flag))
      return sl__fail(SL_BAD_FILE,
                      "%s: \"%s\" of the added token '%.60s' is neither true nor false", r->path,
                      flags[f], content);
  }
  return check_id(r, "\"added_tokens\"", content, json_object_get(entry, "id"));
}

/* Checks all ids, and makes room for the tokens up to the largest. */
static enum sl_status find_size(struct reader *r, json_t *vocabulary, const json_t *added) {
  enum sl_status status = SL_OK;
  const char *name;
  json_t *id;
  size_t i, bytes = 1;
  const json_t *entry;
  json_object_foreach(vocabulary, name, id) {
    SL__TRY(check_id(r, "\"vocab\"", name, id));
    if (json_integer_value(id) >= r->size) r->size = json_integer_value(id) + 1;
    bytes += strlen(name);
  }
  json_array_foreach(added, i, entry) {
    SL__TRY(check_added(r, i, entry));
    id = json_object_get(entry, "id");
    if (json_integer_value(id) >= r->size) r->size = json_integer_value(id) + 1;
  }
  r->tokens = sl__alloc((size_t)r->size, sizeof *r->tokens, "a tokenizer");
  r->room = sl__alloc(bytes, 1, "a tokenizer's tokens");
  if (!r->tokens || !r->room) SL__TRY(SL_NO_MEMORY);
  status = sl__words_reserve(&r->table, json_object_size(vocabulary) + 1);
out:
  return status;
}

static enum sl_status read_vocabulary(struct reader *r, json_t *vocabulary) {
  struct sl__word *entry;
  const char *name;
  json_t *id;
  char *to = r->room;
  size_t length;
  json_object_foreach(vocabulary, name, id) {
    struct sl__token *token = &r->tokens[json_integer_value(id)];
    size_t size = strlen(name);
    if (token->flags)
      return sl__fail(SL_BAD_FILE, "%s: the id %lld is of two tokens, one of them '%.60s'", r->path,
                      (long long)json_integer_value(id), name);
    token->flags = SL__TOKEN_USED | SL__TOKEN_VOCABULARY;
    token->bytes = to;
    if (size == 0) return sl__fail(SL_BAD_FILE, "%s: a token of \"vocab\" is empty", r->path);
    if (sl__alphabet_bytes(r->alphabet, name, size, to, &length)) {
      enum sl_status status = sl__words_add(&r->table, to, length, &entry);
      if (status != SL_OK) return status;
      entry->count = json_integer_value(id);
    } else { /* such a token can only be an added one, or one that never comes up */
      memcpy(to, name, length = size);
      token->flags |= SL__TOKEN_LITERAL;
    }
    token->length = (uint32_t)length;
    to += length;
  }
  return SL_OK;
}

/* ---- merges ---- */

/* The id of one side of a merge. */
static enum sl_status find_side(struct reader *r, size_t rank, const char *text, size_t size,
                                int32_t *id) {
  size_t length;
  int64_t at = -1;
  if (size && sl__alphabet_bytes(r->alphabet, text, size, r->pieces, &length))
    at = sl__words_find(&r->table, r->pieces, length);
  if (at < 0)
    return sl__fail(SL_BAD_FILE,
                    "%s: merge %zu has '%.*s', which is not in the vocabulary; is the file "
                    "damaged?",
                    r->path, rank, (int)(size < 60 ? size : 60), text);
  *id = (int32_t)r->table.entries[at].count;
  return SL_OK;
}

/* "a b", or ["a", "b"] */
static enum sl_status read_merge(struct reader *r, size_t rank, const json_t *merge) {
  const json_t *first = json_array_get(merge, 0), *second = json_array_get(merge, 1);
  const char *left = json_string_value(first), *right = json_string_value(second);
  size_t left_size = json_string_length(first), right_size = json_string_length(second);
  if (json_is_string(merge)) {
    left = json_string_value(merge);
    right = strchr(left, ' ');
    left_size = right ? (size_t)(right++ - left) : 0;
    right_size = right ? json_string_length(merge) - left_size - 1 : 0;
  }
  if (!left || !right || json_array_size(merge) > 2)
    return sl__fail(SL_BAD_FILE, "%s: merge %zu is no pair of tokens", r->path, rank);
  enum sl_status status = find_side(r, rank, left, left_size, &r->pairs[rank].left);
  if (status == SL_OK) status = find_side(r, rank, right, right_size, &r->pairs[rank].right);
  return status;
}

/* The longest text of a merge or of an added token. */
static size_t longest_piece(const json_t *merges, const json_t *added) {
  size_t longest = 0, i;
  const json_t *item;
  json_array_foreach(merges, i, item) {
    const json_t *sides[] = {item, json_array_get(item, 0), json_array_get(item, 1)};
    for (int k = 0; k < 3; k++)
      if (json_string_length(sides[k]) > longest) longest = json_string_length(sides[k]);
  }
  json_array_foreach(added, i, item) {
    size_t length = json_string_length(json_object_get(item, "content"));
    if (length > longest) longest = length;
  }
  return longest;
}

static enum sl_status read_merges(struct reader *r, const json_t *merges, const json_t *added) {
  size_t i;
  const json_t *merge;
  if (!json_is_array(merges))
    return sl__fail(SL_BAD_FILE, "%s: its model has no list \"merges\"", r->path);
  r->pieces = sl__alloc(longest_piece(merges, added) + 1, 1, "a merge");
  r->pairs = sl__alloc(json_array_size(merges) + 1, sizeof *r->pairs, "a tokenizer's merges");
  if (!r->pieces || !r->pairs) return SL_NO_MEMORY;
  json_array_foreach(merges, i, merge) {
    enum sl_status status = read_merge(r, i, merge);
    if (status != SL_OK) return status;
  }
  return SL_OK;
}

/* ---- added tokens ---- */

static bool is_ascii(const char *text) {
  for (; *text; text++)
    if (*text < '!' || *text > '~') return false;
  return true;
}

/* Whether the vocabulary has an added token under this id, or neither of them. */
static bool is_its_token(struct reader *r, const char *content, json_int_t id,
                         const struct sl__token *token) {
  size_t size = strlen(content), length;
  if (!sl__alphabet_bytes(r->alphabet, content, size, r->pieces, &length))
    return !token->flags || (token->flags & SL__TOKEN_LITERAL && token->length == size &&
                             !memcmp(token->bytes, content, size));
  int64_t at = sl__words_find(&r->table, r->pieces, length);
  return at < 0 ? !token->flags : r->table.entries[at].count == id;
}

/* The search would find only one of two tokens that are spelled alike. */
static enum sl_status check_once(struct reader *r, const char *content, json_int_t id) {
  struct sl__word *entry;
  size_t before = r->added.count;
  enum sl_status status = sl__words_add(&r->added, content, strlen(content), &entry);
  if (status != SL_OK) return status;
  if (r->added.count == before)
    return sl__fail(SL_BAD_FILE, "%s: the added token '%.60s' has two ids, %lld and %lld", r->path,
                    content, (long long)entry->count, (long long)id);
  entry->count = id;
  return SL_OK;
}

static enum sl_status read_added(struct reader *r, const json_t *entry) {
  const char *content = json_string_value(json_object_get(entry, "content"));
  json_int_t id = json_integer_value(json_object_get(entry, "id"));
  struct sl__token *token = &r->tokens[id];
  if (is_set(entry, "single_word", false))
    return refuse(r, "added token", content, "tokens of a single word (single_word) are not read");
  if (token->flags & SL__TOKEN_ADDED)
    return sl__fail(SL_BAD_FILE, "%s: the id %lld is of two added tokens, one of them '%.60s'",
                    r->path, (long long)id, content);
  if (!is_its_token(r, content, id, token))
    return sl__fail(SL_BAD_FILE,
                    "%s: the added token '%.60s' has the id %lld, but not in the vocabulary",
                    r->path, content, (long long)id);
  enum sl_status status = check_once(r, content, id);
  if (status != SL_OK) return status;
  bool literal = !is_ascii(content);
  if (literal && !(token->flags & SL__TOKEN_LITERAL) && token->length == 1) {
    char why[40];
    snprintf(why, sizeof why, "it has the id of the byte 0x%02X", (uint8_t)token->bytes[0]);
    return refuse(r, "added token", content, why);
  }
  token->bytes = content;
  token->length = (uint32_t)strlen(content);
  token->flags |= SL__TOKEN_USED | SL__TOKEN_ADDED;
  if (literal) token->flags |= SL__TOKEN_LITERAL;
  if (is_set(entry, "special", false)) token->flags |= SL__TOKEN_SPECIAL;
  if (is_set(entry, "normalized", false)) token->flags |= SL__TOKEN_LATE;
  if (is_set(entry, "lstrip", false)) token->flags |= SL__TOKEN_TAKES_LEFT;
  if (is_set(entry, "rstrip", false)) token->flags |= SL__TOKEN_TAKES_RIGHT;
  return SL_OK;
}

static enum sl_status read_all_added(struct reader *r, const json_t *added) {
  size_t i;
  const json_t *entry;
  json_array_foreach(added, i, entry) {
    enum sl_status status = read_added(r, entry);
    if (status != SL_OK) return status;
  }
  return SL_OK;
}

/* ---- the whole file ---- */

static enum sl_status read_tokenizer(struct reader *r, const json_t *root,
                                     struct sl_tokenizer **result) {
  enum sl_status status;
  struct sl_tokenizer *t = NULL;
  const json_t *model = json_object_get(root, "model"), *added = NULL;
  json_t *vocabulary = json_object_get(model, "vocab");
  const json_t *after = json_object_get(root, "post_processor");
  sl__byte_alphabet(r->alphabet);
  SL__TRY(check_parts(r, root));
  added = json_object_get(root, "added_tokens");
  if (added && !json_is_null(added) && !json_is_array(added))
    SL__TRY(sl__fail(SL_BAD_FILE, "%s: its \"added_tokens\" is no list", r->path));
  SL__TRY(read_pre_tokenizer(r, json_object_get(root, "pre_tokenizer")));
  if (!json_is_object(vocabulary))
    SL__TRY(sl__fail(SL_BAD_FILE, "%s: its model has no \"vocab\"", r->path));
  r->settings.ignore_merges = is_set(model, "ignore_merges", false);
  SL__TRY(find_size(r, vocabulary, added));
  SL__TRY(read_vocabulary(r, vocabulary));
  SL__TRY(read_merges(r, json_object_get(model, "merges"), added));
  SL__TRY(read_all_added(r, added));
  SL__TRY(sl__tokenizer_make(r->path, &r->settings, r->tokens, r->size, r->pairs,
                             json_array_size(json_object_get(model, "merges")), &t));
  if (after && !json_is_null(after)) {
    t->post_processor = sl__json_text(after, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!t->post_processor)
      SL__TRY(sl__fail(SL_NO_MEMORY, "%s: no memory for the tokenizer", r->path));
  }
  *result = t;
  t = NULL;
out:
  sl_tokenizer_close(t);
  return status;
}

enum sl_status sl__tokenizer_parse(const char *path, const uint8_t *bytes, size_t size,
                                   struct sl_tokenizer **tokenizer) {
  enum sl_status status;
  json_error_t error;
  struct reader r = {.path = path};
  json_t *root = sl__json_load(bytes, size, JSON_REJECT_DUPLICATES, &error);
  if (!root && json_error_code(&error) == json_error_out_of_memory)
    SL__TRY(sl__fail(SL_NO_MEMORY, "%s: no memory for the tokenizer", path));
  if (!root)
    SL__TRY(sl__fail(SL_BAD_FILE, "%s: is damaged or cut short at byte %d; is it a tokenizer.json?",
                     path, error.position));
  SL__TRY(read_tokenizer(&r, root, tokenizer));
out:
  free(r.tokens);
  free(r.room);
  free(r.pieces);
  free(r.pairs);
  sl__words_free(&r.table);
  sl__words_free(&r.added);
  json_decref(root);
  return status;
}

enum sl_status sl_tokenizer_open(const char *path, struct sl_tokenizer **tokenizer) {
  SL__NEEDS(path, tokenizer);
  uint8_t *bytes = NULL;
  size_t size;
  enum sl_status status = sl__file_read(path, MAX_FILE, &bytes, &size);
  if (status == SL_OK) status = sl__tokenizer_parse(path, bytes, size, tokenizer);
  free(bytes);
  return status;
}

/* ---- to a file ---- */

/* A token as the file has it; room is for its characters. */
static json_t *token_json(const uint32_t *alphabet, const struct sl__token *token, char *room) {
  return token->flags & SL__TOKEN_LITERAL
             ? json_stringn(token->bytes, token->length)
             : json_stringn(room, to_characters(alphabet, token, room));
}

/* Of two tokens that are spelled alike, a literal one and one in the alphabet, the file could have
 * only one: *twice is the literal one then, and NULL is returned. */
static json_t *vocabulary_json(const struct sl_tokenizer *t, const uint32_t *alphabet, char *room,
                               const struct sl__token **twice) {
  json_t *object = json_object();
  for (int64_t id = 0; object && id < t->size; id++) {
    if (!(t->tokens[id].flags & SL__TOKEN_VOCABULARY)) continue;
    json_t *name = token_json(alphabet, &t->tokens[id], room);
    const json_t *other = json_object_get(object, json_string_value(name));
    if (other) {
      bool literal = t->tokens[id].flags & SL__TOKEN_LITERAL;
      *twice = &t->tokens[literal ? id : json_integer_value(other)];
      sl__json_set(&object, "", NULL);
    } else if (name)
      sl__json_set(&object, json_string_value(name), json_integer(id));
    else
      sl__json_set(&object, "", NULL);
    json_decref(name);
  }
  return object;
}

static json_t *merges_json(const struct sl_tokenizer *t, const uint32_t *alphabet, char *room) {
  json_t *list = json_array();
  for (size_t rank = 0; list && rank < t->pair_count; rank++) {
    struct sl__token_pair pair = t->pairs[rank];
    if (sl__tokenizer_merge(t, pair.left, pair.right)->rank != rank) continue; /* comes again */
    json_t *left = token_json(alphabet, &t->tokens[pair.left], room);
    json_t *right = token_json(alphabet, &t->tokens[pair.right], room);
    sl__json_append(&list, json_pack("[o,o]", left, right));
  }
  return list;
}

static json_t *added_json(const struct sl_tokenizer *t) {
  json_t *list = json_array();
  for (int64_t id = 0; list && id < t->size; id++) {
    const struct sl__token *token = &t->tokens[id];
    if (!(token->flags & SL__TOKEN_ADDED)) continue;
    sl__json_append(&list, json_pack("{s:I, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id,
                                     "content", token->bytes, (size_t)token->length, "single_word",
                                     0, "lstrip", (token->flags & SL__TOKEN_TAKES_LEFT) > 0,
                                     "rstrip", (token->flags & SL__TOKEN_TAKES_RIGHT) > 0,
                                     "normalized", (token->flags & SL__TOKEN_LATE) > 0, "special",
                                     (token->flags & SL__TOKEN_SPECIAL) > 0));
  }
  return list;
}

static json_t *byte_level_json(bool prefix_space, bool pattern) {
  return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", prefix_space,
                   "trim_offsets", 1, "use_regex", pattern);
}

static json_t *pre_tokenizer_json(const struct sl__tokenizer_settings *settings) {
  if (settings->pattern == SL_PATTERN_GPT2) return byte_level_json(settings->prefix_space, true);
  return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence", "pretokenizers",
                   "type", "Split", "pattern", "Regex", pattern_texts[settings->pattern],
                   "behavior", "Isolated", "invert", 0, byte_level_json(false, false));
}

static json_t *model_json(const struct sl_tokenizer *t, char *room,
                          const struct sl__token **twice) {
  uint32_t alphabet[SL__BYTE_TOKENS];
  sl__byte_alphabet(alphabet);
  return json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout",
                   "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                   "byte_fallback", 0, "ignore_merges", t->settings.ignore_merges, "vocab",
                   vocabulary_json(t, alphabet, room, twice), "merges",
                   merges_json(t, alphabet, room));
}

static json_t *tokenizer_json(const struct sl_tokenizer *t, const struct sl__token **twice) {
  size_t longest = 0;
  for (int64_t id = 0; id < t->size; id++)
    if (t->tokens[id].length > longest) longest = t->tokens[id].length;
  char *room = sl__alloc(2, longest + 1, "a token");
  json_t *after = t->post_processor ? json_loads(t->post_processor, 0, NULL) : json_null();
  json_t *root =
      room ? json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:o, s:o, s:o}", "version", "1.0",
                       "truncation", "padding", "added_tokens", added_json(t), "normalizer",
                       "pre_tokenizer", pre_tokenizer_json(&t->settings), "post_processor", after,
                       "decoder", byte_level_json(true, true), "model", model_json(t, room, twice))
           : NULL;
  if (!room) json_decref(after);
  free(room);
  return root;
}

static int write_piece(const char *bytes, size_t size, void *file) {
  sl__file_write(file, bytes, size);
  return 0;
}

enum sl_status sl_tokenizer_save(const struct sl_tokenizer *tokenizer, const char *path) {
  SL__NEEDS(tokenizer, path);
  enum sl_status status;
  struct sl__file *file = NULL;
  const struct sl__token *twice = NULL;
  json_t *root = tokenizer_json(tokenizer, &twice);
  if (twice)
    SL__TRY(sl__fail(SL_BAD_ARGUMENT,
                     "%s: the file would have '%.60s' twice: the special token, and how it spells "
                     "another one; train with another special token",
                     path, twice->bytes));
  if (!root) SL__TRY(sl__fail(SL_NO_MEMORY, "%s: no memory to write it", path));
  SL__TRY(sl__file_create(path, &file));
  /* no line end after it: then a file that was cut anywhere is no longer JSON */
  if (json_dump_callback(root, write_piece, file, JSON_INDENT(1)) != 0)
    SL__TRY(sl__fail(SL_NO_MEMORY, "%s: no memory to write it", path));
  status = sl__file_commit(file, NULL);
  file = NULL;
out:
  sl__file_abandon(file);
  json_decref(root);
  return status;
}
