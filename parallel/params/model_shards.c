#include "parallel/params/model_shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory/limits.h"
#include "core/runtime/wait.h"
#include "parallel/step/plan.h"

/* What is exchanged must be cut for StarPU, too, and stays in main memory. */
static bool takes_pieces(const struct sl__model_shards *kv) {
  return kv->model->context->swaps && !kv->exchanges;
}

static enum sl_status cut(struct sl__tensor *tensor, bool pieces, int parts, int64_t *lengths) {
  if (parts == 1) return SL_OK;
  for (int i = 0; i < parts; i++) lengths[i] = sl__part_length(tensor->shape.dim[0], parts, i);
  if (pieces) return sl__tensor_pieces(tensor, parts, lengths);
  enum sl_status status = sl__tensor_bring_home(tensor);
  return status == SL_OK ? sl__tensor_split(tensor, parts, lengths) : status;
}

/* May this owner have the layer's shards? One of its stage's devices, where they are pinned. */
static bool may_own(const struct sl__model_shards *kv, int owner, int layer) {
  for (int r = 0; r < kv->grid->replicas; r++)
    if (sl__place_has(&sl__grid_device(kv->grid, layer, r)->place,
                      kv->owners[owner].place.worker - 1))
      return true;
  return false;
}

/* A block that GPUs alone own stays whole: one that is cut has its home in main memory, and would
 * pass by there each step. A GPU updates it all at once anyway. */
static bool lives_on_gpus(const struct sl__model_shards *kv, int layer) {
  bool owned = false;
  if (!sl__kvstore_is_on_devices(kv->kind) || kv->ranks.size > 1) return false;
  for (int o = 0; o < kv->owner_count; o++) {
    if (!may_own(kv, o, layer)) continue;
    owned = true;
    if (kv->owners[o].place.where != STARPU_CUDA) return false;
  }
  return owned;
}

/* How many shards layer i's block has. A second trainer on the same model finds the block cut
 * already. */
static int layer_parts(const struct sl__model_shards *kv, int i, int64_t big) {
  static const struct sl__ranks alone;
  const struct sl__block *block = &kv->model->layers[i].params;
  if (block->tensor->view_count) return block->tensor->view_count;
  if (lives_on_gpus(kv, i)) return 1;
  return sl__parts_of(kv->exchanges ? &kv->ranks : &alone, block->total, big);
}

/* A gradient that is cut needs a home: StarPU lets the whole and its parts share memory only there.
 */
static enum sl_status make_gradient(struct sl__model_shards *kv, int64_t total, int parts,
                                    struct sl__tensor **grad) {
  struct sl_shape shape = SL_SHAPE(total);
  if (parts == 1 || takes_pieces(kv))
    return sl__tensor_temporary(kv->model->context, &shape, SL_F32, grad);
  return sl__tensor_host(kv->model->context, &shape, SL_F32, NULL, grad);
}

bool sl__model_shards_is_sparse(const struct sl__layer *layer) {
  return layer->touches_rows && !layer->is_shared;
}

static bool is_sparse(const struct sl__model_shards *kv, int i) {
  return sl__model_shards_is_sparse(&kv->model->layers[i]);
}

/* Else another member of the group has the layer, its gradient and its optimizer's state. */
static bool is_here(const struct sl__model_shards *kv, int i) {
  return sl__grid_is_here(kv->grid, i);
}

/* A sparse one has its tensors when it is known how many tokens there are. */
static enum sl_status make_gradients(struct sl__model_shards *kv, int i, int parts,
                                     int64_t *lengths) {
  int64_t total = kv->model->layers[i].params.total;
  bool spread = kv->exchanges || !sl__optimizer_skips_rows(&kv->optimizer);
  enum sl_status status = SL_OK;
  if (is_sparse(kv, i) && !spread) return SL_OK;
  for (int r = 0; r < (is_sparse(kv, i) ? 1 : kv->replicas) && status == SL_OK; r++) {
    struct sl__tensor **grad = is_sparse(kv, i) ? &kv->sums[i].dense : &kv->grads[r][i];
    status = make_gradient(kv, total, parts, grad);
    if (status == SL_OK) status = cut(*grad, takes_pieces(kv), parts, lengths);
  }
  return status;
}

