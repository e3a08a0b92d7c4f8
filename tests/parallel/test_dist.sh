#!/bin/sh
# Training over ranks: the losses and weights of one process, the same to the bit each time. Bad
# arguments are refused by one line, with exit code 2, and without a hang.
set -u
. "${SL_SRCDIR:-.}/tests/common/ranks.sh"
train=${DIST_TRAIN:-tests/parallel/dist_train}

# ---- the same numbers as one process ----
if [ -x "$train" ] && timeout 60 "$train" reference "$work/reference" 2>"$work/log"; then
  for count in 1 2 3 4; do
    every=$((count < 4 ? 1 : 3)) # four ranks are slow on two cores
    mpirun_for 200 -np $count "$train" compare "$work/reference" "$work/hashes-$count" $every \
      >"$work/out" 2>"$work/log"
    code=$?
    while read -r line; do
      case $line in
        "ok - "*) ok "${line#ok - }" ;;
        "not ok - "*) not_ok "${line#not ok - }" ;;
      esac
    done <"$work/out"
    # 24 cases, or every third, with 0, 1 and 2 servers as long as one rank is a worker
    want=$(((count < 3 ? count : 3) * (count < 4 ? 24 : 8))) lines=$(grep -c '^ok - ' "$work/out")
    if [ $code = 0 ] && [ "$lines" = $want ]; then
      ok "$count ranks: all $lines set-ups are good"
    else
      not_ok "$count ranks: exit code $code, $lines set-ups are good: $(head -n 1 "$work/log")"
    fi
  done
  # again, every third case: 3 has no factor in common with the eight ways to cut a batch
  mpirun_for 200 -np 3 "$train" compare "$work/reference" "$work/again" 3 \
    >"$work/out" 2>"$work/log"
  if [ "$(wc -l <"$work/again")" = 24 ] &&
    ! grep -q -v -x -F -f "$work/hashes-3" "$work/again"; then
    ok "3 ranks, a second time: the same to the bit"
  else
    not_ok "3 ranks, a second time: other bits"
  fi
else
  not_ok "no reference of one process: $(head -n 1 "$work/log")"
fi

# ---- each rank with other numbers of workers and another scheduler ----
# bits NAME SCHEDULER WORKERS OPTIONS...
bits() {
  name=$1 scheduler=$2 workers=$3; shift 3
  STARPU_SCHED=$scheduler STARPU_NCPU=$workers mpirun_for 60 -np 2 "$lenet" --kvstore dist_sync \
    --steps 6 --batch 12 --replicas 2 --quiet $images --save "$work/$name.safetensors" "$@" \
    >"$work/out" 2>"$work/log"
}
for options in "" "--math bf16 --compress 2bit:0.01" "--servers 1"; do
  bits few eager 1 $options && bits many lws 3 $options
  check "two ranks $options: the same bits with other workers and another scheduler" \
    cmp -s "$work/few.safetensors" "$work/many.safetensors"
done

# ---- one rank without mpirun ----
short="--steps 5 --quiet"
"$lenet" $short --batch 30 --log "$work/local.jsonl" 2>"$work/log" &&
  "$lenet" $short --batch 30 --kvstore dist_sync --log "$work/alone.jsonl" 2>>"$work/log"
losses_of() { sed -n 's/.*"loss": *\([0-9][0-9.e-]*\).*/\1/p' "$1"; }
# alike TOLERANCE: $work/one and $work/two have as many losses, alike within this relative tolerance
alike() {
  paste "$work/one" "$work/two" | awk -v tolerance="$1" '
    { d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > tolerance * $1) bad = 1 }
    END { exit bad }'
}
losses_of "$work/local.jsonl" >"$work/one"
losses_of "$work/alone.jsonl" >"$work/two"
if [ "$(wc -l <"$work/one")" -ge 5 ] && alike 1e-6; then
  ok "dist_sync without mpirun: one rank, the losses of local"
else
  not_ok "dist_sync without mpirun: other losses than local: $(head -n 1 "$work/log")"
fi

# ---- bf16: weights travel as f32, each rank refreshes its own copies ----

half="--math bf16 --steps 20 --quiet"
"$lenet" $half --batch 30 --log "$work/one.jsonl" 2>"$work/log"
for again in 1 2; do
  mpirun_for 60 -np 2 "$lenet" $half --batch 15 --bigarray-bound 10000 --kvstore dist_sync \
    --save "$work/half-$again" --log "$work/two.jsonl" >"$work/out" 2>>"$work/log"
