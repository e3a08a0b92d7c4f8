#!/bin/sh
# ONNX files against onnxruntime and PyTorch's exporter (tools/check_onnx.py). PYTHON names a python
# that has both.
builddir=${SL_BUILDDIR:-.}
srcdir=${SL_SRCDIR:-.}
echo 1..1
skip() { echo "ok 1 # SKIP $*"; exit 0; }

grep -q '^#define SL_HAVE_ONNX 1' "$builddir/config.h" || skip "built without protobuf-c"
! grep -q '^#define SL_SANITIZE 1' "$builddir/config.h" ||
  skip "python does not load a library with sanitizers"
"${PYTHON:-python3}" -c 'import numpy, onnx, onnxruntime' 2>/dev/null ||
  skip "no python3 with numpy, onnx and onnxruntime (set PYTHON)"
if "${PYTHON:-python3}" "$srcdir/tools/check_onnx.py" --quick \
  --library "$builddir/.libs/libstarling.so" >"test_check_onnx.$$" 2>&1
then
  echo "ok 1 - answers as onnxruntime's"
  result=0
else
  echo "not ok 1 - answers as onnxruntime's"
  result=1
fi
sed 's/^/# /' "test_check_onnx.$$"
rm -f "test_check_onnx.$$"
exit $result
