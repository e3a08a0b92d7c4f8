#!/bin/sh
# starling-predict: pictures of every kind get the answers that the trainer's own evaluation gives,
# text those of lstm_lm; the output is JSON, adds up and comes in order; bad input gets one line.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
shown="err said"
predict=${PREDICT:-tools/starling-predict}
files=${FILES:-tests/tools/predict_files}
lenet=${LENET:-examples/lenet}
lm=${LSTM_LM:-examples/lstm_lm}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
: >"$work/said"
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"
check() {
  what=$1; shift
  if "$@" >"$work/checked" 2>"$work/err"; then ok "$what"; else not_ok "$what"; fi
}
has() { if grep -qF -e "$2" "$work/out" "$work/said"; then ok "$1"; else not_ok "$1: no '$2'"; fi; }
# predicted NAME ARGUMENTS...: exit code 0; lines in NAME.jsonl and out, the summary in said
predicted() {
  name=$1; shift
  timeout 300 "$predict" "$@" >"$work/out" 2>"$work/said" || not_ok "$name: exit code $?"
  cp "$work/out" "$work/$name.jsonl"
}
# refused CODE TEXT ARGUMENTS...: one line on the error stream, with TEXT in it
refused() {
  code=$1 text=$2; shift 2
  timeout 300 "$predict" "$@" >"$work/out" 2>"$work/err" </dev/null; got=$?
  if [ $got = "$code" ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -qF -e "$text" "$work/err" &&
    grep -q '^starling-predict: ' "$work/err"; then
    ok "$(sed "s|$work/||g; s|^starling-predict: ||" "$work/err" | cut -c1-150)"
  else
    not_ok "$(echo "$*" | sed "s|$work/||g"): exit code $got, not $code, or no '$text'"
  fi
}
# test_accuracy: the one that the trainer printed, as a fraction
test_accuracy() {
  sed -n 's/^Test accuracy *\([0-9.]*\) %.*/\1/p' "$work/checked" |
    awk '{ printf "%.4f", $1 / 100 }'
}

# ---- digits ----
x=$work/x.json
check "LeNet learns a little" "$lenet" --data digits --seed 1 --steps 60 --batch 50 --save "$x"
accuracy=$(test_accuracy)
check "its file says how its inputs were made" \
  grep -qF '"normalize": {"mean": [0.1307], "deviation": [0.3081]}' "$x"
predicted digits "$x" digits
has "the trainer's accuracy, $accuracy" "2000 samples, accuracy $accuracy,"
in_order() {
  sed 's/.*"index": \([0-9]*\),.*/\1/' "$work/digits.jsonl" |
    awk '$1 != NR - 1 { exit 1 } END { exit NR != 2000 }'
}
check "in order" in_order
check "three classes each, as said" sh -c \
  "! grep -v '\"label\": [0-9], \"top\": \[{[^}]*}, {[^}]*}, {[^}]*}\]}\$' '$work/digits.jsonl'"

mkdir "$work/d"
check "digits as files" "$files" digits "$work/d" 130
tail -c +3 "${SL_SRCDIR:-.}/tests/fuzz/corpus/jpeg/grey_half" >"$work/d/small.jpg"
cd "$work/d" || exit 1
case $predict in /*) ;; *) predict=$OLDPWD/$predict ;; esac
case $files in /*) ;; *) files=$OLDPWD/$files ;; esac
case $lm in /*) ;; *) lm=$OLDPWD/$lm ;; esac
case $lenet in /*) ;; *) lenet=$OLDPWD/$lenet ;; esac
predicted idx --top 10 --logits "$x" images-idx3-ubyte
check "all classes: probabilities fall and add up to 1" "$files" sums "$work/idx.jsonl"
check "ten logits each" \
  sh -c "! grep -v '\"logits\": \[\([-0-9.e]*, \)\{9\}[-0-9.e]*\]}\$' '$work/idx.jsonl'"
check "labels from beside the images" sh -c "[ \$(grep -c '\"label\"' '$work/idx.jsonl') = 130 ]"
head -n 130 "$work/digits.jsonl" >"$work/same"
check "the same digits as generated ones" "$files" same "$work/idx.jsonl" "$work/same"
gzip -c images-idx3-ubyte >packed.gz
predicted packed "$x" packed.gz
check "the same from gzip, of any name" "$files" same "$work/packed.jsonl" "$work/idx.jsonl"
check "no labels beside that" sh -c "! grep -q '\"label\"' '$work/packed.jsonl'"
mkdir digits.gz.d
cp labels-idx1-ubyte digits.gz.d
gzip -c images-idx3-ubyte >digits.gz.d/images-idx3-ubyte.gz
predicted folder "$x" digits.gz.d/images-idx3-ubyte.gz
check "and beside packed ones, in a folder of any name" \
  sh -c "[ \$(grep -c '\"label\"' '$work/folder.jsonl') = 130 ]"
predicted given --labels labels-idx1-ubyte "$x" packed.gz
check "labels by --labels" grep -q '"label"' "$work/given.jsonl"
timeout 100 "$predict" --max-batch 7 "$x" - <images-idx3-ubyte >"$work/stdin.jsonl" 2>"$work/err"
check "the same from standard input, in batches of 7" \
  "$files" same "$work/stdin.jsonl" "$work/idx.jsonl"
head -n 1 "$work/idx.jsonl" >"$work/first"
for kind in digit.pgm text.pgm wide.pgm "--invert inverted.pgm" "--resize=box large.pgm" \
  "--resize colour.ppm" "--format raw digit.f32" digit.png; do
  # shellcheck disable=SC2086
  set -- $kind
  for file; do :; done
  if [ ! -f "$file" ]; then skip "$kind" "no libpng"; continue; fi
  options=${kind%"$file"}
  # shellcheck disable=SC2086
  predicted one $options "$x" "$file"
  check "the same digit: $kind" "$files" same "$work/one.jsonl" "$work/first"
done
mkdir -p one_kind/it one_kind/other
cp inverted.pgm one_kind/it/a.pgm
cp inverted.pgm one_kind/other/b.pgm
predicted two --invert "$x" one_kind
head -n 1 "$work/two.jsonl" >"$work/one.jsonl"
check "--invert of a folder of pictures" "$files" same "$work/one.jsonl" "$work/first"

predicted smooth --resize=bilinear "$x" large.pgm
check "bilinear: one answer" test "$(wc -l <"$work/smooth.jsonl")" = 1
timeout 100 "$predict" --resize "$x" small.jpg >"$work/out" 2>"$work/err"
if grep -q libjpeg "$work/err"; then
  skip "a JPEG" "no libjpeg"
else
  check "a JPEG: one answer" test "$(wc -l <"$work/out")" = 1
  head -c 200 small.jpg >cut.jpg
fi
cat digit.pgm digit.pgm text.pgm >three.pgm
{ cat digit.pgm; printf '\n \r\n'; } >blank.pgm
predicted blank "$x" blank.pgm
check "blanks behind a picture are none" "$files" same "$work/blank.jsonl" "$work/first"
predicted many --top 0 "$x" three.pgm digit.pgm images-idx3-ubyte
check "several files, several pictures in one" test "$(wc -l <"$work/many.jsonl")" = 134
has "where labels are known, accuracy" "of 130 with labels"
check "--top 0: none" sh -c "! grep -q '\"top\"' '$work/many.jsonl'"
predicted quiet -q "$x" digit.pgm
check "--quiet: no summary" test ! -s "$work/said"
predicted twice "$x" images-idx3-ubyte
cp "$work/twice.jsonl" "$work/once"
predicted twice "$x" images-idx3-ubyte
check "the same bits each time" cmp "$work/once" "$work/twice.jsonl"
predicted options \
  --devices cpu:0 --math bf16 --batches 1 --max-delay-us 100 --max-batch 16 "$x" images-idx3-ubyte
check "on one device, in bf16: all samples" test "$(wc -l <"$work/options.jsonl")" = 130
predicted placed --placement 'conv1-2,pool1-2=cpu:0;fc1-2=cpu:1' "$x" images-idx3-ubyte
check "placed: the same answers" "$files" same "$work/placed.jsonl" "$work/idx.jsonl"

# ---- the inputs as the model describes them ----
cp "$work/x.safetensors" old.safetensors
grep -v normalize "$x" | sed 's/"x.safe/"old.safe/' >old.json
predicted old old.json digit.pgm
has "an older model: the guess is reported" "taken as mnist's"
check "and right" "$files" same "$work/old.jsonl" "$work/first"
predicted named --normalize mnist old.json digit.pgm
check "--normalize: no guess" sh -c "! grep -q taken '$work/said'"
predicted numbers --mean 0.1307 --deviation 0.3081 old.json digit.pgm
check "--mean, --deviation" "$files" same "$work/numbers.jsonl" "$work/first"
predicted other --normalize none "$x" images-idx3-ubyte
check "another range of values: other answers" \
  sh -c "! '$files' same '$work/other.jsonl' '$work/idx.jsonl'"

# made NAME INPUT LAYERS TENSORS BYTES [MORE]: a model whose weights are all zeros
made() {
  {
    printf '{"format": "starling model", "version": 1, "weights": "%s.safetensors", ' "$1"
    printf '"input": %s, "layers": [%s]%s}\n' "$2" "$3" "${6:-}"
  } >"$1.json"
  {
    printf '\000\001\000\000\000\000\000\000%-256s' "$4"
    head -c "$5" /dev/zero
  } >"$1.safetensors"
}
layer='{"name": "conv", "kind": "conv2d", "inputs": ["input"], "channels": 10, "kernel_h": 28,
  "no_bias": true}'
made maps '[1, 28, 28]' "$layer" \
  '{"conv.weight": {"dtype": "F32", "shape": [10, 1, 28, 28], "data_offsets": [0, 31360]}}' 31360 \
  ', "classes": ["zero", "one", "2", "3", "4", "5", "6", "7", "8", "9"]'
predicted maps --normalize mnist maps.json digit.pgm
check "an output of 10 x 1 x 1 is one of 10 classes, with names" \
  grep -q '"class": 0, "name": "zero", "probability": 0.1' "$work/maps.jsonl"

# ---- several inputs and outputs by name ----
# npy NAME SHAPE BYTES: an array of f4, its values as printf writes them
npy() {
  printf "\\223NUMPY\\001\\000v\\000%-117s\\n" \
    "{'descr': '<f4', 'fortran_order': False, 'shape': $2, }" >"$1.npy"
  # shellcheck disable=SC2059 # the values are escapes
  printf "$3" >>"$1.npy"
}
one='\000\000\200\077' two='\000\000\000\100' zero='\000\000\000\000'
mkdir fields
npy fields/a '(2, 2)' "$one$two$zero$one"
npy fields/b '(2,)' "$two$one"
printf '{"format": "starling model", "version": 2, "weights": "two.safetensors",
  "inputs": [{"name": "a", "shape": [2]}, {"name": "b", "shape": [1]}],
  "outputs": ["kind", "place", "flags"], "targets": {"mean": [0, 0, 10, 20, 0, 0],
  "deviation": [1, 1, 2, 3, 1, 1]},
  "tasks": {"kind": "classes", "place": "values", "flags": "labels"}, "layers": [
  {"name": "kind", "kind": "dense", "inputs": ["a"], "features": 2, "no_bias": true},
  {"name": "join", "kind": "concatenate", "inputs": ["a", "b"]},
  {"name": "place", "kind": "dense", "inputs": ["join"], "features": 2, "no_bias": true},
  {"name": "flags", "kind": "dense", "inputs": ["b"], "features": 2, "no_bias": true}]}\n' \
  >two.json
weights='{"kind.weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}, '
weights=$weights'"place.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [16, 40]}, '
weights=$weights'"flags.weight": {"dtype": "F32", "shape": [2, 1], "data_offsets": [40, 48]}}'
{
  printf '\000\001\000\000\000\000\000\000%-256s' "$weights"
  # shellcheck disable=SC2059 # the values are escapes
  printf "$one$zero$zero$one$one$zero$zero$zero$zero$one$one$zero"
} >two.safetensors
predicted two --top 1 two.json fields
has "each output by its name: a class" '"kind": {"class": 1, "probability": 0.7310586, "top": [{"cl'
has "values in their unit" '"place": {"values": [12.0, 26.0]}'
has "and labels" '"flags": {"labels": [0], "probabilities": [0.8807971, 0.5]}}}'
check "of both samples" grep -q '"index": 1, .*"place": {"values": \[10.0, 23.0\]}' "$work/out"
predicted raw --logits --top 0 two.json fields
has "an output's own logits" '"place": {"values": [12.0, 26.0], "logits": [1.0, 2.0]}'
predicted values --task values two.json fields
has "--task is of all outputs" '"kind": {"values": [1.0, 2.0]}, "place": {"values": [12.0, 26.0]}'
refused 1 "output 'kind' [2] is no mask" --task mask two.json fields
sed 's/"flags": "labels"/"flag": "labels"/' two.json >odd.json
refused 1 "whose keys are the model's outputs" odd.json fields
sed 's/"flags": "labels"/"flags": "label"/' two.json >odd.json
refused 1 "must have classes, values or labels for each output" odd.json fields
npy fields/b '(3,)' "$two$one$one"
refused 1 "2 samples, but fields/b.npy has 3" two.json fields
rm fields/b.npy
refused 1 "b.npy" two.json fields
npy fields/b '(2,)' "\\000\\000\\300\\177$one"
refused 1 "value 2 of sample 0 is infinite or not a number" two.json fields

# ---- how numbers are normalised, where the model's file does not say ----
npy fields/b '(2,)' "$two$one"
predicted plain two.json fields
has "a file that says nothing: a remark" "two.json does not say how its inputs were normalised"
predicted quiet --quiet two.json fields
check "--quiet: none" test ! -s "$work/said"
predicted shifted --mean 1,0,-1 --deviation 1,2,0.5 two.json fields
has "--mean and --deviation of each input" '"place": {"values": [10.0, 38.0]}'
check "no remark, then" sh -c "! grep -q normalised '$work/said'"
predicted shifted --mean 1 two.json fields
has "of all of them" '"kind": {"class": 1, "probability": 0.7310586'
has "and the next input" '"place": {"values": [10.0, 23.0]}'
predicted plain --normalize none two.json fields
has "--normalize none: as they are" '"place": {"values": [12.0, 26.0]}'
check "no remark there, either" sh -c "! grep -q normalised '$work/said'"
refused 2 "--normalize mnist: is of pictures, and two.json takes none; give --mean" \
  --normalize mnist two.json fields
refused 2 "2 numbers, but the model has 3 channels" --mean 1,2 two.json fields
refused 2 "--mean, --deviation: 4 numbers" --mean 1,2,3,4 two.json fields
printf '{"format": "starling model", "version": 1, "weights": "one.safetensors", "input": [4],
  "layers": [{"name": "fc", "kind": "dense", "inputs": ["input"], "features": 1,
  "no_bias": true}]}\n' >one.json
{
  printf '\000\001\000\000\000\000\000\000%-256s' \
    '{"fc.weight": {"dtype": "F32", "shape": [1, 4], "data_offsets": [0, 16]}}'
  # shellcheck disable=SC2059 # the values are escapes
  printf "$one$one$one$two"
} >one.safetensors
printf 'a,b,c,d\n5,6,7,8\n' >row.csv
predicted row --task values one.json row.csv
has "a table of a model that knows none" '"values": [34.0]'
predicted row --task values --mean 5,5,5,6 --deviation 1,1,2,4 one.json row.csv
has "and of its columns' means" '"values": [3.0]'
predicted row --quiet --task values --mean 4 --deviation 2 one.json row.csv
has "or one of all" '"values": [7.0]'
predicted row one.json row.csv
has "a guessed task: a remark" "one.json does not say what its output is; taken as logits of classes"

npy x '(1, 4)' "$one$one$one$two"
refused 1 "leave --invert out" --invert one.json x.npy
if python3 -m zipfile -c x.npz x.npy 2>"$work/err"; then
  refused 1 "has no array \"y\"; it has x; --inputs x answers" one.json x.npz
  predicted alone --task values --inputs x one.json x.npz
  has "inputs alone, of an archive" '"values": [7.0]'
else
  skip "inputs alone, of an archive" "no python3"
fi

# ---- CIFAR-10 ----
mkdir "$work/c"
check "pictures as CIFAR-10's files" "$files" cifar "$work/c" 40
check "LeNet on them" \
  "$lenet" --data "$work/c" --seed 1 --steps 12 --batch 20 --lr 0.02 --save "$work/c.json"
accuracy=$(test_accuracy)
check "names of classes" grep -qF '"classes": ["airplane", "automobile"' "$work/c.json"
predicted cifar --top 10 "$work/c.json" "$work/c"
has "the trainer's accuracy, $accuracy" "40 samples, accuracy $accuracy,"
check "a class has its name" \
  grep -q '"class": [0-9], "name": "[a-z]*", "probability"' "$work/cifar.jsonl"
check "names among the likeliest" \
  grep -q '"top": \[{"class": [0-9], "name": "[a-z]*"' "$work/cifar.jsonl"
sed -n 4p "$work/cifar.jsonl" >"$work/fourth"
for kind in ppm png; do
  if [ ! -f "$work/c/fourth.$kind" ]; then skip "$kind" "no libpng"; continue; fi
  predicted colours "$work/c.json" "$work/c/fourth.$kind"
  check "the same picture as .$kind" "$files" same "$work/colours.jsonl" "$work/fourth"
done
predicted train --train "$work/c.json" "$work/c"
has "the training set: five files" "200 samples"
predicted grey --resize "$work/c.json" large.pgm
check "grey, larger: made to fit" test "$(wc -l <"$work/grey.jsonl")" = 1

# ---- the real MNIST ----
mnist=${STARLING_DATA:-/nonexistent}/mnist
if [ -d "$mnist" ]; then
  check "LeNet on MNIST" "$lenet" --data "$mnist" --seed 1 --steps 40 --save "$work/m.json"
  accuracy=$(test_accuracy)
  predicted mnist "$work/m.json" "$mnist"
  has "MNIST: the trainer's accuracy, $accuracy" "accuracy $accuracy,"
else
  skip "MNIST" "STARLING_DATA is not set"
fi

# ---- text ----
# lines of one length: the validation part, the 19th twentieth, begins and ends with a line
awk 'BEGIN {
  split("red big old", a)
  split("cat dog cow", b)
  split("eats runs sits", c)
  for (i = 0; i < 400; i++) {
    verb = c[(i + int(i / 5)) % 3 + 1]
    printf "%-19s\n", "the " a[i * 7 % 3 + 1] " " b[int(i / 3) % 3 + 1] " " verb
  }
}' >text
l=$work/lm.json
check "a language model learns a little" \
  "$lm" --data text --layers 1 --hidden 16 --embed 16 --epochs 3 --buckets auto --save "$l"
perplexity=$(sed -n 's/^Perplexity *\([0-9.]*\).*/\1/p' "$work/checked")
head -c 7600 text | tail -c 400 >valid
predicted text "$l" valid
has "the trainer's perplexity, $perplexity" "20 lines, 100 tokens, perplexity $perplexity,"
predicted all --top 100 "$l" valid
check "all words: probabilities fall and add up to 1" "$files" sums "$work/all.jsonl"
fields='"tokens": 5, "log_likelihood": -[0-9.]*, "perplexity": [0-9.]*, "unknown": 0, '
fields=$fields'"next": \[{"token": "[a-z<>]*", "probability": '
check "each line has all fields" sh -c "! grep -v '$fields' '$work/text.jsonl'"
printf 'the cat' | timeout 100 "$predict" --top 1 "$l" - >"$work/out" 2>"$work/said"
has "a line without an end has no end to score" '"tokens": 2'
printf 'the zebra\n' | timeout 100 "$predict" "$l" - >"$work/out" 2>"$work/said"
has "an unknown word is counted" '"unknown": 1'
awk 'BEGIN { for (i = 0; i < 60; i++) printf "the cat "; print "\nthe cat\n" }' >long
predicted long "$l" long
has "a line longer than in training" '"tokens": 121'
check "and its neighbours, in order" sh -c \
  "sed -n '2s/.*\"tokens\": 3,.*/yes/p; 3s/.*\"tokens\": 1,.*/yes/p' '$work/long.jsonl' |
     grep -c yes | grep -qx 2"
printf '2 3 4\n2\n' >numbers
predicted tokens --format tokens "$l" numbers
has "token numbers, no vocabulary" '"next": [{"token": '
# logits of 1000 and -1000 for each token: e to the 2000 is no number
printf '%s "weights": "sure.safetensors", "input": [4], "layers": [{"name": "e",
  "kind": "embedding", "vocabulary": 2, "features": 2}]}' \
  '{"format": "starling model", "version": 1,' >sure.json
printf '\110\0\0\0\0\0\0\0%-72s\0\0\172\104\0\0\172\304\0\0\172\104\0\0\172\304' \
  '{"e.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}' >sure.safetensors
printf '0 1 0\n0 0\n' >numbers
predicted sure --format tokens sure.json numbers
has "a perplexity too large for a number is left out" '"log_likelihood": -2000.0, "next"'
has "and that of the next line is not" '"log_likelihood": 0.0, "perplexity": 1.0, "next"'
mkfifo "$work/lines"
timeout 100 "$predict" -q "$l" - <"$work/lines" >"$work/typed" 2>"$work/err" &
exec 3>"$work/lines"
echo the cat >&3
for i in $(seq 600); do [ -s "$work/typed" ] && break; sleep 0.1; done
early=$(wc -l <"$work/typed")
echo the dog >&3
exec 3>&-
wait
check "a line is answered before the next one comes" test "$early" = 1
check "and so is that one" test "$(wc -l <"$work/typed")" = 2
check "characters" "$lm" --data text --level char --layers 1 --hidden 16 --embed 16 --batch 5 \
  --steps 20 --save "$work/char.json"
predicted char "$work/char.json" valid
has "characters: a line end is one" '"tokens": 20'

gpt=${GPT:-$(dirname "$lm")/gpt}
for style in gpt2 llama; do
  check "a transformer, $style, of 20 tokens" "$gpt" --data text --style $style --layers 1 \
    --heads 2 --width 8 --context 20 --batch 5 --steps 5 --quiet --save "$work/$style.json"
  printf 'the cat\n%018d\n%019d\n' 0 0 >lines
  predicted short "$work/$style.json" lines
  has "$style: a line as long as its context" '"index": 2, "tokens": 20'
  printf 'a\n%020d\n' 0 >lines
  refused 1 "lines: line 2 has 21 tokens with its line end, but the model takes at most 20" \
    "$work/$style.json" lines
done
check "a context of fewer tokens than the shortest predictor" "$gpt" --data text --layers 1 \
  --heads 2 --width 8 --context 6 --batch 5 --steps 5 --quiet --save "$work/six.json"
printf 'abcde\n' >lines
predicted six "$work/six.json" lines
has "takes lines of it" '"tokens": 6'
sed 's/"length": [0-9]*, //; s/, "length": [0-9]*//; s/, "context": [0-9]*//' "$work/gpt2.json" \
  >"$work/plain.json"
check "a model that does not give the length of its table" \
  sh -c "! grep -q length '$work/plain.json'"
tokenize=${TOKENIZE:-$(dirname "$predict")/starling-tokenize}
"$tokenize" --train --vocabulary 280 --save bpe.json text >"$work/checked" 2>"$work/err"
check "a transformer of a tokenizer's tokens" "$gpt" --data text --tokenizer bpe.json --layers 1 \
  --heads 2 --width 8 --context 20 --batch 5 --steps 5 --quiet --save "$work/bpe.json"
printf 'the cat\nthe old dog' >lines
predicted bpe --top 1 "$work/bpe.json" lines
has "its lines are scored by the tokenizer beside the model" '"next": [{"token": "'
check "without unknown words" sh -c "! grep -q unknown '$work/bpe.jsonl'"
printf '\nthe cat\n' >lined
"$tokenize" --tokenizer bpe.json --output lined.bin lined >"$work/checked" 2>"$work/err"
od -An -v -tu2 -j1024 lined.bin | tr -s ' \n' ' ' >numbers
predicted numbers --format tokens "$work/bpe.json" numbers
scored() { sed -n '1s/.*"tokens": \([0-9]*\), "log_likelihood": \(-[0-9.]*\).*/\1 \2/p' "$1"; }
check "as their numbers behind a line end's" \
  [ "$(scored "$work/bpe.jsonl")" = "$(scored "$work/numbers.jsonl")" ]
predicted given --top 1 --vocabulary bpe.json "$work/bpe.json" lines
check "or by one that --vocabulary names" cmp "$work/bpe.jsonl" "$work/given.jsonl"
mkdir alone && cp "$work/bpe.json" "$work/bpe.safetensors" alone
refused 1 "--vocabulary names the model's words or its tokenizer" alone/bpe.json lines
printf 'the cat\n' >lines
predicted plain --vocabulary "$work/gpt2.json.vocabulary.json" "$work/plain.json" lines
predicted given "$work/gpt2.json" lines
check "reads shorter lines as one that gives it" cmp "$work/plain.jsonl" "$work/given.jsonl"
printf '3 4 5\n%s\n' "$(awk 'BEGIN { for (i = 0; i < 21; i++) printf "3 " }')" >lines
refused 1 "line 2 has 21 tokens, but the model takes at most 20" --format tokens \
  "$work/plain.json" lines

# ---- the bench ----
predicted bench --bench --seconds 0.2 "$x"
for field in requests requests/s samples/s samples/batch mean p50 p90 p99 max; do
  has "the table has $field" "$field"
done
predicted bench --bench --seconds 0.2 --concurrency 3 --batch 5 --json "$x"
for field in model machine input concurrency batch max_batch max_delay_us batches math seconds \
  requests mean p50 p90 p99 max requests_per_s samples_per_s samples_per_batch; do
  has "the object has $field" "\"$field\": "
done
has "as asked for" '"concurrency": 3, "batch": 5'
predicted bench --bench --seconds 0.1 --json "$l"
has "the bench of a language model" '"requests_per_s": '

# ---- where the output goes ----
"$predict" "$x" digits 2>"$work/said" | head -n 1 >"$work/out"
check "a closed pipe: one line, and no complaint" \
  sh -c "[ ! -s '$work/said' ] && [ \$(wc -l <'$work/out') = 1 ]"
mkfifo "$work/gone"
head -c $((16 + 784 * 40 + 100)) images-idx3-ubyte >torn
: <"$work/gone" &
reader=$!
{
  wait $reader
  trap '' PIPE
  timeout 100 "$predict" "$x" torn 2>"$work/said"
  code=$?
  trap - PIPE
} >"$work/gone"
check "where SIGPIPE is ignored, it hides no failure" \
  sh -c "[ $code = 1 ] && grep -q 'cut short in sample 40' '$work/said'"
{
  trap '' PIPE
  timeout 100 "$predict" --logits "$x" digits digits 2>"$work/said"
  echo $? >"$work/code"
  trap - PIPE
} | head -n 1 >"$work/out"
check "and a closed pipe is no complaint there either" \
  sh -c "[ ! -s '$work/said' ] && [ \$(cat '$work/code') = 0 ]"
if [ -w /dev/full ]; then
  "$predict" "$x" digits >/dev/full 2>"$work/said"; code=$?
  check "a full disk" \
    sh -c "[ $code = 1 ] && grep -q 'output cannot be written: No space' '$work/said'"
else
  skip "a full disk" "no /dev/full"
fi
"$predict" "$x" digits >&- 2>"$work/said"; code=$?
check "a closed output" \
  sh -c "[ $code = 1 ] && grep -q 'output cannot be written: Bad file' '$work/said'"

# ---- refusals ----
for arguments in "" "$x" "--bench" "--bench $x digit.pgm" "--nosuch $x digit.pgm" \
  "--top -1 $x digit.pgm" "--top 1x $x digit.pgm" "--resize=cubic $x digit.pgm" \
  "--normalize imagenet $x digit.pgm" "--mean x $x digit.pgm" "--deviation 0 $x digit.pgm" \
  "--mean 1 --normalize none $x digit.pgm" "--mean 1,2,3 $x digit.pgm" \
  "--mean 1, $x digit.pgm" "--mean 1 --format raw $x digit.f32" "--mean 0 $l valid" \
  "--normalize cifar10 $x digit.pgm" \
  "--format gif $x digit.pgm" "--format text $x valid" "--format idx $l valid" \
  "--labels labels-idx1-ubyte $x digit.pgm digit.pgm" "--concurrency 2 $x digit.pgm" \
  "--math f64 $x digit.pgm" "--seconds 0 --bench $x" "--placement nosuch=cpu:0 $x digit.pgm"; do
  # shellcheck disable=SC2086
  timeout 100 "$predict" $arguments >"$work/out" 2>"$work/err" </dev/null; got=$?
  if [ $got = 2 ] && [ "$(wc -l <"$work/err")" -le 3 ] &&
    head -n 1 "$work/err" | grep -q '^starling-predict: '; then
    ok "usage: $(head -n 1 "$work/err" | sed "s|$work/||g; s|^starling-predict: ||" | cut -c1-120)"
  else
    not_ok "usage: $arguments: exit code $got"
  fi
done
refused 1 "nosuch.json" nosuch.json digit.pgm
echo '{"format": "starling model", ' >broken.json; refused 1 "damaged" broken.json digit.pgm
sed 's/"version": 1/"version": 3/' "$x" >newer.json; refused 1 "version 3" newer.json digit.pgm
sed 's/"x.safe/"nosuch.safe/' "$x" >apart.json; refused 1 "nosuch.safetensors" apart.json digit.pgm
cp "$x" cut.json
sed -i 's/"x.safe/"cut.safe/' cut.json
head -c 1000 "$work/x.safetensors" >cut.safetensors
refused 1 "cut.safetensors" cut.json digit.pgm
refused 1 "nosuch.pgm: cannot be opened" "$x" nosuch.pgm
refused 1 "cannot be opened" "$x" digit.pgm nosuch.pgm
check "which is reported before anything is answered" test ! -s "$work/out"
: >empty
refused 1 "is empty" "$x" empty
refused 1 "is empty" "$l" empty
refused 1 "is empty" "$x" -
head -c 5000 images-idx3-ubyte >short; refused 1 "cut short in sample 6" "$x" short
check "after the six that were there" test "$(wc -l <"$work/out")" = 6
head -c 10 images-idx3-ubyte >head; refused 1 "cut short in its header" "$x" head
{ cat images-idx3-ubyte; echo more; } >more; refused 1 "bytes behind its last image" "$x" more
printf '\000\000\010\004\000\000\000\001' >magic; refused 1 "magic number is 0x00000804" "$x" magic
printf '\000\000\010\003\000\000\000\000\000\000\000\034\000\000\000\034' >none
refused 1 "is empty" "$x" none
refused 1 "holds labels" "$x" labels-idx1-ubyte
refused 1 "is it IDX labels?" --labels digit.pgm "$x" images-idx3-ubyte
head -c 100 labels-idx1-ubyte >few
refused 1 "cut short in sample 92's label" --labels few "$x" images-idx3-ubyte
printf '\000\000\010\001\000\000\000\001\001' >one
# ---- what a training held back ----
mlp=${MLP:-$(dirname "$lenet")/mlp}
for i in 1 2 3 4 5 6; do
  for class in dark light; do
    mkdir -p "photos/$class"
    { printf 'P5\n2 2\n255\n'; [ $class = dark ] && printf '\0%s\0\0' $i || printf '~%s~~' $i; } \
      >"photos/$class/$i.pgm"
  done
done
check "a training with a fold of pictures" "$mlp" --data photos --size 4x4 --fold 2/3 --batch 4 \
  --hidden 4 --epochs 2 --save photos.json
wanted=$(test_accuracy)
refused 1 "the model takes [1, 4, 4]; --resize gives them this size" photos.json photos
predicted held --resize --fold 2/3 photos.json photos
has "its accuracy" "4 samples, accuracy $wanted"
predicted learnt --resize --fold 2/3 --train photos.json photos
has "the rest" "8 samples"
numbers() { sed 's/.*"index": \([0-9]*\),.*/\1/' "$@" | sort -n | tr '\n' ' '; }
check "both together are the files, by their numbers" \
  [ "$(numbers "$work/held.jsonl" "$work/learnt.jsonl")" = "0 1 2 3 4 5 6 7 8 9 10 11 " ]
refused 1 "fold" --resize --fold 4/3 photos.json photos
printf 'P5\n2 2\n255\n~' >photos/dark/3a.pgm
refused 1 "dark/3a.pgm: cut short" --resize --fold 2/3 photos.json photos
predicted skipped --resize --fold 2/3 --skip-bad photos.json photos
has "--skip-bad names it" "starling-predict: photos without 1 bad picture (dark/3a.pgm)"
check "and the others have the answers as without it" cmp "$work/skipped.jsonl" "$work/held.jsonl"
cp -r photos "photos without flash"; rm "photos without flash/dark/3a.pgm"
predicted none --resize --skip-bad photos.json "photos without flash"
check "none is named where none is left out" [ "$(wc -l <"$work/said")" = 1 ]
echo text >photos/text.pgm; : >photos/empty.pgm
cat photos/dark/1.pgm photos/dark/3a.pgm >photos/more.pgm
set -- photos/dark/1.pgm photos/light/1.pgm
predicted two --resize photos.json "$@"
set -- "$1" photos/dark/3a.pgm photos/text.pgm photos/empty.pgm "$2"
refused 1 "dark/3a.pgm: cut short" --resize photos.json "$@"
predicted files --resize --skip-bad photos.json "$@"
check "and of files the others" cmp "$work/two.jsonl" "$work/files.jsonl"
for bad in "dark/3a.pgm: left out: cut short" "text.pgm: left out: is neither" \
  "empty.pgm: left out: is empty"; do
  has "$bad" "starling-predict: photos/$bad"
done
predicted more --resize --skip-bad photos.json photos/more.pgm
has "a second picture in one" "more.pgm: left out from picture 1 on: cut short"
check "the first one is answered" test "$(wc -l <"$work/more.jsonl")" = 1
timeout 60 "$predict" --resize --skip-bad photos.json photos/text.pgm photos/empty.pgm \
  >"$work/out" 2>"$work/said"
check "no picture that can be decoded is a failure" [ $? = 1 ]
has "which says so" "starling-predict: no sample is left of the inputs"
refused 1 "takes no skipping of pictures" --skip-bad "$x" digits

refused 1 "has 1 labels" --labels one "$x" images-idx3-ubyte
head -c 500 packed.gz >torn.gz; refused 1 "cut short, in the midst of packed data" "$x" torn.gz
{ head -c 300 packed.gz; head -c 3000 text; } >bent.gz
refused 1 "damaged: its packed data" "$x" bent.gz
refused 1 "is 56 x 56 in grey, the model takes 28 x 28 in grey" "$x" large.pgm
refused 1 "in colour, the model takes 28 x 28 in grey" "$x" colour.ppm
head -c 200 digit.pgm >cut.pgm; refused 1 "cut short" "$x" cut.pgm
{ cat digit.pgm; echo rest; } >rest.pgm; refused 1 "is neither PGM" "$x" rest.pgm
refused 1 "--format raw is of files" --format raw "$x" digits
refused 1 "digit.pgm: is no IDX file: leave --labels out" --labels labels-idx1-ubyte "$x" digit.pgm
refused 1 "digits: is no IDX file" --labels labels-idx1-ubyte "$x" digits
held="nothing of it was held back: leave --validation and --fold out"
refused 1 "digit.pgm: $held" --fold 1/5 "$x" digit.pgm
refused 1 "images-idx3-ubyte: $held" --validation .3 "$x" images-idx3-ubyte
refused 1 "digits: $held" --fold 1/5 "$x" digits
for option in --labels --validation --fold; do
  refused 2 "$option: $l is a language model" $option 1/5 "$l" valid
done
layer='{"name": "fc", "kind": "dense", "inputs": ["input"], "features": 10, "no_bias": true}'
made flat '[784]' "$layer" \
  '{"fc.weight": {"dtype": "F32", "shape": [10, 784], "data_offsets": [0, 31360]}}' 31360
refused 1 "takes no pictures" --resize flat.json digits
refused 1 "takes no pictures" flat.json shapes
layers='{"name": "e", "kind": "embedding", "inputs": ["input"], "vocabulary": 5000, "features": 1},
  {"name": "fc", "kind": "dense", "inputs": ["e"], "features": 5000, "no_bias": true,
   "positions": true}'
weights='{"e.weight": {"dtype": "F32", "shape": [5000, 1], "data_offsets": [0, 20000]}, '
weights=$weights'"fc.weight": {"dtype": "F32", "shape": [5000, 1], "data_offsets": [20000, 40000]}}'
made wide '[8]' "$layers" "$weights" 40000
awk 'BEGIN { for (i = 0; i < 40000; i++) printf "1 "; print "" }' >endless
refused 1 "more than 1 GiB" --format tokens wide.json endless
printf '1 2 3\n' >brief
refused 1 "a smaller --max-batch" --max-batch 100000 --format tokens wide.json brief
printf 'P4\n1 1\n\000' >bits.pbm; refused 1 "is neither PGM" "$x" bits.pbm
printf 'P2 1 1 9 10' >above.pgm; refused 1 "a number is too large" "$x" above.pgm
printf 'P5 99999 99999 255\n' >huge.pgm; refused 1 "cut short" "$x" huge.pgm
if [ -f digit.png ]; then
  head -c 100 digit.png >cut.png; refused 1 "damaged, or cut short" "$x" cut.png
fi
if [ -f cut.jpg ]; then refused 1 "damaged, or cut short" --resize "$x" cut.jpg; fi
echo 'GIF89a' >x.gif; refused 1 "is neither IDX, PGM, PPM, PNG nor JPEG" "$x" x.gif
head -c 3000 digit.f32 >cut.f32; refused 1 "cut short in sample 0" --format raw "$x" cut.f32
awk 'BEGIN { for (i = 0; i < 3136; i++) printf "%c", 255 }' | LC_ALL=C tr -c '\377' '\377' |
  head -c 3136 >nan.f32
refused 1 "infinite or not a number" --format raw "$x" nan.f32
head -c 4000 "$work/c/test_batch.bin" >cut.bin
refused 1 "cut short in sample 1" "$work/c.json" cut.bin
mkdir nothing; refused 1 "holds neither MNIST's test set" "$x" nothing
cp "$work/c.safetensors" odd.safetensors
grep -v normalize "$work/c.json" |
  sed 's/"c.safe/"odd.safe/; s/\[3, 32, 32\]/[3, 32, 33]/' >odd.json
refused 1 "odd" odd.json digit.pgm
cp "$l" words.json; cp "$work/lm.safetensors" .
refused 1 "--vocabulary names the model's words" words.json valid
refused 1 "are they of one training?" \
  --vocabulary "$work/char.json.vocabulary.json" words.json valid
refused 1 "is it a vocabulary?" --vocabulary "$x" words.json valid
printf '1 2\n1 999 2\n' >outside
refused 1 "line 2: token 999 is outside the vocabulary" --format tokens "$l" outside
printf '1 two\n' >letters
refused 1 "line 1 is no list of token numbers" --format tokens "$l" letters
printf '\n' >blank; refused 1 "line 1 is empty" --format tokens "$l" blank
printf 'the cat\nthe zebra\n' >zebra
refused 1 "line 2 has a word outside the vocabulary" --strict "$l" zebra
sed 's/,10,/,1,/' "$work/char.json.vocabulary.json" >endless.json # no line end
printf 'the\n' >the
predicted the --strict --vocabulary endless.json "$work/char.json" the
check "a line's end outside the vocabulary is no unknown word" \
  grep -q '"unknown": 0' "$work/the.jsonl"
refused 1 "has zero bytes" "$l" images-idx3-ubyte
refused 1 "cpu:99" --devices cpu:99 "$x" digit.pgm

check "--help" "$predict" --help
check "--version" "$predict" --version
echo "1..$n"
exit $failed
