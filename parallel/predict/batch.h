/* Request slots: each runs one batch at a time, with input memory, graphs and devices of its own.
 * Batches of different slots run side by side. */
#ifndef SL_PARALLEL_PREDICT_BATCH_H
#define SL_PARALLEL_PREDICT_BATCH_H

#include "parallel/predict/batch_graph.h"
#include "parallel/predict/queue.h"

struct sl__request_slot;

/* The slot's devices are those of replica `number` of the grid. What could be made of a slot is in
 * *slot after a failure, too. */
enum sl_status sl__request_slot_new(const struct sl__served_model *served,
                                    struct sl__request_queue *queue,
                                    const struct sl__grid *replicas, int number, int64_t max_batch,
                                    struct sl__request_slot **slot);
/* The slot must not be busy. NULL is legal. */
void sl__request_slot_free(struct sl__request_slot *slot);

/* With the queue's lock. */
bool sl__request_slot_is_busy(const struct sl__request_slot *slot);

/* With the queue's lock: the slot takes requests from the queue and is busy. */
void sl__request_slot_claim(struct sl__request_slot *slot);

/* Without the lock, once after each claim: starts the batch. A failure goes to its requests. */
void sl__request_slot_run(struct sl__request_slot *slot);

/* With the queue's lock: the batch may never end, so its requests fail now. */
void sl__request_slot_give_up(struct sl__request_slot *slot, enum sl_status status,
                              const char *message);

#endif
