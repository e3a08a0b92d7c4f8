/* How fast loaders read: JSON lines, the parts of each ratio in turns.
 *
 * "bench_loader pictures [OPTIONS]" reads a folder of JPEGs by the loader alone, beside
 * libjpeg-turbo that decodes the same files on as many threads.
 *
 * "bench_loader train [OPTIONS]" trains ResNet-20 on that folder, beside the same from memory.
 *
 * "bench_loader array [OPTIONS]" reads an .npy file that is not in memory, beside read() of it; in
 * random order beside threads, too, that read its rows in random order past the system's cache: the
 * disk's own rate for such pieces.
 *
 * - rate: pictures, or megabytes, a second
 * - cpu_us: this process's processor time a picture (or megabyte), in microseconds
 * - ratio: the median over the rounds of rate over its peer's
 * - cpu_ratio: of the peer's cpu_us over cpu_us, which other programs disturb less
 * - foreign_cpu: share of the machine's time that other programs took
 *
 * Files are made in --folder, and stay there for the next time. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <starling.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/pictures.h"
#include "core/base/random.h"
#include "examples/resnet_model.h"

enum { MOST_ROUNDS = 100, ROW = 3 * 64 * 64, DISK_THREADS = 8 };

struct bench {
  const char *mode, *folder;
  int64_t pictures, steps, batch, megabytes;
  int side, size, rounds, threads;
  bool shuffle;
  char photos[4096]; /* the folder of the pictures */
};

static const struct argp_option options[] = {
    {"folder", 'f', "DIR", 0, "Where the files are, or are made (default /var/tmp/starling-loader)",
     0},
    {"pictures", 'p', "N", 0, "Their number (default 10000)", 0},
    {"side", 's', "N", 0, "Their height and width (default 128)", 0},
    {"size", 'z', "N", 0, "Resize to this (default: as they are)", 0},
    {"threads", 't', "N", 0, "Threads of the loader and of its peer (default 1)", 0},
    {"rounds", 'r', "N", 0, "Rounds (default 3)", 0},
    {"steps", 'n', "N", 0, "train: steps a round (default 10)", 0},
    {"batch", 'b', "N", 0, "Samples a batch (default 32)", 0},
    {"megabytes", 'm', "N", 0, "array: size of the file (default 1000)", 0},
    {"shuffle", 'x', NULL, 0, "In random order", 0},
    {0}};

