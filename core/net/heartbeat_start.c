/* Brings the ranks together: rank 0 listens, and the others connect to one of its addresses. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <math.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/net/heartbeat_state.h"

static const double HELLO_TIMEOUT = 5; /* seconds; then an unidentified connection is closed */

/* ---- rank 0: the address ---- */

/* All addresses of this machine that others may reach: IPv4 first, its loopback last. */
static void write_ips(char *text, size_t size) {
  static const int families[] = {AF_INET, AF_INET6};
  struct ifaddrs *list = NULL;
  char ip[INET6_ADDRSTRLEN];
  int count = 0;
  if (getifaddrs(&list) != 0) list = NULL;
  for (int f = 0; f < 2; f++)
    for (struct ifaddrs *i = list; i && count < MAX_ADDRESSES - 1; i = i->ifa_next) {
      if (!i->ifa_addr || i->ifa_addr->sa_family != families[f]) continue;
      if (!(i->ifa_flags & IFF_UP) || i->ifa_flags & IFF_LOOPBACK) continue;
      const struct in6_addr *v6 = &((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr;
      const struct in_addr *v4 = &((const struct sockaddr_in *)i->ifa_addr)->sin_addr;
      if (f && IN6_IS_ADDR_LINKLOCAL(v6))
        continue; /* such an address means another link on another machine */
      inet_ntop(families[f], f ? (const void *)v6 : v4, ip, sizeof ip);
      size_t used = strlen(text);
      if (used + strlen(ip) + sizeof "  127.0.0.1" > size) continue;
      snprintf(text + used, size - used, " %s", ip);
      count++;
    }
  if (list) freeifaddrs(list);
  snprintf(text + strlen(text), size - strlen(text), " 127.0.0.1");
}

/* A socket for IPv6 and IPv4 at once, or for IPv4 if there is no IPv6; else -1 and errno. */
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

enum sl_status sl__heartbeat_listen(struct sl__heartbeat *h, char *address, size_t size) {
  uint16_t port = 0;
  if (getrandom(&h->key, sizeof h->key, 0) != sizeof h->key)
    return sl__fail(SL_IO, "the heartbeat gets no random key: %s", strerror(errno));
  h->listener = open_listener(&port);
  if (h->listener < 0)
    return sl__fail(SL_IO, "the heartbeat of rank 0 cannot listen: %s; --timeout 0 runs without it",
                    strerror(errno));
  snprintf(h->address, sizeof h->address, "%016" PRIx64 " %d %s", h->key, port,
           h->peers[0].identity.host);
  size_t room = size < sizeof h->address ? size : sizeof h->address;
  if (strlen(h->address) + sizeof " 127.0.0.1" > room)
    return sl__fail(SL_BAD_ARGUMENT, "%zu bytes for the heartbeat's address; give %d", size,
                    SL__HEARTBEAT_ADDRESS);
  write_ips(h->address, room);
  snprintf(address, size, "%s", h->address);
  return SL_OK;
}

/* ---- rank 0: waiting for the others ---- */

static bool is_there(const struct sl__heartbeat *h, int rank) {
  for (int i = 0; i < h->num_links; i++)
    if (h->links[i].ready && h->links[i].rank == rank) return true;
  return false;
}

static int count_ready(const struct sl__heartbeat *h) {
  int count = 0;
  for (int i = 0; i < h->num_links; i++) count += h->links[i].ready;
  return count;
}

static void close_unidentified(struct sl__heartbeat *h, double age) {
  for (int i = 0; i < h->num_links; i++) {
    struct link *link = &h->links[i];
    if (link->fd >= 0 && !link->ready && sl__seconds() - link->opened >= age)
      sl__heartbeat_close_link(h, link, "it did not identify itself");
  }
}

/* Gives up; the ranks that are connected get the same text. */
static enum sl_status fail_missing(struct sl__heartbeat *h) {
  char text[TEXT] = "", first[128] = "";
  int missing = 0, rank = -1;
  for (int r = 1; r < h->size; r++) {
    if (is_there(h, r)) continue;
    size_t used = strlen(first);
    if (missing < 8) snprintf(first + used, sizeof first - used, "%s%d", missing ? ", " : "", r);
    if (missing++ == 0) rank = r;
  }
  const char *public_part = strchr(h->address, ' '); /* the key stays secret */
  if (h->accept_error)
    snprintf(text, sizeof text,
             "rank 0 cannot accept the connections of all %d ranks: %s; raise the limit of open "
             "files (ulimit -n)",
             h->size, strerror(h->accept_error));
  else
    snprintf(text, sizeof text,
             "rank%s %s%s did not connect to the heartbeat of rank 0 (port, host, addresses:%s) "
             "within %g s; does a firewall close the ports between the machines? --timeout 0 runs "
             "without the heartbeat",
             missing > 1 ? "s" : "", first, missing > 8 ? " and others" : "", public_part,
             h->timeout);
  sl__heartbeat_post_lost(h, rank, text);
  pthread_mutex_unlock(&h->lock);
  sl__heartbeat_wait_for_arrival(h, 1);
  pthread_mutex_lock(&h->lock);
  return sl__fail(SL_IO, "%s", text);
}

enum sl_status sl__heartbeat_gather(struct sl__heartbeat *h) {
  double deadline = sl__seconds() + h->timeout;
  while (count_ready(h) < h->size - 1) {
    double left = deadline - sl__seconds();
    if (left <= 0 || h->accept_error) return fail_missing(h);
    sl__heartbeat_serve(h, fmin(left, HELLO_TIMEOUT));
    close_unidentified(h, HELLO_TIMEOUT);
  }
  close(h->listener);
  h->listener = -1;
  close_unidentified(h, 0);
  sl__heartbeat_begin(h);
  sl__heartbeat_post_all(h, START, NULL, 0);
  return SL_OK;
}

/* ---- the others ---- */

struct candidate {
  struct sockaddr_storage address;
  socklen_t size;
  char text[INET6_ADDRSTRLEN], why[96];
};

static bool parse_ip(const char *text, uint16_t port, struct candidate *candidate) {
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
  *candidate = (struct candidate){.why = "not tried"};
  snprintf(candidate->text, sizeof candidate->text, "%s", text);
  if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
    memcpy(&candidate->address, &v4, candidate->size = sizeof v4);
    return true;
  }
  if (inet_pton(AF_INET6, text, &v6.sin6_addr) != 1) return false;
  memcpy(&candidate->address, &v6, candidate->size = sizeof v6);
  return true;
}

/* Returns the number of addresses; 0 if rank 0 did not write the text. On rank 0's own machine the
 * loopback comes first; on others last, since it can only be refused there. */
static int parse_address(struct sl__heartbeat *h, const char *text, struct candidate *candidates) {
  char host[HOST], word[INET6_ADDRSTRLEN];
  uint16_t port;
  int count = 0, used = 0;
  if (!text || sscanf(text, "%16" SCNx64 " %5" SCNu16 " %63s%n", &h->key, &port, host, &used) != 3)
    return 0;
  for (text += used; count < MAX_ADDRESSES && sscanf(text, " %45s%n", word, &used) == 1;
       text += used)
    if (!parse_ip(word, port, &candidates[count++])) return 0;
  if (count && strcmp(host, h->peers[h->rank].identity.host) == 0) {
    struct candidate loopback = candidates[count - 1];
    memmove(candidates + 1, candidates, (size_t)(count - 1) * sizeof *candidates);
    candidates[0] = loopback;
  }
  return count;
}

static bool undecided(const struct sl__heartbeat *h) { return !h->started && h->lost_rank < 0; }

/* Tries one address for `timeout` seconds. If rank 0 answers, this rank waits for its decision:
 * rank 0 waits for the other ranks as long as this one would. */
static void try_candidate(struct sl__heartbeat *h, struct candidate *candidate, double timeout,
                          double deadline) {
  const struct sockaddr *address = (const struct sockaddr *)&candidate->address;
  int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0 || (connect(fd, address, candidate->size) != 0 && errno != EINPROGRESS)) {
    snprintf(candidate->why, sizeof candidate->why, "%s", strerror(errno));
    if (fd >= 0) close(fd);
    return;
  }
  struct link *link = sl__heartbeat_open_link(h, fd, 0);
  sl__heartbeat_post_hello(h, link);
  double end = fmin(sl__seconds() + timeout, deadline);
  while (link->fd >= 0 && undecided(h)) {
    double left = (link->ready ? deadline + h->timeout : end) - sl__seconds();
    if (left <= 0) break;
    sl__heartbeat_serve(h, left);
  }
  if (!undecided(h)) return;
  if (link->fd >= 0)
    sl__heartbeat_close_link(h, link, link->ready ? "it waits for other ranks" : "no answer");
  snprintf(candidate->why, sizeof candidate->why, "%s", h->why);
}

