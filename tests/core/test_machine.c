/* Limits of control groups, of version 1 and 2, from folders that stand for /proc and /sys; small
 * limits of stack and address space. */
#include <math.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "core/base/machine.h"
#include "tests/common/files.h"

/* Writes a file below the test's folder, with the folders above it. */
static void put_file(const char *name, const char *text) {
  char path[4096];
  snprintf(path, sizeof path, "%s", in_folder(name));
  for (char *slash = strchr(path + strlen(test_folder) + 1, '/'); slash;
       slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    assert_int_equal(sl_folder_make(path), SL_OK);
    *slash = '/';
  }
  put(name, text, strlen(text));
}

static void check_limits(const char *root, double memory, double cpus) {
  char path[4096];
  struct sl__cgroup limits;
  snprintf(path, sizeof path, "%s", in_folder(root));
  sl__cgroup_read(path, &limits);
  if (limits.memory != memory || limits.cpus != cpus)
    fail_msg("%s: %g bytes and %g processors, not %g and %g", root, limits.memory, limits.cpus,
             memory, cpus);
}

static void test_version_2(void **state) {
  (void)state;
  put_file("two/proc/self/cgroup", "0::/job/step\n");
  check_limits("two", HUGE_VAL, HUGE_VAL); /* no files */
  put_file("two/sys/fs/cgroup/job/step/memory.max", "max\n");
  put_file("two/sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  check_limits("two", HUGE_VAL, HUGE_VAL);
  put_file("two/sys/fs/cgroup/job/memory.max", "2147483648\n");
  put_file("two/sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  check_limits("two", 2147483648., 1.5); /* of the group above */
  put_file("two/sys/fs/cgroup/job/step/memory.max", "1000000\n");
  put_file("two/sys/fs/cgroup/job/step/cpu.max", "400000 100000\n");
  check_limits("two", 1e6, 1.5); /* the smaller one of both */
}

/* A container sees its group as the root of the mount, while /proc tells the host's path. */
static void test_container(void **state) {
  (void)state;
  put_file("box/proc/self/cgroup", "0::/docker/0123456789\n");
  put_file("box/sys/fs/cgroup/memory.max", "4096000\n");
  put_file("box/sys/fs/cgroup/cpu.max", "50000 100000\n");
  check_limits("box", 4096000, 0.5);
}

static void test_version_1(void **state) {
  (void)state;
  put_file("one/proc/self/cgroup",
           "11:memory:/slurm/job\n7:cpu,cpuacct:/slurm\n3:cpuset:/\n0::/\n");
  put_file("one/sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "9223372036854771712\n");
  put_file("one/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_quota_us", "-1\n");
  put_file("one/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_period_us", "100000\n");
  check_limits("one", 9223372036854771712., HUGE_VAL);
  put_file("one/sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "8000000\n");
  put_file("one/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_quota_us", "300000\n");
  check_limits("one", 8e6, 3);
}

static void test_damaged(void **state) {
  (void)state;
  check_limits("nowhere", HUGE_VAL, HUGE_VAL);
  put_file("bad/proc/self/cgroup", "memory\n4:memory\n:::\n0::\n5:cpu:relative\n\n");
  put_file("bad/sys/fs/cgroup/memory.max", "");
  put_file("bad/sys/fs/cgroup/cpu.max", "100000 0\n");
  check_limits("bad", HUGE_VAL, HUGE_VAL);
  put_file("bad/sys/fs/cgroup/memory.max", "-5\n");
  put_file("bad/sys/fs/cgroup/cpu.max", "many\n");
  check_limits("bad", HUGE_VAL, HUGE_VAL);
}

static void test_this_machine(void **state) {
  (void)state;
  double bytes = sl__machine_memory();
  assert_true(bytes > 1e8 && bytes <= (double)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
  assert_true(sl__machine_cpus() >= 1 && sl__machine_cpus() <= sysconf(_SC_NPROCESSORS_CONF));
}

/* In a child, whose limits are its own. */
static void check_under(int resource, rlim_t limit, const char *word) {
  pid_t child = fork();
  if (child == 0) {
    struct rlimit values;
    getrlimit(resource, &values);
    values.rlim_cur = limit;
    if (setrlimit(resource, &values) != 0) _exit(1);
    enum sl_status status = sl__machine_check_limits(4);
    _exit(word ? status != SL_NO_MEMORY || !strstr(sl_error(), word) : status != SL_OK);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* What the program says of its threads counts as well. */
static void test_stack_by_default(void **state) {
  (void)state;
#ifdef __GLIBC__
  pthread_attr_t before, small;
  assert_int_equal(pthread_getattr_default_np(&before), 0);
  assert_int_equal(pthread_getattr_default_np(&small), 0);
  assert_int_equal(pthread_attr_setstacksize(&small, 600 << 10), 0);
  assert_int_equal(pthread_setattr_default_np(&small), 0);
  assert_int_equal(sl__machine_check_limits(4), SL_NO_MEMORY);
  assert_non_null(strstr(sl_error(), "600 KiB"));
  assert_int_equal(pthread_setattr_default_np(&before), 0);
  assert_int_equal(sl__machine_check_limits(4), SL_OK);
  pthread_attr_destroy(&before), pthread_attr_destroy(&small);
#else
  skip();
#endif
}

static void test_process_limits(void **state) {
  (void)state;
  assert_int_equal(sl__machine_check_limits(4), SL_OK);
  check_under(RLIMIT_STACK, 256 << 10, "256 KiB");
  check_under(RLIMIT_STACK, 1000 << 10, "1000 KiB");
  check_under(RLIMIT_STACK, 1 << 20, NULL);
#ifndef SL_SANITIZE /* whose shadow takes terabytes */
  check_under(RLIMIT_AS, 64 << 20, "ulimit -v");
  check_under(RLIMIT_AS, (rlim_t)1 << 42, NULL);
#endif
}

/* The linker's hash of this program, as readelf shows it. */
static void test_build(void **state) {
  (void)state;
  char build[80], again[12], command[300], line[300];
  sl__machine_build(build, sizeof build);
  sl__machine_build(again, sizeof again);
  assert_memory_equal(again, build, strlen(again));
  assert_true(strlen(build) % 2 == 0 && strspn(build, "0123456789abcdef") == strlen(build));
  snprintf(command, sizeof command, "readelf -n /proc/%d/exe 2>&1", (int)getpid());
  FILE *tool = popen(command, "r");
  bool told = false, found = false;
  while (tool && fgets(line, sizeof line, tool)) {
    const char *id = strstr(line, "Build ID: ");
    if (!id) continue;
    told = true;
    found |= !strncmp(id + strlen("Build ID: "), build, strlen(build)) && *build;
  }
  if (tool) pclose(tool);
  if (told) assert_true(found); /* else there is no readelf, or the linker makes none */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_version_2),        cmocka_unit_test(test_container),
      cmocka_unit_test(test_version_1),        cmocka_unit_test(test_damaged),
      cmocka_unit_test(test_this_machine),     cmocka_unit_test(test_process_limits),
      cmocka_unit_test(test_stack_by_default), cmocka_unit_test(test_build),
  };
  return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
