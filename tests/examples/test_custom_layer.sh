#!/bin/sh
# examples/custom_layer.c: a program that defines a layer kind trains, saves and opens a model;
# a program without that kind gets a message that names the kind.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
shown=out
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"
program() { timeout 120 "$@" >"$work/out" 2>&1; }

if program examples/custom_layer "$work/prelu.json" digits &&
  awk '/ right$/ { exit !($1 > 0.9 * $3) }' "$work/out"; then
  ok "it learns: $(tail -n 1 "$work/out")"
else
  not_ok "it learns"
fi
if grep -q '"name": "act1", "kind": "prelu", "inputs": \["conv1"\], "slope": 0.1}' \
  "$work/prelu.json"; then
  ok "its kind and option are in the file"
else
  not_ok "its kind and option are in the file"
fi
program examples/predict "$work/prelu.json" digits
if [ $? = 1 ] && grep -q 'layer act1 is of kind "prelu", .*register it first' "$work/out"; then
  ok "a program without the kind gets a message"
else
  not_ok "a program without the kind gets a message"
fi
program examples/lenet --data digits --steps 1 --load "$work/prelu.json"
if [ $? = 1 ] && [ "$(wc -l <"$work/out")" -le 3 ]; then
  ok "another model's weights are refused"
else
  not_ok "another model's weights are refused"
fi
program examples/custom_layer "$work/none/x.json" digits
if [ $? = 1 ] && grep -q 'x.json: cannot be written' "$work/out" &&
  ! grep -q steps "$work/out"; then
  ok "a name that cannot be written is refused before the training"
else
  not_ok "a name that cannot be written"
fi
program examples/custom_layer "$work/x.onnx" digits
if [ $? = 2 ] && grep -q '^Usage: custom_layer' "$work/out"; then
  ok "so is another kind of file"
else
  not_ok "another kind of file"
fi
program examples/custom_layer
if [ $? = 2 ] && grep -q '^Usage: custom_layer' "$work/out"; then
  ok "usage"
else
  not_ok "usage"
fi
echo "1..$n"
exit $failed
