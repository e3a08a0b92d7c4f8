/* Checkpoints: a trainer's whole state as one safetensors file, and back. The file is mirrored by
 * an image in host memory, a list of items: saving fills it from the trainer and writes it out,
 * loading fills it from the file and, once all is checked, writes it into the trainer. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/log.h"
#include "core/net.h"
#include "core/safetensors.h"
#include "parallel/trainer.h"

#define FORMAT_NAME "starling checkpoint"
#define FORMAT_VERSION 1

/* ---- the image ---- */

/* One tensor of the file. */
struct item {
  char name[128];
  struct sl_shape shape;
  float *values; /* in the image's blocks */
};

struct image {
  struct sl__copy weights;
  float **states; /* the optimizer's k-th of layer l's block at 2 l + k; NULL where there is none */
  float **carried;   /* [layers], [rows, ...] */
  float **residuals; /* of what worker w kept back of layer l's gradient, at l * workers + w */
  int layers, workers;
  int64_t rows; /* of the carried state; 0: none is carried over the place in the data */
  struct item *items;
  int count;
};

static bool is_carried(const struct sl_trainer *t, const struct image *image, int layer) {
  return image->rows && t->model->layers[layer].state.ndim > 0;
}

static struct item *add_item(struct image *image, const struct sl_shape *shape, float *values) {
  struct item *item = &image->items[image->count++];
  item->shape = *shape;
  item->values = values;
  return item;
}

static void list_weights(const struct sl_model *model, struct image *image) {
  for (int i = 0; i < sl_model_parameter_count(model); i++) {
    struct sl_shape shape;
    const char *name = sl_model_parameter(model, i, &shape);
    struct item *item = add_item(image, &shape, sl__copy_values(&image->weights, model, i));
    snprintf(item->name, sizeof item->name, "%s", name);
  }
}

static enum sl_status list_states(const struct sl_trainer *t, struct image *image, int layer) {
  const struct sl__block *block = &t->model->layers[layer].params;
  for (int k = 0; block->total && k < sl__kvstore_states(&t->optimizer); k++) {
    float *values = sl__alloc((size_t)block->total, sizeof *values, "a checkpoint");
    if (!values) return SL_NO_MEMORY;
    image->states[2 * layer + k] = values;
    for (int p = 0; p < block->count; p++) {
      struct item *item = add_item(image, &block->part[p].shape, values + block->part[p].offset);
      snprintf(item->name, sizeof item->name, "optimizer.%s.%s",
               sl__kvstore_state_name(&t->optimizer, k), block->part[p].name);
    }
  }
  return SL_OK;
}

static enum sl_status list_carried(const struct sl_trainer *t, struct image *image, int layer) {
  const struct sl__layer *of = &t->model->layers[layer];
  if (!is_carried(t, image, layer)) return SL_OK;
  struct sl_shape shape = {.ndim = of->state.ndim + 1, .dim = {image->rows}};
  for (int i = 0; i < of->state.ndim; i++) shape.dim[i + 1] = of->state.dim[i];
  image->carried[layer] = sl__alloc((size_t)sl_shape_count(&shape), sizeof(float), "a checkpoint");
  if (!image->carried[layer]) return SL_NO_MEMORY;
  struct item *item = add_item(image, &shape, image->carried[layer]);
  snprintf(item->name, sizeof item->name, "state.%s", of->name);
  return SL_OK;
}

static enum sl_status list_residuals(const struct sl_trainer *t, struct image *image, int layer) {
  const struct sl__block *block = &t->model->layers[layer].params;
  for (int w = 0; block->total && w < image->workers; w++) {
    float *values = sl__alloc((size_t)block->total, sizeof *values, "a checkpoint");
    if (!values) return SL_NO_MEMORY;
    image->residuals[layer * image->workers + w] = values;
    struct item *item = add_item(image, &SL_SHAPE(block->total), values);
    snprintf(item->name, sizeof item->name, "residual.%d.%s", w, t->model->layers[layer].name);
  }
  return SL_OK;
}

