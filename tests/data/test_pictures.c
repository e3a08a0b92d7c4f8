/* Folders of pictures: PPM, PNG and JPEG made here, in colour and in grey; sizes; training and test
 * folders; pictures that cannot be decoded. */
#include <math.h>
#include <sys/resource.h>

#include "core/base/file.h"
#include "data/dataset.h"
#include "data/picture.h"
#include "tests/common/files.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef SL_HAVE_JPEG
#include <jpeglib.h>
#endif
#ifdef SL_HAVE_PNG
#include <png.h>
#endif

enum { MOST = 64 * 64 * 3 };

/* Smooth colours, which JPEG keeps well: red grows to the right, green downwards. */
static void draw(uint8_t *pixels, int width, int height, int channels, int blue) {
  for (int y = 0; y < height; y++)
    for (int x = 0; x < width; x++) {
      uint8_t colour[4] = {(uint8_t)(200 * x / width), (uint8_t)(200 * y / height), (uint8_t)blue,
                           0};
      memcpy(pixels + (y * width + x) * channels, colour, (size_t)channels);
    }
}

static void put_pnm(const char *name, int width, int height, int channels, int blue) {
  static uint8_t bytes[64 + MOST];
  int header =
      snprintf((char *)bytes, 64, "P%d\n%d %d\n255\n", channels == 3 ? 6 : 5, width, height);
  draw(bytes + header, width, height, channels, blue);
  put(name, bytes, (size_t)(header + width * height * channels));
}

/* In the test's folder, with two classes: "cat/1.ppm", ... */
static void make_folders(const char *const *names, int count) {
  for (int i = 0; i < count; i++) mkdir(in_folder(names[i]), 0777);
}

static void remove_all(const char *name) {
  char command[4200];
  snprintf(command, sizeof command, "rm -rf '%s/%s'", test_folder, name);
  assert_int_equal(system(command), 0);
}

static void test_classes(void **state) {
  (void)state;
  static const char *const folders[] = {"set", "set/ant", "set/cat", "set/.hidden"};
  make_folders(folders, 4);
  put_pnm("set/cat/b.ppm", 8, 4, 3, 10);
  put_pnm("set/cat/a.PPM", 8, 4, 3, 20);
  put_pnm("set/ant/1.pgm", 8, 4, 1, 0); /* grey, in a set that is in colour */
  put("set/ant/notes.txt", "no picture", 10);
  struct sl_reader_options options = {.raw = true, .validation = "0.3"};
  float x[3 * 8 * 4];
  int seen = 0;
  for (int train = 0; train < 2; train++) {
    struct sl_dataset *set;
    OK(sl_dataset_read(in_folder("set"), &options, train, &set));
    const struct sl_dataset_info *info = sl_dataset_info(set);
    assert_true(info->classes == 2 && info->count == (train ? 2 : 1));
    assert_string_equal(info->class_names[0], "ant");
    assert_string_equal(info->class_names[1], "cat");
    assert_true(sl_shape_equal(&info->sample, &SL_SHAPE(3, 4, 8)));
    for (int64_t i = 0; i < info->count; i++) {
      int32_t label;
      OK(sl_dataset_get(set, i, x, &label));
      int blue = (int)lrintf(255 * x[2 * 32]);
      assert_int_equal(label, blue == 10 || blue == 20 ? 1 : 0);
      seen += label ? blue : 1;
      for (int p = 0; p < 32; p++) {
        float red = (float)(200 * (p % 8) / 8) / 255, green = (float)(200 * (p / 8) / 4) / 255;
        assert_true(fabsf(x[p] - red) < 1e-6f);
        assert_true(fabsf(x[32 + p] - (label ? green : red)) < 1e-6f);
      }
    }
    sl_dataset_free(set);
  }
  assert_int_equal(seen, 10 + 20 + 1);
  remove_all("set");
}

static enum sl_status open_set(const char *name, struct sl_reader_options options) {
  struct sl_dataset *set;
  enum sl_status status = sl_dataset_read(in_folder(name), &options, true, &set);
  if (status == SL_OK) sl_dataset_free(set);
  return status;
}

