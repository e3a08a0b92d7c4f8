/* Datasets of the program's own: a function fills the rows of each batch. */
#include <limits.h>
#include <math.h>
#include <stdio.h>

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

/* "sample 77"; of a batch in which the function did not say which failed, "a batch of 16 samples
 * (16, 3, 77, ...)". */
static void tell_samples(const struct sl_fill *task, char text[160]) {
  const int64_t *s = task->samples;
  if (task->count == 1 || (task->failed >= 0 && task->failed < task->count))
    snprintf(text, 160, "sample %lld", (long long)s[task->count == 1 ? 0 : task->failed]);
  else if (task->count == 2)
    snprintf(text, 160, "samples %lld and %lld", (long long)s[0], (long long)s[1]);
  else
    snprintf(text, 160, "a batch of %lld samples (%lld, %lld, %lld%s)", (long long)task->count,
             (long long)s[0], (long long)s[1], (long long)s[2], task->count > 3 ? ", ..." : "");
}

/* What the program's function says, and no more than that. A number that is no status is a failure,
 * too. */
static enum sl_status fail_as_told(const struct sl_dataset *set, struct sl_fill *task,
                                   enum sl_status status) {
  char samples[160], name[32];
  enum sl_status known = sl__known_status(status);
  tell_samples(task, samples);
  task->message[sizeof task->message - 1] = 0;
  if (*task->message) return sl__fail(known, "%s: %s: %s", set->info.name, samples, task->message);
  snprintf(name, sizeof name, "%d", (int)status);
  if (known == status) snprintf(name, sizeof name, "%s", sl_status_name(status));
  return sl__fail(known,
                  "%s: %s: its function fill failed with status %s, and without a message; let it "
                  "set `failed` and `message`",
                  set->info.name, samples, name);
}

static enum sl_status fill(const struct sl_dataset *dataset, int64_t count, const int64_t *samples,
                           const struct sl__rows *rows) {
  const struct custom_set *set = (const struct custom_set *)dataset;
  struct sl_fill task = {.failed = -1,
                         .user = set->user,
                         .count = count,
                         .samples = samples,
                         .x = rows->x,
                         .targets = rows->targets,
                         .labels = rows->labels};
  spoil(dataset, count, rows);
  enum sl_status status = set->fill(&task);
  if (status != SL_OK) return fail_as_told(dataset, &task, status);
  status = sl__check_rows(dataset, count, samples, rows);
  return status == SL_OK ? sl__normalise_checked(dataset, count, samples, rows) : status;
}

static void free_custom(struct sl_dataset *dataset) {
  struct custom_set *set = (struct custom_set *)dataset;
  if (set->release) set->release(set->user);
}

static const struct sl__dataset_kind custom_kind = {
    .fill = fill, .one_reader = true, .free = free_custom};

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
