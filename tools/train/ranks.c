#include "tools/train/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "data/dataset.h"
#include "tools/common/memory_text.h"

bool ranks_wanted(const struct cli *cli) { return cli->kvstore >= SL_KVSTORE_DIST_SYNC; }

bool ranks_are_async(const struct cli *cli) {
  return cli->kvstore == SL_KVSTORE_DIST_ASYNC || cli->kvstore == SL_KVSTORE_DIST_ASYNC_DEVICE;
}

bool ranks_strayed(const struct cli *cli) {
  int rank;
  return sl_launched(&rank) > 1 && !ranks_wanted(cli);
}

static uint64_t hash_words(uint64_t hash, const void *words, size_t count) {
  const uint32_t *word = words; /* floats and whole numbers alike: their bits */
  for (size_t i = 0; i < count; i++) hash = sl__fnv1a_step(hash, word[i]);
  return hash;
}

/* The normalisation takes a factor out of the values, so that it belongs to them. */
static uint64_t hash_normal(const struct sl_dataset_info *info) {
  const size_t inputs = (size_t)info->channels, targets = (size_t)info->target_channels;
  uint64_t hash = hash_words(SL__FNV1A_BEGIN, info->mean, inputs);
  hash = hash_words(hash, info->deviation, inputs);
  hash = hash_words(hash, info->target_mean, targets);
  return hash_words(hash, info->target_deviation, targets);
}

/* How many samples are hashed: a start takes no minutes where they are read from files. */
static int64_t hashed_samples(const struct sl_dataset *set) {
  const int64_t most = 1000, least = 16, most_values = 1 << 22;
  int64_t count = most_values / (int64_t)set->sample_size;
  count = count > most ? most : count < least ? least : count;
  return count < set->info.count ? count : set->info.count;
}

/* Some samples as one number, from the first to the last: values or tokens, labels or targets. The
 * library normalises to the same bits on all processors. */
static enum sl_status hash_samples(const struct sl_dataset *set, uint64_t *hash) {
  const size_t values = set->sample_size, labels = set->label_count, targets = set->target_size;
  const int64_t count = hashed_samples(set), last = set->info.count - 1;
  enum sl_status status = SL_OK;
  uint32_t *words = calloc(values + labels + targets, sizeof *words);
  if (!words) return SL_NO_MEMORY;
  void *behind = words + values; /* a set has labels or targets */
  const struct sl__rows row = {
      .x = (void *)words, .labels = labels ? behind : NULL, .targets = targets ? behind : NULL};
  *hash = hash_normal(&set->info);
  for (int64_t k = 0; k < count && status == SL_OK; k++) {
    int64_t i = count > 1 ? last * k / (count - 1) : 0;
    status = set->kind->fill(set, 1, &i, &row);
    *hash = hash_words(*hash, words, values + labels + targets);
  }
  free(words);
  return status;
}

static enum sl_status describe_data(const char *option, const struct sl_dataset *set, FILE *out) {
  const struct sl_dataset_info *info = sl_dataset_info(set);
  uint64_t hash = 0;
  enum sl_status status = hash_samples(set, &hash);
  fprintf(out, "--%s of %lld samples, %d classes, contents %016llx\n", option,
          (long long)info->count, info->classes, (unsigned long long)hash);
  return status;
}

enum sl_status ranks_agree(struct sl_context *context, const struct cli *cli,
                           const struct sl_dataset *train, const struct sl_dataset *test) {
  const struct option_set shared = cli_set(cli);
  struct memory_text stream;
  enum sl_status status = SL_NO_MEMORY;
  FILE *out = memory_text_begin(&stream);
  if (out) {
    option_print(out, &shared, OPTION_ALIKE);
    status = describe_data("data", train, out);
    if (status == SL_OK && test) status = describe_data("validation", test, out);
    option_print(out, &cli->own, OPTION_ALIKE);
  }
  char *lines = memory_text_end(&stream, NULL);
  if (status == SL_OK && !lines) status = SL_NO_MEMORY;
  /* one rank may fail to read its samples */
  status = sl_share(context, status,
                    status == SL_NO_MEMORY ? "no memory to compare the ranks" : sl_error());
  if (status == SL_OK) status = sl_agree(context, lines);
  free(lines);
  return status;
}

char *ranks_path(const char *path, int rank) {
  char *own = NULL;
  const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
  if (!rank) return strdup(path);
  if (!dot || (slash && dot < slash)) dot = path + strlen(path);
  if (asprintf(&own, "%.*s.rank%d%s", (int)(dot - path), path, rank, dot) < 0) return NULL;
  return own;
}

int ranks_workers(const struct sl_context *context, const struct cli *cli,
                  const struct sl_model *model) {
  return (sl_rank_count(context) - cli->servers) / sl_placement_ranks(model);
}

void ranks_part(const struct sl_context *context, const struct cli *cli,
                const struct sl_model *model, struct sl_loader_options *options) {
  int workers = ranks_workers(context, cli, model);
  int worker = sl_rank(context) / sl_placement_ranks(model);
  options->num_parts = workers > 0 ? workers : 1; /* too few: the trainer tells */
  options->part_index = worker < workers ? worker : 0;
}
