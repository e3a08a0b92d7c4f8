/* The context's inside: StarPU, the device list, what is shared by all tasks. */
#ifndef SL_CORE_RUNTIME_CONTEXT_H
#define SL_CORE_RUNTIME_CONTEXT_H

#include <pthread.h>
#include <starpu.h>
#include <starling/base.h>

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

struct sl__tuning; /* codelets/kernels/tuning.h: the fastest implementation per shape, as measured
                    */

struct sl__net;         /* core/net/net.h: the other ranks */
struct sl__dry_run;     /* core/runtime/submit.h */
struct sl__calibration; /* core/runtime/calibration.h */
struct sl__graphs;      /* core/graph/graph.h: the capture, and the workers' inboxes */
struct sl__trace;       /* core/runtime/trace.h */
struct sl__memory;      /* core/memory/limits.h: limits, and the swap folder */
struct sl__admission;   /* core/memory/admission.h: the tasks under way */
struct sl__watchdog;    /* core/memory/watchdog.h: the watch over them */

struct sl__kinds; /* nn/kinds.c: kinds of layers that the program registered */

struct sl_context {
  struct sl__device *devices;
  int device_count;
  uint64_t seed;
  struct sl__net *net;           /* NULL: not distributed */
  int tags;                      /* given to KVStores: numbers of messages between ranks */
  bool abandoned;                /* see core/runtime/wait.h */
  struct sl__memory *memory;     /* its limits */
  struct sl__admission *active;  /* NULL: memory is not limited, and nobody watches */
  struct sl__watchdog *stall;    /* NULL: nobody watches */
  struct sl__tuning *tuning;     /* NULL without --tune */
  int forced_implementation;     /* for tests: 1 + its number; 0: none */
  struct sl__dry_run *rehearsal; /* tasks are noted there instead of run; or NULL */
  struct sl__graphs *graphs;
  struct sl__calibration *calibration; /* tasks' times are taken; or NULL */
  struct sl__kinds *kinds;             /* NULL: none */
  void (*kinds_free)(struct sl__kinds *kinds);
  struct sl__trace *trace; /* NULL: none is recorded */
  struct sl__tensor
      *scratch[48]; /* one a power of two of bytes; StarPU gives each worker its own copy */
  sl_log_function log;
  void *log_user;
  enum sl_level log_level;
  starpu_pthread_mutex_t submit_mutex; /* of predictors, which submit from threads of their own */
  starpu_pthread_mutex_t log_mutex;
  char text[256];
  char version[32]; /* StarPU's */
  char scheduler[64];
};

/* Is this StarPU worker one that the place stands for? */
bool sl__place_has(const struct sl__place *place, int worker);

/* Where it may be without leaving this process, where addresses mean something: on CPUs, and on
 * GPUs where there is a kernel. What is placed elsewhere goes to any CPU. */
void sl__place_here(struct sl__place *place, bool on_gpu);

/* One worker as a device: "cpu:1", "cuda:0", or StarPU's name where it is of another kind. */
void sl__device_of_worker(int worker, struct sl__device *device);

/* Parse "cuda:0,cpu" against the running StarPU (core/runtime/device.c); devices is to be freed. */
enum sl_status sl__devices_parse(const char *list, struct sl__device **devices, int *count);

#endif
