#include "parallel/step/batch_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "core/runtime/cuda.h"
#include "core/runtime/log.h"
#include "core/runtime/wait.h"
#include "data/batches.h"

static struct sl_shape batch_shape(const struct sl_loader *loader) {
  return sl__with_rows(sl_loader_batch(loader), sl_loader_sample(loader));
}

/* A tensor over the loader's memory, cut into slices for good. */
static enum sl_status slot_tensor(struct sl_context *context, const struct sl_shape *shape,
                                  enum sl_type type, void *memory, const struct sl__grid *grid,
                                  const int64_t *rows, struct sl__tensor **tensor) {
  enum sl_status status;
  int count = grid->replicas * grid->microbatches;
  SL__TRY(sl__tensor_host(context, shape, type, memory, tensor));
  if (count < 2) return SL_OK;
  SL__TRY(sl__tensor_split(*tensor, count, rows));
  SL__TRY(sl__tensor_keep_split(*tensor));
out:
  return status;
}

static enum sl_status open_slots(struct sl__batch_tensors *feed, struct sl_context *context,
                                 const struct sl__grid *grid, int64_t *rows) {
  struct sl_shape shape = batch_shape(feed->loader), labels = SL_SHAPE(shape.dim[0]);
  const struct sl_dataset_info *info = sl_dataset_info(sl_loader_dataset(feed->loader));
  enum sl_status status = SL_OK;
  bool has_targets = info->target.ndim > 0;
  if (info->tokens) labels = shape;
  if (has_targets) labels = sl__with_rows(shape.dim[0], &info->target);
  sl__slice_rows(grid, shape.dim[0], rows);
  for (int i = 0; i < feed->slots; i++) {
    float *x;
    int32_t *classes;
    sl_loader_slot(feed->loader, i, &x, &classes);
    void *y = has_targets ? (void *)sl_loader_slot_targets(feed->loader, i) : classes;
    SL__TRY(
        slot_tensor(context, &shape, info->tokens ? SL_I32 : SL_F32, x, grid, rows, &feed->x[i]));
    SL__TRY(slot_tensor(context, &labels, has_targets ? SL_F32 : SL_I32, y, grid, rows,
                        &feed->labels[i]));
    if (!feed->pinned) continue;
    sl__cuda_settle(-1);
    /* slower copies are all that a refusal costs */
    if (starpu_memory_pin(x, feed->x[i]->bytes) || starpu_memory_pin(y, feed->labels[i]->bytes))
      sl__log(context, SL_LOG_DEBUG, "a batch's memory cannot be pinned: it is copied slowly");
  }
out:
  return status;
}

enum sl_status sl__batch_tensors_open(struct sl_context *context, struct sl_loader *loader,
                                      const struct sl__grid *grid, struct sl__batch_tensors **out) {
  enum sl_status status = SL_NO_MEMORY;
  *out = NULL;
  int64_t *rows =
      sl__alloc((size_t)grid->replicas * (size_t)grid->microbatches, sizeof *rows, "a feed");
  struct sl__batch_tensors *feed = sl__alloc(1, sizeof *feed, "a feed");
  if (!feed || !rows) goto out;
  feed->loader = loader;
  sl__loader_hold(loader);
  feed->pinned = starpu_cuda_worker_get_count() > 0;
  feed->x = sl__alloc((size_t)sl_loader_slots(loader), sizeof *feed->x, "a feed");
  feed->labels = sl__alloc((size_t)sl_loader_slots(loader), sizeof *feed->labels, "a feed");
  if (!feed->x || !feed->labels) goto out;
  feed->slots = sl_loader_slots(loader);
  SL__TRY(open_slots(feed, context, grid, rows));
  *out = feed;
  feed = NULL;
out:
  sl__batch_tensors_close(feed);
  free(rows);
  return status;
}

/* A part whose task waits for weights can cross meanwhile. Nothing is fetched ahead where there is
 * little memory; see sl_open. */
static void prefetch(struct sl__tensor *part, const struct sl__device *device) {
  if (device->place.worker && device->node != STARPU_MAIN_RAM && starpu_get_prefetch_flag())
    starpu_data_prefetch_on_node(part->handle, device->node, 1);
}

void sl__batch_tensors_prefetch(struct sl__batch_tensors *feed, int slot,
                                const struct sl__grid *grid, int reader) {
  int last = grid->layers - 1;
  for (int s = 0; s < grid->replicas * grid->microbatches; s++) {
    int replica = s / grid->microbatches;
    if (reader >= 0) prefetch(sl__part(feed->x[slot], s), sl__grid_device(grid, reader, replica));
    if (sl__grid_is_here(grid, last))
      prefetch(sl__part(feed->labels[slot], s), sl__grid_device(grid, last, replica));
  }
}

/* Writing, as StarPU sees it: the loader's thread does it after the release. */
static enum sl_status reclaim(struct sl__tensor *tensor) {
  for (int i = 0; i < (tensor->view_count ? tensor->view_count : 1); i++) {
    struct sl__tensor *part = sl__part(tensor, i);
    enum sl_status status = sl__acquire(part, STARPU_W);
    if (status != SL_OK) return status;
    starpu_data_release(part->handle);
  }
  return SL_OK;
}

enum sl_status sl__batch_tensors_recycle(struct sl__batch_tensors *feed, int slot) {
  enum sl_status status = reclaim(feed->x[slot]);
  if (status == SL_OK) status = reclaim(feed->labels[slot]);
  if (status == SL_OK) sl_loader_recycle(feed->loader, slot);
  return status;
}

/* Unpinned only when the tensor is gone: a copy to a GPU, which no task waits for, may still read
 * the memory. */
static void close_slot(struct sl__tensor *tensor, bool pinned) {
  if (!tensor) return;
  void *host = tensor->host;
  size_t bytes = tensor->bytes;
  sl__tensor_free(tensor);
  if (pinned) starpu_memory_unpin(host, bytes);
}

void sl__batch_tensors_close(struct sl__batch_tensors *feed) {
  if (!feed) return;
  for (int i = 0; i < feed->slots; i++) {
    close_slot(feed->x[i], feed->pinned);
    close_slot(feed->labels[i], feed->pinned);
  }
  free(feed->x);
  free(feed->labels);
  sl__loader_release(feed->loader);
  free(feed);
}
