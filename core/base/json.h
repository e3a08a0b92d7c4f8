/* Calls of jansson whose failures are not overlooked. A value that cannot be made for lack of
 * memory is NULL, and so is each object or array that it was to be a part of: the last of them is
 * tested. Inline, since programs use them, too, and the library exports no internal function. */
#ifndef SL_CORE_BASE_JSON_H
#define SL_CORE_BASE_JSON_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds value, which is freed with *object or *array from then on. If value is NULL, or there is no
 * memory, *object or *array is freed and becomes NULL; the value is freed, too. */
static inline void sl__json_set(json_t **object, const char *key, json_t *value) {
  if (json_object_set_new(*object, key, value) == 0) return;
  json_decref(*object);
  *object = NULL;
}

static inline void sl__json_append(json_t **array, json_t *value) {
  if (json_array_append_new(*array, value) == 0) return;
  json_decref(*array);
  *array = NULL;
}

/* Leaves out what is infinite or not a number: JSON has no such numbers. */
static inline void sl__json_set_finite(json_t **object, const char *key, double value) {
  if (isfinite(value)) sl__json_set(object, key, json_real(value));
}

/* As json_dumps, to be freed; NULL without memory, or if value is NULL. json_dumps itself may leave
 * out part of a key then. */
static inline char *sl__json_text(const json_t *value, size_t flags) {
  size_t size = json_dumpb(value, NULL, 0, flags);
  char *text = size ? (char *)malloc(size + 1) : NULL;
  if (text && json_dumpb(value, text, size, flags) != size) {
    free(text);
    text = NULL;
  }
  if (text) text[size] = '\0';
  return text;
}

/* As json_loadb and json_load_file. Jansson may take a lack of memory for a damaged text: what
 * fails is read twice. */
static inline json_t *sl__json_load(const void *bytes, size_t size, size_t flags,
                                    json_error_t *error) {
  json_t *value = json_loadb((const char *)bytes, size, flags, error);
  return value ? value : json_loadb((const char *)bytes, size, flags, error);
}

static inline json_t *sl__json_load_file(const char *path, size_t flags, json_error_t *error) {
  json_t *value = json_load_file(path, flags, error);
  return value ? value : json_load_file(path, flags, error);
}

/* Floats without the digits that they do not have: 0.1, not 0.100000001. */
static inline double sl__json_number(double value) {
  char text[32];
  snprintf(text, sizeof text, "%.7g", value);
  return strtod(text, NULL);
}

/* The members of both, of `more` where both have one. Takes more; NULL stays NULL. */
static inline json_t *sl__json_join(json_t *all, json_t *more) {
  if (all && (!more || json_object_update(all, more) != 0)) {
    json_decref(all);
    all = NULL;
  }
  json_decref(more);
  return all;
}

/* Can a JSON text hold this one? Without memory true: what makes a value of it tells then. */
static inline bool sl__is_utf8(const char *text) {
  json_error_t error = {0};
  json_t *value = json_pack_ex(&error, 0, "s", text);
  json_decref(value);
  return value || json_error_code(&error) != json_error_invalid_utf8;
}

/* A text of the user's may be no UTF-8, which JSON must be: such bytes become '?'. NULL becomes
 * null. */
static inline json_t *sl__json_string(const char *text) {
  json_t *value = text ? json_string(text) : json_null();
  if (value) return value;
  char *copy = strdup(text);
  for (char *c = copy; copy && *c; c++)
    if ((unsigned char)*c >= 0x80) *c = '?';
  value = copy ? json_string(copy) : NULL;
  free(copy);
  return value;
}

#endif
