/* The gain of a batch normalisation whose sums are taken while each image is in the cache, just
 * after another loop has written it, instead of behind all images: a copy stands for the
 * convolution that writes. Values and their squares are added up as codelets/batchnorm.c adds them,
 * in double precision and in lanes, on one core; shapes are ResNet-20's at 64 images. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "core/base/simd.h"

enum { IMAGES = 64, PARTS = 32, LANES = 8, MOST = 64, ROUNDS = 100 };

struct shape {
  int64_t channels, plane;
};

struct lanes {
  double sum[LANES], square[LANES];
};

static struct lanes lanes[MOST]; /* of each channel */

SL__SIMD static void add_plane(const float *x, int64_t plane, struct lanes *all) {
  double sum[PARTS] = {0}, square[PARTS] = {0};
  for (int64_t i = 0; i + PARTS <= plane; i += PARTS)
    for (int k = 0; k < PARTS; k++) {
      double d = (double)x[i + k] - 0.5;
      sum[k] += d;
      square[k] += d * d;
    }
  for (int half = PARTS / 2; half >= LANES; half /= 2)
    for (int k = 0; k < half; k++) sum[k] += sum[k + half], square[k] += square[k + half];
  for (int k = 0; k < LANES; k++) all->sum[k] += sum[k], all->square[k] += square[k];
}

static void write_image(const struct shape *s, const float *from, float *x, int64_t n) {
  size_t image = (size_t)(s->channels * s->plane);
  memcpy(x + (size_t)n * image, from + (size_t)n * image, image * sizeof *x);
}

static void add_image(const struct shape *s, const float *x, int64_t n) {
  for (int64_t c = 0; c < s->channels; c++)
    add_plane(x + (n * s->channels + c) * s->plane, s->plane, &lanes[c]);
}

static void keep_least(double *least, double seconds) {
  if (!*least || seconds < *least) *least = seconds;
}

static int measure(const struct shape *s) {
  size_t bytes = (size_t)(IMAGES * s->channels * s->plane) * sizeof(float);
  float *from = aligned_alloc(64, bytes), *x = aligned_alloc(64, bytes);
  double writing = 0, adding = 0, together = 0;
  for (size_t i = 0; from && i < bytes / sizeof *from; i++) from[i] = (float)(i % 7);
  for (int round = 0; from && x && round < ROUNDS; round++) {
    double begin = bench_now();
    for (int64_t n = 0; n < IMAGES; n++) write_image(s, from, x, n);
    double written = bench_now();
    for (int64_t n = 0; n < IMAGES; n++) add_image(s, x, n);
    double added = bench_now();
    for (int64_t n = 0; n < IMAGES; n++) {
      write_image(s, from, x, n);
      add_image(s, x, n);
    }
    keep_least(&writing, written - begin);
    keep_least(&adding, added - written);
    keep_least(&together, bench_now() - added);
  }
  bool fine = from && x;
  free(from);
  free(x);
  if (!fine) return 1;
  return bench_print(json_pack("{s:s, s:I, s:I, s:f, s:f, s:f}", "bench", "norm_sums", "channels",
                               (json_int_t)s->channels, "plane", (json_int_t)s->plane, "write_us",
                               1e6 * writing, "sums_behind_all_us", 1e6 * adding,
                               "sums_by_image_us", 1e6 * (together - writing)));
}

int main(void) {
  static const struct shape shapes[] = {{16, 1024}, {32, 256}, {64, 64}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    if (measure(&shapes[i]) != 0) {
      fprintf(stderr, "bench_norm_sums: no memory\n");
      return 1;
    }
  return lanes[0].square[0] < 0; /* so that no loop is left out */
}
