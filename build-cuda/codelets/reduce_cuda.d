codelets/reduce_cuda.lo : ../codelets/reduce_cuda.cu \
    /usr/include/stdc-predef.h \
    /usr/local/cuda-13.0/include/cuda_runtime.h \
    /usr/local/cuda-13.0/include/crt/host_config.h \
    /usr/include/features.h \
    /usr/include/features-time64.h \
    /usr/include/x86_64-linux-gnu/bits/wordsize.h \
    /usr/include/x86_64-linux-gnu/bits/timesize.h \
    /usr/include/x86_64-linux-gnu/sys/cdefs.h \
    /usr/include/x86_64-linux-gnu/bits/long-double.h \
    /usr/include/x86_64-linux-gnu/gnu/stubs.h \
    /usr/include/x86_64-linux-gnu/gnu/stubs-64.h \
    /usr/local/cuda-13.0/include/builtin_types.h \
    /usr/local/cuda-13.0/include/device_types.h \
    /usr/local/cuda-13.0/include/crt/host_defines.h \
    /usr/include/ctype.h \
    /usr/include/x86_64-linux-gnu/bits/types.h \
    /usr/include/x86_64-linux-gnu/bits/typesizes.h \
    /usr/include/x86_64-linux-gnu/bits/time64.h \
    /usr/include/x86_64-linux-gnu/bits/endian.h \
    /usr/include/x86_64-linux-gnu/bits/endianness.h \
    /usr/include/x86_64-linux-gnu/bits/types/locale_t.h \
    /usr/include/x86_64-linux-gnu/bits/types/__locale_t.h \
    /usr/local/cuda-13.0/include/driver_types.h \
    /usr/local/cuda-13.0/include/vector_types.h \
    /usr/lib/gcc/x86_64-linux-gnu/12/include/limits.h \
    /usr/lib/gcc/x86_64-linux-gnu/12/include/syslimits.h \
    /usr/include/limits.h \
    /usr/include/x86_64-linux-gnu/bits/libc-header-start.h \
    /usr/include/x86_64-linux-gnu/bits/posix1_lim.h \
    /usr/include/x86_64-linux-gnu/bits/local_lim.h \
    /usr/include/linux/limits.h \
    /usr/include/x86_64-linux-gnu/bits/pthread_stack_min-dynamic.h \
    /usr/include/x86_64-linux-gnu/bits/posix2_lim.h \
    /usr/include/x86_64-linux-gnu/bits/xopen_lim.h \
    /usr/include/x86_64-linux-gnu/bits/uio_lim.h \
    /usr/lib/gcc/x86_64-linux-gnu/12/include/stddef.h \
    /usr/local/cuda-13.0/include/surface_types.h \
    /usr/local/cuda-13.0/include/texture_types.h \
    /usr/local/cuda-13.0/include/library_types.h \
    /usr/local/cuda-13.0/include/channel_descriptor.h \
    /usr/local/cuda-13.0/include/cuda_runtime_api.h \
    /usr/local/cuda-13.0/include/cuda_device_runtime_api.h \
    /usr/include/c++/12/stdlib.h \
    /usr/include/c++/12/cstdlib \
    /usr/include/x86_64-linux-gnu/c++/12/bits/c++config.h \
    /usr/include/x86_64-linux-gnu/c++/12/bits/os_defines.h \
    /usr/include/x86_64-linux-gnu/c++/12/bits/cpu_defines.h \
    /usr/include/c++/12/pstl/pstl_config.h \
    /usr/include/stdlib.h \
    /usr/include/x86_64-linux-gnu/bits/waitflags.h \
    /usr/include/x86_64-linux-gnu/bits/waitstatus.h \
    /usr/include/x86_64-linux-gnu/bits/floatn.h \
    /usr/include/x86_64-linux-gnu/bits/floatn-common.h \
    /usr/include/x86_64-linux-gnu/sys/types.h \
    /usr/include/x86_64-linux-gnu/bits/types/clock_t.h \
    /usr/include/x86_64-linux-gnu/bits/types/clockid_t.h \
    /usr/include/x86_64-linux-gnu/bits/types/time_t.h \
    /usr/include/x86_64-linux-gnu/bits/types/timer_t.h \
    /usr/include/x86_64-linux-gnu/bits/stdint-intn.h \
    /usr/include/endian.h \
    /usr/include/x86_64-linux-gnu/bits/byteswap.h \
    /usr/include/x86_64-linux-gnu/bits/uintn-identity.h \
    /usr/include/x86_64-linux-gnu/sys/select.h \
    /usr/include/x86_64-linux-gnu/bits/select.h \
    /usr/include/x86_64-linux-gnu/bits/types/sigset_t.h \
    /usr/include/x86_64-linux-gnu/bits/types/__sigset_t.h \
    /usr/include/x86_64-linux-gnu/bits/types/struct_timeval.h \
    /usr/include/x86_64-linux-gnu/bits/types/struct_timespec.h \
    /usr/include/x86_64-linux-gnu/bits/pthreadtypes.h \
    /usr/include/x86_64-linux-gnu/bits/thread-shared-types.h \
    /usr/include/x86_64-linux-gnu/bits/pthreadtypes-arch.h \
    /usr/include/x86_64-linux-gnu/bits/atomic_wide_counter.h \
    /usr/include/x86_64-linux-gnu/bits/struct_mutex.h \
    /usr/include/x86_64-linux-gnu/bits/struct_rwlock.h \
    /usr/include/alloca.h \
    /usr/include/x86_64-linux-gnu/bits/stdlib-bsearch.h \
    /usr/include/x86_64-linux-gnu/bits/stdlib-float.h \
    /usr/include/c++/12/bits/std_abs.h \
    /usr/local/cuda-13.0/include/driver_functions.h \
    /usr/local/cuda-13.0/include/vector_functions.h \
    /usr/local/cuda-13.0/include/vector_functions.hpp \
    /usr/local/cuda-13.0/include/crt/common_functions.h \
    /usr/include/string.h \
    /usr/include/strings.h \
    /usr/include/time.h \
    /usr/include/x86_64-linux-gnu/bits/time.h \
    /usr/include/x86_64-linux-gnu/bits/timex.h \
    /usr/include/x86_64-linux-gnu/bits/types/struct_tm.h \
    /usr/include/x86_64-linux-gnu/bits/types/struct_itimerspec.h \
    /usr/include/c++/12/new \
    /usr/include/c++/12/bits/exception.h \
    /usr/include/stdio.h \
    /usr/lib/gcc/x86_64-linux-gnu/12/include/stdarg.h \
    /usr/include/x86_64-linux-gnu/bits/types/__fpos_t.h \
    /usr/include/x86_64-linux-gnu/bits/types/__mbstate_t.h \
    /usr/include/x86_64-linux-gnu/bits/types/__fpos64_t.h \
    /usr/include/x86_64-linux-gnu/bits/types/__FILE.h \
    /usr/include/x86_64-linux-gnu/bits/types/FILE.h \
    /usr/include/x86_64-linux-gnu/bits/types/struct_FILE.h \
    /usr/include/x86_64-linux-gnu/bits/types/cookie_io_functions_t.h \
    /usr/include/x86_64-linux-gnu/bits/stdio_lim.h \
    /usr/include/x86_64-linux-gnu/bits/stdio.h \
    /usr/include/assert.h \
    /usr/local/cuda-13.0/include/crt/math_functions.h \
    /usr/include/c++/12/math.h \
    /usr/include/c++/12/cmath \
    /usr/include/c++/12/bits/cpp_type_traits.h \
    /usr/include/c++/12/ext/type_traits.h \
    /usr/include/math.h \
    /usr/include/x86_64-linux-gnu/bits/math-vector.h \
    /usr/include/x86_64-linux-gnu/bits/libm-simd-decl-stubs.h \
    /usr/include/x86_64-linux-gnu/bits/flt-eval-method.h \
    /usr/include/x86_64-linux-gnu/bits/fp-logb.h \
    /usr/include/x86_64-linux-gnu/bits/fp-fast.h \
    /usr/include/x86_64-linux-gnu/bits/mathcalls-helper-functions.h \
    /usr/include/x86_64-linux-gnu/bits/mathcalls.h \
    /usr/include/x86_64-linux-gnu/bits/mathcalls-narrow.h \
    /usr/include/x86_64-linux-gnu/bits/iscanonical.h \
    /usr/include/c++/12/bits/specfun.h \
    /usr/include/c++/12/bits/stl_algobase.h \
    /usr/include/c++/12/bits/functexcept.h \
    /usr/include/c++/12/bits/exception_defines.h \
    /usr/include/c++/12/ext/numeric_traits.h \
    /usr/include/c++/12/bits/stl_pair.h \
    /usr/include/c++/12/type_traits \
    /usr/include/c++/12/bits/move.h \
    /usr/include/c++/12/bits/utility.h \
    /usr/include/c++/12/compare \
    /usr/include/c++/12/concepts \
    /usr/include/c++/12/bits/stl_iterator_base_types.h \
    /usr/include/c++/12/bits/iterator_concepts.h \
    /usr/include/c++/12/bits/ptr_traits.h \
    /usr/include/c++/12/bits/ranges_cmp.h \
    /usr/include/c++/12/bits/stl_iterator_base_funcs.h \
    /usr/include/c++/12/bits/concept_check.h \
    /usr/include/c++/12/debug/assertions.h \
    /usr/include/c++/12/bits/stl_iterator.h \
    /usr/include/c++/12/bits/stl_construct.h \
    /usr/include/c++/12/debug/debug.h \
    /usr/include/c++/12/bits/predefined_ops.h \
    /usr/include/c++/12/limits \
    /usr/include/c++/12/tr1/gamma.tcc \
    /usr/include/c++/12/tr1/special_function_util.h \
    /usr/include/c++/12/tr1/bessel_function.tcc \
    /usr/include/c++/12/tr1/beta_function.tcc \
    /usr/include/c++/12/tr1/ell_integral.tcc \
    /usr/include/c++/12/tr1/exp_integral.tcc \
    /usr/include/c++/12/tr1/hypergeometric.tcc \
    /usr/include/c++/12/tr1/legendre_function.tcc \
    /usr/include/c++/12/tr1/modified_bessel_func.tcc \
    /usr/include/c++/12/tr1/poly_hermite.tcc \
    /usr/include/c++/12/tr1/poly_laguerre.tcc \
    /usr/include/c++/12/tr1/riemann_zeta.tcc \
    /usr/local/cuda-13.0/include/crt/math_functions.hpp \
    /usr/local/cuda-13.0/include/crt/device_functions.h \
    /usr/local/cuda-13.0/include/crt/device_functions.hpp \
    /usr/local/cuda-13.0/include/device_atomic_functions.h \
    /usr/local/cuda-13.0/include/device_atomic_functions.hpp \
    /usr/local/cuda-13.0/include/crt/device_double_functions.h \
    /usr/local/cuda-13.0/include/crt/device_double_functions.hpp \
    /usr/local/cuda-13.0/include/sm_20_atomic_functions.h \
    /usr/local/cuda-13.0/include/sm_20_atomic_functions.hpp \
    /usr/local/cuda-13.0/include/sm_32_atomic_functions.h \
    /usr/local/cuda-13.0/include/sm_32_atomic_functions.hpp \
    /usr/local/cuda-13.0/include/sm_35_atomic_functions.h \
    /usr/local/cuda-13.0/include/sm_60_atomic_functions.h \
    /usr/local/cuda-13.0/include/sm_60_atomic_functions.hpp \
    /usr/local/cuda-13.0/include/sm_20_intrinsics.h \
    /usr/local/cuda-13.0/include/sm_20_intrinsics.hpp \
    /usr/local/cuda-13.0/include/sm_30_intrinsics.h \
    /usr/local/cuda-13.0/include/sm_30_intrinsics.hpp \
    /usr/local/cuda-13.0/include/sm_32_intrinsics.h \
    /usr/local/cuda-13.0/include/sm_32_intrinsics.hpp \
    /usr/local/cuda-13.0/include/sm_35_intrinsics.h \
    /usr/local/cuda-13.0/include/sm_61_intrinsics.h \
    /usr/local/cuda-13.0/include/sm_61_intrinsics.hpp \
    /usr/local/cuda-13.0/include/crt/sm_70_rt.h \
    /usr/local/cuda-13.0/include/crt/sm_70_rt.hpp \
    /usr/local/cuda-13.0/include/crt/sm_80_rt.h \
    /usr/local/cuda-13.0/include/crt/sm_80_rt.hpp \
    /usr/local/cuda-13.0/include/crt/sm_90_rt.h \
    /usr/local/cuda-13.0/include/crt/sm_90_rt.hpp \
    /usr/local/cuda-13.0/include/crt/sm_100_rt.h \
    /usr/local/cuda-13.0/include/crt/sm_100_rt.hpp \
    /usr/local/cuda-13.0/include/texture_indirect_functions.h \
    /usr/local/cuda-13.0/include/surface_indirect_functions.h \
    /usr/local/cuda-13.0/include/crt/cudacc_ext.h \
    /usr/local/cuda-13.0/include/device_launch_parameters.h \
    /usr/include/c++/12/utility \
    /usr/include/c++/12/bits/stl_relops.h \
    /usr/include/c++/12/initializer_list \
    ./config.h \
    ../codelets/reduce.h \
    /usr/lib/gcc/x86_64-linux-gnu/12/include/stdint.h \
    /usr/include/stdint.h \
    /usr/include/x86_64-linux-gnu/bits/wchar.h \
    /usr/include/x86_64-linux-gnu/bits/stdint-uintn.h \
    ../codelets/kernels/update_cuda.h \
    ../codelets/kernels/cuda.h \
    ../core/runtime/cuda.h \
    ../core/runtime/context.h \
    /usr/include/pthread.h \
    /usr/include/sched.h \
    /usr/include/x86_64-linux-gnu/bits/sched.h \
    /usr/include/x86_64-linux-gnu/bits/types/struct_sched_param.h \
    /usr/include/x86_64-linux-gnu/bits/cpu-set.h \
    /usr/include/x86_64-linux-gnu/bits/setjmp.h \
    /usr/include/x86_64-linux-gnu/bits/types/struct___jmp_buf_tag.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_config.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_thread.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_util.h \
    /usr/include/execinfo.h \
    /usr/include/x86_64-linux-gnu/sys/time.h \
    /usr/include/semaphore.h \
    /usr/include/x86_64-linux-gnu/bits/semaphore.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_thread_util.h \
    /usr/include/errno.h \
    /usr/include/x86_64-linux-gnu/bits/errno.h \
    /usr/include/linux/errno.h \
    /usr/include/x86_64-linux-gnu/asm/errno.h \
    /usr/include/asm-generic/errno.h \
    /usr/include/asm-generic/errno-base.h \
    /usr/include/x86_64-linux-gnu/bits/types/error_t.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_data.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_helper.h \
    /usr/include/hwloc.h \
    /usr/include/x86_64-linux-gnu/hwloc/autogen/config.h \
    /usr/include/unistd.h \
    /usr/include/x86_64-linux-gnu/bits/posix_opt.h \
    /usr/include/x86_64-linux-gnu/bits/environments.h \
    /usr/include/x86_64-linux-gnu/bits/confname.h \
    /usr/include/x86_64-linux-gnu/bits/getopt_posix.h \
    /usr/include/x86_64-linux-gnu/bits/getopt_core.h \
    /usr/include/x86_64-linux-gnu/bits/unistd_ext.h \
    /usr/include/linux/close_range.h \
    /usr/include/hwloc/rename.h \
    /usr/include/hwloc/bitmap.h \
    /usr/include/hwloc/helper.h \
    /usr/include/hwloc/inlines.h \
    /usr/include/hwloc/memattrs.h \
    /usr/include/hwloc/cpukinds.h \
    /usr/include/hwloc/export.h \
    /usr/include/hwloc/distances.h \
    /usr/include/hwloc/diff.h \
    /usr/include/hwloc/deprecated.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_disk.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_data_interfaces.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_data_filters.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_stdlib.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_task_bundle.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_task_dep.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_task.h \
    /usr/local/cuda-13.0/include/cuda.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_worker.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_perfmodel.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_task_list.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_task_util.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_scheduler.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_sched_ctx.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_expert.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_rand.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_cuda.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_hip.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_hipblas.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_cublas.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_cusparse.h \
    /usr/local/cuda-13.0/include/cusparse.h \
    /usr/local/cuda-13.0/include/cuComplex.h \
    /usr/local/cuda-13.0/include/cuda_fp16.h \
    /usr/local/cuda-13.0/include/nv/target \
    /usr/local/cuda-13.0/include/nv/detail/__target_macros \
    /usr/local/cuda-13.0/include/nv/detail/__preprocessor \
    /usr/local/cuda-13.0/include/cuda_fp16.hpp \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_bound.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_hash.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_profiling.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_profiling_tool.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_fxt.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_driver.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_tree.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_openmp.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_simgrid_wrap.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_bitmap.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_parallel_worker.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_perf_monitoring.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_perf_steering.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_max_fpga.h \
    /root/.cache/starling/starpu/include/starpu/1.4/starpu_deprecated_api.h \
    ../include/starling/base.h \
    /usr/lib/gcc/x86_64-linux-gnu/12/include/stdbool.h \
    ../core/graph/helper.h \
    /usr/local/cuda-13.0/include/cublasLt.h \
    /usr/local/cuda-13.0/include/cublas_api.h \
    /usr/local/cuda-13.0/include/cuda_bf16.h \
    /usr/local/cuda-13.0/include/cuda_bf16.hpp \
    /usr/local/cuda-13.0/include/cudnn.h \
    /usr/local/cuda-13.0/include/cudnn_version.h \
    /usr/local/cuda-13.0/include/cudnn_graph.h \
    /usr/local/cuda-13.0/include/cudnn_ops.h \
    /usr/local/cuda-13.0/include/cudnn_adv.h \
    /usr/local/cuda-13.0/include/cudnn_cnn.h \
    ../core/runtime/submit.h \
    ../core/runtime/tensor.h \
    ../core/runtime/failure.h \
    ../core/base/half.h \
    ../core/base/random.h \
    ../core/base/simd.h

