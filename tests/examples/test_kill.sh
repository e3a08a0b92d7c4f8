#!/bin/sh
# Runs that are killed (kill -9) at pseudo-random moments, resumed and killed again, in chains until
# they end: with the weights of an undisturbed run, to the bit, and a log that has each step once.
# Each step or two writes a checkpoint, so that many kills hit the writing of one.
# SL_KILL_SEEDS: number of kills (100); the i-th moment is drawn from the seed i.
# SL_KILL_SECONDS: time limit; a slow machine has fewer kills (200).
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
lenet=${LENET:-examples/lenet} mlp=${MLP:-examples/mlp} lm=${LSTM_LM:-examples/lstm_lm}
kills=${SL_KILL_SEEDS:-100}
work=$(mktemp -d) || exit 1
pid=''
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP PIPE
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"

# ---- small data, read at once: digits of digits, whose labels are digits, too ----
images() {
  mkdir "$work/images"
  for set in train:'\004\000':1024 t10k:'\000\100':64; do
    name=${set%%:*} count=${set##*:} bytes=${set#*:}; bytes=${bytes%:*}
    {
      printf "\\000\\000\\010\\003\\000\\000$bytes\\000\\000\\000\\034\\000\\000\\000\\034"
      seq 1 200000 | tr '0-9' '\001\031\061\111\141\171\221\251\301\331' | head -c $((784 * count))
    } >"$work/images/$name-images-idx3-ubyte"
    {
      printf "\\000\\000\\010\\001\\000\\000$bytes"
      seq 1 9999 | tr -d '\n' | tr '0-9' '\000-\011' | head -c "$count"
    } >"$work/images/$name-labels-idx1-ubyte"
  done
}
images
yes 'the cat sat on the mat and it was flat' | head -n 3000 >"$work/text.txt"
images="--data $work/images --batch 32 --seed 3"

# ---- the comparison ----
losses() { grep 'loss": *[0-9]' "$1" | sed 's/, "samples_per_s".*//'; }
same_log() {
  losses "$work/whole.jsonl" >"$work/a"
  losses "$work/cut.jsonl" >"$work/b"
  cmp -s "$work/a" "$work/b"
}
same_steps() {
  for log in whole cut; do
    sed -n 's/^{"step": \([0-9]*\), .*"loss": .*/\1/p' "$work/$log.jsonl" >"$work/$log.steps"
  done
  cmp -s "$work/whole.steps" "$work/cut.steps"
}
# each loss within a thousandth: another number of slices gives another rounding
near_losses() {
  for log in whole cut; do
    sed -n 's/^{"step".*"loss": \([0-9.e+-]*\).*/\1/p' "$work/$log.jsonl" >"$work/$log.losses"
  done
  paste "$work/whole.losses" "$work/cut.losses" |
    awk '
      { d = $1 - $2; if (d < 0) d = -d; if (d > 0.001 * $1 + 0.0001) bad = 1 }
      END { exit bad || !NR }'
}

now() { date +%s%3N; }
# draw SEED MOST: from 0 to MOST, by the generator of C's standard, twice
draw() {
  drawn=$((($1 * 1103515245 + 12345) % 2147483648))
  drawn=$(((drawn * 1103515245 + 12345) % 2147483648 / 256 % ($2 + 1)))
}

started=$(now)
is_time() {
  [ $used -lt "$kills" ] && [ $(($(now) - started)) -lt $((${SL_KILL_SECONDS:-200} * 1000)) ]
}

# undisturbed COMMAND...: its weights, its log, and its time in ms; run once for all chains of that
# name
undisturbed() {
  kept=$work/$(echo "$name" | tr -c 'a-z0-9\n' -)
  if [ ! -e "$kept.ms" ]; then
    began=$(now)
    "$@" --quiet --save "$work/whole" --log "$work/whole.jsonl" --checkpoint "$kept.dir" \
      --checkpoint-every 2 >"$work/out" 2>"$work/err" || return 1
    mv "$work/whole" "$kept.weights"; mv "$work/whole.jsonl" "$kept.jsonl"
    echo $(($(now) - began)) >"$kept.ms"
  fi
  cp "$kept.weights" "$work/whole"; cp "$kept.jsonl" "$work/whole.jsonl"
  whole=$(cat "$kept.ms")
}

used=0 tries=0 passed_over=0
# chain NAME bits|near CUTS COMMAND...: CUTS are sets of options with | between them. The runs of a
# chain take them in turn; the undisturbed run takes the first.
chain() {
  name=$1 kind=$2 cuts=$3; shift 3
  is_time || return
  rm -rf "$work/dir" "$work"/cut* "$work"/whole*
  count=$(echo "$cuts" | tr '|' '\n' | wc -l)
  first=$(echo "$cuts" | cut -d '|' -f 1)
  undisturbed "$@" $first || { not_ok "$name: does not train"; return; }
  here=0 code=137
  while [ $code != 0 ]; do
    cut=$(echo "$cuts" | cut -d '|' -f $((here % count + 1)))
    "$@" $cut --quiet --save "$work/cut" --log "$work/cut.jsonl" --checkpoint "$work/dir" \
      --checkpoint-every 2 --resume >"$work/out" 2>"$work/err" & pid=$!
    # at most 12 in a chain: it must also end on a machine that has become much slower
    if is_time && [ $here -lt 12 ]; then
      tries=$((tries + 1))
      draw $tries $((whole * 4 / 5))
      sleep "$(printf '%d.%03d' $((drawn / 1000)) $((drawn % 1000)))"
      kill -KILL "$pid" 2>/dev/null
    fi
    wait "$pid" 2>/dev/null; code=$?
    pid=''
    passed_over=$((passed_over + $(grep -c "passed over" "$work/err")))
    [ $code = 0 ] && break
    [ $code = 137 ] || { not_ok "$name: ended with code $code after $here kills"; return; }
    used=$((used + 1)) here=$((here + 1))
  done
  [ $here -gt 0 ] || echo $((whole * 2 / 3)) >"$kept.ms" # the machine has become faster
  what="$name: $here kills"
  if ! same_steps; then
    not_ok "$what: the log does not have each step once"
  elif [ $kind = near ] && near_losses; then
    ok "$what: the losses of an undisturbed run, within rounding"
  elif [ $kind = near ]; then
    not_ok "$what: other losses than undisturbed"
  elif ! cmp -s "$work/whole" "$work/cut"; then
    not_ok "$what: other weights than undisturbed"
  elif ! same_log; then
    not_ok "$what: another log than undisturbed"
  else
    ok "$what: the weights and the log of an undisturbed run"
  fi
}

round=0
while is_time && [ $round -lt 40 ]; do
  round=$((round + 1))
  chain "mlp, momentum" bits "--replicas 2" "$mlp" $images --hidden 64,32 --steps 48 --momentum 0.9
  chain "lenet, adam, augmented" bits "--replicas 2" "$lenet" $images --steps 24 --optimizer adam \
    --augment --lr-schedule cosine
  chain "lstm_lm, carried state" bits "--replicas 2" "$lm" --data "$work/text.txt" --steps 36 \
    --layers 1 --hidden 24 --embed 16 --dropout 0.2
  # stages, owners and schedulers do not change the bits
  chain "mlp, one cell or two stages" bits \
    "--replicas 1|--replicas 1 --stages 2|--replicas 1 --kvstore device" "$mlp" $images \
    --hidden 64,32 --steps 48 --optimizer adam
  chain "mlp, 2 replicas, 1, 2 stages" near "--replicas 2|--replicas 1|--replicas 1 --stages 2" \
    "$mlp" $images --hidden 64,32 --steps 48 --momentum 0.5 --lr 0.02
done
if [ $passed_over = 0 ]; then
  ok "no kill left a damaged checkpoint"
else
  not_ok "$passed_over checkpoints were damaged"
fi
if [ $used -ge "$kills" ]; then
  ok "$used kills"
elif is_time; then
  not_ok "only $used kills of $kills were in time"
else
  ok "$used kills of $kills # SKIP the rest: out of time"
fi
echo "1..$n"
exit $failed
