/* Placement and pipelines. References: the unplaced model with the same replicas and microbatches
 * (bits), the serial run (1e-5), StarPU's count of tasks per worker (where they really ran), brute
 * force (the partition). */
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codelets/codelets.h"
#include "parallel/step/grid.h"
#include "parallel/params/model_shards.h"
#include "tests/common/training.h"

#define LAYERS 9
#define STEPS 50

static int open_seeded(void **state) {
  (void)state;
  return open_context_with(&(struct sl_context_options){.seed = 7});
}

/* conv, pool, then fc0 to fc6, of which fc1 to fc3 are the group "middle"; the last is fc6. */
static struct sl_model *deep(void) {
  struct sl_model *m;
  OK(sl_model_new(context, &SL_SHAPE(1, 28, 28), &m));
  OK(sl_conv2d(m, "conv", &(struct sl_conv2d_options){.channels = 4, .kernel_h = 5}));
  OK(sl_maxpool2d(m, "pool", &(struct sl_pool2d_options){.kernel_h = 4}));
  for (int i = 0; i < 7; i++) {
    char name[16];
    snprintf(name, sizeof name, "fc%d", i);
    OK(sl_dense(m, name,
                &(struct sl_dense_options){
                    .layer.group = i >= 1 && i <= 3 ? "middle" : NULL,
                    .layer.init = SL_INIT_XAVIER,
                    .features = i == 6 ? 10 : 20,
                    .activation = i == 6 ? SL_ACTIVATION_NONE : SL_ACTIVATION_TANH}));
  }
  return m;
}

struct run {
  struct sl_trainer_options options;
  const char *placement;
  double loss[STEPS];
  float weights[20000];
  int64_t count;
};

static void train(struct run *run) {
  struct sl_model *m = deep();
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  if (run->placement) OK(sl_place(m, run->placement));
  OK(sl_digits_new(300, 3, true, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 26, .shuffle = true}, &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){.lr = 0.1f, .momentum = 0.5f}, NULL, &run->options,
                    &trainer));
  take_steps(trainer, loader, STEPS, run->loss);
  sl_trainer_free(trainer);
  run->count = read_weights(m, run->weights, 20000);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

static void assert_same(const struct run *a, const struct run *b, const char *what) {
  assert_int_equal(a->count, b->count);
  if (memcmp(a->weights, b->weights, (size_t)a->count * sizeof *a->weights))
    fail_msg("%s: the weights differ", what);
}

/* 1, 2, 4 and 8 stages, with 1 to 3 replicas: the unplaced model's bits, the serial curve. */
static void any_grid_gives_the_unplaced_bits(void **state) {
  (void)state;
  static const int stages[] = {1, 2, 4, 8};
  static struct run serial, flat, staged;
  serial = (struct run){.options = {.replicas = 1}};
  train(&serial);
  assert_true(serial.loss[STEPS - 1] < 0.8 * serial.loss[0]);
  for (int replicas = 1; replicas <= 3; replicas++) {
    flat = (struct run){.options = {.replicas = replicas, .microbatches = 4}};
    train(&flat);
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
      staged = (struct run){.options = flat.options};
      staged.options.stages = stages[i];
      staged.options.kvstore = i % 2 ? SL_KVSTORE_DEVICE : SL_KVSTORE_LOCAL;
      staged.options.in_flight = 1 + (int)i % 3; /* the loader has four slots */
      train(&staged);
      assert_same(&flat, &staged, "stages");
      for (int s = 0; s < STEPS; s++)
        if (fabs(staged.loss[s] - serial.loss[s]) > 1e-5 * serial.loss[s])
          fail_msg("%d stages x %d replicas, step %d: loss %.9g, serial %.9g", stages[i], replicas,
                   s, staged.loss[s], serial.loss[s]);
    }
  }
}

/* ---- where tasks run ------------------------------------------------------------------------ */

