#!/bin/sh
# make check-abi: the library has the dumped interface; what was removed or changed is found, and
# additions pass. Changed headers and dumps stand for other versions of the library.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
top=$(cd "${SL_SRCDIR:-.}" && pwd)
library=$(cd "${SL_BUILDDIR:-.}" && pwd)/.libs/libstarling.so
dump=$top/build-aux/libstarling.abi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
shown='out err'

# compared HEADERS DUMP: check-abi's status
compared() { "$top/build-aux/check-abi" "$library" "$1" "$2" >"$work/out" 2>"$work/err"; }
compared "$top/include" "$dump"
status=$?
[ $status -ne 77 ] || skip_all "test_abi: $(sed 's/^SKIP: check-abi: //' "$work/out")"
verdict $status "the library has the interface of the dump"
# with CASE STATUS HEADER SED: check-abi's status if that header is another
with() {
  rm -rf "$work/include"
  cp -R "$top/include" "$work/include"
  sed -i "$4" "$work/include/starling/$3"
  if cmp -s "$top/include/starling/$3" "$work/include/starling/$3"; then
    not_ok "$1: $3 lacks what is to be changed"
  else
    compared "$work/include" "$dump"
    status=$?
    check "$1" test $status -eq "$2"
  fi
}
with "a struct of another size is found" 1 nn.h '/^struct sl_optimizer {/s/$/ int64_t more;/'
check "by its name" grep -q "struct sl_optimizer" "$work/out"
with "a field of another type is found" 1 nn.h \
  '/^struct sl_optimizer {/,/^}/s/float momentum;/int momentum;/'
with "another argument is found" 1 nn.h \
  's/sl_model_save(struct sl_model \*model, /sl_model_save(/'
check "by its function" grep -q "sl_model_save" "$work/out"
with "a constant of another value is found" 1 parallel.h \
  's/^enum sl_math { SL_MATH_F32,/enum sl_math { SL_MATH_F16, SL_MATH_F32,/'
with "an added constant passes" 0 parallel.h 's/SL_MATH_BF16 }/SL_MATH_BF16, SL_MATH_F16 }/'
with "an added type passes" 0 nn.h '/^struct sl_optimizer {/i struct sl_more { int more; };'
with "an exported function without a prototype is found" 1 nn.h '/ sl_model_save(/d'

# a dump with a function that the library lacks, and one without a function that it has
sed "s/function_sl_model_save'/function_sl_model_store'/g" "$dump" >"$work/dump"
compared "$top/include" "$work/dump"
check "a removed function is found" test $? -eq 1
check "by its name" grep -q "sl_model_store" "$work/out"
grep -v "function_sl_model_save'" "$dump" >"$work/dump"
check "a dump without a function" sh -c '! cmp -s "$1" "$2"' sh "$dump" "$work/dump"
compared "$top/include" "$work/dump"
verdict $? "an added function passes"
check "nothing internal is in the dump" sh -c '! grep "sl__" "$1"' sh "$dump"
check "no path of a machine is in the dump" sh -c '! grep "[^<]/[a-z]*/" "$1"' sh "$dump"
echo "1..$n"
exit $failed
