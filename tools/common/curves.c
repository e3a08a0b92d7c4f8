/* A log is JSON lines: {"format","version",...} where a process begins (older logs have none),
 * {"step","epoch","loss","lr","samples_per_s","seconds"} a step,
 * {"epoch","test_loss","test_accuracy",...} an evaluation, and others; see doc/log.md. An
 * evaluation belongs to the last step before it. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "core/base/json.h"
#include "tools/common/curves.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

struct reader {
  const char *path;
  long line;
  double steps;                   /* done so far */
  double seconds, seconds_before; /* of this process until its last step; of those before it */
  bool has_no_epochs, has_no_times;
  char *message;
  size_t size;
};

/* Newer logs may hold what this program would misread. */
#define LOG_FORMAT "starling log"
enum { LOG_VERSION = 1 };
static const double MOST_STEPS = 1e15;

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "(unconfigured)"
#endif

__attribute__((format(printf, 2, 3))) static bool refuse(struct reader *reader, const char *format,
                                                         ...) {
  va_list list;
  int used = snprintf(reader->message, reader->size, "%s:%ld: ", reader->path, reader->line);
  size_t at = (size_t)used < reader->size ? (size_t)used : reader->size;
  va_start(list, format);
  vsnprintf(reader->message + at, reader->size - at, format, list);
  va_end(list);
  for (char *c = reader->message; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 127) *c = '?'; /* one line, whatever the log has in it */
  return false;
}

bool series_append(struct series *series, double x, double y) {
  if (series->count == series->capacity) {
    size_t capacity = series->capacity ? 2 * series->capacity : 256;
    struct sample *grown = realloc(series->samples, capacity * sizeof *grown);
    if (!grown) return false;
    series->samples = grown;
    series->capacity = capacity;
  }
  series->samples[series->count++] = (struct sample){x, y};
  return true;
}

static bool read_number(struct reader *reader, const json_t *object, const char *key,
                        double *value) {
  const json_t *number = json_object_get(object, key);
  if (!number) return refuse(reader, "has no \"%s\"; is this a training log?", key);
  if (!json_is_number(number)) return refuse(reader, "\"%s\" is not a number", key);
  *value = json_number_value(number);
  return true;
}

static bool append_if(struct series *series, double x, const json_t *number) {
  return !json_is_number(number) || series_append(series, x, json_number_value(number));
}

/* A step's epoch, and its time: each process counts from 0, so the times of processes add up. Logs
 * without them cannot be drawn over epochs or seconds. */
static bool append_position(struct reader *reader, const json_t *object, struct run_curves *run) {
  const json_t *epoch = json_object_get(object, "epoch"),
               *time = json_object_get(object, "seconds");
  if (!json_is_integer(epoch)) reader->has_no_epochs = true;
  if (!json_is_number(time)) reader->has_no_times = true;
  if (json_is_number(time)) reader->seconds = json_number_value(time);
  return append_if(&run->epochs, reader->steps, epoch) &&
         series_append(&run->seconds, reader->steps, reader->seconds_before + reader->seconds);
}

static bool read_step(struct reader *reader, const json_t *object, struct run_curves *run) {
  double step = 0, loss = 0;
  if (!read_number(reader, object, "step", &step) || !read_number(reader, object, "loss", &loss))
    return false;
  if (!(step >= reader->steps && step < MOST_STEPS))
    return refuse(reader, "the step is not after the one before; two logs in one file?");
  reader->steps = step + 1;
  if (!append_position(reader, object, run)) return refuse(reader, "no memory");
  if (!series_append(&run->loss, step + 1, loss) ||
      !append_if(&run->lr, step + 1, json_object_get(object, "lr")) ||
      !append_if(&run->rate, step + 1, json_object_get(object, "samples_per_s")))
    return refuse(reader, "no memory");
  return true;
}

/* NULL: no memory. */
static struct series *metric_of(struct run_curves *run, const char *key) {
  for (size_t i = 0; i < run->metric_count; i++)
    if (!strcmp(run->metrics[i].key, key)) return &run->metrics[i].values;
  size_t size = (run->metric_count + 1) * sizeof *run->metrics;
  struct metric_curve *grown = realloc(run->metrics, size);
  if (!grown) return NULL;
  run->metrics = grown;
  grown[run->metric_count] = (struct metric_curve){.key = strdup(key)};
  return grown[run->metric_count].key ? &grown[run->metric_count++].values : NULL;
}

const struct series *curves_metric(const struct run_curves *run, const char *key) {
  for (size_t i = 0; i < run->metric_count; i++)
    if (!strcmp(run->metrics[i].key, key)) return &run->metrics[i].values;
  return NULL;
}

