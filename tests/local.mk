# Every tests/*/test_*.c is a program of cmocka cases, every tests/*/test_*.sh a script that prints
# TAP.
# hwloc's plugins leak and are unloaded before the report, so no suppression can name them.
if SL_SANITIZE
SL_SANITIZE_ENVIRONMENT = HWLOC_PLUGINS_PATH=/nonexistent; export HWLOC_PLUGINS_PATH;
endif
TEST_LIBS = libstarling_all.la $(CMOCKA_LIBS)
# Tests compare bits, which only devices of one kind have in common: no GPU, but in tests of GPUs.
AM_TESTS_ENVIRONMENT = \
	STARPU_HOME=$(abs_top_builddir)/tests; export STARPU_HOME; \
	STARPU_PREFIX=$(STARPU_PREFIX); export STARPU_PREFIX; \
	STARPU_WORKERS_NOBIND=1; export STARPU_WORKERS_NOBIND; \
	STARPU_NCUDA=$${SL_TEST_DEVICE:+1}; STARPU_NCUDA=$${STARPU_NCUDA:-0}; export STARPU_NCUDA; \
	STARPU_SILENT=1; export STARPU_SILENT; \
	OPENBLAS_NUM_THREADS=1; export OPENBLAS_NUM_THREADS; \
	OMP_NUM_THREADS=1; export OMP_NUM_THREADS; \
	CMOCKA_MESSAGE_OUTPUT=TAP; export CMOCKA_MESSAGE_OUTPUT; \
	LSAN_OPTIONS=suppressions=$(abs_top_srcdir)/build-aux/lsan.supp:print_suppressions=0; \
	export LSAN_OPTIONS; \
	ASAN_OPTIONS=detect_leaks=1:quarantine_size_mb=16; export ASAN_OPTIONS; \
	$(SL_SANITIZE_ENVIRONMENT) $(STANDIN_ENVIRONMENT) \
	SL_SRCDIR=$(abs_top_srcdir); export SL_SRCDIR; \
	SL_BUILDDIR=$(abs_top_builddir); export SL_BUILDDIR;
if SL_HAVE_CMOCKA
TESTS = $(test_order)
else
TESTS = $(test_scripts)
endif
TEST_EXTENSIONS = .sh
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
SH_LOG_DRIVER = $(LOG_DRIVER)
LOG_COMPILER = $(top_srcdir)/build-aux/with-timeout
SH_LOG_COMPILER = $(top_srcdir)/build-aux/with-timeout
check_PROGRAMS = tests/tools/predict_files
tests_tools_predict_files_CFLAGS = $(AM_CFLAGS) $(PNG_CFLAGS)
tests_tools_predict_files_LDADD = libstarling.la $(PNG_LIBS) $(JANSSON_LIBS) -lm
if SL_HAVE_CMOCKA
check_PROGRAMS += $(test_programs) \
	tests/examples/failing_lenet \
	tests/examples/gpt_folder \
	tests/parallel/exact_ranks \
	tests/parallel/fit_ranks \
	tests/parallel/kvstore_ranks \
	tests/parallel/metrics_ranks \
	tests/parallel/nodes_ranks \
	tests/parallel/nodes_train \
	tests/parallel/unequal_ranks
# kernels are replaced by ones that fail
tests_examples_failing_lenet_SOURCES = examples/lenet.c tests/examples/failing.c
tests_examples_failing_lenet_LDADD = \
	tools/libtrain.la tools/libcommon.la libstarling_all.la $(JANSSON_LIBS) -lm
tests_examples_gpt_folder_SOURCES = tests/examples/gpt_folder.c examples/gpt_model.c \
	examples/gpt_hugging_face.c
