/* --exchange auto: measure which transport carries messages sooner. */
#ifndef SL_PARALLEL_TRAIN_TRANSPORT_PROBE_H
#define SL_PARALLEL_TRAIN_TRANSPORT_PROBE_H

#include <starling/base.h>

/* Collective. Does nothing if the transports are chosen already. */
enum sl_status sl__probe_transports(struct sl_context *context);

#endif
