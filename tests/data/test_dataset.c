/* Readers of MNIST and CIFAR-10 on good files and on files damaged in every way that we could think
 * of, the caller's own datasets, and the generated digits. Real MNIST is read where STARLING_DATA
 * names a folder. */
#include <math.h>
#include <pthread.h>

#include "data/dataset.h"
#include "tests/common/files.h"

/* ---- MNIST in the test's folder ---- */

#define COUNT 5
#define PIXELS (28 * 28)
static uint8_t images[16 + COUNT * PIXELS + 1], labels[8 + COUNT + 1];
#define IMAGES_SIZE (sizeof images - 1)
#define LABELS_SIZE (sizeof labels - 1)

static void make_mnist(void) {
  static const uint8_t image_header[16] = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, 28, 0, 0, 0, 28};
  static const uint8_t label_header[8] = {0, 0, 8, 1, 0, 0, 0, COUNT};
  memcpy(images, image_header, 16);
  memcpy(labels, label_header, 8);
  for (size_t i = 0; i < COUNT * PIXELS; i++) images[16 + i] = (uint8_t)(i * 7);
  for (size_t i = 0; i < COUNT; i++) labels[8 + i] = (uint8_t)(9 - i);
}

static void put_mnist(size_t image_size, size_t label_size) {
  put("train-images-idx3-ubyte", images, image_size);
  put("train-labels-idx1-ubyte", labels, label_size);
}

static void remove_mnist(void) {
  static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                      "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"};
  for (int i = 0; i < 4; i++) unlink(in_folder(names[i]));
}

static enum sl_status open_mnist(void) {
  struct sl_dataset *set;
  enum sl_status status = sl_mnist_open(test_folder, true, &set);
  if (status == SL_OK) sl_dataset_free(set);
  return status;
}

static void check_mnist(const char *folder) {
  struct sl_dataset *set;
  float values[PIXELS];
  int32_t label;
  assert_int_equal(sl_mnist_open(folder, true, &set), SL_OK);
  const struct sl_dataset_info *info = sl_dataset_info(set);
  assert_int_equal(info->count, COUNT);
  assert_int_equal(info->classes, 10);
  assert_true(sl_shape_equal(&info->sample, &SL_SHAPE(1, 28, 28)));
  for (int64_t i = 0; i < COUNT; i++) {
    assert_int_equal(sl_dataset_get(set, i, values, &label), SL_OK);
    assert_int_equal(label, 9 - i);
    for (size_t p = 0; p < PIXELS; p++) {
      double byte = (uint8_t)(((size_t)i * PIXELS + p) * 7);
      assert_true(fabs(values[p] - (byte / 255 - 0.1307) / 0.3081) < 1e-6);
    }
  }
  FAILS(sl_dataset_get(set, COUNT, values, &label), SL_BAD_ARGUMENT, "no sample 5");
  FAILS(sl_dataset_get(set, -1, values, &label), SL_BAD_ARGUMENT, "no sample -1");
  sl_dataset_free(set);
  sl_dataset_free(NULL);
}

static void test_mnist(void **state) {
  (void)state;
  make_mnist();
  put_mnist(IMAGES_SIZE, LABELS_SIZE);
  check_mnist(test_folder);
  put("train-images-idx3-ubyte.gz", "rubbish", 7); /* the plain file is preferred */
  check_mnist(test_folder);
  unlink(in_folder("train-images-idx3-ubyte"));
  put_gz("train-images-idx3-ubyte.gz", images, IMAGES_SIZE); /* one packed, one plain */
  check_mnist(test_folder);
  struct sl_dataset *set;
  assert_int_equal(sl_dataset_open(test_folder, 1, true, &set), SL_OK);
  sl_dataset_free(set);
  FAILS(sl_dataset_open(test_folder, 1, false, &set), SL_IO, "t10k-images-idx3-ubyte");
  remove_mnist();
}

