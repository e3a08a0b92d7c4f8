/* Horizontal fusion on a GPU: calls of one operation that follow each other and do not depend on
 * each other run as one, if its CUDA half takes several calls (`cuda_many` in struct sl__op). A
 * launch costs a GPU some microseconds, whatever its size, and a step has an optimizer's update for
 * each layer's parameters. */
#include "core/graph/graph_state.h"

enum { MOST_BUFFERS = 1024 }; /* of calls that run as one: they lie on the worker's stack */

/* Views of a tensor, and pieces of one, have nothing in common with each other. */
static bool share_memory(const struct sl__tensor *a, const struct sl__tensor *b) {
  return a == b || a->whole == b || b->whole == a;
}

/* Does one of two calls of the same operation write what the other reads or writes? Two calls have
 * the same scratch memory. */
static bool are_dependent(const struct sl__graph *g, const struct call *a, const struct call *b) {
  const char *mode = a->op->modes;
  for (int k = 0; k < a->count; k++, mode = sl__next_mode(mode)) {
    const char *other = b->op->modes;
    if (sl__access(*mode) == 's') return true;
    for (int i = 0; i < b->count; i++, other = sl__next_mode(other)) {
      bool both_read = sl__access(*mode) == 'r' && sl__access(*other) == 'r';
      if (!both_read && share_memory(g->uses[a->tensor[k]].tensor, g->uses[b->tensor[i]].tensor))
        return true;
    }
  }
  return false;
}

/* Can the call run as one with all calls from `first` on to it? */
static bool joins(const struct sl__graph *g, const struct call *first, const struct call *call) {
  int buffers = call->count;
  if (call->op != first->op || !call->op->cuda_many) return false;
  for (const struct call *other = first; other < call; other++) {
    if (are_dependent(g, other, call)) return false;
    buffers += other->count;
  }
  return buffers <= MOST_BUFFERS;
}

void sl__graph_find_together(struct sl__graph *g, const struct sl__subgraph *s) {
  for (int c = s->first, end; c < s->end; c = end) {
    end = c + 1;
    while (end < s->end && joins(g, &g->calls[c], &g->calls[end])) end++;
    for (int i = c; i < end; i++) {
      g->calls[i].first_together = c;
      g->calls[i].end_together = end;
    }
  }
}
