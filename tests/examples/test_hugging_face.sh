#!/bin/sh
# Folders of Hugging Face's transformers: what the trainer says of wrong ones, and the same logits in
# both directions (tools/compare_transformers.py). PYTHON names a python with torch and transformers.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
gpt=${GPT:-examples/gpt} source=${SL_SRCDIR:-.} python=${PYTHON:-python3}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
shown='out log'
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}" PYTHONDONTWRITEBYTECODE=1
run() { timeout 120 "$@" >"$work/out" 2>"$work/log"; }
tiny="--data grammar --layers 2 --heads 2 --width 16 --context 12 --batch 4 --quiet"

# ---- the trainer's own folders ----
for style in "gpt2" "llama --kv-heads 1"; do
  # shellcheck disable=SC2086
  run "$gpt" $tiny --style $style --steps 3 --save "$work/${style%% *}/"
  verdict $? "${style%% *}: a folder is saved"
  check "it has the model's configuration" \
    grep -q "\"model_type\": \"${style%% *}\"" "$work/${style%% *}/config.json"
  run "$gpt" --load "$work/${style%% *}/" --sample 10 --temperature 0
  verdict $? "text from the folder"
  cp "$work/out" "$work/text"
  # shellcheck disable=SC2086
  run "$gpt" $tiny --style $style --steps 3 --save "$work/own.safetensors" &&
    run "$gpt" --style $style --layers 2 --heads 2 --width 16 --context 12 \
      --load "$work/own.safetensors" --sample 10 --temperature 0
  check "it is that of the weights in a file" cmp -s "$work/out" "$work/text"
done
run "$gpt" --data grammar --batch 4 --quiet --load "$work/gpt2" --steps 2 --save "$work/next/"
verdict $? "a training goes on from a folder"
# shellcheck disable=SC2086
run "$gpt" $tiny --steps 2 --save "$work/one/" --best "$work/two/" &&
  [ -e "$work/one/config.json" ] && [ -e "$work/two/config.json" ]
verdict $? "--save and --best write two folders"

# ---- more embeddings than words ----
tokenize=${TOKENIZE:-tools/starling-tokenize}
cp -r "$work/gpt2" "$work/few"
# the first two words of the vocabulary
sed 's/\("words": *\[[^,]*,[^,]*\),.*\]/\1]/' "$work/gpt2/vocabulary.json" \
  >"$work/few/vocabulary.json"
run "$gpt" --load "$work/few/" --sample 60 --temperature 9
verdict $? "text of a folder whose vocabulary has fewer words than the model"
awk 'BEGIN { for (i = 0; i < 9000; i++) printf "%s", i * i " x" i % 7 (i % 9 ? " " : "\n") }' \
  >"$work/text.txt"
for size in 280 300; do
  run "$tokenize" --train --vocabulary $size --save "$work/$size.json" "$work/text.txt"
done
# shellcheck disable=SC2086
run "$gpt" $tiny --data "$work/text.txt" --tokenizer "$work/300.json" --steps 3 --save "$work/pad/"
cp "$work/280.json" "$work/pad/tokenizer.json"
run "$gpt" --load "$work/pad/" --sample 300 --temperature 9
verdict $? "text of a folder whose tokenizer has fewer tokens"
check "it has a byte for each token at least" test "$(wc -c <"$work/out")" -ge 300
run "$tokenize" --tokenizer "$work/280.json" --output "$work/text.bin" "$work/text.txt"
run "$gpt" --data "$work/text.bin" --load "$work/pad/" --steps 2 --batch 4 --quiet
verdict $? "a training goes on with a token file"
cp -r "$work/pad" "$work/bare" && rm "$work/bare/tokenizer.json"
run "$gpt" --data "$work/text.bin" --load "$work/bare/" --steps 2 --batch 4 --quiet
verdict $? "without a tokenizer, too"
# ids 300 to 399 have no token
sed 's/"added_tokens": \[/&{"id": 400, "content": "<far>"}/' "$work/300.json" >"$work/gap.json"
# shellcheck disable=SC2086
run "$gpt" $tiny --data "$work/text.txt" --tokenizer "$work/gap.json" --steps 3 --save "$work/gap/"
run "$gpt" --load "$work/gap/" --sample 300 --temperature 9 --seed 2
[ $? = 1 ] && [ "$(wc -l <"$work/log")" = 1 ] &&
  grep -q '^gpt: token .*, which the tokenizer does not have' "$work/log"
