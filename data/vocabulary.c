/* Vocabularies: words (or bytes) to ids and back, from a text or from a file. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include <starling/text.h>

#include "core/base/hash.h"
#include "core/base/error.h"
#include "core/base/file.h"

#define MAX_ENTRIES ((size_t)1 << 26) /* ids and slots fit 32 bits with room to spare */
#define MAX_FILE ((size_t)4 << 30)
#define UNKNOWN "<unk>"
#define LINE_END "<eos>"

/* ---- a table of words: entries in the order of their ids, found by hashing ---- */

struct entry {
  const char *bytes;
  size_t length;
  int64_t count;
};

struct table {
  struct entry *entries;
  size_t count, capacity;
  int32_t *slots; /* id + 1, or 0 if free; a power of two of slots, at most half of them used */
  size_t slot_count;
};

static void table_free(struct table *table) {
  free(table->entries);
  free(table->slots);
}

static uint64_t hash(const char *bytes, size_t length) {
  uint64_t h = sl__fnv1a(bytes, length);
  return h ^ h >> 32;
}

/* The word's slot, or the free slot for it. */
static int32_t *find_slot(const struct table *table, const char *bytes, size_t length) {
  for (size_t i = hash(bytes, length);; i++) {
    int32_t *slot = &table->slots[i & (table->slot_count - 1)];
    if (*slot == 0) return slot;
    const struct entry *entry = &table->entries[*slot - 1];
    if (entry->length == length && memcmp(entry->bytes, bytes, length) == 0) return slot;
  }
}

/* Makes slots for the table's capacity and enters the words. */
static enum sl_status table_hash(struct table *table) {
  size_t slot_count = 16;
  while (slot_count < table->capacity * 2) slot_count *= 2;
  int32_t *slots = sl__alloc(slot_count, sizeof *slots, "a vocabulary's slots");
  if (!slots) return SL_NO_MEMORY;
  free(table->slots);
  table->slots = slots;
  table->slot_count = slot_count;
  for (size_t id = 0; id < table->count; id++)
    *find_slot(table, table->entries[id].bytes, table->entries[id].length) = (int32_t)id + 1;
  return SL_OK;
}

static enum sl_status table_reserve(struct table *table, size_t capacity) {
  struct entry *grown = sl__realloc(table->entries, capacity, sizeof *grown, "a vocabulary");
  if (!grown) return SL_NO_MEMORY;
  table->entries = grown;
  table->capacity = capacity;
  return table_hash(table);
}

/* The word's entry; a new one of count 0 if there is none. The bytes are not copied. */
static enum sl_status table_add(struct table *table, const char *bytes, size_t length,
                                struct entry **entry) {
  if (table->count == table->capacity) {
    enum sl_status status = table_reserve(table, table->capacity ? table->capacity * 2 : 1024);
    if (status != SL_OK) return status;
  }
  int32_t *slot = find_slot(table, bytes, length);
  if (*slot == 0) {
    table->entries[table->count] = (struct entry){bytes, length, 0};
    *slot = (int32_t)++table->count;
  }
  *entry = &table->entries[*slot - 1];
  return SL_OK;
}

/* ---- vocabularies ---- */

struct sl_vocabulary {
  enum sl_text_level level;
  struct table table;
  char *storage; /* all words, each ended by a zero */
};

/* Makes a vocabulary of the given words, which are copied. */
static enum sl_status make_vocabulary(enum sl_text_level level, const struct entry *entries,
                                      size_t count, struct sl_vocabulary **result) {
  enum sl_status status;
  size_t size = 0;
  struct sl_vocabulary *v = sl__alloc(1, sizeof *v, "a vocabulary");
  if (!v) return SL_NO_MEMORY;
  v->level = level;
  for (size_t i = 0; i < count; i++) size += entries[i].length + 1;
  v->storage = sl__alloc(size, 1, "a vocabulary's words");
  if (!v->storage) SL__TRY(SL_NO_MEMORY);
  SL__TRY(table_reserve(&v->table, count));
  char *to = v->storage;
  for (size_t i = 0; i < count; i++) {
    struct entry *added;
    memcpy(to, entries[i].bytes, entries[i].length); /* storage is zeroed: the word has its end */
    SL__TRY(table_add(&v->table, to, entries[i].length, &added));
    to += entries[i].length + 1;
  }
  *result = v;
  v = NULL;
out:
  sl_vocabulary_free(v);
  return status;
}

