/* Tables: fields as RFC 4180 has them, kinds of columns, texts as classes and as inputs, missing
 * values, the line and column of each mistake. */
#include <locale.h>
#include <math.h>
#include <unistd.h>

#include "data/csv.h"
#include "data/dataset.h"
#include "tests/common/files.h"

static struct sl_reader_options to_y = {.target = "y"};

static enum sl_status parse(const char *text, const struct sl_reader_options *options,
                            struct sl__csv *csv) {
  static char copy[4096];
  size_t size = strlen(text);
  assert_true(size < sizeof copy);
  memcpy(copy, text, size);
  return sl__csv_parse("t.csv", (uint8_t *)copy, size, options, NULL, csv);
}

/* Parses and checks the values, row by row. */
static void check_values(const char *text, const struct sl_reader_options *options, int64_t rows,
                         int columns, const float *expected) {
  struct sl__csv csv;
  OK(parse(text, options, &csv));
  assert_true(csv.rows == rows && csv.columns == columns);
  for (int64_t i = 0; i < rows * columns; i++)
    if (isnan(expected[i]) ? !isnan(csv.values[i]) : csv.values[i] != expected[i])
      fail_msg("%s: value %lld is %g instead of %g", text, (long long)i, csv.values[i],
               expected[i]);
  sl__csv_free(&csv);
}

#define VALUES(...) ((const float[]){__VA_ARGS__})

static void test_fields(void **state) {
  (void)state;
  static const char *const same[] = {
      "x,y\n1.5,2\n-3,4e2\n",
      "x,y\r\n1.5,2\r\n-3,4e2\r\n",
      "x,y\n1.5,2\n-3,4e2", /* no end of the last line */
      "x;y\n1.5;2\n-3;4e2\n",
      "x\ty\n1.5\t2\n-3\t4e2\n",
      "\xef\xbb\xbfx,y\n1.5,2\n-3,4e2\n",
      "\n\nx,y\n\n1.5,2\r\n\n-3,4e2\n\n",
      "\"x\",\"y\"\n\"1.5\",2\n\"-3\",\"4e2\"\n",
      " x , y \n 1.5 ,\t2\n -3, 4e2 \n",
      "x,y\n+1.5,2.\n-3.0,400\n",
  };
  for (size_t i = 0; i < sizeof same / sizeof *same; i++)
    check_values(same[i], &to_y, 2, 2, VALUES(1.5f, 2, -3, 400));
  /* without a header columns have numbers */
  check_values("1,2\n3,4\n", &(struct sl_reader_options){.target = "2"}, 2, 2, VALUES(1, 2, 3, 4));
  static const int digits[] = {1, 125, 126, 200, 1075}; /* all that a double can have */
  for (size_t i = 0; i < sizeof digits / sizeof *digits; i++) {
    char text[2048];
    snprintf(text, sizeof text, "x,y\n%.*f,2\n3,4\n", digits[i], -0.5);
    check_values(text, &to_y, 2, 2, VALUES(-0.5f, 2, 3, 4));
  }
}

static void test_quotes(void **state) {
  (void)state;
  struct sl__csv csv;
  OK(parse("\"a \"\"b\"\"\",\"c,d\",y\n1,\"two\nlines\",3\n1,\"a \"\"quote\"\"\",3\n", &to_y,
           &csv));
  assert_string_equal(csv.column[0].name, "a \"b\"");
  assert_string_equal(csv.column[1].name, "c,d");
  assert_int_equal(csv.column[1].level_count, 2);
  assert_string_equal(csv.column[1].levels[0], "a \"quote\"");
  assert_string_equal(csv.column[1].levels[1], "two\nlines");
  assert_true(csv.values[1] == 1 && csv.values[4] == 0);
  sl__csv_free(&csv);
}

