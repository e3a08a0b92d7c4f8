#!/bin/sh
# A kernel that fails: lenet ends with one line (which task, layer, device, sizes) and exit code 1,
# whatever the step; nothing is saved after it, and the checkpoint before it is whole.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
lenet=tests/examples/failing_lenet
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_NCPU=2 STARPU_NCUDA=0

# 2400 digits are 24 steps of 100 an epoch; a checkpoint every five steps
train() {
  timeout 100 "$lenet" --quiet --batch 100 --steps 12 --replicas 2 --checkpoint "$work/c" \
    --checkpoint-every 5 --save "$work/w" "$@" 2>"$work/err" >"$work/out"
}
[ -x "$lenet" ] || skip_all "no cmocka: no failing_lenet"

# fails NAME SL_FAIL WORDS CHECKPOINTS: a training in which a task fails ends with one line with
# WORDS in it, and leaves this number of checkpoints
fails() {
  rm -rf "$work/c" "$work/w"
  SL_FAIL=$2 train; code=$?
  left=$(ls "$work/c" 2>/dev/null | grep -c safetensors)
  if [ $code = 1 ] && [ "$(grep -c . "$work/err")" = 1 ] && grep -q -e "$3" "$work/err" &&
    [ ! -s "$work/out" ] && [ ! -e "$work/w" ] && [ "$left" = "$4" ]; then
    ok "$1: $(cat "$work/err")"
  else
    not_ok "$1: code $code, $left checkpoints of $4"
    return 1
  fi
}
# two replicas: two calls of each layer's forward a step, and one update of each of lenet's shards
fails "a forward task in the first step" dense_forward:1 \
  "^failing_lenet: dense_forward (layer fc[12]) on cpu:[01]: no memory .* \[50 x " 0
fails "an update in the last step before a checkpoint" sgd:25 \
  "^failing_lenet: sgd (layer .*) on cpu:[01]: no memory" 0
if fails "a forward task in the seventh step" \
  dense_forward:25 "^failing_lenet: dense_forward" 1; then
  if train --resume && train --resume && [ -e "$work/w" ]; then
    mv "$work/w" "$work/resumed"
    rm -rf "$work/c"
    if train && cmp -s "$work/w" "$work/resumed"; then
      ok "the checkpoint before the failure leads to the same weights"
    else
      not_ok "the resumed run's weights differ"
    fi
  else
    not_ok "the checkpoint before the failure cannot be resumed from"
  fi
fi
fails "an update in the last step" sgd:60 "^failing_lenet: sgd" 2

echo "1..$n"
exit $failed
