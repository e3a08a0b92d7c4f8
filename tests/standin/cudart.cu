/* The CUDA runtime's interface without a GPU: devices are counters, streams are queues, kernels run
 * on the CPU (block.cu). For tests only, never installed; README.md here says its limits.
 *
 * Work waits in its stream until a thread asks for it (synchronise, query, a wait in another
 * stream), and the asking thread runs it. So code that forgets to ask always reads old values. One
 * mutex guards all state; it is not held while work runs. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "tests/standin/race.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, size) ((void)(begin), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(begin, size) ((void)(begin), (void)(size))
#endif

using sl_standin::Launch;
using sl_standin::Range;

namespace {

/* ---- device memory is out of the CPU's reach ------------------------------------------------- */

/* Pages of device memory have a protection key of the processor, which a thread may use only while
 * it runs a device's work. key: -1 on processors without keys, and where a test wants memory that
 * MPI may read. */
struct ProtectionKey {
  static constexpr size_t PAGE = 4096;
  int key = -1;

  ProtectionKey() {
    const char *is_host = getenv("SL_STANDIN_MPI_AWARE");
    if (is_host && *is_host == '1') return;
    key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    struct sigaction old;
    if (key < 0 || sigaction(SIGSEGV, nullptr, &old) || old.sa_handler != SIG_DFL) return;
    struct sigaction act = {};
    act.sa_sigaction = tell;
    act.sa_flags = SA_SIGINFO | SA_RESETHAND;
    sigaction(SIGSEGV, &act, nullptr);
  }
  /* The access is tried again afterwards, and ends the process; a signal that was sent is sent
   * again. */
  static void tell(int, siginfo_t *info, void *) {
    static const char text[] = "stand-in: the CPU reads or writes a device's memory\n";
    if (info->si_code <= 0) raise(SIGSEGV);
    if (info->si_code == SEGV_PKUERR && write(2, text, sizeof text - 1) < 0) return;
  }
  void protect(void *block, size_t bytes, bool on) const {
    if (key < 0 || !pkey_mprotect(block, bytes, PROT_READ | PROT_WRITE, on ? key : 0)) return;
    perror("stand-in: pkey_mprotect");
    abort();
  }
};
const ProtectionKey &protection_key() {
  static const ProtectionKey *it = new ProtectionKey;
  return *it;
}
/* The calling thread's right to device memory, as long as this lives. */
struct Access {
  int before = 0;
  explicit Access(bool allowed) {
    if (protection_key().key < 0) return;
    before = pkey_get(protection_key().key);
    pkey_set(protection_key().key, allowed ? 0 : PKEY_DISABLE_ACCESS);
  }
  ~Access() {
    if (protection_key().key >= 0) pkey_set(protection_key().key, (unsigned)before);
  }
};

struct Stream;
struct Record { /* one cudaEventRecord; the event itself may be recorded anew, or destroyed */
  std::shared_ptr<Stream> stream;
  uint64_t number;
  bool done = false, asked = false;
  double time = 0;
};
/* Recorded work: of a stream that captures, and of the graphs made from it. */
struct Node {
  const char *name;
  bool is_kernel;
  std::function<cudaError_t()> run;
};
struct Graph {
  int device;
  std::vector<Node> nodes;
};
struct Capture {
  Graph graph;
  std::thread::id thread;
  cudaStreamCaptureMode mode;
  bool broken = false; /* a call was not permitted: nothing of it is of use */
};
struct Op {
  uint64_t number; /* of all work, in the order of the calls */
  std::function<cudaError_t()> run;
  std::shared_ptr<Record> waits, records;
};
struct Stream {
  int device;
  bool legacy, blocking; /* the null stream, or a stream that synchronises with the null stream */
  std::deque<Op> queue;
  bool busy = false, asked = false;
  std::shared_ptr<Capture> capture; /* work is recorded there instead of queued */
};
struct Event {
  int device;
  bool timing;
  std::shared_ptr<Record> record;
};
struct Device {
  std::shared_ptr<Stream> null_stream;
  std::vector<std::shared_ptr<Stream>> streams;
  std::set<int> peers;
  size_t used = 0;
  cudaError_t sticky = cudaSuccess;
  bool has_context =
      false; /* which takes memory on a GPU, and forbids an exclusive one to others */
};
struct Memory {
  size_t size, charge;
  int device;
  bool on_device, registered; /* registered: the caller's own host memory */
  char *block;
  size_t shift, whole;                    /* whole: bytes of the pages */
  std::shared_ptr<bool> pinned = nullptr; /* of registered memory: is it still registered? */
};

std::shared_ptr<bool> pinned(const Memory *m) { return m ? m->pinned : nullptr; }

struct World {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Device> devices;
  std::map<uintptr_t, Memory> memory;
  std::map<cudaStream_t, std::shared_ptr<Stream>> streams;
  std::map<cudaEvent_t, std::shared_ptr<Event>> events;
  std::map<cudaGraph_t, std::shared_ptr<Graph>> graphs;
  std::map<cudaGraphExec_t, std::shared_ptr<Graph>> executables;
  std::map<const void *, size_t> shared_limits;
  uint64_t number = 0;
  long kernels = 0, fail_at = 0, allocations = 0, copies = 0, fills = 0;
  long recorded = 0, refuse_at = 0, instantiated = 0, launches = 0;
  size_t limit = (size_t)1 << 30, shift = 0;
  bool lazy = false, reverse = false;
  cudaError_t absent = cudaSuccess; /* why there is no device */

