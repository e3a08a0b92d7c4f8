# Alternatives: with MPI or for a single process, with StarPU-MPI or without, with CUDA or without.
if SL_HAVE_MPI
libstarling_all_la_SOURCES += \
	core/net/mpi_collectives.c \
	core/net/mpi_health.c \
	core/net/mpi_messages.c \
	core/net/mpi_open.c \
	core/net/mpi_progress.c \
	core/net/mpi_transport.c
else
libstarling_all_la_SOURCES += core/net/single_process.c
endif
if SL_HAVE_STARPUMPI
libstarling_all_la_SOURCES += core/net/starpu_mpi.c
else
libstarling_all_la_SOURCES += core/net/starpu_mpi_none.c
endif
if !SL_HAVE_CUDA
libstarling_all_la_SOURCES += core/runtime/cuda_none.c
endif
