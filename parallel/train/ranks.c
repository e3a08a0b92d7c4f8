/* How the ranks of a distributed training begin together: each gets its role, all have the same
 * model and options, and all start with rank 0's weights. If a model is placed over several ranks,
 * rank 0 also collects the weights of the others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/numbers.h"
#include "core/base/text.h"
#include "parallel/train/ranks.h"
#include "parallel/train/transport_probe.h"

/* Options that a model over several ranks does not support. */
static enum sl_status check_groups(const struct sl_trainer_options *o, int size, int members) {
  if (members == 1) return SL_OK;
  if (o->servers)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%d servers and a placement over %d ranks: the ranks of a layer own its "
                    "shards; leave the servers out",
                    o->servers, members);
  if (sl__kvstore_is_async(o->kvstore))
    return sl__fail(
        SL_BAD_ARGUMENT,
        "KVStore %s and a placement over %d ranks: the ranks of a model make each step together; "
        "take dist_sync",
        sl_kvstore_name(o->kvstore), members);
  if (size % members)
    return sl__fail(SL_BAD_ARGUMENT,
                    "the placement is over %d ranks, and %d were started: start a multiple of %d "
                    "(mpirun -np %d)",
                    members, size, members, (size / members + 1) * members);
  return SL_OK;
}

enum sl_status sl__trainer_ranks(const struct sl_context *context,
                                 const struct sl_trainer_options *o, const struct sl__grid *grid,
                                 struct sl__ranks *ranks) {
  if (!sl__kvstore_is_distributed(o->kvstore) && (o->servers || o->compress))
    return sl__fail(SL_BAD_ARGUMENT,
                    "KVStore %s has neither servers nor compression; take a dist_* one",
                    sl_kvstore_name(o->kvstore));
  enum sl_status status = sl__ranks_find(context, o->kvstore, o->servers, ranks);
  if (status != SL_OK || !ranks->size) return status;
  status = check_groups(o, ranks->size, grid->members);
  ranks->members = grid->members;
  ranks->workers /= grid->members;
  return status;
}

/* One property a line, so that a message can name the first one that differs. */
static char *describe(const struct sl_trainer *t, const struct sl_trainer_options *o) {
  char *text, factors[2][SL__FLOAT_TEXT], shape[96], optimizer[SL__OPTIMIZER_TEXT],
      loss[SL__LOSS_TEXT], schedule[SL__SCHEDULE_TEXT];
  struct sl__text lines;
  FILE *out = sl__text_begin(&lines);
  if (!out) {
    sl__text_end(&lines, "a training's description", &text);
    return NULL;
  }
  fprintf(out,
          "kvstore %s\nmath %s\nservers %d\nbigarray bound %lld\ncompression %s\nmost staleness "
          "%d\nsteps "
          "in flight %d\n",
          sl_kvstore_name(o->kvstore), sl_math_name(o->math), o->servers,
          (long long)o->bigarray_bound, o->compress ? o->compress : "none", o->max_staleness,
          t->in_flight);
  fprintf(out, "optimizer %s%s\nloss %s\n", sl__optimizer_text(&t->optimizer, optimizer),
          t->model->decays_weights_only ? ", weight decay for weights only" : "",
          sl__loss_text(&t->loss, loss));
  fprintf(out, "schedule %s\n%s", sl__schedule_text(&t->schedule, schedule),
          t->carry_state ? "recurrent layers carry their state on\n" : "");
  if (o->log_gradients) /* of parts that all ranks know */
    fprintf(out, "gradients are logged, replicas %d, split %s\n", t->grid.replicas,
            o->split ? o->split : "even");
  if (t->grid.members > 1) /* the ranks of a group send each other the slices of a batch */
    fprintf(
        out,
        "ranks a model %d\nreplicas %d\nmicrobatches %d\nchunk %lld\nbig shard %lld\nsplit %s\n",
        t->grid.members, t->grid.replicas, t->grid.microbatches, (long long)t->grid.chunk,
        (long long)o->big_shard, o->split ? o->split : "even");
  for (int i = 0; i < t->model->count; i++) {
    const struct sl__layer *layer = &t->model->layers[i];
    fprintf(out, "layer %s: %s to %s, %lld parameters, on rank %d of %d", layer->name,
            layer->kind->name, sl_shape_text(&layer->out, shape, sizeof shape),
            (long long)layer->params.total, sl__grid_member(&t->grid, i), t->grid.members);
    fprintf(out, "%s, factors %s and %s\n", layer->is_frozen ? ", frozen" : "",
            sl__float_text(layer->lr_factor, factors[0]),
            sl__float_text(layer->decay_factor, factors[1]));
  }
  sl__text_end(&lines, "a training's description", &text);
  return text;
}

/* The largest block of buffers or, if with_params, of any kind. */
static int64_t largest_block(const struct sl_model *model, bool with_params) {
  int64_t most = 0;
  for (int i = 0; i < model->count; i++) {
    const struct sl__layer *layer = &model->layers[i];
    if (layer->buffers.total > most) most = layer->buffers.total;
    if (with_params && layer->params.total > most) most = layer->params.total;
  }
  return most;
}

