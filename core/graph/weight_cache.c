#include "core/graph/weight_cache.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/memory/limits.h"

enum { LEAST_PLAIN = 4, MOST_MEMBERS = 8 };
static const size_t MOST_BYTES = (size_t)64 << 20;
static const size_t MOST_PLAIN = (size_t)1 << 20; /* a larger copy costs more than a tensor */

struct cached {
  struct sl__weight_cache_item item; /* with a copy of the arguments */
  size_t offset;
};

/* A member; the cache is the first one of the list. */
struct sl__weight_cache {
  struct sl_context *context;
  struct sl__op *op;
  struct cached *items;
  int count, room, prepacked;
  size_t bytes;
  struct sl__tensor *tensor; /* NULL: items can be added */
  uint64_t copied;           /* number of writes to all items' tensors at the last refresh */
  struct sl__weight_cache *next;
};

enum sl_status sl__weight_cache_new(struct sl_context *context, struct sl__op *op,
                                    struct sl__weight_cache **cache) {
  *cache = sl__alloc(1, sizeof **cache, "the weight cache");
  if (!*cache) return SL_NO_MEMORY;
  **cache = (struct sl__weight_cache){.context = context, .op = op, .copied = UINT64_MAX};
  return SL_OK;
}

static void clear(struct sl__weight_cache *p) {
  for (int i = 0; i < p->count; i++) free((void *)p->items[i].item.args);
  p->count = p->prepacked = 0;
  p->bytes = 0;
}

void sl__weight_cache_free(struct sl__weight_cache *cache) {
  for (struct sl__weight_cache *p = cache, *next; p; p = next) {
    next = p->next;
    sl__tensor_free(p->tensor);
    if (__atomic_load_n(&p->context->abandoned, __ATOMIC_ACQUIRE))
      return; /* a task may still read it */
    clear(p);
    free(p->items);
    free(p);
  }
}

static const struct cached *find(const struct sl__weight_cache *p,
                                 const struct sl__weight_cache_item *item) {
  for (int i = 0; i < p->count; i++) {
    const struct sl__weight_cache_item *it = &p->items[i].item;
    if (it->tensor == item->tensor && it->make == item->make && it->key == item->key &&
        it->bytes == item->bytes)
      return &p->items[i];
  }
  return NULL;
}

const struct sl__weight_cache *sl__weight_cache_member(const struct sl__weight_cache *p,
                                                       const struct sl__weight_cache_item *item) {
  while (p && !(p->tensor && find(p, item))) p = p->next;
  return p;
}

int64_t sl__weight_cache_offset(const struct sl__weight_cache *cache,
                                const struct sl__weight_cache_item *item) {
  const struct sl__weight_cache *p = sl__weight_cache_member(cache, item);
  return p ? (int64_t)find(p, item)->offset : -1;
}

static enum sl_status add(struct sl__weight_cache *p, const struct sl__weight_cache_item *item) {
  struct sl__weight_cache_item own = *item;
  if (p->count == p->room) {
    int room = p->room ? 2 * p->room : 32;
    struct cached *items = sl__realloc(p->items, (size_t)room, sizeof *items, "the weight cache");
    if (!items) return SL_NO_MEMORY;
    p->items = items;
    p->room = room;
  }
  own.args = NULL;
  if (item->make) {
    void *args = sl__alloc(1, item->args_size, "the weight cache");
    if (!args) return SL_NO_MEMORY;
    own.args = memcpy(args, item->args, item->args_size);
    p->prepacked++;
  }
  p->items[p->count++] = (struct cached){own, p->bytes};
  p->bytes += sl__weight_cache_room(item->bytes);
  return SL_OK;
}

bool sl__weight_cache_holds(const struct sl__weight_cache *p,
                            const struct sl__weight_cache_item *item) {
  while (p && !find(p, item)) p = p->next;
  return p;
}

/* If main memory is limited, a part of that. */
static size_t most_bytes(const struct sl__weight_cache *p) {
  size_t limit = sl__memory_limit(p->context->memory) / 8;
  return limit && limit < MOST_BYTES ? limit : MOST_BYTES;
}

enum sl_status sl__weight_cache_add(struct sl__weight_cache *cache,
                                    const struct sl__weight_cache_item *item) {
  const struct sl__tensor *t = item->tensor;
  struct sl__weight_cache *p = cache;
  size_t bytes = p->bytes, most = most_bytes(p);
  int members = 1;
  for (; p->next; members++) {
    p = p->next;
    bytes += p->bytes;
  }
  bool is_part = t->is_view || t->is_piece || sl__tensor_is_cut(t);
  bool is_large = !item->make && item->bytes > MOST_PLAIN;
  bool is_full =
      bytes > most || item->bytes > most - bytes || (p->tensor && members == MOST_MEMBERS);
  if (is_part || is_large || is_full || sl__weight_cache_holds(cache, item)) return SL_OK;
  if (p->tensor) {
    enum sl_status status = sl__weight_cache_new(cache->context, cache->op, &p->next);
    if (status != SL_OK) return status;
    p = p->next;
  }
  return add(p, item);
}

enum sl_status sl__weight_cache_close(struct sl__weight_cache *cache) {
  struct sl__weight_cache *p = cache;
  while (p->next) p = p->next;
  if (p->tensor || !p->count) return SL_OK;
  if (p->count < LEAST_PLAIN && !p->prepacked) {
    clear(p);
    return SL_OK;
  }
  const struct sl_shape shape = SL_SHAPE((int64_t)(p->bytes / sizeof(float)));
  enum sl_status status = sl__tensor_temporary(p->context, &shape, SL_F32, &p->tensor);
  if (status != SL_OK) p->tensor = NULL;
  return status;
}

struct sl__tensor *sl__weight_cache_tensor(const struct sl__weight_cache *cache) {
  return cache->tensor;
}

static enum sl_status refresh(struct sl__weight_cache *p) {
  const struct sl__launch launch = {.name = "prepack", .place = {.where = STARPU_CPU}};
  uint64_t writes = 0;
  for (int i = 0; i < p->count; i++) writes += sl__tensor_writes(p->items[i].item.tensor);
  if (!p->tensor || writes == p->copied) return SL_OK;
  struct sl__tensor *tensors[p->count + 1];
  tensors[0] = p->tensor;
  for (int i = 0; i < p->count; i++) tensors[i + 1] = p->items[i].item.tensor;
  /* an address may be an argument, since the task runs in this process */
  enum sl_status status =
      sl__submit(p->context, p->op, &launch, p->count + 1, tensors, &p, sizeof p, 0, 0);
  if (status == SL_OK) p->copied = writes;
  return status;
}

enum sl_status sl__weight_cache_refresh(struct sl__weight_cache *cache) {
  enum sl_status status = SL_OK;
  for (struct sl__weight_cache *p = cache; p && status == SL_OK; p = p->next) status = refresh(p);
  return status;
}

void sl__weight_cache_fill(const struct sl__weight_cache *member, int i, const void *from,
                           char *to) {
  const struct cached *cached = &member->items[i];
  if (cached->item.make)
    cached->item.make(cached->item.args, from, to + cached->offset);
  else
    memcpy(to + cached->offset, from, cached->item.bytes);
}
