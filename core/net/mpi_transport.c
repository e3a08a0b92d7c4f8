/* The choice of transport: messages of each size go by MPI or by StarPU-MPI. */
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/net/mpi_state.h"
#include "core/runtime/log.h"

bool sl__net_has_starpu(const struct sl__net *net) { return net->starpu != NULL; }

bool sl__net_transport_is_undecided(const struct sl__net *net) {
  return net->starpu && net->exchange == SL_EXCHANGE_AUTO;
}

const char *sl__net_transport_text(const struct sl__net *net) { return net->transport_text; }

void sl__net_try_transport(struct sl__net *net, const bool by_starpu[SL__MESSAGE_SIZES]) {
  memcpy(net->by_starpu, by_starpu, sizeof net->by_starpu);
}

void sl__net_choose_transport(struct sl__net *net, const bool by_starpu[SL__MESSAGE_SIZES],
                              const char *why) {
  sl__net_try_transport(net, by_starpu);
  net->exchange = SL_EXCHANGE_LANE;
  for (int i = 0; i < SL__MESSAGE_SIZES; i++)
    if (by_starpu[i]) net->exchange = SL_EXCHANGE_STARPU;
  net->bytes_sent = 0; /* trials do not count */
  snprintf(net->transport_text, sizeof net->transport_text, "%s", why);
  if (net->exchange == SL_EXCHANGE_STARPU) return;
  sl__starpu_mpi_close(net->starpu);
  net->starpu = NULL;
}

static enum sl_status check_threads(void) {
  int level;
  MPI_Query_thread(&level);
  if (level >= MPI_THREAD_MULTIPLE) return SL_OK;
  return sl__fail(
      SL_UNSUPPORTED,
      "exchange starpu: MPI runs without MPI_THREAD_MULTIPLE, which StarPU-MPI's thread needs; "
      "ask MPI_Init_thread for it, or use the exchange lane");
}

static enum sl_status start_starpu_mpi(struct sl__net *net) {
  enum sl_status status = check_threads();
  if (status == SL_OK && !sl__starpu_mpi_is_there())
    status = sl__fail(SL_UNSUPPORTED, "this build has no StarPU-MPI");
  status = sl__net_sync_status(net, status, sl_error());
  if (status != SL_OK) return status;
  status = sl__starpu_mpi_open(net->size, sl__net_task_ended, net, &net->starpu);
  return sl__net_sync_status(net, status, sl_error());
}

enum sl_status sl__net_open_starpu(struct sl__net *net) {
  const bool all[SL__MESSAGE_SIZES] = {true, true};
  char line[64];
  if (net->size == 1) return SL_OK;
  snprintf(line, sizeof line, "exchange %s\n", sl_exchange_name(net->exchange));
  enum sl_status status = sl__net_agree(net, line);
  if (status != SL_OK || net->exchange == SL_EXCHANGE_LANE) return status;
  status = start_starpu_mpi(net);
  if (status == SL_OK && net->exchange == SL_EXCHANGE_STARPU)
    sl__net_choose_transport(net, all, "StarPU-MPI, as the exchange option says");
  if (status != SL_UNSUPPORTED || net->exchange != SL_EXCHANGE_AUTO) return status;
  net->exchange = SL_EXCHANGE_LANE;
  snprintf(net->transport_text, sizeof net->transport_text, "lane, since %s", sl_error());
  sl__log(net->context, SL_LOG_INFO, "messages between ranks: %s", net->transport_text);
  return SL_OK;
}

bool sl__net_by_starpu(const struct sl__net *net, size_t bytes) {
  return net->starpu &&
         net->by_starpu[bytes > SL__SMALL_MESSAGE_BYTES ? SL__LARGE_MESSAGE : SL__SMALL_MESSAGE];
}

enum sl_status sl__net_post(struct sl__net *net, const struct sl__post *post, size_t bytes) {
  pthread_mutex_lock(&net->lock);
  bool failed = sl__mpi_check_loss(net);
  if (!failed && post->is_send) net->bytes_sent += (int64_t)bytes;
  pthread_mutex_unlock(&net->lock);
  return failed ? sl__mpi_failure(net) : sl__starpu_mpi_post(net->starpu, post, sl__microseconds());
}

int sl__net_posts(struct sl__net *net) {
  return net->starpu ? sl__starpu_mpi_count(net->starpu) : 0;
}
