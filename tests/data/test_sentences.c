/* Sentences in buckets: every token a label once, whatever the parts and the order; hand-written
 * texts to the last place; chosen buckets against all choices there are; batches of one bucket
 * each, whose order depends on (seed, epoch) only and is the same in all parts. */
#include "data/dataset.h"
#include "core/base/random.h"
#include "tests/common/files.h"

#define I SL_IGNORE
#define SPLIT SL_LONG_SPLIT
#define DROP SL_LONG_DROP

static struct sl_dataset *set_of(const int32_t *tokens, int64_t count, int classes,
                                 struct sl_sentences_options options) {
  struct sl_dataset *set;
  enum sl_status status = sl_sentences_new("text", tokens, count, classes, &options, &set);
  if (status != SL_OK) fail_msg("%s", sl_error());
  return set;
}

static struct sl_loader *loader_of(const struct sl_dataset *set, struct sl_loader_options options) {
  struct sl_loader *loader;
  enum sl_status status = sl_loader_new(set, &options, &loader);
  if (status != SL_OK) fail_msg("%s", sl_error());
  return loader;
}

static struct sl_batch next(struct sl_loader *loader) {
  struct sl_batch batch;
  assert_int_equal(sl_loader_next(loader, &batch), SL_OK);
  return batch;
}

static int64_t stride_of(const struct sl_dataset *set) {
  return sl_dataset_info(set)->sample.dim[0];
}

static uint32_t draw(uint32_t below) {
  static uint64_t drawn;
  return sl__philox(1, 2, drawn++).v[0] % below;
}

/* ---- texts written by hand ---- */

/* The next batch is this one: rows of stride tokens and as many labels. */
static void check_batch(struct sl_loader *loader, int64_t steps, int64_t valid,
                        const int32_t *tokens, const int32_t *labels) {
  struct sl_batch batch = next(loader);
  int64_t places = batch.batch * stride_of(sl_loader_dataset(loader));
  assert_null(batch.x);
  assert_int_equal(batch.steps, steps);
  assert_int_equal(batch.valid, valid);
  for (int64_t i = 0; i < places; i++) {
    if (batch.tokens[i] != tokens[i] || batch.labels[i] != labels[i])
      fail_msg("place %lld: token %d, label %d; expected %d, %d", (long long)i, batch.tokens[i],
               batch.labels[i], tokens[i], labels[i]);
  }
  sl_loader_recycle(loader, batch.slot);
}
#define BATCH(...) ((const int32_t[]){__VA_ARGS__})

/* An empty line, a text without a last end, a bucket's short last batch; 9 ends sentences. */
static void test_example(void **state) {
  (void)state;
  static const int32_t text[] = {1, 2, 9, 3, 9, 9, 4, 5, 6, 9, 7, 8};
  static const int64_t buckets[] = {2, 4};
  struct sl_sentences_options options = {.end = 9, .buckets = buckets, .bucket_count = 2};
  struct sl_dataset *set = set_of(text, 12, 10, options);
  const struct sl_dataset_info *info = sl_dataset_info(set);
  assert_int_equal(info->count, 5);
  assert_int_equal(info->classes, 10);
  assert_true(info->tokens);
  assert_int_equal(info->sample.ndim, 1);
  assert_int_equal(info->sample.dim[0], 4);
  assert_int_equal(info->bucket_count, 2);
  assert_int_equal(info->buckets[0], 2);
  assert_int_equal(info->buckets[1], 4);
  assert_int_equal(info->bucket_samples[0], 3);
  assert_int_equal(info->bucket_samples[1], 2);
  assert_int_equal(info->padding, 2);
  assert_int_equal(info->longer, 0);
  struct sl_loader *loader = loader_of(set, (struct sl_loader_options){.batch = 2});
  assert_int_equal(sl_loader_length(loader), 3);
  for (int epoch = 0; epoch < 3; epoch++) {
    check_batch(loader, 2, 3, BATCH(9, 3, 9, 9, 9, 9, 9, 9), BATCH(3, 9, I, I, 9, I, I, I));
    check_batch(loader, 2, 2, BATCH(9, 7, 9, 9, 9, 7, 9, 9), BATCH(7, 8, I, I, I, I, I, I));
    check_batch(loader, 4, 7, BATCH(9, 1, 2, 9, 9, 4, 5, 6), BATCH(1, 2, 9, I, 4, 5, 6, 9));
  }
  sl_loader_free(loader);
  sl_dataset_free(set);
}

