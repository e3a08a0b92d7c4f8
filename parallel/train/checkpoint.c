/* Checkpoints: a trainer's whole state as one safetensors file, and back. The file is mirrored by
 * an image in host memory: saving fills it from the trainer, and a thread writes it out while the
 * training goes on; loading fills it from the file and, once all is checked, writes it into the
 * trainer. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

#include "core/runtime/log.h"
#include "core/net/net.h"
#include "core/base/safetensors.h"
#include "parallel/train/snapshot.h"

#define FORMAT_NAME "starling checkpoint"
#define FORMAT_VERSION 1

/* ---- metadata ---- */

enum key {
  KEY_FORMAT,
  KEY_VERSION,
  KEY_PRODUCER,
  KEY_STEP,
  KEY_EPOCH,
  KEY_SAMPLES,
  KEY_BATCH,
  KEY_WORKERS,
  KEY_SEED,
  KEY_OPTIMIZER,
  KEY_ORDER,
  KEYS
};
static const char *const keys[KEYS] = {"format", "version",   "producer", "step",
                                       "epoch",  "samples",   "batch",    "workers",
                                       "seed",   "optimizer", "order"};
#define KEY_OF_CRC "crc32"
#define KEY_OF_MATH "math"       /* only where it is not f32: files without it are older, or that */
#define KEY_OF_OPTIONS "options" /* only where there are some: the program's */

struct facts {
  char text[KEYS][160];
  char math[16];       /* told, not asked for: any goes on with any */
  const char *options; /* NULL: none */
};

static const char *optimizer_name(const struct sl_optimizer *o) {
  const struct sl__optimizer *row = sl__optimizer_of(o);
  return row->saved_as ? row->saved_as : row->name;
}

/* Of all parts together. */
static int64_t whole_batch(const struct sl_loader *loader) {
  return sl_loader_batch(loader) * sl_loader_settings(loader)->num_parts;
}

/* All that says which sample comes when, and how it looks. */
static void order_text(const struct sl_loader *loader, char *text, size_t size) {
  const struct sl_loader_options *o = sl_loader_settings(loader);
  const struct sl_dataset_info *info = sl_dataset_info(sl_loader_dataset(loader));
  snprintf(text, size,
           "seed %" PRIu64 ", shuffle %d, contiguous %d, shift %d, flip %d, samples %" PRId64
           ", buckets %d",
           o->seed, o->shuffle, o->contiguous, o->shift, o->flip, info->count, info->bucket_count);
}

static void note_facts(const struct sl_trainer *t, struct facts *facts) {
  const size_t size = sizeof facts->text[0];
  int64_t batch = whole_batch(t->at.loader);
  snprintf(facts->text[KEY_FORMAT], size, "%s", FORMAT_NAME);
  snprintf(facts->text[KEY_VERSION], size, "%d", FORMAT_VERSION);
  snprintf(facts->text[KEY_PRODUCER], size, "starling");
  snprintf(facts->text[KEY_STEP], size, "%" PRId64, t->step);
  snprintf(facts->text[KEY_EPOCH], size, "%" PRId64, t->at.epoch);
  snprintf(facts->text[KEY_SAMPLES], size, "%" PRId64, t->at.index * batch);
  snprintf(facts->text[KEY_BATCH], size, "%" PRId64, batch);
  snprintf(facts->text[KEY_WORKERS], size, "%d", sl__workers(t));
  snprintf(facts->text[KEY_SEED], size, "%" PRIu64, t->model->context->seed);
  snprintf(facts->text[KEY_OPTIMIZER], size, "%s", optimizer_name(&t->optimizer));
  order_text(t->at.loader, facts->text[KEY_ORDER], size);
  snprintf(facts->math, sizeof facts->math, "%s", sl_math_name(t->grid.math));
}

static bool notes_math(const struct facts *facts) {
  return strcmp(facts->math, sl_math_name(SL_MATH_F32)) != 0;
}

/* The values, each with the 0 behind it. What else is in the header is checked by its reader and by
 * the model; a digit of these is not. */
static uint32_t facts_crc(const struct facts *facts) {
  uLong crc = crc32(0, NULL, 0);
  for (int k = 0; k < KEYS; k++)
    crc = crc32_z(crc, (const Bytef *)facts->text[k], strlen(facts->text[k]) + 1);
  if (notes_math(facts)) crc = crc32_z(crc, (const Bytef *)facts->math, strlen(facts->math) + 1);
  if (facts->options) crc = crc32_z(crc, (const Bytef *)facts->options, strlen(facts->options) + 1);
  return (uint32_t)crc;
}