static int workers_of(const struct sl_trainer *t) { return t->ranks.size ? t->ranks.workers : 1; }

/* With room for everything, still empty. index: of the batch to come; of so many rows, by so many
 * workers. */
static enum sl_status image_new(const struct sl_trainer *t, int64_t index, int64_t rows,
                                int workers, struct image *image) {
  enum sl_status status = SL_NO_MEMORY;
  int layers = t->model->count;
  /* an entry of the state dict may have two states, and a layer may carry one on */
  bool kept_back = sl__kvstore_has_residual(t->kvstore);
  *image = (struct image){.layers = layers, .workers = kept_back ? workers : 0};
  size_t residuals = (size_t)layers * (size_t)image->workers;
  size_t most = 3 * (size_t)sl_model_parameter_count(t->model) + (size_t)layers + residuals;
  if (t->carry_state && t->stateful && index > 0) image->rows = rows;
  image->states = sl__alloc(2 * (size_t)layers, sizeof *image->states, "a checkpoint");
  image->carried = sl__alloc((size_t)layers, sizeof *image->carried, "a checkpoint");
  image->items = sl__alloc(most, sizeof *image->items, "a checkpoint");
  image->residuals = sl__alloc(residuals, sizeof *image->residuals, "a checkpoint");
  if (!image->states || !image->carried || !image->items || !image->residuals) goto out;
  SL_TRY(sl__copy_new(t->model, &image->weights));
  list_weights(t->model, image);
  for (int l = 0; l < layers; l++) SL_TRY(list_states(t, image, l));
  for (int l = 0; l < layers; l++) SL_TRY(list_carried(t, image, l));
  for (int l = 0; l < layers; l++) SL_TRY(list_residuals(t, image, l));
out:
  return status;
}

static void image_clear(struct image *image) {
  for (int i = 0; image->states && i < 2 * image->layers; i++) free(image->states[i]);
  for (int l = 0; image->carried && l < image->layers; l++) free(image->carried[l]);
  for (int i = 0; image->residuals && i < image->layers * image->workers; i++)
    free(image->residuals[i]);
  free(image->residuals);
  free(image->states);
  free(image->carried);
  free(image->items);
  sl__copy_free(&image->weights);
}

/* ---- between the image and the trainer ---- */

/* The slices' states, one after the other, are the batch's, and the workers' batches one after the
 * other that of all: whatever the cut. */
static enum sl_status move_carried(const struct sl_trainer *t, const struct sl__plan *plan,
                                   int layer, float *values, bool into_plan) {
  int64_t width = sl_shape_count(&plan->model->layers[layer].state);
  int64_t first = sl__worker(&t->ranks) * plan->batch;
  enum sl_status status = SL_OK;
  for (int s = 0; s < plan->count; s++) {
    const struct sl__slice *slice = &plan->slices[s];
    float *rows = values + (first + slice->first_row) * width;
    if (into_plan)
      SL_TRY(sl__tensor_write(slice->state[layer], rows));
    else
      SL_TRY(sl__tensor_read(slice->state[layer], rows));
  }
out:
  return status;
}

/* Rank 0 gets the other workers' rows. */
static enum sl_status gather_carried(struct sl_trainer *t, const struct image *image, int layer) {
  struct sl__net *net = t->model->context->net;
  enum sl_status status = SL_OK;
  int members = sl__members(&t->ranks);
  int member = sl__grid_member(&t->grid, layer), worker = sl__worker(&t->ranks);
  if (t->ranks.size < 2 || !sl__is_worker(&t->ranks)) return SL_OK;
  int64_t width = sl_shape_count(&t->model->layers[layer].state);
  int64_t own = image->rows / t->ranks.workers * width;
  float *values = image->carried[layer];
  size_t bytes = (size_t)own * sizeof *values;
  if (t->ranks.rank)
    return sl__grid_is_here(&t->grid, layer) ? sl__net_send(net, 0, values + worker * own, bytes)
                                             : SL_OK;
  for (int w = member ? 0 : 1; w < t->ranks.workers; w++)
    SL_TRY(sl__net_receive(net, w * members + member, values + w * own, bytes));
out:
  return status;
}

