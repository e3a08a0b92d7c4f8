#!/bin/sh
# tools/compare_tokenizers.py: the merges and the tokens of Hugging Face's tokenizers, for both
# patterns, special tokens, each character, and tiny Shakespeare where STARLING_DATA has it. It
# needs a $PYTHON (default: python3) with that package.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
shown=out
top=${SL_SRCDIR:-.} build=${SL_BUILDDIR:-.}
library=$build/.libs/libstarling.so python=${PYTHON:-python3}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1

"$python" -c 'import tokenizers' 2>"$work/out" ||
  skip_all "$python has no package tokenizers; set PYTHON to one that has"
if ldd "$library" 2>/dev/null | grep -qE 'lib[at]san'; then
  skip_all "a python without sanitizers cannot load this build's library"
fi

text=${STARLING_DATA:-}/text/tinyshakespeare.txt
[ -n "${STARLING_DATA:-}" ] && [ -r "$text" ] || text=
timeout 900 "$python" "$top/tools/compare_tokenizers.py" --library "$library" $text \
  >"$work/out" 2>&1
verdict $? "all cases are those of tokenizers"
[ "$(grep -c '^ok ' "$work/out")" -ge 14 ]
verdict $? "a line a case"
if [ -n "$text" ]; then
  [ "$(grep -c '^ok tinyshakespeare' "$work/out")" -eq 4 ]
  verdict $? "tiny Shakespeare: the same merges and tokens"
else
  skip "tiny Shakespeare" "STARLING_DATA has no text/tinyshakespeare.txt"
fi
echo "1..$n"
exit $failed
