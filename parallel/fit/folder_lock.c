#include "parallel/fit/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"

enum { OWNER = 200 };

/* EBUSY if another run has the lock, of this process or of another one. A file system without locks
 * is used without one. */
static int lock_file(int file) {
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  if (fcntl(file, F_OFD_SETLK, &whole) == 0) return 0;
  if (errno == EINVAL && fcntl(file, F_SETLK, &whole) == 0) return 0; /* an old system */
  if (errno == EACCES || errno == EAGAIN) return EBUSY;
  return errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP || errno == EINVAL ? 0 : errno;
}

/* A job that Slurm requeues may start while a lost node still holds the lock: a file server gives
 * it up within two minutes. Otherwise the predecessor is a process that is about to end. */
static double lock_timeout(void) {
  const char *restarts = getenv("SLURM_RESTART_COUNT");
  return restarts && strcmp(restarts, "0") != 0 ? 150 : 3;
}

/* Is there time to try again after this error? Then a moment has passed. */
static bool may_retry(int error, double until) {
  if ((error != EBUSY && error != EAGAIN) || sl__seconds() >= until) return false;
  nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  return true;
}

int sl__file_lock_take(int file) {
  double until = sl__seconds() + lock_timeout();
  int error;
  do error = lock_file(file);
  while (may_retry(error, until));
  return error;
}

void sl__file_lock_release(int file) {
  struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
  if (fcntl(file, F_OFD_SETLK, &whole) != 0) fcntl(file, F_SETLK, &whole);
}

/* The last owner may have removed the file between open and lock: then the lock is of no use. */
static bool is_still_there(int file, const char *path) {
  struct stat open_one, named;
  return fstat(file, &open_one) == 0 && lstat(path, &named) == 0 &&
         open_one.st_ino == named.st_ino && open_one.st_dev == named.st_dev;
}

static void write_owner(int file) {
  char host[80] = "?", when[32] = "", text[OWNER];
  time_t now = time(NULL);
  struct tm local;
  gethostname(host, sizeof host - 1);
  strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &local));
  int length =
      snprintf(text, sizeof text, "host %s, process %d, since %s\n", host, (int)getpid(), when);
  /* for messages alone: the lock holds without it */
  if (ftruncate(file, 0) != 0 || pwrite(file, text, (size_t)length, 0) != length) return;
}

static void read_owner(int file, char *owner, size_t size) {
  ssize_t length = pread(file, owner, size - 1, 0);
  owner[length > 0 ? length : 0] = '\0';
  for (char *c = owner; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 127) *c = '\0'; /* one line, and nothing for a terminal */
  if (!*owner) snprintf(owner, size, "another process");
}

static int try_to_take(struct sl__folder_lock *lock, char *owner, size_t size) {
  int file = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file < 0) return errno;
  int error = lock_file(file);
  if (!error && !is_still_there(file, lock->path)) error = EAGAIN;
  if (error == EBUSY) read_owner(file, owner, size);
  if (error) {
    close(file);
    return error;
  }
  write_owner(file);
  lock->file = file;
  return 0;
}

int sl__folder_lock_take(struct sl__folder_lock *lock, const char *folder, char *owner,
                         size_t size) {
  double until = sl__seconds() + lock_timeout();
  int error;
  lock->file = 0;
  if (snprintf(lock->path, sizeof lock->path, "%s/lock", folder) >= (int)sizeof lock->path)
    return ENAMETOOLONG;
  do error = try_to_take(lock, owner, size);
  while (may_retry(error, until));
  return error;
}

void sl__folder_lock_release(struct sl__folder_lock *lock) {
  if (!lock->file) return;
  if (is_still_there(lock->file, lock->path)) unlink(lock->path);
  close(lock->file);
  lock->file = 0;
}
