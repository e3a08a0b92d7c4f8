#!/bin/sh
# Losses of targets over two ranks: each step's loss and each evaluation is that of one process with
# the same samples, the last batch of an epoch included.
set -u
. "${SL_SRCDIR:-.}/tests/common/ranks.sh"
mlp=${MLP:-examples/mlp}
train="--data friedman --hidden 16 --lr 0.05 --steps 4 --quiet"

# numbers LOG: the losses of its steps and evaluations
numbers() { sed -n 's/.*"\(test_\)*loss": *\([0-9.e-]*\)[,}].*/\2/p' "$1"; }

for loss in mse mae huber:0.5 cosine; do
  # shellcheck disable=SC2086 # several words
  timeout 60 "$mlp" $train --loss $loss --batch 9600 --replicas 2 --log "$work/one.jsonl" \
    2>"$work/log" &&
    mpirun_for 60 -np 2 "$mlp" $train --loss $loss --batch 4800 --replicas 1 --kvstore dist_sync \
      --log "$work/two.jsonl" >"$work/out" 2>"$work/log"
  code=$?
  numbers "$work/one.jsonl" >"$work/one"
  numbers "$work/two.jsonl" >"$work/two"
  if [ $code = 0 ] && [ "$(wc -l <"$work/one")" = 6 ] && paste "$work/one" "$work/two" |
    awk '{d = $1 - $2; if (NF != 2 || d < -1e-5 || d > 1e-5) bad = 1} END {exit bad}'; then
    ok "--loss $loss: two ranks have the losses of one process: $(head -n 1 "$work/two")"
  else
    not_ok "--loss $loss: exit code $code, $(paste "$work/one" "$work/two" | tr '\n\t' ';-')"
  fi
  rm -f "$work"/*.jsonl
done
echo "1..$n"
exit $failed
