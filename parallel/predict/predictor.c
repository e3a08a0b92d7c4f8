/* The predictor: a queue of requests (queue.c), request slots that run batches of them (batch.c),
 * and a thread that starts batches. A request that needs not wait for others is started by the
 * thread that brings it: each thread between request and answer costs time. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <starling/predict.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/float_mode.h"
#include "core/runtime/forked.h"
#include "core/runtime/wait.h"
#include "parallel/predict/batch.h"

enum { MOST_BATCH = 1 << 20, MOST_SLOTS = 256, DEFAULT_BATCH = 64 };

struct sl_predictor {
  struct sl_predictor_options options;
  struct sl__served_model served;
  struct sl__request_queue queue;
  struct sl__request_slot **slots;
  int slot_count;
  pthread_t thread;
  bool has_thread;
  bool broken; /* the context has stalled: StarPU may still use all the memory given to it */
};

/* ---- the thread ---- */

static struct sl__request_slot *free_slot(struct sl_predictor *p) {
  for (int i = 0; i < p->slot_count; i++)
    if (!sl__request_slot_is_busy(p->slots[i])) return p->slots[i];
  return NULL;
}

static bool any_busy(const struct sl_predictor *p) {
  for (int i = 0; i < p->slot_count; i++)
    if (sl__request_slot_is_busy(p->slots[i])) return true;
  return false;
}

/* Shall a batch start now? If not, *until_us is when to look again; 0: at the next news. */
static bool is_due(struct sl_predictor *p, double *until_us) {
  struct sl__request_queue *q = &p->queue;
  *until_us = 0;
  sl__queue_drop_failed(q);
  if (!q->first || !free_slot(p)) return false;
  if (!p->options.max_delay_us || q->waiting >= p->options.max_batch) return true;
  *until_us = q->first->since_us + (double)p->options.max_delay_us;
  return sl__microseconds() >= *until_us;
}

/* After a stall no batch ends any more. */
static void give_up(struct sl_predictor *p, enum sl_status status) {
  char why[sizeof p->queue.first->message];
  snprintf(why, sizeof why, "%s", sl_error());
  p->queue.closed = p->broken = true;
  sl__queue_fail(&p->queue, status, why);
  for (int i = 0; i < p->slot_count; i++) sl__request_slot_give_up(p->slots[i], status, why);
}

/* A context that watches for stalls reports them to the thread that asks. */
static void check_for_stall(struct sl_predictor *p) {
  pthread_mutex_unlock(&p->queue.lock);
  enum sl_status status = sl__wait_check(p->served.model->context);
  pthread_mutex_lock(&p->queue.lock);
  if (status != SL_OK && !p->broken) give_up(p, status);
}

static void wait_for_news(struct sl_predictor *p, double until_us) {
  const double check_us = 50000;
  bool watched = p->served.model->context->admission != NULL;
  if (watched && (!(until_us > 0) || until_us > sl__microseconds() + check_us))
    until_us = sl__microseconds() + check_us;
  if (until_us > 0)
    sl__condition_wait(&p->queue.news, &p->queue.lock, 1e-6 * until_us);
  else
    pthread_cond_wait(&p->queue.news, &p->queue.lock);
  if (watched) check_for_stall(p);
}

static void *dispatch(void *argument) {
  struct sl_predictor *p = argument;
  struct sl__request_queue *q = &p->queue;
  double until_us;
  sl__float_mode_begin();
  pthread_mutex_lock(&q->lock);
  while (!q->closed) {
    if (!is_due(p, &until_us)) {
      wait_for_news(p, until_us);
      continue;
    }
    struct sl__request_slot *slot = free_slot(p);
    sl__request_slot_claim(slot);
    pthread_mutex_unlock(&q->lock);
    sl__request_slot_run(slot);
    pthread_mutex_lock(&q->lock);
  }
  sl__queue_fail(q, SL_CLOSED, "the predictor was closed before all of the request had begun");
  while (!p->broken && any_busy(p)) wait_for_news(p, 0);
  pthread_mutex_unlock(&q->lock);
  return NULL;
}

/* ---- opening and closing ---- */

