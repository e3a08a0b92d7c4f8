/* From paths on the command line to files that can be read. StarPU's raw trace is converted by
 * starpu_fxt_tool; the trainer's description of the recorded steps is read from the file beside it.
 */
#ifndef SL_TOOLS_TRACE_FXT_H
#define SL_TOOLS_TRACE_FXT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct source {
  char tasks[PATH_MAX], paje[PATH_MAX]; /* paje "": no such file */
  char window[PATH_MAX];                /* trace.window.json; "": no such file */
  char scratch[PATH_MAX];               /* a folder to remove at the end; "": none */
  bool has_own;                         /* of a folder: StarPU's files are there, too */
  bool is_new;                          /* made of them just now */
};

/* The trainer's description of the recorded steps; zeros if it is missing. */
struct window {
  bool known;
  char program[64];
  long first, last; /* steps */
  double wall_ms, peak;
  int stages, microbatches;
};

/* paths: a folder, a tasks.rec, or StarPU's prof_files. False after a failure, with a message. */
bool source_open(struct source *source, int count, char *const *paths, char *message, size_t size);
/* tasks or paje cannot be read, such as after a full disk: makes both again of StarPU's files.
 * False, and tasks stays, where these are not there or that fails; if both were just made, tasks is
 * removed. */
bool source_renew(struct source *source, const char *folder);
/* Removes the scratch folder. A signal that came while it was there ends the program. */
void source_close(struct source *source);

bool window_read(const char *path, struct window *window, char *message, size_t size);

#endif
