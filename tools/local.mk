# The common code of the programs, and the trainers' framework. Programs that draw link cairo; the
# others take no object of the archive that needs it.
noinst_LTLIBRARIES += tools/libcommon.la tools/libtrain.la
tools_libcommon_la_SOURCES = $(tools_common_files)
tools_libcommon_la_CFLAGS = $(AM_CFLAGS) $(CAIRO_CFLAGS)
tools_libtrain_la_SOURCES = $(tools_train_files)

bin_PROGRAMS += \
	tools/starling-plot \
	tools/starling-predict \
	tools/starling-report \
	tools/starling-tokenize \
	tools/starling-trace \
	tools/starling-train \
	tools/starling-tune
tools_starling_plot_SOURCES = $(tools_plot_files)
tools_starling_plot_LDADD = tools/libcommon.la $(CAIRO_LIBS) $(JANSSON_LIBS) -lm
# the library shows no internal function: what it shares with this program is compiled for both
tools_starling_predict_SOURCES = $(tools_predict_files) data/byte_normal.c data/byte_normal.h \
	data/picture.h data/picture_jpeg.c data/picture_png.c data/picture_pnm.c \
	data/picture_size.c
tools_starling_predict_CFLAGS = $(AM_CFLAGS)
tools_starling_predict_LDFLAGS = $(installed_ldflags)
tools_starling_predict_LDADD = tools/libcommon.la libstarling.la $(PNG_LIBS) $(JPEG_LIBS) \
	$(ZLIB_LIBS) \
	$(JANSSON_LIBS) -lm -lpthread
tools_starling_report_SOURCES = $(tools_report_files)
tools_starling_report_LDADD = tools/libcommon.la $(CAIRO_LIBS) $(JANSSON_LIBS) -lm
tools_starling_tokenize_SOURCES = $(tools_tokenize_files)
tools_starling_tokenize_LDFLAGS = $(installed_ldflags)
tools_starling_tokenize_LDADD = tools/libcommon.la libstarling.la $(JANSSON_LIBS) -lm
tools_starling_trace_SOURCES = $(tools_trace_files)
tools_starling_trace_CPPFLAGS = $(AM_CPPFLAGS) -DSL_STARPU_BIN='"$(STARPU_PREFIX)/bin"'
$(tools_starling_trace_OBJECTS): Makefile # which has StarPU's folder
tools_starling_trace_LDADD = tools/libcommon.la $(CAIRO_LIBS) $(JANSSON_LIBS) -lm
tools_starling_train_SOURCES = $(tools_architecture_files)
tools_starling_train_LDFLAGS = $(installed_ldflags)
tools_starling_train_LDADD = tools/libtrain.la tools/libcommon.la libstarling.la $(JANSSON_LIBS) -lm
tools_starling_tune_SOURCES = $(tools_tune_files)
tools_starling_tune_LDADD = tools/libcommon.la $(JANSSON_LIBS) -lm

dist_bin_SCRIPTS = tools/starling-run
EXTRA_DIST_TOOLS = tools/completion.bash tools/get-starpu
