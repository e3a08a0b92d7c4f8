/* The lines that a training prints besides its progress. */
#ifndef SL_TOOLS_TRAIN_MESSAGES_H
#define SL_TOOLS_TRAIN_MESSAGES_H

#include "tools/train/session.h"

/* --summary: layers, placement, memory. */
enum sl_status messages_summary(struct session *session);

/* Before the first step: devices, data, model, where a resumed run goes on. */
void messages_plan(struct session *session);

/* After the last step: the result, and which files were written. */
void messages_result(struct session *session);

#endif
