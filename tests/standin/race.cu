/* Finds races of kernels: two accesses of a byte, at least one a write, that nothing orders. Part
 * of the stand-in for a GPU, which only tests use.
 *
 * Objects that are compiled with -fsanitize=thread call __tsan_read4 and its like at each access of
 * memory. Here these functions are not ThreadSanitizer's, which knows threads of the processor, but
 * keep the last accesses of each word (of each byte, in pages with smaller accesses) and compare.
 * Accesses of one thread are ordered; of a block, by a barrier between them; of a warp, also by
 * __syncwarp, but not by shuffles and votes, for which CUDA promises no order of memory; of two
 * blocks of a launch, by nothing, unless both are atomic. Equal values make no exception.
 *
 * The order is exact, a clock a thread (FastTrack, Flanagan and Freund, PLDI 2009, for the two
 * levels of a block): the sequence in which the fibers happen to run does not matter. Of the reads
 * of a word two are kept, of different warps if there are such. Stacks of fibers are left out. */
#include "tests/standin/race.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

namespace sl_standin {
namespace {

const int MOST_THREADS = 1024, LANES = 32, MOST_REPORTS = 8;
const uintptr_t PAGE = 4096, WORD = 4;
const size_t MOST_PAGES = 2048; /* kept from launch to launch: 128 MiB, of bytes 512 */

struct Access {
  uint64_t place : 48, thread : 15, atomic : 1; /* place: in the code, 0: none */
  uint32_t block, clock;
};
struct Cell {
  Access write, reads[2]; /* reads: of the block that runs */
  Access earlier;         /* a read of a block before it */
};
struct Page {
  uintptr_t number;
  bool bytes; /* a cell a byte, not a word */
  bool own;   /* thread-local memory: static shared memory, each block has its own */
  std::vector<Cell> cells;
};

struct Checker {
  const Launch *launch = nullptr;
  uint32_t first = 1, index = 0; /* block i of the launch has the number first + i */
  uint64_t blocks = 0;
  uintptr_t stack = 0, stack_size = 0, shared = 0, shared_size = 0;
  uint32_t clocks[MOST_THREADS] = {};      /* each thread's own */
  uint32_t barriers[MOST_THREADS] = {};    /* that clock at the last barrier */
  uint32_t seen[MOST_THREADS][LANES] = {}; /* the clocks of its warp that are before it */
  std::unordered_map<uintptr_t, Page> pages;
  Page *recent[256] = {};
  std::vector<std::pair<uintptr_t, uintptr_t>> thread_local_ranges;
  std::set<std::pair<uint64_t, uint64_t>> reported;
  bool found = false;
  uint64_t accesses = 0;