static enum sl_status check(struct sl_predictor_options *o, const struct sl_model *model) {
  if (o->max_batch < 0 || o->max_batch > MOST_BATCH)
    return sl__fail(SL_BAD_ARGUMENT, "a max_batch of %lld: must be from 1 to %d",
                    (long long)o->max_batch, MOST_BATCH);
  if (o->max_delay_us < 0 || o->max_delay_us > 60000000)
    return sl__fail(SL_BAD_ARGUMENT, "a max_delay_us of %lld: must be from 0 to 60000000",
                    (long long)o->max_delay_us);
  if (o->batches < 0 || o->batches > MOST_SLOTS)
    return sl__fail(SL_BAD_ARGUMENT, "%d batches at once: must be from 1 to %d", o->batches,
                    MOST_SLOTS);
  if (o->cores < 0)
    return sl__fail(SL_BAD_ARGUMENT, "a predictor of %d cores: must be at least 1", o->cores);
  if (sl_placement_ranks(model) > 1)
    return sl__fail(SL_BAD_ARGUMENT,
                    "the model is placed over %d ranks, but a predictor runs on one; place it on "
                    "the devices of this rank",
                    sl_placement_ranks(model));
  if (!o->max_batch) o->max_batch = DEFAULT_BATCH;
  int workers = (int)starpu_worker_get_count();
  if (!o->batches) o->batches = workers < MOST_SLOTS / 2 ? 2 * workers : MOST_SLOTS;
  return SL_OK;
}

static enum sl_status serve(struct sl_predictor *p, struct sl_model *model) {
  p->served = (struct sl__served_model){
      .model = model,
      .sample_bytes = sl_shape_count(&model->sample) * (int64_t)sizeof(float), /* or int32_t */
      .output_values = sl_shape_count(sl_model_output(model)),
      .words = model->takes_tokens ? sl__model_words(model) : 0,
      .cores = p->options.cores};
  return sl__weight_cache_new(model->context, &sl__op_prepack, &p->served.weights);
}

static enum sl_status open_slots(struct sl_predictor *p) {
  const struct sl_trainer_options options = {.replicas = p->options.batches,
                                             .math = p->options.math};
  struct sl__grid replicas = {0};
  enum sl_status status;
  p->slots =
      sl__alloc((size_t)p->options.batches, sizeof(struct sl__request_slot *), "a predictor");
  if (!p->slots) return SL_NO_MEMORY;
  SL__TRY(sl__grid_new(p->served.model, &options, &replicas));
  for (int i = 0; i < p->options.batches; i++) {
    p->slot_count = i + 1; /* it is freed even if it is half made */
    SL__TRY(sl__request_slot_new(&p->served, &p->queue, &replicas, i, p->options.max_batch,
                                 &p->slots[i]));
  }
out:
  sl__grid_clear(&replicas);
  return status;
}

static enum sl_status start_thread(struct sl_predictor *p) {
  int error = pthread_create(&p->thread, NULL, dispatch, p);
  p->has_thread = !error;
  if (!error) return SL_OK;
  return sl__fail(SL_NO_MEMORY, "a predictor's thread cannot be started: %s", strerror(error));
}

enum sl_status sl_predictor_open(struct sl_model *model, const struct sl_predictor_options *options,
                                 struct sl_predictor **predictor) {
  SL__NEEDS(model, predictor);
  enum sl_status status;
  *predictor = NULL;
  struct sl_predictor *p = sl__alloc(1, sizeof *p, "a predictor");
  if (!p) return SL_NO_MEMORY;
  sl__queue_open(&p->queue);
  if (options) p->options = *options;
  SL__TRY(sl__fork_check(model->context));
  SL__TRY(sl_model_build(model));
  SL__TRY(check(&p->options, model));
  SL__TRY(serve(p, model));
  SL__TRY(open_slots(p));
  SL__TRY(start_thread(p));
  *predictor = p;
  return SL_OK;
out:
  sl_predictor_free(p);
  return status;
}

void sl_predictor_close(struct sl_predictor *predictor) {
  SL__NEEDS_OR(, predictor);
  if (!predictor->has_thread) return;
  pthread_mutex_lock(&predictor->queue.lock);
  predictor->queue.closed = true;
  pthread_cond_broadcast(&predictor->queue.news);
  pthread_mutex_unlock(&predictor->queue.lock);
}

void sl_predictor_free(struct sl_predictor *predictor) {
  if (!predictor) return;
  if (predictor->has_thread && predictor->served.model->context->forked) return;
  if (predictor->has_thread) {
    sl_predictor_close(predictor);
    pthread_join(predictor->thread, NULL);
    pthread_mutex_lock(&predictor->queue.lock);
    while (predictor->queue.waiters)
      pthread_cond_wait(&predictor->queue.news, &predictor->queue.lock);
    pthread_mutex_unlock(&predictor->queue.lock);
    if (predictor->broken) return; /* as its context, it is left in memory */
  }
  for (int i = 0; i < predictor->slot_count; i++) sl__request_slot_free(predictor->slots[i]);
  sl__weight_cache_free(predictor->served.weights);
  sl__queue_close(&predictor->queue);
  free(predictor->slots);
  free(predictor);
}

