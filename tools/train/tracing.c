#include "tools/train/tracing.h"

#include <errno.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tools/train/ranks.h"

extern char **environ;

/* ---- which steps ---- */

bool trace_prepare(struct trace *t, const char *program, const struct cli *cli) {
  int rank = 0;
  t->program = program;
  if (!cli->trace) return true;
  bool alone = !ranks_wanted(cli) || sl_launched(&rank) < 2;
  int length = alone ? snprintf(t->folder, sizeof t->folder, "%s", cli->trace)
                     : snprintf(t->folder, sizeof t->folder, "%s/rank%d", cli->trace, rank);
  if (length >= (int)sizeof t->folder) {
    errno = ENAMETOOLONG;
    return false;
  }
  return alone || sl_folder_make(cli->trace) == SL_OK;
}

void trace_note(struct trace *t, const struct sl_fit_result *result) {
  t->first = result->trace_first;
  t->begun = result->trace_last ? result->trace_first : 0;
  t->ended = result->trace_last;
  t->seconds = result->trace_seconds;
}

/* ---- the peak of a core ---- */

typedef float vector __attribute__((vector_size(64)));

/* Eight sums, since each waits for its own product: enough to keep two units busy. */
static inline __attribute__((always_inline)) float multiply_add(long rounds) {
  vector sum[8], factor, small;
  for (int lane = 0; lane < 16; lane++) {
    factor[lane] = 0.999f;
    small[lane] = 1e-3f;
    for (int i = 0; i < 8; i++) sum[i][lane] = (float)(i + lane);
  }
  for (long r = 0; r < rounds; r++)
    for (int i = 0; i < 8; i++) sum[i] = sum[i] * factor + small;
  for (int i = 1; i < 8; i++) sum[0] += sum[i];
  return sum[0][0];
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static float multiply_add_512(long n) { return multiply_add(n); }
__attribute__((target("avx2,fma"))) static float multiply_add_256(long n) {
  return multiply_add(n);
}
static float multiply_add_best(long n) {
  if (__builtin_cpu_supports("avx512f")) return multiply_add_512(n);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return multiply_add_256(n);
  return multiply_add(n);
}
#else
static float multiply_add_best(long n) { return multiply_add(n); }
#endif

/* The best of several short runs: the speed of a core without other load. */
void trace_measure_peak(struct trace *t) {
  enum { RUNS = 20 };
  const long rounds = 20000;
  volatile float sink = 0;
  if (!*t->folder || !t->begun) return;
  for (int run = 0; run < RUNS; run++) {
    double began = sl__seconds();
    sink += multiply_add_best(rounds);
    double seconds = sl__seconds() - began, flops = 2.0 * 16 * 8 * (double)rounds;
    if (seconds > 0 && flops / seconds > 1e9 * t->peak) t->peak = flops / seconds / 1e9;
  }
}

/* ---- at the end ---- */

int trace_write_window(const struct trace *t, const struct cli *cli) {
  char path[PATH_MAX + 32];
  snprintf(path, sizeof path, "%s/trace.window.json", t->folder);
  json_t *window = json_pack(
      "{s:s, s:i, s:s, s:s, s:[I,I], s:f, s:f, s:i, s:i, s:I}", "format", "starling trace window",
      "version", 1, "producer", program_version(), "program", program_name(t->program), "steps",
      (json_int_t)t->begun, (json_int_t)t->ended, "wall_ms", 1e3 * t->seconds, "peak_gflops",
      t->peak, "stages", cli->stages > 0 ? cli->stages : 1, "microbatches",
      cli->microbatches > 0 ? cli->microbatches : 1, "batch", (json_int_t)cli->batch);
  if (!window) return ENOMEM;
  int error = 0;
  errno = 0;
  if (json_dump_file(window, path, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) != 0)
    error = errno ? errno : EIO;
  json_decref(window);
  return error;
}

static bool is_program(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

/* Beside this program where it is installed; in tools/ beside its folder where it was built, from
 * whose .libs libtool's wrapper may have started it; else by PATH. */
static bool find_tool(char *path, size_t size) {
  static const char *const places[] = {"starling-trace", "../tools/starling-trace",
                                       "../../tools/starling-trace"};
  char own[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
  if (length <= 0) return false;
  own[length] = '\0';
  char *slash = strrchr(own, '/');
  if (!slash) return false;
  slash[1] = '\0';
  for (size_t i = 0; i < sizeof places / sizeof *places; i++)
    if (snprintf(path, size, "%s%s", own, places[i]) < (int)size && is_program(path)) return true;
  return false;
}

bool trace_draw(const struct trace *t, bool quiet) {
  char tool[PATH_MAX + 64];
  const char *own = find_tool(tool, sizeof tool) ? tool : "starling-trace";
  char *arguments[] = {(char *)own, "--draw", (char *)t->folder, NULL};
  int status, error;
  pid_t child;
  fflush(NULL);
  error = posix_spawnp(&child, own, NULL, NULL, arguments, environ);
  if (error) {
    fprintf(stderr, "%s: starling-trace is not found; to draw: starling-trace --draw %s\n",
            program_name(t->program), t->folder);
    return false;
  }
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return false;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return false;
  if (!quiet)
    printf("Trace          %s/trace.svg, %s/trace.txt, %s/trace.json\n", t->folder, t->folder,
           t->folder);
  return true;
}
