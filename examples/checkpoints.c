#include "checkpoints.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "checkpoint-"
#define SUFFIX ".safetensors"
enum { DIGITS = 9 };

static void path_of(const char *folder, int64_t step, char path[PATH_MAX]) {
  int length =
      snprintf(path, PATH_MAX, "%s/" PREFIX "%0*lld" SUFFIX, folder, DIGITS, (long long)step);
  if (length >= PATH_MAX) path[0] = '\0'; /* checkpoints_open has seen to it */
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

/* The checkpoints' steps, newest first; to be freed. NULL with count 0 where there is none, or no
 * memory. */
static int64_t *list(const char *folder, int *count) {
  DIR *directory = opendir(folder);
  int64_t *steps = NULL;
  const char *rest;
  *count = 0;
  for (struct dirent *entry; directory && (entry = readdir(directory));) {
    int64_t step = step_of(entry->d_name, &rest);
    if (step < 0 || *rest) continue;
    int64_t *grown = realloc(steps, ((size_t)*count + 1) * sizeof *steps);
    if (!grown) break;
    steps = grown;
    steps[(*count)++] = step;
  }
  if (directory) closedir(directory);
  if (*count) qsort(steps, (size_t)*count, sizeof *steps, newest_first);
  return steps;
}

bool checkpoints_exist(const char *folder) {
  int count;
  free(list(folder, &count));
  return count > 0;
}

static void remove_asides(const char *folder, DIR *directory) {
  char path[PATH_MAX];
  const char *rest;
  for (struct dirent *entry; (entry = readdir(directory));) {
    if (step_of(entry->d_name, &rest) < 0 || !is_aside(rest)) continue;
    if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < PATH_MAX) unlink(path);
  }
}

int checkpoints_open(const char *folder) {
  if (strlen(folder) + sizeof PREFIX SUFFIX + 18 + 7 > PATH_MAX) return ENAMETOOLONG;
  if (mkdir(folder, 0777) != 0 && errno != EEXIST) return errno;
  DIR *directory = opendir(folder);
  if (!directory) return errno;
  int error = access(folder, W_OK | X_OK) == 0 ? 0 : errno;
  if (!error) remove_asides(folder, directory);
  closedir(directory);
  return error;
}

enum sl_status checkpoints_resume(const char *folder, const char *name, struct sl_context *context,
                                  struct sl_trainer *trainer, struct sl_loader *loader,
                                  char path[PATH_MAX]) {
  enum sl_status status = SL_BAD_FILE;
  bool first = sl_rank(context) == 0; /* it reads; the others go through the motions */
  int count, listed;
  int64_t *steps = list(folder, &listed);
  count = listed;
  enum sl_status told = sl_broadcast(context, &count, sizeof count);
  for (int i = 0; i < count && status == SL_BAD_FILE && told == SL_OK; i++) {
    path_of(folder, first ? steps[i] : 0, path);
    status = sl_trainer_load(trainer, loader, path);
    if (status == SL_BAD_FILE && first) fprintf(stderr, "%s: passed over: %s\n", name, sl_error());
  }
  free(steps);
  if (told != SL_OK) return told;
  if (status == SL_BAD_FILE) path[0] = '\0';
  return status == SL_BAD_FILE ? SL_OK : status;
}

/* Newer ones, damaged and passed over, do not count: else they would cost the run its own. */
static void remove_old(const char *folder, int64_t keep, int64_t newest) {
  char path[PATH_MAX];
  int count;
  int64_t *steps = list(folder, &count), kept = 0;
  for (int i = 0; i < count; i++) {
    if (steps[i] > newest || kept++ < keep) continue;
    path_of(folder, steps[i], path);
    unlink(path); /* one that stays harms nobody */
  }
  free(steps);
}

enum sl_status checkpoints_write(const char *folder, int64_t keep, bool first,
                                 struct sl_trainer *trainer, char path[PATH_MAX]) {
  char written[PATH_MAX];
  int64_t step = sl_trainer_position(trainer).step;
  path_of(folder, step, written);
  enum sl_status status = sl_trainer_save(trainer, written);
  if (status != SL_OK) return status;
  memcpy(path, written, sizeof written);
  if (first) remove_old(folder, keep, step);
  return SL_OK;
}
