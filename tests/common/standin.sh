# Functions that the scripts about a stand-in for a GPU (tests/standin) share; they source this file
# after not_seen="the cases that need the stand-in". $work/err: messages of the last program.
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
[ -e tests/standin/.libs/libcudart.so ] ||
  skip_all "a build without the stand-in (configure --with-cuda=standin): $not_seen"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_NCPU=1 STARPU_NCUDA=1 SL_STANDIN_GPUS=1
# pictures SET COUNT PIXELS LABELS: a set of MNIST's files in $work/data, COUNT a number below
# 65,536; PIXELS and LABELS are commands that print the given number of bytes
pictures() {
  bytes=$(printf '\\000\\000\\%03o\\%03o' $(($2 / 256)) $(($2 % 256)))
  {
    printf "\\000\\000\\010\\003$bytes\\000\\000\\000\\034\\000\\000\\000\\034"
    $3 $((784 * $2))
  } >"$work/data/$1-images-idx3-ubyte"
  { printf "\\000\\000\\010\\001$bytes"; $4 "$2"; } >"$work/data/$1-labels-idx1-ubyte"
}
mkdir "$work/data"
