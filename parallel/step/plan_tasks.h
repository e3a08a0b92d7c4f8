/* The inside of a plan's submission: plan_*.c. */
#ifndef SL_PARALLEL_STEP_PLAN_TASKS_H
#define SL_PARALLEL_STEP_PLAN_TASKS_H

#include "parallel/step/plan.h"

/* The numbers by which a trace tells a slice's tasks apart. A number is 0 if there is only one
 * stage, replica, microbatch or chunk. */
struct sl__slice_mark sl__slice_mark_of(const struct sl__plan *plan, const struct sl__slice *slice,
                                        int c, int layer);

/* The layer whose output layer i writes: its own, or that of a relu behind it. */
int sl__plan_output(const struct sl__plan *plan, int i);
/* Does the layer before apply layer i? */
bool sl__plan_is_applied(const struct sl__plan *plan, int i);

/* The output at `at` (chunk and layer) as a forward or a backward pass sees it, and what the
 * forward pass saved. */
struct sl__tensor *sl__plan_value(const struct sl__slice *slice, int at, bool backward);
struct sl__tensor *sl__plan_saved(const struct sl__slice *slice, int at, bool backward);
/* Does a backward pass of layer i read what its forward pass saved? */
bool sl__plan_keeps_saved(const struct sl__plan *plan, int i);

/* The pass of layer i on a chunk of a slice; dx and grad are for the backward half. backward: with
 * what is computed again in place of the forward pass's. Valid until the next call. */
struct sl__pass sl__plan_pass(struct sl__plan *plan, const struct sl__step *step, int s, int c,
                              int i, bool backward);

/* Is layer i the last one, and its task that of the loss, too? */
bool sl__plan_joins_loss(const struct sl__plan *plan, const struct sl__step *step, int i);

/* Submit: the backward pass of a span of a slice, whose first chunk is c (plan_backward.c). */
enum sl_status sl__plan_submit_backward(struct sl__plan *plan, const struct sl__step *step, int s,
                                        int c);

/* The tensors of a slice's spans, and what puts chunks together and takes them apart (plan_span.c).
 * Where a span is one chunk there is nothing to do. */
enum sl_status sl__plan_spans_new(const struct sl__plan *plan, struct sl__slice *slice);
/* Submit: *whole is layer i's output over the span. */
enum sl_status sl__plan_gather_output(const struct sl__plan *plan, int s,
                                      const struct sl__launch *launch, int i, bool backward,
                                      struct sl__tensor **whole);
/* Submit: the gradient of layer i's output over the span becomes that of the chunks. */
enum sl_status sl__plan_scatter_gradient(const struct sl__plan *plan, int s,
                                         const struct sl__launch *launch, int i);
/* Submit: the pass of a chunk becomes that of its span, for layer i's forward_loss and for its
 * backward_weight; y and dx stay the chunk's. After the layer's call the tensors are of no use. */
enum sl_status sl__plan_span_forward(const struct sl__plan *plan, const struct sl__step *step,
                                     int s, int i, struct sl__pass *pass);
enum sl_status sl__plan_span_backward(const struct sl__plan *plan, const struct sl__step *step,
                                      int s, int i, struct sl__pass *pass);
void sl__plan_drop_span(const struct sl__plan *plan, int s, int i);

/* Submit: layer i's output of slice s, chunk c goes to the ranks of the layers that read it. */
enum sl_status sl__plan_carry_outputs(const struct sl__plan *plan, int s, int c, int i);

/* Submit: the gradient of layer i's output goes from the rank of layer `from` to the rank of layer
 * `to`. It visits its readers in the order of one process, the last reader first, so that each adds
 * to the same sum; at the end it is at layer i. */
enum sl_status sl__plan_carry_gradient(const struct sl__plan *plan, int s, int c, int i, int from,
                                       int to);

/* Submit: the gradients that layer i adds to come to its rank. */
enum sl_status sl__plan_carry_gradients(const struct sl__plan *plan, int s, int c, int i,
                                        const int *writer);

/* Are the last layer and the loss one task (plan_head.c)? Not where the step keeps the outputs. */
bool sl__plan_joins_head(const struct sl__plan *plan, const struct sl__step *step);

/* Where the loss of a span whose first chunk is c writes its statistics. */
struct sl__tensor *sl__plan_stats(const struct sl__plan *plan, const struct sl__step *step, int s,
                                  int c);

/* The loss of a slice where it has parts, and what is theirs among the slice's tensors
 * (plan_loss.c). */
enum sl_status sl__plan_submit_parts(struct sl__plan *plan, const struct sl__step *step, int s,
                                     const struct sl__launch *launch);
void sl__plan_free_parts(const struct sl__plan *plan, struct sl__slice *slice);

#endif
