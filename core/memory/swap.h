/* The swap file: a file in a folder of the user's, which StarPU uses as a memory node behind
 * main memory. StarPU's own disk nodes abort if the folder is full; this one reports an error.
 * It leaves nothing behind, since its file has no name. */
#ifndef SL_CORE_MEMORY_SWAP_H
#define SL_CORE_MEMORY_SWAP_H

#include <starling/base.h>

/* Before StarPU runs: checks that the folder can be written to and has enough free space. */
enum sl_status sl__swap_check(const char *folder);

/* Registers the folder with StarPU; one for each process. StarPU itself ends its use;
 * sl__swap_close comes after that. */
enum sl_status sl__swap_open(const char *folder);
void sl__swap_close(void);

/* SL_OK, or the error that keeps StarPU from moving tensors; sets the message. */
enum sl_status sl__swap_error(void);

/* Bytes written and read so far, and of the file. */
void sl__swap_count(int64_t *out, int64_t *in, int64_t *size);

/* Number of bytes moved so far, counted while a transfer runs. */
int64_t sl__swap_moved(void);

#endif
