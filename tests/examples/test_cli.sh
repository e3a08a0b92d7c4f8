#!/bin/sh
# The trainers' command line as people mistype it: each mistake gets one clear line, the right exit
# code, and leaves no half-written file behind. Then what must work: files whole after a run, an
# interrupted one, a second one from its weights.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
lenet=${LENET:-examples/lenet} mlp=${MLP:-examples/mlp} lm=${LSTM_LM:-examples/lstm_lm}
work=$(mktemp -d) || exit 1
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"

# refused CODE WORD ARGUMENTS...: exit CODE, one line on the error stream with WORD in it, nothing
# on the standard output
refused() {
  code=$1 word=$2; shift 2
  timeout 60 "$@" >"$work/out" 2>"$work/err"; got=$?
  lines=$(wc -l <"$work/err")
  # getopt adds a line with a hint to an unknown option
  case $word in *"--help"*) most=2 ;; *) most=1 ;; esac
  if [ "$got" = "$code" ] && [ "$lines" -ge 1 ] && [ "$lines" -le "$most" ] &&
    [ ! -s "$work/out" ] && grep -q -e "$word" "$work/err"; then
    ok "${*#"$lenet"}: $(head -n 1 "$work/err" | sed "s|$work/||g; s/#/number/g")"
  else
    not_ok "$* gives exit code $got (not $code), $lines lines"
  fi
}
short="--steps 3 --quiet"

# ---- numbers: zero, negative, absurd, rubbish ----
for option in batch epochs steps replicas microbatches stages; do
  for value in 0 -3 99999999999999999999 12x "" 1.5 " 7" 0x10; do
    refused 2 "--$option '$value'" "$lenet" "--$option=$value"
  done
done
for value in 0 -0.1 1e9 0.1x nan inf "" 0x1p-3; do
  refused 2 "--lr '$value'" "$lenet" "--lr=$value"
done
for value in 1 -0.5 2 nan rubbish; do
  refused 2 "--momentum '$value'" "$lenet" "--momentum=$value"
done
for value in -1 1e9 nan; do
  refused 2 "--weight-decay '$value'" "$lenet" "--weight-decay=$value"
done
for value in -1 nan; do refused 2 "--clip '$value'" "$lenet" "--clip=$value"; done
for value in -1 1e3 18446744073709551616 ""; do
  refused 2 "--seed '$value'" "$lenet" "--seed=$value"
done
refused 2 "10000 samples" "$lenet" --batch 20000
seq 40 | sed 's/.*/&,&/' >"$work/short.csv"
refused 2 "128 samples by default, but.*has only 36; give a smaller --batch" "$mlp" $short \
  --data "$work/short.csv" --target 2 --task regression
if "$mlp" $short --batch 1 >"$work/out" 2>&1; then
  ok "a batch of one sample has one replica by default"
else
  not_ok "a batch of one sample: $(head -n 1 "$work/out")"
fi
refused 2 "more slices" "$lenet" --batch 4 --replicas 3 --microbatches 2
for value in 0,1 -1,2 1,2,3 1 a,b 1, nan,1; do
  refused 2 "split '$value'" "$lenet" --replicas 2 --split "$value"
done
refused 2 "name the devices" "$lenet" --split auto --devices any
refused 2 "leave them out" "$lenet" --split auto --stages 2
refused 2 "leave --split out" "$lenet" --split 2,1 --placement auto
refused 2 "--hidden" "$mlp" --hidden 0
refused 2 "--hidden" "$mlp" --hidden 512,,512
refused 2 "--hidden" "$mlp" --hidden 512,
refused 2 "--hidden" "$mlp" --hidden 99999999999999999999999999999999

# ---- names ----
refused 2 "optimizer" "$lenet" --optimizer sdg
refused 2 "momentum" "$lenet" --optimizer adam --momentum 0.9
refused 2 "schedule" "$lenet" --lr-schedule linear
refused 2 "PERIOD" "$lenet" --lr-schedule step
refused 2 "kvstore" "$lenet" --kvstore remote
for option in timeout=3 timeout=0 net-ports=29000-29999 net-interface=lo exchange=starpu servers=1 \
  compress=fp16; do
  refused 2 "only with --kvstore dist_" "$lenet" "--$option"
