#include "parallel/fit/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/replace.h"
#include "parallel/fit/folder_lock.h"

/* The folder that a path lies in. */
static int folder_of(const char *path, char *folder, size_t size) {
  const char *slash = strrchr(path, '/');
  size_t length = slash ? (size_t)(slash - path) : 1;
  if (slash == path) length = 1;
  if (length >= size) return ENAMETOOLONG;
  memcpy(folder, slash ? path : ".", length);
  folder[length] = '\0';
  return 0;
}

int sl__output_error(const char *path, bool replace) {
  char folder[PATH_MAX];
  struct stat info;
  bool there = stat(path, &info) == 0;
  if (there && S_ISDIR(info.st_mode)) return EISDIR;
  if (there && access(path, W_OK) != 0) return errno;
  if (there && !replace) return 0;
  int error = folder_of(path, folder, sizeof folder);
  if (error) return error;
  if (stat(folder, &info) != 0) return errno;
  if (!S_ISDIR(info.st_mode)) return ENOTDIR;
  return access(folder, W_OK | X_OK) == 0 ? 0 : errno;
}

struct sl__run_log {
  int file;        /* -1: no log is written */
  bool is_regular; /* no pipe or terminal */
  double begun;    /* seconds, when the log was opened */
};

/* Is it a whole line, and not of a step from `steps` on? The lines of a checkpoint, and
 * of going on from one, tell how many steps are in it. *error: errno's value if that is not known.
 */
static bool is_kept(const char *line, int64_t steps, int *error) {
  json_error_t why;
  json_t *object = sl__json_load(line, strlen(line), 0, &why);
  if (!object && json_error_code(&why) == json_error_out_of_memory) *error = ENOMEM;
  json_t *step = json_object_get(object, "step");
  bool counts = json_object_get(object, "checkpoint") || json_object_get(object, "resumed");
  json_int_t most = (json_int_t)steps - !counts;
  bool kept =
      object && line[strlen(line) - 1] == '\n' && !(step && json_integer_value(step) > most);
  json_decref(object);
  return kept;
}

/* Cuts off the lines from step `steps` on. Returns errno's value, or 0. */
static int cut_log(const char *path, int64_t steps) {
  FILE *file = fopen(path, "r+e");
  char *line = NULL;
  size_t size = 0;
  if (!file) return errno;
  off_t end = 0;
  int error = 0;
  errno = 0;
  while (getline(&line, &size, file) > 0 && is_kept(line, steps, &error)) end = ftello(file);
  /* without memory getline, too, ends as if the file had ended */
  if (!error && (ferror(file) || errno == ENOMEM)) error = errno ? errno : EIO;
  if (!error && ftruncate(fileno(file), end) != 0) error = errno;
  free(line);
  fclose(file);
  return error;
}

/* The run whose line is the file's last of a run. */
static void read_owner(const char *path, char *owner, size_t size) {
  static const char begin[] = "{\"format\"";
  FILE *file = fopen(path, "re");
  char *line = NULL;
  size_t room = 0;
  snprintf(owner, size, "another process");
  while (file && getline(&line, &room, file) > 0) {
    if (strncmp(line, begin, strlen(begin)) != 0) continue;
    json_t *run = sl__json_load(line, strlen(line), 0, NULL);
    const char *host = json_string_value(json_object_get(run, "host"));
    const char *since = json_string_value(json_object_get(run, "time"));
    if (host && since)
      snprintf(owner, size, "host %s, process %lld, since %s", host,
               (long long)json_integer_value(json_object_get(run, "process")), since);
    json_decref(run);
  }
  for (char *c = owner; *c; c++) /* nothing for a terminal */
    if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
  free(line);
  if (file) fclose(file);
}

/* A second run is refused before it changes anything. Pipes and devices, which serve any number of
 * runs, have no lock. */
static int lock_and_cut(struct sl__run_log *log, const char *path, int64_t steps, char *owner,
                        size_t size) {
  struct stat info;
  if (fstat(log->file, &info) != 0) return errno;
  log->is_regular = S_ISREG(info.st_mode);
  if (!log->is_regular) return 0;
  int error = sl__file_lock_take(log->file);
  if (error == EBUSY) read_owner(path, owner, size);
  if (error) return error;
  if (steps) return cut_log(path, steps);
  return ftruncate(log->file, 0) == 0 ? 0 : errno;
}

int sl__run_log_open(const char *path, int64_t steps, struct sl__run_log **result, char *owner,
                     size_t size) {
  struct sl__run_log *log = calloc(1, sizeof *log);
  int error = 0;
  if (!log) return ENOMEM;
  log->begun = sl__seconds();
  log->file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
  if (path) error = log->file < 0 ? errno : lock_and_cut(log, path, steps, owner, size);
  if (error) {
    if (log->file >= 0) close(log->file);
    free(log);
    return error;
  }
  *result = log;
  return 0;
}

int sl__run_log_line(struct sl__run_log *log, json_t *object) {
  if (log->file < 0) {
    json_decref(object);
    return 0;
  }
  char *text = sl__json_text(object, JSON_REAL_PRECISION(9));
  json_decref(object);
  if (!text) return ENOMEM;
  struct stat before;
  bool may_cut = log->is_regular && fstat(log->file, &before) == 0;
  size_t length = strlen(text);
  text[length] = '\n'; /* instead of the NUL: a line is one write */
  int error = sl__write_all(log->file, text, length + 1);
  free(text);
  if (error && may_cut && ftruncate(log->file, before.st_size) != 0) {
    /* half a line stays: the error that is told is the first one */
  }
  return error;
}

