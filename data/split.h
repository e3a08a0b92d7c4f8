/* The training part of a set and what is held back from it, normalised. */
#ifndef SL_DATA_SPLIT_H
#define SL_DATA_SPLIT_H

#include "data/dataset.h"

/* The training part of `whole` (train) or what is held back: the share or the
 * fold of it that options->validation says, or all of `test` unless that is NULL. Both sets are not
 * normalised; this function takes them over in any case. \return SL_BAD_ARGUMENT for a share or a
 * fold that is none, or leaves a part without samples; SL_BAD_SHAPE where test has other samples or
 * targets than whole.
 */
enum sl_status sl__split(struct sl_dataset *whole, struct sl_dataset *test,
                         const struct sl_reader_options *options, bool train,
                         struct sl_dataset **result);

/* Is it a share, such as "0.2", or a fold, "fold:2/5"? NULL: none. */
bool sl__is_share(const char *validation);

#endif