static enum sl_status read_facts(const struct sl__safetensors *file, struct facts *facts) {
  const char *path = sl__safetensors_path(file);
  const char *format = sl__safetensors_metadata(file, keys[KEY_FORMAT]);
  if (!format || strcmp(format, FORMAT_NAME) != 0)
    return sl__fail(SL_BAD_FILE, "%s: is not a checkpoint; are these weights alone?", path);
  for (int k = 0; k < KEYS; k++) {
    const char *text = sl__safetensors_metadata(file, keys[k]);
    if (!text || strlen(text) >= sizeof facts->text[k])
      return sl__fail(SL_BAD_FILE, "%s: damaged: its metadata have no \"%s\"", path, keys[k]);
    snprintf(facts->text[k], sizeof facts->text[k], "%s", text);
  }
  const char *math = sl__safetensors_metadata(file, KEY_OF_MATH);
  snprintf(facts->math, sizeof facts->math, "%s", math ? math : sl_math_name(SL_MATH_F32));
  facts->options = sl__safetensors_metadata(file, KEY_OF_OPTIONS);
  return SL_OK;
}

static enum sl_status check_crc(const struct sl__safetensors *file, const struct facts *facts) {
  const char *path = sl__safetensors_path(file);
  const char *noted = sl__safetensors_metadata(file, KEY_OF_CRC);
  size_t size;
  char found[16];
  const void *data = sl__safetensors_data(file, &size);
  snprintf(found, sizeof found, "%08" PRIx32, (uint32_t)crc32_z(facts_crc(facts), data, size));
  if (noted && strcmp(noted, found) == 0) return SL_OK;
  return sl__fail(SL_BAD_FILE, "%s: damaged: its CRC-32 is %s, not %.16s; take another one", path,
                  found, noted ? noted : "noted");
}

static enum sl_status read_number(const struct sl__safetensors *file, const struct facts *facts,
                                  enum key key, int64_t least, int64_t *value) {
  const char *text = facts->text[key];
  size_t digits = strspn(text, "0123456789");
  errno = 0;
  *value = strtoll(text, NULL, 10);
  if (digits > 0 && !text[digits] && errno != ERANGE && *value >= least) return SL_OK;
  return sl__fail(SL_BAD_FILE, "%s: its %s \"%.20s\" is no number", sl__safetensors_path(file),
                  keys[key], text);
}

/* ---- saving ---- */

static uint32_t image_crc(const struct facts *facts, const struct sl__safetensors_entry *entries,
                          size_t count) {
  uLong crc = facts_crc(facts);
  for (size_t i = 0; i < count; i++) crc = crc32_z(crc, entries[i].data, entries[i].bytes);
  return (uint32_t)crc;
}

/* Keys and values, one after the other; returns the place of the next. */
static int list_facts(const struct facts *facts, const char *crc, const char **metadata) {
  int n = 0;
  for (int k = 0; k < KEYS; k++) {
    metadata[n++] = keys[k];
    metadata[n++] = facts->text[k];
  }
  metadata[n++] = KEY_OF_CRC;
  metadata[n++] = crc;
  if (notes_math(facts)) {
    metadata[n++] = KEY_OF_MATH;
    metadata[n++] = facts->math;
  }
  if (facts->options) {
    metadata[n++] = KEY_OF_OPTIONS;
    metadata[n++] = facts->options;
  }
  return n;
}

static enum sl_status write_image(const struct sl__snapshot *image, const struct facts *facts,
                                  const char *path, struct sl__file_sum *sum) {
  const char *metadata[2 * (KEYS + 3) + 1];
  char crc[16];
  size_t count = (size_t)image->count;
  struct sl__safetensors_entry *entries = sl__alloc(count, sizeof *entries, "a checkpoint");
  if (!entries) return SL_NO_MEMORY;
  for (size_t i = 0; i < count; i++) {
    const struct sl__item *item = &image->items[i];
    entries[i] = (struct sl__safetensors_entry){
        .name = item->name,
        .dtype = "F32", /* all alike: so the data lie in this order */
        .shape = item->shape,
        .data = item->values,
        .bytes = (size_t)sl_shape_count(&item->shape) * sizeof(float)};
  }
  snprintf(crc, sizeof crc, "%08" PRIx32, image_crc(facts, entries, count));
  metadata[list_facts(facts, crc, metadata)] = NULL;
  enum sl_status status = sl__safetensors_write(path, entries, count, metadata, sum);
  free(entries);
  return status;
}