static void test_classes(void **state) {
  (void)state;
  static const struct sl_reader_options classes = {.target = "y", .targets = SL_TARGET_CLASSES};
  struct sl__csv csv;
  OK(parse("x,y\n1,cat\n2,ant\n3,cat\n", &to_y, &csv)); /* sorted by their letters */
  assert_string_equal(csv.column[1].levels[0], "ant");
  assert_true(csv.values[1] == 1 && csv.values[3] == 0 && csv.values[5] == 1);
  sl__csv_free(&csv);
  OK(parse("x,y\n1,10\n2,9\n3,-1\n", &classes, &csv)); /* by their values */
  assert_string_equal(csv.column[1].levels[0], "-1");
  assert_string_equal(csv.column[1].levels[2], "10");
  assert_true(csv.values[1] == 2 && csv.values[3] == 1 && csv.values[5] == 0);
  sl__csv_free(&csv);
  OK(parse("x,y\n1,1.0\n2,2\n3,1\n4,01\n", &classes, &csv)); /* equal values are one class */
  assert_int_equal(csv.column[1].level_count, 2);
  assert_string_equal(csv.column[1].levels[1], "2");
  assert_true(csv.values[1] == 0 && csv.values[3] == 1 && csv.values[5] == 0 && csv.values[7] == 0);
  sl__csv_free(&csv);
  OK(parse("x,y\n1,20230101\n2,20230102\n3,1e999\n4,2e999\n", &classes, &csv));
  assert_int_equal(csv.column[1].level_count, 4); /* floats would not tell them apart */
  sl__csv_free(&csv);
  OK(parse("x,y\nb,1\n\"7\",2\nb,3\n", &to_y, &csv)); /* a number in quotes may be a text */
  assert_int_equal(csv.column[0].level_count, 2);
  sl__csv_free(&csv);
  OK(parse("x;y\n1,2,3;1\n\"1,2\";2\na,b;3\n", &to_y, &csv));
  assert_int_equal(csv.column[0].level_count, 3);
  assert_string_equal(csv.column[0].levels[0], "1,2");
  sl__csv_free(&csv);
}

static void test_mistakes(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"", "is empty"},
      {"\n\n", "is empty"},
      {"x,y\n", "no rows behind its header"},
      {"x,y\n1,2\n3\n", "line 3 ends behind column 1: column 2 (\"y\") is missing"},
      {"x,y\n1,2\n\n3,4,5\n", "line 4 has more than the 2 columns"},
      {"x,y\n1,2\n3,4,\n", "line 3 has more than the 2 columns"},
      {"x,y\n1,2\n3,four\n", "line 3, column 2 (\"y\"): \"four\" is no number"},
      {"x,y\n1,2\n1.2.3,4\n", "line 3, column 1 (\"x\"): \"1.2.3\" is no number"},
      {"x,y\n1,2\n0x10,4\n", "\"0x10\" is no number"},
      {"x,y\n1,2\ninf,4\n", "\"inf\" is no number"},
      {"x,y\n1,2\n1e39,4\n", "\"1e39\" is too large"},
      {"x,y\n1,2\n,4\n",
       "line 3, column 1 (\"x\"): \"\" is a missing value; drop such rows, or take "
       "the column's mean (missing = drop or mean)"},
      {"x,y\n?,2\n\n1,4\n",
       "line 4, column 1 (\"x\"): \"1\" is a number, but line 2 has the text \"?\""},
      {"x,y\n1,inf\n1,4\n", "line 3, column 2 (\"y\"): \"4\" is a number, but line 2 has"},
      {"x;y\n\"0,5\";2\n1;4\n", "line 3, column 1 (\"x\"): \"1\" is a number, but line 2 has"},
      {"x;y\n0,5;2\n1;4\n", "line 2, column 1 (\"x\"): \"0,5\" has a decimal comma; write numbers"},
      {"x\ty\n1\t-2,5e3\n", "line 2, column 2 (\"y\"): \"-2,5e3\" has a decimal comma"},
      {"x;y\n1;2\n1,5;2\n", "line 3, column 1 (\"x\"): \"1,5\" has a decimal comma"},
      {"x;y\n?;2\n,5;2\n", "line 3, column 1 (\"x\"): \",5\" has a decimal comma"},
      {"x,y\n1,2\n3,nan\n", "line 3, column 2 (\"y\"): \"nan\" is a missing value"},
      {"c,y\n\"a\nb\",2\nc,x\n", "line 4, column 2 (\"y\"): \"x\" is no number"},
      {"x,y\n1,2\n\"3,4\n", "line 3, column 1: a quote is not closed"},
      {"x,y\n1,2\n\"3\"4,5\n", "line 3, column 1: text behind a quote"},
  };
  struct sl__csv csv;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    FAILS(parse(cases[i].text, &to_y, &csv), SL_BAD_FILE, cases[i].message);
    sl__csv_free(&csv);
  }
  uint8_t zero[] = "x,y\n1,\0\n";
  FAILS(sl__csv_parse("t.csv", zero, sizeof zero - 1, &to_y, NULL, &csv), SL_BAD_FILE,
        "line 2, column 2: a zero byte");
  sl__csv_free(&csv);
}

/* A table with decimal commas, whose commas may be more than what separates; and texts that only
 * look like that. */
