/* The picture: the loss above, the test accuracy below, one colour a run. */
#ifndef SL_TOOLS_CHART_H
#define SL_TOOLS_CHART_H

#include "canvas.h"
#include "curves.h"

struct chart_options {
  int width, height;
  const char *title; /* NULL: none */
  bool log_scale;    /* of the loss */
  double smooth;     /* steps; 0: a hundredth of the run */
};

/* false where there is no memory. */
bool chart_draw(struct canvas *canvas, const struct chart_options *options,
                const struct run_curves *runs, size_t count);

#endif
