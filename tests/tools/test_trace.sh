#!/bin/sh
# --trace: the requested steps are recorded whole, drawn, and counted: a device's shares add up to
# the time that the trainer measured itself. The run's bits do not change; damaged traces get one
# line.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
shown="out err"
lenet=${LENET:-examples/lenet} mlp=${MLP:-examples/mlp} lm=${LSTM_LM:-examples/lstm_lm}
trace=${TRACE:-tools/starling-trace}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# the font library behind cairo keeps its memory
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
export STARPU_NCPU=2 STARPU_NCUDA=0 STARPU_WORKERS_NOBIND=1
check() { what=$1; shift; if "$@" >"$work/checked" 2>&1; then ok "$what"; else not_ok "$what"; fi; }
run() { "$@" >"$work/out" 2>"$work/err"; }

if ! run "$mlp" --steps 1 --trace "$work/first" && grep -q 'without FxT' "$work/err"; then
  [ "$(wc -l <"$work/err")" = 1 ] || {
    echo "1..1"
    echo "not ok 1 - more than a line without FxT"
    exit 1
  }
  skip_all "StarPU without FxT: no trace was recorded"
fi

# adds_up JSON DEVICES: window and wall time are alike within 2 %, and so is each device's sum
adds_up() {
  awk -v wanted="$2" '
    function off(a, b) { return a > 1.02 * b || a < 0.98 * b }
    { gsub(",", "") }
    /"wall_ms"/ { wall = $2 }
    /"window_ms"/ { window = $2 }
    /"(busy|transfer|overhead|idle)_ms"/ {
      sum += $2
      if (++parts == 4) { bad += off(sum, wall); devices++; sum = parts = 0 }
    }
    END {
      print window, wall, devices, bad
      exit !(wall > 0 && devices == wanted && !bad && !off(window, wall))
    }' "$1"
}
# recorded PROGRAM...: a trace into $work/t that adds up. The two clocks are not read at the same
# time, so a busy machine has several tries.
recorded() {
  for try in 1 2 3 4 5; do
    rm -rf "$work/t"
    run "$@" --trace "$work/t" || return 1
    adds_up "$work/t/trace.json" 2 >"$work/checked" && return 0
  done
  cp "$work/checked" "$work/out"
  return 1
}
has() { grep -qE -e "$2" "$work/t/$1"; }
lacks() { ! has "$@"; }
steps_are() { tr -d ' \n' <"$work/t/trace.json" | grep -qF "\"steps\":[$1,$2]"; }

# ---- the recorded tasks ----
if recorded "$lenet" --steps 24 --save "$work/traced.safetensors"; then
  ok "lenet: times add up to the wall time, within 2 %"
else
  not_ok "lenet: $(cat "$work/checked")"
fi
check "the trainer names the files" \
  grep -q "^Trace .*$work/t/trace.svg, .*trace.txt, .*trace.json" "$work/out"
check "steps 11 to 20 by default" steps_are 11 20
check "tasks have their step: the first" has tasks.rec '^Iteration: 11$'
check "the last" has tasks.rec '^Iteration: 20$'
check "and no other" lacks tasks.rec '^Iteration: (10|21)$'
check "layer, pass and replica" has tasks.rec '^Name: conv2.backward_weight/r1$'
check "an update belongs to no replica" has tasks.rec '^Name: conv1\.sgd$'
check "each is counted for its layer" has trace.json '"name": "conv1",'
check "a convolution and the pooling behind it alternate in one task" \
  has trace.json '"name": "conv1..pool1",'
check "each task name has its own colour" \
  has paje.trace '^6[[:space:]]"conv1..pool1.forward/r0"[[:space:]]WS.*"0\.[0-9]+ 0\.[0-9]+ 0\.[0-9]+"'
check "as Paje has them, from 0 to 1" lacks paje.trace '^6.*"[0-9]*[2-9][0-9]*\.[0-9.]+ '
check "the picture is whole" has trace.svg '</svg>'
check "it has both workers" has trace.svg '>CPU 1<'
check "the steps" has trace.svg '>step 11<'
check "the layers" has trace.svg '>conv2<'
check "and its place is shown" has trace.svg '>RAM<'
check "every point is a number" lacks trace.svg 'nan|inf'
check "the roof was measured" has trace.txt '^roof: [0-9.]+ GFLOP/s'
check "a critical path" has trace.txt '^critical path  [0-9.]+ ms, [0-9.]+ % of the window'
check "at most as long as the window" \
  awk '/^critical path/ { exit !($5 > 0 && $5 <= 100) }' "$work/t/trace.txt"
check "ten longest tasks" \
  awk '/^longest tasks/ { seen = NR } seen && NR > seen { rows++ } END { exit rows != 10 }' \
  "$work/t/trace.txt"
