/* The numbers of a trace as a page of text, and as JSON. */
#ifndef SL_TOOLS_TRACE_TEXT_REPORT_H
#define SL_TOOLS_TRACE_TEXT_REPORT_H

#include <stdio.h>

#include "tools/trace/fxt.h"
#include "tools/trace/trace_stats.h"

struct report {
  const struct trace *trace;
  const struct numbers *numbers;
  const struct window *window;
  const struct roof *roof;
  const char *title;        /* title of the picture; NULL: the program and its steps */
  int stages, microbatches; /* for the theory of pipelines; 0: no pipeline */
};

enum { LONGEST = 10 };

/* Lists the longest tasks, the longest first; returns their number. */
size_t report_longest(const struct trace *trace, long *tasks);

/* Returns false without memory: the text is not whole. */
bool report_print(const struct report *report, FILE *out);

/* Returns errno's value, or 0. */
int report_write_json(const struct report *report, const char *path);

/* "RAM", "CUDA 0's memory" */
const char *report_node(const struct trace *trace, const struct trace_worker *worker, char *text,
                        size_t size);

#endif
