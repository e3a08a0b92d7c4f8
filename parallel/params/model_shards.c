#include "parallel/params/model_shards.h"

#include <stdlib.h>

#include "parallel/params/row_gradients.h"
#include "parallel/step/plan.h"

/* ---- blocks into shards ---- */

/* With a swap file, blocks are cut into pieces that StarPU moves one by one. A block whose gradient
 * is exchanged is split as a whole instead, and stays in main memory. */
static bool takes_pieces(const struct sl__model_shards *kv) {
  return kv->model->context->swaps && !kv->is_exchanged;
}

static enum sl_status cut(struct sl__tensor *tensor, bool pieces, int parts, int64_t *lengths) {
  if (parts == 1) return SL_OK;
  for (int i = 0; i < parts; i++) lengths[i] = sl__part_length(tensor->shape.dim[0], parts, i);
  if (pieces) return sl__tensor_pieces(tensor, parts, lengths);
  enum sl_status status = sl__tensor_bring_home(tensor);
  return status == SL_OK ? sl__tensor_split(tensor, parts, lengths) : status;
}

/* May this device own the layer's shards? If its stages are pinned, only one of their devices. */
static bool may_own(const struct sl__model_shards *kv, int device, int layer) {
  for (int r = 0; r < kv->grid->replicas; r++)
    if (sl__place_has(&sl__grid_device(kv->grid, layer, r)->place,
                      kv->owners.devices[device].place.worker - 1))
      return true;
  return false;
}

/* A block that only GPUs own stays whole. A block that is cut has its home in main memory, so its
 * values would pass through it in each step. A GPU updates a whole block at once anyway. */
static bool lives_on_gpus(const struct sl__model_shards *kv, int layer) {
  bool owned = false;
  if (!sl__kvstore_is_on_devices(kv->kind) || kv->ranks.size > 1) return false;
  for (int d = 0; d < kv->owners.count; d++) {
    if (!may_own(kv, d, layer)) continue;
    owned = true;
    if (kv->owners.devices[d].place.where != STARPU_CUDA) return false;
  }
  return owned;
}

/* Number of shards of layer i's block. The block may be cut already, for another trainer of the
 * same model. */
static int layer_parts(const struct sl__model_shards *kv, int i, int64_t big_shard) {
  static const struct sl__ranks alone;
  const struct sl__block *block = &kv->model->layers[i].params;
  if (block->tensor->view_count) return block->tensor->view_count;
  if (lives_on_gpus(kv, i)) return 1;
  return sl__shard_count(kv->is_exchanged ? &kv->ranks : &alone, block->total, big_shard);
}

/* A gradient that is cut needs a home: only there StarPU lets the whole and its parts share
 * memory. */
static enum sl_status make_gradient(struct sl__model_shards *kv, int64_t total, int parts,
                                    struct sl__tensor **grad) {
  struct sl_shape shape = SL_SHAPE(total);
  if (parts == 1 || takes_pieces(kv))
    return sl__tensor_temporary(kv->model->context, &shape, SL_F32, grad);
  return sl__tensor_host(kv->model->context, &shape, SL_F32, NULL, grad);
}

/* The tensors of a row-sparse gradient are made when the number of tokens is known
 * (sl__model_shards_reserve); only its dense form is made here. */
static enum sl_status make_gradients(struct sl__model_shards *kv, int i, int parts,
                                     int64_t *lengths) {
  int64_t total = kv->model->layers[i].params.total;
  bool sparse = sl__layer_is_sparse(kv, i);
  bool dense = kv->is_exchanged || !sl__optimizer_skips_rows(&kv->optimizer);
  enum sl_status status = SL_OK;
  if (sparse && !dense) return SL_OK;
  for (int r = 0; r < (sparse ? 1 : kv->replicas) && status == SL_OK; r++) {
    struct sl__tensor **grad = sparse ? &kv->sums[i].dense : &kv->grads[r][i];
    status = make_gradient(kv, total, parts, grad);
    if (status == SL_OK) status = cut(*grad, takes_pieces(kv), parts, lengths);
  }
  return status;
}

/* Appends the elements [from, to) of a block to the shard's runs, as far as they are its own. */
static void add_run(struct sl__shard *shard, int64_t from, int64_t to, bool decays) {
  int64_t end = shard->first + shard->count;
  if (from < shard->first) from = shard->first;
  if (to > end) to = end;
  if (from >= to) return;
  struct sl__decay_run *last = shard->run_count ? &shard->run[shard->run_count - 1] : NULL;
  if (last && last->decays == decays)
    last->count += to - from;
  else
    shard->run[shard->run_count++] = (struct sl__decay_run){to - from, decays};
}

