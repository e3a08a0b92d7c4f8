/* Files of a folder, for readers of datasets. */
#ifndef SL_DATA_FOLDER_H
#define SL_DATA_FOLDER_H

#include <stdbool.h>

/* "folder/name", to be freed; NULL if memory is short. */
char *sl__join(const char *folder, const char *name);

/* Does the file exist, readable or not? */
bool sl__has_file(const char *folder, const char *name);

#endif
