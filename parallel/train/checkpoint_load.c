/* Loading: a snapshot is filled from the file, checked as a whole, and only then written into the
 * trainer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/net/net.h"
#include "core/runtime/log.h"
#include "data/batches.h"
#include "parallel/train/manifest.h"
#include "parallel/train/snapshot.h"

/* ---- tensors ---- */

static const struct sl__item *find_item(const struct sl__snapshot *snapshot, const char *name) {
  for (int i = 0; i < snapshot->count; i++)
    if (!strcmp(snapshot->items[i].name, name)) return &snapshot->items[i];
  return NULL;
}

/* The file's i-th parameter, in the order of its model; NULL: it has fewer. */
static const struct sl__safetensors_entry *parameter_at(const struct sl__safetensors *file, int i) {
  static const char *const others[] = {"optimizer.", "state.", "residual."};
  for (size_t k = 0; k < sl__safetensors_count(file); k++) {
    const struct sl__safetensors_entry *entry = sl__safetensors_at(file, k);
    bool other = false;
    for (size_t o = 0; o < sizeof others / sizeof *others; o++)
      other |= !strncmp(entry->name, others[o], strlen(others[o]));
    if (!other && i-- == 0) return entry;
  }
  return NULL;
}

/* "layer fc1 (weight [20, 784])" of fc1.weight */
static const char *parameter_text(const char *name, const struct sl_shape *shape, char text[256]) {
  char dims[96];
  const char *dot = name ? strrchr(name, '.') : NULL;
  if (dot)
    snprintf(text, 256, "layer %.*s (%s %s)", (int)(dot - name < 60 ? dot - name : 60), name,
             dot + 1, sl_shape_text(shape, dims, sizeof dims));
  else
    snprintf(text, 256, "no more layers");
  return text;
}

/* If the file is of another model, the message names the first parameter that differs. */
static enum sl_status check_model(const struct sl_model *model,
                                  const struct sl__safetensors *file) {
  char there[256], here[256];
  for (int i = 0, count = sl_model_parameter_count(model);; i++) {
    struct sl_shape shape;
    const char *name = i < count ? sl_model_parameter(model, i, &shape) : NULL;
    const struct sl__safetensors_entry *entry = parameter_at(file, i);
    if (!name && !entry) return SL_OK;
    if (name && entry && !strcmp(name, entry->name) && sl_shape_equal(&shape, &entry->shape))
      continue;
    return sl__fail(SL_BAD_SHAPE, "%s: is of another model, which has %s where this one has %s",
                    sl__safetensors_path(file),
                    parameter_text(entry ? entry->name : NULL, entry ? &entry->shape : NULL, there),
                    parameter_text(name, &shape, here));
  }
}

/* The first tensor without a counterpart would not tell what differs. */
static enum sl_status check_average(const struct sl__safetensors *file,
                                    const struct sl__snapshot *snapshot) {
  static const char prefix[] = "optimizer.average.";
  bool there = false, here = false;
  for (size_t i = 0; i < sl__safetensors_count(file); i++)
    there |= !strncmp(sl__safetensors_at(file, i)->name, prefix, sizeof prefix - 1);
  for (int i = 0; i < snapshot->count; i++)
    here |= !strncmp(snapshot->items[i].name, prefix, sizeof prefix - 1);
  if (there == here) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "%s: was trained %s averages of the parameters, this trainer's optimizer keeps "
                  "%s; %s",
                  sl__safetensors_path(file), there ? "with" : "without", here ? "some" : "none",
                  there ? "set its average above 0" : "set its average to 0");
}

static enum sl_status fill_snapshot(const struct sl_model *model,
                                    const struct sl__safetensors *file,
                                    struct sl__snapshot *snapshot) {
  enum sl_status status = SL_OK;
  const char *path = sl__safetensors_path(file);
  SL__TRY(check_model(model, file));
  SL__TRY(check_average(file, snapshot));
  for (int i = 0; i < snapshot->count; i++) {
    const struct sl__item *item = &snapshot->items[i];
    if (!sl__safetensors_find(file, item->name))
      return sl__fail(SL_BAD_ARGUMENT, "%s: has no \"%s\"; it is of another trainer", path,
                      item->name);
    SL__TRY(sl__safetensors_floats(file, item->name, &item->shape, item->values));
  }
  for (size_t i = 0; i < sl__safetensors_count(file); i++) {
    const char *name = sl__safetensors_at(file, i)->name;
    if (!find_item(snapshot, name))
      return sl__fail(
          SL_BAD_ARGUMENT,
          "%s: has a \"%.60s\", which belongs to nothing here; it is of another trainer", path,
          name);
  }
  SL__TRY(sl__copy_check(&snapshot->weights, model, path));
out:
  return status;
}

/* ---- the file ---- */