  World() {
    const char *text;
    long gpus = 1;
    if ((text = getenv("SL_STANDIN_GPUS"))) gpus = strtol(text, nullptr, 10);
    if ((text = getenv("SL_STANDIN_MEMORY"))) limit = strtoull(text, nullptr, 10);
    if ((text = getenv("SL_STANDIN_FAIL"))) fail_at = strtol(text, nullptr, 10);
    if ((text = getenv("SL_STANDIN_REFUSE"))) refuse_at = strtol(text, nullptr, 10);
    if ((text = getenv("SL_STANDIN_SHIFT"))) shift = strtoull(text, nullptr, 10);
    lazy = (text = getenv("SL_STANDIN_LAZY")) && *text == '1';
    reverse = (text = getenv("SL_STANDIN_ORDER")) && !strcmp(text, "reverse");
    if ((text = getenv("SL_STANDIN_DRIVER")) && !strcmp(text, "none"))
      absent = cudaErrorInsufficientDriver;
    else if (gpus <= 0)
      absent = cudaErrorNoDevice;
    devices.resize(absent ? 0 : gpus);
    for (size_t i = 0; i < devices.size(); i++)
      devices[i].null_stream = std::make_shared<Stream>(Stream{(int)i, true, true, {}});
  }
};

/* Never destroyed: StarPU frees memory after main. */
World &world() {
  static World *it = new World;
  return *it;
}

/* After main, when StarPU's threads are gone. */
struct Teller {
  ~Teller() {
    /* LeakSanitizer reads all memory that is left */
    if (protection_key().key >= 0) pkey_set(protection_key().key, 0);
    const char *path = getenv("SL_STANDIN_COUNT");
    FILE *file = path ? fopen(path, "w") : nullptr;
    if (!file) return;
    const World &w = world();
    fprintf(file, "allocations %ld\nkernels %ld\ngraphs %ld\nlaunches of graphs %ld\n",
            w.allocations, w.kernels, w.instantiated, w.launches);
    fprintf(file, "copies %ld\nfills %ld\nchecked accesses %llu\n", w.copies, w.fills,
            (unsigned long long)sl_standin::RaceCheck::accesses());
    fprintf(file, "contexts");
    for (size_t i = 0; i < w.devices.size(); i++)
      if (w.devices[i].has_context) fprintf(file, " %zu", i);
    fprintf(file, "\n");
    fclose(file);
  }
} teller;

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current = 0;
thread_local bool in_callback = false;
/* What this thread records, unless the mode is relaxed. */
thread_local std::shared_ptr<Capture> recording;

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady)
    last_error = error; /* "not ready" is no error to CUDA */
  return error;
}
cudaError_t complain(cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
cudaError_t complain(cudaError_t error, const char *format, ...) {
  char text[400];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  fprintf(stderr, "stand-in: %s\n", text);
  return error;
}

/* A call of the interface: the lock, and the error that makes the call useless. */
typedef std::unique_lock<std::mutex> Lock;
struct Call {
  World &w = world();
  Lock lock{w.mutex, std::defer_lock};
  cudaError_t error;
  Call() {
    if (in_callback) {
      error = cudaErrorNotPermitted;
      return;
    }
    lock.lock();
    error = w.absent ? w.absent : w.devices[current].sticky;
  }
  Device &device() { return w.devices[current]; }
};
#define CALL()                                                                                     \
  Call call;                                                                                       \
  World &w = call.w;                                                                               \
  (void)w;                                                                                         \
  if (call.error) return note(call.error);                                                         \
  call.device().has_context = true /* CUDA begins it at the first call that needs one */

double now() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

/* ---- running the queued work
 * ---------------------------------------------------------------------- */
void run_until(World &w, Lock &lock, std::shared_ptr<Stream> stream, uint64_t number);

/* Returns the first operation of a stream that no thread works on. Operations that it waits for
 * have smaller numbers, so this ends. */
void run_first(World &w, Lock &lock, const std::shared_ptr<Stream> &stream) {
  stream->busy = true;
  Op &op =
      stream->queue.front(); /* a deque keeps the element in place while other threads append */
  Device &device = w.devices[stream->device];
  if (op.waits && !op.waits->done) run_until(w, lock, op.waits->stream, op.waits->number);
  if (stream->legacy) {
    auto streams = device.streams;
    for (auto &other : streams)
      if (other->blocking) run_until(w, lock, other, op.number);
  } else if (stream->blocking) {
    run_until(w, lock, device.null_stream, op.number);
  }
  if (op.run && !device.sticky) {
    lock.unlock();
    cudaError_t error;
    {
      Access access(true);
      error = op.run();
    }
    op.run = nullptr;
    lock.lock();
    if (error && !device.sticky) device.sticky = error;
  }
  if (op.records) op.records->done = true, op.records->time = now();
  stream->queue.pop_front();
  stream->busy = false;
  w.changed.notify_all();
}

void run_until(World &w, Lock &lock, std::shared_ptr<Stream> stream, uint64_t number) {
  while (!stream->queue.empty() && stream->queue.front().number <= number) {
    if (stream->busy)
      w.changed.wait(lock);
    else
      run_first(w, lock, stream);
  }
}

void run_device(World &w, Lock &lock, int device) {
  uint64_t number = w.number;
  auto streams = w.devices[device].streams;
  streams.push_back(w.devices[device].null_stream);
  for (auto &stream : streams) run_until(w, lock, stream, number);
}

std::shared_ptr<Stream> find(World &w, cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy) return w.devices[current].null_stream;
  auto it = w.streams.find(stream);
  if (it != w.streams.end()) return it->second;
  complain(cudaErrorInvalidResourceHandle, "%p is no stream (any more)", (void *)stream);
  return nullptr;
}
std::shared_ptr<Event> find(World &w, cudaEvent_t event) {
  auto it = w.events.find(event);
  if (it != w.events.end()) return it->second;
  complain(cudaErrorInvalidResourceHandle, "%p is no event (any more)", (void *)event);
  return nullptr;
}

/* ---- capture ------------------------------------------------------------------------------------
 */
cudaError_t break_capture(Capture &capture, const char *what,
                          cudaError_t error = cudaErrorStreamCaptureUnsupported) {
  capture.broken = true;
  return complain(error, "%s, while a stream captures", what);
}

/* For calls that CUDA does not permit to a thread that captures, since they may wait for the device
 * or change what is recorded. */
cudaError_t check_unsafe(const char *what) {
  return recording ? break_capture(*recording, what) : cudaSuccess;
}

/* For calls that wait for a stream's work or look at it. */
cudaError_t check_capturing(const std::shared_ptr<Stream> &stream, const char *what) {
  return stream->capture ? break_capture(*stream->capture, what) : cudaSuccess;
}

