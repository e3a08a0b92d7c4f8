/* A new file takes the place of an old one. Inline, since programs use it, too, and the library
 * exports no internal function. */
#ifndef SL_CORE_BASE_REPLACE_H
#define SL_CORE_BASE_REPLACE_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
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

/* Without the slashes behind the name of a folder: "runs/". */
static inline size_t sl__bare_length(const char *path) {
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  return length;
}

/* The folder that the file's name is in. false: it is too long. */
static inline bool sl__folder_of(const char *path, char folder[PATH_MAX]) {
  size_t length = sl__bare_length(path);
  if (length >= PATH_MAX) return false;
  while (length && path[length - 1] != '/') length--;
  memcpy(folder, length ? path : ".", length ? length : 1);
  folder[length ? length : 1] = '\0';
  return true;
}

static inline bool sl__is_same_name(const char *a, const char *b) {
  size_t end_a = sl__bare_length(a), end_b = sl__bare_length(b), from_a = end_a, from_b = end_b;
  while (from_a && a[from_a - 1] != '/') from_a--;
  while (from_b && b[from_b - 1] != '/') from_b--;
  return end_a - from_a == end_b - from_b && !memcmp(a + from_a, b + from_b, end_a - from_a);
}

/* Do both paths name one file, by whatever names of its folder or symbolic links? Of two hard links
 * each is a file of its own: what is written takes the place of one. The file need not be there
 * yet. false where a folder is missing. */
static inline bool sl__file_is_same(const char *a, const char *b) {
  char in_a[PATH_MAX], in_b[PATH_MAX], real_a[PATH_MAX], real_b[PATH_MAX];
  struct stat info;
  if (sl__is_same_inode(a, b) && realpath(a, real_a) && realpath(b, real_b)) {
    if (stat(a, &info) == 0 && info.st_nlink <= 1) return true;
    a = real_a;
    b = real_b;
  }
  return sl__is_same_name(a, b) && sl__folder_of(a, in_a) && sl__folder_of(b, in_b) &&
         sl__is_same_inode(in_a, in_b);
}

#endif
