/* The inside of a parameter server, for parameter_server*.c.
 *
 * An owner keeps a copy of its shards, the master. For each message and worker it has a slot, into
 * which that worker's next gradient is received. When the gradient is there, StarPU calls back, and
 * the callback submits the update, the answer and the wait for the next gradient. The worker of the
 * owner's own rank is no exception: the parameters that it computes with change when it pulls, not
 * in the middle of a step. */
#ifndef SL_PARALLEL_PARAMS_PARAMETER_SERVER_STATE_H
#define SL_PARALLEL_PARAMS_PARAMETER_SERVER_STATE_H

#include <pthread.h>

#include "parallel/params/exchange_state.h"
#include "parallel/params/parameter_server.h"
#include "parallel/params/shard_update.h"

/* The first floats of a push, and of the answer to it. */
enum { SL__HEAD_STEP, SL__HEAD_LR, SL__HEAD_STOP, SL__HEAD_KIND, SL__HEAD_SIZE };
enum { SL__ANSWER_STALENESS, SL__ANSWER_STOP, SL__ANSWER_SIZE };
#define SL__MOST_STEPS ((int64_t)1 << 52) /* that a message may name */

/* Kinds of messages to the owner. The last three carry no gradient. */
enum sl__push_kind {
  SL__PUSH_PULL,  /* a gradient; the owner sends the parameters back */
  SL__PUSH_ONLY,  /* a gradient */
  SL__PULL_ONLY,  /* the owner sends the parameters */
  SL__PULL_PAUSE, /* the same; then the worker waits for all others */
  SL__PUSH_CLOSE  /* the worker's last message */
};

/* On an owner: the pushes of one worker, for one message. */
struct sl__push_slot {
  struct sl__exchange *x;
  int message, worker;
  struct sl__tensor *head, *norm, *answer;
  struct sl__tensor **gradients; /* [shards of the message], as they are sent */
  struct sl__tensor **values;    /* the same decompressed; NULL if they are not compressed */
  struct sl__tensor **list;      /* room for the tensors of one task */
  /* under the server's lock: */
  int64_t clock;           /* number of steps that the worker has made */
  int64_t pulled;          /* version that the worker has */
  int64_t staleness;       /* of its last push */
  enum sl__push_kind kind; /* of its last message */
  bool awaits_answer;
  bool pauses;  /* other workers do not wait for its next step */
  bool is_open; /* the worker has not sent its closing message */
};

struct sl__parameter_server {
  int max_staleness; /* negative: any */
  bool has_norm;
  bool is_open;
  struct sl__push_slot **slots; /* [message], [workers] on its owner, else NULL */
  struct sl__tensor **master;   /* [shard], on its owner */
  struct sl__tensor **heads;    /* [message]: of this worker's pushes */
  struct sl__tensor **answers;  /* [message] */
  struct sl__tensor *no_norm;   /* for messages without gradients; NULL if pushes have no norm */
  pthread_mutex_t lock;         /* of the fields below and of the slots' counts */
  struct sl_optimizer optimizer;
  int64_t *version; /* [message] number of updates made */
  int open_slots;
  struct sl__staleness met;
  enum sl_status status; /* the first failure in a callback */
  char failure[256];
};

/* May a worker's next push never come? A trainer's comes in each step. */
static inline bool sl__is_endless(const struct sl__exchange *x) {
  return x->timeout == SL__NO_TIMEOUT;
}

/* The failure of another rank, or of a callback. */
enum sl_status sl__parameter_server_check(struct sl__exchange *x);

/* Adds tensors[shard] of each shard of the message to list, which has n already; returns the new
 * number. */
int sl__message_tensors(const struct sl__exchange *x, int m, struct sl__tensor *const *tensors,
                        struct sl__tensor **list, int n);

/* A whole number in a message: from 0 to most; -1: it is none. */
static inline int64_t sl__whole_in_message(float value, int64_t most) {
  return value >= 0 && value <= (float)most ? (int64_t)value : -1;
}

/* Reads a push's head (parameter_server_owner.c). Returns false for one that no worker sends. */
bool sl__push_head(const float head[SL__HEAD_SIZE], enum sl__push_kind *kind, int64_t *step);

/* parameter_server_owner.c: submit the wait for the slot's next message. */
enum sl_status sl__push_slot_receive(struct sl__push_slot *slot);

/* parameter_server_worker.c: submit a message without a gradient. */
enum sl_status sl__parameter_server_send(struct sl__exchange *x, int m, enum sl__push_kind kind);

#endif
