/* The heartbeat of a distributed run: it tells every rank when another one is lost. It has its own
 * connections, since MPI's calls hang or abort the process exactly then.
 *
 * The connections are a star. Every rank is connected to rank 0 and sends it a heartbeat every
 * second (every fifth of the timeout, if that is shorter). Rank 0 answers with a table: how long
 * each rank has been idle. A process that ends without a BYE message closes its connection, which
 * rank 0 notices at once. A process that is stopped or cut off falls silent, which rank 0 notices
 * after the timeout. Rank 0 sends the loss to all ranks, so all report the same text. Each rank
 * notices the loss of rank 0 itself. Only the first loss counts, since it causes the others. */
#ifndef SL_CORE_NET_HEARTBEAT_H
#define SL_CORE_NET_HEARTBEAT_H

#include <starling/base.h>

struct sl__heartbeat;

struct sl__heartbeat_options {
  double timeout;        /* seconds, above 0 */
  const char *interface; /* rank 0 listens there alone; NULL: on all */
  const char *ports;     /* "29400-29500": at the first free one of these; NULL: at any */
};

enum {
  SL__HEARTBEAT_ADDRESS = 1024, /* bytes that an address may need, with the final 0 */
  SL__HEARTBEAT_TEXT = 1024,    /* bytes that the text of a loss may need, with the final 0 */
};

/* Rank 0 listens, and writes to `address` (size_of_address bytes) how the other ranks reach it:
 * "KEY PORT HOST BOOT_ID IP...". KEY is random and secret: with it the ranks prove to each other
 * that they are of this run. On other ranks address becomes "", and may be NULL with a size of 0.
 * No message is sent yet. SL_BAD_ARGUMENT; SL_IO if this machine refuses a socket; SL_NO_MEMORY. */
enum sl_status sl__heartbeat_new(int rank, int size, const struct sl__heartbeat_options *options,
                                 struct sl__heartbeat **heartbeat, char *address,
                                 size_t size_of_address);

/* Could rank 0 listen there? For a rank that is alone, which needs no heartbeat. */
enum sl_status sl__heartbeat_check(const struct sl__heartbeat_options *options);

/* Rank 0 waits up to `timeout` seconds for all other ranks. They try the address as long, and then
 * wait as long again for the remaining ranks. Then a thread keeps up the heartbeat. Call it once.
 * SL_IO: the message says which ranks did not connect, or which addresses were tried; if rank 0
 * gives up, the ranks that did connect get its text. */
enum sl_status sl__heartbeat_start(struct sl__heartbeat *heartbeat, const char *address);

/* This rank has done some work. Any thread; costs one addition. */
void sl__heartbeat_activity(struct sl__heartbeat *heartbeat);

/* Seconds since that rank's last activity, known here up to two heartbeats late. A rank that has
 * left counts as idle. 0 before the start. Any thread. */
double sl__heartbeat_idle(struct sl__heartbeat *heartbeat, int rank);

/* Is a rank lost? True also on a rank that announced its own failure, and on a rank that the others
 * took for lost. Any thread; costs one load. */
bool sl__heartbeat_lost(struct sl__heartbeat *heartbeat);

/* Which rank is lost (rank may be NULL), and a text of up to SL__HEARTBEAT_TEXT bytes:
 *   rank 2 (node7, process 4711) was lost at 12:01:05: its connection was closed
 *   rank 2 (node7, process 4711) has not been heard of since 12:01:05 (60 s)
 *   rank 1 (node7, process 4710) failed: its own text
 * Returns false and writes nothing if no rank is lost. Any thread. */
bool sl__heartbeat_text(struct sl__heartbeat *heartbeat, int *rank, char *text, size_t size);

/* This rank fails: sends the reason to all ranks. Returns when they have it, or after a second.
 * Does nothing if a rank is lost already, or after sl__heartbeat_leave. */
void sl__heartbeat_announce(struct sl__heartbeat *heartbeat, const char *why);

/* Sends BYE: from now on this rank reports no loss, and its end is no loss to the others. Returns
 * when the others' machines have the message, or after a second. After rank 0 has left, no rank
 * notices losses: rank 0 should leave when the work of all ranks is done. */
void sl__heartbeat_leave(struct sl__heartbeat *heartbeat);

/* Ends the thread and the connections. Without sl__heartbeat_leave before, the others see a loss.
 * NULL is legal. */
void sl__heartbeat_free(struct sl__heartbeat *heartbeat);

#endif
