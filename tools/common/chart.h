/* Pictures of runs, one colour each. */
#ifndef SL_TOOLS_COMMON_CHART_H
#define SL_TOOLS_COMMON_CHART_H

#include "tools/common/canvas.h"
#include "tools/common/curves.h"

enum chart_kind {
  CHART_OVERVIEW, /* the loss above, the test accuracy below, with a legend */
  /* one coordinate system without paper or legend, for a page that has them; perplexity: of runs
   * on text */
  CHART_LOSS,
  CHART_ACCURACY,
  CHART_PERPLEXITY,
  CHART_METRIC, /* the one that the options name */
  CHART_LR,
  CHART_RATE
};

/* The unit of the x axis. */
enum chart_x { CHART_STEPS, CHART_EPOCHS, CHART_SECONDS };

struct chart_options {
  enum chart_kind kind;
  int width, height;
  const char *title;  /* NULL: none */
  const char *metric; /* of CHART_METRIC: its key */
  bool log_scale;     /* of the loss */
  double smooth;      /* steps; 0: a hundredth of the run */
  enum chart_x x;
};

/* Returns the first run whose log lacks this unit of the x axis, or NULL. */
const struct run_curves *chart_lacks(enum chart_x x, const struct run_curves *runs, size_t count);

/* Does any run have the data of this chart? Of CHART_METRIC see curves_metric. */
bool chart_has(enum chart_kind kind, const struct run_curves *runs, size_t count);

/* Steps over which curves are smoothed, where the options leave it open. */
double chart_window(const struct run_curves *runs, size_t count);

/* The colour of the n-th run, round and round. */
enum { CHART_COLOURS = 7 };
extern const unsigned chart_colours[CHART_COLOURS];

/* false where there is no memory. */
bool chart_draw(struct canvas *canvas, const struct chart_options *options,
                const struct run_curves *runs, size_t count);

#endif
