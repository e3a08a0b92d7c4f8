/* The program of test_kvstore_ranks.sh: kvstore_ranks WHAT KIND SERVERS. Each rank compares the
 * values with its own computation and prints a line; exit code 0, or 1 and the difference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <starling.h>

#define TRY(call)                                                                                  \
  do {                                                                                             \
    enum sl_status status_ = (call);                                                               \
    if (status_ != SL_OK) die(#call, status_);                                                     \
  } while (0)

static int rank, workers;
static struct sl_context *context;

static void die(const char *what, enum sl_status status) {
  printf("rank %d: %s: %s: %s\n", rank, what, sl_status_name(status), sl_error());
  fflush(stdout);
  sl_leave(context, sl_error());
  _exit(1);
}

static void wrong(const char *what, int64_t i, double got, double want) {
  printf("rank %d: %s: value %lld is %.9g, not %.9g\n", rank, what, (long long)i, got, want);
  fflush(stdout);
  sl_leave(context, "wrong values");
  _exit(1);
}

/* Element i of what rank r pushes to a key as its n-th: of many magnitudes, so that the order of a
 * sum shows. */
static float pushed(int r, int key, int n, int64_t i) {
  uint64_t u = (uint64_t)r * 1000003 + (uint64_t)key * 10007 + (uint64_t)n * 101 + (uint64_t)i;
  u = (u ^ (u >> 7)) * 0x9e3779b97f4a7c15u;
  u = (u ^ (u >> 31)) * 0xbf58476d1ce4e5b9u;
  u ^= u >> 29;
  float value = (float)(u >> 40) / (float)(1 << 24) - 0.5f;
  return u & 1 ? value : value * 1e4f;
}

enum { KEYS = 3 };
static const int numbers[KEYS] = {-7, 3, 1000};
static const int64_t counts[KEYS] = {7, 5001, 100};

static float *make(int r, int k, int n) {
  float *values = calloc((size_t)counts[k], sizeof *values);
  for (int64_t i = 0; i < counts[k]; i++) values[i] = pushed(r, k, n, i);
  return values;
}

/* All workers' n-th push added up, in the ranks' order. */
static float *add_up(int k, int n) {
  float *sum = make(0, k, n);
  for (int r = 1; r < workers; r++)
    for (int64_t i = 0; i < counts[k]; i++) sum[i] += pushed(r, k, n, i);
  return sum;
}

static void compare(const char *what, const float *got, const float *want, int64_t count,
                    double tolerance) {
  for (int64_t i = 0; i < count; i++) {
    double difference = (double)got[i] - (double)want[i];
    if (!(difference <= tolerance && difference >= -tolerance))
      wrong(what, i, (double)got[i], (double)want[i]);
  }
}

static void push(struct sl_kvstore *kv, int k, int n) {
  float *values = make(rank, k, n);
  TRY(sl_kvstore_push(kv, numbers[k], 1, (const float *[]){values}));
  memset(values, 0xff, (size_t)counts[k] * sizeof *values); /* it is the caller's again */
  free(values);
}

static uint64_t hash(uint64_t h, const float *values, int64_t count) {
  const unsigned char *bytes = (const unsigned char *)values;
  for (size_t i = 0; i < (size_t)count * sizeof *values; i++) h = (h ^ bytes[i]) * 0x100000001b3u;
  return h;
}

static void init_all(struct sl_kvstore *kv) {
  for (int k = 0; k < KEYS; k++) {
    float *values = make(100, k, 0), *got = calloc((size_t)counts[k], sizeof *got);
    TRY(sl_kvstore_init(kv, numbers[k], counts[k], rank == 0 ? values : rank == 1 ? got : NULL));
    TRY(sl_kvstore_pull(kv, numbers[k], got));
    compare("first pull", got, values, counts[k], 0);
    free(values), free(got);
  }
}

/* ---- dist_sync ---- */