/* Of loss and accuracy, which have fields of their own, there is none. */
static bool read_metrics(struct reader *reader, const json_t *object, struct run_curves *run) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    bool own = !strcmp(key, "test_loss") || !strcmp(key, "test_accuracy");
    if (own || strncmp(key, "test_", 5) != 0 || !json_is_number(value)) continue;
    struct series *series = metric_of(run, key + 5);
    if (!series || !series_append(series, reader->steps, json_number_value(value))) return false;
  }
  return true;
}

static bool read_evaluation(struct reader *reader, const json_t *object, struct run_curves *run) {
  bool has_accuracy = json_object_get(object, "test_accuracy"); /* a regression has none */
  double loss = 0, accuracy = 0;
  if (!read_number(reader, object, "test_loss", &loss) ||
      (has_accuracy && !read_number(reader, object, "test_accuracy", &accuracy)))
    return false;
  if (!(accuracy >= 0 && accuracy <= 1))
    return refuse(reader, "\"test_accuracy\" is not between 0 and 1");
  if (!series_append(&run->test_loss, reader->steps, loss) ||
      (has_accuracy && !series_append(&run->test_accuracy, reader->steps, accuracy)) ||
      !read_metrics(reader, object, run))
    return refuse(reader, "no memory");
  return true;
}

static bool check_version(struct reader *reader, const json_t *object) {
  const char *format = json_string_value(json_object_get(object, "format"));
  const json_t *version = json_object_get(object, "version");
  const char *producer = json_string_value(json_object_get(object, "producer"));
  if (!format || strcmp(format, LOG_FORMAT) != 0)
    return refuse(reader, "\"format\" is not \"" LOG_FORMAT "\"; is this a training log?");
  if (!json_is_integer(version) || json_integer_value(version) < 1)
    return refuse(reader, "\"version\" is not a whole number from 1 on");
  if (json_integer_value(version) <= LOG_VERSION) return true;
  return refuse(reader,
                "the log is of version %lld (by %.40s), this program (Starling " PACKAGE_VERSION
                ") reads up to version %d; take a newer one",
                (long long)json_integer_value(version), producer ? producer : "?", LOG_VERSION);
}

/* A process that goes on may have a log of its own, in which the steps before it are not. */
static void read_from(struct reader *reader, const json_t *object) {
  const json_t *from = json_object_get(object, "from");
  double steps = json_is_number(from) ? json_number_value(from) : 0;
  if (steps > reader->steps && steps < MOST_STEPS) reader->steps = steps;
}

/* What is neither a step nor an evaluation; kinds that are not known here may be of use elsewhere.
 */
static bool read_note(struct reader *reader, json_t *object, struct run_curves *run) {
  if (json_object_get(object, "format")) {
    if (!check_version(reader, object)) return false;
    reader->seconds_before += reader->seconds;
    reader->seconds = 0;
    read_from(reader, object);
  }
  if (json_is_true(json_object_get(json_object_get(object, "data"), "tokens"))) run->tokens = true;
  const char *unit = json_string_value(json_object_get(json_object_get(object, "data"), "unit"));
  if (unit) snprintf(run->unit, sizeof run->unit, "%s", unit);
  if (json_object_set_new(object, "after", json_real(reader->steps)) != 0 ||
      json_array_append(run->notes, object) != 0)
    return refuse(reader, "no memory");
  return true;
}

static bool is_step(const json_t *object) {
  return json_object_get(object, "loss") ||
         (json_object_get(object, "step") && json_object_size(object) == 1);
}

static bool read_line(struct reader *reader, const char *text, size_t length,
                      struct run_curves *run) {
  json_error_t error;
  json_t *object = sl__json_load(text, length, JSON_REJECT_DUPLICATES, &error);
  bool good;
  if (!object)
    good = refuse(reader, "not JSON: %s; was the log cut short?", error.text);
  else if (!json_is_object(object))
    good = refuse(reader, "not a JSON object; is this a training log?");
  else if (is_step(object))
    good = read_step(reader, object, run);
  else if (json_object_get(object, "test_loss") || json_object_get(object, "test_accuracy"))
    good = read_evaluation(reader, object, run);
  else
    good = read_note(reader, object, run);
  json_decref(object);
  return good;
}

static bool read_lines(struct reader *reader, FILE *file, struct run_curves *run) {
  char *text = NULL;
  size_t capacity = 0;
  ssize_t length;
  bool good = true;
  while (good && (length = getline(&text, &capacity, file)) > 0) {
    reader->line++;
    good = read_line(reader, text, (size_t)length, run);
  }
  free(text);
  if (good && !feof(file)) { /* getline without memory leaves no ferror */
    snprintf(reader->message, reader->size, "%s: cannot be read: %s", reader->path,
             strerror(errno));
    return false;
  }
  return good;
}

