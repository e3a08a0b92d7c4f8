#!/bin/bash
# Starling on a GPU beside PyTorch, in turns; prints JSON lines, then a table.
#   bench/gpu_bench.sh [--python PATH] [--networks LIST] [--math LIST] [--seconds 3] [--rounds 2]
#                      [--json FILE] [--programs FOLDER] [--tiny]
# PATH is a Python that has torch (default: python3; without torch Starling is measured alone). LIST
# has commas between: names of torch_gpu.py's networks (default: all) and tf32,bf16 (default; f32
# also). FOLDER has bench_train and gpu_peak (default: bench, where "make bench" puts them).
# --tiny: a short test of this script with small networks, on a CPU if there is no GPU. FILE gets
# all lines.
#   TFLOP/s     of products and convolutions: forward and both gradients, a multiply-add is 2
#   of peak     share of what cuBLASLt reaches at 4096^3 with the same math, measured before
#   idle        share of the time in which the GPU ran no task (StarPU's clock; a run of its own)
#   by graph    PyTorch in mode reduce-overhead, or its whole step as one CUDA graph
#   ratio       to PyTorch at its best: eager, compiled, by graph, with images' channels last
set -u
python=python3 maths=tf32,bf16
networks=mlp,lenet64,lenet256,resnet20_128,lstm2x200,lstm_mxnet
networks=$networks,mlp4096,lenet512,resnet20,lstm2x650_64,lstm8x1024_64,gpt,gpt2
seconds=3 rounds=2
json='' programs=bench tiny='' device=cuda:0
usage() { sed -n 's/^#   bench/  bench/p; s/^#     /     /p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  if [ "$1" = --tiny ]; then tiny=1; shift; continue; fi
  [ $# -ge 2 ] || usage
  case $1 in
    --python) python=$2 ;;
    --networks) networks=$2 ;;
    --math) maths=$2 ;;
    --seconds) seconds=$2 ;;
    --rounds) rounds=$2 ;;
    --json) json=$2 ;;
    --programs) programs=$2 ;;
    *) usage ;;
  esac
  shift 2
done
here=$(dirname "$0")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_SILENT=1
lines=${json:-$work/lines}
: >"$lines" || exit 1
failed=0

# measure WHAT COMMAND...: its lines are shown and kept
measure() {
  local what=$1; shift
  if ! timeout -k 10 900 "$@" >"$work/now" 2>"$work/errors"; then
    echo "gpu_bench: $what failed: $(tail -n 3 "$work/errors")" >&2
    failed=1
    return 1
  fi
  tee -a "$lines" <"$work/now"
}

peak_options=(--seconds "$seconds"); [ -z "$tiny" ] || peak_options=(--size 64 --seconds 0.05)
"$programs/gpu_peak" "${peak_options[@]}" >"$work/now" 2>"$work/errors"
case $? in
  0) tee -a "$lines" <"$work/now" ;;
  77 | 127)
    why=$(tail -n 1 "$work/errors")
    [ -n "$tiny" ] || { echo "SKIP: gpu-bench: no GPU (${why#*: })"; exit 77; }
    echo "no GPU (${why#*: }): everything runs on a CPU, as a test of this script"
    device=cpu ;;
  *) echo "gpu_bench: $(tail -n 3 "$work/errors")" >&2; exit 1 ;;
esac

small=(--seconds "$seconds")
[ -z "$tiny" ] || { small=(--tiny --seconds 0.1); rounds=1; }
torch_device=cuda:0
"$python" -c 'import torch' 2>/dev/null || {
  echo "SKIP: PyTorch: $python has no torch; name one that has by --python"
  python=''
}
if [ -n "$python" ] &&
  ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  if [ -n "$tiny" ]; then
    torch_device=cpu
  else
    echo "SKIP: PyTorch: $python's torch sees no GPU"
    python=''
  fi
fi

