#!/bin/sh
# The trainers on data of the user's own: tables, arrays, pictures. A regression reaches the noise
# floor of its table; options that do not suit the data, and damaged files, end in one line.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
mlp=${MLP:-examples/mlp} lm=${LSTM_LM:-examples/lstm_lm} predict=tools/starling-predict
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"
fixture=$(cd "${SL_SRCDIR:-.}/tests/fixtures" && pwd)/numpy.npz

# refused CODE WORD ARGUMENTS...: one line with WORD in it
refused() {
  code=$1 word=$2; shift 2
  timeout 60 "$@" >"$work/out" 2>"$work/err"; got=$?
  [ $got = "$code" ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q -e "$word" "$work/err"
  verdict $? "$word: exit code $got: $(head -n 1 "$work/err" | sed "s|$work/||g; s/#/number/g")"
}
train() { timeout 100 "$mlp" "$@" >"$work/out" 2>"$work/err"; }

# ---- a table: y = 3 a - 2 b + 1 for kind "up", and noise of deviation 0.1 ----
awk 'function noise(sum, k) {
    sum = 0
    for (k = 0; k < 12; k++) { state = (state * 16807) % 2147483647; sum += state / 2147483647 }
    return 0.1 * (sum - 6)
  }
  BEGIN {
    state = 1
    print "a,b,name,kind,y"
    for (i = 0; i < 3000; i++) {
      a = i * 37 % 101 / 101; b = i * 53 % 97 / 97; up = i % 3 == 0
      printf "%g,%g,n%d,%s,%.6f\n", a, b, i, up ? "up" : "down", 3 * a - 2 * b + up + noise()
    }
  }' >"$work/table.csv"
# the shortest command: a curved function of four columns, and noise of deviation 0.3
awk '
  function uniform() { seed = (seed * 16807) % 2147483647; return seed / 2147483647 }
  function noise() { s = 0; for (k = 0; k < 12; k++) s += uniform(); return 0.3 * (s - 6) }
  BEGIN {
    seed = 77; print "a,b,c,d,y"
    for (i = 0; i < 5000; i++) {
      a = uniform(); b = uniform(); c = uniform(); d = uniform()
      printf "%g,%g,%g,%g,%.6f\n", a, b, c, d, sin(6 * a) + 2 * b * c - d * d + noise()
    }
  }' >"$work/curved.csv"
train --data "$work/curved.csv" --target y --loss mse --task regression
rmse=$(sed -n 's/^Test RMSE *\([0-9.]*\) .*/\1/p' "$work/out")
check "the defaults for a regression reach the noise of deviation 0.3: RMSE $rmse" \
  awk "BEGIN { exit !(${rmse:-9} > 0.27 && ${rmse:-9} < 0.33) }"
check "they are AdamW's" grep -q 'adamw, lr 0.001' "$work/out"
train --data "$work/curved.csv" --target y --task regression --find-rate --quiet
check "a search names the updates that it was made with" \
  grep -q 'falls fastest at --optimizer adamw --lr-schedule cosine --lr [0-9]' "$work/out"
train --data "$work/curved.csv" --target y --task regression --lr 0.05 --epochs 1
check "what is said goes before them" grep -q 'sgd, lr 0.05' "$work/out"

train --data "$work/table.csv" --target y --ignore name --loss mse --task regression --hidden 16 \
  --optimizer adam --lr 0.01 --lr-schedule cosine --epochs 8 --batch 64 --seed 3 \
  --save "$work/table.json" --log "$work/a.jsonl"
code=$?
rmse=$(sed -n 's/^Test RMSE *\([0-9.]*\) .*/\1/p' "$work/out")
[ $code = 0 ] && awk -v rmse="$rmse" 'BEGIN { exit !(rmse > 0.085 && rmse < 0.115) }'
verdict $? "a regression on a table reaches the noise floor of 0.1: $rmse"
grep -q "table.csv, training set: 2700 samples" "$work/err" "$work/out"
verdict $? "a tenth is held back"
train --quiet --data "$work/table.csv" --target kind --ignore name --hidden 16 --epochs 2 &&
  train --quiet --data "$work/table.csv" --target kind --ignore name --task classification \
    --hidden 16 --epochs 2 --missing drop --validation "$work/table.csv"