static void test_sizes(void **state) {
  (void)state;
  static const char *const folders[] = {"set", "set/a"};
  make_folders(folders, 2);
  put_pnm("set/a/1.ppm", 8, 8, 3, 40);
  put_pnm("set/a/2.ppm", 16, 8, 3, 40);
  put_pnm("set/a/3.ppm", 4, 4, 3, 40);
  FAILS(open_set("set", (struct sl_reader_options){.validation = "0.4"}), SL_BAD_FILE,
        "but the first picture 8 x 8; give the size");
  FAILS(open_set("set", (struct sl_reader_options){.height = 8}), SL_BAD_ARGUMENT, "8 x 0");
  FAILS(open_set("set", (struct sl_reader_options){.height = 8, .width = 1 << 20}), SL_BAD_ARGUMENT,
        "give 1 to 16384");
  struct sl_reader_options options = {.height = 4, .width = 4, .raw = true};
  for (int train = 0; train < 2; train++) {
    struct sl_dataset *set;
    float x[3 * 16];
    int32_t label;
    OK(sl_dataset_read(in_folder("set"), &options, train, &set));
    for (int64_t i = 0; i < sl_dataset_info(set)->count; i++) {
      OK(sl_dataset_get(set, i, x, &label));
      for (int p = 0; p < 16; p++) assert_true(fabsf(x[32 + p] - 40.0f / 255) < 1e-5f);
      for (int p = 1; p < 4; p++) assert_true(x[p] > x[p - 1]); /* red grows */
    }
    sl_dataset_free(set);
  }
  remove_all("set");
}

/* train/ and val/, whose classes must be known. */
static void test_parts(void **state) {
  (void)state;
  static const char *const folders[] = {"set",         "set/train",   "set/val",
                                        "set/train/a", "set/train/b", "set/val/b"};
  struct sl_dataset *set;
  float x[16 * 3];
  int32_t label;
  make_folders(folders, 6);
  put_pnm("set/train/a/1.ppm", 4, 4, 3, 1);
  put_pnm("set/train/b/1.ppm", 4, 4, 3, 2);
  put_pnm("set/val/b/1.ppm", 4, 4, 3, 2);
  OK(sl_dataset_open(in_folder("set"), 1, false, &set));
  assert_true(sl_dataset_info(set)->count == 1 && sl_dataset_info(set)->classes == 2);
  OK(sl_dataset_get(set, 0, x, &label));
  assert_int_equal(label, 1);
  sl_dataset_free(set);
  make_folders((const char *const[]){"set/val/c"}, 1);
  put_pnm("set/val/c/1.ppm", 4, 4, 3, 2);
  FAILS(open_set("set", (struct sl_reader_options){0}), SL_BAD_FILE, "has no class \"c\"");
  make_folders((const char *const[]){"set/train/c"}, 1);
  FAILS(open_set("set", (struct sl_reader_options){0}), SL_BAD_FILE, "train/c: holds no pictures");
  FAILS(open_set("set", (struct sl_reader_options){.validation = "0.5"}), SL_BAD_ARGUMENT,
        "has a test set of its own");
  remove_all("set");
}

static void test_bad_pictures(void **state) {
  (void)state;
  static const char *const folders[] = {"set", "set/a"};
  make_folders(folders, 2);
  put("set/a/0.ppm", "P6\n4 4\n255\nshort", 16);
  for (int i = 1; i < 5; i++) {
    char name[32];
    snprintf(name, sizeof name, "set/a/%d.ppm", i);
    put_pnm(name, 4, 4, 3, i);
  }
  put("set/a/9.jpg", "GIF89a", 6);
  FAILS(open_set("set", (struct sl_reader_options){0}), SL_BAD_FILE,
        "set/a/0.ppm: cut short; was the download complete? replace it, or leave out the pictures "
        "that cannot be decoded "
        "(skip_bad)");
  struct sl_dataset *set;
  OK(sl_dataset_read(in_folder("set"), &(struct sl_reader_options){.skip_bad = true}, true, &set));
  assert_int_equal(sl_dataset_info(set)->count, 3);
  assert_non_null(strstr(sl_dataset_info(set)->name, "without 2 bad pictures (a/0.ppm first)"));
  assert_int_equal(sl_dataset_info(set)->left_out, 2);
  sl_dataset_free(set);
  for (int i = 1; i < 5; i++) {
    char name[32];
    snprintf(name, sizeof name, "set/a/%d.ppm", i);
    unlink(in_folder(name));
  }
  FAILS(open_set("set", (struct sl_reader_options){.skip_bad = true}), SL_BAD_FILE,
        "none of its pictures can be decoded");
  /* the size is given: the class's next picture still decides the colours */
  put_pnm("set/a/7.ppm", 4, 4, 3, 2);
  put_pnm("set/a/8.ppm", 4, 4, 3, 2);
  const struct sl_reader_options sized = {.skip_bad = true, .height = 2, .width = 2};
  OK(sl_dataset_read(in_folder("set"), &sized, true, &set));
  assert_int_equal(sl_dataset_info(set)->sample.dim[0], 3);
  sl_dataset_free(set);
  remove_all("set");
}

