/* The watch of a distributed run; core/watch.h says what it does.
 *
 * On the wire: messages of three little-endian words (magic, kind, bytes that follow) and what
 * follows. A rank's start: HELLO (key and who it is) -> WELCOME -> READY, and START once all are
 * ready. READY tells connections that are meant from those given up for another address. Then BEAT
 * one way and TABLE the other, each as a sign of life, too.
 *
 * Sockets never block and the thread holds the lock while it works, so callers may post messages of
 * their own under the lock; only the thread closes connections once it runs. */
#include "core/watch.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <math.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"

enum kind { HELLO = 1, WELCOME, READY, START, BEAT, TABLE, LOST, FAILED, BYE };

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
static const uint32_t HAS_LEFT = UINT32_MAX; /* in TABLE, instead of milliseconds */
static const double PATIENCE = 5;            /* seconds that a stranger has to say its hello */

struct identity {
  char host[HOST];
  uint32_t process;
};

struct peer {
  struct identity identity; /* known to rank 0, and of rank 0 and oneself */
  uint64_t activity;        /* its counter */
  double active, heard;     /* when the counter changed, when anything came */
  bool left;
};

struct link {
  int fd;     /* -1: unused */
  int rank;   /* whose it is; -1 for a stranger */
  bool ready; /* all was said that comes before START */
  int broken; /* errno of a failed send: closed once what came before it is read */
  double opened;
  struct identity identity;
  uint8_t *in, *out;
  size_t in_count, out_count;
};

struct sl__watch {
  int rank, size;
  double timeout, interval;
  uint64_t key;
  int listener, accept_error, wake[2];
  char address[SL__WATCH_ADDRESS];
  struct peer *peers;
  struct link *links; /* rank 0: to all others and strangers; the others: to rank 0 */
  int num_links;
  uint8_t *memory, *table;
  size_t in_size, out_size;
  struct pollfd *polls; /* the pipe that wakes, the listener, the links */
  char why[96];         /* the last connection was closed */
  atomic_uint_fast64_t activity;
  atomic_bool lost;
  pthread_t thread;
  pthread_mutex_t lock; /* all below, peers and links */
  bool thread_runs, stop, started, leaving;
  double woken, fresh, next_beat;
  int lost_rank; /* -1: none */
  char text[TEXT];
};

/* ---- small helpers ---- */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(double seconds) {
  struct timespec t = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
  nanosleep(&t, NULL);
}

/* "12:01:05": this long ago. */
static const char *clock_text(double ago, char text[16]) {
  time_t seconds = time(NULL) - (time_t)(ago + 0.5);
  struct tm parts;
  localtime_r(&seconds, &parts);
  strftime(text, 16, "%H:%M:%S", &parts);
  return text;
}

/* What came from another process, without what would disturb a terminal; cut to size. */
static void copy_text(char *to, size_t size, const void *from, size_t length) {
  if (length > size - 1) length = size - 1;
  memcpy(to, from, length);
  to[length] = 0;
  for (unsigned char *c = (unsigned char *)to; *c; c++)
    if (*c < ' ' || *c == 127) *c = ' ';
}

static uint8_t *put32(uint8_t *at, uint32_t value) {
  value = htole32(value);
  return (uint8_t *)memcpy(at, &value, 4) + 4;
}

static uint8_t *put64(uint8_t *at, uint64_t value) {
  value = htole64(value);
  return (uint8_t *)memcpy(at, &value, 8) + 8;
}

static uint32_t get32(const uint8_t *at) {
  uint32_t value;
  memcpy(&value, at, 4);
  return le32toh(value);
}

static uint64_t get64(const uint8_t *at) {
  uint64_t value;
  memcpy(&value, at, 8);
  return le64toh(value);
}

static uint8_t *put_identity(uint8_t *at, const struct identity *identity) {
  return (uint8_t *)memcpy(put32(at, identity->process), identity->host, HOST) + HOST;
}

static struct identity get_identity(const uint8_t *at) {
  struct identity identity = {.process = get32(at)};
  copy_text(identity.host, HOST, at + 4, HOST);
  return identity;
}

/* ---- messages out ---- */

/* Room is never short: of each kind but BEAT and TABLE a connection gets one message, and these two
 * are posted to empty buffers only. */
static void post(struct sl__watch *watch, struct link *link, enum kind kind, const void *body,
                 size_t length) {
  if (link->fd < 0 || link->broken) return;
  if (link->out_count + HEADER + length > watch->out_size) return;
  uint8_t *at = link->out + link->out_count;
  at = put32(put32(put32(at, MAGIC), kind), (uint32_t)length);
  if (length) memcpy(at, body, length);
  link->out_count += HEADER + length;
}

