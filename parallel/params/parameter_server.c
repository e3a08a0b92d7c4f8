/* The exchange out of step (dist_async). An owner keeps a copy of its shards of its own, the
 * master. Of each message and worker it has a slot, where that worker's next gradient lands; when
 * it has, StarPU calls arrived(), which submits the update, the answer and the wait for the next
 * one. The owner's own worker is one like all others: what it computes with changes when it pulls,
 * not in the midst of a step. */
#include <pthread.h>
#include <stdlib.h>

#include "core/net/net.h"
#include "core/runtime/wait.h"
#include "parallel/params/exchange_state.h"

/* What stands at the head of a push, and of the answer to it. */
enum { HEAD_STEP, HEAD_LR, HEAD_STOP, HEAD_KIND, HEAD_SIZE };
/* A gradient that wants the parameters back, or does not; only a wish for them; the same from a
 * worker that waits for all others then; the last message. */
enum { KIND_PUSH, KIND_GIVE, KIND_ASK, KIND_REST, KIND_BYE };
enum { ANSWER_STALENESS, ANSWER_STOP, ANSWER_SIZE };

struct slot {
  struct sl__exchange *x;
  int message, worker;
  struct sl__tensor *head, *norm, *answer;
  struct sl__tensor **gradients; /* [parcels of the message], as they travel */
  struct sl__tensor **values;    /* the same unpacked; NULL where they are not packed */
  struct sl__tensor **list;      /* room for the tensors of one task */
  int64_t clock;                 /* steps that the worker has made */
  int64_t seen;                  /* version that it has pulled */
  int64_t staleness;             /* of its last push */
  int kind;                      /* of its last message */
  bool waits;                    /* for its answer */
  bool rests;                    /* nobody waits for its next step */
  bool listens;
};

struct sl__parameter_server {
  sl__apply apply;
  void *user;
  int max_staleness;
  bool has_norm;
  bool is_open;
  struct slot **slots;         /* [message], [workers] on its owner, else NULL */
  struct sl__tensor **master;  /* [parcel], on its owner */
  struct sl__tensor **heads;   /* [message]: this worker's pushes */
  struct sl__tensor **answers; /* [message] */
  struct sl__tensor *no_norm;  /* for a farewell; NULL where no norm comes with a push */
  pthread_mutex_t lock;        /* of what follows and the slots' counts */
  int64_t *version;            /* [message] */
  int listening;
  struct sl__staleness met;
  enum sl_status status; /* the first failure in a callback */
  char why[256];
};

/* ---- making and ending ---- */

static enum sl_status make_slot(struct sl__exchange *x, int m, int worker) {
  const struct sl__exchange_message *message = &x->messages[m];
  struct slot *slot = &x->service->slots[m][worker];
  size_t count = (size_t)message->count;
  enum sl_status status = SL_NO_MEMORY;
  *slot = (struct slot){.x = x, .message = m, .worker = worker};
  slot->gradients = sl__alloc(count, sizeof *slot->gradients, "an exchange");
  slot->values = sl__alloc(count, sizeof *slot->values, "an exchange");
  slot->list = sl__alloc(count + 2, sizeof *slot->list, "an exchange");
  if (!slot->gradients || !slot->values || !slot->list) goto out;
  SL__TRY(sl__tensor_temporary(x->context, &SL_SHAPE(HEAD_SIZE), SL_F32, &slot->head));
  SL__TRY(sl__tensor_temporary(x->context, &SL_SHAPE(1), SL_F32, &slot->norm));
  SL__TRY(sl__tensor_temporary(x->context, &SL_SHAPE(ANSWER_SIZE), SL_F32, &slot->answer));
  for (int i = 0; i < message->count; i++) {
    int64_t elements = x->parcels[message->parcels[i]].count;
    bool packed = sl__is_compressed(x);
    SL__TRY(sl__tensor_temporary(x->context, &SL_SHAPE(sl__compress_words(&x->compress, elements)),
                                 packed ? SL_I32 : SL_F32, &slot->gradients[i]));
    if (packed)
      SL__TRY(sl__tensor_temporary(x->context, &SL_SHAPE(elements), SL_F32, &slot->values[i]));
  }
  status = SL_OK;
out:
  return status;
}