  Page *page(uintptr_t number);
  void access(uintptr_t at, size_t size, bool writes, bool atomic, uintptr_t place);
  void check(Cell *cell, uintptr_t at, bool own, bool writes, const Access &now);
  bool conflicts(const Access &past, const Access &now, bool own) const;
  void report(uintptr_t at, bool own, const Access &past, bool wrote, const Access &now,
              bool writes);
  std::string name(const Access &access) const;
};

bool instrumented; /* such objects are here */
std::atomic<uint64_t> all_accesses;
thread_local std::unique_ptr<Checker> owned;
__thread Checker *running; /* while this thread runs a kernel */

/* ---- messages ------------------------------------------------------------------------------- */
/* FUNCTION (FILE:LINE), the innermost that is no part of the stand-in; at worst an address. */
std::string code_place(uintptr_t place) {
  Dl_info info;
  char text[1000], function[500] = "?";
  if (!dladdr((void *)place, &info) || !info.dli_fname) return "?";
  uintptr_t offset = place - (uintptr_t)info.dli_fbase;
  snprintf(text, sizeof text, "%s+%#lx", info.dli_fname, (unsigned long)offset);
  std::string result = text;
  snprintf(text, sizeof text, "addr2line -f -C -i -e '%s' %#lx 2>/dev/null", info.dli_fname,
           (unsigned long)offset);
  FILE *lines = popen(text, "r");
  if (!lines) return result;
  while (fgets(function, sizeof function, lines) && fgets(text, sizeof text, lines)) {
    if (*text == '?' || strstr(text, "cuda_host.h")) continue;
    text[strcspn(text, " \n")] = function[strcspn(function, "<(\n")] = 0;
    const char *slash = strrchr(text, '/');
    result = std::string(function) + " (" + (slash ? slash + 1 : text) + ")";
    break;
  }
  pclose(lines);
  return result;
}

std::string Checker::name(const Access &access) const {
  char text[100];
  uint32_t b = access.block - first, x = launch->grid.x, y = launch->grid.y;
  snprintf(text, sizeof text, "thread %u of block (%u, %u, %u)", (unsigned)access.thread, b % x,
           b / x % y, b / x / y);
  return text;
}

std::string memory_place(uintptr_t at, bool own, uintptr_t shared) {
  char text[100];
  const void *begin;
  size_t size;
  if (own && shared)
    snprintf(text, sizeof text, "byte %zu of the dynamic shared memory", (size_t)(at - shared));
  else if (own)
    snprintf(text, sizeof text, "static shared memory at %p", (void *)at);
  else if (find_allocation((void *)at, &begin, &size))
    snprintf(text, sizeof text, "byte %zu of the %zu bytes at %p", (size_t)(at - (uintptr_t)begin),
             size, begin);
  else
    snprintf(text, sizeof text, "memory at %p", (void *)at);
  return text;
}

void Checker::report(uintptr_t at, bool own, const Access &past, bool wrote, const Access &now,
                     bool writes) {
  found = true;
  if (reported.size() >= MOST_REPORTS || !reported.insert({past.place, now.place}).second) return;
  std::string memory = memory_place(at, own, at - shared < shared_size ? shared : 0);
  fprintf(stderr, "stand-in: kernel %s: race on %s: %s %s it in %s, %s %s it in %s, and %s\n",
          launch->name, memory.c_str(), name(past).c_str(), wrote ? "writes" : "reads",
          code_place(past.place).c_str(), name(now).c_str(), writes ? "writes" : "reads",
          code_place(now.place).c_str(),
          past.block != now.block ? "blocks have no order"
          : past.thread / LANES == now.thread / LANES
              ? "neither a barrier nor a __syncwarp is between"
              : "no barrier is between");
}

/* ---- accesses ------------------------------------------------------------------------------- */
Page *Checker::page(uintptr_t number) {
  Page *&slot = recent[number % 256];
  if (slot && slot->number == number) return slot;
  auto [it, is_new] = pages.try_emplace(number, Page{number, false, false, {}});
  if (is_new) {
    it->second.cells.resize(PAGE / WORD);
    for (auto &[begin, end] : thread_local_ranges)
      it->second.own |= number >= begin / PAGE && number <= (end - 1) / PAGE;
  }
  return slot = &it->second;
}

/* From now on each byte has the cell that its word had. */
void split(Page *page) {
  std::vector<Cell> cells(PAGE);
  for (size_t i = 0; i < PAGE; i++) cells[i] = page->cells[i / WORD];
  page->cells = std::move(cells);
  page->bytes = true;
}

bool Checker::conflicts(const Access &past, const Access &now, bool own) const {
  if (!past.place || past.block < first || (own && past.block != now.block)) return false;
  if (past.atomic && now.atomic) return false;
  if (past.block != now.block) return true;
  return past.thread != now.thread && past.clock >= barriers[past.thread] &&
         (past.thread / LANES != now.thread / LANES ||
          past.clock > seen[now.thread][past.thread % LANES]);
}

/* Remembers a read. Those before the last barrier need no place any more. */
void remember(Cell *cell, const Access &now, const uint32_t *barriers) {
  Access *r = cell->reads;
  if (r[0].place && r[0].block != now.block) {
    cell->earlier = r[0];
    r[0] = r[1] = Access{};
  }
  auto is_free = [&](const Access &a) {
    return !a.place || a.thread == now.thread || a.clock < barriers[a.thread];
  };
  bool apart = r[1].place && r[0].thread / LANES != r[1].thread / LANES;
  bool like_first = now.thread / LANES == r[0].thread / LANES;
  r[is_free(r[0]) || (apart && like_first && !is_free(r[1])) ? 0 : 1] = now;
}

void Checker::check(Cell *cell, uintptr_t at, bool own, bool writes, const Access &now) {
  if (conflicts(cell->write, now, own)) report(at, own, cell->write, true, now, writes);
  if (!writes) return remember(cell, now, barriers);
  for (const Access *read : {&cell->reads[0], &cell->reads[1], &cell->earlier})
    if (conflicts(*read, now, own)) {
      report(at, own, *read, false, now, writes);
      break;
    }
  *cell = Cell{now, {}, {}};
}

void Checker::access(uintptr_t at, size_t size, bool writes, bool atomic, uintptr_t place) {
  if (at - stack < stack_size) return;
  accesses++;
  unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  Access now{place, thread, atomic, first + index, clocks[thread]};
  for (uintptr_t end = at + size, next; at < end; at = next) {
    Page *p = page(at / PAGE);
    if (!p->bytes && (at | (end - at)) % WORD) split(p);
    next = at + (p->bytes ? 1 : WORD);
    check(&p->cells[at % PAGE / (next - at)], at, p->own || at - shared < shared_size, writes, now);
  }
}

/* Where the variables of this thread are: __shared__ ones are among them. */
int note_thread_local(struct dl_phdr_info *info, size_t, void *checker) {
  if (info->dlpi_tls_data)
    for (int i = 0; i < info->dlpi_phnum; i++)
      if (info->dlpi_phdr[i].p_type == PT_TLS) {
        uintptr_t begin = (uintptr_t)info->dlpi_tls_data;
        ((Checker *)checker)
            ->thread_local_ranges.push_back({begin, begin + info->dlpi_phdr[i].p_memsz});
      }
  return 0;
}

} /* namespace */

/* ---- what block.cu says --------------------------------------------------------------------- */
RaceCheck::RaceCheck(const Launch &launch, uint64_t blocks, const void *shared_memory) {
  if (!instrumented) return;
  if (!owned) {
    owned = std::make_unique<Checker>();
    dl_iterate_phdr(note_thread_local, owned.get());
  }
  Checker *c = owned.get();
  if (c->pages.size() > MOST_PAGES || blocks > UINT32_MAX - c->first) {
    c->pages.clear();
    memset(c->recent, 0, sizeof c->recent);
    c->first = 1;
  }
  c->launch = &launch;
  c->blocks = blocks;
  c->shared = (uintptr_t)shared_memory;
  c->shared_size = launch.shared;
  c->reported.clear();
  c->found = false;
  running = c;
}
RaceCheck::~RaceCheck() {
  if (!running) return;
  running->first += (uint32_t)running->blocks;
  all_accesses += running->accesses;
  running->accesses = 0;
  running = nullptr;
}
void RaceCheck::block(uint64_t index) {
  if (!running) return;
  running->index = (uint32_t)index;
  barrier();
}
void RaceCheck::stack(const void *begin, size_t size) {
  if (!running) return;
  running->stack = (uintptr_t)begin;
  running->stack_size = size;
}
void RaceCheck::barrier() {
  if (!running) return;
  for (int i = 0; i < MOST_THREADS; i++) running->barriers[i] = ++running->clocks[i];
}
void RaceCheck::sync_warp(int first, unsigned mask) {
  if (!running) return;
  uint32_t latest[LANES] = {};
  for (int i = 0; i < LANES; i++) {
    if (!(mask >> i & 1)) continue;
    const uint32_t *seen = running->seen[first + i];
    for (int j = 0; j < LANES; j++) latest[j] = latest[j] < seen[j] ? seen[j] : latest[j];
    latest[i] = running->clocks[first + i]++;
  }
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1) memcpy(running->seen[first + i], latest, sizeof latest);
}
uint64_t RaceCheck::accesses() { return all_accesses; }
bool RaceCheck::found() { return running && running->found; }

