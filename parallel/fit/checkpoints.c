#include "parallel/fit/checkpoints.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/json.h"

#define PREFIX "checkpoint-"
#define SUFFIX ".safetensors"
#define NAME_OF_STEP PREFIX "%0*lld" SUFFIX
#define MANIFEST "manifest.json"
#define MANIFEST_FORMAT "starling checkpoints"
enum { DIGITS = 9, MANIFEST_VERSION = 1 };

static void path_of(const char *folder, int64_t step, char path[PATH_MAX]) {
  int length = snprintf(path, PATH_MAX, "%s/" NAME_OF_STEP, folder, DIGITS, (long long)step);
  if (length >= PATH_MAX) path[0] = '\0'; /* sl__checkpoints_open has seen to it */
}

/* The step in a file's name, and what is behind the name; -1 where it is no checkpoint's. */
static int64_t step_of(const char *name, const char **rest) {
  if (strncmp(name, PREFIX, strlen(PREFIX)) != 0) return -1;
  name += strlen(PREFIX);
  size_t digits = strspn(name, "0123456789");
  if (digits < DIGITS || digits > 18) return -1;
  if (strncmp(name + digits, SUFFIX, strlen(SUFFIX)) != 0) return -1;
  *rest = name + digits + strlen(SUFFIX);
  return strtoll(name, NULL, 10);
}

/* The library writes aside, to NAME.1a2b3c. */
static bool is_aside(const char *rest) {
  return strlen(rest) == 7 && *rest == '.' && strspn(rest + 1, "0123456789abcdef") == 6;
}

static int newest_first(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x < y) - (x > y);
}

static int append(int64_t **steps, int *count, int64_t step) {
  int64_t *grown = realloc(*steps, ((size_t)*count + 1) * sizeof **steps);
  if (!grown) return ENOMEM;
  *steps = grown;
  (*steps)[(*count)++] = step;
  return 0;
}

/* The checkpoints' steps, newest first; to be freed. Returns errno's value, or 0: a part of the
 * list would look like a folder that lost files. */
static int list(const char *folder, int64_t **steps, int *count) {
  const char *rest;
  struct dirent *entry;
  int error = 0;
  *steps = NULL;
  *count = 0;
  DIR *directory = opendir(folder);
  if (!directory) return errno;
  while (!error && (errno = 0, entry = readdir(directory))) {
    int64_t step = step_of(entry->d_name, &rest);
    if (step >= 0 && !*rest) error = append(steps, count, step);
  }
  if (!error) error = errno;
  closedir(directory);
  if (*count) qsort(*steps, (size_t)*count, sizeof **steps, newest_first);
  if (!error) return 0;
  free(*steps);
  *steps = NULL;
  *count = 0;
  return error;
}

static enum sl_status status_of(int error) {
  return !error ? SL_OK : error == ENOMEM ? SL_NO_MEMORY : SL_IO;
}

int sl__checkpoints_exist(const struct sl__checkpoints *c, bool *exist) {
  int64_t *steps;
  int count, error = list(c->folder, &steps, &count);
  free(steps);
  *exist = count > 0;
  return error;
}

/* Has a name the form of a file that is being written aside? */
static bool is_left_over(const char *name) {
  const char *rest;
  if (step_of(name, &rest) >= 0) return is_aside(rest);
  return strncmp(name, MANIFEST, strlen(MANIFEST)) == 0 && is_aside(name + strlen(MANIFEST));
}

static void remove_asides(const char *folder, DIR *directory) {
  char path[PATH_MAX];
  for (struct dirent *entry; (entry = readdir(directory));)
    if (is_left_over(entry->d_name) &&
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < PATH_MAX)
      unlink(path);
}

int sl__checkpoints_open(struct sl__checkpoints *c, char *owner, size_t size) {
  if (strlen(c->folder) + sizeof PREFIX SUFFIX + 18 + 7 > PATH_MAX) return ENAMETOOLONG;
  if (sl_folder_make(c->folder) != SL_OK) return errno;
  DIR *directory = opendir(c->folder);
  if (!directory) return errno;
  int error = access(c->folder, W_OK | X_OK) == 0 ? 0 : errno;
  if (!error) error = sl__folder_lock_take(&c->lock, c->folder, owner, size);
  if (!error) remove_asides(c->folder, directory);
  closedir(directory);
  return error;
}