static error_t parse(int key, char *text, struct argp_state *state) {
  struct bench *b = state->input;
  int64_t number = text && key != 'f' && key != ARGP_KEY_ARG ? strtoll(text, NULL, 10) : 1;
  if (number < 1) argp_error(state, "%s: must be a number from 1", text);
  switch (key) {
    case 'f': b->folder = text; return 0;
    case 'p': b->pictures = number; return 0;
    case 's': b->side = (int)number; return 0;
    case 'z': b->size = (int)number; return 0;
    case 't': b->threads = (int)number; return 0;
    case 'r': b->rounds = number < MOST_ROUNDS ? (int)number : MOST_ROUNDS; return 0;
    case 'n': b->steps = number; return 0;
    case 'b': b->batch = number; return 0;
    case 'm': b->megabytes = number; return 0;
    case 'x': b->shuffle = true; return 0;
    case ARGP_KEY_ARG: b->mode = text; return 0;
    case ARGP_KEY_NO_ARGS: argp_usage(state); return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

static int fail(const char *what) {
  fprintf(stderr, "bench_loader: %s\n", what);
  return 1;
}

/* ---- measuring ---- */

/* A run of something: its rate, and the processor time of a unit. */
struct run {
  struct sl__cpu_time begin;
  double rate, cpu_us;
};

static void begin(struct run *run) { run->begin = sl__cpu_time_now(); }

static void end(struct run *run, const char *what, int round, double units) {
  struct sl__cpu_time now = sl__cpu_time_now();
  run->rate = units / (now.wall - run->begin.wall);
  run->cpu_us = 1e6 * (now.own - run->begin.own) / units;
  bench_print(json_pack("{s:s, s:i, s:f, s:f, s:f}", "what", what, "round", round + 1, "rate",
                        run->rate, "cpu_us", run->cpu_us, "foreign_cpu",
                        sl__foreign_cpu(&run->begin)));
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, ascending);
  return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Runs of two in turns: those of the peer and ours. */
static int print_ratio(const char *what, const struct run (*runs)[2], int rounds) {
  double rates[MOST_ROUNDS], cpu[MOST_ROUNDS];
  for (int r = 0; r < rounds; r++) {
    rates[r] = runs[r][1].rate / runs[r][0].rate;
    cpu[r] = runs[r][0].cpu_us / runs[r][1].cpu_us;
  }
  return bench_print(json_pack("{s:s, s:f, s:f}", "what", what, "ratio", median(rates, rounds),
                               "cpu_ratio", median(cpu, rounds)));
}

/* One epoch of a loader, and nothing else. */
static enum sl_status read_epoch(const struct sl_dataset *set, const struct bench *b) {
  struct sl_loader *loader;
  struct sl_batch batch;
  const struct sl_loader_options o = {
      .batch = b->batch, .readers = b->threads, .shuffle = b->shuffle, .seed = 1};
  enum sl_status status = sl_loader_new(set, &o, &loader);
  if (status != SL_OK) return status;
  for (int64_t i = sl_loader_length(loader); i > 0 && status == SL_OK; i--) {
    status = sl_loader_next(loader, &batch);
    if (status == SL_OK) sl_loader_recycle(loader, batch.slot);
  }
  sl_loader_free(loader);
  return status;
}

/* ---- pictures ---- */

/* Nearly all of them are the training part. */
static enum sl_status open_pictures(const struct bench *b, struct sl_dataset **set) {
  const struct sl_reader_options o = {.validation = "0.0001", .height = b->size, .width = b->size};
  return sl_dataset_read(b->photos, &o, true, set);
}

static int bench_pictures(const struct bench *b) {
  struct run runs[MOST_ROUNDS][2];
  struct sl_dataset *set;
  if (open_pictures(b, &set) != SL_OK) return fail(sl_error());
  enum sl_status status = SL_OK;
  for (int r = 0; r < b->rounds && status == SL_OK; r++) {
    begin(&runs[r][0]);
    if (pictures_decode(b->photos, b->pictures, b->threads)) return fail("a picture is unreadable");
    end(&runs[r][0], "libjpeg", r, (double)b->pictures);
    begin(&runs[r][1]);
    status = read_epoch(set, b);
    end(&runs[r][1], "loader", r, (double)sl_dataset_info(set)->count);
  }
  sl_dataset_free(set);
  return status == SL_OK ? print_ratio("loader / libjpeg", runs, b->rounds) : fail(sl_error());
}

/* ---- a training ---- */

/* The same pictures as bytes in memory. */
static enum sl_status keep_pictures(const struct sl_dataset *set, struct sl_dataset **copy) {
  const struct sl_dataset_info *info = sl_dataset_info(set);
  size_t size = (size_t)sl_shape_count(&info->sample), count = (size_t)info->count;
  float *x = malloc(size * sizeof *x);
  uint8_t *bytes = malloc(size * count);
  int32_t *labels = malloc(count * sizeof *labels);
  enum sl_status status = x && bytes && labels ? SL_OK : SL_NO_MEMORY;
  for (size_t i = 0; i < count && status == SL_OK; i++) {
    status = sl_dataset_get(set, (int64_t)i, x, &labels[i]);
    for (size_t k = 0; k < size; k++) {
      size_t c = k / (size / 3);
      float value = 255 * (x[k] * info->deviation[c] + info->mean[c]);
      bytes[i * size + k] = (uint8_t)lrintf(fminf(fmaxf(value, 0), 255));
    }
  }
  if (status == SL_OK)
    status = sl_dataset_new("in memory", &info->sample, info->count, info->classes, bytes, labels,
                            info->mean, info->deviation, copy);
  free(x), free(bytes), free(labels);
  return status;
}

static enum sl_status step(struct sl_trainer *trainer, struct sl_loader *loader, int64_t steps) {
  struct sl_report report;
  bool reported = true;
  enum sl_status status = SL_OK;
  for (int64_t s = 0; s < steps && status == SL_OK; s++)
    status = sl_trainer_step(trainer, loader, &report, &reported);
  for (reported = true; reported && status == SL_OK;)
    status = sl_trainer_drain(trainer, &report, &reported);
  return status;
}

/* Runs of b->steps steps, first from memory, then from the folder. */
static enum sl_status train(const struct bench *b, struct sl_trainer *trainer,
                            struct sl_loader *const loaders[2], struct run (*runs)[2]) {
  static const char *const names[] = {"from memory", "from the folder"};
  enum sl_status status = SL_OK;
  for (int r = -1; r < b->rounds && status == SL_OK; r++) /* the first to warm up */
    for (int k = 0; k < 2 && status == SL_OK; k++) {
      struct run warm, *run = r < 0 ? &warm : &runs[r][k];
      begin(run);
      status = step(trainer, loaders[k], r < 0 ? 2 : b->steps);
      if (r >= 0) end(run, names[k], r, (double)(b->steps * b->batch));
    }
  return status;
}

static int bench_train(const struct bench *b) {
  struct run runs[MOST_ROUNDS][2];
  struct sl_dataset *sets[2] = {NULL, NULL};
  struct sl_loader *loaders[2] = {NULL, NULL};
  struct sl_context *context = NULL;
  struct sl_model *model = NULL;
  struct sl_trainer *trainer = NULL;
  const struct sl_loader_options o = {
      .batch = b->batch, .shuffle = true, .seed = 1, .readers = b->threads};
  enum sl_status status = open_pictures(b, &sets[1]);
  if (status == SL_OK) status = keep_pictures(sets[1], &sets[0]);
  for (int k = 0; k < 2 && status == SL_OK; k++) status = sl_loader_new(sets[k], &o, &loaders[k]);
  if (status == SL_OK) status = sl_open(NULL, &context);
  if (status == SL_OK) status = sl_model_new(context, sl_loader_sample(loaders[0]), &model);
  if (status == SL_OK) status = resnet_build(model, 20, 2, SL_INIT_HE);
  if (status == SL_OK)
    status = sl_trainer_new(model, &(struct sl_optimizer){.lr = 0.01f}, NULL, NULL, &trainer);
  if (status == SL_OK) status = train(b, trainer, loaders, runs);
  int code = status == SL_OK ? print_ratio("folder / memory", runs, b->rounds) : fail(sl_error());
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_close(context);
  for (int k = 0; k < 2; k++) {
    sl_loader_free(loaders[k]);
    sl_dataset_free(sets[k]);
  }
  return code;
}

/* ---- an array ---- */

/* Writes header and values; 0, or an errno. */
static int write_npy(const char *path, const char *type, int64_t rows, int64_t each, int bytes) {
  char header[128 + 1], shape[64];
  FILE *file = fopen(path, "wbe");
  if (!file) return errno;
  snprintf(shape, sizeof shape, each > 1 ? "(%lld, 3, 64, 64)" : "(%lld,)", (long long)rows);
  int length = snprintf(header + 10, sizeof header - 10,
                        "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type, shape);
  memset(header + 10 + length, ' ', (size_t)(118 - length - 1));
  memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
  header[127] = '\n';
  fwrite(header, 1, 128, file);
  float row[ROW];
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t k = 0; k < each; k++) row[k] = (float)((i + k) % 256) / 255;
    int32_t label = (int32_t)(i % 2);
    fwrite(each > 1 ? (const void *)row : &label, (size_t)bytes, (size_t)each, file);
  }
  int failed = ferror(file) || fflush(file) != 0 || fsync(fileno(file)) != 0;
  return fclose(file) != 0 || failed ? EIO : 0;
}

static int forget(const char *path) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  int error = file < 0 ? errno : posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  if (file >= 0) close(file);
  return error;
}

