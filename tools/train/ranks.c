#include "tools/train/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"

bool ranks_wanted(const struct cli *cli) { return cli->kvstore >= SL_KVSTORE_DIST_SYNC; }

bool ranks_are_async(const struct cli *cli) {
  return cli->kvstore == SL_KVSTORE_DIST_ASYNC || cli->kvstore == SL_KVSTORE_DIST_ASYNC_DEVICE;
}

bool ranks_strayed(const struct cli *cli) {
  int rank;
  return sl_launched(&rank) > 1 && !ranks_wanted(cli);
}

/* Some labels as one number; of tokens their count has to do. */
static uint64_t hash_labels(const struct sl_dataset *set) {
  const struct sl_dataset_info *info = sl_dataset_info(set);
  const int64_t most = 1000, step = info->count / most + 1;
  uint64_t hash = SL__FNV1A_BEGIN;
  int32_t label;
  if (info->tokens) return 0;
  float *values = malloc((size_t)sl_shape_count(&info->sample) * sizeof *values);
  for (int64_t i = 0; values && i < info->count; i += step)
    if (sl_dataset_get(set, i, values, &label) == SL_OK)
      hash = sl__fnv1a_step(hash, (uint64_t)label);
  free(values);
  return hash;
}

static void describe_data(const struct sl_dataset *set, FILE *out) {
  const struct sl_dataset_info *info = sl_dataset_info(set);
  fprintf(out, "--data of %lld samples, %d classes, labels %016llx\n", (long long)info->count,
          info->classes, (unsigned long long)hash_labels(set));
}

enum sl_status ranks_agree(struct sl_context *context, const struct cli *cli,
                           const struct sl_dataset *train) {
  const struct option_set shared = cli_set(cli);
  char *lines = NULL;
  size_t size;
  FILE *out = open_memstream(&lines, &size);
  if (!out) return SL_NO_MEMORY;
  option_print(out, &shared, OPTION_ALIKE);
  describe_data(train, out);
  option_print(out, &cli->own, OPTION_ALIKE);
  fclose(out);
  enum sl_status status = sl_agree(context, lines ? lines : "(no memory)");
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
