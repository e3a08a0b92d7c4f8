#!/bin/sh
# The examples that generate their data: a surrogate of a simulation that reaches the noise of its
# measurements, a forecast that beats the naive one, a U-Net that finds the shapes. Each saves a
# model that starling-predict can answer with.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
top=$PWD source=$(cd "${SL_SRCDIR:-.}" && pwd)
predict=${PREDICT:-$top/tools/starling-predict}
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"
cd "$work" || exit 1
shown='err out'

run() { timeout 150 "$top/examples/$1" ${2:+"$2"} >out 2>err; }
# holds CONDITION: of the last line of the output, of which awk's $1, $2, ... are the numbers
holds() {
  tail -n 1 out | sed 's/^[^0-9]*//; s/[^0-9.][^0-9]*/ /g' | awk "{ exit !($1) }"
}

run surrogate
verdict $? "surrogate ends with 0"
check "its error is that of the noise: $(tail -n 1 out)" holds '$1 > 0.48 && $1 < 0.525 && $2 == 0.5'
check "it answers in the unit of the data" grep -q '^measured (-2.9, -5.6, 17.4), answered (-' out
check "the model says what it was trained for" grep -q '"task": "values"' surrogate.json

run forecast
verdict $? "forecast ends with 0"
check "it beats the naive forecast: $(tail -n 1 out)" holds '$1 < 0.3 * $2 && $1 > 0.45'

run unet 3
verdict $? "unet ends with 0"
check "it finds the shapes: $(tail -n 1 out)" holds '$1 > 0.6 && $2 > 90'
check "the model's answers are masks" grep -q '"task": "labels"' unet.json

if [ -e /dev/full ]; then
  for program in "surrogate 1" "forecast 1" "unet 1" "kvstore --steps=1"; do
    timeout 100 "$top/examples/"$program >/dev/full 2>err
    verdict "$(($? != 1))" "$program: a full disk behind the output: exit code 1"
    check "and says so" grep -q "^${program% *}: the output cannot be written" err
  done
fi

for program in surrogate forecast unet; do
  for epochs in none 1x 1.5 0 99999999999; do
    timeout 20 "$top/examples/$program" $epochs >out 2>err
    [ $? = 2 ] && grep -q "^Usage: $program \[EPOCHS\]$" err
    verdict $? "$program refuses what is no number of epochs: $epochs"
  done
  check "$program uses the public interface alone" \
    sh -c "! grep '^#include \"' '$source/examples/$program.c'"
  check "$program is short" test "$(wc -l <"$source/examples/$program.c")" -lt 175
done

echo "1..$n"
exit $failed