static void test_mnist_missing(void **state) {
  (void)state;
  make_mnist();
  FAILS(open_mnist(), SL_IO, "train-images-idx3-ubyte: cannot be opened");
  put("train-images-idx3-ubyte", images, IMAGES_SIZE);
  FAILS(open_mnist(), SL_IO, "train-labels-idx1-ubyte: cannot be opened");
  remove_mnist();
}

/* Cut in the magic number, in a size, before and in an image or label, one byte before the end. */
static void test_mnist_cut(void **state) {
  (void)state;
  static const size_t image_cuts[] = {0, 3, 4, 6, 15, 16, 17, 16 + PIXELS, IMAGES_SIZE - 1};
  static const size_t label_cuts[] = {0, 1, 4, 7, 8, 9, LABELS_SIZE - 1};
  make_mnist();
  for (size_t i = 0; i < sizeof image_cuts / sizeof *image_cuts; i++) {
    put_mnist(image_cuts[i], LABELS_SIZE);
    FAILS(open_mnist(), SL_BAD_FILE, "train-images-idx3-ubyte: ");
  }
  for (size_t i = 0; i < sizeof label_cuts / sizeof *label_cuts; i++) {
    put_mnist(IMAGES_SIZE, label_cuts[i]);
    FAILS(open_mnist(), SL_BAD_FILE, "train-labels-idx1-ubyte: ");
  }
  put_mnist(16 + 2 * PIXELS + 5, LABELS_SIZE);
  FAILS(open_mnist(), SL_BAD_FILE, "cut short after item 2 of 5");
  put_mnist(IMAGES_SIZE + 1, LABELS_SIZE);
  FAILS(open_mnist(), SL_BAD_FILE, "1 bytes too many");
  put_mnist(IMAGES_SIZE, LABELS_SIZE + 1);
  FAILS(open_mnist(), SL_BAD_FILE, "1 bytes too many");
  remove_mnist();
}

