/* A trainer as one of several ranks (mpirun): what must be alike, and each one's own files. */
#ifndef SL_TOOLS_TRAIN_RANKS_H
#define SL_TOOLS_TRAIN_RANKS_H

#include "tools/train/cli.h"

/* --kvstore dist_...? */
bool ranks_wanted(const struct cli *cli);

/* --kvstore dist_async...? */
bool ranks_are_async(const struct cli *cli);

/* Were several processes started without a --kvstore dist_...? */
bool ranks_strayed(const struct cli *cli);

/* Options and data that must be alike on all ranks; collective. test may be NULL. */
enum sl_status ranks_agree(struct sl_context *context, const struct cli *cli,
                           const struct sl_dataset *train, const struct sl_dataset *test);

/* "run.jsonl" on rank 0, "run.rank2.jsonl" on rank 2; to be freed, NULL without memory. */
char *ranks_path(const char *path, int rank);

/* How many batches a step there are: ranks that have a model between them work on one. */
int ranks_workers(const struct sl_context *context, const struct cli *cli,
                  const struct sl_model *model);

/* Which part of the data is this rank's, of how many; those that have a model (placed already)
 * between them take the same, ranks that only own shards the first. */
void ranks_part(const struct sl_context *context, const struct cli *cli,
                const struct sl_model *model, struct sl_loader_options *options);

#endif
