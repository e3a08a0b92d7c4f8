/* The critical path. A chain is a list of tasks in the window, each of which waits for the one
 * before: for its data, or by a declared dependence. The critical path is the chain with the
 * largest sum of times. Two tasks that only follow each other on a worker form no chain, since more
 * workers would separate them. So no number of devices of the same speed makes these steps shorter
 * than this path. */
#include <stdlib.h>

#include "tools/trace/trace_stats.h"

struct node {
  double ms;    /* time of the longest chain that ends here */
  long before;  /* job before this one in that chain; -1: none */
  char visited; /* 0: not yet, 1: on the stack, 2: done */
  size_t next;  /* the dependence to visit next */
};

static int by_id(const void *a, const void *b) {
  const struct trace_job *s = a, *t = b;
  return s->id < t->id ? -1 : s->id > t->id;
}

static long find(const struct trace *trace, long long id) {
  const struct trace_job key = {.id = id};
  const struct trace_job *job =
      bsearch(&key, trace->jobs, trace->job_count, sizeof *trace->jobs, by_id);
  return job ? (long)(job - trace->jobs) : -1;
}

static double length_of(const struct trace *trace, long job) {
  long task = trace->jobs[job].task;
  return task < 0 ? 0 : trace->tasks[task].end - trace->tasks[task].start;
}

/* Depth first, without recursion: a chain can have as many members as there are tasks. */
static void visit(const struct trace *trace, struct node *nodes, long *stack, long root) {
  size_t depth = 0;
  stack[depth++] = root;
  nodes[root].visited = 1;
  while (depth) {
    long job = stack[depth - 1];
    struct node *node = &nodes[job];
    const struct trace_job *j = &trace->jobs[job];
    if (node->next < j->count) {
      long before = find(trace, trace->depends[j->first + node->next++]);
      if (before < 0 || nodes[before].visited) continue;
      nodes[before].visited = 1;
      stack[depth++] = before;
      continue;
    }
    for (size_t i = 0; i < j->count; i++) {
      long before = find(trace, trace->depends[j->first + i]);
      if (before < 0 || nodes[before].visited != 2 || nodes[before].ms <= node->ms) continue;
      node->ms = nodes[before].ms;
      node->before = before;
    }
    node->ms += length_of(trace, job);
    node->visited = 2;
    depth--;
  }
}

/* Lists the path's tasks from first to last, without StarPU's own jobs between them. */
static void collect(const struct trace *trace, const struct node *nodes, long last, long *path,
                    size_t *count) {
  *count = 0;
  for (long job = last; job >= 0; job = nodes[job].before)
    if (trace->jobs[job].task >= 0) path[(*count)++] = trace->jobs[job].task;
  for (size_t i = 0; i < *count / 2; i++) {
    long other = path[*count - 1 - i];
    path[*count - 1 - i] = path[i];
    path[i] = other;
  }
}

bool path_find(const struct trace *trace, long **path, size_t *count, double *ms) {
  size_t n = trace->job_count;
  struct node *nodes = calloc(n + 1, sizeof *nodes);
  long *stack = calloc(n + 1, sizeof *stack), last = -1;
  *path = calloc(n + 1, sizeof **path);
  *count = 0;
  *ms = 0;
  bool fine = nodes && stack && *path;
  for (size_t i = 0; fine && i < n; i++) nodes[i].before = -1;
  for (size_t i = 0; fine && i < n; i++) {
    if (!nodes[i].visited) visit(trace, nodes, stack, (long)i);
    if (nodes[i].ms > *ms) {
      *ms = nodes[i].ms;
      last = (long)i;
    }
  }
  if (fine) collect(trace, nodes, last, *path, count);
  free(nodes);
  free(stack);
  return fine;
}