static enum sl_status fail_unreachable(const struct sl__heartbeat *h,
                                       const struct candidate *candidates, int count) {
  char list[TEXT / 2] = "";
  for (int i = 0; i < count; i++) {
    size_t used = strlen(list);
    snprintf(list + used, sizeof list - used, "%s%s (%s)", i ? ", " : "", candidates[i].text,
             candidates[i].why);
  }
  const struct sockaddr_in *first = (const struct sockaddr_in *)&candidates[0].address;
  return sl__fail(
      SL_IO,
      "rank %d (%s) could not connect to the heartbeat of rank 0 within %g s, port %d at: %s; "
      "does a firewall close the ports between the machines? --timeout 0 runs without the "
      "heartbeat",
      h->rank, h->peers[h->rank].identity.host, h->timeout, ntohs(first->sin_port),
      list); /* the port of an IPv6 address has the same offset */
}

enum sl_status sl__heartbeat_join(struct sl__heartbeat *h, const char *address) {
  struct candidate candidates[MAX_ADDRESSES];
  int count = parse_address(h, address, candidates);
  if (!count)
    return sl__fail(SL_BAD_ARGUMENT,
                    "'%s' is not the address of a heartbeat; pass on what rank 0 wrote",
                    address ? address : "");
  double deadline = sl__seconds() + h->timeout, timeout = h->timeout / (count + 1);
  while (undecided(h) && sl__seconds() < deadline) {
    for (int i = 0; i < count && undecided(h) && sl__seconds() < deadline; i++)
      try_candidate(h, &candidates[i], timeout, deadline);
    if (undecided(h)) sl__heartbeat_serve(h, 0.05);
  }
  if (h->started) return SL_OK;
  if (h->lost_rank >= 0) return sl__fail(SL_IO, "%s", h->text);
  return fail_unreachable(h, candidates, count);
}
