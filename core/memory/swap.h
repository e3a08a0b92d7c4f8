/* Main memory's overflow: a file in a folder of the user's, as a memory node of StarPU's. StarPU's
 * own disks abort where the folder is full; this one says so, and leaves nothing behind, since its
 * file has no name. */
#ifndef SL_CORE_MEMORY_SWAP_H
#define SL_CORE_MEMORY_SWAP_H

#include <starling/base.h>

/* Can the folder be written to, and has it room for a start? Before StarPU runs. */
enum sl_status sl__swap_check(const char *folder);

/* Make it StarPU's; one a process. Ends with StarPU, sl__swap_close comes after that. */
enum sl_status sl__swap_open(const char *folder);
void sl__swap_close(void);

/* SL_OK, or what keeps StarPU from moving tensors out or in: sets the message. */
enum sl_status sl__swap_trouble(void);

/* Bytes written and read so far, and of the file. */
void sl__swap_count(int64_t *out, int64_t *in, int64_t *size);

/* Grows while bytes are on their way. */
int64_t sl__swap_moved(void);

/* Bytes that the folder has room for, those in use included. */
int64_t sl__swap_room(void);

#endif
