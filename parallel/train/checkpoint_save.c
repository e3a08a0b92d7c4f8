/* Saving: the trainer's state is copied to main memory, as a snapshot, and a thread writes the
 * snapshot to a safetensors file while the training goes on. */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <zlib.h>

#include "core/base/clock.h"
#include "core/base/float_mode.h"
#include "core/net/net.h"
#include "data/batches.h"
#include "parallel/train/manifest.h"
#include "parallel/train/snapshot.h"

/* ---- the file ---- */

static uint32_t file_crc(const struct sl__manifest *manifest,
                         const struct sl__safetensors_entry *entries, size_t count) {
  uLong crc = sl__manifest_crc(manifest);
  for (size_t i = 0; i < count; i++) crc = crc32_z(crc, entries[i].data, entries[i].bytes);
  return (uint32_t)crc;
}

static enum sl_status write_file(const struct sl__snapshot *snapshot, struct sl__manifest *manifest,
                                 const char *path, struct sl__file_sum *sum) {
  uint32_t tensors = 0;
  const char *metadata[SL__MANIFEST_METADATA];
  char crc[16];
  size_t count = (size_t)snapshot->count;
  struct sl__safetensors_entry *entries = sl__alloc(count, sizeof *entries, "a checkpoint");
  if (!entries) return SL_NO_MEMORY;
  for (size_t i = 0; i < count; i++) {
    const struct sl__item *item = &snapshot->items[i];
    entries[i] = (struct sl__safetensors_entry){
        .name = item->name,
        .dtype = "F32", /* of one type, the file keeps them in this order, as the CRC needs it */
        .shape = item->shape,
        .data = item->values,
        .bytes = (size_t)sl_shape_count(&item->shape) * sizeof(float)};
    tensors = sl__manifest_add_tensor(tensors, &entries[i]);
  }
  snprintf(manifest->tensors, sizeof manifest->tensors, "%08" PRIx32, tensors);
  snprintf(crc, sizeof crc, "%08" PRIx32, file_crc(manifest, entries, count));
  sl__manifest_metadata(manifest, crc, metadata);
  enum sl_status status = sl__safetensors_write(path, entries, count, metadata, sum);
  free(entries);
  return status;
}

/* ---- the thread ---- */

/* A checkpoint that is being written, or was. The thread owns all of it until `over` is set. */
struct sl__saving {
  struct sl__snapshot snapshot;
  struct sl__manifest manifest;
  struct sl_save_options save_options;
  char *path, *options; /* copies */
  pthread_t thread;
  bool has_thread;
  bool over; /* atomic */
  struct sl_saved saved;
};

/* The program's function; it may fail without a call of the library that leaves a message. */
static enum sl_status call_committed(const struct sl__saving *s) {
  sl__fail(SL_OK, "%s", "");
  enum sl_status status = s->save_options.committed(s->save_options.user, &s->saved);
  if (status == SL_OK || *sl_error()) return status;
  return sl__fail(status, "%s: is written, but the program failed to note it (%s)", s->path,
                  sl_status_name(status));
}

static void *write_out(void *argument) {
  struct sl__saving *s = argument;
  struct sl_saved *saved = &s->saved;
  struct sl__file_sum sum = {0};
  sl__float_mode_begin();
  double begin = sl__seconds();
  saved->status = write_file(&s->snapshot, &s->manifest, s->path, &sum);
  saved->bytes = sum.bytes;
  saved->xxh64 = sum.xxh64;
  saved->write_s = sl__seconds() - begin;
  if (saved->status == SL_OK && s->save_options.committed) saved->status = call_committed(s);
  if (saved->status != SL_OK) snprintf(saved->message, sizeof saved->message, "%s", sl_error());
  __atomic_store_n(&s->over, true, __ATOMIC_RELEASE);
  return NULL;
}

/* The thread blocks all signals: they are for the program's own threads. One of them, SIGXFSZ,
 * would end the program when the file exceeds a size limit; blocked, the write fails instead. */
static bool start_thread(struct sl__saving *s) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  s->has_thread = pthread_create(&s->thread, NULL, write_out, s) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return s->has_thread;
}

static void saving_free(struct sl__saving *s) {
  if (!s) return;
  if (s->has_thread) pthread_join(s->thread, NULL);
  sl__snapshot_clear(&s->snapshot);
  free(s->path);
  free(s->options);
  free(s);
}

