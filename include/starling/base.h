/* Status codes, shapes and the context: what everything else builds on. */
#ifndef STARLING_BASE_H
#define STARLING_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SL_API __attribute__((visibility("default")))
#define SL_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))

/** \defgroup status Status codes and messages
 * A function that can fail returns one of these codes, and sl_error() has the message.
 *
 * NULL is legal for an argument only where its function's comment says so, and for a *_free
 * function's object. For any other NULL a function that returns a status returns SL_BAD_ARGUMENT;
 * another function does nothing and returns 0, NULL or "?". sl_error() then names the function and
 * the argument. Members of structures are as their comments say. */

/** The codes and their meanings, in one list, from which sl_status_name has the names. */
#define SL_STATUS_MAP(X)                                                                           \
  X(OK, "success")                                                                                 \
  X(BAD_ARGUMENT, "an argument is out of range or unknown")                                        \
  X(BAD_SHAPE, "shapes do not fit")                                                                \
  X(BAD_FILE, "a file is damaged or of another kind")                                              \
  X(IO, "a file cannot be opened, read or written")                                                \
  X(NO_MEMORY, "memory is exhausted")                                                              \
  X(NO_DEVICE, "a device is not there")                                                            \
  X(NOT_FINITE, "a value is infinite or not a number")                                             \
  X(CLOSED, "it was closed")                                                                       \
  X(LOST, "another process of the run is gone")                                                    \
  X(STALLED, "no task ends any more")                                                              \
  X(STARPU, "StarPU refused a request")                                                            \
  X(UNSUPPORTED, "this build cannot do it")

enum sl_status {
#define SL_STATUS_CODE(name, text) SL_##name,
  SL_STATUS_MAP(SL_STATUS_CODE)
#undef SL_STATUS_CODE
};

/** The calling thread's last message, "" when nothing failed yet. Valid until its next failure. */
SL_API const char *sl_error(void);

/** "BAD_SHAPE" for SL_BAD_SHAPE, and so on. This function and all others that name a value of an
 * enum return "?" for a number that is none of its values. */
SL_API const char *sl_status_name(enum sl_status status);

/** \defgroup shape Shapes
 * Row-major, batch first, at most SL_MAX_DIMS dimensions, every one at least 1. */
#define SL_MAX_DIMS 5

struct sl_shape {
  int ndim;
  int64_t dim[SL_MAX_DIMS];
};

/** Most fields of a row, and parts of a loss. */
#define SL_MAX_FIELDS 15

/** A field: a named range of a row. A sample's inputs lie one behind the other in one row, and so
 * do its targets, and a model's outputs. Names have 1 to 63 letters, digits, _ . -, and differ
 * within a row; "input" is no name. */
struct sl_row_field {
  const char *name;
  struct sl_shape shape; /**< at most SL_MAX_DIMS - 1 axes */
  /** Of targets: the values are class labels, of inputs: tokens, for an embedding: whole numbers
   * 0 .. classes - 1 (up to SL_MAX_CLASSES, which floats hold exactly). They are not normalised.
   * 0: the values are numbers. */
  int classes;
  int64_t first; /**< place of its first value in the row; the library sets it, and ignores a
                    caller's value */
};

enum sl_type { SL_F32, SL_I32, SL_BF16 };

/** SL_SHAPE(1, 28, 28): a shape from its dimensions. In C its address may be taken; in C++ it is a
 * value, to be kept in a variable whose address is taken. */