#ifdef SL_HAVE_JPEG
/* Returns the size; *bytes is to be freed. */
static size_t make_jpeg(int width, int height, int channels, unsigned char **bytes) {
  static uint8_t pixels[MOST];
  struct jpeg_compress_struct jpeg;
  struct jpeg_error_mgr errors;
  unsigned long size = 0;
  *bytes = NULL;
  draw(pixels, width, height, channels, 100);
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  jpeg_mem_dest(&jpeg, bytes, &size);
  jpeg.image_width = (JDIMENSION)width;
  jpeg.image_height = (JDIMENSION)height;
  jpeg.input_components = channels;
  jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 98, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = pixels + jpeg.next_scanline * (JDIMENSION)(width * channels);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  return size;
}

static void test_jpeg(void **state) {
  (void)state;
  unsigned char *bytes;
  struct sl__picture picture = {0};
  for (int channels = 1; channels <= 3; channels += 2) {
    uint8_t expected[MOST];
    size_t size = make_jpeg(40, 24, channels, &bytes);
    draw(expected, 40, 24, channels, 100);
    assert_null(sl__picture_read(bytes, size, 0, 0, &picture));
    assert_true(picture.width == 40 && picture.height == 24 && picture.channels == channels);
    for (int i = 0; i < 40 * 24 * channels; i++)
      assert_true(abs((int)picture.values[i] - expected[i]) < 12);
    /* a fraction of the size that is not too small, and not the whole where less will do */
    assert_null(sl__picture_read(bytes, size, 10, 6, &picture));
    assert_true(picture.width == 10 && picture.height == 6);
    assert_null(sl__picture_read(bytes, size, 11, 6, &picture));
    assert_true(picture.width == 15 && picture.height == 9);
    assert_null(sl__picture_read(bytes, size, 100, 100, &picture));
    assert_true(picture.width == 40 && picture.height == 24);
    free(bytes);
  }
  sl__picture_free(&picture);
}

/* Pictures that go to a batch at once and those that do not, one after the other: each value is
 * (value / 255 - mean) / deviation to the bit. */
static void test_direct(void **state) {
  (void)state;
  static const char *const names[] = {"set/a/0.jpg", "set/a/1.jpg", "set/a/2.ppm",
                                      "set/b/3.jpg", "set/b/4.pgm", "set/b/5.jpg"};
  enum { FILES = 6, WIDTH = 20, HEIGHT = 12, PLANE = WIDTH * HEIGHT };
  make_folders((const char *const[]){"set", "set/a", "set/b"}, 3);
  for (int i = 0; i < FILES; i++) {
    unsigned char *bytes;
    int channels = i == 1 || i == 4 ? 1 : 3;
    bool jpeg = i != 2 && i != 4;
    if (!jpeg) put_pnm(names[i], WIDTH, HEIGHT, channels, 30 * i);
    size_t size = jpeg ? make_jpeg(WIDTH, HEIGHT, channels, &bytes) : 0;
    if (jpeg) put(names[i], bytes, size), free(bytes);
  }
  struct sl_dataset *set;
  struct sl_reader_options options = {.validation = in_folder("set")};
  OK(sl_dataset_read(in_folder("set"), &options, true, &set));
  const struct sl_dataset_info *info = sl_dataset_info(set);
  assert_true(info->count == FILES && info->channels == 3 && info->mean[0] > 0);
  for (int i = 0; i < FILES; i++) {
    struct sl__picture picture = {0};
    uint8_t *bytes;
    size_t size;
    float x[3 * PLANE];
    int32_t label;
    OK(sl__file_read(in_folder(names[i]), 1 << 20, &bytes, &size));
    assert_null(sl__picture_read(bytes, size, 0, 0, &picture));
    OK(sl_dataset_get(set, i, x, &label));
    for (int k = 0; k < 3 * PLANE; k++) {
      int c = k / PLANE, at = k % PLANE;
      int value = picture.values[picture.channels == 3 ? 3 * at + c : at];
      float want = ((float)value / 255.0f - info->mean[c]) / info->deviation[c];
      assert_memory_equal(&x[k], &want, sizeof want);
    }
    free(bytes);
    sl__picture_free(&picture);
  }
  sl_dataset_free(set);
  remove_all("set");
}