/* Without an optimizer the sum replaces the value. */
static void check_sums(struct sl_kvstore *kv) {
  for (int n = 0; n < 10; n++) {
    for (int j = 0; j < KEYS; j++) push(kv, (j + rank + n) % KEYS, n); /* each in another order */
    for (int k = 0; k < KEYS && n % 3 == 0; k++) {
      float *got = calloc((size_t)counts[k], sizeof *got), *want = add_up(k, n);
      TRY(sl_kvstore_pull(kv, numbers[k], got));
      compare("sum", got, want, counts[k], 0);
      free(got), free(want);
    }
  }
}

static void check_pushpull(struct sl_kvstore *kv) {
  for (int k = 0; k < KEYS; k++) {
    float *got = calloc((size_t)counts[k], sizeof *got);
    float *twice[2] = {make(rank, k, 50), make(rank, k, 51)}, *want = NULL;
    TRY(sl_kvstore_pushpull(kv, numbers[k], 2, (const float *const *)twice, got));
    want = calloc((size_t)counts[k], sizeof *want);
    for (int r = 0; r < workers; r++)
      for (int64_t i = 0; i < counts[k]; i++) {
        float own = pushed(r, k, 50, i) + pushed(r, k, 51, i);
        want[i] = r ? want[i] + own : own;
      }
    compare("sum of two arrays each", got, want, counts[k], 0);
    free(twice[0]), free(twice[1]), free(got), free(want);
  }
}

/* Momentum, a learning rate that changes midway, no pull between. */
static uint64_t check_momentum(struct sl_kvstore *kv) {
  struct sl_optimizer optimizer = {.lr = 1e-3f, .momentum = 0.9f};
  float *value[KEYS], *velocity[KEYS];
  uint64_t h = 0xcbf29ce484222325u;
  for (int k = 0; k < KEYS; k++) {
    value[k] = calloc((size_t)counts[k], sizeof(float));
    velocity[k] = calloc((size_t)counts[k], sizeof(float));
    TRY(sl_kvstore_pull(kv, numbers[k], value[k]));
  }
  TRY(sl_kvstore_set_optimizer(kv, &optimizer));
  for (int n = 100; n < 110; n++) {
    if (n == 105) optimizer.lr = 5e-4f;
    if (n == 105) TRY(sl_kvstore_set_optimizer(kv, &optimizer));
    for (int j = 0; j < KEYS; j++) push(kv, (j + rank) % KEYS, n);
    for (int k = 0; k < KEYS; k++) {
      float *sum = add_up(k, n);
      for (int64_t i = 0; i < counts[k]; i++) {
        velocity[k][i] = 0.9f * velocity[k][i] + sum[i];
        value[k][i] -= optimizer.lr * velocity[k][i];
      }
      free(sum);
    }
  }
  for (int k = 0; k < KEYS; k++) {
    float *got = calloc((size_t)counts[k], sizeof *got);
    TRY(sl_kvstore_pull(kv, numbers[k], got));
    compare("momentum", got, value[k], counts[k], 0.02); /* of values up to 10,000 */
    h = hash(h, got, counts[k]);
    free(got), free(value[k]), free(velocity[k]);
  }
  return h;
}

static void run_sync(struct sl_kvstore *kv) {
  init_all(kv);
  check_sums(kv);
  TRY(sl_kvstore_barrier(kv));
  check_pushpull(kv);
  float one = 1, got;
  TRY(sl_kvstore_init(kv, 5, 1, &one)); /* keys may come late */
  TRY(sl_kvstore_pushpull(kv, 5, 1, (const float *[]){&one}, &got));
  if (got != (float)workers) wrong("a late key", 0, (double)got, workers);
  uint64_t h = check_momentum(kv);
  for (int n = 200; n < 230; n++) push(kv, 1, n); /* on their way when the store is closed */
  TRY(sl_kvstore_close(kv));
  printf("rank %d: done, bits %016llx\n", rank, (unsigned long long)h);
}