static enum sl_status read_residuals(struct sl_trainer *t, const struct image *image) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < image->layers * image->workers; i++)
    if (image->residuals[i])
      SL_TRY(sl__kvstore_read_residual(t->kvstore, i / image->workers, i % image->workers,
                                       image->residuals[i]));
out:
  return status;
}

/* Each worker's own; where they are fewer or more now, the first one gets the sum of all: nothing
 * of any gradient is lost. */
static enum sl_status write_residuals(struct sl_trainer *t, const struct image *image) {
  enum sl_status status = SL_OK;
  bool same = image->workers == workers_of(t);
  int worker = sl__worker(&t->ranks);
  for (int l = 0; l < image->layers && image->workers; l++) {
    float **of = &image->residuals[l * image->workers];
    int64_t total = t->model->layers[l].params.total;
    for (int w = 1; w < image->workers && total && !same; w++)
      for (int64_t i = 0; i < total; i++) of[0][i] += of[w][i];
    for (int64_t i = 0; i < total && !same && worker; i++) of[0][i] = 0;
    if (!total || !sl__is_worker(&t->ranks)) continue;
    SL_TRY(sl__kvstore_write_residual(t->kvstore, l, of[same ? worker : 0]));
  }
out:
  return status;
}

static enum sl_status carrying_plan(struct sl_trainer *t, const struct image *image,
                                    struct sl__plan **plan) {
  struct sl_batch batch = {.batch = image->rows / (t->ranks.size ? t->ranks.workers : 1)};
  if (t->model->takes_tokens) batch.steps = t->model->sample.dim[0];
  *plan = NULL;
  if (!image->rows || (t->ranks.size && !sl__is_worker(&t->ranks))) return SL_OK;
  return sl__trainer_plan(t, &batch, true, plan);
}

static enum sl_status image_from_trainer(struct sl_trainer *t, const char *path,
                                         struct image *image) {
  enum sl_status status;
  struct sl__plan *plan;
  SL_TRY(carrying_plan(t, image, &plan));
  SL_TRY(sl__trainer_fetch_weights(t));
  SL_TRY(sl__copy_read(t->model, &image->weights));
  SL_TRY(sl__copy_check(&image->weights, t->model, path));
  for (int i = 0; i < 2 * image->layers; i++)
    if (image->states[i])
      SL_TRY(sl__kvstore_read_state(t->kvstore, i / 2, i % 2, image->states[i]));
  for (int l = 0; l < image->layers; l++)
    if (image->carried[l]) {
      if (plan && sl__grid_is_here(&t->grid, l))
        SL_TRY(move_carried(t, plan, l, image->carried[l], false));
      SL_TRY(gather_carried(t, image, l));
    }
  SL_TRY(read_residuals(t, image));
out:
  return status;
}

static enum sl_status image_to_trainer(struct sl_trainer *t, struct sl__plan *plan,
                                       const struct image *image) {
  enum sl_status status;
  SL_TRY(sl__copy_write(t->model, &image->weights));
  for (int i = 0; i < 2 * image->layers; i++)
    if (image->states[i])
      SL_TRY(sl__kvstore_write_state(t->kvstore, i / 2, i % 2, image->states[i]));
  for (int l = 0; l < image->layers; l++)
    if (image->carried[l] && plan && sl__grid_is_here(&t->grid, l))
      SL_TRY(move_carried(t, plan, l, image->carried[l], true));
  if (plan) plan->has_state = true;
  SL_TRY(write_residuals(t, image));
out:
  return status;
}

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
#define KEY_OF_MATH "math" /* only where it is not f32: files without it are older, or that */

struct facts {
  char text[KEYS][160];
  char math[16]; /* told, not asked for: any goes on with any */
};

