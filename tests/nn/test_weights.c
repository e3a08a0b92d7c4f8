/* Weight files: a round trip keeps every bit; a file that does not fit the model, is damaged or
 * holds no numbers gives one clear message and changes nothing. The misfits are written by models
 * of other shapes. */
#include <float.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "tests/common/small_model.h"

static char folder[] = "/tmp/starling_weights_XXXXXX";
static char path[64]; /* the one file that every test writes */

/* conv [3 of 2x2], batch normalisation, fc: parameters and buffers. */
static struct sl_model *small_model(int64_t features) {
  struct sl_model *model = new_model(SL_SHAPE(2, 4, 4));
  OK(sl_conv2d(model, "conv1", &(struct sl_conv2d_options){.channels = 3, .kernel_h = 2}));
  OK(sl_batchnorm(model, "bn1", &(struct sl_batchnorm_options){0}));
  add_dense(model, "fc1", features, SL_INIT_DEFAULT);
  return model;
}

/* All values one after the other, to compare whole models; to be freed. */
static float *all_values(struct sl_model *model, size_t *bytes) {
  struct sl_shape shape;
  int64_t total = 0, at = 0;
  for (int i = 0; i < sl_model_parameter_count(model); i++)
    if (sl_model_parameter(model, i, &shape)) total += sl_shape_count(&shape);
  float *values = calloc((size_t)total, sizeof *values);
  for (int i = 0; i < sl_model_parameter_count(model); i++) {
    const char *name = sl_model_parameter(model, i, &shape);
    OK(sl_model_get(model, name, values + at));
    at += sl_shape_count(&shape);
  }
  *bytes = (size_t)total * sizeof *values;
  return values;
}

/* Loading must fail so, and leave the model as it was. */
static void assert_load_refused(enum sl_status expected, const char *words) {
  size_t bytes;
  struct sl_model *model = small_model(5);
  float *before = all_values(model, &bytes);
  FAILS(sl_model_load(model, path), expected, words);
  assert_non_null(strstr(sl_error(), path));
  float *after = all_values(model, &bytes);
  assert_memory_equal(before, after, bytes);
  free(before);
  free(after);
  sl_model_free(model);
}

static void save_and_free(struct sl_model *model) {
  OK(sl_model_save(model, path));
  sl_model_free(model);
}

/* ---- one tensor ---- */

static void parameters_have_pytorchs_names(void **state) {
  (void)state;
  const struct {
    const char *name;
    struct sl_shape shape;
  } expected[] = {{"conv1.weight", SL_SHAPE(3, 2, 2, 2)},
                  {"conv1.bias", SL_SHAPE(3)},
                  {"bn1.weight", SL_SHAPE(3)},
                  {"bn1.bias", SL_SHAPE(3)},
                  {"bn1.running_mean", SL_SHAPE(3)},
                  {"bn1.running_var", SL_SHAPE(3)},
                  {"fc1.weight", SL_SHAPE(5, 27)},
                  {"fc1.bias", SL_SHAPE(5)}};
  struct sl_model *model = small_model(5);
  struct sl_shape shape;
  assert_int_equal(sl_model_parameter_count(model), 8);
  for (int i = 0; i < 8; i++) {
    assert_string_equal(sl_model_parameter(model, i, &shape), expected[i].name);
    assert_true(sl_shape_equal(&shape, &expected[i].shape));
  }
  const char *first = sl_model_parameter(model, 0, NULL);
  sl_model_parameter(model, 1, NULL);
  assert_string_equal(first, "conv1.weight"); /* a name outlives the next question */
  assert_null(sl_model_parameter(model, 8, &shape));
  assert_null(sl_model_parameter(model, -1, &shape));
  sl_model_free(model);
}

static void set_changes_one_tensor(void **state) {
  (void)state;
  struct sl_model *model = small_model(5);
  const float bias[5] = {1, 2, 3, 4, 5};
  float *weight = get_values(model, "fc1.weight");
  OK(sl_model_set(model, "fc1.bias", bias));
  float *weight_after = get_values(model, "fc1.weight"),
        *bias_after = get_values(model, "fc1.bias");
  assert_memory_equal(weight, weight_after, 5 * 27 * sizeof *weight);
  assert_memory_equal(bias, bias_after, sizeof bias);
  free(weight);
  free(weight_after);
  free(bias_after);
  sl_model_free(model);
}

