/* Sentences of a text, sorted into buckets by length.
 *
 * The set keeps the whole text, with one `end` before it. Every sentence but the first follows the
 * `end` of the sentence before it. So the inputs of a sentence begin one token before its first
 * token, and its labels are the inputs shifted by one, as in any other text. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "data/dataset.h"

/* A sample. Its inputs are the set's tokens first .. first + length - 1; the label of each is the
 * next token. */
struct sentence {
  int64_t first;
  int32_t length, bucket;
};

struct sentence_set {
  struct sl_dataset set;
  int32_t *tokens;
  struct sentence *sentences;
  int64_t *buckets; /* lengths, then samples; info points into it */
  int32_t end;      /* token that ends a sentence */
};

/* A text while it is cut into samples. */
struct text {
  const char *name;
  const int32_t *tokens;
  int64_t count;
  const struct sl_sentences_options *options;
  int64_t most;            /* largest number of tokens in a sample */
  int64_t samples, longer; /* number of samples, and of longer sentences, with this `most` */
  int64_t buckets[SL_MAX_BUCKETS];
  int bucket_count;
};

/* ---- samples, one after another ---- */

struct walk {
  const struct text *text;
  int64_t at, stop; /* what remains of the current sentence */
  int64_t longer;
};

/* The next sample: its labels are the tokens *first .. *first + *length - 1. False at the text's
 * end. */
static bool next_sample(struct walk *walk, int64_t *first, int64_t *length) {
  const struct text *text = walk->text;
  while (walk->at == walk->stop) {
    if (walk->at == text->count) return false;
    while (walk->stop < text->count && text->tokens[walk->stop++] != text->options->end) continue;
    if (walk->stop - walk->at <= text->most) break;
    walk->longer++;
    if (text->options->longer == SL_LONG_DROP) walk->at = walk->stop;
  }
  int64_t left = walk->stop - walk->at;
  *first = walk->at;
  *length = left < text->most ? left : text->most;
  walk->at += *length;
  return true;
}

static int64_t longest_sentence(struct text *text) {
  struct walk walk = {.text = text};
  int64_t first, length, longest = 0;
  text->most = INT64_MAX;
  while (next_sample(&walk, &first, &length))
    if (length > longest) longest = length;
  return longest;
}

static enum sl_status count_samples(struct text *text) {
  struct walk walk = {.text = text};
  int64_t first, length;
  while (next_sample(&walk, &first, &length)) text->samples++;
  text->longer = walk.longer;
  if (text->samples == 0)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: all %lld sentences are longer than %lld tokens and dropped, nothing is "
                    "left; allow longer ones or cut them",
                    text->name, (long long)text->longer, (long long)text->most);
  if (text->samples > UINT32_MAX)
    return sl__fail(SL_BAD_ARGUMENT, "%s: %lld samples; a dataset has 1 to %lld", text->name,
                    (long long)text->samples, (long long)UINT32_MAX);
  return SL_OK;
}

/* ---- the choice of buckets ---- */

/* The different lengths of samples, ascending. */
struct histogram {
  int64_t count;
  int64_t *length;        /* [count] */
  int64_t *samples, *sum; /* [count + 1]: number of samples of the first i lengths, and the sum of
                             their lengths */
  int64_t *before,
      *best;      /* [count + 1]: least padding of the first j lengths in m - 1 buckets, and in m */
  uint32_t *from; /* [m, j]: number of lengths in the first m - 1 buckets */
};

/* Padding if lengths i .. j - 1 share a bucket. */
static int64_t padding_of(const struct histogram *h, int64_t i, int64_t j) {
  return h->length[j - 1] * (h->samples[j] - h->samples[i]) - (h->sum[j] - h->sum[i]);
}

/* Computes best[low .. high] for m buckets; the last bucket begins at least .. most.
 *
 * If a <= b <= c <= d, then (length[d] - length[c]) (samples[b] - samples[a]) >= 0. So the best
 * beginning of the last bucket does not fall with j, and halving the range of j costs L log L
 * instead of L^2. */
static void fill_best(struct histogram *h, uint32_t *from, int64_t low, int64_t high, int64_t least,
                      int64_t most) {
  if (low > high) return;
  int64_t j = low + (high - low) / 2, begin = least;
  h->best[j] = INT64_MAX;
  for (int64_t i = least; i <= most && i < j; i++) {
    int64_t padding = h->before[i] + padding_of(h, i, j);
    if (padding >= h->best[j]) continue;
    h->best[j] = padding;
    begin = i;
  }
  from[j] = (uint32_t)begin;
  fill_best(h, from, low, j - 1, least, begin);
  fill_best(h, from, j + 1, high, begin, most);
}