void sl__checkpoints_close(struct sl__checkpoints *c) {
  sl__folder_lock_release(&c->lock);
  json_decref(c->listed);
}

/* ---- the manifest ---- */

static bool manifest_path(const struct sl__checkpoints *c, char path[PATH_MAX]) {
  return snprintf(path, PATH_MAX, "%s/" MANIFEST, c->folder) < PATH_MAX;
}

/* By getters: json_unpack allocates, and without memory a whole entry would count as damaged. */
static bool is_entry(const json_t *entry) {
  const char *file = json_string_value(json_object_get(entry, "file")), *rest = "";
  const char *hash = json_string_value(json_object_get(entry, "xxh64"));
  const json_t *step = json_object_get(entry, "step");
  int64_t named = file ? step_of(file, &rest) : -1;
  return named >= 0 && !*rest && json_is_integer(step) && json_integer_value(step) == named &&
         json_is_integer(json_object_get(entry, "bytes")) && hash && strlen(hash) == 16;
}

static bool is_list(const json_t *list) {
  bool good = json_is_array(list);
  for (size_t i = 0; i < json_array_size(list); i++) good &= is_entry(json_array_get(list, i));
  return good;
}

const char *sl__checkpoints_listed(const json_t *root, json_t **list) {
  const char *format = json_string_value(json_object_get(root, "format"));
  *list = json_object_get(root, "checkpoints");
  if (!format || strcmp(format, MANIFEST_FORMAT) != 0 ||
      json_integer_value(json_object_get(root, "version")) != MANIFEST_VERSION)
    return "of another format or version";
  return is_list(*list) ? NULL : "an entry is damaged";
}

/* NULL where it is whole, and its list is taken; else why it is not. */
static const char *read_manifest(struct sl__checkpoints *c, const char *path, json_error_t *error) {
  json_t *list, *root = sl__json_load_file(path, JSON_REJECT_DUPLICATES, error);
  const char *why = root ? sl__checkpoints_listed(root, &list) : error->text;
  if (!why) c->listed = json_incref(list);
  json_decref(root);
  return why;
}

/* The manifest's entry of a step; NULL if there is none. */
static json_t *find_entry(const struct sl__checkpoints *c, int64_t step) {
  size_t i;
  json_t *entry;
  json_array_foreach(c->listed, i, entry) {
    if (json_integer_value(json_object_get(entry, "step")) == step) return entry;
  }
  return NULL;
}

static json_t *new_entry(const struct sl_saved *saved) {
  char file[64], hash[17], text[32];
  time_t now = time(NULL);
  struct tm utc;
  snprintf(file, sizeof file, NAME_OF_STEP, DIGITS, (long long)saved->position.step);
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)saved->xxh64);
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  return json_pack("{s:s, s:I, s:s, s:I, s:I, s:s}", "file", file, "bytes",
                   (json_int_t)saved->bytes, "xxh64", hash, "step",
                   (json_int_t)saved->position.step, "epoch", (json_int_t)saved->position.epoch,
                   "time", text);
}

/* Is it one of those that stay: the newest ones, this one included? Newer ones, damaged and passed
 * over, do not count: else they would cost the run its own. */
static bool is_kept(const struct sl__checkpoints *c, int64_t step, int64_t newest, int64_t *kept) {
  return step <= newest && (*kept)++ < c->keep;
}