tests_examples_gpt_folder_LDADD = libstarling.la $(JANSSON_LIBS) -lm
tests_fuzz_test_fuzz_corpus_SOURCES = tests/fuzz/test_fuzz_corpus.c $(fuzz_sources) $(fuzz_tools)
tests_fuzz_test_fuzz_corpus_CFLAGS = $(AM_CFLAGS) $(PNG_CFLAGS)
tests_fuzz_test_fuzz_corpus_LDADD = tools/libtrain.la tools/libcommon.la $(TEST_LIBS) $(fuzz_libs)
tests_tools_test_curves_LDADD = tools/libcommon.la $(CMOCKA_LIBS) $(JANSSON_LIBS) -lm
tests_tools_test_trace_stats_SOURCES = tests/tools/test_trace_stats.c \
	tools/trace/critical_path.c tools/trace/trace_stats.c
tests_tools_test_trace_stats_LDADD = $(CMOCKA_LIBS) -lm
tests_parallel_exact_ranks_LDADD = libstarling_all.la -lm
tests_parallel_fit_ranks_LDADD = libstarling.la
tests_parallel_kvstore_ranks_LDADD = libstarling.la
tests_parallel_metrics_ranks_LDADD = libstarling_all.la -lm
tests_parallel_nodes_ranks_LDADD = libstarling_all.la -lm
tests_parallel_nodes_train_LDADD = libstarling_all.la -lm
tests_parallel_unequal_ranks_LDADD = libstarling.la
# slaves look kernels up by name in the program itself
tests_parallel_nodes_train_LDFLAGS = $(AM_LDFLAGS) -rdynamic
if SL_HAVE_MPI
check_PROGRAMS += tests/parallel/dist_train tests/gpu/gpu_ranks
tests_parallel_dist_train_LDADD = libstarling_all.la $(MPI_LIBS) -lm
tests_gpu_gpu_ranks_LDADD = libstarling_all.la
endif
LDADD = $(TEST_LIBS)
endif
if SL_CUDA_STANDIN
standin_programs = tests/standin/selftest tests/standin/smoke
TESTS += $(standin_programs)
check_PROGRAMS += $(standin_programs)
tests_standin_selftest_SOURCES = tests/standin/selftest.cu
tests_standin_selftest_LDADD = $(standin_libraries) -lstdc++ -lm
tests_standin_smoke_SOURCES = \
	tests/standin/smoke.c \
	tests/standin/smoke_kernel.cu
tests_standin_smoke_LDADD = $(STARPU_LIBS) $(standin_libraries) -lstdc++ -lm
endif

# ---- on a GPU: see tests/gpu/gpu-check.sh; the bundle has it, too --------------------------------
gpu_programs = tests/gpu/gpu_ops tests/gpu/gpu_two
hour_programs = bench/bench_latency bench/bench_train bench/gpu_peak
EXTRA_PROGRAMS += $(gpu_programs)
tests_gpu_gpu_two_LDADD = libstarling_all.la
gpu_ops_files = \
	tests/gpu/gpu_cases.c \
	tests/gpu/gpu_custom.h \
	tests/gpu/gpu_ops.c \
	tests/gpu/gpu_ops.h
tests_gpu_gpu_ops_SOURCES = $(gpu_ops_files)
tests_parallel_test_losses_SOURCES = tests/parallel/test_losses.c
if SL_HAVE_CUDA
tests_gpu_gpu_ops_SOURCES += tests/gpu/gpu_custom.cu
tests_parallel_test_losses_SOURCES += tests/gpu/gpu_custom.cu
else
tests_gpu_gpu_ops_SOURCES += tests/gpu/gpu_custom_none.c
tests_parallel_test_losses_SOURCES += tests/gpu/gpu_custom_none.c
endif
tests_gpu_gpu_ops_LDADD = libstarling_all.la -lm
gpu_check_needs = $(bin_PROGRAMS) $(gpu_programs:=$(EXEEXT))
if SL_HAVE_CMOCKA
gpu_tests = \
	tests/codelets/test_activation \
	tests/codelets/test_attention \
	tests/codelets/test_batchnorm \
	tests/codelets/test_compress \
	tests/codelets/test_conv2d \
	tests/nn/test_custom \
	tests/core/test_work_range \
	tests/codelets/test_dense \
	tests/codelets/test_dropout \
	tests/codelets/test_embedding \
	tests/codelets/test_skinny_gemm \
	tests/codelets/test_gru \
	tests/codelets/test_loss \
	tests/codelets/test_lstm \
	tests/codelets/test_optimizer_ops \
	tests/codelets/test_pool2d \
	tests/parallel/test_captured_step \
	tests/parallel/test_fields \
	tests/parallel/test_losses \
	tests/parallel/test_predictor \
	tests/core/test_chain \
	tests/core/test_graph \
	tests/core/test_graph_horizontal \
	tests/codelets/test_reduce