/* The elements of each parameter of the block in the shard. */
static void set_parts(const struct sl_model *model, struct sl__shard *shard) {
  const struct sl__block *block = &model->layers[shard->block].params;
  struct sl__update_parts *parts = &shard->parts;
  parts->count = block->count;
  for (int i = 0; i < block->count; i++) {
    const struct sl__param *part = &block->part[i];
    int64_t end = part->offset + sl_shape_count(&part->shape) - shard->first;
    parts->end[i] = end < 0 ? 0 : end > shard->count ? shard->count : end;
    parts->decays[i] = !model->decays_weights_only || part->shape.ndim > 1;
  }
}

/* The settings of a shard's layer (nn/layer_settings.c). */
static void set_factors(const struct sl_model *model, struct sl__shard *shard) {
  const struct sl__layer *layer = &model->layers[shard->block];
  shard->lr_factor = layer->lr_factor;
  shard->decay_factor = layer->decay_factor;
  set_parts(model, shard);
  if (!model->decays_weights_only) return;
  shard->run_count = 0;
  for (int i = 0; i < layer->params.count; i++) {
    const struct sl__param *part = &layer->params.part[i];
    add_run(shard, part->offset, part->offset + sl_shape_count(&part->shape), part->shape.ndim > 1);
  }
}

/* Do several workers have the parameters in their caches? Of large models these keep few lines from
 * one step to the next. */
static bool is_shared(const struct sl__model_shards *kv) {
  const int64_t most = 2 << 20; /* floats: 8 MB */
  return kv->replicas > 1 && starpu_cpu_worker_get_count() > 1 &&
         sl_model_parameters(kv->model) <= most;
}

/* All ranks cut all layers alike, also the layers of other members. */
static enum sl_status make_layer(struct sl__model_shards *kv, int i, int parts) {
  struct sl__block *block = &kv->model->layers[i].params;
  struct sl__shard *shards = kv->shards + kv->shard_count;
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
  if (status == SL_OK && sl__model_shards_has_layer(kv, i))
    status = make_gradients(kv, i, parts, lengths);
  free(lengths);
  if (status != SL_OK) return status;
  sl__shards_cut(i, block->total, parts, shards);
  for (int p = 0; p < parts; p++) {
    shards[p].param = sl__part(block->tensor, p);
    shards[p].is_shared = is_shared(kv);
    shards[p].is_elsewhere = !sl__model_shards_has_layer(kv, i);
    set_factors(kv->model, &shards[p]);
  }
  kv->shard_count += parts;
  return SL_OK;
}

static enum sl_status make_room(struct sl__model_shards *kv, int shards) {
  size_t layers = (size_t)kv->model->count, replicas = (size_t)kv->replicas;
  kv->shards = sl__alloc((size_t)shards, sizeof *kv->shards, "shards");
  kv->list = sl__alloc((size_t)shards, sizeof *kv->list, "shards");
  kv->grads = sl__alloc(replicas, sizeof *kv->grads, "gradients");
  kv->terms = sl__alloc(2 * replicas, sizeof *kv->terms, "gradients");
  kv->rows = sl__alloc(replicas, sizeof *kv->rows, "gradients");
  kv->sums = sl__alloc(layers, sizeof *kv->sums, "gradients");
  if (!kv->shards || !kv->list || !kv->grads || !kv->terms || !kv->rows || !kv->sums)
    return SL_NO_MEMORY;
  for (int r = 0; r < kv->replicas; r++) {
    kv->grads[r] = sl__alloc(layers, sizeof **kv->grads, "gradients");
    kv->rows[r] = sl__alloc(layers, sizeof **kv->rows, "gradients");
    if (!kv->grads[r] || !kv->rows[r]) return SL_NO_MEMORY;
  }
  return SL_OK;
}

static enum sl_status make_shards(struct sl__model_shards *kv, int64_t big_shard) {
  struct sl_model *model = kv->model;
  int shards = 0;
  for (int i = 0; i < model->count; i++)
    if (sl__layer_trains(&model->layers[i])) shards += layer_parts(kv, i, big_shard);
  enum sl_status status = make_room(kv, shards);
  for (int i = 0; i < model->count && status == SL_OK; i++)
    if (sl__layer_trains(&model->layers[i]))
      status = make_layer(kv, i, layer_parts(kv, i, big_shard));
  return status;
}

/* ---- owners ---- */