if command -v python3 >/dev/null; then
  check "the JSON is JSON" python3 -c "import json; json.load(open('$work/t/trace.json'))"
else
  ok "JSON # SKIP no python3"
fi
run "$lenet" --steps 24 --save "$work/plain.safetensors"
check "the weights are the same to the bit" cmp "$work/traced.safetensors" "$work/plain.safetensors"

if recorded "$lm" --layers 2 --hidden 32 --embed 32 --steps 6 --stages 2 --microbatches 4 \
  --trace-steps 3-5; then
  ok "lstm_lm: a pipeline's times add up"
else
  not_ok "lstm_lm: $(cat "$work/checked")"
fi
check "the requested steps" steps_are 3 5
check "stage and microbatch" has tasks.rec '^Name: lstm0.forward/s0/m3$'
check "the other stage" has tasks.rec '^Name: decoder.forward/s1/m0$'
check "the picture shows a worker's stage" has trace.svg '>stage 1, '
check "the theory of pipelines" has trace.txt '^theory  20.0 %'

# four steps an epoch: an evaluation lies within the window, and is left out
if recorded "$mlp" --batch 1500 --steps 8 --trace-steps 3-6; then
  ok "mlp: times add up over an epoch's end"
else
  not_ok "mlp: $(cat "$work/checked")"
fi
check "its evaluation is no step's" lacks tasks.rec '^Model: sl_accuracy'
check "steps of both epochs are there" has tasks.rec '^Iteration: 5$'
check "a run shorter than the window" run "$mlp" --steps 5 --trace "$work/t"
check "all its steps" steps_are 1 5

"$mlp" --steps 100000000 --trace "$work/t" --trace-steps 1-100000000 --log "$work/log" \
  >"$work/out" 2>"$work/err" &
