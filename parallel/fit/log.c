#include "parallel/fit/log.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/json.h"

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
  FILE *file;   /* NULL: no log is written */
  double begun; /* seconds, when the log was opened */
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

/* Cuts off the lines from step `steps` on. Returns errno's value, or 0, also without a file. */
static int cut_log(const char *path, int64_t steps) {
  FILE *file = fopen(path, "r+e");
  char *line = NULL;
  size_t size = 0;
  if (!file) return errno == ENOENT ? 0 : errno;
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

int sl__run_log_open(const char *path, int64_t steps, struct sl__run_log **result) {
  int error = path && steps ? cut_log(path, steps) : 0;
  if (error) return error;
  struct sl__run_log *log = calloc(1, sizeof *log);
  if (!log) return ENOMEM;
  log->begun = sl__seconds();
  if (path) {
    log->file = fopen(path, steps ? "ae" : "we");
    if (!log->file) {
      error = errno;
      free(log);
      return error;
    }
    /* a line is one write, also that of a model of many layers */
    setvbuf(log->file, NULL, _IOFBF, 1 << 20);
  }
  *result = log;
  return 0;
}

int sl__run_log_line(struct sl__run_log *log, json_t *object) {
  if (!log->file) {
    json_decref(object);
    return 0;
  }
  char *text = sl__json_text(object, JSON_REAL_PRECISION(9));
  json_decref(object);
  if (!text) return ENOMEM;
  int error = 0;
  errno = 0;
  if (fprintf(log->file, "%s\n", text) < 0 || fflush(log->file) != 0) error = errno ? errno : EIO;
  free(text);
  return error;
}

int sl__run_log_step(struct sl__run_log *log, const struct sl_report *report,
                     const struct sl_trainer *trainer, double samples_per_s) {
  if (!log->file) return 0;
  json_t *line = json_pack("{s:I, s:I, s:f, s:f, s:f, s:f}", "step", (json_int_t)report->step,
                           "epoch", (json_int_t)report->epoch + 1, "loss", report->loss, "lr",
                           sl__json_number(report->lr), "samples_per_s", samples_per_s, "seconds",
                           sl__seconds() - log->begun);
  json_t *losses = report->part_count ? json_object() : NULL;
  for (int i = 0; i < report->part_count; i++)
    sl__json_set(&losses, sl_trainer_part(trainer, i), json_real(report->part_loss[i]));
  if (report->part_count) sl__json_set(&line, "losses", losses);
  if (report->grad_norm >= 0) sl__json_set(&line, "grad_norm", json_real(report->grad_norm));
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
  if (!log->file) return 0;
  json_t *line = json_pack("{s:I}", "epoch", (json_int_t)result->epoch);
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    if (!isnan(values[i].value)) sl__json_set(&line, values[i].key, json_real(values[i].value));
  for (int i = 0; i < result->output_count; i++) {
    char key[sizeof "test_" + sizeof result->outputs->name];
    snprintf(key, sizeof key, "test_%s", result->outputs[i].name);
    sl__json_set(&line, key, json_real(result->outputs[i].value));
  }
  return sl__run_log_line(log, line);
}

int sl__run_log_confusion(struct sl__run_log *log, const struct sl_dataset_info *info,
                          const struct sl_metric *confusion) {
  if (!log->file) return 0;
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
  if (!log->file) return 0;
  return sl__run_log_line(
      log,
      json_pack("{s:I, s:o, s:f, s:f, s:I}", "step", (json_int_t)saved->position.step, "checkpoint",
                sl__json_string(path), "stopped_s", sl__json_number(stopped_s), "write_s",
                sl__json_number(saved->write_s), "bytes", (json_int_t)saved->bytes));
}

int sl__run_log_resumed(struct sl__run_log *log, const char *path, int64_t step,
                        const char *changes) {
  if (!log->file) return 0;
  return sl__run_log_line(
      log, json_pack("{s:I, s:o, s:o}", "step", (json_int_t)step, "resumed", sl__json_string(path),
                     "changed", sl__json_string(changes)));
}

int sl__run_log_close(struct sl__run_log *log) {
  if (!log) return 0;
  int error = log->file && fclose(log->file) != 0 ? errno : 0;
  free(log);
  return error;
}
