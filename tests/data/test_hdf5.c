/* HDF5 files: values against those that were written, in chunks and packed, as floats and as whole
 * numbers; several reading threads; datasets that do not fit; damaged files. */
#include "data/dataset.h"
#include "tests/common/files.h"
#include "tests/common/slices.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

static enum sl_status open_set(const char *path, struct sl_reader_options options) {
  struct sl_dataset *set;
  enum sl_status status = sl_dataset_read(path, &options, true, &set);
  if (status == SL_OK) sl_dataset_free(set);
  return status;
}

#ifdef SL_HAVE_HDF5
#include <hdf5.h>

enum { COUNT = 40, EACH = 6 };

/* Adds a dataset of rank 1 to 3, in chunks of 7 rows that are packed. */
static void add(hid_t file, const char *name, int ndim, const hsize_t *dim, hid_t stored,
                hid_t given, const void *values) {
  hsize_t chunk[3] = {7, 2, 2};
  hid_t space = H5Screate_simple(ndim, dim, NULL), how = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_chunk(how, ndim, chunk) >= 0);
  if (H5Zfilter_avail(H5Z_FILTER_DEFLATE)) H5Pset_deflate(how, 6);
  hid_t set = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, how, H5P_DEFAULT);
  assert_true(set >= 0);
  assert_true(H5Dwrite(set, given, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  H5Dclose(set), H5Pclose(how), H5Sclose(space);
}

/* x [40, 3, 2] of big-endian doubles, 100 i + place; y [40] of 16 bits, i % 3; /more/z [40, 2];
 * and others, which do not fit. */
static const char *make_file(const char *name) {
  static double x[COUNT][EACH];
  static float z[COUNT][2];
  static int y[COUNT];
  const char *path = in_folder(name);
  hsize_t shape[3] = {COUNT, 3, 2}, pair[2] = {COUNT, 2}, fewer = COUNT - 1;
  for (int i = 0; i < COUNT; i++) {
    for (int k = 0; k < EACH; k++) x[i][k] = 100 * i + k;
    y[i] = i % 3;
    z[i][0] = (float)-i, z[i][1] = 0.5f;
  }
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(file >= 0);
  H5Gclose(H5Gcreate2(file, "more", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  add(file, "x", 3, shape, H5T_IEEE_F64BE, H5T_NATIVE_DOUBLE, x);
  add(file, "y", 1, shape, H5T_STD_I16BE, H5T_NATIVE_INT, y);
  add(file, "more/z", 2, pair, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, z);
  add(file, "q[0]", 1, shape, H5T_STD_I16BE, H5T_NATIVE_INT, y);
  add(file, "short", 1, &fewer, H5T_STD_I16BE, H5T_NATIVE_INT, y);
  hid_t scalar = H5Screate(H5S_SCALAR), text = H5Tcopy(H5T_C_S1);
  H5Dclose(
      H5Dcreate2(file, "scalar", H5T_IEEE_F32LE, scalar, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Dclose(H5Dcreate2(file, "text", text, scalar, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  hid_t deep = H5Screate_simple(7, (const hsize_t[]){COUNT, 1, 1, 1, 1, 1, 1}, NULL);
  hid_t none = H5Screate_simple(1, &(hsize_t){0}, NULL);
  H5Dclose(H5Dcreate2(file, "deep", H5T_IEEE_F32LE, deep, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Dclose(H5Dcreate2(file, "none", H5T_IEEE_F32LE, none, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Sclose(deep), H5Sclose(none);
  H5Sclose(scalar), H5Tclose(text), H5Fclose(file);
  return path;
}

static void check_row(const float *x, int32_t label) {
  int number = (int)x[0] / 100;
  for (int k = 0; k < EACH; k++) assert_true(x[k] == (float)(100 * number + k));
  assert_int_equal(label, number % 3);
}

/* By three threads at once, in another order each epoch. */
static void test_labels(void **state) {
  (void)state;
  struct sl_reader_options options = {.raw = true, .validation = "0.25"};
  struct sl_dataset *set;
  struct sl_loader *loader;
  OK(sl_dataset_read(make_file("set.h5"), &options, true, &set));
  const struct sl_dataset_info *info = sl_dataset_info(set);
  assert_true(info->count == 30 && info->classes == 3);
  assert_true(sl_shape_equal(&info->sample, &SL_SHAPE(3, 2)));
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = 5, .shuffle = true, .readers = 3},
                   &loader));
  for (int i = 0; i < 18; i++) {
    struct sl_batch batch;
    OK(sl_loader_next(loader, &batch));
    for (int row = 0; row < 5; row++) check_row(batch.x + row * EACH, batch.labels[row]);
    sl_loader_recycle(loader, batch.slot);
  }
  sl_loader_free(loader);
  sl_dataset_free(set);
}

static void test_values(void **state) {
  (void)state;
  struct sl_reader_options options = {.raw = true, .raw_targets = true, .target = "/more/z"};
  struct sl_dataset *set;
  float x[EACH], z[2];
  OK(sl_dataset_read(make_file("set.h5"), &options, false, &set));
  assert_true(sl_shape_equal(&sl_dataset_info(set)->target, &SL_SHAPE(2)));
  for (int64_t i = 0; i < sl_dataset_info(set)->count; i++) {
    OK(sl_dataset_get_targets(set, i, x, z));
    assert_true(z[0] == -(float)((int)x[0] / 100) && z[1] == 0.5f);
  }
  sl_dataset_free(set);
}

/* h5py's type of NumPy's bool, or another enum of one byte. */
static hid_t make_enum(int members) {
  static const char *const names[] = {"FALSE", "TRUE", "NONE"};
  hid_t type = H5Tenum_create(H5T_NATIVE_INT8);
  for (int8_t i = 0; i < members; i++) H5Tenum_insert(type, names[i], &i);
  return type;
}

/* As .npz files' arrays: unsigned numbers from 2^63 on, and bools. */
static void test_kinds(void **state) {
  (void)state;
  static const uint64_t wide[4] = {3, (uint64_t)1 << 63, UINT64_MAX, 1};
  static const int8_t flags[4] = {1, 0, 1, 1};
  const char *path = in_folder("kinds.h5");
  hsize_t count = 4;
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  hid_t boolean = make_enum(2), other = make_enum(3);
  hid_t space = H5Screate_simple(1, &count, NULL);
  H5Dclose(H5Dcreate2(file, "other", other, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  hid_t set_x = H5Dcreate2(file, "x", H5T_STD_U64BE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  hid_t set_y = H5Dcreate2(file, "y", boolean, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Dwrite(set_x, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, wide) >= 0);
  assert_true(H5Dwrite(set_y, boolean, H5S_ALL, H5S_ALL, H5P_DEFAULT, flags) >= 0);
  H5Dclose(set_x), H5Dclose(set_y), H5Sclose(space), H5Tclose(boolean), H5Tclose(other);
  H5Fclose(file);
  for (int part = 0; part < 2; part++) {
    struct sl_dataset *set;
    OK(sl_dataset_read(path, &(struct sl_reader_options){.raw = true}, part == 0, &set));
    assert_int_equal(sl_dataset_info(set)->classes, 2);
    for (int64_t i = 0; i < sl_dataset_info(set)->count; i++) {
      int64_t number = sl_dataset_number(set, i);
      float x;
      int32_t label;
      OK(sl_dataset_get(set, i, &x, &label));
      assert_true(x == (float)wide[number] && label == flags[number]);
    }
    sl_dataset_free(set);
  }
  FAILS(open_set(path, (struct sl_reader_options){.target = "other"}), SL_BAD_FILE,
        "its elements are no numbers");
}

/* Several inputs and targets by name, in groups or not: fields in that order, whatever their kinds
 * of numbers; the field's name is the part behind the last slash. */
static void test_names(void **state) {
  (void)state;
  struct sl_reader_options options = {
      .raw = true, .raw_targets = true, .inputs = "/more/z,x", .target = "y,/more/z"};
  struct sl_dataset *set;
  float x[2 + EACH], t[3];
  OK(sl_dataset_read(make_file("set.h5"), &options, true, &set));
  const struct sl_dataset_info *info = sl_dataset_info(set);
  assert_true(info->count == 36 && info->input_count == 2 && info->target_count == 2);
  assert_true(sl_shape_equal(&info->sample, &SL_SHAPE(2 + EACH)));
  assert_string_equal(info->inputs[0].name, "z");
  assert_string_equal(info->inputs[1].name, "x");
  assert_true(info->inputs[1].first == 2 &&
              sl_shape_equal(&info->inputs[1].shape, &SL_SHAPE(3, 2)));
  assert_string_equal(info->targets[0].name, "y");
  assert_true(info->targets[0].classes == 3 && info->targets[1].classes == 0);
  for (int64_t i = 0; i < info->count; i++) {
    OK(sl_dataset_get_targets(set, i, x, t));
    int number = (int)x[2] / 100;
    check_row(x + 2, (int32_t)t[0]);
    assert_true(x[0] == (float)-number && x[1] == 0.5f && t[1] == x[0] && t[2] == x[1]);
  }
  sl_dataset_free(set);
}

/* Without targets, as answers need it: the other names need not be there. */
static void test_names_of_inputs(void **state) {
  (void)state;
  struct sl_reader_options options = {.inputs = "x,y", .inputs_only = true};
  struct sl_dataset *set;
  OK(sl_dataset_read(make_file("set.h5"), &options, true, &set));
  assert_true(sl_dataset_info(set)->count == COUNT && sl_dataset_info(set)->input_count == 2);
  sl_dataset_free(set);
}

static void test_names_refused(void **state) {
  (void)state;
  const char *path = make_file("set.h5");
  FAILS(open_set(path, (struct sl_reader_options){.inputs = "x,short", .target = "y"}),
        SL_BAD_SHAPE, "has 39");
  FAILS(open_set(path, (struct sl_reader_options){.inputs = "short,x", .target = "y"}),
        SL_BAD_SHAPE, "39 samples, but");
  FAILS(open_set(path, (struct sl_reader_options){.inputs = "x", .target = "y,short"}),
        SL_BAD_SHAPE, "has 39 targets");
  FAILS(open_set(path, (struct sl_reader_options){.inputs = "x,absent", .target = "y"}),
        SL_BAD_FILE, "has no dataset \"absent\"");
  FAILS(open_set(path, (struct sl_reader_options){.inputs = "x,text", .target = "y"}), SL_BAD_FILE,
        "its elements are no numbers");
  FAILS(open_set(path, (struct sl_reader_options){.inputs = "x,deep", .target = "y"}), SL_BAD_FILE,
        "has 7 axes");
  FAILS(open_set(path, (struct sl_reader_options){.inputs = "x,x", .target = "y"}), SL_BAD_ARGUMENT,
        "'x' is there twice");
  FAILS(open_set(path, (struct sl_reader_options){.inputs = "more/z,/more/z", .target = "y"}),
        SL_BAD_ARGUMENT, "'z' is there twice");
}

/* Rows of each of several packed datasets cut off: refused when it is opened, or when such a row is
 * read, and never read as something else. */
static void test_names_cut(void **state) {
  (void)state;
  struct sl_reader_options options = {
      .raw = true, .raw_targets = true, .inputs = "x,/more/z", .target = "y,/more/z"};
  struct stat info;
  float x[EACH + 2], t[3];
  int refused = 0, tries = 0;
  assert_int_equal(stat(make_file("set.h5"), &info), 0);
  for (off_t size = info.st_size - 1; size > 0; size -= info.st_size / 13, tries++) {
    struct sl_dataset *set;
    assert_int_equal(truncate(make_file("cut.h5"), size), 0);
    enum sl_status status = sl_dataset_read(in_folder("cut.h5"), &options, true, &set);
    if (status == SL_OK) {
      for (int64_t i = 0; i < sl_dataset_info(set)->count && status == SL_OK; i++) {
        status = sl_dataset_get_targets(set, i, x, t);
        if (status == SL_OK) check_row(x, (int32_t)t[0]);
      }
      sl_dataset_free(set);
    }
    assert_true(status == SL_OK || status == SL_BAD_FILE);
    refused += status == SL_BAD_FILE;
  }
  assert_int_equal(refused, tries);
}

static void check_slice(const char *inputs, int64_t first, int64_t step,
                        const struct sl_shape *shape, const int *places) {
  check_slice_of(in_folder("set.h5"), inputs, COUNT, 100, first, step, shape, places);
}

static void test_slices(void **state) {
  (void)state;
  make_file("set.h5");
  check_slice("x[:]", 0, 1, &SL_SHAPE(3, 2), (const int[]){0, 1, 2, 3, 4, 5});
  check_slice("x[5:]", 5, 1, &SL_SHAPE(3, 2), (const int[]){0, 1, 2, 3, 4, 5});
  check_slice("x[6::7]", 6, 7, &SL_SHAPE(3, 2), (const int[]){0, 1, 2, 3, 4, 5});
  check_slice("x[:, 0:2]", 0, 1, &SL_SHAPE(2, 2), (const int[]){0, 1, 2, 3});
  check_slice("x[:,-1]", 0, 1, &SL_SHAPE(2), (const int[]){4, 5});
  check_slice("/x[-4:,::2,1]", 36, 1, &SL_SHAPE(2), (const int[]){1, 5});
  check_slice("x[:,1,0]", 0, 1, &SL_SHAPE(1), (const int[]){2});
}

/* Slices of one dataset have names of their own; a dataset whose name looks like one is itself;
 * behind the file's colon, too. By three threads. */
static void test_slice_fields(void **state) {
  (void)state;
  struct sl_reader_options options = {.raw = true,
                                      .raw_targets = true,
                                      .inputs = "x[:,0:2],/more/z[:,1],x[:,2,:],q[0]",
                                      .target = "y,/more/z[:,0]",
                                      .validation = "0.25"};
  static const char *const names[] = {"x_0.2", "z", "x_2_.", "q"};
  static const float expected[] = {0, 1, 2, 3, -1, 4, 5};
  struct sl_dataset *set;
  struct sl_loader *loader;
  char path[4096];
  OK(sl_dataset_read(make_file("set.h5"), &options, true, &set));
  const struct sl_dataset_info *info = sl_dataset_info(set);
  assert_true(info->input_count == 4 && sl_shape_equal(&info->sample, &SL_SHAPE(8)));
  for (int i = 0; i < 4; i++) assert_string_equal(info->inputs[i].name, names[i]);
  assert_true(sl_shape_equal(&info->inputs[0].shape, &SL_SHAPE(2, 2)));
  assert_string_equal(info->targets[1].name, "z");
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = 5, .shuffle = true, .readers = 3},
                   &loader));
  for (int i = 0; i < 12; i++) {
    struct sl_batch batch;
    OK(sl_loader_next(loader, &batch));
    for (int row = 0; row < 5; row++) {
      const float *x = batch.x + row * 8, *t = batch.targets + row * 2;
      int number = -(int)t[1];
      for (int k = 0; k < 7; k++)
        assert_true(x[k] == (k == 4 ? 0.5f : (float)(100 * number) + expected[k]));
      assert_true(x[7] == t[0] && t[0] == (float)(number % 3));
    }
    sl_loader_recycle(loader, batch.slot);
  }
  sl_loader_free(loader);
  sl_dataset_free(set);
  snprintf(path, sizeof path, "%s:/x[:10,1:3]", in_folder("set.h5"));
  OK(sl_dataset_read(path, &(struct sl_reader_options){.target = "y[30:]"}, true, &set));
  assert_true(sl_dataset_info(set)->count == 9);
  assert_true(sl_shape_equal(&sl_dataset_info(set)->sample, &SL_SHAPE(2, 2)));
  sl_dataset_free(set);
}

static void test_slices_refused(void **state) {
  (void)state;
  static const struct {
    const char *inputs, *target;
    enum sl_status status;
    const char *message;
  } cases[] = {
      {"x[:,0:4]", "y", SL_BAD_ARGUMENT,
       "set.h5: x[:,0:4]: '0:4' for axis 1: reaches beyond the axis; its shape is [40, 3, 2]"},
      {"x", "y[0]", SL_BAD_ARGUMENT, "set.h5: y[0]: '0' for axis 0: the first axis counts samples"},
      {"x", "y[:,0]", SL_BAD_ARGUMENT, "set.h5: y[:,0]: its slice has more parts"},
      {"x[:,0:2", "y", SL_BAD_ARGUMENT, "'x[:,0:2': a bracket is not closed"},
      {"x[:,a]", "y", SL_BAD_FILE,
       "no dataset \"x[:,a]\"; h5ls -r lists those that it has; a slice"},
      {"absent[:,0]", "y", SL_BAD_FILE, "has no dataset \"absent\""},
      {"more[:,0]", "y", SL_BAD_FILE, "has no dataset \"more\""},
      {"x[:39]", "y", SL_BAD_SHAPE, "set.h5: x[:39]: 39 samples, but"},
      {"x[:39],x[1:,0]", "short,y[:39]", SL_OK, NULL},
      {"deep[:,0]", "y", SL_BAD_FILE, "has 7 axes"},
  };
  const char *path = make_file("set.h5");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sl_reader_options options = {.inputs = cases[i].inputs, .target = cases[i].target};
    if (cases[i].message)
      FAILS(open_set(path, options), cases[i].status, cases[i].message);
    else
      OK(open_set(path, options));
  }
}

/* The inputs' dataset behind a colon. */
static void test_colon(void **state) {
  (void)state;
  char path[4096];
  struct sl_dataset *set;
  struct sl_reader_options options = {.raw = true, .raw_targets = true, .target = "/more/z"};
  float x, z[2];
  snprintf(path, sizeof path, "%s:/y", make_file("set.h5"));
  OK(sl_dataset_read(path, &options, true, &set));
  assert_true(sl_shape_equal(&sl_dataset_info(set)->sample, &SL_SHAPE(1)));
  for (int64_t i = 0; i < sl_dataset_info(set)->count; i++) {
    OK(sl_dataset_get_targets(set, i, &x, z));
    assert_true(x == (float)((int)-z[0] % 3));
  }
  sl_dataset_free(set);
  options.inputs = "x";
  FAILS(open_set(path, options), SL_BAD_ARGUMENT, "names the inputs already");
}

/* A dataset whose layout message is of a version that no libhdf5 knows, as a newer one's is. */
static void test_newer_dataset(void **state) {
  (void)state;
  static unsigned char bytes[8192];
  static const float values[COUNT];
  hsize_t count = COUNT;
  const char *path = in_folder("newer.h5");
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  hid_t space = H5Screate_simple(1, &count, NULL);
  hid_t set = H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  H5Dclose(set), H5Sclose(space), H5Fclose(file);
  FILE *f = fopen(path, "r+b");
  assert_non_null(f);
  size_t size = fread(bytes, 1, sizeof bytes, f), at = 0;
  /* version 3, contiguous, an address of 8 bytes, the size */
  while (at + 18 <= size &&
         !(bytes[at] == 3 && bytes[at + 1] == 1 && bytes[at + 10] == sizeof values))
    at++;
  assert_true(at + 18 <= size);
  assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
  assert_int_equal(fputc(99, f), 99);
  assert_int_equal(fclose(f), 0);
  FAILS(open_set(path, (struct sl_reader_options){.inputs = "x", .target = "y"}), SL_BAD_FILE,
        "cannot open its dataset \"x\"");
  FAILS(open_set(path, (struct sl_reader_options){.inputs = "z", .target = "y"}), SL_BAD_FILE,
        "has no dataset \"z\"");
}

static void test_refused(void **state) {
  (void)state;
  const char *path = make_file("set.h5");
  FAILS(open_set(path, (struct sl_reader_options){.inputs = "absent"}), SL_BAD_FILE,
        "has no dataset \"absent\"");
  FAILS(open_set(path, (struct sl_reader_options){.inputs = "more"}), SL_BAD_FILE,
        "has no dataset \"more\"");
  FAILS(open_set(path, (struct sl_reader_options){.target = "scalar"}), SL_BAD_FILE, "has 0 axes");
  FAILS(open_set(path, (struct sl_reader_options){.inputs = "deep"}), SL_BAD_FILE, "has 7 axes");
  FAILS(open_set(path, (struct sl_reader_options){.inputs = "none"}), SL_BAD_FILE,
        "axis 0 is 0 long");
  FAILS(open_set(path, (struct sl_reader_options){.target = "x", .targets = SL_TARGET_CLASSES}),
        SL_BAD_SHAPE, "classes take one");
  FAILS(open_set(path, (struct sl_reader_options){.target = "text"}), SL_BAD_FILE,
        "its elements are no numbers");
  FAILS(open_set(path, (struct sl_reader_options){.target = "short"}), SL_BAD_SHAPE,
        "has 39 targets");
  FAILS(open_set(in_folder("nowhere.h5"), (struct sl_reader_options){0}), SL_IO,
        "cannot be opened: No such file");
  FAILS(open_set(put("bad.h5", "rubbish", 7), (struct sl_reader_options){0}), SL_BAD_FILE,
        "is no HDF5 file");
}

/* Cut at many places: refused, or read. */
static void test_cut(void **state) {
  (void)state;
  struct stat info;
  assert_int_equal(stat(make_file("set.h5"), &info), 0);
  for (off_t size = info.st_size - 1; size > 0; size -= info.st_size / 13) {
    assert_int_equal(truncate(make_file("cut.h5"), size), 0);
    assert_int_equal(open_set(in_folder("cut.h5"), (struct sl_reader_options){0}), SL_BAD_FILE);
  }
}

static enum sl_status open_good(void) {
  return open_set(in_folder("set.h5"), (struct sl_reader_options){0});
}

static void test_allocations(void **state) {
  (void)state;
  make_file("set.h5");
  check_allocations(open_good);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_labels),         cmocka_unit_test(test_values),
      cmocka_unit_test(test_kinds),          cmocka_unit_test(test_colon),
      cmocka_unit_test(test_refused),        cmocka_unit_test(test_newer_dataset),
      cmocka_unit_test(test_names),          cmocka_unit_test(test_names_of_inputs),
      cmocka_unit_test(test_names_refused),  cmocka_unit_test(test_names_cut),
      cmocka_unit_test(test_slices),         cmocka_unit_test(test_slice_fields),
      cmocka_unit_test(test_slices_refused), cmocka_unit_test(test_cut),
      cmocka_unit_test(test_allocations),
  };
  return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
#else
/* Without libhdf5 the message says what to install. */
static void test_refused(void **state) {
  (void)state;
  FAILS(open_set(put("set.h5", "rubbish", 7), (struct sl_reader_options){0}), SL_UNSUPPORTED,
        "install libhdf5-dev");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
#endif