void sl_vocabulary_free(struct sl_vocabulary *v) {
  if (!v) return;
  table_free(&v->table);
  free(v->storage);
  free(v);
}

enum sl_text_level sl_vocabulary_level(const struct sl_vocabulary *v) { return v->level; }

int64_t sl_vocabulary_size(const struct sl_vocabulary *v) { return (int64_t)v->table.count; }

const char *sl_vocabulary_word(const struct sl_vocabulary *v, int64_t id) {
  return id >= 0 && (size_t)id < v->table.count ? v->table.entries[id].bytes : NULL;
}

int32_t sl_vocabulary_find(const struct sl_vocabulary *v, const char *bytes, size_t length) {
  int32_t slot = *find_slot(&v->table, bytes, length);
  return slot ? slot - 1 : 0;
}

/* ---- tokens of a text ---- */

static bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
} /* '
   * ' is a blank, too */

/* The next token after *at; false at the end. A line end is the word <eos>. */
static bool next_token(enum sl_text_level level, const char **at, const char *end,
                       const char **bytes, size_t *length) {
  const char *p = *at;
  if (level == SL_TEXT_WORD)
    while (p < end && is_blank(*p) && *p != '\n') p++;
  if (p == end) return false;
  *bytes = p++;
  if (level == SL_TEXT_WORD && **bytes == '\n') {
    *bytes = LINE_END;
    *length = strlen(LINE_END);
  } else {
    while (level == SL_TEXT_WORD && p < end && !is_blank(*p)) p++;
    *length = (size_t)(p - *bytes);
  }
  *at = p;
  return true;
}

enum sl_status sl_vocabulary_encode(const struct sl_vocabulary *v, const char *text, size_t size,
                                    int32_t **tokens, int64_t *count) {
  const char *at = text, *end = text + size, *bytes;
  size_t length, n = 0;
  while (next_token(v->level, &at, end, &bytes, &length)) n++;
  int32_t *ids = sl__alloc(n, sizeof *ids, "tokens");
  if (!ids) return SL_NO_MEMORY;
  at = text;
  for (size_t i = 0; next_token(v->level, &at, end, &bytes, &length); i++)
    ids[i] = sl_vocabulary_find(v, bytes, length);
  *tokens = ids;
  *count = (int64_t)n;
  return SL_OK;
}

/* ---- from a text ---- */

/* Order of strcmp: a word comes before longer words that begin with it. */
static int by_bytes(const void *a, const void *b) {
  const struct entry *one = a, *other = b;
  size_t shorter = one->length < other->length ? one->length : other->length;
  int order = memcmp(one->bytes, other->bytes, shorter);
  return order ? order : (one->length > other->length) - (one->length < other->length);
}

static int by_count(const void *a, const void *b) {
  const struct entry *one = a, *other = b;
  if (one->count != other->count) return one->count < other->count ? 1 : -1;
  return by_bytes(a, b);
}

/* <unk>, and for words <eos>, come before all others. */
static size_t special_count(enum sl_text_level level) { return level == SL_TEXT_WORD ? 2 : 1; }

static enum sl_status add_specials(enum sl_text_level level, struct table *table) {
  struct entry *entry;
  enum sl_status status = table_add(table, UNKNOWN, strlen(UNKNOWN), &entry);
  if (status == SL_OK && level == SL_TEXT_WORD)
    status = table_add(table, LINE_END, strlen(LINE_END), &entry);
  return status;
}

static enum sl_status count_tokens(enum sl_text_level level, const char *text, size_t size,
                                   struct table *table) {
  const char *at = text, *end = text + size, *bytes;
  struct entry *entry;
  size_t length;
  while (next_token(level, &at, end, &bytes, &length)) {
    enum sl_status status = table_add(table, bytes, length, &entry);
    if (status != SL_OK) return status;
    entry->count++;
    if (table->count > MAX_ENTRIES)
      return sl__fail(SL_BAD_ARGUMENT,
                      "the text has more than %zu different words; take its characters instead",
                      MAX_ENTRIES);
  }
  return SL_OK;
}