verdict $? "texts as the target are classes"

refused 2 "name the target" "$mlp" --quiet --data "$work/table.csv"
refused 2 "no column z" "$mlp" --quiet --data "$work/table.csv" --target z
refused 1 "text number 257" "$mlp" --quiet --data "$work/table.csv" --target y
refused 2 "takes no target" "$mlp" --quiet --target y
refused 2 "takes no size" "$mlp" --quiet --data "$work/table.csv" --target y --size 8x8
refused 2 "--target: a text has no such thing" "$lm" --quiet --steps 1 --target y
for size in 8 x8 8x 0x8 8x8x8 99999x1; do refused 2 "--size '$size'" "$mlp" "--size=$size"; done
refused 2 "missing" "$mlp" --missing zero
printf 'a,y\n1,2\n3\n' >"$work/ragged.csv"
printf 'a,y\n1,"x\n\033[31mred"\n2,3\n4,5\n' >"$work/odd.csv"
refused 1 '"x??\[31mred" is no number' "$mlp" --quiet --data "$work/odd.csv" --target y --task regression
refused 1 "line 3 ends behind column 1" "$mlp" --quiet --data "$work/ragged.csv" --target y
printf 'a,y\n1,2\n,3\n' >"$work/empty.csv"
refused 1 "line 3, column 1 (\"a\"): \"\" is a missing value" "$mlp" --quiet \
  --data "$work/empty.csv" --target y

# ---- arrays, which numpy wrote ----
train --quiet --data "$fixture" --batch 2 --epochs 2 --hidden 4 --save "$work/arrays.json" &&
  "$predict" "$work/arrays.json" "$fixture" >"$work/answers" 2>"$work/err" &&
  [ "$(wc -l <"$work/answers")" = 1 ] && grep -q '"class"' "$work/answers"
verdict $? "arrays: trained, and the sample that was held back is classified"
head -c 300 "$fixture" >"$work/cut.npz"
refused 1 "cut.npz: is no ZIP archive" "$mlp" --quiet --data "$work/cut.npz"

# ---- folds, and weights of classes ----
table="--quiet --data $work/table.csv --ignore name --hidden 8 --epochs 1 --batch 64 --seed 3"
for fold in 1 2; do # a third of the rows is "up": 3000 / (2 x 1000) and 3000 / (2 x 2000)
  # shellcheck disable=SC2086
  train $table --target kind --fold $fold/2 --log "$work/fold$fold.jsonl"
done
losses() { sed -n 's/.*"step": *[0-9]*,.*"loss": *\([^,}]*\).*/\1/p' "$1"; }
head -n 1 "$work/fold1.jsonl" | tr -d ' ' | grep '"train_samples":1500,"test_samples":1500' |
  grep -q '"fold":"1/2"' && [ "$(losses "$work/fold1.jsonl" | wc -l)" = 24 ] &&
  [ "$(losses "$work/fold1.jsonl")" != "$(losses "$work/fold2.jsonl")" ]
verdict $? "two folds of 1500 rows train on different rows"
cp "$work/table.csv" "$work/all.csv"
echo "0.75 1.5" >"$work/weights"
echo "1 red" >"$work/words"
# shellcheck disable=SC2086
for weights in none 1,1 balanced 0.75,1.5 "$work/weights"; do
  option="--class-weights $weights"; [ "$weights" = none ] && option=
  train $table --target kind --validation "$work/all.csv" $option \
    --log "$work/${weights##*/}.jsonl" || break
done
[ "$(losses "$work/balanced.jsonl" | wc -l)" = 47 ] &&
  [ "$(losses "$work/balanced.jsonl")" = "$(losses "$work/0.75,1.5.jsonl")" ] &&
  [ "$(losses "$work/balanced.jsonl")" = "$(losses "$work/weights.jsonl")" ] &&
  [ "$(losses "$work/balanced.jsonl")" != "$(losses "$work/none.jsonl")" ]
verdict $? "balanced weights are those of a list and of a file"
losses "$work/none.jsonl" >"$work/none" && losses "$work/1,1.jsonl" | paste -d' ' - "$work/none" |
  awk '{ d = $1 - $2; if (d < -1e-5 || d > 1e-5) exit 1 } END { exit NR != 47 }'
