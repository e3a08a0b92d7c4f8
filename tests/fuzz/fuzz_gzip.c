/* gzip: the library's reader of whole files and starling-predict's of streams unpack the same. */
#include "core/base/file.h"
#include "tests/fuzz/fuzz.h"
#include "tools/predict/byte_stream.h"

enum { LIMIT = 1 << 16 };

FUZZER(gzip)(const uint8_t *bytes, size_t size) {
  const char *path = fuzz_file(0, bytes, size);
  uint8_t *whole = NULL, *rest = NULL;
  size_t whole_size = 0, rest_size = 0;
  bool reads = sl__file_read(path, LIMIT, &whole, &whole_size) == SL_OK;
  struct stream *stream = stream_open(path);
  bool streams = stream && stream_rest(stream, LIMIT, &rest, &rest_size);
  /* the library looks at four bytes, the stream at two: a file between them is not both's */
  bool packed = size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
  bool taken_as_it_is = whole_size == size && !memcmp(whole, bytes, size);
  if (reads && !(packed && taken_as_it_is) &&
      (!streams || whole_size != rest_size || memcmp(whole, rest, whole_size) != 0))
    abort();
  stream_close(stream);
  free(rest);
  free(whole);
  return 0;
}
