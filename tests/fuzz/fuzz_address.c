/* The address of rank 0's heartbeat, as another rank gets it; and the same bytes as a text of
 * ports, with which rank 0 does not even open a socket unless they are some. */
#include "core/net/heartbeat_state.h"
#include "tests/fuzz/fuzz.h"

FUZZER(address)(const uint8_t *bytes, size_t size) {
  struct peer peers[2] = {{{"here", 1}}, {{"there", 2}}};
  struct sl__heartbeat heartbeat = {.rank = 1, .size = 2, .peers = peers};
  struct candidate candidates[MAX_ADDRESSES];
  char *text = fuzz_text(bytes, size);
  snprintf(heartbeat.boot_id, sizeof heartbeat.boot_id, "%s", size & 1 ? "-" : "0123");
  int count = sl__heartbeat_parse_address(&heartbeat, text, candidates);
  if (count < 0 || count > MAX_ADDRESSES) abort();
  for (int i = 0; i < count; i++) {
    sa_family_t family = candidates[i].address.ss_family;
    if ((family != AF_INET && family != AF_INET6) || !*candidates[i].text) abort();
  }
  free(text);
  return 0;
}