static void warn_of_math(const struct sl_trainer *t, const char *path,
                         const struct sl__manifest *manifest) {
  const char *math = sl_math_name(t->grid.math);
  if (strcmp(manifest->math, math) != 0)
    sl__log(t->model->context, SL_LOG_WARNING, "%s: was trained with math %s, goes on with %s",
            path, manifest->math, math);
}

static void warn_of_numerics(const struct sl_trainer *t, const char *path,
                             const struct sl__manifest *manifest) {
  char numerics[SL__NUMERICS_TEXT];
  sl__numerics_text(t->model->context, numerics);
  if (*manifest->numerics && strcmp(manifest->numerics, numerics) != 0)
    sl__log(t->model->context, SL_LOG_WARNING,
            "%s: was trained with %s, goes on with %s: results may differ in their last bits", path,
            manifest->numerics, numerics);
}

static enum sl_status read_manifest(struct sl_trainer *t, struct sl_loader *loader,
                                    const char *path, struct sl__safetensors **file,
                                    struct sl__resume_point *point) {
  enum sl_status status;
  struct sl__manifest manifest;
  SL__TRY(sl__safetensors_open(path, file));
  SL__TRY(sl__manifest_read(*file, &manifest));
  SL__TRY(sl__manifest_check(&manifest, t, loader, path));
  SL__TRY(sl__manifest_resume_point(&manifest, loader, *file, point));
  warn_of_math(t, path, &manifest);
  warn_of_numerics(t, path, &manifest);
  free(t->loaded_options);
  t->loaded_options = manifest.options ? sl__strdup(manifest.options) : NULL;
  if (manifest.options && !t->loaded_options) status = SL_NO_MEMORY;
out:
  return status;
}

const char *sl_trainer_loaded_options(const struct sl_trainer *trainer) {
  SL__NEEDS_OR(NULL, trainer);
  return trainer->loaded_options;
}

/* Rank 0 reads the file; all ranks get its contents, or its failure. */
static enum sl_status read_snapshot(struct sl_trainer *t, struct sl_loader *loader,
                                    const char *path, struct sl__resume_point *point,
                                    struct sl__snapshot *snapshot) {
  struct sl_context *context = t->model->context;
  struct sl__safetensors *file = NULL;
  enum sl_status status = SL_OK;
  if (!t->ranks.rank) status = read_manifest(t, loader, path, &file, point);
  SL__TRY(sl__trainer_share(t, status));
  if (t->ranks.size > 1) SL__TRY(sl_broadcast(context, point, sizeof *point));
  status = sl__snapshot_new(t, point->position.index, sl__whole_batch(loader), (int)point->workers,
                            snapshot);
  if (status == SL_OK && file) status = fill_snapshot(t->model, file, snapshot);
  SL__TRY(sl__trainer_share(t, status));
  status = sl__snapshot_share(t, snapshot);
out:
  sl__safetensors_close(file);
  return status;
}

/* The trainer is at the same place as before, but with another batch or number of workers that many
 * steps would have led elsewhere. */
static void move_to(struct sl_trainer *t, struct sl_loader *loader,
                    const struct sl_position *position) {
  struct sl_loader *before = t->shifted;
  int64_t place = position->epoch * sl_loader_length(loader) + position->index;
  t->step = position->step;
  t->schedule_shift = 0;
  t->place_shift = place - position->step;
  t->shifted = t->place_shift ? loader : NULL;
  if (t->shifted) sl__loader_hold(loader);
  sl__loader_release(before);
  sl__trainer_move_to(t, &(struct sl__data_position){
                             .loader = loader, .epoch = position->epoch, .index = position->index});
}

enum sl_status sl_trainer_load(struct sl_trainer *trainer, struct sl_loader *loader,
                               const char *path) {
  SL__NEEDS(trainer, loader, path);
  enum sl_status status;
  struct sl__snapshot snapshot = {0};
  struct sl__resume_point point = {0};
  const struct sl_position *position = &point.position;
  struct sl__plan *plan;
  SL__TRY(sl__trainer_drained(trainer));
  SL__TRY(sl__trainer_check_raw(trainer));
  SL__TRY(sl_trainer_save_wait(trainer, NULL)); /* the checkpoint may be the one to read */
  SL__TRY(sl__model_shards_synchronize(trainer->shards));
  SL__TRY(read_snapshot(trainer, loader, path, &point, &snapshot));
  status = sl__trainer_check_loader(trainer, loader);
  if (status == SL_OK) status = sl__carried_state_plan(trainer, &snapshot, &plan);
  if (status == SL_OK) /* the last check: from here on the trainer changes */
    status = sl_loader_seek_batch(loader, position->epoch, position->index);
  SL__TRY(sl__trainer_share(trainer, status));
  SL__TRY(sl__snapshot_to_trainer(trainer, plan, &snapshot));
  move_to(trainer, loader, position);
out:
  sl__snapshot_clear(&snapshot);
  return status;
}
