/* The requests of a predictor, in the order of their arrival. One lock protects the queue, its
 * requests and the state of the request slots (parallel/predict/batch.h). Functions need the lock
 * unless they say otherwise. */
#ifndef SL_PARALLEL_PREDICT_QUEUE_H
#define SL_PARALLEL_PREDICT_QUEUE_H

#include <pthread.h>
#include <semaphore.h>

#include <starling/predict.h>

struct sl__request_queue;

/* One call of sl_predict or sl_predict_submit. */
struct sl_prediction {
  struct sl__request_queue *queue;
  const char *inputs;
  float *outputs;
  int64_t n, taken, answered; /* samples: all, those that batches took, those that are done */
  double since_us;            /* time of arrival; 0 if batches wait for no further requests */
  enum sl_status status;      /* the first failure */
  char message[512];
  sem_t ended;
  int core;    /* the core of the thread that waits for the request; -1: unknown */
  bool queued; /* some samples are in the queue */
  struct sl_prediction *next;
};

/* Samples of one request in a batch. */
struct sl__piece {
  struct sl_prediction *request;
  int64_t first, rows;
};

struct sl__request_queue {
  pthread_mutex_t lock;
  pthread_cond_t news; /* a new request, a free slot, the end of a wait, or the close */
  bool closed;
  struct sl_prediction *first, *last; /* requests with samples that no batch took yet */
  int64_t waiting;                    /* number of these samples */
  int waiters;                        /* threads in sl__request_wait */
  struct sl_predictor_counts counts;
};

/* Both without the lock. */
void sl__queue_open(struct sl__request_queue *queue);
void sl__queue_close(struct sl__request_queue *queue);

/* Without the lock: fills in a request of n samples that is not in the queue yet. */
void sl__request_open(struct sl_prediction *request, struct sl__request_queue *queue,
                      const void *inputs, int64_t n, float *outputs);
void sl__queue_put(struct sl__request_queue *queue, struct sl_prediction *request);

/* Moves up to `most` samples of the oldest requests into pieces; returns the number of pieces. */
int sl__queue_take(struct sl__request_queue *queue, int64_t most, struct sl__piece *pieces,
                   int64_t *rows);

/* Ends failed requests of which no batch has samples, so that `first` is one that can begin. */
void sl__queue_drop_failed(struct sl__request_queue *queue);

/* Every request in the queue fails. */
void sl__queue_fail(struct sl__request_queue *queue, enum sl_status status, const char *message);

/* Only the first failure of a request counts. */
void sl__request_fail(struct sl_prediction *request, enum sl_status status, const char *message);

/* Further samples of the request are answered, or have failed. Returns true once, when the request
 * is complete: the caller must then post `ended`, after which the request may be freed. */
bool sl__request_answer(struct sl_prediction *request, int64_t rows);
/* Posts it at once. */
void sl__request_answer_and_wake(struct sl_prediction *request, int64_t rows);

/* Without the lock: waits for the end of the request. Returns its status, with its message. */
enum sl_status sl__request_wait(struct sl_prediction *request);

#endif
