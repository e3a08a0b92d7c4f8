/* Loaders: threads fill slots ahead of the training.
 *
 * A slot is free, being filled, ready or out. A thread takes any free slot and fills it with the
 * next batch; ready slots are handed out in the batches' order. Values depend on (seed, epoch,
 * sample) only: neither the numbers of slots and threads nor timing changes them. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/float_mode.h"
#include "core/base/machine.h"
#include "data/batches.h"

#define PAGE 4096
#define MAX_SLOTS 1024
#define MAX_READERS 256
#define MANY_CPUS 8

enum slot_state { FREE, FILLING, READY, OUT };

struct slot {
  struct sl__rows rows;
  enum slot_state state;
  struct sl_batch batch;
  enum sl_status status; /* of the fill, and its message */
  char message[512];
};

/* A thread, with orders and scratch memory of its own: threads share the slots alone. */
struct reader {
  struct sl_loader *loader;
  struct sl__batches batches;
  pthread_t thread;
  bool runs;
};

struct sl_loader {
  struct sl__batches batches; /* the settings; the readers' are copies that fill batches */
  struct slot *slots;
  void *memory; /* memory of all slots, not yet aligned */
  struct reader *readers;
  int holders;   /* atomic: the program is one of them until it frees the loader */
  bool is_freed; /* atomic */

  pid_t process;        /* has the threads; a process that it forks does not */
  pthread_mutex_t lock; /* guards the members below and the slots' states */
  pthread_cond_t freed, filled;
  bool stop;
  bool rests;     /* no thread begins a batch */
  int64_t next;   /* number of the batch to be filled, counted over all epochs */
  int64_t handed; /* number of the batch to be handed out */
  uint64_t seeks; /* number of seeks: a batch that was begun before a seek is discarded */
};

/* ---- the threads ---- */

/* A slot in that state, and with batch `number` unless that is negative; NULL if there is none. */
static struct slot *find_slot(const struct sl_loader *loader, enum slot_state state,
                              int64_t number) {
  for (int s = 0; s < loader->batches.options.slots; s++) {
    struct slot *slot = &loader->slots[s];
    if (slot->state != state) continue;
    if (number < 0 || slot->batch.epoch * loader->batches.length + slot->batch.index == number)
      return slot;
  }
  return NULL;
}

static int count_out(const struct sl_loader *loader) {
  int out = 0;
  for (int s = 0; s < loader->batches.options.slots; s++) out += loader->slots[s].state == OUT;
  return out;
}

static void *run(void *argument) {
  struct reader *reader = argument;
  struct sl_loader *loader = reader->loader;
  sl__float_mode_begin();
  pthread_mutex_lock(&loader->lock);
  while (!loader->stop) {
    struct slot *slot = loader->rests ? NULL : find_slot(loader, FREE, -1);
    if (!slot) {
      pthread_cond_wait(&loader->freed, &loader->lock);
      continue;
    }
    uint64_t seeks = loader->seeks;
    int64_t number = loader->next++;
    slot->state = FILLING;
    pthread_mutex_unlock(&loader->lock);
    slot->status = sl__batches_fill(&reader->batches, number, &slot->rows, &slot->batch);
    snprintf(slot->message, sizeof slot->message, "%s", slot->status != SL_OK ? sl_error() : "");
    slot->batch.slot = (int)(slot - loader->slots);
    pthread_mutex_lock(&loader->lock);
    slot->state = seeks == loader->seeks ? READY : FREE;
    pthread_cond_broadcast(&loader->filled);
  }
  pthread_mutex_unlock(&loader->lock);
  return NULL;
}

