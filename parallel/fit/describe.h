/* A run as JSON: the first line of its log, and what its checkpoints note. */
#ifndef SL_PARALLEL_FIT_DESCRIBE_H
#define SL_PARALLEL_FIT_DESCRIBE_H

#include <jansson.h>

#include "parallel/fit/fit.h"

/* What the samples of a report are: "images". */
const char *sl__fit_unit(const struct sl__fit *fit);

/* The line of the run, see doc/log.md. NULL: no memory. */
json_t *sl__fit_describe(const struct sl__fit *fit);

/* SL_BAD_ARGUMENT unless text is NULL or one JSON object. member: its name, for the message. */
enum sl_status sl__fit_check_object(const char *member, const char *text);

/* What a checkpoint notes: sl_fit_options.noted, and the state of early stopping as "fit". To be
 * freed; NULL: no memory. */
char *sl__fit_noted(const struct sl__fit *fit);

/* Takes the state of early stopping from what a checkpoint noted, where it is there and was counted
 * by the same metric. before may be NULL. \return SL_BAD_FILE for one that is no number. */
enum sl_status sl__fit_take_noted(struct sl__fit *fit, const char *before);

/* "replicas 2 -> 4, stages none -> 2", or "" where nothing has changed; before may be NULL: not
 * known. To be freed; NULL: no memory. */
char *sl__fit_changes(const char *before, const char *now);

#endif
