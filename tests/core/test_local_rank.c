/* Which GPUs of its machine a rank uses: the division, and what launchers and users say in the
 * environment. */
#include "core/net/local_rank.h"
#include "tests/common/harness.h"

static const char *const variables[] = {"OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS",
                                        "PMI_LOCAL_RANK",
                                        "PMI_LOCAL_SIZE",
                                        "MV2_COMM_WORLD_LOCAL_RANK",
                                        "MV2_COMM_WORLD_LOCAL_SIZE",
                                        "SLURM_LOCALID",
                                        "SLURM_NODEID",
                                        "SLURM_STEP_TASKS_PER_NODE",
                                        "SLURM_GPUS_PER_TASK",
                                        "CUDA_VISIBLE_DEVICES",
                                        "STARPU_NCUDA",
                                        "STARPU_WORKERS_CUDAID"};

/* Nobody has said anything. */
static int clear(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
  return 0;
}

static void set(const char *name, const char *value) { setenv(name, value, 1); }

/* Ranks have runs of GPUs one after the other, as long as each other's within one. */
static void gpus_are_divided(void **state) {
  (void)state;
  for (int size = 1; size <= 9; size++)
    for (int visible = size; visible <= 17; visible++) {
      int next = 0;
      for (int rank = 0; rank < size; rank++) {
        struct sl__gpu_range gpus;
        assert_true(sl__gpu_range_of(&(struct sl__local_rank){rank, size}, visible, &gpus));
        assert_int_equal(gpus.first, next);
        assert_true(gpus.count == visible / size || gpus.count == visible / size + 1);
        next += gpus.count;
      }
      assert_int_equal(next, visible);
    }
}

static void fewer_gpus_than_ranks(void **state) {
  (void)state;
  struct sl__gpu_range gpus;
  assert_true(sl__gpu_range_of(&(struct sl__local_rank){1, 3}, 2, &gpus));
  assert_int_equal(gpus.first, 1);
  assert_int_equal(gpus.count, 1);
  assert_false(sl__gpu_range_of(&(struct sl__local_rank){2, 3}, 2, &gpus));
  assert_int_equal(gpus.count, 0);
}

static void slurm_lists(void **state) {
  (void)state;
  assert_int_equal(sl__slurm_tasks("4", 0), 4);
  assert_int_equal(sl__slurm_tasks("4", 1), 0);
  assert_int_equal(sl__slurm_tasks("4(x2),3", 1), 4);
  assert_int_equal(sl__slurm_tasks("4(x2),3", 2), 3);
  assert_int_equal(sl__slurm_tasks("1,2(x3),8", 3), 2);
  assert_int_equal(sl__slurm_tasks("1,2(x3),8", 4), 8);
  static const char *const damaged[] = {"", ",", "x", "4(x", "4(x2", "4(x2,3", "4x2", "4,", "-1"};
  for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++)
    assert_int_equal(sl__slurm_tasks(damaged[i], 5), 0);
}

static void launchers_are_read(void **state) {
  static const struct {
    const char *rank, *size;
  } launchers[] = {{"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                   {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
                   {"PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"},
                   {"MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
                   {"SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"}};
  assert_int_equal(sl__local_rank().size, 0);
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    clear(state);
    set("SLURM_NODEID", "0");
    set(launchers[i].rank, "2");
    assert_int_equal(sl__local_rank().size, 0);
    set(launchers[i].size, "4");
    assert_int_equal(sl__local_rank().rank, 2);
    assert_int_equal(sl__local_rank().size, 4);
    set(launchers[i].rank, "4");
    assert_int_equal(sl__local_rank().size, 0);
    set(launchers[i].rank, "two");
    assert_int_equal(sl__local_rank().size, 0);
  }
}

/* The range, of which the user, the launcher and the number of GPUs may decide. */
static void assert_gpus(int visible, bool needed, int first, int count) {
  struct sl__gpu_range gpus;
  OK(sl__local_gpus(visible, needed, &gpus));
  if (gpus.first != first || gpus.count != count)
    fail_msg("of %d GPUs: %d from %d on; expected %d from %d on", visible, gpus.count, gpus.first,
             count, first);
}

static void ranks_get_gpus(void **state) {
  (void)state;
  struct sl__gpu_range gpus;
  assert_gpus(8, true, 0, -1);
  set("OMPI_COMM_WORLD_LOCAL_RANK", "2");
  set("OMPI_COMM_WORLD_LOCAL_SIZE", "3");
  assert_gpus(8, true, 5, 3);
  assert_gpus(8, false, 5, 3);
  assert_gpus(0, true, 0, -1); /* CUDA says why */
  assert_gpus(2, false, 0, -1);
  FAILS(sl__local_gpus(2, true, &gpus), SL_NO_DEVICE, "rank 2 of the 3 ranks");
  assert_int_equal(gpus.count, 0);
  set("OMPI_COMM_WORLD_LOCAL_RANK", "1");
  assert_gpus(2, true, 1, 1);
}

static void a_choice_is_kept(void **state) {
  static const char *const choices[] = {"STARPU_NCUDA", "STARPU_WORKERS_CUDAID"};
  for (int i = 0; i < 2; i++) {
    clear(state);
    set("PMI_LOCAL_RANK", "1");
    set("PMI_LOCAL_SIZE", "2");
    set(choices[i], "0");
    assert_gpus(1, true, 0, -1);
    assert_gpus(8, true, 0, -1);
  }
}

/* Slurm shows all of a job's GPUs to all its ranks, or to each rank its own. */
static void own_gpus(void **state) {
  (void)state;
  struct sl__gpu_range gpus;
  set("SLURM_LOCALID", "1");
  set("SLURM_NODEID", "1");
  set("SLURM_STEP_TASKS_PER_NODE", "1,2");
  FAILS(sl__local_gpus(1, true, &gpus), SL_NO_DEVICE, "needs GPU 1");
  set("CUDA_VISIBLE_DEVICES", "0");
  assert_gpus(1, true, 0, -1);
  set("CUDA_VISIBLE_DEVICES", "0,1");
  assert_gpus(2, true, 1, 1);
  set("SLURM_GPUS_PER_TASK", "a100:2");
  assert_gpus(2, true, 0, -1);
  assert_gpus(4, true, 2, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpus_are_divided),
                                     cmocka_unit_test(fewer_gpus_than_ranks),
                                     cmocka_unit_test(slurm_lists),
                                     cmocka_unit_test_setup(launchers_are_read, clear),
                                     cmocka_unit_test_setup(ranks_get_gpus, clear),
                                     cmocka_unit_test_setup(a_choice_is_kept, clear),
                                     cmocka_unit_test_setup(own_gpus, clear)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
