/* Weights of classes by how often they occur. */
#include <stdlib.h>

#include "core/base/error.h"
#include "data/dataset.h"

struct counting {
  const struct sl_dataset *set;
  int64_t chunk, *samples; /* that are read at once */
  struct sl__rows rows;
  int64_t *counts; /* [classes] */
};

static enum sl_status begin(struct counting *c) {
  const struct sl_dataset *set = c->set;
  size_t chunk = ((size_t)1 << 20) / set->sample_size + 1;
  if (chunk > (size_t)set->info.count) chunk = (size_t)set->info.count;
  c->chunk = (int64_t)chunk;
  c->samples = sl__alloc(chunk, sizeof *c->samples, "class weights");
  c->rows.labels = sl__alloc(chunk * set->label_count, sizeof *c->rows.labels, "class weights");
  c->counts = sl__alloc((size_t)set->info.classes, sizeof *c->counts, "class weights");
  if (!set->kind->fill_labels) /* they come with the inputs alone */
    c->rows.x = sl__alloc(chunk * set->sample_size, sizeof *c->rows.x, "class weights");
  bool all = c->samples && c->rows.labels && c->counts && (c->rows.x || set->kind->fill_labels);
  return all ? SL_OK : SL_NO_MEMORY;
}

static void end(struct counting *c) {
  free(c->samples);
  free(c->rows.labels);
  free(c->rows.x);
  free(c->counts);
}

/* Counts the labels that count; *all: their number. */
static enum sl_status count_labels(struct counting *c, int64_t *all) {
  const struct sl_dataset *set = c->set;
  for (int64_t first = 0; first < set->info.count; first += c->chunk) {
    int64_t left = set->info.count - first, rows = left < c->chunk ? left : c->chunk;
    for (int64_t row = 0; row < rows; row++) c->samples[row] = first + row;
    enum sl_status status = set->kind->fill_labels
                                ? set->kind->fill_labels(set, rows, c->samples, c->rows.labels)
                                : set->kind->fill(set, rows, c->samples, &c->rows);
    if (status != SL_OK) return status;
    for (size_t i = 0; i < (size_t)rows * set->label_count; i++) {
      if (c->rows.labels[i] == SL_IGNORE) continue;
      c->counts[c->rows.labels[i]]++;
      ++*all;
    }
  }
  return SL_OK;
}

enum sl_status sl_class_weights(const struct sl_dataset *dataset, float *weights) {
  SL__NEEDS(dataset, weights);
  struct counting counting = {.set = dataset};
  const struct sl_dataset_info *info = &dataset->info;
  int64_t all = 0, occurring = 0;
  enum sl_status status;
  if (dataset->target_size)
    return sl__fail(SL_BAD_ARGUMENT, "%s: has targets; only classes have weights", info->name);
  SL__TRY(begin(&counting));
  SL__TRY(count_labels(&counting, &all));
  for (int k = 0; k < info->classes; k++) occurring += counting.counts[k] > 0;
  for (int k = 0; k < info->classes; k++) {
    double count = (double)counting.counts[k];
    weights[k] = count > 0 ? (float)((double)all / ((double)occurring * count)) : 0;
  }
out:
  end(&counting);
  return status;
}
