#!/bin/sh
# starling-train: networks that architecture files describe, of each kind of answer; what does not
# fit the data is refused in one line with both shapes. starling-predict answers each of them by its
# task, from tables with the training's columns and from arrays.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
train=${TRAIN:-tools/starling-train} predict=${PREDICT:-tools/starling-predict}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"
cd "$work" || exit 1
top=$OLDPWD
case $train in /*) ;; *) train=$top/$train ;; esac
case $predict in /*) ;; *) predict=$top/$predict ;; esac

# net FILE INPUT LAYERS: an architecture file
net() {
  printf '{"format": "starling model", "version": 1, "input": %s, "layers": [%s]}\n' "$2" "$3" >"$1"
}
# refused CODE WORD COMMAND...: one line on the error stream with WORD in it
refused() {
  code=$1 word=$2; shift 2
  timeout 60 "$@" >out 2>err; got=$?
  [ $got = "$code" ] && [ "$(wc -l <err)" = 1 ] && grep -q -e "$word" err
  verdict $? "$word: exit code $got: $(head -n 1 err | sed 's/#/number/g')"
}
run() { timeout 100 "$train" --quiet --seed 2 "$@" >out 2>err; }
answer() { timeout 60 "$predict" --quiet "$@" >answers 2>err; }

# ---- the kinds of layers ----
timeout 20 "$train" --list >list
verdict $? "--list ends with 0"
for kind in $(sed -n 's/^SL__KIND(\(.*\))$/\1/p' "${SL_SRCDIR:-$top}/nn/kinds.def"); do
  grep -q "^  $kind  *[A-Z0-9][^ ]* .*[^ ] " list || { echo "# $kind"; missing=1; }
done
check "each kind is listed with a line about it" test -z "${missing:-}"
check "a key is listed with its default" grep -q '^    epsilon  *added to the variance; 1e-5$' list

# ---- a regression on a table: 3 a - 2 b, and 1 for "up" ----
awk 'BEGIN { print "a,b,kind,y"
  for (i = 0; i < 1200; i++) { a = i * 37 % 101 / 101; b = i * 53 % 97 / 97; up = i % 3 == 0
    printf "%g,%g,%s,%.6f\n", a, b, up ? "up" : "down", 100 * (3 * a - 2 * b + up) } }' >table.csv
net mlp.json '[4]' '{"name": "fc1", "kind": "dense", "features": 16, "activation": "tanh"},
  {"name": "fc2", "kind": "dense", "features": 1}'
run mlp.json --data table.csv --target y --epochs 8 --save y.json --log y.jsonl
verdict $? "a regression of an architecture file without weights"
check "the log has the file" grep -q '"model": *"mlp.json"' y.jsonl
check "the saved file has the columns and the task" \
  grep -q '"columns": \["a", "b", {"name": "kind", "texts": \["down", "up"\]}\]' y.json
check "and the target" grep -q '"target": \["y"\]' y.json
cat >some.csv <<END
kind,comment,b,a
up,one,0.5,0.5
down,two,0.5,0.5
END
answer y.json some.csv
verdict $? "answers for a table without the target, its columns in another order"
awk -F '[][]' '{ value[NR] = $2 }
  END { exit !(NR == 2 && value[1] > 140 && value[1] < 160 && value[2] > 40 && value[2] < 60) }' answers
verdict $? "they are near 150 and 50: $(sed -n 's/.*"values": //p' answers | tr '\n' ' ')"
answer y.json table.csv
check "a table with the target serves, too" test "$(wc -l <answers)" = 1200
printf 'kind,b\nup,1\n' >less.csv
refused 1 'no column a; its columns are kind, b' "$predict" y.json less.csv
printf 'kind,b,a\nleft,1,1\n' >left.csv
refused 1 '"left" does not occur in the training' "$predict" y.json left.csv
printf 'kind,b,a\nup,1,3.3e38\n' >huge.csv
refused 1 'value 0 of sample 0 is too large for f32 when it is normalised' \
  "$predict" y.json huge.csv
printf 'kind,b,a\nup,,1\n' >empty.csv
refused 1 'is a missing value' "$predict" y.json empty.csv
run mlp.json --data table.csv --target y --missing mean --epochs 1 --save mean.json &&
  answer mean.json empty.csv
verdict $? "a missing value is answered where the training allowed some"
cp answers missing
mean=$(sed -n 's/.*"normalize": {"mean": \[[^,]*, \([^,]*\),.*/\1/p' mean.json)
printf 'kind,b,a\nup,%s,1\n' "$mean" >empty.csv
answer mean.json empty.csv
check "it is the column's mean: $mean" cmp -s answers missing

