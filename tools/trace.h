/* Tasks that ran, read from the tasks.rec that starpu_fxt_tool makes of an FxT trace (GNU recutils:
 * "Field: value" lines, records with an empty line between). */
#ifndef SL_TOOLS_TRACE_H
#define SL_TOOLS_TRACE_H

#include <stdbool.h>
#include <stddef.h>

struct trace_task {
  int worker;
  int layer;         /* index into trace.layers */
  bool backward;     /* of its layer's backward half, or the optimizer's */
  bool update;       /* the optimizer's, whose place is its owner's, not the layer's */
  double start, end; /* ms */
};

struct trace {
  struct trace_task *tasks; /* of Starling's operations, by start */
  size_t count;
  int workers;   /* the largest number seen, plus 1 */
  char **layers; /* names in the order of their first task */
  int layer_count;
};

/* false: message says what, where (with the line) and what to do. */
bool trace_read(const char *path, struct trace *trace, char *message, size_t size);
void trace_free(struct trace *trace);

#endif
