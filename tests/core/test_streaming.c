/* Streaming stores (core/base/streaming.h) copy as memcpy does, wherever a copy begins and ends in
 * a cache line, and leave what is beside it. */
#include "tests/common/check.h"
#include "core/base/streaming.h"

enum { LINE = 16, MOST = 5 * LINE, ROOM = MOST + 4 * LINE };

static void copies_every_piece(void **state) {
  (void)state;
  _Alignas(64) float to[ROOM], from[ROOM], want[ROOM];
  for (int at = 0; at < 2 * LINE; at++)
    for (int count = 0; count <= MOST; count++) {
      for (int i = 0; i < ROOM; i++) {
        from[i] = (float)(1 + i);
        to[i] = want[i] = (float)-i;
      }
      memcpy(want + at, from + 3, (size_t)count * sizeof *want);
      sl__stream_floats(to + at, from + 3, count);
      sl__stream_end();
      assert_memory_equal(to, want, sizeof want);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(copies_every_piece)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
