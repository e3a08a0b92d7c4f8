#!/bin/sh
# tools/compare_torch.py: PyTorch's answers for every kind of layer and for whole networks, weights
# in both directions, and a LeNet that PyTorch trained. It needs a $PYTHON (default: python3) with
# PyTorch. A wrong function must be noticed, too.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
shown=out
top=${SL_SRCDIR:-.} build=${SL_BUILDDIR:-.}
library=$build/.libs/libstarling.so python=${PYTHON:-python3}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"
export PYTHONDONTWRITEBYTECODE=1
compare() { timeout 300 "$python" "$top/tools/compare_torch.py" "$@" >"$work/out" 2>&1; }

"$python" -c 'import torch, safetensors.torch, numpy' 2>"$work/out" ||
  skip_all "$python has no PyTorch (torch, safetensors, numpy); set PYTHON to one that has"
if ldd "$library" 2>/dev/null | grep -qE 'lib[at]san'; then
  skip_all "a python without sanitizers cannot load this build's library"
fi

if compare --library "$library"; then
  ok "$(tail -n 1 "$work/out")"
else
  not_ok "every case is PyTorch's"
fi
# one line a case, each with the errors that were measured
if [ "$(grep -c "^ok .*PyTorch's weights [0-9].*Starling's [0-9]" "$work/out")" -ge 60 ]; then
  ok "a line a case"
else
  not_ok "a line a case"
fi

if [ "$(grep -c "^ok .*loss, .*value [0-9].*gradient [0-9]" "$work/out")" = 9 ]; then
  ok "losses and their gradients"
else
  not_ok "losses and their gradients"
fi

# gelu is not tanh: the same script with one function exchanged must fail
sed 's/"gelu": functional.gelu/"gelu": torch.tanh/' "$top/tools/compare_torch.py" >"$work/wrong.py"
timeout 120 "$python" "$work/wrong.py" --library "$library" --only gelu >"$work/out" 2>&1
if [ $? = 1 ] && grep -q '^BEYOND activation, gelu' "$work/out"; then
  ok "a difference is noticed"
else
  not_ok "a difference is noticed"
fi
compare --library "$work/none.so"
if [ $? = 1 ] && [ "$(wc -l <"$work/out")" = 1 ] &&
  grep -q '^compare_torch: .*none.so' "$work/out"; then
  ok "no library: one line"
else
  not_ok "no library: one line"
fi
compare --library "$library" --lenet "$work"
if [ $? = 1 ] && grep -q '^compare_torch: .*has no train-images' "$work/out"; then
  ok "no MNIST: one line"
else
  not_ok "no MNIST: one line"
fi

if [ -f "${STARLING_DATA:-}/mnist/t10k-images-idx3-ubyte.gz" ]; then
  if compare --library "$library" --lenet "$STARLING_DATA/mnist" --steps 100; then
    ok "$(cat "$work/out")"
  else
    not_ok "a LeNet that PyTorch trained"
  fi
else
  skip "a LeNet that PyTorch trained" "no MNIST: STARLING_DATA names a folder with mnist/"
fi
echo "1..$n"
exit $failed
