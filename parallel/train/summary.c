/* Texts about a trainer: devices, replicas, shards, owners, memory. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "codelets/kernels/gemm.h"
#include "core/base/text.h"
#include "core/net/net.h"
#include "parallel/step/precision.h"
#include "parallel/train/trainer.h"

/* Bytes of one replica's activations and their gradients, per sample, of the layers on this rank.
 */
static double bytes_per_row(const struct sl_trainer *t) {
  const struct sl_model *model = t->model;
  double total = 0, value = (double)sl__type_size(sl__value_type(t->grid.math));
  for (int i = 0; i < model->count; i++) {
    const struct sl__layer *layer = &model->layers[i];
    if (!sl__grid_is_here(&t->grid, i)) continue;
    total += (layer->needs_gradient ? 2 : 1) * value * (double)sl_shape_count(&layer->out);
    if (layer->needs_gradient && layer->saved.ndim && layer->saved_per_row)
      total += (double)(sl__type_size(sl__saved_type(layer, t->grid.math)) *
                        (size_t)sl_shape_count(&layer->saved));
  }
  return total;
}

static double gradient_bytes(const struct sl_trainer *t) {
  double total = 0;
  for (int i = 0; i < t->model->count; i++)
    if (sl__grid_is_here(&t->grid, i) && sl__layer_trains(&t->model->layers[i]))
      total += 4.0 * (double)t->model->layers[i].params.total;
  return total;
}

/* Bytes of the parameters' bf16 copies, in each memory that has them. */
static double bf16_copy_bytes(const struct sl_trainer *t) {
  double total = 0;
  for (int i = 0; i < t->model->count; i++)
    if (sl__grid_is_here(&t->grid, i) && sl__has_bf16_copy(&t->model->layers[i], t->grid.math))
      total += 2.0 * (double)t->model->layers[i].params.total;
  return total;
}

/* A stage's devices, one for each replica. The names of another rank's are unknown. */
static void print_devices(FILE *out, const struct sl__grid *g, int stage, const char *between) {
  for (int r = 0; r < g->replicas; r++) {
    const char *name = g->devices[stage * g->replicas + r].name;
    if (r) fputs(between, out);
    if (g->member_of) fprintf(out, "rank%d%s", g->member_of[stage], *name ? "/" : "");
    fputs(name, out);
  }
}

/* "stage 1  cpu:0, cpu:1  conv2 fc1": the devices of replica 0, 1, ..., the layers. */
static void print_stage(FILE *out, const struct sl_trainer *t, int stage) {
  const struct sl__grid *g = &t->grid;
  if (g->stages > 1)
    fprintf(out, "  stage %d on ", stage);
  else
    fprintf(out, "  on ");
  print_devices(out, g, stage, ", ");
  if (g->stages > 1) fprintf(out, ":");
  for (int i = 0; i < g->layers && g->stages > 1; i++)
    if (g->stage[i] == stage) fprintf(out, " %s", t->model->layers[i].name);
  fputc('\n', out);
}

/* "  shares of a batch: 80.0 %, 20.0 %" */
static void print_shares(FILE *out, const struct sl__grid *g) {
  double total = 0;
  for (int r = 0; r < g->replicas && g->proportion; r++) total += g->proportion[r];
  for (int r = 0; r < g->replicas && g->proportion; r++)
    fprintf(out, "%s %.1f %%%s", r ? "," : "  shares of a batch:", 100 * g->proportion[r] / total,
            r + 1 == g->replicas ? "\n" : "");
}

static void print_replicas(FILE *out, const struct sl_trainer *t) {
  fprintf(out, "Replicas: %d x %d microbatches, %d steps in flight\n", t->grid.replicas,
          t->grid.microbatches, t->in_flight);
  print_shares(out, &t->grid);
  fprintf(out, "  each: gradients %.2f MB, activations %.1f KB a sample\n",
          1e-6 * gradient_bytes(t), 1e-3 * bytes_per_row(t));
  fprintf(out, "  math %s", sl_math_name(t->grid.math));
  if (bf16_copy_bytes(t) > 0)
    fprintf(out, "; bf16 copies of parameters %.2f MB", 1e-6 * bf16_copy_bytes(t));
  fputc('\n', out);
  for (int s = 0; s < t->grid.stages; s++) print_stage(out, t, s);
}