#ifdef __cplusplus
extern "C++" {
template <typename... Dimensions>
inline struct sl_shape sl_shape_from(Dimensions... dimensions) {
  return {static_cast<int>(sizeof...(dimensions)), {static_cast<int64_t>(dimensions)...}};
}
}
#define SL_SHAPE(...) sl_shape_from(__VA_ARGS__)
#else
#define SL_SHAPE(...)                                                                              \
  ((struct sl_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#endif

/** Number of elements; 1 for a shape without dimensions, INT64_MAX if they cannot be counted, also
 * where ndim is below 0 or above SL_MAX_DIMS. */
SL_API int64_t sl_shape_count(const struct sl_shape *shape);

/** "[20, 24, 24]", or "[?]" for an impossible ndim, into text (cut to size); returns text, which
 * may be NULL. */
SL_API const char *sl_shape_text(const struct sl_shape *shape, char *text, size_t size);

/** false, too, if ndim is impossible. */
SL_API bool sl_shape_equal(const struct sl_shape *a, const struct sl_shape *b);

/** \defgroup files Whole files
 * For what programs keep beside the library's own files. */

/** Write a file whole or not at all: aside (PATH.1a2b3c), fsync, rename, fsync of the folder. A
 * file that is replaced gives its mode to the new one, and its owner and group where the process
 * may give files away; a new file has the mode that the umask leaves. \return SL_IO; a file that
 * was there before stays then. bytes may be NULL if size is 0. */
SL_API enum sl_status sl_file_write(const char *path, const void *bytes, size_t size);

/** Make a folder whose name survives a power cut (fsync of the folder that it is in). A folder that
 * is there already is no error. \return SL_IO. */
SL_API enum sl_status sl_folder_make(const char *path);

/** Length and XXH64 (seed 0; Y. Collet, https://xxhash.com) of a regular file. \return SL_IO. */
SL_API enum sl_status sl_file_sum(const char *path, uint64_t *bytes, uint64_t *xxh64);

/** \defgroup context The context
 * Starts StarPU and names the devices. A process that runs StarPU itself may open one too:
 * StarPU counts its users. A process that is forked after sl_open has none of StarPU's workers:
 * there sl_open, and all that submits tasks or waits for them, return SL_UNSUPPORTED. */
struct sl_context;

/** Levels of the messages that the library logs. Failures are returned as statuses instead. */
enum sl_level { SL_LOG_WARNING, SL_LOG_INFO, SL_LOG_DEBUG };

/** Called with one whole line at a time, never from two threads at once. */
typedef void (*sl_log_function)(void *user, enum sl_level level, const char *line);

/** How tensors travel between ranks. The results are the same to the bit. */
enum sl_exchange {
  /** By MPI messages that the workers send and poll themselves, between two tasks. */
  SL_EXCHANGE_LANE,
  /** By StarPU-MPI, whose thread needs a core of its own. */
  SL_EXCHANGE_STARPU,
  /** The faster way, measured for small and for large messages when the first trainer is made
   * (about 0.1 s). Without StarPU-MPI: SL_EXCHANGE_LANE. */
  SL_EXCHANGE_AUTO
};

/** By its name: "lane", "starpu", "auto". \return SL_BAD_ARGUMENT for any other. */
SL_API enum sl_status sl_exchange_parse(const char *name, enum sl_exchange *exchange);
SL_API const char *sl_exchange_name(enum sl_exchange exchange);

struct sl_context_options {
  /** "cpu", "cpu:0,cpu:1", "cuda:0,cpu", "gpu-or-cpu"; NULL: every worker of StarPU. */
  const char *devices;
  /** Seed of everything random: initial weights, dropout, shuffling. */
  uint64_t seed;
  /** Measure the implementations of each product and convolution once, remember the fastest beside
   *  StarPU's performance models and use what is remembered. Without it a fixed preference order
   * holds. */
  bool tune;
  /** Receives the lines; NULL: they go to the error stream, as "starling: warning: ...". */
  sl_log_function log;
  void *log_user;
  /** Lines above this level are dropped; the default lets warnings through only. */
  enum sl_level log_level;
  /** Join the other processes, called ranks, that the launcher (mpirun, srun) started: each makes
   * the same calls. Without a launcher there is one rank. MPI is initialised if it is not yet (with
   * MPI_THREAD_SERIALIZED; MPI_THREAD_MULTIPLE if exchange needs it), and ended by sl_close then.
   */
  bool distributed;
  /** Seconds after which a rank counts as lost if it sends no sign of life. One that does nothing
   * while others wait for it counts as lost after one and a half times as long, or two times for
   * what another rank must have first. 0 means 60; negative: never. */
  double timeout;
  /** Rank 0 listens for the other ranks' heartbeat at the address of this network interface
   * ("eth0", "ib0") alone; NULL: at all addresses. */
  const char *net_interface;
  /** Rank 0 listens at the first free one of these ports, "29400-29500"; NULL: at a port that the
   *  system chooses. MPI's own connections are set by MPI's options. */
  const char *net_ports;
  /** How tensors travel between ranks; the same on all. */
  enum sl_exchange exchange;
  /** Folder for StarPU's trace (FxT) of the tasks between sl_trace_start and sl_trace_stop;
   * sl_close writes it. It is made if it does not exist; each rank needs its own. Sets
   * STARPU_FXT_TRACE and STARPU_FXT_PREFIX, and removes older prof_file_* from the folder. NULL: no
   * trace. */
  const char *trace;
  /** Limits of the tensors' memory, such as "cpu=1G,cuda=8G,cuda:1=4G" (bytes; K, M, G, T are
   * powers of 1024; StarPU counts in MiB, rounded down); NULL: no limit. Tensors that do not fit
   * into a GPU's limit stay in main memory, those beyond main memory's limit in the swap folder.
   * The limits count tensors (parameters, gradients, optimizer's state, activations), not datasets,
   * programs or libraries' buffers. A task is admitted when all its tensors fit at once; a task
   * that alone does not fit is refused with SL_NO_MEMORY. StarPU reads the limits from its
   * environment: no other context may be open, and STARPU_LIMIT_* in the environment must not
   * differ. Without a GPU a limit of one is SL_NO_DEVICE, unless the context is distributed. */
  const char *memory_limit;
  /** Folder for tensors that main memory has no room for; needs a limit for cpu. They are in one
   * file without a name, which ends with the process. NULL: a training that needs more memory is
   * refused. The results are the same to the bit. Not with several ranks, whose messages need their
   * tensors in main memory: SL_UNSUPPORTED. */
  const char *swap;
  /** Seconds; 0: never. If no task has ended for this time, tasks are pending and none runs, the
   * library logs which task waits for which tensor (SL_LOG_WARNING), and all waits fail with
   * SL_STALLED. A stalled context cannot be used again, like one that has lost a rank: the program
   * should end. */
  double stall_timeout;
};

/** Start StarPU (its own STARPU_* environment is respected) and find the devices. options NULL: the
 * zero value.
 * Where that limits a GPU's memory (STARPU_LIMIT_CUDA_MEM), STARPU_PREFETCH=0 and
 * STARPU_SUBALLOCATOR=0 are added unless they are set: with them StarPU can stall.
 * Workers and the library's threads compute in the default floating-point environment, workers with
 * subnormal numbers as zero: the program's traps and rounding do not reach them. Calls compute in
 * the environment of the thread that calls, where another rounding changes bits. OpenBLAS, if the
 * program uses it too, has one thread from the first product until the last context is closed.
 * \return SL_NO_DEVICE if a named device does not exist, SL_BAD_ARGUMENT for a malformed list or an
 *          option out of range, SL_STARPU if StarPU cannot start; SL_IO or SL_NO_MEMORY if the swap
 * folder cannot be used or is too small; SL_UNSUPPORTED if exchange or trace need what StarPU or
 * MPI do not have; distributed: SL_UNSUPPORTED in a build without MPI, SL_LOST or SL_IO if the
 * ranks cannot reach each other. */
SL_API enum sl_status sl_open(const struct sl_context_options *options,
                              struct sl_context **context);

/** Wait for all tasks, stop StarPU, free. Objects made in the context must be freed before. Once a
 * rank is lost, StarPU-MPI's messages never end: then sl_trainer_free, sl_model_free and sl_close
 * wait no longer, leave StarPU's threads as they are and free nothing; the program should end. NULL
 * is legal. */
SL_API void sl_close(struct sl_context *context);

/** A GPU may report an error inside a kernel (a wrong address, a defect) when no call can return a
 * status any more; StarPU then aborts the program. A handler of SIGABRT in the aborting thread can
 * call this function, print the text and _exit(1). The text has the device's message, and the tasks
 * (operation, layer, sizes) one of which was the cause. Takes no lock, allocates nothing. \return
 * false if the abort has other reasons: leave it to the system. */
SL_API bool sl_last_words(char *text, size_t size);

/** Number of devices in the list, and the name ("cuda:0", "cpu:1", "any") of one of them. */
SL_API int sl_device_count(const struct sl_context *context);
SL_API const char *sl_device_name(const struct sl_context *context, int device);

/** Number of StarPU workers of all kinds: the default number of replicas. */
SL_API int sl_worker_count(const struct sl_context *context);

/** One of StarPU's workers, from 0. */
struct sl_worker_info {
  char name[24];         /**< as device lists have it: "cpu:1", "cuda:0" */
  char description[128]; /**< StarPU's: "CPU 1", "CUDA 0.0 (NVIDIA A100 79.1 GiB 00:00.0)" */
  bool listed;           /**< the context's device list has it, by name or by kind */
};

/** \return SL_BAD_ARGUMENT if there is no such worker. */
SL_API enum sl_status sl_worker(const struct sl_context *context, int worker,
                                struct sl_worker_info *info);

/** StarPU's scheduling policy, "lws", and its version, "1.4.10". */
SL_API const char *sl_scheduler(const struct sl_context *context);
SL_API const char *sl_starpu_version(const struct sl_context *context);

/** "StarPU 1.4.10, scheduler lws, 2 CPU and 0 CUDA workers". */
SL_API const char *sl_context_text(const struct sl_context *context);

/** The state of a context as lines of text, for a report of a failure: versions of Starling,
 * StarPU, the numeric libraries, the compiler and the system; processor, memory and its limits;
 * workers; ranks; with sl_context_options.stall_timeout or a memory limit, what the oldest tasks
 * wait for. It names no host, user, file or environment variable. From any thread, also after
 * SL_STALLED or SL_LOST. text is to be freed by free(). \return SL_NO_MEMORY. */
SL_API enum sl_status sl_context_report(struct sl_context *context, char **text);

/** \defgroup trace Traces
 * A record of the tasks over time, for `starling-trace` and for StarPU's tools. While it is
 * recorded, tasks are named by layer, operation, stage, replica, microbatch and chunk
 * ("conv2.forward/s1/r0/m2"), have a colour by layer, and the training step (from 1) as StarPU's
 * iteration. */

/** Was StarPU built with FxT? */
SL_API bool sl_trace_supported(void);

/** Starts recording. The trace shows running tasks only in part: wait for them before, for a trace
 * of whole steps. May be called again after a stop. \return SL_BAD_ARGUMENT if the context has
 * no folder for it. */
SL_API enum sl_status sl_trace_start(struct sl_context *context);

/** Stops recording, if it is on. */
SL_API void sl_trace_stop(struct sl_context *context);

/** \defgroup ranks The ranks of a distributed run
 * All ranks must call the collective functions, in the same order, each from one thread. If a rank
 * does not call one, the others wait, and after the context's timeout fail with SL_LOST. */

/** This rank's number, from 0, and the number of ranks; 0 and 1 if the context is not distributed.
 */
SL_API int sl_rank(const struct sl_context *context);
SL_API int sl_rank_count(const struct sl_context *context);

/** Number of ranks that a launcher (mpirun, srun) started, according to its environment, and the
 * number of this one (rank may be NULL); 0: there is no launcher. Needs no context. */
SL_API int sl_launched(int *rank);

/** Collective: compares lines "NAME VALUE", each with its line end, which must be the same on all
 * ranks. \return SL_BAD_ARGUMENT on all ranks otherwise, with the same message: the first line that
 * differs from rank 0's, and its rank. */
SL_API enum sl_status sl_agree(struct sl_context *context, const char *lines);

/** Collective: the first rank's status that is not SL_OK becomes that of all, with its message, why
 * (or NULL: none). */
SL_API enum sl_status sl_share(struct sl_context *context, enum sl_status status, const char *why);

/** Collective: rank 0's bytes become those of all. data may be NULL if bytes is 0. */
SL_API enum sl_status sl_broadcast(struct sl_context *context, void *data, size_t bytes);

/** Collective: bytes of tensors that a rank has sent to others so far, mean over the ranks. */
SL_API enum sl_status sl_bytes_sent(struct sl_context *context, double *mean);

/** Tells the other ranks that this one ends early, and why (or NULL); they fail with SL_LOST.
 * context NULL: does nothing. */
SL_API void sl_leave(struct sl_context *context, const char *why);

/** Use of limited memory so far, in bytes. */
struct sl_memory_use {
  int64_t limit;     /**< limit of main memory; 0: no limit, then the other members are 0, too */
  int64_t peak;      /**< largest use of main memory by StarPU */
  int64_t swap_out;  /**< written to the swap file */
  int64_t swap_in;   /**< read from the swap file */
  int64_t swap_size; /**< size of the swap file */
};
SL_API void sl_memory_use(const struct sl_context *context, struct sl_memory_use *use);

/** Wait until every submitted task has ended. \return the failure of a task, such as a loss or a
 * layer of the program's own that returned an error, or a device without memory. Other tasks may
 * have read values that it did not compute, so from then on this call, steps, predictions and all
 * others that wait for results return it in all contexts of the process, until the last one is
 * closed. sl_open then begins anew; models are loaded from files that were saved before. */
SL_API enum sl_status sl_wait(struct sl_context *context);

#ifdef __cplusplus
}
#endif
#endif