/* As much as goes without blocking. */
static void flush(struct link *link) {
  while (link->fd >= 0 && link->out_count) {
    ssize_t n = send(link->fd, link->out, link->out_count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0) {
      link->broken = errno;
      link->out_count = 0;
      return;
    }
    link->out_count -= (size_t)n;
    memmove(link->out, link->out + n, link->out_count);
  }
}

static void flush_all(struct sl__watch *watch) {
  for (int i = 0; i < watch->num_links; i++) flush(&watch->links[i]);
}

static void post_all(struct sl__watch *watch, enum kind kind, const void *body, size_t length) {
  for (int i = 0; i < watch->num_links; i++)
    if (watch->links[i].ready) post(watch, &watch->links[i], kind, body, length);
  flush_all(watch);
}

static void post_lost(struct sl__watch *watch, int rank, const char *text) {
  uint8_t body[4 + TEXT];
  size_t length = strnlen(text, TEXT - 1);
  memcpy(put32(body, (uint32_t)rank), text, length);
  post_all(watch, LOST, body, 4 + length);
}

/* Whether the other machines have all that was posted. What is still on its way when a process ends
 * may be thrown away. */
static bool all_arrived(const struct sl__watch *watch) {
  for (int i = 0; i < watch->num_links; i++) {
    const struct link *link = &watch->links[i];
    int waiting = 0;
    if (link->fd < 0 || !link->ready || link->broken) continue;
    if (link->out_count || (ioctl(link->fd, SIOCOUTQ, &waiting) == 0 && waiting)) return false;
  }
  return true;
}

static void wait_for_arrival(struct sl__watch *watch, double seconds) {
  for (double end = now() + seconds; now() < end; nap(0.002)) {
    pthread_mutex_lock(&watch->lock);
    flush_all(watch);
    bool arrived = all_arrived(watch);
    pthread_mutex_unlock(&watch->lock);
    if (arrived) return;
  }
}

/* ---- losses ---- */

/* Takes down the first loss. The flag is set last: whoever sees it may end the process, and the
 * others should know by then. */
static void lose(struct sl__watch *watch, int rank, const char *text) {
  if (watch->lost_rank >= 0 || watch->leaving) return;
  watch->lost_rank = rank;
  copy_text(watch->text, TEXT, text, strlen(text));
  if (watch->rank == 0) post_lost(watch, rank, watch->text);
  atomic_store(&watch->lost, true);
}

/* The same with "rank 2 (node7, process 4711) " before the text. */
static void SL_PRINTF(3, 4) lose_named(struct sl__watch *watch, int rank, const char *format, ...) {
  char text[TEXT];
  const struct identity *identity = &watch->peers[rank].identity;
  int length = snprintf(text, sizeof text, "rank %d (%s, process %" PRIu32 ") ", rank,
                        identity->host, identity->process);
  va_list list;
  va_start(list, format);
  vsnprintf(text + length, sizeof text - (size_t)length, format, list);
  va_end(list);
  lose(watch, rank, text);
}

static void lose_silent(struct sl__watch *watch, int rank) {
  char clock[16];
  double age = now() - watch->peers[rank].heard;
  lose_named(watch, rank, "has not been heard of since %s (%.*f s)", clock_text(age, clock),
             age < 10, age);
  /* rank 0 may only be asleep: when it wakes it shall know what the others think of it */
  if (watch->rank != 0 && watch->lost_rank == rank)
    post_all(watch, FAILED, watch->text, strlen(watch->text));
}

static void close_link(struct sl__watch *watch, struct link *link, const char *why) {
  int rank = link->rank;
  bool known = link->ready && watch->started;
  char clock[16];
  close(link->fd);
  link->fd = link->rank = -1;
  link->ready = false;
  link->in_count = link->out_count = 0;
  snprintf(watch->why, sizeof watch->why, "%s", why);
  if (known && !watch->peers[rank].left)
    lose_named(watch, rank, "was lost at %s: %s", clock_text(0, clock), why);
}

static struct link *open_link(struct sl__watch *watch, int fd, int rank) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  for (int i = 0; i < watch->num_links; i++) {
    struct link *link = &watch->links[i];
    if (link->fd >= 0) continue;
    link->fd = fd;
    link->rank = rank;
    link->broken = 0;
    link->opened = now();
    return link;
  }
  close(fd);
  return NULL;
}

/* ---- messages in ---- */

