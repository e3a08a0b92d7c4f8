/* The heartbeat's messages: their bytes, and the reaction of the rank that receives one.
 *
 * A message is three little-endian words (magic, kind, length of the body) and its body. A rank's
 * start: CHALLENGE of rank 0 -> HELLO -> WELCOME -> READY, then START once all ranks are ready.
 * HELLO and WELCOME prove that their sender knows the run's key (heartbeat_auth.c). READY
 * distinguishes a connection that is used from one that its rank gave up for another address. After
 * that, BEAT goes to rank 0 and TABLE comes back; each is a sign of life, too. */
#include <endian.h>
#include <math.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/net/heartbeat_state.h"

static const uint32_t MAGIC = 0x32574c53;    /* "SLW2" */
static const uint32_t HAS_LEFT = UINT32_MAX; /* in TABLE, instead of milliseconds */

/* ---- bytes ---- */

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

static uint8_t *put_identity(uint8_t *at, const struct identity *identity) {
  return (uint8_t *)memcpy(put32(at, identity->process), identity->host, HOST) + HOST;
}

static struct identity get_identity(const uint8_t *at) {
  struct identity identity = {.process = get32(at)};
  sl__heartbeat_copy_text(identity.host, HOST, at + 4, HOST);
  return identity;
}

/* ---- messages out ---- */

void sl__heartbeat_put_header(uint8_t *at, enum message kind, size_t length) {
  put32(put32(put32(at, MAGIC), kind), (uint32_t)length);
}

void sl__heartbeat_post_all(struct sl__heartbeat *h, enum message kind, const void *body,
                            size_t length) {
  for (int i = 0; i < h->num_links; i++)
    if (h->links[i].ready) sl__heartbeat_post(h, &h->links[i], kind, body, length);
  sl__heartbeat_flush(h);
}

void sl__heartbeat_post_lost(struct sl__heartbeat *h, int rank, const char *text) {
  uint8_t body[4 + TEXT];
  size_t length = strnlen(text, TEXT - 1);
  memcpy(put32(body, (uint32_t)rank), text, length);
  sl__heartbeat_post_all(h, LOST, body, 4 + length);
}

void sl__heartbeat_post_challenge(struct sl__heartbeat *h, struct link *link) {
  if (sl__heartbeat_random(link->root_nonce, NONCE))
    sl__heartbeat_post(h, link, CHALLENGE, link->root_nonce, NONCE);
}

void sl__heartbeat_post_beat(struct sl__heartbeat *h) {
  size_t length = 8;
  double time = sl__seconds();
  if (h->rank == 0) {
    length = 4 * (size_t)h->size;
    for (int r = 0; r < h->size; r++) {
      double idle = fmin((time - h->peers[r].active) * 1e3, (double)(HAS_LEFT - 1));
      put32(h->table + 4 * r, h->peers[r].left ? HAS_LEFT : (uint32_t)idle);
    }
  } else {
    put64(h->table, h->peers[h->rank].activity);
  }
  /* a link whose last message is not sent yet gets no other */
  for (int i = 0; i < h->num_links; i++)
    if (h->links[i].ready && !h->links[i].out_count)
      sl__heartbeat_post(h, &h->links[i], h->rank == 0 ? TABLE : BEAT, h->table, length);
  sl__heartbeat_flush(h);
}

/* ---- messages in ---- */

/* May a message of this kind and length arrive on this link now? If so, it fits the buffer. */
static bool expected(const struct sl__heartbeat *h, const struct link *link, uint32_t kind,
                     size_t length) {
  bool is_root = h->rank == 0;
  switch (kind) {
    case CHALLENGE: return !is_root && !link->challenged && length == CHALLENGE_BYTES;
    case HELLO: return is_root && link->rank < 0 && length == HELLO_BYTES;
    case WELCOME: return !is_root && link->challenged && !link->ready && length == WELCOME_BYTES;
    case READY: return is_root && link->rank > 0 && !link->ready && length == 0;
    case START: return !is_root && link->ready && !h->started && length == 0;
    case BEAT: return is_root && link->ready && length == 8;
    case TABLE: return !is_root && h->started && length == 4 * (size_t)h->size;
    case LOST: return !is_root && link->ready && length >= 4 && length < 4 + TEXT;
    case FAILED: return is_root && link->ready && length < TEXT;
    case BYE: return link->ready && length == 0;
    default: return false;
  }
}

static bool take_challenge(struct sl__heartbeat *h, struct link *link, const uint8_t *body) {
  uint8_t hello[HELLO_BYTES], *text = hello + NONCE, *mac = text + HELLO_TEXT;
  memcpy(link->root_nonce, body, NONCE);
  if (!sl__heartbeat_random(link->rank_nonce, NONCE)) return false;
  link->challenged = true;
  memcpy(hello, link->rank_nonce, NONCE);
  put_identity(put32(put32(text, (uint32_t)h->size), (uint32_t)h->rank),
               &h->peers[h->rank].identity);
  if (!sl__heartbeat_mac(h, HELLO, link, text, HELLO_TEXT, mac)) return false;
  sl__heartbeat_post(h, link, HELLO, hello, sizeof hello);
  return true;
}