static void test_decimal_commas(void **state) {
  (void)state;
  static const struct {
    const char *text, *target, *message;
  } cases[] = {
      {"7,3;7,7;8,1\n7,5;7,9;8,2\n", "3", "line 1, column 1 (\"1\"): \"7,3\" has a decimal comma"},
      {"x;2,5\n1;2\n", "1", "line 1, column 2 (\"2\"): \"2,5\" has a decimal comma"},
      {"\"a,b\";2,5\nc;2\n", "1", "line 1, column 2 (\"2\"): \"2,5\" has a decimal comma"},
      {" 7,3\t -1e3 \t,1 \r\n", "3", "line 1, column 1 (\"1\"): \"7,3\" has a decimal comma"},
      {"a, b;c, d\n1,5;2,5\n", "d", "line 2, column 2 (\"b;c\"): \"5;2\" has numbers on both"},
      {"1,x;2,3\n4,5;b; 7,8\n", "3", "line 2, column 2 (\"2\"): \"5;b; 7\" has numbers on both"},
      {"1,x\t2,3\n4,5\t6,8\n", "3", "line 2, column 2 (\"2\"): \"5?6\" has numbers on both"},
  };
  struct sl__csv csv;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct sl_reader_options options = {.target = cases[i].target};
    FAILS(parse(cases[i].text, &options, &csv), SL_BAD_FILE, cases[i].message);
    sl__csv_free(&csv);
  }
  OK(parse("a;b,y\n\"3;7\",1\n3;b,2\n;7,3\n3;,4\n", &to_y, &csv));
  assert_int_equal(csv.column[0].level_count, 4);
  sl__csv_free(&csv);
  OK(parse("7,\"7;8\",8\n", &(struct sl_reader_options){.target = "3"}, &csv));
  assert_int_equal(csv.columns, 3);
  sl__csv_free(&csv);
}

static void test_columns(void **state) {
  (void)state;
  static const struct {
    struct sl_reader_options options;
    const char *message;
  } cases[] = {
      {{.target = NULL}, "name the target, the column to be predicted; its columns are a, b, y"},
      {{.target = "z"}, "has no column z; its columns are a, b, y"},
      {{.target = "y", .ignore = "c"}, "has no column c"},
      {{.target = "y,y"}, "\"y\" is named twice"},
      {{.target = "y", .ignore = "y"}, "\"y\" is named twice"},
      {{.target = "y", .ignore = "a,b"}, "no column is left for the inputs"},
      {{.target = "y,a", .targets = SL_TARGET_CLASSES}, "2 targets; classes take one"},
  };
  struct sl__csv csv;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    FAILS(parse("a,b,y\n1,2,3\n", &cases[i].options, &csv), SL_BAD_ARGUMENT, cases[i].message);
    sl__csv_free(&csv);
  }
  /* what is ignored is not looked at */
  check_values("a,b,y\n1,x,3\n2,,4\n", &(struct sl_reader_options){.target = "y", .ignore = "b"}, 2,
               3, VALUES(1, 0, 3, 2, 0, 4));
  check_values("a,\"b, in m\",y\n1,2,3\n",
               &(struct sl_reader_options){.target = "b, in m", .ignore = "y"}, 1, 3,
               VALUES(1, 2, 0));
  FAILS(parse("a,b,y\n1,2,s\n", &(struct sl_reader_options){.target = "y,b"}, &csv), SL_BAD_FILE,
        "column 3 (\"y\") has texts");
  sl__csv_free(&csv);
  FAILS(parse("a,y\n1,s\n", &(struct sl_reader_options){.target = "y", .targets = SL_TARGET_VALUES},
              &csv),
        SL_BAD_FILE, "\"s\" is no number");
  sl__csv_free(&csv);
}

/* A name that two columns have is refused, whoever uses it, unless it is ignored; columns without a
 * name have their numbers. */
