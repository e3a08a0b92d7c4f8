/* Weights loaded in part: names by a map, the report, what is refused; nothing changes after a
 * failure. */
#include <math.h>

#include "core/base/safetensors.h"
#include "tests/common/files.h"
#include "tests/common/small_model.h"

static int open_all(void **state) { return folder_setup(state) || open_context(state); }
static int close_all(void **state) { return close_context(state) || folder_teardown(state); }

static struct sl_model *model_of(const char *first, const char *last, int64_t classes) {
  struct sl_model *m = new_model(SL_SHAPE(3));
  add_dense(m, first, 4, SL_INIT_DEFAULT);
  OK(sl_batchnorm(m, "bn", &(struct sl_batchnorm_options){.momentum = 0.1f}));
  add_dense(m, last, classes, SL_INIT_DEFAULT);
  OK(sl_model_build(m));
  return m;
}

static void fill(struct sl_model *m, const char *parameter, float value) {
  float values[64];
  for (int i = 0; i < 64; i++) values[i] = value;
  OK(sl_model_set(m, parameter, values));
}

static float first_value(struct sl_model *m, const char *parameter) {
  float *values = get_values(m, parameter), first = values[0];
  free(values);
  return first;
}

/* A model with layers "trunk.fc", "bn" and "old", all values 7. */
static const char *donor(const char *file) {
  const char *path = in_folder(file);
  struct sl_model *m = model_of("trunk.fc", "old", 5);
  for (int i = 0; i < sl_model_parameter_count(m); i++) fill(m, sl_model_parameter(m, i, NULL), 7);
  OK(sl_model_save(m, path));
  sl_model_free(m);
  return path;
}

static enum sl_status load_by(struct sl_model *m, const char *path, const char *map,
                              char **report) {
  return sl_model_load_part(m, path, &(struct sl_load_part_options){.map = map}, report);
}