static void clear_slot(const struct sl__exchange *x, struct slot *slot) {
  for (int i = 0; slot->gradients && slot->values && i < x->messages[slot->message].count; i++) {
    sl__tensor_free(slot->gradients[i]);
    sl__tensor_free(slot->values[i]);
  }
  sl__tensor_free(slot->head);
  sl__tensor_free(slot->norm);
  sl__tensor_free(slot->answer);
  free(slot->gradients);
  free(slot->values);
  free(slot->list);
}

/* What message m needs on its owner and on a worker. */
static enum sl_status make_message(struct sl__exchange *x, int m) {
  struct sl__parameter_server *s = x->service;
  const struct sl__exchange_message *message = &x->messages[m];
  enum sl_status status = SL_OK;
  if (sl__is_worker(&x->ranks)) {
    SL__TRY(sl__tensor_temporary(x->context, &SL_SHAPE(HEAD_SIZE), SL_F32, &s->heads[m]));
    SL__TRY(sl__tensor_temporary(x->context, &SL_SHAPE(ANSWER_SIZE), SL_F32, &s->answers[m]));
  }
  if (message->owner != x->ranks.rank) return SL_OK;
  s->slots[m] = sl__alloc((size_t)x->ranks.workers, sizeof **s->slots, "an exchange");
  if (!s->slots[m]) return SL_NO_MEMORY;
  for (int w = 0; w < x->ranks.workers; w++) SL__TRY(make_slot(x, m, w));
  for (int i = 0; i < message->count; i++) {
    int p = message->parcels[i];
    SL__TRY(
        sl__tensor_temporary(x->context, &SL_SHAPE(x->parcels[p].count), SL_F32, &s->master[p]));
  }
out:
  return status;
}

enum sl_status sl__parameter_server_new(struct sl__exchange *x, sl__apply apply, void *user,
                                        int max_staleness, bool has_norm) {
  enum sl_status status = SL_NO_MEMORY;
  struct sl__parameter_server *s = sl__alloc(1, sizeof *s, "an exchange");
  size_t messages = (size_t)x->message_count;
  if (!s) return status;
  x->service = s;
  s->apply = apply;
  s->user = user;
  s->max_staleness = max_staleness;
  s->has_norm = has_norm;
  pthread_mutex_init(&s->lock, NULL);
  s->slots = sl__alloc(messages, sizeof *s->slots, "an exchange");
  s->heads = sl__alloc(messages, sizeof *s->heads, "an exchange");
  s->answers = sl__alloc(messages, sizeof *s->answers, "an exchange");
  s->version = sl__alloc(messages, sizeof *s->version, "an exchange");
  s->master = sl__alloc((size_t)x->parcel_count, sizeof *s->master, "an exchange");
  if (!s->slots || !s->heads || !s->answers || !s->version || !s->master) goto out;
  status = SL_OK;
  for (int m = 0; m < x->message_count; m++) SL__TRY(make_message(x, m));
  if (has_norm) SL__TRY(sl__tensor_temporary(x->context, &SL_SHAPE(1), SL_F32, &s->no_norm));
out:
  return status; /* sl__exchange_free ends what is half-made */
}

void sl__parameter_server_free(struct sl__exchange *x) {
  struct sl__parameter_server *s = x->service;
  if (!s) return;
  for (int m = 0; m < x->message_count; m++) {
    for (int w = 0; s->slots && s->slots[m] && w < x->ranks.workers; w++)
      clear_slot(x, &s->slots[m][w]);
    if (s->slots) free(s->slots[m]);
    if (s->heads) sl__tensor_free(s->heads[m]);
    if (s->answers) sl__tensor_free(s->answers[m]);
  }
  for (int p = 0; s->master && p < x->parcel_count; p++) sl__tensor_free(s->master[p]);
  sl__tensor_free(s->no_norm);
  pthread_mutex_destroy(&s->lock);
  free(s->slots);
  free(s->heads);
  free(s->answers);
  free(s->version);
  free(s->master);
  free(s);
  x->service = NULL;
}

/* ---- the owner ---- */

static void arrived(void *argument);

/* A failure in a callback is told by the next call of the main thread. */
static void note_failure(struct sl__parameter_server *s, enum sl_status status) {
  if (status == SL_OK) return;
  pthread_mutex_lock(&s->lock);
  if (s->status == SL_OK) {
    s->status = status;
    snprintf(s->why, sizeof s->why, "%s", sl_error());
  }
  pthread_mutex_unlock(&s->lock);
}

