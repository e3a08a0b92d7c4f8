/* Two networks that PyTorch trained (tools/make_fixture.py trained: a convolutional one with all
 * that such have, a language model with a tied decoder), read from its own files: PyTorch's
 * answers, within 1e-5 of the largest. A saved copy equals the file that was read. */
#include <math.h>

#include "core/base/file.h"
#include "core/base/safetensors.h"
#include "tests/common/files.h"
#include "tests/common/small_model.h"

enum { SAMPLES = 7, MOST = 1 << 14 };

static const char *fixture(const char *name) {
  static char path[2][4096];
  static int turn;
  turn = !turn;
  snprintf(path[turn], sizeof path[turn], "%s/tests/fixtures/%s", source_folder(), name);
  return path[turn];
}

/* By sl_model_parse and sl_model_load, one after the other. */
static struct sl_model *read_model(const char *name) {
  char file[64];
  uint8_t *text;
  size_t size;
  struct sl_model *m;
  snprintf(file, sizeof file, "%s.json", name);
  OK(sl__file_read(fixture(file), 1 << 20, &text, &size));
  OK(sl_model_parse(context, file, (const char *)text, size, &m));
  free(text);
  snprintf(file, sizeof file, "%s.safetensors", name);
  OK(sl_model_load(m, fixture(file)));
  return m;
}

static void read_answers(const char *name, const struct sl_shape *sample, float *values) {
  struct sl__safetensors *file;
  struct sl_shape shape = {.ndim = sample->ndim + 1, .dim = {SAMPLES}};
  for (int i = 0; i < sample->ndim; i++) shape.dim[i + 1] = sample->dim[i];
  assert_true(sl_shape_count(&shape) <= MOST);
  OK(sl__safetensors_open(fixture("torch_answers.safetensors"), &file));
  OK(sl__safetensors_floats(file, name, &shape, values));
  sl__safetensors_close(file);
}

static void predict(struct sl_model *m, const void *inputs, float *outputs) {
  struct sl_predictor *p;
  OK(sl_predictor_open(m, NULL, &p));
  OK(sl_predict(p, inputs, SAMPLES, outputs));
  sl_predictor_free(p);
}

/* How far the answers are from PyTorch's, relative to its largest. */
static double distance(const float *ours, const float *theirs, int64_t count) {
  double error = 0, largest = 0;
  for (int64_t i = 0; i < count; i++) {
    error = fmax(error, fabs((double)ours[i] - (double)theirs[i]));
    largest = fmax(largest, fabs((double)theirs[i]));
    if (!isfinite(ours[i])) return INFINITY;
  }
  assert_true(largest > 0);
  return error / largest;
}

static void check_again(struct sl_model *m, const void *inputs, const float *first, int64_t count) {
  static float again[MOST];
  struct sl_model *opened;
  OK(sl_model_save(m, in_folder("again.json")));
  OK(sl_model_open(context, in_folder("again.json"), &opened));
  predict(opened, inputs, again);
  assert_memory_equal(first, again, (size_t)count * sizeof *again);
  sl_model_free(opened);
}

static void images_are_answered_as_by_pytorch(void **state) {
  (void)state;
  static float x[MOST], y[MOST], want[MOST];
  struct sl_model *m = read_model("torch_images"), *opened;
  int64_t count = SAMPLES * sl_shape_count(sl_model_output(m));
  read_answers("images.input", &SL_SHAPE(2, 12, 10), x);
  read_answers("images.output", sl_model_output(m), want);
  predict(m, x, y);
  double error = distance(y, want, count);
  if (!(error <= 1e-5)) fail_msg("%.3g of the largest output away", error);
  check_again(m, x, y, count);
  /* the test sees a weight that is off by a thousandth */
  float *weight = get_values(m, "block.conv2.weight");
  for (int64_t i = 0; i < value_count(m, "block.conv2.weight"); i++) weight[i] *= 1.001f;
  OK(sl_model_set(m, "block.conv2.weight", weight));
  predict(m, x, y);
  assert_true(distance(y, want, count) > 1e-5);
  free(weight);
  sl_model_free(m);
  /* and the pair of files at once */
  OK(sl_model_open(context, fixture("torch_images.json"), &opened));
  predict(opened, x, y);
  assert_true(distance(y, want, count) <= 1e-5);
  sl_model_free(opened);
}

static void words_are_answered_as_by_pytorch(void **state) {
  (void)state;
  static float x[MOST], y[MOST], want[MOST];
  static int32_t tokens[MOST];
  struct sl_model *m = read_model("torch_words");
  int64_t count = SAMPLES * sl_shape_count(sl_model_output(m));
  read_answers("words.input", &SL_SHAPE(11), x);
  read_answers("words.output", sl_model_output(m), want);
  for (int i = 0; i < SAMPLES * 11; i++) tokens[i] = (int32_t)x[i];
  predict(m, tokens, y);
  double error = distance(y, want, count);
  if (!(error <= 1e-5)) fail_msg("%.3g of the largest output away", error);
  check_again(m, tokens, y, count);
  sl_model_free(m);
}

static int setup(void **state) { return folder_setup(state) || open_context(state); }
static int teardown(void **state) { return close_context(state) || folder_teardown(state); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(images_are_answered_as_by_pytorch),
                                     cmocka_unit_test(words_are_answered_as_by_pytorch)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
