#include "data/picture.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

bool sl__is_png(const uint8_t *bytes, size_t size) {
  static const uint8_t start[] = {0x89, 'P', 'N', 'G'};
  return size >= sizeof start && !memcmp(bytes, start, sizeof start);
}

#ifdef SL_HAVE_PNG
#include <png.h>
#include <setjmp.h>

/* A PNG on its way into a picture. libpng's errors do not return. */
struct reader {
  png_structp png;
  png_infop info;
  const uint8_t *bytes; /* the rest of the file */
  size_t size;
  jmp_buf failed;
  const char *why;
  bool no_memory; /* for a part of it, which may be one that libpng can do without */
};

/* libpng's errors are texts, which do not tell missing memory from damage. */
static png_voidp allocate(png_structp png, png_alloc_size_t size) {
  struct reader *r = png_get_mem_ptr(png);
  void *memory = malloc(size);
  if (!memory) r->no_memory = true;
  return memory;
}

static void release(png_structp png, png_voidp memory) {
  (void)png;
  free(memory);
}

static void give_up(png_structp png, const char *message) {
  struct reader *r = png_get_error_ptr(png);
  (void)message;
  longjmp(r->failed, 1);
}

static void ignore_warning(png_structp png, const char *message) { (void)png, (void)message; }

static void take(png_structp png, png_bytep to, size_t size) {
  struct reader *r = png_get_io_ptr(png);
  if (size > r->size) png_error(png, "cut short");
  memcpy(to, r->bytes, size);
  r->bytes += size;
  r->size -= size;
}

/* Bytes of grey or red, green, blue, and alpha if the file has it. As they are kept in the file: no
 * gamma, which PIL does not apply either, and the eye's grey of a colour is for prepare() to make,
 * of any kind of file. Returns the passes over the rows. */
static int choose_bytes(const struct reader *r) {
  png_set_expand(r->png);
  png_set_scale_16(r->png);
  int passes = png_set_interlace_handling(r->png);
  png_read_update_info(r->png, r->info);
  return passes;
}

/* Lays pixels on black and takes their alpha away: [count, channels + 1] to [count, channels]. */
static void blend(uint8_t *bytes, size_t count, size_t channels) {
  const uint8_t *from = bytes;
  for (size_t i = 0; i < count; i++, from += channels + 1)
    for (size_t c = 0; c < channels; c++)
      *bytes++ = (uint8_t)((from[c] * from[channels] + 127) / 255);
}

static const char *read_pixels(const struct reader *r, struct sl__picture *picture) {
  int passes = choose_bytes(r);
  size_t width = png_get_image_width(r->png, r->info);
  png_uint_32 height = png_get_image_height(r->png, r->info);
  int stride = png_get_channels(r->png, r->info), channels = stride < 3 ? 1 : 3;
  const char *why = sl__picture_begin(picture, (int64_t)width, height, channels, stride, height);
  if (why) return why;
  for (int pass = 0; pass < passes; pass++)
    for (png_uint_32 y = 0; y < height; y++)
      png_read_row(r->png, picture->bytes + y * width * (size_t)stride, NULL);
  if (stride > channels) blend(picture->bytes, width * height, (size_t)channels);
  picture->stride = channels;
  sl__picture_lines(picture, 0, height);
  return NULL;
}

static const char *decode(struct reader *r, struct sl__picture *picture) {
  r->why = "is no PNG, damaged, or cut short";
  if (setjmp(r->failed)) return r->no_memory ? sl__picture_no_memory : r->why;
  png_set_read_fn(r->png, r, take);
  png_set_benign_errors(r->png, 1); /* those that libpng can mend are warnings */
  png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* none but the pixels' */
  png_read_info(r->png, r->info);
  r->why = "damaged, or cut short";
  return read_pixels(r, picture);
}

const char *sl__png_read(const uint8_t *bytes, size_t size, struct sl__picture *picture) {
  struct reader r = {.bytes = bytes, .size = size};
  const char *why = sl__picture_no_memory;
  r.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &r, give_up, ignore_warning, &r, allocate,
                                   release);
  r.info = r.png ? png_create_info_struct(r.png) : NULL;
  if (r.info) why = decode(&r, picture);
  png_destroy_read_struct(&r.png, &r.info, NULL);
  return why;
}
#else
const char *sl__png_read(const uint8_t *bytes, size_t size, struct sl__picture *picture) {
  (void)bytes, (void)size, (void)picture;
  return "is a PNG, which this build cannot read: it was made without libpng; take a PGM or PPM";
}
#endif