static void names_are_mapped(void **state) {
  (void)state;
  const char *path = donor("donor.safetensors");
  const struct {
    const char *map, *loaded, *kept, *report;
  } cases[] = {
      {NULL, "bn.running_var", "fc.weight", "4 of the model's 8 tensors loaded, 16 of "},
      {"trunk.=", "fc.weight", "new.weight", "fc.weight                        [4, 3]"},
      {"trunk.=", "fc.bias", "new.bias", "loaded from trunk.fc.bias"},
      {"trunk.=,old.=new.", "bn.bias", "new.weight", "other shape in the file: [5, 4]"},
      {"!bn.running_,trunk.=", "bn.weight", "bn.running_mean", "left out"},
      {"trunk.fc.bias=fc.bias", "fc.bias", "fc.weight", "trunk.fc.weight"},
      {" trunk.= ,\n!old", "fc.bias", "new.bias", "6 of the model's 8"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sl_model *m = model_of("fc", "new", 2);
    char *report;
    float before = first_value(m, cases[i].kept);
    OK(load_by(m, path, cases[i].map, &report));
    assert_true(first_value(m, cases[i].loaded) == 7);
    assert_true(first_value(m, cases[i].kept) == before && before != 7);
    if (!strstr(report, cases[i].report)) fail_msg("'%s' is not in\n%s", cases[i].report, report);
    free(report);
    OK(load_by(m, path, cases[i].map, NULL));
    sl_model_free(m);
  }
}

static void other_files_are_read(void **state) {
  (void)state;
  struct sl_model *m = model_of("fc", "new", 2);
  OK(load_by(m, donor("donor.json"), "trunk.=", NULL));
  assert_true(first_value(m, "fc.weight") == 7);
  FAILS(load_by(m, in_folder("donor.onnx"), NULL, NULL), SL_UNSUPPORTED, ".safetensors");
  FAILS(load_by(m, in_folder("none.safetensors"), NULL, NULL), SL_IO, "none.safetensors");
  sl_model_free(m);
}

static void assert_unchanged(struct sl_model *m, struct sl_model *start) {
  for (int i = 0; i < sl_model_parameter_count(m); i++) {
    const char *name = sl_model_parameter(m, i, NULL);
    float *a = get_values(m, name), *b = get_values(start, name);
    assert_memory_equal(a, b, (size_t)value_count(m, name) * sizeof *a);
    free(a), free(b);
  }
}

static void bad_maps_change_nothing(void **state) {
  (void)state;
  const char *path = donor("donor.safetensors");
  struct sl_model *m = model_of("fc", "new", 2), *start = model_of("fc", "new", 2);
  const struct {
    const char *map;
    enum sl_status status;
    const char *words;
  } bad[] = {{"trunk", SL_BAD_ARGUMENT, "no rule"},
             {"!", SL_BAD_ARGUMENT, "no rule"},
             {"!trunk=x", SL_BAD_ARGUMENT, "no rule"},
             {"a=b=c", SL_BAD_ARGUMENT, "no rule"},
             {"trunk.=,body.=", SL_BAD_ARGUMENT, "begins with the map's 'body.'"},
             {"trunk.=,trunk.fc=x", SL_BAD_ARGUMENT, "an earlier rule"},
             {"trunk.fc.bias=bn.bias", SL_BAD_ARGUMENT, "are both for the model's bn.bias"},
             {"bn.=norm.", SL_BAD_FILE, "give a map"},
             {"!bn.", SL_BAD_FILE, "the model's like \"fc.weight\""},
             {"!bn,!trunk,!old", SL_BAD_FILE, "the map leaves out all of its"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char *report = (char *)"";
    FAILS(load_by(m, path, bad[i].map, &report), bad[i].status, bad[i].words);
    assert_null(report);
  }
  assert_unchanged(m, start);
  sl_model_free(m);
  sl_model_free(start);
}

static void bad_files_change_nothing(void **state) {
  (void)state;
  struct sl_model *m = model_of("fc", "new", 2), *start = model_of("fc", "new", 2);
  float values[4] = {1, 2, NAN, 4};
  const struct sl__safetensors_entry entry = {.name = "bn.weight",
                                              .dtype = "F32",
                                              .shape = SL_SHAPE(4),
                                              .data = values,
                                              .bytes = sizeof values};
  const char *nan = in_folder("nan.safetensors");
  OK(sl__safetensors_write(nan, &entry, 1, NULL, NULL));
  FAILS(load_by(m, nan, NULL, NULL), SL_NOT_FINITE, "value 2 of bn.weight");
  const char *whole = donor("donor.safetensors");
  uint8_t *bytes;
  size_t size;
  OK(sl__file_read(whole, 1 << 20, &bytes, &size));
  FAILS(load_by(m, put("cut.safetensors", bytes, size - 1), NULL, NULL), SL_BAD_FILE, "cut.");
  free(bytes);
  assert_unchanged(m, start);
  sl_model_free(m);
  sl_model_free(start);
}

static struct sl_model *tied(void) {
  struct sl_model *m = new_model(SL_SHAPE(2));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 5, .features = 3}));
  OK(sl_dense(m, "decoder",
              &(struct sl_dense_options){
                  .layer.shares = "embed", .features = 5, .no_bias = true, .positions = true}));
  OK(sl_model_build(m));
  return m;
}

/* PyTorch writes a shared weight twice. */
static void shared_weights_must_agree(void **state) {
  (void)state;
  struct sl_model *m = tied();
  float a[15] = {1}, b[15] = {1};
  struct sl__safetensors_entry entries[2] = {{.name = "net.embed.weight", .data = a},
                                             {.name = "net.decoder.weight", .data = b}};
  for (int i = 0; i < 2; i++) {
    entries[i].dtype = "F32", entries[i].shape = SL_SHAPE(5, 3), entries[i].bytes = sizeof a;
  }
  const char *path = in_folder("tied.safetensors");
  char *report;
  OK(sl__safetensors_write(path, entries, 2, NULL, NULL));
  OK(load_by(m, path, "net.=", &report));
  assert_non_null(strstr(report, "not needed"));
  free(report);
  b[7] = 3;
  OK(sl__safetensors_write(path, entries, 2, NULL, NULL));
  FAILS(load_by(m, path, "net.=", NULL), SL_BAD_FILE, "differ");
  for (int i = 0; i < 2; i++) entries[i].shape = SL_SHAPE(3, 5);
  OK(sl__safetensors_write(path, entries, 2, NULL, NULL));
  FAILS(load_by(m, path, "net.=", NULL), SL_BAD_FILE, "no tensor has");
  sl_model_free(m);
}

/* A file may have the second name alone: the weight is loaded from it. */
static void a_shared_weights_second_name_is_enough(void **state) {
  (void)state;
  struct sl_model *m = tied();
  float values[15] = {1, 2, 3};
  const struct sl__safetensors_entry entry = {"net.decoder.weight", "F32", SL_SHAPE(5, 3), values,
                                              sizeof values};
  const char *path = in_folder("second.safetensors");
  char *report;
  OK(sl__safetensors_write(path, &entry, 1, NULL, NULL));
  OK(load_by(m, path, "net.=", &report));
  assert_non_null(strstr(report, "loaded from net.decoder.weight"));
  assert_non_null(strstr(report, "1 of the model's 1 tensors loaded, 15 of 15 values"));
  assert_null(strstr(report, "not needed"));
  float *got = get_values(m, "embed.weight");
  assert_memory_equal(got, values, sizeof values);
  free(got);
  free(report);
  sl_model_free(m);
}

