/* starling-predict: the values of its command line, and the run. */
#ifndef SL_TOOLS_PREDICT_PREDICT_H
#define SL_TOOLS_PREDICT_PREDICT_H

#include "tools/predict/bench.h"
#include "tools/predict/engine.h"
#include "tools/predict/failure.h"
#include "tools/predict/json_output.h"
#include "tools/predict/samples.h"
#include "tools/predict/text_lines.h"

enum { MOST_NUMBERS = 4096 }; /* a table's columns */
struct numbers {
  float value[MOST_NUMBERS];
  int count;
};

struct program {
  struct engine_options engine;
  struct image_options images;
  struct text_options text;
  struct bench_options bench;
  const char *normalize; /* NULL: as the model says */
  struct numbers mean, deviation;
  unsigned task; /* of answer_names; 0: as the model says */
  bool benches, quiet;
  int top;
  bool logits;
  char **inputs; /* their names live as long as the program */
  int input_count;
};

/* The names of --task: "model", then those of enum answer; ended by NULL. */
extern const char *const task_names[];

/* Adds the name of an input (tools/predict/inputs.c). */
void add_input(struct program *program, const char *name);
/* Replaces folders by their files. Fails if an input does not exist, before anything else is done.
 */
int find_inputs(struct program *program);

/* How inputs are normalised for the model: by the options, else as the model or its input's shape
 * says (tools/predict/normalization.c). */
int choose_normalization(struct program *program, const struct engine *engine);

/* Answers all samples of all inputs, and prints the summary. */
int answer(struct program *program, struct engine *engine);

#endif
