/* Loaders: every sample once an epoch, in all parts together too; the same numbers whatever the
 * slots and the timing; augmentation that depends on (seed, epoch, sample) only; no hang at any
 * time of an end or a seek. Each sample's first byte is its number, so that a batch tells where its
 * rows come from. */
#include <math.h>
#include <time.h>

#include "data/augment.h"
#include "data/dataset.h"
#include "tests/common/files.h"

#define COUNT 53
#define SIDE 4
#define SIZE (2 * SIDE * SIDE)

static struct sl_dataset *numbered(void) {
  static uint8_t samples[COUNT * SIZE];
  static int32_t labels[COUNT];
  struct sl_dataset *set;
  for (int i = 0; i < COUNT * SIZE; i++) samples[i] = (uint8_t)(i % SIZE ? i * 5 : i / SIZE);
  for (int i = 0; i < COUNT; i++) labels[i] = i % 10;
  assert_int_equal(sl_dataset_new("numbered", &SL_SHAPE(2, SIDE, SIDE), COUNT, 10, samples, labels,
                                  NULL, NULL, &set),
                   SL_OK);
  return set;
}

static struct sl_loader *loader_of(const struct sl_dataset *set, struct sl_loader_options options) {
  struct sl_loader *loader;
  assert_int_equal(sl_loader_new(set, &options, &loader), SL_OK);
  return loader;
}

/* The number of the sample in a row. */
static int number_of(const struct sl_batch *batch, int64_t row) {
  return (int)lrintf(batch->x[row * SIZE] * 255);
}

static struct sl_batch next(struct sl_loader *loader) {
  struct sl_batch batch;
  assert_int_equal(sl_loader_next(loader, &batch), SL_OK);
  return batch;
}

/* Read an epoch; seen[i] counts sample i, order (or NULL) gets the numbers. */
static void read_epoch(struct sl_loader *loader, int64_t epoch, int *seen, int *order) {
  int64_t length = sl_loader_length(loader);
  for (int64_t index = 0; index < length; index++) {
    struct sl_batch batch = next(loader);
    assert_int_equal(batch.epoch, epoch);
    assert_int_equal(batch.index, index);
    assert_int_equal(batch.last, index == length - 1);
    assert_int_equal(batch.batch, sl_loader_batch(loader));
    for (int64_t row = 0; row < batch.batch; row++) {
      int number = number_of(&batch, row);
      if (row >= batch.valid) {
        assert_int_equal(batch.labels[row], SL_IGNORE);
        continue;
      }
      assert_int_equal(batch.labels[row], number % 10);
      seen[number]++;
      if (order) *order++ = number;
    }
    sl_loader_recycle(loader, batch.slot);
  }
}

static void test_each_sample_once(void **state) {
  (void)state;
  struct sl_dataset *set = numbered();
  static const int64_t batches[] = {1, 7, 52, 53, 54, 200};
  for (int shuffle = 0; shuffle < 2; shuffle++)
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
      struct sl_loader *loader = loader_of(
          set, (struct sl_loader_options){.batch = batches[b], .seed = 5, .shuffle = shuffle});
      assert_int_equal(sl_loader_length(loader), (COUNT + batches[b] - 1) / batches[b]);
      int orders[3][COUNT];
      for (int64_t epoch = 0; epoch < 3; epoch++) {
        int seen[COUNT] = {0};
        read_epoch(loader, epoch, seen, orders[epoch]);
        for (int i = 0; i < COUNT; i++) assert_int_equal(seen[i], 1);
      }
      for (int i = 0; i < COUNT && !shuffle; i++) assert_int_equal(orders[0][i], i);
      assert_int_equal(memcmp(orders[0], orders[1], sizeof orders[0]) == 0, !shuffle);
      assert_int_equal(memcmp(orders[1], orders[2], sizeof orders[0]) == 0, !shuffle);
      sl_loader_free(loader);
    }
  sl_dataset_free(set);
}

