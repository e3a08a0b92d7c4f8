#include "parallel/params/memory_needs.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/machine.h"
#include "core/base/text.h"
#include "core/runtime/cuda.h"
#include "core/runtime/log.h"
#include "parallel/params/model_shards.h"
#include "parallel/step/plan.h"
#include "parallel/step/precision.h"
#include "parallel/step/recompute.h"

/* Of a table whose rows alone are touched, as many rows as there are tokens; see sl__model_shards.
 */
static double gradient_elements(const struct sl__memory_case *c, const struct sl__layer *layer) {
  double all = sl__layer_trains(layer) ? (double)layer->params.total : 0;
  if (!sl__model_shards_is_sparse(layer) || !sl__optimizer_skips_rows(c->optimizer)) return all;
  double tokens = (double)c->rows * c->microbatches * (double)sl_shape_count(&layer->in[0]);
  double rows = (double)layer->params.part[0].shape.dim[0];
  return tokens < rows ? all * tokens / rows : all;
}

double sl__layer_param_memory(const struct sl__memory_case *c, int i) {
  const struct sl__layer *layer = &c->model->layers[i];
  double each = 4;
  if (sl__layer_trains(layer)) each += 4 * sl__optimizer_states(c->optimizer);
  if (sl__has_bf16_copy(layer, c->math)) each += 2;
  return each * (double)layer->params.total;
}

/* Rows of logits that a slice has at a time, if layer i is the last one and takes the loss with it;
 * else 0. */
static int64_t head_rows(const struct sl__memory_case *c, int i) {
  struct sl_shape out = c->model->layers[i].out;
  int64_t classes = out.dim[out.ndim - 1];
  if (i != c->model->count - 1) return 0;
  int64_t logits = c->rows * sl_shape_count(&out);
  return sl__head_takes_loss(c->model, c->loss, true, logits) ? logits / classes : 0;
}

/* The scratch memory of that layer. */
static double head_bytes(const struct sl__memory_case *c, int i) {
  const struct sl_shape *out = &c->model->layers[i].out;
  int64_t rows = head_rows(c, i);
  return rows ? (double)sl__linear_xent_scratch(rows, out->dim[out->ndim - 1]) : 0;
}

/* A layer's output, of one slice. */
static double value_bytes(const struct sl__memory_case *c, int i) {
  const struct sl__layer *layer = &c->model->layers[i];
  if (head_rows(c, i)) return 0;
  return (double)sl__type_size(sl__output_type(layer, c->math)) * (double)c->rows *
         (double)sl_shape_count(&layer->out);
}

/* Of one slice; the input's bf16 copy counts with the layer that reads it first. */
static double kept_bytes(const struct sl__memory_case *c, int i) {
  const struct sl__layer *layer = &c->model->layers[i];
  double rows = (double)c->rows, value = (double)sl__type_size(sl__value_type(c->math));
  double saved = (double)sl__type_size(sl__saved_type(layer, c->math));
  double bytes = value_bytes(c, i);
  if (layer->saved.ndim)
    bytes += saved * (double)sl_shape_count(&layer->saved) * (layer->saved_per_row ? rows : 1);
  if (c->math == SL_MATH_BF16 && !i && !c->model->takes_tokens)
    bytes += value * rows * (double)sl_shape_count(&c->model->sample);
  if (layer->state.ndim && (c->chunk || !layer->state_is_cache)) /* with its gradient */
    bytes += 2 * sizeof(float) * rows * (double)sl_shape_count(&layer->state);
  return bytes;
}

double sl__layer_memory(const struct sl__memory_case *c, int i, int slices) {
  const struct sl__layer *layer = &c->model->layers[i];
  if (!layer->needs_gradient) slices = 1; /* no backward pass keeps its values */
  if (c->grid && sl__is_recomputed(c->model, c->grid, i)) slices = 0; /* nor these */
  return sl__layer_param_memory(c, i) + 4 * gradient_elements(c, layer) + head_bytes(c, i) +
         kept_bytes(c, i) * slices;
}

/* Where chunks of time are put together (parallel/step/plan_span.c): the second copies of a layer's
 * inputs and of its output's gradient while the gradient of its parameters is computed, or of the
 * last layer's output and its gradient for the loss. */
static double span_bytes(const struct sl__memory_case *c, int i) {
  const struct sl__layer *layer = &c->model->layers[i];
  double bytes = value_bytes(c, i);
  if (!c->chunk || c->chunk >= c->model->sample.dim[0] || sl__is_recurrent(c->model)) return 0;
  double loss = i == c->model->count - 1 ? 2 * bytes : 0;
  if (layer->is_frozen || (!layer->params.total && layer->tied_to < 0)) return loss;
  for (int k = 0; k < layer->input_count; k++)
    if (layer->input[k] != SL__INPUT && !sl__is_repeated(layer, k))
      bytes += value_bytes(c, layer->input[k]) * (head_rows(c, i) ? 2 : 1);
  return fmax(bytes, loss);
}