/* All of the file by read(), a megabyte at a time, as dd does. */
static int read_all(const char *path) {
  static char block[1 << 20];
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t got = file < 0 ? -1 : 1;
  while (got > 0) got = read(file, block, sizeof block);
  int error = got < 0 ? errno : 0;
  if (file >= 0) close(file);
  return error;
}

/* Rows of a file in random order, which threads share. */
struct rows {
  int file;
  uint32_t *order;
  int64_t count;
  atomic_llong next;
  atomic_int failed;
};

/* O_DIRECT asks for whole blocks, of the file and of the memory. */
static void *read_some_rows(void *argument) {
  enum { BLOCK = 4096, SIZE = ROW * sizeof(float), HEADER = 128, ROOM = SIZE + 2 * BLOCK };
  struct rows *rows = argument;
  void *room = NULL;
  if (posix_memalign(&room, BLOCK, ROOM)) rows->failed = 1;
  for (int64_t i; room && (i = atomic_fetch_add(&rows->next, 1)) < rows->count;) {
    off_t first = HEADER + (off_t)rows->order[i] * SIZE, begin = first / BLOCK * BLOCK;
    off_t end = (first + SIZE + BLOCK - 1) / BLOCK * BLOCK;
    if (pread(rows->file, room, (size_t)(end - begin), begin) < first + SIZE - begin)
      rows->failed = 1;
  }
  free(room);
  return NULL;
}