/* ---- saving: the writer ---- */

/* What is being written, or was. All of it is the thread's until `over` is set. */
struct sl__saving {
  struct sl__snapshot image;
  struct facts facts;
  struct sl_save_options then;
  char *path, *options; /* copies */
  pthread_t thread;
  bool has_thread;
  bool over; /* atomic */
  struct sl_saved saved;
};

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *write_out(void *argument) {
  struct sl__saving *s = argument;
  struct sl_saved *saved = &s->saved;
  struct sl__file_sum sum = {0};
  double begun = seconds_now();
  saved->status = write_image(&s->image, &s->facts, s->path, &sum);
  saved->bytes = sum.bytes;
  saved->xxh64 = sum.xxh64;
  saved->write_s = seconds_now() - begun;
  if (saved->status == SL_OK && s->then.committed)
    saved->status = s->then.committed(s->then.user, saved);
  if (saved->status != SL_OK) snprintf(saved->message, sizeof saved->message, "%s", sl_error());
  __atomic_store_n(&s->over, true, __ATOMIC_RELEASE);
  return NULL;
}

/* Signals are for the program's own threads. One of them, SIGXFSZ, would end it where a limit on
 * files' sizes is met: blocked, the write fails instead. */
static bool begin_thread(struct sl__saving *s) {
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
  sl__snapshot_clear(&s->image);
  free(s->path);
  free(s->options);
  free(s);
}

void sl__saving_end(struct sl_trainer *t) {
  saving_free(t->saving);
  t->saving = NULL;
}

/* ---- saving ---- */

/* What one rank of a distributed training cannot do is not done by any. */
static enum sl_status share(struct sl_trainer *t, enum sl_status status) {
  return t->ranks.size ? sl_share(t->model->context, status, sl_error()) : status;
}

bool sl_trainer_save_ended(struct sl_trainer *t, struct sl_saved *saved) {
  if (!t->saving || !__atomic_load_n(&t->saving->over, __ATOMIC_ACQUIRE)) return false;
  if (saved) *saved = t->saving->saved;
  sl__saving_end(t);
  return true;
}

