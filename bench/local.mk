EXTRA_PROGRAMS += bench/bench_attention bench/bench_idle bench/bench_latency bench/bench_layers \
	bench/bench_limits bench/bench_norm_sums bench/bench_packing bench/bench_pipeline \
	bench/bench_predict bench/bench_recurrent bench/bench_rounding bench/bench_streaming \
	bench/bench_train
product_libs = $(OPENBLAS_LIBS) $(ONEDNN_LIBS)
bench_libs = libstarling.la $(STARPU_LIBS) $(product_libs) $(JANSSON_LIBS) -lm -lpthread
# both use the library's internals: kernels are wrapped, or replaced by ones that sleep
bench_bench_pipeline_SOURCES = \
	bench/bench.h \
	bench/bench_pipeline.c \
	bench/kernel_times.c \
	bench/kernel_times.h \
	bench/peak.c
bench_bench_pipeline_LDADD = libstarling_all.la $(product_libs) $(JANSSON_LIBS) -lm -lpthread
bench_networks = \
	bench/bench.h \
	bench/networks.c \
	bench/networks.h \
	bench/peak.c \
	examples/gpt_model.c \
	examples/gpt_model.h \
	examples/resnet_model.c \
	examples/resnet_model.h
bench_bench_limits_SOURCES = \
	bench/bench_limits.c \
	bench/kernel_times.c \
	bench/kernel_times.h \
	$(bench_networks)
bench_bench_limits_LDADD = $(bench_bench_pipeline_LDADD)
bench_bench_attention_SOURCES = bench/bench.h bench/bench_attention.c bench/peak.c
bench_bench_attention_LDADD = $(bench_bench_pipeline_LDADD)
bench_bench_latency_SOURCES = bench/bench.h bench/bench_latency.c bench/peak.c
bench_bench_latency_LDADD = $(bench_bench_pipeline_LDADD)
bench_bench_norm_sums_SOURCES = bench/bench.h bench/bench_norm_sums.c bench/peak.c
bench_bench_norm_sums_LDADD = $(bench_bench_pipeline_LDADD)
bench_bench_packing_SOURCES = bench/bench.h bench/bench_packing.c bench/peak.c
bench_bench_packing_LDADD = $(bench_bench_pipeline_LDADD)
bench_bench_streaming_SOURCES = \
	bench/bench.h \
	bench/bench_streaming.c \
	bench/peak.c \
	bench/round_trip.c
bench_bench_streaming_LDADD = $(bench_bench_pipeline_LDADD)
bench_bench_recurrent_SOURCES = bench/bench.h bench/bench_recurrent.c bench/peak.c
bench_bench_recurrent_LDADD = $(bench_bench_pipeline_LDADD)
bench_bench_rounding_SOURCES = bench/bench.h bench/bench_rounding.c bench/peak.c
bench_bench_rounding_LDADD = $(bench_bench_pipeline_LDADD)
bench_bench_idle_SOURCES = bench/bench_idle.c $(bench_networks)
bench_bench_idle_LDADD = $(bench_libs)
bench_bench_predict_SOURCES = bench/bench_predict.c $(bench_networks)
bench_bench_predict_LDADD = $(bench_libs)
bench_bench_layers_SOURCES = bench/bench.h bench/bench_layers.c bench/peak.c
bench_bench_layers_LDADD = $(bench_libs)
bench_bench_train_SOURCES = bench/bench_train.c bench/round_trip.c $(bench_networks)
bench_bench_train_LDADD = $(bench_libs)
if SL_HAVE_JPEG
EXTRA_PROGRAMS += bench/bench_loader
bench_jpeg = bench/bench_loader$(EXEEXT)
bench_bench_loader_SOURCES = \
	bench/bench.h \
	bench/bench_loader.c \
	bench/peak.c \
	bench/pictures.c \
	bench/pictures.h \
	examples/resnet_model.c \
	examples/resnet_model.h
bench_bench_loader_LDADD = $(bench_libs) $(JPEG_LIBS)
endif
if SL_HAVE_STARPUMPI
EXTRA_PROGRAMS += bench/bench_exchange
bench_mpi = bench/bench_exchange$(EXEEXT)
bench_bench_exchange_SOURCES = \
	bench/bench.h \
	bench/bench_exchange.c \
	bench/exchange.h \
	bench/exchange_mpi.c \
	bench/exchange_starpu.c \
	bench/peak.c
bench_bench_exchange_LDADD = $(STARPUMPI_LIBS) $(MPI_LIBS) $(STARPU_LIBS) $(product_libs) \
	$(JANSSON_LIBS) -lm -lpthread
endif
if SL_HAVE_CUDA
EXTRA_PROGRAMS += bench/gpu_peak
bench_cuda = bench/gpu_peak$(EXEEXT)
bench_gpu_peak_SOURCES = bench/bench.h bench/gpu_peak.c bench/peak.c
bench_gpu_peak_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
bench_gpu_peak_LDADD = libstarling_all.la $(CUBLASLT_LIBS) $(product_libs) $(JANSSON_LIBS) -lm \
	-lpthread
endif
benches = bench/bench_attention$(EXEEXT) bench/bench_idle$(EXEEXT) \
	bench/bench_latency$(EXEEXT) bench/bench_layers$(EXEEXT) bench/bench_limits$(EXEEXT) \
	bench/bench_norm_sums$(EXEEXT) bench/bench_packing$(EXEEXT) \
	bench/bench_pipeline$(EXEEXT) bench/bench_predict$(EXEEXT) \
	bench/bench_recurrent$(EXEEXT) bench/bench_rounding$(EXEEXT) \
	bench/bench_streaming$(EXEEXT) bench/bench_train$(EXEEXT) \
	$(bench_jpeg) $(bench_mpi) $(bench_cuda)
CLEANFILES += $(benches)
bench: $(benches)
# Starling and PyTorch on a GPU; GPU_BENCH="--python PATH ...": see the script's first lines
gpu-bench: bench
	@$(top_srcdir)/bench/gpu_bench.sh $(GPU_BENCH) || test $$? = 77
.PHONY: bench gpu-bench