int sl__run_log_step(struct sl__run_log *log, const struct sl_report *report,
                     const struct sl_trainer *trainer, double samples_per_s) {
  if (log->file < 0) return 0;
  json_t *line = json_pack("{s:I, s:I, s:f, s:f, s:f, s:f}", "step", (json_int_t)report->step,
                           "epoch", (json_int_t)report->epoch + 1, "loss", report->loss, "lr",
                           sl__json_number(report->lr), "samples_per_s", samples_per_s, "seconds",
                           sl__seconds() - log->begun);
  json_t *losses = report->part_count ? json_object() : NULL;
  for (int i = 0; i < report->part_count; i++)
    sl__json_set(&losses, sl_trainer_part(trainer, i), json_real(report->part_loss[i]));
  if (report->part_count) sl__json_set(&line, "losses", losses);
  if (report->grad_norm >= 0) sl__json_set_finite(&line, "grad_norm", report->grad_norm);
  if (report->grad_variance >= 0)
    sl__json_set(&line, "grad_variance", json_real(report->grad_variance));
  if (report->grad_noise >= 0) sl__json_set(&line, "grad_noise", json_real(report->grad_noise));
  if (report->staleness < 0) return sl__run_log_line(log, line);
  sl__json_set(&line, "staleness", json_real(report->staleness));
  sl__json_set(&line, "most_staleness", json_integer(report->most_staleness));
  return sl__run_log_line(log, line);
}

int sl__run_log_evaluation(struct sl__run_log *log, const struct sl_fit_evaluation *result) {
  const struct {
    const char *key;
    double value;
  } values[] = {
#define SL__FIT_METRIC(key, title, larger, share) {"test_" #key, result->key},
#include "parallel/fit/metrics.def"
#undef SL__FIT_METRIC
  };
  if (log->file < 0) return 0;
  json_t *line = json_pack("{s:I}", "epoch", (json_int_t)result->epoch);
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    sl__json_set_finite(&line, values[i].key, values[i].value);
  for (int i = 0; i < result->output_count; i++) {
    char key[sizeof "test_" + sizeof result->outputs->name];
    snprintf(key, sizeof key, "test_%s", result->outputs[i].name);
    sl__json_set_finite(&line, key, result->outputs[i].value);
  }
  return sl__run_log_line(log, line);
}

int sl__run_log_confusion(struct sl__run_log *log, const struct sl_dataset_info *info,
                          const struct sl_metric *confusion) {
  if (log->file < 0) return 0;
  json_t *line = json_object(), *matrix = json_array(), *classes = json_array();
  int count = (int)sqrt((double)confusion->count);
  for (int label = 0; label < count; label++) {
    json_t *row = json_array();
    for (int answer = 0; answer < count; answer++)
      sl__json_append(&row, json_integer((json_int_t)confusion->each[label * count + answer]));
    sl__json_append(&matrix, row);
  }
  for (int c = 0; info->class_names && c < info->classes; c++)
    sl__json_append(&classes, sl__json_string(info->class_names[c]));
  sl__json_set(&line, "confusion", matrix);
  if (info->class_names)
    sl__json_set(&line, "classes", classes);
  else
    json_decref(classes);
  return sl__run_log_line(log, line);
}

int sl__run_log_end(struct sl__run_log *log, const char *end, double seconds, double samples_per_s,
                    const char *message) {
  json_t *rate = samples_per_s >= 0 ? json_real(samples_per_s) : json_null();
  json_t *why = message ? json_string(message) : NULL; /* NULL, too, where it is no UTF-8 */
  return sl__run_log_line(
      log, json_pack("{s:s, s:f, s:o, s:o}", "end", end, "seconds", seconds, "samples_per_s", rate,
                     "message", why ? why : json_null()));
}

int sl__run_log_checkpoint(struct sl__run_log *log, const char *path, double stopped_s,
                           const struct sl_saved *saved) {
  if (log->file < 0) return 0;
  return sl__run_log_line(
      log,
      json_pack("{s:I, s:o, s:f, s:f, s:I}", "step", (json_int_t)saved->position.step, "checkpoint",
                sl__json_string(path), "stopped_s", sl__json_number(stopped_s), "write_s",
                sl__json_number(saved->write_s), "bytes", (json_int_t)saved->bytes));
}

int sl__run_log_resumed(struct sl__run_log *log, const char *path, int64_t step,
                        const char *changes) {
  if (log->file < 0) return 0;
  return sl__run_log_line(
      log, json_pack("{s:I, s:o, s:o}", "step", (json_int_t)step, "resumed", sl__json_string(path),
                     "changed", sl__json_string(changes)));
}

int sl__run_log_close(struct sl__run_log *log) {
  int error = 0;
  if (!log) return 0;
  if (log->is_regular) sl__file_lock_release(log->file);
  if (log->file >= 0 && close(log->file) != 0) error = errno;
  free(log);
  return error;
}