verdict $? "weights of 1 change nothing"
# shellcheck disable=SC2086
{
  refused 2 "must be like 2/5" "$mlp" $table --target y --fold 2
  refused 2 "from 1 to 5" "$mlp" $table --target y --fold 6/5
  refused 2 "give one of them" "$mlp" $table --target y --fold 1/5 --validation 0.2
  refused 2 "takes no validation part" "$mlp" --quiet --data digits --fold 1/5
  refused 2 "--fold: a text has no such thing" "$lm" --quiet --steps 1 --fold 1/5
  refused 2 "have 2 classes" "$mlp" $table --target kind --class-weights 1,2,3
  refused 2 "No such file" "$mlp" $table --target kind --class-weights "$work/nothing"
  refused 2 "number 2 is 'red'" "$mlp" $table --target kind --class-weights "$work/words"
  refused 2 "a weight is a number from 0" "$mlp" $table --target kind --class-weights=-1,2
  refused 2 "weights of all classes are 0" "$mlp" $table --target kind --class-weights 0,0
  refused 2 "has targets, not classes" "$mlp" $table --target y --class-weights balanced
}

# ---- pictures ----
mkdir -p "$work/photos/light" "$work/photos/dark"
for i in 0 1 2 3 4 5 6 7 8 9; do
  echo "P2 2 2 255 $i 0 9 $i" >"$work/photos/dark/$i.pgm"
  echo "P2 3 2 255 25$((i % 5)) 24$i 240 250 222 2$((i % 5))0" >"$work/photos/light/$i.pgm"
done
train --data "$work/photos" --size 4x4 --hidden 8 --batch 4 --epochs 10 --lr 0.05 &&
  [ "$(sed -n 's/^Test accuracy *\([0-9.]*\) %.*/\1/p' "$work/out")" = 100.00 ]
verdict $? "light and dark pictures of two sizes are told apart"
photos="--quiet --data $work/photos --size 4x4 --hidden 8 --batch 4 --epochs 3"
# shellcheck disable=SC2086
train $photos --log "$work/one.jsonl" && train $photos --readers 4 --log "$work/four.jsonl" &&
  [ "$(losses "$work/one.jsonl" | wc -l)" = 15 ] &&
  [ "$(losses "$work/one.jsonl")" = "$(losses "$work/four.jsonl")" ]
verdict $? "four threads read what one does: the same losses"
# ---- pictures, augmented ----
mkdir -p "$work/tiny/light" "$work/tiny/dark"
for i in 0 1 2 3 4 5 6 7 8 9; do
  echo "P3 2 1 255 $i 0 9 $i 2 3" >"$work/tiny/dark/$i.ppm"
  echo "P3 2 1 255 25$((i % 5)) 24$i 240 250 222 2$((i % 5))0" >"$work/tiny/light/$i.ppm"
done
train --data "$work/tiny" --size 3x3 --hidden 8 --batch 4 --epochs 2 --augment
verdict $? "the usual shift is less than the size of tiny pictures"
augmented="$photos --crop 3x2 --augment=flip,shift=1,colour=0.3,hue=0.1"
# shellcheck disable=SC2086
train $augmented --log "$work/one.jsonl" --checkpoint "$work/folder" --save "$work/crop.json" &&
  train $augmented --readers 3 --log "$work/three.jsonl" &&
  [ "$(losses "$work/one.jsonl" | wc -l)" = 15 ] &&
  [ "$(losses "$work/one.jsonl")" = "$(losses "$work/three.jsonl")" ]
verdict $? "windows, mirrored, shifted and with other colours: the same with three readers"
tr -d ' \n' <"$work/crop.json" | grep -q '\[1,3,2\]'
verdict $? "the model takes windows"
grep -qa 'shift 1, flip 1, samples 18, buckets 0, crop 3x2, colours 0.3 0.3 0.3 0.1' \
  "$work"/folder/checkpoint-*.safetensors &&
  head -n 1 "$work/one.jsonl" | grep '"crop": "3x2"' |
  grep -q '"augment": "flip,shift=1,colour=0.3,hue=0.1"'