static void test_longer_sentences(void **state) {
  (void)state;
  static const int32_t text[] = {1, 2, 3, 4, 5, 6, 7, 0, 8, 0, 1, 2, 3, 0};
  static const int64_t buckets[] = {1, 3};
  struct sl_sentences_options options = {.buckets = buckets, .bucket_count = 2};
  struct sl_dataset *set = set_of(text, 14, 9, options);
  const struct sl_dataset_info *info = sl_dataset_info(set);
  assert_int_equal(info->count, 6); /* 3 + 3 + 2, 2, 3 + 1 */
  assert_int_equal(info->longer, 2);
  assert_int_equal(info->padding, 2);
  assert_int_equal(info->bucket_samples[0], 1);
  struct sl_loader *loader = loader_of(set, (struct sl_loader_options){.batch = 3});
  check_batch(loader, 1, 1, BATCH(3, 0, 0, 3, 0, 0, 3, 0, 0), BATCH(0, I, I, I, I, I, I, I, I));
  check_batch(loader, 3, 8, BATCH(0, 1, 2, 3, 4, 5, 6, 7, 0), BATCH(1, 2, 3, 4, 5, 6, 7, 0, I));
  check_batch(loader, 3, 5, BATCH(0, 8, 0, 0, 1, 2, 0, 8, 0), BATCH(8, 0, I, 1, 2, 3, I, I, I));
  sl_loader_free(loader);
  sl_dataset_free(set);
  options.longer = DROP;
  set = set_of(text, 14, 9, options);
  info = sl_dataset_info(set);
  assert_int_equal(info->count, 1);
  assert_int_equal(info->longer, 2);
  assert_int_equal(info->padding, 1);
  assert_int_equal(info->bucket_samples[0], 0); /* an empty bucket */
  loader = loader_of(set, (struct sl_loader_options){.batch = 1});
  assert_int_equal(sl_loader_length(loader), 1);
  check_batch(loader, 3, 2, BATCH(0, 8, 0), BATCH(8, 0, I));
  sl_loader_free(loader);
  sl_dataset_free(set);
}

/* ---- the choice of buckets ---- */

/* Lengths of the samples that sentences become, n of them; 0 where all are dropped. */
static int sample_lengths(const int *sentences, int count, int most, enum sl_long longer,
                          int *samples) {
  int n = 0;
  for (int s = 0; s < count; s++) {
    if (sentences[s] > most && longer == DROP) continue;
    for (int left = sentences[s]; left > 0; left -= most) samples[n++] = left < most ? left : most;
  }
  return n;
}

/* Padding with one bucket a bit of mask: bit i is length i + 1; the last covers all. */
static int64_t padding_with(unsigned mask, const int *samples, int n) {
  int64_t padding = 0;
  for (int s = 0; s < n; s++) {
    int bucket = samples[s];
    while (!(mask >> (bucket - 1) & 1)) bucket++;
    padding += bucket - samples[s];
  }
  return padding;
}

/* Over all choices. */
static int64_t least_padding(const int *samples, int n, int buckets) {
  int longest = 0;
  int64_t least = INT64_MAX;
  for (int s = 0; s < n; s++)
    if (samples[s] > longest) longest = samples[s];
  for (unsigned mask = 1u << (longest - 1); mask < 1u << longest; mask++) {
    if (__builtin_popcount(mask) > buckets) continue;
    int64_t padding = padding_with(mask, samples, n);
    if (padding < least) least = padding;
  }
  return least;
}

/* Tokens 1 and ends 0 in sentences of these lengths. */
static int64_t write_text(const int *sentences, int count, int32_t *text) {
  int64_t n = 0;
  for (int s = 0; s < count; s++) {
    for (int k = 1; k < sentences[s]; k++) text[n++] = 1;
    text[n++] = 0;
  }
  return n;
}