static float *new_copy(int64_t count) {
  return sl__alloc((size_t)count, sizeof(float), "a copy of weights");
}

/* The same on all ranks or on none: a rank without it would take the others' weights for another
 * message. */
static enum sl_status new_copies(const struct sl_model *model, int64_t count, float **copy) {
  *copy = new_copy(count);
  return sl_share(model->context, *copy ? SL_OK : SL_NO_MEMORY, sl_error());
}

/* Rank `from` has the block; rank 0 gets it and, if to_all, so do all other ranks. */
static enum sl_status spread_block(struct sl__net *net, const struct sl__block *block, int from,
                                   bool to_all, float *copy) {
  int rank = sl__net_rank(net);
  size_t bytes = (size_t)block->total * sizeof(float);
  bool sends = from && rank == from, receives = from && !rank;
  enum sl_status status = SL_OK;
  if (!block->total || (!to_all && !sends && !receives)) return SL_OK;
  if (rank == from) SL__TRY(sl__tensor_read(block->tensor, copy));
  if (sends) SL__TRY(sl__net_send(net, 0, copy, bytes));
  if (receives) SL__TRY(sl__net_receive(net, from, copy, bytes));
  if (to_all) SL__TRY(sl__net_broadcast(net, copy, bytes));
  if (rank != from) status = sl__tensor_write(block->tensor, copy);
out:
  return status;
}

enum sl_status sl__trainer_share_buffers(struct sl_trainer *t) {
  int64_t count = largest_block(t->model, false);
  float *copy;
  enum sl_status status;
  if (!count) return SL_OK;
  SL__TRY(new_copies(t->model, count, &copy));
  for (int i = 0; i < t->model->count; i++)
    SL__TRY(spread_block(t->model->context->net, &t->model->layers[i].buffers,
                         sl__grid_member(&t->grid, i), true, copy));
out:
  free(copy);
  return status;
}

/* The members of a worker have the same batch: the first one's numbers count. */
static void add_workers(const struct sl__ranks *ranks, const double *all, double *sum) {
  int members = sl__members(ranks);
  memset(sum, 0, SL_MAX_FIELDS * sizeof *sum);
  for (int w = 0; w < ranks->workers; w++)
    for (int i = 0; i < SL_MAX_FIELDS; i++) sum[i] += all[w * members * SL_MAX_FIELDS + i];
}

enum sl_status sl__trainer_sum(const struct sl_trainer *t, double numbers[SL_MAX_FIELDS]) {
  struct sl__net *net = t->model->context->net;
  size_t bytes = SL_MAX_FIELDS * sizeof *numbers;
  enum sl_status status;
  double *all = sl__alloc((size_t)t->ranks.size, bytes, "numbers of all ranks");
  if (!all) return SL_NO_MEMORY; /* which the caller announces */
  SL__TRY(sl__net_gather(net, numbers, bytes, all));
  if (!t->ranks.rank) add_workers(&t->ranks, all, numbers);
  status = sl__net_broadcast(net, numbers, bytes);
out:
  free(all);
  return status;
}

enum sl_status sl__trainer_fetch_weights(struct sl_trainer *t) {
  struct sl__net *net = t->model->context->net;
  enum sl_status status = SL_OK;
  if (t->grid.members < 2) return SL_OK;
  float *copy = new_copy(largest_block(t->model, true));
  if (!copy) return SL_NO_MEMORY;
  for (int i = 0; i < t->model->count; i++) {
    int from = sl__grid_member(&t->grid, i);
    if (!from) continue;
    SL__TRY(spread_block(net, &t->model->layers[i].params, from, false, copy));
    SL__TRY(spread_block(net, &t->model->layers[i].buffers, from, false, copy));
  }
out:
  free(copy);
  return status;
}

/* All ranks begin with rank 0's weights. */
static enum sl_status share_weights(struct sl_trainer *t) {
  struct sl__net *net = t->model->context->net;
  float *copy;
  enum sl_status status;
  SL__TRY(new_copies(t->model, largest_block(t->model, true), &copy));
  for (int i = 0; i < t->model->count; i++) {
    SL__TRY(spread_block(net, &t->model->layers[i].params, 0, true, copy));
    SL__TRY(spread_block(net, &t->model->layers[i].buffers, 0, true, copy));
  }
out:
  free(copy);
  return status;
}

enum sl_status sl__trainer_join_ranks(struct sl_trainer *t,
                                      const struct sl_trainer_options *options) {
  struct sl_context *context = t->model->context;
  char *lines = describe(t, options);
  enum sl_status status = sl_share(
      context, lines ? SL_OK : sl__fail(SL_NO_MEMORY, "no memory to describe the training"),
      sl_error());
  if (status == SL_OK) status = sl__net_agree(context->net, lines);
  free(lines);
  if (status == SL_OK) status = share_weights(t);
  return status == SL_OK ? sl__probe_transports(context) : status;
}
