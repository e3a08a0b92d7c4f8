#!/bin/bash
# bench/first_hour.sh on a machine of programs that this test writes: a step that hangs ends at its
# time limit and the others go on, results are whole after every step, a machine without a GPU is
# left alone. Where the stand-in for a GPU is built, the real programs run once, with tiny networks.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
shown="said"
hour=${SL_SRCDIR:-.}/bench/first_hour.sh
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root/bin" "$work/root/bench" "$work/root/tests/gpu"
# program NAME: its text comes in
program() { { echo '#!/bin/bash'; cat; } >"$work/root/$1" && chmod +x "$work/root/$1"; }
program tests/gpu/gpu-check.sh <<'PROGRAM'
echo "ok - a"; echo "not ok - the \"second\" \\ check"; exit 1
PROGRAM
program bench/bench_latency <<'PROGRAM'
[ -z "${NO_GPU:-}" ] || { echo "bench_latency: there is no cuda:0" >&2; exit 77; }
echo '{"bench": "latency", "what": "empty tasks, a chain", "device": "cuda:0", "us": 2.5}'
PROGRAM
program bench/gpu_peak <<'PROGRAM'
[ "${1:-}" != inner ] || sleep 300
trap '' TERM; timeout 300 "$0" inner & wait; sleep 300
PROGRAM
program bench/bench_train <<'PROGRAM'
[[ "$*" != *lenet64* ]] || { echo "no memory"; exit 1; }
[[ "$*" != *lenet256* ]] || exit 0
rate=100; [[ "$*" != *--eager* ]] || rate=80; [ "${STARPU_PREFETCH:-}" != 0 ] || rate=50
echo '{"bench": "mlp", "rate": 1, "rate_mean": '$rate', "unit": "samples/s", "ms": 1}'
PROGRAM
program bin/nvidia-smi <<'PROGRAM'
[ "$*" = -L ] && printf 'GPU 0: "A"\nGPU 1: "A"\n' || printf 'The "A"\\, 1, 2\nThe B, 1, 2\n'
PROGRAM
# run OPTIONS...: its status is the script's
run() { PATH=$work/root/bin:$PATH TMPDIR=$work "$hour" --root "$work/root" --out "$work/out" "$@" >"$work/said" 2>&1; }
is_json() {
  command -v python3 >/dev/null || return 0
  python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
steps = d["steps"]
assert d["version"] == 1 and len(steps) == int(sys.argv[2]), len(steps)
assert [s["outcome"] for s in steps if s["step"] == "mlp, eager"] in ([], ["done"])
assert all(isinstance(line, dict) for s in steps for line in s["lines"])' "$@"
}
said() { grep -qE "$1" "$work/said"; }

NO_GPU=1 run
check "without a GPU it says so and ends with 77" test $? = 77
check "and why" said "^SKIP: first-hour: no GPU \(there is no cuda:0\)"

begun=$SECONDS
FIRST_HOUR_LIMIT=2 run --networks lenet64,mlp
check "a step failed: status 1" test $? = 1
check "a program that hangs, ignores signals and has children costs its time limit" \
  test $((SECONDS - begun)) -lt 60
check "it is named" said "products +did not end within 2 s"
check "the steps after it ran" said "mlp, default again +done"
check "a network that does not train is left after its first run" \
  test "$(grep -c 'lenet64.*failed' "$work/out/summary.txt")" = 1
check "results.json is whole" is_json "$work/out/results.json" 15
check "the summary has the checks that failed" \
  grep -q 'not ok - the "second"' "$work/out/summary.txt"
check "a switched-off mechanism is compared with the default" \
  grep -qE 'no prefetch +50 +0\.50' "$work/out/summary.txt"
check "the picture has a bar for each run" \
  test "$(grep -c '<rect x="150"' "$work/out/rates.svg")" = 9
check "the machine is described" grep -qF '"gpus": "The A, 1, 2;The B, 1, 2"' "$work/out/results.json"
check "two GPUs are measured together" said "mlp, two GPUs +done"
check "no child is left" sh -c '! pgrep -f "$1/root/bench" >/dev/null' sh "$work"

FIRST_HOUR_LIMIT=2 run --networks lenet256
check "a program that ends well and prints no result has failed" \
  said "lenet256, default +ended without a result"

# killed in the middle: what is done so far is there, and whole
program bench/gpu_peak <<'PROGRAM'
kill -KILL "$(ps -o ppid= -p $PPID | tr -d ' ')"
PROGRAM
run --networks mlp
check "killed in its fourth step: results.json has three" is_json "$work/out/results.json" 3

if [ -e tests/standin/.libs/libcudart.so ]; then
  mkdir -p "$work/real/tests"
  ln -s "$PWD/bench" "$PWD/examples" "$work/real/"
  ln -s "$PWD/tests/gpu" "$work/real/tests/"
  unset STARPU_NCUDA
  "$hour" --root "$work/real" --out "$work/out" --tiny --minutes 4 --networks mlp \
    >"$work/said" 2>&1
  check "tiny networks on the stand-in: all steps are done" test $? = 0
  check "tasks and products were measured" sh -c \
    'grep -q "us  fill of one number" "$1" && grep -q "TFLOP/s  product" "$1"' sh \
    "$work/out/summary.txt"
  check "results.json is whole" is_json "$work/out/results.json" 13
else
  skip "tiny networks on the stand-in" "this build has none"
fi
echo "1..$n"
exit $failed