/* Cut at any place it is refused; changed at any place it is read or refused. */
static void test_damaged_jpeg(void **state) {
  (void)state;
  unsigned char *bytes;
  struct sl__picture picture = {0};
  size_t size = make_jpeg(40, 24, 3, &bytes);
  for (size_t cut = 0; cut < size; cut++)
    assert_non_null(sl__picture_read(bytes, cut, 0, 0, &picture));
  for (size_t cut = 3; cut < size; cut++) /* in its header, too */
    assert_string_equal(sl__picture_read(bytes, cut, 0, 0, &picture), "damaged, or cut short");
  for (size_t i = 3; i < size; i++) {
    bytes[i] ^= 0x41;
    sl__picture_read(bytes, size, 8, 8, &picture);
    bytes[i] ^= 0x41;
  }
  free(bytes);
  size = make_jpeg(16, 16, 4, &bytes);
  assert_non_null(strstr(sl__picture_read(bytes, size, 0, 0, &picture), "CMYK"));
  free(bytes);
  sl__picture_free(&picture);
}
#endif

#ifdef SL_HAVE_PNG
static void test_png(void **state) {
  (void)state;
  static uint8_t pixels[MOST], bytes[2 * MOST];
  png_alloc_size_t size = sizeof bytes;
  png_image image = {
      .version = PNG_IMAGE_VERSION, .width = 10, .height = 6, .format = PNG_FORMAT_RGB};
  struct sl__picture picture = {0};
  draw(pixels, 10, 6, 3, 7);
  assert_true(png_image_write_to_memory(&image, bytes, &size, 0, pixels, 0, NULL));
  assert_null(sl__picture_read(bytes, size, 3, 3, &picture));
  assert_true(picture.width == 10 && picture.height == 6 && picture.channels == 3);
  for (int i = 0; i < 180; i++) assert_int_equal(picture.values[i], pixels[i]);
  assert_non_null(sl__picture_read(bytes, size / 2, 3, 3, &picture));
  sl__picture_free(&picture);
}

#ifndef SL_SANITIZE /* whose shadow takes terabytes */
static rlim_t bytes_in_use(void) {
  long long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%lld", &pages), 1);
  fclose(file);
  return (rlim_t)(pages * sysconf(_SC_PAGESIZE));
}

/* A good picture is not left out because there is no memory for it. */
static void test_no_memory(void **state) {
  (void)state;
  enum { SIDE = 6000, MORE = 48 << 20 }; /* its values take 72 MB */
  static const char *const folders[] = {"set", "set/a"};
  const struct sl_reader_options options = {.height = 4, .width = 4, .skip_bad = true};
  png_image image = {
      .version = PNG_IMAGE_VERSION, .width = SIDE, .height = SIDE, .format = PNG_FORMAT_GRAY};
  uint8_t *pixels = calloc(SIDE, SIDE);
  struct sl_dataset *set;
  struct rlimit before, small;
  assert_non_null(pixels);
  make_folders(folders, 2);
  put_pnm("set/a/1.pgm", 8, 8, 1, 0);
  assert_true(png_image_write_to_file(&image, in_folder("set/a/2.png"), 0, pixels, 0, NULL));
  free(pixels);
  assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
  small = before;
  small.rlim_cur = bytes_in_use() + MORE;
  assert_int_equal(setrlimit(RLIMIT_AS, &small), 0);
  enum sl_status status = open_set("set", options);
  assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
  FAILS(status, SL_NO_MEMORY, "set/a/2.png: is too large for the memory; end other programs");
  OK(sl_dataset_read(in_folder("set"), &options, true, &set));
  assert_int_equal(sl_dataset_info(set)->left_out, 0);
  sl_dataset_free(set);
  remove_all("set");
}
#endif