verdict $? "log and checkpoint say how"
# shellcheck disable=SC2086
train $photos --crop 3x2 --log "$work/random.jsonl" &&
  train $photos --crop 3x2 --no-augment --log "$work/middle.jsonl" &&
  train $photos --crop 4x4 --log "$work/whole.jsonl" && train $photos --log "$work/plain.jsonl" &&
  [ "$(losses "$work/random.jsonl")" != "$(losses "$work/middle.jsonl")" ] &&
  [ "$(losses "$work/whole.jsonl")" = "$(losses "$work/plain.jsonl")" ]
verdict $? "windows are random unless --no-augment is given"
# shellcheck disable=SC2086
{
  refused 2 "at most as large" "$mlp" $photos --crop 5x4
  refused 2 "must be like 224x224" "$mlp" $photos --crop 5
  refused 2 "only pictures" "$mlp" --quiet --data friedman --augment=hue=0.1
  refused 2 "only images" "$mlp" --quiet --data friedman --augment
  refused 2 "samples \[10\]" "$mlp" --quiet --data friedman --crop 2x2
  refused 2 "--crop: a text has no such thing" "$lm" --quiet --steps 1 --crop 2x2
}
for list in '' flip=1 hue hue=0.6 shift=0 shift=1.5 blur=1 flip,,shift; do
  refused 2 "--augment '$list'" "$mlp" --quiet "--augment=$list"
done
refused 1 "give the size" "$mlp" --quiet --data "$work/photos" --batch 4
echo "P2 2 2 255 1" >"$work/photos/dark/bad.pgm"
mkdir "$work/out.d"
refused 1 "dark/bad.pgm: cut short" "$mlp" --quiet --data "$work/photos" --size 4x4 --batch 4 \
  --epochs 1 --save "$work/out.d/m.json" --checkpoint "$work/out.d/c"
[ -z "$(find "$work/out.d" -type f ! -name '*lock*')" ]
verdict $? "a training that fails at once leaves no file, whole or half"

# ---- targets outside of what a loss takes ----
awk 'BEGIN { print "a,y"; for (i = 0; i < 64; i++) print i "," (i == 40 ? 2 : i % 2) }' \
  >"$work/outside.csv"
sed 's/,2$/,1/' "$work/outside.csv" >"$work/inside.csv"
awk 'BEGIN { print "a,y"; for (i = 0; i < 64; i++) print i "," i % 5 }' >"$work/five.csv"
printf 'a,y\n1,7\n' >"$work/seven.csv"
awk 'BEGIN { print "a,y,z"; for (i = 0; i < 64; i++) print i ",0,0" }' >"$work/zeros.csv"
small="--quiet --hidden 4 --batch 8 --epochs 1 --validation $work"
# shellcheck disable=SC2086
{
  refused 2 "outside.csv.* sample 40 (from 0): target 'y' is 2, but the loss bce takes 0 to 1" \
    "$mlp" $small/outside.csv --data "$work/outside.csv" --target y --loss bce \
    --save "$work/out.d/m.json"
  refused 2 "outside.csv.* sample 40 (from 0): target 'y' is 2" "$mlp" $small --validation 0.5 \
    --data "$work/outside.csv" --target y --loss bce
  refused 2 "outside.csv.* sample 40 .* correct it.* (in an evaluation, 1 such in its batch)" \
    "$mlp" $small/outside.csv --data "$work/inside.csv" --target y --loss bce \
    --best "$work/out.d/m.json"
  refused 1 '"7" does not occur\|class 7\|has class' "$mlp" $small/seven.csv \
    --data "$work/five.csv" --target y --task classification
  train $small/zeros.csv --data "$work/zeros.csv" --target y,z --loss cosine \
    --log "$work/zeros.jsonl" && [ "$(losses "$work/zeros.jsonl" | sort -u | tr -d '.0')" = 1 ]
  verdict $? "vectors of zeros have no direction: their cosine loss is 1"
}
[ -z "$(find "$work/out.d" -type f ! -name '*lock*')" ]
verdict $? "no weights are written"
train --data "$work/photos" --size 4x4 --batch 4 --epochs 1 --skip-bad &&
  grep -q "without 1 bad picture (dark/bad.pgm)" "$work/err" "$work/out"
verdict $? "--skip-bad counts and names it"

echo "1..$n"
exit $failed