static void test_short_last_batch(void **state) {
  (void)state;
  struct sl_dataset *set = numbered();
  struct sl_loader *loader = loader_of(set, (struct sl_loader_options){.batch = 50});
  sl_loader_recycle(loader, next(loader).slot);
  struct sl_batch batch = next(loader);
  assert_int_equal(batch.valid, 3);
  for (int64_t row = 0; row < 50; row++) { /* rows 50, 51, 52, then these again and again */
    assert_int_equal(number_of(&batch, row), 50 + row % 3);
    assert_int_equal(batch.labels[row], row < 3 ? row : SL_IGNORE);
  }
  sl_loader_free(loader);
  sl_dataset_free(set);
}

/* Parts together are the set, and their k-th batches are the k-th batch of one loader with more
 * rows. */
static void test_parts(void **state) {
  (void)state;
  struct sl_dataset *set = numbered();
  for (int64_t parts = 1; parts <= COUNT; parts += parts < 5 ? 1 : 16) {
    int seen[COUNT] = {0}, whole_order[COUNT], unused[COUNT] = {0};
    struct sl_loader *whole =
        loader_of(set, (struct sl_loader_options){.batch = 4 * parts, .seed = 9, .shuffle = true});
    read_epoch(whole, 0, unused, whole_order);
    for (int64_t part = 0; part < parts; part++) {
      int order[COUNT];
      struct sl_loader_options options = {
          .batch = 4, .seed = 9, .shuffle = true, .part_index = part, .num_parts = parts};
      struct sl_loader *loader = loader_of(set, options);
      assert_int_equal(sl_loader_length(loader), sl_loader_length(whole));
      read_epoch(loader, 0, seen, order);
      for (int64_t i = 0; i * parts + part < COUNT; i++)
        assert_int_equal(order[i], whole_order[i * parts + part]);
      sl_loader_free(loader);
    }
    for (int i = 0; i < COUNT; i++) assert_int_equal(seen[i], 1);
    sl_loader_free(whole);
  }
  sl_dataset_free(set);
}

/* 5 samples in 2 parts of batch 1: part 1 has 2 samples, but as many batches as part 0. */
static void test_part_without_a_last_batch(void **state) {
  (void)state;
  struct sl_dataset *set;
  assert_int_equal(sl_digits_new(5, 1, true, &set), SL_OK);
  struct sl_loader *loader =
      loader_of(set, (struct sl_loader_options){.batch = 1, .part_index = 1, .num_parts = 2});
  assert_int_equal(sl_loader_length(loader), 3);
  for (int i = 0; i < 3; i++) {
    struct sl_batch batch = next(loader);
    assert_int_equal(batch.valid, i < 2);
    assert_int_equal(batch.labels[0] == SL_IGNORE, i == 2);
    assert_true(isfinite(batch.x[100]));
    sl_loader_recycle(loader, batch.slot);
  }
  sl_loader_free(loader);
  sl_dataset_free(set);
}

/* The divisor of a loss: of the k-th batches of all parts together, the same in each of them.
 * COUNT is no multiple of anything, so the last batches are short, by different amounts, or empty.
 */
static void check_valid_all(const struct sl_dataset *set, struct sl_loader_options options,
                            int64_t parts, int64_t a_row) {
  int64_t valid[2 * COUNT] = {0}, all[2 * COUNT] = {0}, total = 0, length = 0;
  for (int64_t part = 0; part < parts; part++) {
    options.part_index = part;
    options.num_parts = parts;
    struct sl_loader *loader = loader_of(set, options);
    length = 2 * sl_loader_length(loader); /* two epochs */
    for (int64_t i = 0; i < length; i++) {
      struct sl_batch batch = next(loader);
      valid[i] += batch.valid;
      if (part) assert_int_equal(batch.valid_all, all[i]);
      all[i] = batch.valid_all;
      sl_loader_recycle(loader, batch.slot);
    }
    sl_loader_free(loader);
  }
  for (int64_t i = 0; i < length; i++) {
    assert_int_equal(all[i], valid[i]);
    total += all[i];
  }
  int64_t runs = parts * options.batch, rows = sl_dataset_info(set)->count;
  assert_int_equal(total, 2 * a_row * (options.contiguous ? rows / runs * runs : rows));
}