static void test_same_names(void **state) {
  (void)state;
  static const struct sl_column wanted[] = {{.name = "a"}};
  static const struct {
    const char *text;
    struct sl_reader_options options;
    const char *message;
  } cases[] = {
      {"a,b,y,y\n1,2,3,3\n",
       {.target = "y"},
       "t.csv: columns 3 and 4 are both named \"y\"; rename one, or ignore that name"},
      {"y,a,a,y\n1,2,3,3\n", {.target = "y"}, "columns 2 and 3 are both named \"a\""},
      {"a,b,y,a\n1,2,3,3\n", {.target = "y"}, "columns 1 and 4 are both named \"a\""},
      {"a,a,b,y,y\n1,2,3,3,3\n", {.target = "y", .ignore = "a"}, "columns 4 and 5 are both named"},
      {"\"a\";b; a;y\n1;2;3;3\n", {.target = "y"}, "columns 1 and 3 are both named \"a\""},
      {"a,y,a\n1,2,3\n", {.inputs_only = true}, "columns 1 and 3 are both named \"a\""},
      {"b,a,y,a\n1,2,3,4\n",
       {.inputs_only = true, .column_count = 1, .columns = wanted},
       "columns 2 and 4 are both named \"a\""},
  };
  struct sl__csv csv;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    FAILS(parse(cases[i].text, &cases[i].options, &csv), SL_BAD_FILE, cases[i].message);
    sl__csv_free(&csv);
  }
  FAILS(parse("a,y,y\n1,2,3\n", &(struct sl_reader_options){.target = "y", .ignore = "y"}, &csv),
        SL_BAD_ARGUMENT, "\"y\" is named twice");
  sl__csv_free(&csv);
  /* both are left out */
  check_values("a,b,a,y\n1,2,x,3\n", &(struct sl_reader_options){.target = "y", .ignore = "a"}, 1,
               4, VALUES(0, 2, 0, 3));
  check_values(
      "b,a,b\n1,2,3\n",
      &(struct sl_reader_options){.inputs_only = true, .column_count = 1, .columns = wanted}, 1, 3,
      VALUES(0, 2, 0));
  check_values("A,a,,y,\n1,2,3,4,5\n", &to_y, 1, 5, VALUES(1, 2, 3, 4, 5));
  check_values(",a,,y\n1,2,3,4\n", &(struct sl_reader_options){.target = "y", .ignore = "1,3"}, 1,
               4, VALUES(0, 2, 0, 4));
}

static void test_missing(void **state) {
  (void)state;
  static const char text[] = "x,y\nNA,1\n2,3\n4,\n\"\",5\nN/A,6\nNull,7\nNaN,8\n";
  struct sl_reader_options options = {.target = "y", .missing = SL_MISSING_DROP};
  check_values(text, &options, 1, 2, VALUES(2, 3));
  options.missing = SL_MISSING_MEAN;
  check_values(text, &options, 6, 2, VALUES(NAN, 1, 2, 3, NAN, 5, NAN, 6, NAN, 7, NAN, 8));
  struct sl__csv csv;
  FAILS(parse("x,z,y\n,1,2\n,3,4\n", &options, &csv), SL_BAD_FILE,
        "column 1 (\"x\") has no values");
  sl__csv_free(&csv);
  options.missing = SL_MISSING_DROP;
  FAILS(parse("x,y\n,1\n", &options, &csv), SL_BAD_FILE, "no rows without missing values");
  sl__csv_free(&csv);
  /* sodium, and a country's code in quotes */
  OK(parse("x,y\nNa,1\n\"NA\",2\n,3\n\"\",4\nFe,5\n", &options, &csv));
  assert_true(csv.rows == 3 && csv.dropped == 2 && csv.first_dropped == 4);
  sl__csv_free(&csv);
}

/* Rows that are left out give their columns no texts, classes or kinds; their columns count. */
static void test_dropped_rows(void **state) {
  (void)state;
  struct sl_reader_options options = {.target = "y", .missing = SL_MISSING_DROP};
  struct sl__csv csv;
  OK(parse("a,y\n1,p\n-1,q\n,zz\n", &options, &csv));
  assert_int_equal(csv.column[1].level_count, 2);
  sl__csv_free(&csv);
  OK(parse("k,a,y\nu,1,1\nv,,2\nw,3,3\n", &options, &csv));
  assert_int_equal(csv.column[0].level_count, 2);
  assert_string_equal(csv.column[0].levels[1], "w");
  assert_true(csv.rows == 2 && csv.values[3] == 1 && csv.dropped == 1 && csv.first_dropped == 3);
  sl__csv_free(&csv);
  check_values("-,,1\n1,2,3\n1e99,,5\n",
               &(struct sl_reader_options){.target = "3", .missing = SL_MISSING_DROP}, 1, 3,
               VALUES(1, 2, 3));
  FAILS(parse("a,y\n1,2\n,3,4\n", &options, &csv), SL_BAD_FILE, "line 3 has more than the 2");
  sl__csv_free(&csv);
  FAILS(parse("a,b,y\n1,2,3\n,2\n", &options, &csv), SL_BAD_FILE, "line 3 ends behind column 2");
  sl__csv_free(&csv);
  options.missing = SL_MISSING_MEAN;
  OK(parse("k,a,y\nu,1,1\nv,3,\nw,,3\n", &options, &csv));
  assert_true(csv.rows == 2 && csv.column[0].level_count == 2);
  sl__csv_free(&csv);
}

