/* The heartbeat's connections. Sockets never block. The thread holds the lock while it works, so
 * callers may post messages under the lock; once the thread runs, only it closes connections. */
#include <errno.h>
#include <linux/sockios.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/net/heartbeat_state.h"

void sl__heartbeat_sleep(double seconds) {
  struct timespec t = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
  nanosleep(&t, NULL);
}

/* ---- opening and closing ---- */

void sl__heartbeat_close_link(struct sl__heartbeat *h, struct link *link, const char *why) {
  int rank = link->rank;
  bool known = link->ready && h->started;
  close(link->fd);
  link->fd = link->rank = -1;
  link->ready = link->challenged = false;
  link->in_count = link->out_count = 0;
  snprintf(h->why, sizeof h->why, "%s", why);
  if (known && !h->peers[rank].left) sl__heartbeat_lose_closed(h, rank, why);
}

struct link *sl__heartbeat_open_link(struct sl__heartbeat *h, int fd, int rank) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  for (int i = 0; i < h->num_links; i++) {
    struct link *link = &h->links[i];
    if (link->fd >= 0) continue;
    link->fd = fd;
    link->rank = rank;
    link->broken = link->polled = 0;
    link->opened = sl__seconds();
    return link;
  }
  close(fd);
  return NULL;
}

/* The oldest connection of an unknown program, of this address or (NULL) of any; *count: how many
 * there are. */
static struct link *oldest_unidentified(struct sl__heartbeat *h, const uint8_t *source,
                                        int *count) {
  struct link *oldest = NULL;
  *count = 0;
  for (int i = 0; i < h->num_links; i++) {
    struct link *link = &h->links[i];
    if (link->fd < 0 || link->rank >= 0) continue;
    if (source && memcmp(link->source, source, SOURCE) != 0) continue;
    if (!oldest || link->opened < oldest->opened) oldest = link;
    ++*count;
  }
  return oldest;
}

static bool is_full(const struct sl__heartbeat *h) {
  for (int i = 0; i < h->num_links; i++)
    if (h->links[i].fd < 0) return false;
  return true;
}

/* IPv4 as an IPv6 address, as a socket for both gives it. */
static void copy_source(uint8_t source[SOURCE], const struct sockaddr_storage *from) {
  memset(source, 0, SOURCE);
  if (from->ss_family == AF_INET6)
    memcpy(source, &((const struct sockaddr_in6 *)from)->sin6_addr, SOURCE);
  else if (from->ss_family == AF_INET)
    memcpy(source, &((const struct sockaddr_in *)from)->sin_addr, sizeof(struct in_addr));
}

void sl__heartbeat_accept(struct sl__heartbeat *h, int fd, const struct sockaddr_storage *from) {
  uint8_t source[SOURCE];
  int count;
  copy_source(source, from);
  struct link *oldest = oldest_unidentified(h, source, &count);
  if (count >= h->size - 1 + MAX_FROM_SOURCE)
    sl__heartbeat_close_link(h, oldest, "its address has too many connections");
  oldest = oldest_unidentified(h, NULL, &count);
  if (oldest && is_full(h)) sl__heartbeat_close_link(h, oldest, "there are too many connections");
  struct link *link = sl__heartbeat_open_link(h, fd, -1);
  if (!link) return;
  memcpy(link->source, source, SOURCE);
  sl__heartbeat_post_challenge(h, link);
}

/* ---- sending ---- */

/* There is always room: a connection gets one message of each kind but BEAT and TABLE, and these
 * two are posted to empty buffers only. */
void sl__heartbeat_post(struct sl__heartbeat *h, struct link *link, enum message kind,
                        const void *body, size_t length) {
  if (link->fd < 0 || link->broken) return;
  if (link->out_count + HEADER + length > h->out_size) return;
  uint8_t *at = link->out + link->out_count;
  sl__heartbeat_put_header(at, kind, length);
  if (length) memcpy(at + HEADER, body, length);
  link->out_count += HEADER + length;
}

