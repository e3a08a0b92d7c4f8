/* A batch: gather the inputs of its requests, submit its graph, hand out the answers. StarPU calls
 * back when the output is computed; that callback wakes the threads that wait for the answers. */
#include "parallel/predict/batch.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/half.h"
#include "core/graph/helper.h"
#include "core/memory/limits.h"
#include "core/runtime/failure.h"
#include "core/runtime/wait.h"

/* Graphs of a slot: as many as a default predictor's batches have sizes. With more sizes, the graph
 * that has not run for longest makes room. A capture takes 0.15 ms (4 small layers) to 2 ms (100)
 * of one core of a virtual machine, 4 to 12 times as long as such a batch runs; a graph takes some
 * 70 kB and 1 kB a layer. */
enum { MOST_GRAPHS = 64 };

struct sl__request_slot {
  const struct sl__served_model *served;
  struct sl__request_queue *queue;
  struct sl__grid grid; /* one replica */
  int64_t max_batch;
  void *inputs; /* [max_batch, ...] */
  struct sl__batch_graph graphs[MOST_GRAPHS];
  int64_t batches; /* that it has begun */
  bool busy;
  /* the batch that runs, or ran last */
  struct sl__piece *pieces; /* [max_batch]; from its end on: complete requests, see answer_batch */
  int count, complete;
  int64_t rows;
  struct sl__graph *graph;       /* NULL: it was not submitted */
  double before_us;              /* computing time of the graph's batches before this one */
  struct sl__tensor *y;          /* its output */
  struct sl__tensor *direct;     /* over a request's outputs; kept for the next batch like it */
  int ends_left;                 /* parts of its end that are left, see end_batch */
  struct sl__inbox_message wake; /* for a CPU worker: wake the caller of the only request */
};

/* ---- inputs ---- */

static void gather(struct sl__request_slot *slot) {
  size_t sample = (size_t)slot->served->sample_bytes;
  char *to = slot->inputs;
  for (int i = 0; i < slot->count; i++) {
    const struct sl__piece *piece = &slot->pieces[i];
    size_t bytes = (size_t)piece->rows * sample;
    memcpy(to, piece->request->inputs + (size_t)piece->first * sample, bytes);
    to += bytes;
  }
}

/* If only CPUs read the inputs, StarPU need not know that they change: the batch before has ended.
 * But if a stall may end a wait, a batch that was given up may still read them. */
static enum sl_status fill(struct sl__request_slot *slot, struct sl__tensor *x) {
  if (!starpu_cuda_worker_get_count() && !x->context->admission) {
    gather(slot);
    return SL_OK;
  }
  enum sl_status status = sl__acquire(x, STARPU_W);
  if (status != SL_OK) return status;
  gather(slot);
  sl__tensor_written(x);
  starpu_data_release(x->handle);
  return SL_OK;
}

/* ---- answers ---- */

/* values: of the model's own type. */
static void hand_out(const struct sl__request_slot *slot, const void *values) {
  int64_t each = slot->served->output_values, at = 0;
  for (int i = 0; i < slot->count; i++) {
    const struct sl__piece *piece = &slot->pieces[i];
    float *to = piece->request->outputs + piece->first * each;
    int64_t count = piece->rows * each;
    if (slot->y->type == SL_BF16)
      for (int64_t k = 0; k < count; k++)
        to[k] = sl__bf16_value(((const uint16_t *)values)[at + k]);
    else
      memcpy(to, (const float *)values + at, (size_t)count * sizeof *to);
    at += count;
  }
}

/* With the lock. The first `complete` pieces become the requests whose callers must be woken. */
static void answer_batch(struct sl__request_slot *slot, enum sl_status status) {
  struct sl_predictor_counts *counts = &slot->queue->counts;
  slot->complete = 0;
  for (int i = 0; i < slot->count; i++) {
    struct sl__piece *piece = &slot->pieces[i];
    if (status != SL_OK) sl__request_fail(piece->request, status, sl_error());
    if (sl__request_answer(piece->request, piece->rows))
      slot->pieces[slot->complete++].request = piece->request;
  }
  slot->count = 0;
  counts->batches++;
  if (slot->graph) counts->computing_us += sl__graph_computed(slot->graph) - slot->before_us;
  sl__batch_ends(slot->served->model->context);
}

/* The slot is free when all parts of its batch's end are done. The last one touches neither slot
 * nor predictor afterwards: they may be freed. */
