/* Weights of other programs: tensors that are joined, turned, shared, spread over files; what is
 * refused, and that nothing changes then. */
#include <math.h>

#include "core/base/safetensors.h"
#include "tests/common/files.h"
#include "tests/common/small_model.h"

static int open_all(void **state) { return folder_setup(state) || open_context(state); }
static int close_all(void **state) { return close_context(state) || folder_teardown(state); }

/* An embedding [4, 3], a dense layer of 3 -> 6 values, and one that shares the embedding. */
static struct sl_model *new_words(void) {
  struct sl_model *m = new_model(SL_SHAPE(2));
  OK(sl_embedding(m, "wte", &(struct sl_embedding_options){.vocabulary = 4, .features = 3}));
  OK(sl_dense(m, "qkv", &(struct sl_dense_options){.features = 6, .positions = true}));
  OK(sl_dense(m, "out", &(struct sl_dense_options){.features = 3, .positions = true}));
  OK(sl_dense(m, "head",
              &(struct sl_dense_options){
                  .layer.shares = "wte", .features = 4, .no_bias = true, .positions = true}));
  OK(sl_model_build(m));
  return m;
}

static const struct sl_weight_rule rules[] = {
    {"wte.weight", "[net.]words"},
    {"qkv.weight", "[net.]q, [net.]k,[net.]v", .sizes = {3, 1, 2}},
    {"qkv.bias", "[net.]bias"},
    {"out.weight", "[net.]out", .transposed = true},
    {"out.bias", "[net.]out_bias"},
    {"head.weight", "head"},
    {NULL, "*.mask"},
    {NULL, "frequencies"},
};
enum { RULES = sizeof rules / sizeof *rules };

enum { WORDS, Q, K, V, BIAS, OUT, OUT_BIAS, HEAD, MASK, TENSORS };

/* Tensors of a file; values: 100 times the number of the tensor, plus the value's number. */
struct file {
  float values[TENSORS][18];
  struct sl__safetensors_entry entries[TENSORS + 1];
  size_t count;
};

static void add(struct file *file, const char *name, int number, struct sl_shape shape) {
  float *values = file->values[number];
  for (int i = 0; i < 18; i++) values[i] = (float)(100 * number + i);
  if (number == HEAD) memcpy(values, file->values[WORDS], sizeof file->values[0]);
  file->entries[file->count++] = (struct sl__safetensors_entry){
      name, "F32", shape, values, (size_t)sl_shape_count(&shape) * sizeof(float)};
}

static void fill(struct file *file) {
  *file = (struct file){0};
  add(file, "net.words", WORDS, SL_SHAPE(4, 3));
  add(file, "net.q", Q, SL_SHAPE(3, 3));
  add(file, "net.k", K, SL_SHAPE(1, 3));
  add(file, "net.v", V, SL_SHAPE(2, 3));
  add(file, "net.bias", BIAS, SL_SHAPE(6));
  add(file, "net.out", OUT, SL_SHAPE(6, 3)); /* turned: the layer's weight is [3, 6] */
  add(file, "net.out_bias", OUT_BIAS, SL_SHAPE(3));
}

static const char *write_file(const char *name, const struct file *file, size_t from, size_t to) {
  const char *path = in_folder(name);
  OK(sl__safetensors_write(path, file->entries + from, to - from, NULL, NULL));
  return path;
}

static enum sl_status load(struct sl_model *m, const char *path) {
  return sl_model_load_tensors(m, path, rules, RULES, NULL);
}

static void assert_values(struct sl_model *m, const char *parameter, const float *wanted) {
  float *values = get_values(m, parameter);
  assert_memory_equal(values, wanted, (size_t)value_count(m, parameter) * sizeof *wanted);
  free(values);
}

