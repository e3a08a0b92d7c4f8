/* Loaders: a thread fills slots ahead of the training.
 *
 * A slot is free, being filled, ready or out. The thread takes free slots in any order and fills
 * them with the next batch; ready slots are handed out in the batches' order. Values depend on
 * (seed, epoch, sample) only: neither the number of slots nor timing changes them.
 *
 * Part p of n takes every n-th sample of the common order, beginning at the p-th. So the k-th
 * batches of all parts together are the k-th batch of a single loader with n times the rows. All
 * parts have the same number of batches, or ranks would wait for each other; a part that has no
 * sample left gives a batch with valid = 0.
 *
 * A set in buckets is grouped by bucket in each epoch, and the rules above hold for each bucket
 * separately; then the batches of all buckets are shuffled. Any other set is one bucket. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/random.h"
#include "data/dataset.h"

#define PAGE 4096
#define MAX_SLOTS 1024
/* Marks the stream that shuffles an epoch's batches; the samples have the epoch's own stream. */
#define BATCHES_OF (1ull << 55)

enum slot_state { FREE, FILLING, READY, OUT };

struct slot {
  float *x;
  int32_t *labels;
  enum slot_state state;
  struct sl_batch batch;
};

struct sl_loader {
  const struct sl_dataset *dataset;
  struct sl_loader_options options;
  int64_t length; /* batches in an epoch */
  struct slot *slots;
  void *memory; /* memory of all slots, not yet aligned */
  /* Orders of the thread's epoch; NULL if the set's own order serves. */
  uint32_t *order;       /* samples, bucket by bucket */
  uint32_t *drawn;       /* shuffled samples, before they are grouped by bucket */
  uint32_t *batch_order; /* batches of all buckets */
  int64_t order_epoch;   /* -1: none yet */

  pthread_t thread;
  bool thread_runs;
  pthread_mutex_t lock; /* guards the members below and the slots' states */
  pthread_cond_t freed, filled;
  bool stop;
  int64_t next;   /* number of the batch to be filled, counted over all epochs */
  int64_t handed; /* number of the batch to be handed out */
  uint64_t seeks; /* number of seeks: a batch that was begun before a seek is discarded */
};

/* ---- filling, without the lock ---- */

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

static struct place place_of(const struct sl_loader *loader, int64_t index) {
  const struct sl_dataset_info *info = &loader->dataset->info;
  struct place place = {.count = info->count,
                        .index = loader->batch_order ? loader->batch_order[index] : index,
                        .steps = info->tokens ? info->sample.dim[0] : 0};
  for (int b = 0; b < info->bucket_count; b++) {
    int64_t batches = batches_of(&loader->options, info->bucket_samples[b]);
    place.count = info->bucket_samples[b];
    place.steps = info->buckets[b];
    if (place.index < batches) break;
    place.index -= batches;
    place.first += place.count;
  }
  return place;
}

/* The sample at a position of the part's order of a bucket; the bucket's first sample if the part
 * has none there. */
static int64_t sample_at(const struct sl_loader *loader, const struct place *place,
                         int64_t position) {
  int64_t i = position * loader->options.num_parts + loader->options.part_index;
  if (loader->options.contiguous) { /* row r of all parts' rows reads its own run of samples */
    int64_t row = position % loader->options.batch, index = position / loader->options.batch;
    int64_t run = loader->options.part_index * loader->options.batch + row;
    return run * loader->length + index;
  }
  i = i < place->count ? place->first + i : place->first;
  return loader->order ? loader->order[i] : i;
}

/* Number of the samples that belong to this part. */
static int64_t part_count(const struct sl_loader *loader, int64_t samples) {
  int64_t parts = loader->options.num_parts;
  return (samples - loader->options.part_index + parts - 1) / parts;
}

/* Number of labels of a sample. */
static size_t labels_a_sample(const struct sl_dataset *set) {
  return set->tokens ? set->sample_size : 1;
}

/* Copies a sentence and pads it. Returns its length. */
static int64_t fill_sentence(const struct sl_dataset *set, int64_t i, int32_t *tokens,
                             int32_t *labels) {
  const struct sl__sentence *sentence = &set->sentences[i];
  const int32_t *text = set->tokens + sentence->first;
  size_t length = (size_t)sentence->length;
  memcpy(tokens, text, length * sizeof *text);
  memcpy(labels, text + 1, length * sizeof *text);
  for (size_t k = length; k < set->sample_size; k++) {
    tokens[k] = set->end;
    labels[k] = SL_IGNORE;
  }
  return sentence->length;
}