static void end_batch(struct sl__request_slot *slot) {
  struct sl__request_queue *queue = slot->queue;
  pthread_mutex_lock(&queue->lock);
  slot->busy = --slot->ends_left > 0;
  if (!slot->busy && (queue->first || queue->closed)) pthread_cond_broadcast(&queue->news);
  pthread_mutex_unlock(&queue->lock);
}

/* By a CPU worker on the core of the thread that waits. */
static void wake_from_worker(struct sl__inbox_message *message, int member) {
  struct sl__request_slot *slot =
      (struct sl__request_slot *)((char *)message - offsetof(struct sl__request_slot, wake));
  struct sl_prediction *request = slot->pieces[0].request; /* valid until it is woken */
  (void)member;
  end_batch(slot);
  sem_post(&request->ended); /* last: the thread that wakes up takes this core, and may ask again */
}

/* Wakes the callers without the lock, which would stop them again at once. A worker that polls on
 * the core of the caller does it if there is one: waking a thread on another core takes 30 us on a
 * virtual machine. core: -1: unknown. */
static void wake_callers(struct sl__request_slot *slot, int core) {
  struct sl_context *context = slot->served->model->context;
  slot->wake.run = wake_from_worker;
  if (slot->complete == 1 && sl__inbox_put_on_core(context, core, &slot->wake)) return;
  for (int i = 0; i < slot->complete; i++) sem_post(&slot->pieces[i].request->ended);
  end_batch(slot);
}

static bool is_large(const struct sl__tensor *y) { return y->bytes >= (size_t)256 << 10; }

/* A small output keeps its memory for the next batch of that size, unless memory is limited: then
 * the outputs of all sizes would fill it. */
static bool keeps_memory(const struct sl__tensor *y) {
  return !is_large(y) && !sl__memory_limit(y->context->memory);
}

/* StarPU's callback, in any worker's thread: the output is in main memory. The lock keeps a batch
 * that was given up from writing to its requests. Callers are woken before StarPU's own work is
 * done; only the request's memory must be released before that. */
static void batch_computed(void *argument) {
  struct sl__request_slot *slot = argument;
  struct sl__tensor *y = slot->y;
  enum sl_status status = sl__task_failure();
  bool direct = y == slot->direct;
  if (direct) {
    starpu_data_release(y->handle);
    sl__tensor_invalidate(y);
  }
  pthread_mutex_lock(&slot->queue->lock);
  if (status == SL_OK && !direct)
    hand_out(slot, starpu_data_handle_to_pointer(y->handle, STARPU_MAIN_RAM));
  answer_batch(slot, status);
  int core = slot->complete == 1 ? slot->pieces[0].request->core : -1;
  slot->ends_left = 2;
  pthread_mutex_unlock(&slot->queue->lock);
  wake_callers(slot, core);
  if (!direct) starpu_data_release(y->handle);
  if (!direct && !keeps_memory(y)) sl__tensor_invalidate(y);
  end_batch(slot);
}

/* ---- the start of a batch ---- */

/* A large answer goes straight into the request's memory if the batch is one request or a part of
 * one. But not if a stall may end the wait: the answer could come after the caller has gone. */
static bool is_direct(const struct sl__request_slot *slot, const struct sl__tensor *y) {
  return slot->count == 1 && y->type == SL_F32 && is_large(y) &&
         !slot->served->model->context->admission;
}

/* A tensor over the request's outputs; the last batch's if that has the same memory. */
static enum sl_status direct_output(struct sl__request_slot *slot, const struct sl__tensor *y) {
  const struct sl__piece *piece = &slot->pieces[0];
  float *to = piece->request->outputs + piece->first * slot->served->output_values;
  if (slot->direct && slot->direct->host == to && slot->direct->bytes == y->bytes) return SL_OK;
  sl__tensor_free(slot->direct);
  slot->direct = NULL;
  return sl__tensor_host(y->context, &y->shape, y->type, to, &slot->direct);
}

/* A batch that runs alone gets all cores; if several run, each has one. */
static enum sl_status submit(const struct sl__request_slot *slot, struct sl__tensor *direct) {
  bool alone = sl__batches(slot->served->model->context) == 1;
  const struct sl__graph_run run = {.priority = SL__PRIORITY_FORWARD,
                                    .bound = direct ? &direct : NULL};
  return (alone ? sl__graph_submit_to_all : sl__graph_submit)(slot->graph, &run);
}

