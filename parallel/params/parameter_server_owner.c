/* The owner's side of dist_async: callbacks that apply a worker's gradient and answer it. */
#include <string.h>

#include "core/net/net.h"
#include "core/runtime/wait.h"
#include "parallel/params/parameter_server_state.h"

static void arrived(void *argument);

/* The main thread's next call returns the failure of a callback. */
static void keep_failure(struct sl__parameter_server *server, enum sl_status status) {
  if (status == SL_OK) return;
  pthread_mutex_lock(&server->lock);
  if (server->status == SL_OK) {
    server->status = status;
    snprintf(server->failure, sizeof server->failure, "%s", sl_error());
  }
  pthread_mutex_unlock(&server->lock);
}

enum sl_status sl__push_slot_receive(struct sl__push_slot *slot) {
  struct sl__exchange *x = slot->x;
  struct sl__launch launch = sl__message_launch(x, slot->message);
  launch.endless = sl__is_endless(x);
  struct sl__peers worker = sl__peer(slot->worker);
  worker.timeout_policy = x->timeout;
  int n = 0;
  slot->list[n++] = slot->head;
  if (x->server->has_norm) slot->list[n++] = slot->norm;
  for (int i = 0; i < x->messages[slot->message].count; i++) slot->list[n++] = slot->gradients[i];
  enum sl_status status =
      sl__receive(x->context, &launch, sl__push_tag(x, slot->message), &worker, n, slot->list);
  /* If the update were submitted before its gradient is here, all later tasks on these parameters
   * would wait for another rank's computation, and that rank for ours. */
  if (status == SL_OK) status = sl__unite(x->context, &launch, n, slot->list);
  if (status != SL_OK) return status;
  if (starpu_data_acquire_cb(slot->head->handle, STARPU_R, arrived, slot))
    return sl__fail(SL_STARPU, "StarPU cannot call back when a gradient arrives");
  return SL_OK;
}

static enum sl_status answer(struct sl__push_slot *slot) {
  struct sl__exchange *x = slot->x;
  struct sl__parameter_server *server = x->server;
  struct sl__launch launch = sl__message_launch(x, slot->message);
  struct sl__peers worker = sl__peer(slot->worker);
  pthread_mutex_lock(&server->lock);
  float content[SL__ANSWER_SIZE] = {
      [SL__ANSWER_STALENESS] = (float)slot->staleness, [SL__ANSWER_STOP] = server->met.stop};
  pthread_mutex_unlock(&server->lock);
  enum sl_status status = sl__set_values(x->context, &launch, slot->answer, content);
  if (status != SL_OK) return status;
  slot->list[0] = slot->answer;
  int n = sl__message_tensors(x, slot->message, server->master, slot->list, 1);
  status = sl__send(x->context, &launch, sl__pull_tag(x, slot->message), &worker, n, slot->list);
  return status == SL_OK ? sl__push_slot_receive(slot) : status;
}

static enum sl_status apply(struct sl__push_slot *slot, int64_t version, float lr) {
  struct sl__exchange *x = slot->x;
  struct sl__parameter_server *server = x->server;
  const struct sl__exchange_message *message = &x->messages[slot->message];
  enum sl_status status = SL_OK;
  pthread_mutex_lock(&server->lock);
  const struct sl_optimizer optimizer = server->optimizer;
  pthread_mutex_unlock(&server->lock);
  const struct sl__update update = sl__update_of(&optimizer, version, lr);
  for (int i = 0; i < message->count; i++) {
    const struct sl__shard *shard = &x->shards[message->shards[i]];
    struct sl__tensor *gradient = slot->values[i] ? slot->values[i] : slot->gradients[i];
    const struct sl__gradients gradients = {
        .count = 1, .terms = &gradient, .norm = server->has_norm ? slot->norm : NULL};
    if (slot->values[i])
      SL__TRY(sl__decompress(x->context, &shard->launch, &x->compress, slot->gradients[i],
                             slot->values[i]));
    SL__TRY(sl__shard_update(x->context, shard, server->master[message->shards[i]], &optimizer,
                             &update, &gradients));
  }
out:
  return status;
}

/* With the lock: number of steps of the slowest worker that takes part. */
static int64_t slowest(const struct sl__exchange *x, int m) {
  int64_t least = INT64_MAX;
  for (int w = 0; w < x->ranks.workers; w++) {
    const struct sl__push_slot *slot = &x->server->slots[m][w];
    if (slot->is_open && !slot->pauses && slot->clock < least) least = slot->clock;
  }
  return least;
}

