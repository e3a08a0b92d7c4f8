#include "parallel/step/recompute.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "nn/layer_names.h"

struct marks {
  const struct sl_model *model;
  bool *marked;
};

static enum sl_status mark(void *user, int i) {
  const struct marks *marks = user;
  const struct sl__layer *layer = &marks->model->layers[i];
  if (layer->buffers.total)
    return sl__fail(SL_BAD_ARGUMENT,
                    "recompute: layer %s (%s) updates its statistics in each pass, so it is "
                    "computed once; leave it out",
                    layer->name, layer->kind->name);
  if (layer->state.ndim && !layer->state_is_cache)
    return sl__fail(SL_BAD_ARGUMENT,
                    "recompute: layer %s (%s) changes the state that it begins with, so it is "
                    "computed once; leave it out",
                    layer->name, layer->kind->name);
  marks->marked[i] = true;
  return SL_OK;
}

static bool same_group(const struct sl__layer *a, const struct sl__layer *b) {
  return a->group && b->group ? !strcmp(a->group, b->group) : a->group == b->group;
}

enum sl_status sl__recompute_find(const struct sl_model *model, const char *layers,
                                  struct sl__grid *grid) {
  enum sl_status status = SL_OK;
  size_t count = (size_t)model->count;
  if (!layers || !*layers) return SL_OK;
  struct marks marks = {model, sl__alloc(count, sizeof *marks.marked, "layers to recompute")};
  const struct sl__layer_list list = {"recompute", mark, &marks};
  char *names = sl__strdup(layers);
  grid->run = sl__alloc(count, sizeof *grid->run, "layers to recompute");
  if (!marks.marked || !names || !grid->run) {
    status = SL_NO_MEMORY;
    goto out;
  }
  SL__TRY(sl__layer_list_walk(&list, model, names));
  for (int i = model->count - 1; i >= 0; i--) {
    const struct sl__layer *layer = &model->layers[i];
    bool joins = i + 1 < model->count && grid->run[i + 1] >= 0 && same_group(layer, layer + 1) &&
                 grid->stage[i] == grid->stage[i + 1];
    grid->run[i] = !marks.marked[i] || !layer->needs_gradient ? -1 : joins ? grid->run[i + 1] : i;
  }
out:
  free(names);
  free(marks.marked);
  return status;
}

bool sl__is_recomputed(const struct sl_model *model, const struct sl__grid *grid, int i) {
  if (!grid->run || grid->run[i] < 0 || grid->run[i] == i) return false;
  for (int to = i + 1; to < model->count; to++)
    for (int k = 0; k < model->layers[to].input_count; k++)
      if (model->layers[to].input[k] == i && grid->run[to] != grid->run[i]) return false;
  return true;
}
