/* The other processes of a distributed run: small facts that all must know, and messages between
 * tensors that StarPU tasks wait for (the communication lane).
 *
 * Once the ranks have met, MPI is never called to wait, and by one thread at a time. A message that
 * a task has begun is looked after by whoever ends a task next; a worker with nothing else to do
 * runs a task that does only that. So no thread takes time slices from the workers, and a rank that
 * is lost leaves nobody hanging: from then on all messages end at once and sl__net_check tells why.
 */
#ifndef SL_CORE_NET_NET_H
#define SL_CORE_NET_NET_H

#include "core/runtime/context.h"
#include "core/net/starpu_mpi.h"

struct sl__net;

/* Ranks that a launcher started, as its environment says, and which this one is; 0: no launcher. */
int sl__launched(int *rank);

/* Join the processes that the launcher (mpirun, srun) started with this one; without a launcher
 * there is one rank. timeout: seconds that a rank may be silent; 0: for ever.
 * SL_UNSUPPORTED: several ranks, but a build without MPI, or one that lacks what exchange needs. */
enum sl_status sl__net_open(struct sl_context *context, double timeout, enum sl_exchange exchange,
                            struct sl__net **net);
/* Ends MPI if it was begun by sl__net_open. NULL is legal. false: messages that never end have been
 * given up, and StarPU-MPI's thread still looks after them. */
bool sl__net_close(struct sl__net *net);

int sl__net_rank(const struct sl__net *net);
int sl__net_size(const struct sl__net *net);

/* May MPI be given pointers into a GPU's memory, on all ranks? */
bool sl__net_is_aware(const struct sl__net *net);

/* SL_LOST where a rank is gone: which one and since when. */
enum sl_status sl__net_check(struct sl__net *net);
/* This rank ends before its time: tell the others. */
void sl__net_announce(struct sl__net *net, const char *why);

/* What the ranks wait for will never come: all messages end at once, and sl__net_check says why. */
void sl__net_abandon(struct sl__net *net, const char *why);

/* ---- small facts: called by the main thread of all ranks in the same order ---- */

/* all [ranks][bytes] is filled on rank 0; elsewhere it may be NULL. */
enum sl_status sl__net_gather(struct sl__net *net, const void *mine, size_t bytes, void *all);
/* From rank 0 to all. */
enum sl_status sl__net_broadcast(struct sl__net *net, void *data, size_t bytes);
/* The same on a rank that has nothing else to do: it may take for ever. */
enum sl_status sl__net_hear(struct sl__net *net, void *data, size_t bytes);
enum sl_status sl__net_barrier(struct sl__net *net);
/* A barrier before the end: SL_LOST where others go on. */
enum sl_status sl__net_part(struct sl__net *net);
/* From one rank to another. */
enum sl_status sl__net_send(struct sl__net *net, int to, const void *data, size_t bytes);
enum sl_status sl__net_receive(struct sl__net *net, int from, void *data, size_t bytes);
/* Lines "NAME VALUE\n" that must be the same on all ranks; SL_BAD_ARGUMENT on all, with the first
 * line that differs and the first rank that differs from rank 0. */
enum sl_status sl__net_agree(struct sl__net *net, const char *lines);
/* The same for what the build decides. */
enum sl_status sl__net_agree_build(struct sl__net *net);
/* The failure that any rank has becomes that of all, with its message. */
enum sl_status sl__net_sync_status(struct sl__net *net, enum sl_status status, const char *why);

/* ---- the lane ---- */

/* How long a message may take where neither this rank nor the other does anything: the timeout, or
 * longer for what the other one itself has to wait for (so that its message, which knows more,
 * comes first), or for ever: it is no fault that nothing comes. */
enum sl__timeout_policy { SL__TIMEOUT, SL__TIMEOUT_LONGER, SL__NO_TIMEOUT };

/* Messages with tags from here on go by the lane whatever --exchange says: theirs may be shorter
 * than what is awaited. */
enum { SL__TAG_LANE_ONLY = 16384 };

/* One message from or to one rank; its memory may be in several pieces. Messages between two ranks
 * with the same tag arrive in the order in which they were begun. apart: each piece is a message to
 * MPI, on both ranks. */
struct sl__message {
  bool is_send, apart;
  int peer, tag;
  enum sl__timeout_policy
      patience;     /* of a task's messages: once one has come, all are waited for */
  const char *name; /* for "rank 2 has not sent NAME"; must live on */
  int count;
  void *const *memory;
  const size_t *bytes;
  /* [count] where the memory is a GPU's: StarPU must not take it back before the end; else NULL */
  const starpu_data_handle_t *handles;
};

/* From within a running task: begin all its messages; the task ends when they have. */
void sl__net_begin(struct sl__net *net, int count, const struct sl__message *messages);

/* This rank works, though no task ends: a long write, say. NULL is legal. */
void sl__net_active(struct sl__net *net);

/* After a task: look after the messages under way, if any. */
void sl__net_task_ended(void *net);

/* ---- StarPU-MPI instead of the lane: all ranks alike, or they would wait for each other ---- */

enum { SL__SMALL_MESSAGE, SL__LARGE_MESSAGE, SL__MESSAGE_SIZES };
/* Greatest small one, bytes: the geometric mean of the two that are measured. */
#define SL__SMALL_MESSAGE_BYTES 65536

/* All ranks together, after sl__net_open: start it where the exchange needs it. */
enum sl_status sl__net_open_starpu(struct sl__net *net);
/* Is it running? Then a wait may be one for ever once a rank is lost: see core/runtime/wait.h. */
bool sl__net_has_starpu(const struct sl__net *net);
/* With SL_EXCHANGE_AUTO, and nobody has chosen yet. */
bool sl__net_is_undecided(const struct sl__net *net);
/* Which sizes of messages go by it from now on; nothing may be under way. */
void sl__net_try_starpu(struct sl__net *net, const bool by_starpu[SL__MESSAGE_SIZES]);
/* The same for good; without any its thread ends. why: for the log and summaries; is copied. */
void sl__net_choose(struct sl__net *net, const bool by_starpu[SL__MESSAGE_SIZES], const char *why);
const char *sl__net_transport_text(const struct sl__net *net);

/* Does a message of so many bytes go by it? */
bool sl__net_by_starpu(const struct sl__net *net, size_t bytes);
/* Submit. SL_LOST once a rank is. */
enum sl_status sl__net_post(struct sl__net *net, const struct sl__post *post, size_t bytes);
/* Tensors under way. */
int sl__net_posts(struct sl__net *net);

/* Of tensors' memory, so far, without MPI's own. */
int64_t sl__net_bytes_sent(const struct sl__net *net);

#endif
