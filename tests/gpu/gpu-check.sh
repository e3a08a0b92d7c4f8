#!/bin/bash
# gpu-check.sh TRAINERS TESTS: does all of Starling work on this machine's GPU? TRAINERS is the
# folder with lenet, mlp, lstm_lm, gpt and resnet, TESTS the one with gpu_ops and the operations'
# own tests; "make gpu-check" and the bundle's check-gpu call it. Prints TAP and a last line; exit
# status 77 if there is no GPU.
#   GPU_CHECK_DEVICE  another device than cuda:0, for a test of this script (cpu:0 must pass, too)
#   GPU_CHECK_STEPS   of each training run (default 20; with a stand-in 6)
#   GPU_CHECK_SEED    of gpu_ops (default: the time, printed)
#   GPU_CHECK_PART    "operations" or "trainers" (default: both)
set -u
case ${GPU_CHECK_PART:-operations} in
  operations | trainers) ;;
  *) echo "GPU_CHECK_PART is '$GPU_CHECK_PART', not operations or trainers" >&2; exit 2 ;;
esac
trainers=${1:-$SL_BUILDDIR/examples} tests=${2:-$SL_BUILDDIR/tests}
device=${GPU_CHECK_DEVICE:-cuda:0} steps=${GPU_CHECK_STEPS:-20}
seed=${GPU_CHECK_SEED:-$(date +%s)}
small=''
# in a build with tests/standin: its threads are slow, and a failure must be repeatable
if [ -n "${SL_STANDIN:-}" ]; then
  small=--small
  steps=${GPU_CHECK_STEPS:-6}
  seed=${GPU_CHECK_SEED:-1}
fi
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_SILENT=1 STARPU_HOME=${STARPU_HOME:-$work}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset STARPU_NCUDA # make check leaves GPUs out
export SL_STANDIN_KEYS=$work/keys # the stand-in's libraries write there what they are asked for
passed=0 failed=0 skipped=0

ok() { passed=$((passed + 1)); echo "ok - $*"; }
not_ok() {
  failed=$((failed + 1)); echo "not ok - $*"
  [ -s "$work/log" ] && tail -n 12 "$work/log" | sed 's/^/# /'
}
skip() { skipped=$((skipped + 1)); echo "ok - $1 # SKIP $2"; }
# verdict STATUS TEXT
verdict() { if [ "$1" -eq 0 ]; then ok "$2"; else not_ok "$2"; fi; }
# quietly COMMAND...: its output goes to the log, whose end not_ok shows; a time limit ends it
quietly() { timeout -k 10 "${GPU_CHECK_TIMEOUT:-600}" "$@" >"$work/log" 2>&1; }

quietly "$tests/gpu/gpu_ops" --device "$device" --only fill
status=$?
if [ $status -eq 77 ]; then
  echo "SKIP: no GPU: $(sed -n 's/.*SKIP no GPU: //p' "$work/log")"
  echo "1..0 # SKIP no GPU"
  exit 77
fi
# 127: the loader has not found a library, which all tests below need
if [ $status -eq 127 ]; then not_ok "gpu_ops starts"; echo "1..1"; exit 1; fi
sed -n 's/^# \(StarPU.*\); seed.*/# \1/p' "$work/log"

# ---- operations ----------------------------------------------------------------------------------
# The program's lines are passed on; another process must find the same digests. With a stand-in its
# threads run in reverse order there, and its tensors begin 4 bytes beside what loads of 16 bytes
# need, but for those of dense layers: cuBLASLt chooses its algorithms by addresses. Each tensor has
# an allocation of its own, so that the stand-in sees writes beside it.
check_all_operations() {
  local by_address='dense_forward dense_shared_forward' status line name
  compare() { quietly "$tests/gpu/gpu_ops" --device "$device" --seed "$seed" $small "$@"; }
  digests() { grep '^# digest' "$1" | grep -vwE "of (${by_address// /|})"; }
  [ -n "${SL_STANDIN:-}" ] && local -x STARPU_SUBALLOCATOR=0 || by_address=none
  compare
  status=$?
  cp "$work/log" "$work/first"
  grep '^#' "$work/first" | grep -v '^# digest'
  while read -r line; do
    : >"$work/log"
    case $line in ok*) ok "${line#ok * - }" ;; *) not_ok "${line#not ok * - }" ;; esac
  done < <(grep -E '^(not )?ok ' "$work/first")
  if [ $status -gt 1 ]; then # 1: a line above says so
    cp "$work/first" "$work/log"
    not_ok "gpu_ops ends: code $status"
  fi
  SL_STANDIN_ORDER=reverse SL_STANDIN_SHIFT=4 compare --once
  [ $? -le $status ] && [ "$(digests "$work/first")" = "$(digests "$work/log")" ]
  verdict $? "gpu_ops in another process: the same bits"
  [ "$by_address" != none ] || return
  for name in $by_address; do
    SL_STANDIN_ORDER=reverse compare --once --only "$name" &&
      [ "$(grep -w "^# digest of $name" "$work/first")" = "$(grep '^# digest' "$work/log")" ]
    verdict $? "gpu_ops in another process: the same bits of $name"
  done
}

