/* Signals that end a run orderly; their public functions are in starling/fit.h. */
#ifndef SL_PARALLEL_FIT_SIGNALS_H
#define SL_PARALLEL_FIT_SIGNALS_H

/* "SIGTERM"; NULL: none of those that sl_signals_catch notes. */
const char *sl__signal_text(int number);

#endif
