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

static void describe_own(const struct cli *cli, FILE *out) {
  const struct argp_option *option = cli->own;
  for (int i = 0; option && i < CLI_MOST_OWN && (option[i].name || option[i].doc); i++)
    if (option[i].name)
      fprintf(out, "--%s %s\n", option[i].name,
              cli->own_text[i] ? cli->own_text[i] : "(not given)");
}

enum sl_status ranks_agree(struct sl_context *context, const struct cli *cli,
                           const struct sl_dataset *train) {
  char *lines = NULL;
  size_t size;
  FILE *out = open_memstream(&lines, &size);
  if (!out) return SL_NO_MEMORY;
  fprintf(out, "--batch %lld\n--epochs %lld\n--steps %lld\n--seed %llu\n--init %d\n",
          (long long)cli->batch, (long long)cli->epochs, (long long)cli->steps,
          (unsigned long long)cli->seed, (int)cli->init);
  fprintf(out, "--no-shuffle %d\n--augment %d\n--lr-schedule %s\n--optimizer %s\n--lr %g\n",
          !cli->shuffle, cli->augment, cli->lr_schedule, cli->optimizer_name,
          (double)cli->optimizer.lr);
  fprintf(out,
          "--momentum %g\n--weight-decay %g\n--clip %g\n--kvstore %s\n--math %s\n--servers %d\n",
          (double)cli->optimizer.momentum, (double)cli->optimizer.weight_decay,
          (double)cli->optimizer.clip, sl_kvstore_name(cli->kvstore), sl_math_name(cli->math),
          cli->servers);
  fprintf(out, "--bigarray-bound %lld\n--compress %s\n--max-staleness %d\n",
          (long long)cli->bigarray_bound, cli->compress ? cli->compress : "none",
          cli->max_staleness);
  describe_data(train, out);
  describe_own(cli, out);
  fclose(out);
  enum sl_status status = sl_agree(context, lines);
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
