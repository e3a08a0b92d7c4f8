/* A plan: how a batch of a given size is cut into slices (replica x microbatch), where each slice
 * runs, and its tensors. Made once a batch size and sequence length; the tensors' memory comes and
 * goes with every step, and plans of shorter sequences use the blocks of the longest. */
#ifndef SL_PARALLEL_STEP_PLAN_H
#define SL_PARALLEL_STEP_PLAN_H

#include "core/net/net.h"
#include "nn/loss.h"
#include "parallel/step/grid.h"

/* A part of a loss on a slice: its output, its targets, its statistics. */
struct sl__part_tensors {
  struct sl__tensor *z, *targets, *stats;
};

struct sl__slice {
  int replica, microbatch;
  int64_t first_row, rows;
  /* one a chunk and layer, [chunk * layers + layer]; dy only where planned for training, saved may
   * be NULL. Of layers on other ranks: y and dy of those that layers here read, else NULL */
  struct sl__tensor **y, **dy, **saved;
  /* y and saved as the backward pass computes them again; NULL where it reads those of the forward
   * pass. Tensors of their own, so that the forward pass's are needed for a short time only. */
  struct sl__tensor **y_again, **saved_again;
  struct sl__tensor **state, **dstate; /* one a layer: of recurrent ones, else NULL */
  struct sl__tensor *x; /* the input as bf16, where layers here read it as that; else NULL */
  /* Of a span of chunks (plan_span.c), one a layer; NULL where a span is one chunk. */
  struct sl__tensor **span_y, **span_dy, **span_saved;
  /* one a span, where the last layer is; see struct sl__loss_task. Of a loss of parts: 4 values a
   * part */
  struct sl__tensor **stats;
  struct sl__part_tensors *parts; /* of a loss of parts, one each (plan_loss.c); else NULL */
  struct sl__tensor **doutput;    /* the gradient of each of the model's outputs, the same */
};

struct sl__plan {
  struct sl_model *model;
  const struct sl__grid *grid;
  int64_t batch;
  int64_t steps; /* time steps of a sequence; 0: samples are none, or cannot be cut */
  bool training;
  bool has_state;       /* an earlier step left one in the recurrent layers */
  int chunks;           /* in time; 1 for what is no sequence */
  int span;             /* chunks whose sums over time are one; a divisor of their number */
  bool batch_invariant; /* passes have bits that do not depend on the steps of a chunk */
  int count;            /* replicas x microbatches; slice r * microbatches + m */
  struct sl__slice *slices;
  bool *keeps_output; /* a backward pass reads the layer's output */
  int input_reader;   /* the first layer here that reads the model's input; -1: none does */
  int *last_use;      /* the last layer here that reads this one's output; itself where none does;
                         count of layers: the loss */
  int *relu; /* the relu that each layer applies, too; else -1. That layer has no tasks, and this
                one no output of its own */
  bool *defers_activation; /* the layer behind applies the gradient of this one's activation */
  int *border;             /* number of each layer whose output another rank reads; else -1 */
  int borders;
  /* Of the pass that is being submitted; with room for the layer with the most inputs. */
  struct sl__tensor **x, **dx;
  bool *add_dx;
  struct sl__tensor **parts; /* of a span's tensor that is being put together, one a chunk */
  int part_count;            /* of the loss, if sl__plan_take_loss found some */
  int tag; /* of the first message; the caller sets it if it makes several plans over ranks */
};

/* The arguments of a step, for all its slices. */
struct sl__step {
  uint64_t number;
  bool training;
  bool carry;        /* recurrent layers go on from the state that the step before left */
  bool keep;         /* and leave theirs for the next one */
  bool keep_outputs; /* the last layer's output stays, though there is a loss; not in training */
  const struct sl__loss *loss;
  float scale[SL_MAX_FIELDS]; /* of the gradient of each part of the loss: weight / its terms */
  int64_t first_row;          /* of this rank's batch in that of all */
  int64_t position;           /* time steps of the sequence before this step's first one */
  /* [batch, ...], split into the plan's slices where there are several. labels: or targets, as the
   * loss takes them; NULL: no loss, and the last layer's output stays; not in training */
  struct sl__tensor *x, *labels;
  struct sl__tensor ***grads, ***rows; /* [replica][layer]; see sl__model_shards */
  struct sl__tensor *stats; /* of the only span of the only slice; NULL: the slices have theirs */
};

