/* The worker's side of dist_async: pushes and pulls. */
#include <stdlib.h>

#include "core/net/net.h"
#include "parallel/params/parameter_server_state.h"

/* A pull whose answer has not arrived. */
struct pull {
  struct sl__exchange *x;
  struct sl__tensor *answer;
};

static void answered(void *argument) {
  struct pull *pull = argument;
  struct sl__parameter_server *server = pull->x->server;
  const float *content = starpu_data_handle_to_pointer(pull->answer->handle, STARPU_MAIN_RAM);
  /* after a failure the message has no content */
  int64_t staleness = sl__whole_in_message(content[SL__ANSWER_STALENESS], SL__MOST_STEPS);
  bool stop = content[SL__ANSWER_STOP] != 0;
  starpu_data_release(pull->answer->handle);
  free(pull);
  pthread_mutex_lock(&server->lock);
  if (staleness >= 0) {
    server->met.sum += staleness;
    server->met.count++;
  }
  if (staleness > server->met.most) server->met.most = staleness;
  server->met.stop |= stop;
  pthread_mutex_unlock(&server->lock);
}

static enum sl_status receive_answer(struct sl__exchange *x, int m) {
  struct sl__parameter_server *server = x->server;
  struct sl__launch launch = sl__message_launch(x, m);
  struct sl__peers owner = sl__peer(x->messages[m].owner);
  int n = 1;
  x->list[0] = server->answers[m];
  for (int i = 0; i < x->messages[m].count; i++)
    x->list[n++] = x->shards[x->messages[m].shards[i]].param;
  enum sl_status status = sl__receive(x->context, &launch, sl__pull_tag(x, m), &owner, n, x->list);
  if (status != SL_OK) return status;
  struct pull *pull = sl__alloc(1, sizeof *pull, "an exchange");
  if (!pull) return SL_NO_MEMORY;
  *pull = (struct pull){.x = x, .answer = server->answers[m]};
  if (!starpu_data_acquire_cb(pull->answer->handle, STARPU_R, answered, pull)) return SL_OK;
  free(pull);
  return sl__fail(SL_STARPU, "StarPU cannot call back when parameters arrive");
}

enum sl_status sl__parameter_server_push(struct sl__exchange *x, int m,
                                         const struct sl__push *push) {
  struct sl__parameter_server *server = x->server;
  const struct sl__exchange_message *message = &x->messages[m];
  struct sl__launch launch = sl__message_launch(x, m);
  struct sl__peers owner = sl__peer(message->owner);
  enum sl__push_kind kind = push->without_pull ? SL__PUSH_ONLY : SL__PUSH_PULL;
  float head[SL__HEAD_SIZE] = {[SL__HEAD_STEP] = (float)push->step,
                               [SL__HEAD_LR] = push->lr,
                               [SL__HEAD_STOP] = push->stop,
                               [SL__HEAD_KIND] = (float)kind};
  enum sl_status status;
  int n = 0;
  SL__TRY(sl__parameter_server_check(x));
  SL__TRY(sl__set_values(x->context, &launch, server->heads[m], head));
  x->list[n++] = server->heads[m];
  if (server->has_norm) x->list[n++] = push->norm;
  for (int i = 0; i < message->count; i++)
    SL__TRY(sl__exchange_pack(x, message->shards[i], &x->list[n++]));
  SL__TRY(sl__send(x->context, &launch, sl__push_tag(x, m), &owner, n, x->list));
  if (kind == SL__PUSH_PULL) status = receive_answer(x, m);
out:
  return status;
}

/* Fills a message without a gradient up to the length of a push. MPI receives a short message into
 * a long one's place; if each tensor may be a message, by StarPU-MPI or from GPUs, all must
 * come. */
static enum sl_status fill_up(struct sl__exchange *x, int m, int *n) {
  struct sl__parameter_server *server = x->server;
  const struct sl__exchange_message *message = &x->messages[m];
  struct sl__launch launch = sl__message_launch(x, m);
  enum sl_status status = SL_OK;
  struct sl__net *net = x->context->net;
  bool split = sl__net_has_starpu(net) || sl__net_is_cuda_aware(net);
  if (!split || x->tag >= SL__TAG_MPI_ONLY) return SL_OK;
  if (server->has_norm) {
    SL__TRY(sl__fill(x->context, &launch, server->no_norm, 0));
    x->list[(*n)++] = server->no_norm;
  }
  for (int i = 0; i < message->count; i++) {
    int s = message->shards[i];
    struct sl__tensor *any = sl__is_compressed(x) ? x->packed[s] : x->shards[s].param;
    if (sl__is_compressed(x)) SL__TRY(sl__fill(x->context, &launch, any, 0));
    x->list[(*n)++] = any;
  }
out:
  return status;
}

enum sl_status sl__parameter_server_send(struct sl__exchange *x, int m, enum sl__push_kind kind) {
  struct sl__parameter_server *server = x->server;
  const float head[SL__HEAD_SIZE] = {[SL__HEAD_KIND] = (float)kind};
  struct sl__launch launch = sl__message_launch(x, m);
  struct sl__peers owner = sl__peer(x->messages[m].owner);
  enum sl_status status;
  int n = 1;
  SL__TRY(sl__set_values(x->context, &launch, server->heads[m], head));
  x->list[0] = server->heads[m];
  SL__TRY(fill_up(x, m, &n));
  status = sl__send(x->context, &launch, sl__push_tag(x, m), &owner, n, x->list);
out:
  return status;
}

enum sl_status sl__parameter_server_pull(struct sl__exchange *x, int m, bool pauses) {
  enum sl_status status = sl__parameter_server_check(x);
  if (status == SL_OK)
    status = sl__parameter_server_send(x, m, pauses ? SL__PULL_PAUSE : SL__PULL_ONLY);
  return status == SL_OK ? receive_answer(x, m) : status;
}

void sl__parameter_server_staleness(struct sl__exchange *x, struct sl__staleness *staleness) {
  struct sl__parameter_server *server = x->server;
  pthread_mutex_lock(&server->lock);
  *staleness = server->met;
  server->met = (struct sl__staleness){.stop = server->met.stop};
  pthread_mutex_unlock(&server->lock);
}