enum sl_status sl_trainer_save_wait(struct sl_trainer *t, struct sl_saved *saved) {
  struct sl_saved mine = {.status = SL_OK};
  if (t->saving && t->saving->has_thread) {
    while (!__atomic_load_n(&t->saving->over, __ATOMIC_ACQUIRE)) {
      sl__net_report_activity(t->model->context->net); /* the other ranks wait for this one meanwhile */
      nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    pthread_join(t->saving->thread, NULL);
    t->saving->has_thread = false;
  }
  sl_trainer_save_ended(t, &mine);
  if (saved) *saved = mine;
  if (mine.status != SL_OK) sl__fail(mine.status, "%s", mine.message);
  return share(t, mine.status);
}

static enum sl_status saving_new(struct sl_trainer *t, const char *path,
                                 const struct sl_save_options *then, struct sl__saving **saving) {
  enum sl_status status;
  struct sl__saving *s = sl__alloc(1, sizeof *s, "a checkpoint");
  if (!s) return SL_NO_MEMORY;
  if (then) s->then = *then;
  s->saved.position = sl_trainer_position(t);
  s->path = sl__strdup(path);
  if (!s->path) SL__TRY(SL_NO_MEMORY);
  s->options = s->then.options ? sl__strdup(s->then.options) : NULL;
  if (s->then.options && !s->options) SL__TRY(SL_NO_MEMORY);
  SL__TRY(sl__snapshot_new(t, t->at.index, whole_batch(t->at.loader), sl__workers(t), &s->image));
  note_facts(t, &s->facts);
  s->facts.options = s->options;
  *saving = s;
  return SL_OK;
out:
  saving_free(s);
  return status;
}

/* Only rank 0 keeps what was copied. */
static enum sl_status save(struct sl_trainer *t, const char *path,
                           const struct sl_save_options *then, bool aside) {
  enum sl_status status;
  struct sl__saving *s = NULL;
  SL__TRY(sl__trainer_drained(t));
  if (!t->at.loader)
    return sl__fail(SL_BAD_ARGUMENT, "%s: no step was made yet, so there is nothing to go on from",
                    path);
  t->save_asked = false;
  SL__TRY(sl_trainer_save_wait(t, NULL));
  SL__TRY(sl__model_shards_settle(t->kvstore));
  status = saving_new(t, path, then, &s);
  SL__TRY(share(t, status));
  status = share(t, sl__snapshot_from_trainer(t, path, &s->image));
  if (status != SL_OK || t->ranks.rank) goto out;
  t->saving = s;
  if (!aside || !begin_thread(s)) write_out(s);
  s = NULL;
out:
  saving_free(s);
  return status;
}

enum sl_status sl_trainer_save_begin(struct sl_trainer *t, const char *path,
                                     const struct sl_save_options *then) {
  return save(t, path, then, true);
}

enum sl_status sl_trainer_save(struct sl_trainer *t, const char *path) {
  enum sl_status status = save(t, path, NULL, false);
  return status == SL_OK ? sl_trainer_save_wait(t, NULL) : status;
}

/* ---- loading ---- */

static enum sl_status open_checkpoint(const char *path, struct sl__safetensors **file,
                                      struct facts *facts) {
  enum sl_status status;
  int64_t version;
  SL__TRY(sl__safetensors_open(path, file));
  SL__TRY(read_facts(*file, facts));
  SL__TRY(read_number(*file, facts, KEY_VERSION, 1, &version));
  if (version > FORMAT_VERSION)
    return sl__fail(SL_UNSUPPORTED, "%s: is of version %" PRId64 ", this library reads %d", path,
                    version, FORMAT_VERSION);
  SL__TRY(check_crc(*file, facts));
out:
  return status;
}

static void tell_math(const struct sl_trainer *t, const char *path, const struct facts *facts) {
  const char *math = sl_math_name(t->grid.math);
  if (strcmp(facts->math, math) != 0)
    sl__log(t->model->context, SL_LOG_WARNING, "%s: was trained with math %s, goes on with %s",
            path, facts->math, math);
}

static enum sl_status check_facts(const struct sl_trainer *t, const struct sl_loader *loader,
                                  const char *path, const struct facts *facts) {
  char text[sizeof facts->text[0]];
  const char *optimizer = optimizer_name(&t->optimizer);
  if (strcmp(facts->text[KEY_OPTIMIZER], optimizer) != 0)
    return sl__fail(SL_BAD_ARGUMENT, "%s: was trained by %s, this trainer's optimizer is %s", path,
                    facts->text[KEY_OPTIMIZER], optimizer);
  snprintf(text, sizeof text, "%" PRIu64, t->model->context->seed);
  if (strcmp(facts->text[KEY_SEED], text) != 0)
    return sl__fail(SL_BAD_ARGUMENT, "%s: was trained with seed %s, this run has %s", path,
                    facts->text[KEY_SEED], text);
  order_text(loader, text, sizeof text);
  if (strcmp(facts->text[KEY_ORDER], text) != 0)
    return sl__fail(SL_BAD_ARGUMENT, "%s: its data came in another order (%s), the loader has (%s)",
                    path, facts->text[KEY_ORDER], text);
  return SL_OK;
}

/* Where the loader has to go on. */
static enum sl_status find_place(const struct sl__safetensors *file, const struct facts *facts,
                                 struct sl_loader *loader, struct sl_position *place) {
  enum sl_status status;
  int64_t samples, batch, own = whole_batch(loader);
  bool by_sample = !sl_loader_settings(loader)->contiguous &&
                   !sl_dataset_info(sl_loader_dataset(loader))->bucket_count;
  SL__TRY(read_number(file, facts, KEY_STEP, 1, &place->step));
  SL__TRY(read_number(file, facts, KEY_EPOCH, 0, &place->epoch));
  SL__TRY(read_number(file, facts, KEY_SAMPLES, 0, &samples));
  SL__TRY(read_number(file, facts, KEY_BATCH, 1, &batch));
  if (samples && batch != own && !by_sample)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: is from the midst of an epoch in batches of %" PRId64
                    ", the loader's are "
                    "of %" PRId64 "; texts and buckets need the same",
                    sl__safetensors_path(file), batch, own);
  place->index = samples / own;
out:
  return status;
}