/* Whether this kind may come over this connection now, with so many bytes; they fit its buffer. */
static bool expected(const struct sl__watch *watch, const struct link *link, uint32_t kind,
                     size_t length) {
  bool centre = watch->rank == 0;
  switch (kind) {
    case HELLO: return centre && link->rank < 0 && length == HELLO_BYTES;
    case WELCOME: return !centre && !link->ready && length == WELCOME_BYTES;
    case READY: return centre && link->rank > 0 && !link->ready && length == 0;
    case START: return !centre && link->ready && !watch->started && length == 0;
    case BEAT: return centre && link->ready && length == 8;
    case TABLE: return !centre && watch->started && length == 4 * (size_t)watch->size;
    case LOST: return !centre && link->ready && length >= 4 && length < 4 + TEXT;
    case FAILED: return centre && link->ready && length < TEXT;
    case BYE: return link->ready && length == 0;
    default: return false;
  }
}

static bool take_hello(struct sl__watch *watch, struct link *link, const uint8_t *body) {
  uint32_t size = get32(body + 8), rank = get32(body + 12);
  uint8_t answer[WELCOME_BYTES];
  if (get64(body) != watch->key || size != (uint32_t)watch->size || rank < 1 || rank >= size)
    return false;
  link->rank = (int)rank;
  link->identity = get_identity(body + 16);
  put_identity(put64(answer, ~watch->key), &watch->peers[0].identity);
  post(watch, link, WELCOME, answer, sizeof answer);
  return true;
}

/* A server that is not ours, at an address that is used elsewhere too, does not know the key. */
static bool take_welcome(struct sl__watch *watch, struct link *link, const uint8_t *body) {
  if (get64(body) != ~watch->key) return false;
  watch->peers[0].identity = get_identity(body + 8);
  link->ready = true;
  post(watch, link, READY, NULL, 0);
  return true;
}

/* A rank that comes again has lost its first connection, whether we know that yet or not. */
static bool take_ready(struct sl__watch *watch, struct link *link) {
  for (int i = 0; i < watch->num_links; i++)
    if (watch->links[i].ready && watch->links[i].rank == link->rank)
      close_link(watch, &watch->links[i], "it came again");
  link->ready = true;
  watch->peers[link->rank].identity = link->identity;
  return true;
}

static void begin(struct sl__watch *watch) {
  watch->started = true;
  watch->fresh = watch->woken = now();
  watch->next_beat = watch->fresh;
  for (int r = 0; r < watch->size; r++)
    watch->peers[r].heard = watch->peers[r].active = watch->fresh;
}

static bool take_beat(struct peer *peer, const uint8_t *body) {
  uint64_t activity = get64(body);
  if (activity != peer->activity) peer->active = now();
  peer->activity = activity;
  return true;
}

static bool take_table(struct sl__watch *watch, const uint8_t *body) {
  double received = now();
  for (int r = 0; r < watch->size; r++) {
    uint32_t idle = get32(body + 4 * r);
    if (r == watch->rank) continue;
    watch->peers[r].left = idle == HAS_LEFT;
    watch->peers[r].active = received - 1e-3 * idle;
  }
  return true;
}

static bool take_lost(struct sl__watch *watch, const uint8_t *body, size_t length) {
  char text[TEXT];
  uint32_t rank = get32(body);
  if (rank >= (uint32_t)watch->size) return false;
  copy_text(text, sizeof text, body + 4, length - 4);
  lose(watch, (int)rank, text);
  return true;
}

static bool take_failure(struct sl__watch *watch, int rank, const uint8_t *body, size_t length) {
  char text[TEXT];
  copy_text(text, sizeof text, body, length);
  lose_named(watch, rank, "failed: %s", text);
  return true;
}

/* false: no message of ours. */
static bool take(struct sl__watch *watch, struct link *link, enum kind kind, const uint8_t *body,
                 size_t length) {
  switch (kind) {
    case HELLO: return take_hello(watch, link, body);
    case WELCOME: return take_welcome(watch, link, body);
    case READY: return take_ready(watch, link);
    case START: return begin(watch), true;
    case BEAT: return take_beat(&watch->peers[link->rank], body);
    case TABLE: return take_table(watch, body);
    case LOST: return take_lost(watch, body, length);
    case FAILED: return take_failure(watch, link->rank, body, length);
    case BYE: return watch->peers[link->rank].left = true;
  }
  return false;
}

/* The whole messages in the buffer; a half one stays. */
static bool take_messages(struct sl__watch *watch, struct link *link) {
  while (link->in_count >= HEADER) {
    uint32_t kind = get32(link->in + 4), length = get32(link->in + 8);
    if (get32(link->in) != MAGIC || !expected(watch, link, kind, length)) return false;
    if (link->in_count < HEADER + length) return true;
    if (!take(watch, link, kind, link->in + HEADER, length)) return false;
    link->in_count -= HEADER + length;
    memmove(link->in, link->in + HEADER + length, link->in_count);
  }
  return true;
}

static const char *closing_text(int error) {
  bool plain = !error || error == ECONNRESET || error == EPIPE;
  return plain ? "its connection was closed" : strerror(error);
}

