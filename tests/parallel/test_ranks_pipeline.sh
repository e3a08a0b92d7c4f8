#!/bin/sh
# A model over several ranks: groups of 2, 3 and 4 ranks against one process
# (tests/parallel/nodes_ranks.c describes the cases), then the trainers themselves: the weights they
# save, and bad arguments, which they refuse by one line, with exit code 2 and without a hang.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
program=${NODES_RANKS:-tests/parallel/nodes_ranks} lm=${LSTM_LM:-examples/lstm_lm}
command -v mpirun >/dev/null || skip_all "no mpirun: no model over several ranks was tested"
grep -q '^#define SL_HAVE_MPI 1' "${SL_BUILDDIR:-.}/config.h" ||
  skip_all "a build without MPI: no model over several ranks was tested"
[ -x "$program" ] || skip_all "no $program: was it built (make check)?"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_NCPU=1 STARPU_NCUDA=0 STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1
export STARPU_HOME="${STARPU_HOME:-$work}"
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# MPI's plugins leak and are unloaded before a sanitizer's report, so no suppression can name them.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
mpi="--oversubscribe --bind-to none --mca mpi_yield_when_idle 1"
mpi="$mpi --mca btl_base_warn_component_unused 0"
[ "$(id -u)" = 0 ] && mpi="--allow-run-as-root $mpi"
over() { timeout -k 10 250 mpirun $mpi -np "$@" >"$work/out" 2>"$work/err"; }
over 2 true || skip_all "mpirun starts nothing here: $(grep -v '^[- ]*$' "$work/err" | head -n 1)"

for ranks in 2 3 4; do
  over $ranks "$program" "$work"; code=$?
  while read -r line; do
    case $line in
      "ok - "*) ok "${line#ok - }" ;;
      *) not_ok "${line#not ok - }" ;;
    esac
  done <"$work/out"
  if [ $code = 0 ]; then
    ok "$ranks ranks end with code 0"
  else
    not_ok "$ranks ranks: exit code $code"
  fi
done

# ---- the trainers ----
network="--layers 2 --hidden 8 --embed 8 --words 60 --batch 8 --replicas 1 --quiet"
halves='embed,lstm0=rank0/cpu:0;lstm1,decoder=rank1/cpu:0'
small="$network --bptt 6 --steps 12 --microbatches 2"
"$lm" $small --save "$work/one" >"$work/out" 2>"$work/err" || not_ok "one process"
if over 2 "$lm" $small --kvstore dist_sync --placement "$halves" --save "$work/two" \
  --checkpoint "$work/folder" && cmp "$work/one" "$work/two" 2>"$work/err"; then
  ok "lstm_lm over 2 ranks saves the weights of one process"
else
  not_ok "lstm_lm over 2 ranks saves other weights"
fi
if "$lm" $small --checkpoint "$work/folder" --resume --save "$work/again" \
  >"$work/out" 2>"$work/err" && cmp "$work/one" "$work/again" 2>"$work/err"; then
  ok "one process reads its checkpoint"
else
  not_ok "one process does not read its checkpoint"
fi
# rank 0 has nothing to train; then it gets a gradient through a frozen layer of rank 1
for frozen in embed,lstm0 lstm1; do
  set -- $small --optimizer adam --clip 0.2 --freeze "$frozen"
  "$lm" "$@" --save "$work/frozen" >"$work/out" 2>"$work/err" || not_ok "one process: $*"
  if over 2 "$lm" "$@" --kvstore dist_sync --placement "$halves" --save "$work/two" &&
    cmp "$work/frozen" "$work/two" 2>"$work/err" && ! cmp -s "$work/frozen" "$work/one"; then
    ok "--freeze $frozen over 2 ranks: the weights of one process"
  else
    not_ok "--freeze $frozen over 2 ranks: other weights"
  fi
done
# norms of the replicas' gradients, of which rank 0 has none
set -- $small --replicas 2 --freeze embed,lstm0 --log-gradients
norms() { sed -n 's/.*"loss": [0-9].*"grad_norm": *\([-0-9.e]*\).*/\1/p' "$1"; }
if "$lm" "$@" --log "$work/one.jsonl" >"$work/out" 2>"$work/err" &&
  over 2 "$lm" "$@" --kvstore dist_sync --placement "$halves" --log "$work/two.jsonl" &&
  [ "$(norms "$work/one.jsonl" | wc -l)" = 12 ] &&
  [ "$(norms "$work/one.jsonl")" = "$(norms "$work/two.jsonl")" ]; then
  ok "--log-gradients where rank 0 trains nothing: the norms of one process"
else
  not_ok "--log-gradients where rank 0 trains nothing: $(tail -n 1 "$work/err")"
