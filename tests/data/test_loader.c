/* Loaders: every sample once an epoch, in all parts together too; the same numbers whatever the
 * slots and the timing; augmentation that depends on (seed, epoch, sample) only; no hang at any
 * time of an end or a seek. Each sample's first byte is its number, so that a batch tells where its
 * rows come from. */
#include <math.h>
#include <sched.h>
#include <time.h>

#include "core/base/machine.h"
#include "data/augment.h"
#include "data/colour.h"
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
    int64_t values = batch.batch * sl_shape_count(sl_loader_sample(loader));
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

/* The same images with one channel, which have colours that can change. */
static struct sl_dataset *grey(const struct sl_dataset *like) {
  const struct sl__byte_set *bytes = sl__as_byte_set(like);
  struct sl_dataset *set;
  OK(sl_dataset_new("grey", &SL_SHAPE(1, SIDE, 2 * SIDE), COUNT, 10, bytes->samples, bytes->labels,
                    NULL, NULL, &set));
  return set;
}

/* Whatever the slots and the readers; another seed gives others. */
static void check_same_numbers(const struct sl_dataset *set, struct sl_loader_options options) {
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
}

static void test_same_numbers(void **state) {
  (void)state;
  struct sl_dataset *set = numbered(), *greys = grey(set);
  struct sl_loader_options options = {
      .batch = 8, .seed = 1, .shuffle = true, .shift = 2, .flip = true};
  check_same_numbers(set, options);
  options.crop_h = options.crop_w = 3;
  options.crop_random = true;
  check_same_numbers(set, options);
  options.brightness = 0.5f;
  options.contrast = 0.5f;
  check_same_numbers(greys, options);
  check_same_numbers(greys, (struct sl_loader_options){.batch = 7, .seed = 1, .contrast = 1});
  sl_dataset_free(greys);
  sl_dataset_free(set);
}

/* Does row look like sample i, seen so? */
static bool shows(const struct sl_dataset *set, int64_t i, int dy, int dx, bool mirror,
                  const float *row) {
  const uint8_t *sample = sl__byte_set_sample(sl__as_byte_set(set), i);
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
    sl__augment(sl_dataset_info(set), &sl_dataset_info(set)->sample, &view, plane, row);
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

/* ---- windows ---- */

enum { CROP_H = 3, CROP_W = 2 };

/* Is the row the window at (top, left) of sample i? */
static bool is_window(const struct sl_dataset *set, int64_t i, int top, int left,
                      const float *row) {
  const uint8_t *sample = sl__byte_set_sample(sl__as_byte_set(set), i);
  for (int c = 0; c < 2; c++)
    for (int y = 0; y < CROP_H; y++)
      for (int x = 0; x < CROP_W; x++) {
        int byte = sample[(c * SIDE + top + y) * SIDE + left + x];
        if (row[(c * CROP_H + y) * CROP_W + x] != (float)byte / 255.0f) return false;
      }
  return true;
}

/* Random windows, all of them, another one in each epoch, the same one in any batch; without
 * crop_random the one in the middle. */
static void test_windows(void **state) {
  (void)state;
  enum { DOWN = SIDE - CROP_H + 1, RIGHT = SIDE - CROP_W + 1, WINDOW = 2 * CROP_H * CROP_W };
  struct sl_dataset *set = numbered();
  struct sl_loader_options options = {
      .batch = 50, .seed = 3, .crop_h = CROP_H, .crop_w = CROP_W, .crop_random = true};
  struct sl_loader *loader = loader_of(set, options);
  options.batch = 1;
  struct sl_loader *single = loader_of(set, options);
  options.crop_random = false;
  struct sl_loader *middle = loader_of(set, options);
  int seen[DOWN][RIGHT] = {{0}}, last[COUNT] = {0}, changed = 0;
  assert_true(sl_shape_equal(sl_loader_sample(loader), &SL_SHAPE(2, CROP_H, CROP_W)));
  for (int64_t n = 0; n < 10 * COUNT; n++) {
    static struct sl_batch batch;
    int64_t i = n % COUNT, row = i % 50;
    if (row == 0) batch = next(loader);
    struct sl_batch one = next(single), centred = next(middle);
    assert_memory_equal(one.x, batch.x + row * WINDOW, WINDOW * sizeof(float));
    assert_true(is_window(set, i, (SIDE - CROP_H) / 2, (SIDE - CROP_W) / 2, centred.x));
    for (int at = 0; at < DOWN * RIGHT; at++)
      if (is_window(set, i, at / RIGHT, at % RIGHT, one.x)) {
        seen[at / RIGHT][at % RIGHT]++;
        changed += at != last[i];
        last[i] = at;
      }
    for (int64_t k = COUNT % 50; i == COUNT - 1 && k < 50; k++) { /* repeated at the end */
      assert_memory_equal(batch.x + k * WINDOW, batch.x + k % (COUNT % 50) * WINDOW,
                          WINDOW * sizeof(float));
      assert_int_equal(batch.labels[k], SL_IGNORE);
    }
    if (row == 49 || i == COUNT - 1) sl_loader_recycle(loader, batch.slot);
    sl_loader_recycle(single, one.slot);
    sl_loader_recycle(middle, centred.slot);
  }
  for (int at = 0; at < DOWN * RIGHT; at++) /* 88 expected, deviation 8.6 */
    assert_true(abs(seen[at / RIGHT][at % RIGHT] - 88) < 35);
  assert_true(changed > 380); /* 442 expected */
  sl_loader_free(middle);
  sl_loader_free(single);
  sl_loader_free(loader);
  sl_dataset_free(set);
}

/* ---- colours: against the formulas in double precision ---- */

enum { PIXELS = 12 };
typedef double picture[3][PIXELS];

static double held(double value) { return fmin(fmax(value, 0), 1); }
static double grey_of(const double rgb[3]) {
  return 0.2989 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2];
}