/* The device that owns least so far, of those that may own the layer; of all if none may. */
static int choose_device(const struct sl__model_shards *kv, int layer, bool *excluded) {
  const struct sl__owners *owners = &kv->owners;
  if (!sl__kvstore_is_on_devices(kv->kind)) return 0; /* the CPU */
  for (int d = 0; d < owners->count; d++) excluded[d] = !may_own(kv, d, layer);
  int device = sl__owners_lightest(owners->load, 0, owners->count, 1, excluded);
  return device >= 0 ? device : sl__owners_lightest(owners->load, 0, owners->count, 1, NULL);
}

/* The rank that owns least so far, of those that have the layer. */
static int choose_rank(const struct sl__model_shards *kv, int layer) {
  int first = sl__first_owner(&kv->ranks) + sl__grid_member(kv->grid, layer);
  if (!kv->ranks.size) return 0;
  return sl__owners_lightest(kv->owners.rank_load, first, kv->ranks.size, sl__members(&kv->ranks),
                             NULL);
}

static int largest_shard(const struct sl__model_shards *kv, const bool *placed) {
  int largest = -1;
  for (int s = 0; s < kv->shard_count; s++)
    if (!placed[s] && (largest < 0 || kv->shards[s].count > kv->shards[largest].count)) largest = s;
  return largest;
}

/* The largest shard first, each to the owner that has least so far (Graham's rule): within 4/3 of
 * even if every owner may have every shard. First the rank, then one of its devices; a rank knows
 * the devices of its own shards only. */
static enum sl_status choose_owners(struct sl__model_shards *kv) {
  bool *excluded = sl__alloc((size_t)kv->owners.count, sizeof *excluded, "shards");
  bool *placed = sl__alloc((size_t)kv->shard_count + 1, sizeof *placed, "shards");
  enum sl_status status = excluded && placed ? SL_OK : SL_NO_MEMORY;
  for (int n = 0; n < kv->shard_count && status == SL_OK; n++) {
    int largest = largest_shard(kv, placed);
    struct sl__shard *shard = &kv->shards[largest];
    shard->rank = choose_rank(kv, shard->block);
    shard->device = choose_device(kv, shard->block, excluded);
    shard->launch =
        (struct sl__launch){.name = kv->model->layers[shard->block].name,
                            .place = kv->owners.devices[shard->device].place,
                            .priority = SL__PRIORITY_UPDATE + kv->model->count - shard->block};
    sl__owners_count(&kv->owners, shard, sl__shard_is_mine(kv, shard), 1);
    placed[largest] = true;
  }
  free(excluded);
  free(placed);
  return status;
}

/* ---- state and exchange ---- */

/* If gradients are clipped or logged: the tensors for a shard's part of the norm. The gradient of a
 * single replica is the sum itself. */
static enum sl_status make_norm(struct sl__model_shards *kv, struct sl__shard *shard) {
  struct sl_context *context = kv->model->context;
  bool rows = sl__layer_is_sparse(kv, shard->block) && !kv->is_exchanged;
  enum sl_status status = SL_OK;
  if (!(kv->optimizer.clip > 0 || kv->log_gradients) || (rows && shard->part)) return SL_OK;
  if (!rows && sl__shard_is_mine(kv, shard) && (kv->is_exchanged || kv->replicas > 1))
    status = sl__tensor_temporary(context, &SL_SHAPE(shard->count), SL_F32, &shard->sum);
  if (status == SL_OK) status = sl__tensor_temporary(context, &SL_SHAPE(1), SL_F32, &shard->square);
  return status;
}

/* LAMB's squares of the shard's parts; of other owners' shards if the block is cut. */
static enum sl_status make_trust(struct sl__model_shards *kv, struct sl__shard *shard) {
  struct sl_context *context = kv->model->context;
  const struct sl_shape shape = SL_SHAPE(2 * shard->parts.count);
  enum sl_status status = SL_OK;
  if (!sl__optimizer_of(&kv->optimizer)->trusts) return SL_OK;
  if (shard->is_cut || sl__shard_is_mine(kv, shard))
    status = sl__tensor_temporary(context, &shape, SL_F32, &shard->trust);
  if (status == SL_OK && shard->is_cut && !shard->part)
    status = sl__tensor_temporary(context, &shape, SL_F32, &shard->trust_sum);
  return status;
}

static enum sl_status make_state(struct sl__model_shards *kv) {
  struct sl_context *context = kv->model->context;
  enum sl_status status = SL_OK;
  for (int s = 0; s < kv->shard_count; s++) {
    struct sl__shard *shard = &kv->shards[s];
    if (sl__shard_is_mine(kv, shard)) SL__TRY(sl__shard_make_state(context, &kv->optimizer, shard));
    SL__TRY(make_norm(kv, shard));
    SL__TRY(make_trust(kv, shard));
    if (kv->is_exchanged && kv->replicas > 1 && sl__is_worker(&kv->ranks) && !shard->is_elsewhere &&
        !sl__layer_is_sparse(kv, shard->block))
      SL__TRY(sl__tensor_temporary(context, &SL_SHAPE(shard->count), SL_F32, &shard->local_sum));
  }
  if (kv->optimizer.clip > 0 || kv->log_gradients)
    SL__TRY(sl__tensor_temporary(context, &SL_SHAPE(1), SL_F32, &kv->norm));
  status = sl__gradient_squares_new(kv);
out:
  return status;
}