done
losses_of "$work/one.jsonl" >"$work/one"
losses_of "$work/two.jsonl" >"$work/two"
if [ "$(wc -l <"$work/one")" -ge 20 ] && alike 1e-2; then
  ok "bf16, 2 ranks: the losses of one process within 1e-2"
else
  not_ok "bf16, 2 ranks: other losses than one process: $(head -n 1 "$work/log")"
fi
if [ -s "$work/half-1" ] && cmp -s "$work/half-1" "$work/half-2"; then
  ok "bf16, 2 ranks, a second time: the same to the bit"
else
  not_ok "bf16, 2 ranks, a second time: other bits"
fi

# ---- a log for each rank ----
mpirun_for 60 -np 3 "$lenet" $short --batch 10 $images --kvstore dist_sync --servers 1 \
  --log "$work/run.jsonl" >"$work/out" 2>"$work/log"
losses() { grep '"step"' "$1" | sed 's/.*"loss": *\([0-9.e-]*\).*/\1/'; }
if [ "$(losses "$work/run.jsonl" | wc -l)" = 5 ] && losses "$work/run.jsonl" >"$work/0" &&
  losses "$work/run.rank1.jsonl" >"$work/1" && losses "$work/run.rank2.jsonl" >"$work/2" &&
  cmp -s "$work/0" "$work/1" && cmp -s "$work/0" "$work/2"; then
  ok "each rank has its own log, with the same losses"
else
  not_ok "logs: $(ls "$work")"
fi

# ---- refused: 2 ranks with COMMON, a third one with THEIRS besides ----
# refused CODE WORDS MOST [COMMON [THEIRS]]: mpirun's exit code, 1 to MOST lines of the trainer, of
# which the first has WORDS
refused() {
  code=$1 words=$2 most=$3 common=${4-} theirs=${5-}
  mpirun_for 60 -np 2 "$lenet" --kvstore dist_sync --timeout 15 $short $images $common : \
    -np 1 "$lenet" --kvstore dist_sync --timeout 15 $short $images $common $theirs \
    >"$work/out" 2>"$work/log"
  got=$?
  grep "^lenet: " "$work/log" >"$work/lines"
  lines=$(wc -l <"$work/lines")
  what="'$common', one '$theirs'"
  if [ $got = "$code" ] && [ "$lines" -ge 1 ] && [ "$lines" -le "$most" ] &&
    head -n 1 "$work/lines" | grep -q -e "$words"; then
    ok "$what: $(head -n 1 "$work/lines")"
  else
    not_ok "$what: exit code $got (not $code), $lines lines: $(head -n 3 "$work/lines")"
  fi
}
refused 2 'rank 0 has "--lr 0.1", rank 2 has "--lr 0.2"' 1 "" "--lr 0.2"
refused 2 'rank 2 has "--batch 10"' 1 "" "--batch 10"
refused 2 'rank 2 has "--seed 2"' 1 "" "--seed 2"
refused 2 'rank 2 has "--optimizer adam"' 1 "" "--optimizer adam"
refused 2 'rank 2 has "--activation relu"' 1 "" "--activation relu"
refused 2 'rank 2 has "--servers 1"' 1 "" "--servers 1"
refused 2 'rank 2 has "--math bf16"' 1 "" "--math bf16"
refused 2 'rank 2 has "--freeze conv1"' 1 "" "--freeze conv1"
images "$work/other" 271828182845904523536028747135266249
refused 2 'rank 2 has "--data of 3072 samples' 1 "" "--data $work/other"
refused 2 'rank 2 has "--data of 10000 samples' 1 "" "--data digits"
# the same labels, other pixels
cp -r "$work/samples" "$work/pixels"
tr 'A' 'B' <"$work/samples/train-images-idx3-ubyte" >"$work/pixels/train-images-idx3-ubyte"
refused 2 'rank 2 has "--data of 3072 samples' 1 "" "--data $work/pixels"
cp "$work/samples/train-images-idx3-ubyte" "$work/pixels"
tr 'A' 'B' <"$work/samples/t10k-images-idx3-ubyte" >"$work/pixels/t10k-images-idx3-ubyte"
refused 2 'rank 2 has "--validation of 40 samples' 1 "" "--data $work/pixels"
# the same inputs, other targets; a text of as many tokens and words
for i in 1 2 3 4 5 6 7 8 9; do echo "$i,$((i * i % 7)).5"; done >"$work/rows"
{ echo x,y; cat "$work/rows"; } >"$work/a.csv"
{ echo x,y; sed 's/4\.5$/5.5/' "$work/rows"; } >"$work/b.csv"
yes 'one two two three' | head -n 99 >"$work/a.txt"
yes 'two one two three' | head -n 99 >"$work/b.txt"
# refused_pair FILE OTHER PROGRAM ARGUMENTS...
refused_pair() {
  one=$1 other=$2; shift 2
  mpirun_for 60 -np 1 "$@" --kvstore dist_sync --timeout 15 --data "$work/$one" : \
    -np 1 "$@" --kvstore dist_sync --timeout 15 --data "$work/$other" >"$work/out" 2>"$work/log"
  got=$?
  if [ $got = 2 ] && grep -q 'rank 1 has "--data of ' "$work/log"; then
    ok "$one, one $other: $(grep 'rank 1 has' "$work/log" | head -n 1)"
  else
    not_ok "$one, one $other: exit code $got: $(head -n 3 "$work/log")"
  fi
}
refused_pair a.csv b.csv "${MLP:-examples/mlp}" --target y --batch 2 --steps 2 --validation 0.2
refused_pair a.txt b.txt "${LSTM_LM:-examples/lstm_lm}" --batch 2 --steps 2 --bptt 5 \
  --hidden 8 --embed 8