/* rgb mixed with a grey */
static void mix(double rgb[3], double factor, double grey_value) {
  for (int c = 0; c < 3; c++) rgb[c] = held(factor * rgb[c] + (1 - factor) * grey_value);
}

/* By the corners of the hexagon: the hue moves along red, yellow, green, cyan, blue, magenta. */
static void turn_hue(double rgb[3], double turn) {
  static const int corner[7][3] = {{1, 0, 0}, {1, 1, 0}, {0, 1, 0}, {0, 1, 1},
                                   {0, 0, 1}, {1, 0, 1}, {1, 0, 0}};
  double most = fmax(rgb[0], fmax(rgb[1], rgb[2])), least = fmin(rgb[0], fmin(rgb[1], rgb[2]));
  double unit[3], angle = -1;
  if (most == least) return;
  for (int c = 0; c < 3; c++) unit[c] = (rgb[c] - least) / (most - least);
  for (int side = 0; side < 6 && angle < 0; side++)
    for (int c = 0; c < 3; c++) { /* the channel that changes along this side */
      bool here = corner[side][c] != corner[side + 1][c];
      int other = (c + 1) % 3, third = (c + 2) % 3;
      if (here && fabs(unit[other] - corner[side][other]) < 1e-12 &&
          fabs(unit[third] - corner[side][third]) < 1e-12)
        angle = side + fabs(unit[c] - corner[side][c]);
    }
  assert_true(angle >= 0);
  angle = fmod(angle + 6 * turn + 6, 6);
  int side = (int)angle;
  for (int c = 0; c < 3; c++) {
    double value = corner[side][c] + (angle - side) * (corner[side + 1][c] - corner[side][c]);
    rgb[c] = least + (most - least) * value;
  }
}

static void change(picture p, int which, const struct sl__colour *colour) {
  double mean = 0;
  for (int i = 0; i < PIXELS; i++) mean += grey_of((double[]){p[0][i], p[1][i], p[2][i]}) / PIXELS;
  for (int i = 0; i < PIXELS; i++) {
    double rgb[3] = {p[0][i], p[1][i], p[2][i]};
    if (which == 0) mix(rgb, (double)colour->brightness, 0);
    if (which == 1) mix(rgb, (double)colour->contrast, mean);
    if (which == 2) mix(rgb, (double)colour->saturation, grey_of(rgb));
    if (which == 3) turn_hue(rgb, (double)colour->hue);
    for (int c = 0; c < 3; c++) p[c][i] = rgb[c];
  }
}

/* A picture of random bytes, with pixels that are grey, black, white and pure. */
static struct sl_dataset *coloured(void) {
  static uint8_t bytes[COUNT][3][PIXELS];
  static int32_t labels[COUNT];
  static const uint8_t pure[5][3] = {
      {0, 0, 0}, {255, 255, 255}, {90, 90, 90}, {255, 0, 0}, {0, 200, 200}};
  const float mean[3] = {0.5f, 0.4f, 0.3f}, deviation[3] = {0.25f, 0.5f, 2};
  struct sl_dataset *set;
  for (int n = 0; n < COUNT * 3 * PIXELS; n++)
    (&bytes[0][0][0])[n] = (uint8_t)(n * 2654435761u >> 13);
  for (int n = 0; n < COUNT * 5; n++)
    for (int c = 0; c < 3; c++) bytes[n / 5][c][n % 5] = pure[n % 5][c];
  OK(sl_dataset_new("coloured", &SL_SHAPE(3, 3, 4), COUNT, 1, &bytes[0][0][0], labels, mean,
                    deviation, &set));
  return set;
}

