/* How the ranks of a distributed training find together: who does what, the same model and options
 * everywhere, the same weights to begin with. */
#include <stdio.h>
#include <stdlib.h>

#include "parallel/trainer.h"

enum sl_status sl__trainer_ranks(const struct sl_context *context,
                                 const struct sl_trainer_options *o, struct sl__ranks *ranks) {
  *ranks = (struct sl__ranks){0};
  if (!sl__kvstore_is_distributed(o->kvstore)) {
    if (!o->servers && !o->compress) return SL_OK;
    return sl_fail(SL_BAD_ARGUMENT,
                   "KVStore %s has neither servers nor compression; take a dist_* one",
                   sl_kvstore_name(o->kvstore));
  }
  if (!context->net)
    return sl_fail(SL_BAD_ARGUMENT,
                   "KVStore %s: open the context with sl_context_options.distributed",
                   sl_kvstore_name(o->kvstore));
  int size = sl__net_size(context->net);
  if (o->servers < 0 || o->servers >= size)
    return sl_fail(SL_BAD_ARGUMENT,
                   "%d servers of %d ranks: at least one rank must be a worker; start more ranks "
                   "(mpirun -np %d) or take fewer servers",
                   o->servers, size, o->servers + 1);
  *ranks = (struct sl__ranks){sl__net_rank(context->net), size, size - o->servers};
  return SL_OK;
}

/* Line by line, so that what differs can be named. */
static char *describe(const struct sl_trainer *t, const struct sl_trainer_options *o) {
  char *text = NULL, shape[96];
  size_t size;
  const struct sl_optimizer *p = &t->optimizer;
  FILE *out = open_memstream(&text, &size);
  if (!out) return NULL;
  fprintf(out,
          "kvstore %s\nservers %d\nbigarray bound %lld\ncompression %s\nmost staleness %d\nsteps "
          "in flight %d\n",
          sl_kvstore_name(o->kvstore), o->servers, (long long)o->bigarray_bound,
          o->compress ? o->compress : "none", o->max_staleness, t->in_flight);
  fprintf(out,
          "optimizer %d: lr %g, momentum %g%s, weight decay %g, betas %g %g, epsilon %g, clip %g\n",
          (int)p->kind, (double)p->lr, (double)p->momentum, p->nesterov ? " (Nesterov)" : "",
          (double)p->weight_decay, (double)p->beta1, (double)p->beta2, (double)p->epsilon,
          (double)p->clip);
  for (int i = 0; i < t->model->count; i++) {
    const struct sl__layer *layer = &t->model->layers[i];
    fprintf(out, "layer %s: %s to %s, %lld parameters\n", layer->name, layer->kind->name,
            sl_shape_text(&layer->out, shape, sizeof shape), (long long)layer->params.total);
  }
  if (!fclose(out)) return text;
  free(text);
  return NULL;
}

static enum sl_status share_block(struct sl__net *net, const struct sl__block *block) {
  enum sl_status status;
  if (!block->total) return SL_OK;
  float *values = sl__alloc((size_t)block->total, sizeof *values, "a copy of weights");
  if (!values) return SL_NO_MEMORY;
  SL_TRY(sl__tensor_read(block->tensor, values));
  SL_TRY(sl__net_broadcast(net, values, (size_t)block->total * sizeof *values));
  if (sl__net_rank(net)) status = sl__tensor_write(block->tensor, values);
out:
  free(values);
  return status;
}

enum sl_status sl__trainer_share_buffers(struct sl_trainer *t) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < t->model->count; i++)
    SL_TRY(share_block(t->model->context->net, &t->model->layers[i].buffers));
out:
  return status;
}

enum sl_status sl__trainer_meet(struct sl_trainer *t, const struct sl_trainer_options *options) {
  struct sl__net *net = t->model->context->net;
  char *lines = describe(t, options);
  if (!lines) return sl_fail(SL_NO_MEMORY, "no memory to describe the training");
  enum sl_status status = sl__net_agree(net, lines);
  free(lines);
  for (int i = 0; i < t->model->count && status == SL_OK; i++)
    status = share_block(net, &t->model->layers[i].params);
  if (status == SL_OK) status = sl__trainer_share_buffers(t);
  return status == SL_OK ? sl__choose_ways(t->model->context) : status;
}