static void test_valid_of_all_parts(void **state) {
  (void)state;
  struct sl_dataset *set = numbered(), *text;
  int32_t tokens[4 * COUNT + 3] = {0};
  assert_int_equal(sl_tokens_new("text", tokens, 4 * COUNT + 3, 4, 2, &text), SL_OK);
  static const int64_t batches[] = {1, 4, 7, COUNT};
  for (int64_t parts = 1; parts <= 6; parts++)
    for (int b = 0; b < 4; b++) {
      struct sl_loader_options options = {.batch = batches[b], .seed = 3, .shuffle = true};
      check_valid_all(set, options, parts, 1);
      check_valid_all(text, options, parts, 4); /* each token has a label */
      options = (struct sl_loader_options){.batch = batches[b], .contiguous = true};
      if (batches[b] * parts <= COUNT) check_valid_all(text, options, parts, 4);
    }
  sl_dataset_free(text);
  sl_dataset_free(set);
}

/* A number that any change of values, labels or order changes. */
static uint64_t hash_epochs(struct sl_loader *loader, int64_t epochs) {
  uint64_t hash = 14695981039346656037u;
  for (int64_t i = 0; i < epochs * sl_loader_length(loader); i++) {
    struct sl_batch batch = next(loader);
    const struct sl_dataset_info *info = sl_dataset_info(sl_loader_dataset(loader));
    int64_t values = batch.batch * sl_shape_count(&info->sample);
    for (int64_t v = 0; v < values; v++) {
      uint32_t bits;
      assert_true(isfinite(batch.x[v]));
      memcpy(&bits, &batch.x[v], 4);
      hash = (hash ^ bits) * 1099511628211u;
    }
    for (int64_t row = 0; row < batch.batch; row++)
      hash = (hash ^ (uint32_t)batch.labels[row]) * 1099511628211u;
    sl_loader_recycle(loader, batch.slot);
  }
  return hash;
}

static void test_same_numbers(void **state) {
  (void)state;
  struct sl_dataset *set = numbered();
  struct sl_loader_options options = {
      .batch = 8, .seed = 1, .shuffle = true, .shift = 2, .flip = true};
  uint64_t hashes[8];
  static const int slots[] = {0, 2, 3, 4, 17, 0, 0, 2}, readers[] = {0, 1, 1, 1, 1, 2, 7, 5};
  for (size_t i = 0; i < 8; i++) {
    options.slots = slots[i];
    options.readers = readers[i];
    struct sl_loader *loader = loader_of(set, options);
    hashes[i] = hash_epochs(loader, 4);
    sl_loader_free(loader);
    assert_true(hashes[i] == hashes[0]);
  }
  options.seed = 2;
  struct sl_loader *loader = loader_of(set, options);
  assert_true(hash_epochs(loader, 4) != hashes[0]);
  sl_loader_free(loader);
  sl_dataset_free(set);
}

/* Does row look like sample i, seen so? */
static bool shows(const struct sl_dataset *set, int64_t i, int dy, int dx, bool mirror,
                  const float *row) {
  const uint8_t *sample = sl__as_byte_set(set)->samples + (size_t)i * SIZE;
  for (int c = 0; c < 2; c++)
    for (int y = 0; y < SIDE; y++)
      for (int x = 0; x < SIDE; x++) {
        int from_y = y - dy, from_x = x - dx;
        bool inside = from_y >= 0 && from_y < SIDE && from_x >= 0 && from_x < SIDE;
        if (mirror) from_x = SIDE - 1 - from_x;
        int byte = inside ? sample[(c * SIDE + from_y) * SIDE + from_x] : 0;
        if (row[(c * SIDE + y) * SIDE + x] != (float)byte / 255.0f) return false;
      }
  return true;
}

