/* The facts about a run, from the lines of its log. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "tools/report/page.h"

const char *text_at(const json_t *object, const char *key) {
  return json_string_value(json_object_get(object, key));
}

double number_at(const json_t *object, const char *key) {
  const json_t *number = json_object_get(object, key);
  return json_is_number(number) ? json_number_value(number) : NAN;
}

char *value_text(const json_t *value) {
  char *text;
  if (!value || json_is_null(value)) return strdup("not given");
  if (json_is_string(value)) return strdup(json_string_value(value));
  if (json_is_boolean(value)) return strdup(json_is_true(value) ? "yes" : "no");
  if (!json_is_real(value)) return sl__json_text(value, JSON_ENCODE_ANY);
  return asprintf(&text, "%.7g", json_real_value(value)) < 0 ? NULL : text;
}

const char *grouped(double number, char *text, size_t size) {
  char digits[40];
  int length = snprintf(digits, sizeof digits, "%.0f", fmin(fmax(number, 0), 1e18));
  size_t at = 0;
  for (int i = 0; i < length && at + 2 < size; i++) {
    if (i && (length - i) % 3 == 0) text[at++] = ',';
    text[at++] = digits[i];
  }
  text[at] = '\0';
  return text;
}

const char *time_text(double seconds, char *text, size_t size) {
  long s = seconds < 1e9 ? lround(seconds) : 1000000000;
  if (seconds < 10)
    snprintf(text, size, "%.2f s", seconds);
  else if (seconds < 60)
    snprintf(text, size, "%.1f s", seconds);
  else if (s < 3600)
    snprintf(text, size, "%ld min %ld s", s / 60, s % 60);
  else
    snprintf(text, size, "%ld h %ld min", s / 3600, s / 60 % 60);
  return text;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorts the values. */
static double median(double *values, size_t count) {
  if (!count) return NAN;
  qsort(values, count, sizeof *values, ascending);
  return 0.5 * (values[(count - 1) / 2] + values[count / 2]);
}

static bool median_rate(const struct run_curves *run, double *result) {
  size_t count = run->rate.count;
  double *values = malloc((count + 1) * sizeof *values);
  if (!values) return false;
  for (size_t i = 0; i < count; i++) values[i] = run->rate.samples[i].y;
  *result = median(values, count);
  free(values);
  return true;
}

/* Median of the numbers under a key in the lines about checkpoints. */
static bool median_note(const json_t *notes, const char *key, double *result) {
  size_t count = 0, i;
  json_t *note;
  double *values = malloc((json_array_size(notes) + 1) * sizeof *values);
  if (!values) return false;
  json_array_foreach((json_t *)notes, i, note) {
    double value = number_at(note, key);
    if (json_object_get(note, "checkpoint") && !isnan(value)) values[count++] = value;
  }
  *result = median(values, count);
  free(values);
  return true;
}

void find_best(const struct series *series, bool least, double *last, double *best, double *at) {
  *last = *best = *at = NAN;
  for (size_t i = 0; i < series->count; i++) {
    double y = series->samples[i].y;
    *last = y;
    if (!isnan(*best) && (least ? y >= *best : y <= *best)) continue;
    *best = y;
    *at = series->samples[i].x;
  }
}

static bool has_before(const struct report *report, size_t run, const char *key) {
  bool has = false;
  for (size_t i = 0; i < run; i++) has |= curves_metric(&report->runs[i], key) != NULL;
  return has;
}

const char *report_next_metric(const struct report *report, size_t *run, size_t *metric) {
  for (; *run < report->count; ++*run, *metric = 0)
    while (*metric < report->runs[*run].metric_count) {
      const char *key = report->runs[*run].metrics[(*metric)++].key;
      if (!has_before(report, *run, key)) return key;
    }
  return NULL;
}

/* Mean over the last hundredth of the run, at least ten steps. */
static double last_loss(const struct series *loss) {
  size_t count = loss->count / 100 > 10 ? loss->count / 100 : 10;
  double sum = 0;
  if (count > loss->count) count = loss->count;
  for (size_t i = loss->count - count; i < loss->count; i++) sum += loss->samples[i].y;
  return sum / (double)count;
}

static void read_notes(const json_t *notes, struct facts *facts) {
  size_t i;
  json_t *note;
  json_array_foreach((json_t *)notes, i, note) {
    if (json_object_get(note, "format")) {
      if (!facts->begin) facts->begin = note;
      facts->start = note;
      facts->end = NULL;
      facts->starts++;
    } else if (json_object_get(note, "confusion")) {
      facts->confusion = note;
    } else if (text_at(note, "end")) {
      double seconds = number_at(note, "seconds");
      facts->end = note;
      if (seconds >= 0) facts->seconds = fmax(facts->seconds, 0) + seconds;
    } else if (json_object_get(note, "checkpoint")) {
      facts->checkpoints++;
      facts->checkpoint_at = number_at(note, "step");
    }
  }
}

bool facts_find(const struct run_curves *run, struct facts *facts) {
  *facts = (struct facts){.seconds = -1, .checkpoint_at = NAN};
  read_notes(run->notes, facts);
  facts->steps = run->loss.samples[run->loss.count - 1].x;
  facts->loss = last_loss(&run->loss);
  find_best(&run->test_loss, true, &facts->test_loss, &facts->best_test_loss, &facts->best_loss_at);
  find_best(&run->test_accuracy, false, &facts->accuracy, &facts->best_accuracy,
            &facts->best_accuracy_at);
  return median_rate(run, &facts->rate) && median_note(run->notes, "stopped_s", &facts->stopped) &&
         median_note(run->notes, "write_s", &facts->write) &&
         median_note(run->notes, "bytes", &facts->bytes);
}