static void test_chosen_buckets(void **state) {
  (void)state;
  enum { MOST = 9, SENTENCES = 24 };
  int refused = 0, longer = 0;
  for (int round = 0; round < 400; round++) {
    int sentences[SENTENCES], samples[SENTENCES * MOST], count = 1 + (int)draw(SENTENCES);
    int32_t text[SENTENCES * MOST];
    for (int s = 0; s < count; s++) sentences[s] = 1 + (int)draw(MOST);
    struct sl_sentences_options options = {.bucket_count = 1 + (int)draw(5),
                                           .longest = draw(3) ? 0 : 1 + (int)draw(MOST + 2),
                                           .longer = draw(2) ? SPLIT : DROP};
    int most = options.longest ? (int)options.longest : MOST;
    int n = sample_lengths(sentences, count, most, options.longer, samples);
    int64_t tokens = write_text(sentences, count, text);
    struct sl_dataset *set;
    enum sl_status status = sl_sentences_new("text", text, tokens, 2, &options, &set);
    if (n == 0) {
      FAILS(status, SL_BAD_ARGUMENT, "nothing is left");
      refused++;
      continue;
    }
    assert_int_equal(status, SL_OK);
    const struct sl_dataset_info *info = sl_dataset_info(set);
    unsigned mask = 0;
    for (int b = 0; b < info->bucket_count; b++) mask |= 1u << (info->buckets[b] - 1);
    assert_true(info->bucket_count <= options.bucket_count);
    assert_true(info->buckets[info->bucket_count - 1] <= most);
    assert_int_equal(__builtin_popcount(mask), info->bucket_count);
    assert_int_equal(info->count, n);
    assert_int_equal(info->padding, padding_with(mask, samples, n));
    assert_int_equal(info->padding, least_padding(samples, n, options.bucket_count));
    longer += info->longer > 0;
    sl_dataset_free(set);
  }
  assert_true(refused > 3 && longer > 30);
}

/* Many lengths, against the plain recurrence over all places of the last bucket. */
static void test_many_lengths(void **state) {
  (void)state;
  enum { LENGTHS = 700, BUCKETS = 12 };
  static int sentences[LENGTHS * 3], often[LENGTHS + 1];
  static int64_t best[BUCKETS + 1][LENGTHS + 1];
  int32_t *text = malloc((LENGTHS * 3) * LENGTHS * sizeof *text);
  int count = 0;
  for (int length = 1; length <= LENGTHS; length++) {
    often[length] = (int)draw(4) % 3;
    if (length == LENGTHS) often[length] = 1;
    for (int k = 0; k < often[length]; k++) sentences[count++] = length;
  }
  for (int j = 1; j <= LENGTHS; j++) best[0][j] = INT64_MAX / 2;
  for (int m = 1; m <= BUCKETS; m++)
    for (int j = 1; j <= LENGTHS; j++) {
      int64_t padding = 0;
      best[m][j] = INT64_MAX / 2;
      for (int i = j - 1; i >= 0; i--) { /* the last bucket holds lengths i + 1 .. j */
        padding += (int64_t)often[i + 1] * (j - i - 1);
        if (best[m - 1][i] + padding < best[m][j]) best[m][j] = best[m - 1][i] + padding;
      }
    }
  struct sl_sentences_options options = {.bucket_count = BUCKETS};
  struct sl_dataset *set = set_of(text, write_text(sentences, count, text), 2, options);
  assert_int_equal(sl_dataset_info(set)->bucket_count, BUCKETS);
  assert_int_equal(sl_dataset_info(set)->padding, best[BUCKETS][LENGTHS]);
  sl_dataset_free(set);
  free(text);
}

/* ---- loaders: a text whose token at place p is p + 1, ends are 0 ---- */

#define TOKENS 700
#define LONGEST 12

static struct {
  int32_t tokens[TOKENS];
  int empty; /* lines */
} text;

static int write_places(void **state) {
  (void)state;
  for (int p = 0; p < TOKENS; p++) {
    text.tokens[p] = draw(6) && p % LONGEST ? p + 1 : 0;
    text.empty += text.tokens[p] == 0 && (p == 0 || text.tokens[p - 1] == 0);
  }
  text.tokens[TOKENS - 1] = TOKENS; /* it does not end in an end */
  return text.empty > 5 ? 0 : -1;
}

static struct sl_dataset *places(int buckets, int64_t longest) {
  return set_of(text.tokens, TOKENS, TOKENS + 1,
                (struct sl_sentences_options){.bucket_count = buckets, .longest = longest});
}

/* Counts each place of the text that was a label; empty lines look all the same. */
struct seen {
  int places[TOKENS], empty;
};