check_operations() {
  check_all_operations

  # The operations' own tests: naive sums in double precision, finite differences.
  operations=(activation attention batchnorm compress conv2d dense dropout embedding gru loss lstm
    optimizer_ops pool2d reduce)
  for test in "${operations[@]/#/codelets/test_}" \
    nn/test_custom parallel/test_predictor parallel/test_fields parallel/test_captured_step \
    core/test_chain core/test_graph core/test_graph_horizontal; do
    [ -x "$tests/$test" ] || { skip "$test on $device" "it is not built"; continue; }
    SL_TEST_DEVICE=$device CMOCKA_MESSAGE_OUTPUT=TAP quietly "$tests/$test"
    status=$?
    grep '^not ok' "$work/log" | grep -v '# SKIP' | sed 's/^/# /'
    verdict $status "$test on $device"
  done

  # Operations that use tensor cores without them, as on GPUs before architecture 8.0.
  for test in test_attention test_gru test_lstm; do
    [ -n "${SL_STANDIN:-}" ] && [ -x "$tests/codelets/$test" ] || continue
    SL_STANDIN_ARCHITECTURE=750 SL_TEST_DEVICE=$device CMOCKA_MESSAGE_OUTPUT=TAP \
      quietly "$tests/codelets/$test"
    verdict $? "$test on $device of architecture 7.5"
  done

  # Steps and their copies on a GPU that is slower than the host.
  for test in core/test_chain parallel/test_captured_step; do
    [ -n "${SL_STANDIN:-}" ] && [ -x "$tests/$test" ] || continue
    SL_STANDIN_LAZY=1 SL_TEST_DEVICE=$device CMOCKA_MESSAGE_OUTPUT=TAP quietly "$tests/$test"
    verdict $? "$test on $device, whose work takes a while"
  done

  # With all devices, as a program opens them: batches go where StarPU sends them.
  if [ -x "$tests/parallel/test_predictor" ]; then
    CMOCKA_MESSAGE_OUTPUT=TAP quietly "$tests/parallel/test_predictor"
    verdict $? "test_predictor on all devices at once"
  fi
}

# ---- trainers ------------------------------------------------------------------------------------
# noise COUNT MOST: bytes below MOST, always the same
noise() {
  LC_ALL=C awk -v n="$1" -v most="$2" \
    'BEGIN { srand(1); for (i = 0; i < n; i++) printf "%c", 1 + rand() * (most - 1) }'
}
# pictures PREFIX COUNT: MNIST's files, with noise
pictures() {
  local count
  count="\\$(printf %o "$2")"
  {
    printf "\\0\\0\\10\\3\\0\\0\\0$count\\0\\0\\0\\34\\0\\0\\0\\34"
    noise $(($2 * 784)) 128
  } >"$work/images/$1-images-idx3-ubyte"
  { printf "\\0\\0\\10\\1\\0\\0\\0$count"; noise "$2" 10; } >"$work/images/$1-labels-idx1-ubyte"
}
images=digits colours=shapes corpus=grammar pictures_a_step=32
if [ -n "$small" ]; then # the evaluation at the end would take longer than all steps
  mkdir "$work/images" && pictures train 192 && pictures t10k 10
  head -c 8000 "$0" >"$work/corpus" # a twentieth of it must fill a batch of words
  images=$work/images colours=$work/images corpus=$work/corpus pictures_a_step=8
