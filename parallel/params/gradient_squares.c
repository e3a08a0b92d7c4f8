/* The squares of the replicas' gradients, each for itself: with the square of their sum they tell
 * how noisy gradients are (sl_report.grad_noise). */
#include <stdlib.h>

#include "parallel/params/row_gradients.h"
#include "parallel/step/plan.h"

/* Has this rank a gradient of the shard? A row-sparse one belongs to the first shard. */
static bool has_square(const struct sl__model_shards *kv, const struct sl__shard *shard) {
  return !shard->is_elsewhere && !(sl__layer_is_sparse(kv, shard->block) && shard->part);
}

enum sl_status sl__gradient_squares_new(struct sl__model_shards *kv) {
  struct sl_context *context = kv->model->context;
  int workers = kv->ranks.size ? kv->ranks.workers : 1;
  size_t count = (size_t)kv->shard_count * (size_t)kv->replicas;
  enum sl_status status = SL_OK;
  if (!kv->log_gradients || kv->replicas * workers < 2) return SL_OK;
  if (kv->ranks.size && !sl__is_worker(&kv->ranks)) return SL_OK;
  kv->replica_square = sl__alloc(count, sizeof *kv->replica_square, "squares of gradients");
  if (!kv->replica_square) return SL_NO_MEMORY;
  bool has_squares = false;
  for (size_t i = 0; i < count; i++)
    if (has_square(kv, &kv->shards[i / (size_t)kv->replicas])) {
      SL__TRY(sl__tensor_temporary(context, &SL_SHAPE(1), SL_F32, &kv->replica_square[i]));
      has_squares = true;
    }
  /* not for a rank whose layers train no parameters: it could write no sum */
  if (has_squares)
    status = sl__tensor_temporary(context, &SL_SHAPE(1), SL_F32, &kv->replica_squares);
out:
  return status;
}

void sl__gradient_squares_free(struct sl__model_shards *kv) {
  for (int i = 0; kv->replica_square && i < kv->shard_count * kv->replicas; i++)
    sl__tensor_free(kv->replica_square[i]);
  free(kv->replica_square);
  sl__tensor_free(kv->replica_squares);
}

static enum sl_status submit_square(struct sl__model_shards *kv, const struct sl__shard *shard,
                                    int replica, struct sl__tensor *square) {
  struct sl_context *context = kv->model->context;
  struct sl__tensor *gradient = kv->grads[replica][shard->block];
  if (sl__layer_is_sparse(kv, shard->block))
    return sl__rows_square(context, &shard->launch, kv->rows[replica][shard->block], gradient,
                           square);
  return sl__square_sum(context, &shard->launch, sl__part(gradient, shard->part), square);
}

/* In the order of shards, then of replicas. */
enum sl_status sl__gradient_squares_submit(struct sl__model_shards *kv) {
  const struct sl__launch launch = {.name = "norm", .priority = SL__PRIORITY_LOSS};
  int all = kv->shard_count * kv->replicas, count = 0;
  enum sl_status status = SL_OK;
  if (!kv->replica_squares) return SL_OK;
  struct sl__tensor **list = sl__alloc((size_t)all, sizeof *list, "squares of gradients");
  if (!list) return SL_NO_MEMORY;
  for (int i = 0; i < all; i++) {
    const struct sl__shard *shard = &kv->shards[i / kv->replicas];
    if (!kv->replica_square[i]) continue;
    SL__TRY(submit_square(kv, shard, i % kv->replicas, kv->replica_square[i]));
    list[count++] = kv->replica_square[i];
  }
  if (count) status = sl__reduce(kv->model->context, &launch, kv->replica_squares, count, list);
out:
  free(list);
  return status;
}