/* The null stream would wait for streams that capture, unless they do not synchronise with it. */
cudaError_t check_implicit(World &w, const std::shared_ptr<Stream> &stream) {
  if (!stream->legacy) return cudaSuccess;
  for (auto &other : w.devices[stream->device].streams)
    if (other->blocking && other->capture)
      return break_capture(*other->capture, "work goes to the null stream",
                           cudaErrorStreamCaptureImplicit);
  return cudaSuccess;
}

cudaError_t record(World &w, Capture &capture, Node node) {
  if (capture.broken) return cudaErrorStreamCaptureInvalidated;
  if (node.is_kernel && ++w.recorded == w.refuse_at)
    return break_capture(capture, "SL_STANDIN_REFUSE asks for a failure");
  capture.graph.nodes.push_back(std::move(node));
  return cudaSuccess;
}

/* A kernel as an operation of a queue. Whether it is the one that fails is decided now; the failure
 * shows later. */
std::function<cudaError_t()> counted(World &w, const Node &kernel) {
  if (++w.kernels != w.fail_at) return kernel.run;
  const char *name = kernel.name;
  return [name] {
    return complain(cudaErrorIllegalAddress, "%s fails, as SL_STANDIN_FAIL asks for", name);
  };
}

void enqueue(World &w, const std::shared_ptr<Stream> &stream, std::function<cudaError_t()> run,
             std::shared_ptr<Record> waits = nullptr, std::shared_ptr<Record> records = nullptr) {
  stream->asked = false;
  stream->queue.push_back(Op{++w.number, std::move(run), std::move(waits), std::move(records)});
}

/* Queues the work, or records it. */
cudaError_t add(World &w, const std::shared_ptr<Stream> &stream, Node node) {
  cudaError_t error = check_implicit(w, stream);
  if (error) return error;
  if (stream->capture) return record(w, *stream->capture, std::move(node));
  enqueue(w, stream, node.is_kernel ? counted(w, node) : std::move(node.run));
  return cudaSuccess;
}

/* ---- memory -------------------------------------------------------------------------------------
 */
#ifdef __SANITIZE_ADDRESS__
const size_t guard = 0; /* the sanitizer has better ones */
#else
const size_t guard = 256;
#endif
const unsigned char guard_byte = 0xa5;

Memory *find(World &w, const void *pointer, size_t bytes = 0) {
  auto it = w.memory.upper_bound((uintptr_t)pointer);
  if (it == w.memory.begin()) return nullptr;
  --it;
  size_t offset = (uintptr_t)pointer - it->first;
  return offset + (bytes ? bytes : 1) <= it->second.size ? &it->second : nullptr;
}
/* Returns the allocation that a pointer lies in, whether or not the range fits. */
Memory *touches(World &w, const void *pointer) { return find(w, pointer, 0); }

/* Larger blocks stay aligned: the users of workspaces rely on it. */
const size_t SHIFTED = (size_t)64 << 20;

cudaError_t allocate(World &w, void **pointer, size_t size, bool on_device) {
  *pointer = nullptr;
  if (!size) return cudaSuccess;
  Device &device = w.devices[current];
  size_t charge = on_device ? (size + 511) / 512 * 512 : 0;
  if (charge > w.limit - std::min(device.used, w.limit)) return cudaErrorMemoryAllocation;
  size_t shift = on_device && size < SHIFTED ? w.shift : 0;
  void *block;
  if (size > SIZE_MAX / 2) return cudaErrorMemoryAllocation;
  const size_t page = ProtectionKey::PAGE, used = shift + size + 2 * guard;
  const size_t whole = (used + page - 1) / page * page;
  if (posix_memalign(&block, page, whole)) return cudaErrorMemoryAllocation;
  if (on_device) protection_key().protect(block, whole, true);
  ASAN_POISON_MEMORY_REGION((char *)block + used, whole - used);
  Access access(true);
  block = (char *)block + shift;
  memset(block, guard_byte, guard);
  memset((char *)block + guard, 0xff, size); /* NaN, and as an index out of range */
  memset((char *)block + guard + size, guard_byte, guard);
  device.used += charge;
  w.allocations += on_device;
  *pointer = (char *)block + guard;
  w.memory[(uintptr_t)*pointer] =
      Memory{size, charge, current, on_device, false, (char *)block, shift, whole};
  return cudaSuccess;
}

cudaError_t release(World &w, std::map<uintptr_t, Memory>::iterator it) {
  Memory m = it->second;
  cudaError_t result = cudaSuccess;
  Access access(true);
  for (size_t i = 0; i < guard; i++)
    if ((unsigned char)m.block[i] != guard_byte ||
        (unsigned char)m.block[guard + m.size + i] != guard_byte) {
      result = w.devices[m.device].sticky =
          complain(cudaErrorIllegalAddress, "a kernel or copy wrote beside the %zu bytes at %p",
                   m.size, (void *)it->first);
      break;
    }
  memset((void *)it->first, 0xff, m.size);
  w.devices[m.device].used -= m.charge;
  w.memory.erase(it);
  ASAN_UNPOISON_MEMORY_REGION(m.block - m.shift, m.whole);
  if (m.on_device) protection_key().protect(m.block - m.shift, m.whole, false);
  free(m.block - m.shift);
  return result;
}

cudaError_t free_memory(Call &call, void *pointer, bool on_device) {
  World &w = call.w;
  if (!pointer) return cudaSuccess;
  auto it = w.memory.find((uintptr_t)pointer);
  if (it == w.memory.end() || it->second.on_device != on_device || it->second.registered)
    return complain(cudaErrorInvalidValue, "%p to be freed is no allocation of this kind", pointer);
  for (size_t d = 0; d < w.devices.size(); d++)
    run_device(w, call.lock, (int)d); /* as in the driver: freeing waits */
  it = w.memory.find((uintptr_t)pointer);
  return it == w.memory.end() ? complain(cudaErrorInvalidValue, "%p is freed twice", pointer)
                              : release(w, it);
}

