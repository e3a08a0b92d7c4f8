/* Datasets of the program's own: a function fills the rows of each batch. */
#include <limits.h>
#include <math.h>

#include "core/base/error.h"
#include "data/floats.h"

struct custom_set {
  struct sl_dataset set;
  enum sl_status (*fill)(struct sl_fill *rows);
  void (*release)(void *user);
  void *user;
};

/* Values that no function may leave: so a value that it did not write is found. */
static void spoil(const struct sl_dataset *set, int64_t count, const struct sl__rows *rows) {
  for (size_t i = 0; i < (size_t)count * set->sample_size; i++) rows->x[i] = NAN;
  for (size_t i = 0; i < (size_t)count * set->target_size; i++) rows->targets[i] = INFINITY;
  for (size_t i = 0; i < (size_t)count * set->label_count; i++) rows->labels[i] = INT_MIN;
}

static enum sl_status fill(const struct sl_dataset *dataset, int64_t count, const int64_t *samples,
                           const struct sl__rows *rows) {
  const struct custom_set *set = (const struct custom_set *)dataset;
  struct sl_fill task = {.user = set->user,
                         .count = count,
                         .samples = samples,
                         .x = rows->x,
                         .targets = rows->targets,
                         .labels = rows->labels};
  spoil(dataset, count, rows);
  enum sl_status status = set->fill(&task);
  if (status != SL_OK) {
    if (task.failed < 0 || task.failed >= count) task.failed = 0;
    task.message[sizeof task.message - 1] = 0;
    return sl__fail(status, "%s: sample %lld: %s", dataset->info.name,
                    (long long)samples[task.failed],
                    *task.message ? task.message : sl_status_name(status));
  }
  status = sl__check_rows(dataset, count, samples, rows);
  if (status == SL_OK) sl__normalise_rows(&dataset->info, count, rows);
  return status;
}

static void free_custom(struct sl_dataset *dataset) {
  struct custom_set *set = (struct custom_set *)dataset;
  if (set->release) set->release(set->user);
}

static const struct sl__dataset_kind custom_kind = {.fill = fill, .free = free_custom};

enum sl_status sl_dataset_custom(const struct sl_dataset_options *options,
                                 enum sl_status (*fill_rows)(struct sl_fill *rows),
                                 struct sl_dataset **dataset) {
  SL__NEEDS(options, dataset);
  if (!fill_rows)
    return sl__fail(SL_BAD_ARGUMENT,
                    "sl_dataset_custom: fill is NULL; give the function that fills rows");
  struct sl_dataset *set;
  enum sl_status status =
      sl__float_set_begin(&custom_kind, sizeof(struct custom_set), options, &set);
  if (status != SL_OK) return status;
  struct custom_set *custom = (struct custom_set *)set;
  custom->fill = fill_rows;
  custom->release = options->release;
  custom->user = options->user;
  *dataset = set;
  return SL_OK;
}
