/* What a trainer tells of itself: devices, replicas, shards, owners, memory. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "codelets/gemm.h"
#include "core/net.h"
#include "parallel/precision.h"
#include "parallel/trainer.h"

/* Bytes of one replica's activations and their gradients, for one row of its slice; of layers here.
 */
static double bytes_per_row(const struct sl_trainer *t) {
  const struct sl_model *model = t->model;
  double total = 0, value = (double)sl__type_size(sl__value_type(t->grid.math));
  for (int i = 0; i < model->count; i++) {
    const struct sl__layer *layer = &model->layers[i];
    if (!sl__grid_is_here(&t->grid, i)) continue;
    total += 2 * value * (double)sl_shape_count(&layer->out);
    if (layer->saved.ndim && layer->saved_per_row)
      total += (double)(sl__type_size(sl__saved_type(layer, t->grid.math)) *
                        (size_t)sl_shape_count(&layer->saved));
  }
  return total;
}

static double gradient_bytes(const struct sl_trainer *t) {
  double total = 0;
  for (int i = 0; i < t->model->count; i++)
    if (sl__grid_is_here(&t->grid, i)) total += 4.0 * (double)t->model->layers[i].params.total;
  return total;
}

/* Of the parameters' bf16 copies, in each memory where they are used. */
static double half_bytes(const struct sl_trainer *t) {
  double total = 0;
  for (int i = 0; i < t->model->count; i++)
    if (sl__grid_is_here(&t->grid, i) && sl__has_half(&t->model->layers[i], t->grid.math))
      total += 2.0 * (double)t->model->layers[i].params.total;
  return total;
}

/* "stage 1  cpu:0, cpu:1  conv2 fc1": the devices of replica 0, 1, ..., the layers. */
static void print_stage(FILE *out, const struct sl_trainer *t, int stage) {
  const struct sl__grid *g = &t->grid;
  if (g->stages > 1)
    fprintf(out, "  stage %d on", stage);
  else
    fprintf(out, "  on");
  for (int r = 0; r < g->replicas; r++)
    if (g->member_of)
      fprintf(out, "%s rank%d/%s", r ? "," : "", g->member_of[stage],
              g->devices[stage * g->replicas + r].name);
    else
      fprintf(out, "%s %s", r ? "," : "", g->devices[stage * g->replicas + r].name);
  if (g->stages > 1) fprintf(out, ":");
  for (int i = 0; i < g->layers && g->stages > 1; i++)
    if (g->stage[i] == stage) fprintf(out, " %s", t->model->layers[i].name);
  fputc('\n', out);
}

static void print_replicas(FILE *out, const struct sl_trainer *t) {
  fprintf(out, "Replicas: %d x %d microbatches, %d steps in flight\n", t->grid.replicas,
          t->grid.microbatches, t->in_flight);
  fprintf(out, "  each: gradients %.2f MB, activations %.1f KB a sample\n",
          1e-6 * gradient_bytes(t), 1e-3 * bytes_per_row(t));
  fprintf(out, "  math %s", sl_math_name(t->grid.math));
  if (half_bytes(t) > 0) fprintf(out, "; bf16 copies of parameters %.2f MB", 1e-6 * half_bytes(t));
  fputc('\n', out);
  for (int s = 0; s < t->grid.stages; s++) print_stage(out, t, s);
}

static void print_owners(FILE *out, const struct sl__kvstore *kv) {
  fprintf(out, "KVStore %s: %d shards, parameters and optimizer state by owner\n",
          sl_kvstore_name(kv->kind), kv->shard_count);
  for (int o = 0; o < kv->owner_count; o++) {
    fprintf(out, "  %-24s %8.2f MB ", kv->owners[o].name, 1e-6 * (double)sl__kvstore_bytes(kv, o));
    for (int s = 0; s < kv->shard_count; s++) {
      const struct sl__shard *shard = &kv->shards[s];
      if (shard->owner != o || !sl__shard_is_mine(kv, shard)) continue;
      fprintf(out, " %s", kv->model->layers[shard->layer].name);
      if (kv->model->layers[shard->layer].params.tensor->view_count)
        fprintf(out, "/%d", shard->part);
    }
    fputc('\n', out);
  }
}

enum sl_status sl_trainer_summary(const struct sl_trainer *t, char **text) {
  size_t size;
  *text = NULL;
  FILE *out = open_memstream(text, &size);
  if (!out) return sl_fail(SL_NO_MEMORY, "no memory for a summary");
  print_replicas(out, t);
  print_owners(out, t->kvstore);
  if (t->ranks.size > 1)
    fprintf(out, "Messages between ranks: %s\n", sl__net_way_text(t->model->context->net));
  fprintf(out, "Matrix products by %s\n", sl__gemm_text());
  if (fclose(out)) {
    free(*text);
    *text = NULL;
    return sl_fail(SL_NO_MEMORY, "no memory for a summary");
  }
  return SL_OK;
}
