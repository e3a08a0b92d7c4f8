/* The address of rank 0: "KEY PORT HOST BOOT_ID IP...", which MPI brings to the other ranks. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/numbers.h"
#include "core/net/heartbeat_state.h"

/* ---- rank 0: interfaces and ports ---- */

/* An address that other machines may reach. A link-local address means another link there. */
static bool is_usable(const struct ifaddrs *i, int family) {
  if (!i->ifa_addr || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP)) return false;
  return family != AF_INET6 ||
         !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr);
}

static const char *ip_text(const struct ifaddrs *i, char ip[INET6_ADDRSTRLEN]) {
  int family = i->ifa_addr->sa_family;
  const void *bytes = family == AF_INET6
                          ? (const void *)&((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr
                          : &((const struct sockaddr_in *)i->ifa_addr)->sin_addr;
  return inet_ntop(family, bytes, ip, INET6_ADDRSTRLEN);
}

static void append_ip(char *text, size_t size, const char *ip) {
  size_t used = strlen(text);
  if (used + strlen(ip) + sizeof "  127.0.0.1" <= size)
    snprintf(text + used, size - used, " %s", ip);
}

/* All addresses of this machine that others may reach: IPv4 first, its loopback last. */
static void write_all_ips(char *text, size_t size) {
  static const int families[] = {AF_INET, AF_INET6};
  struct ifaddrs *list = NULL;
  char ip[INET6_ADDRSTRLEN];
  int count = 0;
  if (getifaddrs(&list) != 0) list = NULL;
  for (int f = 0; f < 2; f++)
    for (struct ifaddrs *i = list; i && count < MAX_ADDRESSES - 1; i = i->ifa_next)
      if (is_usable(i, families[f]) && !(i->ifa_flags & IFF_LOOPBACK)) {
        append_ip(text, size, ip_text(i, ip));
        count++;
      }
  if (list) freeifaddrs(list);
  snprintf(text + strlen(text), size - strlen(text), " 127.0.0.1");
}

/* The interface's first address, IPv4 before IPv6. */
static enum sl_status find_interface(const char *name, struct sockaddr_storage *address,
                                     char ip[INET6_ADDRSTRLEN]) {
  static const int families[] = {AF_INET, AF_INET6};
  struct ifaddrs *list = NULL, *found = NULL;
  if (getifaddrs(&list) != 0) list = NULL;
  for (int f = 0; f < 2 && !found; f++)
    for (struct ifaddrs *i = list; i && !found; i = i->ifa_next)
      if (!strcmp(i->ifa_name, name) && is_usable(i, families[f])) found = i;
  if (found) {
    bool v6 = found->ifa_addr->sa_family == AF_INET6;
    memcpy(address, found->ifa_addr, v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
    ip_text(found, ip);
  }
  if (list) freeifaddrs(list);
  if (found) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "network interface '%s': this machine has none of that name with an IP address "
                  "(ip addr lists them)",
                  name);
}

/* "29400-29500", "29400", or NULL for a port that the system chooses. */
static enum sl_status parse_ports(const char *text, int64_t *first, int64_t *last) {
  *first = *last = 0;
  if (!text) return SL_OK;
  const char *end = sl__scan_whole(text, first);
  *last = *first;
  if (end && *end == '-') end = sl__scan_whole(end + 1, last);
  if (end && !*end && *first >= 1 && *last >= *first && *last <= UINT16_MAX) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT, "ports '%s': write FIRST-LAST, from 1 to 65535", text);
}

static socklen_t address_size(const struct sockaddr_storage *address) {
  return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* A listening socket, or -1 and errno. */
static int listen_at(struct sockaddr_storage *address, uint16_t port) {
  int off = 0, fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  bool v6 = address->ss_family == AF_INET6;
  ((struct sockaddr_in *)address)->sin_port = htons(port); /* an IPv6 port is at the same place */
  if (fd >= 0 && (!v6 || !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off)) &&
      !bind(fd, (struct sockaddr *)address, address_size(address)) && !listen(fd, SOMAXCONN))
    return fd;
  int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  return -1;
}

/* The first free port of those. */
static int listen_at_any(struct sockaddr_storage *address, int64_t first, int64_t last) {
  int fd = -1;
  for (int64_t port = first; fd < 0 && port <= last; port++) {
    fd = listen_at(address, (uint16_t)port);
    if (fd < 0 && errno != EADDRINUSE && errno != EACCES) break;
  }
  return fd;
}

/* On one interface's address, or on all: IPv6 and IPv4 at once, or IPv4 if there is no IPv6. */
static int open_listener(const struct sockaddr_storage *only, int64_t first, int64_t last,
                         uint16_t *port) {
  struct sockaddr_storage at = *only, bound;
  socklen_t size = sizeof bound;
  if (!only->ss_family) at.ss_family = AF_INET6;
  int fd = listen_at_any(&at, first, last);
  if (fd < 0 && !only->ss_family) {
    at = (struct sockaddr_storage){.ss_family = AF_INET};
    fd = listen_at_any(&at, first, last);
  }
  if (fd < 0 || getsockname(fd, (struct sockaddr *)&bound, &size) != 0) return -1;
  *port = ntohs(((const struct sockaddr_in *)&bound)->sin_port);
  return fd;
}

/* ---- rank 0: the text ---- */

/* After these words come the IPs. */
static void write_words(struct sl__heartbeat *h, uint16_t port) {
  size_t used = 0;
  for (int i = 0; i < KEY; i++)
    used += (size_t)snprintf(h->address + used, sizeof h->address - used, "%02x", h->key[i]);
  snprintf(h->address + used, sizeof h->address - used, " %d %s %s", port,
           h->peers[0].identity.host, h->boot_id);
}

static enum sl_status read_options(const struct sl__heartbeat_options *options, int64_t *first,
                                   int64_t *last, struct sockaddr_storage *only,
                                   char ip[INET6_ADDRSTRLEN]) {
  enum sl_status status = parse_ports(options->ports, first, last);
  return status == SL_OK && options->interface ? find_interface(options->interface, only, ip)
                                               : status;
}

enum sl_status sl__heartbeat_check(const struct sl__heartbeat_options *options) {
  struct sockaddr_storage only;
  char ip[INET6_ADDRSTRLEN];
  int64_t first, last;
  return read_options(options, &first, &last, &only, ip);
}

enum sl_status sl__heartbeat_listen(struct sl__heartbeat *h, char *address, size_t size) {
  struct sockaddr_storage only = {0};
  char ip[INET6_ADDRSTRLEN];
  int64_t first, last;
  uint16_t port = 0;
  enum sl_status status = read_options(&h->options, &first, &last, &only, ip);
  if (status != SL_OK) return status;
  if (!sl__heartbeat_random(h->key, KEY))
    return sl__fail(SL_IO, "the heartbeat gets no random key: %s", strerror(errno));
  h->listener = open_listener(&only, first, last, &port);
  if (h->listener < 0)
    return sl__fail(
        SL_IO,
        "the heartbeat of rank 0 cannot listen%s%s%s%s: %s; a run without a timeout needs none",
        only.ss_family ? " at " : "", only.ss_family ? ip : "", first ? " at a port of " : "",
        first ? h->options.ports : "", strerror(errno));
  write_words(h, port);
  size_t room = size < sizeof h->address ? size : sizeof h->address;
  if (strlen(h->address) + 1 + INET6_ADDRSTRLEN > room)
    return sl__fail(SL_BAD_ARGUMENT, "%zu bytes for the heartbeat's address; give %d", size,
                    SL__HEARTBEAT_ADDRESS);
  if (only.ss_family)
    snprintf(h->address + strlen(h->address), room - strlen(h->address), " %s", ip);
  else
    write_all_ips(h->address, room);
  snprintf(address, size, "%s", h->address);
  return SL_OK;
}

/* ---- the others ---- */

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

static bool parse_key(const char *text, uint8_t key[KEY]) {
  if (strspn(text, "0123456789abcdef") != 2 * KEY) return false;
  for (int i = 0; i < KEY; i++) {
    unsigned byte;
    if (sscanf(text + 2 * i, "%2x", &byte) != 1) return false;
    key[i] = (uint8_t)byte;
  }
  return true;
}

/* The loopback of another machine is another machine: it is tried on the same running kernel alone,
 * and first, since no firewall is in between. */
static int place_loopback(struct candidate *candidates, int count, bool same_machine) {
  struct candidate loopback = candidates[count - 1];
  if (strcmp(loopback.text, "127.0.0.1") != 0) return count;
  if (!same_machine) return count - 1;
  memmove(candidates + 1, candidates, (size_t)(count - 1) * sizeof *candidates);
  candidates[0] = loopback;
  return count;
}

int sl__heartbeat_parse_address(struct sl__heartbeat *h, const char *text,
                                struct candidate candidates[MAX_ADDRESSES]) {
  char host[HOST], boot_id[BOOT_ID], word[INET6_ADDRSTRLEN];
  uint16_t port;
  int count = 0, used = 0;
  if (!text || !parse_key(text, h->key)) return 0;
  text += 2 * KEY;
  if (sscanf(text, " %5" SCNu16 " %63s %39s%n", &port, host, boot_id, &used) != 3) return 0;
  for (text += used; count < MAX_ADDRESSES && sscanf(text, " %45s%n", word, &used) == 1;
       text += used)
    if (!parse_ip(word, port, &candidates[count++])) return 0;
  bool known = strcmp(boot_id, "-") != 0 && strcmp(h->boot_id, "-") != 0;
  bool same = known ? !strcmp(boot_id, h->boot_id) : !strcmp(host, h->peers[h->rank].identity.host);
  return count ? place_loopback(candidates, count, same) : 0;
}
