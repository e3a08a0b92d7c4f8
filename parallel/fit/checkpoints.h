/* The folder of sl_fit_options.checkpoint: files checkpoint-000001234.safetensors, by the steps
 * they hold, and manifest.json, which lists them with their lengths and checksums. */
#ifndef SL_PARALLEL_FIT_CHECKPOINTS_H
#define SL_PARALLEL_FIT_CHECKPOINTS_H

#include <jansson.h>
#include <limits.h>
#include <starling/fit.h>

#include "parallel/fit/folder_lock.h"

/* Of several ranks the first one reads and writes; the others' folders are of no interest. */
struct sl__checkpoints {
  const char *folder;
  int64_t keep;
  void (*warn)(void *user, const char *line); /* of files that cannot be used */
  void *user;
  struct sl__folder_lock lock;
  /* while a checkpoint is written, its thread's: */
  json_t *listed;        /* the manifest's, newest first */
  char newest[PATH_MAX]; /* whole one; "" while there is none */
};

/* Makes the folder if it is missing, locks it, and removes half-written files of a killed run.
 * Returns errno's value, or 0. EBUSY: another run has it, and `owner` says which. */
int sl__checkpoints_open(struct sl__checkpoints *checkpoints, char *owner, size_t size);
void sl__checkpoints_close(struct sl__checkpoints *checkpoints);

/* Returns errno's value, or 0. */
int sl__checkpoints_exist(const struct sl__checkpoints *checkpoints, bool *exist);

/* The list in a manifest, borrowed from it. Returns NULL, or why the manifest is damaged. */
const char *sl__checkpoints_listed(const json_t *root, json_t **list);

/* Loads the newest whole checkpoint; `newest` becomes its name, or "" if there is none. A
 * warning reports a damaged checkpoint and a missing or damaged manifest. A checkpoint of another
 * model or training is a failure, as of sl_trainer_load; so is a folder or a file that cannot be
 * read now, but may be whole. */
enum sl_status sl__checkpoints_resume(struct sl__checkpoints *checkpoints,
                                      struct sl_context *context, struct sl_trainer *trainer,
                                      struct sl_loader *loader);

/* Begin to write the trainer's (sl_trainer_save_begin), with the run's options. Once it is whole
 * the manifest follows, and then older ones are removed until `keep` are left. */
enum sl_status sl__checkpoints_begin(struct sl__checkpoints *checkpoints,
                                     struct sl_trainer *trainer, const char *options);

#endif
