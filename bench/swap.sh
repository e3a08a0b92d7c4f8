#!/bin/sh
# The cost of little memory: trains in all the memory that it takes, then in a half, a quarter and
# an eighth of it with the rest in a folder. Prints each limit, the rate (the median), its ratio to
# that without a limit, and how much was swapped out and in, a step.
#   bench/swap.sh [--folder DIR] [--steps 30] [--rounds 3] [--trainer PROGRAM [OPTIONS...]]
# DIR should be on the disk in question (default: /var/tmp). --trainer comes last (default:
# examples/mlp with 13 hidden layers of 1024).
set -eu
folder=/var/tmp steps=30 rounds=3
usage() { sed -n 's/^#   //p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --folder) folder=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --trainer) shift; break ;;
    *) usage ;;
  esac
done
[ $# -gt 0 ] || set -- examples/mlp --data digits --batch 512 --optimizer adam \
  --hidden 512,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024
work=$(mktemp -d "$folder/starling-bench-XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() { echo "swap.sh: $*: $(tail -n 1 "$work/err")" >&2; exit 1; }
# run LOG COMMAND...
run() {
  log=$1; shift
  "$@" --steps "$steps" --log "$work/$log" >"$work/out" 2>"$work/err" || fail "$*"
  sed -n 's/^Memory //p' "$work/out" >"$work/memory"
}
# the median rate of the steps after the first two
rate() {
  sed -n 's/.*"step": *\([0-9]*\),.*"samples_per_s": *\([0-9.]*\).*/\1 \2/p' "$@" |
    awk '$1 > 1 { print $2 }' | sort -n |
    awk '{ r[NR] = $1 } END { print r[int((NR + 1) / 2)] }'
}
run most "$@" --memory-limit cpu=64G
needs=$(sed -n 's/.*at most \([0-9]*\)\..*/\1/p' "$work/memory")
for round in $(seq "$rounds"); do
  run "1.$round" "$@"
  for part in 2 4 8; do
    run "$part.$round" "$@" --memory-limit "cpu=$((needs * 1000000 / part))" --swap "$work"
    cp "$work/memory" "$work/memory.$part"
  done
done
whole=$(rate "$work"/1.*)
echo "limit MB  samples/s  ratio  swapped out/in, MB a step"
for part in 1 2 4 8; do
  now=$(rate "$work/$part".*)
  out=$(sed -n 's/.*; \([0-9.]*\) MB swapped out, \([0-9.]*\) MB in/\1 \2/p' \
    "$work/memory.$part" 2>/dev/null || echo 0 0)
  echo "$((needs / part)) $now $whole $steps ${out:-0 0}" |
    awk '{ printf "%8d  %9.0f  %5.2f  %.1f / %.1f\n", $1, $2, $3 / $2, $5 / $4, $6 / $4 }'
done
