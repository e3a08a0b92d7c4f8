/* The middle of measured times: what other programs do to a few of them does not show in it. */
#ifndef SL_CORE_BASE_MEDIAN_H
#define SL_CORE_BASE_MEDIAN_H

/* Of values [count], which it sorts; count at least 1. */
double sl__median(int count, double *values);

#endif
