/* What the losses of a search for a learning rate say. */
#ifndef SL_PARALLEL_TRAIN_RATE_SEARCH_H
#define SL_PARALLEL_TRAIN_RATE_SEARCH_H

#include <starling/parallel.h>

/* Sets steepest and least from the points of a search that was to take this number of steps. */
void sl__rate_search_judge(struct sl_rate_search *search, int64_t steps);

#endif
