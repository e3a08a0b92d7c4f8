#include "parallel/predict/queue.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/error.h"

void sl__queue_open(struct sl__request_queue *q) {
  pthread_mutex_init(&q->lock, NULL);
  sl__condition_init(&q->news);
}

void sl__queue_close(struct sl__request_queue *q) {
  pthread_cond_destroy(&q->news);
  pthread_mutex_destroy(&q->lock);
}

/* ---- the end of a request ---- */

void sl__request_fail(struct sl_prediction *r, enum sl_status status, const char *message) {
  if (r->status != SL_OK) return;
  r->status = status;
  snprintf(r->message, sizeof r->message, "%s", message);
}

bool sl__request_answer(struct sl_prediction *r, int64_t rows) {
  struct sl_predictor_counts *counts = &r->queue->counts;
  r->answered += rows;
  bool complete = !r->queued && r->answered == r->taken;
  counts->samples += rows;
  counts->requests += complete;
  return complete;
}

void sl__request_answer_and_wake(struct sl_prediction *r, int64_t rows) {
  if (sl__request_answer(r, rows)) sem_post(&r->ended);
}

enum sl_status sl__request_wait(struct sl_prediction *r) {
  struct sl__request_queue *q = r->queue;
  pthread_mutex_lock(&q->lock);
  q->waiters++;
  r->core = sched_getcpu();
  pthread_mutex_unlock(&q->lock);
  while (sem_wait(&r->ended) != 0 && errno == EINTR) continue;
  pthread_mutex_lock(&q->lock);
  q->waiters--;
  if (q->closed) pthread_cond_broadcast(&q->news);
  pthread_mutex_unlock(&q->lock);
  sem_destroy(&r->ended);
  return r->status == SL_OK ? SL_OK : sl__fail(r->status, "%s", r->message);
}

/* ---- the queue ---- */

void sl__request_open(struct sl_prediction *r, struct sl__request_queue *queue, const void *inputs,
                      int64_t n, float *outputs) {
  *r = (struct sl_prediction){
      .queue = queue, .inputs = inputs, .outputs = outputs, .n = n, .core = -1};
  sem_init(&r->ended, 0, 0);
}

void sl__queue_put(struct sl__request_queue *q, struct sl_prediction *r) {
  r->queued = true;
  *(q->last ? &q->last->next : &q->first) = r;
  q->last = r;
  q->waiting += r->n;
}

static struct sl_prediction *remove_first(struct sl__request_queue *q) {
  struct sl_prediction *r = q->first;
  q->first = r->next;
  if (!q->first) q->last = NULL;
  q->waiting -= r->n - r->taken;
  r->queued = false;
  return r;
}

void sl__queue_drop_failed(struct sl__request_queue *q) {
  while (q->first && q->first->status != SL_OK) sl__request_answer_and_wake(remove_first(q), 0);
}

int sl__queue_take(struct sl__request_queue *q, int64_t most, struct sl__piece *pieces,
                   int64_t *rows) {
  int count = 0;
  *rows = 0;
  for (sl__queue_drop_failed(q); q->first && *rows < most; sl__queue_drop_failed(q)) {
    struct sl_prediction *r = q->first;
    int64_t room = most - *rows, left = r->n - r->taken;
    int64_t part = left < room ? left : room;
    pieces[count++] = (struct sl__piece){.request = r, .first = r->taken, .rows = part};
    if (part == left)
      remove_first(q);
    else
      q->waiting -= part;
    r->taken += part;
    *rows += part;
  }
  return count;
}

void sl__queue_fail(struct sl__request_queue *q, enum sl_status status, const char *message) {
  for (struct sl_prediction *r = q->first; r; r = r->next) sl__request_fail(r, status, message);
  sl__queue_drop_failed(q);
}
