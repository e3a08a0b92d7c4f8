#!/bin/sh
# Starling beside PyTorch, in turns, so that both meet the same machine; prints each line and then the ratios (of the
# turns in which no other program disturbed).
#   bench/compare.sh --python PATH [--rounds 3] [--seconds 3] [--threads N] [--bench PROGRAM]
# PATH is a Python that has torch; PROGRAM is bench_train (default: bench/bench_train, made by "make bench").
set -eu
python= rounds=3 seconds=3 threads=$(nproc) program=bench/bench_train
usage() { echo "usage: compare.sh --python PATH [--rounds N] [--seconds X] [--threads N] [--bench PROGRAM]" >&2; exit 2; }
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --python) python=$2 ;;
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --threads) threads=$2 ;;
    --bench) program=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -n "$python" ] || usage
here=$(dirname "$0")
"$python" -c 'import torch' 2>/dev/null || { echo "compare.sh: $python has no torch: install it, or name another --python" >&2; exit 1; }
[ -x "$program" ] || { echo "compare.sh: $program is missing: run 'make bench', or name it by --bench" >&2; exit 1; }

lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
# the same number of processors for both
cpus=0-$((threads - 1))
for round in $(seq "$rounds"); do
  for network in mlp lenet64 lenet256; do
    taskset -c "$cpus" "$program" --seconds "$seconds" --only "$network" | tee -a "$lines"
    taskset -c "$cpus" "$python" "$here/torch_train.py" --threads "$threads" --seconds "$seconds" --only "$network" | tee -a "$lines"
  done
done
"$python" - "$lines" <<'RATIOS'
import json, statistics, sys
MOST_FOREIGN = 0.1  # of the machine, taken by other programs: a pair with more is not counted
lines = [json.loads(line) for line in open(sys.argv[1])]
for network in "mlp", "lenet64", "lenet256":
    mine, theirs = ([line for line in lines if line["peer"] == peer and line["bench"] == network]
                    for peer in ("starling", "torch"))
    pairs = [(a["rate"], b["rate"]) for a, b in zip(mine, theirs)
             if max(a["foreign_cpu"], b["foreign_cpu"]) <= MOST_FOREIGN]
    if not pairs:
        print(json.dumps({"bench": network, "error": "other programs kept the machine busy; try again"}))
        continue
    ratios = sorted(a / b for a, b in pairs)
    print(json.dumps({"bench": network, "starling": round(statistics.median(a for a, _ in pairs)),
                      "torch": round(statistics.median(b for _, b in pairs)),
                      "ratio": round(statistics.median(ratios), 2), "ratio_least": round(ratios[0], 2),
                      "ratio_most": round(ratios[-1], 2), "pairs": len(pairs), "dropped": len(mine) - len(pairs)}))
RATIOS
