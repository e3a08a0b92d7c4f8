/* How busy other programs keep the machine: what is measured beside them is no measure. Inline,
 * since programs use it, too, and the library exports no internal function. */
#ifndef SL_CORE_BASE_CPU_TIME_H
#define SL_CORE_BASE_CPU_TIME_H

#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Seconds: passed, of this process, of all processes on all processors (0: not known). */
struct sl__cpu_time {
  double wall, own, all;
};

/* User, nice, system, interrupts, stolen: all but idle time and waiting. */
static inline double sl__all_cpu_time(void) {
  long long ticks[8] = {0};
  FILE *file = fopen("/proc/stat", "re");
  if (!file) return 0;
  int read = fscanf(file, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &ticks[0], &ticks[1],
                    &ticks[2], &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7]);
  fclose(file);
  if (read != 8) return 0;
  return (double)(ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7]) /
         (double)sysconf(_SC_CLK_TCK);
}

static inline struct sl__cpu_time sl__cpu_time_now(void) {
  struct rusage own;
  struct timespec now;
  getrusage(RUSAGE_SELF, &own);
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (struct sl__cpu_time){.wall = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec,
                               .own = (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
                                      1e-6 * (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec),
                               .all = sl__all_cpu_time()};
}

/* Share of the machine's processors that other programs have had since begin. */
static inline double sl__foreign_cpu(const struct sl__cpu_time *begin) {
  struct sl__cpu_time end = sl__cpu_time_now();
  double processors = (double)sysconf(_SC_NPROCESSORS_ONLN), seconds = end.wall - begin->wall;
  double foreign = (end.all - begin->all) - (end.own - begin->own);
  return foreign > 0 && seconds > 0 ? foreign / (seconds * processors) : 0;
}

#endif
