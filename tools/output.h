/* Pictures as files: the format by the name's end, written aside and renamed. */
#ifndef SL_TOOLS_OUTPUT_H
#define SL_TOOLS_OUTPUT_H

#include "canvas.h"

bool output_is_png(const char *path);
bool output_name_is_fine(const char *path); /* .svg or .png */

/* NULL where there is no memory. */
struct canvas *output_canvas(const char *path, int width, int height);

/* Returns errno's value, or 0. */
int output_write(const char *path, struct canvas *canvas);

#endif