/* One byte of a header or of the labels is changed. */
static void test_mnist_damaged(void **state) {
  (void)state;
  static const struct {
    bool in_labels;
    size_t at;
    uint8_t value;
    const char *message;
  } cases[] = {
      {false, 0, 0x1f, "magic"},
      {false, 2, 0x0d, "magic"},
      {false, 3, 1, "instead of 0x00000803"},
      {true, 3, 3, "magic"},
      {false, 7, 0, "empty"},
      {false, 11, 0, "empty"},
      {false, 15, 0, "empty"},
      {false, 7, 4, "too many"},
      {false, 7, 6, "cut short"},
      {false, 4, 255, "cut short"},
      {false, 8, 255, "cut short"},
      {true, 7, 4, "too many"},
      {true, 7, 6, "cut short"},
      {true, 8, 10, "label 0 is 10"},
      {true, 12, 255, "label 4 is 255"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    make_mnist();
    (cases[i].in_labels ? labels : images)[cases[i].at] = cases[i].value;
    put_mnist(IMAGES_SIZE, LABELS_SIZE);
    FAILS(open_mnist(), SL_BAD_FILE, cases[i].message);
  }
  make_mnist(); /* sizes whose product wraps in 64 bits: 2^32 - 1 times 2^31 times 2^31 */
  memcpy(images + 4, "\xff\xff\xff\xff\x80\x00\x00\x00\x80\x00\x00\x00", 12);
  put_mnist(IMAGES_SIZE, LABELS_SIZE);
  FAILS(open_mnist(), SL_BAD_FILE, "promises more");
  remove_mnist();
}

static void test_mnist_mismatched(void **state) {
  (void)state;
  make_mnist();
  labels[7] = 4;
  put_mnist(IMAGES_SIZE, LABELS_SIZE - 1);
  FAILS(open_mnist(), SL_BAD_FILE, "5 images, but");
  make_mnist();
  images[11] = 14, images[15] = 56; /* the same number of pixels in another shape */
  put_mnist(IMAGES_SIZE, LABELS_SIZE);
  FAILS(open_mnist(), SL_BAD_FILE, "14 x 56");
  remove_mnist();
}

static void test_mnist_packed_cut(void **state) {
  (void)state;
  make_mnist();
  put("train-labels-idx1-ubyte", labels, LABELS_SIZE);
  const char *path = put_gz("train-images-idx3-ubyte.gz", images, IMAGES_SIZE);
  struct stat info;
  assert_int_equal(stat(path, &info), 0);
  for (off_t size = info.st_size - 1; size > 0; size = size * 2 / 3) {
    assert_int_equal(truncate(path, size), 0);
    FAILS(open_mnist(), SL_BAD_FILE, "train-images-idx3-ubyte.gz: ");
  }
  remove_mnist();
}

static void test_real_mnist(void **state) {
  (void)state;
  const char *data = getenv("STARLING_DATA");
  if (!data) {
    printf("# skipped: set STARLING_DATA to a folder that holds mnist/\n");
    skip();
  }
  char folder[4096];
  snprintf(folder, sizeof folder, "%s/mnist", data);
  for (int train = 0; train < 2; train++) {
    struct sl_dataset *set;
    float values[PIXELS];
    int32_t label;
    double sum = 0;
    int seen[10] = {0};
    assert_int_equal(sl_dataset_open(folder, 1, train, &set), SL_OK);
    int64_t count = sl_dataset_info(set)->count;
    for (int64_t i = 0; i < count; i++) {
      assert_int_equal(sl_dataset_get(set, i, values, &label), SL_OK);
      seen[label]++;
      for (size_t p = 0; p < PIXELS; p++) sum += values[p];
    }
    assert_true(fabs(sum / (double)count / PIXELS) < 0.1); /* normalised */
    for (int c = 0; c < 10; c++) assert_true(seen[c] > count / 20);
    sl_dataset_free(set);
  }
}

/* ---- CIFAR-10 ---- */

#define RECORD 3073
static uint8_t records[3 * RECORD];

static void make_cifar(void) {
  for (size_t i = 0; i < sizeof records; i++)
    records[i] = (uint8_t)(i % RECORD ? i * 3 : i / RECORD + 4);
}

static void put_batch(int f, size_t size) {
  char name[32];
  snprintf(name, sizeof name, "data_batch_%d.bin", f);
  put(name, records, size);
}

static enum sl_status open_cifar(void) {
  struct sl_dataset *set;
  enum sl_status status = sl_cifar10_open(test_folder, true, &set);
  if (status == SL_OK) sl_dataset_free(set);
  return status;
}

static void test_cifar(void **state) {
  (void)state;
  struct sl_dataset *set;
  float values[RECORD - 1];
  int32_t label;
  make_cifar();
  for (int f = 1; f <= 5; f++) put_batch(f, sizeof records);
  assert_int_equal(sl_dataset_open(test_folder, 1, true, &set), SL_OK);
  assert_int_equal(sl_dataset_info(set)->count, 15);
  assert_true(sl_shape_equal(&sl_dataset_info(set)->sample, &SL_SHAPE(3, 32, 32)));
  assert_int_equal(sl_dataset_info(set)->channels, 3);
  assert_string_equal(sl_dataset_info(set)->class_names[9], "truck");
  assert_int_equal(sl_dataset_get(set, 7, values, &label), SL_OK); /* record 1 of the third file */
  assert_int_equal(label, 5);
  for (size_t p = 0; p < RECORD - 1; p += 1024) { /* the first pixel of each colour */
    static const double mean[] = {0.4914, 0.4822, 0.4465}, deviation[] = {0.2470, 0.2435, 0.2616};
    double byte = records[RECORD + 1 + p];
    assert_true(fabs(values[p] - (byte / 255 - mean[p / 1024]) / deviation[p / 1024]) < 1e-6);
  }
  sl_dataset_free(set);
  FAILS(sl_cifar10_open(test_folder, false, &set), SL_IO, "test_batch.bin");
}

static void test_cifar_damaged(void **state) {
  (void)state;
  static const size_t cuts[] = {1, RECORD - 1, RECORD + 1, 3 * RECORD - 1};
  make_cifar();
  for (int f = 1; f <= 5; f++) put_batch(f, sizeof records);
  put_batch(4, 0);
  FAILS(open_cifar(), SL_BAD_FILE, "data_batch_4.bin: is empty");
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
    put_batch(4, cuts[i]);
    FAILS(open_cifar(), SL_BAD_FILE, "data_batch_4.bin: cut short");
  }
  put_batch(4, 2 * RECORD);
  FAILS(open_cifar(), SL_BAD_FILE, "data_batch_4.bin: 2 records, but");
  records[2 * RECORD] = 10;
  put_batch(4, sizeof records);
  FAILS(open_cifar(), SL_BAD_FILE, "data_batch_4.bin: label 2 is 10");
  unlink(in_folder("data_batch_4.bin"));
  FAILS(open_cifar(), SL_IO, "data_batch_4.bin: cannot be opened");
}

