/* The mean over axes of a tensor: arguments. */
#ifndef SL_CODELETS_MEAN_H
#define SL_CODELETS_MEAN_H

#include <starling/base.h>

/* Axes of x that stay, in the order of y's, and those that the mean is over. Neighbours are one
 * axis. */
struct sl__mean_args {
  int32_t kept, reduced;
  int64_t kept_dim[SL_MAX_DIMS], kept_stride[SL_MAX_DIMS];
  int64_t reduced_dim[SL_MAX_DIMS], reduced_stride[SL_MAX_DIMS];
  int64_t outputs, terms; /* values of y, and values of x that each is the mean of */
};

#endif
