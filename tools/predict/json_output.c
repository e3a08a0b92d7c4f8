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

int flush_output(void) {
  const char *why = output_lost();
  if (!why) return EXIT_DONE;
  return *why ? fail(EXIT_FAILED, "the output cannot be written: %s", why) : EXIT_FAILED_QUIETLY;
}

int print_object(json_t *object, size_t digits) {
  char *text = sl__json_text(object, JSON_REAL_PRECISION(digits));
  json_decref(object);
  if (!text) return fail_memory();
  bool written = puts(text) >= 0;
  if (!written) output_failed(errno);
  free(text);
  return written ? EXIT_DONE : flush_output();
}

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

/* ---- one output ---- */

/* An answer's keys, added to *object. Returns false if an output is not finite. */
typedef bool add_answer(struct printer *p, const struct output *output, const float *logits,
                        int64_t label, json_t **object);

static bool add_class_answer(struct printer *p, const struct output *output, const float *logits,
                             int64_t label, json_t **object) {
  int64_t top[MOST_TOP], best;
  if (isnan(softmax(logits, output->count, p->probabilities))) return false;
  find_top(p->probabilities, output->count, p->top, top);
  find_top(p->probabilities, output->count, 1, &best);
  add_class(p, object, best);
  sl__json_set(object, "probability", json_real(p->probabilities[best]));
  if (label >= 0) sl__json_set(object, "label", json_integer(label));
  if (p->top) sl__json_set(object, "top", top_classes(p, top));
  p->labelled += label >= 0;
  p->right += label == best;
  return true;
}

/* A regression's answers, in the unit of the training's targets. */
static bool add_values(struct printer *p, const struct output *output, const float *logits,
                       int64_t label, json_t **object) {
  const struct sl_model_notes *notes = p->notes;
  json_t *values = json_array();
  bool finite = true;
  (void)label;
  for (int64_t k = 0; k < output->count; k++) {
    int64_t c = notes->target_channels > 1 ? (output->first + k) / p->unit : 0;
    double value = (double)logits[k];
    if (notes->target_channels)
      value = value * (double)notes->target_deviation[c] + (double)notes->target_mean[c];
    finite &= isfinite(value) != 0;
    sl__json_append(&values, json_real(finite ? value : 0));
  }
  sl__json_set(object, "values", values);
  return finite;
}

static bool are_finite(const float *logits, int64_t count) {
  for (int64_t k = 0; k < count; k++)
    if (!isfinite(logits[k])) return false;
  return true;
}

/* The label's name where the model has one, else its number. */
static json_t *label_json(const struct printer *p, int64_t label) {
  if (label < p->notes->target_name_count && p->notes->target_name_count == p->classes)
    return json_string(p->notes->target_names[label]);
  return json_integer((json_int_t)label);
}

/* Of several labels, each of which may be right, those that are more likely right than wrong. */
static bool add_labels(struct printer *p, const struct output *output, const float *logits,
                       int64_t none, json_t **object) {
  json_t *labels = json_array(), *chances = json_array();
  (void)none;
  for (int64_t k = 0; k < output->count; k++) {
    double chance = 1 / (1 + exp(-(double)logits[k]));
    if (chance > 0.5) sl__json_append(&labels, label_json(p, k));
    sl__json_append(&chances, json_real(isnan(chance) ? 0 : chance));
  }
  sl__json_set(object, "labels", labels);
  sl__json_set(object, "probabilities", chances);
  return are_finite(logits, output->count);
}

/* The number of the plane that is the likeliest at a pixel. */
static int64_t likeliest_plane(const struct output *output, const float *logits, int64_t pixel) {
  int64_t best = 0;
  for (int64_t k = 1; k < output->count / output->plane; k++)
    if (logits[k * output->plane + pixel] > logits[best * output->plane + pixel]) best = k;
  return best;
}

/* A number for each pixel, in rows: 1 where a plane of labels is more likely right than wrong; of
 * classes (classes) the pixel's. */
