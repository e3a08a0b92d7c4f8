/* What metrics need of an evaluation's outputs (metrics.h): collected batch by batch, and over
 * ranks gathered on rank 0. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "core/net/net.h"
#include "parallel/train/metrics.h"

enum { MOST_PAIRED = 1024 }; /* classes of a confusion matrix */

/* ---- memory ---- */

static enum sl_status rows_new(struct sl__predictions *p, int64_t rows) {
  size_t count = (size_t)rows, width = (size_t)p->width, targets = (size_t)p->target_width;
  p->most_rows = rows;
  if (!p->has_labels) {
    p->outputs = sl__alloc(count * width, sizeof(float), "an evaluation's outputs");
    p->targets = sl__alloc(count * targets, sizeof(float), "an evaluation's targets");
    if (!p->outputs || !p->targets) return SL_NO_MEMORY;
  }
  if (p->has_labels && width != 2) return SL_OK;
  p->scored = sl__alloc(count, sizeof *p->scored, "an evaluation's scores");
  return p->scored ? SL_OK : SL_NO_MEMORY;
}

static enum sl_status pairs_new(struct sl__predictions *p) {
  if (!p->has_labels || p->width > MOST_PAIRED) return SL_OK;
  p->pairs = sl__alloc((size_t)(p->width * p->width), sizeof *p->pairs, "a confusion matrix");
  return p->pairs ? SL_OK : SL_NO_MEMORY;
}

static void rows_free(struct sl__predictions *p) {
  free(p->outputs);
  free(p->targets);
  free(p->scored);
}

int64_t sl__outputs_of_row(const struct sl_dataset_info *info, const struct sl_shape *output) {
  return info->tokens ? output->dim[output->ndim - 1] : sl_shape_count(output);
}

enum sl_status sl__predictions_begin(const struct sl_dataset_info *info, int64_t batch,
                                     const struct sl_shape *output, struct sl__predictions *p) {
  int64_t all = sl_shape_count(output), positions = info->tokens ? info->sample.dim[0] : 1;
  *p = (struct sl__predictions){
      .info = info, .has_labels = !info->target.ndim, .width = sl__outputs_of_row(info, output)};
  p->target_width = p->has_labels ? 0 : sl_shape_count(&info->target);
  enum sl_status status = rows_new(p, info->count * positions);
  if (status == SL_OK) status = pairs_new(p);
  p->slice = sl__alloc((size_t)(batch * all), sizeof(float), "an evaluation's outputs");
  if (status == SL_OK && p->slice) return SL_OK;
  sl__predictions_end(p);
  return SL_NO_MEMORY;
}

void sl__predictions_end(struct sl__predictions *p) {
  rows_free(p);
  free(p->pairs);
  free(p->slice);
  *p = (struct sl__predictions){0};
}

/* ---- a batch ---- */

/* Reads a slice's outputs as floats. */
static enum sl_status read_outputs(struct sl__tensor *y, float *values) {
  int64_t count = sl_shape_count(&y->shape);
  enum sl_status status = sl__tensor_read(y, values);
  if (y->type != SL_BF16) return status;
  uint16_t *codes = (uint16_t *)(void *)values; /* from the end: each value needs twice its code */
  for (int64_t i = count - 1; i >= 0; i--) values[i] = sl__bf16_value(codes[i]);
  return status;
}

/* Classes with a larger output than the label's; of equal ones the first is larger. */
static int64_t classes_before(const float *y, int64_t classes, int32_t label) {
  int64_t before = 0;
  for (int64_t c = 0; c < classes; c++)
    before += y[c] > y[label] || (y[c] == y[label] && c < label);
  return before;
}

/* A label that is no class fails the step itself. */
static void append_label(struct sl__predictions *p, const float *y, int32_t label) {
  if (label < 0 || label >= p->width || p->rows == p->most_rows) return;
  int64_t before = classes_before(y, p->width, label), answer = 0;
  for (int64_t k = before; k < SL__TOP_MOST; k++) p->within[k]++;
  for (int64_t c = 1; p->pairs && c < p->width; c++)
    if (y[c] > y[answer]) answer = c;
  if (p->pairs) p->pairs[label * p->width + answer]++;
  if (p->scored) p->scored[p->rows] = (struct sl__scored){y[1] - y[0], label == 1};
  p->rows++;
}

