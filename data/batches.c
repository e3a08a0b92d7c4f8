/* The batches of a dataset.
 *
 * Part p of n takes every n-th sample of the common order, beginning at the p-th. So the k-th
 * batches of all parts together are the k-th batch of a single loader with n times the rows. All
 * parts have the same number of batches, or ranks would wait for each other; a part that has no
 * sample left gives a batch with valid = 0.
 *
 * A set in buckets is grouped by bucket in each epoch, and the rules above hold for each bucket
 * separately; then the batches of all buckets are shuffled. Any other set is one bucket. */
#include "data/batches.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/random.h"

/* Marks the stream that shuffles an epoch's batches; the samples have the epoch's own stream. */
#define BATCHES_OF (1ull << 55)
/* Marks the stream of an epoch's windows; shifts and mirroring have the epoch's own stream. */
#define WINDOWS_OF (1ull << 55)
/* Values that are read before they are cropped, if a sample has less. */
#define WHOLE_VALUES (1 << 18)

/* Draws the window of sample i in an epoch; one that is not random is in the middle. */
static void draw_window(const struct sl__batches *b, int64_t epoch, int64_t i,
                        struct sl__view *view) {
  const struct sl_loader_options *options = &b->options;
  const int64_t *dim = b->dataset->info.sample.dim;
  if (!b->whole) return;
  int64_t rows = dim[1] - b->shape.dim[1], columns = dim[2] - b->shape.dim[2];
  view->top = rows / 2;
  view->left = columns / 2;
  if (!options->crop_random) return;
  struct sl__random4 r = sl__philox(
      options->seed, sl__stream(SL__STREAM_AUGMENT, (uint64_t)epoch | WINDOWS_OF), (uint64_t)i);
  view->top = (int64_t)((r.v[0] * ((uint64_t)rows + 1)) >> 32);
  view->left = (int64_t)((r.v[1] * ((uint64_t)columns + 1)) >> 32);
}

/* Draws the shift and the mirroring of sample i in an epoch. */
static struct sl__view draw_view(const struct sl_loader_options *options, int64_t epoch,
                                 int64_t i) {
  struct sl__view view = {0};
  if (!options->shift && !options->flip) return view;
  struct sl__random4 r =
      sl__philox(options->seed, sl__stream(SL__STREAM_AUGMENT, (uint64_t)epoch), (uint64_t)i);
  uint64_t places = 2 * (uint64_t)options->shift + 1;
  view.dy = (int)((r.v[0] * places) >> 32) - options->shift;
  view.dx = (int)((r.v[1] * places) >> 32) - options->shift;
  view.mirror = options->flip && r.v[2] >> 31;
  return view;
}

/* The place of a batch in its bucket. */
struct place {
  int64_t first, count; /* the bucket's samples in the order of all parts */
  int64_t index;        /* number of the batch in its bucket */
  int64_t steps;        /* length of a sample of tokens; 0 for images */
};

/* Number of batches that every part makes of `samples`: the number that the first part, the
 * largest, needs. */
static int64_t batches_of(const struct sl_loader_options *options, int64_t samples) {
  int64_t most = (samples + options->num_parts - 1) / options->num_parts;
  return (most + options->batch - 1) / options->batch;
}

static struct place place_of(const struct sl__batches *b, int64_t index) {
  const struct sl_dataset_info *info = &b->dataset->info;
  struct place place = {.count = info->count,
                        .index = b->batch_order ? b->batch_order[index] : index,
                        .steps = info->tokens ? info->sample.dim[0] : 0};
  for (int k = 0; k < info->bucket_count; k++) {
    int64_t batches = batches_of(&b->options, info->bucket_samples[k]);
    place.count = info->bucket_samples[k];
    place.steps = info->buckets[k];
    if (place.index < batches) break;
    place.index -= batches;
    place.first += place.count;
  }
  return place;
}

/* The sample at a position of the part's order of a bucket; the bucket's first sample if the part
 * has none there. */
static int64_t sample_at(const struct sl__batches *b, const struct place *place, int64_t position) {
  int64_t i = position * b->options.num_parts + b->options.part_index;
  if (b->options.contiguous) { /* row r of all parts' rows reads its own run of samples */
    int64_t row = position % b->options.batch, index = position / b->options.batch;
    int64_t run = b->options.part_index * b->options.batch + row;
    return run * b->length + index;
  }
  i = i < place->count ? place->first + i : place->first;
  return b->order ? b->order[i] : i;
}