/* ---- the end of a write ---- */

static bool is_over(const struct sl__saving *s) {
  return __atomic_load_n(&s->over, __ATOMIC_ACQUIRE);
}

bool sl_trainer_save_ended(struct sl_trainer *trainer, struct sl_saved *saved) {
  SL__NEEDS_OR(false, trainer);
  if (!trainer->saving || !is_over(trainer->saving)) return false;
  if (saved) *saved = trainer->saving->saved;
  saving_free(trainer->saving);
  trainer->saving = NULL;
  return true;
}

enum sl_status sl_trainer_save_wait(struct sl_trainer *trainer, struct sl_saved *saved) {
  SL__NEEDS(trainer);
  struct sl_saved own = {.status = SL_OK};
  if (trainer->saving && trainer->saving->has_thread) {
    while (!is_over(trainer->saving)) {
      sl__net_report_activity(
          trainer->model->context->net); /* the other ranks wait for this one meanwhile */
      nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    pthread_join(trainer->saving->thread, NULL);
    trainer->saving->has_thread = false;
  }
  sl_trainer_save_ended(trainer, &own);
  if (saved) *saved = own;
  if (own.status != SL_OK) sl__fail(own.status, "%s", own.message);
  return sl__trainer_share(trainer, own.status);
}

/* ---- the start of a write ---- */

static enum sl_status saving_new(struct sl_trainer *t, const char *path,
                                 const struct sl_save_options *options,
                                 struct sl__saving **saving) {
  enum sl_status status;
  if (sl__loader_is_freed(t->next_batch.loader))
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: the loader of the last step was freed, and a checkpoint describes its "
                    "data; save before sl_loader_free",
                    path);
  struct sl__saving *s = sl__alloc(1, sizeof *s, "a checkpoint");
  if (!s) return SL_NO_MEMORY;
  if (options) s->save_options = *options;
  s->saved.position = sl_trainer_position(t);
  s->path = sl__strdup(path);
  if (!s->path) SL__TRY(SL_NO_MEMORY);
  s->options = s->save_options.options ? sl__strdup(s->save_options.options) : NULL;
  if (s->save_options.options && !s->options) SL__TRY(SL_NO_MEMORY);
  SL__TRY(sl__snapshot_new(t, t->next_batch.index, sl__whole_batch(t->next_batch.loader),
                           sl__trainer_workers(t), &s->snapshot));
  sl__manifest_fill(t, &s->manifest);
  s->manifest.options = s->options;
  *saving = s;
  return SL_OK;
out:
  saving_free(s);
  return status;
}

/* All ranks copy their part; rank 0 alone keeps the copy and writes it. */
static enum sl_status save(struct sl_trainer *t, const char *path,
                           const struct sl_save_options *options, bool by_thread) {
  enum sl_status status;
  struct sl__saving *s = NULL;
  SL__TRY(sl__trainer_drained(t));
  SL__TRY(sl__trainer_check_raw(t));
  if (!t->next_batch.loader)
    return sl__fail(SL_BAD_ARGUMENT, "%s: no step was made yet, so there is nothing to go on from",
                    path);
  t->save_asked = false;
  SL__TRY(sl_trainer_save_wait(t, NULL));
  SL__TRY(sl__model_shards_synchronize(t->shards));
  status = saving_new(t, path, options, &s);
  SL__TRY(sl__trainer_share(t, status));
  status = sl__trainer_share(t, sl__snapshot_from_trainer(t, path, &s->snapshot));
  if (status != SL_OK || t->ranks.rank) goto out;
  t->saving = s;
  t->saving_free = saving_free;
  if (!by_thread || !start_thread(s)) write_out(s);
  s = NULL;
out:
  saving_free(s);
  return status;
}

enum sl_status sl_trainer_save_begin(struct sl_trainer *trainer, const char *path,
                                     const struct sl_save_options *options) {
  SL__NEEDS(trainer, path);
  return save(trainer, path, options, true);
}

enum sl_status sl_trainer_save(struct sl_trainer *trainer, const char *path) {
  SL__NEEDS(trainer, path);
  enum sl_status status = save(trainer, path, NULL, false);
  return status == SL_OK ? sl_trainer_save_wait(trainer, NULL) : status;
}