static void append_target(struct sl__predictions *p, const float *y, const float *target) {
  int64_t width = p->width, targets = p->target_width;
  bool counts = false;
  for (int64_t i = 0; i < targets; i++) counts |= !isnan(target[i]);
  if (!counts || p->rows == p->most_rows) return;
  memcpy(p->outputs + p->rows * width, y, (size_t)width * sizeof *y);
  memcpy(p->targets + p->rows * targets, target, (size_t)targets * sizeof *target);
  p->rows++;
}

/* Outputs y [rows, positions, width] of a batch's rows from `row` on, from step `first` on. */
static void append_slice(struct sl__predictions *p, const struct sl_batch *batch, int64_t row,
                         int64_t rows, int64_t first, int64_t positions) {
  int64_t stride = p->info->tokens ? p->info->sample.dim[0] : 1;
  const float *y = p->slice;
  for (int64_t n = row; n < row + rows; n++)
    for (int64_t t = 0; t < positions; t++, y += p->width)
      if (p->has_labels)
        append_label(p, y, batch->labels[n * stride + first + t]);
      else
        append_target(p, y, batch->targets + n * p->target_width);
}

enum sl_status sl__predictions_append(struct sl__predictions *p, const struct sl__plan *plan,
                                      const struct sl_batch *batch) {
  enum sl_status status = SL_OK;
  int last = plan->model->count - 1;
  if (!sl__grid_is_here(plan->grid, last)) return SL_OK;
  for (int i = 0; i < plan->count * plan->chunks && status == SL_OK; i++) {
    const struct sl__slice *slice = &plan->slices[i / plan->chunks];
    int chunk = i % plan->chunks;
    struct sl__tensor *y = slice->y[chunk * plan->model->count + last];
    int64_t first = 0, steps, count = sl_shape_count(&y->shape);
    if (plan->chunks > 1) sl__chunk_steps(plan, chunk, &first, &steps);
    status = read_outputs(y, p->slice);
    sl__tensor_invalidate(y);
    if (status == SL_OK)
      append_slice(p, batch, slice->first_row, slice->rows, first,
                   count / (slice->rows * p->width));
  }
  return status;
}

/* ---- a part of a loss ---- */

int64_t sl__part_width(const struct sl__loss_part *part) {
  return sl_shape_count(&part->field.shape) / (sl__loss_takes_labels(&part->loss) ? part->rows : 1);
}

enum sl_status sl__predictions_select(const struct sl__predictions *all,
                                      const struct sl__loss_part *part, struct sl__predictions *p) {
  bool labels = sl__loss_takes_labels(&part->loss);
  int64_t each = labels ? part->rows : 1, width = sl__part_width(part);
  *p = (struct sl__predictions){.info = all->info,
                                .has_labels = labels,
                                .width = width,
                                .target_width = labels ? 0 : width,
                                .first_target = part->target_first};
  enum sl_status status = rows_new(p, all->rows * each);
  if (status == SL_OK) status = pairs_new(p);
  for (int64_t i = 0; i < all->rows * each && status == SL_OK; i++) {
    int64_t row = i / each, at = i % each;
    const float *y = all->outputs + row * all->width + part->field.first + at * width;
    const float *t = all->targets + row * all->target_width + part->target_first + at;
    if (!labels)
      append_target(p, y, t);
    else if (!isnan(*t))
      append_label(p, y, (int32_t)*t);
  }
  return status;
}

/* ---- ranks ---- */

/* Rank 0 gets an array of the other ranks' rows behind its own. */
static enum sl_status gather_rows(struct sl__net *net, const int64_t *rows, size_t row_bytes,
                                  void *memory) {
  int rank = sl__net_rank(net), size = sl__net_size(net);
  char *at = memory;
  enum sl_status status = SL_OK;
  if (rank)
    return rows[rank] ? sl__net_send(net, 0, memory, (size_t)rows[rank] * row_bytes) : SL_OK;
  for (int r = 1; r < size && status == SL_OK; r++) {
    at += (size_t)rows[r - 1] * row_bytes;
    if (rows[r]) status = sl__net_receive(net, r, at, (size_t)rows[r] * row_bytes);
  }
  return status;
}