/* Fills a row with a sample. Returns the number of its labels. */
static int64_t fill_row(struct sl_loader *loader, struct slot *slot, int64_t row, int64_t i) {
  const struct sl_dataset *set = loader->dataset;
  float *x = slot->x + (size_t)row * set->sample_size;
  int32_t *labels = slot->labels + (size_t)row * labels_a_sample(set);
  if (set->sentences) return fill_sentence(set, i, (int32_t *)(void *)x, labels);
  if (set->tokens) {
    const int32_t *tokens = set->tokens + (size_t)i * set->sample_size;
    memcpy(x, tokens, set->sample_size * sizeof *tokens);
    memcpy(labels, tokens + 1, set->sample_size * sizeof *tokens);
    return (int64_t)set->sample_size;
  }
  struct sl__view view = draw_view(&loader->options, slot->batch.epoch, i);
  sl__dataset_view(set, i, &view, x);
  *labels = set->labels[i];
  return 1;
}

static void ignore_row(struct slot *slot, int64_t row, size_t labels) {
  for (size_t k = 0; k < labels; k++) slot->labels[(size_t)row * labels + k] = SL_IGNORE;
}

/* Rows after the last sample repeat the batch's first ones. A batch without samples shows the first
 * sample of the epoch, or of the bucket. */
static void fill_rows(struct sl_loader *loader, struct slot *slot, const struct place *place,
                      int64_t valid) {
  const struct sl_dataset *set = loader->dataset;
  int64_t distinct = valid ? valid : 1, first = valid ? place->index * slot->batch.batch : 0;
  for (int64_t row = 0; row < distinct; row++)
    slot->batch.valid += fill_row(loader, slot, row, sample_at(loader, place, first + row));
  if (!valid) {
    ignore_row(slot, 0, labels_a_sample(set));
    slot->batch.valid = 0;
  }
  for (int64_t row = distinct; row < slot->batch.batch; row++) {
    memcpy(slot->x + (size_t)row * set->sample_size,
           slot->x + (size_t)(row - distinct) * set->sample_size,
           set->sample_size * sizeof *slot->x);
    ignore_row(slot, row, labels_a_sample(set));
  }
}

/* Number of labels in this batch of all parts together: their samples are consecutive in the common
 * order. */
static int64_t count_all(const struct sl_loader *loader, const struct place *place) {
  const struct sl_loader_options *options = &loader->options;
  int64_t rows = options->batch * options->num_parts, first = place->index * rows, count = 0;
  if (options->contiguous) return rows * (int64_t)labels_a_sample(loader->dataset);
  int64_t end = first + rows < place->count ? first + rows : place->count;
  if (!loader->dataset->sentences)
    return end > first ? (end - first) * (int64_t)labels_a_sample(loader->dataset) : 0;
  for (int64_t i = first; i < end; i++) {
    int64_t at = place->first + i;
    count += loader->dataset->sentences[loader->order ? loader->order[at] : at].length;
  }
  return count;
}

/* Groups samples by bucket; within a bucket they keep the drawn order. */
static void group_by_bucket(const struct sl_dataset *set, const uint32_t *drawn, uint32_t *order) {
  int64_t next[SL_MAX_BUCKETS] = {0};
  for (int b = 1; b < set->info.bucket_count; b++)
    next[b] = next[b - 1] + set->info.bucket_samples[b - 1];
  for (int64_t k = 0; k < set->info.count; k++)
    order[next[set->sentences[drawn[k]].bucket]++] = drawn[k];
}

static void draw_orders(struct sl_loader *loader, int64_t epoch) {
  const struct sl_loader_options *options = &loader->options;
  uint32_t count = (uint32_t)loader->dataset->info.count;
  uint32_t *drawn = loader->drawn ? loader->drawn : loader->order;
  if (!options->shuffle) epoch = 0; /* without shuffling all epochs are alike */
  if (!loader->order || loader->order_epoch == epoch) return;
  if (options->shuffle)
    sl__permutation(options->seed, sl__stream(SL__STREAM_SHUFFLE, (uint64_t)epoch), drawn, count);
  else
    for (uint32_t i = 0; i < count; i++) drawn[i] = i;
  if (loader->drawn) group_by_bucket(loader->dataset, drawn, loader->order);
  if (loader->batch_order)
    sl__permutation(options->seed, sl__stream(SL__STREAM_SHUFFLE, (uint64_t)epoch | BATCHES_OF),
                    loader->batch_order, (uint32_t)loader->length);
  loader->order_epoch = epoch;
}

