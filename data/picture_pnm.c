/* PGM and PPM: a header of words, with comments, then the values as text or as bytes. */
#include <stdbool.h>
#include <stdlib.h>

#include "data/picture.h"

static const char cut[] = "cut short; was the download complete?";

const char sl__picture_no_memory[] = "is too large for the memory";

const char *sl__picture_room(struct sl__picture *picture, int64_t width, int64_t height,
                             int channels) {
  if (width < 1 || height < 1) return "is empty: it has no pixels";
  if (width > SL__MOST_PIXELS || height > SL__MOST_PIXELS / width)
    return "has more than 64 million pixels";
  size_t count = (size_t)(width * height) * (size_t)channels;
  uint16_t *values = reallocarray(picture->values, count, sizeof *values);
  if (!values) return sl__picture_no_memory;
  picture->width = width;
  picture->height = height;
  picture->channels = channels;
  picture->values = values;
  picture->is_direct = false;
  return NULL;
}

struct reader {
  const uint8_t *at, *end;
};

static bool is_blank(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static void skip_blanks(struct reader *r) {
  for (; r->at < r->end; r->at++) {
    if (*r->at == '#')
      while (r->at < r->end && *r->at != '\n') r->at++;
    if (r->at == r->end || !is_blank(*r->at)) return;
  }
}

/* A number of at most `most` behind blanks and comments. */
static const char *read_number(struct reader *r, unsigned most, unsigned *number) {
  skip_blanks(r);
  if (r->at == r->end) return cut;
  if (*r->at < '0' || *r->at > '9') return "damaged: there is no number where one should be";
  for (*number = 0; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
    *number = 10 * *number + (unsigned)(*r->at - '0');
    if (*number > most) return "damaged: a number is too large";
  }
  return NULL;
}

static const char *read_text(struct reader *r, struct sl__picture *picture, size_t count) {
  for (size_t i = 0; i < count; i++) {
    unsigned value;
    const char *why = read_number(r, picture->most, &value);
    if (why) return why;
    picture->values[i] = (uint16_t)value;
  }
  return NULL;
}

/* One byte a value, or two, the higher one first. */
static const char *read_bytes(struct reader *r, struct sl__picture *picture, size_t count) {
  const unsigned byte = 255;
  size_t each = picture->most > byte ? 2 : 1;
  if (count > (size_t)(r->end - r->at) / each) return cut;
  for (size_t i = 0; i < count; i++, r->at += each) {
    unsigned value = each == 1 ? r->at[0] : (unsigned)r->at[0] << 8 | r->at[1];
    if (value > picture->most) return "damaged: a value is above its maximum";
    picture->values[i] = (uint16_t)value;
  }
  return NULL;
}

static const char *read_picture(struct reader *r, struct sl__picture *picture) {
  const unsigned most_value = 65535;
  bool colour = r->at[1] == '3' || r->at[1] == '6', text = r->at[1] < '5';
  unsigned width, height;
  r->at += 2;
  const char *why = read_number(r, SL__MOST_PIXELS, &width);
  if (!why) why = read_number(r, SL__MOST_PIXELS, &height);
  if (!why) why = read_number(r, most_value, &picture->most);
  if (why) return why;
  if (!picture->most) return "damaged: its maximum is 0";
  if (r->at == r->end) return cut;
  if (!is_blank(*r->at)) return "damaged: no blank after its header";
  r->at++;
  int channels = colour ? 3 : 1;
  /* each value takes at least one byte: no memory is allocated for a file that is cut short */
  if ((uint64_t)width * height * (unsigned)channels > (uint64_t)(r->end - r->at)) return cut;
  why = sl__picture_room(picture, width, height, channels);
  size_t count = (size_t)width * height * (size_t)channels;
  return why ? why : text ? read_text(r, picture, count) : read_bytes(r, picture, count);
}

/* Skips blanks if only they are left. */
static void skip_end(struct reader *r) {
  const uint8_t *at = r->at;
  while (at < r->end && is_blank(*at)) at++;
  if (at == r->end) r->at = at;
}

const char *sl__pnm_read(const uint8_t *bytes, size_t size, struct sl__picture *picture,
                         size_t *used) {
  struct reader r = {bytes, bytes + size};
  if (size < 2 || bytes[0] != 'P' ||
      (bytes[1] != '2' && bytes[1] != '3' && bytes[1] != '5' && bytes[1] != '6'))
    return "is neither PGM (P2, P5) nor PPM (P3, P6)";
  const char *why = read_picture(&r, picture);
  if (!why && bytes[1] < '5') skip_blanks(&r); /* the line's end behind the last number */
  if (!why) skip_end(&r);                      /* editors and echo add a line end */
  *used = (size_t)(r.at - bytes);
  return why;
}