/* Whether a device may touch a range: its own memory, a peer's, pinned memory. */
bool may_touch(World &w, int device, const Range &range, const char *who) {
  if (!range.pointer || !range.bytes) return true;
  Memory *m = find(w, range.pointer, range.bytes);
  if (m && m->on_device && m->device != device && !w.devices[device].peers.count(m->device)) {
    complain(cudaErrorIllegalAddress, "%s on device %d gets %p of device %d", who, device,
             range.pointer, m->device);
    return false;
  }
  if (m) return true;
  m = touches(w, range.pointer);
  if (m)
    complain(cudaErrorIllegalAddress, "%s reaches beyond its memory: %zu bytes at %p", who,
             range.bytes, range.pointer);
  else
    complain(cudaErrorIllegalAddress, "%s gets %p, which is no memory of a device", who,
             range.pointer);
  return false;
}

/* ---- copies -------------------------------------------------------------------------------------
 */
/* height rows of width bytes, depth planes of them. */
struct Side {
  char *pointer;
  size_t pitch, plane;
  int device; /* -1: any */
};
struct Box {
  size_t width, height, depth;
};

size_t span(const Side &s, const Box &b) {
  return s.plane * (b.depth - 1) + s.pitch * (b.height - 1) + b.width;
}

bool side_is_right(World &w, const Side &side, const Box &box, bool device_side, bool any,
                   const char *what) {
  size_t bytes = span(side, box);
  Memory *m = touches(w, side.pointer);
  if (any && !(m && m->on_device)) return true;
  if (!device_side && m && m->on_device)
    return complain(cudaErrorInvalidValue, "copy: the %s %p is said to be on the host", what,
                    (void *)side.pointer),
           false;
  if (!device_side) return true;
  if (!m || (!m->on_device && !any))
    return complain(cudaErrorInvalidValue, "copy: the %s %p is on no device", what,
                    (void *)side.pointer),
           false;
  if (!find(w, side.pointer, bytes))
    return complain(cudaErrorInvalidValue, "copy: %zu bytes at the %s %p reach beyond its memory",
                    bytes, what, (void *)side.pointer),
           false;
  if (side.device >= 0 && m->device != side.device)
    return complain(cudaErrorInvalidValue, "copy: the %s %p is on device %d", what,
                    (void *)side.pointer, m->device),
           false;
  return true;
}

