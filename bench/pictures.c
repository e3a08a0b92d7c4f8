#include "bench/pictures.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

#include "core/base/random.h"

enum { QUALITY = 85, MOST_THREADS = 256 };

static void path_of(const char *folder, int64_t i, char *path, size_t size) {
  snprintf(path, size, "%s/%s/%06lld.jpg", folder, i % 2 ? "b" : "a", (long long)i);
}

/* ---- making them ---- */

static void draw(int64_t number, int side, uint8_t *pixels) {
  float wave[9];
  for (uint64_t k = 0; k < 9; k++) wave[k] = sl__uniform(1, (uint64_t)number, k);
  for (int y = 0; y < side; y++)
    for (int x = 0; x < side; x++)
      for (int c = 0; c < 3; c++) {
        float angle = 0.2f * (wave[3 * c] * (float)x + wave[3 * c + 1] * (float)y);
        float noise = sl__uniform(2, (uint64_t)number, (uint64_t)(y * side + x) / 4);
        float value = 128 + 70 * sinf(angle + 6 * wave[3 * c + 2]) + 40 * (noise - 0.5f);
        pixels[(y * side + x) * 3 + c] = (uint8_t)value;
      }
}

static int write_jpeg(const char *path, uint8_t *pixels, int side) {
  struct jpeg_compress_struct jpeg;
  struct jpeg_error_mgr errors;
  FILE *file = fopen(path, "wbe");
  if (!file) return errno;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  jpeg_stdio_dest(&jpeg, file);
  jpeg.image_width = jpeg.image_height = (JDIMENSION)side;
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, QUALITY, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  for (int y = 0; y < side; y++) {
    JSAMPROW row = pixels + (size_t)y * (size_t)side * 3;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  return fclose(file) == 0 ? 0 : errno;
}

int pictures_make(const char *folder, int64_t count, int side) {
  char path[4096];
  int error = 0;
  path_of(folder, count - 1, path, sizeof path);
  if (access(path, R_OK) == 0) return 0;
  uint8_t *pixels = malloc((size_t)side * (size_t)side * 3);
  if (!pixels) return ENOMEM;
  for (const char *const *class = (const char *const[]){"", "/a", "/b", NULL}; *class; class ++) {
    snprintf(path, sizeof path, "%s%s", folder, *class);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) error = errno;
  }
  for (int64_t i = 0; i < count && !error; i++) {
    draw(i, side, pixels);
    path_of(folder, i, path, sizeof path);
    error = write_jpeg(path, pixels, side);
  }
  free(pixels);
  return error;
}

/* ---- decoding them ---- */

struct work {
  const char *folder;
  int64_t count;
  atomic_llong next;
  atomic_int failed;
};

/* The whole file into *bytes, which grows. Returns its size; 0 where it cannot be read. */
static size_t read_file(const char *path, uint8_t **bytes, size_t *room) {
  struct stat info;
  FILE *file = fopen(path, "rbe");
  if (!file || fstat(fileno(file), &info) != 0) return 0;
  size_t size = (size_t)info.st_size;
  if (size > *room) *bytes = realloc(*bytes, *room = size);
  setvbuf(file, NULL, _IONBF, 0);
  if (!*bytes || fread(*bytes, 1, size, file) != size) size = 0;
  fclose(file);
  return size;
}

/* libjpeg-turbo writes lines that begin on a vector (32 bytes) past the caches, and takes a seventh
 * longer then. These begin beside one. */
enum { BESIDE = 4 };

/* One decoder, and one memory, for all of a thread's pictures. An error of libjpeg ends the
 * program. */
static void *decode(void *argument) {
  struct work *work = argument;
  struct jpeg_decompress_struct jpeg;
  struct jpeg_error_mgr errors;
  uint8_t *bytes = NULL, *pixels = NULL;
  size_t room = 0, pixel_room = 0;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&jpeg);
  for (int64_t i; (i = atomic_fetch_add(&work->next, 1)) < work->count;) {
    char path[4096];
    path_of(work->folder, i, path, sizeof path);
    size_t size = read_file(path, &bytes, &room);
    if (!size) {
      work->failed = 1;
      break;
    }
    jpeg_mem_src(&jpeg, bytes, size);
    jpeg_read_header(&jpeg, TRUE);
    jpeg.out_color_space = JCS_RGB;
    jpeg_start_decompress(&jpeg);
    size_t line = (size_t)jpeg.output_width * 3, needed = line * jpeg.output_height;
    if (needed > pixel_room) {
      free(pixels);
      pixels = aligned_alloc(64, (needed + BESIDE + 63) / 64 * 64);
      pixel_room = needed;
    }
    while (pixels && jpeg.output_scanline < jpeg.output_height) {
      JSAMPROW row = pixels + BESIDE + jpeg.output_scanline * line;
      jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_decompress(&jpeg);
  }
  jpeg_destroy_decompress(&jpeg);
  free(bytes);
  free(pixels);
  return NULL;
}

int pictures_decode(const char *folder, int64_t count, int threads) {
  struct work work = {.folder = folder, .count = count};
  pthread_t thread[MOST_THREADS];
  int started = 0;
  while (started < threads && started < MOST_THREADS &&
         pthread_create(&thread[started], NULL, decode, &work) == 0)
    started++;
  for (int t = 0; t < started; t++) pthread_join(thread[t], NULL);
  return work.failed || started < threads;
}
