/* A build without MPI: the only rank is this process. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/net/net.h"

struct sl__net {
  int rank;
};

enum sl_status sl__net_open(struct sl_context *context, const struct sl__net_options *options,
                            struct sl__net **net) {
  int rank, size = sl__launched(&rank);
  (void)context;
  *net = NULL;
  if (options->failed != SL_OK) return sl__fail(options->failed, "%s", options->why);
  if (size > 1)
    return sl__fail(
        SL_UNSUPPORTED,
        "this build has no MPI, but was started as one of %d ranks: install libopenmpi-dev "
        "and configure again, or start the program without mpirun",
        size);
  if (options->exchange == SL_EXCHANGE_STARPU)
    return sl__fail(SL_UNSUPPORTED, "exchange starpu: this build has no MPI; use lane");
  *net = sl__alloc(1, sizeof **net, "the ranks");
  return *net ? SL_OK : SL_NO_MEMORY;
}

bool sl__net_close(struct sl__net *net) {
  free(net);
  return true;
}
void sl__net_started(struct sl__net *net) { (void)net; }
int sl__net_rank(const struct sl__net *net) { return net->rank; }
int sl__net_size(const struct sl__net *net) {
  (void)net;
  return 1;
}

bool sl__net_is_cuda_aware(const struct sl__net *net) {
  (void)net;
  return false;
}

enum sl_status sl__net_check(struct sl__net *net) {
  (void)net;
  return SL_OK;
}

void sl__net_announce(struct sl__net *net, const char *why) {
  (void)net;
  (void)why;
}

void sl__net_abandon(struct sl__net *net, const char *why) {
  (void)net;
  (void)why;
}

void sl__net_name_call(struct sl__net *net, const char *function) {
  (void)net;
  (void)function;
}

enum sl_status sl__net_gather(struct sl__net *net, const void *mine, size_t bytes, void *all) {
  (void)net;
  memcpy(all, mine, bytes);
  return SL_OK;
}

enum sl_status sl__net_broadcast(struct sl__net *net, void *data, size_t bytes) {
  (void)net;
  (void)data;
  (void)bytes;
  return SL_OK;
}

enum sl_status sl__net_broadcast_no_timeout(struct sl__net *net, void *data, size_t bytes) {
  return sl__net_broadcast(net, data, bytes);
}

enum sl_status sl__net_send(struct sl__net *net, int to, const void *data, size_t bytes) {
  (void)net;
  (void)data;
  return sl__fail(SL_BAD_ARGUMENT, "%zu bytes to rank %d: there is one rank", bytes, to);
}

enum sl_status sl__net_receive(struct sl__net *net, int from, void *data, size_t bytes) {
  (void)net;
  (void)data;
  return sl__fail(SL_BAD_ARGUMENT, "%zu bytes from rank %d: there is one rank", bytes, from);
}

void sl__net_begin(struct sl__net *net, int count, const struct sl__message *messages) {
  (void)net;
  (void)count;
  (void)messages;
}

void sl__net_report_activity(struct sl__net *net) { (void)net; }

void sl__net_task_ended(void *net) { (void)net; }

enum sl_status sl__net_open_starpu(struct sl__net *net) {
  (void)net;
  return SL_OK;
}

bool sl__net_has_starpu(const struct sl__net *net) {
  (void)net;
  return false;
}

bool sl__net_transport_is_undecided(const struct sl__net *net) {
  (void)net;
  return false;
}

void sl__net_try_transport(struct sl__net *net, const bool by_starpu[SL__MESSAGE_SIZES]) {
  (void)net;
  (void)by_starpu;
}

void sl__net_choose_transport(struct sl__net *net, const bool by_starpu[SL__MESSAGE_SIZES],
                              const char *why) {
  (void)net;
  (void)by_starpu;
  (void)why;
}

const char *sl__net_transport_text(const struct sl__net *net) {
  (void)net;
  return "none, with one rank";
}

bool sl__net_by_starpu(const struct sl__net *net, size_t bytes) {
  (void)net;
  (void)bytes;
  return false;
}

enum sl_status sl__net_post(struct sl__net *net, const struct sl__post *post, size_t bytes) {
  (void)net;
  return sl__fail(SL_BAD_ARGUMENT, "%s, %zu bytes: there is one rank", post->name, bytes);
}

int sl__net_posts(struct sl__net *net) {
  (void)net;
  return 0;
}

int64_t sl__net_bytes_sent(const struct sl__net *net) {
  (void)net;
  return 0;
}
