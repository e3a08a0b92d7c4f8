#!/bin/sh
# Data-parallel training over several ranks on this machine, Starling beside its peers, in turns;
# each rank has one processor, one thread and a batch of its own. Prints each line and then, for
# each network and peer, the rates of all ranks, their ratio, and how they scale: efficiency = rate
# / (ranks * rate of one rank).
#   bench/compare_dist.sh --python PATH [--mxnet PATH] [--networks mlp,lenet64] [--ranks 2]
#                         [--rounds 3] [--seconds 3]
# PATH is a Python that has torch, that of --mxnet one that has mxnet. PyTorch is measured with its
# defaults and at its best settings (DistributedDataParallel over gloo), MXNet with dist_sync, one
# server and a scheduler, which the system places.
#
# A program of several ranks prints either one line with the rate of all, or one line for each rank.
# foreign_cpu counts all that is not the measured program, its start included.
set -eu
# The measured programs of Starling, over ranks and alone; "--seconds X --only NAME" is added.
starling=${STARLING:-"bench/bench_train --kvstore dist_sync"}
starling_alone=${STARLING_ALONE:-bench/bench_train}
mpirun=${MPIRUN:-mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1}
[ "$(id -u)" -ne 0 ] || mpirun="$mpirun --allow-run-as-root"

python= mxnet= networks=mlp,lenet64 ranks=2 rounds=3 seconds=3
usage() { sed -n 's/^#   //p' "$0" >&2; exit 2; }
fail() { echo "compare_dist.sh: $*" >&2; exit 1; }
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --python) python=$2 ;;
    --mxnet) mxnet=$2 ;;
    --networks) networks=$2 ;;
    --ranks) ranks=$2 ;;
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -n "$python" ] || usage
whole_seconds=${seconds%.*}
here=$(dirname "$0")
has() {
  "$2" -c "import $1" 2>/dev/null || fail "$2 has no $1: install it, or name another Python"
}
has torch "$python"
[ -z "$mxnet" ] || has mxnet "$mxnet"
[ -x "${starling%% *}" ] || fail "${starling%% *} is missing: run 'make bench', or set STARLING"

processors=$(nproc)
export processors STARPU_NCPU=1 STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1
export GLOO_SOCKET_IFNAME=lo DMLC_INTERFACE=lo OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
folder=$(mktemp -d)
started=
end() { [ -z "$started" ] || kill $started 2>/dev/null || :; rm -rf "$folder"; }
trap end EXIT
trap 'exit 1' INT TERM

# ---- ranks, each on a processor of its own ----
one() { taskset -c 0 "$@"; }
mpi() {
  $mpirun -np "$ranks" sh -c \
    'exec taskset -c $((OMPI_COMM_WORLD_LOCAL_RANK % processors)) "$@"' rank "$@"
}
# Each run takes other ports, below the range from which the system takes ports itself.
port=$((20000 + $$ % 250 * 50))
next_port() {
  port=$((port + 3))
  export MASTER_ADDR=127.0.0.1 MASTER_PORT=$port WORLD_SIZE="$ranks"
  export DMLC_PS_ROOT_URI=127.0.0.1 DMLC_PS_ROOT_PORT=$((port + 2))
  export DMLC_NUM_SERVER=1 DMLC_NUM_WORKER="$ranks"
}
# If one rank fails, others may wait for it for ever.
limit() { timeout $((300 + 20 * whole_seconds)) "$@"; }
all_ranks() {
  failed=0 helpers=$started workers=
  for rank in $(seq 0 $((ranks - 1))); do
    RANK=$rank limit taskset -c $((rank % processors)) "$@" &
    workers="$workers $!" started="$started $!"
  done
  for process in $workers; do wait "$process" || failed=1; done
  # servers and schedulers end with their workers, but not with workers that failed
  [ $failed -eq 0 ] || [ -z "$helpers" ] || kill $helpers 2>/dev/null || :
  for process in $helpers; do wait "$process" || failed=1; done
  started=
  return $failed
}
torch() { next_port; all_ranks "$python" "$here/torch_train.py" --threads 1 --ddp "$@"; }
mxnet() {
  next_port
  for role in scheduler server; do
    DMLC_ROLE=$role limit "$mxnet" "$here/mxnet_train.py" --kvstore dist_sync &
    started="$started $!"
  done
  export DMLC_ROLE=worker
  all_ranks "$mxnet" "$here/mxnet_train.py" --threads 1 --kvstore dist_sync "$@"
}