/* Decimal points, whatever the program's locale. */
static void test_locale(void **state) {
  (void)state;
  if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) setlocale(LC_NUMERIC, "de_DE");
  check_values("x,y\n1.5,2.25\n", &to_y, 1, 2, VALUES(1.5f, 2.25f));
  setlocale(LC_NUMERIC, "C");
}

/* 257 different texts are no input. */
static void test_many_texts(void **state) {
  (void)state;
  char text[8192] = "name,y\n";
  struct sl__csv csv;
  size_t used = strlen(text);
  for (int i = 0; i < 257; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, "n%d,1\n", i);
  FAILS(sl__csv_parse("t.csv", (uint8_t *)text, used, &to_y, NULL, &csv), SL_BAD_FILE,
        "line 258, column 1 (\"name\"): \"n256\" is text number 257");
  sl__csv_free(&csv);
}

/* ---- sets ---- */

static const char *put_text(const char *name, const char *text) {
  return put(name, text, strlen(text));
}

/* A text is an input for each of the column's texts; a missing one is none of them, a missing
 * number the mean of the training part. */
static void test_set(void **state) {
  (void)state;
  struct sl_reader_options options = {
      .target = "y,z", .missing = SL_MISSING_MEAN, .raw = true, .raw_targets = true};
  const char *path = put_text("t.csv", "a,c,y,z\n1,red,10,1\n3,,20,2\n,blue,30,3\n");
  options.validation = put_text("v.csv", "a,c,y,z\n5,blue,40,4\n");
  static const float expected[3][3] = {{1, 0, 1}, {3, 0, 0}, {2, 1, 0}};
  struct sl_dataset *set;
  float x[3], targets[2];
  OK(sl_dataset_read(path, &options, true, &set));
  assert_true(sl_shape_equal(&sl_dataset_info(set)->sample, &SL_SHAPE(3)));
  assert_true(sl_shape_equal(&sl_dataset_info(set)->target, &SL_SHAPE(2)));
  for (int i = 0; i < 3; i++) {
    OK(sl_dataset_get_targets(set, i, x, targets));
    for (int k = 0; k < 3; k++) assert_true(x[k] == expected[i][k]);
    assert_true(targets[0] == 10.0f * (float)(i + 1) && targets[1] == (float)(i + 1));
  }
  sl_dataset_free(set);
  OK(sl_dataset_read(path, &options, false, &set));
  OK(sl_dataset_get_targets(set, 0, x, targets));
  assert_true(x[0] == 5 && x[1] == 1 && x[2] == 0 && targets[0] == 40);
  sl_dataset_free(set);
}

static void test_normalised(void **state) {
  (void)state;
  struct sl_reader_options options = {.target = "y"};
  const char *path = put_text("t.csv", "a,b,y\n1,7,a\n2,7,b\n3,7,a\n4,7,b\n");
  options.validation = put_text("v.csv", "a,b,y\n5,9,a\n");
  struct sl_dataset *set;
  float x[2];
  int32_t label;
  OK(sl_dataset_read(path, &options, false, &set));
  const struct sl_dataset_info *info = sl_dataset_info(set);
  assert_int_equal(info->classes, 2);
  assert_string_equal(info->class_names[1], "b");
  OK(sl_dataset_get(set, 0, x, &label));
  assert_true(fabsf(x[0] - 2.5f / sqrtf(1.25f)) < 1e-6f); /* mean 2.5, variance 1.25 */
  assert_true(x[1] == 2 && label == 0);                   /* equal values: mean 7, deviation 1 */
  sl_dataset_free(set);
}

/* Small units are as good as any, but a value far outside the training's has no float then. */
static void test_tiny_deviations(void **state) {
  (void)state;
  struct sl_reader_options options = {.target = "y"};
  const char *path = put_text("t.csv", "a,mass,y\n1,1e-30,1e-39\n2,2e-30,2e-39\n3,3e-30,3e-39\n");
  options.validation = put_text("v.csv", "a,mass,y\n5,9e-30,2e-39\n5,1e10,2e-39\n5,1e-30,7\n");
  struct sl_dataset *set;
  float x[2], y;
  OK(sl_dataset_read(path, &options, false, &set));
  OK(sl_dataset_get_targets(set, 0, x, &y));
  assert_true(fabsf(x[1] - 7 / sqrtf(2 / 3.0f)) < 1e-4f && fabsf(y) < 1e-4f);
  FAILS(sl_dataset_get_targets(set, 1, x, &y), SL_BAD_ARGUMENT,
        "sample 1: the value of 'mass' is too large for f32 when it is normalised: mean 2e-30, "
        "deviation 8.16");
  FAILS(sl_dataset_get_targets(set, 2, x, &y), SL_BAD_ARGUMENT, "sample 2: the value of 'y' is");
  sl_dataset_free(set);
}