/* The slot's graph of that many rows, or the place for it. No batch of the slot runs. */
static struct sl__batch_graph *graph_place(struct sl__request_slot *slot) {
  struct sl__batch_graph *oldest = &slot->graphs[0];
  for (int i = 0; i < MOST_GRAPHS; i++) {
    struct sl__batch_graph *graph = &slot->graphs[i];
    if (graph->rows == slot->rows) return graph;
    if (graph->last_run < oldest->last_run) oldest = graph;
  }
  sl__batch_graph_clear(oldest);
  return oldest;
}

static enum sl_status start_batch(struct sl__request_slot *slot) {
  struct sl_context *context = slot->served->model->context;
  enum sl_status status;
  slot->graph = NULL;
  starpu_pthread_mutex_lock(&context->submit_mutex);
  struct sl__batch_graph *batch = graph_place(slot);
  SL__TRY(sl__batch_graph_open(slot->served, &slot->grid, slot->rows, slot->inputs, batch));
  SL__TRY(fill(slot, batch->x));
  SL__TRY(sl__batch_graph_refresh(slot->served, &slot->grid));
  slot->y = sl__batch_graph_output(batch);
  bool direct = is_direct(slot, slot->y);
  if (direct) SL__TRY(direct_output(slot, slot->y));
  if (direct) slot->y = slot->direct;
  batch->last_run = ++slot->batches;
  slot->graph = batch->graph;
  slot->before_us = sl__graph_computed(batch->graph);
  SL__TRY(submit(slot, direct ? slot->direct : NULL));
  if (starpu_data_acquire_cb(slot->y->handle, STARPU_R, batch_computed, slot))
    status = sl__fail(SL_STARPU, "StarPU cannot call back when an answer is computed");
out:
  starpu_pthread_mutex_unlock(&context->submit_mutex);
  return status;
}

void sl__request_slot_run(struct sl__request_slot *slot) {
  enum sl_status status = start_batch(slot);
  if (status == SL_OK) return;
  pthread_mutex_lock(&slot->queue->lock);
  answer_batch(slot, status);
  slot->ends_left = 1;
  pthread_mutex_unlock(&slot->queue->lock);
  wake_callers(slot, -1);
}

bool sl__request_slot_is_busy(const struct sl__request_slot *slot) { return slot->busy; }

void sl__request_slot_claim(struct sl__request_slot *slot) {
  slot->count = sl__queue_take(slot->queue, slot->max_batch, slot->pieces, &slot->rows);
  slot->busy = true;
  sl__batch_begins(slot->served->model->context);
}

void sl__request_slot_give_up(struct sl__request_slot *slot, enum sl_status status,
                              const char *message) {
  for (int i = 0; i < slot->count && slot->busy; i++) {
    struct sl__piece *piece = &slot->pieces[i];
    sl__request_fail(piece->request, status, message);
    sl__request_answer_and_wake(piece->request, piece->rows);
  }
  slot->count = 0;
}

/* ---- opening and closing ---- */

static enum sl_status slot_grid(struct sl_model *model, const struct sl__grid *replicas, int number,
                                struct sl__grid *grid) {
  const struct sl_trainer_options options = {.replicas = 1, .math = replicas->math};
  enum sl_status status = sl__grid_new(model, &options, grid);
  for (int s = 0; s < grid->stages && status == SL_OK; s++)
    grid->devices[s] = replicas->devices[s * replicas->replicas + number];
  return status;
}

enum sl_status sl__request_slot_new(const struct sl__served_model *served,
                                    struct sl__request_queue *queue,
                                    const struct sl__grid *replicas, int number, int64_t max_batch,
                                    struct sl__request_slot **out) {
  size_t most = (size_t)max_batch;
  enum sl_status status;
  struct sl__request_slot *slot = *out = sl__alloc(1, sizeof *slot, "a predictor");
  if (!slot) return SL_NO_MEMORY;
  *slot = (struct sl__request_slot){.served = served, .queue = queue, .max_batch = max_batch};
  SL__TRY(slot_grid(served->model, replicas, number, &slot->grid));
  slot->inputs = sl__alloc(most, (size_t)served->sample_bytes, "a batch to predict");
  slot->pieces = sl__alloc(most, sizeof *slot->pieces, "a batch to predict");
  if (!slot->inputs || !slot->pieces) status = SL_NO_MEMORY;
out:
  return status;
}

void sl__request_slot_free(struct sl__request_slot *slot) {
  if (!slot) return;
  for (int i = 0; i < MOST_GRAPHS; i++) sl__batch_graph_clear(&slot->graphs[i]);
  sl__tensor_free(slot->direct);
  free(slot->pieces);
  free(slot->inputs);
  sl__grid_clear(&slot->grid);
  free(slot);
}