cudaError_t copy(Call &call, Side to, Side from, Box box, cudaMemcpyKind kind,
                 const std::shared_ptr<Stream> &stream, bool blocks) {
  World &w = call.w;
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (!box.width || !box.height || !box.depth) return cudaSuccess;
  if ((unsigned)kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (box.height > 1 && (to.pitch < box.width || from.pitch < box.width))
    return cudaErrorInvalidPitchValue;
  bool any = kind == cudaMemcpyDefault;
  bool to_device = any || kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool from_device = any || kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (!side_is_right(w, to, box, to_device, any, "destination") ||
      !side_is_right(w, from, box, from_device, any, "source"))
    return cudaErrorInvalidValue;
  Memory *m = touches(w, to.pointer), *n = touches(w, from.pointer);
  bool host = !(m && m->on_device && n && n->on_device);
  cudaError_t error = blocks ? check_unsafe("a copy that waits") : cudaSuccess;
  if (!error && stream->capture && (!m || !n))
    error = break_capture(*stream->capture, "a copy of memory that is not pinned");
  if (error) return error;
  w.copies++;
  auto into = pinned(m), out_of = pinned(n);
  error =
      add(w, stream,
          Node{"copy", false, [to, from, box, into, out_of] {
                 if ((into && !*into) || (out_of && !*out_of))
                   return complain(cudaErrorLaunchFailure, "a copy's memory is no longer pinned");
                 for (size_t z = 0; z < box.depth; z++)
                   if (to.pitch == box.width && from.pitch == box.width)
                     memmove(to.pointer + z * to.plane, from.pointer + z * from.plane,
                             box.width * box.height);
                   else
                     for (size_t y = 0; y < box.height; y++)
                       memmove(to.pointer + z * to.plane + y * to.pitch,
                               from.pointer + z * from.plane + y * from.pitch, box.width);
                 return cudaSuccess;
               }});
  if (error) return error;
  /* between devices even the blocking calls return before the copy */
  if (blocks && host) run_until(w, call.lock, stream, w.number);
  return w.devices[stream->device].sticky;
}

Side line(const void *pointer, size_t bytes, int device = -1) {
  return Side{(char *)pointer, bytes, bytes, device};
}
Side plane(const cudaPitchedPtr &p, const cudaPos &at, int device = -1) {
  return Side{(char *)p.ptr + at.z * p.pitch * p.ysize + at.y * p.pitch + at.x, p.pitch,
              p.pitch * p.ysize, device};
}

cudaError_t set(Call &call, void *pointer, size_t pitch, int value, Box box,
                const std::shared_ptr<Stream> &stream) {
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (!box.width || !box.height) return cudaSuccess;
  Side side{(char *)pointer, pitch, 0, -1};
  Memory *m = touches(call.w, pointer);
  if (!m || !find(call.w, pointer, span(side, box)))
    return complain(cudaErrorInvalidValue, "memset: %zu bytes at %p are no memory of a device",
                    span(side, box), pointer);
  call.w.fills++;
  return add(call.w, stream, Node{"memset", false, [side, value, box] {
                                    for (size_t y = 0; y < box.height; y++)
                                      memset(side.pointer + y * side.pitch, value, box.width);
                                    return cudaSuccess;
                                  }});
}

/* A kernel, or a library's work. */
cudaError_t enqueue_kernel(Call &call, cudaStream_t handle, const char *name,
                           std::vector<Range> ranges, std::function<cudaError_t()> run) {
  World &w = call.w;
  auto stream = find(w, handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  int device = stream->device;
  if (device != current)
    return complain(cudaErrorInvalidResourceHandle,
                    "%s: the stream is device %d's, the current one is %d", name, device, current);
  if (w.devices[device].sticky) return w.devices[device].sticky;
  auto checked = [=, ranges = std::move(ranges), run = std::move(run)]() -> cudaError_t {
    {
      World &w = world();
      Lock lock(w.mutex);
      for (auto &range : ranges)
        if (!may_touch(w, device, range, name)) return cudaErrorIllegalAddress;
    }
    int before = current;
    current = device;
    cudaError_t error = run();
    current = before;
    return error;
  };
  return add(w, stream, Node{name, true, std::move(checked)});
}

cudaError_t check_launch(World &w, const Launch &l) {
  uint64_t threads = (uint64_t)l.block.x * l.block.y * l.block.z;
  if (!threads || threads > 1024 || l.block.x > 1024 || l.block.y > 1024 || l.block.z > 64)
    return complain(cudaErrorInvalidConfiguration, "kernel %s: a block of (%u, %u, %u)", l.name,
                    l.block.x, l.block.y, l.block.z);
  if (!l.grid.x || !l.grid.y || !l.grid.z || l.grid.x > INT32_MAX || l.grid.y > 65535 ||
      l.grid.z > 65535)
    return complain(cudaErrorInvalidConfiguration, "kernel %s: a grid of (%u, %u, %u)", l.name,
                    l.grid.x, l.grid.y, l.grid.z);
  auto it = w.shared_limits.find(l.function);
  if (l.shared > (it == w.shared_limits.end() ? 48 * 1024 : it->second))
    return complain(cudaErrorInvalidConfiguration, "kernel %s: %zu bytes of shared memory", l.name,
                    l.shared);
  return cudaSuccess;
}

cudaError_t launch_checked(cudaStream_t stream, Launch launch) {
  CALL();
  cudaError_t error = check_launch(w, launch);
  if (error) return error;
  std::vector<Range> ranges;
  for (const void *p : launch.pointers) ranges.push_back(Range{p, 1});
  const char *name = launch.name;
  bool reverse = w.reverse;
  return enqueue_kernel(
      call, stream, name, std::move(ranges), [launch = std::move(launch), reverse] {
        return sl_standin::run_blocks(launch, reverse) ? cudaSuccess : cudaErrorLaunchFailure;
      });
}

} /* namespace */

namespace sl_standin {
void launch(cudaStream_t stream, Launch launch) { note(launch_checked(stream, std::move(launch))); }

cudaError_t work(cudaStream_t stream, const char *name, std::vector<Range> ranges,
                 std::function<void()> run) {
  CALL();
  return note(enqueue_kernel(call, stream, name, std::move(ranges), [run = std::move(run)] {
    run();
    return cudaSuccess;
  }));
}

int architecture() {
  const char *text = getenv("SL_STANDIN_ARCHITECTURE");
  return text ? (int)strtol(text, nullptr, 10) : 900;
}

bool find_allocation(const void *pointer, const void **begin, size_t *size) {
  World &w = world();
  Lock lock(w.mutex);
  auto it = w.memory.upper_bound((uintptr_t)pointer);
  if (it == w.memory.begin()) return false;
  --it;
  *begin = (const void *)it->first;
  *size = it->second.size;
  return (uintptr_t)pointer - it->first < it->second.size;
}
} /* namespace sl_standin */

#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
extern "C" {

/* ---- errors, versions, devices ------------------------------------------------------------------
 */
#define NAMES(X)                                                                                   \
  X(cudaSuccess, "no error")                                                                       \
  X(cudaErrorInvalidValue, "invalid argument")                                                     \
  X(cudaErrorMemoryAllocation, "out of memory")                                                    \
  X(cudaErrorInvalidConfiguration, "invalid configuration argument")                               \
  X(cudaErrorInvalidPitchValue, "invalid pitch argument")                                          \
  X(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")                          \
  X(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version")   \
  X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                       \
  X(cudaErrorInvalidDevice, "invalid device ordinal")                                              \
  X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                     \
  X(cudaErrorNotReady, "device not ready")                                                         \
  X(cudaErrorIllegalAddress, "an illegal memory access was encountered")                           \
  X(cudaErrorLaunchFailure, "unspecified launch failure")                                          \
  X(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled")                           \
  X(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled")                             \
  X(cudaErrorHostMemoryAlreadyRegistered,                                                          \
    "part or all of the requested memory range is already mapped")                                 \
  X(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region") \
  X(cudaErrorNotPermitted, "operation not permitted")                                              \
  X(cudaErrorIllegalState, "the operation cannot be performed in the present state")               \
  X(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")         \
  X(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture")  \
  X(cudaErrorStreamCaptureImplicit,                                                                \
    "operation would make the legacy stream depend on a capturing blocking stream")                \
  X(cudaErrorStreamCaptureWrongThread,                                                             \
    "attempt to terminate a thread-local capture sequence from another thread")                    \
  X(cudaErrorNotSupported, "operation not supported")

const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define X(name, text)                                                                              \
  case name: return text;
    NAMES(X)
#undef X
    default: return "unrecognized error code";
  }
}
const char *cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define X(name, text)                                                                              \
  case name: return #name;
    NAMES(X)
#undef X
    default: return "unrecognized error code";
  }
}

