/* Programs (core/program.h): calls noted once and run as few tasks give the bits of the same calls
 * submitted one by one; a task a device; inner tensors take turns in the worker's memory. Where
 * SL_TEST_DEVICE names a device ("cuda:0"), it is the first of the two. */
#include "check.h"
#include "core/error.h"
#include "core/pack.h"
#include "core/program.h"

enum { N = 6, WIDTH = 40 };

static struct sl_tensor *temporary(void) {
  struct sl_tensor *t;
  OK(sl__tensor_temporary(context, &SL_SHAPE(N, WIDTH), SL_F32, &t));
  return t;
}

static struct sl__launch on(int device) {
  return (struct sl__launch){.name = "test", .place = context->devices[device].place};
}

struct chain {
  struct sl_tensor *x, *t[5], *result;
};

static void chain_new(struct chain *c) {
  double *values = random_values(N * WIDTH, 3);
  *c = (struct chain){.x = tensor(SL_SHAPE(N, WIDTH), values), .result = temporary()};
  for (int i = 0; i < 5; i++) c->t[i] = temporary();
  free(values);
}

static void chain_free(struct chain *c) {
  sl__tensor_free(c->x);
  sl__tensor_free(c->result);
  for (int i = 0; i < 5; i++) sl__tensor_free(c->t[i]);
}

/* result = sigmoid(t + relu(t)) + x, t = tanh(x): a branch, and an input that is read twice. The
 * middle is on a device of its own. */
static enum sl_status chain_calls(const struct chain *c, int middle) {
  struct sl__launch first = on(0), second = on(middle);
  struct sl_tensor *const *t = c->t;
  enum sl_status status;
  SL_TRY(sl__activation_forward(context, &first, c->x, t[0], SL_ACTIVATION_TANH));
  SL_TRY(sl__activation_forward(context, &second, t[0], t[1], SL_ACTIVATION_RELU));
  SL_TRY(sl__add(context, &second, t[0], t[1], t[2]));
  sl__tensor_invalidate(t[0]);
  sl__tensor_invalidate(t[1]);
  SL_TRY(sl__activation_forward(context, &first, t[2], t[3], SL_ACTIVATION_SIGMOID));
  SL_TRY(sl__add(context, &first, t[3], c->x, c->result));
out:
  return status;
}

static void expect(struct sl_tensor *result, float *want) {
  float got[N * WIDTH];
  OK(sl__tensor_read(result, got));
  assert_memory_equal(got, want, sizeof got);
}

static struct sl__program *compiled(const struct chain *c, int middle) {
  struct sl__program *program;
  OK(sl__program_new(context, &sl__op_program, &sl__op_assist, &program));
  sl__program_record(program);
  OK(sl__program_compile(program, c->result, chain_calls(c, middle)));
  return program;
}

static void a_task_a_device(void **state) {
  (void)state;
  float want[N * WIDTH];
  for (int middle = 0; middle < 2; middle++) {
    struct chain c;
    chain_new(&c);
    OK(chain_calls(&c, middle));
    OK(sl__tensor_read(c.result, want));
    sl__tensor_invalidate(c.result);
    struct sl__program *program = compiled(&c, middle);
    assert_int_equal(sl__program_tasks(program), middle ? 3 : 1);
    for (int again = 0; again < 20; again++) {
      OK(sl__program_submit(program, 0, NULL));
      expect(c.result, want);
      sl__tensor_invalidate(c.result);
    }
    sl__program_free(program);
    chain_free(&c);
  }
}

/* Elsewhere than where it was compiled to. */
static void another_result(void **state) {
  (void)state;
  float want[N * WIDTH], got[N * WIDTH];
  struct chain c;
  struct sl_tensor *own;
  chain_new(&c);
  OK(chain_calls(&c, 0));
  OK(sl__tensor_read(c.result, want));
  struct sl__program *program = compiled(&c, 1);
  OK(sl__tensor_host(context, &SL_SHAPE(N, WIDTH), SL_F32, got, &own));
  for (int again = 0; again < 3; again++) {
    memset(got, 0xff, sizeof got);
    OK(sl__program_submit(program, 0, own));
    expect(own, want);
  }
  sl__tensor_free(own);
  assert_memory_equal(got, want, sizeof got);
  sl__program_free(program);
  chain_free(&c);
}

