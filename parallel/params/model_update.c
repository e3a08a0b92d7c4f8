/* The update of a model's parameters: sums of gradients, their norm, the optimizer's step on each
 * shard, over ranks or not. */
#include "parallel/params/model_shards.h"
#include "parallel/params/row_gradients.h"
#include "parallel/step/plan.h"

/* The shard's part of each replica's gradient, in the replicas' order. */
static struct sl__tensor *const *replica_terms(struct sl__model_shards *kv,
                                               const struct sl__shard *shard) {
  for (int r = 0; r < kv->replicas; r++)
    kv->terms[r] = sl__part(kv->grads[r][shard->block], shard->part);
  return kv->terms;
}

/* The gradients that the owner adds up: its replicas', or those of all ranks. */
static struct sl__tensor *const *shard_terms(struct sl__model_shards *kv,
                                             const struct sl__shard *shard, int *count) {
  if (kv->exchange) return sl__exchange_terms(kv->exchange, (int)(shard - kv->shards), count);
  *count = kv->replicas;
  return replica_terms(kv, shard);
}

/* ---- the norm ---- */

/* The sum of a shard's gradients, if there are several, and the sum of its squares. */
static enum sl_status submit_square(struct sl__model_shards *kv, struct sl__shard *shard) {
  struct sl_context *context = kv->model->context;
  const struct sl__row_sum *rows = &kv->sums[shard->block];
  int count;
  if (shard->square && rows->rows && !kv->exchange && sl__shard_is_mine(kv, shard))
    return sl__rows_square(context, &shard->launch, rows->rows, rows->values, shard->square);
  if (!shard->square || !sl__shard_is_mine(kv, shard)) return SL_OK;
  struct sl__tensor *const *terms = shard_terms(kv, shard, &count);
  struct sl__tensor *sum = shard->sum ? shard->sum : terms[0];
  enum sl_status status = SL_OK;
  if (shard->sum) status = sl__reduce(context, &shard->launch, sum, count, terms);
  return status == SL_OK ? sl__square_sum(context, &shard->launch, sum, shard->square) : status;
}

/* Where the shards' squares are computed, so that they need not travel; anywhere if that is on
 * several devices. */
static struct sl__place norm_place(const struct sl__model_shards *kv) {
  const struct sl__shard *first = NULL;
  for (int s = 0; s < kv->shard_count; s++) {
    const struct sl__shard *shard = &kv->shards[s];
    if (!kv->is_async && !sl__shard_is_mine(kv, shard)) continue;
    if (first && shard->device != first->device) return (struct sl__place){0};
    if (!first) first = shard;
  }
  return first ? first->launch.place : (struct sl__place){0};
}

/* The sum of the shards' squares, in the shards' order. */
static enum sl_status add_squares(struct sl__model_shards *kv) {
  const struct sl__launch launch = {
      .name = "norm", .place = norm_place(kv), .priority = SL__PRIORITY_LOSS};
  int count = 0;
  for (int s = 0; s < kv->shard_count; s++) /* row-sparse: the layer's first shard has it */
    if (kv->shards[s].square) kv->list[count++] = kv->shards[s].square;
  return count ? sl__reduce(kv->model->context, &launch, kv->norm, count, kv->list) : SL_OK;
}

static struct sl__tensor *square_of(const struct sl__shard *shard) { return shard->square; }

/* The square of the global norm. */
static enum sl_status submit_norm(struct sl__model_shards *kv) {
  struct sl_context *context = kv->model->context;
  enum sl_status status = SL_OK;
  for (int s = 0; s < kv->shard_count; s++) SL__TRY(submit_square(kv, &kv->shards[s]));
  if (kv->ranks.size) {
    SL__TRY(sl__owners_exchange(context, &kv->ranks, SL__TAG_EXCHANGE + SL__TAG_SQUARES,
                                kv->shard_count, kv->shards, square_of, kv->list));
    if (kv->ranks.rank < sl__first_owner(&kv->ranks)) return SL_OK;
  }
  status = add_squares(kv);
out:
  return status;
}

/* dist_async: the norm of this worker's own gradient. No rank has the gradients of all workers at
 * one time. */
static enum sl_status submit_own_norm(struct sl__model_shards *kv) {
  struct sl_context *context = kv->model->context;
  enum sl_status status = SL_OK;
  for (int s = 0; s < kv->shard_count; s++) {
    const struct sl__shard *shard = &kv->shards[s];
    SL__TRY(sl__square_sum(context, &shard->launch, shard->gradient, shard->square));
  }
  status = add_squares(kv);
out:
  return status;
}

/* ---- the update ---- */

/* NULL: gradients are not clipped; their norm may be logged all the same. */
static struct sl__tensor *clip_norm(const struct sl__model_shards *kv) {
  return kv->optimizer.clip > 0 ? kv->norm : NULL;
}