static void test_cifar_inner_folder(void **state) {
  (void)state;
  struct sl_dataset *set;
  make_cifar();
  assert_int_equal(mkdir(in_folder("archive"), 0700), 0);
  assert_int_equal(mkdir(in_folder("archive/cifar-10-batches-bin"), 0700), 0);
  put("archive/cifar-10-batches-bin/test_batch.bin", records, sizeof records);
  assert_int_equal(sl_dataset_open(in_folder("archive"), 1, false, &set), SL_OK);
  assert_int_equal(sl_dataset_info(set)->count, 3);
  sl_dataset_free(set);
}

/* ---- the caller's own, and by name ---- */

static void test_own_dataset(void **state) {
  (void)state;
  static const uint8_t samples[2 * 2 * 3] = {0, 255, 51, 0, 0, 0, 1, 2, 3, 4, 5, 6};
  static const int32_t own_labels[2] = {0, 2};
  static const float mean[2] = {0.2f, 0}, deviation[2] = {0.5f, 2}, zero[2] = {1, 0};
  const struct sl_shape shape = SL_SHAPE(2, 1, 3);
  struct sl_dataset *set;
  float values[6];
  int32_t label;
  assert_int_equal(sl_dataset_new("own", &shape, 2, 3, samples, own_labels, mean, deviation, &set),
                   SL_OK);
  assert_int_equal(sl_dataset_get(set, 0, values, &label), SL_OK);
  assert_true(fabsf(values[0] + 0.4f) < 1e-6f && fabsf(values[1] - 1.6f) < 1e-6f &&
              fabsf(values[2]) < 1e-6f && values[3] == 0);
  assert_string_equal(sl_dataset_info(set)->name, "own");
  assert_int_equal(sl_dataset_info(set)->channels, 2);
  assert_memory_equal(sl_dataset_info(set)->mean, mean, sizeof mean);
  assert_memory_equal(sl_dataset_info(set)->deviation, deviation, sizeof deviation);
  assert_null(sl_dataset_info(set)->class_names);
  sl_dataset_free(set);
  assert_int_equal(sl_dataset_new("own", &SL_SHAPE(6), 2, 3, samples, own_labels, NULL, NULL, &set),
                   SL_OK);
  assert_int_equal(sl_dataset_get(set, 0, values, &label), SL_OK);
  assert_true(values[1] == 1.0f && values[2] == 0.2f);
  assert_int_equal(sl_dataset_info(set)->channels, 1); /* one for all */
  assert_true(sl_dataset_info(set)->mean[0] == 0 && sl_dataset_info(set)->deviation[0] == 1);
  sl_dataset_free(set);
  FAILS(sl_dataset_new("own", &(struct sl_shape){.ndim = 77, .dim = {1, 2, 2}}, 2, 3, samples,
                       own_labels, NULL, NULL, &set),
        SL_BAD_ARGUMENT, "shape is impossible");
  FAILS(sl_dataset_new("own", &shape, 2, 2, samples, own_labels, NULL, NULL, &set), SL_BAD_ARGUMENT,
        "label 1 is 2");
  FAILS(sl_dataset_new("own", &shape, 2, 3, samples, own_labels, mean, zero, &set), SL_BAD_ARGUMENT,
        "deviation 0");
  FAILS(sl_dataset_new("own", &shape, 0, 3, samples, own_labels, NULL, NULL, &set), SL_BAD_ARGUMENT,
        "0 samples");
  FAILS(sl_dataset_new("own", &shape, 2, 0, samples, own_labels, NULL, NULL, &set), SL_BAD_ARGUMENT,
        "0 classes");
  FAILS(sl_dataset_new("own", &SL_SHAPE(2, 0), 2, 3, samples, own_labels, NULL, NULL, &set),
        SL_BAD_ARGUMENT, "shape");
  FAILS(sl_dataset_new("own", &SL_SHAPE(1ll << 40, 1ll << 40), 2, 3, samples, own_labels, NULL,
                       NULL, &set),
        SL_BAD_ARGUMENT, "shape");
}

