/* Pictures and pages as files; a picture's format by the name's end. */
#ifndef SL_TOOLS_COMMON_OUTPUT_H
#define SL_TOOLS_COMMON_OUTPUT_H

#include "tools/common/canvas.h"
#include "tools/common/output_bytes.h"

bool output_is_png(const char *path);
bool output_is_page(const char *path);      /* .html or .htm */
bool output_name_is_fine(const char *path); /* .svg or .png */

/* NULL where there is no memory. */
struct canvas *output_canvas(const char *path, int width, int height);

/* Returns errno's value, or 0. */
int output_write(const char *path, struct canvas *canvas);

#endif