static enum sl_status check_arguments(enum sl_text_level level, const char *text, size_t size,
                                      int64_t least_count, int64_t most_words) {
  if (level != SL_TEXT_WORD && level != SL_TEXT_CHAR)
    return sl__fail(SL_BAD_ARGUMENT, "text level %d is unknown; use SL_TEXT_WORD or SL_TEXT_CHAR",
                    (int)level);
  if (!text || size == 0)
    return sl__fail(SL_BAD_ARGUMENT, "the text is empty; a vocabulary needs some");
  if (memchr(text, 0, size))
    return sl__fail(SL_BAD_ARGUMENT, "the text has zero bytes; is it one?");
  if (least_count < 0 || most_words < 0 || most_words == 1)
    return sl__fail(
        SL_BAD_ARGUMENT,
        "a vocabulary of at most %lld words that occur %lld times cannot be made; use 0 "
        "for no bound, or at least 2 words",
        (long long)most_words, (long long)least_count);
  return SL_OK;
}

/* Sorts frequent words to the front; returns the number of words to keep. */
static size_t cut_off(struct table *table, size_t specials, int64_t least_count,
                      int64_t most_words) {
  size_t kept = table->count;
  qsort(table->entries + specials, table->count - specials, sizeof *table->entries, by_count);
  if (most_words > 0 && kept > (size_t)most_words) kept = (size_t)most_words;
  while (kept > specials && table->entries[kept - 1].count < least_count) kept--;
  return kept;
}

enum sl_status sl_vocabulary_new(enum sl_text_level level, const char *text, size_t size,
                                 int64_t least_count, int64_t most_words,
                                 struct sl_vocabulary **vocabulary) {
  enum sl_status status;
  struct table table = {0};
  size_t specials = special_count(level);
  SL__TRY(check_arguments(level, text, size, least_count, most_words));
  SL__TRY(add_specials(level, &table));
  SL__TRY(count_tokens(level, text, size, &table));
  size_t kept = cut_off(&table, specials, least_count, most_words);
  if (level == SL_TEXT_CHAR)
    qsort(table.entries + specials, kept - specials, sizeof *table.entries, by_bytes);
  SL__TRY(make_vocabulary(level, table.entries, kept, vocabulary));
out:
  table_free(&table);
  return status;
}

/* ---- to a file ---- */

static const char *const level_names[] = {[SL_TEXT_WORD] = "word", [SL_TEXT_CHAR] = "char"};

/* A text if JSON can hold it, else a list of bytes; NULL without memory. */
static json_t *word_json(const struct entry *entry) {
  json_t *text = json_stringn(entry->bytes, entry->length); /* NULL if it is not UTF-8 */
  if (text) return text;
  json_t *list = json_array();
  for (size_t i = 0; list && i < entry->length; i++)
    if (json_array_append_new(list, json_integer((uint8_t)entry->bytes[i])) != 0) {
      json_decref(list);
      return NULL;
    }
  return list;
}

static json_t *vocabulary_json(const struct sl_vocabulary *v) {
  json_t *list = json_array();
  for (size_t id = 0; list && id < v->table.count; id++) {
    const struct entry *entry = &v->table.entries[id];
    bool byte = v->level == SL_TEXT_CHAR && id > 0;
    json_t *item = byte ? json_integer((uint8_t)entry->bytes[0]) : word_json(entry);
    if (json_array_append_new(list, item) != 0) {
      json_decref(list);
      return NULL;
    }
  }
  return list ? json_pack("{s:s, s:o}", "level", level_names[v->level], "words", list) : NULL;
}

static int write_piece(const char *bytes, size_t size, void *file) {
  sl__file_write(file, bytes, size);
  return 0;
}

enum sl_status sl_vocabulary_save(const struct sl_vocabulary *v, const char *path) {
  enum sl_status status;
  struct sl__file *file = NULL;
  json_t *root = vocabulary_json(v);
  if (!root) SL__TRY(sl__fail(SL_NO_MEMORY, "%s: no memory to write it", path));
  SL__TRY(sl__file_create(path, &file));
  /* no line end after it: then a file that was cut anywhere is no longer JSON */
  if (json_dump_callback(root, write_piece, file, JSON_COMPACT) != 0)
    SL__TRY(sl__fail(SL_NO_MEMORY, "%s: no memory to write it", path));
  status = sl__file_commit(file, NULL);
  file = NULL;
out:
  sl__file_abandon(file);
  json_decref(root);
  return status;
}

/* ---- from a file ---- */

static enum sl_status fail_word(const char *path, size_t id, const char *what) {
  return sl__fail(SL_BAD_FILE,
                  "%s: entry %zu of \"words\" %s; the file is damaged or no vocabulary", path, id,
                  what);
}

