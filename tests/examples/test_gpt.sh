#!/bin/sh
# gpt: both styles learn; the weights have the same bits whatever the scheduler, the workers, the
# chunks, the stages and what is computed again; text from saved weights; bad options get one line.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
gpt=${GPT:-examples/gpt}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
shown="out err"
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"
# a text with an easy rule: the alphabet, again and again, in lines of different length
awk 'BEGIN {
  for (i = 0; i < 4000; i++) { printf "%c", 97 + i % 26; if (i * i % 37 == 3) print "" }
}' >"$work/text.txt"

# train FILE OPTIONS...
train() {
  file=$1; shift
  rm -f "$work/$file"
  timeout 120 "$gpt" --data "$work/text.txt" --replicas 2 --layers 2 --heads 2 --width 16 \
    --context 20 --batch 6 --seed 3 --save "$work/$file" "$@" >"$work/out" 2>"$work/err"
}
# same NAME OPTIONS...: the bits of the training in $work/first.safetensors
same() {
  name=$1; shift
  if train again.safetensors $common "$@"; then
    check "$name: the same weights to the bit" cmp -s "$work/first.safetensors" \
      "$work/again.safetensors"
  else
    not_ok "$name: a run"
  fi
}
# close LOG LOG: the same number of losses, each within 1e-5
close() {
  for log; do sed -n '/"step"/s/.*"loss": *\([0-9.e-]*\).*/\1/p' "$log" >"$log.losses"; done
  paste "$1.losses" "$2.losses" | awk '
    function off(x, y) { return (x - y) ^ 2 > 1e-10 }
    NF != 2 || off($1, $2) { bad = 1 }
    END { exit bad || NR < 6 }'
}
for style in gpt2 llama; do
  common="--style $style --steps 6" first=wte,wpe
  [ $style = llama ] && common="$common --kv-heads 1" first=wte
  check "$style trains" train first.safetensors $common
  same "$style, a task for each call" --eager
  STARPU_SCHED=prio; export STARPU_SCHED
  same "$style, another scheduler" --eager
  unset STARPU_SCHED
  STARPU_NCPU=1 same "$style, one worker" --devices cpu --replicas 2
  same "$style, computed again" --recompute 'h*'
  same "$style, computed again, a task for each call" --recompute 'h0-1' --eager
  same "$style, blocks on workers of their own" \
    --placement "$first,h0=cpu:0;h1,lnf,head=cpu:1" --replicas 2
  common="$common --dropout 0.2"
  check "$style with dropout trains" train first.safetensors $common
  same "$style with dropout, computed again" --recompute 'h*'
  # without chunks products have other bits: the losses agree within rounding
  rm -f "$work/whole.jsonl" "$work/chunks.jsonl"
  train whole.safetensors $common --log "$work/whole.jsonl"
  check "$style in chunks trains" train first.safetensors $common --chunk 20 \
    --log "$work/chunks.jsonl"
  check "has the losses of whole samples" close "$work/whole.jsonl" "$work/chunks.jsonl"
  same "$style in chunks of 10" --chunk 10
  same "$style in chunks of 7" --chunk 7
  same "$style in chunks of 7, a task for each call" --chunk 7 --eager
  STARPU_NCPU=1 same "$style in chunks of 7, one worker" --chunk 7 --devices cpu
  same "$style in chunks, computed again" --chunk 7 --recompute 'h*'
  same "$style in chunks, blocks on workers of their own" --chunk 7 \
    --placement "$first,drop,h0=cpu:0;h1,lnf,head=cpu:1"
done

# ---- memory ----
limit=1G
# peak OPTIONS...: prints the most megabytes that tensors took; one worker leaves no choice of order
peak() {
  STARPU_NCPU=1 timeout 120 "$gpt" --data "$work/text.txt" --layers 8 --heads 2 --width 32 \
    --context 64 --batch 16 --replicas 1 --steps 3 --memory-limit "cpu=$limit" "$@" \
    >"$work/out" 2>"$work/err"
  sed -n 's/^Memory *at most \([0-9.]*\) of.*/\1/p' "$work/out"
}
whole=$(peak) less=$(peak --recompute 'h*')
check "blocks computed again take less than half the memory: $less of $whole MB" \
  awk "BEGIN { exit !(${less:-9} < 0.5 * ${whole:-0}) }"
cut=$(peak --chunk 16 --eager) less=$(peak --chunk 16 --recompute 'h*')
check "chunks take little more: $cut of $whole MB" \
  awk "BEGIN { exit !(${cut:-9e9} < 1.4 * ${whole:-0}) }"
check "and computed again less than half of that: $less of $cut MB" \
  awk "BEGIN { exit !(${less:-9e9} < 0.5 * ${cut:-0}) }"
# needs OPTIONS...: prints the megabytes that a training says it needs at least; 3 MB are too few
limit=3M
needs() {
  peak "$@" >/dev/null
  sed -n 's/.* need at least \([0-9.]*\) MB.*/\1/p' "$work/err"
}
whole=$(needs --chunk 64) cut=$(needs --chunk 16)
check "chunks are known to need more than one: $cut and $whole MB at least" \
  awk "BEGIN { exit !(${cut:-0} > ${whole:-9e9}) }"

