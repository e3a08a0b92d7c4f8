/* Answers as JSON lines on standard output. */
#ifndef SL_TOOLS_PREDICT_JSON_OUTPUT_H
#define SL_TOOLS_PREDICT_JSON_OUTPUT_H

#include <jansson.h>

#include "tools/predict/request_queue.h"

enum { MOST_TOP = 1000 };

/* What is said of a model's outputs. */
enum answer { ANSWER_CLASS, ANSWER_VALUES, ANSWER_LABELS, ANSWER_MASK };

struct printer {
  enum answer answer;
  const struct sl_model_notes *notes;
  const struct sl_vocabulary *vocabulary; /* of text; NULL: tokens are numbers */
  int64_t classes;                        /* of other answers than a class: outputs */
  int64_t plane; /* outputs that follow each other: with the same unit, of the same mask */
  int64_t width; /* of a mask's rows */
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