static void forget_counts(void) {
#define SL__OP(name, modes, where)                                                                 \
  memset(sl__op_##name.codelet.per_worker_stats, 0, sizeof sl__op_##name.codelet.per_worker_stats);
#include "codelets/ops.def"
#undef SL__OP
}

/* All of the operation's tasks ran on this CPU worker, and there were some. */
static void assert_ran_on(const struct sl__op *op, int cpu) {
  int here = starpu_worker_get_by_type(STARPU_CPU_WORKER, cpu);
  for (int w = 0; w < (int)starpu_worker_get_count(); w++) {
    unsigned long tasks = op->codelet.per_worker_stats[w];
    if (w == here ? !tasks : tasks)
      fail_msg("%s: %lu tasks on worker %d, but it is placed on cpu:%d", op->codelet.name, tasks, w,
               cpu);
  }
}

static void placement_is_honoured(void **state) {
  (void)state;
  static struct run flat, run;
  if (starpu_cpu_worker_get_count() < 2) {
    print_message("one CPU worker only: skipped\n");
    skip();
  }
  flat = (struct run){.options = {.replicas = 1, .microbatches = 3}};
  train(&flat);
  for (int conv = 0; conv < 2; conv++) {
    run = (struct run){
        .options = {.replicas = 1,
                    .microbatches = 3,
                    .kvstore = SL_KVSTORE_DEVICE,
                    .eager = true}, /* a task for each call, so that counts tell */
        .placement = conv ? "conv,pool=cpu:1; fc0, middle, fc4-6 = cpu:0"
                          : "fc0,fc4-5,middle,fc6=cpu:1\nconv=cpu:0 # the rest\npool=cpu:0;"};
    forget_counts();
    train(&run);
    assert_ran_on(&sl__op_conv2d_forward, conv);
    assert_ran_on(&sl__op_conv2d_backward_weight, conv);
    assert_ran_on(&sl__op_maxpool2d_forward, conv);
    assert_ran_on(&sl__op_maxpool2d_backward, conv);
    assert_ran_on(&sl__op_dense_forward, !conv);
    assert_ran_on(&sl__op_dense_backward_data, !conv);
    assert_ran_on(&sl__op_dense_backward_weight, !conv);
    assert_ran_on(&sl__op_softmax_xent_gradient, !conv);
    assert_same(&flat, &run, "placed");
  }
}

/* Where all layers are pinned to one device, the KVStore `device` owns the shards there, too. */
static void owners_follow_their_layers(void **state) {
  (void)state;
  static struct run run;
  if (starpu_cpu_worker_get_count() < 2) skip();
  for (int cpu = 0; cpu < 2; cpu++) {
    char text[64];
    snprintf(text, sizeof text, "conv,pool,fc0-6=cpu:%d", cpu);
    run = (struct run){.options = {.replicas = 2, .kvstore = SL_KVSTORE_DEVICE, .eager = true},
                       .placement = text};
    forget_counts();
    train(&run);
    assert_ran_on(&sl__op_sgd_momentum, cpu);
    assert_ran_on(&sl__op_dense_forward, cpu);
  }
}

/* Layers on a device that is none of the list's: no owner is theirs, so all of the list share them.
 */
static void strangers_are_shared_by_all_owners(void **state) {
  (void)state;
  struct sl_context *two;
  struct sl_model *m;
  struct sl__grid grid;
  struct sl__model_shards *kv;
  if (starpu_cpu_worker_get_count() < 3) skip();
  OK(sl_open(&(struct sl_context_options){.devices = "cpu:0,cpu:1"}, &two));
  OK(sl_model_new(two, &SL_SHAPE(8), &m));
  OK(sl_dense(m, "a", &(struct sl_dense_options){.features = 8}));
  OK(sl_dense(m, "b", &(struct sl_dense_options){.features = 8}));
  OK(sl_place(m, "a,b=cpu:2"));
  OK(sl_model_build(m));
  OK(sl__grid_new(m, &(struct sl_trainer_options){0}, &grid));
  struct sl_optimizer sgd = {.lr = 1};
  struct sl__model_shards_options options = {.kind = SL_KVSTORE_DEVICE, .big_shard = 1000};
  OK(sl__model_shards_new(m, &sgd, &options, &grid, &kv));
  assert_int_equal(kv->owners.count, 2);
  assert_int_equal(sl__model_shards_bytes(kv, 0), sl__model_shards_bytes(kv, 1));
  sl__model_shards_free(kv);
  sl__grid_clear(&grid);
  sl_model_free(m);
  sl_close(two);
}

/* Several devices in a rule are the replicas': their number follows from the rule. */
static void replicas_have_their_devices(void **state) {
  (void)state;
  struct sl_model *m = deep();
  struct sl__grid grid;
  OK(sl_place(m, "conv,pool=cpu:0,cpu;fc0-6=any"));
  OK(sl__grid_new(m, &(struct sl_trainer_options){0}, &grid));
  assert_int_equal(grid.replicas, 2);
  assert_int_equal(grid.stages, 2);
  assert_string_equal(sl__grid_device(&grid, 0, 0)->name, "cpu:0");
  assert_string_equal(sl__grid_device(&grid, 1, 1)->name, "cpu");
  assert_string_equal(sl__grid_device(&grid, 8, 1)->name, "any");
  sl__grid_clear(&grid);
  sl_model_free(m);
}

/* Over ranks: only this one's devices are looked for; one process alone cannot train it. */
static void ranks_are_told_apart(void **state) {
  (void)state;
  struct sl_model *m = deep();
  struct sl_trainer *trainer;
  struct sl__placement p;
  assert_int_equal(sl_placement_ranks(m), 1);
  OK(sl_place(m, "conv,pool=rank0/cpu:0,rank0/cpu; fc0-6 = rank1/cuda:7, rank1/whatever"));
  assert_int_equal(sl_placement_ranks(m), 2);
  OK(sl__placement_parse(m, m->placement, &p));
  assert_int_equal(p.ranks, 2);
  assert_int_equal(p.rank[0], 0);
  assert_int_equal(p.rank[1], 1);
  assert_int_equal(p.device_count[1], 2);
  assert_string_equal(p.devices[0][0].name, "cpu:0");
  assert_string_equal(p.devices[1][1].name, "whatever");
  sl__placement_clear(&p);
  assert_int_equal(sl_trainer_new(m, &(struct sl_optimizer){.lr = 1}, NULL,
                                  &(struct sl_trainer_options){0}, &trainer),
                   SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "over 2 ranks"));
  OK(sl_place(m, "conv,pool,fc0-6=rank0/cpu"));
  assert_int_equal(sl_placement_ranks(m), 1);
  for (int i = 1;; i++) {
    sl__alloc_fail_after(i);
    enum sl_status status = sl_place(m, "conv,pool=rank0/cpu;fc0-6=rank1/cpu,rank1/cpu:1");
    sl__alloc_fail_after(0);
    if (status == SL_OK) break;
    assert_int_equal(status, SL_NO_MEMORY);
    assert_int_equal(sl_placement_ranks(m), 1);
  }
  sl_model_free(m);
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void bad_placements_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *word;
    enum sl_status status;
  } cases[] = {{"", "no rule places conv, pool", SL_BAD_ARGUMENT},
               {"conv,pool,fc0-5=cpu", "no rule places fc6", SL_BAD_ARGUMENT},
               {"conv,pool,fc0-6=cpu;fc3=any", "fc3 is placed twice", SL_BAD_ARGUMENT},
               {"conv,pool,fc0,middle,fc3-6=cpu", "fc3 is placed twice", SL_BAD_ARGUMENT},
               {"conv,pool,fc0-7=cpu", "no layer or group 'fc7'", SL_BAD_ARGUMENT},
               {"conv,pool,fc6-0=cpu", "runs backwards", SL_BAD_ARGUMENT},
               {"conv,pool,fc0-=cpu", "no layer or group 'fc0-'", SL_BAD_ARGUMENT},
               {"conv,pool,-3=cpu", "no layer or group '-3'", SL_BAD_ARGUMENT},
               {"conv,pool,fc0-9999999999999999999=cpu", "no layer or group", SL_BAD_ARGUMENT},
               {"conv,lstm,fc0-6=cpu", "the layers are conv, pool, fc0", SL_BAD_ARGUMENT},
               {"conv,,pool,fc0-6=cpu", "name is empty", SL_BAD_ARGUMENT},
               {"conv,pool,fc0-6", "is no rule", SL_BAD_ARGUMENT},
               {"conv=cpu=pool,fc0-6", "is no rule", SL_BAD_ARGUMENT},
               {"conv,pool,fc0-6=", "unknown device ''", SL_BAD_ARGUMENT},
               {"conv,pool,fc0-6=cpu,", "unknown device ''", SL_BAD_ARGUMENT},
               {"conv,pool,fc0-6=gpu7", "unknown device 'gpu7'", SL_BAD_ARGUMENT},
               {"conv,pool,fc0-6=cpu:4000", "cpu:4000", SL_NO_DEVICE},
               {"conv,pool=cpu:0;fc0-6=cuda:99", "cuda:99", SL_NO_DEVICE},
               {"conv,pool=rank0/cpu;fc0-6=rank2/cpu", "rank 1 has no layer", SL_BAD_ARGUMENT},
               {"conv,pool,fc0-6=rank1/cpu", "rank 0 has no layer", SL_BAD_ARGUMENT},
               {"conv,pool=cpu;fc0-6=rank1/cpu", "rule 1 names no rank", SL_BAD_ARGUMENT},
               {"conv,pool=rank0/cpu;fc0-6=rank1/cpu,cpu:1", "write rank1/cpu:1", SL_BAD_ARGUMENT},
               {"conv,pool=rank0/cpu;fc0-6=rank1/cpu,rank0/any", "be of one rank", SL_BAD_ARGUMENT},
               {"conv,pool=rank0/cpu,rank0/gpu7;fc0-6=rank1/cpu", "'gpu7'", SL_BAD_ARGUMENT},
               {"conv,pool,fc0-6=rank/cpu", "unknown device 'rank/cpu'", SL_BAD_ARGUMENT},
               {"conv,pool,fc0-6=rank999999/cpu", "unknown device 'rank99", SL_BAD_ARGUMENT}};
  struct sl_model *m = deep();
  OK(sl_place(m, "conv,pool,fc0-6=cpu"));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(sl_place(m, cases[i].text), cases[i].status);
    if (!strstr(sl_error(), cases[i].word))
      fail_msg("'%s': '%s' does not say '%s'", cases[i].text, sl_error(), cases[i].word);
    assert_string_equal(m->placement, "conv,pool,fc0-6=cpu"); /* the one before stays */
  }
  struct sl__grid grid;
  assert_int_equal(sl__grid_new(m, &(struct sl_trainer_options){.stages = 2}, &grid),
                   SL_BAD_ARGUMENT);
  OK(sl_dense(m, "late", &(struct sl_dense_options){.features = 3}));
  assert_int_equal(sl__grid_new(m, &(struct sl_trainer_options){0}, &grid), SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "no rule places late"));
  sl_model_free(m);
}