static enum sl_status submit_update(struct sl__model_shards *kv, struct sl__shard *shard,
                                    const struct sl__update *update) {
  struct sl_context *context = kv->model->context;
  const struct sl__row_sum *rows = &kv->sums[shard->block];
  const struct sl__update own = sl__shard_settings(shard, update);
  if (sl__layer_is_sparse(kv, shard->block) && !rows->dense)
    return sl__optimizer_of(&kv->optimizer)
        ->update_rows(context, &shard->launch, shard->param, shard->first, rows->rows, rows->values,
                      clip_norm(kv), &own);
  struct sl__tensor *dense =
      rows->dense && !kv->exchange ? sl__part(rows->dense, shard->part) : NULL;
  struct sl__gradients gradients = {.count = 1, .norm = clip_norm(kv)};
  if (dense)
    gradients.terms = &dense;
  else if (shard->sum)
    gradients.terms = &shard->sum;
  else
    gradients.terms = shard_terms(kv, shard, &gradients.count);
  return sl__shard_update(context, shard, shard->param, &kv->optimizer, update, &gradients);
}

static enum sl_status for_mine(struct sl__model_shards *kv, const struct sl__update *update,
                               enum sl_status (*submit)(struct sl__model_shards *kv,
                                                        struct sl__shard *shard,
                                                        const struct sl__update *update)) {
  enum sl_status status = SL_OK;
  for (int s = 0; s < kv->shard_count && status == SL_OK; s++)
    if (sl__shard_is_mine(kv, &kv->shards[s])) status = submit(kv, &kv->shards[s], update);
  return status;
}

/* ---- LAMB's second half: parameters move by the norms of the whole ones ---- */

/* Of blocks that are cut; the owner of a whole block needs nothing from others. */
static struct sl__tensor *trust_of(const struct sl__shard *shard) {
  return shard->is_cut ? shard->trust : NULL;
}

/* The sum of the shards' squares, in the shards' order. */
static enum sl_status add_trust(struct sl__model_shards *kv, const struct sl__shard *first) {
  const struct sl__shard *mine = NULL, *end = kv->shards + kv->shard_count;
  int count = 0;
  for (const struct sl__shard *s = first; s < end && s->block == first->block; s++) {
    kv->list[count++] = s->trust;
    if (!mine && sl__shard_is_mine(kv, s)) mine = s;
  }
  return mine ? sl__reduce(kv->model->context, &mine->launch, first->trust_sum, count, kv->list)
              : SL_OK;
}

static enum sl_status move_by_trust(struct sl__model_shards *kv, struct sl__shard *shard,
                                    const struct sl__update *update) {
  const struct sl__update own = sl__shard_settings(shard, update);
  struct sl__tensor *all = (shard - shard->part)->trust_sum;
  return sl__lamb(kv->model->context, &shard->launch, shard->param, shard->state,
                  all ? all : shard->trust, &own, &shard->parts);
}

static enum sl_status submit_by_trust(struct sl__model_shards *kv,
                                      const struct sl__update *update) {
  enum sl_status status = SL_OK;
  if (kv->exchange)
    SL__TRY(sl__owners_exchange(kv->model->context, &kv->ranks, SL__TAG_EXCHANGE + SL__TAG_TRUST,
                                kv->shard_count, kv->shards, trust_of, kv->list));
  for (int s = 0; s < kv->shard_count; s++)
    if (kv->shards[s].trust_sum) SL__TRY(add_trust(kv, &kv->shards[s]));
  status = for_mine(kv, update, move_by_trust);
out:
  return status;
}

/* ---- averages ---- */

static enum sl_status submit_average(struct sl__model_shards *kv, struct sl__shard *shard,
                                     const struct sl__update *update) {
  return sl__update(kv->model->context, &sl__op_moving_average, &shard->launch,
                    shard->state[SL__AVERAGE], NULL, 1, &shard->param, NULL, update);
}

/* The parameters may be a piece of a tensor, which an update may write, but a sum may not. */
static enum sl_status swap_average(struct sl__model_shards *kv, struct sl__shard *shard,
                                   const struct sl__update *update) {
  static const struct sl__update copy = {.step = 1};
  struct sl_context *context = kv->model->context;
  struct sl__tensor *between, **average = &shard->state[SL__AVERAGE];
  enum sl_status status;
  (void)update;
  SL__TRY(sl__tensor_temporary(context, &SL_SHAPE(shard->count), SL_F32, &between));
  status = sl__reduce(context, &shard->launch, between, 1, &shard->param);
  if (status == SL_OK)
    status = sl__update(context, &sl__op_moving_average, &shard->launch, shard->param, NULL, 1,
                        average, NULL, &copy);
  if (status == SL_OK) status = sl__reduce(context, &shard->launch, *average, 1, &between);
  sl__tensor_free_later(between);
out:
  return status;
}

enum sl_status sl__model_shards_swap_average(struct sl__model_shards *kv) {
  enum sl_status status;
  SL__TRY(for_mine(kv, NULL, swap_average));
  for (int m = kv->exchange ? sl__exchange_messages(kv->exchange) - 1 : -1; m >= 0; m--)
    SL__TRY(sl__exchange_pull(kv->exchange, m));
out:
  return status;
}

/* ---- all of it ---- */