static enum sl_status check(struct sl__exchange *x) {
  struct sl__parameter_server *s = x->service;
  enum sl_status status = sl__net_check(x->context->net);
  if (status != SL_OK) return status;
  pthread_mutex_lock(&s->lock);
  if (s->status != SL_OK) status = sl__fail(s->status, "%s", s->why);
  pthread_mutex_unlock(&s->lock);
  return status;
}

/* The tensors of a message behind the ones at its head. */
static int add_parcels(const struct sl__exchange *x, int m, struct sl__tensor *const *of_parcel,
                       struct sl__tensor **list, int n) {
  const struct sl__exchange_message *message = &x->messages[m];
  for (int i = 0; i < message->count; i++) list[n++] = of_parcel[message->parcels[i]];
  return n;
}

/* Submit: wait for the slot's next push. */
static enum sl_status listen_to(struct slot *slot) {
  struct sl__exchange *x = slot->x;
  struct sl__launch launch = sl__message_launch(x, slot->message);
  struct sl__peers worker = sl__peer(slot->worker);
  worker.patience = x->patience;
  int n = 0;
  slot->list[n++] = slot->head;
  if (x->service->has_norm) slot->list[n++] = slot->norm;
  for (int i = 0; i < x->messages[slot->message].count; i++) slot->list[n++] = slot->gradients[i];
  enum sl_status status =
      sl__receive(x->context, &launch, sl__push_tag(x, slot->message), &worker, n, slot->list);
  /* Were the update submitted before its gradient has come, all that follows on these parameters
   * would wait for another rank's computing, and that for ours. */
  if (status == SL_OK) status = sl__unite(x->context, &launch, n, slot->list);
  if (status != SL_OK) return status;
  if (starpu_data_acquire_cb(slot->head->handle, STARPU_R, arrived, slot))
    return sl__fail(SL_STARPU, "StarPU cannot call back when a gradient arrives");
  return SL_OK;
}

static enum sl_status answer(struct slot *slot) {
  struct sl__exchange *x = slot->x;
  struct sl__parameter_server *s = x->service;
  struct sl__launch launch = sl__message_launch(x, slot->message);
  struct sl__peers worker = sl__peer(slot->worker);
  float facts[ANSWER_SIZE] = {
      [ANSWER_STALENESS] = (float)slot->staleness, [ANSWER_STOP] = s->met.stop};
  enum sl_status status = sl__set_values(x->context, &launch, slot->answer, facts);
  if (status != SL_OK) return status;
  slot->list[0] = slot->answer;
  int n = add_parcels(x, slot->message, s->master, slot->list, 1);
  status =
      sl__send(x->context, &launch, sl__push_tag(x, slot->message) + 1, &worker, n, slot->list);
  return status == SL_OK ? listen_to(slot) : status;
}

static enum sl_status apply(struct slot *slot, int64_t version, float lr) {
  struct sl__exchange *x = slot->x;
  struct sl__parameter_server *s = x->service;
  const struct sl__exchange_message *message = &x->messages[slot->message];
  enum sl_status status = SL_OK;
  for (int i = 0; i < message->count; i++) {
    int p = message->parcels[i];
    struct sl__tensor *gradient = slot->gradients[i];
    if (slot->values[i]) {
      SL__TRY(sl__decompress(x->context, &x->parcels[p].launch, &x->compress, gradient,
                             slot->values[i]));
      gradient = slot->values[i];
    }
    SL__TRY(
        s->apply(s->user, p, s->master[p], gradient, s->has_norm ? slot->norm : NULL, version, lr));
  }
out:
  return status;
}

/* With the lock: the steps of the slowest worker that is still there. */
static int64_t slowest(const struct sl__exchange *x, int m) {
  int64_t least = INT64_MAX;
  for (int w = 0; w < x->ranks.workers; w++) {
    const struct slot *slot = &x->service->slots[m][w];
    if (slot->listens && !slot->rests && slot->clock < least) least = slot->clock;
  }
  return least;
}

/* With the lock: whose answer is due now. */
static int due(struct sl__exchange *x, int m, struct slot **slots) {
  struct sl__parameter_server *s = x->service;
  int64_t least = slowest(x, m);
  int count = 0;
  for (int w = 0; w < x->ranks.workers; w++) {
    struct slot *slot = &s->slots[m][w];
    bool early = s->max_staleness >= 0 && slot->clock - least > s->max_staleness;
    if (!slot->waits || (early && !slot->rests)) continue;
    slot->waits = false;
    slot->seen = s->version[m];
    slots[count++] = slot;
  }
  return count;
}

