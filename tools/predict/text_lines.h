/* Lines of text for a language model, one request each. */
#ifndef SL_TOOLS_PREDICT_TEXT_LINES_H
#define SL_TOOLS_PREDICT_TEXT_LINES_H

#include "tools/predict/engine.h"
#include "tools/predict/request_queue.h"

struct text_options {
  const char *vocabulary; /* NULL: MODEL.vocabulary.json */
  bool tokens;            /* lines are numbers */
  bool strict;            /* a word outside the vocabulary is an error */
};
/* Sends each line of the input as a request. */
int send_lines(struct engine *engine, const struct text_options *options,
               const struct sl_vocabulary *vocabulary, const char *path,
               struct request_queue *queue);

#endif