static void unknown_parameters_are_refused(void **state) {
  (void)state;
  const char *const unknown[] = {"", "fc1", "fc1.", "fc1.weights", "fc2.weight", ".weight"};
  struct sl_model *model = small_model(5);
  float value = 0;
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
    FAILS(sl_model_get(model, unknown[i], &value), SL_BAD_ARGUMENT, unknown[i]);
    FAILS(sl_model_set(model, unknown[i], &value), SL_BAD_ARGUMENT, unknown[i]);
  }
  sl_model_free(model);
}

/* ---- files ---- */

static void a_round_trip_keeps_every_bit(void **state) {
  (void)state;
  const float awkward[5] = {-0.0f, FLT_MIN / 3, FLT_MAX, -FLT_TRUE_MIN, 0.1f};
  size_t bytes;
  struct sl_model *model = small_model(5), *loaded = small_model(5);
  OK(sl_model_set(model, "fc1.bias", awkward));
  OK(sl_model_set(model, "bn1.running_mean", awkward));
  OK(sl_model_save(model, path));
  OK(sl_model_load(loaded, path));
  float *saved = all_values(model, &bytes), *back = all_values(loaded, &bytes);
  assert_memory_equal(saved, back, bytes);
  free(saved);
  free(back);
  sl_model_free(model);
  sl_model_free(loaded);
}

static void misfits_are_refused(void **state) {
  (void)state;
  save_and_free(small_model(6));
  assert_load_refused(SL_BAD_SHAPE,
                      "\"fc1.weight\" is [6, 27], the model needs [5, 27]; was it saved from a "
                      "model of another size?");

  struct sl_model *surplus = small_model(5);
  add_dense(surplus, "fc2", 2, SL_INIT_DEFAULT);
  save_and_free(surplus);
  assert_load_refused(SL_BAD_FILE, "\"fc2.weight\" belongs to no layer");

  struct sl_model *missing = new_model(SL_SHAPE(2, 4, 4));
  add_dense(missing, "fc1", 5, SL_INIT_DEFAULT);
  save_and_free(missing);
  assert_load_refused(SL_BAD_FILE, "no tensor \"conv1.weight\"");
}

/* The file's bytes; to be freed. */
static char *read_bytes(size_t *size) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  rewind(file);
  char *bytes = malloc(*size);
  assert_int_equal(fread(bytes, 1, *size, file), *size);
  fclose(file);
  return bytes;
}

static void write_bytes(const void *bytes, size_t size) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  fclose(file);
}

static void damaged_files_are_refused(void **state) {
  (void)state;
  size_t size;
  save_and_free(small_model(5));
  char *bytes = read_bytes(&size);
  const size_t lengths[] = {0, 7, 8, 60, size / 2, size - 1};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    write_bytes(bytes, lengths[i]);
    assert_load_refused(SL_BAD_FILE, path);
  }
  float nan = NAN;
  memcpy(bytes + size - sizeof nan, &nan, sizeof nan);
  write_bytes(bytes, size);
  assert_load_refused(SL_NOT_FINITE, "fc1.bias");
  free(bytes);
}

/* PyTorch writes bn1.num_batches_tracked, an I64 scalar, beside the running statistics. */
static void batch_counts_may_be_there(void **state) {
  (void)state;
  static const char entry[] =
      "{\"bn1.num_batches_tracked\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[%zu,%zu]},";
  size_t size, length;
  save_and_free(small_model(5));
  char *bytes = read_bytes(&size);
  memcpy(&length, bytes, 8);
  char *grown = calloc(size + 256, 1);
  size_t data = size - 8 - length;
  size_t inserted = (size_t)snprintf(grown + 8, 256, entry, data, data + 8);
  memcpy(grown + 8 + inserted, bytes + 9, size - 9); /* without its own '{' */
  length += inserted - 1;
  memcpy(grown, &length, 8);
  write_bytes(grown, size + inserted - 1 + 8);
  struct sl_model *model = small_model(5);
  OK(sl_model_load(model, path));
  sl_model_free(model);
  free(bytes);
  free(grown);
}

static void a_missing_file_is_named(void **state) {
  (void)state;
  unlink(path);
  assert_load_refused(SL_IO, path);
}

static void infinite_weights_are_not_saved(void **state) {
  (void)state;
  const float bad[] = {NAN, INFINITY, -INFINITY};
  unlink(path);
  for (int i = 0; i < 3; i++) {
    struct sl_model *model = small_model(5);
    float bias[5] = {0, 0, 0, bad[i], 0};
    OK(sl_model_set(model, "fc1.bias", bias));
    FAILS(sl_model_save(model, path), SL_NOT_FINITE, "value 3 of fc1.bias");
    assert_int_equal(access(path, F_OK), -1);
    sl_model_free(model);
  }
}

