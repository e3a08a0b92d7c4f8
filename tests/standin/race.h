/* What block.cu tells the race checker (race.cu). Without instrumented objects each call is one
 * comparison. */
#ifndef SL_TESTS_STANDIN_RACE_H
#define SL_TESTS_STANDIN_RACE_H

namespace sl_standin {

/* A launch begins and, with this object, ends. */
struct RaceCheck {
  RaceCheck(const Launch &launch, uint64_t blocks, const void *shared);
  ~RaceCheck();
  RaceCheck(const RaceCheck &) = delete;
  static void block(uint64_t index);                 /* the next block begins */
  static void stack(const void *begin, size_t size); /* of the fiber that runs now */
  static void barrier();                             /* all threads of the block have arrived */
  static void sync_warp(int first, unsigned mask);   /* lanes of the warp that begins at first */
  static bool found();                               /* a race since the launch began */
  static uint64_t accesses(); /* checked so far, of all launches that have ended */
};

/* The allocation that a pointer lies in, of a device or pinned; for messages. */
bool find_allocation(const void *pointer, const void **begin, size_t *size);

} /* namespace sl_standin */
#endif