/* Adam's first steps move by its rate, whatever the gradient; pushes before it were sums. */
static void run_adam(struct sl_kvstore *kv) {
  float value = 1, before;
  TRY(sl_kvstore_init(kv, 3, 1, &value));
  for (int n = 0; n < 50; n++) TRY(sl_kvstore_push(kv, 3, 1, (const float *[]){&value}));
  TRY(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.kind = SL_ADAM, .lr = 0.01f}));
  TRY(sl_kvstore_pull(kv, 3, &before));
  for (int n = 1; n <= 3; n++) {
    TRY(sl_kvstore_pushpull(kv, 3, 1, (const float *[]){(float[]){2}}, &value));
    float want = before - 0.01f * (float)n;
    compare("Adam", &value, &want, 1, 1e-5);
  }
  TRY(sl_kvstore_close(kv));
  printf("rank %d: done\n", rank);
}

/* Each worker keeps the residual: over many pushes nothing is lost. Threshold 0.5, gradients
 * 0.3: the workers' sums of sent values are multiples of 0.5, close to 0.3 n. */
static void run_compressed(struct sl_kvstore *kv) {
  float value[70] = {0}, gradient[70];
  TRY(sl_kvstore_set_compression(kv, "2bit:0.5"));
  TRY(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.lr = 1}));
  TRY(sl_kvstore_init(kv, 3, 70, value));
  for (int i = 0; i < 70; i++) gradient[i] = -0.3f;
  for (int n = 1; n <= 20; n++) {
    TRY(sl_kvstore_pushpull(kv, 3, 1, (const float *[]){gradient}, value));
    double each = (double)value[0] / workers;
    if (each < 0.3 * n - 0.5 || each > 0.3 * n + 1e-5) wrong("compressed", n, each, 0.3 * n);
    for (int i = 1; i < 70; i++)
      if (value[i] != value[0]) wrong("compressed", i, (double)value[i], (double)value[0]);
  }
  TRY(sl_kvstore_close(kv));
  printf("rank %d: done\n", rank);
}

/* ---- dist_async: whole numbers, so that any order has the same sum ---- */

static void run_async(struct sl_kvstore *kv) {
  enum { MANY = 30000, LAST = 40 };
  static float value[MANY], ones[MANY];
  int total = 0, own = 10 + 7 * rank;
  for (int i = 0; i < MANY; i++) ones[i] = -1;
  for (int r = 0; r < workers; r++) total += 10 + 7 * r;
  TRY(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.lr = 1}));
  TRY(sl_kvstore_init(kv, 3, MANY, value));
  TRY(sl_kvstore_init(kv, 4, 1, value));
  int all = total + LAST * (workers - 1);
  float before = 0;
  for (int n = 0; n < own; n++) {
    TRY(sl_kvstore_push(kv, 3, 1, (const float *[]){ones}));
    if (n % 3 == 1) TRY(sl_kvstore_pull(kv, 3, value));
    TRY(sl_kvstore_pushpull(kv, 4, 1, (const float *[]){ones}, value));
    if (value[0] < (float)(n + 1) || value[0] <= before || value[0] > (float)total)
      wrong("own pushes are in it", n, (double)value[0], n + 1);
    before = value[0];
  }
  if (rank) /* many on their way when the others go on */
    for (int n = 0; n < LAST; n++) TRY(sl_kvstore_push(kv, 3, 1, (const float *[]){ones}));
  TRY(sl_kvstore_barrier(kv));
  TRY(sl_kvstore_pull(kv, 3, value));
  for (int i = 0; i < MANY; i++)
    if (value[i] != (float)all) wrong("all pushes", i, (double)value[i], all);
  TRY(sl_kvstore_pull(kv, 4, value));
  if (value[0] != (float)total) wrong("all pushes", 0, (double)value[0], total);
  TRY(sl_kvstore_close(kv));
  printf("rank %d: done\n", rank);
}

/* Value r is the number of rank r's pushes. Rank 0 is faster than the others; its k-th answer may
 * come only when every other worker has made at least k - most pushes, also when these have made
 * none since the barrier. */