/* rows[] of all ranks, and on rank 0 the sums of the counts. */
static enum sl_status gather_counts(struct sl__net *net, struct sl__predictions *p, int64_t *rows) {
  int size = sl__net_size(net);
  enum { COUNTS = 1 + SL__TOP_MOST };
  int64_t mine[COUNTS] = {p->rows};
  memcpy(mine + 1, p->within, sizeof p->within);
  int64_t *all = sl__alloc((size_t)size, sizeof mine, "an evaluation over ranks");
  enum sl_status status = sl__net_sync_status(net, all ? SL_OK : SL_NO_MEMORY, sl_error());
  SL__TRY(status);
  SL__TRY(sl__net_gather(net, mine, sizeof mine, all));
  for (int r = 0; r < size && !sl__net_rank(net); r++) {
    rows[r] = all[COUNTS * r];
    for (int k = 0; k < SL__TOP_MOST && r; k++) p->within[k] += all[COUNTS * r + 1 + k];
    if (rows[r] < 0 || rows[r] > p->most_rows)
      status = sl__fail(SL_LOST, "rank %d has %lld rows of an evaluation of %lld", r,
                        (long long)rows[r], (long long)p->most_rows);
  }
  SL__TRY(sl__net_sync_status(net, status, sl_error()));
  status = sl__net_broadcast(net, rows, (size_t)size * sizeof *rows);
out:
  free(all);
  return status;
}

/* One matrix after the other, so that rank 0 needs one more at most: `other`. */
static enum sl_status gather_pairs(struct sl__net *net, struct sl__predictions *p, int64_t *other) {
  size_t count = (size_t)(p->width * p->width);
  int rank = sl__net_rank(net);
  if (!p->pairs) return SL_OK;
  if (rank) return sl__net_send(net, 0, p->pairs, count * sizeof *p->pairs);
  enum sl_status status = SL_OK;
  for (int r = 1; r < sl__net_size(net); r++) {
    SL__TRY(sl__net_receive(net, r, other, count * sizeof *other));
    for (size_t i = 0; i < count; i++) p->pairs[i] += other[i];
  }
out:
  return status;
}

/* Rank 0 makes room for all rows. */
static enum sl_status grow(struct sl__predictions *p, int64_t rows) {
  struct sl__predictions more = *p;
  size_t values = (size_t)(p->rows * p->width), targets = (size_t)(p->rows * p->target_width);
  more.outputs = more.targets = NULL;
  more.scored = NULL;
  enum sl_status status = rows_new(&more, rows);
  if (status != SL_OK) {
    rows_free(&more);
    return status;
  }
  if (p->outputs) memcpy(more.outputs, p->outputs, values * sizeof *p->outputs);
  if (p->targets) memcpy(more.targets, p->targets, targets * sizeof *p->targets);
  if (p->scored) memcpy(more.scored, p->scored, (size_t)p->rows * sizeof *p->scored);
  rows_free(p);
  *p = more;
  return SL_OK;
}

enum sl_status sl__predictions_gather(struct sl_context *context, struct sl__predictions *p) {
  struct sl__net *net = context->net;
  size_t row = (size_t)p->width * sizeof(float), targets = (size_t)p->target_width * sizeof(float);
  int64_t total = 0, *other = NULL;
  int64_t *rows = sl__alloc((size_t)sl__net_size(net), sizeof *rows, "an evaluation over ranks");
  enum sl_status status = sl__net_sync_status(net, rows ? SL_OK : SL_NO_MEMORY, sl_error());
  SL__TRY(status);
  SL__TRY(gather_counts(net, p, rows));
  for (int r = 0; r < sl__net_size(net); r++) total += rows[r];
  if (!sl__net_rank(net) && total > p->most_rows) status = grow(p, total);
  if (status == SL_OK && !sl__net_rank(net) && p->pairs) {
    other = sl__alloc((size_t)(p->width * p->width), sizeof *other, "a confusion matrix");
    if (!other) status = SL_NO_MEMORY;
  }
  SL__TRY(sl__net_sync_status(net, status, sl_error()));
  SL__TRY(gather_pairs(net, p, other));
  if (p->outputs) SL__TRY(gather_rows(net, rows, row, p->outputs));
  if (p->targets) SL__TRY(gather_rows(net, rows, targets, p->targets));
  if (p->has_labels && p->scored) SL__TRY(gather_rows(net, rows, sizeof *p->scored, p->scored));
  if (!sl__net_rank(net)) p->rows = total;
out:
  free(other);
  free(rows);
  return status;
}