# ---- text ----
check "a longer training" train long.safetensors --steps 300 --lr 5e-3
loss=$(sed -n 's/^Perplexity *\([0-9.]*\).*/\1/p' "$work/out")
check "learns the alphabet: perplexity $loss" awk "BEGIN { exit !($loss < 2) }"
timeout 60 "$gpt" --layers 2 --heads 2 --width 16 --context 20 --load "$work/long.safetensors" \
  --sample 12 --temperature 0 --prompt abcd >"$work/out" 2>"$work/err"
check "goes on with the alphabet" grep -q '^abcd.*[e-z]' "$work/out"
timeout 60 "$gpt" --layers 2 --heads 2 --width 16 --context 20 --load "$work/long.safetensors" \
  --sample 70 --temperature 0 --prompt abcd >"$work/out" 2>"$work/err"
verdict $? "more tokens than the context has"
check "go on from the second half of what was read" \
  test "$(tr -d '\n' <"$work/out" | wc -c)" -ge 60

# ---- tokens of a tokenizer.json, and files of them ----
tokenize=${TOKENIZE:-tools/starling-tokenize}
small="--layers 1 --heads 2 --width 16 --context 12"
"$tokenize" --train --vocabulary 280 --save "$work/tokenizer.json" "$work/text.txt" \
  >"$work/out" 2>"$work/err" &&
  "$tokenize" --tokenizer "$work/tokenizer.json" --output "$work/text.bin" "$work/text.txt" \
    >"$work/out" 2>"$work/err"
verdict $? "a tokenizer and a token file are made"
check "trains on a text with a tokenizer" train bpe.safetensors $small --steps 20 \
  --tokenizer "$work/tokenizer.json"
check "the tokenizer is saved beside the weights" \
  cmp -s "$work/tokenizer.json" "$work/bpe.safetensors.tokenizer.json"
check "trains on a token file" train bin.safetensors $small --steps 20 --data "$work/text.bin" \
  --tokenizer "$work/tokenizer.json"
check "and on one without a tokenizer" train bin.safetensors $small --steps 20 \
  --data "$work/text.bin" --words 280
timeout 60 "$gpt" $small --load "$work/bpe.safetensors" --sample 6 --prompt abc --temperature 0 \
  >"$work/out" 2>"$work/err"
verdict $? "goes on with a text by the saved tokenizer"
check "the text begins with the prompt" grep -q '^abc' "$work/out"
! train bin.safetensors $small --steps 20 --data "$work/text.bin" --words 270
verdict $? "a token outside the vocabulary is refused"
check "in a line with the token's place" grep -q 'token' "$work/err"

# ---- a text of one line ----
# one_line NAME SAMPLES WORDS OPTIONS...: of its training part
one_line() {
  name=$1 samples=$2 words=$3; shift 3
  train line.safetensors $small --steps 2 --data "$work/line.txt" "$@"
  verdict $? "trains on a text of one line, $name"
  check "its training part has $samples samples" grep -q "part: $samples samples;" "$work/out"
  check "of $words whole words" grep -q "^Vocabulary  *$words " "$work/out"
}
awk 'BEGIN { for (i = 0; i < 4003; i++) printf "words " }' >"$work/line.txt"
one_line "of words" 300 3 --level word
echo >>"$work/line.txt"
one_line "with a line end" 300 3 --level word
awk 'BEGIN { for (i = 0; i < 2005; i++) printf "\303\251" }' >"$work/line.txt"
one_line "of letters alone, each of two bytes" 401 3 --context 9

# ---- bad input ----
# refuses WORDS OPTIONS...: exit code 2, and one line with these words
refuses() {
  words=$1; shift
  timeout 60 "$gpt" "$@" >"$work/out" 2>"$work/err"
  if [ $? = 2 ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q -e "$words" "$work/err"; then
    ok "$*: $words"
  else
    not_ok "$*: $words"
  fi
}
refuses "--heads 3: must divide --width 16" --heads 3 --width 16
refuses "--kv-heads 3: must divide --heads 4" --heads 4 --kv-heads 3 --width 16
refuses "is odd" --style llama --heads 4 --width 12
refuses "unknown; use gpt2 or llama" --style bert
refuses "--chunk 9: a sample has fewer tokens, --context 8" --context 8 --chunk 9
refuses "belong to --sample" --prompt a
cp "$work/text.txt" "$work/f.vocabulary.json"
refuses "would overwrite --data $work/f.vocabulary.json" --data "$work/f.vocabulary.json" \
  --save "$work/f"
refuses "--best $work/f writes $work/f.vocabulary.json, too" --best "$work/f" \
  --log "$work/f.vocabulary.json"
refuses "--save $work/f writes $work/f.tokenizer.json, too" --save "$work/f" \
  --report-failure "$work/f.tokenizer.json"
check "a tokenizer is read and written" train bpe.safetensors $small --steps 2 \
  --tokenizer "$work/bpe.safetensors.tokenizer.json"
echo "1..$n"
exit $failed