verdict $? "an id without a token, between others, is an error"

# ---- what is refused ----
# refused CODE WORDS OPTIONS...: one line
refused() {
  code=$1 words=$2; shift 2
  run "$gpt" --data grammar --quiet --steps 1 "$@"; got=$?
  if [ $got = "$code" ] && [ "$(wc -l <"$work/log")" = 1 ] && grep -q -e "$words" "$work/log"; then
    ok "$(sed "s|$work/||g" "$work/log")"
  else
    not_ok "refused: exit code $got (not $code)"
  fi
}
refused 2 "has 2; leave the option out" --load "$work/gpt2/" --layers 3
refused 2 "of the other style" --load "$work/gpt2/" --style llama
refused 2 "has 12 positions; take 12 or less" --load "$work/gpt2/" --context 13
refused 2 "config.json" --load "$work/nothing/"
refused 2 "save writes this file, too" --save "$work/one/" --best "$work/one"
refused 2 "would overwrite --data $work/one/config.json" --save "$work/one/" \
  --data "$work/one/config.json"
refused 2 "model.safetensors" --save "$work/one/" --best "$work/one/model.safetensors"
for file in config vocabulary tokenizer; do
  refused 2 "--save $work/one/ writes $work/one/$file.json, too" --save "$work/one/" \
    --log "$work/one/$file.json"
done
refused 2 "would overwrite --data $work/pad/tokenizer.json" --save "$work/pad" \
  --data "$work/pad/tokenizer.json"
run "$gpt" --data "$work/text.txt" --quiet --batch 4 --steps 1 --load "$work/pad/" --save "$work/pad" \
  --tokenizer "$work/pad/tokenizer.json" --log "$work/pad/log.jsonl"
verdict $? "a folder is loaded and saved, with its tokenizer and a log in it"
for way in "--sample 3" "--data $work/text.txt"; do
  # shellcheck disable=SC2086
  refused 2 "bare: has no tokenizer.json; name one by --tokenizer FILE" --load "$work/bare" $way
done
cp "$work/gap.json" "$work/bare/tokenizer.json"
refused 2 "has embeddings of 300 tokens, the vocabulary has 401" --load "$work/bare/" \
  --data "$work/text.bin"
refused 2 "has embeddings of 300 tokens, the vocabulary has 401" --load "$work/bare/" --sample 3
cp -r "$work/llama" "$work/wrong"
# changed SED WORDS: a configuration that is not supported
changed() {
  sed "$1" "$work/llama/config.json" >"$work/wrong/config.json"
  refused 2 "$2" --load "$work/wrong/"
}
changed 's/"model_type": "llama"/"model_type": "bloom"/' '"bloom" are not supported; gpt2 and llama'
changed 's/"rope_type": "default"/"rope_type": "llama3"/' 'kind "llama3"'
changed 's/"head_dim": 8/"head_dim": 16/' '"head_dim" is not'
changed 's/"hidden_act": "silu"/"hidden_act": "relu"/' '"relu"; models with "silu"'
changed 's/"mlp_bias": false/"mlp_bias": true/' '"mlp_bias" is true'
changed 's/"hidden_size": 16/"hidden_size": "x"/' '"hidden_size" must be a whole number'
changed 's/{/[/' 'config.json'
changed 's/"num_key_value_heads": 1/"num_key_value_heads": 3/' '3 heads of keys'

# ---- transformers ----
if "$python" -c 'import torch, transformers' 2>/dev/null; then
  run "$python" "$source/tools/compare_transformers.py" \
    --program "${GPT_FOLDER:-tests/examples/gpt_folder}"
  verdict $? "the same logits as transformers, in both directions"
  sed 's/^/# /' "$work/out"
else
  skip "the same logits as transformers" "$python has no torch and transformers; set PYTHON"
fi
echo "1..$n"
exit $failed
