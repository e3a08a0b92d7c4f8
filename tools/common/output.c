#include "tools/common/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool ends_in(const char *path, const char *end) {
  size_t length = strlen(path), tail = strlen(end);
  return length > tail && strcasecmp(path + length - tail, end) == 0;
}

bool output_is_png(const char *path) { return ends_in(path, ".png"); }

bool output_is_page(const char *path) { return ends_in(path, ".html") || ends_in(path, ".htm"); }

bool output_name_is_fine(const char *path) { return ends_in(path, ".svg") || output_is_png(path); }

struct canvas *output_canvas(const char *path, int width, int height) {
  return output_is_png(path) ? canvas_png(width, height) : canvas_svg(width, height);
}

int output_write(const char *path, struct canvas *canvas) {
  char *bytes = NULL;
  size_t size;
  int error = canvas->finish(canvas, &bytes, &size) ? output_bytes(path, bytes, size) : ENOMEM;
  free(bytes);
  return error;
}