static void draw_order(uint32_t *order, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    int64_t k = (int64_t)(sl__uniform(1, 1, (uint64_t)i) * (float)(i + 1));
    if (k > i) k = i;
    order[i] = order[k];
    order[k] = (uint32_t)i;
  }
}

/* 0; or 1 where the file system cannot be read so. */
static int read_all_rows(const char *path, int64_t count) {
  struct rows rows = {.count = count};
  pthread_t thread[DISK_THREADS];
  int started = 0;
  rows.file = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
  rows.order = malloc((size_t)count * sizeof *rows.order);
  if (rows.file >= 0 && rows.order) {
    draw_order(rows.order, count);
    while (started < DISK_THREADS &&
           pthread_create(&thread[started], NULL, read_some_rows, &rows) == 0)
      started++;
  }
  for (int t = 0; t < started; t++) pthread_join(thread[t], NULL);
  if (rows.file >= 0) close(rows.file);
  free(rows.order);
  return !started || rows.failed;
}

static int bench_array(const struct bench *b) {
  struct run runs[MOST_ROUNDS][2], disk[MOST_ROUNDS][2];
  char x[4096], y[4096];
  struct stat info;
  int64_t rows = b->megabytes * 1000000 / (int64_t)(ROW * sizeof(float));
  snprintf(x, sizeof x, "%s/x%lld.npy", b->folder, (long long)b->megabytes);
  snprintf(y, sizeof y, "%s/y%lld.npy", b->folder, (long long)b->megabytes);
  if (stat(y, &info) != 0 && (write_npy(x, "<f4", rows, ROW, 4) || write_npy(y, "<i4", rows, 1, 4)))
    return fail("cannot write the arrays");
  const struct sl_reader_options o = {.target = y, .raw = true, .validation = "0.0001"};
  enum sl_status status = SL_OK;
  for (int r = 0; r < b->rounds && status == SL_OK; r++) {
    struct sl_dataset *set = NULL;
    double megabytes = (double)(rows * ROW * (int64_t)sizeof(float)) / 1e6;
    if (forget(x)) return fail("the array's pages cannot be dropped");
    begin(&runs[r][0]);
    if (read_all(x)) return fail("the array cannot be read");
    end(&runs[r][0], "read()", r, megabytes);
    begin(&disk[r][0]);
    if (b->shuffle && read_all_rows(x, rows))
      return fail("the file cannot be read past the system's cache (O_DIRECT)");
    if (b->shuffle) end(&disk[r][0], "disk", r, megabytes);
    status = sl_dataset_read(x, &o, true, &set);
    if (forget(x)) return fail("the array's pages cannot be dropped");
    begin(&runs[r][1]);
    if (status == SL_OK) status = read_epoch(set, b);
    if (status == SL_OK) end(&runs[r][1], "loader", r, megabytes);
    disk[r][1] = runs[r][1];
    sl_dataset_free(set);
  }
  if (status == SL_OK && b->shuffle) print_ratio("loader / disk", disk, b->rounds);
  return status == SL_OK ? print_ratio("loader / read()", runs, b->rounds) : fail(sl_error());
}

int main(int argc, char **argv) {
  const struct argp argp = {.options = options,
                            .parser = parse,
                            .args_doc = "pictures|train|array",
                            .doc = "How fast loaders read."};
  struct bench b = {.folder = "/var/tmp/starling-loader",
                    .pictures = 10000,
                    .steps = 10,
                    .batch = 32,
                    .megabytes = 1000,
                    .side = 128,
                    .rounds = 3,
                    .threads = 1};
  argp_parse(&argp, argc, argv, 0, NULL, &b);
  if (mkdir(b.folder, 0777) != 0 && errno != EEXIST) return fail(strerror(errno));
  if (!strcmp(b.mode, "array")) return bench_array(&b);
  snprintf(b.photos, sizeof b.photos, "%s/%dx%d-%lld", b.folder, b.side, b.side,
           (long long)b.pictures);
  int error = pictures_make(b.photos, b.pictures, b.side);
  if (error) return fail(strerror(error));
  if (!strcmp(b.mode, "pictures")) return bench_pictures(&b);
  return !strcmp(b.mode, "train") ? bench_train(&b) : fail("pictures, train or array?");
}