static json_t *mask_json(const struct output *output, const float *logits, bool classes) {
  json_t *rows = json_array(), *row = NULL;
  for (int64_t pixel = 0; pixel < output->plane; pixel++) {
    if (pixel % output->width == 0) row = json_array();
    int64_t value = classes ? likeliest_plane(output, logits, pixel) : logits[pixel] > 0;
    sl__json_append(&row, json_integer((json_int_t)value));
    if (pixel % output->width == output->width - 1) sl__json_append(&rows, row);
  }
  return rows;
}

/* One plane of labels has a mask, several have one each. */
static bool add_mask(struct printer *p, const struct output *output, const float *logits,
                     int64_t label, json_t **object) {
  int64_t planes = output->count / output->plane;
  bool classes = planes > 1 && !output->has_labels;
  json_t *list;
  (void)p, (void)label;
  if (!are_finite(logits, output->count)) return false;
  if (classes || planes == 1) {
    sl__json_set(object, "mask", mask_json(output, logits, classes));
    return true;
  }
  list = json_array();
  for (int64_t k = 0; k < planes; k++)
    sl__json_append(&list, mask_json(output, logits + k * output->plane, false));
  sl__json_set(object, "masks", list);
  return true;
}

/* ---- a sample ---- */

static bool add_output(struct printer *p, const struct output *output, const float *row,
                       int64_t label, json_t **object) {
  static add_answer *const add[] = {[ANSWER_CLASS] = add_class_answer,
                                    [ANSWER_VALUES] = add_values,
                                    [ANSWER_LABELS] = add_labels,
                                    [ANSWER_MASK] = add_mask};
  const float *logits = row + output->first;
  if (!add[output->answer](p, output, logits, label, object)) return false;
  if (p->logits) sl__json_set(object, "logits", logits_json(logits, output->count));
  return true;
}

/* Outputs by name, each an object with the keys of its answer. */
static bool add_named(struct printer *p, const float *row, json_t **object) {
  json_t *outputs = json_object();
  bool finite = true;
  for (int i = 0; i < p->output_count && finite; i++) {
    json_t *answer = json_object();
    finite = add_output(p, &p->outputs[i], row, -1, &answer);
    sl__json_set(&outputs, p->outputs[i].name, answer);
  }
  sl__json_set(object, "outputs", outputs);
  return finite;
}

static int print_sample(struct printer *p, const struct request *request, int64_t i) {
  const struct origin *origin = &request->origins[i];
  const float *row = request->outputs + i * p->classes;
  json_t *object = answer_of(origin);
  bool finite = p->outputs[0].name ? add_named(p, row, &object)
                                   : add_output(p, &p->outputs[0], row, origin->label, &object);
  if (!finite) {
    json_decref(object);
    return not_finite(origin);
  }
  p->samples++;
  return print_object(object, DIGITS);
}

int print_images(void *printer, const struct request *request) {
  int code = EXIT_DONE;
  for (int64_t i = 0; i < request->n && code == EXIT_DONE; i++)
    code = print_sample(printer, request, i);
  return code;
}

/* ---- text ---- */

static json_t *token_json(const struct printer *p, int64_t token) {
  size_t length;
  const char *bytes = p->tokenizer ? sl_tokenizer_token(p->tokenizer, token, &length) : NULL;
  if (bytes) return text_json(bytes);
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
    sl__json_set_finite(&object, "perplexity", exp(-sum / (double)request->scored));
  if (p->vocabulary) sl__json_set(&object, "unknown", json_integer((json_int_t)request->unknown));
  if (p->top) sl__json_set(&object, "next", next_tokens(p, top));
  if (p->logits) sl__json_set(&object, "logits", logits_json(last, p->classes));
  p->samples++;
  p->tokens += request->scored;
  p->log_likelihood += sum;
  return print_object(object, DIGITS);
}