/* All ranks cut all layers alike, those elsewhere as well. */
static enum sl_status make_layer(struct sl__model_shards *kv, int i, int parts) {
  struct sl__block *block = &kv->model->layers[i].params;
  if (parts > 1 && !block->tensor->view_count && kv->model->users)
    return sl__fail(
        SL_BAD_ARGUMENT,
        "layer %s: another trainer uses the model's parameters uncut; free it first, or "
        "take a big_shard of at least %lld",
        kv->model->layers[i].name, (long long)block->total);
  int64_t *lengths = sl__alloc((size_t)parts, sizeof *lengths, "shards");
  enum sl_status status = lengths ? SL_OK : SL_NO_MEMORY;
  if (status == SL_OK && !block->tensor->view_count)
    status = cut(block->tensor, takes_pieces(kv), parts, lengths);
  if (status == SL_OK && is_here(kv, i)) status = make_gradients(kv, i, parts, lengths);
  free(lengths);
  int64_t first = 0;
  for (int p = 0; p < parts && status == SL_OK; p++) {
    int64_t count = sl__part_length(block->total, parts, p);
    kv->shards[kv->shard_count++] =
        (struct sl__shard){.layer = i, .part = p, .first = first, .count = count};
    first += count;
  }
  return status;
}

static enum sl_status make_shards(struct sl__model_shards *kv, int64_t big) {
  struct sl_model *model = kv->model;
  int most = 0;
  for (int i = 0; i < model->count; i++)
    if (model->layers[i].params.total) most += layer_parts(kv, i, big);
  kv->shards = sl__alloc((size_t)most, sizeof *kv->shards, "shards");
  kv->grads = sl__alloc((size_t)kv->replicas, sizeof *kv->grads, "gradients");
  kv->terms = sl__alloc(2 * (size_t)kv->replicas, sizeof *kv->terms, "gradients");
  kv->rows = sl__alloc((size_t)kv->replicas, sizeof *kv->rows, "gradients");
  kv->sums = sl__alloc((size_t)model->count, sizeof *kv->sums, "gradients");
  if (!kv->shards || !kv->grads || !kv->terms || !kv->rows || !kv->sums) return SL_NO_MEMORY;
  for (int r = 0; r < kv->replicas; r++) {
    kv->grads[r] = sl__alloc((size_t)model->count, sizeof **kv->grads, "gradients");
    kv->rows[r] = sl__alloc((size_t)model->count, sizeof **kv->rows, "gradients");
    if (!kv->grads[r] || !kv->rows[r]) return SL_NO_MEMORY;
  }
  for (int i = 0; i < model->count; i++) {
    if (!model->layers[i].params.total) continue;
    enum sl_status status = make_layer(kv, i, layer_parts(kv, i, big));
    if (status != SL_OK) return status;
  }
  return SL_OK;
}

/* The one with the least so far, of those that may own the layer; of all, where none may. */
static int lightest_owner(const struct sl__model_shards *kv, int layer, const int64_t *load) {
  int lightest = -1;
  if (!sl__kvstore_is_on_devices(kv->kind)) return 0; /* the CPU */
  for (int all = 0; all < 2 && lightest < 0; all++)
    for (int o = 0; o < kv->owner_count; o++)
      if ((all || may_own(kv, o, layer)) && (lightest < 0 || load[o] < load[lightest]))
        lightest = o;
  return lightest;
}

/* The largest shard that is not placed yet. */
static int largest_shard(const struct sl__model_shards *kv, const bool *placed) {
  int largest = -1;
  for (int s = 0; s < kv->shard_count; s++)
    if (!placed[s] && (largest < 0 || kv->shards[s].count > kv->shards[largest].count)) largest = s;
  return largest;
}

/* Of those that have the layer. */
static int lightest_rank(const struct sl__model_shards *kv, int layer, const int64_t *load) {
  int lightest = sl__first_owner(&kv->ranks) + sl__grid_member(kv->grid, layer);
  for (int r = lightest; r < kv->ranks.size; r += sl__members(&kv->ranks))
    if (load[r] < load[lightest]) lightest = r;
  return lightest;
}

/* The largest shard first, each to the owner with the least so far (Graham's rule): within 4/3 of
 * even where every owner may have every shard. Ranks first, then the rank's devices; a rank knows
 * the devices of its own shards only. */