/usr/include/stdc-predef.h:

/usr/local/cuda-13.0/include/cuda_runtime.h:

/usr/local/cuda-13.0/include/crt/host_config.h:

/usr/include/features.h:

/usr/include/features-time64.h:

/usr/include/x86_64-linux-gnu/bits/wordsize.h:

/usr/include/x86_64-linux-gnu/bits/timesize.h:

/usr/include/x86_64-linux-gnu/sys/cdefs.h:

/usr/include/x86_64-linux-gnu/bits/long-double.h:

/usr/include/x86_64-linux-gnu/gnu/stubs.h:

/usr/include/x86_64-linux-gnu/gnu/stubs-64.h:

/usr/local/cuda-13.0/include/builtin_types.h:

/usr/local/cuda-13.0/include/device_types.h:

/usr/local/cuda-13.0/include/crt/host_defines.h:

/usr/include/ctype.h:

/usr/include/x86_64-linux-gnu/bits/types.h:

/usr/include/x86_64-linux-gnu/bits/typesizes.h:

/usr/include/x86_64-linux-gnu/bits/time64.h:

/usr/include/x86_64-linux-gnu/bits/endian.h:

/usr/include/x86_64-linux-gnu/bits/endianness.h:

/usr/include/x86_64-linux-gnu/bits/types/locale_t.h:

/usr/include/x86_64-linux-gnu/bits/types/__locale_t.h:

/usr/local/cuda-13.0/include/driver_types.h:

/usr/local/cuda-13.0/include/vector_types.h:

/usr/lib/gcc/x86_64-linux-gnu/12/include/limits.h:

/usr/lib/gcc/x86_64-linux-gnu/12/include/syslimits.h:

/usr/include/limits.h:

/usr/include/x86_64-linux-gnu/bits/libc-header-start.h:

/usr/include/x86_64-linux-gnu/bits/posix1_lim.h:

/usr/include/x86_64-linux-gnu/bits/local_lim.h:

/usr/include/linux/limits.h:

/usr/include/x86_64-linux-gnu/bits/pthread_stack_min-dynamic.h:

/usr/include/x86_64-linux-gnu/bits/posix2_lim.h:

/usr/include/x86_64-linux-gnu/bits/xopen_lim.h:

/usr/include/x86_64-linux-gnu/bits/uio_lim.h:

/usr/lib/gcc/x86_64-linux-gnu/12/include/stddef.h:

/usr/local/cuda-13.0/include/surface_types.h:

/usr/local/cuda-13.0/include/texture_types.h:

/usr/local/cuda-13.0/include/library_types.h:

/usr/local/cuda-13.0/include/channel_descriptor.h:

/usr/local/cuda-13.0/include/cuda_runtime_api.h:

/usr/local/cuda-13.0/include/cuda_device_runtime_api.h:

/usr/include/c++/12/stdlib.h:

/usr/include/c++/12/cstdlib:

/usr/include/x86_64-linux-gnu/c++/12/bits/c++config.h:

/usr/include/x86_64-linux-gnu/c++/12/bits/os_defines.h:

/usr/include/x86_64-linux-gnu/c++/12/bits/cpu_defines.h:

/usr/include/c++/12/pstl/pstl_config.h:

/usr/include/stdlib.h:

/usr/include/x86_64-linux-gnu/bits/waitflags.h:

/usr/include/x86_64-linux-gnu/bits/waitstatus.h:

/usr/include/x86_64-linux-gnu/bits/floatn.h:

/usr/include/x86_64-linux-gnu/bits/floatn-common.h:

/usr/include/x86_64-linux-gnu/sys/types.h:

/usr/include/x86_64-linux-gnu/bits/types/clock_t.h:

/usr/include/x86_64-linux-gnu/bits/types/clockid_t.h:

/usr/include/x86_64-linux-gnu/bits/types/time_t.h:

/usr/include/x86_64-linux-gnu/bits/types/timer_t.h:

/usr/include/x86_64-linux-gnu/bits/stdint-intn.h:

/usr/include/endian.h:

/usr/include/x86_64-linux-gnu/bits/byteswap.h:

/usr/include/x86_64-linux-gnu/bits/uintn-identity.h:

/usr/include/x86_64-linux-gnu/sys/select.h:

/usr/include/x86_64-linux-gnu/bits/select.h:

/usr/include/x86_64-linux-gnu/bits/types/sigset_t.h:

/usr/include/x86_64-linux-gnu/bits/types/__sigset_t.h:

/usr/include/x86_64-linux-gnu/bits/types/struct_timeval.h:

/usr/include/x86_64-linux-gnu/bits/types/struct_timespec.h:

/usr/include/x86_64-linux-gnu/bits/pthreadtypes.h:

/usr/include/x86_64-linux-gnu/bits/thread-shared-types.h:

/usr/include/x86_64-linux-gnu/bits/pthreadtypes-arch.h:

/usr/include/x86_64-linux-gnu/bits/atomic_wide_counter.h:

/usr/include/x86_64-linux-gnu/bits/struct_mutex.h:

/usr/include/x86_64-linux-gnu/bits/struct_rwlock.h:

/usr/include/alloca.h:

/usr/include/x86_64-linux-gnu/bits/stdlib-bsearch.h:

/usr/include/x86_64-linux-gnu/bits/stdlib-float.h:

