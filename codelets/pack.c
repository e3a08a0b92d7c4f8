/* Tensors one after the other in one (core/pack.h). */
#include <string.h>

#include "codelets/codelets.h"
#include "core/pack.h"

SL_KERNEL void sl__pack_cpu(void *buffers[], void *cl_arg) {
  const int64_t *bytes = sl__args(cl_arg);
  char *to = sl__buffer(buffers, 0);
  for (int i = 1; i < sl__buffer_count(cl_arg); i++) {
    memcpy(to, sl__buffer(buffers, i), (size_t)bytes[i - 1]);
    to += sl__pack_room((size_t)bytes[i - 1]);
  }
}
