/* The lines that a training prints besides its progress. */
#ifndef SL_TOOLS_TRAIN_MESSAGES_H
#define SL_TOOLS_TRAIN_MESSAGES_H

#include "tools/train/session.h"

/* --summary: layers, placement, memory. */
enum sl_status messages_summary(struct session *session);

/* Before the first step: devices, data, model, where a resumed run goes on. */
void messages_plan(struct session *session, const struct sl_fit_begin *begin);

/* A line on the standard output; nothing when quiet. */
void messages_print(const struct session *session, const char *format, ...) SL_PRINTF(2, 3);

/* After the last step: the result, and which files were written. */
void messages_result(struct session *session);

#endif
