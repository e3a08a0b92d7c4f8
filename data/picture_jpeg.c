#include "data/picture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

bool sl__is_jpeg(const uint8_t *bytes, size_t size) {
  static const uint8_t start[] = {0xff, 0xd8, 0xff};
  return size >= sizeof start && !memcmp(bytes, start, sizeof start);
}

#ifdef SL_HAVE_JPEG
#include <jerror.h>
#include <jpeglib.h>
#include <setjmp.h>

/* libjpeg's errors do not return. A decoder stays with its picture and serves the next file. */
struct sl__jpeg_decoder {
  struct jpeg_decompress_struct jpeg;
  struct jpeg_error_mgr errors;
  jmp_buf failed;
  const char *why;
  uint8_t *bytes; /* a file, and markers of the end */
  size_t room;
};

static const char cut_short[] = "damaged, or cut short";

static void give_up(j_common_ptr jpeg) {
  struct sl__jpeg_decoder *d = jpeg->client_data;
  d->why =
      jpeg->err->msg_code == JERR_OUT_OF_MEMORY ? sl__picture_no_memory : "damaged, or no JPEG";
  longjmp(d->failed, 1);
}

/* Where a picture is cut short, libjpeg would make up the rest. Its other warnings are of pictures
 * that are whole. */
static void judge_warning(j_common_ptr jpeg, int level) {
  struct sl__jpeg_decoder *d = jpeg->client_data;
  int code = jpeg->err->msg_code;
  if (level >= 0 || (code != JWRN_JPEG_EOF && code != JWRN_HIT_MARKER)) return;
  d->why = cut_short;
  longjmp(d->failed, 1);
}

/* Nothing was read yet, or the file before was, to its end or not. */
static void begin(struct sl__jpeg_decoder *d) {
  if (d->jpeg.global_state) {
    jpeg_abort_decompress(&d->jpeg);
    return;
  }
  d->jpeg.err = jpeg_std_error(&d->errors);
  d->errors.error_exit = give_up;
  d->errors.emit_message = judge_warning;
  d->jpeg.client_data = d;
  jpeg_create_decompress(&d->jpeg);
}

/* The smallest number of eighths by which the picture does not become too small. */
static void choose_scale(j_decompress_ptr jpeg, int64_t width, int64_t height) {
  unsigned eighths = 8;
  if (width < 1 || height < 1) return;
  while (eighths > 1 && (int64_t)jpeg->image_width * (eighths - 1) >= 8 * width &&
         (int64_t)jpeg->image_height * (eighths - 1) >= 8 * height)
    eighths--;
  jpeg->scale_num = eighths;
  jpeg->scale_denom = 8;
}

/* libjpeg-turbo writes a pixel into a word, whose bytes are quicker to take apart. */
static int choose_colours(j_decompress_ptr jpeg) {
  jpeg->out_color_space = jpeg->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
#if defined(JCS_EXTENSIONS) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  if (jpeg->num_components == 3) jpeg->out_color_space = JCS_EXT_RGBX;
#endif
  return jpeg->num_components;
}

/* Lines at a time: so few that a processor stores their floats while libjpeg makes the next. */
enum { LINES = 8 };

static const char *read_lines(struct sl__jpeg_decoder *d, int channels,
                              struct sl__picture *picture) {
  j_decompress_ptr jpeg = &d->jpeg;
  int stride = jpeg->out_color_components;
  const char *why =
      sl__picture_begin(picture, jpeg->output_width, jpeg->output_height, channels, stride, LINES);
  if (why) return why;
  JSAMPROW row[LINES];
  for (int i = 0; i < LINES; i++)
    row[i] = picture->bytes + (size_t)i * jpeg->output_width * (size_t)stride;
  while (jpeg->output_scanline < jpeg->output_height) {
    JDIMENSION first = jpeg->output_scanline, lines = 0;
    while (lines < LINES && jpeg->output_scanline < jpeg->output_height)
      lines += jpeg_read_scanlines(jpeg, row + lines, LINES - lines);
    sl__picture_lines(picture, first, lines);
  }
  jpeg_finish_decompress(jpeg);
  return NULL;
}

/* libjpeg-turbo uses its fast Huffman decoder while 512 bytes are left for each of a unit's blocks,
 * which are at most 10: for half of a small file, or less. So markers of the end follow the file; a
 * picture that needs them is cut short. */
enum { ENDS = 512 * 10 };

static const char *copy_file(struct sl__jpeg_decoder *d, const uint8_t *bytes, size_t size) {
  static const uint8_t end[] = {0xff, JPEG_EOI};
  if (size + ENDS > d->room) {
    free(d->bytes);
    d->bytes = malloc(size + ENDS);
    d->room = d->bytes ? size + ENDS : 0;
  }
  if (!d->bytes) return sl__picture_no_memory;
  memcpy(d->bytes, bytes, size);
  for (size_t i = 0; i < ENDS; i += sizeof end) memcpy(d->bytes + size + i, end, sizeof end);
  return NULL;
}

/* ends: bytes of the markers behind the file that libjpeg may read. */
static const char *decode(struct sl__jpeg_decoder *d, size_t size, size_t ends, int64_t width,
                          int64_t height, struct sl__picture *picture) {
  j_decompress_ptr jpeg = &d->jpeg;
  if (setjmp(d->failed)) return d->why;
  begin(d);
  jpeg_mem_src(jpeg, d->bytes, (unsigned long)(size + ends));
  jpeg_read_header(jpeg, TRUE);
  if (jpeg->num_components != 1 && jpeg->num_components != 3)
    return "is a JPEG for print (CMYK); save it in RGB";
  if ((int64_t)jpeg->image_width * jpeg->image_height > SL__MOST_PIXELS)
    return "has more than 64 million pixels";
  int channels = choose_colours(jpeg);
  choose_scale(jpeg, width, height);
  jpeg_start_decompress(jpeg);
  const char *why = read_lines(d, channels, picture);
  return why || jpeg->src->bytes_in_buffer >= ends ? why : cut_short;
}

const char *sl__jpeg_read(const uint8_t *bytes, size_t size, int64_t width, int64_t height,
                          struct sl__picture *picture) {
  if (!picture->decoder) picture->decoder = calloc(1, sizeof *picture->decoder);
  if (!picture->decoder) return sl__picture_no_memory;
  const char *why = copy_file(picture->decoder, bytes, size);
  if (why || !decode(picture->decoder, size, ENDS, width, height, picture)) return why;
  return decode(picture->decoder, size, 0, width, height, picture); /* for its message */
}

void sl__jpeg_free(struct sl__jpeg_decoder *decoder) {
  if (!decoder) return;
  jpeg_destroy_decompress(&decoder->jpeg);
  free(decoder->bytes);
  free(decoder);
}
#else
const char *sl__jpeg_read(const uint8_t *bytes, size_t size, int64_t width, int64_t height,
                          struct sl__picture *picture) {
  (void)bytes, (void)size, (void)width, (void)height, (void)picture;
  return "is a JPEG, which this build cannot read: it was made without libjpeg; take a PNG or PPM";
}

void sl__jpeg_free(struct sl__jpeg_decoder *decoder) { (void)decoder; }
#endif
