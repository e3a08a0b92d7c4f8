#!/bin/bash
# All that one wants to know of Starling on a new machine with a GPU, without a network, in at most
# 45 minutes; the bundle has it as "first-hour". Does everything compute right (gpu-check), what
# does a task cost (bench_latency), what does the GPU reach (gpu_peak), how fast do networks train,
# and what does each mechanism bring that can be switched.
#   bench/first_hour.sh [--root FOLDER] [--out FOLDER] [--minutes 45] [--seconds 3]
#                       [--networks LIST] [--tiny]
# ROOT has tests, bench, and bin or examples (default: the current folder). OUT (default
# first-hour-results) gets, after each step anew, results.json, summary.txt and rates.svg, and each
# step's output. Each step has a time limit, and all together: a step that hangs ends there, the
# others go on.
# --tiny: a short test of this script with small networks, on a CPU if there is no GPU.
# FIRST_HOUR_LIMIT: no step gets more seconds than that, for tests of this script.
# Exit status: 0; 1: a step failed or did not end in time; 77: there is no GPU.
set -u
root=. out=first-hour-results minutes=45 seconds=3 tiny=''
networks=mlp,lenet64,lenet256,resnet20_128,lstm2x200
usage() { sed -n 's/^#   bench/  bench/p; s/^#     /     /p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  if [ "$1" = --tiny ]; then tiny=1; shift; continue; fi
  [ $# -ge 2 ] || usage
  case $1 in
    --root) root=$2 ;;
    --out) out=$2 ;;
    --minutes) minutes=$2 ;;
    --seconds) seconds=$2 ;;
    --networks) networks=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[[ $minutes =~ ^[1-9][0-9]{0,3}$ ]] || usage
mkdir -p "$out" || exit 1
rm -f "$out"/[0-9][0-9]-*.log "$out/results.json" "$out/summary.txt" "$out/rates.svg"
work=$(mktemp -d) || exit 1
step_session=''
trap 'rm -rf "$work"' EXIT
trap 'end_session; exit 130' INT TERM
: >"$work/rates"
trainers=$root/bin; [ -d "$trainers" ] || trainers=$root/examples
export STARPU_SILENT=1 STARPU_HOME=${STARPU_HOME:-$work} GPU_CHECK_TIMEOUT=${GPU_CHECK_TIMEOUT:-240}
end=$((SECONDS + 60 * minutes - 10)) # 10 s for steps that ignore a signal
count=0 failed=0 device=cuda:0
short=(--seconds "$seconds") tasks=(--tasks 1000 --rounds 15) size=(--seconds "$seconds")
check=("$root/tests/gpu/gpu-check.sh" "$trainers" "$root/tests")
if [ -n "$tiny" ]; then
  short=(--tiny --seconds 0.05) tasks=(--tasks 20 --rounds 3) size=(--size 64 --seconds 0.05)
  check=("$root/tests/gpu/gpu_ops" --only fill --small)
fi

# ---- is there a GPU? -----------------------------------------------------------------------------
timeout -k 5 300 "$root/bench/bench_latency" --tasks 1 --rounds 1 >"$work/first" 2>&1 </dev/null
case $? in
  0) ;;
  77)
    why=$(tail -n 1 "$work/first")
    [ -n "$tiny" ] || { echo "SKIP: first-hour: no GPU (${why#*: })"; exit 77; }
    echo "no GPU (${why#*: }): everything runs on a CPU, as a test of this script"
    device=cpu:0 ;;
  *)
    echo "first-hour: $root/bench/bench_latency does not run here; its last lines:" >&2
    tail -n 5 "$work/first" >&2
    exit 1 ;;
esac
[ -z "$tiny" ] || check+=(--device "$device")

# ---- results, whole after each step --------------------------------------------------------------
# text: its input as one line, without characters that a string of JSON escapes
text() { paste -sd ';' | tr '\t' ' ' | tr -cd '[:print:]' | tr -d '"\\' | head -c 300; }
machine() {
  local gpu cpu facts=name,driver_version,memory.total,clocks.max.sm,power.limit
  gpu=$(timeout 20 nvidia-smi --query-gpu=$facts --format=csv,noheader 2>/dev/null | text)
  cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1 | text)
  printf '{"gpus": "%s", "processor": "%s", "processors": %d, "kernel": "%s"}' \
    "${gpu:-unknown}" "${cpu:-unknown}" "$(getconf _NPROCESSORS_ONLN)" "$(uname -r | text)"
}
# whole FILE: replaces the file by its input, at once
whole() { cat >"$1.new" && mv "$1.new" "$1"; }
publish() {
  {
    printf '{"format": "starling first hour", "version": 1, "date": "%s", "device": "%s",\n' \
      "$began" "$device"
    printf ' "machine": %s,\n "steps": [\n' "$machine"
    paste -sd , "$work/steps" | sed 's/},{"step"/},\n{"step"/g'
    printf ']}\n'
  } | whole "$out/results.json"
  summary | whole "$out/summary.txt"
  picture "$work/rates" | whole "$out/rates.svg"
}

