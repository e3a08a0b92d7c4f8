/* starling-predict's streams: the first byte is a number of operations, which follow; the rest is
 * the input. Peeks, reads and lines together give every byte once, in order. */
#include "tests/fuzz/fuzz.h"
#include "tools/predict/byte_stream.h"

enum { PEEK, LINE, READ, OPERATIONS };

static bool is_packed(const uint8_t *bytes, size_t size) {
  return size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

/* Returns the number of bytes that the operation took; -1 after a failure. */
static int64_t operate(struct stream *stream, uint8_t operation, const uint8_t *expected,
                       size_t left, bool packed) {
  uint8_t buffer[256];
  const uint8_t *bytes = buffer;
  const char *line = NULL;
  size_t count = 0, wanted = operation / OPERATIONS;
  bool ended = false, good;
  switch (operation % OPERATIONS) {
    case PEEK: good = stream_peek(stream, &bytes, &count); break;
    case LINE: good = stream_line(stream, &line, &count, &ended); break;
    default: good = stream_read(stream, buffer, wanted, &count);
  }
  if (!good) return -1;
  if (line) bytes = (const uint8_t *)line;
  if (!packed && (count > left || (count && memcmp(bytes, expected, count) != 0))) abort();
  return operation % OPERATIONS == PEEK ? 0 : (int64_t)count + ended;
}

FUZZER(stream)(const uint8_t *bytes, size_t size) {
  if (!size || bytes[0] >= size) return 0;
  const uint8_t *operations = bytes + 1;
  size_t count = bytes[0];
  bytes += 1 + count;
  size -= 1 + count;
  bool packed = is_packed(bytes, size);
  struct stream *stream = stream_open(fuzz_file(0, bytes, size));
  for (size_t i = 0, at = 0; stream && i < count; i++) {
    size_t left = packed ? 0 : size - at;
    int64_t taken = operate(stream, operations[i], bytes + (packed ? 0 : at), left, packed);
    if (taken < 0) break;
    at += (size_t)taken;
  }
  stream_close(stream);
  return 0;
}
