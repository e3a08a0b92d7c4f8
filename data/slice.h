/* Slices of arrays, in NumPy's words: "[:, 0:2, -1]" behind an array's name. The parser works on a
 * text, without files. */
#ifndef SL_DATA_SLICE_H
#define SL_DATA_SLICE_H

#include <starling/base.h>

/* What is read of an array: of axis d the elements first[d] + i step[d], i below count[d]. */
struct sl__slice {
  int ndim;
  int64_t dim[SL_MAX_DIMS]; /* the array's, in its file */
  int64_t first[SL_MAX_DIMS], step[SL_MAX_DIMS], count[SL_MAX_DIMS];
  bool drops[SL_MAX_DIMS]; /* one element by its number: the axis is gone from the shape */
  bool whole_rows;         /* of all axes but the first, all elements */
};

/* All of an array of that shape. */
void sl__slice_all(int ndim, const int64_t *dim, struct sl__slice *slice);

/* "[:, 0:2]" of "x[:, 0:2]": the brackets at a name's end, if they hold digits, signs, colons, dots
 * and blanks alone; else NULL. */
const char *sl__slice_find(const char *name);

/* text: "[a:b, a:b:s, k]", brackets included; fewer parts than axes take all of the others. *slice
 * is that of the whole array before. name: what messages begin with. \return SL_BAD_ARGUMENT. */
enum sl_status sl__slice_parse(const char *name, const char *text, struct sl__slice *slice);

/* The shape of its elements, without the axes that are gone. */
struct sl_shape sl__slice_shape(const struct sl__slice *slice);

#endif