/* StarPU moves what has no room there. */
static bool has_disk(void) {
  for (unsigned node = 0; node < starpu_memory_nodes_get_count(); node++)
    if (starpu_node_get_kind(node) == STARPU_DISK_RAM) return true;
  return false;
}

double sl__device_memory(const struct sl__device *device) {
  starpu_ssize_t bytes = starpu_memory_get_total(device->node);
  if (device->node == STARPU_MAIN_RAM && has_disk()) return INFINITY;
  if (bytes > 0) return (double)bytes - (double)sl__cuda_unusable(device->node);
  if (device->node != STARPU_MAIN_RAM) return INFINITY;
  return sl__machine_memory();
}

bool sl__memory_is_definite(const struct sl__device *device) {
  if (device->place.worker || device->place.where == STARPU_CPU) return true;
  return starpu_cpu_worker_get_count() == starpu_worker_get_count();
}

/* Does a replica before r have this layer in the same memory? */
static bool is_there(const struct sl__grid *grid, int layer, int r) {
  unsigned node = sl__grid_device(grid, layer, r)->node;
  for (int before = 0; before < r; before++) {
    const struct sl__device *device = sl__grid_device(grid, layer, before);
    if (device->node == node && sl__memory_is_definite(device)) return true;
  }
  return false;
}

/* What the layers on this memory node need at least, and the first stage that is there. rows:
 * of each slice. */
static double least_on_node(struct sl__memory_case *c, const struct sl__grid *grid,
                            const int64_t *rows, unsigned node, int *stage) {
  const struct sl_model *model = c->model;
  double bytes = 0, span = 0;
  *stage = -1;
  for (int i = 0; i < model->count; i++)
    for (int r = 0; r < grid->replicas; r++) {
      const struct sl__device *device = sl__grid_device(grid, i, r);
      if (!sl__grid_is_here(grid, i)) continue;
      if (device->node != node || !sl__memory_is_definite(device)) continue;
      c->rows = rows[r * grid->microbatches];
      bytes += sl__layer_memory(c, i, 1);
      span = fmax(span, span_bytes(c, i));
      /* on a GPU the gradients of all values, too: too much is better than a stall */
      if (node != STARPU_MAIN_RAM && model->layers[i].needs_gradient) bytes += value_bytes(c, i);
      if (is_there(grid, i, r)) bytes -= sl__layer_param_memory(c, i); /* these are there once */
      if (*stage < 0) *stage = grid->stage[i];
    }
  return bytes + span;
}

enum sl_status sl__placement_check_memory(const struct sl_model *model,
                                          const struct sl_optimizer *optimizer,
                                          const struct sl_loss *loss, const struct sl__grid *grid,
                                          int64_t batch) {
  struct sl__memory_case c = {.grid = grid,
                              .model = model,
                              .optimizer = optimizer,
                              .loss = loss,
                              .chunk = grid->training_chunk,
                              .microbatches = grid->microbatches,
                              .math = grid->math};
  enum sl_status status = SL_OK;
  bool told = false;
  int64_t *rows = sl__alloc((size_t)grid->replicas * (size_t)grid->microbatches, sizeof *rows,
                            "a placement's memory");
  if (!rows) return SL_NO_MEMORY;
  sl__slice_rows(grid, batch, rows);
  for (int d = 0; d < grid->stages * grid->replicas && status == SL_OK; d++) {
    const struct sl__device *device = &grid->devices[d];
    int stage;
    double need = least_on_node(&c, grid, rows, device->node, &stage);
    double has = sl__device_memory(device);
    if (grid->member_of && grid->member_of[d / grid->replicas] != grid->member) continue;
    if (stage < 0 || need <= has) continue;
    int digits = sl__megabyte_digits(need, has);
    bool swaps = device->node != STARPU_MAIN_RAM && !starpu_get_prefetch_flag();
    if (swaps && !told)
      sl__log(model->context, SL_LOG_WARNING,
              "%s has %.*f MB, the layers there need %.*f MB: StarPU moves them out and in, which "
              "takes time; more microbatches or a smaller batch need less",
              device->name, digits, has / 1e6, digits, need / 1e6);
    told |= swaps;
    if (swaps) continue;
    status = sl__fail(SL_NO_MEMORY,
                      "the placement cannot fit: the layers on %s (stage %d and what shares its "
                      "memory) need at least %.*f MB, but it has %.*f MB; place layers elsewhere, "
                      "or take a smaller batch or more microbatches%s",
                      device->name, stage, digits, need / 1e6, digits, has / 1e6,
                      device->node == STARPU_MAIN_RAM
                          ? ", or name a swap folder"
                          : ", or set STARPU_PREFETCH=0: then "
                            "tensors are moved out and in, which takes time");
  }
  free(rows);
  return status;
}
