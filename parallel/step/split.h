/* How a batch is shared out among replicas of unequal speed: arithmetic that knows no StarPU. */
#ifndef SL_PARALLEL_STEP_SPLIT_H
#define SL_PARALLEL_STEP_SPLIT_H

#include <starling/base.h>

/* "4,1": a weight a replica; NULL or "even": none. *proportion [replicas] is to be freed; NULL
 * where all are alike. SL_BAD_ARGUMENT for other text, weights that are not above 0, or another
 * number. */
enum sl_status sl__split_parse(const char *text, int replicas, double **proportion);

/* Rows of each replica, in proportion to its proportion within one row; but each has at least
 * `least` (batch >= replicas x least), which the ones with most rows give. Their sum is the batch.
 */
void sl__split_rows(const double *proportion, int replicas, int64_t batch, int64_t least,
                    int64_t *rows);

/* The rows with which the slowest replica ends soonest, where replica r takes
 * fixed_ms[r] + row_ms[r] x rows; of equals, the first ones get more. Returns its time. */
double sl__split_balance(int replicas, const double *fixed_ms, const double *row_ms, int64_t batch,
                         int64_t least, int64_t *rows);

/* ms of a slice of `rows` rows on a device of class k. */
typedef enum sl_status sl__split_measure(void *user, int k, int64_t rows, double *ms);

/* The same where times must be measured: at even rows, then at those that the first times suggest,
 * which gives each class a line. of[r]: replica r's class, sharing[r]: how many replicas take turns
 * on its device. ms receives each replica's expected time. */
enum sl_status sl__split_choose(int replicas, const int *of, const int *sharing, int classes,
                                int64_t batch, int64_t least, sl__split_measure *measure,
                                void *user, int64_t *rows, double *ms);

#endif
