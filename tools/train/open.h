/* The parts of a session in the order in which they are opened. */
#ifndef SL_TOOLS_TRAIN_OPEN_H
#define SL_TOOLS_TRAIN_OPEN_H

#include "tools/train/session.h"

/* One text in windows; else images, or sentences. */
bool session_is_one_text(const struct session *session, const struct sl_dataset_info *info);

int session_open_data(struct session *session);
int session_check_data(struct session *session);
enum sl_status session_open_context(struct session *session);
enum sl_status session_open_model(struct session *session); /* the context, too, if there is none */
int session_check_model(struct session *session);           /* does it fit the data? */
enum sl_status session_set_model(struct session *session);  /* metadata, places, weights */
int session_check_share(struct session *session);           /* a batch and the data of a rank */
enum sl_status session_open_loaders(struct session *session);
void session_plan_steps(struct session *session);
enum sl_status session_open_trainer(struct session *session);

#endif
