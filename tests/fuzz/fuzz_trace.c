/* What starpu_fxt_tool and a trainer write: tasks.rec, paje.trace and trace.window.json, in one
 * file with a line "=====" between the parts; missing parts are not read. */
#include <math.h>

#include "tests/fuzz/fuzz.h"
#include "tools/trace/fxt.h"
#include "tools/trace/trace.h"

FUZZER(trace)(const uint8_t *bytes, size_t size) {
  static const char border[] = "=====\n";
  const char *path[3];
  char message[1200];
  struct trace trace = {0};
  struct window window;
  for (int i = 0; i < 3; i++) {
    const uint8_t *end = i < 2 ? memmem(bytes, size, border, strlen(border)) : NULL;
    size_t length = end ? (size_t)(end - bytes) : size;
    path[i] = fuzz_file(i, bytes, length);
    bytes += end ? length + strlen(border) : length;
    size -= end ? length + strlen(border) : length;
  }
  window_read(path[2], &window, message, sizeof message);
  if (trace_read_tasks(path[0], &trace, message, sizeof message) &&
      trace_read_paje(path[1], &trace, message, sizeof message) &&
      !trace_cut(&trace, 0, INFINITY) && !(trace.window > 0))
    abort();
  trace_free(&trace);
  return 0;
}
