/* Brings the ranks together: rank 0 waits for the others, who connect to one of its addresses. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/net/heartbeat_state.h"

static const double HELLO_TIMEOUT = 5; /* seconds; then an unidentified connection is closed */

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
             "within %g s; does a firewall close the ports between the machines? a run "
             "without a timeout needs no heartbeat",
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
      "does a firewall close the ports between the machines? a run without a timeout needs no "
      "heartbeat",
      h->rank, h->peers[h->rank].identity.host, h->timeout, ntohs(first->sin_port),
      list); /* the port of an IPv6 address has the same offset */
}

enum sl_status sl__heartbeat_join(struct sl__heartbeat *h, const char *address) {
  struct candidate candidates[MAX_ADDRESSES];
  int count = sl__heartbeat_parse_address(h, address, candidates);
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
