/* Every operation of ops.def that has a CUDA half, with each of its cases (gpu_cases.c): once on a
 * CPU, twice on a GPU (--once: once). The results must be near each other (how near: gpu_ops.h),
 * those of the GPU the same to the bit. Each case comes as it is, accumulating where it can, with
 * tensors that begin where memory is not aligned, and with a NaN among the inputs.
 *
 * An operation without a case fails, one without a CUDA half too, but for those named below.
 * Another device than a GPU (cpu:0) shows whether the cases themselves are sound.
 *
 *     gpu_ops [--device cuda:0] [--only OP] [--without TEXT] [--small] [--once] [--seed N] [--list]
 *
 * prints TAP, and a digest of each operation's results: another process must find the same from the
 * same seed. Exit status 77: there is no such device. */
#include "tests/gpu/gpu_ops.h"

#include <argp.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/error.h"
#include "core/base/half.h"
#include "core/runtime/dry_run.h"

/* They compute nothing themselves, or are about messages, which have tests of their own. */
static const struct {
  const char *name, *why;
} without[] = {{"set_values", "writes what the host knows"},
               {"prepack", "copies in main memory"},
               {"helper", "helps CPU workers"},
               {"send", "sends"},
               {"receive", "receives"},
               {"wait_for", "makes a task wait for others"},
               {"unite", "makes tasks wait for each other"},
               {"subgraph", "runs others' functions: see test_program and test_predictor"}};

enum { SMALL = 8192 }; /* elements of a case where only small ones are wanted */

struct subject {
  const char *name;
  struct sl__op *op;
};

#define SL__OP(op_name, modes, where) {#op_name, &sl__op_##op_name},
static const struct subject subjects[] = {
#include "codelets/ops.def"
};
#undef SL__OP
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

struct program {
  const char *device, *only, *without;
  bool small, once, list;
  uint64_t seed;
  struct sl_context *context;
  struct sl__place cpu, gpu;
  uint64_t digest; /* of the operation's results so far */
  int lines, failed;
};

/* How an operation fared in one of the types. */
struct score {
  int shapes, runs;
  double worst;   /* share of the tolerance */
  char text[600]; /* the first failure */
};

struct variant {
  const char *name;
  bool accumulate, apart, spoilt;
};

static const struct variant variants[] = {{"", false, false, false},
                                          {", added", true, false, false},
                                          {", not aligned", false, true, false},
                                          {", added, not aligned", true, true, false},
                                          {", a NaN", false, false, true}};
enum { VARIANTS = sizeof variants / sizeof *variants };