static void print_owners(FILE *out, const struct sl__model_shards *kv) {
  fprintf(out, "KVStore %s: %d shards, parameters and optimizer state by owner\n",
          sl_kvstore_name(kv->kind), kv->shard_count);
  for (int o = 0; o < kv->owners.count; o++) {
    fprintf(out, "  %-24s %8.2f MB ", kv->owners.devices[o].name,
            1e-6 * (double)sl__model_shards_bytes(kv, o));
    for (int s = 0; s < kv->shard_count; s++) {
      const struct sl__shard *shard = &kv->shards[s];
      if (shard->device != o || !sl__shard_is_mine(kv, shard)) continue;
      fprintf(out, " %s", kv->model->layers[shard->block].name);
      if (kv->model->layers[shard->block].params.tensor->view_count)
        fprintf(out, "/%d", shard->part);
    }
    fputc('\n', out);
  }
}

enum sl_status sl_trainer_summary(const struct sl_trainer *trainer, char **text) {
  SL__NEEDS(trainer, text);
  struct sl__text summary;
  FILE *out = sl__text_begin(&summary);
  if (out) {
    print_replicas(out, trainer);
    if (trainer->model->frozen) fprintf(out, "Frozen layers: %s\n", trainer->model->frozen);
    print_owners(out, trainer->shards);
    if (trainer->ranks.size > 1)
      fprintf(out, "Messages between ranks: %s\n",
              sl__net_transport_text(trainer->model->context->net));
    fprintf(out, "Matrix products by %s\n", sl__gemm_text(sl__gemm_preferred()));
  }
  return sl__text_end(&summary, "a summary", text);
}

/* Is this the first of the layer's shards that its owner has? Of owners on other ranks only the
 * rank is known. */
static bool is_first_of_owner(const struct sl__model_shards *kv, int number) {
  const struct sl__shard *shard = &kv->shards[number];
  for (int s = 0; s < number; s++) {
    const struct sl__shard *other = &kv->shards[s];
    if (other->block != shard->block || other->rank != shard->rank) continue;
    if (other->device == shard->device || !sl__shard_is_mine(kv, shard)) return false;
  }
  return true;
}

static void print_layer_owners(FILE *out, const struct sl__model_shards *kv, int layer) {
  bool first = true;
  for (int s = 0; s < kv->shard_count; s++) {
    const struct sl__shard *shard = &kv->shards[s];
    bool mine = sl__shard_is_mine(kv, shard);
    if (shard->block != layer || !is_first_of_owner(kv, s)) continue;
    if (!first) fputc(',', out);
    first = false;
    if (kv->ranks.size > 1) fprintf(out, "rank%d%s", shard->rank, mine ? "/" : "");
    if (mine) fputs(kv->owners.devices[shard->device].name, out);
  }
}

static enum sl_status place_text(const struct sl_trainer *t, int layer, bool owners, char **text) {
  struct sl__text place;
  FILE *out = sl__text_begin(&place);
  if (out && owners) print_layer_owners(out, t->shards, layer);
  if (out && !owners) print_devices(out, &t->grid, t->grid.stage[layer], ",");
  return sl__text_end(&place, "a layer's place", text);
}

enum sl_status sl_trainer_place(const struct sl_trainer *trainer, int layer,
                                struct sl_layer_place *place) {
  SL__NEEDS(trainer, place);
  enum sl_status status;
  *place = (struct sl_layer_place){0};
  if (layer < 0 || layer >= trainer->model->count)
    return sl__fail(SL_BAD_ARGUMENT, "layer %d: the model has %d, from 0", layer,
                    trainer->model->count);
  place->stage = trainer->grid.stage[layer];
  SL__TRY(place_text(trainer, layer, false, &place->devices));
  SL__TRY(place_text(trainer, layer, true, &place->owners));
out:
  if (status == SL_OK) return SL_OK;
  free(place->devices);
  free(place->owners);
  *place = (struct sl_layer_place){0};
  return status;
}