fi
# options TRAINER: such that a CPU takes some seconds
options() {
  case $1 in
    lenet) echo "--data $images --batch $pictures_a_step --momentum 0.9 --lr 0.02" ;;
    mlp) echo "--data $images --batch 64 --optimizer adam --lr 0.001" ;;
    lstm_lm)
      echo "--data $corpus --batch 4 --hidden 40 --embed 40 --bptt 12 --lr 1 --dropout 0.2" ;;
    # deep, and normalised by its batch: rounding grows faster than elsewhere, and with the rate
    resnet) echo "--data $colours --depth 8 --no-augment --batch $pictures_a_step" \
      "--momentum 0 --lr 0.0005" ;;
    gru)
      echo "--data $corpus --cell gru --tied --batch 4 --hidden 40 --embed 40 --bptt 12" \
        "--chunk 5 --lr 1" ;;
    gpt)
      echo "--data $corpus --layers 2 --heads 2 --width 24 --context 12 --batch 4 --dropout 0.2" ;;
    llama)
      echo "--data $corpus --style llama --layers 2 --heads 2 --kv-heads 1 --width 24" \
        "--context 12 --batch 4 --chunk 5" ;;
  esac
}
# train NAME TRAINER OPTIONS...: leaves $work/NAME.jsonl and NAME.safetensors
train() {
  local name=$1 trainer=$2; shift 2
  local program=$trainer
  case $trainer in gru) program=lstm_lm ;; llama) program=gpt ;; esac
  # shellcheck disable=SC2046
  timeout -k 10 "${GPU_CHECK_TIMEOUT:-600}" "$trainers/$program" $(options "$trainer") \
    --steps "$steps" --seed 3 --quiet --log "$work/$name.jsonl" \
    --save "$work/$name.safetensors" "$@" >"$work/$name.log" 2>&1
  local status=$?
  cp "$work/$name.log" "$work/log"
  return $status
}
# curve NAME OTHER TOLERANCE: the losses of two runs, step by step, must be alike within this share
# of the first loss. Prints the greatest difference.
curve() {
  for run in "$1" "$2"; do
    sed -n 's/.*"step": *\([0-9]*\),.*"loss": *\([^,}]*\).*/\1 \2/p' "$work/$run.jsonl" \
      >"$work/$run.losses"
  done
  paste -d ' ' "$work/$1.losses" "$work/$2.losses" >"$work/both"
  awk -v tolerance="$3" -v steps="$steps" '
    NR == 1 { first = $2 }
    {
      d = $2 - $4
      d = (d < 0 ? -d : d) / first
      if (!(d <= worst)) worst = d
      if ($1 != $3 || $4 !~ /^[-+.0-9e]+$/) bad = 1
    }
    END {
      printf "at most %.2g apart, of %g allowed", worst, tolerance
      exit !(NR == steps && worst <= tolerance && !bad)
    }' "$work/both"
}
# For these runs, which begin at losses of 2 to 5: some hundred units of f32 (2^-23), ten of the
# others (2^-10, 2^-8), since each step carries the rounding of the steps before. On an H200 the mlp
# is 5.6e-3 apart in TF32.
tolerance() { case $1 in f32) echo 5e-5 ;; tf32) echo 1e-2 ;; bf16) echo 3e-2 ;; esac; }

# follows NAME TRAINER MATH TEXT OPTIONS...: a run, and its losses beside those of the CPU
follows() {
  local name=$1 trainer=$2 math=$3 text=$4; shift 4
  if ! train "$name" "$trainer" --math "$math" "$@"; then not_ok "$text: does not run"; return; fi
  local said status
  said=$(curve "$trainer-cpu-$math" "$name" "$(tolerance "$math")"); status=$?
  verdict $status "$text: losses $said"
}

check_trainers() {
  for trainer in lenet mlp lstm_lm gru gpt llama resnet; do
    for math in f32 tf32 bf16; do
      if [ $math = tf32 ]; then # a CPU computes it as f32
        cp "$work/$trainer-cpu-f32.jsonl" "$work/$trainer-cpu-tf32.jsonl" 2>/dev/null || continue
      elif ! train "$trainer-cpu-$math" "$trainer" --math $math --devices cpu:0 --replicas 1; then
        not_ok "$trainer --math $math on a CPU"; continue
      fi
      follows "$trainer-$math" "$trainer" $math "$trainer --math $math on $device beside the CPU" \
        --devices "$device" --replicas 1
    done
  done

  train again lenet --devices "$device" --replicas 1 &&
    cmp -s "$work/again.safetensors" "$work/lenet-f32.safetensors"
  verdict $? "lenet on $device, once more: the same weights to the bit"
}

# ---- steps of a task for each call ---------------------------------------------------------------
# eager NAME TRAINER OPTIONS...: with --eager, without CUDA graphs: the weights of the run NAME
eager() {
  local name=$1 trainer=$2; shift 2
  train "eager-$name" "$trainer" --eager "$@" &&
    cmp -s "$work/eager-$name.safetensors" "$work/$name.safetensors"
  verdict $? "$name: the same weights to the bit if each call is a task"
}
check_eager() {
  for trainer in lenet mlp lstm_lm gru gpt llama resnet; do
    eager "$trainer-f32" "$trainer" --devices "$device" --replicas 1
  done
  train again gpt --devices "$device" --replicas 1 --recompute 'h*' &&
    cmp -s "$work/again.safetensors" "$work/gpt-f32.safetensors"
  verdict $? "gpt on $device, its blocks computed again: the same weights to the bit"
  eager lstm_lm-bf16 lstm_lm --devices "$device" --replicas 1 --math bf16
}