/* ---- calls in parts ---- */

enum { CHANNELS = 10, SIDE = 7, PLANE = SIDE * SIDE };

struct images {
  struct sl_tensor *x, *filter, *second, *norm, *running, *index, *flat_param, *t[8], *result;
};

static struct sl_tensor *drawn(struct sl_shape shape, uint64_t stream) {
  double *values = random_values(sl_shape_count(&shape), stream);
  struct sl_tensor *t = tensor(shape, values);
  free(values);
  return t;
}

static void images_new(struct images *m, int64_t rows) {
  const struct sl_shape inner = SL_SHAPE(rows, CHANNELS, SIDE, SIDE);
  *m = (struct images){.x = drawn(SL_SHAPE(rows, 3, SIDE, SIDE), 1),
                       .filter = drawn(SL_SHAPE(CHANNELS * (3 * 9 + 1)), 2),
                       .second = drawn(SL_SHAPE(CHANNELS * CHANNELS * 9), 4),
                       .norm = drawn(SL_SHAPE(2 * CHANNELS), 3),
                       .flat_param = drawn(SL_SHAPE(5 * (CHANNELS * 9 + 1)), 5)};
  double running[2 * CHANNELS];
  for (int i = 0; i < 2 * CHANNELS; i++) running[i] = 0.25 + i / 16.0;
  m->running = tensor(SL_SHAPE(2 * CHANNELS), running);
  for (int i = 0; i < 7; i++) OK(sl__tensor_temporary(context, &inner, SL_F32, &m->t[i]));
  const struct sl_shape small = SL_SHAPE(rows, CHANNELS, 3, 3);
  OK(sl__tensor_temporary(context, &small, SL_F32, &m->t[7]));
  OK(sl__tensor_temporary(context, &small, SL_I32, &m->index));
  OK(sl__tensor_temporary(context, &SL_SHAPE(rows, 5), SL_F32, &m->result));
}

static void images_free(struct images *m) {
  struct sl_tensor *const all[] = {m->x,       m->filter, m->second,     m->norm,
                                   m->running, m->index,  m->flat_param, m->result};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) sl__tensor_free(all[i]);
  for (int i = 0; i < 8; i++) sl__tensor_free(m->t[i]);
}

/* A residual block, pooled and classified. */
static enum sl_status images_calls(const struct images *m, struct sl__place place) {
  const struct sl__conv2d conv = {.channels = CHANNELS,
                                  .kernel_h = 3,
                                  .kernel_w = 3,
                                  .stride_h = 1,
                                  .stride_w = 1,
                                  .pad_h = 1,
                                  .pad_w = 1,
                                  .has_bias = true};
  struct sl__conv2d without_bias = conv;
  without_bias.has_bias = false;
  const struct sl__pool2d pool = {2, 2, 2, 2, 0, 0};
  struct sl__launch l = {.name = "test", .place = place};
  struct sl_tensor *const *t = m->t;
  enum sl_status status;
  SL_TRY(sl__conv2d_forward(context, &l, m->x, m->filter, t[0], &conv));
  SL_TRY(sl__batchnorm_inference(context, &l, t[0], m->norm, m->running, t[1], 1e-5f));
  SL_TRY(sl__activation_forward(context, &l, t[1], t[2], SL_ACTIVATION_RELU));
  SL_TRY(sl__conv2d_forward(context, &l, t[2], m->second, t[3], &without_bias));
  SL_TRY(sl__batchnorm_inference(context, &l, t[3], m->norm, m->running, t[4], 1e-3f));
  SL_TRY(sl__add(context, &l, t[2], t[4], t[5]));
  SL_TRY(sl__activation_forward(context, &l, t[5], t[6], SL_ACTIVATION_TANH));
  SL_TRY(sl__maxpool2d_forward(context, &l, t[6], t[7], m->index, &pool));
  SL_TRY(sl__dense_forward(context, &l, t[7], m->flat_param, m->result, true, SL_ACTIVATION_NONE));
out:
  return status;
}