static void run_stale(struct sl_kvstore *kv, int most) {
  enum { PUSHES = 25, SLOW_US = 5000, FIRST_US = 300000 };
  float value[64] = {0}, own[64] = {0};
  int ahead = 0;
  own[rank] = -1;
  TRY(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.lr = 1}));
  TRY(sl_kvstore_init(kv, 3, workers, value));
  TRY(sl_kvstore_barrier(kv));
  for (int n = 1; n <= PUSHES; n++) {
    if (rank) usleep(n == 1 ? FIRST_US : SLOW_US);
    TRY(sl_kvstore_pushpull(kv, 3, 1, (const float *[]){own}, value));
    if (value[rank] != (float)n) wrong("own pushes", n, (double)value[rank], n);
    for (int r = 0; r < workers; r++) {
      int before = n - (int)value[r];
      if (before > ahead) ahead = before;
      if (most && before > most) wrong("steps ahead", n, before, most);
    }
  }
  TRY(sl_kvstore_barrier(kv));
  TRY(sl_kvstore_close(kv));
  printf("rank %d: done, at most %d ahead\n", rank, ahead);
}

/* Rank 0 is done long before the others, which run ahead of it as far as they may: it must not
 * keep them in each of the collective calls. */
static void run_early(struct sl_kvstore *kv) {
  enum { PUSHES = 12 };
  float value = 0, one = -1, want = 0;
  struct sl_optimizer sgd = {.lr = 1};
  TRY(sl_kvstore_set_optimizer(kv, &sgd));
  TRY(sl_kvstore_init(kv, 3, 1, &value));
  for (int call = 0; call < 4; call++) {
    int own = rank ? PUSHES : 2;
    for (int n = 0; n < own; n++)
      TRY(sl_kvstore_pushpull(kv, 3, 1, (const float *[]){&one}, &value));
    want += 2 + (float)PUSHES * (float)(workers - 1);
    if (call == 0) TRY(sl_kvstore_init(kv, 4, 1, &value));
    if (call == 1) TRY(sl_kvstore_set_optimizer(kv, &sgd));
    if (call == 2 && sl_kvstore_set_compression(kv, "2bit") != SL_BAD_ARGUMENT)
      die("compression after a key", SL_OK);
    if (call == 2) TRY(sl_kvstore_barrier(kv));
    if (call == 2) TRY(sl_kvstore_pull(kv, 3, &value));
    if (call == 2 && value != want) wrong("all pushes", call, (double)value, (double)want);
    if (call == 2) TRY(sl_kvstore_barrier(kv)); /* before anybody's next push */
  }
  TRY(sl_kvstore_close(kv));
  printf("rank %d: done\n", rank);
}

/* ---- a store beside a training ---- */

static void train_beside(struct sl_kvstore *kv, enum sl_kvstore_kind kind) {
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_model *model;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool got = true;
  float value, one = -1;
  TRY(sl_dataset_open("digits", 1, true, &data));
  TRY(sl_loader_new(data, &(struct sl_loader_options){.batch = 16}, &loader));
  TRY(sl_model_new(context, &SL_SHAPE(1, 28, 28), &model));
  TRY(sl_dense(model, "fc", &(struct sl_dense_options){.features = 10}));
  TRY(sl_trainer_new(model, &(struct sl_optimizer){.lr = 0.05f}, NULL,
                     &(struct sl_trainer_options){.kvstore = kind}, &trainer));
  for (int n = 0; n < 10; n++) {
    TRY(sl_trainer_step(trainer, loader, &report, &got));
    TRY(sl_kvstore_pushpull(kv, 3, 1, (const float *[]){&one}, &value));
  }
  for (got = true; got;) TRY(sl_trainer_drain(trainer, &report, &got));
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

/* Waits for all tasks leave out the owners' receptions, which end when the store closes. */
static void run_beside(struct sl_kvstore *kv) {
  static const enum sl_kvstore_kind kinds[] = {SL_KVSTORE_LOCAL, SL_KVSTORE_DIST_SYNC,
                                               SL_KVSTORE_DIST_ASYNC};
  float value = 0;
  TRY(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.lr = 1}));
  TRY(sl_kvstore_init(kv, 3, 1, &value));
  TRY(sl_wait(context));
  for (int k = 0; k < (sl_rank_count(context) > workers ? 1 : 3); k++) {
    train_beside(kv, kinds[k]);
    TRY(sl_kvstore_barrier(kv));
    TRY(sl_kvstore_pull(kv, 3, &value));
    float want = (float)(10 * workers * (k + 1));
    if (value != want) wrong("beside a training", k, (double)value, (double)want);
    TRY(sl_kvstore_barrier(kv));
    TRY(sl_wait(context));
  }
  TRY(sl_kvstore_close(kv));
  TRY(sl_wait(context));
  printf("rank %d: done\n", rank);
}