/* Signals are for the program's threads: these block all. */
static enum sl_status start_thread(struct sl_loader *loader, struct reader *reader) {
  sigset_t all, before;
  reader->loader = loader;
  reader->batches.dataset = loader->batches.dataset;
  reader->batches.options = loader->batches.options;
  enum sl_status status = sl__batches_begin(&reader->batches);
  if (status != SL_OK) return status;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&reader->thread, NULL, run, reader);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error)
    return sl__fail(SL_NO_MEMORY, "%s: the loader's thread cannot start: %s",
                    loader->batches.dataset->info.name, strerror(error));
  reader->runs = true;
  return SL_OK;
}

static enum sl_status start_threads(struct sl_loader *loader) {
  int count = loader->batches.options.readers;
  enum sl_status status = SL_OK;
  loader->readers = sl__alloc((size_t)count, sizeof *loader->readers, "a loader's threads");
  if (!loader->readers) return SL_NO_MEMORY;
  for (int r = 0; r < count && status == SL_OK; r++)
    status = start_thread(loader, &loader->readers[r]);
  return status;
}

static void end_threads(struct sl_loader *loader) {
  pthread_mutex_lock(&loader->lock);
  loader->stop = true;
  pthread_cond_broadcast(&loader->freed);
  pthread_mutex_unlock(&loader->lock);
  for (int r = 0; loader->readers && r < loader->batches.options.readers; r++) {
    if (loader->readers[r].runs) pthread_join(loader->readers[r].thread, NULL);
    sl__batches_end(&loader->readers[r].batches);
  }
  free(loader->readers);
  loader->readers = NULL;
}

/* ---- making and ending ---- */

static enum sl_status check_augmentation(const struct sl_dataset_info *info,
                                         const struct sl_loader_options *options) {
  const struct sl_shape shape = sl__batches_shape(info, options);
  const int64_t *dim = shape.dim;
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

static enum sl_status check_crop(const struct sl_dataset_info *info,
                                 const struct sl_loader_options *options) {
  const int64_t *dim = info->sample.dim;
  if (!options->crop_h && !options->crop_w && !options->crop_random) return SL_OK;
  if (info->sample.ndim != 3)
    return sl__fail(SL_BAD_ARGUMENT, "%s: only images [C, H, W] can be cropped", info->name);
  if (options->crop_h >= 1 && options->crop_h <= dim[1] && options->crop_w >= 1 &&
      options->crop_w <= dim[2])
    return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "%s: windows of %lld x %lld; give 1 or more, at most the image's size, %lld x "
                  "%lld",
                  info->name, (long long)options->crop_h, (long long)options->crop_w,
                  (long long)dim[1], (long long)dim[2]);
}

/* Number of samples that the parts share: each part must have one. */
static int64_t shared_samples(const struct sl_dataset_info *info) {
  if (!info->bucket_count) return info->count;
  int64_t most = 0;
  for (int b = 0; b < info->bucket_count; b++)
    if (info->bucket_samples[b] > most) most = info->bucket_samples[b];
  return most;
}

/* A GPU may take a batch faster than one thread fills it: on a machine with processors to spare,
 * two do. More would need more slots, and so more memory. Where CPUs train, threads that are ahead
 * of the training take no more time than one: the batches are the same. */
static int default_readers(const struct sl_dataset *set) {
  return set->kind->one_reader || sl__machine_cpus() < MANY_CPUS ? 1 : 2;
}

/* Small batches have many slots, so that the training can be steps ahead of its reports. */
static int default_slots(const struct sl_dataset_info *info, const struct sl_loader_options *o) {
  const double most_bytes = 4 << 20;
  double bytes =
      4.0 * (double)o->batch *
      (double)(sl_shape_count(&info->sample) + (info->tokens ? sl_shape_count(&info->sample) : 1));
  int slots = o->readers < 3 ? 4 : o->readers + 2;
  while (slots <= 8 && 2 * slots * bytes <= most_bytes) slots *= 2;
  return slots;
}

