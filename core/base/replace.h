/* A new file takes the place of an old one. Inline, since programs use it, too, and the library
 * exports no internal function. */
#ifndef SL_CORE_BASE_REPLACE_H
#define SL_CORE_BASE_REPLACE_H

#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

/* Gives the new file the owner and the mode of the file that it replaces. Only root may give files
 * away, and others only to groups of their own: if the group changes, it gets no more rights than
 * all users had. */
static inline void sl__keep_owner_and_mode(int fd, const struct stat *before) {
  struct stat now;
  mode_t mode = before->st_mode & 0777;
  if (fstat(fd, &now) != 0) return;
  bool same = now.st_uid == before->st_uid && now.st_gid == before->st_gid;
  if (!same && fchown(fd, before->st_uid, before->st_gid) != 0 &&
      fchown(fd, (uid_t)-1, before->st_gid) != 0)
    mode &= ~(mode_t)070 | (mode & 07) << 3;
  if (fchmod(fd, mode) != 0) return; /* a file system without modes; elsewhere it stays private */
}

/* Returns the value of errno, or 0. */
static inline int sl__write_all(int fd, const char *bytes, size_t size) {
  while (size) {
    ssize_t written = write(fd, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    bytes += written;
    size -= (size_t)written;
  }
  return 0;
}

/* Do both paths lead to one file that is there, by whatever names or links? */
static inline bool sl__is_same_inode(const char *a, const char *b) {
  struct stat in_a, in_b;
  return stat(a, &in_a) == 0 && stat(b, &in_b) == 0 && in_a.st_dev == in_b.st_dev &&
         in_a.st_ino == in_b.st_ino;
}

#endif