static const struct sl__item *find_item(const struct sl__snapshot *image, const char *name) {
  for (int i = 0; i < image->count; i++)
    if (!strcmp(image->items[i].name, name)) return &image->items[i];
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

/* Of another model: the first parameter that differs, there and here. */
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

static enum sl_status image_from_file(const struct sl_model *model,
                                      const struct sl__safetensors *file,
                                      struct sl__snapshot *image) {
  enum sl_status status = SL_OK;
  const char *path = sl__safetensors_path(file);
  SL__TRY(check_model(model, file));
  for (int i = 0; i < image->count; i++) {
    const struct sl__item *item = &image->items[i];
    if (!sl__safetensors_find(file, item->name))
      return sl__fail(SL_BAD_ARGUMENT, "%s: has no \"%s\"; it is of another trainer", path,
                      item->name);
    SL__TRY(sl__safetensors_floats(file, item->name, &item->shape, item->values));
  }
  for (size_t i = 0; i < sl__safetensors_count(file); i++) {
    const char *name = sl__safetensors_at(file, i)->name;
    if (!find_item(image, name))
      return sl__fail(
          SL_BAD_ARGUMENT,
          "%s: has a \"%.60s\", which belongs to nothing here; it is of another trainer", path,
          name);
  }
  SL__TRY(sl__copy_check(&image->weights, model, path));
out:
  return status;
}

struct place {
  struct sl_position position;
  int64_t workers; /* that there were */
};

/* What the file says of itself, and where it goes on. */
static enum sl_status read_head(struct sl_trainer *t, struct sl_loader *loader, const char *path,
                                struct sl__safetensors **file, struct place *place) {
  enum sl_status status;
  struct facts facts;
  SL__TRY(open_checkpoint(path, file, &facts));
  SL__TRY(check_facts(t, loader, path, &facts));
  SL__TRY(find_place(*file, &facts, loader, &place->position));
  SL__TRY(read_number(*file, &facts, KEY_WORKERS, 1, &place->workers));
  if (place->workers > 1000000)
    return sl__fail(SL_BAD_FILE, "%s: says it is of %" PRId64 " workers", path, place->workers);
  tell_math(t, path, &facts);
  free(t->loaded_options);
  t->loaded_options = facts.options ? sl__strdup(facts.options) : NULL;
  if (facts.options && !t->loaded_options) status = SL_NO_MEMORY;
out:
  return status;
}

const char *sl_trainer_loaded_options(const struct sl_trainer *t) { return t->loaded_options; }

/* Rank 0 reads; what it has read, or what is wrong with it, all ranks get. */
static enum sl_status read_image(struct sl_trainer *t, struct sl_loader *loader, const char *path,
                                 struct place *place, struct sl__snapshot *image) {
  struct sl_context *context = t->model->context;
  struct sl__safetensors *file = NULL;
  enum sl_status status = SL_OK;
  if (!t->ranks.rank) status = read_head(t, loader, path, &file, place);
  SL__TRY(share(t, status));
  if (t->ranks.size > 1) SL__TRY(sl_broadcast(context, place, sizeof *place));
  status =
      sl__snapshot_new(t, place->position.index, whole_batch(loader), (int)place->workers, image);
  if (status == SL_OK && file) status = image_from_file(t->model, file, image);
  SL__TRY(share(t, status));
  for (int i = 0; i < image->count && t->ranks.size > 1; i++)
    SL__TRY(sl_broadcast(context, image->items[i].values,
                         (size_t)sl_shape_count(&image->items[i].shape) * sizeof(float)));
out:
  sl__safetensors_close(file);
  return status;
}

enum sl_status sl_trainer_load(struct sl_trainer *t, struct sl_loader *loader, const char *path) {
  enum sl_status status;
  struct sl__snapshot image = {0};
  struct place place = {0};
  struct sl__plan *plan;
  SL__TRY(sl__trainer_drained(t));
  SL__TRY(sl_trainer_save_wait(t, NULL)); /* it may be the one to be read */
  SL__TRY(sl__model_shards_settle(t->kvstore));
  SL__TRY(read_image(t, loader, path, &place, &image));
  status = sl__carried_state_plan(t, &image, &plan);
  if (status == SL_OK) /* the last that can refuse */
    status = sl_loader_seek_batch(loader, place.position.epoch, place.position.index);
  SL__TRY(share(t, status));
  SL__TRY(sl__snapshot_to_trainer(t, plan, &image));
  t->step = place.position.step;
  t->at = (struct sl__reached){
      .loader = loader, .epoch = place.position.epoch, .index = place.position.index};
out:
  sl__snapshot_clear(&image);
  return status;
}
