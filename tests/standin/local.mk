# ---- the stand-in for a GPU: tests only, never installed (tests/standin/README.md) ---------------
@SL_REFUSE_INSTALL@
refuse-install:
	@echo "this build has a stand-in for CUDA, for tests: there is nothing to install" \
	  "(see tests/standin/README.md)"; exit 1
if SL_CUDA_STANDIN
EXTRA_libstarling_all_la_DEPENDENCIES = $(standin_libraries)
standin_libraries = \
	tests/standin/libcudart.la \
	tests/standin/libcublasLt.la \
	tests/standin/libcudnn.la \
	tests/standin/libcublas.la \
	tests/standin/libcusparse.la \
	tests/standin/libcusolver.la
noinst_LTLIBRARIES += $(standin_libraries)
# What StarPU may need at the start. Starling itself loads cuBLASLt and cuDNN.
standin_linked = \
	tests/standin/libcudart.la \
	tests/standin/libcublasLt.la \
	tests/standin/libcublas.la \
	tests/standin/libcusparse.la \
	tests/standin/libcusolver.la
standin_ldflags = $(AM_LDFLAGS) -rpath /nonexistent -no-undefined
tests_standin_libcudart_la_SOURCES = \
	tests/standin/block.cu \
	tests/standin/cuda_host.h \
	tests/standin/cudart.cu \
	tests/standin/library_keys.cu \
	tests/standin/race.cu \
	tests/standin/race.h
tests_standin_libcudart_la_LDFLAGS = $(standin_ldflags) -version-number $(STANDIN_cudart):0:0 \
	-Wl,--version-script=tests/standin/libcudart.map
tests_standin_libcudart_la_LIBADD = -lstdc++ -lpthread -ldl -lm
tests_standin_libcublasLt_la_SOURCES = tests/standin/cublaslt.cu
tests_standin_libcublasLt_la_LDFLAGS = $(standin_ldflags) -version-number $(STANDIN_cublasLt):0:0 \
	-Wl,--version-script=tests/standin/libcublasLt.map
tests_standin_libcublasLt_la_LIBADD = tests/standin/libcudart.la $(OPENBLAS_LIBS) -lstdc++ -lm
tests_standin_libcudnn_la_SOURCES = tests/standin/cudnn.cu
tests_standin_libcudnn_la_LDFLAGS = $(standin_ldflags) -version-number $(STANDIN_cudnn):0:0 \
	-Wl,--version-script=tests/standin/libcudnn.map
tests_standin_libcudnn_la_LIBADD = tests/standin/libcudart.la -lstdc++ -lm
tests_standin_libcublas_la_SOURCES = tests/standin/handles.cu
tests_standin_libcublas_la_LDFLAGS = $(standin_ldflags) -version-number $(STANDIN_cublas):0:0 \
	-Wl,--version-script=tests/standin/libcublas.map
tests_standin_libcusparse_la_SOURCES = tests/standin/handles.cu
tests_standin_libcusparse_la_LDFLAGS = $(standin_ldflags) \
	-version-number $(STANDIN_cusparse):0:0 \
	-Wl,--version-script=tests/standin/libcusparse.map
tests_standin_libcusolver_la_SOURCES = tests/standin/handles.cu
tests_standin_libcusolver_la_LDFLAGS = $(standin_ldflags) \
	-version-number $(STANDIN_cusolver):0:0 \
	-Wl,--version-script=tests/standin/libcusolver.map
EXTRA_tests_standin_libcudart_la_DEPENDENCIES = tests/standin/maps
EXTRA_tests_standin_libcublasLt_la_DEPENDENCIES = tests/standin/maps
EXTRA_tests_standin_libcudnn_la_DEPENDENCIES = tests/standin/maps
EXTRA_tests_standin_libcublas_la_DEPENDENCIES = tests/standin/maps
EXTRA_tests_standin_libcusparse_la_DEPENDENCIES = tests/standin/maps
EXTRA_tests_standin_libcusolver_la_DEPENDENCIES = tests/standin/maps
# the symbols of CUDA's libraries have versions, which are named as the libraries
standin_versions = \
	cudart.so.$(STANDIN_cudart) \
	cublas.so.$(STANDIN_cublas) \
	cublasLt.so.$(STANDIN_cublasLt) \
	cusparse.so.$(STANDIN_cusparse) \
	cusolver.so.$(STANDIN_cusolver) \
	cudnn.so.$(STANDIN_cudnn)