/* steps: of the sequences in the batch, at most the model's own; 0 means the model's own. */
enum sl_status sl__plan_new(struct sl_model *model, const struct sl__grid *grid, int64_t batch,
                            int64_t steps, bool training, struct sl__plan **plan);
void sl__plan_free(struct sl__plan *plan);
/* Makes the tensors of a loss of parts, which sl__loss_fit has seen the data of, before the first
 * step. Nothing to do for another loss. */
enum sl_status sl__plan_take_loss(struct sl__plan *plan, const struct sl__loss *loss);

/* The rows of each slice: as even as can be, the first ones longer; or a replica's in proportion to
 * its share, and its microbatches as even as can be. rows has replicas x microbatches places. */
void sl__slice_rows(const struct sl__grid *grid, int64_t batch, int64_t *rows);

/* The time steps [first, first + steps) of a chunk: the first ones longer, where they are uneven.
 */
void sl__chunk_steps(const struct sl__plan *plan, int chunk, int64_t *first, int64_t *steps);

/* Is the plan for batches of this number of time steps (0: no sequences)? */
bool sl__plan_takes(const struct sl__plan *plan, int64_t steps);

/* Tokens that a replica reads in a step, at most; 0: the model takes none. */
int64_t sl__plan_positions(const struct sl__plan *plan);

/* [rows, ...] of samples of that shape. */
struct sl_shape sl__with_rows(int64_t rows, const struct sl_shape *sample);

/* Part i of a tensor that was split, or the tensor itself where there is one slice only. */
struct sl__tensor *sl__part(struct sl__tensor *tensor, int i);

/* Tags that the plan's messages take, from plan->tag on. */
int sl__plan_tags(const struct sl__plan *plan);

/* Submit the tasks of one step: all slices' forward passes and losses and, in training, backward
 * passes; of this rank's layers, and the messages to and from the other ranks of the group. */
enum sl_status sl__plan_submit(struct sl__plan *plan, const struct sl__step *step);

/* Are the last layer and the loss one operation, so that the layer's outputs (`logits` of one slice
 * and one span of chunks) never exist whole (codelets/linear_xent.c)? The rule: a dense layer with
 * positions and without an activation; cross-entropy, without parts; more logits than
 * sl__linear_xent_limit, below which separate tasks are faster; and in training, a layer that
 * trains behind others that do. */
bool sl__head_takes_loss(const struct sl_model *model, const struct sl_loss *loss, bool training,
                         int64_t logits);

/* Numbers of the messages between ranks: the trainer's, and from SL__TAG_STORES on those of the
 * public KVStores, each key its own (MPI has at least 32768). Those of a group exchange no
 * gradients, so borders and exchanges may have the same. */
enum {
  SL__TAG_STATS = 1,
  SL__TAG_TRIAL = 3,
  SL__TAG_GRADIENTS = 4,
  SL__TAG_EXCHANGE = 8,
  SL__TAG_BORDERS = 16,
  SL__TAG_STORES = SL__TAG_MPI_ONLY
};

/* Larger is sooner. What unblocks others goes first; weight gradients wait for idle time. */
enum {
  SL__PRIORITY_BACKWARD_WEIGHT = 1000,
  SL__PRIORITY_FORWARD = 2000,
  SL__PRIORITY_UPDATE = 3000,
  SL__PRIORITY_BACKWARD_DATA = 4000,
  SL__PRIORITY_LOSS = 5000
};

#endif