static bool take_hello(struct sl__heartbeat *h, struct link *link, const uint8_t *body) {
  const uint8_t *text = body + NONCE;
  uint32_t size = get32(text), rank = get32(text + 4);
  uint8_t answer[WELCOME_BYTES];
  memcpy(link->rank_nonce, body, NONCE);
  if (!sl__heartbeat_is_genuine(h, HELLO, link, text, HELLO_TEXT, text + HELLO_TEXT)) return false;
  if (size != (uint32_t)h->size || rank < 1 || rank >= size) return false;
  link->rank = (int)rank;
  link->identity = get_identity(text + 8);
  put_identity(answer, &h->peers[0].identity);
  if (!sl__heartbeat_mac(h, WELCOME, link, answer, WELCOME_TEXT, answer + WELCOME_TEXT))
    return false;
  sl__heartbeat_post(h, link, WELCOME, answer, sizeof answer);
  return true;
}

/* Another program, which has one of rank 0's addresses in another network, does not know the key.
 */
static bool take_welcome(struct sl__heartbeat *h, struct link *link, const uint8_t *body) {
  if (!sl__heartbeat_is_genuine(h, WELCOME, link, body, WELCOME_TEXT, body + WELCOME_TEXT))
    return false;
  h->peers[0].identity = get_identity(body);
  link->ready = true;
  sl__heartbeat_post(h, link, READY, NULL, 0);
  return true;
}

/* A rank that connects again has lost its first connection, even if rank 0 has not noticed yet. */
static bool take_ready(struct sl__heartbeat *h, struct link *link) {
  for (int i = 0; i < h->num_links; i++)
    if (h->links[i].ready && h->links[i].rank == link->rank)
      sl__heartbeat_close_link(h, &h->links[i], "it connected again");
  link->ready = true;
  h->peers[link->rank].identity = link->identity;
  return true;
}

void sl__heartbeat_begin(struct sl__heartbeat *h) {
  h->started = true;
  h->silence_counts_from = h->last_wake = sl__seconds();
  h->next_beat = h->silence_counts_from;
  for (int r = 0; r < h->size; r++) h->peers[r].heard = h->peers[r].active = h->silence_counts_from;
}

static bool take_beat(struct peer *peer, const uint8_t *body) {
  uint64_t activity = get64(body);
  if (activity != peer->activity) peer->active = sl__seconds();
  peer->activity = activity;
  return true;
}

static bool take_table(struct sl__heartbeat *h, const uint8_t *body) {
  double received = sl__seconds();
  for (int r = 0; r < h->size; r++) {
    uint32_t idle = get32(body + 4 * r);
    if (r == h->rank) continue;
    h->peers[r].left = idle == HAS_LEFT;
    h->peers[r].active = received - 1e-3 * idle;
  }
  return true;
}

static bool take_lost(struct sl__heartbeat *h, const uint8_t *body, size_t length) {
  char text[TEXT];
  uint32_t rank = get32(body);
  if (rank >= (uint32_t)h->size) return false;
  sl__heartbeat_copy_text(text, sizeof text, body + 4, length - 4);
  sl__heartbeat_record_loss(h, (int)rank, text);
  return true;
}

static bool take_failure(struct sl__heartbeat *h, int rank, const uint8_t *body, size_t length) {
  char text[TEXT];
  sl__heartbeat_copy_text(text, sizeof text, body, length);
  sl__heartbeat_lose(h, rank, "failed: %s", text);
  return true;
}

static bool take(struct sl__heartbeat *h, struct link *link, enum message kind, const uint8_t *body,
                 size_t length) {
  switch (kind) {
    case CHALLENGE: return take_challenge(h, link, body);
    case HELLO: return take_hello(h, link, body);
    case WELCOME: return take_welcome(h, link, body);
    case READY: return take_ready(h, link);
    case START: return sl__heartbeat_begin(h), true;
    case BEAT: return take_beat(&h->peers[link->rank], body);
    case TABLE: return take_table(h, body);
    case LOST: return take_lost(h, body, length);
    case FAILED: return take_failure(h, link->rank, body, length);
    case BYE: return h->peers[link->rank].left = true;
  }
  return false;
}

bool sl__heartbeat_take_messages(struct sl__heartbeat *h, struct link *link) {
  while (link->in_count >= HEADER) {
    uint32_t kind = get32(link->in + 4), length = get32(link->in + 8);
    if (get32(link->in) != MAGIC || !expected(h, link, kind, length)) return false;
    if (link->in_count < HEADER + length) return true;
    if (!take(h, link, kind, link->in + HEADER, length)) return false;
    link->in_count -= HEADER + length;
    memmove(link->in, link->in + HEADER + length, link->in_count);
  }
  return true;
}