static void fill_slot(struct sl_loader *loader, struct slot *slot, int64_t number) {
  int64_t rows = loader->options.batch, epoch = number / loader->length;
  int64_t index = number % loader->length;
  draw_orders(loader, epoch);
  struct place place = place_of(loader, index);
  int64_t left = part_count(loader, place.count) - place.index * rows;
  if (loader->options.contiguous) left = rows; /* every batch is full */
  int64_t valid = left < 0 ? 0 : left < rows ? left : rows;
  bool tokens = loader->dataset->tokens != NULL;
  slot->batch = (struct sl_batch){.x = tokens ? NULL : slot->x,
                                  .tokens = tokens ? (const int32_t *)(void *)slot->x : NULL,
                                  .labels = slot->labels,
                                  .batch = rows,
                                  .steps = place.steps,
                                  .epoch = epoch,
                                  .index = index,
                                  .last = index == loader->length - 1,
                                  .slot = (int)(slot - loader->slots)};
  fill_rows(loader, slot, &place, valid);
  slot->batch.valid_all = count_all(loader, &place);
}

/* ---- the thread ---- */

/* A slot in that state, and with batch `number` unless that is negative; NULL if there is none. */
static struct slot *find_slot(const struct sl_loader *loader, enum slot_state state,
                              int64_t number) {
  for (int s = 0; s < loader->options.slots; s++) {
    struct slot *slot = &loader->slots[s];
    if (slot->state != state) continue;
    if (number < 0 || slot->batch.epoch * loader->length + slot->batch.index == number) return slot;
  }
  return NULL;
}

static int count_out(const struct sl_loader *loader) {
  int out = 0;
  for (int s = 0; s < loader->options.slots; s++) out += loader->slots[s].state == OUT;
  return out;
}

static void *run(void *argument) {
  struct sl_loader *loader = argument;
  pthread_mutex_lock(&loader->lock);
  while (!loader->stop) {
    struct slot *slot = find_slot(loader, FREE, -1);
    if (!slot) {
      pthread_cond_wait(&loader->freed, &loader->lock);
      continue;
    }
    uint64_t seeks = loader->seeks;
    int64_t number = loader->next++;
    slot->state = FILLING;
    pthread_mutex_unlock(&loader->lock);
    fill_slot(loader, slot, number);
    pthread_mutex_lock(&loader->lock);
    slot->state = seeks == loader->seeks ? READY : FREE;
    pthread_cond_broadcast(&loader->filled);
  }
  pthread_mutex_unlock(&loader->lock);
  return NULL;
}

/* Signals are for the program's threads: this one blocks all. */
static enum sl_status start_thread(struct sl_loader *loader) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&loader->thread, NULL, run, loader);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error)
    return sl__fail(SL_NO_MEMORY, "%s: the loader's thread cannot start: %s",
                    loader->dataset->info.name, strerror(error));
  loader->thread_runs = true;
  return SL_OK;
}

/* ---- making and ending ---- */

static enum sl_status check_augmentation(const struct sl_dataset_info *info,
                                         const struct sl_loader_options *options) {
  const int64_t *dim = info->sample.dim;
  if (!options->shift && !options->flip) return SL_OK;
  if (info->sample.ndim != 3)
    return sl__fail(SL_BAD_ARGUMENT, "%s: only images [C, H, W] can be shifted or flipped",
                    info->name);
  if (options->shift < 0 || options->shift >= dim[1] || options->shift >= dim[2])
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: a shift by %d pixels; give 0 or more, below the image's size", info->name,
                    options->shift);
  return SL_OK;
}

/* Number of samples that the parts share: each part must have one. */
static int64_t shared_samples(const struct sl_dataset_info *info) {
  if (!info->bucket_count) return info->count;
  int64_t most = 0;
  for (int b = 0; b < info->bucket_count; b++)
    if (info->bucket_samples[b] > most) most = info->bucket_samples[b];
  return most;
}

