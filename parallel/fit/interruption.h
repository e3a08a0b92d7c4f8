/* Signals that end a training orderly. */
#ifndef SL_PARALLEL_FIT_INTERRUPTION_H
#define SL_PARALLEL_FIT_INTERRUPTION_H

#include <stdbool.h>

/* From now on SIGINT, SIGTERM, SIGHUP (unless nohup ignores it) and SIGUSR1 are noted; a second one
 * ends the process. Writing into a closed pipe or a file at its limit is an error, no signal. */
void interruption_catch(void);

/* Has a signal come? */
bool interruption_came(void);

/* The signal that ended the run early; "another rank" if this process has got none. */
const char *interruption_name(void);

/* Ends the process by the signal that came. */
void interruption_end(void);

#endif
