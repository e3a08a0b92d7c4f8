#include "codelets/kernels/conv_forward.h"

#include "codelets/kernels/choice.h"
#include "codelets/kernels/direct_conv.h"
#include "codelets/kernels/winograd.h"

int64_t sl__conv_forward_scratch(const struct sl__conv_args *a) {
  return a->implementation == SL__WINOGRAD ? sl__winograd_scratch(a, false)
                                           : sl__direct_conv_scratch(a);
}

void sl__conv_forward(const struct sl__conv_args *a, const float *x, const float *weight,
                      const float *bias, float *y, float *scratch, int most_lanes) {
  static const struct sl__conv_epilogue nothing;
  bool planes;
  if (a->implementation == SL__WINOGRAD) {
    struct sl__work_range all = {0, sl__winograd_units(a, &planes, most_lanes)};
    sl__winograd_forward(a, x, weight, false, bias, &nothing, y, scratch, all, most_lanes);
  } else {
    struct sl__work_range all = {0, sl__direct_conv_units(a, &planes, most_lanes)};
    sl__direct_conv_forward(a, x, weight, bias, &nothing, y, scratch, all, most_lanes);
  }
}