/* A part's samples have the table's numbers, and the set's name says how many rows it lacks. */
static void test_numbers(void **state) {
  (void)state;
  struct sl_reader_options options = {
      .target = "y", .missing = SL_MISSING_DROP, .validation = "fold:2/3", .raw = true};
  const char *path = put_text("t.csv", "n,y\n0,5\n1,5\n2,5\n3,5\n4,5\nNA,5\n5,\n");
  bool seen[5] = {false};
  for (int train = 0; train < 2; train++) {
    struct sl_dataset *set;
    OK(sl_dataset_read(path, &options, train, &set));
    assert_non_null(strstr(sl_dataset_info(set)->name,
                           "t.csv without 2 rows that miss a value (line 7 first)"));
    for (int64_t i = 0; i < sl_dataset_info(set)->count; i++) {
      float x, y;
      OK(sl_dataset_get_targets(set, i, &x, &y));
      assert_true(sl_dataset_number(set, i) == (int64_t)x && !seen[(int)x]);
      seen[(int)x] = true;
    }
    assert_int_equal(sl_dataset_number(set, -1), -1);
    assert_int_equal(sl_dataset_number(set, sl_dataset_info(set)->count), -1);
    sl_dataset_free(set);
  }
  for (int i = 0; i < 5; i++) assert_true(seen[i]);
}

static enum sl_status open_pair(const char *text, const char *validation) {
  struct sl_reader_options options = {.target = "y"};
  const char *path = put_text("t.csv", text);
  struct sl_dataset *set;
  options.validation = put_text("v.csv", validation);
  enum sl_status status = sl_dataset_read(path, &options, true, &set);
  if (status == SL_OK) sl_dataset_free(set);
  return status;
}

static void test_validation_file(void **state) {
  (void)state;
  const struct sl_reader_options huge = {.target = "y",
                                         .targets = SL_TARGET_CLASSES,
                                         .validation = put_text("v.csv", "a,y\n5,3e999\n")};
  struct sl_dataset *none;
  FAILS(sl_dataset_read(put_text("t.csv", "a,y\n1,1\n2,2e999\n"), &huge, false, &none), SL_BAD_FILE,
        "\"3e999\" does not occur");
  static const char numbers[] = "a,y\n1,1.0\n2,1\n3,2\n";
  const struct sl_reader_options classes = {.target = "y",
                                            .targets = SL_TARGET_CLASSES,
                                            .validation = put_text("v.csv", "a,y\n5,02\n6,1.0\n")};
  struct sl_dataset *set;
  int32_t label;
  float x;
  OK(sl_dataset_read(put_text("t.csv", numbers), &classes, false, &set));
  assert_int_equal(sl_dataset_info(set)->classes, 2);
  OK(sl_dataset_get(set, 0, &x, &label));
  assert_int_equal(label, 1);
  OK(sl_dataset_get(set, 1, &x, &label));
  assert_int_equal(label, 0);
  sl_dataset_free(set);
  static const char training[] = "a,c,y\n1,red,u\n2,blue,v\n";
  OK(open_pair(training, "a,c,y\n1,red,u\n"));
  FAILS(open_pair(training, "a,c\n1,red\n"), SL_BAD_FILE, "2 columns, but");
  FAILS(open_pair(training, "c,a,y\nred,1,u\n"), SL_BAD_FILE, "column 1 is \"c\", but \"a\"");
  FAILS(open_pair(training, "a,c,y\n1,green,u\n"), SL_BAD_FILE,
        "line 2, column 2 (\"c\"): \"green\" does not occur");
  FAILS(open_pair(training, "a,c,y\n1,red,w\n"), SL_BAD_FILE,
        "line 2, column 3 (\"y\"): \"w\" does not occur");
  FAILS(open_pair(training, "a,c,y\nx,red,u\n"), SL_BAD_FILE, "\"x\" is no number");
}

