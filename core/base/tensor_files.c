#include "core/base/tensor_files.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/json.h"

#define INDEX SL__FOLDER_WEIGHTS ".index.json"
#define MOST_INDEX (100u * 1000u * 1000u) /* bytes, as a safetensors header */
enum { MOST_SHARDS = 10000 };

bool sl__names_folder(const char *path) {
  struct stat info;
  size_t length = strlen(path);
  return (length && path[length - 1] == '/') || (stat(path, &info) == 0 && S_ISDIR(info.st_mode));
}

char *sl__path_in(const char *folder, const char *name) {
  size_t length = strlen(folder);
  while (length > 1 && folder[length - 1] == '/') length--;
  if (length == 1 && *folder == '/') length = 0;
  size_t size = length + strlen(name) + 2;
  char *path = sl__alloc(size, 1, "a file's name");
  if (path) snprintf(path, size, "%.*s/%s", (int)length, folder, name);
  return path;
}

/* ---- the index ---- */

/* A name from an index for a message: short, and printable on any terminal. */
static const char *shown(const char *name, char text[64]) {
  size_t i = 0;
  for (; name[i] && i < 60; i++)
    text[i] = (unsigned char)name[i] < ' ' || name[i] == 127 ? '?' : name[i];
  text[i] = '\0';
  return text;
}

/* A name with a '/' from an unknown file is refused: it could be any file's. */
static enum sl_status check_map(const char *path, const json_t *map) {
  const char *tensor;
  const json_t *value;
  char text[64];
  if (!json_is_object(map) || !json_object_size(map))
    return sl__fail(SL_BAD_FILE, "%s: has no \"weight_map\" of tensors and files; is it damaged?",
                    path);
  json_object_foreach((json_t *)map, tensor, value) {
    const char *shard = json_string_value(value);
    if (!shard || !*shard || strchr(shard, '/') || strlen(shard) != json_string_length(value))
      return sl__fail(SL_BAD_FILE,
                      "%s: tensor \"%s\" must have the name of a file in the same folder", path,
                      shown(tensor, text));
  }
  return SL_OK;
}

enum sl_status sl__tensor_index_parse(const char *path, const void *text, size_t size,
                                      json_t **map) {
  json_error_t error;
  char line[64];
  json_t *index = sl__json_load(text, size, JSON_REJECT_DUPLICATES, &error);
  *map = NULL;
  if (!index && json_error_code(&error) == json_error_out_of_memory)
    return sl__fail(SL_NO_MEMORY, "%s: no memory for the list of tensors", path);
  if (!index)
    return sl__fail(SL_BAD_FILE, "%s: line %d: %s; was the download complete?", path, error.line,
                    shown(error.text, line));
  json_t *inner = json_object_get(index, "weight_map");
  enum sl_status status = check_map(path, inner);
  if (status == SL_OK) *map = json_incref(inner);
  json_decref(index);
  return status;
}

/* ---- shards ---- */