/* Sample i with colours changed as `colour` says, against the reference. */
static void check_colours(const struct sl_dataset *set, int64_t i, const struct sl__colour *colour,
                          const float *row) {
  const struct sl_dataset_info *info = sl_dataset_info(set);
  picture p;
  for (int k = 0; k < 3 * PIXELS; k++)
    p[k / PIXELS][k % PIXELS] = sl__byte_set_sample(sl__as_byte_set(set), i)[k] / 255.0;
  for (int k = 0; k < 4; k++) change(p, colour->order[k], colour);
  for (int k = 0; k < 3 * PIXELS; k++) {
    double value = (double)row[k] * (double)info->deviation[k / PIXELS];
    assert_true(fabs(value + (double)info->mean[k / PIXELS] - p[k / PIXELS][k % PIXELS]) < 4e-6);
  }
}

static void test_colour_changes(void **state) {
  (void)state;
  static const struct sl__colour colours[] = {
      {1.5f, 1, 1, 0, {0, 1, 2, 3}},          {0, 1, 1, 0, {0, 1, 2, 3}},
      {1, 1.7f, 1, 0, {0, 1, 2, 3}},          {1, 0.2f, 1, 0, {0, 1, 2, 3}},
      {1, 1, 1.9f, 0, {0, 1, 2, 3}},          {1, 1, 0, 0, {0, 1, 2, 3}},
      {1, 1, 1, 0.31f, {0, 1, 2, 3}},         {1, 1, 1, -0.5f, {0, 1, 2, 3}},
      {1.2f, 0.6f, 1.4f, 0.1f, {3, 1, 0, 2}}, {0.8f, 1.6f, 0.4f, -0.2f, {2, 0, 3, 1}}};
  struct sl_dataset *set = coloured();
  const struct sl_dataset_info *info = sl_dataset_info(set);
  float row[3 * PIXELS], bad;
  int32_t label;
  for (size_t k = 0; k < sizeof colours / sizeof *colours; k++)
    for (int64_t i = 0; i < COUNT; i++) {
      OK(sl_dataset_get(set, i, row, &label));
      assert_true(sl__colour_change(info, &info->sample, &colours[k], row, &bad));
      check_colours(set, i, &colours[k], row);
    }
  sl_dataset_free(set);
}

/* Factors lie within their limits and fill them; all orders come; each epoch has its own; batches
 * have what was drawn. */
static void test_drawn_colours(void **state) {
  (void)state;
  struct sl_dataset *set = coloured();
  const struct sl_loader_options options = {.batch = COUNT,
                                            .seed = 4,
                                            .brightness = 0.4f,
                                            .contrast = 2,
                                            .saturation = 0.1f,
                                            .hue = 0.2f};
  const float least[4] = {0.6f, 0, 0.9f, -0.2f}, most[4] = {1.4f, 3, 1.1f, 0.2f};
  struct sl_loader *loader = loader_of(set, options);
  int tenths[4][10] = {{0}}, orders[256] = {0}, kinds = 0, again = 0;
  for (int64_t epoch = 0; epoch < 10; epoch++) {
    struct sl_batch batch = next(loader);
    for (int64_t i = 0; i < COUNT; i++) {
      struct sl__colour drawn = sl__colour_draw(&options, epoch, i);
      struct sl__colour before = sl__colour_draw(&options, epoch + 1, i);
      const float values[4] = {drawn.brightness, drawn.contrast, drawn.saturation, drawn.hue};
      for (int k = 0; k < 4; k++) {
        assert_true(values[k] >= least[k] - 1e-6f && values[k] < most[k] + 1e-6f);
        int tenth = (int)(10 * (values[k] - least[k]) / (most[k] - least[k]));
        tenths[k][tenth > 9 ? 9 : tenth]++;
      }
      orders[drawn.order[0] << 6 | drawn.order[1] << 4 | drawn.order[2] << 2 | drawn.order[3]]++;
      again += !memcmp(&drawn.brightness, &before.brightness, sizeof drawn.brightness);
      check_colours(set, i, &drawn, batch.x + i * 3 * PIXELS);
    }
    sl_loader_recycle(loader, batch.slot);
  }
  for (int k = 0; k < 40; k++) assert_true(abs((&tenths[0][0])[k] - 53) < 32); /* deviation 7 */
  for (int k = 0; k < 256; k++) kinds += orders[k] > 5;                        /* 22 expected */
  assert_int_equal(kinds, 24);
  assert_int_equal(again, 0);
  sl_loader_free(loader);
  sl_dataset_free(set);
}