static enum sl_status choose_owners(struct sl__model_shards *kv) {
  size_t ranks = (size_t)kv->ranks.size + 1;
  int64_t *load = sl__alloc((size_t)kv->owner_count, sizeof *load, "shards");
  int64_t *rank_load = sl__alloc(ranks, sizeof *rank_load, "shards");
  bool *placed = sl__alloc((size_t)kv->shard_count + 1, sizeof *placed, "shards");
  enum sl_status status = load && rank_load && placed ? SL_OK : SL_NO_MEMORY;
  for (int n = 0; n < kv->shard_count && status == SL_OK; n++) {
    int largest = largest_shard(kv, placed);
    struct sl__shard *shard = &kv->shards[largest];
    if (kv->ranks.size) shard->rank = lightest_rank(kv, shard->layer, rank_load);
    rank_load[shard->rank] += shard->count;
    shard->owner = lightest_owner(kv, shard->layer, load);
    if (sl__shard_is_mine(kv, shard)) load[shard->owner] += shard->count;
    placed[largest] = true;
  }
  free(load);
  free(rank_load);
  free(placed);
  return status;
}

static struct sl__launch shard_launch(const struct sl__model_shards *kv,
                                      const struct sl__shard *shard) {
  return (struct sl__launch){.name = kv->model->layers[shard->layer].name,
                             .place = kv->owners[shard->owner].place,
                             .priority = SL__PRIORITY_UPDATE + kv->model->count - shard->layer};
}

/* Where gradients are clipped: what a shard needs for its part of the norm. */
static enum sl_status make_norm(struct sl__model_shards *kv, struct sl__shard *shard) {
  struct sl_context *context = kv->model->context;
  bool rows = is_sparse(kv, shard->layer) && !kv->exchanges;
  enum sl_status status = SL_OK;
  if (!(kv->optimizer.clip > 0) || (rows && shard->part)) return SL_OK;
  if (!rows && sl__shard_is_mine(kv, shard))
    status = sl__tensor_temporary(context, &SL_SHAPE(shard->count), SL_F32, &shard->sum);
  if (status == SL_OK) status = sl__tensor_temporary(context, &SL_SHAPE(1), SL_F32, &shard->square);
  return status;
}

static enum sl_status make_state(struct sl__model_shards *kv) {
  struct sl_context *context = kv->model->context;
  enum sl_status status = SL_OK;
  for (int s = 0; s < kv->shard_count; s++) {
    struct sl__shard *shard = &kv->shards[s];
    struct sl__launch launch = shard_launch(kv, shard);
    struct sl_shape shape = SL_SHAPE(shard->count);
    if (sl__shard_is_mine(kv, shard))
      SL__TRY(sl__states_new(context, &launch, &kv->optimizer, shard->count, shard->state));
    SL__TRY(make_norm(kv, shard));
    if (kv->exchanges && kv->replicas > 1 && sl__is_worker(&kv->ranks) &&
        is_here(kv, shard->layer) && !is_sparse(kv, shard->layer))
      SL__TRY(sl__tensor_temporary(context, &shape, SL_F32, &shard->own));
  }
  if (kv->optimizer.clip > 0)
    SL__TRY(sl__tensor_temporary(context, &SL_SHAPE(1), SL_F32, &kv->norm));
out:
  return status;
}

static struct sl__tensor *shard_param(const struct sl__model_shards *kv,
                                      const struct sl__shard *shard) {
  return sl__part(kv->model->layers[shard->layer].params.tensor, shard->part);
}

/* dist_async: one worker's gradient, by whichever thread; nothing of the KVStore's is written. */
static enum sl_status apply(void *user, int s, struct sl__tensor *master,
                            struct sl__tensor *gradient, struct sl__tensor *norm, int64_t version,
                            float lr) {
  struct sl__model_shards *kv = user;
  const struct sl__shard *shard = &kv->shards[s];
  struct sl__launch launch = shard_launch(kv, shard);
  struct sl__update update = sl__update_of(&kv->optimizer, version, lr);
  return sl__optimizer_step(kv->model->context, &launch, &kv->optimizer, master, shard->state, 1,
                            &gradient, norm, &update);
}