static const char *name_in(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static const struct sl__safetensors *find_shard(const struct sl__tensor_files *files,
                                                const char *name) {
  for (size_t i = 0; i < files->count; i++)
    if (!strcmp(name_in(sl__safetensors_path(files->files[i])), name)) return files->files[i];
  return NULL;
}

static enum sl_status add_file(struct sl__tensor_files *files, const char *path) {
  struct sl__safetensors **more =
      sl__realloc(files->files, files->count + 1, sizeof *more, "a list of files");
  if (!more) return SL_NO_MEMORY;
  files->files = more;
  enum sl_status status = sl__safetensors_map(path, &files->files[files->count]);
  if (status == SL_OK) files->count++;
  return status;
}

static enum sl_status add_shard(struct sl__tensor_files *files, const char *folder,
                                const char *name) {
  if (find_shard(files, name)) return SL_OK;
  if (files->count == MOST_SHARDS)
    return sl__fail(SL_BAD_FILE, "%s: names more than %d files", files->path, MOST_SHARDS);
  char *path = sl__path_in(folder, name);
  if (!path) return SL_NO_MEMORY;
  enum sl_status status;
  if (access(path, F_OK) != 0)
    status = sl__fail(SL_IO, "%s: names the file %s, which is missing; was the download complete?",
                      files->path, path);
  else
    status = add_file(files, path);
  free(path);
  return status;
}

/* Each tensor of a shard is in the index, under this shard: else one of several that have the same
 * name would be taken by chance. */
static enum sl_status check_shard(const struct sl__tensor_files *files, const json_t *map,
                                  const struct sl__safetensors *file) {
  const char *path = sl__safetensors_path(file);
  char text[64], other[64];
  for (size_t i = 0; i < sl__safetensors_count(file); i++) {
    const char *name = sl__safetensors_at(file, i)->name;
    const char *shard = json_string_value(json_object_get(map, name));
    if (!shard)
      return sl__fail(SL_BAD_FILE, "%s: has a tensor \"%s\" that %s does not list", path,
                      shown(name, text), files->path);
    if (strcmp(shard, name_in(path)) != 0)
      return sl__fail(SL_BAD_FILE, "%s: has a tensor \"%s\" that %s lists in %s: it is there twice",
                      path, shown(name, text), files->path, shown(shard, other));
  }
  return SL_OK;
}

static enum sl_status open_shards(struct sl__tensor_files *files, const char *folder,
                                  const json_t *map) {
  enum sl_status status = SL_OK;
  const char *tensor;
  const json_t *value;
  char text[64];
  json_object_foreach((json_t *)map, tensor, value)
      SL__TRY(add_shard(files, folder, json_string_value(value)));
  json_object_foreach((json_t *)map, tensor, value) {
    const struct sl__safetensors *file = find_shard(files, json_string_value(value));
    if (!sl__safetensors_find(file, tensor))
      SL__TRY(sl__fail(SL_BAD_FILE, "%s: has no tensor \"%s\", which %s lists there",
                       sl__safetensors_path(file), shown(tensor, text), files->path));
  }
  for (size_t i = 0; i < files->count; i++) SL__TRY(check_shard(files, map, files->files[i]));
out:
  return status;
}

static enum sl_status open_index(struct sl__tensor_files *files) {
  enum sl_status status;
  uint8_t *bytes = NULL;
  size_t size, length = (size_t)(name_in(files->path) - files->path);
  json_t *map = NULL;
  char *folder = sl__strdup(length ? files->path : "./");
  if (!folder) return SL_NO_MEMORY;
  if (length) folder[length] = '\0';
  SL__TRY(sl__file_read_plain(files->path, MOST_INDEX, &bytes, &size));
  SL__TRY(sl__tensor_index_parse(files->path, bytes, size, &map));
  SL__TRY(open_shards(files, folder, map));
out:
  json_decref(map);
  free(bytes);
  free(folder);
  return status;
}

/* ---- both ---- */

/* What is read of a folder: the one file, or the index. */
static enum sl_status find_path(const char *path, char **found) {
  *found = sl__names_folder(path) ? sl__path_in(path, SL__FOLDER_WEIGHTS) : sl__strdup(path);
  if (!*found) return SL_NO_MEMORY;
  if (!sl__names_folder(path) || access(*found, F_OK) == 0) return SL_OK;
  free(*found);
  *found = sl__path_in(path, INDEX);
  if (!*found) return SL_NO_MEMORY;
  if (access(*found, F_OK) == 0) return SL_OK;
  return sl__fail(
      SL_IO, "%s: has neither " SL__FOLDER_WEIGHTS " nor " INDEX "; is it a folder of a model?",
      path);
}

static bool is_index(const char *path) {
  size_t length = strlen(path), end = strlen(".index.json");
  return length > end && !strcmp(path + length - end, ".index.json");
}

enum sl_status sl__tensor_files_open(const char *path, struct sl__tensor_files *files) {
  *files = (struct sl__tensor_files){0};
  enum sl_status status = find_path(path, &files->path);
  if (status != SL_OK) return status;
  return is_index(files->path) ? open_index(files) : add_file(files, files->path);
}

void sl__tensor_files_close(struct sl__tensor_files *files) {
  for (size_t i = 0; i < files->count; i++) sl__safetensors_close(files->files[i]);
  free(files->files);
  free(files->path);
  *files = (struct sl__tensor_files){0};
}

const struct sl__safetensors_entry *sl__tensor_files_find(const struct sl__tensor_files *files,
                                                          const char *name,
                                                          const struct sl__safetensors **file) {
  for (size_t i = 0; i < files->count; i++) {
    const struct sl__safetensors_entry *entry = sl__safetensors_find(files->files[i], name);
    if (!entry) continue;
    if (file) *file = files->files[i];
    return entry;
  }
  return NULL;
}