/* Two stores at a time, each with its optimizer and keys; a server serves one, then the other. */
static void run_two(struct sl_kvstore *kv, enum sl_kvstore_kind kind,
                    const struct sl_kvstore_options *options) {
  struct sl_kvstore *store[2] = {kv};
  float value = 1, one = 1;
  TRY(sl_kvstore_open(context, kind, options, &store[1]));
  for (int i = 0; i < 2 && sl_kvstore_is_worker(kv); i++) {
    TRY(sl_kvstore_set_optimizer(store[i], &(struct sl_optimizer){.lr = i ? 2 : 1}));
    TRY(sl_kvstore_init(store[i], 3, 1, &value));
  }
  for (int n = 1; n <= 6 && sl_kvstore_is_worker(kv); n++) {
    float want = 1 - (float)(workers * ((n + 1) / 2) * (n % 2 ? 1 : 2));
    TRY(sl_kvstore_push(store[(n - 1) % 2], 3, 1, (const float *[]){&one}));
    TRY(sl_kvstore_barrier(store[(n - 1) % 2]));
    TRY(sl_kvstore_pull(store[(n - 1) % 2], 3, &value));
    if (value != want) wrong("of two stores", n, (double)value, (double)want);
    TRY(sl_kvstore_barrier(store[n % 2]));
  }
  if (sl_kvstore_is_worker(kv)) { /* no harm is done by this */
    enum sl_status status = sl_kvstore_barrier(store[rank != 0]);
    printf("rank %d: mixed: %s: %s\n", rank, sl_status_name(status), sl_error());
  } else {
    TRY(sl_kvstore_serve(store[0]));
    TRY(sl_kvstore_serve(store[1]));
  }
  for (int i = 1; i >= 0; i--) TRY(sl_kvstore_close(store[i]));
  printf("rank %d: done\n", rank);
}

/* ---- faults: each rank prints its error ---- */

static void tell(const char *what, enum sl_status status) {
  printf("rank %d: %s: %s: %s\n", rank, what, sl_status_name(status),
         status == SL_OK ? "" : sl_error());
  fflush(stdout);
}

static void push_some(struct sl_kvstore *kv) {
  float value[2] = {0};
  TRY(sl_kvstore_init(kv, 3, 2, value));
  for (int n = 0; n < 5 - rank % 2; n++) TRY(sl_kvstore_push(kv, 3, 1, (const float *[]){value}));
}

