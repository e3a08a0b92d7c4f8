#!/bin/sh
# Starling beside its peers, in turns, so that all run on the machine in the same state; prints each
# line and then the ratios (of the pairs of turns in which no other program disturbed).
#   bench/compare.sh --python PATH [--mxnet PATH] [--torch-best] [--networks LIST]
#                    [--rounds 3] [--seconds 3] [--threads N] [--bench PROGRAM] [--math bf16]
# PATH is a Python that has torch, that of --mxnet one that has mxnet; --torch-best measures the
# fastest settings of PyTorch, too. LIST has commas between (default: mlp,lenet64,lenet256); the
# names are those of "bench_train --help". PROGRAM is bench_train (default: bench/bench_train, made
# by "make bench"). With --math bf16 Starling and PyTorch train in bf16, and Starling in f32 beside
# them (peer starling-f32).
set -eu
python= mxnet= best= networks=mlp,lenet64,lenet256
rounds=3 seconds=3 threads=$(nproc) program=bench/bench_train math=f32
usage() { sed -n 's/^#   //p' "$0" >&2; exit 2; }
fail() { echo "compare.sh: $*" >&2; exit 1; }
while [ $# -gt 0 ]; do
  if [ "$1" = --torch-best ]; then best=1; shift; continue; fi
  [ $# -ge 2 ] || usage
  case $1 in
    --python) python=$2 ;;
    --mxnet) mxnet=$2 ;;
    --networks) networks=$2 ;;
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --threads) threads=$2 ;;
    --bench) program=$2 ;;
    --math) math=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -n "$python" ] || usage
here=$(dirname "$0")
has() {
  "$2" -c "import $1" 2>/dev/null || fail "$2 has no $1: install it, or name another Python"
}
has torch "$python"
[ -z "$mxnet" ] || has mxnet "$mxnet"
[ -x "$program" ] || fail "$program is missing: run 'make bench', or name it by --bench"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The same number of processors for all. A failure ends the script: lines become pairs by order.
measure() {
  taskset -c "0-$((threads - 1))" "$@" --seconds "$seconds" --only "$network" >"$folder/now" ||
    fail "$* failed with $network"
  tee -a "$folder/lines" <"$folder/now"
}
for round in $(seq "$rounds"); do
  for network in $(echo "$networks" | tr , ' '); do
    measure "$program" --math "$math"
    [ "$math" = f32 ] || measure "$program"
    measure "$python" "$here/torch_train.py" --threads "$threads" --math "$math"
    [ -z "$best" ] || measure "$python" "$here/torch_train.py" --threads "$threads" --best \
      --math "$math"
    [ -z "$mxnet" ] || measure "$mxnet" "$here/mxnet_train.py" --threads "$threads"
  done
done
"$python" - "$folder/lines" "$math" <<'RATIOS'
import json
import statistics
import sys

MOST_FOREIGN = 0.1  # of the machine, taken by other programs: a pair with more is not counted


def compared(mine, theirs, peer):
    """One line: the ratios to a peer, or that there are none."""
    line = {"bench": mine[0]["bench"], "against": peer}
    pairs = [(a["rate"], b["rate"]) for a, b in zip(mine, theirs)
             if max(a["foreign_cpu"], b["foreign_cpu"]) <= MOST_FOREIGN]
    if not pairs:
        return line | {"error": "other programs kept the machine busy; try again"}
    ratios = sorted(a / b for a, b in pairs)
    return line | {"unit": mine[0]["unit"],
                   "starling": round(statistics.median(a for a, _ in pairs)),
                   "theirs": round(statistics.median(b for _, b in pairs)),
                   "ratio": round(statistics.median(ratios), 2),
                   "ratio_least": round(ratios[0], 2), "ratio_most": round(ratios[-1], 2),
                   "pairs": len(pairs), "dropped": len(mine) - len(pairs)}


runs = {}  # network: peer: its lines
for text in open(sys.argv[1]):
    line = json.loads(text)
    peer = line["peer"]
    if peer == "starling" and line.get("math", sys.argv[2]) != sys.argv[2]:
        peer = "starling-f32"
    runs.setdefault(line["bench"], {}).setdefault(peer, []).append(line)
del runs["peak"]
for peers in runs.values():
    mine = peers.pop("starling")
    results = [compared(mine, theirs, peer) for peer, theirs in peers.items()]
    others = [result for result in results if result["against"] != "starling-f32"]
    # a peer without a number may have been the best one
    if len(others) > 1 and not any("error" in result for result in others):
        best = max(others, key=lambda result: result["theirs"])
        results.append(best | {"against": "best", "which": best["against"]})
    for result in results:
        print(json.dumps(result))
RATIOS
