#!/bin/sh
# Checkpoints of several ranks: by rank 0's clock, after the same step on all; and a folder that
# rank 0 cannot write to.
set -u
. "${SL_SRCDIR:-.}/tests/common/ranks.sh"
mlp=${MLP:-examples/mlp}
train="$mlp $images --hidden 32 --batch 32 --steps 40 --momentum 0.9 --kvstore dist_sync"
steps() { (cd "$1" && ls) | sed -n 's/^checkpoint-0*\([0-9]*\)\.safetensors$/\1/p' | tr '\n' ' '; }
code_is() { [ "$(code_of 0)" = "$1" ] && [ "$(code_of 1)" = "$1" ]; }

mpirun_for 200 -np 2 $train --quiet --save "$work/whole" >"$work/log" 2>&1
start 2 $train --quiet --checkpoint "$work/clock" --checkpoint-every 0.0001min --keep 99 \
  --save "$work/saved" --log "$work/run.jsonl"
until_true 100 have_ended 0 1
saved=$(steps "$work/clock")
if code_is 0 && [ "$(echo "$saved" | wc -w)" -ge 2 ]; then
  ok "by the clock, after steps $saved"
else
  not_ok "by the clock: codes $(code_of 0) and $(code_of 1), after steps $saved"
fi
if cmp -s "$work/whole" "$work/saved"; then
  ok "which changes no bit"
else
  not_ok "which changes bits"
fi
first=$(echo "$saved" | cut -d ' ' -f 1)
mkdir "$work/first"
cp "$work/clock/checkpoint-$(printf %09d "$first").safetensors" "$work/first/"
start 2 $train --quiet --checkpoint "$work/first" --resume --save "$work/again"
until_true 100 have_ended 0 1
if code_is 0 && cmp -s "$work/whole" "$work/again"; then
  ok "the first one leads to the same weights"
else
  not_ok "the first one: codes $(code_of 0) and $(code_of 1), or other weights"
fi
start 1 $mlp $images --hidden 32 --batch 64 --steps 40 --momentum 0.9 --kvstore dist_sync \
  --checkpoint "$work/first" --resume --replicas 2
until_true 100 have_ended 0
if [ "$(code_of 0)" = 0 ] &&
  grep -q "; changed: batch 32 -> 64, .*ranks 2 -> 1" "$run/out.0"; then
  ok "one rank goes on from two: $(sed -n 's/^Going on.*changed: //p' "$run/out.0")"
else
  not_ok "one rank does not go on from two"
fi

# steps of half the size: the schedule of rates has as much left as the data have
mkdir "$work/half"
cp "$work/clock/checkpoint-$(printf %09d "$first").safetensors" "$work/half/"
start 1 $mlp $images --hidden 32 --batch 32 --steps 80 --momentum 0.9 --kvstore dist_sync \
  --lr 0.1 --lr-schedule cosine --checkpoint "$work/half" --resume --log "$work/half.jsonl"
until_true 100 have_ended 0
last=$(sed -n 's/.*"loss": [0-9].*"lr": \([-0-9.e]*\).*/\1/p' "$work/half.jsonl" | tail -n 1)
if [ "$(code_of 0)" = 0 ] && grep -q ", after step $((2 * first)) of 80; changed" "$run/out.0" &&
  awk "BEGIN { exit !($last > 0 && $last < 1e-3) }"; then
  ok "its rates end with the data, at $last"
else
  not_ok "rates of steps of another size: the last one is $last"
fi

# the folder vanishes after its first checkpoint: rank 0 reports it, both train on and end with
# code 1
start 2 $train --checkpoint "$work/lost" --checkpoint-every 20 --steps 1500
until_true 60 test -e "$work/lost/manifest.json" && mv "$work/lost" "$work/kept"
until_true 100 have_ended 0 1
if code_is 1 && [ "$(grep -c "no checkpoint after step 1500: " "$run/err.0")" = 1 ] &&
  [ "$(grep -vc "no checkpoint after step" "$run/err.0")" = 0 ] &&
  [ ! -s "$run/err.1" ] && grep -q "^Test accuracy" "$run/out.0"; then
  ok "a folder that vanishes: $(head -n 1 "$run/err.0" | sed "s|$work/||g")"
else
  not_ok "a folder that vanishes: codes $(code_of 0) and $(code_of 1)"
fi
echo "1..$n"
exit $failed