static enum sl_status make_exchange(struct sl__model_shards *kv,
                                    const struct sl__model_shards_options *options) {
  enum sl_status status = SL_NO_MEMORY;
  size_t count = (size_t)kv->shard_count;
  struct sl__compress compress = {.method = SL__COMPRESS_NONE};
  int tags;
  if (!kv->ranks.size) return SL_OK;
  struct sl__parcel *parcels = sl__alloc(count, sizeof *parcels, "an exchange");
  kv->lent = sl__alloc(2 * count, sizeof *kv->lent, "an exchange");
  kv->lenders = sl__alloc(count, sizeof *kv->lenders, "an exchange");
  if (!parcels || !kv->lent || !kv->lenders) goto out;
  for (int s = 0; s < kv->shard_count; s++) kv->lenders[s] = kv->shards[s].rank;
  status = SL_OK;
  if (!kv->exchanges) goto out;
  status = options->compress ? sl__compress_parse(options->compress, &compress) : SL_OK;
  if (status != SL_OK) goto out;
  for (int s = 0; s < kv->shard_count; s++)
    parcels[s] = (struct sl__parcel){.name = kv->model->layers[kv->shards[s].layer].name,
                                     .owner = kv->shards[s].rank,
                                     .elsewhere = !is_here(kv, kv->shards[s].layer),
                                     .count = kv->shards[s].count,
                                     .launch = shard_launch(kv, &kv->shards[s]),
                                     .param = shard_param(kv, &kv->shards[s])};
  status = sl__exchange_new(kv->model->context, &kv->ranks, kv->shard_count, parcels, &compress,
                            SL__TAG_EXCHANGE, &kv->exchange, &tags);
  if (status == SL_OK && kv->is_async)
    status = sl__parameter_server_new(kv->exchange, apply, kv,
                                      options->max_staleness ? options->max_staleness : -1,
                                      kv->norm != NULL);
out:
  free(parcels);
  return status;
}

enum sl_status sl__model_shards_new(struct sl_model *model, const struct sl_optimizer *optimizer,
                                    const struct sl__model_shards_options *options,
                                    const struct sl__grid *grid,
                                    struct sl__model_shards **kvstore) {
  enum sl_status status;
  *kvstore = NULL;
  struct sl__model_shards *kv = sl__alloc(1, sizeof *kv, "the KVStore");
  if (!kv) return SL_NO_MEMORY;
  kv->model = model;
  kv->optimizer = *optimizer;
  kv->kind = options->kind;
  kv->ranks = options->ranks;
  kv->is_async = sl__kvstore_is_async(kv->kind) && kv->ranks.size > 1;
  kv->grid = grid;
  kv->exchanges = sl__model_shards_exchanges(&options->ranks, options->compress);
  kv->replicas = grid->replicas;
  SL__TRY(sl__owners_find(model->context, kv->kind, &kv->owners, &kv->owner_count));
  SL__TRY(make_shards(kv, options->big_shard));
  SL__TRY(choose_owners(kv));
  SL__TRY(make_state(kv));
  SL__TRY(make_exchange(kv, options));
  kv->counted = true;
  model->users++;
  *kvstore = kv;
  kv = NULL;
out:
  sl__model_shards_free(kv);
  return status;
}

/* The shard's piece of every replica's gradient, in the replicas' order. */
static struct sl__tensor **gather_terms(struct sl__model_shards *kv,
                                        const struct sl__shard *shard) {
  for (int r = 0; r < kv->replicas; r++)
    kv->terms[r] = sl__part(kv->grads[r][shard->layer], shard->part);
  return kv->terms;
}

/* ---- row-sparse gradients ---- */

/* Room for `capacity` rows of layer i's weight. */
static enum sl_status make_rows(struct sl__model_shards *kv, int i, int64_t capacity,
                                struct sl__tensor **rows, struct sl__tensor **values) {
  struct sl_context *context = kv->model->context;
  const struct sl_shape *weight = &kv->model->layers[i].params.part[0].shape;
  int64_t width = sl_shape_count(weight) / weight->dim[0];
  if (capacity > weight->dim[0]) capacity = weight->dim[0];
  enum sl_status status = sl__tensor_temporary(context, &SL_SHAPE(capacity + 1), SL_I32, rows);
  if (status == SL_OK)
    status = sl__tensor_temporary(context, &SL_SHAPE(capacity, width), SL_F32, values);
  return status;
}

