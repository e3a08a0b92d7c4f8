/* Measures the cost of exchanging a block's gradients between ranks, with each method of MPI and
 * StarPU-MPI, on idle ranks and on ranks that compute. For example:
 *   mpirun --bind-to none --oversubscribe --mca mpi_yield_when_idle 1 -np 2 bench/bench_exchange
 * Each rank is bound to one processor (unless --spread); exchange and computation share it.
 *
 * Methods (details in exchange.h):
 *   allreduce        MPI_Allreduce; the order of the sum is the library's
 *   alltoall         MPI_Alltoallv, sum in the ranks' order, MPI_Allgatherv
 *   ialltoall        the same, not blocking
 *   p2p-whole        gradients to the block's one owner by MPI_Isend, weights back
 *   p2p-even         the same, each rank owns a part
 *   p2p-shards       the same, shards of 250,000 floats go round the ranks
 *   starpu-even, starpu-shards   the same by StarPU-MPI's handles and a task for the sum
 * Computation (an endless sequence of small matrix products):
 *   none     the rank waits for its exchange
 *   yield    a thread computes, the exchange's thread polls and yields the processor between
 *   sleep    the same, but it sleeps between
 *   low      as sleep, and the computing thread has the class SCHED_IDLE: a thread that wakes up
 *            runs first
 *   worker   the computing thread polls between two kernels; a blocking call blocks it
 *   starpu   StarPU's worker computes; StarPU-MPI has its own thread
 * A JSON line each:
 *   us, us_p10, us_p90   time of an exchange on the slowest rank: median, 10th and 90th percentile;
 *                 the 10th percentile is robust against other programs
 *   sent          largest number of bytes that one rank sends; null if the library decides
 *   theory        2 (ranks - 1) / ranks of the block: no exchange sends less from each rank
 *   ordered       the result has the bits of the sum in the ranks' order
 *   slowdown      share of its speed that the computation loses while exchanges run back to back
 *   cpu_us        processor time of one exchange outside the kernels, mean of the ranks
 *   foreign_cpu   share of the machine's time that other programs took
 * and one line a method: us_p10 = alpha_us + sent / gb_s, fitted by least relative squares. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <argp.h>
#include <cblas.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "bench/bench.h"
#include "bench/exchange.h"

/* ---- options ---- */

enum computing { NONE, YIELD, SLEEP, LOW, WORKER, STARPU, COMPUTINGS };
static const char *const computing_names[] = {"none", "yield", "sleep", "low", "worker", "starpu"};

static const double QUIET = 0.05; /* share of the machine that others may take */
enum { MOST_SIZES = 32, LEAST_REPETITIONS = 10, MOST_REPETITIONS = 20000 };

struct bench {
  const char *ways, *computings; /* lists */
  int64_t bytes[MOST_SIZES];
  int sizes;
  double seconds, sleep_us, quiet_timeout;
  int side, tries;
  bool spread;
  int ranks, rank, node_rank;
  MPI_Comm node;
};

static const struct argp_option options[] = {
    {"ways", 'w', "LIST", 0, "Of " WAY_NAMES " (default: all)", 0},
    {"computing", 'c', "LIST", 0, "Of none, yield, sleep, low, worker, starpu (default: all)", 0},
    {"bytes", 'b', "LIST", 0, "Sizes of the block (default 1 KB to 16 MB)", 0},
    {"seconds", 's', "X", 0, "Seconds to measure each method and size (default 0.5)", 0},
    {"sleep", 'p', "US", 0, "Microseconds between two polls of 'sleep' (default 20)", 0},
    {"side", 'k', "N", 0, "A kernel multiplies N x N matrices (default 160)", 0},
    {"tries", 't', "N", 0, "Measure up to N times, until other programs are quiet (default 5)", 0},
    {"quiet-timeout", 'q', "S", 0,
     "Wait S seconds in all for other programs to be quiet (default 0)", 0},
    {"spread", 'r', NULL, 0, "Leave the ranks' processors to the system", 0},
    {0}};

/* Whether the list, commas between, has the name. */
static bool listed(const char *list, const char *name) {
  size_t length = strlen(name);
  for (const char *at = list; at; at = strchr(at, ',')) {
    at += *at == ',';
    if (strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length])) return true;
  }
  return !list;
}

