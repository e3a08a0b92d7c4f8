/* Answers as JSON lines. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "tools/predict/failure.h"
#include "tools/predict/json_output.h"

enum { DIGITS = 7 };

/* File names and words need not be UTF-8: other bytes become U+FFFD. */
static json_t *text_json(const char *text) {
  static const char strange[] = "\xef\xbf\xbd";
  json_error_t error;
  json_t *whole = json_pack_ex(&error, 0, "s", text);
  if (whole || json_error_code(&error) != json_error_invalid_utf8) return whole;
  char *mended = calloc(3 * strlen(text) + 1, 1), *to = mended;
  for (; mended && *text; text++)
    if ((unsigned char)*text < 0x80)
      *to++ = *text;
    else
      to = stpcpy(to, strange);
  whole = mended ? json_string(mended) : NULL;
  free(mended);
  return whole;
}

/* ---- probabilities ---- */

/* softmax in double, minus the largest logit. Returns the logarithm of its denominator (a logit
 * minus it is the log-probability), or NAN if a logit is not finite. */
static double softmax(const float *logits, int64_t count, double *probabilities) {
  double most = -INFINITY, sum = 0;
  for (int64_t i = 0; i < count; i++) {
    if (!isfinite(logits[i])) return NAN;
    if (logits[i] > most) most = logits[i];
  }
  for (int64_t i = 0; i < count; i++) sum += probabilities[i] = exp(logits[i] - most);
  for (int64_t i = 0; i < count; i++) probabilities[i] /= sum;
  return most + log(sum);
}

/* The k likeliest, of equal ones the first; -1 if there are fewer than k. */
static void find_top(const double *probabilities, int64_t count, int k, int64_t *top) {
  for (int i = 0; i < k; i++) top[i] = -1;
  for (int64_t c = 0; c < count; c++) {
    int at = k;
    while (at > 0 && (top[at - 1] < 0 || probabilities[c] > probabilities[top[at - 1]])) at--;
    if (at == k) continue;
    memmove(top + at + 1, top + at, (size_t)(k - at - 1) * sizeof *top);
    top[at] = c;
  }
}

static json_t *logits_json(const float *logits, int64_t count) {
  json_t *list = json_array();
  for (int64_t i = 0; i < count; i++) sl__json_append(&list, json_real(logits[i]));
  return list;
}

/* ---- lines ---- */

static int write_failed(void) {
  /* the reader of the output has ended, such as `| head` */
  return errno == EPIPE ? EXIT_FAILED_QUIETLY
                        : fail(EXIT_FAILED, "the output cannot be written: %s", strerror(errno));
}

int print_object(json_t *object, size_t digits) {
  char *text = sl__json_text(object, JSON_REAL_PRECISION(digits));
  json_decref(object);
  if (!text) return fail_memory();
  bool written = puts(text) >= 0;
  free(text);
  return written ? EXIT_DONE : write_failed();
}

int flush_output(void) { return fflush(stdout) == 0 ? EXIT_DONE : write_failed(); }

static int not_finite(const struct origin *origin) {
  return fail(EXIT_FAILED,
              "%s: sample %lld: the model's output is infinite or not a number; are its weights "
              "and its normalisation right?",
              origin->input, (long long)origin->index);
}

/* A class's number, and its name where it has one. */
static void add_class(const struct printer *p, json_t **object, int64_t class) {
  sl__json_set(object, "class", json_integer((json_int_t) class));
  if (class < p->notes->class_count)
    sl__json_set(object, "name", json_string(p->notes->class_names[class]));
}

static json_t *top_classes(const struct printer *p, const int64_t *top) {
  json_t *list = json_array();
  for (int i = 0; i < p->top && top[i] >= 0; i++) {
    json_t *item = json_object();
    add_class(p, &item, top[i]);
    sl__json_set(&item, "probability", json_real(p->probabilities[top[i]]));
    sl__json_append(&list, item);
  }
  return list;
}

static json_t *answer_of(const struct origin *origin) {
  return json_pack("{s:o, s:I}", "input", text_json(origin->input), "index",
                   (json_int_t)origin->index);
}