/* Nobody wrote the layers of a model's fields. */
static void fields_run_beside_their_neighbours(void **state) {
  (void)state;
  const struct sl_row_field inputs[] = {{.name = "x", .shape = SL_SHAPE(4)},
                                        {.name = "y", .shape = SL_SHAPE(3)}};
  struct sl_model *m;
  OK(sl_model_new_fields(context, inputs, 2, &m));
  OK(sl_dense(m, "a", &(struct sl_dense_options){.layer.inputs = "x", .features = 2}));
  OK(sl_dense(m, "b", &(struct sl_dense_options){.layer.inputs = "y", .features = 2}));
  OK(sl_dense(m, "c", &(struct sl_dense_options){.layer.inputs = "x", .features = 2}));
  OK(sl_outputs(m, "c,b,a"));
  const struct {
    const char *text;
    int stage[6]; /* of x, y, a, b, c, outputs */
  } cases[] = {{"a=cpu;b=cpu;c=cpu", {0, 1, 0, 1, 2, 2}},
               {"c=cpu;a,b=cpu", {1, 1, 1, 1, 0, 0}},
               {"x,outputs=cpu;a=cpu;b,c=cpu", {0, 2, 1, 2, 2, 0}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sl__placement p;
    OK(sl__placement_parse(m, cases[i].text, &p));
    for (int k = 0; k < 6; k++) assert_int_equal(p.stage[k], cases[i].stage[k]);
    sl__placement_clear(&p);
  }
  assert_int_equal(sl_place(m, "a,b=cpu"), SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "no rule places c"));
  sl_model_free(m);
}