struct sl_predictor_counts sl_predictor_count(struct sl_predictor *predictor) {
  SL__NEEDS_OR((struct sl_predictor_counts){0}, predictor);
  pthread_mutex_lock(&predictor->queue.lock);
  struct sl_predictor_counts counts = predictor->queue.counts;
  pthread_mutex_unlock(&predictor->queue.lock);
  return counts;
}

/* ---- requests ---- */

/* Of a model with several inputs: those that are tokens. */
static enum sl_status check_token_fields(const struct sl_model *model, const float *rows,
                                         int64_t n) {
  struct sl_row_field field;
  int64_t each = sl_shape_count(&model->sample);
  for (int f = 0; sl_model_input_field(model, f, &field); f++)
    for (int64_t i = 0; field.classes && i < n; i++)
      for (int64_t k = 0; k < sl_shape_count(&field.shape); k++) {
        float value = rows[i * each + field.first + k];
        if (!(value >= 0 && value < (float)field.classes && value == floorf(value)))
          return sl__fail(SL_BAD_ARGUMENT,
                          "sample %lld: token %lld of '%s' is %g, but the model has 0 to %d",
                          (long long)i, (long long)k, field.name, (double)value, field.classes - 1);
      }
  return SL_OK;
}

static enum sl_status check_request(const struct sl__served_model *served, const void *inputs,
                                    int64_t n, const float *outputs) {
  if (!inputs || !outputs || n < 1 || n > INT64_MAX / served->sample_bytes)
    return sl__fail(SL_BAD_ARGUMENT, "a request of %lld samples%s: must be at least 1, with memory",
                    (long long)n, inputs && outputs ? "" : " without memory");
  const int32_t *tokens = inputs;
  int64_t each = served->sample_bytes / (int64_t)sizeof *tokens;
  for (int64_t i = 0; served->words && i < n * each; i++)
    if (tokens[i] < 0 || tokens[i] >= served->words)
      return sl__fail(SL_BAD_ARGUMENT, "sample %lld: token %lld is %d, but the model has 0 to %lld",
                      (long long)(i / each), (long long)(i % each), tokens[i],
                      (long long)served->words - 1);
  return check_token_fields(served->model, inputs, n);
}

/* With the lock: a slot for a request of n samples that is a batch by itself and first in the
 * queue; else NULL. */
static struct sl__request_slot *slot_at_once(struct sl_predictor *p, int64_t n) {
  bool alone = n >= p->options.max_batch || !p->options.max_delay_us;
  return !p->queue.first && alone && n <= p->options.max_batch ? free_slot(p) : NULL;
}

/* Starts the request at once, or puts it into the queue. */
static enum sl_status begin(struct sl_predictor *p, struct sl_prediction *r, const void *inputs,
                            int64_t n, float *outputs) {
  struct sl__request_queue *q = &p->queue;
  enum sl_status status = sl__fork_check(p->served.model->context);
  if (status == SL_OK) status = check_request(&p->served, inputs, n, outputs);
  if (status != SL_OK) return status;
  sl__request_open(r, q, inputs, n, outputs);
  r->since_us = p->options.max_delay_us ? sl__microseconds() : 0;
  pthread_mutex_lock(&q->lock);
  bool closed = q->closed;
  struct sl__request_slot *slot = closed ? NULL : slot_at_once(p, n);
  if (!closed) sl__queue_put(q, r);
  if (slot)
    sl__request_slot_claim(slot);
  else if (!closed)
    pthread_cond_broadcast(&q->news);
  pthread_mutex_unlock(&q->lock);
  if (slot) sl__request_slot_run(slot);
  if (!closed) return SL_OK;
  sem_destroy(&r->ended);
  return sl__fail(SL_CLOSED, "a request of %lld samples came after the predictor was closed",
                  (long long)n);
}

enum sl_status sl_predict(struct sl_predictor *predictor, const void *inputs, int64_t n,
                          float *outputs) {
  SL__NEEDS(predictor, inputs, outputs);
  struct sl_prediction request;
  enum sl_status status = begin(predictor, &request, inputs, n, outputs);
  return status == SL_OK ? sl__request_wait(&request) : status;
}

enum sl_status sl_predict_submit(struct sl_predictor *predictor, const void *inputs, int64_t n,
                                 float *outputs, struct sl_prediction **request) {
  SL__NEEDS(predictor, inputs, outputs, request);
  *request = NULL;
  struct sl_prediction *r = sl__alloc(1, sizeof *r, "a request");
  if (!r) return SL_NO_MEMORY;
  enum sl_status status = begin(predictor, r, inputs, n, outputs);
  if (status == SL_OK)
    *request = r;
  else
    free(r);
  return status;
}

enum sl_status sl_predict_wait(struct sl_prediction *request) {
  if (!request) return SL_OK;
  enum sl_status status = sl__request_wait(request);
  free(request);
  return status;
}
