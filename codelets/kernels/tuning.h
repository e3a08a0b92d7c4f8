/* Remembers which implementation serves a shape: measured once, saved in a file beside StarPU's
 * performance models, fixed during a run. */
#ifndef SL_CODELETS_KERNELS_TUNING_H
#define SL_CODELETS_KERNELS_TUNING_H

#include <starling/base.h>

struct sl__tuning;

/* If tune is false, *tuning is NULL and no file is read. Else it reads, in this folder, the
 * remembered choices; it reports a damaged file on the error stream and replaces it. */
enum sl_status sl__tuning_open(bool tune, const char *folder, struct sl__tuning **tuning);
/* The choices of a file's bytes, without a file: those of another machine and damaged ones count as
 * none. NULL without memory. *whole: the bytes are such a file. */
struct sl__tuning *sl__tuning_parse(const char *machine, const uint8_t *bytes, size_t size,
                                    bool *whole);
/* Writes new choices to the file. Accepts NULL. */
void sl__tuning_close(struct sl__tuning *tuning);

/* Returns the remembered implementation for a key ("conv2d_forward 64x1x28x28 20 5x5"), or -1.
 * Thread-safe. */
int sl__tuning_find(struct sl__tuning *tuning, const char *key);
void sl__tuning_set(struct sl__tuning *tuning, const char *key, int implementation);

#endif
