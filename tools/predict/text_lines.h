/* Lines of text for a language model, one request each. */
#ifndef SL_TOOLS_PREDICT_TEXT_LINES_H
#define SL_TOOLS_PREDICT_TEXT_LINES_H

#include "tools/predict/engine.h"
#include "tools/predict/request_queue.h"

struct text_options {
  const char *vocabulary; /* or a tokenizer; NULL: MODEL.tokenizer.json, MODEL.vocabulary.json */
  bool tokens;            /* lines are numbers */
  bool strict;            /* a word outside the vocabulary is an error */
};
/* What turns text into tokens: one of the two; neither: lines are numbers. */
struct words {
  struct sl_vocabulary *vocabulary;
  struct sl_tokenizer *tokenizer;
};
/* That of the options, else the one beside the model. */
int words_open(const struct text_options *options, const struct engine *engine,
               struct words *words);
void words_close(struct words *words);
/* Sends each line of the input as a request. */
int send_lines(struct engine *engine, const struct text_options *options, const struct words *words,
               const char *path, struct request_queue *queue);

#endif
