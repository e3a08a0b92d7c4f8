#include "data/folder.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
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

bool sl__is_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool sl__ends_in(const char *path, const char *ending) {
  size_t length = strlen(path), tail = strlen(ending);
  return length > tail && !strcasecmp(path + length - tail, ending);
}

void sl__names_free(struct sl__names *names) {
  for (size_t i = 0; i < names->count; i++) free(names->name[i]);
  free(names->name);
  *names = (struct sl__names){0};
}

enum sl_status sl__names_add(struct sl__names *names, const char *name) {
  if (names->count == names->capacity) {
    size_t capacity = names->capacity ? 2 * names->capacity : 64;
    char **grown = sl__realloc(names->name, capacity, sizeof *grown, "a list of files");
    if (!grown) return SL_NO_MEMORY;
    names->name = grown;
    names->capacity = capacity;
  }
  char *copy = sl__strdup(name);
  if (!copy) return SL_NO_MEMORY;
  names->name[names->count++] = copy;
  return SL_OK;
}

static int compare(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds one entry, if it is of the kind. */
static enum sl_status add_entry(const char *folder, const char *name, bool folders,
                                struct sl__names *names) {
  if (name[0] == '.') return SL_OK;
  char *path = sl__join(folder, name);
  if (!path) return SL_NO_MEMORY;
  bool is_folder = sl__is_folder(path);
  free(path);
  return is_folder == folders ? sl__names_add(names, name) : SL_OK;
}

enum sl_status sl__folder_list(const char *folder, bool folders, struct sl__names *names) {
  enum sl_status status = SL_OK;
  struct dirent *entry;
  DIR *open = opendir(folder);
  if (!open) return sl__fail(SL_IO, "%s: cannot be opened: %s", folder, strerror(errno));
  while (status == SL_OK && (entry = readdir(open)))
    status = add_entry(folder, entry->d_name, folders, names);
  closedir(open);
  if (names->count) qsort(names->name, names->count, sizeof *names->name, compare);
  return status;
}

bool sl__folder_any(const char *folder, bool (*is)(const char *path, const char *name)) {
  char path[PATH_MAX];
  struct dirent *entry;
  bool found = false;
  DIR *open = opendir(folder);
  while (open && !found && (entry = readdir(open))) {
    int length = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    found = entry->d_name[0] != '.' && length < PATH_MAX && is(path, entry->d_name);
  }
  if (open) closedir(open);
  return found;
}