static int print_image(struct printer *p, const struct request *request, int64_t i) {
  const float *logits = request->outputs + i * p->classes;
  const struct origin *origin = &request->origins[i];
  int64_t top[MOST_TOP], best;
  if (isnan(softmax(logits, p->classes, p->probabilities))) return not_finite(origin);
  find_top(p->probabilities, p->classes, p->top, top);
  find_top(p->probabilities, p->classes, 1, &best);
  json_t *object = answer_of(origin);
  add_class(p, &object, best);
  sl__json_set(&object, "probability", json_real(p->probabilities[best]));
  if (origin->label >= 0) sl__json_set(&object, "label", json_integer(origin->label));
  if (p->top) sl__json_set(&object, "top", top_classes(p, top));
  if (p->logits) sl__json_set(&object, "logits", logits_json(logits, p->classes));
  p->samples++;
  p->labelled += origin->label >= 0;
  p->right += origin->label == best;
  return print_object(object, DIGITS);
}

/* A regression's answers, in the unit of the training's targets. */
static int print_values(struct printer *p, const struct request *request, int64_t i) {
  const struct origin *origin = &request->origins[i];
  const struct sl_model_notes *notes = p->notes;
  json_t *values = json_array();
  for (int64_t k = 0; k < p->classes; k++) {
    int64_t c = notes->target_channels > 1 ? k / p->plane : 0;
    double value = (double)request->outputs[i * p->classes + k];
    if (notes->target_channels)
      value = value * (double)notes->target_deviation[c] + (double)notes->target_mean[c];
    if (!isfinite(value)) {
      json_decref(values);
      return not_finite(origin);
    }
    sl__json_append(&values, json_real(value));
  }
  json_t *object = answer_of(origin);
  sl__json_set(&object, "values", values);
  if (p->logits)
    sl__json_set(&object, "logits", logits_json(request->outputs + i * p->classes, p->classes));
  p->samples++;
  return print_object(object, DIGITS);
}

/* The logistic function of each output. Returns false if one is not finite. */
static bool find_chances(const struct printer *p, const float *logits) {
  for (int64_t k = 0; k < p->classes; k++) {
    if (!isfinite(logits[k])) return false;
    p->probabilities[k] = 1 / (1 + exp(-(double)logits[k]));
  }
  return true;
}

/* The label's name where the model has one, else its number. */
static json_t *label_json(const struct printer *p, int64_t label) {
  if (label < p->notes->target_name_count && p->notes->target_name_count == p->classes)
    return json_string(p->notes->target_names[label]);
  return json_integer((json_int_t)label);
}

/* Of several labels, each of which may be right, those that are more likely right than wrong. */
static int print_labels(struct printer *p, const struct request *request, int64_t i) {
  const float *logits = request->outputs + i * p->classes;
  json_t *labels = json_array(), *chances = json_array(), *object;
  if (!find_chances(p, logits)) {
    json_decref(labels);
    json_decref(chances);
    return not_finite(&request->origins[i]);
  }
  for (int64_t k = 0; k < p->classes; k++) {
    if (p->probabilities[k] > 0.5) sl__json_append(&labels, label_json(p, k));
    sl__json_append(&chances, json_real(p->probabilities[k]));
  }
  object = answer_of(&request->origins[i]);
  sl__json_set(&object, "labels", labels);
  sl__json_set(&object, "probabilities", chances);
  if (p->logits) sl__json_set(&object, "logits", logits_json(logits, p->classes));
  p->samples++;
  return print_object(object, DIGITS);
}

/* The number of the plane that is the likeliest at a pixel. */
static int64_t likeliest_plane(const struct printer *p, const float *logits, int64_t pixel) {
  int64_t best = 0;
  for (int64_t k = 1; k < p->classes / p->plane; k++)
    if (logits[k * p->plane + pixel] > logits[best * p->plane + pixel]) best = k;
  return best;
}

/* A number for each pixel, in rows: 1 where a plane of labels is more likely right than wrong; of
 * classes (classes) the pixel's. */
