#!/bin/sh
# The benchmarks of training run all networks that they have by default, small ones here.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"

names="mlp tabular lenet64 lenet256 resnet20_128 lstm2x200 lstm2x650 lstm8x200 lstm_mxnet gpt"
for program in bench_limits bench_train; do
  timeout 300 "bench/$program" --tiny --seconds 0.05 >"$work/lines" 2>"$work/err"; code=$?
  missing=
  for name in $names; do
    grep -q "\"\(network\|bench\)\": \"$name\"" "$work/lines" || missing="$missing $name"
  done
  [ $code = 0 ] && [ -z "$missing" ]
  verdict $? "$program measures all networks: exit code $code, missing:$missing $(head -n 1 "$work/err")"
done
echo "1..$n"
exit $failed
