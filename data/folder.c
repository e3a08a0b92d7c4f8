#include "data/folder.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"

char *sl__join(const char *folder, const char *name) {
  size_t size = strlen(folder) + strlen(name) + 2;
  char *path = sl__alloc(size, 1, "a path");
  if (path) snprintf(path, size, "%s/%s", folder, name);
  return path;
}

bool sl__has_file(const char *folder, const char *name) {
  char path[PATH_MAX];
  int length = snprintf(path, sizeof path, "%s/%s", folder, name);
  return length > 0 && length < PATH_MAX && access(path, F_OK) == 0;
}
