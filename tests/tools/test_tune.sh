#!/bin/sh
# starling-tune: the search, the effect of noise and drift on it, failures, the time, and the files
# that it must not touch. The program is mostly a script whose speed is known (tests need no quiet
# machine), once a real trainer.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
shown="err out"
tune=${TUNE:-tools/starling-tune}
lenet=${LENET:-examples/lenet}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work/tmp" RUNS="$work/runs" CALLS="$work/calls"
mkdir "$TMPDIR"
has() { if grep -q -e "$2" "$work/out"; then ok "$1"; else not_ok "$1: no '$2'"; fi; }
has_not() { if grep -q -e "$2" "$work/out"; then not_ok "$1: there is '$2'"; else ok "$1"; fi; }

# Its rate follows from its settings; FAKE names its misbehaviour. RUNS has a line for each run,
# CALLS each command line.
cat >"$work/fake" <<'END'
#!/bin/sh
echo "STARPU_SCHED=${STARPU_SCHED:-} STARPU_NCPU=${STARPU_NCPU:-} $*" >>"$CALLS"
echo . >>"$RUNS"
run=$(grep -c . "$RUNS")
log='' replicas=0 microbatches=1
while [ $# -gt 0 ]; do
  case $1 in
    --log) log=$2; shift ;;
    --replicas) replicas=$2; shift ;;
    --microbatches) microbatches=$2; shift ;;
  esac
  shift
done
rate=10000
case ${STARPU_SCHED:-} in prio) rate=13000 ;; dmda) rate=7000 ;; ws) rate=12900 ;; esac
[ "$replicas" = 1 ] && rate=$((rate + 2000))
[ "${STARPU_NCPU:-}" = 1 ] && rate=$((rate / 3))
case " $FAKE " in
  *' noise '*)
    rate=$((10000 + 1500 * (run * 7 % 5 - 2) / 2))
    [ "${STARPU_SCHED:-}" = prio ] && rate=$((rate + 150))
    ;;
  *' drift '*) rate=$((20000 - 150 * run)) ;;
  *' same '*) rate=10000 ;;
esac
case " $FAKE " in *' gpus '*) gpus=2 ;; *) gpus=0 ;; esac
case " $FAKE " in
  *' small '*)
    [ "$microbatches" = 4 ] && {
      echo 'a library warns' >&2
      echo 'fake: no memory for 4' >&2
      exit 1
    }
    ;;
  *' stuck '*) [ "${STARPU_SCHED:-}" = prio ] && sleep 1000 ;;
  *' twice '*) [ "$run" -gt 2 ] && sleep 1000 ;;
  *' killed '*) kill -9 $$ ;;
esac
scheduler=${STARPU_SCHED:-lws}
[ "$scheduler" = nosuch ] && scheduler=lws
echo "StarPU 1.4.10, scheduler $scheduler, 2 CPU and $gpus CUDA workers"
echo "digits: 100 samples; 1000 parameters; 2 replicas, batch 64; sgd, lr 0.1"
{
  echo '{"format": "starling log", "version": 1, "samples_per_s": 1}'
  i=0
  while [ $i -lt 20 ]; do # the first ones are a warm-up
    if [ $i -lt 6 ]; then now=$((rate / 10)); else now=$rate; fi
    echo "{\"step\": $i, \"epoch\": 1, \"loss\": 1, \"lr\": 0.1, \"samples_per_s\": $now}"
    i=$((i + 1))
  done
  echo '{"epoch": 1, "test_loss": 1, "test_accuracy": 0.1}'
  printf '{"step": 20, "samp'
} >"$log.new"
mv "$log.new" "$log" # all at once: a slow machine must not make it read half
case " $FAKE " in
  *' slow '*) sleep 0.2 ;;
  *' long '*)
    echo $$ >"$RUNS.pid"
    sleep 1000
    ;;
esac
exit 0
END
chmod +x "$work/fake"
FAKE=''; export FAKE
unset STARPU_SCHED STARPU_NCPU STARPU_WORKERS_NOBIND STARPU_NCUDA
unset OMP_NUM_THREADS OPENBLAS_NUM_THREADS