/* Else a single replica's gradient is the sum. */
static bool has_own_sum(const struct sl__model_shards *kv, int i) {
  return kv->sums[i].rows && kv->sums[i].rows != kv->rows[0][i];
}

static void free_rows(struct sl__model_shards *kv, int i) {
  struct sl__row_sum *sum = &kv->sums[i];
  if (has_own_sum(kv, i)) {
    sl__tensor_free(sum->rows);
    sl__tensor_free(sum->values);
  }
  sum->rows = sum->values = NULL;
  for (int r = 0; r < kv->replicas; r++) {
    sl__tensor_free(kv->rows[r][i]);
    sl__tensor_free(kv->grads[r][i]);
    kv->rows[r][i] = kv->grads[r][i] = NULL;
  }
}

enum sl_status sl__model_shards_reserve(struct sl__model_shards *kv, int64_t positions) {
  enum sl_status status = SL_OK;
  if (positions <= kv->positions) return SL_OK;
  /* with dist_async there is always a task under way, which waits for another rank */
  if (!kv->is_async) SL__TRY(sl__wait_for_all(kv->model->context));
  for (int i = 0; i < kv->model->count; i++) {
    struct sl__row_sum *sum = &kv->sums[i];
    if (!is_sparse(kv, i) || !is_here(kv, i)) continue;
    free_rows(kv, i);
    for (int r = 0; r < kv->replicas; r++)
      SL__TRY(make_rows(kv, i, positions, &kv->rows[r][i], &kv->grads[r][i]));
    if (kv->replicas > 1)
      SL__TRY(make_rows(kv, i, positions * kv->replicas, &sum->rows, &sum->values));
    else
      *sum = (struct sl__row_sum){kv->rows[0][i], kv->grads[0][i], sum->dense};
  }
  kv->positions = positions;
out:
  return status;
}

/* first: of the layer's shards. */
static enum sl_status submit_row_sum(struct sl__model_shards *kv, const struct sl__shard *first) {
  struct sl_context *context = kv->model->context;
  int i = first->layer;
  struct sl__row_sum *sum = &kv->sums[i];
  struct sl__launch launch = shard_launch(kv, first);
  struct sl__tensor **rows = kv->terms, **values = kv->terms + kv->replicas;
  enum sl_status status = SL_OK;
  for (int r = 0; r < kv->replicas; r++) {
    rows[r] = kv->rows[r][i];
    values[r] = kv->grads[r][i];
  }
  if (has_own_sum(kv, i))
    status = sl__rows_reduce(context, &launch, sum->rows, sum->values, kv->replicas, rows, values,
                             kv->model->layers[i].params.part[0].shape.dim[0]);
  if (status == SL_OK && sum->dense)
    status = sl__rows_dense(context, &launch, sum->rows, sum->values, sum->dense);
  return status;
}

/* ---- the update ---- */

/* What the owner adds up: its replicas' gradients, or those of all ranks. */
static struct sl__tensor *const *shard_terms(struct sl__model_shards *kv,
                                             const struct sl__shard *shard, int *count) {
  if (kv->exchange) return sl__exchange_terms(kv->exchange, (int)(shard - kv->shards), count);
  *count = kv->replicas;
  return gather_terms(kv, shard);
}

/* A shard's sum, and its square. */
static enum sl_status submit_square(struct sl__model_shards *kv, struct sl__shard *shard) {
  struct sl_context *context = kv->model->context;
  struct sl__launch launch = shard_launch(kv, shard);
  const struct sl__row_sum *sum = &kv->sums[shard->layer];
  int count;
  if (shard->square && sum->rows && !kv->exchange && sl__shard_is_mine(kv, shard))
    return sl__rows_square(context, &launch, sum->rows, sum->values, shard->square);
  if (!shard->sum) return SL_OK;
  struct sl__tensor *const *terms = shard_terms(kv, shard, &count);
  enum sl_status status = sl__reduce(context, &launch, shard->sum, count, terms);
  if (status == SL_OK) status = sl__square_sum(context, &launch, shard->sum, shard->square);
  return status;
}

/* The square of the global norm: every shard's sum first, then their squares, in the shards' order.
 */