cudaError_t cudaPeekAtLastError() {
  Call call;
  return call.error && call.error != cudaErrorNotPermitted ? call.error : last_error;
}
cudaError_t cudaGetLastError() {
  cudaError_t error = cudaPeekAtLastError(); /* a broken device cannot be repaired */
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) {
  *version = world().absent == cudaErrorInsufficientDriver ? 0 : CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *count) {
  *count = (int)world().devices.size();
  return note(world().absent);
}
cudaError_t cudaSetDevice(int device) {
  Call call;
  if (call.error == cudaErrorNotPermitted || call.w.absent) return note(call.error);
  if (device < 0 || (size_t)device >= call.w.devices.size()) return note(cudaErrorInvalidDevice);
  current = device;
  call.device().has_context = true; /* as of CUDA 12 */
  return note(call.device().sticky);
}
cudaError_t cudaGetDevice(int *device) {
  if (world().absent) return note(world().absent);
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaGetDeviceFlags(unsigned *flags) { return *flags = 0, cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
  World &w = world();
  if (w.absent) return note(w.absent);
  if (device < 0 || (size_t)device >= w.devices.size()) return note(cudaErrorInvalidDevice);
  *p = cudaDeviceProp{};
  snprintf(p->name, sizeof p->name, "Stand-in GPU");
  p->uuid.bytes[0] = (char)(device + 1);
  p->totalGlobalMem = w.limit;
  p->sharedMemPerBlock = 48 * 1024;
  p->sharedMemPerBlockOptin = 227 * 1024;
  p->sharedMemPerMultiprocessor = 228 * 1024;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->memPitch = INT32_MAX;
  p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = INT32_MAX;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxBlocksPerMultiProcessor = 32;
  p->totalConstMem = 65536;
  p->major = 9;
  p->multiProcessorCount = 4;
  p->textureAlignment = 512;
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->hostRegisterSupported = 1;
  p->asyncEngineCount = 3;
  p->l2CacheSize = 1 << 20;
  p->pciDomainID = 0xffff; /* where no real one is */
  p->pciBusID = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  cudaError_t error = cudaGetDeviceProperties(&p, device);
  if (error) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxBlockDimX: *value = p.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimY: *value = p.maxThreadsDim[1]; break;
    case cudaDevAttrMaxBlockDimZ: *value = p.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = p.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = (int)p.sharedMemPerMultiprocessor;
      break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrAsyncEngineCount: *value = p.asyncEngineCount; break;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrHostRegisterSupported: *value = 1; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrPciDomainId: *value = p.pciDomainID; break;
    case cudaDevAttrPciBusId: *value = p.pciBusID; break;
    default: *value = 0; /* managed memory, pools, exclusive mode, ...: no */
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
  cudaDeviceProp p;
  cudaError_t error = cudaGetDeviceProperties(&p, device);
  if (!error) snprintf(text, length, "%04x:%02x:00.0", p.pciDomainID, p.pciBusID);
  return error;
}

cudaError_t cudaDeviceSynchronize() {
  CALL();
  if (cudaError_t error = check_unsafe("cudaDeviceSynchronize")) return note(error);
  for (auto &stream : call.device().streams)
    if (cudaError_t error = check_capturing(stream, "cudaDeviceSynchronize")) return note(error);
  run_device(w, call.lock, current);
  return note(call.device().sticky);
}
cudaError_t cudaDeviceReset() {
  Call call;
  if (call.error == cudaErrorNotPermitted || call.w.absent) return note(call.error);
  World &w = call.w;
  run_device(w, call.lock, current);
  for (auto it = w.memory.begin(); it != w.memory.end();) {
    auto next = std::next(it);
    if (it->second.device == current && !it->second.registered) release(w, it);
    it = next;
  }
  std::erase_if(w.streams, [](auto &item) { return item.second->device == current; });
  std::erase_if(w.events, [](auto &item) { return item.second->device == current; });
  call.device().streams.clear();
  call.device().peers.clear();
  call.device().has_context = false;
  call.device().sticky = last_error = cudaSuccess;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  Call call; /* needs no context */
  if (call.error) return note(call.error);
  int count = (int)call.w.devices.size();
  if (device < 0 || peer < 0 || device >= count || peer >= count)
    return note(cudaErrorInvalidDevice);
  *can = device != peer;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  CALL();
  if (peer < 0 || peer == current || (size_t)peer >= w.devices.size())
    return note(cudaErrorInvalidDevice);
  return note(call.device().peers.insert(peer).second ? cudaSuccess
                                                      : cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  CALL();
  return note(call.device().peers.erase(peer) ? cudaSuccess : cudaErrorPeerAccessNotEnabled);
}

/* ---- memory -------------------------------------------------------------------------------------
 */
cudaError_t cudaMalloc(void **pointer, size_t size) {
  CALL();
  if (cudaError_t error = check_unsafe("cudaMalloc")) return note(error);
  return note(allocate(w, pointer, size, true));
}
cudaError_t cudaFree(void *pointer) {
  CALL();
  if (cudaError_t error = check_unsafe("cudaFree")) return note(error);
  return note(free_memory(call, pointer, true));
}
cudaError_t cudaMallocAsync(void **pointer, size_t size, cudaStream_t) {
  return cudaMalloc(pointer, size);
}
cudaError_t cudaFreeAsync(void *pointer, cudaStream_t) { return cudaFree(pointer); }
cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned) {
  CALL();
  if (cudaError_t error = check_unsafe("cudaHostAlloc")) return note(error);
  return note(allocate(w, pointer, size, false));
}
cudaError_t cudaMallocHost(void **pointer, size_t size) { return cudaHostAlloc(pointer, size, 0); }
cudaError_t cudaFreeHost(void *pointer) {
  CALL();
  if (cudaError_t error = check_unsafe("cudaFreeHost")) return note(error);
  return note(free_memory(call, pointer, false));
}
cudaError_t cudaHostRegister(void *pointer, size_t size, unsigned) {
  CALL();
  if (cudaError_t error = check_unsafe("cudaHostRegister")) return note(error);
  if (!pointer || !size) return note(cudaErrorInvalidValue);
  if (touches(w, pointer)) return note(cudaErrorHostMemoryAlreadyRegistered);
  w.memory[(uintptr_t)pointer] =
      Memory{size, 0, current, false, true, nullptr, 0, 0, std::make_shared<bool>(true)};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *pointer) {
  CALL();
  auto it = w.memory.find((uintptr_t)pointer);
  if (it == w.memory.end() || !it->second.registered) return note(cudaErrorHostMemoryNotRegistered);
  *it->second.pinned = false;
  w.memory.erase(it);
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void **on_device, void *on_host, unsigned) {
  CALL();
  Memory *m = touches(w, on_host);
  if (!m || m->on_device) return note(cudaErrorInvalidValue);
  *on_device = on_host;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *pointer) {
  CALL();
  *a = cudaPointerAttributes{};
  Memory *m = touches(w, pointer);
  a->type = !m             ? cudaMemoryTypeUnregistered
            : m->on_device ? cudaMemoryTypeDevice
                           : cudaMemoryTypeHost;
  a->device = m ? m->device : -2; /* as CUDA says it of unknown memory */
  a->devicePointer = m ? (void *)pointer : nullptr;
  a->hostPointer = m && m->on_device ? nullptr : (void *)pointer;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
  CALL();
  *total = w.limit;
  *available = w.limit - std::min(w.limit, call.device().used);
  return cudaSuccess;
}

/* ---- copies -------------------------------------------------------------------------------------
 */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  CALL();
  return note(copy(call, line(to, bytes), line(from, bytes), Box{bytes, 1, 1}, kind,
                   find(w, cudaStreamLegacy), true));
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  CALL();
  return note(copy(call, line(to, bytes), line(from, bytes), Box{bytes, 1, 1}, kind,
                   find(w, stream), false));
}
cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device,
                           size_t bytes) {
  CALL();
  return note(copy(call, line(to, bytes, to_device), line(from, bytes, from_device),
                   Box{bytes, 1, 1}, cudaMemcpyDeviceToDevice, find(w, cudaStreamLegacy), true));
}
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream) {
  CALL();
  return note(copy(call, line(to, bytes, to_device), line(from, bytes, from_device),
                   Box{bytes, 1, 1}, cudaMemcpyDeviceToDevice, find(w, stream), false));
}
cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  CALL();
  return note(copy(call, line(to, to_pitch), line(from, from_pitch), Box{width, height, 1}, kind,
                   find(w, cudaStreamLegacy), true));
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  CALL();
  return note(copy(call, line(to, to_pitch), line(from, from_pitch), Box{width, height, 1}, kind,
                   find(w, stream), false));
}

