/* One run a folder of checkpoints, and a log: two of them would remove each other's files, and mix
 * their lines. The lock is fcntl's, which NFS and other shared file systems pass on to all nodes
 * and which ends with the open file, and so with the process, however that ends; the locked file
 * says who holds it. */
#ifndef SL_PARALLEL_FIT_FOLDER_LOCK_H
#define SL_PARALLEL_FIT_FOLDER_LOCK_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct sl__folder_lock {
  int file; /* 0: not locked */
  char path[PATH_MAX];
};

/* Locks FOLDER/lock. If another process holds it, waits for some seconds. Returns 0, errno's value,
 * or EBUSY; then `owner` says who holds it: "host node7, process 4711, since 12:00:05". */
int sl__folder_lock_take(struct sl__folder_lock *lock, const char *folder, char *owner,
                         size_t size);

/* Removes the file and the lock; does nothing if it is not locked. */
void sl__folder_lock_release(struct sl__folder_lock *lock);

/* Locks an open file in the same way, for as long as this process has it open. Returns 0, errno's
 * value, or EBUSY. */
int sl__file_lock_take(int file);
/* Before it is closed: a child of this process may still have it open. */
void sl__file_lock_release(int file);

#endif
