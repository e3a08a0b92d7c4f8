/* A log is JSON lines: {"step","epoch","loss","lr","samples_per_s"} a step,
 * {"epoch","test_loss","test_accuracy"} an evaluation. An evaluation belongs to the last step
 * before it. What is told of checkpoints is passed over. */
#include "curves.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

struct reader {
  const char *path;
  long line;
  double steps; /* done so far */
  char *message;
  size_t size;
};

#define REFUSE(reader, ...) (refuse(reader), refuse_text(reader, __VA_ARGS__))

static void refuse(struct reader *reader) {
  snprintf(reader->message, reader->size, "%s:%ld: ", reader->path, reader->line);
}

static bool refuse_text(struct reader *reader, const char *format, const char *detail) {
  size_t used = strlen(reader->message);
  snprintf(reader->message + used, reader->size - used, format, detail);
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
  if (!number) return REFUSE(reader, "has no \"%s\"; is this a training log?", key);
  if (!json_is_number(number)) return REFUSE(reader, "\"%s\" is not a number", key);
  *value = json_number_value(number);
  return true;
}

static bool read_step(struct reader *reader, const json_t *object, struct run_curves *run) {
  double step, loss;
  if (!read_number(reader, object, "step", &step) || !read_number(reader, object, "loss", &loss))
    return false;
  if (!(step >= reader->steps && step < 1e15))
    return REFUSE(reader, "the step is not after the one before%s; two logs in one file?", "");
  reader->steps = step + 1;
  if (!series_append(&run->loss, step + 1, loss)) return REFUSE(reader, "no memory%s", "");
  return true;
}

static bool read_evaluation(struct reader *reader, const json_t *object, struct run_curves *run) {
  double loss, accuracy;
  if (!read_number(reader, object, "test_loss", &loss) ||
      !read_number(reader, object, "test_accuracy", &accuracy))
    return false;
  if (!(accuracy >= 0 && accuracy <= 1))
    return REFUSE(reader, "\"test_accuracy\" is not between 0 and 1%s", "");
  if (!series_append(&run->test_loss, reader->steps, loss) ||
      !series_append(&run->test_accuracy, reader->steps, accuracy))
    return REFUSE(reader, "no memory%s", "");
  return true;
}

static bool read_line(struct reader *reader, const char *text, size_t length,
                      struct run_curves *run) {
  json_error_t error;
  json_t *object = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
  bool good;
  if (!object)
    good = REFUSE(reader, "not JSON: %s; was the log cut short?", error.text);
  else if (!json_is_object(object))
    good = REFUSE(reader, "not a JSON object%s; is this a training log?", "");
  else if (json_object_get(object, "checkpoint") || json_object_get(object, "resumed"))
    good = true;
  else if (json_object_get(object, "step"))
    good = read_step(reader, object, run);
  else
    good = read_evaluation(reader, object, run);
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
  if (good && ferror(file)) {
    snprintf(reader->message, reader->size, "%s: cannot be read: %s", reader->path,
             strerror(errno));
    return false;
  }
  return good;
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
  *run = (struct run_curves){.label = label_of(path)};
  FILE *file = fopen(path, "r");
  if (!file) {
    snprintf(message, size, "%s: cannot be opened: %s", path, strerror(errno));
    return false;
  }
  bool good = read_lines(&reader, file, run);
  fclose(file);
  if (good && run->loss.count == 0) {
    snprintf(message, size, "%s: holds no training step; has the run begun?", path);
    return false;
  }
  return good;
}

void curves_free(struct run_curves *run) {
  free(run->label);
  free(run->loss.samples);
  free(run->test_loss.samples);
  free(run->test_accuracy.samples);
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