/* One label, and the input in front of it, are neighbours in the text. */
static void see_label(int32_t token, int32_t label, struct seen *seen) {
  if (label == 0 && token == 0) {
    seen->empty++;
    return;
  }
  int place = label ? label - 1 : token;
  assert_int_equal(text.tokens[place], label);
  assert_int_equal(place ? text.tokens[place - 1] : 0, token);
  seen->places[place]++;
}

static int64_t row_length(const struct sl_batch *batch, int64_t stride, int64_t row) {
  int64_t length = 0;
  while (length < stride && batch->labels[row * stride + length] != SL_IGNORE) length++;
  return length;
}

/* A batch of one bucket: labels, then padding; rows without labels are its first ones again. */
static void see_batch(const struct sl_dataset *set, const struct sl_batch *batch,
                      struct seen *seen) {
  const struct sl_dataset_info *info = sl_dataset_info(set);
  int64_t stride = stride_of(set), shorter = 0, valid = 0, rows = 0;
  int b = 0;
  while (b < info->bucket_count && info->buckets[b] != batch->steps) shorter = info->buckets[b++];
  assert_true(b < info->bucket_count);
  for (int64_t row = 0; row < batch->batch; row++) {
    const int32_t *tokens = batch->tokens + row * stride, *labels = batch->labels + row * stride;
    int64_t length = row_length(batch, stride, row);
    for (int64_t k = length; k < stride; k++) assert_int_equal(labels[k], SL_IGNORE);
    for (int64_t k = length ? length : batch->steps; k < stride; k++)
      assert_int_equal(tokens[k], 0);
    if (length > 0) {
      assert_int_equal(rows, row); /* none follows an ignored one */
      assert_true(length > shorter && length <= batch->steps);
      for (int64_t k = 0; k < length; k++) see_label(tokens[k], labels[k], seen);
      rows++;
    } else if (rows > 0) {
      assert_memory_equal(tokens, tokens - rows * stride, (size_t)stride * sizeof *tokens);
    }
    valid += length;
  }
  assert_int_equal(batch->valid, valid);
}

static void see_epoch(struct sl_loader *loader, int64_t epoch, struct seen *seen) {
  int64_t length = sl_loader_length(loader);
  for (int64_t index = 0; index < length; index++) {
    struct sl_batch batch = next(loader);
    assert_int_equal(batch.epoch, epoch);
    assert_int_equal(batch.index, index);
    assert_int_equal(batch.last, index == length - 1);
    see_batch(sl_loader_dataset(loader), &batch, seen);
    sl_loader_recycle(loader, batch.slot);
  }
}

static void test_each_label_once(void **state) {
  (void)state;
  static const int64_t batches[] = {1, 4, 200}, longest[] = {0, 5, 1};
  for (int round = 0; round < 3 * 3 * 2 * 4; round++) {
    int64_t batch = batches[round % 3], parts = 1 + round / 18;
    struct sl_dataset *set = places(4, longest[round / 3 % 3]);
    struct seen seen[2] = {0};
    for (int64_t part = 0; part < parts; part++) {
      struct sl_loader *loader = loader_of(set, (struct sl_loader_options){.batch = batch,
                                                                           .seed = 3,
                                                                           .shuffle = round / 9 % 2,
                                                                           .part_index = part,
                                                                           .num_parts = parts});
      for (int epoch = 0; epoch < 2; epoch++) see_epoch(loader, epoch, &seen[epoch]);
      sl_loader_free(loader);
    }
    for (int epoch = 0; epoch < 2; epoch++) {
      assert_int_equal(seen[epoch].empty, text.empty);
      for (int p = 0; p < TOKENS; p++) {
        bool empty_line = text.tokens[p] == 0 && (p == 0 || text.tokens[p - 1] == 0);
        assert_int_equal(seen[epoch].places[p], !empty_line);
      }
    }
    sl_dataset_free(set);
  }
}

/* Any change of tokens, labels, steps or order changes it. */
static uint64_t hash_epoch(struct sl_loader *loader) {
  uint64_t hash = 14695981039346656037u;
  int64_t stride = stride_of(sl_loader_dataset(loader));
  for (int64_t index = 0; index < sl_loader_length(loader); index++) {
    struct sl_batch batch = next(loader);
    hash = (hash ^ (uint64_t)batch.steps) * 1099511628211u;
    for (int64_t k = 0; k < batch.batch * stride; k++) {
      hash = (hash ^ (uint32_t)batch.tokens[k]) * 1099511628211u;
      hash = (hash ^ (uint32_t)batch.labels[k]) * 1099511628211u;
    }
    sl_loader_recycle(loader, batch.slot);
  }
  return hash;
}

