/* A table of words: entries in the order of their ids, found by hashing. */
#include "data/word_table.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/hash.h"

void sl__words_free(struct sl__word_table *table) {
  free(table->entries);
  free(table->slots);
}

static uint64_t hash(const char *bytes, size_t length) {
  uint64_t h = sl__fnv1a(bytes, length);
  return h ^ h >> 32;
}

/* The word's slot, or the free slot for it. */
static int32_t *find_slot(const struct sl__word_table *table, const char *bytes, size_t length) {
  for (size_t i = hash(bytes, length);; i++) {
    int32_t *slot = &table->slots[i & (table->slot_count - 1)];
    if (*slot == 0) return slot;
    const struct sl__word *entry = &table->entries[*slot - 1];
    if (entry->length == length && memcmp(entry->bytes, bytes, length) == 0) return slot;
  }
}

/* Makes slots for the table's capacity and enters the words. */
static enum sl_status table_hash(struct sl__word_table *table) {
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

enum sl_status sl__words_reserve(struct sl__word_table *table, size_t capacity) {
  struct sl__word *grown = sl__realloc(table->entries, capacity, sizeof *grown, "a vocabulary");
  if (!grown) return SL_NO_MEMORY;
  table->entries = grown;
  table->capacity = capacity;
  return table_hash(table);
}

enum sl_status sl__words_add(struct sl__word_table *table, const char *bytes, size_t length,
                             struct sl__word **entry) {
  if (table->count == table->capacity) {
    enum sl_status status = sl__words_reserve(table, table->capacity ? table->capacity * 2 : 1024);
    if (status != SL_OK) return status;
  }
  int32_t *slot = find_slot(table, bytes, length);
  if (*slot == 0) {
    table->entries[table->count] = (struct sl__word){bytes, length, 0};
    *slot = (int32_t)++table->count;
  }
  *entry = &table->entries[*slot - 1];
  return SL_OK;
}

int64_t sl__words_find(const struct sl__word_table *table, const char *bytes, size_t length) {
  return (int64_t)*find_slot(table, bytes, length) - 1;
}
