# The CUDA half: each codelets/NAME_cuda.cu belongs to NAME.c.
if SL_HAVE_CUDA
libstarling_all_la_SOURCES += $(cuda_sources)
cuda_libraries = $(CUDA_LIBS)
endif
NVCC_FLAGS = -std=c++20 -O3 $(NVCC_WARNINGS) -fvisibility=hidden $(NVCC_ARCH) $(CUDA_CPPFLAGS) \
	$(STARPU_CFLAGS)
SUFFIXES = .cu
if SL_CUDA_STANDIN
CUDA_COMPILE = $(CXX) -x c++ $(SL_CXXFLAGS) -Wno-unknown-pragmas -ftls-model=initial-exec -O2 \
	$(filter -g%,$(CXXFLAGS)) $(CUDA_CPPFLAGS) $(STARPU_CFLAGS) $(HWLOC_CFLAGS) -DSL_CUDA_STANDIN \
	-include $(top_srcdir)/tests/standin/cuda_host.h
else
CUDA_COMPILE = $(top_srcdir)/build-aux/nvcc-wrapper $(NVCC) $(NVCC_FLAGS)
endif
.cu.lo:
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(LIBTOOL) $(AM_V_lt) --tag=CC --mode=compile $(CUDA_COMPILE) \
		-MD -MP -MT $@ -MF $(@:.lo=.d) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) -c -o $@ $<
-include $(cuda_sources:.cu=.d)
.cu.o:
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(CUDA_COMPILE) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) -c -o $@ $<
DISTCLEANFILES += $(cuda_sources:.cu=.d)
CLEANFILES += $(cuda_sources:.cu=.o.usage)