/* With the lock: the slots of workers that are not too far ahead and get their answer now. */
static int take_due_answers(struct sl__exchange *x, int m, struct sl__push_slot **due) {
  struct sl__parameter_server *server = x->server;
  int64_t least = slowest(x, m);
  int count = 0;
  for (int w = 0; w < x->ranks.workers; w++) {
    struct sl__push_slot *slot = &server->slots[m][w];
    bool ahead = server->max_staleness >= 0 && slot->clock - least > server->max_staleness;
    if (!slot->awaits_answer || (ahead && !slot->pauses)) continue;
    slot->awaits_answer = false;
    slot->pulled = server->version[m];
    due[count++] = slot;
  }
  return count;
}

bool sl__push_head(const float head[SL__HEAD_SIZE], enum sl__push_kind *kind, int64_t *step) {
  int64_t number = sl__whole_in_message(head[SL__HEAD_KIND], SL__PUSH_CLOSE);
  *kind = number < 0 ? SL__PUSH_CLOSE : (enum sl__push_kind)number;
  *step = sl__whole_in_message(head[SL__HEAD_STEP], SL__MOST_STEPS);
  return number >= 0 && *step >= 0;
}

/* With the lock. When all workers have come to the barrier, those that are ahead wait for each of
 * them again, also for one that has not pushed since. */
static void end_pauses(const struct sl__exchange *x, int m) {
  struct sl__push_slot *slots = x->server->slots[m];
  for (int w = 0; w < x->ranks.workers; w++)
    if (slots[w].is_open && !slots[w].pauses) return;
  for (int w = 0; w < x->ranks.workers; w++) slots[w].pauses = false;
}

/* With the lock. Returns the version that the gradient is applied to, or -1 if there is none. */
static int64_t enter(struct sl__push_slot *slot, bool stop, enum sl__push_kind kind, int64_t step) {
  struct sl__parameter_server *server = slot->x->server;
  int m = slot->message;
  server->met.stop |= stop;
  slot->kind = kind;
  if (slot->kind == SL__PUSH_CLOSE) slot->is_open = false;
  slot->pauses = slot->kind == SL__PULL_PAUSE;
  if (slot->pauses) slot->clock = 0;
  if (slot->pauses) end_pauses(slot->x, m);
  if (slot->kind >= SL__PULL_ONLY) return -1;
  slot->clock = step;
  slot->staleness = server->version[m] - slot->pulled;
  return server->version[m]++;
}

/* The head of the slot's push. A worker that sends what is no push counts as one that has left. */
static void read_head(struct sl__push_slot *slot, float *head, enum sl__push_kind *kind,
                      int64_t *step) {
  const float *memory = starpu_data_handle_to_pointer(slot->head->handle, STARPU_MAIN_RAM);
  memcpy(head, memory, SL__HEAD_SIZE * sizeof *head);
  starpu_data_release(slot->head->handle);
  bool lost = sl__net_check(slot->x->context->net) != SL_OK; /* the message has no content */
  bool good = !lost && sl__push_head(head, kind, step);
  if (good) return;
  if (!lost)
    keep_failure(slot->x->server,
                 sl__fail(SL_LOST, "rank %d has sent a push that is none", slot->worker));
  head[SL__HEAD_STOP] = 0;
  *kind = SL__PUSH_CLOSE;
  *step = 0;
}

/* A slot's head can be read. Any thread calls this, also that of a GPU, whose memory is another. */
static void arrived(void *argument) {
  struct sl__push_slot *slot = argument;
  struct sl__exchange *x = slot->x;
  struct sl__parameter_server *server = x->server;
  struct sl__push_slot *due[x->ranks.workers];
  float head[SL__HEAD_SIZE];
  enum sl__push_kind kind;
  int64_t step;
  read_head(slot, head, &kind, &step);
  pthread_mutex_lock(&server->lock);
  int64_t version = enter(slot, head[SL__HEAD_STOP] != 0, kind, step);
  pthread_mutex_unlock(&server->lock);
  if (version >= 0) keep_failure(server, apply(slot, version, head[SL__HEAD_LR]));
  pthread_mutex_lock(&server->lock);
  /* not earlier: the answer, which any thread may send, must have the update in it */
  slot->awaits_answer = kind != SL__PUSH_CLOSE && kind != SL__PUSH_ONLY;
  int count = take_due_answers(x, slot->message, due);
  pthread_mutex_unlock(&server->lock);
  for (int i = 0; i < count; i++) keep_failure(server, answer(due[i]));
  if (kind == SL__PUSH_ONLY) keep_failure(server, sl__push_slot_receive(slot));
  if (kind != SL__PUSH_CLOSE) return;
  if (sl__is_endless(x)) sl__wait_endless(x->context, -1);
  pthread_mutex_lock(&server->lock);
  server->open_slots--; /* the last statement that uses the server: at 0 it may be freed */
  pthread_mutex_unlock(&server->lock);
}
