/* SVG 1.1, as text: small, and the words in it stay words. */
#include <stdio.h>
#include <stdlib.h>

#include "tools/common/canvas.h"
#include "tools/common/escape.h"

struct svg {
  struct canvas canvas;
  FILE *stream;
  char *bytes;
  size_t size;
};

static void svg_line(struct canvas *canvas, const struct point *points, size_t count,
                     const struct pen *pen) {
  FILE *out = ((struct svg *)canvas)->stream;
  fprintf(out,
          "<polyline fill=\"none\" stroke=\"#%06x\" stroke-width=\"%g\" stroke-linejoin=\"round\"",
          pen->colour, pen->width);
  if (pen->opacity < 1) fprintf(out, " stroke-opacity=\"%g\"", pen->opacity);
  if (pen->dashed) fputs(" stroke-dasharray=\"4 3\"", out);
  fputs(" points=\"", out);
  for (size_t i = 0; i < count; i++)
    fprintf(out, "%s%.1f,%.1f", i ? " " : "", points[i].x, points[i].y);
  fputs("\"/>\n", out);
}

static void svg_dot(struct canvas *canvas, struct point centre, double radius, unsigned colour) {
  fprintf(((struct svg *)canvas)->stream,
          "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"#%06x\"/>\n", centre.x, centre.y, radius,
          colour);
}

static void svg_box(struct canvas *canvas, struct point corner, double width, double height,
                    unsigned colour, double opacity) {
  fprintf(((struct svg *)canvas)->stream,
          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#%06x\" "
          "fill-opacity=\"%g\"/>\n",
          corner.x, corner.y, width, height, colour, opacity);
}

static void svg_text(struct canvas *canvas, struct point at, enum anchor anchor, double size,
                     unsigned colour, const char *text) {
  static const char *const anchors[] = {"start", "middle", "end"};
  FILE *out = ((struct svg *)canvas)->stream;
  fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%g\" fill=\"#%06x\">",
          at.x, at.y, anchors[anchor], size, colour);
  escape_text(out, text);
  fputs("</text>\n", out);
}

static bool svg_finish(struct canvas *canvas, char **bytes, size_t *size) {
  struct svg *svg = (struct svg *)canvas;
  fputs("</svg>\n", svg->stream);
  bool whole = !ferror(svg->stream) && fclose(svg->stream) == 0;
  svg->stream = NULL;
  if (!whole || !svg->bytes) return false;
  *bytes = svg->bytes;
  *size = svg->size;
  svg->bytes = NULL;
  return true;
}

static void svg_free(struct canvas *canvas) {
  struct svg *svg = (struct svg *)canvas;
  if (svg->stream) fclose(svg->stream);
  free(svg->bytes);
  free(svg);
}

struct canvas *canvas_svg(int width, int height) {
  struct svg *svg = calloc(1, sizeof *svg);
  if (!svg) return NULL;
  svg->canvas = (struct canvas){svg_line, svg_dot, svg_box, svg_text, svg_finish, svg_free};
  svg->stream = open_memstream(&svg->bytes, &svg->size);
  if (!svg->stream) {
    free(svg);
    return NULL;
  }
  fprintf(svg->stream,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
          "viewBox=\"0 0 %d %d\" font-family=\"Helvetica, Arial, sans-serif\">\n",
          width, height, width, height);
  return &svg->canvas;
}
