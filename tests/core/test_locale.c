/* The library inside a program whose locale writes numbers with a comma: it reads and writes them
 * with a point, and the files are those of the C locale to the byte. */
#include "core/base/numbers.h"
#include "nn/optimizer.h"
#include "tests/common/comma_locale.h"

static bool has_locale;

/* In the C locale and in the one with commas: the same text. */
static void check_text(const char *comma, const char *point) {
  assert_string_equal(comma, point);
  assert_null(strchr(comma, ','));
}

static void test_numbers(void **state) {
  (void)state;
  double value;
  char text[32];
  if (!has_locale) skip();
  snprintf(text, sizeof text, "%.1f", 0.5);
  assert_string_equal(text, "0,5"); /* the locale is in force */
  assert_true(sl__parse_real("0.25", 0, 1, &value) && value == 0.25);
  assert_false(sl__parse_real("0,25", 0, 1, &value));
  sl__fail(SL_BAD_ARGUMENT, "%g", 0.5);
  check_text(sl_error(), "0.5");
  snprintf(text, sizeof text, "%.1f", 0.5);
  assert_string_equal(text, "0,5"); /* and stays so for the program */
}

static void test_settings(void **state) {
  (void)state;
  struct sl_schedule schedule;
  char text[SL__OPTIMIZER_TEXT];
  if (!has_locale) skip();
  OK(sl_schedule_parse("cosine:0.25,warmup:10", 100, &schedule));
  assert_true(schedule.floor == 0.25f);
  OK(sl_schedule_parse("drops:12.5%:50%", 1000, &schedule));
  const struct sl_optimizer optimizer = {.lr = 0.5f, .momentum = 0.9f};
  assert_non_null(strstr(sl__optimizer_text(&optimizer, text), "momentum 0.9"));
}

static struct sl_model *new_model(void) {
  struct sl_model *m;
  OK(sl_model_new(context, &SL_SHAPE(1, 8, 8), &m));
  OK(sl_conv2d(m, "conv1", &(struct sl_conv2d_options){.channels = 3, .kernel_h = 3}));
  OK(sl_batchnorm(m, "bn1", &(struct sl_batchnorm_options){.epsilon = 0.125f}));
  OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.3f}));
  OK(sl_dense(m, "fc1", &(struct sl_dense_options){.features = 4}));
  OK(sl_model_note(
      m, &(struct sl_model_notes){
             .channels = 1, .mean = (float[]){0.1307f}, .deviation = (float[]){0.3081f}}));
  return m;
}

/* The files of a model and its summary, under the name. */
static void save(const char *name, char **summary) {
  char path[64];
  struct sl_model *m = new_model();
  static const char *const ends[] = {"json", "onnx", "safetensors"};
  for (int i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "model.%s", ends[i]); /* a model names its weights' file */
    OK(sl_model_save(m, in_folder(path)));
    char kept[64];
    snprintf(kept, sizeof kept, "%s.%s", name, ends[i]);
    char from[4096];
    snprintf(from, sizeof from, "%s", in_folder(path));
    assert_int_equal(link(from, in_folder(kept)), 0);
    if (i != 0) continue;
    snprintf(from, sizeof from, "%s", in_folder("model.safetensors"));
    unlink(from);
  }
  OK(sl_model_summary(m, summary));
  sl_model_free(m);
}

static void assert_same_files(const char *a, const char *b) {
  char command[9000];
  snprintf(command, sizeof command, "cmp %s/%s %s/%s", test_folder, a, test_folder, b);
  assert_int_equal(system(command), 0);
}

static void test_files(void **state) {
  (void)state;
  char *comma, *point;
  struct sl_model *opened;
  if (!has_locale) skip();
  save("comma", &comma);
  setlocale(LC_ALL, "C");
  save("point", &point);
  setlocale(LC_ALL, "de_DE.UTF-8");
  assert_string_equal(comma, point);
  assert_same_files("comma.json", "point.json");
  assert_same_files("comma.onnx", "point.onnx");
  assert_same_files("comma.safetensors", "point.safetensors");
  OK(sl_model_open(context, in_folder("model.json"), &opened));
  assert_true(sl_model_notes(opened)->mean[0] == 0.1307f);
  sl_model_free(opened);
  free(comma);
  free(point);
}

static int setup(void **state) {
  if (folder_setup(state) || open_context(state)) return -1;
  has_locale = set_comma_locale();
  return 0;
}

static int teardown(void **state) {
  setlocale(LC_ALL, "C");
  close_context(state);
  return folder_teardown(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_numbers),
      cmocka_unit_test(test_settings),
      cmocka_unit_test(test_files),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
