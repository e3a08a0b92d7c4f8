#!/bin/sh
# Trainers on data with several inputs and targets by name, and a loss with a part for each target:
# the log's losses, divisions of the work, resuming, files; what does not fit ends in one line.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
python3 -c '' 2>/dev/null || { echo "1..0 # SKIP no python3 here"; exit 77; }
mlp=${MLP:-examples/mlp} predict=${PREDICT:-tools/starling-predict}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"

# refused CODE WORD ARGUMENTS...: one line with WORD in it
refused() {
  code=$1 word=$2; shift 2
  timeout 60 "$@" >"$work/out" 2>"$work/err"; got=$?
  [ $got = "$code" ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q -e "$word" "$work/err"
  verdict $? "$word: exit code $got: $(head -n 1 "$work/err" | sed "s|$work/||g; s/#/number/g")"
}
# train NAME ARGUMENTS...: its log is NAME.jsonl, its model NAME.json
train() {
  name=$1; shift
  timeout 100 "$mlp" --quiet --data "$work/set" --inputs state,control --hidden 16 --epochs 3 \
    --batch 50 --lr 0.2 --seed 5 --log "$work/$name.jsonl" --save "$work/$name.json" "$@" \
    >"$work/out" 2>"$work/err"
}
# steps NAME: the losses of its steps
steps() { sed -n 's/.*"loss": *\([0-9.e-]*\),.*/\1/p' "$work/$1.jsonl"; }

mkdir "$work/set"
python3 - "$work/set" <<'END'
import array, random, struct, sys

def save(name, shape, kind, values):
    header = str({"descr": {"f": "<f4", "i": "<i4"}[kind], "fortran_order": False,
                  "shape": (400, *shape)}) + "\n"
    with open(f"{sys.argv[1]}/{name}.npy", "wb") as file:
        file.write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header.encode())
        file.write(array.array(kind, values).tobytes())

random.seed(1)
state = [[random.gauss(0, 1) for _ in range(4)] for _ in range(400)]
control = [[random.gauss(0, 1) for _ in range(6)] for _ in range(400)]
save("state", (4,), "f", sum(state, []))
save("control", (2, 3), "f", sum(control, []))
save("kind", (), "i", [(s[0] + c[0] > 0) + (s[0] + c[0] > 1) for s, c in zip(state, control)])
save("place", (2,), "f", sum([[30 * s[1], 7 + c[1]] for s, c in zip(state, control)], []))
save("ones", (), "f", [1.0] * 400)
save("mask", (2, 2), "f", sum([[s[2] > 0, c[2] > 0, s[3] > 0, c[3] > 0]
                               for s, c in zip(state, control)], []))
END
targets="kind,place,mask"
loss="kind=cross-entropy:0.1,place=huber*0.5,mask=bce*2"

train one --target "$targets" --loss "$loss" --replicas 1 --microbatches 1
verdict $? "three targets, each with a loss: $(tail -n 1 "$work/err")"
sed -n 's/.*"loss": *\([0-9.e-]*\),.*"kind": *\([0-9.e-]*\), *"place": *\([0-9.e-]*\), *"mask": *\([0-9.e-]*\)}.*/\1 \2 \3 \4/p' \
  "$work/one.jsonl" >"$work/sums"
[ "$(wc -l <"$work/sums")" = 24 ] &&
  awk '{d = ($2 + 0.5 * $3 + 2 * $4) / $1 - 1; if (d < -1e-6 || d > 1e-6) bad = 1} END {exit bad}' \
    "$work/sums"
verdict $? "the log has each part's loss, and their weighted sum: $(head -n 1 "$work/sums")"
awk 'NR <= 8 {first += $1} NR > 16 {last += $1} END {exit !(last < 0.95 * first)}' "$work/sums"
verdict $? "the loss falls"
tail -n 2 "$work/one.jsonl" | grep -q '"test_kind.accuracy".*"test_place.rmse".*"test_mask.auc"'
verdict $? "an evaluation has each output's metrics"

train eager --target "$targets" --loss "$loss" --replicas 1 --microbatches 1 --eager
cmp -s "$work/one.safetensors" "$work/eager.safetensors"
verdict $? "captured and eager steps give the same weights"
train cut --target "$targets" --loss "$loss" --replicas 2 --microbatches 3
steps one >"$work/a"; steps cut >"$work/b"
[ "$(wc -l <"$work/a")" = 24 ] && paste "$work/a" "$work/b" |
  awk '{d = $1 - $2; if (NF != 2 || d < -1e-5 || d > 1e-5) bad = 1} END {exit bad}'
verdict $? "replicas and microbatches have the losses of one slice"

timeout 100 "$mlp" --quiet --data "$work/set" --inputs state,control --target "$targets" \
  --loss "$loss" --hidden 16 --steps 9 --epochs 3 --batch 50 --lr 0.2 --seed 5 --replicas 1 \
  --microbatches 1 --checkpoint "$work/points" >"$work/out" 2>"$work/err" &&
  train resumed --target "$targets" --loss "$loss" --replicas 1 --microbatches 1 \
    --checkpoint "$work/points" --resume
cmp -s "$work/one.safetensors" "$work/resumed.safetensors"
verdict $? "a resumed training gives the same weights: $(tail -n 1 "$work/err")"

grep -q '"inputs": \[{"name": "state", "shape": \[4\]}, {"name": "control", "shape": \[2, 3\]}\]' \
  "$work/one.json" && grep -q '"outputs": \["kind", "place", "mask"\]' "$work/one.json"
