/* A trace as a picture: one line for each worker, grouped by memory node. */
#ifndef SL_TOOLS_TRACE_GANTT_H
#define SL_TOOLS_TRACE_GANTT_H

#include "tools/trace/text_report.h"

/* The suffix of the path selects SVG or PNG. Returns errno's value, or 0. */
int gantt_draw(const struct report *report, const char *path);

#endif
