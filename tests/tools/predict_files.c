/* What test_predict.sh needs: generated digits and made-up CIFAR-10 as files of all kinds that
 * starling-predict reads, and a look at the JSON lines that it writes.
 *     predict_files digits FOLDER COUNT   digit.pgm ..., images-idx3-ubyte, labels-idx1-ubyte
 *     predict_files cifar FOLDER COUNT    data_batch_1.bin .. 5, test_batch.bin, first.ppm,
 * first.png predict_files sums FILE             every line is JSON, its "top" falls and adds up to
 * 1 predict_files same FILE FILE        the same classes, line by line, with the same probabilities
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <starling.h>

#ifdef SL_HAVE_PNG
#include <png.h>
#endif

enum { SIDE = 28, DIGIT = SIDE * SIDE, CIFAR = 3 * 32 * 32 };

static void die(const char *what) {
  fprintf(stderr, "predict_files: %s\n", what);
  exit(1);
}

static FILE *create(const char *folder, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  if (!file) die(path);
  return file;
}

static void put_big_endian(FILE *file, unsigned value) {
  for (int shift = 24; shift >= 0; shift -= 8) putc(value >> shift & 255, file);
}

/* P5 and P6 of one byte a value; every pixel `times` times in both directions. */
static void write_binary(const char *folder, const char *name, const uint8_t *values, int side,
                         int channels, int times) {
  FILE *file = create(folder, name);
  fprintf(file, "P%c\n# a comment\n%d %d\n255\n", channels == 1 ? '5' : '6', side * times,
          side * times);
  for (int y = 0; y < side * times; y++)
    for (int x = 0; x < side * times; x++)
      fwrite(values + ((y / times) * side + x / times) * channels, 1, (size_t)channels, file);
  fclose(file);
}

static void write_png(const char *folder, const char *name, const uint8_t *values, int side,
                      int channels) {
#ifdef SL_HAVE_PNG
  char path[4096];
  png_image image = {
      .version = PNG_IMAGE_VERSION, .width = (unsigned)side, .height = (unsigned)side};
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  if (!png_image_write_to_file(&image, path, 0, values, 0, NULL)) die(path);
#else
  (void)folder, (void)name, (void)values, (void)side, (void)channels;
#endif
}

/* The first digit as every kind of picture. */
static void write_digit(const char *folder, const uint8_t *values, const float *normalised) {
  uint8_t inverted[DIGIT], colour[3 * DIGIT];
  for (int i = 0; i < DIGIT; i++) {
    inverted[i] = 255 - values[i];
    for (int c = 0; c < 3; c++) colour[3 * i + c] = values[i];
  }
  write_binary(folder, "digit.pgm", values, SIDE, 1, 1);
  write_binary(folder, "inverted.pgm", inverted, SIDE, 1, 1);
  write_binary(folder, "large.pgm", values, SIDE, 1, 2);
  write_binary(folder, "colour.ppm", colour, SIDE, 3, 1);
  write_png(folder, "digit.png", values, SIDE, 1);
  FILE *text = create(folder, "text.pgm"), *wide = create(folder, "wide.pgm"),
       *raw = create(folder, "digit.f32");
  fprintf(text, "P2 %d %d 255", SIDE, SIDE);
  fprintf(wide, "P5 %d %d 1020\n", SIDE, SIDE);
  for (int i = 0; i < DIGIT; i++) {
    fprintf(text, "%c%d", i % SIDE ? ' ' : '\n', values[i]);
    putc(values[i] >> 6, wide), putc(4 * values[i] & 255, wide); /* 4 v of 1020 is v of 255 */
  }
  fwrite(normalised, sizeof *normalised, DIGIT, raw);
  fclose(text), fclose(wide), fclose(raw);
}

