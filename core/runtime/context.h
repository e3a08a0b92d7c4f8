/* The inside of a context: StarPU, the device list, and the state that all tasks share. */
#ifndef SL_CORE_RUNTIME_CONTEXT_H
#define SL_CORE_RUNTIME_CONTEXT_H

#include <pthread.h>
#include <starpu.h>
#include <starling/base.h>

#include "core/runtime/hooks.h"

/* Where a task may run. Zero value: anywhere. */
struct sl__place {
  uint32_t where; /* STARPU_CPU, STARPU_CUDA; 0: any */
  int worker;     /* StarPU worker + 1; 0: any of that kind */
};

struct sl__device {
  char name[24];
  struct sl__place place;
  unsigned node; /* memory node where its data lives */
};

/* Tasks that a GPU's worker has in progress, unless STARPU_CUDA_PIPELINE says something else. */
enum { SL__CUDA_PIPELINE = 4 };

/* GPUs that StarPU may use. count -1: those that it chooses itself. */
struct sl__gpu_range {
  int first, count;
};
#define SL__ANY_GPUS ((struct sl__gpu_range){0, -1})

struct sl__trace; /* core/runtime/trace.h */

/* State of rooms above, which core/runtime keeps for them and does not look into. */
struct sl__memory;       /* core/memory/limits.h: limits, and the swap folder */
struct sl__admission;    /* core/memory/admission.h: submitted tasks that have not ended */
struct sl__watchdog;     /* core/memory/watchdog.h: finds that these make no progress */
struct sl__net;          /* core/net/net.h: the other ranks */
struct sl__graphs;       /* core/graph/graph.h: the capture, and workers' inboxes */
struct sl__model_folder; /* core/runtime/model_folder.h: of StarPU's performance models */
struct sl__tuning;       /* codelets/kernels/tuning.h: the fastest implementation per shape */
struct sl__kinds;        /* nn/kinds.c: kinds of layers that the program registered */
struct sl_kvstore;       /* parallel/params/kvstore.h: stores over ranks */

struct sl_context {
  struct sl__device *devices;
  int device_count;
  uint64_t seed;
  struct sl__hooks hooks;
  bool abandoned; /* see core/runtime/wait.h, as for the next two members */
  int endless;    /* receptions that may never end */
  int ending;     /* while hooks follow the ends of tasks: submitted ones that will end */
  bool forked;    /* see core/runtime/forked.h, as for the next member */
  struct sl_context *next_watched;
  bool swaps;              /* StarPU may move tensors to a swap folder */
  struct sl__trace *trace; /* NULL: the context was opened without a folder for one */
  struct sl__model_folder *model_folder;
  struct sl__memory *memory;
  struct sl__admission *admission; /* NULL: neither is memory limited, nor is there a watchdog */
  struct sl__watchdog *watchdog;   /* NULL: there is none */
  struct sl__net *net;             /* NULL: not distributed */
  int tags;                        /* number of message tags that KVStores have */
  struct sl_kvstore *kvstores;     /* the open ones over ranks; and the number of all so far */
  int kvstore_count;
  struct sl__graphs *graphs;
  struct sl__tuning *tuning;      /* NULL without --tune */
  int forced_implementation;      /* for tests: 1 + its number; 0: none */
  struct sl__kinds *kinds;        /* NULL: none */
  struct sl__tensor *scratch[48]; /* one for each power of two of bytes; see sl__scratch */
  sl_log_function log;
  void *log_user;
  enum sl_level log_level;
  starpu_pthread_mutex_t submit_mutex; /* for predictors: a thread each submits */
  starpu_pthread_mutex_t chain_mutex;  /* see core/runtime/chain.h */
  bool may_chain;                      /* may it have chains? */
  unsigned links[STARPU_NMAXWORKERS];  /* StarPU's number of the last link, without holes */
  size_t chain_bytes;                  /* memory that chains have, besides their own tensors */
  bool began_starpu;                   /* StarPU did not run before */
  starpu_pthread_mutex_t log_mutex;
  struct sl__gpu_range gpus;
  bool is_started, is_pooled; /* see sl__context_start */
  bool uses_gpus;             /* see sl__cuda_open */
  char text[256];
  char version[32]; /* StarPU's */
  char scheduler[64];
};

/* A context before StarPU starts: with its options, without devices. \return NULL: no memory. */
struct sl_context *sl__context_new(const struct sl_context_options *options);
/* Start StarPU with the context's GPUs, and its memory pool where memory is not limited. */
enum sl_status sl__context_start(struct sl_context *context,
                                 const struct sl_context_options *options, bool pooled);
/* End StarPU, if sl__context_start has started it. */
void sl__context_stop(struct sl_context *context);
/* A context that sl_close leaves as it is, since its tasks cannot end. */
void sl__context_give_up(const struct sl_context *context);
void sl__context_free(struct sl_context *context);

/* Does the place include this StarPU worker? */
bool sl__place_has(const struct sl__place *place, int worker);

/* Restricts the place to this process, where addresses are valid: CPUs, and GPUs if there is a
 * kernel. If nothing is left, any CPU. */
void sl__place_here(struct sl__place *place, bool on_gpu);

/* Describes one worker as a device: "cpu:1", "cuda:0", or StarPU's name for a worker of another
 * kind. */
void sl__device_of_worker(int worker, struct sl__device *device);

/* Does a device list, which may be NULL, name GPUs; may its devices be GPUs? */
bool sl__devices_name_gpus(const char *list);
bool sl__devices_may_be_gpus(const char *list);
/* Are all devices of the list GPUs, as far as it is known before StarPU starts? */
bool sl__devices_are_gpus(const char *list);

/* Parses "cuda:0,cpu" for the running StarPU (core/runtime/device.c). The caller frees devices. */
enum sl_status sl__devices_parse(const char *list, struct sl__device **devices, int *count);

#endif
