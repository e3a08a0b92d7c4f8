/* Signals that end a run orderly; their public functions are in starling/fit.h. */
#ifndef SL_PARALLEL_TRAIN_SIGNALS_H
#define SL_PARALLEL_TRAIN_SIGNALS_H

#include <stdbool.h>

/* Has a signal come that sl_signals_catch, not undone yet, has noted? */
bool sl__signals_ask_stop(void);

/* "SIGTERM"; NULL: none of those that sl_signals_catch notes. */
const char *sl__signal_text(int number);

#endif