# Each step is a session: all its processes end with it, also those with a timeout of their own.
end_session() { [ -z "$step_session" ] || pkill -KILL -s "$step_session" 2>/dev/null; }

# step NAME LIMIT COMMAND...: leaves the outcome in $outcome and the output in $log. A step without a
# line like $wants in its output has failed, whatever its status.
wants=''
step() {
  local name=$1 limit=$2 begun=$SECONDS status left=$((end - SECONDS)); shift 2
  count=$((count + 1))
  log=$(printf '%s/%02d-%s.log' "$out" $count "$(echo "$name" | tr -c 'a-zA-Z0-9\n' _)")
  : >"$log"
  if [ $left -lt 3 ]; then
    outcome="left out: the time is over"
  else
    [ $limit -le $left ] || limit=$left
    [ $limit -le "${FIRST_HOUR_LIMIT:-$limit}" ] || limit=$FIRST_HOUR_LIMIT
    setsid timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null &
    step_session=$!
    wait $step_session
    status=$?
    end_session
    case $status in
      0)
        outcome=done
        grep -q -e "$wants" "$log" || outcome="ended without a result" ;;
      77) outcome="skipped: $(tail -n 1 "$log" | text)" ;;
      124 | 137) outcome="did not end within $limit s" ;;
      *) outcome="failed with status $status: $(tail -n 1 "$log" | text)" ;;
    esac
  fi
  case $outcome in done | skipped*) ;; *) failed=1 ;; esac
  printf '{"step": "%s", "outcome": "%s", "seconds": %d, "log": "%s", "lines": [%s]}\n' \
    "$name" "$outcome" $((SECONDS - begun)) "${log##*/}" \
    "$(grep '^{.*}$' "$log" | paste -sd ,)" >>"$work/steps"
  printf '%4d s  %-42s %s\n' $((SECONDS - begun)) "$name" "$outcome"
  publish
}

# rate NETWORK VARIANT [VARIABLE=VALUE...] OPTIONS...: a training; its rate goes to the table
rate() {
  local network=$1 variant=$2; shift 2
  local settings=()
  while [[ ${1:-} == [A-Z]*=* ]]; do settings+=("$1"); shift; done
  wants='"rate_mean":'
  step "$network, $variant" 60 env "${settings[@]}" "$root/bench/bench_train" --only "$network" \
    --devices "$device" --replicas 1 "${short[@]}" "$@"
  [ "$outcome" = done ] || return 1
  sed -n 's/.*"rate_mean": *\([0-9.e+]*\).*"unit": *"\([^"]*\)".*/\1\t\2/p' "$log" | tail -n 1 |
    sed "s/^/$network\t$variant\t/" >>"$work/rates"
  publish
}

