/* A trace as a picture: a line a worker, grouped by memory node. */
#ifndef SL_TOOLS_TRACE_GANTT_H
#define SL_TOOLS_TRACE_GANTT_H

#include "tools/trace/text_report.h"

/* By the name's end, .svg or .png. errno's value, or 0. */
int gantt_draw(const struct report *report, const char *path);

#endif
