/* Tensors one after the other in one (core/pack.h), each from a multiple of 256 bytes on. */
#include <string.h>

#include "codelets/codelets.h"

SL_KERNEL void sl__pack_cpu(void *buffers[], void *cl_arg) {
  const int64_t *bytes = sl__args(cl_arg);
  char *to = sl__buffer(buffers, 0);
  for (int i = 1; i < sl__buffer_count(cl_arg); i++) {
    memcpy(to, sl__buffer(buffers, i), (size_t)bytes[i - 1]);
    to += (bytes[i - 1] + 255) / 256 * 256;
  }
}
