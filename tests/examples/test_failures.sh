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

# ---- --report-failure ----
cd "$work" || exit 1
lenet=$OLDPWD/$lenet
shown="err report"
private=$work/private
mkdir "$private"
has() { grep -q -e "$1" report; }
rm -rf c w
SL_FAIL=dense_forward:25 train --log "$private/log.jsonl" --report-failure report
check "a failed run writes its report" has "^dense_forward (layer fc[12]) on cpu:[01]: no memory"
check "and says so" grep -q "report has a report of this failure" err
check "with the last steps" has "^step [0-9]* of epoch 1: loss [0-9]"
check "with versions" has "^Starling [0-9.]*, compiled by"
check "with the workers" has "^worker 1: cpu:1, CPU 1"
check "with the tasks" has "^tasks: [0-9]* submitted and not ended"
check "with the options" has "^--batch 100$"
check "but none that was not given" sh -c '! grep -e "^--augment" -e "^--no-augment given" report'
check "with StarPU's variables" has "^STARPU_NCPU=2$"
names_nothing() { ! grep -qF -e "$private" -e "$(basename "$private")" -e "$(uname -n)" "$1"; }
check "without paths and the host's name" names_nothing report
rm -rf c w report
# names of all kinds: with blanks, relative, of files that are not there, without a slash
leaks() {
  check "$1: the report is written" test -s report
  check "and has no name" sh -c '! grep -qi -e secret -e alice report'
  rm -rf c w report
}
mkdir "alice secret"
SL_FAIL=dense_forward:25 train --log "alice secret/log secret.jsonl" --report-failure report
leaks "folders with blanks"
STARPU_FXT_PREFIX=secret-here SL_FAIL=dense_forward:25 train --log secret-log \
  --report-failure report
leaks "a name without a slash, and a variable with one"
train --data "no alice/alice secret" --report-failure report
leaks "data that are not there"
train --data alice-secret --report-failure report
leaks "data that are not there, without a slash"
train --load secret.safetensors --report-failure report
leaks "weights that are not there"
train --load-part 'secret/alice net.safetensors:!fc1.' --report-failure report
leaks "a part of weights"
train --data "$PWD/alice secret" --report-failure report
leaks "an empty folder"
train --report-failure report
check "a run that succeeds writes none" test $? = 0 -a ! -e report
# crash OPTIONS...: a run gets SIGSEGV after its first step
crash() {
  rm -rf c w "$private/log.jsonl"
  "$lenet" --quiet --steps 1000000 --log "$private/log.jsonl" "$@" 2>err & pid=$!
  until [ -s "$private/log.jsonl" ] && grep -q '"step"' "$private/log.jsonl"; do sleep 0.1; done
  kill -SEGV $pid
  wait $pid 2>err
}
crash; usual=$? # 139; a sanitizer has a code of its own
crash --report-failure report; code=$?
check "SIGSEGV ends the run as without the option: code $usual (was $code)" test $code = $usual
check "and its report has the signal" has "^ended by SIGSEGV"
check "the functions" has "+0x[0-9a-f]* main\|libc.so"
check "and the workers" has "^worker 1: cpu:1, CPU 1"
check "and no path" names_nothing report

# ---- its place is checked first ----
# refused CODE WORDS OPTIONS...: nothing is written
refused() {
  code=$1 words=$2; shift 2
  rm -rf c w; echo kept >kept
  train "$@"; got=$?
  [ $got = "$code" ] && [ "$(grep -c . err)" = 1 ] && grep -q -e "$words" err &&
    [ "$(cat kept)" = kept ]
  verdict $? "$*: $(sed "s|$work/||g" err)"
}
refused 2 "report-failure ./kept: log writes this file, too" --log kept --report-failure ./kept
refused 2 "kept: save writes this file, too" --save kept --report-failure kept
refused 2 "net.safetensors: best writes" --best net.json --report-failure net.safetensors
refused 2 "c: checkpoint writes" --report-failure c
refused 2 "t: trace writes" --trace t --report-failure t
refused 1 "/missing/x: cannot be written: No such file" --report-failure /missing/x
refused 1 "[.]: cannot be written: Is a directory" --report-failure .

echo "1..$n"
exit $failed
