#!/bin/bash
# One table of options a program: --help, the man page and bash's completion name the same options;
# a wrong value is refused by a line with the option, the value and the allowed values; a run's
# JSON has the logged options.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=${SL_BUILDDIR:-$PWD}
trainers="gpt lenet lstm_lm mlp resnet"
tools="starling-plot starling-predict starling-report starling-tokenize starling-trace
starling-train starling-tune"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n=0 failed=0
ok() { n=$((n + 1)); echo "ok $n - $*"; }
not_ok() { n=$((n + 1)); failed=1; echo "not ok $n - $*"; }
check() {
  local what=$1; shift
  if "$@" >"$work/out" 2>"$work/err"; then
    ok "$what"
  else
    not_ok "$what"
    sed 's/^/# /' "$work/out" "$work/err" | head -n 8
  fi
}
path() { case $1 in starling-*) echo "$build/tools/$1" ;; *) echo "$build/examples/$1" ;; esac; }
[ -x "$(path lenet)" ] && [ -x "$(path starling-tune)" ] || {
  echo "1..0 # SKIP the programs are not built"
  exit 0
}
run="${SL_SRCDIR:-$here/../..}/tools/starling-run"
pages="${SL_SRCDIR:-$here/../..}/build-aux/help-to-pages"

# ---- --help, --version, the man page and the completion of each program ----
# options_of TEXT: the long options at the beginnings of the lines of a --help
options_of() { sed -nE 's/^ +(-.,? +(N +)?)*(--[a-z-]+).*/\3/p' "$1" | sort -u; }
# page_has_all PAGE HELP, completion_has_all COMPLETION HELP
page_has_all() {
  local o
  for o in $(options_of "$2"); do
    grep -qF -e "$(echo "$o" | sed 's/-/\\-/g')" "$1" || { echo "$1 has no $o"; return 1; }
  done
}
completion_has_all() {
  local o
  for o in $(options_of "$2"); do
    grep -qE -e "$o(=| |')" "$1" || { echo "$1 has no $o"; return 1; }
  done
}
has_sections() {
  local s
  for s in NAME SYNOPSIS DESCRIPTION OPTIONS "EXIT STATUS" EXAMPLES "SEE ALSO"; do
    grep -q "^\.SH $s\$" "$1" || { echo "no section $s"; return 1; }
  done
}
help_is_whole() {
  head -n 1 "$1" | grep -q "^Usage: $2 " && grep -q "^Exit status: 0 done" "$1" &&
    grep -q "^Examples:" "$1"
}
is_clean() { [ -z "$(LC_ALL=C.UTF-8 groff -man -ww -z -Tutf8 "$1" 2>&1)" ]; }
version=$("$(path lenet)" --version)
: >"$work/starling.bash"
cat "${SL_SRCDIR:-$here/../..}/tools/completion.bash" >"$work/starling.bash"
for p in $trainers $tools starling-run; do
  program=$(path "$p")
  [ "$p" != starling-run ] || program=$run
  check "$p --help" "$program" --help
  cp "$work/out" "$work/help"
  [ "$p" = starling-run ] || [ ! -e /dev/full ] ||
    check "$p --help to a full disk fails" \
      sh -c '"$1" --help >/dev/full 2>/dev/null; test $? = 1' sh "$program"
  check "$p --help: usage, exit status and examples" help_is_whole "$work/help" "$p"
  check "$p --version: $version" sh -c 'test "$("$1" --version)" = "$2"' sh "$program" "$version"
  if [ "$p" = starling-run ]; then
    "$run" --help | "$pages" man "$p" "$version" >"$work/$p.1"
    "$run" --help | "$pages" completion "$p" >"$work/completion"
  else
    "$program" --help-man >"$work/$p.1"
    "$program" --help-completion >"$work/completion"
  fi
  cat "$work/completion" >>"$work/starling.bash"
  echo >>"$work/starling.bash"
  options_of "$work/help" >>"$work/helps"
  check "$p has $(options_of "$work/help" | wc -l) options; its page has all" \
    page_has_all "$work/$p.1" "$work/help"
  check "the completion, too" completion_has_all "$work/completion" "$work/help"
  check "the page has all sections" has_sections "$work/$p.1"
  if command -v groff >/dev/null; then
    check "groff has nothing against the page" is_clean "$work/$p.1"
  fi
done

# ---- the library's messages: its users may have other programs than these ----
names_no_option() {
  local o library=$build/.libs/libstarling.so.0
  [ -e "$library" ] || library=$build/libstarling_all.la
  strings -n 4 "$library" >"$work/strings"
  for o in $(cat "$work/helps" | sort -u); do
    ! grep -F -e "$o" "$work/strings" | grep -v mpirun | grep -wF -e "$o" || return 1
  done
}
if command -v strings >/dev/null; then
  check "the library's messages name no option of a program" names_no_option
fi

# ---- defaults in --help ----
# defaults PROGRAM OPTION TEXT: the option's help ends with this default
defaults() {
  "$(path "$1")" --help | tr '\n' ' ' | sed 's/  */ /g' >"$work/help"
  if grep -qF -e "(default $3)" <(grep -oE -e "--$2[= ].*" "$work/help" | sed 's/ --.*//'); then
    ok "$1 --help: --$2: default $3"
  else
    not_ok "$1 --help: --$2: default $3"
  fi
}
defaults lenet data digits
defaults lenet lr 0.1
defaults lenet momentum 0
defaults lenet activation tanh
defaults resnet data shapes
defaults resnet momentum 0.9
defaults resnet weight-decay 0.0001
defaults resnet init he
defaults resnet lr-schedule drops:50%:75%,warmup:2%
defaults gpt optimizer adamw
defaults gpt lr 0.001
defaults lstm_lm data grammar
defaults lstm_lm lr 20
defaults lstm_lm clip 0.25
defaults lstm_lm batch 20
defaults mlp hidden 512,512
defaults mlp stall-timeout 60
defaults starling-tune least 2

