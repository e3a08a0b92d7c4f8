#!/bin/sh
# The ResNet trainer: impossible depths, its data as CIFAR-10's files, a tiny training, and its
# defaults.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
resnet=${RESNET:-examples/resnet} predict=${PREDICT:-examples/predict}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"

# refused CODE WORD ARGUMENTS...: one line with WORD in it
refused() {
  code=$1 word=$2; shift 2
  timeout 60 "$resnet" "$@" >"$work/out" 2>"$work/err"; got=$?
  [ $got = "$code" ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q -e "$word" "$work/err"
  verdict $? "$*: exit code $got: $(head -n 1 "$work/err" | sed "s|$work/||g; s/#/number/g")"
}
# train ARGUMENTS...: the smallest network
train() { timeout 300 "$resnet" --depth 8 --quiet "$@" >"$work/out" 2>"$work/err"; }
losses() { sed -n 's/.*"step": *[0-9]*,.*"loss": *\([^,}]*\).*/\1/p' "$1"; }

for depth in 0 2 9 21 1203 1208 -8 20x 8.0 ""; do
  refused 2 "--depth '$depth'" "--depth=$depth"
done
refused 2 "--write-data '': the name is empty" --write-data=
refused 1 "$work/nowhere" --depth 8 --quiet --write-data "$work/nowhere"

# ---- the shapes as files ----
mkdir "$work/data" "$work/small"
train --steps 1 --write-data "$work/data" --log "$work/shapes.jsonl"
[ $? = 0 ] && [ "$(cat "$work"/data/data_batch_[1-5].bin | wc -c)" = 30730000 ] &&
  [ "$(wc -c <"$work/data/test_batch.bin")" = 6146000 ]
verdict $? "--write-data: 10,000 samples for training, 2,000 for testing"
for file in "$work"/data/*.bin; do head -c $((3073 * 128)) "$file" >"$work/small/${file##*/}"; done
train --steps 1 --data "$work/data" --log "$work/files.jsonl" &&
  [ -n "$(losses "$work/files.jsonl")" ] &&
  [ "$(losses "$work/shapes.jsonl")" = "$(losses "$work/files.jsonl")" ]
verdict $? "read back: the same loss $(losses "$work/files.jsonl")"

# ---- a tiny training ----
mkdir "$work/tiny" # few enough to be learned by heart
for file in "$work"/data/*.bin; do head -c $((3073 * 26)) "$file" >"$work/tiny/${file##*/}"; done
train --data "$work/tiny" --batch 26 --epochs 12 --optimizer adam --lr 0.005 --no-augment \
  --log "$work/tiny.jsonl" &&
  losses "$work/tiny.jsonl" | awk '
    NR <= 5 { first += $1 / 5 }
    NR > 55 { last += $1 / 5 }
    END { exit !(NR == 60 && first > 2.1 && last < 2) }'
code=$?
fall="from $(losses "$work/tiny.jsonl" | head -n 1) to $(losses "$work/tiny.jsonl" | tail -n 1)"
verdict $code "12 epochs of 130 samples: the loss falls, $fall"
train --data "$work/small" --batch 64 --epochs 1 --log "$work/a.jsonl" --save "$work/a.json" \
  --checkpoint "$work/folder" &&
  [ "$(losses "$work/a.jsonl" | wc -l)" = 10 ]
verdict $? "augmented, with its own schedule: an epoch of 640 samples"
grep -qa 'shift 4, flip 1, samples 640' "$work"/folder/checkpoint-*.safetensors
verdict $? "images are shifted by up to 4 pixels, and mirrored"
# the first step has the same weights and samples: only the augmentation makes another loss of them
first() { losses "$1" | head -n 1; }
train --data "$work/small" --batch 64 --steps 1 --log "$work/same.jsonl" &&
  train --data "$work/small" --batch 64 --steps 1 --no-augment --log "$work/plain.jsonl" &&
  [ -n "$(first "$work/a.jsonl")" ] &&
  [ "$(first "$work/a.jsonl")" = "$(first "$work/same.jsonl")" ] &&
  [ "$(first "$work/a.jsonl")" != "$(first "$work/plain.jsonl")" ]
verdict $? "augmented samples: loss $(first "$work/a.jsonl"), others $(first "$work/plain.jsonl")"
accuracy=$(sed -n 's/.*"test_accuracy": *\([^,}]*\).*/\1/p' "$work/a.jsonl" | tail -n 1 |
  awk '{ print $1 + 0 }')
timeout 60 "$predict" "$work/a.json" "$work/small" >"$work/out" 2>"$work/err" &&
  [ "$(awk '{ print $1 / $3 }' "$work/out")" = "$accuracy" ]
verdict $? \
  "the saved model opens elsewhere and classifies as at the end of the training: $(cat "$work/out")"
timeout 60 "$predict" "$work/a.json" "$work/tiny" >"$work/out" 2>"$work/err" &&
  grep -q '^[0-9]* of 26 right$' "$work/out"
verdict $? "a last batch that is not full counts: $(cat "$work/out")"
timeout 60 "$predict" "$work/a.json" digits >"$work/out" 2>"$work/err"; code=$?
[ $code = 1 ] && grep -q 'digits has samples \[1, 28, 28\], .*takes \[3, 32, 32\]' "$work/err"
verdict $? "data of another shape are refused (code $code): $(cat "$work/err")"
train --data "$work/small" --batch 64 --steps 1 --load "$work/a.json"
verdict $? "its weights load again"
for depth in 14 20; do
  refused 1 "a.safetensors" --depth $depth --data "$work/small" --quiet --load "$work/a.json"
done

# ---- its own defaults, and others ----
head -n 1 "$work/a.jsonl" | tr -d ' ' >"$work/run"
for word in '"augment":true' '"init":"he"' '"momentum":0.9' '"weight-decay":0.0001' \
  '"lr-schedule":"drops:50%:75%,warmup:2%"'; do
  grep -q "$word" "$work/run"; verdict $? "by default $word"
done
train --data "$work/small" --batch 64 --steps 2 --optimizer adam --no-augment --init xavier \
  --lr-schedule cosine --log "$work/b.jsonl" &&
  head -n 1 "$work/b.jsonl" | tr -d ' ' | grep '"augment":false' | grep '"init":"xavier"' |
  grep '"momentum":0[.,]' | grep '"weight-decay":0[.]0,' | grep -q cosine
verdict $? "Adam without augmentation: SGD's momentum and weight decay are not taken over"
train --data "$work/small" --batch 64 --steps 2 --replicas 1 --log "$work/c.jsonl" &&
  train --data "$work/small" --batch 64 --steps 2 --replicas 1 --log "$work/d.jsonl" \
  --placement 'conv1,bn1,relu,layer1.0=cpu:0;layer2.0,layer3.0,avgpool,fc=cpu:1' &&
  [ -n "$(losses "$work/c.jsonl")" ] &&
  [ "$(losses "$work/c.jsonl")" = "$(losses "$work/d.jsonl")" ]
verdict $? "placed block by block: the same losses"

echo "1..$n"
exit $failed