/* All that is there. The buffer holds more than any message, so there is always room to read. */
static void receive(struct sl__watch *watch, struct link *link) {
  while (link->fd >= 0) {
    ssize_t n = recv(link->fd, link->in + link->in_count, watch->in_size - link->in_count, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) {
      close_link(watch, link, closing_text(n ? errno : link->broken));
      return;
    }
    link->in_count += (size_t)n;
    if (link->rank >= 0) watch->peers[link->rank].heard = now();
    if (!take_messages(watch, link)) close_link(watch, link, "it sent what is no message");
  }
}

/* ---- one round: wait, read, write ---- */

static void accept_all(struct sl__watch *watch) {
  for (;;) {
    int fd = accept4(watch->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
      open_link(watch, fd, -1);
    else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
      watch->accept_error = errno;
    if (fd < 0 && errno != EINTR && errno != ECONNABORTED) return;
  }
}

static int fill_polls(struct sl__watch *watch) {
  watch->polls[0] = (struct pollfd){watch->wake[0], POLLIN, 0};
  watch->polls[1] = (struct pollfd){watch->listener, POLLIN, 0};
  for (int i = 0; i < watch->num_links; i++) {
    const struct link *link = &watch->links[i];
    watch->polls[2 + i] =
        (struct pollfd){link->fd, (short)(link->out_count ? POLLIN | POLLOUT : POLLIN), 0};
  }
  return 2 + watch->num_links;
}

/* Waits for so long at the most. The lock is held, but not while we wait. */
static void serve(struct sl__watch *watch, double seconds) {
  int count = fill_polls(watch);
  pthread_mutex_unlock(&watch->lock);
  int ready = poll(watch->polls, (nfds_t)count, (int)ceil(fmax(seconds, 0) * 1e3));
  pthread_mutex_lock(&watch->lock);
  /* if we were stopped, the others had no chance to be heard: they get a period from now on */
  double woken = now();
  if (woken - watch->woken > fmax(seconds, 0) + watch->timeout / 4) watch->fresh = woken;
  watch->woken = woken;
  if (ready < 0) return;
  if (watch->polls[1].revents) accept_all(watch);
  for (int i = 0; i < watch->num_links; i++)
    if (watch->polls[2 + i].revents & ~POLLOUT && watch->links[i].fd == watch->polls[2 + i].fd)
      receive(watch, &watch->links[i]);
  flush_all(watch);
  for (int i = 0; i < watch->num_links; i++) {
    struct link *link = &watch->links[i];
    if (link->fd < 0 || !link->broken) continue;
    receive(watch, link);
    if (link->fd >= 0) close_link(watch, link, closing_text(link->broken));
  }
}

/* ---- the thread ---- */

static void note_own_activity(struct sl__watch *watch) {
  struct peer *self = &watch->peers[watch->rank];
  uint64_t activity = atomic_load(&watch->activity);
  if (activity != self->activity) self->active = now();
  self->activity = activity;
}

static void check_silence(struct sl__watch *watch) {
  double time = now();
  for (int i = 0; i < watch->num_links && watch->lost_rank < 0; i++) {
    const struct link *link = &watch->links[i];
    if (!link->ready || watch->peers[link->rank].left) continue;
    if (time - fmax(watch->peers[link->rank].heard, watch->fresh) > watch->timeout)
      lose_silent(watch, link->rank);
  }
}

static void send_beat(struct sl__watch *watch) {
  size_t length = 8;
  double time = now();
  if (watch->rank == 0) {
    length = 4 * (size_t)watch->size;
    for (int r = 0; r < watch->size; r++) {
      double idle = fmin((time - watch->peers[r].active) * 1e3, (double)(HAS_LEFT - 1));
      put32(watch->table + 4 * r, watch->peers[r].left ? HAS_LEFT : (uint32_t)idle);
    }
  } else {
    put64(watch->table, watch->peers[watch->rank].activity);
  }
  for (int i = 0; i < watch->num_links; i++) /* who does not read the last one gets no other */
    if (watch->links[i].ready && !watch->links[i].out_count)
      post(watch, &watch->links[i], watch->rank == 0 ? TABLE : BEAT, watch->table, length);
  flush_all(watch);
}

static void *run(void *pointer) {
  struct sl__watch *watch = pointer;
  pthread_mutex_lock(&watch->lock);
  while (!watch->stop) {
    if (now() >= watch->next_beat) {
      note_own_activity(watch);
      check_silence(watch);
      send_beat(watch);
      watch->next_beat = now() + watch->interval;
    }
    serve(watch, watch->next_beat - now());
  }
  pthread_mutex_unlock(&watch->lock);
  return NULL;
}

/* Signals are the program's: the thread takes none. */
static enum sl_status start_thread(struct sl__watch *watch) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&watch->thread, NULL, run, watch);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error) return sl_fail(SL_NO_MEMORY, "the watch's thread cannot start: %s", strerror(error));
  watch->thread_runs = true;
  return SL_OK;
}

