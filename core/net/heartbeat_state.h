/* State that the files of the heartbeat share:
 *   heartbeat.c           the thread, and the callers' functions
 *   heartbeat_start.c     brings the ranks together
 *   heartbeat_address.c   the address of rank 0: interfaces, ports, the text that MPI distributes
 *   heartbeat_auth.c      proves that both sides of a connection know the run's key
 *   heartbeat_link.c      connections: open, close, send, receive
 *   heartbeat_messages.c  what the messages on them mean
 *   heartbeat_loss.c      notices and reports the loss of a rank */
#ifndef SL_CORE_NET_HEARTBEAT_STATE_H
#define SL_CORE_NET_HEARTBEAT_STATE_H

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "core/net/heartbeat.h"

enum message { CHALLENGE = 1, HELLO, WELCOME, READY, START, BEAT, TABLE, LOST, FAILED, BYE };

enum {
  HEADER = 12,
  HOST = 64,    /* a host's name, with the final 0 */
  BOOT_ID = 40, /* of the running kernel, with the final 0 */
  KEY = 32,
  NONCE = 16, /* a random number, used once */
  MAC = 32,   /* a message authentication code */
  CHALLENGE_BYTES = NONCE,
  HELLO_TEXT = 3 * 4 + HOST,
  HELLO_BYTES = NONCE + HELLO_TEXT + MAC,
  WELCOME_TEXT = 4 + HOST,
  WELCOME_BYTES = WELCOME_TEXT + MAC,
  TEXT = SL__HEARTBEAT_TEXT,
  MAX_UNIDENTIFIED = 64, /* connections without a HELLO, beyond one for each rank */
  MAX_FROM_SOURCE = 16,  /* of them from one address, beyond one for each rank */
  MAX_ADDRESSES = 32,    /* of rank 0 */
  SOURCE = 16,           /* bytes of an IPv6 address */
};

struct identity {
  char host[HOST];
  uint32_t process;
};

/* Another rank, or this one. */
struct peer {
  struct identity identity; /* known to rank 0; elsewhere only of rank 0 and this rank */
  uint64_t activity;        /* its counter */
  double active, heard;     /* when the counter changed; when anything arrived from it */
  bool left;                /* it sent BYE: its silence is no loss */
};

struct link {
  int fd;          /* -1: unused */
  int rank;        /* of the peer; -1: it has not sent HELLO yet */
  bool challenged; /* on other ranks than 0: CHALLENGE has come */
  bool ready;      /* the messages before START have been exchanged */
  int broken;      /* errno of a failed send: it closes once everything before that has been read */
  int polled;      /* its index in polls; 0: none */
  double opened;
  uint8_t source[SOURCE]; /* the other side's address, as IPv6 */
  uint8_t root_nonce[NONCE], rank_nonce[NONCE];
  struct identity identity;
  uint8_t *in, *out;
  size_t in_count, out_count;
};

struct sl__heartbeat {
  int rank, size;
  double timeout, interval;
  uint8_t key[KEY];
  char boot_id[BOOT_ID];                /* "-": unknown */
  struct sl__heartbeat_options options; /* copies of the texts are in `texts` */
  char texts[2][64];
  int listener, accept_error, wake[2];
  char address[SL__HEARTBEAT_ADDRESS];
  struct peer *peers; /* [size] */
  struct link *links; /* rank 0: to all ranks, and unidentified ones; the others: to rank 0 */
  int num_links;
  uint8_t *memory, *table;
  size_t in_size, out_size;
  struct pollfd *polls; /* the wake pipe, the listener, the open links */
  char why[96];         /* why the last connection was closed */
  atomic_uint_fast64_t activity;
  atomic_bool lost;
  pthread_t thread;
  pthread_mutex_t lock; /* of all fields below, peers and links */
  bool thread_runs, stop, started, leaving;
  double last_wake, next_beat; /* when the thread's last wait ended; when it sends next */
  double silence_counts_from;  /* silence before this time is no loss */
  int lost_rank;               /* -1: none */
  char text[TEXT];
};

/* ---- core/net/heartbeat_auth.c ---- */

/* Returns false if the system has no random bytes. */
bool sl__heartbeat_random(void *bytes, size_t size);

/* The code of a message of this kind on this connection, over both sides' random numbers and the
 * first `size` bytes of its body. Returns false if there is no memory. */
bool sl__heartbeat_mac(const struct sl__heartbeat *h, enum message kind, const struct link *link,
                       const void *body, size_t size, uint8_t mac[MAC]);
