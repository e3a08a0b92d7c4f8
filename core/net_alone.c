/* The ranks of a build without MPI: this one. */
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/net.h"

struct sl__net {
  int rank;
};

enum sl_status sl__net_open(struct sl_context *context, double timeout, struct sl__net **net) {
  int rank, size = sl__launched(&rank);
  (void)context;
  (void)timeout;
  *net = NULL;
  if (size > 1)
    return sl_fail(
        SL_UNSUPPORTED,
        "this build has no MPI, but was started as one of %d ranks: install libopenmpi-dev "
        "and configure again, or start it without mpirun",
        size);
  *net = sl__alloc(1, sizeof **net, "the ranks");
  return *net ? SL_OK : SL_NO_MEMORY;
}

void sl__net_close(struct sl__net *net) { free(net); }
int sl__net_rank(const struct sl__net *net) { return net->rank; }
int sl__net_size(const struct sl__net *net) {
  (void)net;
  return 1;
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

enum sl_status sl__net_hear(struct sl__net *net, void *data, size_t bytes) {
  return sl__net_broadcast(net, data, bytes);
}

enum sl_status sl__net_send(struct sl__net *net, int to, const void *data, size_t bytes) {
  (void)net;
  (void)data;
  return sl_fail(SL_BAD_ARGUMENT, "%zu bytes to rank %d: there is one rank", bytes, to);
}

enum sl_status sl__net_receive(struct sl__net *net, int from, void *data, size_t bytes) {
  (void)net;
  (void)data;
  return sl_fail(SL_BAD_ARGUMENT, "%zu bytes from rank %d: there is one rank", bytes, from);
}

void sl__net_begin(struct sl__net *net, const struct sl__message *message) {
  (void)net;
  (void)message;
}

void sl__net_task_ended(void *net) { (void)net; }

int64_t sl__net_bytes_sent(const struct sl__net *net) {
  (void)net;
  return 0;
}