/* Number of the samples that belong to this part. */
static int64_t part_count(const struct sl__batches *b, int64_t samples) {
  int64_t parts = b->options.num_parts;
  return (samples - b->options.part_index + parts - 1) / parts;
}

/* Number of the part's samples from the batch's first one on. */
static int64_t samples_left(const struct sl__batches *b, const struct place *place) {
  if (b->options.contiguous) return b->options.batch; /* every batch is full */
  return part_count(b, place->count) - place->index * b->options.batch;
}

/* Marks a row as one that counts nowhere. */
static void ignore_row(const struct sl_dataset *set, const struct sl__rows *to, int64_t row) {
  for (size_t k = 0; k < set->label_count; k++)
    to->labels[(size_t)row * set->label_count + k] = SL_IGNORE;
  for (size_t k = 0; k < set->target_size; k++)
    to->targets[(size_t)row * set->target_size + k] = NAN;
}

/* Number of labels, or of target values, that count in the first rows. */
static int64_t count_valid(const struct sl_dataset *set, const struct sl__rows *to, int64_t rows) {
  int64_t count = 0;
  for (size_t k = 0; k < (size_t)rows * set->label_count; k++) count += to->labels[k] != SL_IGNORE;
  for (size_t k = 0; k < (size_t)rows * set->target_size; k++) count += !isnan(to->targets[k]);
  return count;
}

/* Reads the rows' samples, or some at a time if they are to be cropped. */
static enum sl_status read_rows(struct sl__batches *b, int64_t epoch, int64_t rows,
                                const struct sl__rows *to) {
  const struct sl_dataset *set = b->dataset;
  if (!b->whole) return set->kind->fill(set, rows, b->samples, to);
  for (int64_t first = 0; first < rows; first += b->whole_rows) {
    int64_t count = rows - first < b->whole_rows ? rows - first : b->whole_rows;
    size_t place = (size_t)first;
    const struct sl__rows some = {b->whole, to->labels ? to->labels + place : NULL,
                                  to->targets ? to->targets + place * set->target_size : NULL};
    enum sl_status status = set->kind->fill(set, count, b->samples + first, &some);
    if (status != SL_OK) return status;
    for (int64_t row = first; row < first + count; row++) {
      struct sl__view view = {0};
      draw_window(b, epoch, b->samples[row], &view);
      sl__crop(&set->info.sample, &view, &b->shape,
               b->whole + (size_t)(row - first) * set->sample_size,
               to->x + (size_t)row * b->row_size);
    }
  }
  return SL_OK;
}

static enum sl_status change_colours(struct sl__batches *b, int64_t epoch, int64_t rows, float *x) {
  const struct sl_dataset_info *info = &b->dataset->info;
  if (!sl__colour_wanted(&b->options)) return SL_OK;
  for (int64_t row = 0; row < rows; row++, x += b->row_size) {
    const struct sl__colour colour = sl__colour_draw(&b->options, epoch, b->samples[row]);
    float bad;
    if (!sl__colour_change(info, &b->shape, &colour, x, &bad))
      return sl__fail(SL_BAD_ARGUMENT,
                      "%s: sample %lld: has the value %g; colours can change where values are "
                      "from 0 to 1 before they are normalised",
                      info->name, (long long)b->samples[row], (double)bad);
  }
  return SL_OK;
}

static void augment_rows(struct sl__batches *b, int64_t epoch, int64_t rows, float *x) {
  for (int64_t row = 0; row < rows && b->plane; row++) {
    const struct sl__view view = draw_view(&b->options, epoch, b->samples[row]);
    sl__augment(&b->dataset->info, &b->shape, &view, b->plane, x + (size_t)row * b->row_size);
  }
}

/* Rows after the last sample repeat the batch's first ones. A batch without samples shows the first
 * sample of the epoch, or of the bucket. */
