#!/bin/sh
# Fine-tuning by command line: --load-part, --freeze, rates and decays by layer; trainings with
# frozen layers that are resumed, or have too little memory, to the bit.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
lenet=${LENET:-examples/lenet} lm=${LSTM_LM:-examples/lstm_lm} finetune=examples/finetune
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
shown=log
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"
not() { ! "$@"; }
run() { timeout 120 "$@" >"$work/out" 2>"$work/log"; }
short="--data digits --steps 8"

# ---- weights of another model ----
run "$lenet" $short --quiet --save "$work/base.safetensors"
run "$lenet" $short --load-part "$work/base.safetensors:!fc2." --freeze conv1-2,fc1 --lr-of fc2=2 \
  --save "$work/tuned.safetensors"
check "--load-part prints what was loaded" \
  grep -q "6 of the model's 8 tensors loaded, 426070 of 431080 values" "$work/out"
check "--load-part prints what was left out" grep -q '^fc2.weight .*left out' "$work/out"
# the frozen tensors come first in the files
tensors() { head -c $((8 + $(od -An -tu8 -N8 "$1") + 4 * 426070)) "$1" | tail -c $((4 * 426070)); }
tensors "$work/base.safetensors" >"$work/one"
tensors "$work/tuned.safetensors" >"$work/two"
check "frozen layers keep the loaded weights to the bit" cmp -s "$work/one" "$work/two"
check "the head does not" not cmp -s "$work/base.safetensors" "$work/tuned.safetensors"

# refused CODE WORDS OPTIONS...: one line
refused() {
  code=$1 words=$2; shift 2
  run "$lenet" $short "$@"; got=$?
  if [ $got = "$code" ] && [ "$(wc -l <"$work/log")" = 1 ] && grep -q -e "$words" "$work/log"; then
    ok "$*: $(sed "s|$work/||g" "$work/log")"
  else
    not_ok "$*: exit code $got (not $code)"
  fi
}
refused 2 "^[a-z]*: freeze: there is no layer or group 'conv9'; the layers are conv1" --freeze conv9
refused 2 "^[a-z]*: --lr-of: rate: there is no layer or group 'nix'; the layers" --lr-of nix=2
refused 2 "^[a-z]*: --decay-of: decay: there is no layer or group 'nix'; the" --decay-of nix=2
refused 2 "all layers with parameters are frozen" --freeze '*'
refused 2 "has no factor" --lr-of conv1
refused 2 "two factors" --decay-of 'conv1=1,conv*=2'
refused 1 "give a map" --load-part "$work/base.safetensors:fc=x,conv=y"
refused 2 "begins with the map's 'backbone.'" --load-part "$work/base.safetensors:backbone.="
refused 2 "no rule" --load-part "$work/base.safetensors:fc1"
refused 1 "cannot\|No such" --load-part "$work/nothing.safetensors"
refused 2 "give one of them" --load "$work/one" --load-part "$work/two"

# ---- resumed to the bit ----
resumed() {
  name=$1; shift
  rm -rf "$work/folder"
  run "$@" --steps 10 --save "$work/whole.safetensors" --quiet &&
    run "$@" --steps 5 --checkpoint "$work/folder" --quiet &&
    run "$@" --steps 10 --checkpoint "$work/folder" --resume --save "$work/parts.safetensors" --quiet
  check "$name: resumed to the bit" cmp -s "$work/whole.safetensors" "$work/parts.safetensors"
}
small="--hidden 12 --embed 12 --words 60 --batch 8 --bptt 6"
frozen="--freeze embed --lr-of decoder=0.5 --decay-weights-only --weight-decay 0.01 --momentum 0.9"
resumed "frozen layers and rates" "$lm" $small $frozen
averaged="--optimizer lamb --weight-decay 0.01 --lr 0.01 --average 0.8"
resumed "LAMB and averages" "$lm" $small $averaged
cp "$work/whole.safetensors" "$work/averages.safetensors"
run "$lm" $small ${averaged% --average*} --steps 10 --save "$work/whole.safetensors" --quiet
check "--save writes the averages" not cmp -s "$work/averages.safetensors" "$work/whole.safetensors"
run "$lenet" $short --quiet --checkpoint "$work/other"
refused 2 "frozen layers (none) than this trainer's (conv1)" --steps 9 --freeze conv1 --resume \
  --checkpoint "$work/other"

