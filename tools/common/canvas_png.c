/* PNG by cairo, at twice the size, so that it is sharp on any screen. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tools/common/canvas.h"

#ifdef SL_HAVE_CAIRO
#include <cairo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double SCALE = 2;

struct png {
  struct canvas canvas;
  cairo_surface_t *surface;
  cairo_t *cairo;
};

static void set_colour(cairo_t *cairo, unsigned colour, double opacity) {
  cairo_set_source_rgba(cairo, (colour >> 16 & 255) / 255.0, (colour >> 8 & 255) / 255.0,
                        (colour & 255) / 255.0, opacity);
}

static void png_line(struct canvas *canvas, const struct point *points, size_t count,
                     const struct pen *pen) {
  cairo_t *cairo = ((struct png *)canvas)->cairo;
  const double dashes[] = {4, 3};
  cairo_set_dash(cairo, dashes, pen->dashed ? 2 : 0, 0);
  cairo_set_line_width(cairo, pen->width);
  cairo_set_line_join(cairo, CAIRO_LINE_JOIN_ROUND);
  set_colour(cairo, pen->colour, pen->opacity);
  cairo_new_path(cairo); /* text leaves a current point behind */
  for (size_t i = 0; i < count; i++) cairo_line_to(cairo, points[i].x, points[i].y);
  cairo_stroke(cairo);
}

static void png_dot(struct canvas *canvas, struct point centre, double radius, unsigned colour) {
  cairo_t *cairo = ((struct png *)canvas)->cairo;
  set_colour(cairo, colour, 1);
  cairo_new_path(cairo);
  cairo_arc(cairo, centre.x, centre.y, radius, 0, 2 * M_PI);
  cairo_fill(cairo);
}

static void png_box(struct canvas *canvas, struct point corner, double width, double height,
                    unsigned colour, double opacity) {
  cairo_t *cairo = ((struct png *)canvas)->cairo;
  set_colour(cairo, colour, opacity);
  cairo_rectangle(cairo, corner.x, corner.y, width, height);
  cairo_fill(cairo);
}

static void png_text(struct canvas *canvas, struct point at, enum anchor anchor, double size,
                     unsigned colour, const char *text) {
  cairo_t *cairo = ((struct png *)canvas)->cairo;
  static const double before[] = {0, 0.5,
                                  1}; /* the share of the text left of the point, by enum anchor */
  cairo_text_extents_t extents;
  cairo_set_font_size(cairo, size);
  cairo_text_extents(cairo, text, &extents);
  set_colour(cairo, colour, 1);
  cairo_move_to(cairo, at.x - before[anchor] * extents.x_advance, at.y);
  cairo_show_text(cairo, text);
}

struct growing {
  char *bytes;
  size_t size;
};

static cairo_status_t append(void *to, const unsigned char *bytes, unsigned count) {
  struct growing *file = to;
  char *grown = realloc(file->bytes, file->size + count);
  if (!grown) return CAIRO_STATUS_NO_MEMORY;
  memcpy(grown + file->size, bytes, count);
  file->bytes = grown;
  file->size += count;
  return CAIRO_STATUS_SUCCESS;
}

static bool png_finish(struct canvas *canvas, char **bytes, size_t *size) {
  struct png *png = (struct png *)canvas;
  struct growing file = {0};
  bool drawn = cairo_status(png->cairo) == CAIRO_STATUS_SUCCESS;
  cairo_surface_flush(png->surface);
  if (!drawn ||
      cairo_surface_write_to_png_stream(png->surface, append, &file) != CAIRO_STATUS_SUCCESS) {
    free(file.bytes);
    return false;
  }
  *bytes = file.bytes;
  *size = file.size;
  return true;
}

static void png_free(struct canvas *canvas) {
  struct png *png = (struct png *)canvas;
  cairo_destroy(png->cairo);
  cairo_surface_destroy(png->surface);
  free(png);
}

struct canvas *canvas_png(int width, int height) {
  struct png *png = calloc(1, sizeof *png);
  if (!png) return NULL;
  png->canvas = (struct canvas){png_line, png_dot, png_box, png_text, png_finish, png_free};
  png->surface =
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)(SCALE * width), (int)(SCALE * height));
  png->cairo = cairo_create(png->surface);
  cairo_scale(png->cairo, SCALE, SCALE);
  cairo_select_font_face(png->cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                         CAIRO_FONT_WEIGHT_NORMAL);
  return &png->canvas;
}

bool canvas_has_png(void) { return true; }

#else

struct canvas *canvas_png(int width, int height) {
  (void)width;
  (void)height;
  return NULL;
}

bool canvas_has_png(void) { return false; }

#endif