static void test_order(void **state) {
  (void)state;
  enum { EPOCHS = 4 };
  struct sl_dataset *set = places(4, 0);
  static const int slots[] = {2, 4, 7};
  uint64_t hashes[EPOCHS];
  struct sl_loader_options options = {.batch = 5, .seed = 1, .shuffle = true};
  for (int s = 0; s < 3; s++) {
    options.slots = slots[s];
    struct sl_loader *loader = loader_of(set, options);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
      uint64_t hash = hash_epoch(loader);
      if (s == 0) hashes[epoch] = hash;
      assert_true(hash == hashes[epoch]);
      for (int other = 0; other < epoch; other++) assert_true(hash != hashes[other]);
    }
    for (int round = 0; round < 20; round++) { /* at any moment of the thread's work */
      int epoch = round * 3 % EPOCHS;
      assert_int_equal(sl_loader_seek(loader, epoch), SL_OK);
      assert_true(hash_epoch(loader) == hashes[epoch]);
      sl_loader_recycle(loader, next(loader).slot);
    }
    sl_loader_free(loader);
  }
  options.seed = 2;
  struct sl_loader *loader = loader_of(set, options);
  assert_true(hash_epoch(loader) != hashes[0]);
  sl_loader_free(loader);
  options.shuffle = false;
  loader = loader_of(set, options);
  hashes[0] = hash_epoch(loader);
  assert_true(hash_epoch(loader) == hashes[0]);
  assert_int_equal(sl_loader_seek(loader, 7), SL_OK);
  assert_true(hash_epoch(loader) == hashes[0]);
  sl_loader_free(loader);
  sl_dataset_free(set);
}

/* First labels of an epoch's rows, which tell the samples' order, and the batches' steps. */
struct order {
  int32_t rows[TOKENS];
  int64_t steps[TOKENS];
  int row_count, falls; /* how often a batch's steps are below those of the one before */
};

static void read_order(struct sl_loader *loader, struct order *order) {
  int64_t stride = stride_of(sl_loader_dataset(loader)), before = 0;
  *order = (struct order){0};
  for (int64_t index = 0; index < sl_loader_length(loader); index++) {
    struct sl_batch batch = next(loader);
    for (int64_t row = 0; row < batch.batch; row++)
      if (row_length(&batch, stride, row))
        order->rows[order->row_count++] = batch.labels[row * stride];
    order->steps[index] = batch.steps;
    order->falls += batch.steps < before;
    before = batch.steps;
    sl_loader_recycle(loader, batch.slot);
  }
}