static void run_fault(struct sl_kvstore *kv, const char *what) {
  float value[2] = {0}, many[20] = {0};
  if (!strcmp(what, "pull")) { /* rank 1 never pushes */
    TRY(sl_kvstore_init(kv, 3, 2, value));
    if (rank != 1) TRY(sl_kvstore_push(kv, 3, 1, (const float *[]){value}));
    if (rank == 1) sleep(16);
    tell(what, rank != 1 ? sl_kvstore_pull(kv, 3, value) : sl_kvstore_barrier(kv));
  } else if (!strcmp(what, "barrier")) {
    push_some(kv);
    tell(what, sl_kvstore_barrier(kv));
    tell("pull", sl_kvstore_pull(kv, 3, value));
  } else if (!strcmp(what, "close")) {
    push_some(kv);
    tell(what, sl_kvstore_close(kv));
    kv = NULL;
  } else if (!strcmp(what, "init")) { /* no harm is done: the right one succeeds then */
    tell("call", rank ? sl_kvstore_barrier(kv) : sl_kvstore_init(kv, 3, 2, value));
    tell(what, sl_kvstore_init(kv, 3, 10 + rank, many));
    TRY(sl_kvstore_init(kv, 3, 2, value));
    tell("twice", sl_kvstore_init(kv, 3, 2, value));
    TRY(sl_kvstore_pushpull(kv, 3, 1, (const float *[]){value}, value));
    TRY(sl_kvstore_close(kv));
    return;
  } else if (!strcmp(what, "digits")) {
    float lr = rank ? 0.10000001f : 0.1f;
    tell("optimizer", sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.lr = lr}));
    tell("compression", sl_kvstore_set_compression(kv, rank ? "2bit:0.5000001" : "2bit:0.5"));
    TRY(sl_kvstore_close(kv));
    return;
  } else if (!strcmp(what, "apart")) { /* the ranks make different calls, and nothing is pushed */
    struct sl_kvstore *second;
    if (rank)
      tell("barrier", sl_kvstore_barrier(kv));
    else
      tell("open", sl_kvstore_open(context, SL_KVSTORE_DIST_SYNC, NULL, &second));
  } else { /* no push for longer than the timeout: no fault */
    TRY(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.lr = 1}));
    TRY(sl_kvstore_init(kv, 3, 2, value));
    sleep(4);
    TRY(sl_kvstore_pushpull(kv, 3, 1, (const float *[]){value}, value));
    TRY(sl_kvstore_close(kv));
    printf("rank %d: done\n", rank);
    return;
  }
  sl_kvstore_close(kv);
  sleep(1); /* MPI ends all as soon as one goes like this */
}

/* Bad options on one rank are the failure of all; then good ones give a store. */
static void open_badly(enum sl_kvstore_kind kind, struct sl_kvstore_options options) {
  struct sl_kvstore *kv;
  for (int bad = 0; bad < 2; bad++) {
    options.bigarray_bound = rank == bad ? -1 : 200;
    tell("open", sl_kvstore_open(context, kind, &options, &kv));
  }
}

static void serve(struct sl_kvstore *kv) {
  enum sl_status status = sl_kvstore_serve(kv);
  tell("serve", status);
  if (status != SL_OK) sl_leave(context, sl_error());
  TRY(sl_kvstore_close(kv));
  if (status != SL_OK) sleep(1);
}

int main(int argc, char **argv) {
  enum sl_kvstore_kind kind;
  struct sl_kvstore *kv;
  if (argc < 4) return 2;
  const char *what = argv[1];
  struct sl_kvstore_options options = {.servers = atoi(argv[3]),
                                       .bigarray_bound = 200,
                                       .max_staleness = argc > 4 ? atoi(argv[4]) : 0};
  /* pull: the owner is to be the first to give up, half a timeout ahead, on a busy machine, too */
  bool hangs = !strcmp(what, "early") || !strcmp(what, "beside"); /* where there is a fault */
  double timeout = !strcmp(what, "pull")    ? 6
                   : !strcmp(what, "apart") ? 4
                   : !strcmp(what, "idle")  ? 2
                   : hangs                  ? 10
                                            : 30;
  TRY(sl_kvstore_parse(argv[2], &kind));
  TRY(sl_open(&(struct sl_context_options){.distributed = true, .timeout = timeout}, &context));
  rank = sl_rank(context);
  if (!strcmp(what, "badopen")) open_badly(kind, options);
  TRY(sl_kvstore_open(context, kind, &options, &kv));
  workers = sl_kvstore_num_workers(kv);
  if (!strcmp(what, "two")) {
    run_two(kv, kind, &options);
  } else if (!sl_kvstore_is_worker(kv)) {
    serve(kv);
  } else if (!strcmp(what, "sync") || !strcmp(what, "badopen")) {
    run_sync(kv);
  } else if (!strcmp(what, "adam")) {
    run_adam(kv);
  } else if (!strcmp(what, "compressed")) {
    run_compressed(kv);
  } else if (!strcmp(what, "async")) {
    run_async(kv);
  } else if (!strcmp(what, "beside")) {
    run_beside(kv);
  } else if (!strcmp(what, "early")) {
    run_early(kv);
  } else if (!strcmp(what, "stale")) {
    run_stale(kv, options.max_staleness);
  } else {
    run_fault(kv, what);
  }
  fflush(stdout);
  sl_close(context);
  return 0;
}
