/* Vocabularies as JSON files. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "data/vocabulary.h"

#define MAX_FILE ((size_t)4 << 30)

/* ---- to a file ---- */

static const char *const level_names[] = {[SL_TEXT_WORD] = "word", [SL_TEXT_CHAR] = "char"};

/* A text if JSON can hold it, else a list of bytes; NULL without memory. */
static json_t *word_json(const struct sl__word *entry) {
  json_error_t error;
  json_t *text = json_pack_ex(&error, 0, "s%", entry->bytes, entry->length);
  if (text || json_error_code(&error) != json_error_invalid_utf8) return text;
  json_t *list = json_array();
  for (size_t i = 0; list && i < entry->length; i++)
    sl__json_append(&list, json_integer((uint8_t)entry->bytes[i]));
  return list;
}

static json_t *vocabulary_json(const struct sl_vocabulary *v) {
  json_t *list = json_array();
  for (size_t id = 0; list && id < v->table.count; id++) {
    const struct sl__word *entry = &v->table.entries[id];
    bool byte = v->level == SL_TEXT_CHAR && id > 0;
    json_t *item = byte ? json_integer((uint8_t)entry->bytes[0]) : word_json(entry);
    sl__json_append(&list, item);
  }
  return list ? json_pack("{s:s, s:o}", "level", level_names[v->level], "words", list) : NULL;
}

static int write_piece(const char *bytes, size_t size, void *file) {
  sl__file_write(file, bytes, size);
  return 0;
}

enum sl_status sl_vocabulary_save(const struct sl_vocabulary *vocabulary, const char *path) {
  SL__NEEDS(vocabulary, path);
  enum sl_status status;
  struct sl__file *file = NULL;
  json_t *root = vocabulary_json(vocabulary);
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
    if (sl__is_blank(to[i])) return fail_word(path, id, "has a blank in it");
  return SL_OK;
}

/* Reads the list into the table, which has the special words. */
static enum sl_status read_words(const char *path, enum sl_text_level level, const json_t *list,
                                 char *room, struct sl__word_table *table) {
  enum sl_status status = SL_OK;
  size_t specials = table->count, length;
  struct sl__word *entry;
  for (size_t id = 0; id < json_array_size(list); id++) {
    const json_t *item = json_array_get(list, id);
    if (level == SL_TEXT_CHAR && id > 0) {
      length = 1;
      SL__TRY(read_byte(path, id, item, room));
    } else {
      SL__TRY(read_word(path, id, item, room, &length));
    }
    SL__TRY(sl__words_add(table, room, length, &entry));
    size_t found = (size_t)(entry - table->entries);
    if (found != id)
      return fail_word(path, id,
                       id >= specials ? "comes twice"
                       : id == 0      ? "is not " SL__WORD_UNKNOWN
                                      : "is not " SL__WORD_LINE_END);
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
  struct sl__word_table table = {0};
  char *room = NULL;
  const json_t *list = json_object_get(root, "words");
  const char *name = json_string_value(json_object_get(root, "level"));
  if (!name || sl_text_level_parse(name, &level) != SL_OK)
    return sl__fail(SL_BAD_FILE, "%s: has no \"level\", word or char; is it a vocabulary?", path);
  if (!json_is_array(list))
    return sl__fail(SL_BAD_FILE, "%s: has no list \"words\"; is it a vocabulary?", path);
  SL__TRY(sl__vocabulary_specials(level, &table));
  if (json_array_size(list) < table.count)
    SL__TRY(sl__fail(SL_BAD_FILE,
                     "%s: its \"words\" are too few; the first must be " SL__WORD_UNKNOWN, path));
  if (json_array_size(list) > SL__MOST_WORDS)
    SL__TRY(sl__fail(SL_BAD_FILE, "%s: has %zu words, too many for a vocabulary", path,
                     json_array_size(list)));
  room = sl__alloc(room_for(list), 1, "a vocabulary's words");
  if (!room) SL__TRY(SL_NO_MEMORY);
  SL__TRY(read_words(path, level, list, room, &table));
  SL__TRY(sl__vocabulary_make(level, table.entries, table.count, vocabulary));
out:
  free(room);
  sl__words_free(&table);
  return status;
}

enum sl_status sl__vocabulary_parse(const char *path, const uint8_t *bytes, size_t size,
                                    struct sl_vocabulary **vocabulary) {
  enum sl_status status;
  json_error_t error;
  json_t *root = sl__json_load(bytes, size, JSON_REJECT_DUPLICATES, &error);
  if (!root && json_error_code(&error) == json_error_out_of_memory)
    SL__TRY(sl__fail(SL_NO_MEMORY, "%s: no memory for the vocabulary", path));
  if (!root)
    SL__TRY(sl__fail(SL_BAD_FILE, "%s: is damaged or cut short at byte %d; is it a vocabulary?",
                     path, error.position));
  SL__TRY(read_vocabulary(path, root, vocabulary));
out:
  json_decref(root);
  return status;
}

enum sl_status sl_vocabulary_load(const char *path, struct sl_vocabulary **vocabulary) {
  SL__NEEDS(path, vocabulary);
  uint8_t *bytes = NULL;
  size_t size;
  enum sl_status status = sl__file_read(path, MAX_FILE, &bytes, &size);
  if (status == SL_OK) status = sl__vocabulary_parse(path, bytes, size, vocabulary);
  free(bytes);
  return status;
}