/* ---- the start: rank 0 ---- */

static bool is_there(const struct sl__watch *watch, int rank) {
  for (int i = 0; i < watch->num_links; i++)
    if (watch->links[i].ready && watch->links[i].rank == rank) return true;
  return false;
}

static int count_ready(const struct sl__watch *watch) {
  int count = 0;
  for (int i = 0; i < watch->num_links; i++) count += watch->links[i].ready;
  return count;
}

static void close_strangers(struct sl__watch *watch, double age) {
  for (int i = 0; i < watch->num_links; i++) {
    struct link *link = &watch->links[i];
    if (link->fd >= 0 && !link->ready && now() - link->opened >= age)
      close_link(watch, link, "it did not say who it is");
  }
}

/* Gives up: those that came get the same text. */
static enum sl_status fail_missing(struct sl__watch *watch) {
  char text[TEXT] = "", first[128] = "";
  int missing = 0, rank = -1;
  for (int r = 1; r < watch->size; r++) {
    if (is_there(watch, r)) continue;
    size_t used = strlen(first);
    if (missing < 8) snprintf(first + used, sizeof first - used, "%s%d", missing ? ", " : "", r);
    if (missing++ == 0) rank = r;
  }
  const char *place = strchr(watch->address, ' '); /* the key is nobody's business */
  if (watch->accept_error)
    snprintf(text, sizeof text,
             "rank 0 cannot take the connections of all %d ranks: %s; raise the limit of open "
             "files (ulimit -n)",
             watch->size, strerror(watch->accept_error));
  else
    snprintf(text, sizeof text,
             "rank%s %s%s did not connect to the watch of rank 0 (port, host, addresses:%s) "
             "within %g s; does a firewall close the ports between the machines? --timeout 0 does "
             "without the watch",
             missing > 1 ? "s" : "", first, missing > 8 ? " and others" : "", place,
             watch->timeout);
  post_lost(watch, rank, text);
  pthread_mutex_unlock(&watch->lock);
  wait_for_arrival(watch, 1);
  pthread_mutex_lock(&watch->lock);
  return sl_fail(SL_IO, "%s", text);
}

static enum sl_status wait_for_all(struct sl__watch *watch) {
  double deadline = now() + watch->timeout;
  while (count_ready(watch) < watch->size - 1) {
    double left = deadline - now();
    if (left <= 0 || watch->accept_error) return fail_missing(watch);
    serve(watch, fmin(left, PATIENCE));
    close_strangers(watch, PATIENCE);
  }
  close(watch->listener);
  watch->listener = -1;
  close_strangers(watch, 0);
  begin(watch);
  post_all(watch, START, NULL, 0);
  return SL_OK;
}

/* ---- the start: the others ---- */

struct place {
  struct sockaddr_storage address;
  socklen_t size;
  char text[INET6_ADDRSTRLEN], why[96];
};

static bool parse_ip(const char *text, uint16_t port, struct place *place) {
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
  *place = (struct place){.why = "not tried"};
  snprintf(place->text, sizeof place->text, "%s", text);
  if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
    memcpy(&place->address, &v4, place->size = sizeof v4);
    return true;
  }
  if (inet_pton(AF_INET6, text, &v6.sin6_addr) != 1) return false;
  memcpy(&place->address, &v6, place->size = sizeof v6);
  return true;
}

/* The number of addresses, 0 where the text is none of rank 0's. On the same machine its loopback
 * comes first; elsewhere last, where it can only be refused. */
static int parse_address(struct sl__watch *watch, const char *text, struct place *places) {
  char host[HOST], word[INET6_ADDRSTRLEN];
  uint16_t port;
  int count = 0, used = 0;
  if (!text ||
      sscanf(text, "%16" SCNx64 " %5" SCNu16 " %63s%n", &watch->key, &port, host, &used) != 3)
    return 0;
  for (text += used; count < PLACES && sscanf(text, " %45s%n", word, &used) == 1; text += used)
    if (!parse_ip(word, port, &places[count++])) return 0;
  if (count && strcmp(host, watch->peers[watch->rank].identity.host) == 0) {
    struct place loopback = places[count - 1];
    memmove(places + 1, places, (size_t)(count - 1) * sizeof *places);
    places[0] = loopback;
  }
  return count;
}

static bool undecided(const struct sl__watch *watch) {
  return !watch->started && watch->lost_rank < 0;
}

