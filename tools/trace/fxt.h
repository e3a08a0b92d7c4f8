/* From what the user names to files that can be read: StarPU's raw trace goes through
 * starpu_fxt_tool, and what the trainer noted beside it is read. */
#ifndef SL_TOOLS_TRACE_FXT_H
#define SL_TOOLS_TRACE_FXT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct source {
  char tasks[PATH_MAX], paje[PATH_MAX]; /* paje "": there is none */
  char window[PATH_MAX];                /* trace.window.json; "": there is none */
  char scratch[64];                     /* a folder to be removed; "": none */
};

/* What --trace noted of the recorded steps; zeros where it is not known. */
struct window {
  bool known;
  char program[64];
  long first, last; /* steps */
  double wall_ms, peak;
  int stages, microbatches;
};

/* paths: a folder, a tasks.rec, or StarPU's prof_files. false: message says why. */
bool source_open(struct source *source, int count, char *const *paths, char *message, size_t size);
void source_close(struct source *source);

bool window_read(const char *path, struct window *window, char *message, size_t size);

#endif