/* Checks the options and fills in the defaults. */
static enum sl_status check_options(const struct sl_dataset *set,
                                    struct sl_loader_options *options) {
  const struct sl_dataset_info *info = &set->info;
  if (options->num_parts == 0) options->num_parts = 1;
  if (options->readers == 0) options->readers = default_readers(set);
  if (options->slots == 0) options->slots = default_slots(info, options);
  if (options->batch < 1 || options->batch > INT32_MAX)
    return sl__fail(SL_BAD_ARGUMENT, "%s: a batch of %lld samples; give 1 to %d", info->name,
                    (long long)options->batch, INT32_MAX);
  if (options->slots < 2 || options->slots > MAX_SLOTS)
    return sl__fail(SL_BAD_ARGUMENT, "%s: %d slots; give 2 to %d", info->name, options->slots,
                    MAX_SLOTS);
  if (options->readers < 1 || options->readers > MAX_READERS)
    return sl__fail(SL_BAD_ARGUMENT, "%s: %d readers; give 1 to %d", info->name, options->readers,
                    MAX_READERS);
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
  enum sl_status status = check_crop(info, options);
  if (status == SL_OK) status = sl__colour_check(info, options);
  return status == SL_OK ? check_augmentation(info, options) : status;
}

/* An allocation larger than the machine's memory may succeed here and fail when slots are filled.
 */
static enum sl_status check_memory(const struct sl_loader *loader, double bytes) {
  double has = sl__machine_memory();
  if (bytes <= has) return SL_OK;
  return sl__fail(SL_NO_MEMORY,
                  "%s: %d batches of %lld samples need %.0f MB of memory, this machine has %.0f; "
                  "take a smaller batch",
                  loader->batches.dataset->info.name, loader->batches.options.slots,
                  (long long)loader->batches.options.batch, bytes / 1e6, has / 1e6);
}

static size_t whole_pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

/* Every array of a slot begins on a page, as registration and pinning need. */
static enum sl_status alloc_slots(struct sl_loader *loader) {
  size_t rows = (size_t)loader->batches.options.batch,
         count = (size_t)loader->batches.options.slots;
  const struct sl_dataset *set = loader->batches.dataset;
  size_t row_bytes = (size_t)sl_shape_count(&loader->batches.shape) * sizeof(float);
  size_t answer_bytes = set->label_count * sizeof(int32_t) + set->target_size * sizeof(float);
  enum sl_status status =
      check_memory(loader, (double)count * (double)rows * (double)(row_bytes + answer_bytes));
  if (status != SL_OK) return status;
  size_t x_bytes = whole_pages(rows * row_bytes);
  size_t slot_bytes = x_bytes + whole_pages(rows * answer_bytes);
  loader->slots = sl__alloc(count, sizeof *loader->slots, "slots");
  loader->memory = sl__alloc(count * slot_bytes + PAGE, 1, "batches; a smaller one takes less");
  if (!loader->slots || !loader->memory) return SL_NO_MEMORY;
  char *first = (char *)whole_pages((uintptr_t)loader->memory);
  for (size_t s = 0; s < count; s++) {
    void *answers = first + s * slot_bytes + x_bytes;
    loader->slots[s].rows = (struct sl__rows){.x = (float *)(void *)(first + s * slot_bytes),
                                              .labels = set->label_count ? answers : NULL,
                                              .targets = set->target_size ? answers : NULL};
  }
  return SL_OK;
}

enum sl_status sl_loader_new(const struct sl_dataset *dataset,
                             const struct sl_loader_options *options, struct sl_loader **loader) {
  SL__NEEDS(dataset, options, loader);
  enum sl_status status;
  struct sl_loader *l = sl__alloc(1, sizeof *l, "a loader");
  if (!l) return SL_NO_MEMORY;
  l->holders = 1;
  l->batches.dataset = dataset;
  l->batches.options = *options;
  l->process = getpid();
  pthread_mutex_init(&l->lock, NULL);
  pthread_cond_init(&l->freed, NULL);
  pthread_cond_init(&l->filled, NULL);
  SL__TRY(check_options(dataset, &l->batches.options));
  l->batches.length = sl__batches_length(&l->batches);
  l->batches.shape = sl__batches_shape(&dataset->info, &l->batches.options);
  SL__TRY(alloc_slots(l));
  SL__TRY(start_threads(l));
  *loader = l;
  return SL_OK;
out:
  sl_loader_free(l);
  return status;
}

