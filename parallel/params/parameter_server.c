#include "parallel/params/parameter_server.h"

#include <stdlib.h>

#include "core/net/net.h"
#include "core/runtime/wait.h"
#include "parallel/params/parameter_server_state.h"

/* ---- making and freeing ---- */

static enum sl_status make_slot(struct sl__exchange *x, int m, int worker) {
  const struct sl__exchange_message *message = &x->messages[m];
  struct sl__push_slot *slot = &x->server->slots[m][worker];
  size_t count = (size_t)message->count;
  enum sl_status status = SL_NO_MEMORY;
  *slot = (struct sl__push_slot){.x = x, .message = m, .worker = worker};
  slot->gradients = sl__alloc(count, sizeof *slot->gradients, "an exchange");
  slot->values = sl__alloc(count, sizeof *slot->values, "an exchange");
  slot->list = sl__alloc(count + 2, sizeof *slot->list, "an exchange");
  if (!slot->gradients || !slot->values || !slot->list) goto out;
  SL__TRY(sl__tensor_temporary(x->context, &SL_SHAPE(SL__HEAD_SIZE), SL_F32, &slot->head));
  SL__TRY(sl__tensor_temporary(x->context, &SL_SHAPE(1), SL_F32, &slot->norm));
  SL__TRY(sl__tensor_temporary(x->context, &SL_SHAPE(SL__ANSWER_SIZE), SL_F32, &slot->answer));
  for (int i = 0; i < message->count; i++) {
    int64_t elements = x->shards[message->shards[i]].count;
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

static void clear_slot(const struct sl__exchange *x, struct sl__push_slot *slot) {
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

/* The tensors for message m, on its owner and on a worker. */
static enum sl_status make_message(struct sl__exchange *x, int m) {
  struct sl__parameter_server *server = x->server;
  const struct sl__exchange_message *message = &x->messages[m];
  enum sl_status status = SL_OK;
  if (sl__is_worker(&x->ranks)) {
    SL__TRY(sl__tensor_temporary(x->context, &SL_SHAPE(SL__HEAD_SIZE), SL_F32, &server->heads[m]));
    SL__TRY(
        sl__tensor_temporary(x->context, &SL_SHAPE(SL__ANSWER_SIZE), SL_F32, &server->answers[m]));
  }
  if (message->owner != x->ranks.rank) return SL_OK;
  server->slots[m] = sl__alloc((size_t)x->ranks.workers, sizeof **server->slots, "an exchange");
  if (!server->slots[m]) return SL_NO_MEMORY;
  for (int w = 0; w < x->ranks.workers; w++) SL__TRY(make_slot(x, m, w));
  for (int i = 0; i < message->count; i++) {
    int s = message->shards[i];
    SL__TRY(sl__tensor_temporary(x->context, &SL_SHAPE(x->shards[s].count), SL_F32,
                                 &server->master[s]));
  }
out:
  return status;
}

/* After a failure here sl__exchange_free frees the parts that are made. */
enum sl_status sl__parameter_server_new(struct sl__exchange *x,
                                        const struct sl_optimizer *optimizer, int max_staleness,
                                        bool has_norm) {
  enum sl_status status = SL_NO_MEMORY;
  struct sl__parameter_server *server = sl__alloc(1, sizeof *server, "an exchange");
  size_t messages = (size_t)x->message_count;
  if (!server) return status;
  x->server = server;
  if (optimizer) server->optimizer = *optimizer;
  server->max_staleness = max_staleness;
  server->has_norm = has_norm;
  pthread_mutex_init(&server->lock, NULL);
  server->slots = sl__alloc(messages, sizeof *server->slots, "an exchange");
  server->heads = sl__alloc(messages, sizeof *server->heads, "an exchange");
  server->answers = sl__alloc(messages, sizeof *server->answers, "an exchange");
  server->version = sl__alloc(messages, sizeof *server->version, "an exchange");
  server->master = sl__alloc((size_t)x->shard_count, sizeof *server->master, "an exchange");
  if (!server->slots || !server->heads || !server->answers || !server->version || !server->master)
    goto out;
  status = SL_OK;
  for (int m = 0; m < x->message_count; m++) SL__TRY(make_message(x, m));
  if (has_norm) SL__TRY(sl__tensor_temporary(x->context, &SL_SHAPE(1), SL_F32, &server->no_norm));
out:
  return status;
}

void sl__parameter_server_free(struct sl__exchange *x) {
  struct sl__parameter_server *server = x->server;
  if (!server) return;
  for (int m = 0; m < x->message_count; m++) {
    for (int w = 0; server->slots && server->slots[m] && w < x->ranks.workers; w++)
      clear_slot(x, &server->slots[m][w]);
    if (server->slots) free(server->slots[m]);
    if (server->heads) sl__tensor_free(server->heads[m]);
    if (server->answers) sl__tensor_free(server->answers[m]);
  }
  for (int s = 0; server->master && s < x->shard_count; s++) sl__tensor_free(server->master[s]);
  sl__tensor_free(server->no_norm);
  pthread_mutex_destroy(&server->lock);
  free(server->slots);
  free(server->heads);
  free(server->answers);
  free(server->version);
  free(server->master);
  free(server);
  x->server = NULL;
}

void sl__parameter_server_set_optimizer(struct sl__exchange *x,
                                        const struct sl_optimizer *optimizer) {
  pthread_mutex_lock(&x->server->lock);
  x->server->optimizer = *optimizer;
  pthread_mutex_unlock(&x->server->lock);
}

/* ---- for both sides ---- */

enum sl_status sl__parameter_server_check(struct sl__exchange *x) {
  struct sl__parameter_server *server = x->server;
  enum sl_status status = sl__net_check(x->context->net);
  if (status != SL_OK) return status;
  pthread_mutex_lock(&server->lock);
  if (server->status != SL_OK) status = sl__fail(server->status, "%s", server->failure);
  pthread_mutex_unlock(&server->lock);
  return status;
}

int sl__message_tensors(const struct sl__exchange *x, int m, struct sl__tensor *const *tensors,
                        struct sl__tensor **list, int n) {
  const struct sl__exchange_message *message = &x->messages[m];
  for (int i = 0; i < message->count; i++) list[n++] = tensors[message->shards[i]];
  return n;
}

/* ---- opening and closing ---- */

/* Between a rank's parameters and its masters. */
static enum sl_status copy(struct sl__exchange *x, int s, struct sl__tensor *to,
                           struct sl__tensor *from) {
  return sl__reduce(x->context, &x->shards[s].launch, to, 1, &from);
}

/* Each worker made `step` updates of message m, perhaps in an earlier run. */
static void open_slots(struct sl__exchange *x, int m, int64_t step) {
  struct sl__parameter_server *server = x->server;
  if (server->version[m] < step * x->ranks.workers) server->version[m] = step * x->ranks.workers;
  for (int w = 0; server->slots[m] && w < x->ranks.workers; w++) {
    struct sl__push_slot *slot = &server->slots[m][w];
    pthread_mutex_lock(&server->lock);
    slot->clock = step;
    slot->pulled = server->version[m];
    slot->awaits_answer = false;
    slot->is_open = true;
    server->open_slots++;
    pthread_mutex_unlock(&server->lock);
    if (sl__is_endless(x)) sl__wait_endless(x->context, 1);
  }
}

enum sl_status sl__parameter_server_open(struct sl__exchange *x, int64_t step) {
  struct sl__parameter_server *server = x->server;
  enum sl_status status = SL_OK;
  if (server->is_open) return sl__parameter_server_check(x);
  server->is_open = true;
  for (int s = 0; s < x->shard_count; s++)
    if (server->master[s]) SL__TRY(copy(x, s, server->master[s], x->shards[s].param));
  for (int m = 0; m < x->message_count; m++) open_slots(x, m, step);
  for (int m = 0; m < x->message_count; m++)
    for (int w = 0; server->slots[m] && w < x->ranks.workers; w++)
      SL__TRY(sl__push_slot_receive(&server->slots[m][w]));
out:
  return status;
}

enum sl_status sl__parameter_server_begin_close(struct sl__exchange *x) {
  struct sl__parameter_server *server = x->server;
  enum sl_status status = SL_OK;
  if (!server->is_open) return SL_OK;
  server->is_open = false;
  for (int m = 0; m < x->message_count && sl__is_worker(&x->ranks) && status == SL_OK; m++)
    status = sl__parameter_server_send(x, m, SL__PUSH_CLOSE);
  return status;
}

enum sl_status sl__parameter_server_end_close(struct sl__exchange *x) {
  const double between_checks_s = 0.01;
  struct sl__parameter_server *server = x->server;
  enum sl_status status = sl__parameter_server_check(x);
  while (status == SL_OK &&
         !sl__wait_for_none(&server->lock, &server->open_slots, between_checks_s))
    status = sl__parameter_server_check(x);
  return status;
}

void sl__parameter_server_end_callbacks(struct sl__exchange *x) {
  const double most_s = 5;
  if (x->server) sl__wait_for_none(&x->server->lock, &x->server->open_slots, most_s);
}

/* ---- all ranks get the owners' parameters ---- */

static enum sl_status send_masters(struct sl__exchange *x, int m) {
  const struct sl__exchange_message *message = &x->messages[m];
  struct sl__launch launch = sl__message_launch(x, m);
  struct sl__peers owner = sl__peer(message->owner);
  struct sl__peers workers = {0, x->ranks.workers, x->ranks.rank};
  enum sl_status status = SL_OK;
  int n = 0;
  if (message->owner == x->ranks.rank) {
    for (int i = 0; i < message->count; i++) {
      int s = message->shards[i];
      SL__TRY(copy(x, s, x->shards[s].param, x->server->master[s]));
    }
    n = sl__message_tensors(x, m, x->server->master, x->list, 0);
    return sl__send(x->context, &launch, sl__pull_tag(x, m), &workers, n, x->list);
  }
  if (!sl__is_worker(&x->ranks)) return SL_OK;
  for (int i = 0; i < message->count; i++) x->list[n++] = x->shards[message->shards[i]].param;
  status = sl__receive(x->context, &launch, sl__pull_tag(x, m), &owner, n, x->list);
out:
  return status;
}

/* One rank's wish to stop becomes that of all. A worker's comes with its pushes, too. */
static enum sl_status exchange_stop(struct sl__exchange *x, bool wish) {
  bool stop = x->server->met.stop || wish;
  enum sl_status status = sl__net_any(x->context->net, &stop);
  if (status == SL_OK) x->server->met.stop = stop;
  return status;
}

enum sl_status sl__parameter_server_synchronize(struct sl__exchange *x, bool stop) {
  enum sl_status status;
  if (!x->server->is_open) return SL_OK;
  SL__TRY(sl__parameter_server_begin_close(x));
  SL__TRY(sl__parameter_server_end_close(x));
  /* the last answers are sent before the masters */
  SL__TRY(sl__wait_for_all(x->context));
  for (int m = 0; m < x->message_count; m++) SL__TRY(send_masters(x, m));
  SL__TRY(sl__wait_for_all(x->context));
  SL__TRY(exchange_stop(x, stop));
  status = sl__parameter_server_check(x);
out:
  return status;
}
