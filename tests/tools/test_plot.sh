#!/bin/sh
# starling-plot: pictures of good logs are whole and show the curves; messages about damaged logs
# name the line.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
plot=${PLOT:-tools/starling-plot}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# the font library behind cairo keeps its memory
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
check() {
  what=$1; shift
  if "$@" >"$work/out" 2>"$work/err"; then ok "$what"; else not_ok "$what"; fi
}

# refused CODE TEXT ARGUMENTS...: exit CODE, one line with TEXT in it, no picture
refused() {
  code=$1 text=$2; shift 2
  "$plot" -o "$work/refused.svg" "$@" >"$work/out" 2>"$work/err"; got=$?
  if [ "$got" = "$code" ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -qF -e "$text" "$work/err" &&
    [ ! -e "$work/refused.svg" ]; then
    ok "$(sed "s|$work/||g" "$work/err")"
  else
    not_ok "$*: exit code $got, not $code"
  fi
}

awk 'BEGIN {
  for (i = 0; i < 300; i++) {
    epoch = i / 100 + 1
    loss = 2.3 * exp(-i / 80)
    printf "{\"step\": %d, \"epoch\": %d, \"loss\": %.6f, ", i, epoch, loss + 0.05
    printf "\"lr\": 0.1, \"samples_per_s\": 9000}\n"
    if (i % 100 == 99) {
      printf "{\"epoch\": %d, \"test_loss\": %.6f, ", epoch, loss + 0.07
      printf "\"test_accuracy\": %.4f}\n", 1 - 0.5 * exp(-i / 80)
    }
  }
}' >"$work/good.jsonl"
grep step "$work/good.jsonl" >"$work/a<b&c.jsonl"
head -n 1 "$work/good.jsonl" >"$work/one.jsonl"

check "one run" "$plot" -o "$work/one.svg" "$work/good.jsonl"
check "its picture is whole" grep -q '</svg>' "$work/one.svg"
check "it shows the test accuracy" grep -q 'test accuracy' "$work/one.svg"
check "several runs, one without evaluations" "$plot" --title "A & B" --log-scale --smooth 5 \
  -o "$work/two.svg" "$work/good.jsonl" "$work/a<b&c.jsonl"
check "names are escaped" grep -qF 'a&lt;b&amp;c' "$work/two.svg"
check "the title is there" grep -qF 'A &amp; B' "$work/two.svg"
for accuracy in 0 1; do
  sed "s/\"test_accuracy\": [0-9.]*/\"test_accuracy\": $accuracy/" "$work/good.jsonl" \
    >"$work/all$accuracy.jsonl"
  check "test accuracy $accuracy throughout" \
    "$plot" -o "$work/all$accuracy.svg" "$work/all$accuracy.jsonl"