/* Each further bucket reduces the padding until every length has its own. */
static void choose_from(struct histogram *h, struct text *text) {
  int64_t row = h->count + 1, j = h->count;
  for (int64_t k = 1; k <= h->count; k++) h->best[k] = padding_of(h, 0, k);
  for (int m = 2; m <= text->bucket_count; m++) {
    int64_t *swap = h->before;
    h->before = h->best;
    h->best = swap;
    fill_best(h, h->from + (m - 1) * row, m, h->count, m - 1, h->count - 1);
  }
  for (int m = text->bucket_count; m >= 1; m--) {
    text->buckets[m - 1] = h->length[j - 1];
    j = h->from[(m - 1) * row + j];
  }
}

/* frequency [most + 1]: number of samples of each length. */
static enum sl_status alloc_histogram(struct histogram *h, const int64_t *frequency, int64_t most,
                                      int buckets) {
  for (int64_t n = 1; n <= most; n++) h->count += frequency[n] > 0;
  if (buckets > h->count) buckets = (int)h->count;
  size_t row = (size_t)h->count + 1;
  h->length = sl__alloc(5 * row, sizeof *h->length, "lengths of sentences");
  h->from = sl__alloc((size_t)buckets * row, sizeof *h->from, "lengths of sentences");
  if (!h->length || !h->from) return SL_NO_MEMORY;
  h->samples = h->length + row;
  h->sum = h->samples + row;
  h->before = h->sum + row;
  h->best = h->before + row;
  int64_t i = 0;
  for (int64_t n = 1; n <= most; n++) {
    if (!frequency[n]) continue;
    h->length[i] = n;
    h->samples[i + 1] = h->samples[i] + frequency[n];
    h->sum[i + 1] = h->sum[i] + frequency[n] * n;
    i++;
  }
  return SL_OK;
}

static enum sl_status choose_buckets(struct text *text) {
  enum sl_status status = SL_NO_MEMORY;
  struct walk walk = {.text = text};
  struct histogram h = {0};
  int64_t first, length;
  int64_t *frequency = sl__alloc((size_t)text->most + 1, sizeof *frequency, "lengths of sentences");
  if (!frequency) goto out;
  while (next_sample(&walk, &first, &length)) frequency[length]++;
  SL__TRY(alloc_histogram(&h, frequency, text->most, text->options->bucket_count));
  text->bucket_count = text->options->bucket_count;
  if (text->bucket_count > h.count) text->bucket_count = (int)h.count;
  choose_from(&h, text);
out:
  free(frequency);
  free(h.length);
  free(h.from);
  return status;
}

/* ---- the set ---- */

static enum sl_status check_buckets(const char *name, const int64_t *buckets, int count) {
  for (int b = 0; buckets && b < count; b++) {
    if (buckets[b] < 1 || buckets[b] > INT32_MAX)
      return sl__fail(SL_BAD_ARGUMENT, "%s: bucket %d is %lld tokens long; give 1 to %d", name, b,
                      (long long)buckets[b], INT32_MAX);
    if (b > 0 && buckets[b] <= buckets[b - 1])
      return sl__fail(SL_BAD_ARGUMENT,
                      "%s: bucket %d is %lld tokens long, the one before it %lld; give ascending "
                      "lengths",
                      name, b, (long long)buckets[b], (long long)buckets[b - 1]);
  }
  return SL_OK;
}

static enum sl_status check_options(const struct text *text, int classes) {
  const struct sl_sentences_options *options = text->options;
  const char *name = text->name;
  if (text->count < 1) return sl__fail(SL_BAD_ARGUMENT, "%s: a text without tokens", name);
  if (options->end < 0 || options->end >= classes)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: sentences end with token %d, but the vocabulary has 0 to %d", name,
                    options->end, classes - 1);
  if (options->bucket_count < 1 || options->bucket_count > SL_MAX_BUCKETS)
    return sl__fail(SL_BAD_ARGUMENT, "%s: %d buckets; give 1 to %d", name, options->bucket_count,
                    SL_MAX_BUCKETS);
  if (options->longest < 0)
    return sl__fail(SL_BAD_ARGUMENT, "%s: a longest bucket of %lld tokens; give 1 or more, or 0",
                    name, (long long)options->longest);
  if (options->longer != SL_LONG_SPLIT && options->longer != SL_LONG_DROP)
    return sl__fail(SL_BAD_ARGUMENT, "%s: longer sentences are split (%d) or dropped (%d), not %d",
                    name, SL_LONG_SPLIT, SL_LONG_DROP, (int)options->longer);
  return check_buckets(name, options->buckets, options->bucket_count);
}

