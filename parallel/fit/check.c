/* The options of a run: ranges, contradictions, and files that could not be written. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/replace.h"
#include "core/base/tensor_files.h"
#include "nn/formats/model_json.h"
#include "parallel/fit/describe.h"
#include "parallel/fit/fit.h"

struct output {
  const char *option, *path;
};

static enum sl_status check_numbers(const struct sl_fit_options *o) {
  const struct {
    const char *name;
    int64_t value;
  } numbers[] = {{"epochs", o->epochs},     {"steps", o->steps},
                 {"patience", o->patience}, {"checkpoint_every", o->checkpoint_every},
                 {"keep", o->keep},         {"trace_first", o->trace_first}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i].value < 0)
      return sl__fail(SL_BAD_ARGUMENT, "%s %lld: must be at least 0", numbers[i].name,
                      (long long)numbers[i].value);
  if (!(o->min_delta >= 0) || isinf(o->min_delta))
    return sl__fail(SL_BAD_ARGUMENT, "min_delta %g: must be a number of at least 0", o->min_delta);
  if (!(o->checkpoint_minutes >= 0) || isinf(o->checkpoint_minutes))
    return sl__fail(SL_BAD_ARGUMENT, "checkpoint_minutes %g: must be a number of at least 0",
                    o->checkpoint_minutes);
  return SL_OK;
}

/* Options that mean nothing alone are refused, not ignored. */
static enum sl_status check_together(const struct sl_fit_options *o) {
  if (!o->checkpoint && (o->checkpoint_every || o->checkpoint_minutes > 0 || o->keep || o->resume))
    return sl__fail(
        SL_BAD_ARGUMENT,
        "checkpoint_every, checkpoint_minutes, keep, resume: they belong to checkpoint, "
        "which is NULL");
  if (o->checkpoint_every && o->checkpoint_minutes > 0)
    return sl__fail(SL_BAD_ARGUMENT,
                    "checkpoint_every and checkpoint_minutes: give one of the two");
  if (o->min_delta > 0 && !o->patience)
    return sl__fail(SL_BAD_ARGUMENT, "min_delta %g: it belongs to patience, which is 0",
                    o->min_delta);
  if (o->confusion && (!o->validation || !o->log))
    return sl__fail(SL_BAD_ARGUMENT, "confusion: the matrix is of `validation` and goes to `log`");
  if (!o->trace && (o->trace_first || o->trace_last))
    return sl__fail(SL_BAD_ARGUMENT, "trace_first, trace_last: they belong to trace");
  if (o->trace_last < o->trace_first || (o->trace_last && !o->trace_first))
    return sl__fail(SL_BAD_ARGUMENT, "trace_first %lld, trace_last %lld: no such range of steps",
                    (long long)o->trace_first, (long long)o->trace_last);
  return SL_OK;
}

static enum sl_status check_paths(const struct sl_fit_options *o) {
  const struct output paths[] = {
      {"save", o->save}, {"best", o->best}, {"log", o->log}, {"checkpoint", o->checkpoint}};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
    if (paths[i].path && !*paths[i].path)
      return sl__fail(SL_BAD_ARGUMENT, "%s: the path is empty; name a %s, or leave it out",
                      paths[i].option, paths[i].path == o->checkpoint ? "folder" : "file");
  return SL_OK;
}

/* The log is written in place, so that it changes a file by whichever of its hard links; a model
 * takes the place of one of them. */
static bool is_same(const struct output *a, const struct output *b, bool has_log) {
  if (!a->path || !b->path) return false;
  return sl__file_is_same(a->path, b->path) || (has_log && sl__is_same_inode(a->path, b->path));
}

/* Of these files, the log first, one would overwrite the other. */
static enum sl_status check_apart(const struct output *outputs, int count) {
  for (int i = 0; i < count; i++)
    for (int k = 0; k < i; k++)
      if (is_same(&outputs[i], &outputs[k], k == 0))
        return sl__fail(SL_BAD_ARGUMENT,
                        "%s %s: %s writes this file, too, and one would overwrite the other; name "
                        "another file",
                        outputs[i].option, outputs[i].path, outputs[k].option);
  return SL_OK;
}

/* A model's description has its weights in a file beside it, a folder in itself. */
static enum sl_status find_weights(const struct sl_fit_options *o, const char *path,
                                   char **weights) {
  *weights = NULL;
  if (!path) return SL_OK;
  bool folder = o->write && sl__names_folder(path);
  if (!folder && !sl__is_model_json(path)) return SL_OK;
  *weights = folder ? sl__path_in(path, SL__FOLDER_WEIGHTS) : sl__model_json_weights(path);
  return *weights ? SL_OK : SL_NO_MEMORY;
}