static enum sl_status submit_norm(struct sl__model_shards *kv) {
  struct sl_context *context = kv->model->context;
  enum sl_status status = SL_OK;
  for (int s = 0; s < kv->shard_count; s++) SL__TRY(submit_square(kv, &kv->shards[s]));
  if (kv->ranks.size) {
    for (int s = 0; s < kv->shard_count; s++) kv->lent[s] = kv->shards[s].square;
    SL__TRY(sl__owners_share(context, &kv->ranks, SL__TAG_EXCHANGE, kv->shard_count, kv->lenders,
                             kv->lent, kv->lent + kv->shard_count));
    if (kv->ranks.rank < sl__first_owner(&kv->ranks)) return SL_OK;
  }
  for (int s = 0; s < kv->shard_count; s++) {
    if (!kv->shards[s].square) continue; /* the layer's first one has it for all rows */
    struct sl__launch launch = {.name = "norm", .priority = SL__PRIORITY_LOSS, .accumulate = s > 0};
    SL__TRY(sl__reduce(context, &launch, kv->norm, 1, &kv->shards[s].square));
  }
out:
  return status;
}

static enum sl_status submit_update(struct sl__model_shards *kv, struct sl__shard *shard,
                                    const struct sl__update *update) {
  struct sl_context *context = kv->model->context;
  struct sl__launch launch = shard_launch(kv, shard);
  struct sl__tensor *param = shard_param(kv, shard);
  const struct sl__row_sum *sum = &kv->sums[shard->layer];
  if (is_sparse(kv, shard->layer) && !sum->dense)
    return sl__optimizer_of(&kv->optimizer)
        ->update_rows(context, &launch, param, shard->first, sum->rows, sum->values, kv->norm,
                      update);
  struct sl__tensor *dense = sum->dense && !kv->exchange ? sl__part(sum->dense, shard->part) : NULL;
  int count = 1;
  struct sl__tensor *const *terms = dense        ? &dense
                                    : shard->sum ? &shard->sum
                                                 : shard_terms(kv, shard, &count);
  return sl__optimizer_step(context, &launch, &kv->optimizer, param, shard->state, count, terms,
                            kv->norm, update);
}

static void forget_gradients(struct sl__model_shards *kv) {
  for (int r = 0; r < kv->replicas; r++)
    for (int i = 0; i < kv->model->count; i++)
      if (kv->grads[r][i] && !sl__tensor_is_cut(kv->grads[r][i]))
        sl__tensor_invalidate(kv->grads[r][i]);
  for (int r = 0; r < kv->replicas; r++)
    for (int i = 0; i < kv->model->count; i++)
      if (kv->rows[r][i]) sl__tensor_invalidate(kv->rows[r][i]);
  for (int i = 0; i < kv->model->count; i++)
    if (has_own_sum(kv, i)) {
      sl__tensor_invalidate(kv->sums[i].rows);
      sl__tensor_invalidate(kv->sums[i].values);
    }
  for (int i = 0; i < kv->model->count; i++)
    if (kv->sums[i].dense && !sl__tensor_is_cut(kv->sums[i].dense))
      sl__tensor_invalidate(kv->sums[i].dense);
  for (int s = 0; s < kv->shard_count; s++) {
    if (kv->shards[s].sum) sl__tensor_invalidate(kv->shards[s].sum);
    if (kv->shards[s].own) sl__tensor_invalidate(kv->shards[s].own);
  }
}

/* This rank's gradient of a shard: its replicas' added up, if there are several. */
static enum sl_status submit_own(struct sl__model_shards *kv, int s) {
  struct sl__shard *shard = &kv->shards[s];
  struct sl__launch launch = shard_launch(kv, shard);
  struct sl__tensor *dense = kv->sums[shard->layer].dense;
  if (dense)
    kv->lent[s] = sl__part(dense, shard->part);
  else if (shard->own)
    kv->lent[s] = shard->own;
  else
    kv->lent[s] = sl__part(kv->grads[0][shard->layer], shard->part);
  if (!shard->own) return SL_OK;
  return sl__reduce(kv->model->context, &launch, shard->own, kv->replicas, gather_terms(kv, shard));
}

