/* The watch of a distributed run: tells every rank when another one is lost. It has connections of
 * its own, since MPI's calls hang or abort the process just then.
 *
 * A star: every rank is connected to rank 0 and sends it a heartbeat every second (a fifth of the
 * timeout, if that is shorter); rank 0 answers all with a table of how long each rank has been
 * idle. A process that ends without a goodbye closes its connection, which is noticed at once; one
 * that is stopped or cut off falls silent, which is noticed after the timeout. Rank 0 tells the
 * others, so that all give the same text; that rank 0 itself is lost, each finds out for itself.
 * Only the first loss counts: what comes after is its consequence. */
#ifndef SL_CORE_NET_HEARTBEAT_H
#define SL_CORE_NET_HEARTBEAT_H

#include <starling/base.h>

struct sl__heartbeat;

enum {
  SL__WATCH_ADDRESS = 1024, /* bytes that an address may need, with the final 0 */
  SL__WATCH_TEXT = 1024,    /* bytes that the text of a loss may need, with the final 0 */
};

/* Rank 0 listens and writes into address, of size_of_address bytes, what the others need to reach
 * it: "KEY PORT HOST IP...", KEY being random, so that strangers and other jobs are refused. For
 * other ranks address is "" and may be NULL with a size of 0. timeout in seconds, above 0. Nothing
 * is sent yet.
 * SL_BAD_ARGUMENT; SL_IO where this machine lets us have no socket; SL_NO_MEMORY. */
enum sl_status sl__heartbeat_new(int rank, int size, double timeout, struct sl__heartbeat **watch,
                                 char *address, size_t size_of_address);

/* Rank 0 waits for all others, for timeout seconds; the others connect to it at that address, for
 * as long, and then wait as long again for the rest to come. Then the watch is kept, by a thread.
 * SL_IO, saying which ranks did not come or which addresses were tried; if rank 0 gives up, those
 * that did come get its text. Only once. */
enum sl_status sl__heartbeat_start(struct sl__heartbeat *watch, const char *address);

/* This rank has done some work. Any thread; one addition. */
void sl__heartbeat_activity(struct sl__heartbeat *watch);

/* Seconds since that rank's last activity as far as is known here, two heartbeats late at the most.
 * 0 before the start; one that has left does nothing. Any thread. */
double sl__heartbeat_idle(struct sl__heartbeat *watch, int rank);

/* Whether a rank is lost; on a rank that announced its own failure and on one that was taken for
 * lost, too. Any thread; one load. */
bool sl__heartbeat_lost(struct sl__heartbeat *watch);

/* Which rank is lost (rank may be NULL), and a text of SL__WATCH_TEXT bytes at most:
 *   rank 2 (node7, process 4711) was lost at 12:01:05: its connection was closed
 *   rank 2 (node7, process 4711) has not been heard of since 12:01:05 (60 s)
 *   rank 1 (node7, process 4710) failed: its own text
 * false, and nothing written, where none is lost. Any thread. */
bool sl__heartbeat_text(struct sl__heartbeat *watch, int *rank, char *text, size_t size);

/* This rank fails: tells all. Returns when it is told or after a second. Nothing where a rank is
 * lost already, or after the goodbye. */
void sl__heartbeat_announce(struct sl__heartbeat *watch, const char *why);

/* Goodbye: what comes after is no loss, neither here nor of this rank elsewhere. Returns when the
 * others' machines have it or after a second. Once rank 0 has left, the others are no longer
 * watched: it should leave when the work of all is done. */
void sl__heartbeat_leave(struct sl__heartbeat *watch);

/* Ends the thread and the connections: without a goodbye before, that is a loss to the others.
 * NULL is legal. */
void sl__heartbeat_free(struct sl__heartbeat *watch);

#endif
