/* The ring of requests, and the thread that prints their answers in order. */
#include <pthread.h>
#include <stdlib.h>

#include "tools/predict/failure.h"
#include "tools/predict/json_output.h"
#include "tools/predict/request_queue.h"

enum { BUDGET = 1 << 28, KEPT = 1 << 20 };

struct request_queue {
  struct request *requests; /* a ring: sent - done of them are in flight */
  int count;
  size_t bytes; /* of the requests in flight */
  int64_t sent, done;
  request_print print;
  void *user;
  int code; /* of the first failure */
  bool closing;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t news;
};

static void free_buffers(struct request *request) {
  free(request->inputs);
  free(request->outputs);
  free(request->targets);
  request->inputs = request->outputs = NULL;
  request->targets = NULL;
  request->room = 0;
}

static int finish(struct request_queue *q, struct request *request, bool failed) {
  enum sl_status status = sl_predict_wait(request->prediction);
  request->prediction = NULL;
  if (failed) return EXIT_FAILED; /* the failure was printed */
  return status == SL_OK ? q->print(q->user, request) : fail_library(status);
}

static void *work(void *argument) {
  struct request_queue *q = argument;
  pthread_mutex_lock(&q->lock);
  while (q->sent > q->done || !q->closing) {
    if (q->sent == q->done) {
      /* no request is in flight: write out the answers so far */
      pthread_mutex_unlock(&q->lock);
      int code = flush_output();
      pthread_mutex_lock(&q->lock);
      if (!q->code) q->code = code;
      while (q->sent == q->done && !q->closing) pthread_cond_wait(&q->news, &q->lock);
      continue;
    }
    struct request *request = &q->requests[q->done % q->count];
    bool failed = q->code != EXIT_DONE;
    pthread_mutex_unlock(&q->lock);
    int code = finish(q, request, failed);
    if (request->bytes > KEPT) free_buffers(request);
    pthread_mutex_lock(&q->lock);
    q->bytes -= request->bytes;
    if (!q->code) q->code = code;
    q->done++;
    pthread_cond_signal(&q->news);
  }
  pthread_mutex_unlock(&q->lock);
  return NULL;
}

struct request_queue *request_queue_open(int requests, request_print print, void *user) {
  struct request_queue *q = calloc(1, sizeof *q);
  if (q) *q = (struct request_queue){.count = requests, .print = print, .user = user};
  if (q) q->requests = calloc((size_t)requests, sizeof *q->requests);
  if (!q || !q->requests) {
    free(q);
    fail_memory();
    return NULL;
  }
  pthread_mutex_init(&q->lock, NULL);
  pthread_cond_init(&q->news, NULL);
  if (!pthread_create(&q->thread, NULL, work, q)) return q;
  fail(EXIT_FAILED, "no thread could be started for the output");
  free(q->requests);
  free(q);
  return NULL;
}

static bool is_full(const struct request_queue *q, size_t bytes) {
  return q->sent - q->done == q->count || (q->sent > q->done && q->bytes + bytes > BUDGET);
}

struct request *request_queue_take(struct request_queue *q, size_t bytes) {
  pthread_mutex_lock(&q->lock);
  while (is_full(q, bytes)) pthread_cond_wait(&q->news, &q->lock);
  bool failed = q->code != EXIT_DONE;
  pthread_mutex_unlock(&q->lock);
  struct request *request = &q->requests[q->sent % q->count];
  request->bytes = bytes;
  return failed ? NULL : request;
}

bool request_queue_send(struct request_queue *q, struct request *request) {
  enum sl_status status = sl_predict_submit(request->predictor, request->inputs, request->n,
                                            request->outputs, &request->prediction);
  if (status != SL_OK) return fail_library(status), false;
  pthread_mutex_lock(&q->lock);
  q->sent++;
  q->bytes += request->bytes;
  pthread_cond_signal(&q->news);
  pthread_mutex_unlock(&q->lock);
  return true;
}

int request_queue_close(struct request_queue *q) {
  pthread_mutex_lock(&q->lock);
  q->closing = true;
  pthread_cond_signal(&q->news);
  pthread_mutex_unlock(&q->lock);
  pthread_join(q->thread, NULL);
  int code = q->code;
  for (int i = 0; i < q->count; i++) {
    free(q->requests[i].origins);
    free_buffers(&q->requests[i]);
  }
  pthread_cond_destroy(&q->news);
  pthread_mutex_destroy(&q->lock);
  free(q->requests);
  free(q);
  return code;
}