/* Lists the files that stay and have an entry: a killed run may have written a file without one. */
static enum sl_status update_list(struct sl__checkpoints *c, const struct sl_saved *saved) {
  int count;
  int64_t *steps, kept = 0;
  enum sl_status status = status_of(list(c->folder, &steps, &count));
  json_t *listed = json_array();
  if (!listed && status == SL_OK) status = SL_NO_MEMORY;
  for (int i = 0; i < count && status == SL_OK; i++) {
    if (!is_kept(c, steps[i], saved->position.step, &kept)) continue;
    bool is_new = steps[i] == saved->position.step;
    json_t *entry = is_new ? new_entry(saved) : json_incref(find_entry(c, steps[i]));
    if ((entry || is_new) && json_array_append_new(listed, entry) != 0) status = SL_NO_MEMORY;
  }
  free(steps);
  json_t *unused = status == SL_OK ? c->listed : listed;
  if (status == SL_OK) c->listed = listed;
  json_decref(unused);
  return status;
}

static enum sl_status write_manifest(const struct sl__checkpoints *c) {
  char path[PATH_MAX];
  json_t *root = json_pack("{s:s, s:i, s:O}", "format", MANIFEST_FORMAT, "version",
                           MANIFEST_VERSION, "checkpoints", c->listed);
  char *text = sl__json_text(root, JSON_INDENT(2));
  enum sl_status status = SL_NO_MEMORY;
  if (text && manifest_path(c, path)) status = sl_file_write(path, text, strlen(text));
  free(text);
  json_decref(root);
  return status;
}

/* ---- going on ---- */

static void warn(const struct sl__checkpoints *c, const char *format, ...) SL_PRINTF(2, 3);
static void warn(const struct sl__checkpoints *c, const char *format, ...) {
  char line[2 * PATH_MAX + 300];
  va_list list;
  va_start(list, format);
  vsnprintf(line, sizeof line, format, list);
  va_end(list);
  c->warn(c->user, line);
}

/* Does the file match its entry in the manifest? SL_BAD_FILE after a warning that says why not;
 * another status if it cannot be read. Without an entry (the run was killed before it wrote one)
 * the file's own checksum decides. */
static enum sl_status check_as_listed(const struct sl__checkpoints *c, int64_t step,
                                      const char *path) {
  uint64_t bytes, hash;
  char text[17];
  const json_t *entry = find_entry(c, step);
  if (!entry) return SL_OK;
  int64_t listed = json_integer_value(json_object_get(entry, "bytes"));
  const char *wanted = json_string_value(json_object_get(entry, "xxh64"));
  enum sl_status status = sl_file_sum(path, &bytes, &hash);
  if (status != SL_OK) return status;
  snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
  if ((int64_t)bytes == listed && strcmp(text, wanted) == 0) return SL_OK;
  if ((int64_t)bytes != listed)
    warn(c, "passed over: %s: damaged: it has %lld bytes, not the manifest's %lld", path,
         (long long)bytes, (long long)listed);
  else
    warn(c, "passed over: %s: damaged: its XXH64 is %s, not the manifest's %s", path, text, wanted);
  return SL_BAD_FILE;
}

/* Reports files that are in the manifest, but not in the folder. */
static void tell_gone(const struct sl__checkpoints *c, const int64_t *steps, int count) {
  size_t i;
  json_t *entry;
  json_array_foreach(c->listed, i, entry) {
    int64_t step = json_integer_value(json_object_get(entry, "step"));
    bool there = false;
    for (int k = 0; k < count; k++) there |= steps[k] == step;
    if (!there)
      warn(c, "passed over: %s/%s: is gone, though the manifest lists it", c->folder,
           json_string_value(json_object_get(entry, "file")));
  }
}

/* Is it the manifest's fault that it was not read? */
static bool is_damage(const json_error_t *error) {
  enum json_error_code code = json_error_code(error);
  return code != json_error_out_of_memory && code != json_error_cannot_open_file;
}

/* The steps of the files in the folder, newest first. Returns errno's value, or 0. */
static int survey(struct sl__checkpoints *c, int64_t **steps, int *count) {
  char path[PATH_MAX];
  json_error_t error = {.text = ""};
  int failed = list(c->folder, steps, count);
  if (failed || !manifest_path(c, path)) return failed;
  bool there = access(path, F_OK) == 0;
  if (!there && !*count) return 0; /* a beginning */
  errno = 0;
  const char *why = there ? read_manifest(c, path, &error) : "is missing";
  if (why == error.text && !is_damage(&error)) return errno ? errno : ENOMEM;
  if (why) warn(c, "%s: %s; the checkpoints' own checksums must do", path, why);
  tell_gone(c, *steps, *count);
  return 0;
}

