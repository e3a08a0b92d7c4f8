# protoc-c makes C sources of ONNX's description at build time; they are not in a tarball.
EXTRA_DIST_NN = nn/formats/onnx.proto
if SL_HAVE_ONNX
libstarling_all_la_SOURCES += nn/formats/onnx_file.c
nodist_libstarling_all_la_SOURCES += nn/formats/onnx.pb-c.c
BUILT_SOURCES += nn/formats/onnx.pb-c.h
else
libstarling_all_la_SOURCES += nn/formats/onnx_none.c
endif
nn/formats/onnx.pb-c.c: nn/formats/onnx.proto
	$(AM_V_GEN)$(MKDIR_P) nn/formats && \
	  $(PROTOC_C) --proto_path=$(top_srcdir)/nn/formats --c_out=nn/formats onnx.proto
# one run makes both: if only the header is missing, it is made again
nn/formats/onnx.pb-c.h: nn/formats/onnx.pb-c.c
	@test -f $@ || { \
	  rm -f nn/formats/onnx.pb-c.c; \
	  $(MAKE) $(AM_MAKEFLAGS) nn/formats/onnx.pb-c.c; \
	}; touch $@
nn/formats/onnx_file.lo: nn/formats/onnx.pb-c.h
CLEANFILES += nn/formats/onnx.pb-c.c nn/formats/onnx.pb-c.h
