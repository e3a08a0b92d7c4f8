/* Answers as JSON lines on standard output. */
#ifndef SL_TOOLS_PREDICT_JSON_OUTPUT_H
#define SL_TOOLS_PREDICT_JSON_OUTPUT_H

#include <jansson.h>

#include "tools/predict/request_queue.h"

enum { MOST_TOP = 1000 };

struct printer {
  const struct sl_model_notes *notes;
  const struct sl_vocabulary *vocabulary; /* of text; NULL: tokens are numbers */
  int64_t classes;                        /* of a regression: outputs */
  int64_t plane;                          /* outputs with the same unit, one after the other */
  int top;
  bool logits;
  /* counts of the printed answers, for the summary */
  int64_t samples, labelled, right, tokens;
  double log_likelihood;
  double *probabilities; /* [classes] */
};
int print_images(void *printer, const struct request *request);
int print_line(void *printer, const struct request *request);
/* Prints object as a line, its numbers with some significant digits, and frees it; NULL counts as a
 * lack of memory. */
int print_object(json_t *object, size_t digits);
int flush_output(void);

#endif