static void flush_link(struct link *link) {
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

void sl__heartbeat_flush(struct sl__heartbeat *h) {
  for (int i = 0; i < h->num_links; i++) flush_link(&h->links[i]);
}

/* Have the other machines acknowledged all that was posted? */
static bool all_arrived(const struct sl__heartbeat *h) {
  for (int i = 0; i < h->num_links; i++) {
    const struct link *link = &h->links[i];
    int waiting = 0;
    if (link->fd < 0 || !link->ready || link->broken) continue;
    if (link->out_count || (ioctl(link->fd, SIOCOUTQ, &waiting) == 0 && waiting)) return false;
  }
  return true;
}

void sl__heartbeat_wait_for_arrival(struct sl__heartbeat *h, double seconds) {
  for (double end = sl__seconds() + seconds; sl__seconds() < end; sl__heartbeat_sleep(0.002)) {
    pthread_mutex_lock(&h->lock);
    sl__heartbeat_flush(h);
    bool arrived = all_arrived(h);
    pthread_mutex_unlock(&h->lock);
    if (arrived) return;
  }
}

/* ---- receiving ---- */

static const char *closing_text(int error) {
  bool is_plain = !error || error == ECONNRESET || error == EPIPE;
  return is_plain ? "its connection was closed" : strerror(error);
}

/* Reads all bytes that have arrived. The buffer is larger than any message, so it always has room.
 */
static void receive(struct sl__heartbeat *h, struct link *link) {
  while (link->fd >= 0) {
    ssize_t n = recv(link->fd, link->in + link->in_count, h->in_size - link->in_count, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) {
      sl__heartbeat_close_link(h, link, closing_text(n ? errno : link->broken));
      return;
    }
    link->in_count += (size_t)n;
    if (link->rank >= 0) h->peers[link->rank].heard = sl__seconds();
    if (!sl__heartbeat_take_messages(h, link))
      sl__heartbeat_close_link(h, link, "it sent what is no message");
  }
}

/* ---- waiting, reading and writing ---- */

static void accept_all(struct sl__heartbeat *h) {
  for (;;) {
    struct sockaddr_storage from = {0};
    socklen_t size = sizeof from;
    int fd = accept4(h->listener, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
      sl__heartbeat_accept(h, fd, &from);
    else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
      h->accept_error = errno;
    if (fd < 0 && errno != EINTR && errno != ECONNABORTED) return;
  }
}

/* Only open links: poll() refuses more entries than the process may have open files. */
static nfds_t fill_polls(struct sl__heartbeat *h) {
  int count = 0;
  h->polls[count++] = (struct pollfd){h->wake[0], POLLIN, 0};
  h->polls[count++] = (struct pollfd){h->listener, POLLIN, 0};
  for (int i = 0; i < h->num_links; i++) {
    struct link *link = &h->links[i];
    short events = link->out_count ? POLLIN | POLLOUT : POLLIN;
    link->polled = link->fd < 0 ? 0 : count;
    if (link->fd >= 0) h->polls[count++] = (struct pollfd){link->fd, events, 0};
  }
  return (nfds_t)count;
}

void sl__heartbeat_serve(struct sl__heartbeat *h, double seconds) {
  nfds_t count = fill_polls(h);
  pthread_mutex_unlock(&h->lock);
  int ready = poll(h->polls, count, (int)ceil(fmax(seconds, 0) * 1e3));
  if (ready < 0 && errno != EINTR) sl__heartbeat_sleep(0.01);
  pthread_mutex_lock(&h->lock);
  /* if this process was stopped meanwhile, the silence of the others starts anew */
  double woken = sl__seconds();
  if (woken - h->last_wake > fmax(seconds, 0) + h->timeout / 4) h->silence_counts_from = woken;
  h->last_wake = woken;
  if (ready < 0) return;
  if (h->polls[1].revents) accept_all(h);
  for (int i = 0; i < h->num_links; i++) {
    struct link *link = &h->links[i];
    if (link->fd >= 0 && link->polled && h->polls[link->polled].revents & ~POLLOUT)
      receive(h, link);
  }
  sl__heartbeat_flush(h);
  for (int i = 0; i < h->num_links; i++) {
    struct link *link = &h->links[i];
    if (link->fd < 0 || !link->broken) continue;
    receive(h, link);
    if (link->fd >= 0) sl__heartbeat_close_link(h, link, closing_text(link->broken));
  }
}
