#!/bin/sh
# starling-tokenize: a tokenizer is learned, a text becomes a token file and the same text again;
# special tokens and ends of texts; wrong options and files get one clear line.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
tokenize=$(realpath "${TOKENIZE:-tools/starling-tokenize}")
fixtures=$(realpath "${SL_SRCDIR:-.}/tests/fixtures")
[ -x "$tokenize" ] || skip_all "$tokenize is not built"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
text=$fixtures/tokenizer_text.txt

run() { "$tokenize" "$@" >out 2>err; }
# refuses STATUS MESSAGE ARGUMENT...: one line with the message
refuses() {
  wanted=$1 message=$2; shift 2
  run "$@"
  [ $? -eq "$wanted" ] && [ "$(wc -l <err)" -eq 1 ] && grep -qF -e "$message" err
  verdict $? "refused: $message"
}

for pattern in gpt2 llama3; do
  run --train --vocabulary 400 --pattern $pattern --special "<|endoftext|>" \
    --special "<|ü x|>" --save $pattern.json "$text" && grep -q "^$pattern.json: 400 tokens$" out
  verdict $? "$pattern: a tokenizer is learned"
  run --tokenizer $pattern.json -o mine.bin "$text" &&
    run --tokenizer "$fixtures/tokenizer_$pattern.json" -o theirs.bin "$text" &&
    cmp -s mine.bin theirs.bin
  verdict $? "$pattern: the tokens are those of Hugging Face's file"
  run --tokenizer $pattern.json --decode mine.bin && cmp -s out "$text"
  verdict $? "$pattern: the text comes back"
done
run --tokenizer gpt2.json --decode -o again.txt mine.bin mine.bin; [ -s again.txt ]
verdict $? "a text into a file"
run --tokenizer llama3.json --decode -o /dev/fd/1 mine.bin && cmp -s out "$text"
verdict $? "a text into a file that is open"
mkfifo pipe; timeout 30 cat pipe >piped & reader=$!
timeout 30 "$tokenize" --tokenizer llama3.json --decode -o pipe mine.bin 2>err
wait $reader
[ -p pipe ] && cmp -s piped "$text"
verdict $? "a text into a named pipe"
if mknod device c 1 3 2>err; then # a mistake must not cost /dev/null
  run --tokenizer llama3.json --decode -o device mine.bin && [ -c device ]
  verdict $? "a text into a device"
else
  skip "a text into a device" "no device can be made"
fi

many=$(printf 'mine.bin %.0s' $(seq $((300000 / $(wc -c <"$text")))))
{
  trap '' PIPE
  "$tokenize" --tokenizer llama3.json --decode $many 2>err
  echo $? >code
  trap - PIPE
} | head -c 10 >out
[ "$(cat code)" = 0 ] && [ ! -s err ]
verdict $? "where SIGPIPE is ignored: a reader that has ended"
if [ -e /dev/full ]; then
  "$tokenize" --tokenizer gpt2.json --decode mine.bin >/dev/full 2>err
  [ $? = 1 ] && grep -q '^starling-tokenize: the output cannot be written: No space' err
  verdict $? "a full standard output"
  "$tokenize" --tokenizer gpt2.json --decode $many >/dev/full 2>err
  [ $? = 1 ] && grep -q '^starling-tokenize: the output cannot be written: No space' err
  verdict $? "and of a longer text"
fi
mkdir disk
if mount -t tmpfs -o size=64k none disk 2>/dev/null; then
  echo old >disk/text
  head -c 100000 /dev/zero >disk/filled 2>err
  run --tokenizer gpt2.json --decode -o disk/text mine.bin; code=$?
  [ $code = 1 ] && grep -q 'disk/text: cannot be written: No space' err &&
    [ "$(cat disk/text)" = old ] && [ "$(ls disk | wc -l)" = 2 ]
  verdict $? "on a full disk the older text stays"
  umount disk
else
  skip "on a full disk the older text stays" "no file system can be mounted"
fi

printf 'a<|endoftext|>' >one; printf 'b' >two
run --tokenizer gpt2.json --end "<|endoftext|>" -o ends.bin one two &&
  grep -q '^ends.bin: 5 tokens of 15 bytes, u16; a vocabulary of 400$' out
verdict $? "special tokens, and one behind each text"
run --tokenizer gpt2.json --plain -o plain.bin one && ! grep -q ': 2 tokens' out &&
  run --tokenizer gpt2.json --decode plain.bin && cmp -s out one
verdict $? "--plain: they are text"
run --train --vocabulary 5000 --save small.json two && grep -q 'no more pairs' out
verdict $? "a text without enough pairs is said"

refuses 2 "take either --train or --tokenizer FILE" one
refuses 2 "no text is named" --tokenizer gpt2.json
refuses 2 "--train needs --save FILE" --train one
refuses 2 "--tokenizer needs --output FILE, or --decode" --tokenizer gpt2.json one
refuses 2 "need --tokenizer FILE" --train --save x.json -o x.bin one
refuses 2 "--save: needs --train" --tokenizer gpt2.json --save x one
refuses 2 "--special: needs --train" --tokenizer gpt2.json -o x.bin --special x one
for option in --vocabulary=300 --pattern=gpt2 --least-count=2; do
  refuses 2 "${option%=*}: needs --train" --tokenizer gpt2.json -o x.bin "$option" one
done
refuses 2 "use gpt2 or llama3" --train --pattern bert --save x.json one
refuses 1 "no such token" --tokenizer gpt2.json --end "<none>" -o x.bin one
refuses 1 "a vocabulary of 256 tokens cannot be made" --train --vocabulary 256 --special "<e>" \
  --save x.json one
refuses 1 "one: is damaged or cut short" --tokenizer one -o x.bin one
refuses 1 "No such file" --tokenizer gpt2.json -o x.bin none
refuses 1 "which the tokenizer does not have" --tokenizer small.json --decode mine.bin
cp two sh.txt; ln -s sh.txt link.txt; cp gpt2.json kept.json
refuses 2 "--output sh.txt: would overwrite ./sh.txt; name another file" --tokenizer gpt2.json \
  ./sh.txt -o sh.txt
refuses 2 "--save link.txt: would overwrite sh.txt" --train --save link.txt one sh.txt
refuses 2 "--output gpt2.json: would overwrite --tokenizer gpt2.json" --tokenizer gpt2.json \
  -o gpt2.json one
refuses 2 "--output mine.bin: would overwrite mine.bin" --tokenizer gpt2.json --decode \
  -o mine.bin mine.bin
cmp -s two sh.txt && cmp -s kept.json gpt2.json
verdict $? "no output takes the place of an input"
[ ! -e x.bin ] && [ ! -e x.json ]
verdict $? "and nothing is written"
echo "1..$n"
exit $failed