/* Rows go down and columns right where dy and dx are above 0. */
static void test_views(void **state) {
  (void)state;
  struct sl_dataset *set = numbered();
  float row[SIZE], plane[SIDE * SIDE];
  int32_t label;
  for (int v = 0; v < 18; v++) {
    struct sl__view view = {.dy = v / 3 % 3 - 1, .dx = v % 3 - 1, .mirror = v / 9};
    OK(sl_dataset_get(set, 5, row, &label));
    sl__augment(sl_dataset_info(set), &view, plane, row);
    assert_true(shows(set, 5, view.dy, view.dx, view.mirror, row));
  }
  sl_dataset_free(set);
}

/* Every row is some view of its sample within the limits; all views come; which one does not depend
 * on the batch. */
static void test_augmentation(void **state) {
  (void)state;
  struct sl_dataset *set = numbered();
  struct sl_loader_options options = {.batch = 1, .seed = 3, .shift = 1, .flip = true};
  struct sl_loader *loader = loader_of(set, options);
  options.batch = COUNT;
  struct sl_loader *whole = loader_of(set, options);
  int seen[2][3][3] = {{{0}}}, views = 0, last[COUNT] = {0}, changed = 0;
  for (int64_t epoch = 0; epoch < 10; epoch++) {
    struct sl_batch all = next(whole);
    for (int64_t i = 0; i < COUNT; i++) {
      struct sl_batch batch = next(loader);
      assert_memory_equal(batch.x, all.x + i * SIZE, SIZE * sizeof(float));
      int found = 0, view = 0;
      for (int v = 0; v < 18; v++)
        if (shows(set, i, v / 3 % 3 - 1, v % 3 - 1, v / 9, batch.x)) {
          found++;
          view = v;
          seen[v / 9][v / 3 % 3][v % 3]++;
        }
      assert_int_equal(found, 1); /* no two views of a sample are alike */
      changed += epoch > 0 && view != last[i];
      last[i] = view;
      sl_loader_recycle(loader, batch.slot);
    }
    sl_loader_recycle(whole, all.slot);
  }
  /* 29 expected of each, deviation 5.3 */
  for (int v = 0; v < 18; v++) views += abs((&seen[0][0][0])[v] - 29) < 22;
  assert_int_equal(views, 18);
  assert_true(changed > 410); /* from epoch to epoch: 451 of 477 expected, deviation 5 */
  sl_loader_free(loader);
  sl_loader_free(whole);
  sl_dataset_free(set);
}

static void test_seek(void **state) {
  (void)state;
  struct sl_dataset *set = numbered();
  struct sl_loader *loader =
      loader_of(set, (struct sl_loader_options){.batch = 8, .seed = 1, .shuffle = true});
  int seen[COUNT] = {0}, first[COUNT], third[COUNT], again[COUNT];
  read_epoch(loader, 0, seen, first);
  read_epoch(loader, 1, seen, again);
  read_epoch(loader, 2, seen, third);
  assert_int_equal(sl_loader_seek(loader, 2), SL_OK);
  read_epoch(loader, 2, seen, again);
  assert_memory_equal(third, again, sizeof again);
  for (int i = 0; i < 500; i++) { /* at any moment of the thread's work */
    assert_int_equal(sl_loader_seek(loader, i % 7), SL_OK);
    struct sl_batch batch = next(loader);
    assert_int_equal(batch.epoch, i % 7);
    assert_int_equal(batch.index, 0);
    FAILS(sl_loader_seek(loader, 0), SL_BAD_ARGUMENT, "still out");
    sl_loader_recycle(loader, batch.slot);
  }
  assert_int_equal(sl_loader_seek(loader, 0), SL_OK);
  read_epoch(loader, 0, seen, again);
  assert_memory_equal(first, again, sizeof again);
  FAILS(sl_loader_seek(loader, -1), SL_BAD_ARGUMENT, "no epoch -1");
  FAILS(sl_loader_seek(loader, INT64_MAX), SL_BAD_ARGUMENT, "no epoch");
  sl_loader_free(loader);
  sl_dataset_free(set);
}