static const struct {
  const char *name;
  enum gpu_math math;
  enum sl_type type;
} kinds[] = {{"f32", GPU_F32, SL_F32}, {"tf32", GPU_TF32, SL_F32}, {"bf16", GPU_BF16, SL_BF16}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- tensors -------------------------------------------------------------------------------- */

/* If apart, the tensor begins at the second element of another one. */
static enum sl_status make(struct trial *t, enum sl_type type, const struct sl_shape *shape,
                           struct buffer *b) {
  int64_t n = sl_shape_count(shape);
  if (!t->apart) return sl__tensor_host(t->context, shape, type, NULL, &b->tensor);
  struct sl_shape one_more = SL_SHAPE(n + 1);
  enum sl_status status = sl__tensor_host(t->context, &one_more, type, NULL, &b->parent);
  if (status == SL_OK) status = sl__tensor_split(b->parent, 2, (int64_t[]){1, n});
  if (status == SL_OK) status = sl__tensor_keep_split(b->parent);
  if (status != SL_OK) return status;
  b->tensor = &b->parent->views[1];
  b->tensor->shape = *shape;
  return SL_OK;
}

static struct sl__tensor *new_tensor(struct trial *t, enum sl_type type, struct sl_shape shape,
                                     const void *values) {
  if (t->count == GPU_MOST_BUFFERS && t->status == SL_OK)
    t->status = sl__fail(SL_BAD_ARGUMENT, "a case has too many tensors");
  if (t->status != SL_OK) return NULL;
  struct buffer *b = &t->buffers[t->count++];
  *b = (struct buffer){0};
  t->status = make(t, type, &shape, b);
  if (t->status == SL_OK && values) t->status = sl__tensor_write(b->tensor, values);
  t->elements += (double)sl_shape_count(&shape);
  return b->tensor;
}

static void store(enum sl_type type, void *values, int64_t i, double value) {
  if (type == SL_BF16)
    ((uint16_t *)values)[i] = sl__bf16_code((float)value);
  else
    ((float *)values)[i] = (float)value;
}

static void spoil(struct trial *t, enum sl_type type, void *values, int64_t n) {
  for (int64_t i = 0; i < t->spoilt && n / 3 + i < n; i++)
    store(type, values, n / 3 + i, (double)NAN);
  t->spoilt = 0;
}

static struct sl__tensor *random_tensor(struct trial *t, enum sl_type type, struct sl_shape shape,
                                        double low, double high, bool zeros) {
  int64_t n = sl_shape_count(&shape);
  float *values = calloc((size_t)n, sizeof *values);
  if (!values) return NULL;
  /* sl__uniform's numbers, four at a time: they take most of this program's time */
  struct sl__random4 four = {{0}};
  for (int64_t i = 0; i < n; i++) {
    if (i % 4 == 0) four = sl__philox(t->seed, (uint64_t)t->count, (uint64_t)i / 4);
    double value = low + (high - low) * (double)sl__unit(four.v[i % 4]);
    store(type, values, i, zeros && i % 16 == 5 ? 0 : value);
  }
  spoil(t, type, values, n);
  struct sl__tensor *tensor = new_tensor(t, type, shape, values);
  free(values);
  return tensor;
}

struct sl__tensor *given(struct trial *t, enum sl_type type, struct sl_shape shape) {
  return random_tensor(t, type, shape, -1, 1, true);
}

struct sl__tensor *given_in(struct trial *t, enum sl_type type, struct sl_shape shape, double low,
                            double high) {
  return random_tensor(t, type, shape, low, high, false);
}

struct sl__tensor *given_wholes(struct trial *t, enum sl_type type, struct sl_shape shape,
                                double low, double high) {
  int64_t n = sl_shape_count(&shape);
  float *values = calloc((size_t)n, sizeof *values);
  for (int64_t i = 0; values && i < n; i++) {
    double u = (double)sl__uniform(t->seed, (uint64_t)t->count, (uint64_t)i);
    store(type, values, i, floor(low + (high - low) * u));
  }
  if (values) spoil(t, type, values, n);
  struct sl__tensor *tensor = new_tensor(t, type, shape, values);
  free(values);
  return tensor;
}

struct sl__tensor *given_values(struct trial *t, struct sl_shape shape, const int32_t *values) {
  return new_tensor(t, SL_I32, shape, values);
}

struct sl__tensor *given_integers(struct trial *t, struct sl_shape shape, int64_t low,
                                  int64_t high) {
  int64_t n = sl_shape_count(&shape);
  int32_t *values = calloc((size_t)n, sizeof *values);
  for (int64_t i = 0; values && i < n; i++) {
    double u = (double)sl__uniform(t->seed, (uint64_t)t->count, (uint64_t)i);
    values[i] = (int32_t)(low + (int64_t)(u * (double)(high - low)));
  }
  struct sl__tensor *tensor = given_values(t, shape, values);
  free(values);
  return tensor;
}

struct sl__tensor *given_rows(struct trial *t, int64_t capacity, int64_t count, int64_t table) {
  uint32_t *order = calloc((size_t)table, sizeof *order);
  int32_t *rows = calloc((size_t)capacity + 1, sizeof *rows);
  if (order) sl__permutation(t->seed, (uint64_t)t->count, order, (uint32_t)table);
  if (rows) rows[0] = (int32_t)count;
  for (int64_t k = 0; order && rows && k < count; k++) rows[1 + k] = (int32_t)order[k];
  struct sl__tensor *tensor = given_values(t, SL_SHAPE(capacity + 1), rows);
  free(order);
  free(rows);
  return tensor;
}

static struct sl__tensor *result(struct trial *t, struct sl__tensor *tensor, struct sums sums) {
  if (!tensor || t->status != SL_OK) return NULL;
  t->buffers[t->count - 1].result = true;
  t->buffers[t->count - 1].sums = sums;
  return tensor;
}

/* Poisoned where it will be, so that a place that is left out shows. */
struct sl__tensor *written(struct trial *t, enum sl_type type, struct sl_shape shape,
                           struct sums sums) {
  const struct sl__launch there = {.name = "poison", .place = t->launch.place};
  struct sl__tensor *y = result(t, new_tensor(t, type, shape, NULL), sums);
  if (y && !sl__is_dry_run(t->context)) t->status = sl__fill(t->context, &there, y, NAN);
  return y;
}

struct sl__tensor *changed(struct trial *t, enum sl_type type, struct sl_shape shape, double low,
                           double high, struct sums sums) {
  return result(t, random_tensor(t, type, shape, low, high, false), sums);
}

struct sl__tensor *added(struct trial *t, enum sl_type type, struct sl_shape shape,
                         struct sums sums) {
  return t->launch.accumulate ? changed(t, type, shape, -1, 1, sums)
                              : written(t, type, shape, sums);
}

void last_are_rows(struct trial *t, int64_t width) {
  if (t->status != SL_OK) return;
  t->buffers[t->count - 2].result = true;
  t->buffers[t->count - 2].rows = t->count - 1;
  t->buffers[t->count - 1].rows = t->count - 1;
  t->buffers[t->count - 1].width = (int)width;
}

void last_has_means(struct trial *t, int means, struct sums sums) {
  if (t->status != SL_OK) return;
  t->buffers[t->count - 1].means = means;
  t->buffers[t->count - 1].sums = sums;
}

static void clear(struct trial *t) {
  for (int i = 0; i < t->count; i++)
    sl__tensor_free(t->buffers[i].parent ? t->buffers[i].parent : t->buffers[i].tensor);
  t->count = 0;
  t->status = SL_OK;
  t->elements = 0;
}

/* ---- a run ---------------------------------------------------------------------------------- */

/* A run's results, one after the other as in t->buffers. */
struct outcome {
  void *values[GPU_MOST_BUFFERS];
};

static void drop(struct outcome *o) {
  for (int i = 0; i < GPU_MOST_BUFFERS; i++) {
    free(o->values[i]);
    o->values[i] = NULL;
  }
}

static void prepare(struct trial *t, const struct program *p, const struct gpu_case *c, int kind,
                    const struct variant *v, struct sl__place place) {
  *t = (struct trial){.context = p->context,
                      .launch = {.name = c->op->codelet.name,
                                 .place = place,
                                 .accumulate = v->accumulate,
                                 .tf32 = kinds[kind].math == GPU_TF32},
                      .type = kinds[kind].type,
                      .seed = p->seed,
                      .apart = v->apart,
                      .spoilt = v->spoilt};
}

/* t keeps its tensors' descriptions, not their memory. */
static enum sl_status run(struct trial *t, const struct gpu_case *c, struct outcome *o) {
  enum sl_status status = c->submit(t, c->sizes);
  for (int i = 0; i < t->count && status == SL_OK; i++) {
    const struct buffer *b = &t->buffers[i];
    if (!b->result) continue;
    o->values[i] = malloc(b->tensor->bytes);
    status = o->values[i] ? sl__tensor_read(b->tensor, o->values[i])
                          : sl__fail(SL_NO_MEMORY, "no memory for results");
  }
  return status;
}

/* Finds out which operation a case submits, and how large its tensors are. */
static enum sl_status dry_run(struct trial *t, const struct gpu_case *c, const struct sl__op **op,
                              double *elements) {
  struct sl__dry_run run = {0};
  enum sl_status status = sl__dry_run_begin(t->context, &run);
  if (status == SL_OK) status = c->submit(t, c->sizes);
  sl__dry_run_end(t->context, &run);
  *op = run.count == 1 ? run.tasks[0].op : NULL;
  *elements = t->elements;
  free(run.tasks);
  clear(t);
  return status;
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* Elements of a result that mean something: of rows as many as the CPU counted. */
static int64_t meaningful(const struct trial *t, int i, const struct outcome *cpu) {
  const struct buffer *b = &t->buffers[i];
  int64_t n = sl_shape_count(&b->tensor->shape);
  if (!b->rows) return n;
  int32_t count = *(const int32_t *)cpu->values[b->rows - 1];
  int64_t used = b->width ? (int64_t)count * b->width : 1 + (int64_t)count;
  return used < n ? used : n;
}

static double value_at(enum sl_type type, const void *values, int64_t i) {
  if (type == SL_BF16) return (double)sl__bf16_value(((const uint16_t *)values)[i]);
  return (double)((const float *)values)[i];
}

/* The formulas that gpu_ops.h explains; 0: the values must be equal. */
static double tolerance(const struct trial *t, const struct buffer *b, double want) {
  const struct sums *s = &b->sums;
  if (!s->magnitude) return 0;
  bool half = t->type == SL_BF16;
  double steps = s->steps > 1 ? s->steps : 1;
  double factor = t->launch.tf32 ? 0x1p-10 : half && s->steps > 0 ? 0x1p-8 : 0;
  bool summed = t->launch.accumulate && b->tensor->type == SL_BF16;
  if (half && (s->between || summed) && factor < 0x1p-9) factor = 0x1p-9;
  double stored = b->tensor->type == SL_BF16 ? 0x1p-7 : 0x1p-22;
  return stored * fabs(want) + (s->terms + 4) * 0x1p-23 * s->magnitude * steps +
         4 * sqrt(s->terms) * factor * s->factors * steps;
}

/* The share of what is allowed that the values are apart. */
static double apart(const struct trial *t, const struct buffer *b, bool products_of_nan,
                    const void *got, const void *want, int64_t i) {
  size_t size = sl__type_size(b->tensor->type);
  bool whole = b->tensor->type == SL_I32 && i >= b->means;
  if (!memcmp((const char *)got + (size_t)i * size, (const char *)want + (size_t)i * size, size))
    return 0;
  if (whole) return INFINITY;
  double g = value_at(b->tensor->type, got, i), w = value_at(b->tensor->type, want, i);
  /* a convolution by transforms may spread a NaN over a tile: it must be there, no more */
  if (isnan(g)) return isnan(w) || products_of_nan ? 0 : INFINITY;
  if (g == w) return 0;
  if (!isfinite(g) || !isfinite(w)) return INFINITY;
  return fabs(g - w) / tolerance(t, b, w);
}

static void complain(struct score *s, const struct trial *t, int i, int64_t at,
                     const struct outcome *got, const struct outcome *want, const char *where) {
  const struct buffer *b = &t->buffers[i];
  char shape[96];
  bool whole = b->tensor->type == SL_I32 && at >= b->means;
  if (*s->text) return;
  double g = whole ? (double)((int32_t *)got->values[i])[at]
                   : value_at(b->tensor->type, got->values[i], at);
  double w = whole ? (double)((int32_t *)want->values[i])[at]
                   : value_at(b->tensor->type, want->values[i], at);
  snprintf(s->text, sizeof s->text,
           "%s: buffer %d %s, element %lld is %.9g on the GPU, %.9g on the CPU (tolerance %.2g)",
           where, i, sl_shape_text(&b->tensor->shape, shape, sizeof shape), (long long)at, g, w,
           whole ? 0 : tolerance(t, b, w));
}

/* FNV-1a; NaNs count as one. */
static void digest(uint64_t *hash, enum sl_type type, const void *values, int64_t n) {
  size_t size = sl__type_size(type);
  for (int64_t i = 0; i < n; i++) {
    uint32_t word = 0;
    memcpy(&word, (const char *)values + (size_t)i * size, size);
    if (type != SL_I32 && isnan(value_at(type, values, i))) word = 0x7fc00000;
    *hash = (*hash ^ word) * 1099511628211u;
  }
}

/* again: of a second run on the GPU, or NULL */
static void compare(struct program *p, struct score *s, const struct trial *t, bool spoilt,
                    const struct outcome *cpu, const struct outcome *gpu,
                    const struct outcome *again, const char *where) {
  for (int i = 0; i < t->count; i++) {
    const struct buffer *b = &t->buffers[i];
    if (!b->result) continue;
    int64_t n = meaningful(t, i, cpu);
    bool loose = spoilt && b->sums.factors > 0;
    for (int64_t k = 0; k < n; k++) {
      double share = apart(t, b, loose, gpu->values[i], cpu->values[i], k);
      if (share > s->worst) s->worst = share;
      if (share > 1) complain(s, t, i, k, gpu, cpu, where);
    }
    size_t bytes = (size_t)n * sl__type_size(b->tensor->type);
    if (again && memcmp(gpu->values[i], again->values[i], bytes) && !*s->text)
      snprintf(s->text, sizeof s->text, "%s: buffer %d is not the same in a second run on the GPU",
               where, i);
    digest(&p->digest, b->tensor->type, gpu->values[i], n);
  }
}

/* ---- cases ------------------------------------------------------------------------------------
 */

static void name_case(char *text, size_t size, const struct gpu_case *c, const struct variant *v) {
  int used = 0, last = GPU_MOST_SIZES - 1;
  while (last > 0 && !c->sizes[last]) last--;
  for (int i = 0; i <= last; i++)
    used +=
        snprintf(text + used, size - (size_t)used, "%s%lld", i ? " " : "{", (long long)c->sizes[i]);
  snprintf(text + used, size - (size_t)used, "}%s", v->name);
}

static void try_variant(struct program *p, struct score *s, const struct gpu_case *c, int kind,
                        const struct variant *v) {
  const struct sl__place places[] = {p->cpu, p->gpu, p->gpu};
  struct outcome outcomes[3] = {0};
  int runs = p->once ? 2 : 3;
  struct trial *t = calloc(1, sizeof *t);
  char where[256];
  enum sl_status status = t ? SL_OK : SL_NO_MEMORY;
  name_case(where, sizeof where, c, v);
  for (int i = 0; i < runs && status == SL_OK; i++) {
    prepare(t, p, c, kind, v, places[i]);
    status = run(t, c, &outcomes[i]);
    if (status != SL_OK && !*s->text)
      snprintf(s->text, sizeof s->text, "%s: %.300s", where, sl_error());
    if (status == SL_OK && i == runs - 1)
      compare(p, s, t, v->spoilt, &outcomes[0], &outcomes[1], p->once ? NULL : &outcomes[2], where);
    s->runs++;
    clear(t);
  }
  for (int i = 0; i < 3; i++) drop(&outcomes[i]);
  free(t);
}

/* Is it to be tried? A case that submits something else is a mistake in the table. */
static bool is_wanted(struct program *p, struct score *s, const struct gpu_case *c, int kind) {
  const struct sl__op *op;
  double elements = 0;
  struct trial *t = calloc(1, sizeof *t);
  if (!t) return false;
  prepare(t, p, c, kind, &variants[0], p->gpu);
  enum sl_status status = dry_run(t, c, &op, &elements);
  free(t);
  if (status == SL_OK && op == c->op) return !p->small || elements <= SMALL;
  if (!*s->text)
    snprintf(s->text, sizeof s->text, "a case of gpu_cases.c %s%.300s",
             status == SL_OK ? "is of another operation" : "is refused: ",
             status == SL_OK ? "" : sl_error());
  return false;
}

static void try_kind(struct program *p, struct score *s, const struct sl__op *op, int kind) {
  const struct gpu_case *c;
  for (int i = 0; (c = gpu_case_at(i)); i++) {
    if (c->op != op || !(c->math & kinds[kind].math) || !is_wanted(p, s, c, kind)) continue;
    s->shapes++;
    for (int v = 0; v < VARIANTS; v++)
      if (!variants[v].accumulate || strpbrk(op->modes, "aAy"))
        try_variant(p, s, c, kind, &variants[v]);
  }
}

static void line(struct program *p, bool ok, const char *name, const char *kind, const char *text) {
  p->failed += !ok;
  printf("%sok %d - %s%s%s%s%s\n", ok ? "" : "not ", ++p->lines, name, *kind ? " " : "", kind,
         *text ? ": " : "", text);
  fflush(stdout);
}

static unsigned types_of(const struct sl__op *op) {
  unsigned types = 0;
  const struct gpu_case *c;
  for (int i = 0; (c = gpu_case_at(i)); i++)
    if (c->op == op) types |= c->math;
  return types;
}

static void try_subject(struct program *p, const struct subject *subject) {
  const struct sl__op *op = subject->op;
  for (size_t i = 0; i < sizeof without / sizeof *without; i++)
    if (!strcmp(without[i].name, subject->name)) {
      printf("# %s is not tried: it %s\n", subject->name, without[i].why);
      return;
    }
  if (p->gpu.where == STARPU_CUDA && !op->codelet.cuda_funcs[0]) {
    line(p, false, subject->name, "", "there is no CUDA half of it");
    return;
  }
  unsigned types = types_of(op);
  p->digest = 14695981039346656037u;
  if (!types) line(p, false, subject->name, "", "gpu_cases.c has no case of it");
  for (int k = 0; k < KINDS; k++) {
    struct score s = {0};
    char text[700];
    if (!(types & kinds[k].math)) continue;
    try_kind(p, &s, op, k);
    snprintf(text, sizeof text, "%d shapes, %d runs, at most %.2g of the tolerance%s%s", s.shapes,
             s.runs, s.worst, *s.text ? "; " : "", s.text);
    line(p, !*s.text && s.shapes, subject->name, kinds[k].name, text);
  }
  printf("# digest of %s %016" PRIx64 "\n", subject->name, p->digest);
}

/* ---- the program ------------------------------------------------------------------------------
 */

enum { KEY_DEVICE = 256, KEY_ONLY, KEY_WITHOUT, KEY_SMALL, KEY_ONCE, KEY_SEED, KEY_LIST };

static const struct argp_option options[] = {
    {"device", KEY_DEVICE, "NAME", 0, "Compare this device with a CPU (default cuda:0)", 0},
    {"only", KEY_ONLY, "OP", 0, "This operation alone", 0},
    {"without", KEY_WITHOUT, "TEXT", 0, "No operation whose name has this in it", 0},
    {"small", KEY_SMALL, NULL, 0, "Small shapes alone, for checkers that slow down", 0},
    {"once", KEY_ONCE, NULL, 0, "One run on the device: another process has the second one", 0},
    {"seed", KEY_SEED, "N", 0, "Of the inputs (default: the time)", 0},
    {"list", KEY_LIST, NULL, 0, "Print the operations that have cases", 0},
    {0}};

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct program *p = state->input;
  char *end = NULL;
  switch (key) {
    case KEY_DEVICE: p->device = text; break;
    case KEY_ONLY: p->only = text; break;
    case KEY_WITHOUT: p->without = text; break;
    case KEY_SMALL: p->small = true; break;
    case KEY_ONCE: p->once = true; break;
    case KEY_LIST: p->list = true; break;
    case KEY_SEED:
      p->seed = strtoull(text, &end, 10);
      if (!*text || *end) argp_failure(state, 2, 0, "--seed '%s': no number", text);
      break;
    default: return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

static int list(void) {
  for (int i = 0; i < SUBJECTS; i++)
    if (types_of(subjects[i].op)) puts(subjects[i].name);
  return 0;
}

static int try_all(struct program *p) {
  bool found = false;
  printf("# %s; seed %" PRIu64 "\n", sl_context_text(p->context), p->seed);
  for (int i = 0; i < SUBJECTS; i++) {
    if (p->only && strcmp(p->only, subjects[i].name) != 0) continue;
    if (p->without && strstr(subjects[i].name, p->without)) continue;
    found = true;
    try_subject(p, &subjects[i]);
  }
  if (!found) line(p, false, p->only, "", "there is no such operation");
  printf("1..%d\n", p->lines);
  return p->failed ? 1 : 0;
}

int main(int argc, char **argv) {
  static const struct argp argp = {
      options, parse_option, NULL, "Compare operations on a GPU and on a CPU.", NULL, NULL, NULL};
  struct program p = {.device = "cuda:0", .seed = (uint64_t)time(NULL)};
  argp_err_exit_status = 2;
  argp_parse(&argp, argc, argv, 0, NULL, &p);
  if (p.list) return list();
  char devices[64];
  snprintf(devices, sizeof devices, "cpu,%s", p.device);
  const struct sl_context_options context = {.devices = devices, .seed = 1};
  enum sl_status status = sl_open(&context, &p.context);
  if (status != SL_OK) {
    printf("1..0 # SKIP no GPU: %s\n", sl_error());
    return status == SL_NO_DEVICE ? 77 : 1;
  }
  p.cpu = p.context->devices[0].place;
  p.gpu = p.context->devices[1].place;
  int code = try_all(&p);
  sl_close(p.context);
  return code;
}
