/* A picture being drawn: the same few strokes as SVG (own writer) or PNG (cairo, where the build
 * has it). */
#ifndef SL_TOOLS_COMMON_CANVAS_H
#define SL_TOOLS_COMMON_CANVAS_H

#include <stdbool.h>
#include <stddef.h>

struct point {
  double x, y; /* pixels, from the upper left corner */
};

enum anchor { ANCHOR_START, ANCHOR_MIDDLE, ANCHOR_END };

struct pen {
  unsigned colour; /* 0xrrggbb */
  double width;
  double opacity;
  bool dashed;
};

/* The operations of a picture format. finish gives the file's bytes (to be freed by free()), or
 * false. */
struct canvas {
  void (*line)(struct canvas *canvas, const struct point *points, size_t count,
               const struct pen *pen);
  void (*dot)(struct canvas *canvas, struct point centre, double radius, unsigned colour);
  void (*box)(struct canvas *canvas, struct point corner, double width, double height,
              unsigned colour, double opacity);
  void (*text)(struct canvas *canvas, struct point at, enum anchor anchor, double size,
               unsigned colour, const char *text);
  bool (*finish)(struct canvas *canvas, char **bytes, size_t *size);
  void (*free)(struct canvas *canvas);
};

/* NULL where there is no memory. */
struct canvas *canvas_svg(int width, int height);
/* NULL where there is no memory, or where the build has no cairo. */
struct canvas *canvas_png(int width, int height);
bool canvas_has_png(void);

#endif
