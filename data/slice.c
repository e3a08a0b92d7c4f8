#include "data/slice.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/numbers.h"

void sl__slice_all(int ndim, const int64_t *dim, struct sl__slice *slice) {
  *slice = (struct sl__slice){.ndim = ndim, .whole_rows = true};
  for (int d = 0; d < ndim; d++) {
    slice->dim[d] = slice->count[d] = dim[d];
    slice->step[d] = 1;
  }
}

const char *sl__slice_find(const char *name) {
  const char *bracket = strrchr(name, '[');
  size_t length = bracket ? strspn(bracket + 1, "0123456789+-:., ") : 0;
  return bracket && bracket > name && !strcmp(bracket + 1 + length, "]") ? bracket : NULL;
}

struct sl_shape sl__slice_shape(const struct sl__slice *slice) {
  struct sl_shape shape = {0};
  for (int d = 0; d < slice->ndim; d++)
    if (!slice->drops[d]) shape.dim[shape.ndim++] = slice->count[d];
  return shape;
}

/* ---- parsing ---- */

struct parser {
  const char *name, *at;
  struct sl__slice *slice;
};

/* One axis' part: "a:b:s", or "a" alone. */
struct part {
  const char *text;
  int length;
  int64_t number[3];
  bool given[3];
  int colons;
};

static enum sl_status bad_part(const struct parser *p, const struct part *part, int axis,
                               const char *why) {
  char text[96];
  struct sl_shape shape = {.ndim = p->slice->ndim};
  memcpy(shape.dim, p->slice->dim, sizeof shape.dim);
  return sl__fail(SL_BAD_ARGUMENT, "%s: '%.*s' for axis %d: %s; its shape is %s", p->name,
                  part->length, part->text, axis, why, sl_shape_text(&shape, text, sizeof text));
}

static void skip_blanks(struct parser *p) { p->at += strspn(p->at, " "); }

/* A number with its sign, if one is there; false: it is none, or too large. */
static bool take_number(struct parser *p, struct part *part) {
  bool minus = *p->at == '-';
  int i = part->colons;
  const char *first = p->at + minus, *end = sl__scan_whole(first, &part->number[i]);
  if (!end) return !minus && !strspn(first, "0123456789");
  part->given[i] = true;
  if (minus) part->number[i] = -part->number[i];
  p->at = end;
  return true;
}

/* Up to the comma or bracket behind it. */
static enum sl_status take_part(struct parser *p, int axis, struct part *part) {
  skip_blanks(p);
  *part = (struct part){.text = p->at, .length = (int)strcspn(p->at, ",]")};
  while (part->length && part->text[part->length - 1] == ' ') part->length--;
  for (bool fits = true; fits;) {
    fits = take_number(p, part);
    skip_blanks(p);
    if (fits && strchr(",]", *p->at) && part->length) return SL_OK;
    fits = fits && *p->at == ':' && part->colons < 2;
    if (!fits) break;
    part->colons++;
    p->at++;
    skip_blanks(p);
  }
  return bad_part(p, part, axis, "is no range; write a:b, a:, :b, a:b:step, : or one number");
}

/* A number that counts from the end if it is negative. */
static int64_t from_start(int64_t number, int64_t length) {
  return number < 0 ? number + length : number;
}

static enum sl_status use_part(struct parser *p, int axis, const struct part *part) {
  struct sl__slice *slice = p->slice;
  int64_t length = slice->dim[axis], step = part->given[2] ? part->number[2] : 1;
  int64_t first = part->given[0] ? from_start(part->number[0], length) : 0;
  int64_t end = part->given[1] ? from_start(part->number[1], length) : length;
  if (!part->colons && axis == 0)
    return bad_part(p, part, axis, "the first axis counts samples; take a range of it, as 0:100");
  if (step < 1) return bad_part(p, part, axis, "a step is at least 1");
  if (first < 0 || first >= length || end < 0 || end > length)
    return bad_part(p, part, axis, "reaches beyond the axis");
  slice->drops[axis] = !part->colons;
  if (slice->drops[axis]) end = first + 1;
  if (end <= first) return bad_part(p, part, axis, "takes nothing");
  slice->first[axis] = first;
  slice->step[axis] = step;
  slice->count[axis] = (end - first - 1) / step + 1;
  if (axis && slice->count[axis] < length) slice->whole_rows = false;
  return SL_OK;
}

enum sl_status sl__slice_parse(const char *name, const char *text, struct sl__slice *slice) {
  struct parser p = {.name = name, .at = text, .slice = slice};
  struct part part;
  for (int axis = 0; *p.at != ']'; axis++) {
    p.at++; /* the bracket, or a comma */
    if (axis == slice->ndim)
      return sl__fail(SL_BAD_ARGUMENT, "%s: its slice has more parts than the array has axes, %d",
                      name, slice->ndim);
    enum sl_status status = take_part(&p, axis, &part);
    if (status == SL_OK) status = use_part(&p, axis, &part);
    if (status != SL_OK) return status;
  }
  return SL_OK;
}