static cudaError_t copy_3d(const cudaMemcpy3DParms *p, cudaStream_t stream, bool blocks) {
  CALL();
  if (p->srcArray || p->dstArray) return note(cudaErrorNotSupported);
  return note(copy(call, plane(p->dstPtr, p->dstPos), plane(p->srcPtr, p->srcPos),
                   Box{p->extent.width, p->extent.height, p->extent.depth}, p->kind,
                   find(w, stream), blocks));
}
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms *p) { return copy_3d(p, cudaStreamLegacy, true); }
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms *p, cudaStream_t stream) {
  return copy_3d(p, stream, false);
}
static cudaError_t copy_3d_peer(const cudaMemcpy3DPeerParms *p, cudaStream_t stream, bool blocks) {
  CALL();
  if (p->srcArray || p->dstArray) return note(cudaErrorNotSupported);
  return note(copy(call, plane(p->dstPtr, p->dstPos, p->dstDevice),
                   plane(p->srcPtr, p->srcPos, p->srcDevice),
                   Box{p->extent.width, p->extent.height, p->extent.depth},
                   cudaMemcpyDeviceToDevice, find(w, stream), blocks));
}
cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms *p) {
  return copy_3d_peer(p, cudaStreamLegacy, true);
}
cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms *p, cudaStream_t stream) {
  return copy_3d_peer(p, stream, false);
}

cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, cudaStream_t stream) {
  CALL();
  return note(set(call, pointer, bytes, value, Box{bytes, 1, 1}, find(w, stream)));
}
cudaError_t cudaMemset(void *pointer, int value, size_t bytes) {
  return cudaMemsetAsync(pointer, value, bytes, cudaStreamLegacy);
}
cudaError_t cudaMemset2DAsync(void *pointer, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  CALL();
  return note(set(call, pointer, pitch, value, Box{width, height, 1}, find(w, stream)));
}
cudaError_t cudaMemset2D(void *pointer, size_t pitch, int value, size_t width, size_t height) {
  return cudaMemset2DAsync(pointer, pitch, value, width, height, cudaStreamLegacy);
}