/* Each row is in one of the parts; the seed chooses, and nothing else. */
static void test_split(void **state) {
  (void)state;
  char text[1024] = "x,y\n";
  for (int i = 0; i < 20; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%d,%d\n", i, 2 * i);
  const char *path = put_text("t.csv", text);
  int held_back[2][20] = {{0}};
  for (int turn = 0; turn < 4; turn++) {
    struct sl_reader_options options = {.target = "y",
                                        .seed = turn == 3 ? 9 : 5,
                                        .validation = "0.25",
                                        .raw = true,
                                        .raw_targets = true};
    struct sl_dataset *set;
    OK(sl_dataset_read(path, &options, turn == 1, &set));
    assert_int_equal(sl_dataset_info(set)->count, turn == 1 ? 15 : 5);
    for (int64_t i = 0; i < sl_dataset_info(set)->count; i++) {
      float x, y;
      OK(sl_dataset_get_targets(set, i, &x, &y));
      assert_true(y == 2 * x);
      if (turn < 2) held_back[0][(int)x] += turn ? 100 : 1;
      if (turn == 2) assert_int_equal(held_back[0][(int)x], 1);
      if (turn == 3) held_back[1][(int)x] = 1;
    }
    sl_dataset_free(set);
  }
  int other = 0;
  for (int i = 0; i < 20; i++) {
    assert_true(held_back[0][i] == 1 || held_back[0][i] == 100);
    other += held_back[1][i] && held_back[0][i] == 100;
  }
  assert_true(other > 0);
}

/* The rows of a part: seen[x] of each grows. */
static void count_rows(const char *path, const struct sl_reader_options *options, bool train,
                       int *seen, int64_t *count) {
  struct sl_dataset *set;
  OK(sl_dataset_read(path, options, train, &set));
  *count = sl_dataset_info(set)->count;
  for (int64_t i = 0; i < *count; i++) {
    float x, y;
    OK(sl_dataset_get_targets(set, i, &x, &y));
    seen[(int)x]++;
  }
  sl_dataset_free(set);
}

/* Each row is held back in one fold, and in the training of all others; sizes differ by one at
 * most; the first fold is not the first rows. */
static void test_folds(void **state) {
  (void)state;
  enum { ROWS = 23 };
  char text[1024] = "x,y\n", name[32];
  for (int i = 0; i < ROWS; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%d,%d\n", i, 2 * i);
  const char *path = put_text("t.csv", text);
  struct sl_reader_options options = {
      .target = "y", .seed = 5, .validation = name, .raw = true, .raw_targets = true};
  for (int folds = 2; folds <= ROWS; folds += 7) {
    int held[ROWS] = {0}, trained[ROWS] = {0};
    for (int fold = 1; fold <= folds; fold++) {
      int64_t out, in;
      snprintf(name, sizeof name, "fold:%d/%d", fold, folds);
      count_rows(path, &options, false, held, &out);
      count_rows(path, &options, true, trained, &in);
      assert_true(out == ROWS / folds || out == ROWS / folds + 1);
      assert_int_equal(in, ROWS - out);
      int first = 0;
      for (int i = 0; i < out; i++) first += held[i];
      if (folds == 2 && fold == 1) assert_true(first < out);
    }
    for (int i = 0; i < ROWS; i++) assert_true(held[i] == 1 && trained[i] == folds - 1);
  }
  static const char *const bad[] = {"0/5", "6/5", "1/1", "1", "/5", "-1/5", "1/5/5", "a/b", ""};
  struct sl_dataset *set;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    snprintf(name, sizeof name, "fold:%s", bad[i]);
    FAILS(sl_dataset_read(path, &options, true, &set), SL_BAD_ARGUMENT, "give K/N, fold K of N");
  }
  options.validation = "fold:1/24";
  FAILS(sl_dataset_read(path, &options, true, &set), SL_BAD_ARGUMENT,
        "23 samples are too few for 24 folds");
}

static enum sl_status open_good(void) {
  struct sl_reader_options options = {.target = "y"};
  struct sl_dataset *set;
  enum sl_status status = sl_dataset_read(in_folder("good.csv"), &options, true, &set);
  if (status == SL_OK) sl_dataset_free(set);
  return status;
}

static void test_allocations(void **state) {
  (void)state;
  put_text("good.csv", "a,\"b \"\"c\"\"\",y\n1,red,u\n2,blue,v\n3,red,v\n");
  check_allocations(open_good);
}

/* For answers: the training's columns, wherever they are, and nothing else is looked at. */
static void test_inputs_only(void **state) {
  (void)state;
  static const char *const texts[] = {"down", "up"};
  const struct sl_column columns[] = {{.name = "b", .missing = true},
                                      {.name = "kind", .text_count = 2, .texts = texts},
                                      {.name = "a"}};
  const struct sl_reader_options options = {
      .inputs_only = true, .column_count = 3, .columns = columns};
  struct sl__csv csv;
  OK(parse("a,other,kind,b\n1,x,up,2\n3,,down,\n", &options, &csv));
  assert_int_equal(csv.ordered, 3);
  assert_true(csv.order[0] == 3 && csv.order[1] == 2 && csv.order[2] == 0);
  assert_true(csv.rows == 2 && csv.values[3] == 2 && isnan(csv.values[7]));
  assert_true(csv.values[2] == 1 && csv.values[6] == 0);
  sl__csv_free(&csv);
  FAILS(parse("a,b\n1,2\n", &options, &csv), SL_BAD_ARGUMENT, "has no column kind");
  sl__csv_free(&csv);
  FAILS(parse("a,kind,b\n1,left,2\n", &options, &csv), SL_BAD_FILE, "does not occur");
  sl__csv_free(&csv);
  FAILS(parse("a,kind,b\n,up,2\n", &options, &csv), SL_BAD_FILE,
        "is a missing value, and the training allowed none; fill it in");
  sl__csv_free(&csv);
  /* without columns all are inputs, and numbers */
  const struct sl_reader_options all = {.inputs_only = true};
  check_values("1,2\n3,4\n", &all, 2, 2, VALUES(1, 2, 3, 4));
  FAILS(parse("a,b\n1,up\n", &all, &csv), SL_BAD_FILE, "is no number");
  sl__csv_free(&csv);
}

/* Such a set has all rows, in order, as they are, and NaN for the target. */
static void test_inputs_only_set(void **state) {
  (void)state;
  const struct sl_column columns[] = {{.name = "b"}, {.name = "a"}};
  struct sl_dataset *set;
  float x[2], target;
  char path[] = "/tmp/starling_inputs_XXXXXX.csv";
  int file = mkstemps(path, 4);
  assert_true(file >= 0 && write(file, "a,y,b\n1,9,2\n3,9,4\n", 18) == 18 && close(file) == 0);
  OK(sl_dataset_read(
      path, &(struct sl_reader_options){.inputs_only = true, .column_count = 2, .columns = columns},
      true, &set));
  const struct sl_dataset_info *info = sl_dataset_info(set);
  assert_true(info->count == 2 && info->missing && info->column_count == 2);
  assert_string_equal(info->columns[0].name, "b");
  OK(sl_dataset_get_targets(set, 1, x, &target));
  assert_true(x[0] == 4 && x[1] == 3 && isnan(target));
  sl_dataset_free(set);
  OK(sl_dataset_read(path, &(struct sl_reader_options){.target = "y"}, true, &set));
  info = sl_dataset_info(set);
  assert_true(info->column_count == 2 && info->target_name_count == 1);
  assert_string_equal(info->columns[1].name, "b");
  assert_string_equal(info->target_names[0], "y");
  sl_dataset_free(set);
  FAILS(sl_dataset_read("digits", &(struct sl_reader_options){.inputs_only = true}, true, &set),
        SL_BAD_ARGUMENT, "takes no inputs without targets");
  FAILS(
      sl_dataset_read(path, &(struct sl_reader_options){.missing = (enum sl_missing)9}, true, &set),
      SL_BAD_ARGUMENT, "there is no rule 9 for missing values");
  FAILS(sl_dataset_read(path, &(struct sl_reader_options){.targets = (enum sl_target_kind)9}, true,
                        &set),
        SL_BAD_ARGUMENT, "there is no kind 9 of targets");
  assert_int_equal(unlink(path), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fields),          cmocka_unit_test(test_quotes),
      cmocka_unit_test(test_classes),         cmocka_unit_test(test_mistakes),
      cmocka_unit_test(test_decimal_commas),  cmocka_unit_test(test_columns),
      cmocka_unit_test(test_missing),         cmocka_unit_test(test_locale),
      cmocka_unit_test(test_many_texts),      cmocka_unit_test(test_set),
      cmocka_unit_test(test_numbers),         cmocka_unit_test(test_normalised),
      cmocka_unit_test(test_tiny_deviations), cmocka_unit_test(test_split),
      cmocka_unit_test(test_validation_file), cmocka_unit_test(test_folds),
      cmocka_unit_test(test_allocations),     cmocka_unit_test(test_inputs_only),
      cmocka_unit_test(test_inputs_only_set), cmocka_unit_test(test_same_names),
      cmocka_unit_test(test_dropped_rows),
  };
  return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
