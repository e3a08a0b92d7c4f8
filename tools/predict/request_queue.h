/* Requests in flight: one thread reads inputs and sends requests, another one waits for the oldest
 * request and prints it. Meanwhile the devices compute those in between. */
#ifndef SL_TOOLS_PREDICT_REQUEST_QUEUE_H
#define SL_TOOLS_PREDICT_REQUEST_QUEUE_H

#include "tools/predict/samples.h"

/* One request, with the data for its output. */
struct request {
  struct sl_predictor *predictor;
  int64_t n; /* samples */
  struct origin *origins;
  void *inputs;
  float *outputs;
  /* of a line of text: */
  int64_t steps;    /* of the predictor */
  int64_t tokens;   /* inputs before the padding */
  int64_t scored;   /* number of tokens that have a target */
  int64_t unknown;  /* words outside the vocabulary */
  int32_t *targets; /* [steps] */
  size_t room;      /* bytes allocated for inputs */
  size_t bytes;     /* of all its memory; 0 if all requests have the same */
  struct sl_prediction *prediction;
};

/* Requests in the order in which they were sent. */
struct request_queue;
typedef int (*request_print)(void *user, const struct request *request);
struct request_queue *request_queue_open(int requests, request_print print, void *user);
/* A free request, for the caller to fill. Waits until one is free and `bytes` more fit into the
 * memory budget (0: all requests have the same size). Returns NULL if an earlier request failed. */
struct request *request_queue_take(struct request_queue *queue, size_t bytes);
/* Returns false after a failure. */
bool request_queue_send(struct request_queue *queue, struct request *request);
/* Waits for all requests; returns the code of the first failure. */
int request_queue_close(struct request_queue *queue);

#endif