/* One address, for `patience` seconds until rank 0 answers; then it decides, as it waits for the
 * others as long as we do. */
static void try_place(struct sl__watch *watch, struct place *place, double patience,
                      double deadline) {
  const struct sockaddr *address = (const struct sockaddr *)&place->address;
  int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0 || (connect(fd, address, place->size) != 0 && errno != EINPROGRESS)) {
    snprintf(place->why, sizeof place->why, "%s", strerror(errno));
    if (fd >= 0) close(fd);
    return;
  }
  struct link *link = open_link(watch, fd, 0);
  uint8_t hello[HELLO_BYTES], *at = put32(put64(hello, watch->key), (uint32_t)watch->size);
  put_identity(put32(at, (uint32_t)watch->rank), &watch->peers[watch->rank].identity);
  post(watch, link, HELLO, hello, sizeof hello);
  double end = fmin(now() + patience, deadline);
  while (link->fd >= 0 && undecided(watch)) {
    double left = (link->ready ? deadline + watch->timeout : end) - now();
    if (left <= 0) break;
    serve(watch, left);
  }
  if (!undecided(watch)) return;
  if (link->fd >= 0)
    close_link(watch, link, link->ready ? "it waits for other ranks" : "no answer");
  snprintf(place->why, sizeof place->why, "%s", watch->why);
}

static enum sl_status fail_unreachable(const struct sl__watch *watch, const struct place *places,
                                       int count) {
  char list[TEXT / 2] = "";
  for (int i = 0; i < count; i++) {
    size_t used = strlen(list);
    snprintf(list + used, sizeof list - used, "%s%s (%s)", i ? ", " : "", places[i].text,
             places[i].why);
  }
  const struct sockaddr_in *first = (const struct sockaddr_in *)&places[0].address;
  return sl_fail(
      SL_IO,
      "rank %d (%s) could not join the watch of rank 0 within %g s, port %d at: %s; does "
      "a firewall close the ports between the machines? --timeout 0 does without the "
      "watch",
      watch->rank, watch->peers[watch->rank].identity.host, watch->timeout, ntohs(first->sin_port),
      list); /* IPv6 keeps its port at the same offset */
}

static enum sl_status join(struct sl__watch *watch, const char *address) {
  struct place places[PLACES];
  int count = parse_address(watch, address, places);
  if (!count)
    return sl_fail(SL_BAD_ARGUMENT, "'%s' is no address of a watch; hand on what rank 0 wrote",
                   address ? address : "");
  double deadline = now() + watch->timeout, patience = watch->timeout / (count + 1);
  while (undecided(watch) && now() < deadline) {
    for (int i = 0; i < count && undecided(watch) && now() < deadline; i++)
      try_place(watch, &places[i], patience, deadline);
    if (undecided(watch)) serve(watch, 0.05);
  }
  if (watch->started) return SL_OK;
  if (watch->lost_rank >= 0) return sl_fail(SL_IO, "%s", watch->text);
  return fail_unreachable(watch, places, count);
}

/* ---- making ---- */

/* All addresses of this machine that others may reach, IPv4 first, and its loopback last. */
static void write_ips(char *text, size_t size) {
  static const int families[] = {AF_INET, AF_INET6};
  struct ifaddrs *list = NULL;
  char ip[INET6_ADDRSTRLEN];
  int count = 0;
  if (getifaddrs(&list) != 0) list = NULL;
  for (int f = 0; f < 2; f++)
    for (struct ifaddrs *i = list; i && count < PLACES - 1; i = i->ifa_next) {
      if (!i->ifa_addr || i->ifa_addr->sa_family != families[f]) continue;
      if (!(i->ifa_flags & IFF_UP) || i->ifa_flags & IFF_LOOPBACK) continue;
      const struct in6_addr *v6 = &((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr;
      const struct in_addr *v4 = &((const struct sockaddr_in *)i->ifa_addr)->sin_addr;
      if (f && IN6_IS_ADDR_LINKLOCAL(v6)) continue; /* means another link elsewhere */
      inet_ntop(families[f], f ? (const void *)v6 : v4, ip, sizeof ip);
      size_t used = strlen(text);
      if (used + strlen(ip) + sizeof "  127.0.0.1" > size) continue;
      snprintf(text + used, size - used, " %s", ip);
      count++;
    }
  if (list) freeifaddrs(list);
  snprintf(text + strlen(text), size - strlen(text), " 127.0.0.1");
}

/* A socket for IPv6 and IPv4 at once, or for IPv4 where there is no IPv6; -1 and errno. */
static int open_listener(uint16_t *port) {
  int off = 0, fd;
  struct sockaddr_in v4 = {.sin_family = AF_INET};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6}, bound = {0};
  socklen_t size = sizeof bound;
  fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 ||
      bind(fd, (struct sockaddr *)&v6, sizeof v6) != 0) {
    if (fd >= 0) close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&v4, sizeof v4) != 0) goto out;
  }
  if (listen(fd, SOMAXCONN) != 0 || getsockname(fd, (struct sockaddr *)&bound, &size) != 0)
    goto out;
  *port = ntohs(bound.sin6_port); /* at the same offset as IPv4's */
  return fd;
