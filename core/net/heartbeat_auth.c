/* How the ranks prove to each other that they know the key of their run, which MPI distributes: by
 * HMAC-SHA-256 (RFC 2104) of both sides' random numbers, so that the key itself never travels on
 * these connections, and what is overheard serves no other connection. */
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/random.h>

#include "core/base/error.h"
#include "core/net/heartbeat_state.h"

bool sl__heartbeat_random(void *bytes, size_t size) {
  return getrandom(bytes, size, 0) == (ssize_t)size;
}

bool sl__heartbeat_mac(const struct sl__heartbeat *h, enum message kind, const struct link *link,
                       const void *body, size_t size, uint8_t mac[MAC]) {
  uint8_t text[1 + 2 * NONCE + HELLO_BYTES];
  unsigned length = 0;
  if (size > HELLO_BYTES) return false;
  text[0] = (uint8_t)kind; /* so that no message can be sent back as another one */
  memcpy(text + 1, link->root_nonce, NONCE);
  memcpy(text + 1 + NONCE, link->rank_nonce, NONCE);
  memcpy(text + 1 + 2 * NONCE, body, size);
  return HMAC(EVP_sha256(), h->key, KEY, text, 1 + 2 * NONCE + size, mac, &length) && length == MAC;
}

bool sl__heartbeat_is_genuine(const struct sl__heartbeat *h, enum message kind,
                              const struct link *link, const void *body, size_t size,
                              const uint8_t *mac) {
  uint8_t expected[MAC];
  return sl__heartbeat_mac(h, kind, link, body, size, expected) &&
         CRYPTO_memcmp(expected, mac, MAC) == 0;
}