/* Newer ones than that, damaged or gone, will be written anew: with other options, and one that is
 * whole must not be held against its predecessor's checksum. */
static void forget_newer(struct sl__checkpoints *c, int64_t step) {
  bool forgets = false;
  for (size_t i = json_array_size(c->listed); i-- > 0;) {
    if (json_integer_value(json_object_get(json_array_get(c->listed, i), "step")) <= step) continue;
    json_array_remove(c->listed, i);
    forgets = true;
  }
  if (forgets) write_manifest(c); /* where it cannot be, the next checkpoint's says so */
}

enum sl_status sl__checkpoints_resume(struct sl__checkpoints *c, struct sl_context *context,
                                      struct sl_trainer *trainer, struct sl_loader *loader) {
  bool first = sl_rank(context) == 0; /* rank 0 reads; the others join the collective calls */
  int count = 0;
  int64_t *steps = NULL;
  char why[PATH_MAX + 100];
  int error = first ? survey(c, &steps, &count) : 0;
  snprintf(why, sizeof why, "%s: its checkpoints cannot be read: %s", c->folder, strerror(error));
  enum sl_status status = sl_share(context, status_of(error), why);
  if (status == SL_OK) status = sl_broadcast(context, &count, sizeof count);
  if (status == SL_OK) status = SL_BAD_FILE;
  for (int i = 0; i < count && status == SL_BAD_FILE; i++) {
    path_of(c->folder, first ? steps[i] : 0, c->newest);
    enum sl_status found = first ? check_as_listed(c, steps[i], c->newest) : SL_OK;
    int damaged = found == SL_BAD_FILE;
    status = sl_share(context, damaged ? SL_OK : found, sl_error());
    if (status == SL_OK) status = sl_broadcast(context, &damaged, sizeof damaged);
    if (status == SL_OK)
      status = damaged ? SL_BAD_FILE : sl_trainer_load(trainer, loader, c->newest);
    if (status == SL_BAD_FILE && first && !damaged) warn(c, "passed over: %s", sl_error());
  }
  free(steps);
  if (status == SL_BAD_FILE) c->newest[0] = '\0';
  bool goes_on = status == SL_OK || status == SL_BAD_FILE;
  if (first && goes_on) forget_newer(c, sl_trainer_position(trainer).step);
  return status == SL_BAD_FILE ? SL_OK : status;
}

/* ---- saving ---- */

static void remove_old(const struct sl__checkpoints *c, int64_t newest) {
  char path[PATH_MAX];
  int count;
  int64_t *steps, kept = 0;
  if (list(c->folder, &steps, &count) != 0) return; /* the next checkpoint tries again */
  for (int i = 0; i < count; i++) {
    if (steps[i] > newest || is_kept(c, steps[i], newest, &kept)) continue;
    path_of(c->folder, steps[i], path);
    unlink(path); /* an old file that stays does no harm */
  }
  free(steps);
}

/* By the thread that has written it. */
static enum sl_status committed(void *user, const struct sl_saved *saved) {
  struct sl__checkpoints *c = user;
  enum sl_status status = update_list(c, saved);
  path_of(c->folder, saved->position.step, c->newest);
  if (status == SL_OK) status = write_manifest(c);
  if (status == SL_OK) remove_old(c, saved->position.step);
  return status;
}

enum sl_status sl__checkpoints_begin(struct sl__checkpoints *c, struct sl_trainer *trainer,
                                     const char *options) {
  const struct sl_save_options then = {.options = options, .committed = committed, .user = c};
  char path[PATH_MAX];
  path_of(c->folder, sl_trainer_position(trainer).step, path);
  return sl_trainer_save_begin(trainer, path, &then);
}