/* Values that are no picture's end the batch, and say which sample has them. */
static void test_colours_of_no_picture(void **state) {
  (void)state;
  float x[4][4] = {{0, 1, 0.5f, 0.25f}, {0}, {0, 0, 37, 0}, {0}};
  const int32_t labels[4] = {0};
  struct sl_dataset *set;
  struct sl_batch batch;
  OK(sl_dataset_floats(
      &(struct sl_dataset_options){
          .name = "field", .sample = SL_SHAPE(1, 2, 2), .count = 4, .classes = 1},
      &x[0][0], NULL, labels, true, &set));
  struct sl_loader *loader =
      loader_of(set, (struct sl_loader_options){.batch = 2, .brightness = 0.1f});
  sl_loader_recycle(loader, next(loader).slot);
  FAILS(sl_loader_next(loader, &batch), SL_BAD_ARGUMENT, "field: sample 2: has the value 37");
  sl_loader_free(loader);
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

/* Rows of all bytes, some of which begin beside a vector: the bits of the divisions. */
static void check_bytes(int64_t channels, int64_t plane, const float *mean,
                        const float *deviation) {
  const int64_t size = channels * plane, count = 3;
  uint8_t *bytes = malloc((size_t)(count * size));
  float *x = malloc((size_t)size * sizeof *x);
  const int32_t labels[3] = {0};
  struct sl_dataset *set;
  int32_t label;
  assert_true(bytes && x);
  for (int64_t i = 0; i < count * size; i++) bytes[i] = (uint8_t)(i * 7);
  OK(sl_dataset_new("bytes", &SL_SHAPE(channels, plane), count, 1, bytes, labels, mean, deviation,
                    &set));
  for (int64_t s = 0; s < count; s++) {
    OK(sl_dataset_get(set, s, x, &label));
    for (int64_t i = 0; i < size; i++) {
      float m = mean ? mean[i / plane] : 0, d = deviation ? deviation[i / plane] : 1;
      float want = ((float)bytes[s * size + i] / 255.0f - m) / d;
      if (memcmp(&x[i], &want, sizeof want) != 0)
        fail_msg("%lld x %lld, byte %d: %a, not %a", (long long)channels, (long long)plane,
                 bytes[s * size + i], (double)x[i], (double)want);
    }
  }
  sl_dataset_free(set);
  free(bytes);
  free(x);
}

static void test_bytes(void **state) {
  (void)state;
  /* where products have the divisions' bits, and where they have not: subnormal results, a
   * reciprocal that overflows; a zero that a negative deviation makes negative */
  const float mean[] = {0.1307f, 0.2f, 0.485f, 0, 0, 1}, /* 0.2f is a byte's value */
      deviation[] = {0.3081f, -0.5f, 0.229f, 3e38f, 1e-40f, 7};
  static const int64_t planes[] = {1, 15, 16, 17, 784, 1031};
  for (size_t i = 0; i < sizeof planes / sizeof *planes; i++) {
    check_bytes(1, planes[i], NULL, NULL);
    check_bytes(5, planes[i], NULL, NULL);
    check_bytes(1, planes[i], mean, deviation);
    check_bytes(6, planes[i], mean, deviation);
  }
}

static enum sl_status fill_nothing(struct sl_fill *rows) {
  (void)rows;
  return SL_OK;
}

static int readers_of(const struct sl_dataset *set) {
  struct sl_loader *loader = loader_of(set, (struct sl_loader_options){.batch = 4});
  int readers = sl_loader_settings(loader)->readers;
  assert_true(sl_loader_slots(loader) >= 4);
  sl_loader_free(loader);
  return readers;
}

/* A program's own function is called by one thread, unless the program asks for more. */
static void test_default_readers(void **state) {
  (void)state;
  const struct sl_dataset_options options = {
      .name = "own", .sample = SL_SHAPE(2), .count = 9, .classes = 2};
  struct sl_dataset *set = numbered(), *own;
  cpu_set_t all, one;
  assert_int_equal(readers_of(set), sl__machine_cpus() < 8 ? 1 : 2);
  OK(sl_dataset_custom(&options, fill_nothing, &own));
  assert_int_equal(readers_of(own), 1);
  sl_dataset_free(own);
  assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  CPU_SET((size_t)sched_getcpu(), &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  assert_int_equal(readers_of(set), 1);
  assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
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
  for (int s = -1; s <= 3; s += 4) {
    float *x = (float *)&one;
    int32_t *labels = (int32_t *)&one;
    sl_loader_slot(loader, s, &x, &labels);
    assert_null(x);
    assert_null(labels);
    assert_null(sl_loader_slot_targets(loader, s));
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
      {{.batch = 0}, SL_BAD_ARGUMENT, "a batch of 0 samples; give 1 to 2147483647"},
      {{.batch = -1}, SL_BAD_ARGUMENT, "a batch of -1"},
      {{.batch = INT64_MAX}, SL_BAD_ARGUMENT, "a batch of"},
      {{.batch = 1ll << 33}, SL_BAD_ARGUMENT, "8589934592 samples; give 1 to 2147483647"},
      {{.batch = INT32_MAX, .slots = 1024}, SL_NO_MEMORY, "take a smaller batch"},
      {{.batch = 1, .slots = 1}, SL_BAD_ARGUMENT, "1 slots"},
      {{.batch = 1, .slots = -1}, SL_BAD_ARGUMENT, "-1 slots"},
      {{.batch = 1, .slots = 1000000}, SL_BAD_ARGUMENT, "slots"},
      {{.batch = 1, .readers = -1}, SL_BAD_ARGUMENT, "-1 readers"},
      {{.batch = 1, .readers = 257}, SL_BAD_ARGUMENT, "257 readers; give 1 to 256"},
      {{.batch = 1, .shift = -1}, SL_BAD_ARGUMENT, "shift by -1"},
      {{.batch = 1, .shift = SIDE}, SL_BAD_ARGUMENT, "shift by 4"},
      {{.batch = 1, .crop_h = 3}, SL_BAD_ARGUMENT, "windows of 3 x 0"},
      {{.batch = 1, .crop_h = 3, .crop_w = SIDE + 1}, SL_BAD_ARGUMENT, "windows of 3 x 5"},
      {{.batch = 1, .crop_h = -1, .crop_w = 1}, SL_BAD_ARGUMENT, "windows of -1 x 1"},
      {{.batch = 1, .crop_random = true}, SL_BAD_ARGUMENT, "windows of 0 x 0"},
      {{.batch = 1, .crop_h = 3, .crop_w = 2, .shift = 2}, SL_BAD_ARGUMENT, "shift by 2"},
      {{.batch = 1, .brightness = -1}, SL_BAD_ARGUMENT, "brightness changes by -1; give 0 to 10"},
      {{.batch = 1, .contrast = NAN}, SL_BAD_ARGUMENT, "contrast changes by nan"},
      {{.batch = 1, .saturation = 11}, SL_BAD_ARGUMENT, "saturation changes by 11"},
      {{.batch = 1, .hue = 0.6f}, SL_BAD_ARGUMENT, "hue changes by 0.6; give 0 to 0.5"},
      {{.batch = 1, .hue = 0.1f}, SL_BAD_ARGUMENT, "1 or 3 channels"}, /* these have 2 */
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
  FAILS(sl_loader_new(vectors, &(struct sl_loader_options){.batch = 1, .crop_h = 1, .crop_w = 1},
                      &loader),
        SL_BAD_ARGUMENT, "only images [C, H, W] can be cropped");
  FAILS(sl_loader_new(vectors, &(struct sl_loader_options){.batch = 1, .contrast = 1}, &loader),
        SL_BAD_ARGUMENT, "only pictures");
  sl_loader_free(loader_of(vectors, (struct sl_loader_options){.batch = 1}));
  sl_dataset_free(vectors);
  sl_dataset_free(set);
}

static const struct sl_dataset *shared;
static enum sl_status make_loader(void) {
  struct sl_loader *loader;
  const struct sl_loader_options options = {
      .batch = 4, .shuffle = true, .flip = true, .crop_h = 2, .crop_w = 2, .readers = 3};
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
      cmocka_unit_test(test_windows),
      cmocka_unit_test(test_colour_changes),
      cmocka_unit_test(test_drawn_colours),
      cmocka_unit_test(test_colours_of_no_picture),
      cmocka_unit_test(test_seek),
      cmocka_unit_test(test_seek_batch),
      cmocka_unit_test(test_bytes),
      cmocka_unit_test(test_default_readers),
      cmocka_unit_test(test_slots),
      cmocka_unit_test(test_free_at_any_time),
      cmocka_unit_test(test_bad_options),
      cmocka_unit_test(test_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
