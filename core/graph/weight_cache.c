#include "core/graph/weight_cache.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/memory/limits.h"

enum { FEW = 4, MOST_MEMBERS = 8 };
static const size_t MOST_BYTES = (size_t)64 << 20;
static const size_t MOST_PLAIN = (size_t)1 << 20; /* to copy more is worse than a tensor more */

struct packed {
  struct sl__weight_cache_item item; /* with arguments of its own */
  size_t offset;
};

/* One member of the list that a pack is. */
struct sl__weight_cache {
  struct sl_context *context;
  struct sl__op *op;
  struct packed *parts;
  int count, room, forms;
  size_t bytes;
  struct sl__tensor *tensor; /* NULL: it is open */
  uint64_t copied;           /* writes of all parts when they were copied */
  struct sl__weight_cache *next;
};

enum sl_status sl__weight_cache_new(struct sl_context *context, struct sl__op *op,
                                    struct sl__weight_cache **pack) {
  *pack = sl__alloc(1, sizeof **pack, "a pack of tensors");
  if (!*pack) return SL_NO_MEMORY;
  **pack = (struct sl__weight_cache){.context = context, .op = op, .copied = UINT64_MAX};
  return SL_OK;
}

static void clear(struct sl__weight_cache *p) {
  for (int i = 0; i < p->count; i++) free((void *)p->parts[i].item.args);
  p->count = p->forms = 0;
  p->bytes = 0;
}

void sl__weight_cache_free(struct sl__weight_cache *pack) {
  for (struct sl__weight_cache *p = pack, *next; p; p = next) {
    next = p->next;
    sl__tensor_free(p->tensor);
    if (__atomic_load_n(&p->context->abandoned, __ATOMIC_ACQUIRE)) return; /* a task may read it */
    clear(p);
    free(p->parts);
    free(p);
  }
}

static const struct packed *find(const struct sl__weight_cache *p,
                                 const struct sl__weight_cache_item *item) {
  for (int i = 0; i < p->count; i++) {
    const struct sl__weight_cache_item *it = &p->parts[i].item;
    if (it->tensor == item->tensor && it->make == item->make && it->key == item->key &&
        it->bytes == item->bytes)
      return &p->parts[i];
  }
  return NULL;
}

const struct sl__weight_cache *sl__weight_cache_member(const struct sl__weight_cache *p,
                                                       const struct sl__weight_cache_item *item) {
  while (p && !(p->tensor && find(p, item))) p = p->next;
  return p;
}

int64_t sl__weight_cache_offset(const struct sl__weight_cache *pack,
                                const struct sl__weight_cache_item *item) {
  const struct sl__weight_cache *p = sl__weight_cache_member(pack, item);
  return p ? (int64_t)find(p, item)->offset : -1;
}

static enum sl_status add(struct sl__weight_cache *p, const struct sl__weight_cache_item *item) {
  struct sl__weight_cache_item own = *item;
  if (p->count == p->room) {
    int room = p->room ? 2 * p->room : 32;
    struct packed *parts = sl__realloc(p->parts, (size_t)room, sizeof *parts, "a pack of tensors");
    if (!parts) return SL_NO_MEMORY;
    p->parts = parts;
    p->room = room;
  }
  own.args = NULL;
  if (item->make) {
    void *args = sl__alloc(1, item->args_size, "a pack of tensors");
    if (!args) return SL_NO_MEMORY;
    own.args = memcpy(args, item->args, item->args_size);
    p->forms++;
  }
  p->parts[p->count++] = (struct packed){own, p->bytes};
  p->bytes += sl__weight_cache_room(item->bytes);
  return SL_OK;
}

bool sl__weight_cache_holds(const struct sl__weight_cache *p,
                            const struct sl__weight_cache_item *item) {
  while (p && !find(p, item)) p = p->next;
  return p;
}

/* A part of main memory, where that is limited. */
static size_t most_bytes(const struct sl__weight_cache *p) {
  size_t limit = sl__memory_limit(p->context->memory) / 8;
  return limit && limit < MOST_BYTES ? limit : MOST_BYTES;
}

enum sl_status sl__weight_cache_add(struct sl__weight_cache *pack,
                                    const struct sl__weight_cache_item *item) {
  const struct sl__tensor *t = item->tensor;
  struct sl__weight_cache *p = pack;
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
  if (is_part || is_large || is_full || sl__weight_cache_holds(pack, item)) return SL_OK;
  if (p->tensor) {
    enum sl_status status = sl__weight_cache_new(pack->context, pack->op, &p->next);
    if (status != SL_OK) return status;
    p = p->next;
  }
  return add(p, item);
}

enum sl_status sl__weight_cache_close(struct sl__weight_cache *pack) {
  struct sl__weight_cache *p = pack;
  while (p->next) p = p->next;
  if (p->tensor || !p->count) return SL_OK;
  if (p->count < FEW && !p->forms) {
    clear(p);
    return SL_OK;
  }
  const struct sl_shape shape = SL_SHAPE((int64_t)(p->bytes / sizeof(float)));
  enum sl_status status = sl__tensor_temporary(p->context, &shape, SL_F32, &p->tensor);
  if (status != SL_OK) p->tensor = NULL;
  return status;
}

struct sl__tensor *sl__weight_cache_tensor(const struct sl__weight_cache *pack) {
  return pack->tensor;
}

static enum sl_status refresh(struct sl__weight_cache *p) {
  const struct sl__launch launch = {.name = "pack", .place = {.where = STARPU_CPU}};
  uint64_t writes = 0;
  for (int i = 0; i < p->count; i++) writes += sl__tensor_writes(p->parts[i].item.tensor);
  if (!p->tensor || writes == p->copied) return SL_OK;
  struct sl__tensor *tensors[p->count + 1];
  tensors[0] = p->tensor;
  for (int i = 0; i < p->count; i++) tensors[i + 1] = p->parts[i].item.tensor;
  /* the argument is an address: the task runs in this process */
  enum sl_status status =
      sl__submit(p->context, p->op, &launch, p->count + 1, tensors, &p, sizeof p, 0, 0);
  if (status == SL_OK) p->copied = writes;
  return status;
}

enum sl_status sl__weight_cache_refresh(struct sl__weight_cache *pack) {
  enum sl_status status = SL_OK;
  for (struct sl__weight_cache *p = pack; p && status == SL_OK; p = p->next) status = refresh(p);
  return status;
}

void sl__weight_cache_fill(const struct sl__weight_cache *member, int i, const void *from,
                           char *to) {
  const struct packed *part = &member->parts[i];
  if (part->item.make)
    part->item.make(part->item.args, from, to + part->offset);
  else
    memcpy(to + part->offset, from, part->item.bytes);
}