/* Checks the options and fills in the defaults. */
static enum sl_status check_options(const struct sl_dataset_info *info,
                                    struct sl_loader_options *options) {
  if (options->num_parts == 0) options->num_parts = 1;
  if (options->slots == 0) options->slots = 4;
  if (options->batch < 1 || options->batch > INT32_MAX)
    return sl__fail(SL_BAD_ARGUMENT, "%s: a batch of %lld samples; give 1 or more", info->name,
                    (long long)options->batch);
  if (options->slots < 2 || options->slots > MAX_SLOTS)
    return sl__fail(SL_BAD_ARGUMENT, "%s: %d slots; give 2 to %d", info->name, options->slots,
                    MAX_SLOTS);
  if (options->num_parts < 1 || options->part_index < 0 ||
      options->part_index >= options->num_parts)
    return sl__fail(SL_BAD_ARGUMENT, "%s: there is no part %lld of %lld", info->name,
                    (long long)options->part_index, (long long)options->num_parts);
  if (options->num_parts > shared_samples(info))
    return sl__fail(SL_BAD_ARGUMENT, "%s: %lld parts of %lld samples%s: one would be empty",
                    info->name, (long long)options->num_parts, (long long)shared_samples(info),
                    info->bucket_count ? " in the fullest bucket" : "");
  if (options->contiguous && info->bucket_count)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: sentences in buckets cannot be contiguous; make the set by sl_tokens_new",
                    info->name);
  if (options->contiguous && (!info->tokens || options->shuffle))
    return sl__fail(SL_BAD_ARGUMENT, "%s: only a text can be contiguous, and not shuffled",
                    info->name);
  if (options->contiguous && info->count / options->num_parts < options->batch)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: %lld samples do not fill %lld rows; take a smaller batch or fewer steps",
                    info->name, (long long)info->count,
                    (long long)(options->batch * options->num_parts));
  return check_augmentation(info, options);
}

/* An allocation larger than the machine's memory may succeed here and fail when slots are filled.
 */
static enum sl_status check_memory(const struct sl_loader *loader, double bytes) {
  double has = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  if (bytes <= has) return SL_OK;
  return sl__fail(SL_NO_MEMORY,
                  "%s: %d batches of %lld samples need %.0f MB of memory, this machine has %.0f; "
                  "take a smaller batch",
                  loader->dataset->info.name, loader->options.slots,
                  (long long)loader->options.batch, bytes / 1e6, has / 1e6);
}

static size_t whole_pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

/* Every array of a slot begins on a page, as registration and pinning need. */
static enum sl_status alloc_slots(struct sl_loader *loader) {
  size_t rows = (size_t)loader->options.batch, count = (size_t)loader->options.slots;
  size_t row_bytes = loader->dataset->sample_size * sizeof(float);
  size_t label_bytes = labels_a_sample(loader->dataset) * sizeof(int32_t);
  enum sl_status status =
      check_memory(loader, (double)count * (double)rows * (double)(row_bytes + label_bytes));
  if (status != SL_OK) return status;
  size_t x_bytes = whole_pages(rows * row_bytes);
  size_t slot_bytes = x_bytes + whole_pages(rows * label_bytes);
  loader->slots = sl__alloc(count, sizeof *loader->slots, "slots");
  loader->memory = sl__alloc(count * slot_bytes + PAGE, 1, "batches; a smaller one takes less");
  if (!loader->slots || !loader->memory) return SL_NO_MEMORY;
  char *first = (char *)whole_pages((uintptr_t)loader->memory);
  for (size_t s = 0; s < count; s++) {
    loader->slots[s].x = (float *)(void *)(first + s * slot_bytes);
    loader->slots[s].labels = (int32_t *)(void *)(first + s * slot_bytes + x_bytes);
  }
  return SL_OK;
}

static int64_t count_batches(const struct sl_loader *loader) {
  const struct sl_dataset_info *info = &loader->dataset->info;
  const struct sl_loader_options *options = &loader->options;
  int64_t length = 0;
  if (options->contiguous) return info->count / (options->num_parts * options->batch);
  if (!info->bucket_count) return batches_of(options, info->count);
  for (int b = 0; b < info->bucket_count; b++)
    length += batches_of(options, info->bucket_samples[b]);
  return length;
}

static enum sl_status alloc_orders(struct sl_loader *loader) {
  size_t count = (size_t)loader->dataset->info.count;
  bool shuffle = loader->options.shuffle, buckets = loader->dataset->info.bucket_count > 0;
  if (!shuffle && !buckets) return SL_OK;
  loader->order = sl__alloc(count, sizeof *loader->order, "an order");
  if (!loader->order) return SL_NO_MEMORY;
  if (!buckets) return SL_OK;
  loader->drawn = sl__alloc(count, sizeof *loader->drawn, "an order");
  if (!loader->drawn) return SL_NO_MEMORY;
  if (!shuffle) return SL_OK;
  count = (size_t)loader->length;
  loader->batch_order = sl__alloc(count, sizeof *loader->batch_order, "an order of batches");
  return loader->batch_order ? SL_OK : SL_NO_MEMORY;
}

