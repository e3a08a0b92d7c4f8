/* State that the files of the MPI transport share:
 *   mpi_open.c         joins the ranks, and leaves them
 *   mpi_health.c       failures: a lost rank, an MPI error, ranks that wait for each other
 *   mpi_messages.c     begins the messages of tasks
 *   mpi_progress.c     polls the messages in flight, and ends their tasks
 *   mpi_collectives.c  calls of the main thread that wait: send, receive, gather, broadcast
 *   mpi_transport.c    the choice between this transport and StarPU-MPI */
#ifndef SL_CORE_NET_MPI_STATE_H
#define SL_CORE_NET_MPI_STATE_H

#include <mpi.h>
#include <pthread.h>

#include "core/net/heartbeat.h"
#include "core/net/net.h"

struct sl__mpi_request {
  struct sl__in_flight message;
  struct starpu_task *task; /* ends with the message; NULL: the main thread waits for it */
  enum sl__timeout_policy timeout_policy;
  starpu_data_handle_t held; /* the GPU memory that it uses, or NULL */
};

struct sl__net {
  struct sl_context *context;
  int rank, size;
  double timeout;   /* seconds */
  bool is_alone;    /* one rank, without MPI */
  bool began_mpi;   /* this context did, so it ends MPI */
  bool is_open;     /* sl__net_open succeeded */
  bool is_started;  /* and so did all of sl_open */
  bool cuda_aware;  /* MPI takes pointers into a GPU's memory */
  bool no_timeout;  /* the main thread's wait may take any time */
  const char *call; /* the call of the API that waits; NULL: not known */
  MPI_Comm control, data;
  struct sl__heartbeat *heartbeat; /* NULL without a timeout */

  pthread_mutex_t lock; /* held around MPI's calls, and for all fields below */
  int device_before;    /* of sl__mpi_lock's caller: see sl__cuda_restore */
  MPI_Request *handles;
  struct sl__mpi_request *requests;
  int *completed; /* as many elements as requests: what MPI_Testsome returns */
  int count, capacity;
  bool has_poller;
  _Atomic double last_poll, last_progress; /* microseconds; also read without the lock */
  double last_deadlock_check;              /* microseconds */
  double waits_count_from; /* microseconds; a pause of this process before it does not count */
  bool failed;             /* for good; also read without the lock */
  bool found_failure;      /* this rank found it, and not the heartbeat */
  char why[512];
  int64_t bytes_sent;

  enum sl_exchange exchange;
  struct sl__starpu_mpi *starpu; /* NULL: not running */
  bool by_starpu[SL__MESSAGE_SIZES];
  char transport_text[256];
};

/* ---- core/net/mpi_health.c ---- */

/* Takes the lock; the caller calls MPI next, then sl__mpi_unlock. A GPU is current meanwhile. */
void sl__mpi_lock(struct sl__net *net);
void sl__mpi_unlock(struct sl__net *net);

/* Any thread, without the lock. */
bool sl__mpi_has_failed(struct sl__net *net);
/* SL_LOST, with the failure's message. */
enum sl_status sl__mpi_failure(struct sl__net *net);

/* With the lock. The first failure stays. */
void sl__mpi_fail(struct sl__net *net, const char *why);
void sl__mpi_fail_code(struct sl__net *net, int code, const char *what);
/* With the lock: asks the heartbeat; true after any failure. */
bool sl__mpi_check_loss(struct sl__net *net);

/* With the lock: fails if this message takes too long while neither rank works. */
void sl__mpi_check_deadlock(struct sl__net *net, const struct sl__in_flight *message,
                            enum sl__timeout_policy policy, double now);
/* The same for all messages in flight, not more often than every 50 ms. */
void sl__mpi_check_deadlocks(struct sl__net *net, double now);

/* ---- core/net/mpi_progress.c ---- */

/* Without the lock: ends the tasks whose messages have ended; true if there was one. */
bool sl__mpi_poll(struct sl__net *net);
/* Without the lock, after has_poller was set: submits the task that polls. */
void sl__mpi_submit_poller(struct sl__net *net);

#endif