static json_t *mask_json(const struct printer *p, const float *logits, bool classes) {
  json_t *rows = json_array(), *row = NULL;
  for (int64_t pixel = 0; pixel < p->plane; pixel++) {
    if (pixel % p->width == 0) row = json_array();
    int64_t value = classes ? likeliest_plane(p, logits, pixel) : logits[pixel] > 0;
    sl__json_append(&row, json_integer((json_int_t)value));
    if (pixel % p->width == p->width - 1) sl__json_append(&rows, row);
  }
  return rows;
}

/* One plane of labels has a mask, several have one each. */
static int print_mask(struct printer *p, const struct request *request, int64_t i) {
  const float *logits = request->outputs + i * p->classes;
  int64_t planes = p->classes / p->plane;
  bool classes = planes > 1 && p->notes->task != SL_TASK_LABELS;
  for (int64_t k = 0; k < p->classes; k++)
    if (!isfinite(logits[k])) return not_finite(&request->origins[i]);
  json_t *object = answer_of(&request->origins[i]), *list = json_array();
  if (classes || planes == 1) sl__json_set(&object, "mask", mask_json(p, logits, classes));
  for (int64_t k = 0; k < planes && !classes && planes > 1; k++)
    sl__json_append(&list, mask_json(p, logits + k * p->plane, false));
  if (json_array_size(list))
    sl__json_set(&object, "masks", list);
  else
    json_decref(list);
  if (p->logits) sl__json_set(&object, "logits", logits_json(logits, p->classes));
  p->samples++;
  return print_object(object, DIGITS);
}

int print_images(void *printer, const struct request *request) {
  struct printer *p = printer;
  static int (*const print[])(struct printer *, const struct request *, int64_t) = {
      [ANSWER_CLASS] = print_image,
      [ANSWER_VALUES] = print_values,
      [ANSWER_LABELS] = print_labels,
      [ANSWER_MASK] = print_mask};
  int code = EXIT_DONE;
  for (int64_t i = 0; i < request->n && code == EXIT_DONE; i++)
    code = print[p->answer](p, request, i);
  return code;
}

/* ---- text ---- */

static json_t *token_json(const struct printer *p, int64_t token) {
  if (!p->vocabulary) return json_integer((json_int_t)token);
  return text_json(sl_vocabulary_word(p->vocabulary, token));
}

static json_t *next_tokens(const struct printer *p, const int64_t *top) {
  json_t *list = json_array();
  for (int i = 0; i < p->top && top[i] >= 0; i++)
    sl__json_append(&list, json_pack("{s:o, s:f}", "token", token_json(p, top[i]), "probability",
                                     p->probabilities[top[i]]));
  return list;
}

int print_line(void *printer, const struct request *request) {
  struct printer *p = printer;
  const float *last = request->outputs + (request->tokens - 1) * p->classes;
  double sum = 0, scale = 0;
  int64_t top[MOST_TOP];
  for (int64_t t = 0; t < request->tokens; t++) {
    const float *logits = request->outputs + t * p->classes;
    scale = softmax(logits, p->classes, p->probabilities); /* the last one's stay */
    if (isnan(scale)) return not_finite(request->origins);
    if (t < request->scored) sum += logits[request->targets[t]] - scale;
  }
  find_top(p->probabilities, p->classes, p->top, top);
  json_t *object = json_pack("{s:o, s:I, s:I, s:f}", "input", text_json(request->origins->input),
                             "index", (json_int_t)request->origins->index, "tokens",
                             (json_int_t)request->scored, "log_likelihood", sum);
  if (request->scored)
    sl__json_set(&object, "perplexity", json_real(exp(-sum / (double)request->scored)));
  if (p->vocabulary) sl__json_set(&object, "unknown", json_integer((json_int_t)request->unknown));
  if (p->top) sl__json_set(&object, "next", next_tokens(p, top));
  if (p->logits) sl__json_set(&object, "logits", logits_json(last, p->classes));
  p->samples++;
  p->tokens += request->scored;
  p->log_likelihood += sum;
  return print_object(object, DIGITS);
}
