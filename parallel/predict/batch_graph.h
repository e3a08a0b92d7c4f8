/* The forward pass of a batch of a given number of samples, captured as a graph
 * (core/graph/graph.h): one task if the model is on one device, one a stage if it is on several. */
#ifndef SL_PARALLEL_PREDICT_BATCH_GRAPH_H
#define SL_PARALLEL_PREDICT_BATCH_GRAPH_H

#include "core/graph/graph.h"
#include "core/graph/weight_cache.h"
#include "parallel/step/plan.h"

/* The model as a predictor runs it. */
struct sl__served_model {
  struct sl_model *model;
  struct sl__weight_cache *weights; /* the parameters in the forms that the kernels read */
  int64_t sample_bytes;             /* of the input */
  int64_t output_values;            /* of a sample */
  int64_t words;                    /* of the embedding; 0: the inputs are no tokens */
  int cores;                        /* see struct sl_predictor_options */
};

struct sl__batch_graph {
  struct sl__plan *plan; /* of its tensors only the output, and those between stages, have memory */
  struct sl__graph *graph; /* NULL: not captured yet */
  struct sl__tensor *x;    /* over the inputs' memory */
  int64_t rows;
  int64_t last_run; /* the number of the slot's last batch with it; 0: none */
};

/* Does nothing if the graph is captured already. */
enum sl_status sl__batch_graph_open(const struct sl__served_model *served,
                                    const struct sl__grid *grid, int64_t rows, void *inputs,
                                    struct sl__batch_graph *batch);
void sl__batch_graph_clear(struct sl__batch_graph *batch);

/* The last layer's output. */
struct sl__tensor *sl__batch_graph_output(const struct sl__batch_graph *batch);

/* Before each submission: bring the copies of parameters up to date that were written since. */
enum sl_status sl__batch_graph_refresh(const struct sl__served_model *served,
                                       const struct sl__grid *grid);

#endif