gpu_check_needs += $(gpu_tests:=$(EXEEXT))
endif
check_PROGRAMS += bench/bench_limits bench/bench_train
if SL_CUDA_STANDIN
check_PROGRAMS += $(gpu_programs) $(race_programs) bench/bench_latency bench/gpu_peak
endif
gpu-check: $(gpu_check_needs)
	@$(AM_TESTS_ENVIRONMENT) $(top_srcdir)/tests/gpu/gpu-check.sh examples tests || \
	  test $$? = 77

check-nodes: tests/parallel/nodes_train$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) $(top_srcdir)/tests/parallel/check-nodes.sh \
	  tests/parallel/nodes_train$(EXEEXT) $(STARPU_PREFIX)/bin/starpu_tcpipexec || test $$? = 77

# ---- random disturbances of distributed runs: CHAOS_MINUTES, CHAOS_SEED --------------------------
chaos: examples/mlp$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) $(top_srcdir)/tests/chaos/chaos.sh

# ---- fuzzing: needs clang; test_fuzz_corpus replays the corpus without it ------------------------
fuzzers = $(fuzz_sources:.c=)
# the tools' readers, and what they call; no main
fuzz_tools = \
	tools/predict/byte_stream.c \
	tools/predict/failure.c \
	tools/predict/format_cifar10.c \
	tools/predict/format_dataset.c \
	tools/predict/format_idx.c \
	tools/predict/format_pictures.c \
	tools/predict/format_raw.c \
	tools/predict/preparation.c \
	tools/predict/samples.c \
	tools/predict/text_lines.c \
	tools/report/confusion.c \
	tools/report/facts.c \
	tools/report/html.c \
	tools/report/page.c \
	tools/report/page.h \
	tools/report/style.c \
	tools/report/summary.c \
	tools/report/tables.c \
	tools/report/trace_section.c \
	tools/trace/fxt.c \
	tools/trace/fxt.h \
	tools/trace/paje.c \
	tools/trace/trace.c \
	tools/trace/trace.h
fuzz_libs = $(libstarling_all_la_LIBADD) $(CAIRO_LIBS) $(ZLIB_LIBS) $(JANSSON_LIBS) -lm
# The rooms of the readers are compiled with sanitizers and libFuzzer's counters; what these call
# elsewhere comes from the library as it is.
fuzz_room_sources = $(data_sources) $(nn_sources) $(fuzz_tools) $(tools_common_files) \
	$(filter core/base/% core/net/%,$(core_sources)) \
	$(filter nn/formats/onnx_%,$(libstarling_all_la_SOURCES)) \
	codelets/compress.c \
	codelets/kernels/tuning.c \
	core/runtime/device.c \
	parallel/params/parameter_server_owner.c \
	parallel/step/placement.c \
	parallel/train/manifest.c \
	parallel/fit/checkpoints.c \
	parallel/fit/folder_lock.c
fuzz_objects = $(patsubst %.c,tests/fuzz/objects/%.o,$(sort $(filter %.c,$(fuzz_room_sources))))
fuzz_sanitizers = address,undefined,float-cast-overflow
fuzz_flags = -g -O1 -fsanitize=$(fuzz_sanitizers) -fno-sanitize-recover=all
tests/fuzz/objects/%.o: $(top_srcdir)/%.c | $(BUILT_SOURCES)
	@$(MKDIR_P) $(@D)
	$(AM_V_CC)$(CLANG) $(fuzz_flags) -fsanitize=fuzzer-no-link -DSL_FUZZER -MMD -MP \
	  $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) $(AM_CFLAGS) $(CAIRO_CFLAGS) -w -c $< -o $@