done
refused 2 "ports '5-3': write FIRST-LAST" "$lenet" --kvstore dist_sync --net-ports 5-3
refused 2 "network interface 'none'" "$lenet" --kvstore dist_sync --net-interface none
refused 2 "add --log FILE" "$lenet" --log-gradients
refused 2 "init" "$lenet" --init good
refused 2 "use f32, tf32 or bf16" "$lenet" --math fp16
refused 2 "--math '': unknown; use f32, tf32 or bf16" "$lm" --math=
refused 2 "give one" "$lenet" --stages 2 --placement 'conv1=cpu'
refused 2 "at most 6 stages" "$lenet" --stages 7
refused 2 "no rule places fc1, fc2" "$lenet" --placement 'conv1,pool1,conv2,pool2=cpu'
refused 2 "no layer or group 'conv3'" "$lenet" --placement 'conv1,pool1,conv3=cpu'
refused 2 "unknown device" "$lenet" --placement 'conv1-2,pool1-2,fc1-2=gpu'
refused 1 "no-such-file" "$lenet" --placement-file no-such-file
refused 2 "activation" "$lenet" --activation swish
refused 2 "see --help" "$lenet" digits
refused 2 "--help" "$lenet" --unknown
refused 2 "--help" "$lenet" --batch
refused 2 "the ending in small letters, .json" "$lenet" $short --save "$work/m.JSON"
refused 2 "name it .safetensors" "$lenet" $short --save "$work/weights.pt"
refused 1 "is not a regular file and will not be replaced" "$mlp" $short --save /dev/full
refused 2 "save $work/same: log writes this file, too" "$lenet" --log "$work/same" \
  --save "$work/same"
refused 2 "save $work//same: log writes this file, too" "$lenet" --log "$work/./same" \
  --save "$work//same"
refused 2 "--save $work/k.json writes $work/k.json.vocabulary.json, too" "$lm" \
  --save "$work/k.json" --log "$work/k.json.vocabulary.json"
refused 2 "empty" "$lenet" --data=
refused 2 "." "$lenet" $short --devices "gpu"
refused 2 "." "$lenet" $short --devices "cpu,,cpu"
refused 1 "cuda:0" "$lenet" $short --devices cuda:0
refused 1 "cpu:77" "$lenet" $short --devices cpu:77

# ---- data ----
refused 1 "$work/nowhere" "$lenet" $short --data "$work/nowhere"
mkdir "$work/empty"
refused 1 "$work/empty" "$lenet" $short --data "$work/empty"
mkdir "$work/cut"
printf '\000\000\010\003\000\000\000\012\000\000\000\034\000\000\000\034short' \
  >"$work/cut/train-images-idx3-ubyte"
printf '\000\000\010\001\000\000\000\012\001\002\003\004\005\006\007\010\011\001' \
  >"$work/cut/train-labels-idx1-ubyte"
refused 1 "train-images-idx3-ubyte" "$lenet" $short --data "$work/cut"

# ---- weights to load ----
refused 1 "nowhere" "$lenet" $short --load "$work/nowhere"
head -c 100 /dev/zero >"$work/zero.safetensors"
refused 1 "zero.safetensors" "$lenet" $short --load "$work/zero.safetensors"
"$mlp" $short --hidden 16 --save "$work/mlp.safetensors" 2>"$work/err" ||
  not_ok "an MLP's weights could not be saved"
refused 1 "mlp.safetensors" "$lenet" $short --load "$work/mlp.safetensors"
refused 1 "fc1.weight" "$mlp" $short --hidden 17 --load "$work/mlp.safetensors"

# ---- language models ----
small="--quiet --steps 2 --layers 1 --hidden 8 --embed 8"
for option in layers hidden embed bptt chunk words half-life; do
  for value in 0 -3 12x 99999999999999999999; do
    refused 2 "--$option '$value'" "$lm" "--$option=$value"
  done
done
for value in 1 -0.5 nan; do refused 2 "--dropout '$value'" "$lm" "--dropout=$value"; done
refused 2 "level" "$lm" --level sentence
refused 2 "cell" "$lm" --cell rnn
refused 2 "--chunk 11: a window has fewer time steps, --bptt 10" "$lm" $small --bptt 10 --chunk 11
refused 2 "augment" "$lm" $small --augment
refused 2 "give one" "$lm" $small --half-life 2 --lr-schedule cosine
refused 1 "$work/nowhere" "$lm" $small --data "$work/nowhere"
: >"$work/nothing.txt"; refused 1 "nothing.txt" "$lm" $small --data "$work/nothing.txt"
printf 'a\000b c\n' >"$work/binary.txt"
refused 1 "binary.txt" "$lm" $small --data "$work/binary.txt"
echo word >"$work/word.txt"; refused 2 "too few" "$lm" $small --data "$work/word.txt"
head -c 3000 /dev/zero | tr '\000' x >"$work/long.txt"
refused 2 "too few" "$lm" $small --data "$work/long.txt"
refused 2 "validation part: 4 samples do not fill 20 rows" \
  "$lm" $small --data "$work/long.txt" --level char
