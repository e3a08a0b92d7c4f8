/* Runs the blocks of a kernel on the CPU, their threads as fibers. Part of the stand-in for a GPU,
 * which only tests use. */
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#include <memory>

#include "tests/standin/race.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SL_STANDIN_ASAN 1
#endif

__thread uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace sl_standin {

__thread void *shared;

/* ---- fibers ------------------------------------------------------------------------------------
 */
/* ucontext's switch makes two system calls, and kernels with barriers switch millions of times: on
 * known processors the switch is written by hand. */
#if defined(__x86_64__)
typedef void *Context;
extern "C" void sl_standin_switch(Context *from, Context to);
asm(".text\n.hidden sl_standin_switch\n.globl sl_standin_switch\n.type sl_standin_switch, "
    "@function\n"
    "sl_standin_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
    ".size sl_standin_switch, . - sl_standin_switch\n");
static void prepare(Context *context, char *stack, size_t size, void (*main)()) {
  void **top = (void **)(stack + size);
  *--top = nullptr; /* a dummy return address: main never returns; and it aligns the stack */
  *--top = (void *)main;
  for (int i = 0; i < 6; i++) *--top = nullptr;
  *context = top;
}
static void change(Context *from, Context *to) { sl_standin_switch(from, *to); }
#else
#include <ucontext.h>
typedef ucontext_t Context;
static void prepare(Context *context, char *stack, size_t size, void (*main)()) {
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = size;
  context->uc_link = nullptr;
  makecontext(context, main, 0);
}
static void change(Context *from, Context *to) { swapcontext(from, to); }
#endif

#ifdef SL_STANDIN_ASAN
static const size_t stack_size = 256 * 1024;
#else
static const size_t stack_size = 64 * 1024;
#endif
static const size_t page = 4096;

static void fiber_main();

struct Fiber {
  Context context;
  char *memory; /* a guard page, then the stack */
  int thread = -1;
  size_t colour; /* stacks at the same offset in a page would compete for the same cache sets */
  void *fake_stack = nullptr;

  explicit Fiber(size_t index) : colour(index * 320 % page / 64 * 64) {
    memory = (char *)mmap(nullptr, page + stack_size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fprintf(stderr, "stand-in: no memory for a fiber's stack\n"), abort();
    mprotect(memory, page, PROT_NONE);
    reset();
  }
  ~Fiber() { munmap(memory, page + stack_size); }
  void reset() {
#ifdef SL_STANDIN_ASAN
    ASAN_UNPOISON_MEMORY_REGION(memory + page, stack_size);
#endif
    thread = -1;
    prepare(&context, memory + page, stack_size - colour, fiber_main);
  }
};

/* ---- a block -----------------------------------------------------------------------------------
 */
enum class State : unsigned char { fresh, ready, waiting, done };

struct Thread {
  State state;
  Wait kind;
  Fiber *fiber;
  unsigned mask;
  int line, source;
  uint64_t value, result;
};

/* One an OS thread: a block runs without interruption. */
struct Executor {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber *> idle;
  std::vector<Thread> threads;
  const Launch *launch = nullptr;
  Fiber *current = nullptr;
  Context scheduler;
  int count = 0, next = 0; /* threads of a block; the next thread that has not begun */
  bool reverse = false, failed = false;
  const void *scheduler_stack = nullptr;
  size_t scheduler_size = 0;
  void *scheduler_fake = nullptr;

  int nth(int i) const { return reverse ? count - 1 - i : i; }
  void enter(int thread);
  void run_fresh();
  void resume(Fiber *fiber);
  void step_aside();
  bool run_block();
  bool release();
  bool release_warp(int first);
  bool release_block();
  void fail(const char *format, ...) __attribute__((format(printf, 2, 3)));
};
static thread_local Executor executor;

void Executor::fail(const char *format, ...) {
  va_list list;
  va_start(list, format);
  char text[400];
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  fprintf(stderr, "stand-in: kernel %s, block (%u, %u, %u): %s\n", launch->name, blockIdx.x,
          blockIdx.y, blockIdx.z, text);
  failed = true;
}

void Executor::enter(int thread) {
  unsigned t = (unsigned)thread, x = launch->block.x, y = launch->block.y;
  threadIdx = uint3{t % x, t / x % y, t / x / y};
  current->thread = thread;
}

/* A fiber runs thread after thread until all have begun or one waits (then it switches to the next
 * fiber). */
void Executor::run_fresh() {
  while (next < count && !failed) {
    int thread = nth(next++);
    enter(thread);
    launch->thread();
    threads[thread].state = State::done;
  }
  current->thread = -1;
}

static void fiber_main() {
  Executor *e = &executor; /* fibers stay with their OS thread */
#ifdef SL_STANDIN_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &e->scheduler_stack, &e->scheduler_size);
#endif
  for (;;) {
    e->run_fresh();
    e->step_aside();
  }
}

void Executor::resume(Fiber *fiber) {
  current = fiber;
  RaceCheck::stack(fiber->memory + page, stack_size);
#ifdef SL_STANDIN_ASAN
  __sanitizer_start_switch_fiber(&scheduler_fake, fiber->memory + page, stack_size);
#endif
  change(&scheduler, &fiber->context);
#ifdef SL_STANDIN_ASAN
  __sanitizer_finish_switch_fiber(scheduler_fake, nullptr, nullptr);
#endif
  if (fiber->thread < 0) idle.push_back(fiber);
}

void Executor::step_aside() {
  Fiber *fiber = current;
#ifdef SL_STANDIN_ASAN
  __sanitizer_start_switch_fiber(&fiber->fake_stack, scheduler_stack, scheduler_size);
#endif
  change(&fiber->context, &scheduler);
#ifdef SL_STANDIN_ASAN
  __sanitizer_finish_switch_fiber(fiber->fake_stack, &scheduler_stack, &scheduler_size);
#endif
}

uint64_t wait(Wait kind, unsigned mask, uint64_t value, int source, int line) {
  Executor *e = &executor;
  Fiber *fiber = e->current;
  Thread *thread = &e->threads[fiber->thread];
  if (kind != Wait::barrier && !(mask >> (fiber->thread & 31) & 1))
    e->fail("line %d: thread %d waits for lanes %#x, of which it is none", line, fiber->thread,
            mask);
  *thread = Thread{State::waiting, kind, fiber, mask, line, source, value, 0};
  uint3 index = threadIdx;
  e->step_aside();
  threadIdx = index;
  return thread->result;
}

/* Lanes that wait for each other: all in the mask, at the same place. */
bool Executor::release_warp(int first) {
  bool any = false;
  for (int lane = 0; lane < 32 && first + lane < count; lane++) {
    Thread *t = &threads[first + lane];
    if (t->state != State::waiting || t->kind == Wait::barrier) continue;
    bool complete = true;
    uint64_t ballot = 0;
    for (int i = 0; i < 32; i++) {
      if (!(t->mask >> i & 1)) continue;
      Thread *other = first + i < count ? &threads[first + i] : nullptr;
      if (!other || other->state == State::done) {
        fail("line %d: thread %d waits for lane %d, which %s", t->line, first + lane, i,
             other ? "has ended" : "the block has not");
        return false;
      }
      complete &= other->state == State::waiting && other->kind == t->kind &&
                  other->mask == t->mask && other->line == t->line;
      ballot |= other->value ? 1ull << i : 0;
    }
    if (!complete) continue;
    unsigned mask = t->mask;
    bool shuffles = t->kind == Wait::shuffle;
    if (t->kind == Wait::warp) RaceCheck::sync_warp(first, mask);
    for (int i = 0; i < 32; i++) {
      if (!(mask >> i & 1)) continue;
      Thread *other = &threads[first + i];
      bool there = (unsigned)other->source < 32 && mask >> other->source & 1;
      /* an inactive lane has no value to give: NaN */
      other->result = !shuffles ? ballot : there ? threads[first + other->source].value : ~0ull;
      other->state = State::ready;
    }
    any = true;
  }
  return any;
}

bool Executor::release_block() {
  int unfinished = 0, same = 0, line = 0;
  uint64_t voted = 0;
  Thread *stray = nullptr;
  for (int i = 0; i < count; i++) {
    Thread *t = &threads[i];
    if (t->state == State::done) continue;
    unfinished++;
    if (!line && t->kind == Wait::barrier) line = t->line;
    if (t->kind == Wait::barrier && t->line == line)
      same++, voted += t->value;
    else
      stray = t;
  }
  if (stray || !same) {
    if (same)
      fail("the barrier of line %d is reached by %d of %d threads; thread %d waits at line %d",
           line, same, unfinished, (int)(stray - threads.data()), stray->line);
    else
      fail("the lanes of a mask part: thread %d waits at line %d", (int)(stray - threads.data()),
           stray->line);
    return false;
  }
  RaceCheck::barrier();
  for (int i = 0; i < count; i++)
    if (threads[i].state != State::done) threads[i].state = State::ready, threads[i].result = voted;
  return true;
}

bool Executor::release() {
  bool any = false;
  for (int first = 0; first < count && !failed; first += 32) any |= release_warp(first);
  if (failed) return false;
  return any || release_block();
}

bool Executor::run_block() {
  next = 0;
  failed = false;
  for (int i = 0; i < count; i++) threads[i].state = State::fresh;
  while (next < count && !failed) {
    if (idle.empty()) {
      fibers.push_back(std::make_unique<Fiber>(fibers.size()));
      idle.push_back(fibers.back().get());
    }
    Fiber *fiber = idle.back();
    idle.pop_back();
    resume(fiber);
  }
  while (!failed && idle.size() < fibers.size() && release())
    for (int i = 0; i < count && !failed; i++)
      if (threads[nth(i)].state == State::ready) resume(threads[nth(i)].fiber);
  if (failed) { /* fibers that still wait are abandoned */
    idle.clear();
    for (auto &fiber : fibers) fiber->reset(), idle.push_back(fiber.get());
  }
  return !failed;
}

bool run_blocks(const Launch &launch, bool reverse) {
  Executor *e = &executor;
  e->launch = &launch;
  e->reverse = reverse;
  e->count = (int)(launch.block.x * launch.block.y * launch.block.z);
  e->threads.resize(e->count);
  /* the exact size: a sanitizer then sees accesses beyond it */
  std::unique_ptr<void, void (*)(void *)> memory(
      aligned_alloc(16, (launch.shared + 15) & ~(size_t)15), free);
  shared = memory.get();
  blockDim = uint3{launch.block.x, launch.block.y, launch.block.z};
  gridDim = uint3{launch.grid.x, launch.grid.y, launch.grid.z};
  uint64_t blocks = (uint64_t)launch.grid.x * launch.grid.y * launch.grid.z;
  RaceCheck check(launch, blocks, shared);
  for (uint64_t i = 0; i < blocks; i++) {
    uint64_t b = reverse ? blocks - 1 - i : i;
    blockIdx = uint3{(unsigned)(b % launch.grid.x), (unsigned)(b / launch.grid.x % launch.grid.y),
                     (unsigned)(b / launch.grid.x / launch.grid.y)};
    if (launch.shared) memset(shared, 0xff, launch.shared);
    RaceCheck::block(b);
    if (!e->run_block()) return false;
  }
  return !RaceCheck::found();
}

} /* namespace sl_standin */