/* From any batch of any epoch on, as if the loader had come there by itself. */
static void test_seek_batch(void **state) {
  (void)state;
  struct sl_dataset *set = numbered();
  struct sl_loader *loader = loader_of(
      set,
      (struct sl_loader_options){.batch = 8, .seed = 1, .shuffle = true, .shift = 1, .readers = 3});
  int64_t length = sl_loader_length(loader);
  for (int64_t from = 0; from < 3 * length; from++) {
    static float wanted[8 * SIZE];
    assert_int_equal(sl_loader_seek(loader, 0), SL_OK);
    for (int64_t number = 0; number <= from; number++) {
      struct sl_batch batch = next(loader);
      memcpy(wanted, batch.x, sizeof wanted);
      sl_loader_recycle(loader, batch.slot);
    }
    assert_int_equal(sl_loader_seek_batch(loader, from / length, from % length), SL_OK);
    for (int64_t number = from; number < from + 2; number++) {
      struct sl_batch batch = next(loader);
      assert_int_equal(batch.epoch, number / length);
      assert_int_equal(batch.index, number % length);
      if (number == from) assert_memory_equal(batch.x, wanted, sizeof wanted);
      sl_loader_recycle(loader, batch.slot);
    }
  }
  FAILS(sl_loader_seek_batch(loader, 0, -1), SL_BAD_ARGUMENT, "no batch -1");
  FAILS(sl_loader_seek_batch(loader, 0, length), SL_BAD_ARGUMENT, "no batch 7");
  FAILS(sl_loader_seek_batch(loader, -1, 0), SL_BAD_ARGUMENT, "no epoch -1");
  sl_loader_free(loader);
  sl_dataset_free(set);
}

static void test_slots(void **state) {
  (void)state;
  struct sl_dataset *set = numbered();
  struct sl_loader *loader = loader_of(set, (struct sl_loader_options){.batch = 3, .slots = 3});
  assert_int_equal(sl_loader_slots(loader), 3);
  struct sl_batch one = next(loader), two = next(loader), three;
  FAILS(sl_loader_next(loader, &three), SL_BAD_ARGUMENT, "2 batches of 3 are out");
  for (int s = 0; s < 3; s++) {
    float *x;
    int32_t *labels;
    sl_loader_slot(loader, s, &x, &labels);
    assert_int_equal((uintptr_t)x % 4096, 0);
    assert_int_equal((uintptr_t)labels % 4096, 0);
    if (s == one.slot) assert_ptr_equal(x, one.x);
    if (s == two.slot) assert_ptr_equal(labels, two.labels);
  }
  sl_loader_recycle(loader, one.slot); /* not in the order of handing out */
  three = next(loader);
  assert_int_equal(number_of(&three, 0), 6);
  assert_int_equal(number_of(&two, 0), 3); /* still untouched */
  sl_loader_recycle(loader, three.slot);
  sl_loader_recycle(loader, three.slot); /* twice, and no slot at all: of no effect */
  sl_loader_recycle(loader, -1);
  sl_loader_recycle(loader, 3);
  sl_loader_recycle(loader, two.slot);
  for (int i = 3; i < 20; i++) {
    struct sl_batch batch = next(loader);
    assert_int_equal(batch.index, i % 18);
    sl_loader_recycle(loader, batch.slot);
  }
  sl_loader_free(loader);
  sl_dataset_free(set);
}

/* Freed at once, with the thread at work, asleep with all slots full, and with batches out. */
static void test_free_at_any_time(void **state) {
  (void)state;
  struct sl_dataset *set = numbered();
  for (int i = 0; i < 200; i++) {
    struct sl_loader *loader = loader_of(set, (struct sl_loader_options){.batch = 16, .slots = 2});
    struct timespec pause = {0, i % 4 * 100000};
    if (i % 4) nanosleep(&pause, NULL);
    if (i % 3 == 0) next(loader);
    sl_loader_free(loader);
  }
  sl_loader_free(NULL);
  sl_dataset_free(set);
}

