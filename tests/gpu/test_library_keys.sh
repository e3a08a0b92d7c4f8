#!/bin/sh
# The comparison of asked-for combinations with the list of those that were looked up: it passes
# known ones, and finds each other one. (gpu-check.sh makes it with real ones.)
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
gpu=${SL_SRCDIR:-.}/tests/gpu
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
shown=said
compare() { "$gpu/check-library-keys" "$gpu/library_keys.txt" "$work/keys" >"$work/said"; }
refuses() { ! compare && grep -qF "$1" "$work/said"; }
product="cublasLtMatmul A=f32 B=f32 C=f32 D=f32 bias=none compute=32F scale=f32 op=TN order=col"
product="$product epilogue=DEFAULT batch=1 beta=0 in_place=yes pointers=16 ld=16"
product="$product bias_pointer=16 workspace=yes"
convolution="cudnnConvolutionForward data=bf16 layout=NCHW filter=KCRS compute=f32 math=TENSOR_OP"
convolution="$convolution algorithm=1 dilation=1 groups=1 beta=0"

printf '%s\n' "$product" "$convolution" "$product" >"$work/keys"
check "known keys pass" compare
echo "$product more" >>"$work/keys"
check "a known key with an end of its own is found" refuses "workspace=yes more"
echo "$product" | sed 's/D=f32/D=bf16/' >"$work/keys"
check "types that no row has are found" refuses "D=bf16"
check "the message says what to do" grep -q "tables of supported types" "$work/said"
echo "$product" | sed 's/epilogue=DEFAULT/epilogue=GELU/' >"$work/keys"
check "another epilogue is found" refuses "epilogue=GELU"
echo "$convolution" | sed 's/math=TENSOR_OP/math=FMA/' >"$work/keys"
check "bf16 without tensor cores is found" refuses "math=FMA"
echo "$convolution" | sed 's/algorithm=1/algorithm=6/' >"$work/keys"
check "another algorithm is found" refuses "algorithm=6"
: >"$work/keys"
check "an empty log is found" refuses "nothing was logged"
echo "1..$n"
exit $failed