/* The trainer has its plans already. */
static void a_model_in_use_stays_where_it_is(void **state) {
  (void)state;
  struct sl_model *m = deep();
  struct sl_trainer *trainer;
  OK(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL, NULL, &trainer));
  FAILS(sl_place(m, "conv,pool,fc0-6=cpu"), SL_BAD_ARGUMENT, "a trainer uses the model");
  assert_null(sl_placement(m));
  sl_trainer_free(trainer);
  OK(sl_place(m, "conv,pool,fc0-6=cpu"));
  sl_model_free(m);
}

static void bad_stages_are_refused(void **state) {
  (void)state;
  struct sl_model *m = deep();
  struct sl_trainer *trainer;
  static const int bad[] = {-1, LAYERS + 1, 1 << 30};
  for (int i = 0; i < 3; i++) {
    struct sl_trainer_options options = {.stages = bad[i]};
    assert_int_equal(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL, &options, &trainer),
                     SL_BAD_ARGUMENT);
    assert_null(trainer);
  }
  sl_model_free(m);
}

static void files_are_read(void **state) {
  (void)state;
  char path[] = "/tmp/sl-placement-XXXXXX";
  int fd = mkstemp(path);
  static const char good[] = "# two stages\nconv,pool = cpu:0\n\nfc0-6 = cpu\n", bad[] = "a\0b=cpu";
  struct sl_model *m = deep();
  assert_int_equal(write(fd, good, sizeof good - 1), sizeof good - 1);
  OK(sl_place_file(m, path));
  assert_int_equal(ftruncate(fd, 0), 0);
  assert_int_equal(pwrite(fd, bad, sizeof bad, 0), sizeof bad);
  assert_int_equal(sl_place_file(m, path), SL_BAD_FILE);
  assert_int_equal(ftruncate(fd, 0), 0);
  assert_int_equal(sl_place_file(m, path), SL_BAD_ARGUMENT);
  close(fd);
  unlink(path);
  assert_int_equal(sl_place_file(m, path), SL_IO);
  assert_non_null(strstr(sl_error(), path));
  sl_model_free(m);
}