static int compare_steps(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Both the batches and what is in them are shuffled. */
static void test_shuffled(void **state) {
  (void)state;
  static struct order plain, one, two;
  struct sl_dataset *set = places(4, 0);
  struct sl_loader *loader = loader_of(set, (struct sl_loader_options){.batch = 4});
  read_order(loader, &plain);
  assert_int_equal(plain.falls, 0);
  sl_loader_free(loader);
  loader = loader_of(set, (struct sl_loader_options){.batch = 4, .shuffle = true});
  read_order(loader, &one);
  read_order(loader, &two);
  size_t length = (size_t)sl_loader_length(loader);
  assert_true(length > 20 && one.falls > 3 && two.falls > 3);
  assert_memory_not_equal(one.steps, two.steps, sizeof one.steps);
  qsort(one.steps, length, sizeof *one.steps, compare_steps);
  qsort(two.steps, length, sizeof *two.steps, compare_steps);
  assert_memory_equal(one.steps, plain.steps, sizeof one.steps);
  assert_memory_equal(two.steps, plain.steps, sizeof two.steps);
  int rising = 0; /* neighbours of a batch in the text's order: about half */
  for (int i = 1; i < one.row_count; i++) rising += one.rows[i] > one.rows[i - 1];
  assert_int_equal(one.row_count, sl_dataset_info(set)->count);
  assert_true(rising > one.row_count / 4 && rising < one.row_count * 3 / 4);
  sl_loader_free(loader);
  sl_dataset_free(set);
}

/* ---- parts ---- */

/* Rows of the k-th batches of all parts, taken in turn, are those of one loader with more rows. */
static void check_parts(const struct sl_dataset *set, int64_t parts, bool shuffle) {
  enum { BATCH = 3 };
  int64_t stride = stride_of(set);
  struct sl_loader_options options = {.batch = BATCH * parts, .seed = 4, .shuffle = shuffle};
  struct sl_loader *whole = loader_of(set, options);
  int64_t *valid = calloc((size_t)(2 * sl_loader_length(whole)), sizeof *valid);
  assert_non_null(valid);
  for (int64_t part = 0; part < parts; part++) {
    options.batch = BATCH;
    options.part_index = part;
    options.num_parts = parts;
    struct sl_loader *loader = loader_of(set, options);
    assert_int_equal(sl_loader_length(loader), sl_loader_length(whole));
    assert_int_equal(sl_loader_seek(whole, 0), SL_OK);
    for (int64_t index = 0; index < 2 * sl_loader_length(loader); index++) {
      struct sl_batch all = next(whole), batch = next(loader);
      assert_int_equal(batch.steps, all.steps);
      assert_int_equal(all.valid_all, all.valid);
      assert_int_equal(batch.valid_all, all.valid); /* the words, not the places */
      valid[index] += batch.valid;
      if (part == parts - 1) assert_int_equal(batch.valid_all, valid[index]);
      for (int64_t row = 0; row < BATCH; row++) {
        int64_t same = row * parts + part, length = row_length(&all, stride, same);
        assert_int_equal(row_length(&batch, stride, row), length);
        assert_memory_equal(batch.labels + row * stride, all.labels + same * stride,
                            (size_t)stride * sizeof *batch.labels);
        if (length)
          assert_memory_equal(batch.tokens + row * stride, all.tokens + same * stride,
                              (size_t)stride * sizeof *batch.tokens);
      }
      sl_loader_recycle(loader, batch.slot);
      sl_loader_recycle(whole, all.slot);
    }
    sl_loader_free(loader);
  }
  free(valid);
  sl_loader_free(whole);
}

static void test_parts(void **state) {
  (void)state;
  struct sl_dataset *set = places(3, 0);
  for (int64_t parts = 1; parts <= 7; parts++)
    for (int shuffle = 0; shuffle < 2; shuffle++) check_parts(set, parts, shuffle);
  sl_dataset_free(set);
}

/* A bucket of one sample: the other part shows it, and nothing of it counts. */
static void test_part_without_samples(void **state) {
  (void)state;
  static const int32_t tokens[] = {1, 0, 2, 3, 4, 0, 5, 0};
  static const int64_t buckets[] = {2, 3, 4};
  struct sl_dataset *set =
      set_of(tokens, 8, 6, (struct sl_sentences_options){.buckets = buckets, .bucket_count = 3});
  struct sl_loader *loader =
      loader_of(set, (struct sl_loader_options){.batch = 1, .part_index = 1, .num_parts = 2});
  assert_int_equal(sl_loader_length(loader), 2);
  check_batch(loader, 2, 2, BATCH(0, 5, 0, 0), BATCH(5, 0, I, I));
  check_batch(loader, 4, 0, BATCH(0, 2, 3, 4), BATCH(I, I, I, I));
  sl_loader_free(loader);
  FAILS(sl_loader_new(set, &(struct sl_loader_options){.batch = 1, .num_parts = 3}, &loader),
        SL_BAD_ARGUMENT, "3 parts of 2 samples in the fullest bucket");
  FAILS(sl_loader_new(set, &(struct sl_loader_options){.batch = 1, .contiguous = true}, &loader),
        SL_BAD_ARGUMENT, "cannot be contiguous");
  sl_dataset_free(set);
}

/* Sets without buckets say so, and their batches their steps. */
static void test_other_sets(void **state) {
  (void)state;
  struct sl_dataset *set;
  assert_int_equal(sl_tokens_new("text", text.tokens, 100, 7, TOKENS + 1, &set), SL_OK);
  assert_int_equal(sl_dataset_info(set)->bucket_count, 0);
  assert_null(sl_dataset_info(set)->buckets);
  assert_null(sl_dataset_info(set)->bucket_samples);
  struct sl_loader *loader = loader_of(set, (struct sl_loader_options){.batch = 2});
  assert_int_equal(next(loader).steps, 7);
  sl_loader_free(loader);
  sl_dataset_free(set);
  assert_int_equal(sl_digits_new(3, 1, true, &set), SL_OK);
  loader = loader_of(set, (struct sl_loader_options){.batch = 2});
  assert_int_equal(next(loader).steps, 0);
  sl_loader_free(loader);
  sl_dataset_free(set);
}

/* ---- what is refused ---- */

static void test_bad_arguments(void **state) {
  (void)state;
  static const int64_t equal[] = {2, 2}, falling[] = {3, 2}, zero[] = {0, 2}, negative[] = {-1},
                       huge[] = {INT64_MAX}, two[] = {2};
  static const struct {
    struct sl_sentences_options options;
    const char *message;
  } cases[] = {
      {{.buckets = equal, .bucket_count = 2}, "bucket 1 is 2 tokens long, the one before it 2"},
      {{.buckets = falling, .bucket_count = 2}, "bucket 1 is 2 tokens long, the one before it 3"},
      {{.buckets = zero, .bucket_count = 2}, "bucket 0 is 0 tokens long"},
      {{.buckets = negative, .bucket_count = 1}, "bucket 0 is -1 tokens long"},
      {{.buckets = huge, .bucket_count = 1}, "bucket 0 is 9223372036854775807 tokens long"},
      {{.buckets = two, .bucket_count = 0}, "0 buckets; give 1 to 64"},
      {{.bucket_count = -3}, "-3 buckets"},
      {{.bucket_count = SL_MAX_BUCKETS + 1}, "65 buckets"},
      {{.bucket_count = 1, .longest = -1}, "a longest bucket of -1"},
      {{.bucket_count = 1, .longer = (enum sl_long)2}, "not 2"},
      {{.bucket_count = 1, .end = -1},
       "sentences end with token -1, but the vocabulary has 0 to 3"},
      {{.bucket_count = 1, .end = 4}, "sentences end with token 4"},
      {{.buckets = two, .bucket_count = 1, .longer = DROP}, "all 1 sentences are longer than 2"},
      {{.bucket_count = 1, .longest = 2, .longer = DROP}, "nothing is left"},
  };
  static const int32_t tokens[] = {1, 2, 3, 0}, high[] = {1, 4, 0}, low[] = {1, 0, -2};
  struct sl_dataset *set;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    FAILS(sl_sentences_new("text", tokens, 4, 4, &cases[i].options, &set), SL_BAD_ARGUMENT,
          cases[i].message);
  const struct sl_sentences_options good = {.bucket_count = 1};
  FAILS(sl_sentences_new("text", tokens, 0, 4, &good, &set), SL_BAD_ARGUMENT,
        "text: a text without tokens");
  FAILS(sl_sentences_new("text", tokens, -1, 4, &good, &set), SL_BAD_ARGUMENT, "without");
  FAILS(sl_sentences_new("text", high, 3, 4, &good, &set), SL_BAD_ARGUMENT,
        "token 1 is 4, but the vocabulary has 0 to 3");
  FAILS(sl_sentences_new("text", low, 3, 4, &good, &set), SL_BAD_ARGUMENT, "token 2 is -2");
  FAILS(sl_sentences_new("text", tokens, 4, 0, &good, &set), SL_BAD_ARGUMENT, "token 0");
}

static enum sl_status make_all(void) {
  struct sl_dataset *set;
  struct sl_loader *loader;
  const struct sl_sentences_options options = {.bucket_count = 3};
  const struct sl_loader_options shuffled = {.batch = 4, .shuffle = true};
  enum sl_status status = sl_sentences_new("t", text.tokens, TOKENS, TOKENS + 1, &options, &set);
  if (status != SL_OK) return status;
  status = sl_loader_new(set, &shuffled, &loader);
  if (status == SL_OK) sl_loader_free(loader);
  sl_dataset_free(set);
  return status;
}

static void test_allocations(void **state) {
  (void)state;
  check_allocations(make_all);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_example),
      cmocka_unit_test(test_longer_sentences),
      cmocka_unit_test(test_chosen_buckets),
      cmocka_unit_test(test_many_lengths),
      cmocka_unit_test(test_each_label_once),
      cmocka_unit_test(test_order),
      cmocka_unit_test(test_shuffled),
      cmocka_unit_test(test_parts),
      cmocka_unit_test(test_part_without_samples),
      cmocka_unit_test(test_other_sets),
      cmocka_unit_test(test_bad_arguments),
      cmocka_unit_test(test_allocations),
  };
  return cmocka_run_group_tests(tests, write_places, NULL);
}