/* Whatever the parts, and whoever does them, the bits are those of the calls one by one. */
static void parts_give_the_same_bits(void **state) {
  (void)state;
  const struct sl__place cpu = {.where = STARPU_CPU};
  for (int64_t rows = 1; rows <= 7; rows += rows < 3 ? 1 : 4)
    for (int parts = 0; parts <= 5; parts++) {
      struct images m;
      struct sl__program *program;
      float want[7 * 5], got[7 * 5];
      images_new(&m, rows);
      OK(images_calls(&m, cpu));
      OK(sl__tensor_read(m.result, want));
      OK(sl__program_new(context, &sl__op_program, &sl__op_assist, &program));
      sl__program_cut(program, parts);
      sl__program_record(program);
      OK(sl__program_compile(program, m.result, images_calls(&m, cpu)));
      for (int again = 0; again < (parts ? 2 : 50); again++) {
        memset(got, 0xff, sizeof got);
        OK(sl__program_submit_to_all(program, 0, NULL));
        OK(sl__tensor_read(m.result, got));
        assert_memory_equal(got, want, (size_t)rows * 5 * sizeof *got);
      }
      sl__program_free(program);
      images_free(&m);
    }
}

/* A tensor as it is, in a pack. */
static struct sl__pack_item plain_item(struct sl_tensor *t) {
  return (struct sl__pack_item){.tensor = t, .bytes = t->bytes};
}

static enum sl_status add_plain(struct sl__pack *pack, struct sl_tensor *t) {
  const struct sl__pack_item item = plain_item(t);
  return sl__pack_add(pack, &item);
}

static int64_t plain_offset(const struct sl__pack *pack, struct sl_tensor *t) {
  const struct sl__pack_item item = plain_item(t);
  return sl__pack_offset(pack, &item);
}

/* What is only read comes from a copy, which is made again when one of them was written. */
static void parameters_in_a_pack(void **state) {
  (void)state;
  const struct sl__place cpu = {.where = STARPU_CPU};
  struct images m;
  struct sl__program *program[2];
  struct sl__pack *pack;
  float want[2 * 5], got[2 * 5], other[CHANNELS * 28];
  images_new(&m, 2);
  OK(sl__pack_new(context, &sl__op_pack, &pack));
  for (int i = 0; i < 2; i++) {
    OK(sl__program_new(context, &sl__op_program, &sl__op_assist, &program[i]));
    sl__program_pack(program[i], pack, m.x);
    sl__program_record(program[i]);
    OK(sl__program_compile(program[i], m.result, images_calls(&m, cpu)));
    assert_non_null(sl__pack_tensor(pack));
  }
  assert_true(plain_offset(pack, m.filter) >= 0);
  assert_true(plain_offset(pack, m.x) < 0 && plain_offset(pack, m.t[0]) < 0);
  for (int again = 0; again < 4; again++) {
    for (int i = 0; i < CHANNELS * 28; i++) other[i] = (float)(i * (again + 3) % 17) / 16 - 0.5f;
    if (again) OK(sl__tensor_write(m.filter, other));
    OK(images_calls(&m, cpu));
    OK(sl__tensor_read(m.result, want));
    OK(sl__pack_refresh(pack));
    OK(sl__program_submit(program[again % 2], 0, NULL));
    OK(sl__tensor_read(m.result, got));
    assert_memory_equal(got, want, sizeof got);
  }
  for (int i = 0; i < 2; i++) sl__program_free(program[i]);
  sl__pack_free(pack);
  images_free(&m);
}

