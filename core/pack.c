#include "core/pack.h"

#include <stdlib.h>

#include "core/error.h"

enum { FEW = 4 };
static const size_t MOST_BYTES = (size_t)32 << 20; /* more take longer to read than to bind */

struct packed {
  struct sl_tensor *tensor;
  size_t offset;
};

struct sl__pack {
  struct sl_context *context;
  struct sl__op *op;
  struct packed *parts;
  int count, room;
  size_t bytes;
  struct sl_tensor *tensor;
  bool is_closed;
  uint64_t copied; /* writes of all parts when they were copied */
};

enum sl_status sl__pack_new(struct sl_context *context, struct sl__op *op, struct sl__pack **pack) {
  *pack = sl__alloc(1, sizeof **pack, "a pack of tensors");
  if (!*pack) return SL_NO_MEMORY;
  **pack = (struct sl__pack){.context = context, .op = op, .copied = UINT64_MAX};
  return SL_OK;
}

void sl__pack_free(struct sl__pack *pack) {
  if (!pack) return;
  sl__tensor_free(pack->tensor);
  free(pack->parts);
  free(pack);
}

int64_t sl__pack_offset(const struct sl__pack *pack, const struct sl_tensor *tensor) {
  for (int i = 0; i < pack->count; i++)
    if (pack->parts[i].tensor == tensor) return (int64_t)pack->parts[i].offset;
  return -1;
}

enum sl_status sl__pack_add(struct sl__pack *p, struct sl_tensor *tensor) {
  bool is_part = tensor->is_view || tensor->is_piece || sl__tensor_is_cut(tensor);
  if (p->is_closed || is_part || sl__pack_offset(p, tensor) >= 0) return SL_OK;
  if (tensor->bytes > MOST_BYTES - p->bytes) return SL_OK;
  if (p->count == p->room) {
    int room = p->room ? 2 * p->room : 32;
    struct packed *parts = sl__realloc(p->parts, (size_t)room, sizeof *parts, "a pack of tensors");
    if (!parts) return SL_NO_MEMORY;
    p->parts = parts;
    p->room = room;
  }
  p->parts[p->count++] = (struct packed){tensor, p->bytes};
  p->bytes += sl__pack_room(tensor->bytes);
  if (p->bytes > MOST_BYTES) p->bytes = MOST_BYTES;
  return SL_OK;
}

enum sl_status sl__pack_close(struct sl__pack *p) {
  p->is_closed = true;
  if (p->count < FEW) p->count = 0;
  if (!p->count) return SL_OK;
  const struct sl_shape shape = SL_SHAPE((int64_t)(p->bytes / sizeof(float)));
  enum sl_status status = sl__tensor_temporary(p->context, &shape, SL_F32, &p->tensor);
  if (status != SL_OK) p->count = 0;
  return status;
}

bool sl__pack_is_closed(const struct sl__pack *pack) { return pack->is_closed; }

struct sl_tensor *sl__pack_tensor(const struct sl__pack *pack) {
  return pack->tensor;
}

enum sl_status sl__pack_refresh(struct sl__pack *p) {
  const struct sl__launch launch = {.name = "pack", .place = {.where = STARPU_CPU}};
  uint64_t writes = 0;
  for (int i = 0; i < p->count; i++) writes += sl__tensor_writes(p->parts[i].tensor);
  if (!p->tensor || writes == p->copied) return SL_OK;
  struct sl_tensor *tensors[p->count + 1];
  int64_t bytes[p->count];
  tensors[0] = p->tensor;
  for (int i = 0; i < p->count; i++) {
    tensors[i + 1] = p->parts[i].tensor;
    bytes[i] = (int64_t)p->parts[i].tensor->bytes;
  }
  enum sl_status status =
      sl__submit(p->context, p->op, &launch, p->count + 1, tensors, bytes, sizeof bytes, 0, 0);
  if (status == SL_OK) p->copied = writes;
  return status;
}
