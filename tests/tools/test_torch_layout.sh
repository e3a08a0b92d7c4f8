#!/bin/sh
# compare_torch.py has the structs of a loss that the headers have; it runs only where PyTorch is.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
python3 -c 'import ctypes' 2>/dev/null || skip_all "no python3 with ctypes here"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
source=${SL_SRCDIR:-.}

cat >"$work/sizes.c" <<'END'
#include <stddef.h>
#include <stdio.h>
#include <starling/nn.h>
int main(void) {
  printf("%zu %zu %zu %zu\n", sizeof(struct sl_loss), offsetof(struct sl_loss, own),
         offsetof(struct sl_loss, parts), sizeof(struct sl_loss_part));
  return 0;
}
END
${CC:-cc} -I "$source/include" "$work/sizes.c" -o "$work/sizes" 2>"$work/err" &&
  "$work/sizes" >"$work/headers"
verdict $? "the headers' sizes: $(head -n 1 "$work/err")"
python3 - "$source/tools/compare_torch.py" >"$work/script" 2>"$work/err" <<'END'
import ctypes, sys
text = open(sys.argv[1]).read()
exec(text[text.index("Loss = type("):text.index("RowField = type(")])
print(ctypes.sizeof(Loss), Loss.own.offset, Loss.parts.offset, ctypes.sizeof(LossPart))
END
cmp -s "$work/headers" "$work/script"
verdict $? "the script's: $(cat "$work/script" "$work/err"), the headers': $(cat "$work/headers")"
echo "1..$n"
exit $failed