static const char *optimizer_name(const struct sl_optimizer *o) {
  if (o->kind == SL_SGD) return o->momentum > 0 ? "sgd with momentum" : "sgd";
  return o->kind == SL_ADAM ? "adam" : "adamw";
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
  snprintf(facts->text[KEY_WORKERS], size, "%d", workers_of(t));
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
  return (uint32_t)crc;
}

static enum sl_status read_facts(const struct sl_safetensors *file, struct facts *facts) {
  const char *path = sl__safetensors_path(file);
  const char *format = sl__safetensors_metadata(file, keys[KEY_FORMAT]);
  if (!format || strcmp(format, FORMAT_NAME) != 0)
    return sl_fail(SL_BAD_FILE, "%s: is not a checkpoint; are these weights alone?", path);
  for (int k = 0; k < KEYS; k++) {
    const char *text = sl__safetensors_metadata(file, keys[k]);
    if (!text || strlen(text) >= sizeof facts->text[k])
      return sl_fail(SL_BAD_FILE, "%s: damaged: its metadata have no \"%s\"", path, keys[k]);
    snprintf(facts->text[k], sizeof facts->text[k], "%s", text);
  }
  const char *math = sl__safetensors_metadata(file, KEY_OF_MATH);
  snprintf(facts->math, sizeof facts->math, "%s", math ? math : sl_math_name(SL_MATH_F32));
  return SL_OK;
}

static enum sl_status check_crc(const struct sl_safetensors *file, const struct facts *facts) {
  const char *path = sl__safetensors_path(file);
  const char *noted = sl__safetensors_metadata(file, KEY_OF_CRC);
  size_t size;
  char found[16];
  const void *data = sl__safetensors_data(file, &size);
  snprintf(found, sizeof found, "%08" PRIx32, (uint32_t)crc32_z(facts_crc(facts), data, size));
  if (noted && strcmp(noted, found) == 0) return SL_OK;
  return sl_fail(SL_BAD_FILE, "%s: damaged: its CRC-32 is %s, not %.16s; take another one", path,
                 found, noted ? noted : "noted");
}

static enum sl_status read_number(const struct sl_safetensors *file, const struct facts *facts,
                                  enum key key, int64_t least, int64_t *value) {
  const char *text = facts->text[key];
  size_t digits = strspn(text, "0123456789");
  errno = 0;
  *value = strtoll(text, NULL, 10);
  if (digits > 0 && !text[digits] && errno != ERANGE && *value >= least) return SL_OK;
  return sl_fail(SL_BAD_FILE, "%s: its %s \"%.20s\" is no number", sl__safetensors_path(file),
                 keys[key], text);
}

/* ---- saving ---- */

static uint32_t image_crc(const struct facts *facts, const struct sl_safetensors_entry *entries,
                          size_t count) {
  uLong crc = facts_crc(facts);
  for (size_t i = 0; i < count; i++) crc = crc32_z(crc, entries[i].data, entries[i].bytes);
  return (uint32_t)crc;
}

static enum sl_status write_image(const struct image *image, const struct facts *facts,
                                  const char *path) {
  const char *metadata[2 * (KEYS + 2) + 1] = {NULL};
  char crc[16];
  size_t count = (size_t)image->count;
  struct sl_safetensors_entry *entries = sl__alloc(count, sizeof *entries, "a checkpoint");
  if (!entries) return SL_NO_MEMORY;
  for (size_t i = 0; i < count; i++) {
    const struct item *item = &image->items[i];
    entries[i] = (struct sl_safetensors_entry){
        .name = item->name,
        .dtype = "F32", /* all alike: so the data lie in this order */
        .shape = item->shape,
        .data = item->values,
        .bytes = (size_t)sl_shape_count(&item->shape) * sizeof(float)};
  }
  for (int k = 0; k < KEYS; k++) {
    metadata[2 * k] = keys[k];
    metadata[2 * k + 1] = facts->text[k];
  }
  snprintf(crc, sizeof crc, "%08" PRIx32, image_crc(facts, entries, count));
  metadata[2 * KEYS] = KEY_OF_CRC;
  metadata[2 * KEYS + 1] = crc;
  if (notes_math(facts)) {
    metadata[2 * KEYS + 2] = KEY_OF_MATH;
    metadata[2 * KEYS + 3] = facts->math;
  }
  enum sl_status status = sl__safetensors_write(path, entries, count, metadata);
  free(entries);
  return status;
}

