/* The ranks of a distributed run: facts that all ranks exchange, and messages between tensors that
 * StarPU tasks begin. Two transports carry these messages: Starling's own, by MPI
 * (--exchange lane), and StarPU-MPI (--exchange starpu).
 *
 * After the ranks have met, no call to MPI blocks, and one thread at a time calls it. A task that
 * begins a message does not wait for it: whichever task ends next polls all messages in flight. A
 * worker without other work runs a task that only polls. So no extra thread takes time from the
 * workers, and no rank hangs when another one is lost: from then on all messages end at once, and
 * sl__net_check says why.
 */
#ifndef SL_CORE_NET_NET_H
#define SL_CORE_NET_NET_H

#include "core/net/starpu_mpi.h"
#include "core/runtime/context.h"

struct sl__net;

/* Number of ranks that the launcher started, from the environment, and this process's rank.
 * Returns 0 without a launcher. */
int sl__launched(int *rank);

/* Join the processes that the launcher (mpirun, srun) started with this one; without a launcher
 * there is one rank.
 * SL_UNSUPPORTED: several ranks, but the build has no MPI, or lacks what `exchange` needs.
 * context is not looked at where `failed` is an error. */
struct sl__net_options {
  double timeout; /* seconds that a rank may be silent; 0: no limit */
  enum sl_exchange exchange;
  const char *interface, *ports; /* of the heartbeat; NULL: any */
  /* If this rank has failed already, it joins only to tell the others; all ranks fail then. */
  enum sl_status failed;
  const char *why;
};
enum sl_status sl__net_open(struct sl_context *context, const struct sl__net_options *options,
                            struct sl__net **net);
/* Registers context->net for the ends of tasks and for waits (core/runtime/hooks.h). */
enum sl_status sl__net_register(struct sl_context *context);
/* All of sl_open has succeeded. A context that is closed without leaves MPI begun for another one.
 */
void sl__net_started(struct sl__net *net);
/* Ends MPI if sl__net_open began it. NULL is legal. Returns false if messages can no longer end:
 * they are given up, and StarPU-MPI's thread keeps using their memory. */
bool sl__net_close(struct sl__net *net);

int sl__net_rank(const struct sl__net *net);
int sl__net_size(const struct sl__net *net);

/* Does MPI accept pointers into a GPU's memory, on all ranks? */
bool sl__net_is_cuda_aware(const struct sl__net *net);

/* SL_LOST if a rank is lost; the message says which one, and since when. */
enum sl_status sl__net_check(struct sl__net *net);
/* This rank is about to fail: send the reason to the other ranks. */
void sl__net_announce(struct sl__net *net, const char *why);

/* The messages that ranks wait for will never come: all messages end at once, and sl__net_check
 * fails with this reason. */
void sl__net_abandon(struct sl__net *net, const char *why);

/* Call this during long work in which no task ends, such as writing a file, so that the other ranks
 * see this rank working. NULL is legal. */
void sl__net_report_activity(struct sl__net *net);

/* ---- facts: the main thread of all ranks calls these in the same order ---- */

/* The public function that makes the calls below, for the message about a rank that waits in vain;
 * NULL: none is known. It must outlive them. */
void sl__net_name_call(struct sl__net *net, const char *function);

/* Fills all [ranks][bytes] on rank 0; elsewhere `all` may be NULL. */
enum sl_status sl__net_gather(struct sl__net *net, const void *mine, size_t bytes, void *all);
/* From rank 0 to all. */
enum sl_status sl__net_broadcast(struct sl__net *net, void *data, size_t bytes);
/* The same for a rank that only serves others: rank 0 may take any time to call it. */
enum sl_status sl__net_broadcast_no_timeout(struct sl__net *net, void *data, size_t bytes);
/* Is the flag set on any rank? */
enum sl_status sl__net_any(struct sl__net *net, bool *flag);
enum sl_status sl__net_barrier(struct sl__net *net);
/* The barrier of a rank that closes its context: SL_LOST if other ranks do not close theirs. */
enum sl_status sl__net_final_barrier(struct sl__net *net);
/* From one rank to another. */
enum sl_status sl__net_send(struct sl__net *net, int to, const void *data, size_t bytes);
enum sl_status sl__net_receive(struct sl__net *net, int from, void *data, size_t bytes);
/* Compares lines "NAME VALUE\n" of all ranks. If they differ, all ranks return SL_BAD_ARGUMENT with
 * the first line that differs and the first rank that differs from rank 0. */