/* Gradients go out last layer first, as they come; weights come back first layer first. */
static enum sl_status update_distributed(struct sl__model_shards *kv,
                                         const struct sl__update *update) {
  enum sl_status status = SL_OK;
  int messages = sl__exchange_messages(kv->exchange);
  for (int s = kv->shard_count - 1; s >= 0 && sl__is_worker(&kv->ranks); s--)
    if (is_here(kv, kv->shards[s].layer)) SL__TRY(submit_own(kv, s));
  for (int m = 0; m < messages; m++) SL__TRY(sl__exchange_push(kv->exchange, m, kv->lent));
  if (kv->norm) SL__TRY(submit_norm(kv));
  for (int s = 0; s < kv->shard_count; s++)
    if (sl__shard_is_mine(kv, &kv->shards[s])) SL__TRY(submit_update(kv, &kv->shards[s], update));
  for (int m = messages - 1; m >= 0; m--) SL__TRY(sl__exchange_pull(kv->exchange, m));
out:
  return status;
}

/* The norm is that of this worker's own gradient: nobody has that of all at one time. */
static enum sl_status submit_own_norm(struct sl__model_shards *kv) {
  struct sl_context *context = kv->model->context;
  enum sl_status status = SL_OK;
  for (int s = 0; s < kv->shard_count; s++) {
    struct sl__launch launch = shard_launch(kv, &kv->shards[s]);
    SL__TRY(sl__square_sum(context, &launch, kv->lent[s], kv->shards[s].square));
    launch.accumulate = s > 0;
    SL__TRY(sl__reduce(context, &launch, kv->norm, 1, &kv->shards[s].square));
  }
out:
  return status;
}

/* The owners' side of it goes on by itself. */
static enum sl_status update_async(struct sl__model_shards *kv, int64_t step, float lr) {
  enum sl_status status;
  struct sl__push push = {.step = step + 1, .lr = lr, .stop = kv->stop, .norm = kv->norm};
  SL__TRY(sl__parameter_server_open(kv->exchange, step));
  if (!sl__is_worker(&kv->ranks)) return SL_OK;
  for (int s = kv->shard_count - 1; s >= 0; s--) SL__TRY(submit_own(kv, s));
  if (kv->norm) SL__TRY(submit_own_norm(kv));
  for (int m = 0; m < sl__exchange_messages(kv->exchange); m++)
    SL__TRY(sl__parameter_server_push(kv->exchange, m, kv->lent, &push));
out:
  return status;
}

enum sl_status sl__model_shards_settle(struct sl__model_shards *kv) {
  return kv->is_async ? sl__parameter_server_settle(kv->exchange) : SL_OK;
}

enum sl_status sl__model_shards_update(struct sl__model_shards *kv, int64_t step, float lr) {
  struct sl__update update = sl__update_of(&kv->optimizer, step, lr);
  enum sl_status status = SL_OK;
  for (int s = 0; s < kv->shard_count; s++)
    if (!kv->shards[s].part && is_sparse(kv, kv->shards[s].layer) &&
        is_here(kv, kv->shards[s].layer) && (!kv->exchange || sl__is_worker(&kv->ranks)))
      SL__TRY(submit_row_sum(kv, &kv->shards[s]));
  if (kv->is_async) {
    SL__TRY(update_async(kv, step, lr));
  } else if (kv->exchange) {
    SL__TRY(update_distributed(kv, &update));
  } else {
    if (kv->norm) SL__TRY(submit_norm(kv));
    for (int s = 0; s < kv->shard_count; s++)
      if (sl__shard_is_mine(kv, &kv->shards[s]))
        SL__TRY(submit_update(kv, &kv->shards[s], &update));
  }
  if (!kv->exchange || sl__is_worker(&kv->ranks)) forget_gradients(kv);
out:
  return status;
}

/* ---- the state, for checkpoints ---- */

/* A tensor of one rank, on rank 0; NULL elsewhere. */
static enum sl_status fetch(struct sl__model_shards *kv, int rank, struct sl__tensor *tensor,
                            int64_t count, float *values) {
  struct sl__net *net = kv->model->context->net;
  size_t bytes = (size_t)count * sizeof *values;
  enum sl_status status = SL_OK;
  if (rank == kv->ranks.rank) SL__TRY(sl__tensor_read(tensor, values));
  if (!rank) return SL_OK;
  if (rank == kv->ranks.rank) return sl__net_send(net, 0, values, bytes);
  if (!kv->ranks.rank) status = sl__net_receive(net, rank, values, bytes);
out:
  return status;
}