verdict $? "the model's file has the names"
# one output's metric decides: deciding METRIC SIGN, where SIGN is 1 if larger is better
deciding() {
  metric=$1 sign=$2 name=by-$1
  rm -rf "$work/halves"
  for part in whole first second; do
    file=$work/$name-$([ $part = whole ] && echo whole || echo halves)
    timeout 100 "$mlp" --data "$work/set" --inputs state,control --target "$targets" \
      --loss "$loss" --hidden 16 --epochs 12 --batch 50 --lr 0.4 --momentum 0.6 --seed 5 \
      --replicas 1 --metric "$metric" --patience 4 --best "$file.json" \
      $([ $part = first ] && echo --steps 16) \
      $([ $part = whole ] || echo --checkpoint "$work/halves" --resume) \
      --log "$work/$name-$part.jsonl" >"$work/$name-$part.out" 2>"$work/err" || return 1
  done
  sed -n "s/.*\"test_$metric\": *\([0-9.e-]*\)[,}].*/\1/p" "$work/$name-whole.jsonl" >"$work/a"
  best=$(awk -v s="$sign" 'NR == 1 || s * $1 > s * most {most = $1; at = NR} END {print at}' "$work/a")
  grep -q "^Best weights.* ${metric%.*} .*, of epoch $best\$" "$work/$name-whole.out" &&
    [ "$(wc -l <"$work/a")" -le $((best + 4)) ] &&
    grep '^Best weights' "$work/$name-second.out" | sed 's/-halves//' >"$work/b" &&
    grep '^Best weights' "$work/$name-whole.out" | sed 's/-whole//' | cmp -s - "$work/b" &&
    cmp -s "$work/$name-whole.safetensors" "$work/$name-halves.safetensors"
}
for metric in kind.accuracy:1 kind.top2:1 place.rmse:-1 place.mae:-1 mask.auc:1 mask.loss:-1; do
  deciding "${metric%:*}" "${metric#*:}"
  verdict $? "$metric decides, also after a resume: $(grep '^Best' "$work/$name-whole.out" |
    sed "s|$work/||")"
done
train usual --target kind,place --replicas 1
verdict $? "without --loss each target has the usual one: $(tail -n 1 "$work/err")"
train plain --target kind
verdict $? "one target needs no name: $(tail -n 1 "$work/err")"

# one array's columns in three slices are the array: the same losses, and the same answers
for part in "state:state" "slices:state[:,0:1],state[:,1],state[:, 2:]"; do
  timeout 100 "$mlp" --quiet --data "$work/set" --inputs "${part#*:},control" --target place \
    --hidden 16 --epochs 2 --seed 5 --no-normalize --log "$work/${part%%:*}.jsonl" \
    --save "$work/${part%%:*}.json" >"$work/out" 2>"$work/err" &&
    timeout 60 "$predict" --quiet --inputs "${part#*:},control" "$work/${part%%:*}.json" \
      "$work/set" >"$work/${part%%:*}.answers" 2>"$work/err" || break
done
steps state >"$work/a"; steps slices >"$work/b"
[ -s "$work/a" ] && cmp -s "$work/a" "$work/b" && [ "$(wc -l <"$work/slices.answers")" = 400 ] &&
  cmp -s "$work/state.answers" "$work/slices.answers"
verdict $? "slices of an array train and answer as the array: $(tail -n 1 "$work/err")"
grep -q '"name": "state_0.1".*"name": "state_1".*"name": "state_2."' "$work/slices.json"
verdict $? "each has a name of its own"
refused 1 "state_0.1.npy: cannot be opened" "$predict" "$work/slices.json" "$work/set"
refused 1 "has samples \[4\], but the model takes \[10\]" "$predict" --inputs state \
  "$work/slices.json" "$work/set"
refused 1 "takes no name of inputs" "$predict" --inputs state "$work/slices.json" digits
refused 1 "leave --inputs out" "$predict" --inputs state "$work/slices.json" "$work/slices.answers"

set -- "$mlp" --quiet --data "$work/set" --hidden 8 --epochs 1 --inputs state,control
refused 2 "has 2 targets; give each a loss, such as kind=mse" "$@" --target kind,place --loss mse
refused 2 "does not have it" "$@" --target kind,place --metric kind.rmse
refused 2 "several outputs: name one" "$@" --target kind,place --metric mae
refused 2 "does not have it" "$@" --target kind,place --metric edge.accuracy
refused 2 "one output: leave its name out" "$@" --target kind --metric kind.accuracy
refused 2 "take ones.accuracy or ones.loss, or another" "$@" --target kind,ones \
  --loss ones=bce --metric ones.auc --best "$work/none.json"
refused 2 "metric kind.size: unknown" "$@" --target kind,place --metric kind.size
refused 2 "has parts, but" "$@" --target kind --loss kind=cross-entropy
refused 2 "two parts for output 'kind'" "$@" --target kind,place --loss kind=mse,kind=mae
refused 2 "is no OUTPUT.*=LOSS" "$@" --target kind,place --loss kind=cross-entropy,mse
refused 2 "has the weight '-1'" "$@" --target kind,place --loss "place=mse*-1"
refused 2 "'edge', which is no output" "$@" --target kind,place --loss edge=mse
refused 2 "'place' has numbers" "$@" --target kind,place --loss place=cross-entropy
refused 2 "sample [0-9]* (from 0): target 'place' \[[01]\] is .* the loss bce takes" "$@" \
  --target kind,place --loss place=bce
refused 1 "edge.npy: cannot be opened" "$@" --target kind,edge
refused 2 "'0:9' for axis 1: reaches beyond the axis" "$@" --target "place[:,0:9]"
refused 1 "200 targets" "$@" --target "kind[::2]"
refused 2 "input field 'state' is there twice" "$mlp" --quiet --data "$work/set" \
  --inputs state,state --target kind
refused 2 "several targets; leave it out" "$@" --target kind,place --task regression
echo "1..$n"
exit $failed