bool sl__heartbeat_is_genuine(const struct sl__heartbeat *h, enum message kind,
                              const struct link *link, const void *body, size_t size,
                              const uint8_t *mac);

/* ---- core/net/heartbeat_address.c ---- */

/* Rank 0: opens a port and writes its address to h->address and to `address`. */
enum sl_status sl__heartbeat_listen(struct sl__heartbeat *h, char *address, size_t size);

struct candidate {
  struct sockaddr_storage address;
  socklen_t size;
  char text[INET6_ADDRSTRLEN], why[96]; /* why it did not serve */
};

/* Reads the key into h->key and the addresses of rank 0; those of the loopback come first on rank
 * 0's own machine, and are left out on others. Returns their number; 0 if rank 0 did not write the
 * text. */
int sl__heartbeat_parse_address(struct sl__heartbeat *h, const char *text,
                                struct candidate candidates[MAX_ADDRESSES]);

/* ---- core/net/heartbeat_start.c ---- */

/* With the lock. Rank 0 gathers the others, who join it. */
enum sl_status sl__heartbeat_gather(struct sl__heartbeat *h);
enum sl_status sl__heartbeat_join(struct sl__heartbeat *h, const char *address);

/* ---- core/net/heartbeat_link.c; with the lock, except where it says otherwise ---- */

void sl__heartbeat_sleep(double seconds);

/* Returns NULL and closes the socket if all connections are in use. */
struct link *sl__heartbeat_open_link(struct sl__heartbeat *h, int fd, int rank);
/* Rank 0: a connection of an unknown program. If its address or all together have too many of
 * these, the oldest one is closed. */
void sl__heartbeat_accept(struct sl__heartbeat *h, int fd, const struct sockaddr_storage *from);
/* After the start this is the loss of the rank, unless it has left. */
void sl__heartbeat_close_link(struct sl__heartbeat *h, struct link *link, const char *why);

/* Appends to the link's buffer; sl__heartbeat_flush sends it. */
void sl__heartbeat_post(struct sl__heartbeat *h, struct link *link, enum message kind,
                        const void *body, size_t length);
/* Sends as much as goes without blocking; sl__heartbeat_serve sends the rest. */
void sl__heartbeat_flush(struct sl__heartbeat *h);

/* Without the lock. Waits until the other machines have all messages: those that are still on their
 * way when a process ends may be thrown away. */
void sl__heartbeat_wait_for_arrival(struct sl__heartbeat *h, double seconds);

/* Waits up to `seconds`, then reads and writes. It releases the lock while it waits. */
void sl__heartbeat_serve(struct sl__heartbeat *h, double seconds);

/* ---- core/net/heartbeat_messages.c; with the lock ---- */

/* Copies text from another process, without control characters, cut to size. */
void sl__heartbeat_copy_text(char *to, size_t size, const void *from, size_t length);

/* Posts to all links that are ready, and flushes. */
void sl__heartbeat_post_all(struct sl__heartbeat *h, enum message kind, const void *body,
                            size_t length);
void sl__heartbeat_post_lost(struct sl__heartbeat *h, int rank, const char *text);
void sl__heartbeat_post_challenge(struct sl__heartbeat *h, struct link *link);
/* Rank 0 posts its table, another rank its heartbeat. */
void sl__heartbeat_post_beat(struct sl__heartbeat *h);

/* Three words at `at`, before each body. */
void sl__heartbeat_put_header(uint8_t *at, enum message kind, size_t length);
/* Handles the complete messages in the link's buffer; a partial one stays. Returns false if the
 * bytes are not a message that may come now. */
bool sl__heartbeat_take_messages(struct sl__heartbeat *h, struct link *link);

/* All ranks are connected, and count as heard and active now. */
void sl__heartbeat_begin(struct sl__heartbeat *h);

/* ---- core/net/heartbeat_loss.c; with the lock ---- */

/* Records the first loss, with this text. */
void sl__heartbeat_record_loss(struct sl__heartbeat *h, int rank, const char *text);
/* The same with "rank 2 (node7, process 4711) " before the text. */
void sl__heartbeat_lose(struct sl__heartbeat *h, int rank, const char *format, ...) SL_PRINTF(3, 4);
/* Its connection was closed. */
void sl__heartbeat_lose_closed(struct sl__heartbeat *h, int rank, const char *why);
/* Looks for ranks that have been silent for longer than the timeout. */
void sl__heartbeat_check_silence(struct sl__heartbeat *h);

#endif