/* log: of this rank. */
static enum sl_status check_names(const struct sl_fit_options *o, const char *log) {
  char *saved = NULL, *best = NULL;
  enum sl_status status = find_weights(o, o->save, &saved);
  if (status == SL_OK) status = find_weights(o, o->best, &best);
  const struct output outputs[] = {
      {"log", log}, {"save", o->save}, {"best", o->best}, {"save", saved}, {"best", best}};
  if (status == SL_OK) status = check_apart(outputs, sizeof outputs / sizeof *outputs);
  free(saved);
  free(best);
  return status;
}

enum sl_status sl__fit_check_options(const struct sl_fit_options *o) {
  enum sl_status status = check_numbers(o);
  if (status == SL_OK) status = check_together(o);
  if (status == SL_OK) status = check_paths(o);
  if (status == SL_OK) status = sl__fit_check_metric_name(o->metric);
  if (status == SL_OK) status = sl__fit_check_object("options", o->options);
  if (status == SL_OK) status = sl__fit_check_object("noted", o->noted);
  if (status == SL_OK && o->save) status = sl_model_check_path(o->save);
  if (status == SL_OK && o->best) status = sl_model_check_path(o->best);
  return status;
}

/* ---- files ---- */

enum sl_status sl__fit_fail_file(const char *path, int error) {
  return sl__fail(error == ENOMEM ? SL_NO_MEMORY : SL_IO, "%s: cannot be written: %s%s", path,
                  strerror(error), error == ENOENT ? "; does its folder exist?" : "");
}

static enum sl_status check_file(const char *path, bool replace) {
  int error = path ? sl__output_error(path, replace) : 0;
  if (error) return sl__fit_fail_file(path, error);
  return path && replace ? sl__file_check_target(path) : SL_OK;
}

/* With a function of its own, the program may write a folder. */
static enum sl_status check_weights(const struct sl_fit_options *o, const char *path) {
  if (!path || !o->write || !sl__names_folder(path)) return check_file(path, true);
  if (access(path, F_OK) != 0 || access(path, W_OK) == 0) return SL_OK;
  return sl__fit_fail_file(path, errno);
}

enum sl_status sl__fit_check_outputs(const struct sl_fit_options *o, int rank) {
  char *log = o->log ? sl__fit_own_path(o->log, rank) : NULL;
  if (o->log && !log) return SL_NO_MEMORY;
  enum sl_status status = check_names(o, log);
  if (status == SL_OK) status = check_file(log, false);
  if (status == SL_OK && !rank) status = check_weights(o, o->save);
  if (status == SL_OK && !rank) status = check_weights(o, o->best);
  free(log);
  return status;
}

char *sl__fit_own_path(const char *path, int rank) {
  char *own = NULL;
  const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
  if (!rank) return sl__strdup(path);
  if (!dot || (slash && dot < slash)) dot = path + strlen(path);
  if (asprintf(&own, "%.*s.rank%d%s", (int)(dot - path), path, rank, dot) >= 0) return own;
  sl__fail(SL_NO_MEMORY, "no memory for the name of the log");
  return NULL;
}

enum sl_status sl__fit_take_folder(struct sl__checkpoints *folder, bool resume) {
  char owner[200];
  int error = sl__checkpoints_open(folder, owner, sizeof owner);
  if (error == EBUSY)
    return sl__fail(SL_BAD_ARGUMENT,
                    "checkpoint %s: another run has this folder (%s); name another folder, or end "
                    "that run first",
                    folder->folder, owner);
  bool exist = false;
  if (!error) error = sl__checkpoints_exist(folder, &exist);
  if (error) return sl__fit_fail_file(folder->folder, error);
  if (resume || !exist) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "checkpoint %s: has a run's checkpoints; go on from them (resume), or name "
                  "another folder",
                  folder->folder);
}

static void warn_nobody(void *user, const char *line) {
  (void)user;
  (void)line;
}

enum sl_status sl_fit_check(const struct sl_context *context,
                            const struct sl_fit_options *options) {
  SL__NEEDS(options);
  int rank = context ? sl_rank(context) : 0;
  enum sl_status status = sl__fit_check_options(options);
  if (status == SL_OK) status = sl__fit_check_outputs(options, rank);
  if (status != SL_OK || !options->checkpoint || rank) return status;
  struct sl__checkpoints folder = {.folder = options->checkpoint, .warn = warn_nobody};
  status = sl__fit_take_folder(&folder, options->resume);
  sl__checkpoints_close(&folder);
  return status;
}