# ---- completion in bash ----
completed='compopt() { :; }; . "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _starling'
# complete_words WORD...: what bash offers at the end of this command line
complete_words() {
  bash -c "$completed; "'printf "%s\n" "${COMPREPLY[@]}"' "$work/starling.bash" "$@" |
    LC_ALL=C sort | tr '\n' ' '
}
offers() {
  local wanted=$1 got; shift
  got=$(complete_words "$@")
  if [ "$got" = "$wanted" ]; then
    ok "$* TAB offers $wanted"
  else
    not_ok "$* TAB offers '$got', not '$wanted'"
  fi
}
offers "--math= --max-staleness= --memory-limit= --metric= --microbatches= --missing= --momentum= " lenet --m
offers "adagrad adam adamw " lenet --optimizer ad
offers "adagrad adam adamw " lenet --optimizer = ad
offers "bf16 f32 tf32 " lenet --batch 3 --math ""
offers "dist_async dist_async_device dist_sync dist_sync_device " ./mlp --kvstore dist
offers "char word " lstm_lm --level ""
offers "bilinear box none " starling-predict --resize ""
offers "--same-bits --schedulers= --seconds= --steps= " starling-tune --s
mkdir "$work/folder" && : >"$work/folder/file"
offers "$work/folder/file " lenet --load "$work/folder/f"

# ---- wrong values: the messages ----
says() {
  local wanted=$1 program; shift
  program=$(path "$1"); shift
  "$program" "$@" >"$work/out" 2>"$work/err"
  local code=$?
  if [ $code = 2 ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -qF -e "$wanted" "$work/err"; then
    ok "$(cat "$work/err")"
  else
    not_ok "$program $*: exit code $code, $(head -n 1 "$work/err")"
  fi
}
says "lenet: --batch '0': must be a whole number from 1 to 1000000" lenet --batch 0
says "lenet: --lr 'nan': must be a number from 1e-12 to 1000" lenet --lr nan
says "lenet: --seed '-1': must be a whole number from 0 to 2^64 - 1" lenet --seed=-1
says "lenet: --init 'good': unknown; use default, xavier, he, uniform or zero" lenet --init good
says "lenet: --kvstore 'remote': unknown; use auto, local, device, dist_sync, \
dist_async, dist_sync_device or dist_async_device" lenet --kvstore remote
says "lenet: --data '': the name is empty" lenet --data=
says "lstm_lm: --cell 'rnn': unknown; use lstm or gru" lstm_lm --cell rnn
says "mlp: --hidden '512,,512': '' must be a whole number from 1 to 100000" mlp --hidden 512,,512
says "resnet: --depth '9': must be 6 n + 2" resnet --depth 9
says "starling-plot: --width '10': must be a whole number from 200 to 10000" \
  starling-plot --width 10 x
says "starling-predict: --format 'tiff': unknown; \
use auto, idx, cifar10, pnm, png, jpeg, raw, text or tokens" starling-predict --format tiff m x
says "starling-tune: --workers 'a': must be a list such as 1,2,4" starling-tune --workers a lenet
says "starling-trace: --peak '0': must be a number from 0.001 to 1e+09" starling-trace --peak 0 x
says "starling-report: --smooth '0': must be a whole number from 1 to 1000000000" \
  starling-report --smooth 0 x

# ---- the run's JSON ----
logged() {
  local o
  for o in "$@"; do grep -q "\"$o\": " "$work/line" || { echo "no $o"; return 1; }; done
}
shared="data batch shuffle augment epochs steps seed init optimizer lr momentum weight-decay
  lr-schedule clip devices replicas microbatches split stages placement kvstore math tune eager
  memory-limit swap stall-timeout load save log trace"
if "$(path lenet)" --quiet --steps 2 --no-shuffle --clip 0.1 --log "$work/run.jsonl" \
  2>"$work/err"; then
  head -n 1 "$work/run.jsonl" | sed 's/.*"options": {//; s/}.*//' >"$work/line"
  check "a log's first line has all settings" logged activation $shared
  check "--no-shuffle is shuffle: false; floats have no more digits than they were given" \
    grep -q '"shuffle": false.*"clip": 0.1[,}]\|"clip": 0.1,.*"shuffle": false' "$work/line"
  check "a run without ranks and checkpoints logs none of their options" \
    sh -c '! grep -q "servers\|checkpoint\|timeout\": .*exchange" "$1"' sh "$work/line"
else
  not_ok "2 steps fail: $(cat "$work/err")"
fi
if "$(path lenet)" --quiet --steps 2 --log "$work/run.jsonl" --checkpoint "$work/checkpoints" \
  --checkpoint-every 10min 2>"$work/err"; then
  head -n 1 "$work/run.jsonl" >"$work/line"
  check "a run with --checkpoint logs its options" logged checkpoint checkpoint-every keep resume
  check "minutes are logged as they were given" grep -q '"checkpoint-every": "10min"' "$work/line"
else
  not_ok "2 steps with a checkpoint fail: $(cat "$work/err")"
fi

echo "1..$n"
exit $failed