/* Takes or chooses the buckets' lengths, and counts the samples. */
static enum sl_status find_buckets(struct text *text) {
  const struct sl_sentences_options *options = text->options;
  if (options->buckets) {
    text->bucket_count = options->bucket_count;
    memcpy(text->buckets, options->buckets, (size_t)text->bucket_count * sizeof *text->buckets);
    text->most = text->buckets[text->bucket_count - 1];
    return count_samples(text);
  }
  int64_t longest = longest_sentence(text), most = options->longest;
  if (most == 0 || most > INT32_MAX) most = INT32_MAX;
  text->most = longest < most ? longest : most;
  enum sl_status status = count_samples(text);
  return status == SL_OK ? choose_buckets(text) : status;
}

static void fill_sentences(struct sentence_set *set, const struct text *text) {
  struct walk walk = {.text = text};
  int64_t first, length, *samples = set->buckets + text->bucket_count;
  for (int64_t i = 0; next_sample(&walk, &first, &length); i++) {
    int bucket = 0;
    while (text->buckets[bucket] < length) bucket++;
    set->sentences[i] = (struct sentence){first, (int32_t)length, bucket};
    set->set.info.padding += text->buckets[bucket] - length;
    samples[bucket]++;
  }
}

static enum sl_status fill(const struct sl_dataset *dataset, int64_t count, const int64_t *samples,
                           const struct sl__rows *rows) {
  const struct sentence_set *set = (const struct sentence_set *)dataset;
  size_t stride = dataset->sample_size;
  for (int64_t row = 0; row < count; row++) {
    const struct sentence *sentence = &set->sentences[samples[row]];
    const int32_t *text = set->tokens + sentence->first;
    int32_t *tokens = (int32_t *)(void *)rows->x + (size_t)row * stride;
    int32_t *labels = rows->labels + (size_t)row * stride;
    size_t length = (size_t)sentence->length;
    memcpy(tokens, text, length * sizeof *text);
    memcpy(labels, text + 1, length * sizeof *text);
    for (size_t k = length; k < stride; k++) {
      tokens[k] = set->end;
      labels[k] = SL_IGNORE;
    }
  }
  return SL_OK;
}

static int64_t length_of(const struct sl_dataset *set, int64_t i) {
  return ((const struct sentence_set *)set)->sentences[i].length;
}

static int bucket_of(const struct sl_dataset *set, int64_t i) {
  return ((const struct sentence_set *)set)->sentences[i].bucket;
}

static void free_set(struct sl_dataset *dataset) {
  struct sentence_set *set = (struct sentence_set *)dataset;
  free(set->tokens);
  free(set->sentences);
  free(set->buckets);
}

static const struct sl__dataset_kind sentence_kind = {
    .fill = fill, .labels = length_of, .bucket = bucket_of, .free = free_set};

static enum sl_status make_set(const struct text *text, int classes, struct sl_dataset **result) {
  size_t buckets = (size_t)text->bucket_count, count = (size_t)text->count;
  int64_t last = text->buckets[buckets - 1];
  struct sl_dataset *dataset = NULL;
  enum sl_status status;
  SL__TRY(sl__dataset_begin(&sentence_kind, sizeof(struct sentence_set),
                            &(struct sl_dataset_info){.name = text->name,
                                                      .sample = SL_SHAPE(last),
                                                      .count = text->samples,
                                                      .classes = classes,
                                                      .tokens = true,
                                                      .bucket_count = text->bucket_count,
                                                      .longer = text->longer},
                            &dataset));
  struct sentence_set *set = (struct sentence_set *)dataset;
  set->buckets = sl__alloc(2 * buckets, sizeof *set->buckets, text->name);
  set->sentences = sl__alloc((size_t)text->samples, sizeof *set->sentences, text->name);
  set->tokens = sl__alloc(count + 1, sizeof *set->tokens, text->name);
  set->end = text->options->end;
  if (!set->buckets || !set->sentences || !set->tokens) SL__TRY(SL_NO_MEMORY);
  dataset->info.buckets = set->buckets;
  dataset->info.bucket_samples = set->buckets + buckets;
  memcpy(set->buckets, text->buckets, buckets * sizeof *set->buckets);
  set->tokens[0] = set->end;
  memcpy(set->tokens + 1, text->tokens, count * sizeof *set->tokens);
  fill_sentences(set, text);
  *result = dataset;
  return SL_OK;
out:
  sl_dataset_free(dataset);
  return status;
}

enum sl_status sl_sentences_new(const char *name, const int32_t *tokens, int64_t count, int classes,
                                const struct sl_sentences_options *options,
                                struct sl_dataset **dataset) {
  SL__NEEDS(name, tokens, options, dataset);
  enum sl_status status;
  struct text text = {.name = name, .tokens = tokens, .count = count, .options = options};
  SL__TRY(check_options(&text, classes));
  SL__TRY(sl__dataset_check_tokens(name, tokens, count, classes));
  SL__TRY(find_buckets(&text));
  SL__TRY(make_set(&text, classes, dataset));
out:
  return status;
}