done
cat >"$work/odd.jsonl" <<'EOF'
{"step": 0, "epoch": 1, "loss": 1e308, "lr": 1e-320, "samples_per_s": 1e308}
{"step": 1, "epoch": 1, "loss": -5, "lr": 0, "samples_per_s": -1}
{"step": 999999999999, "epoch": 1, "loss": 1e-310, "lr": 1e-300, "samples_per_s": 0}
EOF
check "numbers that no training has" "$plot" -o "$work/odd.svg" "$work/odd.jsonl"
check "nor on a logarithmic axis" "$plot" --log-scale -o "$work/odd-log.svg" "$work/odd.jsonl"
check "a single step" "$plot" -o "$work/step.svg" "$work/one.jsonl"
if grep -qE 'nan|inf' "$work"/*.svg; then
  not_ok "a picture holds a point at infinity"
else
  ok "every point is a number"
fi
awk 'BEGIN {
  for (i = 0; i < 100000; i++)
    printf "{\"step\": %d, \"epoch\": 1, \"loss\": %.6f}\n", i, (i * 7919 % 1000) / 1000
}' >"$work/long.jsonl"
check "100,000 steps" "$plot" -o "$work/long.svg" "$work/long.jsonl"
if [ "$(wc -c <"$work/long.svg")" -lt 100000 ]; then
  ok "are drawn in less than 100 kB"
else
  not_ok "are drawn in $(wc -c <"$work/long.svg") bytes"
fi
if "$plot" -o "$work/one.png" "$work/good.jsonl" 2>"$work/err"; then
  check "PNG" grep -q PNG "$work/one.png"
elif grep -q cairo "$work/err"; then
  ok "PNG # SKIP this build has no cairo"; ok "PNG's bytes # SKIP"
else
  not_ok "PNG"
fi

# ---- the x axis, and the legend above the grid ----
# ticks SVG: the texts below the first panel's grid, which all have one height
ticks() {
  sed -n 's|.* y="\([0-9.]*\)" text-anchor="middle".*>\([^<]*\)</text>|\1 \2|p' "$1" |
    awk 'NR == 1 { y = $1 } $1 == y { printf "%s ", $2 }'
}
timed() {
  sed 's/9000}/9000, "seconds": 1}/' |
    awk '/seconds/ { t += 0.25; sub(/"seconds": 1/, "\"seconds\": " t) } 1'
}
timed <"$work/good.jsonl" >"$work/timed.jsonl"
# later: 300 more steps, numbered from 300
later='s/"step": /"step": 3/
s/"step": 3\([0-9]\),/"step": 30\1,/
s/"step": 3\([0-9][0-9]\),/"step": 3\1,/'
{
  echo '{"format": "starling log", "version": 1}'
  cat "$work/timed.jsonl"
  echo '{"format": "starling log", "version": 1}'
  sed "$later" "$work/timed.jsonl" | head -n 100
} >"$work/resumed.jsonl"
for pair in "steps:0 50 100 150 200 250 300" "epochs:0 0.5 1 1.5 2 2.5 3" \
  "seconds:0 10 20 30 40 50 60 70"; do
  unit=${pair%%:*}
  check "the x axis in $unit" "$plot" --x "$unit" -o "$work/$unit.svg" "$work/timed.jsonl"
  [ "$(ticks "$work/$unit.svg")" = "${pair#*:} " ]; got=$?
  if [ $got -eq 0 ]; then
    ok "has ticks ${pair#*:}"
  else
    echo "ticks: $(ticks "$work/$unit.svg")" >"$work/err"
    not_ok "has ticks ${pair#*:}"
  fi
  check "and its unit's name" grep -q ">${unit%s}s*</text>" "$work/$unit.svg"
done
check "the times of a run and of its resumption add up" \
  "$plot" --x seconds -o "$work/resumed.svg" "$work/resumed.jsonl"
case $(ticks "$work/resumed.svg") in
  *" 100 ") ok "up to 100 s" ;;
  *)
    ticks "$work/resumed.svg" >"$work/err"
    not_ok "up to 100 s"
    ;;
esac
refused 1 'good.jsonl: has no seconds of its steps' \
  --x seconds "$work/timed.jsonl" "$work/good.jsonl"
sed 's/"epoch": 3, "loss"/"loss"/' "$work/good.jsonl" >"$work/no-epochs.jsonl"
refused 1 'no-epochs.jsonl: has no epochs of its steps' --x epochs "$work/no-epochs.jsonl"
refused 2 '--x' --x hours "$work/good.jsonl"
# a name that is longer than a row ends in dots, behind a whole character
name=$(printf 'é%.0s' 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0)
cp "$work/good.jsonl" "$work/$name$name.jsonl"
for width in 600 606 612 618; do
  "$plot" -o "$work/cut.svg" --width $width "$work/$name$name.jsonl" "$work/good.jsonl"
  check "at a width of $width" grep -q '>é*\.\.\.<' "$work/cut.svg"
  check "and it is UTF-8" iconv -f UTF-8 -t UTF-16 "$work/cut.svg"
done

# the legend's texts are above all grid lines, also in several rows
cp "$work/good.jsonl" "$work/one of four runs, with a long name.jsonl"
"$plot" -o "$work/legend.svg" "$work/good.jsonl" "$work/timed.jsonl" "$work/a<b&c.jsonl" \
  "$work/one of four runs, with a long name.jsonl"
lowest=$(sed -n 's|.* y="\([0-9.]*\)" text-anchor="start" font-size="12".*|\1|p' \
  "$work/legend.svg" | sort -n | tail -n 1)
grid=$(sed -n 's|.*stroke="#dddddd".* points="[0-9.]*,\([0-9.]*\) .*|\1|p' \
  "$work/legend.svg" | sort -n | head -n 1)
check "the legend is above the grid ($lowest above $grid)" \
  awk -v l="$lowest" -v g="$grid" 'BEGIN { exit !(l > 30 && g > l) }'

{ head -n 7 "$work/good.jsonl"; echo '{"step": 7, "epo'; } >"$work/cut.jsonl"
refused 1 "cut.jsonl:8: not JSON" "$work/cut.jsonl"
: >"$work/empty.jsonl"; refused 1 "empty.jsonl: holds no training step" "$work/empty.jsonl"
echo '[1]' >"$work/list.jsonl"; refused 1 "list.jsonl:1: not a JSON object" "$work/list.jsonl"
echo '{"name": 1}' >"$work/other.jsonl"
refused 1 'other.jsonl: holds no training step' "$work/other.jsonl"
echo '{"epoch": 1, "test_accuracy": 1}' >"$work/half.jsonl"
refused 1 'half.jsonl:1: has no "test_loss"' "$work/half.jsonl"
echo '{"step": 0}' >"$work/bare.jsonl"; refused 1 'bare.jsonl:1: has no "loss"' "$work/bare.jsonl"
echo '{"step": 0, "loss": "x"}' >"$work/word.jsonl"
refused 1 'word.jsonl:1: "loss" is not a number' "$work/word.jsonl"
echo '{"step": 0, "loss": NaN}' >"$work/nan.jsonl"
refused 1 'nan.jsonl:1: not JSON' "$work/nan.jsonl"
cat "$work/one.jsonl" "$work/one.jsonl" >"$work/twice.jsonl"
refused 1 'twice.jsonl:2: the step is not after' "$work/twice.jsonl"
echo '{"epoch": 1, "test_loss": 1, "test_accuracy": 50}' >"$work/percent.jsonl"
refused 1 'percent.jsonl:1:' "$work/percent.jsonl"
# lines about the run and of kinds to come are skipped; a newer version is refused
run='"format": "starling log", "version"'
{
  echo "{$run: 1, \"options\": {\"lr\": 0.1}}"
  echo '{"step": 1, "checkpoint": "x"}'
  cat "$work/good.jsonl"
  echo '{"end": "done"}'
  echo '{"new": 1}'
} >"$work/head.jsonl"
check "a log with a line about the run" "$plot" -o "$work/head.svg" "$work/head.jsonl"
sed 's/head</good</' "$work/head.svg" >"$work/named.svg"
check "gives the same picture" cmp "$work/one.svg" "$work/named.svg"
{
  printf '{%s: 2, "producer": "Starling 9\\u0001.0"}\n' "$run"
  cat "$work/good.jsonl"
} >"$work/newer.jsonl"
refused 1 'newer.jsonl:1: the log is of version 2 (by Starling 9?.0), this program (Starling ' \
  "$work/newer.jsonl"
sed "1s/.*/{$run: \"x\"}/" "$work/newer.jsonl" >"$work/no-version.jsonl"
refused 1 'no-version.jsonl:1: "version" is not' "$work/no-version.jsonl"
sed '1s/.*/{"format": "other"}/' "$work/newer.jsonl" >"$work/foreign.jsonl"
refused 1 'foreign.jsonl:1: "format" is not' "$work/foreign.jsonl"
head -c 3000 /dev/urandom >"$work/noise.jsonl"
refused 1 'noise.jsonl:1: not JSON' "$work/noise.jsonl"
refused 1 "nowhere: cannot be opened" "$work/good.jsonl" "$work/nowhere"
refused 1 "cannot be read" "$work"
refused 2 "no log is named"
refused 2 "--width" --width 12x "$work/good.jsonl"
refused 2 "--smooth" --smooth 0 "$work/good.jsonl"
refused 2 "must end in" -o "$work/x.jpg" "$work/good.jsonl"
refused 1 "cannot be written" -o "$work/no/x.svg" "$work/good.jsonl"
set -- "$work"/*.svg.*
if [ -e "$1" ]; then not_ok "left behind: $*"; else ok "no file is left half-written"; fi
# ---- starling-trace ----
trace=${TRACE:-tools/starling-trace}
task() { printf 'Name: %s\nModel: sl_%s\nWorkerId: %s\nStartTime: %s\nEndTime: %s\n\n' "$@"; }
{
  printf 'Name: _starpu_data_acquire_post\nJobId: 1\nSubmitTime: 1.5\n\n'
  task 'a<b' dense_forward 0 100 106
  task fc2 dense_backward_data 1 105 110
  task 'a<b' sgd 0 106 110
  printf 'Name: other\nModel: foreign\nWorkerId: 7\nStartTime: 0\nEndTime: 500\n'
} >"$work/tasks.rec"
traced() {
  what=$1 want=$2; shift 2
  "$trace" "$@" >"$work/out" 2>"$work/err"
  if grep -q -e "$want" "$work/out"; then
    ok "$what"
  else
    not_ok "$what: $(tr '\n' ';' <"$work/out")"
  fi
}
traced "the window is that of Starling's tasks" '^window  10.000 ms, 3 tasks' "$work/tasks.rec"
traced "a busy worker" '^worker 0 .* 2 tasks .* 100.0 %' "$work/tasks.rec"
traced "a waiting worker" '^worker 1 .* 1 tasks .* 50.0 %' "$work/tasks.rec"
traced "the bubble" '^bubble  25.0 % of 2 workers' "$work/tasks.rec"
traced "work at once" '^overlap 50.0 %' "$work/tasks.rec"
traced "where layers ran" '^worker 1 .* %  fc2$' "$work/tasks.rec"
traced "the theory" '^theory  15.8 %' --stages 4 --microbatches 16 "$work/tasks.rec"
traced "a part of it" '^window  6.000 ms, 1 tasks' --to 6 "$work/tasks.rec"
check "a picture of the tasks" "$trace" -o "$work/tasks.svg" "$work/tasks.rec"
check "its names are escaped" grep -q 'a&lt;b' "$work/tasks.svg"
# A CPU and a GPU, recorded for 10 ms. conv1 runs first; its output takes 2 ms over the GPU's bus to
# fc1 on the GPU. fc1 waits for one of StarPU's own tasks, which waits for conv1. Meanwhile fc2 runs
# on the CPU.
mkdir "$work/gpu"
record() {
  format='Name: %s\nModel: sl_%s\nJobId: %s\nDependsOn: %s\nWorkerId: %s\nStartTime: %s\n'
  format=$format'EndTime: %s\nGFlop: %s\nIteration: %s\nModes: R S\nSizes: 2000000 9\n'
  # shellcheck disable=SC2059
  printf "${format}MPIRank: -1\n\n" "$@"
}
{
  record conv1.forward/r0 conv2d_forward 1 0 0 100 104 0.04 7
  printf 'Name: _starpu_data_acquire\nJobId: 2\nDependsOn: 1\nMPIRank: -1\nEndDependencies: 9 \n'
  record fc1.backward_weight/r1 dense_backward_weight 3 2 1 105 109 4 7
  record fc2.forward dense_forward 4 '' 0 105 110 0 8
} >"$work/gpu/tasks.rec"
container() { printf '7\t1\t%s\t%s\t%s\t%s\n' "$@"; }
state() { printf '10\t%s\t%s\tWS\t"%s"\n' "$@"; }
{
  echo '%EventDef PajeCreateContainer 7'
  container mn0 Mn p MEMNODE0
  container mn1 Mn p MEMNODE1
  container t5 T mn0 T0
  container w0 W t5 CPU0
  container t6 T mn1 T1
  container w1 W t6 CUDA0_0
  state 50 w0 B
  state 50 w1 B
  printf '9\t100\tprog_event\tp\t"start_profiling"\n'
  state 100 w0 conv1.forward/r0
  state 104 w0 Fi
  printf '24\t104\tF\tp\t2000000\tmm0\tcom_3\tabc\t"x"\t0\t0\n'
  state 104.5 w0 B
  state 105 w0 fc2.forward
  state 105 w1 fc1.backward_weight/r1
  printf '19\t106\tF\tp\t2000000\tmm1\tcom_3\n'
  state 109 w1 Sl
  state 110 w0 B
  printf '9\t110\tprog_event\tp\t"stop_profiling"\n'
} >"$work/gpu/paje.trace"
traced "the window is the recorded time" '^window  10.000 ms, 3 tasks' "$work/gpu"
traced "a device's time: the CPU's" '^CPU 0  *RAM  *2  *90.0 %  *5.0 %  *5.0 %  *0.0 %' "$work/gpu"
traced "the GPU's, asleep before its first task" \
  "^CUDA 0  *CUDA 0's memory  *1  *40.0 %  *0.0 %  *0.0 %  *60.0 %" "$work/gpu"
traced "the path through StarPU's own tasks" \
  '^critical path  8.000 ms, 80.0 % of the window, 2 tasks: conv1 50.0 %, fc1 50.0 %' "$work/gpu"
traced "transfers, and the share of them beside computation" \
  '^moves   20.0 % of the window: .* in 50.0 % of that time' "$work/gpu"
traced "a layer's backward pass" '^fc1  *0.000  *0.000  *4.000  *0.000  *-  *-' "$work/gpu"
traced "the roof of a core" '^conv1  *4.000  *0.000  *0.000  *0.000  *10.0  *50.0 %' \
  --peak 20 "$work/gpu"
traced "that of its memory: 20 operations a byte, scratch aside" '^conv1 .* 10.0  *100.0 %' \
  --peak 20 --bandwidth 0.5 "$work/gpu"
traced "the longest first" '^fc2.forward  *CPU 0  *8  *5.000  *5.000' "$work/gpu"
check "a picture with a GPU" "$trace" -o "$work/gpu.svg" "$work/gpu"
check "its memory" grep -q ">CUDA 0.*s memory<" "$work/gpu.svg"
check "and the transfers into it" grep -q '>transfers in<' "$work/gpu.svg"
chmod 600 "$work/gpu.svg"
"$trace" -o "$work/gpu.svg" "$work/gpu" >"$work/out" 2>"$work/err"
check "a picture that is drawn again keeps its mode" \
  test "$(stat -c %a "$work/gpu.svg")" = 600
plot=$trace
refused 1 "nowhere.rec" "$work/nowhere.rec"
: >"$work/empty.rec"; refused 1 "no task of Starling" "$work/empty.rec"
task fc dense_forward 0 1 soon >"$work/bad.rec"; refused 1 "bad.rec, line 5" "$work/bad.rec"
task fc dense_forward -1 1 2 >"$work/worker.rec"; refused 1 "line 3" "$work/worker.rec"
sed '/stop_profiling/d' "$work/gpu/paje.trace" >"$work/paje" &&
  mv "$work/paje" "$work/gpu/paje.trace"
refused 1 "recording begins but does not end" "$work/gpu"
refused 1 "no task lies between" --from 50 "$work/tasks.rec"
refused 2 "belong together" --stages 4 "$work/tasks.rec"

echo "1..$n"
exit $failed
