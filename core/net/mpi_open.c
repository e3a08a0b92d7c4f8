/* Joins the ranks that a launcher started, and leaves them. */
#include <mpi.h>
#ifdef HAVE_MPI_EXT_H
#include <mpi-ext.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "core/base/error.h"
#include "core/net/mpi_state.h"
#include "core/runtime/cuda.h"
#include "core/runtime/log.h"

int sl__net_rank(const struct sl__net *net) { return net->rank; }
int sl__net_size(const struct sl__net *net) { return net->size; }
bool sl__net_is_cuda_aware(const struct sl__net *net) { return net->cuda_aware; }
void sl__net_started(struct sl__net *net) { net->is_started = true; }

/* ---- joining ---- */

/* Open MPI sends messages between processes of one machine through files in /dev/shm. If that is
 * full, a signal ends the processes. */
static enum sl_status check_shared_memory(void) {
  const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), *btl = getenv("OMPI_MCA_btl");
  const double each = 5e6;
  struct statvfs info;
  long ranks = local ? strtol(local, NULL, 10) : 1;
  if (ranks < 2 || (btl && !strstr(btl, "vader") && !strstr(btl, "sm"))) return SL_OK;
  if (statvfs("/dev/shm", &info)) return SL_OK;
  double all = (double)info.f_blocks * (double)info.f_frsize;
  double left = (double)info.f_bavail * (double)info.f_frsize;
  if (all >= each * (double)ranks && left >= each) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "/dev/shm has %.1f MB, %.1f MB of them free: %ld ranks on a machine need about "
                  "%.0f MB there; free some, or do without it by mpirun --mca btl tcp,self",
                  1e-6 * all, 1e-6 * left, ranks, 1e-6 * each * (double)ranks);
}

static bool is_cuda_aware(void) {
#if HAVE_DECL_MPIX_QUERY_CUDA_SUPPORT
  if (MPIX_Query_cuda_support() == 1) return true;
#endif
  return sl__cuda_is_host();
}

/* MPI begins and ends once in a process. A start that fails leaves it begun, for a context with
 * better options; if none comes, it ends with the process. */
static bool left_begun;

static void end_left(void) {
  int ended;
  MPI_Finalized(&ended);
  if (left_begun && !ended) MPI_Finalize();
}

static void leave_begun(struct sl__net *net) {
  static bool is_registered;
  if (!is_registered && atexit(end_left) != 0) return; /* the process ends without MPI_Finalize */
  is_registered = left_begun = true;
  net->began_mpi = false;
}

/* Without this, the other ranks would wait in MPI_Init for one that had failed before it. */
static enum sl_status share_start(struct sl__net *net, enum sl_status failed, const char *why) {
  enum sl_status status = sl__net_sync_status(net, failed, why);
  if (status == SL_OK || status == SL_LOST) return status;
  MPI_Comm_free(&net->control);
  MPI_Comm_free(&net->data);
  if (net->began_mpi) leave_begun(net);
  return status;
}

static enum sl_status check_not_ended(void) {
  int ended;
  MPI_Finalized(&ended);
  if (!ended) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "MPI has ended in this process: open only one distributed context, or call "
                  "MPI_Init_thread before the first and MPI_Finalize after the last");
}

static enum sl_status init_mpi(struct sl__net *net) {
  int begun, level;
  enum sl_status status = check_not_ended();
  if (status != SL_OK) return status;
  MPI_Initialized(&begun);
  if (begun) {
    net->began_mpi = left_begun;
    left_begun = false;
    return SL_OK;
  }
  status = check_shared_memory();
  if (status != SL_OK) return status;
  /* a higher level costs MPI more locks: only StarPU-MPI needs it */
  int wanted = net->exchange == SL_EXCHANGE_LANE ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE;
  if (MPI_Init_thread(NULL, NULL, wanted, &level) != MPI_SUCCESS)
    return sl__fail(SL_LOST, "MPI does not start");
  net->began_mpi = true;
  return SL_OK;
}

static enum sl_status begin_mpi(struct sl__net *net, const struct sl__net_options *options) {
  int level;
  enum sl_status status = init_mpi(net);
  if (status != SL_OK && options->failed != SL_OK)
    return sl__fail(options->failed, "%s", options->why);
  if (status != SL_OK) return status;
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_SERIALIZED)
    return sl__fail(SL_UNSUPPORTED,
                    "MPI was begun without threads: ask MPI_Init_thread for MPI_THREAD_SERIALIZED");
  MPI_Comm_dup(MPI_COMM_WORLD, &net->control);
  MPI_Comm_dup(MPI_COMM_WORLD, &net->data);
  MPI_Comm_set_errhandler(net->control, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(net->data, MPI_ERRORS_RETURN);
  MPI_Comm_rank(net->control, &net->rank);
  MPI_Comm_size(net->control, &net->size);
  status = share_start(net, options->failed, options->why);
  if (status != SL_OK) return status;
  int aware = is_cuda_aware();
  MPI_Allreduce(MPI_IN_PLACE, &aware, 1, MPI_INT, MPI_MIN, net->control);
  net->cuda_aware = aware;
  return SL_OK;
}