enum sl_status sl_loader_new(const struct sl_dataset *dataset,
                             const struct sl_loader_options *options, struct sl_loader **result) {
  enum sl_status status;
  struct sl_loader *loader = sl__alloc(1, sizeof *loader, "a loader");
  if (!loader) return SL_NO_MEMORY;
  loader->dataset = dataset;
  loader->options = *options;
  loader->order_epoch = -1;
  pthread_mutex_init(&loader->lock, NULL);
  pthread_cond_init(&loader->freed, NULL);
  pthread_cond_init(&loader->filled, NULL);
  SL__TRY(check_options(&dataset->info, &loader->options));
  loader->length = count_batches(loader);
  SL__TRY(alloc_slots(loader));
  SL__TRY(alloc_orders(loader));
  SL__TRY(start_thread(loader));
  *result = loader;
  return SL_OK;
out:
  sl_loader_free(loader);
  return status;
}

void sl_loader_free(struct sl_loader *loader) {
  if (!loader) return;
  if (loader->thread_runs) {
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_broadcast(&loader->freed);
    pthread_mutex_unlock(&loader->lock);
    pthread_join(loader->thread, NULL);
  }
  pthread_cond_destroy(&loader->filled);
  pthread_cond_destroy(&loader->freed);
  pthread_mutex_destroy(&loader->lock);
  free(loader->order);
  free(loader->drawn);
  free(loader->batch_order);
  free(loader->memory);
  free(loader->slots);
  free(loader);
}

/* ---- the caller's side ---- */

const struct sl_dataset *sl_loader_dataset(const struct sl_loader *loader) {
  return loader->dataset;
}

const struct sl_loader_options *sl_loader_settings(const struct sl_loader *loader) {
  return &loader->options;
}

int64_t sl_loader_batch(const struct sl_loader *loader) { return loader->options.batch; }

int64_t sl_loader_length(const struct sl_loader *loader) { return loader->length; }

int sl_loader_slots(const struct sl_loader *loader) { return loader->options.slots; }

void sl_loader_slot(const struct sl_loader *loader, int slot, float **x, int32_t **labels) {
  *x = loader->slots[slot].x;
  *labels = loader->slots[slot].labels;
}

enum sl_status sl_loader_next(struct sl_loader *loader, struct sl_batch *batch) {
  enum sl_status status = SL_OK;
  struct slot *slot;
  pthread_mutex_lock(&loader->lock);
  if (count_out(loader) >= loader->options.slots - 1) {
    status = sl__fail(SL_BAD_ARGUMENT,
                      "%s: %d batches of %d are out; hand one back, or ask for more slots",
                      loader->dataset->info.name, count_out(loader), loader->options.slots);
  } else {
    while (!(slot = find_slot(loader, READY, loader->handed)))
      pthread_cond_wait(&loader->filled, &loader->lock);
    loader->handed++;
    slot->state = OUT;
    *batch = slot->batch;
  }
  pthread_mutex_unlock(&loader->lock);
  return status;
}

void sl_loader_recycle(struct sl_loader *loader, int slot) {
  if (slot < 0 || slot >= loader->options.slots) return;
  pthread_mutex_lock(&loader->lock);
  if (loader->slots[slot].state == OUT) loader->slots[slot].state = FREE;
  pthread_cond_signal(&loader->freed);
  pthread_mutex_unlock(&loader->lock);
}

enum sl_status sl_loader_seek(struct sl_loader *loader, int64_t epoch) {
  return sl_loader_seek_batch(loader, epoch, 0);
}

enum sl_status sl_loader_seek_batch(struct sl_loader *loader, int64_t epoch, int64_t index) {
  enum sl_status status = SL_OK;
  if (index < 0 || index >= loader->length)
    return sl__fail(SL_BAD_ARGUMENT, "there is no batch %lld; an epoch has %lld", (long long)index,
                    (long long)loader->length);
  pthread_mutex_lock(&loader->lock);
  if (epoch < 0 || epoch > INT64_MAX / loader->length - 1) {
    status = sl__fail(SL_BAD_ARGUMENT, "there is no epoch %lld", (long long)epoch);
  } else if (count_out(loader) > 0) {
    status = sl__fail(SL_BAD_ARGUMENT, "%d batches are still out; hand them back before a seek",
                      count_out(loader));
  } else {
    for (int s = 0; s < loader->options.slots; s++)
      if (loader->slots[s].state == READY) loader->slots[s].state = FREE;
    loader->next = loader->handed = epoch * loader->length + index;
    loader->seeks++;
    pthread_cond_signal(&loader->freed);
  }
  pthread_mutex_unlock(&loader->lock);
  return status;
}
