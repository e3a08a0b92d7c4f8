/* Training logs as numbers. */
#ifndef SL_TOOLS_COMMON_CURVES_H
#define SL_TOOLS_COMMON_CURVES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct sample {
  double x, y;
};

struct series {
  struct sample *samples;
  size_t count, capacity;
};

/* A metric of the evaluations; key: of the log without "test_" (tools/common/metric_names.h). */
struct metric_curve {
  char *key;
  struct series values;
};

/* One run's log. x is the number of steps done. */
struct run_curves {
  char *label;
  bool tokens;   /* of a text: its loss is shown as perplexity */
  char unit[16]; /* of throughput: "images", "words"; "samples" if the log does not say */
  struct series loss, test_loss;
  struct series test_accuracy;  /* empty if the task has none */
  struct metric_curve *metrics; /* all others that the log has, in its order */
  size_t metric_count;
  struct series lr, rate; /* empty if the log has none */
  struct series epochs;   /* y: epochs done, with fractions; empty if a step has no epoch */
  struct series seconds;  /* y: since the training's begin; empty if a step has no time (logs of
                             older versions) */
  json_t *notes; /* all other lines' objects, an array; each gets the key "after", the steps
                    done before it */
};

/* false: message (of size bytes) holds one line that names the file and the line in it. */
bool curves_read(const char *path, struct run_curves *run, char *message, size_t size);
void curves_free(struct run_curves *run);

/* NULL: the log has no such metric. */
const struct series *curves_metric(const struct run_curves *run, const char *key);

/* The unit that all runs count a second; "samples" if they differ. */
const char *curves_unit(const struct run_curves *runs, size_t count);

/* The exponentially weighted mean over about window samples, from the left, into smooth (zeroed by
 * the caller). */
bool series_smooth(const struct series *series, double window, struct series *smooth);
bool series_append(struct series *series, double x, double y);

/* Interpolates y at x: 0 at x = 0, and constant after the last sample. x grows along the series. */
double series_at(const struct series *series, double x);

#endif
