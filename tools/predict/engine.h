/* The model, and predictors of it. */
#ifndef SL_TOOLS_PREDICT_ENGINE_H
#define SL_TOOLS_PREDICT_ENGINE_H

#include <starling.h>

struct engine_options {
  const char *model, *devices, *placement;
  struct sl_predictor_options predictor;
  uint64_t seed;
};

struct engine {
  const struct engine_options *options;
  struct sl_context *context;
  struct sl_model *model;
  struct sl_shape input;
  int64_t outputs; /* values of a sample's output */
  bool tokens;     /* its inputs are tokens */
  int64_t words;   /* rows of its embedding */
  int64_t longest; /* steps of a line that its layers take; 0: any */
  /* of a language model, one for each length of lines so far, rounded up to a power of two, or to
   * `longest` */
  struct length {
    struct sl_model *model;
    struct sl_predictor *predictor;
  } lengths[32];
  struct sl_predictor *predictor; /* of the model as it is */
};
int engine_open(struct engine *engine, const struct engine_options *options);
int engine_predictor(struct engine *engine); /* opens engine->predictor */
/* A predictor for lines of *steps tokens, at most MOST_STEPS and `longest`; *steps becomes the
 * predictor's length. Returns NULL after a failure. */
enum { MOST_STEPS = 1 << 16 };
struct sl_predictor *engine_for(struct engine *engine, int64_t *steps);
void engine_close(struct engine *engine);

#endif