SL_STANDIN_API void atomic_access(const void *pointer, size_t size, const void *place);
void atomic_access(const void *pointer, size_t size, const void *place) {
  if (running) running->access((uintptr_t)pointer, size, true, true, (uintptr_t)place - 1);
}

} /* namespace sl_standin */

/* ---- what the compiler calls ---------------------------------------------------------------- */
#define PLACE ((uintptr_t)__builtin_return_address(0) - 1)
#define ACCESS(pointer, size, writes)                                                              \
  if (sl_standin::running)                                                                         \
  sl_standin::running->access((uintptr_t)(pointer), size, writes, false, PLACE)
#define SIZED(prefix, size)                                                                        \
  SL_STANDIN_API void __tsan_##prefix##read##size(void *p) { ACCESS(p, size, false); }             \
  SL_STANDIN_API void __tsan_##prefix##write##size(void *p) { ACCESS(p, size, true); }
#define HOOKS(prefix)                                                                              \
  SIZED(prefix, 1) SIZED(prefix, 2) SIZED(prefix, 4) SIZED(prefix, 8) SIZED(prefix, 16)
extern "C" {
#ifndef __SANITIZE_THREAD__ /* else they are ThreadSanitizer's */
HOOKS()
HOOKS(unaligned_)
HOOKS(volatile_)
HOOKS(unaligned_volatile_)
SL_STANDIN_API void __tsan_read_range(void *p, long size) { ACCESS(p, (size_t)size, false); }
SL_STANDIN_API void __tsan_write_range(void *p, long size) { ACCESS(p, (size_t)size, true); }
SL_STANDIN_API void __tsan_vptr_update(void *, void *) {}
SL_STANDIN_API void __tsan_vptr_read(void *) {}
SL_STANDIN_API void __tsan_func_entry(void *) {}
SL_STANDIN_API void __tsan_func_exit(void) {}
SL_STANDIN_API void __tsan_init(void) { sl_standin::instrumented = true; }
#endif

/* Instrumented objects call these (cuda_host.h). */
SL_STANDIN_API void *sl_standin_memcpy(void *to, const void *from, size_t bytes) {
  ACCESS(from, bytes, false);
  ACCESS(to, bytes, true);
  return memcpy(to, from, bytes);
}
SL_STANDIN_API void *sl_standin_memmove(void *to, const void *from, size_t bytes) {
  ACCESS(from, bytes, false);
  ACCESS(to, bytes, true);
  return memmove(to, from, bytes);
}
SL_STANDIN_API void *sl_standin_memset(void *to, int value, size_t bytes) {
  ACCESS(to, bytes, true);
  return memset(to, value, bytes);
}
}
