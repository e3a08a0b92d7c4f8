/* Connections of the watch and the messages on them.
 *
 * On the wire: messages of three little-endian words (magic, kind, bytes that follow) and what
 * follows. A rank's start: HELLO (key and who it is) -> WELCOME -> READY, and START once all are
 * ready. READY tells connections that are meant from those given up for another address. Then BEAT
 * one way and TABLE the other, each as a sign of life, too.
 *
 * Sockets never block and the thread holds the lock while it works, so callers may post messages of
 * their own under the lock; only the thread closes connections once it runs. */
#include "core/net/heartbeat_state.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const uint32_t HAS_LEFT = UINT32_MAX; /* in TABLE, instead of milliseconds */

/* ---- small helpers ---- */

double sl__heartbeat_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void sl__heartbeat_nap(double seconds) {
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

void sl__heartbeat_copy_text(char *to, size_t size, const void *from, size_t length) {
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

static uint8_t *put_identity(uint8_t *at, const struct sl__identity *identity) {
  return (uint8_t *)memcpy(put32(at, identity->process), identity->host, HOST) + HOST;
}

static struct sl__identity get_identity(const uint8_t *at) {
  struct sl__identity identity = {.process = get32(at)};
  sl__heartbeat_copy_text(identity.host, HOST, at + 4, HOST);
  return identity;
}

/* ---- messages out ---- */

/* Room is never short: of each kind but BEAT and TABLE a connection gets one message, and these two
 * are posted to empty buffers only. */
static void post(struct sl__heartbeat *watch, struct sl__link *link, enum sl__message kind,
                 const void *body, size_t length) {
  if (link->fd < 0 || link->broken) return;
  if (link->out_count + HEADER + length > watch->out_size) return;
  uint8_t *at = link->out + link->out_count;
  at = put32(put32(put32(at, MAGIC), kind), (uint32_t)length);
  if (length) memcpy(at, body, length);
  link->out_count += HEADER + length;
}

/* As much as goes without blocking. */
static void flush(struct sl__link *link) {
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

static void flush_all(struct sl__heartbeat *watch) {
  for (int i = 0; i < watch->num_links; i++) flush(&watch->links[i]);
}

void sl__heartbeat_post_all(struct sl__heartbeat *watch, enum sl__message kind, const void *body,
                            size_t length) {
  for (int i = 0; i < watch->num_links; i++)
    if (watch->links[i].ready) post(watch, &watch->links[i], kind, body, length);
  flush_all(watch);
}

void sl__heartbeat_post_lost(struct sl__heartbeat *watch, int rank, const char *text) {
  uint8_t body[4 + TEXT];
  size_t length = strnlen(text, TEXT - 1);
  memcpy(put32(body, (uint32_t)rank), text, length);
  sl__heartbeat_post_all(watch, LOST, body, 4 + length);
}

void sl__heartbeat_post_hello(struct sl__heartbeat *watch, struct sl__link *link) {
  uint8_t hello[HELLO_BYTES], *at = put32(put64(hello, watch->key), (uint32_t)watch->size);
  put_identity(put32(at, (uint32_t)watch->rank), &watch->peers[watch->rank].identity);
  post(watch, link, HELLO, hello, sizeof hello);
}

void sl__heartbeat_post_beat(struct sl__heartbeat *watch) {
  size_t length = 8;
  double time = sl__heartbeat_now();
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

/* Whether the other machines have all that was posted. What is still on its way when a process ends
 * may be thrown away. */
static bool all_arrived(const struct sl__heartbeat *watch) {
  for (int i = 0; i < watch->num_links; i++) {
    const struct sl__link *link = &watch->links[i];
    int waiting = 0;
    if (link->fd < 0 || !link->ready || link->broken) continue;
    if (link->out_count || (ioctl(link->fd, SIOCOUTQ, &waiting) == 0 && waiting)) return false;
  }
  return true;
}

void sl__heartbeat_wait_for_arrival(struct sl__heartbeat *watch, double seconds) {
  for (double end = sl__heartbeat_now() + seconds; sl__heartbeat_now() < end;
       sl__heartbeat_nap(0.002)) {
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
static void lose(struct sl__heartbeat *watch, int rank, const char *text) {
  if (watch->lost_rank >= 0 || watch->leaving) return;
  watch->lost_rank = rank;
  sl__heartbeat_copy_text(watch->text, TEXT, text, strlen(text));
  if (watch->rank == 0) sl__heartbeat_post_lost(watch, rank, watch->text);
  atomic_store(&watch->lost, true);
}

/* The same with "rank 2 (node7, process 4711) " before the text. */
void sl__heartbeat_lose(struct sl__heartbeat *watch, int rank, const char *format, ...) {
  char text[TEXT];
  const struct sl__identity *identity = &watch->peers[rank].identity;
  int length = snprintf(text, sizeof text, "rank %d (%s, process %" PRIu32 ") ", rank,
                        identity->host, identity->process);
  va_list list;
  va_start(list, format);
  vsnprintf(text + length, sizeof text - (size_t)length, format, list);
  va_end(list);
  lose(watch, rank, text);
}

void sl__heartbeat_lose_silent(struct sl__heartbeat *watch, int rank) {
  char clock[16];
  double age = sl__heartbeat_now() - watch->peers[rank].heard;
  sl__heartbeat_lose(watch, rank, "has not been heard of since %s (%.*f s)", clock_text(age, clock),
                     age < 10, age);
  /* rank 0 may only be asleep: when it wakes it shall know what the others think of it */
  if (watch->rank != 0 && watch->lost_rank == rank)
    sl__heartbeat_post_all(watch, FAILED, watch->text, strlen(watch->text));
}

void sl__heartbeat_close_link(struct sl__heartbeat *watch, struct sl__link *link, const char *why) {
  int rank = link->rank;
  bool known = link->ready && watch->started;
  char clock[16];
  close(link->fd);
  link->fd = link->rank = -1;
  link->ready = false;
  link->in_count = link->out_count = 0;
  snprintf(watch->why, sizeof watch->why, "%s", why);
  if (known && !watch->peers[rank].left)
    sl__heartbeat_lose(watch, rank, "was lost at %s: %s", clock_text(0, clock), why);
}

struct sl__link *sl__heartbeat_open_link(struct sl__heartbeat *watch, int fd, int rank) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  for (int i = 0; i < watch->num_links; i++) {
    struct sl__link *link = &watch->links[i];
    if (link->fd >= 0) continue;
    link->fd = fd;
    link->rank = rank;
    link->broken = link->polled = 0;
    link->opened = sl__heartbeat_now();
    return link;
  }
  close(fd);
  return NULL;
}

/* ---- messages in ---- */

/* Whether this kind may come over this connection now, with so many bytes; they fit its buffer. */
static bool expected(const struct sl__heartbeat *watch, const struct sl__link *link, uint32_t kind,
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

static bool take_hello(struct sl__heartbeat *watch, struct sl__link *link, const uint8_t *body) {
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
static bool take_welcome(struct sl__heartbeat *watch, struct sl__link *link, const uint8_t *body) {
  if (get64(body) != ~watch->key) return false;
  watch->peers[0].identity = get_identity(body + 8);
  link->ready = true;
  post(watch, link, READY, NULL, 0);
  return true;
}

/* A rank that comes again has lost its first connection, whether we know that yet or not. */
static bool take_ready(struct sl__heartbeat *watch, struct sl__link *link) {
  for (int i = 0; i < watch->num_links; i++)
    if (watch->links[i].ready && watch->links[i].rank == link->rank)
      sl__heartbeat_close_link(watch, &watch->links[i], "it came again");
  link->ready = true;
  watch->peers[link->rank].identity = link->identity;
  return true;
}

void sl__heartbeat_begin(struct sl__heartbeat *watch) {
  watch->started = true;
  watch->fresh = watch->woken = sl__heartbeat_now();
  watch->next_beat = watch->fresh;
  for (int r = 0; r < watch->size; r++)
    watch->peers[r].heard = watch->peers[r].active = watch->fresh;
}

static bool take_beat(struct sl__peer *peer, const uint8_t *body) {
  uint64_t activity = get64(body);
  if (activity != peer->activity) peer->active = sl__heartbeat_now();
  peer->activity = activity;
  return true;
}

static bool take_table(struct sl__heartbeat *watch, const uint8_t *body) {
  double received = sl__heartbeat_now();
  for (int r = 0; r < watch->size; r++) {
    uint32_t idle = get32(body + 4 * r);
    if (r == watch->rank) continue;
    watch->peers[r].left = idle == HAS_LEFT;
    watch->peers[r].active = received - 1e-3 * idle;
  }
  return true;
}

static bool take_lost(struct sl__heartbeat *watch, const uint8_t *body, size_t length) {
  char text[TEXT];
  uint32_t rank = get32(body);
  if (rank >= (uint32_t)watch->size) return false;
  sl__heartbeat_copy_text(text, sizeof text, body + 4, length - 4);
  lose(watch, (int)rank, text);
  return true;
}

static bool take_failure(struct sl__heartbeat *watch, int rank, const uint8_t *body,
                         size_t length) {
  char text[TEXT];
  sl__heartbeat_copy_text(text, sizeof text, body, length);
  sl__heartbeat_lose(watch, rank, "failed: %s", text);
  return true;
}

/* false: no message of ours. */
static bool take(struct sl__heartbeat *watch, struct sl__link *link, enum sl__message kind,
                 const uint8_t *body, size_t length) {
  switch (kind) {
    case HELLO: return take_hello(watch, link, body);
    case WELCOME: return take_welcome(watch, link, body);
    case READY: return take_ready(watch, link);
    case START: return sl__heartbeat_begin(watch), true;
    case BEAT: return take_beat(&watch->peers[link->rank], body);
    case TABLE: return take_table(watch, body);
    case LOST: return take_lost(watch, body, length);
    case FAILED: return take_failure(watch, link->rank, body, length);
    case BYE: return watch->peers[link->rank].left = true;
  }
  return false;
}

/* The whole messages in the buffer; a half one stays. */
static bool take_messages(struct sl__heartbeat *watch, struct sl__link *link) {
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
static void receive(struct sl__heartbeat *watch, struct sl__link *link) {
  while (link->fd >= 0) {
    ssize_t n = recv(link->fd, link->in + link->in_count, watch->in_size - link->in_count, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) {
      sl__heartbeat_close_link(watch, link, closing_text(n ? errno : link->broken));
      return;
    }
    link->in_count += (size_t)n;
    if (link->rank >= 0) watch->peers[link->rank].heard = sl__heartbeat_now();
    if (!take_messages(watch, link))
      sl__heartbeat_close_link(watch, link, "it sent what is no message");
  }
}

/* ---- one round: wait, read, write ---- */

static void accept_all(struct sl__heartbeat *watch) {
  for (;;) {
    int fd = accept4(watch->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
      sl__heartbeat_open_link(watch, fd, -1);
    else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
      watch->accept_error = errno;
    if (fd < 0 && errno != EINTR && errno != ECONNABORTED) return;
  }
}

/* Open ones only: poll() refuses more entries than the process may have files. */
static nfds_t fill_polls(struct sl__heartbeat *watch) {
  int count = 0;
  watch->polls[count++] = (struct pollfd){watch->wake[0], POLLIN, 0};
  watch->polls[count++] = (struct pollfd){watch->listener, POLLIN, 0};
  for (int i = 0; i < watch->num_links; i++) {
    struct sl__link *link = &watch->links[i];
    short events = link->out_count ? POLLIN | POLLOUT : POLLIN;
    link->polled = link->fd < 0 ? 0 : count;
    if (link->fd >= 0) watch->polls[count++] = (struct pollfd){link->fd, events, 0};
  }
  return (nfds_t)count;
}

/* Waits for so long at the most. The lock is held, but not while we wait. */
void sl__heartbeat_serve(struct sl__heartbeat *watch, double seconds) {
  nfds_t count = fill_polls(watch);
  pthread_mutex_unlock(&watch->lock);
  int ready = poll(watch->polls, count, (int)ceil(fmax(seconds, 0) * 1e3));
  if (ready < 0 && errno != EINTR) sl__heartbeat_nap(0.01);
  pthread_mutex_lock(&watch->lock);
  /* if we were stopped, the others had no chance to be heard: they get a period from now on */
  double woken = sl__heartbeat_now();
  if (woken - watch->woken > fmax(seconds, 0) + watch->timeout / 4) watch->fresh = woken;
  watch->woken = woken;
  if (ready < 0) return;
  if (watch->polls[1].revents) accept_all(watch);
  for (int i = 0; i < watch->num_links; i++) {
    struct sl__link *link = &watch->links[i];
    if (link->fd >= 0 && link->polled && watch->polls[link->polled].revents & ~POLLOUT)
      receive(watch, link);
  }
  flush_all(watch);
  for (int i = 0; i < watch->num_links; i++) {
    struct sl__link *link = &watch->links[i];
    if (link->fd < 0 || !link->broken) continue;
    receive(watch, link);
    if (link->fd >= 0) sl__heartbeat_close_link(watch, link, closing_text(link->broken));
  }
}