static enum sl_status begin_heartbeat(struct sl__net *net, const struct sl__net_options *options) {
  char address[SL__HEARTBEAT_ADDRESS] = "";
  const struct sl__heartbeat_options heartbeat = {options->timeout, options->interface,
                                                  options->ports};
  enum sl_status status =
      sl__heartbeat_new(net->rank, net->size, &heartbeat, &net->heartbeat, address, sizeof address);
  MPI_Bcast(address, sizeof address, MPI_BYTE, 0, net->control);
  if (status == SL_OK && !*address)
    status = sl__fail(SL_LOST, "rank 0 cannot open the heartbeat's port");
  if (status == SL_OK) status = sl__heartbeat_start(net->heartbeat, address);
  /* a rank that did not join here does not answer MPI either */
  if (status != SL_OK) sl__mpi_fail(net, sl_error());
  return status;
}

static enum sl_status check_build(enum sl_exchange exchange) {
  if (exchange != SL_EXCHANGE_STARPU || sl__starpu_mpi_is_there()) return SL_OK;
  return sl__fail(SL_UNSUPPORTED,
                  "exchange starpu: this build has no StarPU-MPI; use the exchange lane, or build "
                  "StarPU with MPI (tools/get-starpu does) and configure again");
}

/* ---- opening and closing ---- */

/* A rank that is alone has no heartbeat, but options that are wrong are refused all the same. */
static enum sl_status check_listener(const struct sl__net_options *options) {
  return sl__heartbeat_check(
      &(struct sl__heartbeat_options){options->timeout, options->interface, options->ports});
}

/* The first failure of this rank is the one that is told, whatever else fails then. */
static enum sl_status join(struct sl__net *net, const struct sl__net_options *options) {
  struct sl__net_options own = *options;
  char why[512];
  if (own.failed == SL_OK) own.failed = check_build(own.exchange);
  if (own.failed == SL_OK && net->is_alone) own.failed = check_listener(&own);
  snprintf(why, sizeof why, "%s", own.failed == options->failed ? own.why : sl_error());
  own.why = why;
  if (net->is_alone) return own.failed == SL_OK ? SL_OK : sl__fail(own.failed, "%s", why);
  enum sl_status status = begin_mpi(net, &own);
  if (status == SL_OK && net->size == 1) return check_listener(&own);
  bool beats = status == SL_OK && net->timeout > 0 && net->size > 1;
  return beats ? begin_heartbeat(net, &own) : status;
}

enum sl_status sl__net_open(struct sl_context *context, const struct sl__net_options *options,
                            struct sl__net **out) {
  struct sl__net *net = sl__alloc(1, sizeof *net, "the ranks");
  *out = NULL;
  if (!net) return SL_NO_MEMORY;
  net->context = context;
  net->control = net->data = MPI_COMM_NULL;
  net->size = 1;
  net->timeout = options->timeout;
  net->exchange = options->exchange;
  snprintf(net->transport_text, sizeof net->transport_text, "lane");
  pthread_mutex_init(&net->lock, NULL);
  int begun = 0, rank;
  MPI_Initialized(&begun);
  net->is_alone = !begun && !sl__launched(&rank);
  enum sl_status status = join(net, options);
  net->is_open = status == SL_OK;
  if (net->is_open)
    *out = net;
  else
    sl__net_close(net);
  return status;
}

/* False if messages are still in flight, which happens only after a loss. */
static bool end_starpu(struct sl__net *net) {
  if (sl__net_posts(net) || (net->context && net->context->abandoned)) return false;
  sl__starpu_mpi_close(net->starpu);
  net->starpu = NULL;
  return true;
}

bool sl__net_close(struct sl__net *net) {
  if (!net) return true;
  /* no rank leaves while others may wait for it */
  bool failed = net->is_open && sl__net_check(net) != SL_OK;
  bool whole = net->is_open && !failed && sl__net_final_barrier(net) == SL_OK;
  if (net->is_open && !failed && !whole) sl__log(net->context, SL_LOG_WARNING, "%s", sl_error());
  if (net->heartbeat) sl__heartbeat_leave(net->heartbeat);
  if (!end_starpu(net)) return false;
  /* after the loss of a rank these calls would wait for it without end */
  if (whole && net->control != MPI_COMM_NULL) MPI_Comm_free(&net->control);
  if (whole && net->data != MPI_COMM_NULL) MPI_Comm_free(&net->data);
  if (net->began_mpi && whole && !net->is_started) leave_begun(net);
  if (net->began_mpi && whole) MPI_Finalize();
  sl__heartbeat_free(net->heartbeat);
  pthread_mutex_destroy(&net->lock);
  free(net->handles);
  free(net->requests);
  free(net->completed);
  free(net);
  return true;
}
