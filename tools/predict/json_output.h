/* Answers as JSON lines on standard output. */
#ifndef SL_TOOLS_PREDICT_JSON_OUTPUT_H
#define SL_TOOLS_PREDICT_JSON_OUTPUT_H

#include <jansson.h>

#include "tools/predict/request_queue.h"

enum { MOST_TOP = 1000 };

/* What is said of a model's outputs. */
enum answer { ANSWER_CLASS, ANSWER_VALUES, ANSWER_LABELS, ANSWER_MASK };

/* An output of the model: a range of the row of outputs. */
struct output {
  const char *name; /* NULL: the model's only one */
  enum answer answer;
  bool guessed;         /* since neither --task nor the model's file says it */
  int64_t first, count; /* its values in the row */
  int64_t plane, width; /* of a mask: values of a plane, and of a plane's rows */
  bool has_labels;      /* a mask's planes are labels, not classes of which a pixel has one */
};

struct printer {
  const struct sl_model_notes *notes;
  const struct sl_vocabulary *vocabulary; /* of text; this or */
  const struct sl_tokenizer *tokenizer;   /* this; both NULL: tokens are numbers */
  int64_t classes;                        /* of text: words; else values of a sample's output */
  int64_t unit; /* outputs that follow each other and were normalised alike */
  struct output outputs[SL_MAX_FIELDS]; /* none of text */
  int output_count;
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