for network in ${networks//,/ }; do
  for math in ${maths//,/ }; do
    options=(--only "$network" --math "$math" "${small[@]}")
    starling=("$programs/bench_train" --devices "$device" --replicas 1 "${options[@]}")
    torch=("$python" "$here/torch_gpu.py" --device "$torch_device" "${options[@]}")
    for _ in $(seq "$rounds"); do
      measure "Starling, $network $math" "${starling[@]}"
      [ -n "$python" ] || continue
      modes=("" --compile --reduce-overhead --graph "--compile --graph")
      case $network in
        lenet* | resnet*)
          modes+=(--channels-last "--compile --channels-last"
            "--compile --graph --channels-last") ;;
      esac
      for mode in "${modes[@]}"; do
        # shellcheck disable=SC2086
        measure "PyTorch${mode:+ $mode}, $network $math" "${torch[@]}" $mode
      done
    done
    [ "$device" = cpu ] || measure "Starling, $network $math, idle" "${starling[@]}" --idle
  done
done

table=${python:-python3}
command -v "$table" >/dev/null || { echo "no Python: no table"; exit $failed; }
"$table" - "$lines" <<'TABLE'
import json
import statistics
import sys

lines = [json.loads(text) for text in open(sys.argv[1])]
products = [line for line in lines if line["bench"] == "product"]
peaks = {line["math"]: line for line in products if line["peer"] == "cublasLt"}
for line in products:
    if line["peer"] == "starling":
        peak = peaks[line["math"]]["tflops"]
        print(f"product {line['size']}^3 {line['math']:5} cuBLASLt {peak:8.1f} TFLOP/s   "
              f"dense_forward {line['tflops']:8.1f}   {100 * line['of_cublas']:5.1f} %")
runs = {}  # (network, math): peer: rates
for line in lines:
    if line["bench"] in ("product", "peak"):
        continue
    run = runs.setdefault((line["bench"], line["math"]), {"unit": line["unit"], "rates": {}})
    if "gpu_idle" in line:
        run["idle"] = line["gpu_idle"]
        continue
    rate = line.get("rate_mean", line["rate"])
    run["rates"].setdefault(line["peer"], []).append(rate)
    if line["peer"] == "starling":
        run["gflop"] = line["gflops"] / line["rate"]  # of a sample or word


def share(x):
    return f"{100 * x:.1f} %" if x is not None else "-"


def count(x):
    return f"{x:,.0f}" if x is not None else "-"


print(f"\n{'network':14} {'math':5} {'unit':10} {'Starling':>12} {'TFLOP/s':>9} {'of peak':>8} "
      f"{'idle':>7} {'torch eager':>12} {'compiled':>12} {'by graph':>12} {'best':>12} "
      f"{'ratio':>6}")
for (network, math), run in runs.items():
    rates = {peer: statistics.median(all_rates) for peer, all_rates in run["rates"].items()}
    own = rates.pop("starling", None)
    best = max(rates.values(), default=None)
    by_graph = max((rate for peer, rate in rates.items()
                    if "graph" in peer or "reduce-overhead" in peer), default=None)
    tflops = own * run["gflop"] / 1000 if own else None
    peak = peaks.get(math, {}).get("tflops")
    result = {"network": network, "math": math, "unit": run["unit"], "starling": own,
              "tflops": tflops, "of_peak": tflops / peak if own and peak else None,
              "idle": run.get("idle"), **rates, "ratio": own / best if own and best else None}
    print(f"{network:14} {math:5} {run['unit']:10} {count(own):>12} {tflops or 0:9.3f} "
          f"{share(result['of_peak']):>8} {share(result['idle']):>7} "
          f"{count(rates.get('torch-eager')):>12} {count(rates.get('torch-compile')):>12} "
          f"{count(by_graph):>12} {count(best):>12} {result['ratio'] or 0:6.2f}")
    with open(sys.argv[1], "a") as file:
        print(json.dumps({"peer": "result", "bench": "result", **result}), file=file)
TABLE
[ $? -eq 0 ] || failed=1
exit $failed