/* Each sample of `steps` tokens has as many labels, the last of which is the next sample's first
 * token. */
static void test_own_tokens(void **state) {
  (void)state;
  static const int32_t tokens[13] = {0, 1, 2};
  static const struct {
    int64_t count, samples;
  } cases[] = {{5, 1}, {8, 1}, {9, 2}, {12, 2}, {13, 3}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sl_dataset *set;
    assert_int_equal(sl_tokens_new("own", tokens, cases[i].count, 4, 3, &set), SL_OK);
    assert_int_equal(sl_dataset_info(set)->count, cases[i].samples);
    sl_dataset_free(set);
  }
}

static void test_closed_folder(void **state) {
  (void)state;
  enum { NOBODY = 65534 }; /* a user without rights */
  struct sl_dataset *set;
  bool root = geteuid() == 0; /* who may read everything */
  assert_int_equal(mkdir(in_folder("closed"), 0000), 0);
  assert_int_equal(chmod(test_folder, 0711), 0);
  if (root) assert_int_equal(seteuid(NOBODY), 0);
  enum sl_status status = sl_dataset_open(in_folder("closed"), 1, true, &set);
  if (root) assert_int_equal(seteuid(0), 0);
  FAILS(status, SL_IO, "closed: cannot be opened: Permission denied");
  if (root) assert_int_equal(seteuid(NOBODY), 0);
  status = sl_dataset_open(in_folder("closed/deeper"), 1, true, &set);
  if (root) assert_int_equal(seteuid(0), 0);
  FAILS(status, SL_IO, "closed/deeper: cannot be opened: Permission denied");
}

static void test_by_name(void **state) {
  (void)state;
  struct sl_dataset *set;
  FAILS(sl_dataset_open(in_folder("none"), 1, true, &set), SL_IO, "no such folder or file");
  FAILS(sl_dataset_open(put("a file", "x", 1), 1, true, &set), SL_IO, "holds neither");
  assert_int_equal(mkdir(in_folder("nothing"), 0700), 0);
  FAILS(sl_dataset_open(in_folder("nothing"), 1, true, &set), SL_IO, "holds neither");
  assert_int_equal(sl_dataset_open("digits", 1, false, &set), SL_OK);
  assert_int_equal(sl_dataset_info(set)->count, 2000);
  sl_dataset_free(set);
}