out:
  if (fd >= 0) close(fd);
  return -1;
}

static enum sl_status listen_for_all(struct sl__watch *watch, char *address, size_t size) {
  uint16_t port = 0;
  if (getrandom(&watch->key, sizeof watch->key, 0) != sizeof watch->key)
    return sl_fail(SL_IO, "the watch gets no random key: %s", strerror(errno));
  watch->listener = open_listener(&port);
  if (watch->listener < 0)
    return sl_fail(SL_IO, "the watch of rank 0 cannot listen: %s; --timeout 0 does without it",
                   strerror(errno));
  snprintf(watch->address, sizeof watch->address, "%016" PRIx64 " %d %s", watch->key, port,
           watch->peers[0].identity.host);
  size_t room = size < sizeof watch->address ? size : sizeof watch->address;
  if (strlen(watch->address) + sizeof " 127.0.0.1" > room)
    return sl_fail(SL_BAD_ARGUMENT, "%zu bytes for the address of a watch; give %d", size,
                   SL__WATCH_ADDRESS);
  write_ips(watch->address, room);
  snprintf(address, size, "%s", watch->address);
  return SL_OK;
}

static void name_self(struct identity *self) {
  char name[256] = "";
  self->process = (uint32_t)getpid();
  gethostname(name, sizeof name - 1);
  copy_text(self->host, HOST, *name ? name : "?", *name ? strlen(name) : 1);
  for (char *c = self->host; *c; c++)
    if (*c == ' ') *c = '?'; /* it is one word of the address */
}

/* Everything that is ever needed: the thread asks for no memory. */
static enum sl_status alloc_all(struct sl__watch *watch) {
  size_t size = (size_t)watch->size;
  bool centre = watch->rank == 0;
  watch->num_links = centre ? watch->size - 1 + STRANGERS : 1;
  watch->in_size = HEADER + 4 + TEXT + (centre ? 0 : 4 * size);
  watch->out_size = HELLO_BYTES + WELCOME_BYTES + 2 * TEXT + 16 * HEADER + (centre ? 4 * size : 8);
  size_t links = (size_t)watch->num_links, each = watch->in_size + watch->out_size;
  watch->peers = sl__alloc(size, sizeof *watch->peers, "the watch's ranks");
  if (!watch->peers) return SL_NO_MEMORY;
  watch->links = sl__alloc(links, sizeof *watch->links, "the watch's connections");
  if (!watch->links) return SL_NO_MEMORY;
  for (int i = 0; i < watch->num_links; i++) watch->links[i].fd = watch->links[i].rank = -1;
  watch->polls = sl__alloc(links + 2, sizeof *watch->polls, "the watch's connections");
  if (!watch->polls) return SL_NO_MEMORY;
  watch->table = sl__alloc(size + 1, 4, "the watch's table");
  if (!watch->table) return SL_NO_MEMORY;
  watch->memory = sl__alloc(links, each, "the watch's messages");
  if (!watch->memory) return SL_NO_MEMORY;
  for (size_t i = 0; i < links; i++) {
    watch->links[i].in = watch->memory + i * each;
    watch->links[i].out = watch->links[i].in + watch->in_size;
  }
  return SL_OK;
}

enum sl_status sl__watch_new(int rank, int size, double timeout, struct sl__watch **result,
                             char *address, size_t size_of_address) {
  enum sl_status status = SL_OK;
  *result = NULL;
  if (size_of_address) address[0] = 0;
  if (size < 1 || rank < 0 || rank >= size)
    return sl_fail(SL_BAD_ARGUMENT, "a watch for rank %d of %d", rank, size);
  if (!(timeout > 0 && timeout <= 1e6))
    return sl_fail(SL_BAD_ARGUMENT, "a watch with a timeout of %g s; give more than 0, at most 1e6",
                   timeout);
  struct sl__watch *watch = sl__alloc(1, sizeof *watch, "the watch");
  if (!watch) return SL_NO_MEMORY;
  pthread_mutex_init(&watch->lock, NULL);
  watch->rank = rank;
  watch->size = size;
  watch->timeout = timeout;
  watch->interval = fmin(1, timeout / 5);
  watch->listener = watch->wake[0] = watch->wake[1] = watch->lost_rank = -1;
  SL_TRY(alloc_all(watch));
  name_self(&watch->peers[rank].identity);
  if (pipe2(watch->wake, O_CLOEXEC | O_NONBLOCK) != 0)
    SL_TRY(sl_fail(SL_IO, "the watch gets no pipe: %s", strerror(errno)));
  if (rank == 0) SL_TRY(listen_for_all(watch, address, size_of_address));
  *result = watch;
  return SL_OK;
out:
  sl__watch_free(watch);
  return status;
}

