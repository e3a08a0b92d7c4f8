/* How the ranks of a watch come together: rank 0 listens at an address that the others try. */
#include "core/net/heartbeat_state.h"

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

#include "core/base/error.h"

static const double PATIENCE = 5; /* seconds that a stranger has to say its hello */

/* ---- rank 0: the address ---- */

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

enum sl_status sl__heartbeat_listen(struct sl__heartbeat *watch, char *address, size_t size) {
  uint16_t port = 0;
  if (getrandom(&watch->key, sizeof watch->key, 0) != sizeof watch->key)
    return sl__fail(SL_IO, "the watch gets no random key: %s", strerror(errno));
  watch->listener = open_listener(&port);
  if (watch->listener < 0)
    return sl__fail(SL_IO, "the watch of rank 0 cannot listen: %s; --timeout 0 does without it",
                    strerror(errno));
  snprintf(watch->address, sizeof watch->address, "%016" PRIx64 " %d %s", watch->key, port,
           watch->peers[0].identity.host);
  size_t room = size < sizeof watch->address ? size : sizeof watch->address;
  if (strlen(watch->address) + sizeof " 127.0.0.1" > room)
    return sl__fail(SL_BAD_ARGUMENT, "%zu bytes for the address of a watch; give %d", size,
                    SL__WATCH_ADDRESS);
  write_ips(watch->address, room);
  snprintf(address, size, "%s", watch->address);
  return SL_OK;
}

/* ---- rank 0: waiting for the others ---- */

static bool is_there(const struct sl__heartbeat *watch, int rank) {
  for (int i = 0; i < watch->num_links; i++)
    if (watch->links[i].ready && watch->links[i].rank == rank) return true;
  return false;
}

static int count_ready(const struct sl__heartbeat *watch) {
  int count = 0;
  for (int i = 0; i < watch->num_links; i++) count += watch->links[i].ready;
  return count;
}

static void close_strangers(struct sl__heartbeat *watch, double age) {
  for (int i = 0; i < watch->num_links; i++) {
    struct sl__link *link = &watch->links[i];
    if (link->fd >= 0 && !link->ready && sl__heartbeat_now() - link->opened >= age)
      sl__heartbeat_close_link(watch, link, "it did not say who it is");
  }
}

/* Gives up: those that came get the same text. */
static enum sl_status fail_missing(struct sl__heartbeat *watch) {
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
  sl__heartbeat_post_lost(watch, rank, text);
  pthread_mutex_unlock(&watch->lock);
  sl__heartbeat_wait_for_arrival(watch, 1);
  pthread_mutex_lock(&watch->lock);
  return sl__fail(SL_IO, "%s", text);
}

enum sl_status sl__heartbeat_gather(struct sl__heartbeat *watch) {
  double deadline = sl__heartbeat_now() + watch->timeout;
  while (count_ready(watch) < watch->size - 1) {
    double left = deadline - sl__heartbeat_now();
    if (left <= 0 || watch->accept_error) return fail_missing(watch);
    sl__heartbeat_serve(watch, fmin(left, PATIENCE));
    close_strangers(watch, PATIENCE);
  }
  close(watch->listener);
  watch->listener = -1;
  close_strangers(watch, 0);
  sl__heartbeat_begin(watch);
  sl__heartbeat_post_all(watch, START, NULL, 0);
  return SL_OK;
}

/* ---- the others ---- */

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
static int parse_address(struct sl__heartbeat *watch, const char *text, struct place *places) {
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

static bool undecided(const struct sl__heartbeat *watch) {
  return !watch->started && watch->lost_rank < 0;
}

/* One address, for `patience` seconds until rank 0 answers; then it decides, as it waits for the
 * others as long as we do. */
static void try_place(struct sl__heartbeat *watch, struct place *place, double patience,
                      double deadline) {
  const struct sockaddr *address = (const struct sockaddr *)&place->address;
  int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0 || (connect(fd, address, place->size) != 0 && errno != EINPROGRESS)) {
    snprintf(place->why, sizeof place->why, "%s", strerror(errno));
    if (fd >= 0) close(fd);
    return;
  }
  struct sl__link *link = sl__heartbeat_open_link(watch, fd, 0);
  sl__heartbeat_post_hello(watch, link);
  double end = fmin(sl__heartbeat_now() + patience, deadline);
  while (link->fd >= 0 && undecided(watch)) {
    double left = (link->ready ? deadline + watch->timeout : end) - sl__heartbeat_now();
    if (left <= 0) break;
    sl__heartbeat_serve(watch, left);
  }
  if (!undecided(watch)) return;
  if (link->fd >= 0)
    sl__heartbeat_close_link(watch, link, link->ready ? "it waits for other ranks" : "no answer");
  snprintf(place->why, sizeof place->why, "%s", watch->why);
}

static enum sl_status fail_unreachable(const struct sl__heartbeat *watch,
                                       const struct place *places, int count) {
  char list[TEXT / 2] = "";
  for (int i = 0; i < count; i++) {
    size_t used = strlen(list);
    snprintf(list + used, sizeof list - used, "%s%s (%s)", i ? ", " : "", places[i].text,
             places[i].why);
  }
  const struct sockaddr_in *first = (const struct sockaddr_in *)&places[0].address;
  return sl__fail(
      SL_IO,
      "rank %d (%s) could not join the watch of rank 0 within %g s, port %d at: %s; does "
      "a firewall close the ports between the machines? --timeout 0 does without the "
      "watch",
      watch->rank, watch->peers[watch->rank].identity.host, watch->timeout, ntohs(first->sin_port),
      list); /* IPv6 keeps its port at the same offset */
}

enum sl_status sl__heartbeat_join(struct sl__heartbeat *watch, const char *address) {
  struct place places[PLACES];
  int count = parse_address(watch, address, places);
  if (!count)
    return sl__fail(SL_BAD_ARGUMENT, "'%s' is no address of a watch; hand on what rank 0 wrote",
                    address ? address : "");
  double deadline = sl__heartbeat_now() + watch->timeout, patience = watch->timeout / (count + 1);
  while (undecided(watch) && sl__heartbeat_now() < deadline) {
    for (int i = 0; i < count && undecided(watch) && sl__heartbeat_now() < deadline; i++)
      try_place(watch, &places[i], patience, deadline);
    if (undecided(watch)) sl__heartbeat_serve(watch, 0.05);
  }
  if (watch->started) return SL_OK;
  if (watch->lost_rank >= 0) return sl__fail(SL_IO, "%s", watch->text);
  return fail_unreachable(watch, places, count);
}