/* ---- the partition -------------------------------------------------------------------------- */

/* The least dearest run over all ways to cut cost[0..n) into parts runs. */
static double brute_force(int n, const double *cost, int parts) {
  double least = INFINITY, sum = 0;
  if (parts == 1) {
    for (int i = 0; i < n; i++) sum += cost[i];
    return sum;
  }
  for (int k = 1; k <= n - parts + 1; k++) {
    sum += cost[k - 1];
    double rest = brute_force(n - k, cost + k, parts - 1);
    double dearest = sum > rest ? sum : rest;
    if (dearest < least) least = dearest;
  }
  return least;
}

static void partitions_are_the_best(void **state) {
  (void)state;
  double cost[11];
  int first[12];
  srand(5);
  for (int round = 0; round < 300; round++) {
    int n = 1 + rand() % 11, parts = 1 + rand() % n;
    for (int i = 0; i < n; i++) cost[i] = rand() % 5 ? rand() % 100 : 0;
    OK(sl__partition(n, cost, parts, first));
    double dearest = 0;
    first[parts] = n;
    assert_int_equal(first[0], 0);
    for (int p = 0; p < parts; p++) {
      double sum = 0;
      assert_true(first[p] < first[p + 1]);
      for (int i = first[p]; i < first[p + 1]; i++) sum += cost[i];
      if (sum > dearest) dearest = sum;
    }
    assert_true(dearest == brute_force(n, cost, parts));
  }
}