enum sl_status sl__model_shards_read_state(struct sl__model_shards *kv, int layer, int k,
                                           float *block) {
  enum sl_status status = SL_OK;
  for (int s = 0; s < kv->shard_count; s++)
    if (kv->shards[s].layer == layer)
      SL__TRY(fetch(kv, kv->shards[s].rank, kv->shards[s].state[k], kv->shards[s].count,
                    block + kv->shards[s].first));
out:
  return status;
}

enum sl_status sl__model_shards_write_state(struct sl__model_shards *kv, int layer, int k,
                                            const float *block) {
  enum sl_status status = SL_OK;
  for (int s = 0; s < kv->shard_count; s++)
    if (kv->shards[s].layer == layer && sl__shard_is_mine(kv, &kv->shards[s]))
      SL__TRY(sl__tensor_write(kv->shards[s].state[k], block + kv->shards[s].first));
out:
  return status;
}

/* All parcels have one, or none has. */
bool sl__model_shards_has_residual(const struct sl__model_shards *kv) {
  return kv->exchange && sl__exchange_has_residual(kv->exchange);
}

enum sl_status sl__model_shards_read_residual(struct sl__model_shards *kv, int layer, int worker,
                                              float *block) {
  enum sl_status status = SL_OK;
  for (int s = 0; s < kv->shard_count; s++)
    if (kv->shards[s].layer == layer)
      SL__TRY(fetch(kv, worker * sl__members(&kv->ranks) + sl__grid_member(kv->grid, layer),
                    sl__exchange_residual(kv->exchange, s), kv->shards[s].count,
                    block + kv->shards[s].first));
out:
  return status;
}

enum sl_status sl__model_shards_write_residual(struct sl__model_shards *kv, int layer,
                                               const float *block) {
  enum sl_status status = SL_OK;
  if (!sl__is_worker(&kv->ranks) || !is_here(kv, layer)) return SL_OK;
  for (int s = 0; s < kv->shard_count; s++)
    if (kv->shards[s].layer == layer)
      SL__TRY(
          sl__tensor_write(sl__exchange_residual(kv->exchange, s), block + kv->shards[s].first));
out:
  return status;
}

int64_t sl__model_shards_bytes(const struct sl__model_shards *kv, int owner) {
  int64_t total = 0;
  for (int s = 0; s < kv->shard_count; s++)
    if (kv->shards[s].owner == owner && sl__shard_is_mine(kv, &kv->shards[s]))
      total += kv->shards[s].count * 4 * (1 + sl__optimizer_states(&kv->optimizer));
  return total;
}

void sl__model_shards_free(struct sl__model_shards *kv) {
  if (!kv) return;
  if (kv->counted) kv->model->users--;
  bool whole = kv->rows && kv->sums && kv->grads && kv->rows[kv->replicas - 1] &&
               kv->grads[kv->replicas - 1]; /* else it was never used */
  for (int i = 0; kv->sums && i < kv->model->count; i++) {
    if (whole && is_sparse(kv, i)) free_rows(kv, i);
    sl__tensor_free(kv->sums[i].dense);
  }
  for (int r = 0; kv->rows && r < kv->replicas; r++) free(kv->rows[r]);
  free(kv->rows);
  free(kv->sums);
  for (int r = 0; kv->grads && r < kv->replicas; r++) {
    for (int i = 0; kv->grads[r] && i < kv->model->count; i++) sl__tensor_free(kv->grads[r][i]);
    free(kv->grads[r]);
  }
  for (int s = 0; s < kv->shard_count; s++) {
    struct sl__shard *shard = &kv->shards[s];
    sl__tensor_free(shard->state[0]);
    sl__tensor_free(shard->state[1]);
    sl__tensor_free(shard->sum);
    sl__tensor_free(shard->square);
    sl__tensor_free(shard->own);
  }
  sl__exchange_free(kv->exchange);
  free(kv->lent);
  free(kv->lenders);
  sl__tensor_free(kv->norm);
  free(kv->grads);
  free(kv->terms);
  free(kv->shards);
  free(kv->owners);
  free(kv);
}