/* Where the first name has another shape, no weight is loaded, and none is called needless. */
static void a_weight_that_is_not_loaded_is_needed(void **state) {
  (void)state;
  struct sl_model *m = tied();
  float values[15] = {1, 2, 3};
  const struct sl__safetensors_entry entries[] = {
      {"embed.weight", "F32", SL_SHAPE(3, 5), values, sizeof values},
      {"decoder.weight", "F32", SL_SHAPE(5, 3), values, sizeof values}};
  const char *path = in_folder("shapes.safetensors");
  OK(sl__safetensors_write(path, entries, 2, NULL, NULL));
  FAILS(load_by(m, path, NULL, NULL), SL_BAD_FILE,
        "no tensor has the shape of its parameter: \"embed.weight\" is");
  struct sl_model *more = new_model(SL_SHAPE(2));
  OK(sl_embedding(more, "embed", &(struct sl_embedding_options){.vocabulary = 5, .features = 3}));
  OK(sl_dense(more, "fc", &(struct sl_dense_options){.features = 3, .positions = true}));
  OK(sl_dense(more, "decoder",
              &(struct sl_dense_options){
                  .layer.shares = "embed", .features = 5, .no_bias = true, .positions = true}));
  const struct sl__safetensors_entry three[] = {
      entries[0], entries[1], {"fc.bias", "F32", SL_SHAPE(3), values, 12}};
  char *report;
  OK(sl__safetensors_write(path, three, 3, NULL, NULL));
  OK(load_by(more, path, NULL, &report));
  assert_non_null(strstr(report, "other shape in the file"));
  assert_null(strstr(report, "not needed"));
  free(report);
  sl_model_free(more);
  sl_model_free(m);
}

/* A tensor that no model can have, of 6 dimensions or of an unknown type, hinders no other one. */
static void unread_tensors_are_passed_over(void **state) {
  (void)state;
#define BIAS "{\"bn.bias\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
  static const char *const headers[] = {
      BIAS "\"mask\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,4],\"data_offsets\":[16,32]}}",
      BIAS "\"mask\":{\"dtype\":\"F6_E2\",\"shape\":[4],\"data_offsets\":[16,32]}}"};
#undef BIAS
  struct sl_model *m = model_of("fc", "new", 2);
  for (int i = 0; i < 2; i++) {
    char bytes[512], *report;
    float values[8] = {7, 7, 7, 7};
    uint64_t length = strlen(headers[i]);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, headers[i], length);
    memcpy(bytes + 8 + length, values, sizeof values);
    const char *path = put("unread.safetensors", bytes, 8 + length + sizeof values);
    OK(load_by(m, path, NULL, &report));
    assert_non_null(strstr(report, "mask"));
    free(report);
    assert_true(first_value(m, "bn.bias") == 7);
    FAILS(load_by(m, path, "mask=bn.weight", NULL), SL_UNSUPPORTED,
          i ? "\"mask\" is of type F6_E2" : "\"mask\" has 6 dimensions");
  }
  sl_model_free(m);
}

static struct sl_model *target;
static const char *source;
static enum sl_status load_once(void) {
  char *report = NULL;
  enum sl_status status = load_by(target, source, "trunk.=", &report);
  free(report);
  return status;
}

static void short_memory_is_reported(void **state) {
  (void)state;
  source = donor("donor.safetensors");
  target = model_of("fc", "new", 2);
  check_allocations(load_once);
  sl_model_free(target);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(names_are_mapped),
                                     cmocka_unit_test(other_files_are_read),
                                     cmocka_unit_test(bad_maps_change_nothing),
                                     cmocka_unit_test(bad_files_change_nothing),
                                     cmocka_unit_test(shared_weights_must_agree),
                                     cmocka_unit_test(unread_tensors_are_passed_over),
                                     cmocka_unit_test(a_shared_weights_second_name_is_enough),
                                     cmocka_unit_test(a_weight_that_is_not_loaded_is_needed),
                                     cmocka_unit_test(short_memory_is_reported)};
  return cmocka_run_group_tests(tests, open_all, close_all);
}