/* What one rank of a distributed training cannot do is not done by any. */
static enum sl_status share(struct sl_trainer *t, enum sl_status status) {
  return t->ranks.size ? sl_share(t->model->context, status, sl_error()) : status;
}

enum sl_status sl_trainer_save(struct sl_trainer *t, const char *path) {
  enum sl_status status;
  struct image image = {0};
  struct facts facts;
  SL_TRY(sl__trainer_drained(t));
  SL_TRY(sl__kvstore_settle(t->kvstore));
  if (!t->at.loader)
    return sl_fail(SL_BAD_ARGUMENT, "%s: no step was made yet, so there is nothing to go on from",
                   path);
  status = image_new(t, t->at.index, whole_batch(t->at.loader), workers_of(t), &image);
  SL_TRY(share(t, status));
  status = image_from_trainer(t, path, &image);
  note_facts(t, &facts);
  if (!t->ranks.rank && status == SL_OK) status = write_image(&image, &facts, path);
  status = share(t, status);
out:
  image_clear(&image);
  return status;
}

/* ---- loading ---- */

static enum sl_status open_checkpoint(const char *path, struct sl_safetensors **file,
                                      struct facts *facts) {
  enum sl_status status;
  int64_t version;
  SL_TRY(sl__safetensors_open(path, file));
  SL_TRY(read_facts(*file, facts));
  SL_TRY(read_number(*file, facts, KEY_VERSION, 1, &version));
  if (version > FORMAT_VERSION)
    return sl_fail(SL_UNSUPPORTED, "%s: is of version %" PRId64 ", this library reads %d", path,
                   version, FORMAT_VERSION);
  SL_TRY(check_crc(*file, facts));
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
    return sl_fail(SL_BAD_ARGUMENT, "%s: was trained by %s, this trainer's optimizer is %s", path,
                   facts->text[KEY_OPTIMIZER], optimizer);
  snprintf(text, sizeof text, "%" PRIu64, t->model->context->seed);
  if (strcmp(facts->text[KEY_SEED], text) != 0)
    return sl_fail(SL_BAD_ARGUMENT, "%s: was trained with seed %s, this run has %s", path,
                   facts->text[KEY_SEED], text);
  order_text(loader, text, sizeof text);
  if (strcmp(facts->text[KEY_ORDER], text) != 0)
    return sl_fail(SL_BAD_ARGUMENT, "%s: its data came in another order (%s), the loader has (%s)",
                   path, facts->text[KEY_ORDER], text);
  return SL_OK;
}

/* Where the loader has to go on. */
static enum sl_status find_place(const struct sl_safetensors *file, const struct facts *facts,
                                 struct sl_loader *loader, struct sl_position *place) {
  enum sl_status status;
  int64_t samples, batch, own = whole_batch(loader);
  bool by_sample = !sl_loader_settings(loader)->contiguous &&
                   !sl_dataset_info(sl_loader_dataset(loader))->bucket_count;
  SL_TRY(read_number(file, facts, KEY_STEP, 1, &place->step));
  SL_TRY(read_number(file, facts, KEY_EPOCH, 0, &place->epoch));
  SL_TRY(read_number(file, facts, KEY_SAMPLES, 0, &samples));
  SL_TRY(read_number(file, facts, KEY_BATCH, 1, &batch));
  if (samples && batch != own && !by_sample)
    return sl_fail(SL_BAD_ARGUMENT,
                   "%s: is from the midst of an epoch in batches of %" PRId64
                   ", the loader's are "
                   "of %" PRId64 "; texts and buckets need the same",
                   sl__safetensors_path(file), batch, own);
  place->index = samples / own;
out:
  return status;
}