static bool known(const char *word) {
  for (int i = 0; i < COMPUTINGS; i++)
    if (strcmp(word, computing_names[i]) == 0) return true;
  return way_find(word);
}

static void check_list(struct argp_state *state, const char *list) {
  char word[32];
  for (const char *at = list; *at; at += strspn(at, ",")) {
    size_t length = strcspn(at, ",");
    snprintf(word, sizeof word, "%.*s", (int)length, at);
    if (!known(word)) argp_failure(state, 2, 0, "'%s': unknown; see --help", word);
    at += length;
  }
}

static double number(struct argp_state *state, const char *text, double least, double most) {
  char *end;
  double value = strtod(text, &end);
  if (end == text || (*end && *end != ',') || !(value >= least && value <= most))
    argp_failure(state, 2, 0, "'%s': must be from %g to %g", text, least, most);
  return value;
}

static void parse_sizes(struct argp_state *state, struct bench *b, const char *text) {
  for (b->sizes = 0; text && b->sizes < MOST_SIZES; b->sizes++) {
    b->bytes[b->sizes] = (int64_t)number(state, text, 1024, 1 << 30);
    text = strchr(text, ',');
    if (text) text++;
  }
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct bench *b = state->input;
  switch (key) {
    case 'w': check_list(state, b->ways = text); break;
    case 'c': check_list(state, b->computings = text); break;
    case 'b': parse_sizes(state, b, text); break;
    case 's': b->seconds = number(state, text, 0.001, 3600); break;
    case 'p': b->sleep_us = number(state, text, 1, 1e6); break;
    case 'k': b->side = (int)number(state, text, 8, 4096); break;
    case 't': b->tries = (int)number(state, text, 1, 1000); break;
    case 'q': b->quiet_timeout = number(state, text, 0, 1e6); break;
    case 'r': b->spread = true; break;
    default: return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

/* ---- computing ---- */

/* Kernels take no argument where StarPU calls them. */
static struct {
  int side;
  float *a, *b, *c;
  atomic_long kernels, cpu_ns; /* kernels run so far, and their total time */
  atomic_bool stop;
  pthread_t thread;
} work;

static long cpu_ns(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return 1000000000L * time.tv_sec + time.tv_nsec;
}

static void kernel(void) {
  long begin = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, work.side, work.side, work.side, 1, work.a,
              work.side, work.b, work.side, 0, work.c, work.side);
  atomic_fetch_add_explicit(&work.cpu_ns, cpu_ns(CLOCK_THREAD_CPUTIME_ID) - begin,
                            memory_order_relaxed);
  atomic_fetch_add_explicit(&work.kernels, 1, memory_order_relaxed);
}

static void *compute(void *argument) {
  (void)argument;
  while (!atomic_load_explicit(&work.stop, memory_order_relaxed)) kernel();
  return NULL;
}

static bool make_work(int side) {
  size_t count = (size_t)side * (size_t)side;
  openblas_set_num_threads(1);
  work.side = side;
  work.a = malloc(3 * count * sizeof(float));
  if (!work.a) return false;
  work.b = work.a + count;
  work.c = work.b + count;
  for (size_t i = 0; i < 3 * count; i++) work.a[i] = (float)(i % 17) / 17;
  return true;
}

static bool has_thread(enum computing computing) {
  return computing == YIELD || computing == SLEEP || computing == LOW;
}

static bool start_computing(enum computing computing) {
  const struct sched_param low = {0};
  atomic_store(&work.stop, false);
  if (computing == STARPU) return starpu_ranks_compute(true, kernel);
  if (!has_thread(computing)) return true;
  return pthread_create(&work.thread, NULL, compute, NULL) == 0 &&
         (computing != LOW || pthread_setschedparam(work.thread, SCHED_IDLE, &low) == 0);
}

static bool stop_computing(enum computing computing) {
  atomic_store(&work.stop, true);
  if (computing == STARPU) return starpu_ranks_compute(false, kernel);
  return !has_thread(computing) || pthread_join(work.thread, NULL) == 0;
}

static void sleep_for(double seconds) {
  struct timespec time = {.tv_sec = (time_t)seconds};
  time.tv_nsec = (long)(1e9 * (seconds - (double)time.tv_sec));
  while (nanosleep(&time, &time) != 0) continue;
}

/* Kernels a second, while nothing is exchanged. */
static double speed_alone(const struct bench *b, enum computing computing) {
  MPI_Barrier(MPI_COMM_WORLD);
  long before = atomic_load(&work.kernels);
  double begin = bench_now();
  if (computing != WORKER) sleep_for(b->seconds / 2);
  while (bench_now() - begin < b->seconds / 2) kernel();
  return (double)(atomic_load(&work.kernels) - before) / (bench_now() - begin);
}

/* ---- exchanging ---- */

/* Returns its seconds. */
static double exchange_once(const struct bench *b, const struct way *way, struct exchange *x,
                            enum computing computing) {
  double begin = bench_now();
  way->start(x);
  while (!way->poll(x)) {
    if (computing == WORKER)
      kernel();
    else if (computing == SLEEP || computing == LOW)
      sleep_for(1e-6 * b->sleep_us);
    else
      sched_yield();
  }
  double seconds = bench_now() - begin;
  if (computing == WORKER) kernel(); /* between what blocks, too, there is computing */
  return seconds;
}

/* As many exchanges as fill the time; the same on all ranks. */
static int repetitions(const struct bench *b, const struct way *way, struct exchange *x,
                       enum computing computing) {
  enum { WARM = 3, TRIED = 5 };
  double begin = 0, seconds, most;
  for (int i = 0; i < WARM + TRIED; i++) {
    if (i == WARM) begin = bench_now();
    exchange_once(b, way, x, computing);
  }
  seconds = (bench_now() - begin) / TRIED;
  MPI_Allreduce(&seconds, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  double count = b->seconds / most;
  if (count < LEAST_REPETITIONS) return LEAST_REPETITIONS;
  return count > MOST_REPETITIONS ? MOST_REPETITIONS : (int)count;
}

static bool has_order(const struct exchange *x) {
  for (int64_t i = 0; i < x->floats; i++) {
    float sum = exchange_value(0, i);
    for (int r = 1; r < x->ranks; r++) sum += exchange_value(r, i);
    if (memcmp(&sum, &x->weights[i], sizeof sum) != 0) return false;
  }
  return true;
}

struct result {
  int repetitions, ordered;
  int64_t sent; /* of the rank that sends most */
  double us, us_p10, us_p90, slowdown, cpu_us, foreign;
};

/* Share of the machine that programs other than these ranks took; right on the first machine. */
static double foreign_cpu(const struct bench *b, const struct sl__cpu_time *begin) {
  struct sl__cpu_time end = sl__cpu_time_now();
  double own = end.own - begin->own, ranks;
  MPI_Allreduce(&own, &ranks, 1, MPI_DOUBLE, MPI_SUM, b->node);
  struct sl__cpu_time as_one = {.wall = begin->wall, .all = begin->all, .own = end.own - ranks};
  return sl__foreign_cpu(&as_one);
}

static double mean_of_ranks(const struct bench *b, double value) {
  double sum;
  MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return sum / b->ranks;
}

/* slowest is of rank 0 alone. */
static void measure_once(const struct bench *b, const struct way *way, struct exchange *x,
                         enum computing computing, double *own, double *slowest, struct result *r) {
  r->repetitions = repetitions(b, way, x, computing);
  struct sl__cpu_time begin = sl__cpu_time_now();
  double alone = computing == NONE ? 0 : speed_alone(b, computing);
  MPI_Barrier(MPI_COMM_WORLD);
  long kernels = atomic_load(&work.kernels);
  long others_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - atomic_load(&work.cpu_ns);
  double from = bench_now();
  for (int i = 0; i < r->repetitions; i++) own[i] = exchange_once(b, way, x, computing);
  double seconds = bench_now() - from;
  others_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - atomic_load(&work.cpu_ns) - others_ns;
  kernels = atomic_load(&work.kernels) - kernels;
  r->foreign = foreign_cpu(b, &begin);
  double slowdown = alone > 0 ? 1 - (double)kernels / seconds / alone : 0;
  r->slowdown = mean_of_ranks(b, slowdown);
  r->cpu_us = mean_of_ranks(b, 1e-3 * (double)others_ns / r->repetitions);
  int ordered = has_order(x);
  MPI_Allreduce(&ordered, &r->ordered, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&x->sent, &r->sent, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
  MPI_Reduce(own, slowest, r->repetitions, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (b->rank != 0) return;
  qsort(slowest, (size_t)r->repetitions, sizeof *slowest, bench_compare);
  r->us = 1e6 * slowest[r->repetitions / 2];
  r->us_p10 = 1e6 * slowest[r->repetitions / 10];
  r->us_p90 = 1e6 * slowest[9 * r->repetitions / 10];
}

/* A barrier that sleeps: MPI_Barrier would poll and take a processor. */
static void meet_asleep(void) {
  MPI_Request request;
  int met = 0;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  while (MPI_Test(&request, &met, MPI_STATUS_IGNORE) == MPI_SUCCESS && !met) sleep_for(1e-3);
}

/* Waits until other programs are quiet, or the time limit has passed. */
static void wait_for_quiet(struct bench *b) {
  static const double window_s = 0.1;
  double foreign = 1;
  while (b->rank == 0 && b->quiet_timeout > 0 && foreign > QUIET) {
    struct sl__cpu_time begin = sl__cpu_time_now();
    sleep_for(window_s);
    foreign = sl__foreign_cpu(&begin);
    b->quiet_timeout -= window_s;
  }
  meet_asleep();
}

/* Again while other programs disturb; the least disturbed one counts. False where no thread for
 * computing starts. */
static bool measure(struct bench *b, const struct way *way, struct exchange *x,
                    enum computing computing, double *own, double *slowest, struct result *least) {
  struct result r;
  least->foreign = 2;
  for (int i = 0; i < b->tries && least->foreign > QUIET; i++) {
    wait_for_quiet(b);
    if (!start_computing(computing)) return false;
    measure_once(b, way, x, computing, own, slowest, &r);
    if (!stop_computing(computing)) return false;
    MPI_Bcast(&r.foreign, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD); /* all decide alike */
    if (r.foreign < least->foreign) *least = r;
  }
  return true;
}

static int print_result(const struct bench *b, const struct way *way, enum computing computing,
                        int64_t bytes, const struct result *r) {
  bool computes = computing != NONE;
  return bench_print(
      json_pack("{s:s, s:s, s:s, s:i, s:I, s:f, s:f, s:f, s:o, s:f, s:b, s:o, s:o, s:i, s:f}",
                "bench", "exchange", "way", way->name, "computing", computing_names[computing],
                "ranks", b->ranks, "bytes", (json_int_t)bytes, "us", r->us, "us_p10", r->us_p10,
                "us_p90", r->us_p90, "sent", r->sent >= 0 ? json_integer(r->sent) : json_null(),
                "theory", 2.0 * (b->ranks - 1) / b->ranks * (double)bytes, "ordered", r->ordered,
                "slowdown", computes ? json_real(r->slowdown) : json_null(), "cpu_us",
                computes ? json_real(r->cpu_us) : json_null(), "repetitions", r->repetitions,
                "foreign_cpu", r->foreign));
}

/* us = alpha + sent / beta: the least sum of squared relative errors. What the library sends, where
 * it decides, is taken for the theory's. */
static int print_fit(const struct bench *b, const struct way *way, enum computing computing,
                     const struct result *results) {
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
  for (int i = 0; i < b->sizes; i++) {
    const struct result *r = &results[i];
    double y = r->us_p10, weight = 1 / (y * y);
    double x =
        r->sent >= 0 ? (double)r->sent : 2.0 * (b->ranks - 1) / b->ranks * (double)b->bytes[i];
    w += weight;
    wx += weight * x;
    wy += weight * y;
    wxx += weight * x * x;
    wxy += weight * x * y;
  }
  double spread = w * wxx - wx * wx;
  if (!(spread > 0)) return 0; /* one size: no line */
  double slope = (w * wxy - wx * wy) / spread, alpha = (wy - slope * wx) / w;
  return bench_print(json_pack("{s:s, s:s, s:s, s:i, s:f, s:o}", "bench", "exchange_fit", "way",
                               way->name, "computing", computing_names[computing], "ranks",
                               b->ranks, "alpha_us", alpha, "gb_s",
                               slope > 0 ? json_real(1e-3 / slope) : json_null()));
}

static int measure_sizes(struct bench *b, const struct way *way, enum computing computing,
                         double *own, double *slowest) {
  struct result results[MOST_SIZES] = {0};
  int failed = 0;
  for (int i = 0; i < b->sizes && !failed; i++) {
    struct exchange x;
    if (!exchange_open(&x, way, b->bytes[i] / (int64_t)sizeof(float)) ||
        !measure(b, way, &x, computing, own, slowest, &results[i])) {
      fprintf(stderr, "bench_exchange: no memory or thread for %lld bytes\n",
              (long long)b->bytes[i]);
      return 1; /* the others wait: the caller ends them */
    }
    exchange_close(&x);
    if (b->rank == 0) failed = print_result(b, way, computing, b->bytes[i], &results[i]);
  }
  if (b->rank == 0 && !failed) failed = print_fit(b, way, computing, results);
  return failed;
}

/* ---- all of them ---- */

static bool of_starpu(const struct way *way) { return way->start == exchange_starpu_run; }

/* StarPU's worker computes for StarPU's methods only; a blocking call cannot be polled. */
static bool suits(const struct way *way, enum computing computing) {
  if (of_starpu(way)) return computing == NONE || computing == STARPU;
  return computing != STARPU && !(way->blocking && (computing == SLEEP || computing == LOW));
}

static int measure_ways(struct bench *b, bool starpu) {
  double *own = malloc(MOST_REPETITIONS * sizeof *own);
  double *slowest = malloc(MOST_REPETITIONS * sizeof *slowest);
  const struct way *way;
  int failed = !own || !slowest;
  for (int i = 0; (way = way_at(i)) && !failed; i++) {
    if (of_starpu(way) != starpu || !listed(b->ways, way->name)) continue;
    for (int c = 0; c < COMPUTINGS && !failed; c++)
      if (listed(b->computings, computing_names[c]) && suits(way, c))
        failed = measure_sizes(b, way, c, own, slowest);
  }
  free(own);
  free(slowest);
  return failed;
}

static bool wants_starpu(const struct bench *b) {
  const struct way *way;
  for (int i = 0; (way = way_at(i)); i++)
    if (of_starpu(way) && listed(b->ways, way->name)) return true;
  return false;
}

/* The ranks of a machine take its processors in turns, of those that each may use. */
static void keep_to_one_processor(int node_rank) {
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int skip = node_rank % CPU_COUNT(&allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

static bool reach(struct bench *b) {
  MPI_Comm_size(MPI_COMM_WORLD, &b->ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &b->rank);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, b->rank, MPI_INFO_NULL, &b->node);
  MPI_Comm_rank(b->node, &b->node_rank);
  if (b->ranks < 2) {
    fprintf(stderr, "bench_exchange: an exchange needs two ranks or more; use mpirun -np 2\n");
    return false;
  }
  for (int i = 0; i < b->sizes; i++)
    if (b->bytes[i] / (int64_t)sizeof(float) * b->ranks > INT32_MAX) {
      fprintf(stderr, "bench_exchange: %lld bytes for %d ranks are more than MPI counts\n",
              (long long)b->bytes[i], b->ranks);
      return false;
    }
  return true;
}

static int run(struct bench *b) {
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* threads inherit it: they sleep to the point */
  if (!reach(b) || !make_work(b->side)) return 1;
  if (!b->spread) keep_to_one_processor(b->node_rank);
  int failed = measure_ways(b, false);
  /* after the others: its threads would disturb them */
  if (!failed && wants_starpu(b)) {
    failed = !starpu_ranks_start() || measure_ways(b, true);
    if (!failed) starpu_ranks_stop();
  }
  free(work.a);
  MPI_Comm_free(&b->node);
  return failed;
}

int main(int argc, char **argv) {
  static const struct argp argp = {options,
                                   parse_option,
                                   NULL,
                                   "Measure exchanges of gradients between MPI ranks; prints JSON "
                                   "lines.",
                                   NULL,
                                   NULL,
                                   NULL};
  struct bench bench = {
      .bytes = {1 << 10, 4 << 10, 32 << 10, 256 << 10, 1600000, 2700000, 16 << 20},
      .sizes = 7,
      .seconds = 0.5,
      .sleep_us = 20,
      .side = 160,
      .tries = 5};
  int level, wanted;
  argp_err_exit_status = 2;
  argp_parse(&argp, argc, argv, 0, NULL, &bench);
  /* StarPU-MPI's thread and ours; a lock in each call, so only where it is needed */
  wanted = wants_starpu(&bench) ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
  MPI_Init_thread(&argc, &argv, wanted, &level);
  if (level < wanted) fprintf(stderr, "bench_exchange: MPI without the threads that are needed\n");
  int failed = level < wanted || run(&bench);
  if (failed) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
  return 0;
}