static void write_digits(const char *folder, int count) {
  struct sl_dataset *set;
  float normalised[DIGIT];
  uint8_t bytes[DIGIT];
  int32_t label;
  if (sl_digits_new(count, 1, false, &set) != SL_OK) die(sl_error());
  const struct sl_dataset_info *info = sl_dataset_info(set);
  FILE *images = create(folder, "images-idx3-ubyte"), *labels = create(folder, "labels-idx1-ubyte");
  put_big_endian(images, 0x803), put_big_endian(images, (unsigned)count);
  put_big_endian(images, SIDE), put_big_endian(images, SIDE);
  put_big_endian(labels, 0x801), put_big_endian(labels, (unsigned)count);
  for (int i = 0; i < count; i++) {
    if (sl_dataset_get(set, i, normalised, &label) != SL_OK) die(sl_error());
    for (int k = 0; k < DIGIT; k++)
      bytes[k] = (uint8_t)lrintf((normalised[k] * info->deviation[0] + info->mean[0]) * 255);
    fwrite(bytes, 1, DIGIT, images);
    putc(label, labels);
    if (i == 0) write_digit(folder, bytes, normalised);
  }
  fclose(images), fclose(labels);
  sl_dataset_free(set);
}

/* Classes that can be learned: each is brightest in another place and colour. */
static void write_batch(const char *folder, const char *name, int count) {
  FILE *file = create(folder, name);
  uint8_t planes[CIFAR], pixels[CIFAR];
  for (int n = 0; n < count; n++) {
    int label = n % 10;
    for (int i = 0; i < CIFAR; i++)
      planes[i] = (uint8_t)((i * 7 + n * 31) % 90 + (i / 310 == label ? 150 : 0));
    putc(label, file);
    fwrite(planes, 1, CIFAR, file);
    for (int i = 0; i < CIFAR; i++) pixels[i] = planes[i % 3 * 1024 + i / 3];
    if (n == 3) write_binary(folder, "fourth.ppm", pixels, 32, 3, 1);
    if (n == 3) write_png(folder, "fourth.png", pixels, 32, 3);
  }
  fclose(file);
}

static void write_cifar(const char *folder, int count) {
  char name[32];
  for (int f = 1; f <= 5; f++) {
    snprintf(name, sizeof name, "data_batch_%d.bin", f);
    write_batch(folder, name, count);
  }
  write_batch(folder, "test_batch.bin", count);
}

/* ---- the answers ---- */

static json_t *next_line(FILE *file) {
  static char line[1 << 20];
  if (!fgets(line, sizeof line, file)) return NULL;
  json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
  if (!json_is_object(object)) die("a line is no JSON object");
  return object;
}

static double number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) die(key);
  return json_number_value(value);
}

static int check_sums(const char *path) {
  FILE *file = fopen(path, "r");
  int lines = 0;
  if (!file) die(path);
  for (json_t *object; (object = next_line(file)); lines++) {
    const json_t *top = json_object_get(object, "top");
    if (!top) top = json_object_get(object, "next");
    double sum = 0, last = 1;
    for (size_t i = 0; i < json_array_size(top); i++) {
      double p = number(json_array_get(top, i), "probability");
      if (p > last || p < 0) die("probabilities do not fall");
      sum += last = p;
    }
    if (fabs(sum - 1) > 1e-5) die("probabilities do not add up to 1");
    json_decref(object);
  }
  fclose(file);
  return lines ? 0 : 1;
}

static int check_same(const char *one, const char *other) {
  FILE *a = fopen(one, "r"), *b = fopen(other, "r");
  int lines = 0;
  if (!a || !b) die("a file is missing");
  for (;; lines++) {
    json_t *x = next_line(a), *y = next_line(b);
    if (!x != !y) die("other numbers of lines");
    if (!x) break;
    if (number(x, "class") != number(y, "class")) die("other classes");
    if (fabs(number(x, "probability") - number(y, "probability")) > 1e-4)
      die("other probabilities");
    json_decref(x), json_decref(y);
  }
  fclose(a), fclose(b);
  return lines ? 0 : 1;
}

int main(int argc, char **argv) {
  if (argc == 4 && !strcmp(argv[1], "digits")) return write_digits(argv[2], atoi(argv[3])), 0;
  if (argc == 4 && !strcmp(argv[1], "cifar")) return write_cifar(argv[2], atoi(argv[3])), 0;
  if (argc == 3 && !strcmp(argv[1], "sums")) return check_sums(argv[2]);
  if (argc == 4 && !strcmp(argv[1], "same")) return check_same(argv[2], argv[3]);
  die("see the first lines of its source");
}
