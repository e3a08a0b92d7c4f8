/* The tensors of one safetensors file, or of a folder as Hugging Face writes them:
 * model.safetensors, or several files ("shards") that model.safetensors.index.json lists. */
#ifndef SL_CORE_BASE_TENSOR_FILES_H
#define SL_CORE_BASE_TENSOR_FILES_H

#include "core/base/safetensors.h"

struct sl__tensor_files {
  char *path; /* of the file, or of the index */
  struct sl__safetensors **files;
  size_t count;
};

/* path: a file, an index, or a folder. Files are mapped. SL_IO for a shard that is not there;
 * SL_BAD_FILE for a damaged index, and where index and shards differ. Close it after a failure,
 * too. */
enum sl_status sl__tensor_files_open(const char *path, struct sl__tensor_files *files);
void sl__tensor_files_close(struct sl__tensor_files *files); /* legal for a zeroed one */

/* NULL if there is no tensor of that name; *file: the one that has it. */
const struct sl__safetensors_entry *sl__tensor_files_find(const struct sl__tensor_files *files,
                                                          const char *name,
                                                          const struct sl__safetensors **file);

/* The one file's name in a folder. */
#define SL__FOLDER_WEIGHTS "model.safetensors"

/* path is a folder, or would be one: it ends in '/'. */
bool sl__names_folder(const char *path);
/* "FOLDER/name", with one '/'; to be freed. NULL: no memory. */
char *sl__path_in(const char *folder, const char *name);

/* The text of an index: {"weight_map": {"tensor": "name of a shard", ...}}. *map is the inner
 * object, a json_t with one reference; path is for messages. */
struct json_t;
enum sl_status sl__tensor_index_parse(const char *path, const void *text, size_t size,
                                      struct json_t **map);

#endif