static void test_formats_are_listed(void **state) {
  (void)state;
  struct sl_dataset *set;
  const struct sl_dataset_format *format;
  FAILS(sl_dataset_open(in_folder("nothing"), 1, true, &set), SL_IO,
        "MNIST (train-images-idx3-ubyte, plain or .gz)");
  for (int i = 0; (format = sl_dataset_format(i)); i++) {
    assert_non_null(format->about);
    assert_int_equal(format->generated, format->files == NULL);
    if (format->generated) assert_ptr_equal(sl_dataset_detect(format->name), format);
    if (format->generated) continue;
    assert_int_not_equal(sl_dataset_open(in_folder("nothing"), 1, true, &set), SL_OK);
    assert_non_null(strstr(sl_error(), format->name)); /* each is named by the refusal */
  }
  assert_null(sl_dataset_format(-1));
  assert_null(sl_dataset_detect(in_folder("nothing")));
}

/* ---- digits ---- */

static const uint8_t *samples_of(const struct sl_dataset *set) {
  return sl__as_byte_set(set)->samples;
}
static const int32_t *labels_of(const struct sl_dataset *set) {
  return sl__as_byte_set(set)->labels;
}

/* All samples are drawn. */
static struct sl_dataset *digits(int64_t count, uint64_t seed, bool train) {
  struct sl_dataset *set;
  assert_int_equal(sl_digits_new(count, seed, train, &set), SL_OK);
  for (int64_t i = 0; i < sl_dataset_info(set)->count; i++)
    sl__byte_set_sample(sl__as_byte_set(set), i);
  return set;
}

static void test_digits_are_reproducible(void **state) {
  (void)state;
  struct sl_dataset *set = digits(100, 3, true), *longer = digits(200, 3, true);
  struct sl_dataset *test = digits(100, 3, false), *other = digits(100, 4, true);
  assert_memory_equal(samples_of(set), samples_of(longer), 100 * PIXELS);
  assert_memory_equal(labels_of(set), labels_of(longer), 100 * sizeof(int32_t));
  assert_memory_not_equal(samples_of(set), samples_of(test), 100 * PIXELS);
  assert_memory_not_equal(samples_of(set), samples_of(other), 100 * PIXELS);
  assert_memory_not_equal(samples_of(longer), samples_of(longer) + 100 * PIXELS, 100 * PIXELS);
  sl_dataset_free(set);
  sl_dataset_free(longer);
  sl_dataset_free(test);
  sl_dataset_free(other);
  struct sl_dataset *none;
  FAILS(sl_digits_new(-1, 1, true, &none), SL_BAD_ARGUMENT, "-1 samples");
}

enum { READERS = 4, DRAWN = 300 };

struct reading {
  pthread_t thread;
  const struct sl__byte_set *set;
  int64_t step;
  uint8_t bytes[DRAWN][PIXELS];
};

/* Reads all samples, in an order of its own. */
static void *read_samples(void *argument) {
  struct reading *reading = argument;
  for (int64_t k = 0; k < DRAWN; k++) {
    int64_t i = k * reading->step % DRAWN;
    memcpy(reading->bytes[i], sl__byte_set_sample(reading->set, i), PIXELS);
  }
  return NULL;
}

/* Samples are drawn when they are first read, by whichever thread comes first. */
static void test_digits_are_drawn_by_many_threads(void **state) {
  (void)state;
  static const int64_t steps[READERS] = {1, 1, 7, 299};
  static struct reading readings[READERS];
  struct sl_dataset *alone = digits(DRAWN, 3, true), *shared;
  assert_int_equal(sl_digits_new(DRAWN, 3, true, &shared), SL_OK);
  for (int r = 0; r < READERS; r++) {
    readings[r].set = sl__as_byte_set(shared);
    readings[r].step = steps[r];
    assert_int_equal(pthread_create(&readings[r].thread, NULL, read_samples, &readings[r]), 0);
  }
  for (int r = 0; r < READERS; r++) pthread_join(readings[r].thread, NULL);
  for (int r = 0; r < READERS; r++)
    assert_memory_equal(readings[r].bytes, samples_of(alone), DRAWN * PIXELS);
  sl_dataset_free(alone);
  sl_dataset_free(shared);
}