pid=$!
tries=0
until [ "$(grep -c step "$work/log" 2>/dev/null)" -gt 3 ] 2>/dev/null || [ $tries -gt 300 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
kill -INT $pid
wait $pid
check "an interrupted run draws its steps" has trace.txt '^window .* steps 1-[0-9]+:'

# refused CODE TEXT COMMAND...
refused() {
  code=$1 text=$2; shift 2
  timeout 60 "$@" >"$work/out" 2>"$work/err"; got=$?
  if [ "$got" = "$code" ] && [ "$(wc -l <"$work/err")" = 1 ] &&
    grep -qF -e "$text" "$work/err"; then
    ok "$(sed "s|$work/||g" "$work/err")"
  else
    not_ok "$*: exit code $got, not $code"
  fi
}
refused 2 'this run has steps 1 to 20' "$mlp" --steps 20 --trace "$work/t2" --trace-steps 30-40
: >"$work/file"
refused 1 'Not a directory' "$mlp" --steps 20 --trace "$work/file"
refused 1 'No such file' "$mlp" --steps 20 --trace "$work/no/such"

# ---- damaged ones ----
raw=$(ls "$work"/t/prof_file_* | head -n 1)
# damaged NAME: a folder like a trainer's, without StarPU's trace
damaged() { rm -rf "$work/$1"; mkdir "$work/$1"; cp "$work/t/trace.window.json" "$work/$1"; }
damaged cut; head -c $(($(wc -c <"$raw") / 2)) "$raw" >"$work/cut/prof_file_x_0"
refused 1 'cut short' "$trace" "$work/cut"
damaged short; head -c 100 "$raw" >"$work/short/prof_file_x_0"
refused 1 'starpu_fxt_tool cannot read it' "$trace" "$work/short"
refused 1 'starpu_fxt_tool cannot read it' "$trace" "$work/short"
damaged noise; head -c 100000 /dev/urandom >"$work/noise/prof_file_x_0"
refused 1 'starpu_fxt_tool cannot read it' "$trace" "$work/noise"
damaged none; refused 1 'has neither prof_file_* nor tasks.rec' "$trace" "$work/none"
damaged later; cp "$work"/t/tasks.rec "$work"/t/paje.trace "$work/later"
sed -i 's/"version": 1/"version": 2/' "$work/later/trace.window.json"
refused 1 'has version 2' "$trace" "$work/later"
echo '{' >"$work/later/trace.window.json"; refused 1 'not JSON' "$trace" "$work/later"
echo '{"format": "x", "version": 1}' >"$work/later/trace.window.json"
refused 1 "is not a trainer's" "$trace" "$work/later"
damaged half
head -n 300 "$work/t/tasks.rec" | head -c -5 >"$work/half/tasks.rec"
cp "$work/t/paje.trace" "$work/half"
refused 1 'cut short' "$trace" "$work/half"
mkdir "$work/foreign"
printf 'Name: other\nModel: foreign\nJobId: 1\nWorkerId: 7\nStartTime: 0\nEndTime: 500\n\n' \
  >"$work/foreign/tasks.rec"
refused 1 'holds no task of Starling' "$trace" "$work/foreign"
# ---- files that starpu_fxt_tool has left cut ----
# tool COMMAND: it is starpu_fxt_tool; $folder is where its files go
mkdir "$work/bin"
tool() {
  { echo '#!/bin/sh'
    echo 'while [ "$1" != -d ]; do shift; done; folder=$2'
    echo "cp $work/t/paje.trace \"\$folder\""
    echo "$1"; } >"$work/bin/starpu_fxt_tool"
  chmod +x "$work/bin/starpu_fxt_tool"
}
fake="env PATH=$work/bin:$PATH $trace"
for broken in "head -c 5000" "head -c 0"; do
  damaged full; cp "$raw" "$work/full/prof_file_x_0"
  tool "$broken $work/t/tasks.rec >\"\$folder/tasks.rec\""
  refused 1 full/tasks.rec $fake "$work/full"
  check "the cut file is removed" [ ! -e "$work/full/tasks.rec" ]
  check "and made again later" sh -c '"$0" "$1" | grep -q ^window' "$trace" "$work/full"
  $broken "$work/t/tasks.rec" >"$work/full/tasks.rec" # as older versions left it
  check "a cut file that is there is made again" \
    sh -c '"$0" "$1" | grep -q ^window' "$trace" "$work/full"
done
check "and the next time it is there" cmp -s "$work/full/tasks.rec" "$work/t/tasks.rec"
: >"$work/full/tasks.rec"; tool ": >\"\$folder/tasks.rec\""
refused 1 'holds no task of Starling' $fake "$work/full"
damaged kept; head -c 100 "$raw" >"$work/kept/prof_file_x_0"
cp "$work/t/tasks.rec" "$work/kept"; head -c 3000 "$work/t/paje.trace" >"$work/kept/paje.trace"
refused 1 kept/paje.trace "$trace" "$work/kept"
check "what cannot be made again stays" cmp -s "$work/kept/tasks.rec" "$work/t/tasks.rec"
rm "$work/kept/paje.trace"; refused 1 'starpu_fxt_tool cannot read it' "$trace" "$work/kept"
check "and nothing beside it" sh -c \
  'cmp -s "$1/kept/tasks.rec" "$1/t/tasks.rec" && ! ls "$1/kept" | grep -q old' sh "$work"
mkdir "$work/disk"
if mount -t tmpfs -o size=30m none "$work/disk" 2>/dev/null; then
  cp "$work/t/trace.window.json" "$raw" "$work/disk"
  head -c 100000000 /dev/zero >"$work/disk/filled" 2>/dev/null
  truncate -s -20000 "$work/disk/filled"
  refused 1 'there is no space left' "$trace" "$work/disk"
  rm "$work/disk/filled"
  check "when there is space, it is made again" \
    sh -c '"$0" "$1" | grep -q ^window' "$trace" "$work/disk"
  # of an output that does not fit, the older file stays
  echo old | tee "$work/disk/t.json" >"$work/disk/trace.txt"
  "$trace" --json "$work/numbers.json" "$work/disk" >"$work/text"
  head -c 100000000 /dev/zero >"$work/disk/filled" 2>/dev/null
  refused 1 't.json: cannot be written: No space' "$trace" --json "$work/disk/t.json" "$work/t"
  refused 1 'trace.txt: cannot be written: No space' "$trace" --draw "$work/disk"
  check "the older files stay" [ "$(cat "$work/disk/t.json" "$work/disk/trace.txt")" = "old
old" ]
  check "and nothing beside them" \
    [ -z "$(find "$work/disk" -name 't.json?*' -o -name 'trace.txt?*')" ]
  umount "$work/disk"
else
  skip "a full disk" "no file system can be mounted"
fi

# ---- a folder that may not be written ----
plain="setpriv --bounding-set=-dac_override,-dac_read_search"
[ "$(id -u)" != 0 ] && plain=
mkdir "$work/tmp"
damaged read; cp "$raw" "$work/read/prof_file_x_0"; chmod 555 "$work/read"
if [ "$(id -u)" = 0 ] && ! $plain true 2>/dev/null; then
  skip "a folder that may not be written" "root without setpriv"
else
  check "a folder that may not be written" \
    sh -c 'TMPDIR="$1" $2 "$0" "$3" | grep -q "^window"' "$trace" "$work/tmp" "$plain" "$work/read"
  check "its files went elsewhere, and are gone" [ -z "$(ls "$work/tmp")" ]
fi
chmod 755 "$work/read"

# interrupted SIGNAL CODE ARGUMENTS...: while starpu_fxt_tool works, which writes its process's id
interrupted() {
  rm -f "$work/id"; kind=$1 code=$2; shift 2
  env "TMPDIR=$work/tmp" "PATH=$work/bin:$PATH" "$trace" "$@" >"$work/out" 2>"$work/err" & pid=$!
  tries=0
  until [ -s "$work/id" ] || [ $tries -gt 300 ]; do sleep 0.1; tries=$((tries + 1)); done
  kill -"$kind" $pid
  wait $pid; got=$?
  check "SIG$kind ends it" [ $got = "$code" ]
  check "and starpu_fxt_tool" sh -c '! kill -0 "$(cat "$1")" 2>/dev/null' sh "$work/id"
  check "without a message" [ ! -s "$work/err" ]
  check "and leaves no folder" [ -z "$(ls "$work/tmp")" ]
}
tool ": >\"\$folder/tasks.rec\"; echo \$\$ >$work/id; exec sleep 100"
interrupted TERM 143 "$raw" -o "$work/none.svg"
check "and no picture" [ ! -e "$work/none.svg" ]
if { sh -c 'kill -HUP $$'; } 2>/dev/null; then
  skip "SIGHUP" "it is ignored, as under nohup"
else
  interrupted HUP 129 "$raw"
fi
damaged kept; cp "$raw" "$work/kept/prof_file_x_0"; cp "$work/t/tasks.rec" "$work/kept"
touch -d '1 hour ago' "$work/kept/tasks.rec"
interrupted TERM 143 "$work/kept"
check "what was there before stays" cmp -s "$work/kept/tasks.rec" "$work/t/tasks.rec"
check "and what is cut is removed" [ ! -e "$work/kept/paje.trace" ]
echo before >"$work/kept/paje.trace"
interrupted TERM 143 "$work/kept"
check "both files stay" [ "$(cat "$work/kept/paje.trace")" = before ]

mkdir "$work/ranks" "$work/ranks/rank0"; refused 1 'a folder for each rank' "$trace" "$work/ranks"
refused 2 'no trace is named' "$trace"
refused 2 'tasks.rec: would overwrite' "$trace" --json "$work/t/tasks.rec" "$work/t/tasks.rec"
refused 2 'a trace has a file of this name' "$trace" --json "$work/t/tasks.rec" "$work/t"
refused 2 '--peak' "$trace" --peak fast "$work/t"

# ---- whole traces, once more ----
check "StarPU's own file alone will do" \
  sh -c '"$0" "$1" -o "$2" | grep -q "^window"' "$trace" "$raw" "$work/again.svg"
check "numbers as JSON on request" sh -c \
  '"$0" --json "$2" "$1" >/dev/null && grep -q roofline_share "$2"' \
  "$trace" "$work/t" "$work/numbers.json"
check "numbers as JSON into a pipe" sh -c \
  '"$0" --json /dev/fd/3 "$1" 3>&1 >/dev/null | grep -q roofline_share' "$trace" "$work/t"
check "into a file that is open: from its position on" sh -c \
  '{ echo first >&3; "$0" --json /dev/fd/3 "$1" >/dev/null && echo last >&3; } 3>"$2" &&
    [ "$(sed -n "1p;\$p" "$2")" = "first
}last" ] && grep -q roofline_share "$2"' "$trace" "$work/t" "$work/open.json"
check "into the standard output: behind what was printed before" sh -c \
  '"$0" --json /dev/fd/1 "$1" >"$2" && grep -q ^window "$2" && grep -q roofline_share "$2"' \
  "$trace" "$work/t" "$work/both"
echo old >"$work/named.json"; ln -sf named.json "$work/link.json"
check "through a symbolic link, which stays one" sh -c \
  '"$0" --json "$2/link.json" "$1" >/dev/null && [ -L "$2/link.json" ] &&
    grep -q roofline_share "$2/named.json"' "$trace" "$work/t" "$work"
check "a roof that the user gives" sh -c \
  '"$0" --peak 10 --bandwidth 5 "$1" | grep -q "^roof: 10.0 GFLOP/s, one CPU core; 5.0 GB/s"' \
  "$trace" "$work/t"
if [ -e /dev/full ]; then
  refused 1 'the output cannot be written: No space' \
    sh -c '"$0" "$1" >/dev/full' "$trace" "$work/t"
fi
# half of its time, however long a busy machine took for it
half=$("$trace" "$work/t" | awk '$1 == "window" { print int($2 / 2) }')
check "part of it" \
  sh -c '"$0" --from 1 --to "$2" "$1" | grep -q "^window"' "$trace" "$work/t" "$half"

echo "1..$n"
exit $failed