# tuned OPTIONS...: exit code 0 is expected
tuned() {
  : >"$RUNS"
  : >"$CALLS"
  timeout 320 "$tune" --trial-seconds 0.01 --seconds 300 "$@" >"$work/out" 2>"$work/err" ||
    not_ok "$*: exit code $?"
}
# refused CODE TEXT ARGUMENTS...: one line with TEXT in it
refused() {
  code=$1 text=$2; shift 2
  timeout 100 "$tune" "$@" >"$work/out" 2>"$work/err"; got=$?
  if [ $got = "$code" ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -qF -e "$text" "$work/err" &&
    [ ! -s "$work/out" ]; then
    ok "$(sed "s|$work/||g" "$work/err")"
  else
    not_ok "$*: exit code $got, not $code, or no '$text'"
  fi
}

# ---- the search ----
tuned -q --json "$work/tune.json" -- "$work/fake" --batch '6 4'
has "two settings that help together" "^Best: 1.50 +- 0.00 times"
has "the best command line, quoted" "^STARPU_SCHED=prio $work/fake --batch '6 4' --replicas 1\$"
has "the report says that bits differ" "not the same bits"
has "a clearly slower one is dropped after a run" \
  "^ .* 0.[0-9]* .* 1  --replicas 1 STARPU_SCHED=dmda$"
has "the warm-up is not counted" "^ *10000 .* (as given)"
if [ -s "$work/err" ]; then
  not_ok "--quiet says something"
  ok "--quiet prints no progress"
  ok "--quiet says nothing on the way"
fi
if [ "$(grep -c '^ *"setting"' "$work/tune.json")" -gt 10 ] &&
  grep -q '"command": "STARPU_SCHED=prio .*--replicas 1"' "$work/tune.json" &&
  grep -q '"confirmed": true' "$work/tune.json" &&
  ! ls "$work"/tune.json.* 2>/dev/null; then
  ok "the same as JSON"
else
  not_ok "the JSON"
fi
{ tuned --json /dev/fd/3 --compare "--lr 1" --rounds 1 -- "$work/fake"; } 3>"$work/open.json"
check "JSON into a file that is open" grep -q '"setting": "--lr 1"' "$work/open.json"
tuned --rounds 2 "$work/fake" --no-shuffle
has "without -- before the program" "^STARPU_SCHED=prio $work/fake --no-shuffle --replicas 1\$"
tuned --rounds 2 --same-bits -- "$work/fake"
has "--same-bits: the scheduler may be another" "^STARPU_SCHED=prio $work/fake\$"
has_not "--same-bits: nothing that adds up otherwise" \
  "--replicas\|--microbatches\|--stages\|--tune\|STARPU_NCPU\|MAIN_THREAD"
tuned --schedulers ws,prio --replicas 3 --microbatches 2 --workers 5 -- "$work/fake"
has "equally fast within the noise: the first one wins" "^STARPU_SCHED=ws $work/fake\$"
has "candidates that the user gives" "STARPU_NCPU=5"
has_not "and no others" "eager\|--replicas 1"
FAKE=gpus; tuned --rounds 2 -- "$work/fake"
has "GPUs: the devices" "--devices cuda:0,cuda:1"
has "GPUs: tasks ahead" "STARPU_CUDA_PIPELINE=4"
FAKE=''

# ---- what the user has fixed ----
export STARPU_SCHED=dmda
tuned --rounds 2 -- "$work/fake" --repl 2
unset STARPU_SCHED
has "the best command repeats the fixed settings" "^STARPU_SCHED=dmda $work/fake --repl 2\$"
has_not "a variable and an abbreviated option stay" "eager\|--replicas"
tuned --rounds 2 -- env STARPU_SCHED=ws "$work/fake" --replicas=2
has_not "so do variables behind env, and --option=value" "STARPU_SCHED=prio\|--replicas 1"
mkdir "$work/c"
tuned --rounds 1 -- "$work/fake" --save "$work/w" --checkpoint="$work/c" --checkpoint-every 5 \
  --keep 2 --resume --log "$work/l" --trace "$work/t" --steps 7 \
  --epochs 3 -q --load "$work/start" --lr 0.5
touching="--save\|--checkpoint\|--keep\|--resume\|$work/l\|--trace\|--epochs\|-q\|--steps 7"
if grep -q -e "--load $work/start --lr 0.5.* --steps 1000000000 --log $TMPDIR" "$CALLS" &&
  ! grep -q -e "$touching" "$CALLS"; then
  ok "trials touch neither weights nor checkpoints, logs, traces"
else
  cp "$CALLS" "$work/err"
  not_ok "trials touch the user's files"
fi
has "but the command line has them" "--save $work/w --checkpoint=$work/c"

tuned --rounds 2 -- "$work/fake" --batch 4 -- net.json
if grep -q -e "--batch 4 .*--steps 1000000000 --log .* -- net.json$" "$CALLS" &&
  ! grep -v -e "-- net.json$" "$CALLS"; then
  ok "options go before the program's --"
else
  cp "$CALLS" "$work/err"
  not_ok "options go before the program's --"
fi
has "on the best command line, too" \
  "^STARPU_SCHED=prio $work/fake --batch 4 --replicas 1 -- net.json\$"
tuned --rounds 2 -- env -- "$work/fake" --batch 4
has "a -- before the program's options is another's" \
  "^STARPU_SCHED=prio env -- $work/fake --batch 4 --replicas 1\$"

# placed CASE BEST WORDS...: trials and the best command line have their options at one place
placed() {
  claim=$1 best=$2; shift 2
  tuned --rounds 2 --replicas 1 --microbatches 2 --workers 1 --schedulers prio -- "$@"
  if grep -qx -e "$best" "$work/out" && ! grep -qv -e "--log [^ ]*$behind\$" "$CALLS"; then
    ok "$claim"
  else
    not_ok "$claim: $(head -n 2 "$CALLS")"
  fi
}
fake=$work/fake
ln -s "$fake" "$work/by_path"
behind=''
placed "a program without options behind a --" "STARPU_SCHED=prio env -- $fake --replicas 1" \
  env -- "$fake"
PATH=$work:$PATH placed "found by PATH" "STARPU_SCHED=prio env -- by_path --replicas 1" \
  env -- by_path
placed "in the folder that env goes to" \
  "STARPU_SCHED=prio env -C $work -- ./fake --replicas 1" env -C "$work" -- ./fake
placed "its name as a part of an option" \
  "STARPU_SCHED=prio env --chdir=$work -- ./fake --replicas 1" env --chdir="$work" -- ./fake
placed "nice has an option" "STARPU_SCHED=prio nice -n 1 -- $fake --replicas 1" \
  nice -n 1 -- "$fake"
placed "an option that trials leave out" \
  "STARPU_SCHED=prio env -- $fake --save $work/w --replicas 1" env -- "$fake" --save "$work/w"
behind=' -- -x.json'
placed "a file that looks like an option" "STARPU_SCHED=prio $fake --replicas 1 -- -x.json" \
  "$fake" -- -x.json
placed "both" "STARPU_SCHED=prio env -- $fake --save w --replicas 1 -- -x.json" \
  env -- "$fake" --save w -- -x.json

# ---- noise, drift, failures ----
FAKE=noise; tuned -- "$work/fake"
has "a difference below the noise is none" "^Nothing that was tried is better"
FAKE=drift; tuned -- "$work/fake"
has "a machine that becomes slower favours no setting" "^Nothing that was tried is better"
FAKE=same; tuned --least 0 --rounds 2 -- "$work/fake"
has "equal is not better" "^Nothing that was tried is better"
FAKE=small; tuned --rounds 2 -- "$work/fake"
has "a failing setting is shown with its message" \
  "--microbatches 4  FAILED: fake: no memory for 4\$"
has "and does not end the search" "^STARPU_SCHED=prio $work/fake --replicas 1\$"
FAKE=stuck; tuned --rounds 2 --limit 5 -- "$work/fake"
has "a setting that hangs is shown" "STARPU_SCHED=prio  FAILED: no step for 5 s"
has "and the next best is taken" "^STARPU_SCHED=ws $work/fake --replicas 1\$"
FAKE=''

# ---- given settings beside each other ----
tuned --rounds 4 --compare "STARPU_SCHED=dmda" --compare "--replicas 1 STARPU_NCPU=1" \
  -- "$work/fake"
wanted=" 7000 0.0 0.700 0.000 4 STARPU_SCHED=dmda
 4000 0.0 0.400 0.000 4 --replicas 1 STARPU_NCPU=1"
if [ "$(sed -n 3,4p "$work/out" | tr -s ' ')" = "$wanted" ]; then
  ok "--compare"
else
  not_ok "--compare"
fi
FAKE=small; tuned --compare "--microbatches 4" --compare "STARPU_SCHED=prio" -- "$work/fake"
has "--compare: a failure" "--microbatches 4  FAILED: fake: no memory"
has "--compare: and the setting after it" " 1.300 .*STARPU_SCHED=prio"
FAKE=''

tuned --compare "STARPU_SCHED=nosuch" -- "$work/fake"
has "--compare: a scheduler that StarPU does not know" \
  "STARPU_SCHED=nosuch  FAILED: StarPU takes lws for it"

# ---- the time ----
export FAKE=slow
began=$(date +%s)
tuned --seconds 4 -- "$work/fake"
took=$(($(date +%s) - began))
if [ $took -le 40 ]; then
  ok "--seconds 4: it ends ($took s)"
else
  not_ok "--seconds 4: $took s"
fi
has "with a command line" "$work/fake"
tuned --seconds 1 --trial-seconds 100 -- "$work/fake"
FAKE=twice; tuned --seconds 3 -- "$work/fake"
has "only the command line as given had a run: the time was too short" \
  "^The time is over, and nothing else was tried: give more --seconds"
has_not "and there is no word of noise" "beyond the noise"
export FAKE=''

# interrupted SIGNAL CODE
interrupted() {
  : >"$RUNS"; rm -f "$RUNS.pid"
  FAKE=long "$tune" --trial-seconds 1 --limit 1000 --seconds 900 -- "$work/fake" \
    >"$work/out" 2>"$work/err" & pid=$!
  i=0
  while [ $i -lt 600 ] && [ "$(grep -c . "$RUNS")" -lt 4 ]; do
    sleep 0.1
    i=$((i + 1))
  done
  kill -"$1" $pid; wait $pid; code=$?
  if [ $code = "$2" ] && grep -q '(as given)' "$work/out" && grep -q interrupted "$work/err"; then
    ok "SIG$1: it prints the settings so far"
  else
    not_ok "SIG$1: exit code $code"
  fi
  if kill -0 "$(cat "$RUNS.pid")" 2>/dev/null; then
    not_ok "SIG$1: the program is still there"
  else
    ok "SIG$1: the program is gone"
  fi
}
interrupted TERM 143
if { sh -c 'kill -HUP $$'; } 2>/dev/null; then
  skip "SIGHUP" "it is ignored, as under nohup"
else
  interrupted HUP 129
fi

# ---- failures of the program, and wrong options ----
refused 1 "nowhere: cannot be started: No such file" "$work/nowhere"
refused 1 "cannot be started: Permission denied" -- "$work/calls"
refused 2 "oh: no" -- sh -c 'echo warning >&2; echo "oh: no" >&2; exit 2'
refused 2 "lenet: unrecognized option '--nosuch'" "$lenet" --nosuch
refused 1 "sh: ended with code 3" -- sh -c 'exit 3'
refused 1 "true: wrote no step with samples_per_s" true
refused 1 "no step for 1 s" --limit 1 -- sh -c 'sleep 1000'
FAKE=killed; refused 1 "ended by signal 9" -- "$work/fake"
FAKE=''
refused 2 "--seconds '0': must be a number from 1" --seconds 0 "$work/fake"
refused 2 "--seconds 'soon'" --seconds soon "$work/fake"
refused 2 "--workers '1;2': must be a list" --workers '1;2' "$work/fake"
refused 2 "--rounds '1.5': must be a whole number" --rounds 1.5 "$work/fake"
refused 2 "the setting is empty" --compare ' ' "$work/fake"
refused 2 "a setting is NAME=VALUE or --option VALUE" --compare 'dmda' "$work/fake"
for option in --same-bits --workers=1 --schedulers=prio --replicas=1 --microbatches=2; do
  refused 2 "--compare: there is no search then" $option --compare '--lr 1' "$work/fake"
done
refused 2 "--same-bits: other replicas" --same-bits --replicas 1 "$work/fake"
refused 2 "no program is named"
refused 1 "cannot be written: No such file" --json "$work/no/x.json" "$work/fake"
refused 1 "it is a folder" --json "$work" "$work/fake"
if [ -e /dev/full ]; then
  "$tune" -q --compare "--lr 1" --rounds 1 --trial-seconds 0.01 -- "$work/fake" >/dev/full \
    2>"$work/err"
  code=$?
  check "a table that is lost is a failure" \
    sh -c "[ $code = 1 ] && grep -q 'the output cannot be written: No space' '$work/err'"
fi
if [ -z "$(ls -A "$TMPDIR")" ]; then
  ok "the temporary folder is empty at the end"
else
  not_ok "left: $(ls "$TMPDIR")"
fi

# ---- a real trainer ----
export STARPU_WORKERS_NOBIND=1 STARPU_NCUDA=0 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
tuned --rounds 2 --steps 12 --compare "STARPU_NCPU=1 --replicas 1" \
  --compare "--replicas 100 --microbatches 100" \
  -- "$lenet" --batch 32 --save "$work/lenet.safetensors"
has "lenet is measured as given" "^ *[1-9][0-9.]* .* 2  (as given)"
has "lenet with one worker" "^ *[1-9][0-9.]* .* 2  STARPU_NCPU=1 --replicas 1"
has "lenet's own refusal" "FAILED: lenet: .*more slices than a batch has samples"
if [ -e "$work/lenet.safetensors" ]; then
  not_ok "lenet's weights were written"
else
  ok "no weights are written"
fi
tuned --rounds 2 --seconds 15 --trial-seconds 0.3 --schedulers prio --replicas 1 --microbatches 2 \
  --workers 1 --json "$work/lenet.json" -- "$lenet" --batch 32
command=$(tail -n 1 "$work/out")
case $command in '('*) command=$(tail -n 2 "$work/out" | head -n 1) ;; esac
if sh -c "$command --steps 3 -q" 2>"$work/err"; then
  ok "the best command line runs"
else
  not_ok "it does not run: $command"
fi
refused 2 "lenet: --batch" -- "$lenet" --batch many

echo "1..$n"
exit $failed
