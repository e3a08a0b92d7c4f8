/* What datasets of floats share, wherever their values come from. */
#ifndef SL_DATA_FLOATS_H
#define SL_DATA_FLOATS_H

#include "data/dataset.h"

/* Begins a set by its description, which is copied; options->release is left to the kind. */
enum sl_status sl__float_set_begin(const struct sl__dataset_kind *kind, size_t size,
                                   const struct sl_dataset_options *options,
                                   struct sl_dataset **set);

/* SL_BAD_ARGUMENT for a value that is not finite (missing targets aside), or a label that is no
 * class. samples [count]: the rows' numbers for the message; NULL: 0, 1, ... */
enum sl_status sl__check_rows(const struct sl_dataset *set, int64_t count, const int64_t *samples,
                              const struct sl__rows *rows);

/* Normalises inputs and targets in place. */
void sl__normalise_rows(const struct sl_dataset_info *info, int64_t count,
                        const struct sl__rows *rows);
/* The same for rows that sl__check_rows accepts. SL_BAD_ARGUMENT where a value becomes infinite: it
 * is far from the mean of a small deviation. */
enum sl_status sl__normalise_checked(const struct sl_dataset *set, int64_t count,
                                     const int64_t *samples, const struct sl__rows *rows);

#endif