static enum sl_status update_mine(struct sl__model_shards *kv, const struct sl__update *update) {
  enum sl_status status;
  SL__TRY(for_mine(kv, update, submit_update));
  if (sl__optimizer_of(&kv->optimizer)->trusts) SL__TRY(submit_by_trust(kv, update));
  if (kv->optimizer.average > 0) status = for_mine(kv, update, submit_average);
out:
  return status;
}

/* This rank's gradient of a shard: the sum of its replicas' gradients if there are several. */
static enum sl_status submit_gradient(struct sl__model_shards *kv, struct sl__shard *shard) {
  struct sl__tensor *dense = kv->sums[shard->block].dense;
  if (dense)
    shard->gradient = sl__part(dense, shard->part);
  else if (shard->local_sum)
    shard->gradient = shard->local_sum;
  else
    shard->gradient = sl__part(kv->grads[0][shard->block], shard->part);
  if (!shard->local_sum) return SL_OK;
  return sl__reduce(kv->model->context, &shard->launch, shard->local_sum, kv->replicas,
                    replica_terms(kv, shard));
}

/* The gradients of message m, and the message. All sums first would become one task of a captured
 * step, and the first message would wait for the last gradient. */
static enum sl_status submit_push(struct sl__model_shards *kv, int m) {
  enum sl_status status = SL_OK;
  const int *shards;
  int count = sl__exchange_shards(kv->exchange, m, &shards);
  for (int i = 0; i < count && sl__is_worker(&kv->ranks); i++)
    SL__TRY(submit_gradient(kv, &kv->shards[shards[i]]));
  status = sl__exchange_push(kv->exchange, m);
out:
  return status;
}

/* Gradients are sent last layer first, as they are computed; parameters come back first layer
 * first. */
static enum sl_status update_in_step(struct sl__model_shards *kv, const struct sl__update *update) {
  enum sl_status status = SL_OK;
  int messages = sl__exchange_messages(kv->exchange);
  for (int m = 0; m < messages; m++) SL__TRY(submit_push(kv, m));
  if (kv->norm) SL__TRY(submit_norm(kv));
  SL__TRY(update_mine(kv, update));
  for (int m = messages - 1; m >= 0; m--) SL__TRY(sl__exchange_pull(kv->exchange, m));
out:
  return status;
}

/* The owners' side runs in callbacks (parameter_server_owner.c). */
static enum sl_status update_out_of_step(struct sl__model_shards *kv, int64_t step, float lr) {
  enum sl_status status;
  struct sl__push push = {.step = step + 1, .lr = lr, .stop = kv->stop, .norm = kv->norm};
  SL__TRY(sl__parameter_server_open(kv->exchange, step));
  if (!sl__is_worker(&kv->ranks)) return SL_OK;
  for (int s = kv->shard_count - 1; s >= 0; s--) SL__TRY(submit_gradient(kv, &kv->shards[s]));
  if (kv->norm) SL__TRY(submit_own_norm(kv));
  for (int m = 0; m < sl__exchange_messages(kv->exchange); m++)
    SL__TRY(sl__parameter_server_push(kv->exchange, m, &push));
out:
  return status;
}

static void invalidate_gradients(struct sl__model_shards *kv) {
  for (int i = 0; i < kv->model->count; i++) {
    for (int r = 0; r < kv->replicas; r++)
      if (kv->grads[r][i] && !sl__tensor_is_cut(kv->grads[r][i]))
        sl__tensor_invalidate(kv->grads[r][i]);
    sl__row_gradients_invalidate(kv, i);
  }
  for (int s = 0; s < kv->shard_count; s++) {
    if (kv->shards[s].sum) sl__tensor_invalidate(kv->shards[s].sum);
    if (kv->shards[s].local_sum) sl__tensor_invalidate(kv->shards[s].local_sum);
  }
}

enum sl_status sl__model_shards_update(struct sl__model_shards *kv, int64_t step, float lr) {
  struct sl__update update = sl__update_of(&kv->optimizer, step, lr);
  bool has_gradients = !kv->exchange || sl__is_worker(&kv->ranks);
  enum sl_status status = SL_OK;
  for (int s = 0; s < kv->shard_count && has_gradients; s++) {
    const struct sl__shard *shard = &kv->shards[s];
    if (!shard->part && sl__layer_is_sparse(kv, shard->block) &&
        sl__model_shards_has_layer(kv, shard->block))
      SL__TRY(sl__row_gradients_sum(kv, shard));
  }
  SL__TRY(sl__gradient_squares_submit(kv));
  if (kv->is_async) {
    SL__TRY(update_out_of_step(kv, step, lr));
  } else if (kv->exchange) {
    SL__TRY(update_in_step(kv, &update));
  } else {
    if (kv->norm) SL__TRY(submit_norm(kv));
    SL__TRY(update_mine(kv, &update));
  }
  if (has_gradients) invalidate_gradients(kv);
out:
  return status;
}

enum sl_status sl__model_shards_synchronize(struct sl__model_shards *kv) {
  return kv->is_async ? sl__parameter_server_synchronize(kv->exchange, kv->stop) : SL_OK;
}