enum sl_status sl__net_agree(struct sl__net *net, const char *lines);
/* The same for properties of the build. */
enum sl_status sl__net_agree_build(struct sl__net *net);
/* If the status of any rank is a failure, all ranks return it, with its message. */
enum sl_status sl__net_sync_status(struct sl__net *net, enum sl_status status, const char *why);

/* ---- messages of tasks, by MPI ---- */

/* How long a message may take while neither its sender nor its receiver works:
 * SL__TIMEOUT: the context's timeout;
 * SL__TIMEOUT_LONGER: longer, because the peer waits for another rank itself, and its own message,
 * which knows more, should come first;
 * SL__NO_TIMEOUT: any time; the peer need not send anything. */
enum sl__timeout_policy { SL__TIMEOUT, SL__TIMEOUT_LONGER, SL__NO_TIMEOUT };

/* Messages with tags from here on always go by Starling's own transport: a sender may send fewer
 * bytes than the receiver expects, which StarPU-MPI does not allow. */
enum { SL__TAG_MPI_ONLY = 16384 };

/* One message from or to one rank; its memory may be in several pieces. Messages between two ranks
 * with the same tag arrive in the order in which they were begun. apart: each piece is one MPI
 * message, on both ranks. */
struct sl__message {
  bool is_send, apart;
  int peer, tag;
  enum sl__timeout_policy
      timeout_policy; /* after one of a task's messages arrived, all of them have SL__TIMEOUT */
  const char *name;   /* for "rank 2 has not sent NAME"; must outlive the message */
  int count;
  void *const *memory;
  const size_t *bytes;
  /* [count] if the memory is a GPU's: StarPU must keep it until the message ends; else NULL */
  const starpu_data_handle_t *handles;
};

/* A running task calls this to begin all its messages; the task ends when they have ended. */
void sl__net_begin(struct sl__net *net, int count, const struct sl__message *messages);

/* Called after each task: polls the messages in flight, if there are any. */
void sl__net_task_ended(void *net);

/* ---- messages by StarPU-MPI: all ranks must choose alike, or they wait for each other ---- */

enum { SL__SMALL_MESSAGE, SL__LARGE_MESSAGE, SL__MESSAGE_SIZES };
/* Bytes of the largest small message: the geometric mean of the two sizes that are measured. */
#define SL__SMALL_MESSAGE_BYTES 65536

/* All ranks together, after sl__net_open: starts StarPU-MPI if the exchange needs it. */
enum sl_status sl__net_open_starpu(struct sl__net *net);
/* Is StarPU-MPI running? If so, some waits never end after a rank is lost: see
 * core/runtime/wait.h. */
bool sl__net_has_starpu(const struct sl__net *net);
/* True for SL_EXCHANGE_AUTO until sl__net_choose_transport. */
bool sl__net_transport_is_undecided(const struct sl__net *net);
/* Which sizes of messages go by StarPU-MPI from now on; no message may be in flight. */
void sl__net_try_transport(struct sl__net *net, const bool by_starpu[SL__MESSAGE_SIZES]);
/* The same for good; StarPU-MPI's thread ends if no size uses it. why: copied, for the log and
 * summaries. */
void sl__net_choose_transport(struct sl__net *net, const bool by_starpu[SL__MESSAGE_SIZES],
                              const char *why);
const char *sl__net_transport_text(const struct sl__net *net);

/* Does a message of this size go by StarPU-MPI? */
bool sl__net_by_starpu(const struct sl__net *net, size_t bytes);
/* Hand tensors to StarPU-MPI. SL_LOST after a rank is lost. */
enum sl_status sl__net_post(struct sl__net *net, const struct sl__post *post, size_t bytes);
/* Number of posted tensors that are in flight. */
int sl__net_posts(struct sl__net *net);

/* Bytes of tensors sent so far, without MPI's own. */
int64_t sl__net_bytes_sent(const struct sl__net *net);

#endif