refused 2 "no rule places" "$lm" $small --placement 'lstm0=cpu'
refused 2 "must rise" "$lm" $small --buckets 8,4
refused 2 "auto:N" "$lm" $small --buckets auto:0
for value in "" 3, x -1 8,8; do refused 2 "--buckets" "$lm" $small --buckets "$value"; done
refused 2 "--long" "$lm" $small --buckets 8 --long cut
refused 2 "belongs to --buckets" "$lm" $small --long drop
refused 2 "give one" "$lm" $small --buckets 8 --bptt 10
refused 2 "nothing is left\|no sentence" \
  "$lm" $small --data "$work/long.txt" --level char --buckets 8 --long drop
refused 2 "must be --hidden" "$lm" --tied --hidden 8 --embed 9
refused 2 "belong to --sample" "$lm" $small --temperature 2
refused 2 "name the trained weights" "$lm" --sample 5
for value in 0 -1 x; do refused 2 "--sample" "$lm" --sample "$value"; done
refused 2 "more slices\|cannot be cut" "$lm" $small --placement auto --batch 2 --microbatches 3
yes 'the cat sat on the mat and it was flat' | head -n 400 >"$work/text.txt"
if "$lm" --data "$work/text.txt" --epochs 8 --bptt 10 --lr 10 --layers 2 --hidden 16 --embed 16 \
  --dropout 0.1 --half-life 4 --stages 2 --chunk 4 \
  --save "$work/lm.weights" >"$work/out" 2>"$work/err" &&
  grep -q "^Vocabulary     11 words" "$work/out" &&
  awk '/^Perplexity/ { found = $2 < 2 } END { exit !found }' "$work/out"; then
  ok "a text of one sentence is learned: $(grep Perplexity "$work/out")"
else
  not_ok "a text of one sentence is not learned: $(tail -n 3 "$work/out" | tr '\n' ' ')"
fi
if "$lm" --quiet --data "$work/text.txt" --steps 2 --bptt 10 --layers 2 --hidden 16 --embed 16 \
  --load "$work/lm.weights" 2>"$work/err"; then
  ok "a language model's weights and vocabulary load again"
else
  not_ok "a language model's weights do not load"
fi
if "$lm" --layers 2 --hidden 16 --embed 16 --load "$work/lm.weights" --sample 12 --temperature 0 \
  >"$work/out" 2>"$work/err" &&
  grep -qE '^the cat sat on the mat and it was flat$' "$work/out"; then
  ok "text is sampled from the weights"
else
  not_ok "sampled: $(head -n 3 "$work/out" | tr '\n' ' ')"
fi
for name in none relu sigmoid gelu gelu_tanh silu; do
  "$lenet" --quiet --steps 2 --activation $name >"$work/out" 2>"$work/err"
  verdict $? "lenet --activation $name"
done
if [ -e /dev/full ]; then
  refused 1 "output cannot be written: No space" sh -c '"$@" >/dev/full' sh \
    "$lm" --layers 2 --hidden 16 --embed 16 --load "$work/lm.weights" --sample 2000
fi
if "$lm" --layers 2 --hidden 16 --embed 16 --load "$work/lm.weights" --sample 4 --temperature 0 \
  --prompt "the cat sat on" >"$work/out" 2>"$work/err" &&
  grep -qE '^the cat sat on the mat and it$' "$work/out"; then
  ok "a prompt is continued"
else
  not_ok "prompt: $(head -n 3 "$work/out" | tr '\n' ' ')"
fi
{
  yes 'a b' | head -n 100
  yes 'a b a b a b a b' | head -n 100
  yes 'b a b a b a b a b a b a b' | head -n 20
} >"$work/lines.txt"
if "$lm" --data "$work/lines.txt" --steps 4 --hidden 8 --embed 8 --tied --buckets 3,9 \
  >"$work/out" 2>"$work/err" &&
  grep -q '^2 buckets: 3 9 tokens; padding .* %; [1-9][0-9]* longer' "$work/out"; then
  ok "lines in buckets: $(grep buckets: "$work/out")"
else
  not_ok "lines in buckets: $(tail -n 3 "$work/out" | tr '\n' ' ')"
fi
if "$lm" --data "$work/lines.txt" --steps 4 --hidden 8 --embed 8 --buckets auto:2 --placement auto \
  --microbatches 2 --chunk 4 >"$work/out" 2>"$work/err" &&
  grep -q 'ms predicted' "$work/out"; then
  ok "buckets, chunks and an automatic placement together"
else
  not_ok "together: $(tail -n 3 "$work/out" | tr '\n' ' ')"
fi
sed 's/"flat",*//; s/,]/]/' "$work/lm.weights.vocabulary.json" >"$work/other.vocabulary.json"
cp "$work/lm.weights" "$work/other"
refused 1 "embed.weight" "$lm" --quiet --steps 2 --bptt 10 --layers 2 --hidden 16 --embed 16 \
  --data "$work/text.txt" --load "$work/other"