# ---- turns ----
# The time, the processors' time of all programs, and that of the measured programs that have ended.
mark() {
  times >"$folder/times"
  echo "mark $(cut -d' ' -f1 /proc/uptime) $(head -n 1 /proc/stat | cut -d' ' -f3-10)" \
    "$(tail -n 1 "$folder/times")" >>"$folder/lines"
}
# measure PEER RANKS COMMAND...; a failure ends the script: lines become pairs by their order.
measure() {
  who=$1 count=$2; shift 2
  echo "run $who $count $network" >>"$folder/lines"
  mark
  "$@" --seconds "$seconds" --only "$network" >"$folder/now" || fail "$* failed with $network"
  mark
  grep "\"$network\"" "$folder/now" | tee -a "$folder/lines"
}
for round in $(seq "$rounds"); do
  for network in $(echo "$networks" | tr , ' '); do
    measure starling "$ranks" mpi $starling
    measure torch "$ranks" torch
    measure torch-best "$ranks" torch --best
    [ -z "$mxnet" ] || measure mxnet "$ranks" mxnet
    unset DMLC_ROLE
    measure starling 1 one $starling_alone
    measure torch 1 one "$python" "$here/torch_train.py" --threads 1
    measure torch-best 1 one "$python" "$here/torch_train.py" --threads 1 --best
    [ -z "$mxnet" ] || measure mxnet 1 one "$mxnet" "$here/mxnet_train.py" --threads 1
  done
done
"$python" - "$folder/lines" <<'RATIOS'
import json
import os
import statistics
import sys

MOST_FOREIGN = 0.1  # of the machine, taken by other programs: a run with more is not counted


def seconds(text):  # as the shell's times: 1m2.34s
    minutes, rest = text.rstrip("s").split("m")
    return 60 * float(minutes) + float(rest)


def foreign(begin, end):
    ticks = [(sum(map(int, mark[1:4])) + sum(map(int, mark[6:9]))) / os.sysconf("SC_CLK_TCK")
             for mark in (begin, end)]
    own = [sum(map(seconds, mark[9:11])) for mark in (begin, end)]
    wall = float(end[0]) - float(begin[0])
    return max(0, ticks[1] - ticks[0] - (own[1] - own[0])) / (wall * os.cpu_count())


runs = []  # in order; each with its marks, rate and unit
for text in open(sys.argv[1]):
    kind, _, rest = text.partition(" ")
    if kind == "run":
        peer, count, network = rest.split()
        runs.append({"peer": peer, "ranks": int(count), "bench": network, "marks": [], "rate": 0})
    elif kind == "mark":
        runs[-1]["marks"].append(rest.split())
    else:
        line = json.loads(text)
        runs[-1]["rate"] += line["rate"]
        runs[-1]["unit"] = line["unit"]


def rates(peer, network, several):
    """Of each round; None where other programs disturbed it."""
    return [run["rate"] if foreign(*run["marks"]) <= MOST_FOREIGN else None for run in runs
            if (run["peer"], run["bench"], run["ranks"] > 1) == (peer, network, several)]


def median(values):
    values = [value for value in values if value]
    return statistics.median(values) if values else None


def ratios(above, below, times=1):
    return sorted(a / (times * b) for a, b in zip(above, below) if a and b)


def compared(network, peer, count):
    mine, theirs = rates("starling", network, True), rates(peer, network, True)
    line = {"bench": network, "ranks": count, "against": peer}
    pairs = ratios(mine, theirs)
    if not pairs:
        return line | {"error": "other programs kept the machine busy; try again"}
    line |= {"unit": next(run["unit"] for run in runs if run["bench"] == network),
             "starling": round(median(mine)), "theirs": round(median(theirs)),
             "ratio": round(statistics.median(pairs), 2), "ratio_least": round(pairs[0], 2),
             "ratio_most": round(pairs[-1], 2), "pairs": len(pairs),
             "dropped": len(mine) - len(pairs)}
    for name, of, total in ("starling", "starling", mine), ("theirs", peer, theirs):
        alone = rates(of, network, False)
        scaled = ratios(total, alone, count)
        line["one_" + name] = round(median(alone)) if median(alone) else None
        line["efficiency_" + name] = round(statistics.median(scaled), 2) if scaled else None
    return line


for network in dict.fromkeys(run["bench"] for run in runs):
    peers = dict.fromkeys(run["peer"] for run in runs if run["peer"] != "starling")
    count = max(run["ranks"] for run in runs)
    results = [compared(network, peer, count) for peer in peers]
    # a peer without a number may have been the best one
    if len(results) > 1 and not any("error" in result for result in results):
        best = max(results, key=lambda result: result["theirs"])
        results.append(best | {"against": "best", "which": best["against"]})
    for result in results:
        print(json.dumps(result))
RATIOS
