/* The description of a run as JSON, the first line of its log. See doc/log.md for the format. */
#ifndef SL_TOOLS_TRAIN_DESCRIBE_H
#define SL_TOOLS_TRAIN_DESCRIBE_H

#include <jansson.h>

#include "tools/train/cli.h"

struct description {
  const char *program; /* "lenet" */
  const struct cli *cli;
  const struct sl_context *context;
  const struct sl_model *model;
  const struct sl_trainer *trainer;
  const struct sl_dataset *train_set, *test_set;
  const char *unit;      /* of throughput: "images" */
  const char *split;     /* in force where the option is auto; NULL: as given */
  int64_t epochs, steps; /* in all, in force */
  int64_t from;          /* steps done before this process took over */
};

/* The options with the values in force, defaults and what measurements decided filled in. */
struct cli describe_settings(const struct description *run);

/* The options that have all of the flags, by their names without the dashes; null: not given, or
 * the program's own default. NULL: no memory. */
json_t *describe_options(const struct cli *settings, unsigned flags);

/* The whole line. NULL: no memory. */
json_t *describe_run(const struct description *run);

#endif