refused 2 "level" "$lm" $small --data "$work/text.txt" --level char --load "$work/lm.weights"
echo '{' >"$work/lm.weights.vocabulary.json"
refused 1 "vocabulary.json" "$lm" $small --data "$work/text.txt" --load "$work/lm.weights"
rm "$work/lm.weights.vocabulary.json"
refused 1 "vocabulary.json" "$lm" $small --data "$work/text.txt" --load "$work/lm.weights"

# ---- files to write ----
for option in log save; do
  refused 1 "$work/no/folder" "$lenet" $short "--$option" "$work/no/folder"
  refused 1 "$work/empty" "$lenet" $short "--$option" "$work/empty"
  refused 1 "zero.safetensors/x" "$lenet" $short "--$option" "$work/zero.safetensors/x"
done
[ -e /dev/full ] && refused 1 "/dev/full" "$lenet" $short --log /dev/full

# ---- a bad start leaves older files alone ----
echo old >"$work/old.jsonl"; echo old >"$work/old.safetensors"
refused 1 "cuda:0" \
  "$lenet" $short --devices cuda:0 --log "$work/old.jsonl" --save "$work/old.safetensors"
if [ "$(cat "$work/old.jsonl" "$work/old.safetensors" | tr '\n' ' ')" = "old old " ]; then
  ok "older files are as they were"
else
  not_ok "a bad start has touched older files"
fi

# ---- a loss that is not a number ----
refused 1 "." "$lenet" --quiet --steps 200 --lr 1000 --activation relu --log "$work/nan.jsonl" \
  --save "$work/nan.safetensors"
if grep -qi '": *-*nan' "$work/nan.jsonl"; then
  not_ok "the log holds a NaN"
else
  ok "no NaN in the log"
fi
if [ -e "$work/nan.safetensors" ]; then
  not_ok "lost weights were saved"
else
  ok "lost weights are not saved"
fi

# ---- what must work ----
if "$lenet" --steps 20 --log "$work/a.jsonl" --save "$work/a.safetensors" \
  >"$work/out" 2>"$work/err" && [ ! -s "$work/err" ] &&
  [ "$(grep -c '"step"' "$work/a.jsonl")" = 20 ] &&
  [ "$(grep -c '"test_accuracy"' "$work/a.jsonl")" = 1 ] &&
  grep -q "Test accuracy" "$work/out" && ! grep -q "$(printf '\r')" "$work/out"; then
  ok "20 steps: 20 lines and an evaluation in the log, plain lines in a pipe"
else
  not_ok "20 steps do not give 20 lines and an evaluation"
fi
if "$lenet" --steps 3 --load "$work/a.safetensors" --kvstore device --summary \
  >"$work/out" 2>"$work/err" && grep -q conv2 "$work/out"; then
  ok "the weights load again; --summary shows the layers"
else
  not_ok "saved weights do not load"
fi
if "$lenet" --steps 3 --quiet >"$work/out" 2>"$work/err" && [ ! -s "$work/out" ] &&
  [ ! -s "$work/err" ]; then
  ok "--quiet says nothing"
else
  not_ok "--quiet says something"
fi
if "$lenet" --help >"$work/out" 2>"$work/err" && grep -q -e --microbatches "$work/out" &&
  "$mlp" --version >"$work/out" && grep -q Starling "$work/out"; then
  ok "--help and --version"
else
  not_ok "--help or --version fails"
fi

for signal in INT TERM; do
  "$lenet" --epochs 1000 --quiet --log "$work/b.jsonl" --save "$work/b.safetensors" \
    >"$work/out" 2>"$work/err" &
  pid=$!
  for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3; [ -s "$work/b.jsonl" ] && break; done
  kill -"$signal" "$pid"
  for i in $(seq 300); do # no hang, even under a slow sanitizer
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -0 "$pid" 2>/dev/null && kill -KILL "$pid"
  wait "$pid" 2>/dev/null; got=$?
  if [ "$got" -gt 128 ] && [ "$got" != 137 ] &&
    "$lenet" $short --load "$work/b.safetensors" 2>"$work/err"; then
    ok "SIG$signal: weights saved, ended by the signal"
  else
    not_ok "SIG$signal: exit code $got, or no whole weights"
  fi
  rm -f "$work/b.jsonl" "$work/b.safetensors"
done

set -- "$work"/*.safetensors.* "$work"/*.jsonl.*
if [ -e "$1" ]; then not_ok "left behind: $*"; else ok "no file is left half-written"; fi
echo "1..$n"
exit $failed