/* ---- once more ---- */

/* Waits for the batches that are being filled. */
static void rest(struct sl_loader *loader) {
  pthread_mutex_lock(&loader->lock);
  loader->rests = true;
  while (find_slot(loader, FILLING, -1)) pthread_cond_wait(&loader->filled, &loader->lock);
  pthread_mutex_unlock(&loader->lock);
}

static void go_on(struct sl_loader *loader) {
  pthread_mutex_lock(&loader->lock);
  loader->rests = false;
  pthread_cond_broadcast(&loader->freed);
  pthread_mutex_unlock(&loader->lock);
}

enum sl_status sl__loader_refill(struct sl_loader *loader, int64_t part, int64_t epoch,
                                 int64_t index, int64_t *samples, const struct sl__rows *rows) {
  struct sl__batches again = {.dataset = loader->batches.dataset,
                              .options = loader->batches.options};
  struct sl_batch batch;
  again.options.part_index = part;
  enum sl_status status = sl__batches_begin(&again);
  if (status == SL_OK) {
    rest(loader);
    status = sl__batches_fill(&again, epoch * again.length + index, rows, &batch);
    go_on(loader);
    memcpy(samples, again.samples, (size_t)again.options.batch * sizeof *samples);
  }
  sl__batches_end(&again);
  return status;
}

/* ---- its end ---- */

void sl__loader_hold(struct sl_loader *loader) {
  __atomic_fetch_add(&loader->holders, 1, __ATOMIC_RELAXED);
}

bool sl__loader_is_freed(const struct sl_loader *loader) {
  return __atomic_load_n(&loader->is_freed, __ATOMIC_ACQUIRE);
}

void sl__loader_release(struct sl_loader *loader) {
  if (!loader || __atomic_sub_fetch(&loader->holders, 1, __ATOMIC_ACQ_REL)) return;
  pthread_cond_destroy(&loader->filled);
  pthread_cond_destroy(&loader->freed);
  pthread_mutex_destroy(&loader->lock);
  free(loader->memory);
  free(loader->slots);
  free(loader);
}

/* The dataset may go next, which only the threads read. */
void sl_loader_free(struct sl_loader *loader) {
  if (!loader || loader->process != getpid()) return;
  end_threads(loader);
  __atomic_store_n(&loader->is_freed, true, __ATOMIC_RELEASE);
  sl__loader_release(loader);
}

/* ---- the caller's side ---- */

const struct sl_dataset *sl_loader_dataset(const struct sl_loader *loader) {
  SL__NEEDS_OR(NULL, loader);
  return loader->batches.dataset;
}

const struct sl_shape *sl_loader_sample(const struct sl_loader *loader) {
  SL__NEEDS_OR(NULL, loader);
  return &loader->batches.shape;
}

const struct sl_loader_options *sl_loader_settings(const struct sl_loader *loader) {
  SL__NEEDS_OR(NULL, loader);
  return &loader->batches.options;
}

int64_t sl_loader_batch(const struct sl_loader *loader) {
  SL__NEEDS_OR(0, loader);
  return loader->batches.options.batch;
}

int64_t sl_loader_length(const struct sl_loader *loader) {
  SL__NEEDS_OR(0, loader);
  return loader->batches.length;
}

int sl_loader_slots(const struct sl_loader *loader) {
  SL__NEEDS_OR(0, loader);
  return loader->batches.options.slots;
}

static bool is_slot(const struct sl_loader *loader, int slot) {
  return slot >= 0 && slot < loader->batches.options.slots;
}

