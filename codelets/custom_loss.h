/* A loss of the program's own: its tasks' arguments, for CPU and CUDA. */
#ifndef SL_CODELETS_CUSTOM_LOSS_H
#define SL_CODELETS_CUSTOM_LOSS_H

#include <starling/nn.h>

#include "core/base/error.h"
#include "core/base/random.h" /* SL__HOST_DEVICE */
#include "core/base/simd.h"
#include "core/runtime/failure.h"

/* It holds pointers, unlike most operations' arguments: these tasks stay in their process. */
struct sl__custom_loss_args {
  struct sl_own_loss own;
  int64_t rows, size;
  int64_t steps, columns, from; /* row n's targets: line n / steps, position from + n % steps */
  float scale;
  int32_t part; /* of the loss */
};

/* The place of row n's label, or of its targets in rows of their own. */
SL__HOST_DEVICE SL__INLINE int64_t sl__custom_loss_target(const struct sl__custom_loss_args *a,
                                                          int64_t n) {
  return n / a->steps * a->columns + a->from + n % a->steps;
}

/* Records what the program's function returned; message [200]: its own. A number that is no status
 * is a failure, too. */
static inline void sl__custom_loss_ended(const struct sl__custom_loss_args *a,
                                         enum sl_status status, const char *message) {
  if (status == SL_OK) return;
  enum sl_status known = sl__known_status(status);
  if (*message)
    sl__task_failed(known, "loss %s: %.199s", a->own.name, message);
  else
    sl__task_failed(known, "loss %s: its function returned %s (%d) and left no message",
                    a->own.name, sl_status_name(status), (int)status);
}

#endif
