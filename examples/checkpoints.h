/* The folder of --checkpoint: files checkpoint-000001234.safetensors, by the steps they hold. */
#ifndef SL_EXAMPLES_CHECKPOINTS_H
#define SL_EXAMPLES_CHECKPOINTS_H

#include <limits.h>
#include <starling.h>

/* Make the folder where it is missing, and take away what a killed run left half-written. Returns
 * errno's value, or 0. */
int checkpoints_open(const char *folder);

bool checkpoints_exist(const char *folder);

/* Of several ranks the first one reads and writes; the others' folders are of no interest. */

/* Load the newest one that is whole; path becomes its name, or "" where there is none. A damaged
 * one is told of by a line on the error stream, beginning with name, and passed over. One of
 * another model or training is a failure, as sl_trainer_load's. */
enum sl_status checkpoints_resume(const char *folder, const char *name, struct sl_context *context,
                                  struct sl_trainer *trainer, struct sl_loader *loader,
                                  char path[PATH_MAX]);

/* Write the trainer's, whose name path becomes, and remove all older ones but so many that `keep`
 * are left. */
enum sl_status checkpoints_write(const char *folder, int64_t keep, bool first,
                                 struct sl_trainer *trainer, char path[PATH_MAX]);

#endif