/* In a process of its own: StarPU reads the limit when it starts. */
static int train_in_little_memory(void) {
  struct sl_context *small;
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_model *m;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  setenv("STARPU_LIMIT_CPU_MEM", "8", 1);
  if (sl_open(NULL, &small) != SL_OK) return 2;
  if (sl_model_new(small, &SL_SHAPE(1, 28, 28), &m) != SL_OK ||
      sl_dense(m, "wide", &(struct sl_dense_options){.features = 4000}) != SL_OK ||
      sl_dense(m, "out", &(struct sl_dense_options){.features = 10}) != SL_OK ||
      sl_place(m, "wide=cpu:0;out=cpu:0") != SL_OK || sl_digits_new(64, 1, true, &data) != SL_OK ||
      sl_loader_new(data, &(struct sl_loader_options){.batch = 16}, &loader) != SL_OK ||
      sl_trainer_new(m, &(struct sl_optimizer){0}, NULL, NULL, &trainer) != SL_OK)
    return 3;
  enum sl_status status = sl_trainer_step(trainer, loader, &report, &reported);
  fprintf(stderr, "%s\n", sl_error());
  bool told = status == SL_NO_MEMORY && strstr(sl_error(), "cpu:0") && strstr(sl_error(), "8.4 MB");
  sl_trainer_free(trainer);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
  sl_close(small);
  return told ? 0 : 4;
}

static void what_cannot_fit_is_refused(void **state) {
  (void)state;
  int result;
  pid_t child = fork();
  assert_true(child >= 0);
  if (!child) {
    setenv("SL_TEST_LITTLE", "1", 1);
    execl("/proc/self/exe", "test_placement", (char *)NULL);
    _exit(1);
  }
  assert_int_equal(waitpid(child, &result, 0), child);
  assert_true(WIFEXITED(result));
  assert_int_equal(WEXITSTATUS(result), 0);
}

int main(void) {
  if (getenv("SL_TEST_LITTLE")) return train_in_little_memory();
  setenv("STARPU_NCPU", "4", 0);
  setenv("STARPU_WORKERS_NOBIND", "1", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(any_grid_gives_the_unplaced_bits),
                                     cmocka_unit_test(placement_is_honoured),
                                     cmocka_unit_test(owners_follow_their_layers),
                                     cmocka_unit_test(strangers_are_shared_by_all_owners),
                                     cmocka_unit_test(replicas_have_their_devices),
                                     cmocka_unit_test(ranks_are_told_apart),
                                     cmocka_unit_test(bad_placements_are_refused),
                                     cmocka_unit_test(fields_run_beside_their_neighbours),
                                     cmocka_unit_test(a_model_in_use_stays_where_it_is),
                                     cmocka_unit_test(bad_stages_are_refused),
                                     cmocka_unit_test(files_are_read),
                                     cmocka_unit_test(what_cannot_fit_is_refused),
                                     cmocka_unit_test(partitions_are_the_best)};
  return cmocka_run_group_tests_name("placement", tests, open_seeded, close_context);
}