static enum sl_status fill_rows(struct sl__batches *b, const struct place *place, int64_t samples,
                                const struct sl__rows *to, struct sl_batch *batch) {
  const struct sl_dataset *set = b->dataset;
  int64_t distinct = samples ? samples : 1, first = samples ? place->index * batch->batch : 0;
  for (int64_t row = 0; row < distinct; row++) b->samples[row] = sample_at(b, place, first + row);
  enum sl_status status = read_rows(b, batch->epoch, distinct, to);
  if (status == SL_OK) status = change_colours(b, batch->epoch, distinct, to->x);
  if (status != SL_OK) return status;
  augment_rows(b, batch->epoch, distinct, to->x);
  batch->valid = count_valid(set, to, samples);
  for (int64_t row = distinct; row < batch->batch; row++)
    memcpy(to->x + (size_t)row * b->row_size, to->x + (size_t)(row - distinct) * b->row_size,
           b->row_size * sizeof *to->x);
  for (int64_t row = samples; row < batch->batch; row++) ignore_row(set, to, row);
  return SL_OK;
}

/* Number of labels, or of target values, in this batch of all parts together: their samples are
 * consecutive in the common order. */
static int64_t count_all(const struct sl__batches *b, const struct place *place) {
  const struct sl_loader_options *options = &b->options;
  const struct sl_dataset *set = b->dataset;
  int64_t rows = options->batch * options->num_parts, first = place->index * rows, count = 0;
  int64_t each = (int64_t)(set->label_count + set->target_size);
  if (options->contiguous) return rows * each;
  int64_t end = first + rows < place->count ? first + rows : place->count;
  if (!set->kind->labels) return end > first ? (end - first) * each : 0;
  for (int64_t i = first; i < end; i++) {
    int64_t at = place->first + i;
    count += set->kind->labels(set, b->order ? b->order[at] : at);
  }
  return count;
}

/* Groups samples by bucket; within a bucket they keep the drawn order. */
static void group_by_bucket(const struct sl_dataset *set, const uint32_t *drawn, uint32_t *order) {
  int64_t next[SL_MAX_BUCKETS] = {0};
  for (int k = 1; k < set->info.bucket_count; k++)
    next[k] = next[k - 1] + set->info.bucket_samples[k - 1];
  for (int64_t k = 0; k < set->info.count; k++)
    order[next[set->kind->bucket(set, drawn[k])]++] = drawn[k];
}

static void draw_orders(struct sl__batches *b, int64_t epoch) {
  const struct sl_loader_options *options = &b->options;
  uint32_t count = (uint32_t)b->dataset->info.count;
  uint32_t *drawn = b->drawn ? b->drawn : b->order;
  if (!options->shuffle) epoch = 0; /* without shuffling all epochs are alike */
  if (!b->order || b->order_epoch == epoch) return;
  if (options->shuffle)
    sl__permutation(options->seed, sl__stream(SL__STREAM_SHUFFLE, (uint64_t)epoch), drawn, count);
  else
    for (uint32_t i = 0; i < count; i++) drawn[i] = i;
  if (b->drawn) group_by_bucket(b->dataset, drawn, b->order);
  if (b->batch_order)
    sl__permutation(options->seed, sl__stream(SL__STREAM_SHUFFLE, (uint64_t)epoch | BATCHES_OF),
                    b->batch_order, (uint32_t)b->length);
  b->order_epoch = epoch;
}

/* Announces a batch's samples, if it is of this epoch: the next one's order is not drawn yet. A
 * file that is read from its begin to its end is read ahead by the system, in larger pieces. */
static void expect(struct sl__batches *b, int64_t epoch, int64_t number) {
  int64_t rows = b->options.batch, index = number % b->length, count = 0;
  bool scattered = b->options.shuffle || b->options.num_parts > 1;
  if (!b->dataset->kind->expect || !scattered || number / b->length != epoch) return;
  struct place place = place_of(b, index);
  for (int64_t left = samples_left(b, &place); count < rows && count < left; count++)
    b->samples[count] = sample_at(b, &place, place.index * rows + count);
  b->dataset->kind->expect(b->dataset, count, b->samples);
  b->expected = number;
}