static void an_old_file_survives_a_refused_save(void **state) {
  (void)state;
  size_t size, size_after;
  struct sl_model *model = small_model(5);
  OK(sl_model_save(model, path));
  char *before = read_bytes(&size);
  const float bias[5] = {NAN};
  OK(sl_model_set(model, "fc1.bias", bias));
  assert_int_equal(sl_model_save(model, path), SL_NOT_FINITE);
  char *after = read_bytes(&size_after);
  assert_int_equal(size, size_after);
  assert_memory_equal(before, after, size);
  free(before);
  free(after);
  sl_model_free(model);
}

static void unwritable_places_are_refused(void **state) {
  (void)state;
  struct sl_model *model = small_model(5);
  char below[96], locked[96];
  snprintf(below, sizeof below, "%s/no/such/folder.safetensors", folder);
  FAILS(sl_model_save(model, below), SL_IO, below);
  FAILS(sl_model_save(model, folder), SL_IO, folder); /* is a folder itself */
  snprintf(locked, sizeof locked, "%s/locked", folder);
  mkdir(locked, 0500);
  if (access(locked, W_OK)) { /* root may write anywhere */
    strcat(locked, "/w.safetensors");
    FAILS(sl_model_save(model, locked), SL_IO, locked);
    *strrchr(locked, '/') = '\0';
  }
  rmdir(locked);
  sl_model_free(model);
}

/* Every allocation fails once: building, saving and loading say so, leak nothing, and change
 * nothing. */
static void exhausted_memory_is_reported(void **state) {
  (void)state;
  size_t bytes;
  struct sl_model *source = small_model(5), *model = small_model(5);
  enum sl_status status = SL_NO_MEMORY;
  for (int n = 1; status != SL_OK; n++) {
    sl__alloc_fail_after(n);
    status = sl_model_build(model);
    sl__alloc_fail_after(0);
    assert_true(status == SL_OK || (n < 100 && status == SL_NO_MEMORY));
  }
  unlink(path);
  status = SL_NO_MEMORY;
  for (int n = 1; status != SL_OK; n++) {
    assert_int_equal(access(path, F_OK), -1);
    sl__alloc_fail_after(n);
    status = sl_model_save(source, path);
    sl__alloc_fail_after(0);
    assert_true(status == SL_OK || (n < 100 && status == SL_NO_MEMORY));
  }
  const float bias[5] = {1, 2, 3, 4, 5};
  OK(sl_model_set(model, "fc1.bias", bias));
  float *before = all_values(model, &bytes);
  status = SL_NO_MEMORY;
  for (int n = 1; status != SL_OK; n++) {
    sl__alloc_fail_after(n);
    status = sl_model_load(model, path);
    sl__alloc_fail_after(0);
    assert_true(status == SL_OK || (n < 100 && status == SL_NO_MEMORY));
    float *after = all_values(model, &bytes);
    if (status != SL_OK) assert_memory_equal(before, after, bytes);
    free(after);
  }
  free(before);
  sl_model_free(source);
  sl_model_free(model);
}

static int make_folder(void **state) {
  if (!mkdtemp(folder)) return -1;
  snprintf(path, sizeof path, "%s/w.safetensors", folder);
  return open_context(state);
}

static int remove_folder(void **state) {
  unlink(path);
  int left = rmdir(folder); /* fails where a half-written file was left behind */
  return close_context(state) || left;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(parameters_have_pytorchs_names),
                                     cmocka_unit_test(set_changes_one_tensor),
                                     cmocka_unit_test(unknown_parameters_are_refused),
                                     cmocka_unit_test(a_round_trip_keeps_every_bit),
                                     cmocka_unit_test(misfits_are_refused),
                                     cmocka_unit_test(damaged_files_are_refused),
                                     cmocka_unit_test(batch_counts_may_be_there),
                                     cmocka_unit_test(a_missing_file_is_named),
                                     cmocka_unit_test(infinite_weights_are_not_saved),
                                     cmocka_unit_test(an_old_file_survives_a_refused_save),
                                     cmocka_unit_test(unwritable_places_are_refused),
                                     cmocka_unit_test(exhausted_memory_is_reported)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
