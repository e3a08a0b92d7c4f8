#!/bin/sh
# Answers per second and their latency beside PyTorch (inference mode) and onnxruntime, in turns, so
# that all run on the machine in the same state; prints each line and then the ratios (of the turns
# in which no other program disturbed).
#   bench/compare_predict.sh --python PATH [--networks LIST] [--rounds 3] [--seconds 3]
#                            [--threads N] [--bench PROGRAM]
# PATH is a Python that has torch, onnx and onnxruntime. LIST has commas between (default:
# lenet,resnet20,lstm2x200). PROGRAM is bench_predict (default: bench/bench_predict, made by "make
# bench").
set -eu
python= networks=lenet,resnet20,lstm2x200
rounds=3 seconds=3 threads=$(nproc) program=bench/bench_predict
usage() { sed -n 's/^#   //p' "$0" >&2; exit 2; }
fail() { echo "compare_predict.sh: $*" >&2; exit 1; }
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --python) python=$2 ;;
    --networks) networks=$2 ;;
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
"$python" -c "import torch, onnx, onnxruntime" 2>/dev/null ||
  fail "$python lacks one of torch, onnx, onnxruntime: install them, or name another Python"
[ -x "$program" ] || fail "$program is missing: run 'make bench', or name it by --bench"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
measure() {
  if ! taskset -c "0-$((threads - 1))" "$@" --seconds "$seconds" --only "$network" \
    >"$folder/now" 2>"$folder/err"; then
    tail -n 5 "$folder/err" >&2
    fail "$* failed with $network"
  fi
  tee -a "$folder/lines" <"$folder/now"
}
for round in $(seq "$rounds"); do
  for network in $(echo "$networks" | tr , ' '); do
    measure "$program"
    measure "$python" "$here/predict_peers.py" --threads "$threads" --peer torch
    measure "$python" "$here/predict_peers.py" --threads "$threads" --peer onnxruntime
  done
done
"$python" - "$folder/lines" <<'RATIOS'
import json
import statistics
import sys

MOST_FOREIGN = 0.1  # of the machine, taken by other programs: a turn with more is not counted


def speed(line, batch):
    """More is better: answers a second; of single samples, those of a request at its median."""
    return 1e6 / line["p50_us"] if batch == 1 else line["rate"]



# (network, batch): peer: its lines, a turn each
runs = {}
for text in open(sys.argv[1]):
    line = json.loads(text)
    runs.setdefault((line["bench"], line["batch"]), {}).setdefault(line["peer"], []).append(line)
for (bench, batch), peers in runs.items():
    turns = [dict(zip(peers, turn)) for turn in zip(*peers.values())]
    quiet = [t for t in turns if max(line["foreign_cpu"] for line in t.values()) <= MOST_FOREIGN]
    result = {"bench": bench, "batch": batch, "turns": len(quiet)}
    result["dropped"] = len(turns) - len(quiet)
    if not quiet:
        print(json.dumps(result | {"error": "other programs kept the machine busy; try again"}))
        continue
    unit = "p50_us" if batch == 1 else "rate"
    for name in peers:
        result[name] = round(statistics.median(t[name][unit] for t in quiet), 1)
    ratios = []
    for t in quiet:
        best = max(speed(t[name], batch) for name in peers if name != "starling")
        ratios.append(speed(t["starling"], batch) / best)
    ratios.sort()
    result["of"] = "p50_us" if batch == 1 else "samples/s"
    result["ratio_to_best"] = round(statistics.median(ratios), 2)
    result |= {"ratio_least": round(ratios[0], 2), "ratio_most": round(ratios[-1], 2)}
    if batch == 1:
        overheads = [t["starling"]["overhead_us"] for t in quiet]
        result["overhead_us"] = round(statistics.median(overheads), 1)
    print(json.dumps(result))
RATIOS