-include $(fuzz_objects:.o=.d) $(patsubst %,tests/fuzz/objects/%.d,$(fuzzers))
tests/fuzz/libfuzz.a: $(fuzz_objects)
	$(AM_V_AR)rm -f $@ && $(AR) cr $@ $(fuzz_objects)
$(fuzzers): tests/fuzz/fuzz_%: tests/fuzz/objects/tests/fuzz/fuzz_%.o tests/fuzz/libfuzz.a \
  libstarling_all.la
	$(AM_V_CCLD)$(CLANG) $(fuzz_flags) -fsanitize=fuzzer $< tests/fuzz/libfuzz.a \
	  .libs/libstarling_all.a $(fuzz_libs) $(STARPU_RPATH) -o $@
FUZZ_SECONDS = 30
fuzzers:
	@test "$(CLANG)" != no || { echo "fuzz: clang is needed"; exit 1; }
	$(MAKE) $(AM_MAKEFLAGS) $(fuzzers)
fuzz: fuzzers
	$(top_srcdir)/tests/fuzz/run-fuzzers $(FUZZ_SECONDS) $(top_srcdir)/tests/fuzz/corpus $(fuzzers)

# ---- deliberate bugs: do tests find them? In a checkout; see build-aux/mutants -------------------
# MUTANTS=N SEED=S: a sample of N; MUTANTS_OPTIONS=--named: only each bug's own tests
mutants = $(top_srcdir)/build-aux/mutants --build $(abs_top_builddir)
MUTANTS = 0
SEED = 1
mutants: all
	$(mutants) --count $(MUTANTS) --seed $(SEED) $(MUTANTS_OPTIONS)
check-mutants:
	@if python3 -c '' 2>/dev/null; then $(mutants) --check; \
	else echo "SKIP: check-mutants: no python3 here"; fi

# ---- faults: the n-th allocation, open, write, ... fails (tests/faults/run-faults) ---------------
EXTRA_LTLIBRARIES = tests/faults/libfaults.la
tests_faults_libfaults_la_SOURCES = tests/faults/preload.c
tests_faults_libfaults_la_LDFLAGS = -module -avoid-version -shared -rpath /nonexistent
tests_faults_libfaults_la_LIBADD = -ldl -lpthread
FAULTS_SECONDS = 600
FAULTS_OPTIONS =
fault_programs = examples/lstm_lm examples/mlp examples/predict tools/starling-predict
faults: tests/faults/libfaults.la $(fault_programs:=$(EXEEXT))
	$(top_srcdir)/tests/faults/run-faults --seconds $(FAULTS_SECONDS) $(FAULTS_OPTIONS) .

CLEANFILES += $(gpu_programs:=$(EXEEXT)) tests/ranks.lock
clean-tests:
	rm -rf mutants tests/standin/races tests/.starpu $(fuzzers)
	rm -rf tests/fuzz/found tests/fuzz/libfuzz.a tests/fuzz/objects
EXTRA_DIST_TESTS = $(test_scripts) $(test_headers) \
	build-aux/mutants \
	tests/mutants \
	tests/fixtures \
	tests/fuzz/corpus $(fuzz_sources) tests/fuzz/fuzzers.def tests/fuzz/run-fuzzers \
	tests/faults/run-faults \
	tests/gpu/check-library-keys tests/gpu/library_keys.txt \
	tests/gpu/gpu-check.sh tests/gpu/gpu_custom.cu tests/gpu/gpu_custom_none.c \
	tests/chaos/chaos.sh \
	tests/chaos/clock_step.c \
	tests/codelets/arm_cmocka.c tests/codelets/arm_runtime.c \
	tests/parallel/check-nodes.sh \
	tests/standin/README.md \
	tests/standin/race_selftest.cu
.PHONY: chaos check-mutants check-nodes clean-tests faults fuzz fuzzers gpu-check mutants
