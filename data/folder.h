/* Files of a folder, for readers of datasets. */
#ifndef SL_DATA_FOLDER_H
#define SL_DATA_FOLDER_H

#include <starling/base.h>

/* "folder/name", to be freed; NULL if memory is short. */
char *sl__join(const char *folder, const char *name);

/* Does the file exist, readable or not? */
bool sl__has_file(const char *folder, const char *name);

bool sl__is_folder(const char *path);

/* "data.npy" ends in ".npy", whatever the case of its letters. */
bool sl__ends_in(const char *path, const char *ending);

/* Names in a folder, sorted by their bytes; those that begin with a dot are left out. */
struct sl__names {
  char **name;
  size_t count, capacity;
};

/* Lists the folder's files, or its folders. *names is zeroed before, and is freed by sl__names_free
 * in any case. \return SL_IO, SL_NO_MEMORY. */
enum sl_status sl__folder_list(const char *folder, bool folders, struct sl__names *names);

/* Is there an entry for which `is` returns true? Its path and its name are given. Allocates
 * nothing: a lack of memory never makes another format of a folder. */
bool sl__folder_any(const char *folder, bool (*is)(const char *path, const char *name));

/* Adds a copy. */
enum sl_status sl__names_add(struct sl__names *names, const char *name);
void sl__names_free(struct sl__names *names);

#endif