/* With the lock. Returns the version that the push is applied to, or -1 where it is none. */
static int64_t enter(struct slot *slot, const float *head) {
  struct sl__parameter_server *s = slot->x->service;
  int m = slot->message;
  s->met.stop |= head[HEAD_STOP] != 0;
  slot->kind = (int)head[HEAD_KIND];
  if (slot->kind == KIND_BYE) {
    slot->listens = false;
  }
  slot->rests = slot->kind == KIND_REST;
  if (slot->rests) slot->clock = 0;
  if (slot->kind >= KIND_ASK) return -1;
  slot->clock = (int64_t)head[HEAD_STEP];
  slot->staleness = s->version[m] - slot->seen;
  return s->version[m]++;
}

/* By any thread, also a GPU's, whose own memory is another one, when a slot's head can be read. */
static void arrived(void *argument) {
  struct slot *slot = argument;
  struct sl__exchange *x = slot->x;
  struct sl__parameter_server *s = x->service;
  struct slot *answered[x->ranks.workers];
  float head[HEAD_SIZE];
  const float *place = starpu_data_handle_to_pointer(slot->head->handle, STARPU_MAIN_RAM);
  for (int i = 0; i < HEAD_SIZE; i++) head[i] = place[i];
  starpu_data_release(slot->head->handle);
  if (sl__net_check(x->context->net) != SL_OK) head[HEAD_KIND] = KIND_BYE; /* nothing came */
  pthread_mutex_lock(&s->lock);
  int64_t version = enter(slot, head);
  int kind = slot->kind;
  pthread_mutex_unlock(&s->lock);
  if (version >= 0) note_failure(s, apply(slot, version, head[HEAD_LR]));
  pthread_mutex_lock(&s->lock);
  slot->waits = kind != KIND_BYE &&
                kind != KIND_GIVE; /* only now: its answer, by any thread, has the update in it */
  int count = due(x, slot->message, answered);
  pthread_mutex_unlock(&s->lock);
  for (int i = 0; i < count; i++) note_failure(s, answer(answered[i]));
  if (kind == KIND_GIVE) note_failure(s, listen_to(slot));
  if (kind != KIND_BYE) return;
  pthread_mutex_lock(&s->lock);
  s->listening--; /* last of all: at 0 the service may be freed */
  pthread_mutex_unlock(&s->lock);
}

/* ---- a worker ---- */

static void answered(void *argument) {
  struct slot *slot = argument; /* of this worker's own, without gradients */
  struct sl__parameter_server *s = slot->x->service;
  const float *facts = starpu_data_handle_to_pointer(slot->answer->handle, STARPU_MAIN_RAM);
  int64_t staleness = (int64_t)facts[ANSWER_STALENESS];
  bool stop = facts[ANSWER_STOP] != 0;
  starpu_data_release(slot->answer->handle);
  free(slot);
  pthread_mutex_lock(&s->lock);
  s->met.sum += staleness;
  s->met.count++;
  if (staleness > s->met.most) s->met.most = staleness;
  s->met.stop |= stop;
  pthread_mutex_unlock(&s->lock);
}

static enum sl_status pull(struct sl__exchange *x, int m, const struct sl__peers *owner) {
  struct sl__parameter_server *s = x->service;
  struct sl__launch launch = sl__message_launch(x, m);
  int n = 1;
  x->list[0] = s->answers[m];
  for (int i = 0; i < x->messages[m].count; i++)
    x->list[n++] = x->parcels[x->messages[m].parcels[i]].param;
  enum sl_status status =
      sl__receive(x->context, &launch, sl__push_tag(x, m) + 1, owner, n, x->list);
  struct slot *slot = status == SL_OK ? sl__alloc(1, sizeof *slot, "an exchange") : NULL;
  if (!slot) return status == SL_OK ? SL_NO_MEMORY : status;
  *slot = (struct slot){.x = x, .message = m, .answer = s->answers[m]};
  if (!starpu_data_acquire_cb(s->answers[m]->handle, STARPU_R, answered, slot)) return SL_OK;
  free(slot);
  return sl__fail(SL_STARPU, "StarPU cannot call back when parameters arrive");
}