tests/standin/maps: Makefile
	$(AM_V_GEN)$(MKDIR_P) tests/standin && for lib in $(standin_versions); do \
	  name=`echo $$lib | sed 's/[.].*//'`; only='*'; \
	  case $$name in cublas | cusparse | cusolver) only="$$name*" ;; esac; \
	  echo "lib$$lib { global: $$only; local: *; };" > tests/standin/lib$$name.map || exit 1; \
	done; echo > $@
tests/standin/block.lo tests/standin/cudart.lo tests/standin/cublaslt.lo tests/standin/cudnn.lo \
tests/standin/library_keys.lo tests/standin/race.lo \
tests/standin/selftest.o tests/standin/smoke_kernel.o $(cuda_sources:.cu=.lo): \
	$(srcdir)/tests/standin/cuda_host.h
sanitizers = -fsanitize=% -fno-sanitize-recover=%
# The race checker itself is called at each access: no sanitizer slows it down.
tests/standin/race.lo: SL_CXXFLAGS := $(filter-out $(sanitizers),$(SL_CXXFLAGS))
# All kernels once more, for the race checker (race.cu): the compiler announces every access. They
# come before libstarling_all.la, whose own CUDA objects are then left out.
races = tests/standin/races
race_objects = $(patsubst %.cu,$(races)/%.o,$(cuda_sources))
race_custom = $(races)/tests/gpu/gpu_custom.o
race_selftest = $(races)/tests/standin/race_selftest.o
RACE_COMPILE = $(CXX) -x c++ $(filter-out $(sanitizers),$(SL_CXXFLAGS)) \
	-Wno-unknown-pragmas -ftls-model=initial-exec -O1 -g -fsanitize=thread -DSL_STANDIN_RACES \
	$(CUDA_CPPFLAGS) $(STARPU_CFLAGS) $(HWLOC_CFLAGS) -DSL_CUDA_STANDIN \
	-include $(top_srcdir)/tests/standin/cuda_host.h
$(races)/%.o: $(top_srcdir)/%.cu | $(BUILT_SOURCES)
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(RACE_COMPILE) -MMD -MP $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) \
	  -c -o $@ $<
# (automake does not see through patsubst)
EXTRA_tests_standin_races_gpu_ops_DEPENDENCIES = $(race_custom) $(race_objects)
EXTRA_tests_standin_races_lenet_DEPENDENCIES = $(race_objects)
EXTRA_tests_standin_races_lstm_lm_DEPENDENCIES = $(race_objects)
EXTRA_tests_standin_races_resnet_DEPENDENCIES = $(race_objects)
EXTRA_tests_standin_races_selftest_DEPENDENCIES = $(race_selftest)
-include $(patsubst %.o,%.d,$(race_objects) $(race_custom) $(race_selftest))
race_programs = tests/standin/races/gpu_ops tests/standin/races/lenet \
	tests/standin/races/lstm_lm tests/standin/races/resnet tests/standin/races/selftest
EXTRA_PROGRAMS += $(race_programs)
race_trainer = $(race_objects) tools/libtrain.la tools/libcommon.la libstarling_all.la \
	$(JANSSON_LIBS) -lm
tests_standin_races_gpu_ops_SOURCES = $(gpu_ops_files)
tests_standin_races_gpu_ops_LDADD = $(race_custom) $(race_objects) libstarling_all.la -lm
tests_standin_races_lenet_SOURCES = examples/lenet.c
tests_standin_races_lenet_LDADD = $(race_trainer)
tests_standin_races_lstm_lm_SOURCES = examples/lstm_lm.c
tests_standin_races_lstm_lm_LDADD = $(race_trainer)
tests_standin_races_resnet_SOURCES = $(examples_resnet_SOURCES)
tests_standin_races_resnet_LDADD = $(race_trainer)
tests_standin_races_selftest_SOURCES =
tests_standin_races_selftest_LDADD = $(race_selftest) tests/standin/libcudart.la -lstdc++ -lm
STANDIN_ENVIRONMENT = \
	LD_LIBRARY_PATH=$(abs_top_builddir)/tests/standin/.libs:$$LD_LIBRARY_PATH; \
	export LD_LIBRARY_PATH; \
	SL_STANDIN=1; export SL_STANDIN;
endif