enum sl_status sl__watch_start(struct sl__watch *watch, const char *address) {
  if (watch->woken > 0) return sl_fail(SL_BAD_ARGUMENT, "a watch is started only once");
  pthread_mutex_lock(&watch->lock);
  watch->woken = now();
  enum sl_status status = watch->rank == 0 ? wait_for_all(watch) : join(watch, address);
  pthread_mutex_unlock(&watch->lock);
  return status == SL_OK ? start_thread(watch) : status;
}

void sl__watch_free(struct sl__watch *watch) {
  if (!watch) return;
  if (watch->thread_runs) {
    pthread_mutex_lock(&watch->lock);
    watch->stop = true;
    pthread_mutex_unlock(&watch->lock);
    while (write(watch->wake[1], "", 1) < 0 && errno == EINTR) continue;
    pthread_join(watch->thread, NULL);
  }
  for (int i = 0; watch->memory && i < watch->num_links; i++)
    if (watch->links[i].fd >= 0) close(watch->links[i].fd);
  if (watch->listener >= 0) close(watch->listener);
  if (watch->wake[0] >= 0) close(watch->wake[0]), close(watch->wake[1]);
  pthread_mutex_destroy(&watch->lock);
  free(watch->memory);
  free(watch->table);
  free(watch->polls);
  free(watch->links);
  free(watch->peers);
  free(watch);
}

/* ---- the callers' side ---- */

void sl__watch_activity(struct sl__watch *watch) {
  atomic_fetch_add_explicit(&watch->activity, 1, memory_order_relaxed);
}

double sl__watch_idle(struct sl__watch *watch, int rank) {
  double idle = 0;
  if (rank < 0 || rank >= watch->size) return 0;
  pthread_mutex_lock(&watch->lock);
  note_own_activity(watch);
  bool unknown = rank != watch->rank && (watch->peers[rank].left || watch->peers[0].left);
  if (watch->started && !unknown) idle = fmax(now() - watch->peers[rank].active, 0);
  pthread_mutex_unlock(&watch->lock);
  return idle;
}

bool sl__watch_lost(struct sl__watch *watch) { return atomic_load(&watch->lost); }

bool sl__watch_text(struct sl__watch *watch, int *rank, char *text, size_t size) {
  if (!sl__watch_lost(watch)) return false;
  pthread_mutex_lock(&watch->lock);
  if (rank) *rank = watch->lost_rank;
  snprintf(text, size, "%s", watch->text);
  pthread_mutex_unlock(&watch->lock);
  return true;
}

/* Not on rank 0: the text is what it makes of ours; or of another rank's, which failed at the same
 * time and was first. */
static void wait_for_echo(struct sl__watch *watch, double seconds) {
  bool connected = true;
  for (double end = now() + seconds; connected && now() < end; nap(0.002)) {
    if (sl__watch_lost(watch)) return;
    pthread_mutex_lock(&watch->lock);
    connected = watch->links[0].fd >= 0;
    pthread_mutex_unlock(&watch->lock);
  }
}

void sl__watch_announce(struct sl__watch *watch, const char *why) {
  char text[TEXT];
  copy_text(text, TEXT, why, strlen(why));
  pthread_mutex_lock(&watch->lock);
  bool tell = watch->started && !watch->leaving && watch->lost_rank < 0;
  if (tell && watch->rank == 0) lose_named(watch, 0, "failed: %s", text);
  if (tell && watch->rank != 0) post_all(watch, FAILED, text, strlen(text));
  pthread_mutex_unlock(&watch->lock);
  if (!tell) return;
  if (watch->rank == 0) {
    wait_for_arrival(watch, 1);
    return;
  }
  wait_for_echo(watch, 1);
  pthread_mutex_lock(&watch->lock);
  lose_named(watch, watch->rank, "failed: %s", text);
  pthread_mutex_unlock(&watch->lock);
}

void sl__watch_leave(struct sl__watch *watch) {
  pthread_mutex_lock(&watch->lock);
  bool tell = watch->started && !watch->leaving;
  watch->leaving = true;
  watch->peers[watch->rank].left = true;
  if (tell) post_all(watch, BYE, NULL, 0);
  pthread_mutex_unlock(&watch->lock);
  if (tell) wait_for_arrival(watch, 1);
}