/usr/include/c++/12/bits/std_abs.h:

/usr/local/cuda-13.0/include/driver_functions.h:

/usr/local/cuda-13.0/include/vector_functions.h:

/usr/local/cuda-13.0/include/vector_functions.hpp:

/usr/local/cuda-13.0/include/crt/common_functions.h:

/usr/include/string.h:

/usr/include/strings.h:

/usr/include/time.h:

/usr/include/x86_64-linux-gnu/bits/time.h:

/usr/include/x86_64-linux-gnu/bits/timex.h:

/usr/include/x86_64-linux-gnu/bits/types/struct_tm.h:

/usr/include/x86_64-linux-gnu/bits/types/struct_itimerspec.h:

/usr/include/c++/12/new:

/usr/include/c++/12/bits/exception.h:

/usr/include/stdio.h:

/usr/lib/gcc/x86_64-linux-gnu/12/include/stdarg.h:

/usr/include/x86_64-linux-gnu/bits/types/__fpos_t.h:

/usr/include/x86_64-linux-gnu/bits/types/__mbstate_t.h:

/usr/include/x86_64-linux-gnu/bits/types/__fpos64_t.h:

/usr/include/x86_64-linux-gnu/bits/types/__FILE.h:

/usr/include/x86_64-linux-gnu/bits/types/FILE.h:

/usr/include/x86_64-linux-gnu/bits/types/struct_FILE.h:

/usr/include/x86_64-linux-gnu/bits/types/cookie_io_functions_t.h:

/usr/include/x86_64-linux-gnu/bits/stdio_lim.h:

/usr/include/x86_64-linux-gnu/bits/stdio.h:

/usr/include/assert.h:

/usr/local/cuda-13.0/include/crt/math_functions.h:

/usr/include/c++/12/math.h:

/usr/include/c++/12/cmath:

/usr/include/c++/12/bits/cpp_type_traits.h:

/usr/include/c++/12/ext/type_traits.h:

/usr/include/math.h:

/usr/include/x86_64-linux-gnu/bits/math-vector.h:

/usr/include/x86_64-linux-gnu/bits/libm-simd-decl-stubs.h:

/usr/include/x86_64-linux-gnu/bits/flt-eval-method.h:

/usr/include/x86_64-linux-gnu/bits/fp-logb.h:

/usr/include/x86_64-linux-gnu/bits/fp-fast.h:

/usr/include/x86_64-linux-gnu/bits/mathcalls-helper-functions.h:

/usr/include/x86_64-linux-gnu/bits/mathcalls.h:

/usr/include/x86_64-linux-gnu/bits/mathcalls-narrow.h:

/usr/include/x86_64-linux-gnu/bits/iscanonical.h:

/usr/include/c++/12/bits/specfun.h:

/usr/include/c++/12/bits/stl_algobase.h:

/usr/include/c++/12/bits/functexcept.h:

/usr/include/c++/12/bits/exception_defines.h:

/usr/include/c++/12/ext/numeric_traits.h:

/usr/include/c++/12/bits/stl_pair.h:

/usr/include/c++/12/type_traits:

/usr/include/c++/12/bits/move.h:

/usr/include/c++/12/bits/utility.h:

/usr/include/c++/12/compare:

/usr/include/c++/12/concepts:

/usr/include/c++/12/bits/stl_iterator_base_types.h:

/usr/include/c++/12/bits/iterator_concepts.h:

/usr/include/c++/12/bits/ptr_traits.h:

/usr/include/c++/12/bits/ranges_cmp.h:

/usr/include/c++/12/bits/stl_iterator_base_funcs.h:

/usr/include/c++/12/bits/concept_check.h:

/usr/include/c++/12/debug/assertions.h:

/usr/include/c++/12/bits/stl_iterator.h:

/usr/include/c++/12/bits/stl_construct.h:

/usr/include/c++/12/debug/debug.h:

/usr/include/c++/12/bits/predefined_ops.h:

/usr/include/c++/12/limits:

/usr/include/c++/12/tr1/gamma.tcc:

/usr/include/c++/12/tr1/special_function_util.h:

/usr/include/c++/12/tr1/bessel_function.tcc:

/usr/include/c++/12/tr1/beta_function.tcc:

/usr/include/c++/12/tr1/ell_integral.tcc:

/usr/include/c++/12/tr1/exp_integral.tcc:

/usr/include/c++/12/tr1/hypergeometric.tcc:

/usr/include/c++/12/tr1/legendre_function.tcc:

/usr/include/c++/12/tr1/modified_bessel_func.tcc:

/usr/include/c++/12/tr1/poly_hermite.tcc:

/usr/include/c++/12/tr1/poly_laguerre.tcc:

/usr/include/c++/12/tr1/riemann_zeta.tcc:

/usr/local/cuda-13.0/include/crt/math_functions.hpp:

/usr/local/cuda-13.0/include/crt/device_functions.h:

/usr/local/cuda-13.0/include/crt/device_functions.hpp:

/usr/local/cuda-13.0/include/device_atomic_functions.h:

/usr/local/cuda-13.0/include/device_atomic_functions.hpp:

/usr/local/cuda-13.0/include/crt/device_double_functions.h:

/usr/local/cuda-13.0/include/crt/device_double_functions.hpp:

/usr/local/cuda-13.0/include/sm_20_atomic_functions.h:

/usr/local/cuda-13.0/include/sm_20_atomic_functions.hpp:

/usr/local/cuda-13.0/include/sm_32_atomic_functions.h:

/usr/local/cuda-13.0/include/sm_32_atomic_functions.hpp:

/usr/local/cuda-13.0/include/sm_35_atomic_functions.h:

/usr/local/cuda-13.0/include/sm_60_atomic_functions.h:

/usr/local/cuda-13.0/include/sm_60_atomic_functions.hpp:

/usr/local/cuda-13.0/include/sm_20_intrinsics.h:

/usr/local/cuda-13.0/include/sm_20_intrinsics.hpp:

/usr/local/cuda-13.0/include/sm_30_intrinsics.h:

/usr/local/cuda-13.0/include/sm_30_intrinsics.hpp:

/usr/local/cuda-13.0/include/sm_32_intrinsics.h:

/usr/local/cuda-13.0/include/sm_32_intrinsics.hpp:

/usr/local/cuda-13.0/include/sm_35_intrinsics.h:

/usr/local/cuda-13.0/include/sm_61_intrinsics.h:

/usr/local/cuda-13.0/include/sm_61_intrinsics.hpp:

/usr/local/cuda-13.0/include/crt/sm_70_rt.h:

/usr/local/cuda-13.0/include/crt/sm_70_rt.hpp:

/usr/local/cuda-13.0/include/crt/sm_80_rt.h:

/usr/local/cuda-13.0/include/crt/sm_80_rt.hpp:

/usr/local/cuda-13.0/include/crt/sm_90_rt.h:

/usr/local/cuda-13.0/include/crt/sm_90_rt.hpp:

/usr/local/cuda-13.0/include/crt/sm_100_rt.h:

/usr/local/cuda-13.0/include/crt/sm_100_rt.hpp:

/usr/local/cuda-13.0/include/texture_indirect_functions.h:

/usr/local/cuda-13.0/include/surface_indirect_functions.h:

/usr/local/cuda-13.0/include/crt/cudacc_ext.h:

/usr/local/cuda-13.0/include/device_launch_parameters.h:

/usr/include/c++/12/utility:

/usr/include/c++/12/bits/stl_relops.h:

/usr/include/c++/12/initializer_list:

./config.h:

../codelets/reduce.h:

/usr/lib/gcc/x86_64-linux-gnu/12/include/stdint.h:

/usr/include/stdint.h:

/usr/include/x86_64-linux-gnu/bits/wchar.h:

/usr/include/x86_64-linux-gnu/bits/stdint-uintn.h:

../codelets/kernels/update_cuda.h:

../codelets/kernels/cuda.h:

../core/runtime/cuda.h:

../core/runtime/context.h:

/usr/include/pthread.h:

/usr/include/sched.h:

/usr/include/x86_64-linux-gnu/bits/sched.h:

/usr/include/x86_64-linux-gnu/bits/types/struct_sched_param.h:

/usr/include/x86_64-linux-gnu/bits/cpu-set.h:

/usr/include/x86_64-linux-gnu/bits/setjmp.h:

/usr/include/x86_64-linux-gnu/bits/types/struct___jmp_buf_tag.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_config.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_thread.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_util.h:

/usr/include/execinfo.h:

/usr/include/x86_64-linux-gnu/sys/time.h:

/usr/include/semaphore.h:

/usr/include/x86_64-linux-gnu/bits/semaphore.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_thread_util.h:

/usr/include/errno.h:

/usr/include/x86_64-linux-gnu/bits/errno.h:

/usr/include/linux/errno.h:

/usr/include/x86_64-linux-gnu/asm/errno.h:

/usr/include/asm-generic/errno.h:

/usr/include/asm-generic/errno-base.h:

/usr/include/x86_64-linux-gnu/bits/types/error_t.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_data.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_helper.h:

/usr/include/hwloc.h:

/usr/include/x86_64-linux-gnu/hwloc/autogen/config.h:

/usr/include/unistd.h:

/usr/include/x86_64-linux-gnu/bits/posix_opt.h:

/usr/include/x86_64-linux-gnu/bits/environments.h:

/usr/include/x86_64-linux-gnu/bits/confname.h:

/usr/include/x86_64-linux-gnu/bits/getopt_posix.h:

/usr/include/x86_64-linux-gnu/bits/getopt_core.h:

/usr/include/x86_64-linux-gnu/bits/unistd_ext.h:

/usr/include/linux/close_range.h:

/usr/include/hwloc/rename.h:

/usr/include/hwloc/bitmap.h:

/usr/include/hwloc/helper.h:

/usr/include/hwloc/inlines.h:

/usr/include/hwloc/memattrs.h:

/usr/include/hwloc/cpukinds.h:

/usr/include/hwloc/export.h:

/usr/include/hwloc/distances.h:

/usr/include/hwloc/diff.h:

/usr/include/hwloc/deprecated.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_disk.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_data_interfaces.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_data_filters.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_stdlib.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_task_bundle.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_task_dep.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_task.h:

/usr/local/cuda-13.0/include/cuda.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_worker.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_perfmodel.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_task_list.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_task_util.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_scheduler.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_sched_ctx.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_expert.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_rand.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_cuda.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_hip.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_hipblas.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_cublas.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_cusparse.h:

/usr/local/cuda-13.0/include/cusparse.h:

/usr/local/cuda-13.0/include/cuComplex.h:

/usr/local/cuda-13.0/include/cuda_fp16.h:

/usr/local/cuda-13.0/include/nv/target:

/usr/local/cuda-13.0/include/nv/detail/__target_macros:

/usr/local/cuda-13.0/include/nv/detail/__preprocessor:

/usr/local/cuda-13.0/include/cuda_fp16.hpp:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_bound.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_hash.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_profiling.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_profiling_tool.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_fxt.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_driver.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_tree.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_openmp.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_simgrid_wrap.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_bitmap.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_parallel_worker.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_perf_monitoring.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_perf_steering.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_max_fpga.h:

/root/.cache/starling/starpu/include/starpu/1.4/starpu_deprecated_api.h:

../include/starling/base.h:

/usr/lib/gcc/x86_64-linux-gnu/12/include/stdbool.h:

../core/graph/helper.h:

/usr/local/cuda-13.0/include/cublasLt.h:

/usr/local/cuda-13.0/include/cublas_api.h:

/usr/local/cuda-13.0/include/cuda_bf16.h:

/usr/local/cuda-13.0/include/cuda_bf16.hpp:

/usr/local/cuda-13.0/include/cudnn.h:

/usr/local/cuda-13.0/include/cudnn_version.h:

/usr/local/cuda-13.0/include/cudnn_graph.h:

/usr/local/cuda-13.0/include/cudnn_ops.h:

/usr/local/cuda-13.0/include/cudnn_adv.h:

/usr/local/cuda-13.0/include/cudnn_cnn.h:

../core/runtime/submit.h:

../core/runtime/tensor.h:

../core/runtime/failure.h:

../core/base/half.h:

../core/base/random.h:

../core/base/simd.h:
