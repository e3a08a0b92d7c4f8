/* What starpu_fxt_tool and a trainer write: tasks.rec, paje.trace and trace.window.json, in one
 * file with a line "=====" between the parts; missing parts are not read. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/trace/fxt.h"
#include "tools/trace/trace.h"

static int part_file(const uint8_t *bytes, size_t size, char *path, size_t room) {
  int file = memfd_create("part", MFD_CLOEXEC);
  if (file < 0 || write(file, bytes, size) != (ssize_t)size) abort();
  snprintf(path, room, "/proc/self/fd/%d", file);
  return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  static const char border[] = "=====\n";
  char path[3][64], message[1200];
  int file[3];
  struct trace trace = {0};
  struct window window;
  for (int i = 0; i < 3; i++) {
    const uint8_t *end = i < 2 ? memmem(bytes, size, border, strlen(border)) : NULL;
    size_t length = end ? (size_t)(end - bytes) : size;
    file[i] = part_file(bytes, length, path[i], sizeof path[i]);
    bytes += end ? length + strlen(border) : length;
    size -= end ? length + strlen(border) : length;
  }
  window_read(path[2], &window, message, sizeof message);
  if (trace_read_tasks(path[0], &trace, message, sizeof message) &&
      trace_read_paje(path[1], &trace, message, sizeof message) && trace_cut(&trace, 0, INFINITY) &&
      !(trace.window > 0))
    abort();
  trace_free(&trace);
  for (int i = 0; i < 3; i++) close(file[i]);
  return 0;
}
