#!/bin/sh
# The kernels with vector tiles on another processor: they and their tests are compiled for 64-bit
# ARM (vectors of 4 floats, NEON) and run by QEMU. The tests compare with loops in double precision.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
top=$(cd "${SL_SRCDIR:-.}" && pwd)
compiler=${SL_ARM_CC:-aarch64-linux-gnu-gcc} emulator=${SL_ARM_RUN:-qemu-aarch64}
for tool in "$compiler" "$emulator"; do
  command -v "$tool" >/dev/null || skip_all "test_arm: no $tool"
done
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
echo 'int main(void) { return 0; }' >"$work/probe.c"
"$compiler" -static "$work/probe.c" -o "$work/probe" 2>/dev/null && "$emulator" "$work/probe" ||
  skip_all "test_arm: $compiler and $emulator make and run no program"

# StarPU's headers do not depend on the processor; nothing of StarPU is called.
PKG_CONFIG_PATH=${STARPU_PREFIX:+$STARPU_PREFIX/lib/pkgconfig:}${PKG_CONFIG_PATH:-}
export PKG_CONFIG_PATH
host=$(${CC:-cc} -print-multiarch 2>/dev/null)
flags="-std=gnu11 -O2 -Wall -Wextra -Wno-missing-field-initializers -Werror"
flags="$flags -ffunction-sections -fdata-sections -DSL__EMULATED"
flags="$flags -I$top -I$top/include $(pkg-config --cflags starpu-1.4 | sed 's/-I/-isystem /g')"
flags="$flags -idirafter /usr/include ${host:+-idirafter /usr/include/$host}"
kernels="direct_conv conv_scatter conv_backward_data conv_backward_weight conv_frame conv_epilogue
  conv_matrix conv_bias conv_forward winograd winograd_backward_data winograd_backward_weight
  winograd_channels skinny_gemm weight_gradient onednn bf16_adapter recurrent_gemm"
helpers="recurrent"
operations=$(cd "$top/codelets" && ls *.c | sed -n 's/\.c$//p' |
  grep -Ev '^(message|ops|prepack|subgraph)$')
# compile FILE...
compile() {
  for file; do "$compiler" $flags -c "$top/$file.c" -o "$work/${file##*/}.o" || return 1; done
}
# link TEST OBJECT...: unused functions, which would need more of the library, are left out
link() {
  test=$1; shift
  "$compiler" -static -Wl,--gc-sections "$work/$test.o" $(printf "$work/%s.o " "$@") -lm \
    -o "$work/$test"
}
# run TEST OBJECT...
run() {
  if compile tests/codelets/$1 2>"$work/err" && link "$@" 2>"$work/err" &&
    "$emulator" "$work/$1" >"$work/err" 2>&1; then
    ok "$1: $(grep -c '^ok ' "$work/err") cases"
  else
    not_ok "$1"
  fi
}
if ! compile $(for k in $kernels $helpers; do echo "codelets/kernels/$k"; done) \
  $(for o in $operations ops; do echo "codelets/$o"; done) core/base/error core/base/shape \
  tests/codelets/arm_cmocka tests/codelets/arm_runtime 2>"$work/err"; then
  not_ok "the kernels are compiled for ARM"
  echo "1..$n"
  exit 1
fi
ok "the kernels are compiled for ARM"
for test in test_direct_conv test_conv_backward_data test_conv_backward_weight test_winograd \
  test_winograd_backward_weight test_skinny_gemm test_weight_gradient test_recurrent_gemm; do
  run $test arm_cmocka conv2d activation $kernels
done
# whole operations, which run as soon as they are submitted
for test in test_lstm test_gru test_dense test_activation test_batchnorm test_pool2d \
  test_dropout test_optimizer_ops; do
  run $test arm_cmocka arm_runtime ops error shape $operations $kernels $helpers
done
echo "1..$n"
exit $failed