# ---- weights that a file names are taken ----
cp y.json again.json
run again.json --data table.csv --target y --steps 1 --lr 1e-9 --save same.json &&
  answer same.json some.csv && sed 's/\..*//' answers >same && answer y.json some.csv &&
  sed 's/\..*//' answers | cmp -s - same
verdict $? "a file with weights goes on from them"
run mlp.json --data table.csv --target y --init zero --steps 1 --lr 1e-9 --save zero.json &&
  answer zero.json some.csv && [ "$(sed -n 's/.*"values": //p' answers | sort -u | wc -l)" = 1 ]
verdict $? "--init holds for layers that name none"

# ---- classes of a table ----
net classes.json '[3]' '{"name": "fc1", "kind": "dense", "features": 8, "activation": "relu"},
  {"name": "fc2", "kind": "dense", "features": 2}'
run classes.json --data table.csv --target kind --epochs 15 --save kind.json --lr 0.1
verdict $? "classes of a table"
printf 'a,b,y\n0.5,0.5,150\n0.5,0.5,50\n' >classes.csv
answer --top 0 kind.json classes.csv
[ "$(sed -n 's/.*"name": "\([a-z]*\)".*/\1/p' answers | tr '\n' ' ')" = "up down " ]
verdict $? "answers have their names: $(tr '\n' ' ' <answers)"

# ---- several labels ----
awk 'BEGIN { print "a,b,high,low"
  for (i = 0; i < 1000; i++) { a = i * 37 % 101 / 101; b = i * 53 % 97 / 97
    printf "%g,%g,%d,%d\n", a, b, (a > 0.5), (b < 0.5) } }' >labels.csv
