/* The heartbeat's messages. The first byte is the receiver's state: rank 0 or another one, at the
 * start of a connection, before the run's start, or after it; the second is the number of bytes
 * that arrive at once. Nothing is sent: the connection has no socket behind it. */
#include "core/base/clock.h"
#include "core/net/heartbeat_state.h"
#include "tests/fuzz/fuzz.h"

enum { RANKS = 3, IS_ROOT = 1, IS_CHALLENGED = 2, IS_READY = 4, IS_STARTED = 8, IS_LEAVING = 16 };

/* Bytes may only arrive in a buffer that is larger than any message. */
static void receive(struct sl__heartbeat *h, const uint8_t *bytes, size_t size, size_t at_once) {
  struct link *link = &h->links[0];
  while (size) {
    size_t room = h->in_size - link->in_count, n = at_once < size ? at_once : size;
    if (!room) abort();
    if (n > room) n = room;
    memcpy(link->in + link->in_count, bytes, n);
    link->in_count += n;
    bytes += n;
    size -= n;
    if (!sl__heartbeat_take_messages(h, link)) return;
    if (link->fd < 0) return;
  }
}

FUZZER(heartbeat)(const uint8_t *bytes, size_t size) {
  const struct sl__heartbeat_options options = {.timeout = 60};
  static char address[SL__HEARTBEAT_ADDRESS];
  uint8_t head[2];
  struct sl__heartbeat *h;
  fuzz_take(&bytes, &size, head, sizeof head);
  bool is_root = head[0] & IS_ROOT;
  static struct sl__heartbeat *kept[2]; /* a listening socket each time would take too long */
  if (!kept[is_root] && sl__heartbeat_new(is_root ? 0 : 1, RANKS, &options, &kept[is_root],
                                          is_root ? address : NULL, is_root ? sizeof address : 0))
    abort();
  h = kept[is_root];
  memset(h->key, 0, KEY);
  for (int i = 0; i < h->num_links; i++) {
    struct link *link = &h->links[i];
    struct link fresh = {.fd = -1, .rank = -1, .in = link->in, .out = link->out};
    *link = fresh;
  }
  struct link *link = &h->links[0];
  link->fd = memfd_create("connection", MFD_CLOEXEC); /* send() refuses it: no socket */
  link->challenged = !is_root && head[0] & IS_CHALLENGED;
  link->ready = head[0] & IS_READY;
  link->rank = is_root ? link->ready ? 1 : -1 : 0;
  h->started = link->ready && head[0] & IS_STARTED;
  h->leaving = head[0] & IS_LEAVING;
  h->lost_rank = -1;
  for (int r = 0; r < RANKS; r++) h->peers[r].left = false;
  receive(h, bytes, size, 1 + head[1]);
  if (h->lost_rank < -1 || h->lost_rank >= RANKS || link->rank >= RANKS) abort();
  if (link->fd >= 0) close(link->fd);
  link->fd = -1;
  return 0;
}