void sl_loader_slot(const struct sl_loader *loader, int slot, float **x, int32_t **labels) {
  SL__NEEDS_OR(, loader, x, labels);
  *x = NULL;
  *labels = NULL;
  if (!is_slot(loader, slot)) return;
  *x = loader->slots[slot].rows.x;
  *labels = loader->slots[slot].rows.labels;
}

float *sl_loader_slot_targets(const struct sl_loader *loader, int slot) {
  SL__NEEDS_OR(NULL, loader);
  return is_slot(loader, slot) ? loader->slots[slot].rows.targets : NULL;
}

enum sl_status sl_loader_next(struct sl_loader *loader, struct sl_batch *batch) {
  SL__NEEDS(loader, batch);
  enum sl_status status = SL_OK;
  struct slot *slot;
  if (loader->process != getpid())
    return sl__fail(SL_UNSUPPORTED,
                    "%s: this process was forked after sl_loader_new, and has no threads that fill "
                    "batches; make the loader after the fork",
                    loader->batches.dataset->info.name);
  pthread_mutex_lock(&loader->lock);
  if (count_out(loader) >= loader->batches.options.slots - 1) {
    status = sl__fail(
        SL_BAD_ARGUMENT, "%s: %d batches of %d are out; hand one back, or ask for more slots",
        loader->batches.dataset->info.name, count_out(loader), loader->batches.options.slots);
  } else {
    while (!(slot = find_slot(loader, READY, loader->handed)))
      pthread_cond_wait(&loader->filled, &loader->lock);
    status = slot->status;
    if (status == SL_OK) {
      loader->handed++;
      slot->state = OUT;
      *batch = slot->batch;
    } else { /* it stays, so that another call meets it again */
      sl__fail(status, "%s", slot->message);
    }
  }
  pthread_mutex_unlock(&loader->lock);
  return status;
}

void sl_loader_recycle(struct sl_loader *loader, int slot) {
  SL__NEEDS_OR(, loader);
  if (!is_slot(loader, slot)) return;
  pthread_mutex_lock(&loader->lock);
  if (loader->slots[slot].state == OUT) loader->slots[slot].state = FREE;
  pthread_cond_signal(&loader->freed);
  pthread_mutex_unlock(&loader->lock);
}

enum sl_status sl_loader_seek(struct sl_loader *loader, int64_t epoch) {
  SL__NEEDS(loader);
  return sl_loader_seek_batch(loader, epoch, 0);
}

void sl_loader_tell(struct sl_loader *loader, int64_t *epoch, int64_t *index) {
  SL__NEEDS_OR(, loader, epoch, index);
  pthread_mutex_lock(&loader->lock);
  *epoch = loader->handed / loader->batches.length;
  *index = loader->handed % loader->batches.length;
  pthread_mutex_unlock(&loader->lock);
}

enum sl_status sl_loader_seek_batch(struct sl_loader *loader, int64_t epoch, int64_t index) {
  SL__NEEDS(loader);
  enum sl_status status = SL_OK;
  if (index < 0 || index >= loader->batches.length)
    return sl__fail(SL_BAD_ARGUMENT, "there is no batch %lld; an epoch has %lld", (long long)index,
                    (long long)loader->batches.length);
  pthread_mutex_lock(&loader->lock);
  if (epoch < 0 || epoch > INT64_MAX / loader->batches.length - 1) {
    status = sl__fail(SL_BAD_ARGUMENT, "there is no epoch %lld", (long long)epoch);
  } else if (count_out(loader) > 0) {
    status = sl__fail(SL_BAD_ARGUMENT, "%d batches are still out; hand them back before a seek",
                      count_out(loader));
  } else {
    for (int s = 0; s < loader->batches.options.slots; s++)
      if (loader->slots[s].state == READY) loader->slots[s].state = FREE;
    loader->next = loader->handed = epoch * loader->batches.length + index;
    loader->seeks++;
    pthread_cond_broadcast(&loader->freed);
  }
  pthread_mutex_unlock(&loader->lock);
  return status;
}