refused 1 'rank 2: .*/nowhere' 1 "" "--data $work/nowhere"
refused 2 'at least one rank must be a worker' 1 "--servers 3"
refused 2 '--batch 1025: each of 3 ranks has only 1024 samples of ' 1 "--batch 1025"
refused 2 '--batch 1537: each of 2 ranks has only 1536 samples of ' 1 "--batch 1537 --servers 1"
# A rank that refuses before it connects to the others may print its line before mpirun ends it.
# All ranks do so at about the same time, and later on a busy machine: more lines are no failure.
refused 2 'kvstore local does not talk' 3 "--kvstore local"
refused 2 'rank 2: .*kvstore local does not talk' 1 "" "--kvstore local"
refused 2 "--kvstore 'nonsense': unknown; use auto, local" 3 "--kvstore nonsense"
refused 2 "--kvstore 'nonsense': unknown; use auto, local" 1 "" "--kvstore nonsense"
refused 1 "cuda:0" 3 "--devices cuda:0"
refused 1 "rank 2: device 'cuda:0'" 3 "" "--devices cuda:0"
refused 2 "rank 2: split auto: 'any' is no device" 1 "" "--split auto"

# ---- dist_async: it learns as well, and logs the staleness of gradients ----

# learns RANKS ARGUMENTS...: generated digits, two epochs
learns() {
  ranks=$1; shift
  rm -f "$work/async.jsonl"
  mpirun_for 200 -np "$ranks" "$lenet" --kvstore dist_async --epochs 2 --seed 1 --quiet \
    --log "$work/async.jsonl" "$@" >"$work/out" 2>"$work/log"
  got=$?
  accuracy=$(sed -n 's/.*"test_accuracy": *\([0-9.e-]*\).*/\1/p' "$work/async.jsonl" | tail -n 1)
  most=$(sed -n 's/.*"most_staleness": *\([0-9]*\).*/\1/p' "$work/async.jsonl" |
    sort -n | tail -n 1)
  what="dist_async, $ranks ranks $*"
  # the run of one process ends at 0.98
  if [ $got = 0 ] && awk "BEGIN { exit !(${accuracy:-0} > 0.9) }"; then
    ok "$what: accuracy $accuracy"
  else
    not_ok "$what: exit code $got, accuracy ${accuracy:-none}: $(head -n 3 "$work/log")"
  fi
}
learns 2
learns 2 --math bf16
learns 3 --servers 1 --compress 1bit
# With --max-staleness S a worker misses at most 2 S + 1 of the other's steps between its pull and
# its push: the S that it is behind, the S by which the other may overtake it, and one in flight.
learns 2 --max-staleness 1
if [ "${most:-99}" -le 3 ]; then
  ok "at most 1 step ahead: staleness up to $most"
else
  not_ok "at most 1 step ahead: staleness ${most:-none}"
fi

if unshare -m sh -c 'mount -t tmpfs -o size=1m none /dev/shm' 2>/dev/null; then
  mpirun_for 60 -np 2 unshare -m sh -c 'mount -t tmpfs -o size=1m none /dev/shm && exec "$@"' sh \
    "$lenet" --kvstore dist_sync $short $images >"$work/out" 2>"$work/log"
  got=$?
  if [ $got = 2 ] && grep -q '^lenet: /dev/shm has 1.0 MB' "$work/log"; then
    ok "$(grep /dev/shm "$work/log" | head -n 1)"
  else
    not_ok "a full /dev/shm: exit code $got: $(head -n 3 "$work/log")"
  fi
else
  skip "a full /dev/shm" "no mount namespace can be made here"
fi

echo "1..$n"
exit $failed