static void assert_loaded(struct sl_model *m) {
  struct file file;
  float qkv[18], out[18];
  fill(&file);
  memcpy(qkv, file.values[Q], 9 * sizeof(float));
  memcpy(qkv + 9, file.values[K], 3 * sizeof(float));
  memcpy(qkv + 12, file.values[V], 6 * sizeof(float));
  for (int i = 0; i < 18; i++) out[i] = (float)(100 * OUT + i % 6 * 3 + i / 6);
  assert_values(m, "wte.weight", file.values[WORDS]);
  assert_values(m, "qkv.weight", qkv);
  assert_values(m, "qkv.bias", file.values[BIAS]);
  assert_values(m, "out.weight", out);
  assert_values(m, "out.bias", file.values[OUT_BIAS]);
}

static void tensors_are_joined_and_turned(void **state) {
  (void)state;
  struct sl_model *m = new_words();
  struct file file;
  char *report;
  fill(&file);
  add(&file, "net.h.mask", MASK, SL_SHAPE(2));
  OK(sl_model_load_tensors(m, write_file("whole.safetensors", &file, 0, file.count), rules, RULES,
                           &report));
  assert_loaded(m);
  const char *const lines[] = {"loaded from net.q, net.k, net.v\n",
                               "loaded from net.out, transposed\n", "net.h.mask", "not needed",
                               "5 tensors of the model loaded, 57 values\n"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    if (!strstr(report, lines[i])) fail_msg("'%s' is not in\n%s", lines[i], report);
  free(report);
  sl_model_free(m);
}

/* The beginning in brackets may be missing; a shared weight may come twice, with the same values.
 */
static void names_may_differ(void **state) {
  (void)state;
  struct sl_model *m = new_words();
  struct file file;
  fill(&file);
  for (size_t i = 0; i < file.count; i++) file.entries[i].name += strlen("net.");
  add(&file, "head", HEAD, SL_SHAPE(4, 3));
  OK(load(m, write_file("short.safetensors", &file, 0, file.count)));
  assert_loaded(m);
  file.values[HEAD][7] = -1;
  FAILS(load(m, write_file("apart.safetensors", &file, 0, file.count)), SL_BAD_FILE,
        "\"head\" and \"words\" differ");
  sl_model_free(m);
}

/* A file may have a shared weight under its second name alone. */
static void the_second_name_is_enough(void **state) {
  (void)state;
  struct sl_model *m = new_words();
  struct file file;
  char *report;
  fill(&file);
  add(&file, "head", HEAD, SL_SHAPE(4, 3));
  const char *path = write_file("second.safetensors", &file, 1, file.count);
  OK(sl_model_load_tensors(m, path, rules, RULES, &report));
  assert_loaded(m);
  assert_non_null(strstr(report, "loaded from head\n"));
  assert_null(strstr(report, "not needed"));
  free(report);
  path = write_file("neither.safetensors", &file, 1, file.count - 1);
  FAILS(load(m, path), SL_BAD_FILE, "no tensor \"words\" for the model's wte.weight");
  sl_model_free(m);
}

static void saved_tensors_load_again(void **state) {
  (void)state;
  struct sl_model *m = new_words(), *again = new_words();
  struct file file;
  struct sl__safetensors *saved;
  fill(&file);
  OK(load(m, write_file("whole.safetensors", &file, 0, file.count)));
  char *folder = strdup(in_folder("saved/"));
  OK(sl_model_save_tensors(m, folder, rules, RULES));
  OK(sl_model_save_tensors(m, in_folder("saved"), rules, RULES));
  assert_loaded(m);
  OK(load(again, folder));
  assert_loaded(again);
  OK(sl__safetensors_open(in_folder("saved/model.safetensors"), &saved));
  assert_int_equal(sl__safetensors_count(saved), file.count);
  for (size_t i = 0; i < file.count; i++) {
    const struct sl__safetensors_entry *entry = sl__safetensors_find(saved, file.entries[i].name);
    assert_non_null(entry);
    assert_true(sl_shape_equal(&entry->shape, &file.entries[i].shape));
    assert_memory_equal(entry->data, file.entries[i].data, entry->bytes);
  }
  assert_string_equal(sl__safetensors_metadata(saved, "format"), "pt");
  sl__safetensors_close(saved);
  free(folder);
  sl_model_free(m);
  sl_model_free(again);
}

/* ---- several files ---- */

/* A folder with two files, and the index of this text; its path. */
static const char *sharded(const char *name, const char *index) {
  char path[200];
  struct file file;
  fill(&file);
  OK(sl_folder_make(in_folder(name)));
  snprintf(path, sizeof path, "%s/one.safetensors", name);
  write_file(path, &file, 0, 3);
  snprintf(path, sizeof path, "%s/two.safetensors", name);
  write_file(path, &file, 3, file.count);
  snprintf(path, sizeof path, "%s/model.safetensors.index.json", name);
  put(path, index, strlen(index));
  return in_folder(name);
}

#define ONE "\"net.words\":\"one.safetensors\",\"net.q\":\"one.safetensors\","
#define K_IN(file) "\"net.k\":\"" file "\","
#define V_BIAS "\"net.v\":\"two.safetensors\",\"net.bias\":\"two.safetensors\","
#define OUT_IN(file) "\"net.out\":\"two.safetensors\",\"net.out_bias\":\"" file "\""
#define MAP(entries) "{\"metadata\":{\"total_size\":228},\"weight_map\":{" entries "}}"

static void weights_may_be_in_several_files(void **state) {
  (void)state;
  struct sl_model *m = new_words();
  const char *folder =
      sharded("shards", MAP(ONE K_IN("one.safetensors") V_BIAS OUT_IN("two.safetensors")));
  OK(load(m, folder));
  assert_loaded(m);
  OK(load(m, in_folder("shards/model.safetensors.index.json")));
  sl_model_free(m);
}

static void wrong_indices_are_refused(void **state) {
  (void)state;
  struct sl_model *m = new_words();
  const struct {
    const char *index;
    enum sl_status status;
    const char *words;
  } bad[] = {
      {"{\"weight_map\":", SL_BAD_FILE, "index.json: line 1"},
      {"{}", SL_BAD_FILE, "no \"weight_map\""},
      {MAP(), SL_BAD_FILE, "no \"weight_map\""},
      {MAP("\"net.q\":3"), SL_BAD_FILE, "the name of a file in the same folder"},
      {MAP("\"net.q\":\"../one.safetensors\""), SL_BAD_FILE, "in the same folder"},
      {MAP(ONE K_IN("one.safetensors") V_BIAS OUT_IN("three.safetensors")), SL_IO,
       "three.safetensors, which is missing"},
      {MAP(ONE K_IN("two.safetensors") V_BIAS OUT_IN("two.safetensors")), SL_BAD_FILE,
       "two.safetensors: has no tensor \"net.k\""},
      {MAP(ONE K_IN("one.safetensors") K_IN("two.safetensors") V_BIAS OUT_IN("two.safetensors")),
       SL_BAD_FILE, "duplicate"},
      {MAP(ONE V_BIAS OUT_IN("two.safetensors")), SL_BAD_FILE, "\"net.k\" that"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    FAILS(load(m, sharded("wrong", bad[i].index)), bad[i].status, bad[i].words);
  /* in both files */
  struct file file;
  fill(&file);
  const char *folder =
      sharded("wrong", MAP(ONE K_IN("one.safetensors") V_BIAS OUT_IN("two.safetensors")));
  write_file("wrong/two.safetensors", &file, 2, file.count);
  FAILS(load(m, folder), SL_BAD_FILE, "lists in one.safetensors: it is there twice");
  OK(sl_folder_make(in_folder("empty")));
  FAILS(load(m, in_folder("empty")), SL_IO, "neither model.safetensors nor");
  FAILS(load(m, in_folder("none")), SL_IO, "none");
  sl_model_free(m);
}

/* ---- what is refused ---- */

static void wrong_files_change_nothing(void **state) {
  (void)state;
  struct sl_model *m = new_words();
  struct file file;
  fill(&file);
  OK(load(m, write_file("whole.safetensors", &file, 0, file.count)));
  FAILS(load(m, write_file("wrong.safetensors", &file, 0, file.count - 1)), SL_BAD_FILE,
        "no tensor \"out_bias\" for the model's out.bias");
  file.entries[V].shape = SL_SHAPE(1, 3), file.entries[V].bytes /= 2;
  FAILS(load(m, write_file("wrong.safetensors", &file, 0, file.count)), SL_BAD_SHAPE,
        "\"net.v\" is [1, 3], the model's qkv.weight needs [2, 3]");
  fill(&file);
  file.entries[OUT].shape = SL_SHAPE(3, 6);
  FAILS(load(m, write_file("wrong.safetensors", &file, 0, file.count)), SL_BAD_SHAPE,
        "\"net.out\" is [3, 6], the model's out.weight needs [6, 3]");
  fill(&file);
  add(&file, "net.other", MASK, SL_SHAPE(2));
  FAILS(load(m, write_file("wrong.safetensors", &file, 0, file.count)), SL_BAD_FILE,
        "1 tensor belongs to no layer: \"net.other\"");
  fill(&file);
  file.values[OUT_BIAS][1] = NAN;
  FAILS(load(m, write_file("wrong.safetensors", &file, 0, file.count)), SL_NOT_FINITE,
        "value 1 of out.bias");
  assert_loaded(m);
  sl_model_free(m);
}

static void wrong_rules_are_refused(void **state) {
  (void)state;
  struct sl_model *m = new_words();
  struct file file;
  fill(&file);
  const char *path = write_file("whole.safetensors", &file, 0, file.count);
  const struct {
    int at; /* the rule that becomes another one */
    struct sl_weight_rule rule;
    const char *words;
  } bad[] = {
      {0, {"wpe.weight", "words"}, "is for no parameter"},
      {0, {"qkv.bias", "words"}, "is the second one"},
      {0, {NULL, "words"}, "no rule is for the model's wte.weight"},
      {0, {"wte.weight", NULL}, "names no tensors"},
      {0, {"wte.weight", "[net.words"}, "without ']'"},
      {0, {"wte.weight", "a,,b"}, "an empty name"},
      {0, {"wte.weight", "a,b,c,d,e"}, "more than 4"},
      {0, {"wte.weight", "a,b,c"}, "parts of 3 rows in all; the parameter is [4, 3]"},
      {0, {"wte.weight", "a,b", .sizes = {4}}, "a part of no rows"},
      {0, {"wte.weight", "a,b", .sizes = {5, -1}}, "a part of no rows"},
      {2, {"qkv.bias", "bias", .transposed = true}, "two axes"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct sl_weight_rule wrong[RULES];
    memcpy(wrong, rules, sizeof wrong);
    wrong[bad[i].at] = bad[i].rule;
    FAILS(sl_model_load_tensors(m, path, wrong, RULES, NULL), SL_BAD_ARGUMENT, bad[i].words);
    FAILS(sl_model_save_tensors(m, in_folder("x"), wrong, RULES), SL_BAD_ARGUMENT, bad[i].words);
  }
  FAILS(sl_model_load_tensors(m, path, rules, 0, NULL), SL_BAD_ARGUMENT, "count 0");
  sl_model_free(m);
}

static struct sl_model *target;
static enum sl_status load_once(void) {
  char *report = NULL;
  enum sl_status status = sl_model_load_tensors(target, in_folder("shards"), rules, RULES, &report);
  free(report);
  return status;
}
static enum sl_status save_once(void) {
  return sl_model_save_tensors(target, in_folder("again"), rules, RULES);
}

static void short_memory_is_reported(void **state) {
  (void)state;
  target = new_words();
  sharded("shards", MAP(ONE K_IN("one.safetensors") V_BIAS OUT_IN("two.safetensors")));
  check_allocations(load_once);
  assert_loaded(target);
  check_allocations(save_once);
  sl_model_free(target);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tensors_are_joined_and_turned),
                                     cmocka_unit_test(names_may_differ),
                                     cmocka_unit_test(the_second_name_is_enough),
                                     cmocka_unit_test(saved_tensors_load_again),
                                     cmocka_unit_test(weights_may_be_in_several_files),
                                     cmocka_unit_test(wrong_indices_are_refused),
                                     cmocka_unit_test(wrong_files_change_nothing),
                                     cmocka_unit_test(wrong_rules_are_refused),
                                     cmocka_unit_test(short_memory_is_reported)};
  return cmocka_run_group_tests(tests, open_all, close_all);
}