static void test_bad_options(void **state) {
  (void)state;
  static const struct {
    struct sl_loader_options options;
    enum sl_status status;
    const char *message;
  } cases[] = {
      {{.batch = 0}, SL_BAD_ARGUMENT, "a batch of 0"},
      {{.batch = -1}, SL_BAD_ARGUMENT, "a batch of -1"},
      {{.batch = INT64_MAX}, SL_BAD_ARGUMENT, "a batch of"},
      {{.batch = INT32_MAX, .slots = 1024}, SL_NO_MEMORY, "take a smaller batch"},
      {{.batch = 1, .slots = 1}, SL_BAD_ARGUMENT, "1 slots"},
      {{.batch = 1, .slots = -1}, SL_BAD_ARGUMENT, "-1 slots"},
      {{.batch = 1, .slots = 1000000}, SL_BAD_ARGUMENT, "slots"},
      {{.batch = 1, .readers = -1}, SL_BAD_ARGUMENT, "-1 readers"},
      {{.batch = 1, .readers = 257}, SL_BAD_ARGUMENT, "257 readers; give 1 to 256"},
      {{.batch = 1, .shift = -1}, SL_BAD_ARGUMENT, "shift by -1"},
      {{.batch = 1, .shift = SIDE}, SL_BAD_ARGUMENT, "shift by 4"},
      {{.batch = 1, .num_parts = -1}, SL_BAD_ARGUMENT, "no part 0 of -1"},
      {{.batch = 1, .part_index = 1}, SL_BAD_ARGUMENT, "no part 1 of 1"},
      {{.batch = 1, .part_index = -1, .num_parts = 2}, SL_BAD_ARGUMENT, "no part -1"},
      {{.batch = 1, .num_parts = COUNT + 1}, SL_BAD_ARGUMENT, "would be empty"},
  };
  struct sl_dataset *set = numbered(), *vectors;
  const struct sl__byte_set *bytes = sl__as_byte_set(set);
  struct sl_loader *loader;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    FAILS(sl_loader_new(set, &cases[i].options, &loader), cases[i].status, cases[i].message);
  assert_int_equal(sl_dataset_new("vectors", &SL_SHAPE(SIZE), COUNT, 10, bytes->samples,
                                  bytes->labels, NULL, NULL, &vectors),
                   SL_OK);
  FAILS(sl_loader_new(vectors, &(struct sl_loader_options){.batch = 1, .flip = true}, &loader),
        SL_BAD_ARGUMENT, "only images");
  sl_loader_free(loader_of(vectors, (struct sl_loader_options){.batch = 1}));
  sl_dataset_free(vectors);
  sl_dataset_free(set);
}

static const struct sl_dataset *shared;
static enum sl_status make_loader(void) {
  struct sl_loader *loader;
  const struct sl_loader_options options = {.batch = 4, .shuffle = true, .readers = 3};
  enum sl_status status = sl_loader_new(shared, &options, &loader);
  if (status == SL_OK) sl_loader_free(loader);
  return status;
}

static void test_allocations(void **state) {
  (void)state;
  struct sl_dataset *set = numbered();
  shared = set;
  check_allocations(make_loader);
  sl_dataset_free(set);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each_sample_once),
      cmocka_unit_test(test_short_last_batch),
      cmocka_unit_test(test_parts),
      cmocka_unit_test(test_part_without_a_last_batch),
      cmocka_unit_test(test_valid_of_all_parts),
      cmocka_unit_test(test_same_numbers),
      cmocka_unit_test(test_views),
      cmocka_unit_test(test_augmentation),
      cmocka_unit_test(test_seek),
      cmocka_unit_test(test_seek_batch),
      cmocka_unit_test(test_slots),
      cmocka_unit_test(test_free_at_any_time),
      cmocka_unit_test(test_bad_options),
      cmocka_unit_test(test_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