/* Behind the last step of the epoch in which step `first` is. */
static size_t epoch_end(const struct series *epochs, size_t first) {
  size_t end = first;
  while (end < epochs->count && epochs->samples[end].y == epochs->samples[first].y) end++;
  return end;
}

/* The steps of the first epoch that a log lacks at its beginning. Epochs are alike, but the process
 * before may have had other ones (another batch): a later whole epoch says more than the steps up
 * to here, which are a multiple of an epoch's. */
static double missing_steps(const struct series *epochs) {
  size_t own = epoch_end(epochs, 0), end = own;
  double longest = 0;
  if (!own || epochs->samples[0].x <= 1) return 0;
  for (size_t first = end; first < epochs->count; first = end) {
    end = epoch_end(epochs, first);
    if (end < epochs->count) longest = fmax(longest, (double)(end - first));
  }
  if (longest == 0) longest = epochs->samples[own - 1].x / epochs->samples[0].y;
  return fmax(longest - (double)own, 0);
}

/* From each step's number of its epoch to epochs done. An epoch that the log does not end is taken
 * to be as long as the longest one before it. */
static void count_epochs(struct series *epochs) {
  double longest = 0, missing = missing_steps(epochs);
  for (size_t first = 0, end; first < epochs->count; first = end, missing = 0) {
    double epoch = epochs->samples[first].y;
    end = epoch_end(epochs, first);
    double length = (double)(end - first) + missing;
    if (end == epochs->count) length = fmax(length, longest);
    longest = fmax(longest, length);
    for (size_t i = first; i < end; i++)
      epochs->samples[i].y = epoch - 1 + (missing + (double)(i - first + 1)) / length;
  }
}

/* "runs/lenet.jsonl" is "lenet" in the legend. */
static char *label_of(const char *path) {
  const char *slash = strrchr(path, '/');
  char *label = strdup(slash ? slash + 1 : path);
  char *dot = label ? strrchr(label, '.') : NULL;
  if (dot && dot != label) *dot = '\0';
  return label;
}

bool curves_read(const char *path, struct run_curves *run, char *message, size_t size) {
  struct reader reader = {.path = path, .message = message, .size = size};
  *run = (struct run_curves){.label = label_of(path), .unit = "samples", .notes = json_array()};
  FILE *file = run->label && run->notes ? fopen(path, "r") : NULL;
  if (!file) {
    snprintf(message, size, "%s: cannot be opened: %s", path, strerror(errno));
    return false;
  }
  bool good = read_lines(&reader, file, run);
  fclose(file);
  if (reader.has_no_epochs) run->epochs.count = 0;
  if (reader.has_no_times) run->seconds.count = 0;
  count_epochs(&run->epochs);
  if (good && run->loss.count == 0) {
    snprintf(message, size,
             "%s: holds no training step; is this a training log, has the run begun?", path);
    return false;
  }
  return good;
}

void curves_free(struct run_curves *run) {
  free(run->label);
  free(run->loss.samples);
  free(run->test_loss.samples);
  free(run->test_accuracy.samples);
  for (size_t i = 0; i < run->metric_count; i++) {
    free(run->metrics[i].key);
    free(run->metrics[i].values.samples);
  }
  free(run->metrics);
  free(run->lr.samples);
  free(run->rate.samples);
  free(run->epochs.samples);
  free(run->seconds.samples);
  json_decref(run->notes);
}

double series_at(const struct series *series, double x) {
  size_t low = 0, high = series->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (series->samples[middle].x < x)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == series->count) return low ? series->samples[low - 1].y : 0;
  struct sample before = low ? series->samples[low - 1] : (struct sample){0, 0};
  struct sample after = series->samples[low];
  return before.y + (after.y - before.y) * (x - before.x) / (after.x - before.x);
}

bool series_smooth(const struct series *series, double window, struct series *smooth) {
  double keep = window > 1 ? 1 - 2 / (window + 1) : 0, mean = 0, weight = 0;
  for (size_t i = 0; i < series->count; i++) {
    /* divided by the weights so far: else the first values would pull towards 0 */
    mean = keep * mean + (1 - keep) * series->samples[i].y;
    weight = keep * weight + (1 - keep);
    if (!series_append(smooth, series->samples[i].x, mean / weight)) return false;
  }
  return true;
}

const char *curves_unit(const struct run_curves *runs, size_t count) {
  for (size_t i = 1; i < count; i++)
    if (strcmp(runs[i].unit, runs[0].unit) != 0) return "samples";
  return count ? runs[0].unit : "samples";
}
