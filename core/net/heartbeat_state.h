/* What the parts of the watch share: core/net/heartbeat_link.c has connections and messages,
 * core/net/heartbeat_start.c brings the ranks together, core/net/heartbeat.c keeps the watch. */
#ifndef SL_CORE_NET_HEARTBEAT_STATE_H
#define SL_CORE_NET_HEARTBEAT_STATE_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "core/net/heartbeat.h"

enum sl__message { HELLO = 1, WELCOME, READY, START, BEAT, TABLE, LOST, FAILED, BYE };

enum {
  MAGIC = 0x31574c53, /* "SLW1" */
  HEADER = 12,
  HOST = 64, /* a host's name, with the final 0 */
  HELLO_BYTES = 8 + 3 * 4 + HOST,
  WELCOME_BYTES = 8 + 4 + HOST,
  TEXT = SL__WATCH_TEXT,
  STRANGERS = 64, /* connections that have not said who they are, beyond one for each rank */
  PLACES = 32,    /* addresses of rank 0 */
};

struct sl__identity {
  char host[HOST];
  uint32_t process;
};

struct sl__peer {
  struct sl__identity identity; /* known to rank 0, and of rank 0 and oneself */
  uint64_t activity;            /* its counter */
  double active, heard;         /* when the counter changed, when anything came */
  bool left;                    /* said goodbye: nothing is expected of it */
};

struct sl__link {
  int fd;     /* -1: unused */
  int rank;   /* whose it is; -1 for a stranger */
  bool ready; /* all was said that comes before START */
  int broken; /* errno of a failed send: closed once what came before it is read */
  int polled; /* its place among polls; 0: none */
  double opened;
  struct sl__identity identity;
  uint8_t *in, *out;
  size_t in_count, out_count;
};

struct sl__heartbeat {
  int rank, size;
  double timeout, interval;
  uint64_t key;
  int listener, accept_error, wake[2];
  char address[SL__WATCH_ADDRESS];
  struct sl__peer *peers;
  struct sl__link *links; /* rank 0: to all others and strangers; the others: to rank 0 */
  int num_links;
  uint8_t *memory, *table;
  size_t in_size, out_size;
  struct pollfd *polls; /* the pipe that wakes, the listener, open links */
  char why[96];         /* the last connection was closed */
  atomic_uint_fast64_t activity;
  atomic_bool lost;
  pthread_t thread;
  pthread_mutex_t lock; /* all below, peers and links */
  bool thread_runs, stop, started, leaving;
  double woken, next_beat; /* from its last wait; sends then */
  double fresh;            /* silence counts from here on, not before */
  int lost_rank;           /* -1: none */
  char text[TEXT];
};

/* ---- core/net/heartbeat_link.c; the lock is held but for sl__heartbeat_wait_for_arrival ---- */

/* Seconds of a clock that is never set. */
double sl__heartbeat_now(void);
void sl__heartbeat_nap(double seconds);

/* What came from another process, without what would disturb a terminal; cut to size. */
void sl__heartbeat_copy_text(char *to, size_t size, const void *from, size_t length);

/* To all that are ready, as much as goes without blocking; sl__heartbeat_serve sends the rest. */
void sl__heartbeat_post_all(struct sl__heartbeat *watch, enum sl__message kind, const void *body,
                            size_t length);
void sl__heartbeat_post_lost(struct sl__heartbeat *watch, int rank, const char *text);
void sl__heartbeat_post_hello(struct sl__heartbeat *watch, struct sl__link *link);
/* Rank 0's table, or the heartbeat of another. */
void sl__heartbeat_post_beat(struct sl__heartbeat *watch);

/* Until the other machines have all that was posted: what is still on its way when a process ends
 * may be thrown away. */
void sl__heartbeat_wait_for_arrival(struct sl__heartbeat *watch, double seconds);

/* Takes down the first loss: "rank 2 (node7, process 4711) " and this text. */
void sl__heartbeat_lose(struct sl__heartbeat *watch, int rank, const char *format, ...)
    SL_PRINTF(3, 4);
void sl__heartbeat_lose_silent(struct sl__heartbeat *watch, int rank);

/* NULL, and the socket closed, where there are too many. rank: -1 for a stranger. */
struct sl__link *sl__heartbeat_open_link(struct sl__heartbeat *watch, int fd, int rank);
/* The loss of a rank, unless it has left or nothing has begun. */
void sl__heartbeat_close_link(struct sl__heartbeat *watch, struct sl__link *link, const char *why);

/* All ranks are there, and count as heard and active now. */
void sl__heartbeat_begin(struct sl__heartbeat *watch);

/* Waits for so long at the most, reads, writes. The lock is given up while it waits. */
void sl__heartbeat_serve(struct sl__heartbeat *watch, double seconds);

/* ---- core/net/heartbeat_start.c ---- */

/* Rank 0: a port and its address, into the watch's and the caller's. */
enum sl_status sl__heartbeat_listen(struct sl__heartbeat *watch, char *address, size_t size);

/* All ranks come together; the lock is held. */
enum sl_status sl__heartbeat_gather(struct sl__heartbeat *watch);
enum sl_status sl__heartbeat_join(struct sl__heartbeat *watch, const char *address);

#endif