enum sl_status sl__parameter_server_push(struct sl__exchange *x, int m,
                                         struct sl__tensor *const *sums,
                                         const struct sl__push *push) {
  struct sl__parameter_server *s = x->service;
  const struct sl__exchange_message *message = &x->messages[m];
  struct sl__launch launch = sl__message_launch(x, m);
  struct sl__peers owner = sl__peer(message->owner);
  float head[HEAD_SIZE] = {[HEAD_STEP] = (float)push->step,
                           [HEAD_LR] = push->lr,
                           [HEAD_STOP] = push->stop,
                           [HEAD_KIND] = push->silent ? KIND_GIVE : KIND_PUSH};
  enum sl_status status;
  int n = 0;
  SL__TRY(check(x));
  SL__TRY(sl__set_values(x->context, &launch, s->heads[m], head));
  x->list[n++] = s->heads[m];
  if (s->has_norm) x->list[n++] = push->norm;
  for (int i = 0; i < message->count; i++) {
    int p = message->parcels[i];
    SL__TRY(sl__exchange_pack(x, p, sums[p], &x->list[n++]));
  }
  SL__TRY(sl__send(x->context, &launch, sl__push_tag(x, m), &owner, n, x->list));
  if (!push->silent) status = pull(x, m, &owner);
out:
  return status;
}

/* What is awaited behind the head of a push. MPI takes a short message for a long one; where
 * tensors may be a message each, by StarPU-MPI or from GPUs, a farewell is as long as a push. */
static enum sl_status fill_up(struct sl__exchange *x, int m, int *n) {
  struct sl__parameter_server *s = x->service;
  const struct sl__exchange_message *message = &x->messages[m];
  struct sl__launch launch = sl__message_launch(x, m);
  enum sl_status status = SL_OK;
  struct sl__net *net = x->context->net;
  bool split = sl__net_has_starpu(net) || sl__net_is_cuda_aware(net);
  if (!split || x->tag >= SL__TAG_MPI_ONLY) return SL_OK;
  if (s->has_norm) {
    SL__TRY(sl__fill(x->context, &launch, s->no_norm, 0));
    x->list[(*n)++] = s->no_norm;
  }
  for (int i = 0; i < message->count; i++) {
    int p = message->parcels[i];
    struct sl__tensor *any = sl__is_compressed(x) ? x->packed[p] : x->parcels[p].param;
    if (sl__is_compressed(x)) SL__TRY(sl__fill(x->context, &launch, any, 0));
    x->list[(*n)++] = any;
  }
out:
  return status;
}

/* A message that is a head only. */
static enum sl_status say(struct sl__exchange *x, int m, int kind) {
  struct sl__parameter_server *s = x->service;
  const float head[HEAD_SIZE] = {[HEAD_KIND] = (float)kind};
  struct sl__launch launch = sl__message_launch(x, m);
  struct sl__peers owner = sl__peer(x->messages[m].owner);
  enum sl_status status;
  int n = 1;
  SL__TRY(sl__set_values(x->context, &launch, s->heads[m], head));
  x->list[0] = s->heads[m];
  SL__TRY(fill_up(x, m, &n));
  status = sl__send(x->context, &launch, sl__push_tag(x, m), &owner, n, x->list);
out:
  return status;
}

enum sl_status sl__parameter_server_ask(struct sl__exchange *x, int m, bool rests) {
  struct sl__peers owner = sl__peer(x->messages[m].owner);
  enum sl_status status = check(x);
  if (status == SL_OK) status = say(x, m, rests ? KIND_REST : KIND_ASK);
  return status == SL_OK ? pull(x, m, &owner) : status;
}

void sl__parameter_server_staleness(struct sl__exchange *x, struct sl__staleness *staleness) {
  struct sl__parameter_server *s = x->service;
  pthread_mutex_lock(&s->lock);
  *staleness = s->met;
  s->met = (struct sl__staleness){.stop = s->met.stop};
  pthread_mutex_unlock(&s->lock);
}

/* ---- together ---- */

/* Between a rank's parameters and its masters. */
static enum sl_status copy(struct sl__exchange *x, int p, struct sl__tensor *to,
                           struct sl__tensor *from) {
  return sl__reduce(x->context, &x->parcels[p].launch, to, 1, &from);
}