enum sl_status sl__batches_fill(struct sl__batches *b, int64_t number, const struct sl__rows *to,
                                struct sl_batch *batch) {
  int64_t rows = b->options.batch, epoch = number / b->length, index = number % b->length;
  draw_orders(b, epoch);
  /* with several readers another one may have announced it, too */
  if (b->expected != number) expect(b, epoch, number);
  expect(b, epoch, number + b->options.readers); /* it is read while this one is filled */
  struct place place = place_of(b, index);
  int64_t left = samples_left(b, &place);
  int64_t samples = left < 0 ? 0 : left < rows ? left : rows;
  bool tokens = b->dataset->info.tokens;
  *batch = (struct sl_batch){.x = tokens ? NULL : to->x,
                             .tokens = tokens ? (const int32_t *)(void *)to->x : NULL,
                             .labels = to->labels,
                             .targets = to->targets,
                             .batch = rows,
                             .steps = place.steps,
                             .epoch = epoch,
                             .index = index,
                             .last = index == b->length - 1};
  enum sl_status status = fill_rows(b, &place, samples, to, batch);
  /* labels that do not count are known of this part's samples only */
  batch->valid_all = b->options.num_parts == 1 ? batch->valid : count_all(b, &place);
  return status;
}

int64_t sl__batches_length(const struct sl__batches *b) {
  const struct sl_dataset_info *info = &b->dataset->info;
  const struct sl_loader_options *options = &b->options;
  int64_t length = 0;
  if (options->contiguous) return info->count / (options->num_parts * options->batch);
  if (!info->bucket_count) return batches_of(options, info->count);
  for (int k = 0; k < info->bucket_count; k++)
    length += batches_of(options, info->bucket_samples[k]);
  return length;
}

static enum sl_status alloc_orders(struct sl__batches *b) {
  size_t count = (size_t)b->dataset->info.count;
  bool shuffle = b->options.shuffle, buckets = b->dataset->info.bucket_count > 0;
  if (!shuffle && !buckets) return SL_OK;
  b->order = sl__alloc(count, sizeof *b->order, "an order");
  if (!b->order) return SL_NO_MEMORY;
  if (!buckets) return SL_OK;
  b->drawn = sl__alloc(count, sizeof *b->drawn, "an order");
  if (!b->drawn) return SL_NO_MEMORY;
  if (!shuffle) return SL_OK;
  count = (size_t)b->length;
  b->batch_order = sl__alloc(count, sizeof *b->batch_order, "an order of batches");
  return b->batch_order ? SL_OK : SL_NO_MEMORY;
}

struct sl_shape sl__batches_shape(const struct sl_dataset_info *info,
                                  const struct sl_loader_options *options) {
  if (!options->crop_h) return info->sample;
  return SL_SHAPE(info->sample.dim[0], options->crop_h, options->crop_w);
}

/* Scratch memory of the augmentation. */
static enum sl_status alloc_scratch(struct sl__batches *b) {
  const struct sl_loader_options *options = &b->options;
  if (options->shift || options->flip) {
    const int64_t *dim = b->shape.dim;
    b->plane = sl__alloc((size_t)(dim[1] * dim[2]), sizeof *b->plane, "an augmented image");
    if (!b->plane) return SL_NO_MEMORY;
  }
  if (!options->crop_h) return SL_OK;
  b->whole_rows = WHOLE_VALUES / (int64_t)b->dataset->sample_size;
  if (b->whole_rows < 1) b->whole_rows = 1;
  if (b->whole_rows > options->batch) b->whole_rows = options->batch;
  b->whole = sl__alloc((size_t)b->whole_rows * b->dataset->sample_size, sizeof *b->whole,
                       "whole pictures");
  return b->whole ? SL_OK : SL_NO_MEMORY;
}

enum sl_status sl__batches_begin(struct sl__batches *b) {
  const struct sl_loader_options *options = &b->options;
  b->order_epoch = b->expected = -1;
  b->length = sl__batches_length(b);
  b->shape = sl__batches_shape(&b->dataset->info, options);
  b->row_size = (size_t)sl_shape_count(&b->shape);
  b->samples = sl__alloc((size_t)options->batch, sizeof *b->samples, "the samples of a batch");
  if (!b->samples) return SL_NO_MEMORY;
  enum sl_status status = alloc_scratch(b);
  return status == SL_OK ? alloc_orders(b) : status;
}

void sl__batches_end(struct sl__batches *b) {
  free(b->order);
  free(b->drawn);
  free(b->batch_order);
  free(b->samples);
  free(b->plane);
  free(b->whole);
}