/* The stored values, as PIL gives them, whatever the file says of their gamma. */
static void test_png_gamma(void **state) {
  (void)state;
  enum { HEADER = 8 + 25 };
  static const uint8_t gamma[] = {0,    0,    0,    4,   'g',  'A',
                                  'M',  'A',  0,    1,   0x86, 0xa0, /* linear */
                                  0x31, 0xe8, 0x96, 0x5f};
  static const uint8_t srgb[] = {0, 0, 0, 1, 's', 'R', 'G', 'B'};
  static uint8_t pixels[MOST], bytes[2 * MOST];
  png_alloc_size_t size = sizeof bytes - sizeof gamma;
  png_image image = {
      .version = PNG_IMAGE_VERSION, .width = 10, .height = 6, .format = PNG_FORMAT_RGB};
  struct sl__picture picture = {0};
  draw(pixels, 10, 6, 3, 7);
  assert_true(png_image_write_to_memory(&image, bytes, &size, 0, pixels, 0, NULL));
  size_t left = memcmp(bytes + HEADER, srgb, sizeof srgb) ? 0 : sizeof srgb + 5; /* that goes */
  memmove(bytes + HEADER + sizeof gamma, bytes + HEADER + left, size - HEADER - left);
  memcpy(bytes + HEADER, gamma, sizeof gamma);
  size += sizeof gamma - left;
  assert_null(sl__picture_read(bytes, size, 3, 3, &picture));
  for (int i = 0; i < 180; i++) assert_int_equal(picture.values[i], pixels[i]);
  for (size_t cut = HEADER; cut < HEADER + sizeof gamma + 8; cut++)
    assert_non_null(sl__picture_read(bytes, cut, 3, 3, &picture));
  memset(bytes + HEADER, 0xff, 4);
  assert_non_null(sl__picture_read(bytes, size, 3, 3, &picture));
  sl__picture_free(&picture);
}

/* A PNG, interlaced or not; its samples are bytes, or pairs of them, in the order of the file. */
struct written {
  int colours, bits, interlace, channels;
  uint8_t bytes[2 * MOST];
  size_t size;
};

static void write_bytes(png_structp png, png_bytep bytes, size_t size) {
  struct written *to = png_get_io_ptr(png);
  assert_true(to->size + size <= sizeof to->bytes);
  memcpy(to->bytes + to->size, bytes, size);
  to->size += size;
}

enum { ACROSS = 13, DOWN = 11, PIXELS = ACROSS * DOWN, KEY = 7 };

static const png_color palette[4] = {{10, 20, 30}, {250, 128, 1}, {77, 0, 255}, {255, 255, 255}};
static const png_byte palette_alpha[3] = {255, 128, 1};

static void write_png(struct written *to, uint8_t *samples) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
  png_infop info = png_create_info_struct(png);
  const png_color_16 key = {.gray = KEY, .red = KEY, .green = KEY, .blue = KEY};
  png_bytep rows[DOWN];
  size_t row = (size_t)(ACROSS * to->channels * to->bits / 8);
  for (size_t y = 0; y < DOWN; y++) rows[y] = samples + y * row;
  to->size = 0;
  png_set_write_fn(png, to, write_bytes, NULL);
  png_set_IHDR(png, info, ACROSS, DOWN, to->bits, to->colours, to->interlace,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (to->colours == PNG_COLOR_TYPE_PALETTE) {
    png_set_PLTE(png, info, palette, 4);
    png_set_tRNS(png, info, palette_alpha, 3, NULL);
  } else if (!(to->colours & PNG_COLOR_MASK_ALPHA)) {
    png_set_tRNS(png, info, NULL, 0, &key);
  }
  png_write_info(png, info);
  png_write_image(png, rows);
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
}

static uint8_t byte_of(const struct written *png, const uint8_t *samples, int i) {
  if (png->bits == 8) return samples[i];
  return (uint8_t)lrint((256 * samples[2 * i] + samples[2 * i + 1]) / 257.0);
}

/* All samples of the pixel are the transparent one. */
static bool is_key(const struct written *png, const uint8_t *samples, int pixel) {
  int size = png->channels * png->bits / 8;
  for (int i = 0; i < size; i++)
    if (samples[pixel * size + i] != (png->bits == 8 || i % 2 ? KEY : 0)) return false;
  return true;
}

/* The value of a pixel's colour on black. */
static int on_black(const struct written *png, const uint8_t *samples, int pixel, int colour) {
  if (png->colours == PNG_COLOR_TYPE_PALETTE) {
    int i = samples[pixel], alpha = i < 3 ? palette_alpha[i] : 255;
    const png_byte rgb[] = {palette[i].red, palette[i].green, palette[i].blue};
    return (rgb[colour] * alpha + 127) / 255;
  }
  int value = byte_of(png, samples, pixel * png->channels + colour);
  if (!(png->colours & PNG_COLOR_MASK_ALPHA)) return is_key(png, samples, pixel) ? 0 : value;
  return (value * byte_of(png, samples, (pixel + 1) * png->channels - 1) + 127) / 255;
}

