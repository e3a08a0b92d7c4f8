#include "core/pack.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"

enum { FEW = 4 };
static const size_t MOST_BYTES = (size_t)32 << 20; /* more take longer to read than to bind */

struct packed {
  struct sl__pack_item item; /* with arguments of its own */
  size_t offset;
};

struct sl__pack {
  struct sl_context *context;
  struct sl__op *op;
  struct packed *parts;
  int count, room, forms;
  size_t bytes;
  struct sl_tensor *tensor;
  bool is_closed, is_empty;
  uint64_t copied; /* writes of all parts when they were copied */
};

enum sl_status sl__pack_new(struct sl_context *context, struct sl__op *op, struct sl__pack **pack) {
  *pack = sl__alloc(1, sizeof **pack, "a pack of tensors");
  if (!*pack) return SL_NO_MEMORY;
  **pack = (struct sl__pack){.context = context, .op = op, .copied = UINT64_MAX};
  return SL_OK;
}

void sl__pack_free(struct sl__pack *pack) {
  if (!pack || pack->context->abandoned) return; /* its task may read it yet */
  sl__tensor_free(pack->tensor);
  for (int i = 0; i < pack->count; i++) free((void *)pack->parts[i].item.args);
  free(pack->parts);
  free(pack);
}

int64_t sl__pack_offset(const struct sl__pack *pack, const struct sl__pack_item *item) {
  for (int i = 0; i < pack->count && !pack->is_empty; i++) {
    const struct sl__pack_item *it = &pack->parts[i].item;
    if (it->tensor == item->tensor && it->make == item->make && it->bytes == item->bytes)
      return (int64_t)pack->parts[i].offset;
  }
  return -1;
}

static enum sl_status add(struct sl__pack *p, const struct sl__pack_item *item) {
  struct sl__pack_item own = *item;
  if (p->count == p->room) {
    int room = p->room ? 2 * p->room : 32;
    struct packed *parts = sl__realloc(p->parts, (size_t)room, sizeof *parts, "a pack of tensors");
    if (!parts) return SL_NO_MEMORY;
    p->parts = parts;
    p->room = room;
  }
  if (item->make) {
    void *args = sl__alloc(1, item->args_size, "a pack of tensors");
    if (!args) return SL_NO_MEMORY;
    own.args = memcpy(args, item->args, item->args_size);
    p->forms++;
  } else {
    own.args = NULL;
  }
  p->parts[p->count++] = (struct packed){own, p->bytes};
  p->bytes += sl__pack_room(item->bytes);
  return SL_OK;
}

enum sl_status sl__pack_add(struct sl__pack *p, const struct sl__pack_item *item) {
  const struct sl_tensor *t = item->tensor;
  bool is_part = t->is_view || t->is_piece || sl__tensor_is_cut(t);
  bool is_full = p->bytes > MOST_BYTES || item->bytes > MOST_BYTES - p->bytes;
  if (p->is_closed || is_part || is_full || sl__pack_offset(p, item) >= 0) return SL_OK;
  return add(p, item);
}

enum sl_status sl__pack_close(struct sl__pack *p) {
  p->is_closed = true;
  p->is_empty = p->count < FEW && !p->forms;
  if (p->is_empty) return SL_OK;
  const struct sl_shape shape = SL_SHAPE((int64_t)(p->bytes / sizeof(float)));
  enum sl_status status = sl__tensor_temporary(p->context, &shape, SL_F32, &p->tensor);
  if (status != SL_OK) p->is_empty = true;
  return status;
}

bool sl__pack_is_closed(const struct sl__pack *pack) { return pack->is_closed; }

struct sl_tensor *sl__pack_tensor(const struct sl__pack *pack) {
  return pack->tensor;
}

enum sl_status sl__pack_refresh(struct sl__pack *p) {
  const struct sl__launch launch = {.name = "pack", .place = {.where = STARPU_CPU}};
  uint64_t writes = 0;
  for (int i = 0; i < p->count; i++) writes += sl__tensor_writes(p->parts[i].item.tensor);
  if (!p->tensor || writes == p->copied) return SL_OK;
  struct sl_tensor *tensors[p->count + 1];
  tensors[0] = p->tensor;
  for (int i = 0; i < p->count; i++) tensors[i + 1] = p->parts[i].item.tensor;
  /* the argument is an address: the task runs in this process */
  enum sl_status status =
      sl__submit(p->context, p->op, &launch, p->count + 1, tensors, &p, sizeof p, 0, 0);
  if (status == SL_OK) p->copied = writes;
  return status;
}

void sl__pack_fill(const struct sl__pack *pack, int i, const void *from, char *to) {
  const struct packed *part = &pack->parts[i];
  if (part->item.make)
    part->item.make(part->item.args, from, to + part->offset);
  else
    memcpy(to + part->offset, from, part->item.bytes);
}