/* Squared distance of a sample's bytes from a class's mean. */
static double distance(const uint8_t *sample, const double *mean) {
  double sum = 0;
  for (int p = 0; p < PIXELS; p++) sum += (sample[p] - mean[p]) * (sample[p] - mean[p]);
  return sum;
}

/* Something to learn, and not to be had by comparing with the classes' means: the nearest mean is
 * right far more often than one time in ten, and far less often than a network should be. */
static void test_digits_are_a_task(void **state) {
  (void)state;
  struct sl_dataset *train = digits(0, 1, true), *test = digits(0, 1, false);
  static double mean[10][PIXELS];
  int seen[10] = {0}, right = 0;
  for (int64_t i = 0; i < train->info.count; i++) {
    seen[labels_of(train)[i]]++;
    for (int p = 0; p < PIXELS; p++)
      mean[labels_of(train)[i]][p] += samples_of(train)[i * PIXELS + p];
  }
  for (int c = 0; c < 10; c++) {
    assert_in_range(seen[c], 900, 1100);
    for (int p = 0; p < PIXELS; p++) mean[c][p] /= seen[c];
  }
  for (int64_t i = 0; i < test->info.count; i++) {
    const uint8_t *sample = samples_of(test) + i * PIXELS;
    int nearest = 0;
    for (int c = 1; c < 10; c++)
      if (distance(sample, mean[c]) < distance(sample, mean[nearest])) nearest = c;
    right += nearest == labels_of(test)[i];
  }
  printf("# nearest mean: %d of 2000 right\n", right);
  assert_in_range(right, 1000, 1800);
  sl_dataset_free(train);
  sl_dataset_free(test);
}

/* ---- allocations ---- */

static enum sl_status open_by_name(void) {
  struct sl_dataset *set;
  enum sl_status status = sl_dataset_open(test_folder, 1, true, &set);
  if (status == SL_OK) sl_dataset_free(set);
  return status;
}

static enum sl_status make_digits(void) {
  struct sl_dataset *set;
  enum sl_status status = sl_digits_new(3, 1, true, &set);
  if (status == SL_OK) sl_dataset_free(set);
  return status;
}

static void test_allocations(void **state) {
  (void)state;
  check_allocations(make_digits);
  make_cifar();
  for (int f = 1; f <= 5; f++) put_batch(f, sizeof records);
  check_allocations(open_by_name);
  make_mnist();
  put_mnist(IMAGES_SIZE, LABELS_SIZE);
  check_allocations(open_by_name);
  remove_mnist();
  put_gz("train-images-idx3-ubyte.gz", images, IMAGES_SIZE);
  put_gz("train-labels-idx1-ubyte.gz", labels, LABELS_SIZE);
  check_allocations(open_by_name);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mnist),
      cmocka_unit_test(test_mnist_missing),
      cmocka_unit_test(test_mnist_cut),
      cmocka_unit_test(test_mnist_damaged),
      cmocka_unit_test(test_mnist_mismatched),
      cmocka_unit_test(test_mnist_packed_cut),
      cmocka_unit_test(test_real_mnist),
      cmocka_unit_test(test_cifar),
      cmocka_unit_test(test_cifar_damaged),
      cmocka_unit_test(test_cifar_inner_folder),
      cmocka_unit_test(test_own_dataset),
      cmocka_unit_test(test_own_tokens),
      cmocka_unit_test(test_closed_folder),
      cmocka_unit_test(test_by_name),
      cmocka_unit_test(test_formats_are_listed),
      cmocka_unit_test(test_digits_are_reproducible),
      cmocka_unit_test(test_digits_are_drawn_by_many_threads),
      cmocka_unit_test(test_digits_are_a_task),
      cmocka_unit_test(test_allocations),
  };
  return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