/* Reads a byte's value into *to. */
static enum sl_status read_byte(const char *path, size_t id, const json_t *number, char *to) {
  json_int_t value = json_integer_value(number);
  if (!json_is_integer(number) || value < 1 || value > 255)
    return fail_word(path, id, "is no byte of 1 to 255");
  *to = (char)value;
  return SL_OK;
}

/* Reads a text or a list of bytes into *to, which has enough room. */
static enum sl_status read_word(const char *path, size_t id, const json_t *item, char *to,
                                size_t *length) {
  *length = json_is_string(item) ? json_string_length(item) : json_array_size(item);
  if (*length == 0) return fail_word(path, id, "is no word");
  if (json_is_string(item)) memcpy(to, json_string_value(item), *length);
  for (size_t i = 0; i < json_array_size(item); i++) {
    enum sl_status status = read_byte(path, id, json_array_get(item, i), to + i);
    if (status != SL_OK) return status;
  }
  for (size_t i = 0; i < *length; i++)
    if (is_blank(to[i])) return fail_word(path, id, "has a blank in it");
  return SL_OK;
}

static enum sl_status read_words(const char *path, enum sl_text_level level, const json_t *list,
                                 char *room, struct table *table) {
  enum sl_status status = add_specials(level, table);
  size_t specials = special_count(level), length;
  struct entry *entry;
  for (size_t id = 0; status == SL_OK && id < json_array_size(list); id++) {
    const json_t *item = json_array_get(list, id);
    if (level == SL_TEXT_CHAR && id > 0) {
      length = 1;
      SL__TRY(read_byte(path, id, item, room));
    } else {
      SL__TRY(read_word(path, id, item, room, &length));
    }
    SL__TRY(table_add(table, room, length, &entry));
    size_t found = (size_t)(entry - table->entries);
    if (found != id)
      return fail_word(path, id,
                       id >= specials ? "comes twice"
                       : id == 0      ? "is not " UNKNOWN
                                      : "is not " LINE_END);
    room += length;
  }
out:
  return status;
}

/* Number of bytes in all words. */
static size_t room_for(const json_t *list) {
  size_t room = 0;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    room += json_is_string(item) ? json_string_length(item) : 1 + json_array_size(item);
  }
  return room;
}

static enum sl_status read_vocabulary(const char *path, const json_t *root,
                                      struct sl_vocabulary **vocabulary) {
  enum sl_status status;
  enum sl_text_level level;
  struct table table = {0};
  char *room = NULL;
  const json_t *list = json_object_get(root, "words");
  const char *name = json_string_value(json_object_get(root, "level"));
  if (!name || sl_text_level_parse(name, &level) != SL_OK)
    return sl__fail(SL_BAD_FILE, "%s: has no \"level\", word or char; is it a vocabulary?", path);
  if (!json_is_array(list))
    return sl__fail(SL_BAD_FILE, "%s: has no list \"words\"; is it a vocabulary?", path);
  if (json_array_size(list) < special_count(level))
    return sl__fail(SL_BAD_FILE, "%s: its \"words\" are too few; the first must be " UNKNOWN, path);
  if (json_array_size(list) > MAX_ENTRIES)
    return sl__fail(SL_BAD_FILE, "%s: has %zu words, too many for a vocabulary", path,
                    json_array_size(list));
  room = sl__alloc(room_for(list), 1, "a vocabulary's words");
  if (!room) SL__TRY(SL_NO_MEMORY);
  SL__TRY(read_words(path, level, list, room, &table));
  SL__TRY(make_vocabulary(level, table.entries, table.count, vocabulary));
out:
  free(room);
  table_free(&table);
  return status;
}

enum sl_status sl_vocabulary_load(const char *path, struct sl_vocabulary **vocabulary) {
  enum sl_status status;
  uint8_t *bytes = NULL;
  size_t size;
  json_error_t error;
  json_t *root = NULL;
  SL__TRY(sl__file_read(path, MAX_FILE, &bytes, &size));
  root = json_loadb((const char *)bytes, size, JSON_REJECT_DUPLICATES, &error);
  if (!root && json_error_code(&error) == json_error_out_of_memory)
    SL__TRY(sl__fail(SL_NO_MEMORY, "%s: no memory for the vocabulary", path));
  if (!root)
    SL__TRY(sl__fail(SL_BAD_FILE, "%s: is damaged or cut short at byte %d; is it a vocabulary?",
                     path, error.position));
  SL__TRY(read_vocabulary(path, root, vocabulary));
out:
  json_decref(root);
  free(bytes);
  return status;
}