static const struct item *find_item(const struct image *image, const char *name) {
  for (int i = 0; i < image->count; i++)
    if (!strcmp(image->items[i].name, name)) return &image->items[i];
  return NULL;
}

static enum sl_status image_from_file(const struct sl_model *model,
                                      const struct sl_safetensors *file, struct image *image) {
  enum sl_status status = SL_OK;
  const char *path = sl__safetensors_path(file);
  for (int i = 0; i < image->count; i++) {
    const struct item *item = &image->items[i];
    if (!sl__safetensors_find(file, item->name))
      return sl_fail(SL_BAD_ARGUMENT, "%s: has no \"%s\"; it is of another model or trainer", path,
                     item->name);
    SL_TRY(sl__safetensors_floats(file, item->name, &item->shape, item->values));
  }
  for (size_t i = 0; i < sl__safetensors_count(file); i++) {
    const char *name = sl__safetensors_at(file, i)->name;
    if (!find_item(image, name))
      return sl_fail(
          SL_BAD_ARGUMENT,
          "%s: has a \"%.60s\", which belongs to nothing here; it is of another model or "
          "trainer",
          path, name);
  }
  SL_TRY(sl__copy_check(&image->weights, model, path));
out:
  return status;
}

struct place {
  struct sl_position position;
  int64_t workers; /* that there were */
};

/* What the file says of itself, and where it goes on. */
static enum sl_status read_head(struct sl_trainer *t, struct sl_loader *loader, const char *path,
                                struct sl_safetensors **file, struct place *place) {
  enum sl_status status;
  struct facts facts;
  SL_TRY(open_checkpoint(path, file, &facts));
  SL_TRY(check_facts(t, loader, path, &facts));
  SL_TRY(find_place(*file, &facts, loader, &place->position));
  SL_TRY(read_number(*file, &facts, KEY_WORKERS, 1, &place->workers));
  if (place->workers > 1000000)
    return sl_fail(SL_BAD_FILE, "%s: says it is of %" PRId64 " workers", path, place->workers);
  tell_math(t, path, &facts);
out:
  return status;
}

/* Rank 0 reads; what it has read, or what is wrong with it, all ranks get. */
static enum sl_status read_image(struct sl_trainer *t, struct sl_loader *loader, const char *path,
                                 struct place *place, struct image *image) {
  struct sl_context *context = t->model->context;
  struct sl_safetensors *file = NULL;
  enum sl_status status = SL_OK;
  if (!t->ranks.rank) status = read_head(t, loader, path, &file, place);
  SL_TRY(share(t, status));
  if (t->ranks.size > 1) SL_TRY(sl_broadcast(context, place, sizeof *place));
  status = image_new(t, place->position.index, whole_batch(loader), (int)place->workers, image);
  if (status == SL_OK && file) status = image_from_file(t->model, file, image);
  SL_TRY(share(t, status));
  for (int i = 0; i < image->count && t->ranks.size > 1; i++)
    SL_TRY(sl_broadcast(context, image->items[i].values,
                        (size_t)sl_shape_count(&image->items[i].shape) * sizeof(float)));
out:
  sl__safetensors_close(file);
  return status;
}

enum sl_status sl_trainer_load(struct sl_trainer *t, struct sl_loader *loader, const char *path) {
  enum sl_status status;
  struct image image = {0};
  struct place place = {0};
  struct sl__plan *plan;
  SL_TRY(sl__trainer_drained(t));
  SL_TRY(sl__kvstore_settle(t->kvstore));
  SL_TRY(read_image(t, loader, path, &place, &image));
  status = carrying_plan(t, &image, &plan);
  if (status == SL_OK) /* the last that can refuse */
    status = sl_loader_seek_batch(loader, place.position.epoch, place.position.index);
  SL_TRY(share(t, status));
  SL_TRY(image_to_trainer(t, plan, &image));
  t->step = place.position.step;
  t->at = (struct sl__reached){
      .loader = loader, .epoch = place.position.epoch, .index = place.position.index};
out:
  image_clear(&image);
  return status;
}