net labels.json '[2]' '{"name": "fc", "kind": "dense", "features": 2}'
run labels.json --data labels.csv --target high,low --loss bce --epochs 8 --lr 0.5 --save labelled.json
verdict $? "several labels"
printf 'a,b\n0.9,0.1\n0.1,0.9\n0.9,0.9\n' >ab.csv
answer labelled.json ab.csv
[ "$(sed -n 's/.*"labels": \(\[.*\]\), "prob.*/\1/p' answers | tr '\n' ' ')" = \
  '["high", "low"] [] ["high"] ' ]
verdict $? "answers are the labels above one half: $(sed 's/.*"labels": //' answers | tr '\n' ' ')"

# ---- a mask of arrays ----
# array FILE SHAPE: an .npy file of bytes, from digits 0 and 1 on the standard input
array() {
  head="{'descr': '|u1', 'fortran_order': False, 'shape': $2, }"
  size=$(printf '%03o' ${#head})
  { printf "\\223NUMPY\\001\\000\\$size\\000%s" "$head"; tr 01 '\000\001'; } >"$1"
}
mkdir set
awk 'BEGIN { state = 7
  for (i = 0; i < 3200; i++) { state = state * 16807 % 2147483647; printf "%d", state / 1e4 % 2 } }' >bits
array set/x.npy '(200, 1, 4, 4)' <bits
array set/y.npy '(200, 1, 4, 4)' <bits
net mask.json '[1, 4, 4]' '{"name": "conv", "kind": "conv2d", "channels": 1, "kernel_h": 1}'
run mask.json --data set --loss bce --epochs 30 --batch 20 --lr 0.5 --save masked.json
verdict $? "a mask"
head -c 16 bits | array one.npy '(1, 1, 4, 4)'
answer masked.json one.npy
[ "$(sed -n 's/.*"mask": //p' answers | tr -cd 01)" = "$(head -c 16 bits)" ]
verdict $? "the answer is its rows: $(cat answers)"
sed 's/"labels"/"values"/' masked.json >values.json && cp masked.safetensors values.safetensors
answer values.json one.npy
check "another task, another answer" grep -q '"values"' answers
answer --task labels values.json one.npy
check "--task overrules the file" grep -q '"labels"' answers
refused 1 'is no mask' "$predict" --task mask y.json some.csv
refused 1 'no list of classes; --task' "$predict" --task class masked.json one.npy
net two.json '[1, 4, 4]' '{"name": "conv", "kind": "conv2d", "channels": 2, "kernel_h": 1}'
mkdir both
array both/x.npy '(200, 1, 4, 4)' <bits
fold -w 16 bits | awk '{ line = $0; gsub(/1/, "2"); gsub(/0/, "1"); gsub(/2/, "0")
  printf "%s%s", line, $0 }' | array both/y.npy '(200, 2, 4, 4)'
run two.json --data both --loss bce --epochs 30 --batch 20 --lr 0.5 --save two-masks.json &&
  answer two-masks.json one.npy
[ "$(sed -n 's/.*"masks": //p' answers | tr -cd 01)" = \
  "$(head -c 16 bits)$(head -c 16 bits | tr 01 10)" ]
verdict $? "two planes of labels are two masks"
sed 's/"labels"/"values"/' two-masks.json >planes.json && cp two-masks.safetensors planes.safetensors
answer --task mask planes.json one.npy
[ "$(sed -n 's/.*"mask": //p' answers | tr -cd 01)" = "$(head -c 16 bits | tr 01 10)" ]
verdict $? "of planes of classes, each pixel has the likeliest"
run two.json --data digits
check "digits do not fit" grep -q 'takes samples \[1, 4, 4\], but .* has samples \[1, 28, 28\]' err

# ---- an array for a model that was trained on bytes ----
net digits.json '[1, 28, 28]' '{"name": "fc", "kind": "dense", "features": 10}'
run digits.json --data digits --steps 5 --save five.json
head -c 784 bits | array bytes.npy '(1, 1, 28, 28)'
{ printf 'P5 28 28 255\n'; head -c 784 bits | tr 01 '\000\001'; } >bytes.pgm
answer five.json bytes.pgm && cp answers picture.pgm &&
  sed 's/bytes.pgm/bytes.npy/' answers >picture &&
  answer five.json bytes.npy && cmp -s answers picture
verdict $? "bytes of an array are those of a picture"
cp bytes.npy BYTES.NPY
answer five.json BYTES.NPY && sed 's/BYTES.NPY/bytes.pgm/' answers | cmp -s - picture.pgm
verdict $? "a name in capitals is one of an array, too"

# ---- a text, for a model of tokens ----
lm() {
  net "$1" '[12]' "{\"name\": \"embed\", \"kind\": \"embedding\", \"vocabulary\": $2, \"features\": 16},
    {\"name\": \"lstm\", \"kind\": \"lstm\", \"features\": 32},
    {\"name\": \"fc\", \"kind\": \"dense\", \"features\": $2, \"positions\": true}"
}
lm words.json 60
timeout 100 "$train" words.json --data grammar --steps 60 --batch 20 --optimizer adam --lr 0.01 \
  --save said.json >out 2>err
verdict $? "a model of tokens is trained on a text"
check "its perplexity is below the number of words: $(sed -n 's/^Perplexity *//p' out)" \
  awk '/^Perplexity/ { exit !($2 < 30) }' out
echo 'the old farmer sleeps' >line.txt
answer said.json line.txt
check "starling-predict has its vocabulary" grep -q '"perplexity"' answers
run said.json --data grammar --steps 2 --batch 20 --save more.json &&
  cmp -s said.json.vocabulary.json more.json.vocabulary.json
verdict $? "a training that goes on keeps the vocabulary"
lm many.json 500
refused 1 "output is \\[12, 500\\], but generated sentences, training set has 9. classes" \
  "$train" many.json --data grammar --batch 20
net bag.json '[12]' '{"name": "embed", "kind": "embedding", "vocabulary": 60, "features": 16},
  {"name": "fc", "kind": "dense", "features": 60, "positions": true}'
run bag.json --data grammar --steps 2 --batch 20
verdict $? "one without a recurrent layer carries no state"
lm bytes.json 20
run bytes.json --data grammar --level char --steps 2 --batch 20
verdict $? "tokens may be bytes"
refused 1 'digits: cannot be opened' "$train" words.json
printf 'PK\003\004\000\000' >tokens.npz
refused 2 '--data tokens.npz: this model takes a text; arrays of tokens need one with "inputs"' \
  "$train" words.json --data tokens.npz
refused 2 '--tokens x: this model takes a text; arrays of tokens need one with "inputs"' \
  "$train" words.json --data tokens.npz --inputs x --tokens x --target y
refused 2 '--target: a text has no such thing' "$train" words.json --data none.txt --target y
refused 2 '--augment: a text cannot be shifted' "$train" words.json --data none.txt --augment

# ---- what does not fit, and bad files ----
refused 1 'takes samples \[4\], but .*samples \[3\]' \
  "$train" mlp.json --data table.csv --target kind
net one.json '[2]' '{"name": "fc", "kind": "dense", "features": 1}'
refused 1 'output is \[1\], but .* has targets \[2\]' \
  "$train" one.json --data labels.csv --target high,low --loss mse
net three.json '[3]' '{"name": "fc", "kind": "dense", "features": 3}'
refused 1 'output is \[3\], but .* has 2 classes' "$train" three.json --data table.csv --target kind
refused 2 'no model is named' "$train"
refused 2 "'b.json': not understood; MODEL.json is given already: 'a.json'" "$train" a.json b.json
refused 1 'none.json: cannot be opened' "$train" none.json
cp table.csv kept.csv; cp mlp.json kept.json
cp y.safetensors kept.safetensors; cp some.csv held.csv
for option in save best log report-failure; do
  refused 2 "--$option ./table.csv: would overwrite --data table.csv; name another file" \
    "$train" mlp.json --data table.csv --target y "--$option" ./table.csv
done
refused 2 '--log held.csv: would overwrite --validation' \
  "$train" mlp.json --data table.csv --target y --validation held.csv --log held.csv
refused 2 '--log mlp.json: would overwrite --model mlp.json' \
  "$train" mlp.json --data table.csv --target y --log mlp.json
refused 2 '--log y.safetensors: would overwrite --load' \
  "$train" mlp.json --data table.csv --target y --load y.safetensors --log y.safetensors
refused 2 '--log y.safetensors: would overwrite --load-part' "$train" mlp.json --data table.csv \
  --target y --load-part 'y.safetensors:!fc2.' --log y.safetensors
refused 2 '--save words writes words.vocabulary.json, too' \
  "$train" words.json --data none.txt --save words --log words.vocabulary.json
refused 1 'none.csv' \
  "$train" mlp.json --data none.csv --save words --log words.vocabulary.json
mkdir -p arrays photos/a; : >arrays/x.npy; : >arrays/y.npy; : >photos/a/1.png; ln -s arrays link
for option in log report-failure; do
  refused 2 "--$option link/y.npy: has the name of a file of --data arrays; name another file" \
    "$train" mlp.json --data arrays "--$option" link/y.npy
done
refused 2 '--log photos/a/2.PNG: has the name of a file of --validation photos' \
  "$train" mlp.json --data arrays --validation photos --log photos/a/2.PNG
refused 2 '--log arrays/t10k-labels-idx1-ubyte.gz: has the name of a file of --data arrays' \
  "$train" mlp.json --data arrays --log arrays/t10k-labels-idx1-ubyte.gz
for other in log.bin log-ubyte data_batch_6.bin .log.npy; do
  refused 1 'arrays/x.npy' "$train" mlp.json --data arrays --log "arrays/$other"
done
cd arrays || exit
refused 2 '--log y.npy: has the name' "$train" ../mlp.json --data . --log y.npy
cd ..
refused 1 'arrays/x.npy' "$train" mlp.json --data arrays --log arrays/log.jsonl
refused 1 'arrays/x.npy' "$train" mlp.json --data arrays --log y.npy
[ ! -s arrays/y.npy ]
verdict $? "nor that of a file in a folder of the data"
cmp -s table.csv kept.csv && cmp -s mlp.json kept.json && cmp -s y.safetensors kept.safetensors &&
  cmp -s some.csv held.csv
verdict $? "no output takes the place of an input"
net two.json '[3]' '{"name": "fc", "kind": "dense", "features": 2}'
net ten.json '[1, 28, 28]' '{"name": "fc", "kind": "dense", "features": 10}'
# named LOG MODEL OPTIONS...: the log is there, and has the name that an option takes
named() {
  log=$1 model=$2; shift 2
  : >"$log"
  run "$model" --steps 1 --log "$log" "$@"; code=$?
  [ -s "$log" ] || code=1
  rm "$log"
  verdict $code "the name $log in $* is no file"
}
named y mlp.json --data table.csv --target y
named 0.1 mlp.json --data table.csv --target y --validation 0.1
named balanced two.json --data table.csv --target kind --class-weights balanced
named digits ten.json --data digits
run mlp.json --data table.csv --target y --steps 1 --load y.safetensors --save y.safetensors
verdict $? "weights may go on in their file"
cp y.json on.json; cp y.safetensors on.safetensors
sed -i 's/y.safetensors/on.safetensors/' on.json
run on.json --data table.csv --target y --steps 1 --save on.json &&
  run on.json --data table.csv --target y --steps 1
verdict $? "a trained model may go on in its file"
net odd.json '[3]' '{"name": "fc", "kind": "densest", "features": 3}'
refused 1 'layer fc is of kind "densest"' "$train" odd.json --data table.csv --target kind
net odd.json '[3]' '{"name": "fc", "kind": "dense", "width": 3}'
refused 1 '"width" is no option' "$train" odd.json --data table.csv --target kind
echo '{"format": ' >cut.json
refused 1 'cut.json: line 2: damaged' "$train" cut.json
sed 's/"weights": "[^"]*"/"weights": "lost.safetensors"/' y.json >lost.json
refused 1 'lost.safetensors' "$train" lost.json --data table.csv --target y
for damage in 's/"task": "values"/"task": "guess"/' 's/"columns": \["a", /"columns": [3, /' \
  's/"columns": \["a", /"columns": [/' 's/"texts": \[[^]]*\]/"texts": []/' \
  's/"target": \["y"\]/"target": "y"/'; do
  sed "$damage" y.json >damaged.json
  refused 1 damaged.json "$predict" damaged.json some.csv
done

echo "1..$n"
exit $failed