# ---- GPU and CPU together ------------------------------------------------------------------------
check_mixed() {
  for math in f32 bf16; do
    follows mixed-$math lenet $math "lenet --math $math, a replica on $device, one on a CPU" \
      --devices "$device,cpu:0" --replicas 2
    follows placed-$math lenet $math \
      "lenet --math $math, conv1 and pool1 on $device, the rest on a CPU" \
      --replicas 1 --placement "conv1,pool1=$device;conv2,pool2,fc1,fc2=cpu:0"
    follows placed-lm-$math lstm_lm $math \
      "lstm_lm --math $math, layers by turns on $device and a CPU" \
      --replicas 1 --placement "embed,drop0,drop1,lstm1=cpu:0;lstm0,drop2,decoder=$device"
  done
  eager mixed-f32 lenet --devices "$device,cpu:0" --replicas 2
  eager placed-lm-f32 lstm_lm --replicas 1 \
    --placement "embed,drop0,drop1,lstm1=cpu:0;lstm0,drop2,decoder=$device"
}

# ---- little memory -------------------------------------------------------------------------------
check_little_memory() {
  # Less than the run takes: StarPU evicts tensors that no running task needs. In MiB; more than one
  # task needs. StarPU's own allocator would take 32 MiB at a time.
  train whole lenet --devices "$device" --replicas 1 --batch 32
  for limit in 24 12; do
    STARPU_LIMIT_CUDA_MEM=$limit STARPU_SUBALLOCATOR=0 STARPU_PREFETCH=0 train little lenet \
      --devices "$device" --replicas 1 --batch 32 &&
      cmp -s "$work/little.safetensors" "$work/whole.safetensors"
    verdict $? "lenet in $limit MiB of GPU memory: the same weights to the bit"
  done
}

# ---- two at once ---------------------------------------------------------------------------------
check_two_at_once() {
  train one lenet --devices "$device" --replicas 1 &
  first=$!
  train two mlp --devices "$device" --replicas 1
  second=$?
  wait $first && [ $second -eq 0 ] &&
    cmp -s "$work/one.safetensors" "$work/lenet-f32.safetensors" &&
    cmp -s "$work/two.safetensors" "$work/mlp-f32.safetensors"
  verdict $? "lenet and mlp at once on $device: the same weights as alone"
  if [ -x "$tests/gpu/gpu_two" ]; then
    quietly "$tests/gpu/gpu_two" "$device"
    verdict $? "two trainers of one program at once on $device: the same weights as alone"
  fi
}

[ "${GPU_CHECK_PART:-operations}" != operations ] || check_operations
if [ "${GPU_CHECK_PART:-trainers}" = trainers ]; then
  check_trainers
  check_eager
  check_mixed
  check_little_memory
  check_two_at_once
fi

# ---- what the libraries were asked for -----------------------------------------------------------
# On a GPU cuBLASLt and cuDNN refuse a combination themselves; a stand-in cannot know it.
text="cuBLASLt and cuDNN are asked only for what NVIDIA's tables have"
if [ -z "${SL_STANDIN:-}" ]; then
  skip "$text" "this GPU's own libraries answered"
elif [ "$device" = cpu:0 ]; then
  skip "$text" "a CPU asks for nothing"
else
  sort -u "$work/keys" | sed 's/^/# /'
  quietly "$here/check-library-keys" "$here/library_keys.txt" "$work/keys"
  verdict $? "$text: $(sort -u "$work/keys" | wc -l) combinations"
fi

# ---- compute-sanitizer ---------------------------------------------------------------------------
# racecheck reports races in cuDNN's own kernels, and on an H200 the sanitizer itself fails in one
# if only Starling's are checked; initcheck reports the padding that libraries read. So these two
# look at Starling's kernels, and not at those of convolutions.
check_with_sanitizer() {
  own=(--kernel-name kns=_cuda_cu_ --kernel-name kns=_ZN2sl)
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
  for tool in memcheck racecheck initcheck; do
    text="compute-sanitizer --tool $tool, small shapes"
    kernels=("${own[@]}") cases=(--without conv2d)
    [ $tool != memcheck ] || kernels=() cases=()
    if [ -n "${SL_STANDIN:-}" ]; then
      skip "$text" "this GPU is a stand-in"
    elif [ -z "$sanitizer" ]; then
      skip "$text" "compute-sanitizer is not here (it comes with the CUDA toolkit)"
    else
      GPU_CHECK_TIMEOUT=1800 quietly "$sanitizer" --tool $tool --error-exitcode 9 "${kernels[@]}" \
        "$tests/gpu/gpu_ops" --device "$device" --small --once --seed "$seed" "${cases[@]}"
      verdict $? "$text"
    fi
  done
}
[ "${GPU_CHECK_PART:-operations}" != operations ] || check_with_sanitizer

echo "1..$((passed + failed + skipped))"
echo "# gpu-check: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