/* One that is too small to be worth it is empty; every allocation fails in turn. */
static void packs_of_few(void **state) {
  (void)state;
  struct sl_tensor *t[6];
  struct sl__pack *pack;
  for (int i = 0; i < 6; i++) t[i] = temporary();
  OK(sl__pack_new(context, &sl__op_pack, &pack));
  OK(add_plain(pack, t[0]));
  OK(add_plain(pack, t[0]));
  OK(sl__pack_close(pack));
  assert_null(sl__pack_tensor(pack));
  assert_true(plain_offset(pack, t[0]) < 0);
  OK(sl__pack_refresh(pack));
  sl__pack_free(pack);
  sl__pack_free(NULL);
  enum sl_status status = SL_NO_MEMORY;
  for (long n = 1; status != SL_OK; n++) {
    assert_true(n < 10);
    sl__alloc_fail_after(n);
    status = sl__pack_new(context, &sl__op_pack, &pack);
    for (int i = 0; i < 6 && status == SL_OK; i++) status = add_plain(pack, t[i]);
    if (status == SL_OK) status = sl__pack_close(pack);
    sl__alloc_fail_after(0);
    if (status == SL_OK) assert_int_equal(plain_offset(pack, t[5]), 5 * 1024);
    sl__pack_free(pack);
  }
  for (int i = 0; i < 6; i++) sl__tensor_free(t[i]);
}

static void what_cannot_be_recorded_is_told(void **state) {
  (void)state;
  struct sl__program *program;
  struct chain c;
  chain_new(&c);
  OK(sl__program_new(context, &sl__op_program, &sl__op_assist, &program));
  sl__program_record(program);
  assert_int_equal(sl__program_compile(program, c.result, SL_OK), SL_BAD_ARGUMENT);
  sl__program_free(program);
  OK(sl__program_new(context, &sl__op_program, &sl__op_assist, &program));
  sl__program_record(program);
  enum sl_status status = sl__add(context, &plain, c.x, c.t[0], context->scratch[12]);
  assert_int_equal(sl__program_compile(program, c.result, status), status);
  assert_int_not_equal(status, SL_OK);
  sl__program_free(program);
  sl__program_free(NULL);
  OK(chain_calls(&c, 0)); /* recording has ended */
  chain_free(&c);
}

/* Every allocation of recording and compiling fails in turn. */
static void no_memory(void **state) {
  (void)state;
  struct chain c;
  enum sl_status status = SL_NO_MEMORY;
  chain_new(&c);
  for (long n = 1; status != SL_OK; n++) {
    struct sl__program *program = NULL;
    assert_true(n < 200);
    sl__alloc_fail_after(n);
    status = sl__program_new(context, &sl__op_program, &sl__op_assist, &program);
    if (status == SL_OK) {
      sl__program_record(program);
      status = sl__program_compile(program, c.result, chain_calls(&c, 1));
    }
    sl__alloc_fail_after(0);
    if (status != SL_OK) assert_int_equal(status, SL_NO_MEMORY);
    sl__program_free(program);
  }
  chain_free(&c);
}

static int open_two(void **state) {
  (void)state;
  const char *device = getenv("SL_TEST_DEVICE");
  char devices[64];
  snprintf(devices, sizeof devices, "%s,%s", device ? device : "cpu:0", device ? "cpu:0" : "cpu:1");
  const struct sl_context_options options = {.devices = devices};
  if (sl_open(&options, &context) == SL_OK) return 0;
  fprintf(stderr, "%s\n", sl_error());
  return 1;
}

int main(void) {
  setenv("STARPU_NCPU", "2", 0);
  setenv("STARPU_SILENT", "1", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_task_a_device),
                                     cmocka_unit_test(another_result),
                                     cmocka_unit_test(parts_give_the_same_bits),
                                     cmocka_unit_test(parameters_in_a_pack),
                                     cmocka_unit_test(packs_of_few),
                                     cmocka_unit_test(what_cannot_be_recorded_is_told),
                                     cmocka_unit_test(no_memory)};
  (void)adding;
  return cmocka_run_group_tests_name("program", tests, open_two, close_context);
}