fi
# activations travel as bf16, too
if "$lm" $small --math bf16 --save "$work/half" >"$work/out" 2>"$work/err" &&
  ! cmp -s "$work/one" "$work/half" &&
  over 2 "$lm" $small --math bf16 --kvstore dist_sync --placement "$halves" --save "$work/two" &&
  cmp "$work/half" "$work/two" 2>"$work/err"; then
  ok "bf16 over 2 ranks: the weights of one process"
else
  not_ok "bf16 over 2 ranks: other weights"
fi
# sentences of several lengths: a plan for each
small="$network --buckets auto:3 --steps 12 --microbatches 2"
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
  echo "a b c d e f g h i j k l m n o"
  echo "a b c"
  echo "b c d e f"
  echo "c d e f g h a b"
  echo "e d c b a f"
  echo "g h i j k a b c d e f g"
done >"$work/text"
"$lm" --data "$work/text" $small --save "$work/one" >"$work/out" 2>"$work/err" ||
  not_ok "one process, sentences"
if over 2 "$lm" --data "$work/text" $small --kvstore dist_sync \
  --placement "$halves" --save "$work/two" &&
  cmp "$work/one" "$work/two" 2>"$work/err"; then
  ok "sentences over 2 ranks: the weights of one process"
else
  not_ok "sentences over 2 ranks: other weights"
fi

# a transformer, a block on each rank, and the cache of keys and values in chunks
gpt="${GPT:-examples/gpt} --data $work/text --style llama --layers 2 --heads 2 --width 16"
gpt="$gpt --context 10 --batch 6 --seed 3 --replicas 1 --microbatches 2 --steps 6 --quiet"
halves='wte,h0=rank0/cpu:0;h1,lnf,head=rank1/cpu:0'
set -f # h* is no file's name
for options in "" "--chunk 4" "--recompute h*" "--math bf16 --recompute h0"; do
  if $gpt $options --save "$work/one.safetensors" >"$work/out" 2>"$work/err" &&
    over 2 $gpt $options --kvstore dist_sync --placement "$halves" \
      --save "$work/two.safetensors" &&
    cmp "$work/one.safetensors" "$work/two.safetensors" 2>"$work/err"; then
    ok "gpt $options over 2 ranks: the weights of one process"
  else
    not_ok "gpt $options over 2 ranks: other weights"
  fi
done
set +f
halves='embed,lstm0=rank0/cpu:0;lstm1,decoder=rank1/cpu:0'

# the residual of compression is part of a checkpoint, over a model's ranks and groups of them, too
packed="$network --kvstore dist_sync --compress 2bit:0.01 --placement $halves"
for ranks in 2 4; do
  rm -rf "$work/packed"
  if over $ranks "$lm" $packed --steps 12 --save "$work/one" &&
    over $ranks "$lm" $packed --steps 7 --checkpoint "$work/packed" &&
    over $ranks "$lm" $packed --steps 12 --checkpoint "$work/packed" --resume \
      --save "$work/two" &&
    cmp "$work/one" "$work/two" 2>"$work/err"; then
    ok "compressed, $ranks ranks: goes on to the same weights"
  else
    not_ok "compressed, $ranks ranks: does not go on to the same weights"
  fi
done

# refused WORDS RANKS ARGUMENTS...: exit code 2, one line of the trainer
refused() {
  words=$1 ranks=$2; shift 2
  if [ "$ranks" = 0 ]; then
    timeout 60 "$lm" $small "$@" >"$work/out" 2>"$work/err"
  else
    over "$ranks" "$lm" $small "$@"
  fi
  code=$?
  grep '^lstm_lm: ' "$work/err" >"$work/lines"
  if [ $code = 2 ] && [ "$(wc -l <"$work/lines")" = 1 ] && grep -q -e "$words" "$work/lines"; then
    ok "refused: $(cat "$work/lines")"
  else
    not_ok "$ranks ranks, $*: exit code $code, $(wc -l <"$work/lines") lines"
  fi
}
refused "start a multiple of 2" 3 \
  --kvstore dist_sync --placement 'embed,lstm0=rank0/cpu;lstm1,decoder=rank1/cpu'
refused "rank 1: unknown device 'gpx'" 2 \
  --kvstore dist_sync --placement 'embed,lstm0=rank0/cpu;lstm1,decoder=rank1/gpx'
refused "KVStore local is of one" 0 --placement 'embed,lstm0=rank0/cpu;lstm1,decoder=rank1/cpu'
refused "start a multiple of 2" 0 \
  --kvstore dist_sync --placement 'embed,lstm0=rank0/cpu;lstm1,decoder=rank1/cpu'
echo "1..$n"
exit $failed