/* Every kind of pixel, interlaced or not, of 8 and 16 bits, partly transparent. */
static void test_png_kinds(void **state) {
  (void)state;
  static const struct {
    int colours, channels;
  } kinds[] = {{PNG_COLOR_TYPE_GRAY, 1},
               {PNG_COLOR_TYPE_GRAY_ALPHA, 2},
               {PNG_COLOR_TYPE_RGB, 3},
               {PNG_COLOR_TYPE_RGB_ALPHA, 4},
               {PNG_COLOR_TYPE_PALETTE, 1}};
  static struct written png;
  uint8_t samples[PIXELS * 8];
  struct sl__picture picture = {0};
  for (int k = 0; k < 20; k++) {
    png.colours = kinds[k / 4].colours;
    png.channels = kinds[k / 4].channels;
    png.bits = k & 1 ? 16 : 8;
    png.interlace = k & 2 ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE;
    bool indexed = png.colours == PNG_COLOR_TYPE_PALETTE;
    if (indexed && png.bits == 16) continue;
    for (int i = 0; i < PIXELS * 8; i++)
      samples[i] = (uint8_t)(indexed ? i * i / 7 % 4 : i * i / 3 + 5 * i);
    int size = png.channels * png.bits / 8;
    for (int i = 0; i < size; i++) samples[9 * size + i] = png.bits == 8 || i % 2 ? KEY : 0;
    if (indexed) samples[9] = 1;
    write_png(&png, samples);
    assert_null(sl__picture_read(png.bytes, png.size, 0, 0, &picture));
    int channels = png.colours & PNG_COLOR_MASK_COLOR ? 3 : 1;
    assert_true(picture.width == ACROSS && picture.height == DOWN && picture.channels == channels);
    for (int i = 0; i < PIXELS * channels; i++)
      assert_int_equal(picture.values[i], on_black(&png, samples, i / channels, i % channels));
  }
  sl__picture_free(&picture);
}

/* Cut before its last pixels it is refused; changed at any place it is read or refused. */
static void test_damaged_png(void **state) {
  (void)state;
  enum { END = 12 }; /* a chunk that says nothing more */
  static struct written png = {PNG_COLOR_TYPE_RGB_ALPHA, 16, PNG_INTERLACE_ADAM7, 4, {0}, 0};
  uint8_t samples[PIXELS * 8];
  struct sl__picture picture = {0};
  for (int i = 0; i < PIXELS * 8; i++) samples[i] = (uint8_t)(i * i);
  write_png(&png, samples);
  for (size_t cut = 0; cut + END < png.size; cut++)
    assert_non_null(sl__picture_read(png.bytes, cut, 0, 0, &picture));
  assert_string_equal(sl__picture_read(png.bytes, png.size / 2, 0, 0, &picture),
                      "damaged, or cut short");
  for (size_t i = 4; i < png.size; i++) {
    png.bytes[i] ^= 0x41;
    sl__picture_read(png.bytes, png.size, 0, 0, &picture);
    png.bytes[i] ^= 0x41;
  }
  sl__picture_free(&picture);
}
#endif

static enum sl_status open_good(void) {
  return open_set("set", (struct sl_reader_options){.height = 4, .width = 4, .skip_bad = true});
}

static void test_allocations(void **state) {
  (void)state;
  static const char *const folders[] = {"set", "set/a", "set/b"};
  make_folders(folders, 3);
  put_pnm("set/a/1.ppm", 8, 8, 3, 1);
  put_pnm("set/b/1.ppm", 4, 4, 3, 2);
  put("set/b/2.ppm", "P6\n4", 4);
  check_allocations(open_good);
  remove_all("set");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_classes),     cmocka_unit_test(test_sizes),
      cmocka_unit_test(test_parts),       cmocka_unit_test(test_bad_pictures),
#ifdef SL_HAVE_JPEG
      cmocka_unit_test(test_jpeg),        cmocka_unit_test(test_damaged_jpeg),
      cmocka_unit_test(test_direct),
#endif
#ifdef SL_HAVE_PNG
#ifndef SL_SANITIZE
      cmocka_unit_test(test_no_memory),
#endif
      cmocka_unit_test(test_png),         cmocka_unit_test(test_png_gamma),
      cmocka_unit_test(test_png_kinds),   cmocka_unit_test(test_damaged_png),
#endif
      cmocka_unit_test(test_allocations),
  };
  return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