static enum sl_status make_exchange(struct sl__model_shards *kv,
                                    const struct sl__model_shards_options *options) {
  struct sl__compress compress = {.method = SL__COMPRESS_NONE};
  enum sl_status status = SL_OK;
  int tags;
  if (!kv->is_exchanged) return SL_OK;
  if (options->compress) SL__TRY(sl__compress_parse(options->compress, &compress));
  SL__TRY(sl__exchange_new(kv->model->context, &kv->ranks, kv->shard_count, kv->shards, &compress,
                           SL__TAG_EXCHANGE, &kv->exchange, &tags));
  if (kv->is_async)
    status = sl__parameter_server_new(kv->exchange, &kv->optimizer,
                                      options->max_staleness ? options->max_staleness : -1,
                                      kv->norm != NULL);
out:
  return status;
}

/* ---- all of it ---- */

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
  kv->is_exchanged = sl__model_shards_exchanges(&options->ranks, options->compress);
  kv->replicas = grid->replicas;
  kv->log_gradients = options->log_gradients;
  if (kv->is_async && kv->log_gradients) {
    status = sl__fail(SL_BAD_ARGUMENT,
                      "norms of gradients are those of steps that all ranks make "
                      "together: take dist_sync to log them");
    goto out;
  }
  if (kv->is_async && optimizer->average > 0) {
    status = sl__fail(SL_BAD_ARGUMENT,
                      "averages of the parameters need steps that all ranks make together: take "
                      "dist_sync, or no average");
    goto out;
  }
  if (kv->is_async && sl__optimizer_of(optimizer)->trusts) {
    status = sl__fail(SL_BAD_ARGUMENT,
                      "%s needs the norm of each whole parameter, whose shards dist_async updates "
                      "at different times: take dist_sync, or adamw",
                      sl__optimizer_of(optimizer)->name);
    goto out;
  }
  SL__TRY(sl__owners_open(model->context, kv->kind, &kv->ranks, &kv->owners));
  SL__TRY(make_shards(kv, options->big_shard));
  SL__TRY(choose_owners(kv));
  SL__TRY(make_state(kv));
  SL__TRY(make_exchange(kv, options));
  kv->is_counted = true;
  model->users++;
  *kvstore = kv;
  kv = NULL;
out:
  sl__model_shards_free(kv);
  return status;
}

int64_t sl__model_shards_bytes(const struct sl__model_shards *kv, int device) {
  int64_t total = 0;
  for (int s = 0; s < kv->shard_count; s++)
    if (kv->shards[s].device == device && sl__shard_is_mine(kv, &kv->shards[s]))
      total += kv->shards[s].count * 4 * (1 + sl__optimizer_states(&kv->optimizer));
  return total;
}

/* Only arrays that were made completely were ever used. */
static void free_gradients(struct sl__model_shards *kv) {
  bool whole = kv->rows && kv->sums && kv->grads && kv->rows[kv->replicas - 1] &&
               kv->grads[kv->replicas - 1];
  for (int i = 0; kv->sums && i < kv->model->count; i++) {
    if (whole && sl__layer_is_sparse(kv, i)) sl__row_gradients_free(kv, i);
    sl__tensor_free(kv->sums[i].dense);
  }
  for (int r = 0; kv->rows && r < kv->replicas; r++) free(kv->rows[r]);
  for (int r = 0; kv->grads && r < kv->replicas; r++) {
    for (int i = 0; kv->grads[r] && i < kv->model->count; i++) sl__tensor_free(kv->grads[r][i]);
    free(kv->grads[r]);
  }
  free(kv->rows);
  free(kv->sums);
  free(kv->grads);
}

void sl__model_shards_free(struct sl__model_shards *kv) {
  if (!kv) return;
  if (kv->is_counted) kv->model->users--;
  free_gradients(kv);
  sl__exchange_free(kv->exchange);
  for (int s = 0; s < kv->shard_count; s++) sl__shard_clear(&kv->shards[s]);
  sl__owners_close(&kv->owners);
  sl__tensor_free(kv->norm);
  sl__gradient_squares_free(kv);
  free(kv->list);
  free(kv->terms);
  free(kv->shards);
  free(kv);
}