# ---- the summary and the picture -----------------------------------------------------------------
summary() {
  echo "Starling's first hour on $machine_text, $began"
  echo
  sed -n 's/^{"step": "\([^"]*\)", "outcome": "\([^"]*\)", "seconds": \([0-9]*\).*/\1\t\2\t\3/p' \
    "$work/steps" | awk -F '\t' '$2 != "done" { printf "%-42s %s\n", $1, $2; bad++ }
      END { printf "%d of %d steps are done\n", NR - bad, NR }'
  local first
  first=$(find "$out" -name '01-*.log')
  [ ! -s "$first" ] || { echo; echo "gpu-check: $(grep -c '^ok' "$first") passed," \
    "$(grep -c '^not ok' "$first") failed"; grep '^not ok' "$first" | head -n 20; }
  echo
  local number='\([0-9.e+-]*\)' word='"\([^"]*\)"'
  sed -n "s/.*\"what\": $word, \"device\": $word.*\"us\": $number.*/\3 us  \1, \2/p" \
    "$out"/*latency*.log 2>/dev/null
  local product="\"peer\": $word.*\"math\": $word, \"tflops\": $number"
  sed -n "s|.*$product.*|\3 TFLOP/s  product, \2, \1|p" "$out"/*product*.log 2>/dev/null
  awk -F '\t' '
    $1 != network {
      printf "\n%-14s %-18s %12s %11s\n", $1, "", $4, "of default"
      network = $1
    }
    $2 == "default" { base[$1] = $3 }
    { printf "%-14s %-18s %12.0f %11.2f\n", "", $2, $3, base[$1] ? $3 / base[$1] : 0 }
  ' "$work/rates"
}

# picture RATES: a bar for each variant, a group for each network; the default is the grey line
picture() {
  awk -F '\t' '
    { network[NR] = $1; variant[NR] = $2; rate[NR] = $3; unit[NR] = $4
      if ($2 == "default") base[$1] = $3
      if (base[$1] && $3 / base[$1] > most) most = $3 / base[$1] }
    END {
      if (most < 1) most = 1
      for (i = 1; i <= NR; i++) groups += network[i] != network[i - 1]
      height = 40 + 18 * NR + 34 * groups
      printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"%d\"", height
      print " font-family=\"sans-serif\" font-size=\"12\">"
      print "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
      print "<text x=\"10\" y=\"20\" font-size=\"14\">Rates of training beside the default</text>"
      y = 34
      for (i = 1; i <= NR; i++) {
        if (network[i] != network[i - 1]) {
          y += 34
          printf "<text x=\"10\" y=\"%d\" font-weight=\"bold\">%s</text>\n", y - 8, network[i]
        }
        share = base[network[i]] ? rate[i] / base[network[i]] : 0
        printf "<text x=\"10\" y=\"%d\">%s</text>\n", y + 11, variant[i]
        printf "<rect x=\"150\" y=\"%d\" width=\"%.1f\" height=\"14\" fill=\"%s\"/>\n", y,
          400 * share / most, variant[i] == "default" ? "#4c78a8" : "#9ecae9"
        printf "<text x=\"%.1f\" y=\"%d\">%.0f %s (%.2f)</text>\n", 156 + 400 * share / most,
          y + 11, rate[i], unit[i], share
        y += 18
      }
      if (NR)
        printf "<path d=\"M%.1f 48V%d\" stroke=\"#888888\"/>\n", 150 + 400 / most, height - 4
      print "</svg>"
    }' "$1"
}

# ---- the steps -----------------------------------------------------------------------------------
began=$(date -u +%Y-%m-%dT%H:%M:%SZ)
machine=$(machine)
gpus=$(timeout 20 nvidia-smi -L 2>/dev/null | grep -c '^GPU')
machine_text=$(echo "$machine" | sed 's/.*"gpus": "\([^"]*\)", "processor": "\([^"]*\)".*/\1, \2/')
wants='^ok '
step "gpu-check" 900 "${check[@]}"
wants='"us":'
step "latency of a task" 60 "$root/bench/bench_latency" --device "$device" "${tasks[@]}"
step "latency of a task, CPU" 60 "$root/bench/bench_latency" --device cpu:0 "${tasks[@]}"
wants='"tflops":'
[ "$device" != cuda:0 ] || step "products" 120 "$root/bench/gpu_peak" "${size[@]}"
for network in ${networks//,/ }; do
  # a network that fails by default costs the others no more time
  rate "$network" "default" --math tf32 || continue
  rate "$network" "f32" --math f32
  rate "$network" "bf16" --math bf16
  rate "$network" "eager" --math tf32 --eager
  rate "$network" "kvstore local" --math tf32 --kvstore local
  rate "$network" "no prefetch" STARPU_PREFETCH=0 --math tf32
  rate "$network" "no pipeline" STARPU_CUDA_PIPELINE=0 --math tf32
  rate "$network" "default again" --math tf32
  [ "$gpus" -lt 2 ] || rate "$network" "two GPUs" --math tf32 --devices cuda:0,cuda:1 --replicas 2
  [ "$device" != cuda:0 ] ||
    step "$network, idle share" 60 "$root/bench/bench_train" --only "$network" --devices "$device" \
      --replicas 1 "${short[@]}" --math tf32 --idle
done
echo
cat "$out/summary.txt"
echo
echo "results: $out/results.json, summary.txt, rates.svg"
exit $failed