/* ---- streams ------------------------------------------------------------------------------------
 */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *handle, unsigned flags, int) {
  CALL();
  auto stream =
      std::make_shared<Stream>(Stream{current, false, !(flags & cudaStreamNonBlocking), {}});
  *handle = (cudaStream_t)stream.get();
  w.streams[*handle] = stream;
  call.device().streams.push_back(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *handle, unsigned flags) {
  return cudaStreamCreateWithPriority(handle, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *handle) {
  return cudaStreamCreateWithPriority(handle, cudaStreamDefault, 0);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  return *least = *greatest = 0, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  CALL();
  auto stream = find(w, handle);
  if (!stream || stream->legacy) return note(cudaErrorInvalidResourceHandle);
  run_until(w, call.lock, stream, w.number);
  w.streams.erase(handle);
  std::erase(w.devices[stream->device].streams, stream);
  return note(w.devices[stream->device].sticky);
}
cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *flags) {
  CALL();
  auto stream = find(w, handle);
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  *flags = stream->blocking ? cudaStreamDefault : cudaStreamNonBlocking;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  CALL();
  auto stream = find(w, handle);
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  if (cudaError_t error = check_capturing(stream, "cudaStreamSynchronize")) return note(error);
  run_until(w, call.lock, stream, w.number);
  return note(w.devices[stream->device].sticky);
}
/* Here a query makes progress; in lazy mode only the second query does. */
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  CALL();
  auto stream = find(w, handle);
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  if (cudaError_t error = check_capturing(stream, "cudaStreamQuery")) return note(error);
  if (!stream->queue.empty() && (stream->busy || (w.lazy && !stream->asked)))
    return stream->asked = true, cudaErrorNotReady;
  run_until(w, call.lock, stream, w.number);
  return note(w.devices[stream->device].sticky);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  CALL();
  auto stream = find(w, handle);
  auto e = find(w, event);
  if (!stream || !e) return note(cudaErrorInvalidResourceHandle);
  if (cudaError_t error = check_capturing(stream, "a wait for an event, which is not made here"))
    return note(error);
  if (e->record && !e->record->done) enqueue(w, stream, nullptr, e->record);
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *data) {
  CALL();
  auto stream = find(w, handle);
  if (!stream || !function)
    return note(stream ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
  return note(add(w, stream, Node{"a host function", false, [=] {
                                    in_callback = true; /* where calls of CUDA are not permitted */
                                    Access access(false);
                                    function(data);
                                    in_callback = false;
                                    return cudaSuccess;
                                  }}));
}

/* ---- graphs -------------------------------------------------------------------------------------
 * Only those that a stream captures, of work on that stream alone. */
cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  CALL();
  auto stream = find(w, handle);
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  if (stream->legacy)
    return note(complain(cudaErrorStreamCaptureUnsupported, "the null stream cannot capture"));
  if (stream->capture)
    return note(complain(cudaErrorIllegalState, "a stream captures that captures already"));
  stream->capture =
      std::make_shared<Capture>(Capture{{stream->device, {}}, std::this_thread::get_id(), mode});
  if (mode != cudaStreamCaptureModeRelaxed) recording = stream->capture;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph) {
  CALL();
  auto stream = find(w, handle);
  *graph = nullptr;
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  auto capture = stream->capture;
  if (!capture) return note(complain(cudaErrorIllegalState, "a stream ends that does not capture"));
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    capture->broken = true;
    return note(complain(cudaErrorStreamCaptureWrongThread, "another thread ends a capture"));
  }
  stream->capture = nullptr;
  recording = nullptr;
  if (capture->broken) return note(cudaErrorStreamCaptureInvalidated);
  auto made = std::make_shared<Graph>(std::move(capture->graph));
  *graph = (cudaGraph_t)made.get();
  w.graphs[*graph] = made;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus *status) {
  CALL();
  auto stream = find(w, handle);
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  *status = !stream->capture          ? cudaStreamCaptureStatusNone
            : stream->capture->broken ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  CALL();
  auto it = w.graphs.find(graph);
  if (it == w.graphs.end() || flags)
    return note(complain(cudaErrorInvalidValue, "%p is no graph (any more)", (void *)graph));
  auto made = std::make_shared<Graph>(*it->second);
  *executable = (cudaGraphExec_t)made.get();
  w.executables[*executable] = made;
  w.instantiated++;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  CALL();
  auto stream = find(w, handle);
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  auto it = w.executables.find(executable);
  if (it == w.executables.end())
    return note(complain(cudaErrorInvalidValue, "%p is no executable graph", (void *)executable));
  if (stream->device != it->second->device)
    return note(complain(cudaErrorInvalidValue, "a graph of device %d is launched on device %d",
                         it->second->device, stream->device));
  if (cudaError_t error = check_capturing(stream, "a graph in a graph, which is not made here"))
    return note(error);
  w.launches++;
  for (auto &node : it->second->nodes)
    if (cudaError_t error = add(w, stream, node)) return note(error);
  return cudaSuccess;
}
/* If it runs, its work goes on. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  CALL();
  return note(w.executables.erase(executable)
                  ? cudaSuccess
                  : complain(cudaErrorInvalidValue, "an executable graph is destroyed twice"));
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  CALL();
  return note(w.graphs.erase(graph)
                  ? cudaSuccess
                  : complain(cudaErrorInvalidValue, "a graph is destroyed twice"));
}

/* ---- events -------------------------------------------------------------------------------------
 */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *handle, unsigned flags) {
  CALL();
  auto event = std::make_shared<Event>(Event{current, !(flags & cudaEventDisableTiming), nullptr});
  *handle = (cudaEvent_t)event.get();
  w.events[*handle] = event;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *handle) {
  return cudaEventCreateWithFlags(handle, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  CALL();
  if (!find(w, handle)) return note(cudaErrorInvalidResourceHandle);
  w.events.erase(handle);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  CALL();
  auto stream = find(w, stream_handle);
  auto event = find(w, handle);
  if (!stream || !event) return note(cudaErrorInvalidResourceHandle);
  if (stream->device != event->device)
    return note(complain(cudaErrorInvalidResourceHandle,
                         "an event of device %d is recorded on device %d", event->device,
                         stream->device));
  if (cudaError_t error = check_capturing(stream, "an event, which is not made here"))
    return note(error);
  event->record = std::make_shared<Record>(Record{stream, w.number + 1});
  enqueue(w, stream, nullptr, nullptr, event->record);
  return note(w.devices[stream->device].sticky);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  CALL();
  if (cudaError_t error = check_unsafe("cudaEventSynchronize")) return note(error);
  auto event = find(w, handle);
  if (!event) return note(cudaErrorInvalidResourceHandle);
  auto record = event->record;
  if (record && !record->done) run_until(w, call.lock, record->stream, record->number);
  return note(w.devices[event->device].sticky);
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  CALL();
  if (cudaError_t error = check_unsafe("cudaEventQuery")) return note(error);
  auto event = find(w, handle);
  if (!event) return note(cudaErrorInvalidResourceHandle);
  auto record = event->record;
  if (record && !record->done) {
    if (record->stream->busy || (w.lazy && !record->asked))
      return record->asked = true, cudaErrorNotReady;
    run_until(w, call.lock, record->stream, record->number);
  }
  return note(w.devices[event->device].sticky);
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
  CALL();
  auto a = find(w, from), b = find(w, to);
  if (!a || !b || !a->timing || !b->timing || !a->record || !b->record)
    return note(cudaErrorInvalidResourceHandle);
  if (!a->record->done || !b->record->done) return cudaErrorNotReady;
  *milliseconds = (float)(b->record->time - a->record->time);
  return cudaSuccess;
}

/* ---- kernels ------------------------------------------------------------------------------------
 */
cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value) {
  CALL();
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value > 227 * 1024) return note(cudaErrorInvalidValue);
  w.shared_limits[function] = value;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *function) {
  CALL();
  *attributes = cudaFuncAttributes{};
  attributes->maxThreadsPerBlock = 1024;
  auto it = w.shared_limits.find(function);
  attributes->maxDynamicSharedSizeBytes = it == w.shared_limits.end() ? 48 * 1024 : (int)it->second;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int block_size,
                                                          size_t) {
  return *blocks = block_size > 0 ? 2048 / block_size : 0, cudaSuccess;
}

/* The number of kernels so far, library calls among them; tests look it up by this name. */
SL_STANDIN_API long sl_standin_kernels(void) {
  World &w = world();
  Lock lock(w.mutex);
  return w.kernels;
}

} /* extern "C" */
