/* Which implementation serves a shape: measured once, remembered in a file beside StarPU's
 * performance models, fixed during a run. */
#ifndef SL_CODELETS_KERNELS_TUNING_H
#define SL_CODELETS_KERNELS_TUNING_H

#include <starling/base.h>

struct sl__tuning;

/* tune false: *tuning NULL and nothing is read. Else the remembered choices are read; a damaged
 * file is reported on the error stream and replaced. */
enum sl_status sl__tuning_open(bool tune, struct sl__tuning **tuning);
/* Writes what is new. NULL is legal. */
void sl__tuning_close(struct sl__tuning *tuning);

/* The remembered implementation for a key ("conv2d_forward 64x1x28x28 20 5x5"), or -1. Thread-safe.
 */
int sl__tuning_find(struct sl__tuning *tuning, const char *key);
void sl__tuning_set(struct sl__tuning *tuning, const char *key, int implementation);

#endif