# ---- a rate to begin with, norms of gradients ----
run "$lenet" --data digits --find-rate --steps 100 --batch 20
check "--find-rate names a rate" grep -q 'The loss falls fastest at --lr [0-9]' "$work/out"
check "--find-rate prints a curve" grep -q '^ *1e-06 .*#####' "$work/out"
"$lenet" --data digits --find-rate --steps 100000 --batch 20 --quiet >"$work/out" 2>"$work/log" &
pid=$!
tries=0 # until it has a handler
until grep -q '^SigCgt:.*[4-7c-f]...$' "/proc/$pid/status" || [ $tries -gt 600 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
kill -TERM $pid
{ sleep 60; kill -KILL $pid; } >"$work/killed" 2>&1 & guard=$!
wait $pid; code=$?
kill $guard 2>"$work/killed"
check "--find-rate: the first SIGTERM ends it" test $code = 143
check "and is named" grep -q '^Stopped by a signal after [0-9]* steps' "$work/out"
if [ -e /dev/full ]; then
  "$lenet" --data digits --find-rate --steps 10 --batch 20 --quiet >/dev/full 2>"$work/log"
  code=$?
  check "--find-rate: a curve that is lost is a failure" \
    sh -c "[ $code = 1 ] && grep -q '^lenet: the output cannot be written: No space' '$work/log'"
fi
refused 2 "trains nothing" --find-rate --save "$work/never.safetensors"
refused 2 "too few" --find-rate --steps 9
run "$lm" $small --steps 6 --replicas 2 --clip 0.5 --quiet --save "$work/plain.safetensors"
run "$lm" $small --steps 6 --replicas 2 --clip 0.5 --quiet --save "$work/logged.safetensors" \
  --log "$work/run.jsonl" --log-gradients
check "--log-gradients: a norm a step" \
  [ "$(grep -c '"loss": *[0-9].*"grad_norm": *[0-9]' "$work/run.jsonl")" = 6 ]
check "--log-gradients: the variance of two replicas" \
  [ "$(grep -c '"grad_variance": *[0-9]' "$work/run.jsonl")" = 6 ]
check "--log-gradients: the same bits" cmp -s "$work/plain.safetensors" "$work/logged.safetensors"

# ---- with less memory than needed ----
mkdir "$work/swap"
many="--hidden 64 --embed 64 --words 2000 --batch 8 --bptt 6 --steps 5 --quiet"
run "$lm" $many $frozen --save "$work/whole.safetensors" &&
  run "$lm" $many $frozen --save "$work/less.safetensors" --memory-limit cpu=2500000 \
    --swap "$work/swap"
check "in little memory: the same bits" cmp -s "$work/whole.safetensors" "$work/less.safetensors"
run "$lm" $many $averaged --save "$work/whole.safetensors" &&
  run "$lm" $many $averaged --save "$work/less.safetensors" --memory-limit cpu=3500000 \
    --swap "$work/swap"
check "LAMB and averages in little memory: the same bits" \
  cmp -s "$work/whole.safetensors" "$work/less.safetensors"

# ---- the program ----
run "$lenet" --data digits --steps 60 --quiet --save "$work/base.safetensors"
(cd "$work" && timeout 120 "$OLDPWD/$finetune" base.safetensors digits >out 2>log)
check "examples/finetune: the head learns alone" \
  grep -q 'the head alone: .* accuracy [89][0-9]\.' "$work/out"
check "examples/finetune: all layers learn more" grep -q 'all layers: .* accuracy 9[0-9]\.' "$work/out"

echo "1..$n"
exit $failed