enum sl_status sl__parameter_server_open(struct sl__exchange *x, int64_t step) {
  struct sl__parameter_server *s = x->service;
  enum sl_status status = SL_OK;
  if (s->is_open) return check(x);
  s->is_open = true;
  for (int p = 0; p < x->parcel_count; p++)
    if (s->master[p]) SL__TRY(copy(x, p, s->master[p], x->parcels[p].param));
  for (int m = 0; m < x->message_count; m++) /* as many updates were made, also by a run before */
    if (s->version[m] < step * x->ranks.workers) s->version[m] = step * x->ranks.workers;
  for (int m = 0; m < x->message_count; m++)
    for (int w = 0; s->slots[m] && w < x->ranks.workers; w++) {
      struct slot *slot = &s->slots[m][w];
      pthread_mutex_lock(&s->lock);
      slot->clock = step;
      slot->seen = s->version[m];
      slot->waits = false;
      slot->listens = true;
      s->listening++;
      pthread_mutex_unlock(&s->lock);
    }
  for (int m = 0; m < x->message_count; m++)
    for (int w = 0; s->slots[m] && w < x->ranks.workers; w++) SL__TRY(listen_to(&s->slots[m][w]));
out:
  return status;
}

enum sl_status sl__parameter_server_leave(struct sl__exchange *x) {
  struct sl__parameter_server *s = x->service;
  enum sl_status status = SL_OK;
  if (!s->is_open) return SL_OK;
  s->is_open = false;
  for (int m = 0; m < x->message_count && sl__is_worker(&x->ranks) && status == SL_OK; m++)
    status = say(x, m, KIND_BYE);
  return status;
}

void sl__parameter_server_calm(struct sl__exchange *x) {
  const double most_s = 5;
  if (x->service) sl__wait_for_none(&x->service->lock, &x->service->listening, most_s);
}

enum sl_status sl__parameter_server_wait(struct sl__exchange *x) {
  const double between_checks_s = 0.01;
  struct sl__parameter_server *s = x->service;
  enum sl_status status = check(x);
  while (status == SL_OK && !sl__wait_for_none(&s->lock, &s->listening, between_checks_s))
    status = check(x);
  return status;
}

static enum sl_status hand_out(struct sl__exchange *x, int m) {
  const struct sl__exchange_message *message = &x->messages[m];
  struct sl__launch launch = sl__message_launch(x, m);
  struct sl__peers owner = sl__peer(message->owner);
  struct sl__peers workers = {0, x->ranks.workers, x->ranks.rank};
  enum sl_status status = SL_OK;
  int tag = sl__push_tag(x, m) + 1, n = 0;
  if (message->owner == x->ranks.rank) {
    for (int i = 0; i < message->count; i++) {
      int p = message->parcels[i];
      SL__TRY(copy(x, p, x->parcels[p].param, x->service->master[p]));
    }
    n = add_parcels(x, m, x->service->master, x->list, 0);
    return sl__send(x->context, &launch, tag, &workers, n, x->list);
  }
  if (!sl__is_worker(&x->ranks)) return SL_OK;
  for (int i = 0; i < message->count; i++) x->list[n++] = x->parcels[message->parcels[i]].param;
  status = sl__receive(x->context, &launch, tag, &owner, n, x->list);
out:
  return status;
}

static enum sl_status share_stop(struct sl__exchange *x) {
  struct sl__net *net = x->context->net;
  struct sl__parameter_server *s = x->service;
  enum sl_status status = SL_NO_MEMORY;
  int32_t stop = s->met.stop;
  int32_t *all = sl__alloc((size_t)x->ranks.size, sizeof *all, "ranks");
  if (!all) return status;
  SL__TRY(sl__net_gather(net, &stop, sizeof stop, all));
  for (int r = 0; r < x->ranks.size && !x->ranks.rank; r++) stop |= all[r];
  SL__TRY(sl__net_broadcast(net, &stop, sizeof stop));
  s->met.stop = stop;
out:
  free(all);
  return status;
}

enum sl_status sl__parameter_server_settle(struct sl__exchange *x) {
  struct sl__parameter_server *s = x->service;
  enum sl_status status;
  if (!s->is_open) return SL_OK;
  SL__TRY(sl__parameter_server_leave(x));
  SL__TRY(sl__parameter_server_wait(x));
  SL__TRY(
      sl__wait_for_all(x->context)); /* the last answers are on their way before what comes now */
  for (int m = 0; m < x->message_count; m++) SL__TRY(hand_out(x, m));
  SL__TRY(sl__wait_for_all(x->context));
  SL__TRY(share_stop(x));
  status = check(x);
out:
  return status;
}
