/* A stage's time is known only when the class of the next one is, because both ends pay for the cut
 * between them. So a state of the dynamic programming is a cut: the layers before it, the devices
 * taken by them, the classes on both its sides. Every stage before the cut is closed, and its time
 * final.
 *
 * (slowest, total) cannot be minimised in one pass: a prefix with a slower stage and a lower total
 * may win when a later stage is slower still. The first pass finds the least slowest time, the
 * second the least total of the placements that keep to it. */
#include "parallel/planning/stage_partitioner.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/error.h"

/* What rounding may make of equal times: prefix sums' differences depend on where they begin. */
#define EQUAL (1 + 1e-9)
#define MOST_CUTS ((size_t)1 << 26) /* 1 GiB of them; 100 layers on 2 x 8 devices are 2^17 */

struct cut {
  double value; /* slowest (first pass) or total (second) of the stages before; INFINITY: none */
  int begin;    /* of the stage before the cut */
  int class_before; /* of the stage before that one */
};

struct search {
  const struct sl__stage_partitioner *planner;
  int outside;    /* stands for a class where there is no stage: before the first, after the last */
  double *ms;     /* [classes][layers + 1] sums of the layers before */
  double *bytes;  /* [layers + 1] */
  int *limits;    /* [classes] devices worth taking */
  size_t *stride; /* [classes] a set of devices is a number whose digits count each class's */
  size_t sets;
  int *stages; /* [sets] */
  int most_stages;
  struct cut *cuts; /* [layers + 1][sets][classes + 1 before][classes + 1 after] */
  double bound;     /* no stage may be slower */
  bool adding;      /* the second pass */
};

/* ---- the question ----------------------------------------------------------------------------
 */

enum allowed { ANY_LEAST_0, FINITE_LEAST_0, ANY_POSITIVE };

static enum sl_status check(const char *what, enum allowed allowed, const double *values, int begin,
                            int end) {
  static const char *const names[] = {"0 or more", "0 or more, and finite", "more than 0"};
  for (int i = begin; i < end; i++) {
    double v = values[i];
    bool good = allowed == ANY_POSITIVE ? v > 0 : v >= 0;
    if (good && (allowed != FINITE_LEAST_0 || v < INFINITY)) continue;
    return sl__fail(SL_BAD_ARGUMENT, "planner: %s [%d] is %g; it must be %s", what, i, v,
                    names[allowed]);
  }
  return SL_OK;
}

static enum sl_status check_classes(const struct sl__stage_partitioner *planner) {
  enum sl_status status = SL_OK;
  bool devices = false;
  for (int c = 0; c < planner->class_count; c++) {
    const struct sl__stage_partitioner_device_class *class = &planner->classes[c];
    if (class->count < 0)
      return sl__fail(SL_BAD_ARGUMENT, "planner: device class %d has %d devices; give 0 or more", c,
                      class->count);
    devices = devices || class->count > 0;
    SL__TRY(check("a device class's ms", FINITE_LEAST_0, class->ms, 0, planner->layers));
    SL__TRY(check("a device class's memory", ANY_LEAST_0, &class->memory, 0, 1));
  }
  if (!devices) return sl__fail(SL_BAD_ARGUMENT, "planner: no devices; give at least one");
out:
  return status;
}

static enum sl_status check_planner(const struct sl__stage_partitioner *planner) {
  enum sl_status status;
  if (planner->layers < 1)
    return sl__fail(SL_BAD_ARGUMENT, "planner: %d layers; give at least one", planner->layers);
  if (planner->class_count < 1 || planner->class_count > 1024)
    return sl__fail(SL_BAD_ARGUMENT, "planner: %d device classes; give from 1 to 1024",
                    planner->class_count);
  if (planner->most_stages < 0)
    return sl__fail(SL_BAD_ARGUMENT, "planner: at most %d stages; give 1 or more, or 0: no limit",
                    planner->most_stages);
  int pairs = planner->class_count * planner->class_count;
  SL__TRY(check_classes(planner));
  SL__TRY(check("a layer's bytes", FINITE_LEAST_0, planner->bytes, 0, planner->layers));
  SL__TRY(check("cut bytes", FINITE_LEAST_0, planner->cut_bytes, 1, planner->layers));
  SL__TRY(check("bytes per ms", ANY_POSITIVE, planner->bytes_per_ms, 0, pairs));
  SL__TRY(check("latency in ms", FINITE_LEAST_0, planner->latency_ms, 0, pairs));
out:
  return status;
}

/* ---- times ------------------------------------------------------------------------------------
 */

static double transfer_ms(const struct search *search, int layer, int before, int after) {
  const struct sl__stage_partitioner *planner = search->planner;
  if (before == search->outside || after == search->outside) return 0;
  size_t pair = (size_t)before * (size_t)planner->class_count + (size_t)after;
  return planner->cut_bytes[layer] / planner->bytes_per_ms[pair] + planner->latency_ms[pair];
}

static double layers_ms(const struct search *search, int begin, int end, int class) {
  const double *sum = search->ms + (size_t) class * ((size_t)search->planner->layers + 1);
  return sum[end] - sum[begin];
}

/* ---- the search -------------------------------------------------------------------------------
 */

static struct cut *cut_at(const struct search *search, int layer, size_t set, int before,
                          int after) {
  size_t sides = (size_t)search->outside + 1;
  size_t place = (size_t)layer * search->sets + set;
  return &search->cuts[(place * sides + (size_t)before) * sides + (size_t)after];
}

/* Every stage that may begin at this cut, to every cut it may end at. */
static void extend(struct search *search, int begin, size_t set, int before, int class) {
  const struct sl__stage_partitioner *planner = search->planner;
  double value = cut_at(search, begin, set, before, class)->value;
  double entering = transfer_ms(search, begin, before, class);
  for (int end = begin + 1; end <= planner->layers; end++) {
    double ms = entering + layers_ms(search, begin, end, class);
    if (search->bytes[end] - search->bytes[begin] > planner->classes[class].memory) return;
    if (ms > search->bound) return;
    bool last = end == planner->layers;
    for (int after = last ? search->outside : 0; after < search->outside + last; after++) {
      double closed = ms + transfer_ms(search, end, class, after);
      if (closed > search->bound) continue;
      double best = search->adding ? value + closed : fmax(value, closed);
      struct cut *to = cut_at(search, end, set + search->stride[class], class, after);
      if (best >= to->value) continue;
      *to = (struct cut){.value = best, .begin = begin, .class_before = before};
      /* a whole placement this fast is known: slower ones need not be followed */
      if (last && !search->adding && best < search->bound) search->bound = best;
    }
  }
}

static void extend_all(struct search *search, int begin, size_t set) {
  if (search->stages[set] >= search->most_stages) return;
  for (int class = 0; class < search->outside; class ++) {
    size_t taken = set / search->stride[class] % ((size_t)search->limits[class] + 1);
    if (taken >= (size_t)search->limits[class]) continue;
    for (int before = 0; before <= search->outside; before++) {
      double value = cut_at(search, begin, set, before, class)->value;
      if (value < INFINITY && (search->adding || value <= search->bound))
        extend(search, begin, set, before, class);
    }
  }
}

static void pass(struct search *search, bool adding) {
  int layers = search->planner->layers;
  size_t sides = (size_t)search->outside + 1;
  size_t count = ((size_t)layers + 1) * search->sets * sides * sides;
  search->adding = adding;
  for (size_t i = 0; i < count; i++) search->cuts[i].value = INFINITY;
  for (int class = 0; class < search->outside; class ++)
    cut_at(search, 0, 0, search->outside, class)->value = 0;
  for (int begin = 0; begin < layers; begin++)
    for (size_t set = 0; set < search->sets; set++) extend_all(search, begin, set);
}

/* ---- its tables -------------------------------------------------------------------------------
 */

/* A class never gives more devices than there can be stages: this keeps the sets few. */
static enum sl_status count_sets(struct search *search) {
  const struct sl__stage_partitioner *planner = search->planner;
  size_t sides = (size_t)search->outside + 1, cuts = ((size_t)planner->layers + 1) * sides * sides;
  int64_t devices = 0;
  for (int c = 0; c < search->outside; c++) devices += planner->classes[c].count;
  search->most_stages = planner->layers;
  if (devices < search->most_stages) search->most_stages = (int)devices;
  if (planner->most_stages && planner->most_stages < search->most_stages)
    search->most_stages = planner->most_stages;
  search->sets = 1;
  for (int c = 0; c < search->outside && cuts <= MOST_CUTS; c++) {
    int count = planner->classes[c].count;
    search->limits[c] = count < search->most_stages ? count : search->most_stages;
    search->stride[c] = search->sets;
    search->sets *= (size_t)search->limits[c] + 1;
    cuts *= (size_t)search->limits[c] + 1;
  }
  if (cuts <= MOST_CUTS) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "planner: %d layers on %lld devices of %d classes are too many cases to try; put "
                  "devices that are alike in one class, or allow fewer stages",
                  planner->layers, (long long)devices, planner->class_count);
}

static enum sl_status fill_sums(struct search *search) {
  enum sl_status status;
  const struct sl__stage_partitioner *planner = search->planner;
  size_t width = (size_t)planner->layers + 1;
  search->ms = sl__alloc(width * (size_t)search->outside, sizeof *search->ms, "a planner");
  search->bytes = sl__alloc(width, sizeof *search->bytes, "a planner");
  if (!search->ms || !search->bytes) return SL_NO_MEMORY;
  for (int i = 0; i < planner->layers; i++)
    search->bytes[i + 1] = search->bytes[i] + planner->bytes[i];
  for (int c = 0; c < search->outside; c++) {
    double *sum = search->ms + (size_t)c * width;
    for (int i = 0; i < planner->layers; i++) sum[i + 1] = sum[i] + planner->classes[c].ms[i];
    SL__TRY(check("a device class's sum of ms", FINITE_LEAST_0, sum, planner->layers,
                  planner->layers + 1));
  }
  SL__TRY(check("the layers' sum of bytes", FINITE_LEAST_0, search->bytes, planner->layers,
                planner->layers + 1));
out:
  return status;
}

static enum sl_status search_new(const struct sl__stage_partitioner *planner,
                                 struct search *search) {
  enum sl_status status;
  size_t classes = (size_t)planner->class_count, sides = classes + 1;
  *search = (struct search){.planner = planner, .outside = planner->class_count, .bound = INFINITY};
  search->limits = sl__alloc(classes, sizeof *search->limits, "a planner");
  search->stride = sl__alloc(classes, sizeof *search->stride, "a planner");
  if (!search->limits || !search->stride) return SL_NO_MEMORY;
  SL__TRY(count_sets(search));
  SL__TRY(fill_sums(search));
  search->stages = sl__alloc(search->sets, sizeof *search->stages, "a planner");
  search->cuts = sl__alloc(((size_t)planner->layers + 1) * search->sets * sides * sides,
                           sizeof *search->cuts, "a planner");
  if (!search->stages || !search->cuts) return SL_NO_MEMORY;
  for (size_t set = 0; set < search->sets; set++)
    for (size_t c = 0; c < classes; c++)
      search->stages[set] += (int)(set / search->stride[c] % ((size_t)search->limits[c] + 1));
out:
  return status;
}

static void search_clear(struct search *search) {
  free(search->ms);
  free(search->bytes);
  free(search->limits);
  free(search->stride);
  free(search->stages);
  free(search->cuts);
}

/* ---- the result ---------------------------------------------------------------------------
 */

/* Too little memory is the only reason why there is none: every device may take every layer. */
static enum sl_status refuse(const struct search *search, struct sl__stage_partition *planned) {
  const struct sl__stage_partitioner *planner = search->planner;
  double memory = 0, largest = 0;
  int64_t devices = 0;
  for (int c = 0; c < planner->class_count; c++) {
    const struct sl__stage_partitioner_device_class *class = &planner->classes[c];
    if (class->count == 0) continue;
    memory += class->count * class->memory;
    devices += class->count;
    largest = fmax(largest, class->memory);
  }
  planned->nothing_fits = true;
  for (int i = 0; i < planner->layers; i++)
    if (planner->bytes[i] > largest) {
      planned->too_large = i;
      return sl__fail(SL_NO_MEMORY,
                      "layer %d (from 0) alone needs %.0f bytes, the largest device has %.0f; take "
                      "a smaller batch, more microbatches or a larger device",
                      i, planner->bytes[i], largest);
    }
  return sl__fail(SL_NO_MEMORY,
                  "the model needs %.0f bytes, the %lld devices have %.0f in all, and no placement "
                  "in at most %d stages of neighbouring layers fits; take a smaller batch, more "
                  "microbatches or more devices",
                  search->bytes[planner->layers], (long long)devices, memory, search->most_stages);
}

/* The last cut of the best placement: the least total, then the fewest stages. */
static void choose(const struct search *search, size_t *set, int *class) {
  int layers = search->planner->layers, fewest = search->most_stages + 1;
  double least = INFINITY;
  for (size_t s = 0; s < search->sets; s++)
    for (int c = 0; c < search->outside; c++)
      least = fmin(least, cut_at(search, layers, s, c, search->outside)->value);
  for (size_t s = 0; s < search->sets; s++)
    for (int c = 0; c < search->outside; c++) {
      double value = cut_at(search, layers, s, c, search->outside)->value;
      if (value > least * EQUAL || search->stages[s] >= fewest) continue;
      fewest = search->stages[s];
      *set = s;
      *class = c;
    }
}

static enum sl_status planned_new(int stages, struct sl__stage_partition *planned) {
  size_t count = (size_t)stages;
  planned->stages = stages;
  planned->first = sl__alloc(count, sizeof *planned->first, "a placement");
  planned->device_class = sl__alloc(count, sizeof *planned->device_class, "a placement");
  planned->stage_ms = sl__alloc(count, sizeof *planned->stage_ms, "a placement");
  planned->stage_bytes = sl__alloc(count, sizeof *planned->stage_bytes, "a placement");
  bool all = planned->first && planned->device_class && planned->stage_ms && planned->stage_bytes;
  return all ? SL_OK : SL_NO_MEMORY;
}

/* Back from the last cut to the first. */
static enum sl_status trace(const struct search *search, struct sl__stage_partition *planned) {
  size_t set = 0;
  int class = 0, after = search->outside, end = search->planner->layers;
  choose(search, &set, &class);
  enum sl_status status = planned_new(search->stages[set], planned);
  if (status != SL_OK) return status;
  for (int s = planned->stages - 1; s >= 0; s--) {
    const struct cut *cut = cut_at(search, end, set, class, after);
    planned->first[s] = cut->begin;
    planned->device_class[s] = class;
    planned->stage_ms[s] = transfer_ms(search, cut->begin, cut->class_before, class) +
                           layers_ms(search, cut->begin, end, class) +
                           transfer_ms(search, end, class, after);
    planned->stage_bytes[s] = search->bytes[end] - search->bytes[cut->begin];
    planned->slowest_ms = fmax(planned->slowest_ms, planned->stage_ms[s]);
    planned->total_ms += planned->stage_ms[s];
    set -= search->stride[class];
    end = cut->begin;
    after = class;
    class = cut->class_before;
  }
  return SL_OK;
}

enum sl_status sl__stage_partitioner_plan(const struct sl__stage_partitioner *planner,
                                          struct sl__stage_partition *planned) {
  struct search search = {0};
  enum sl_status status;
  *planned = (struct sl__stage_partition){.too_large = -1};
  SL__TRY(check_planner(planner));
  SL__TRY(search_new(planner, &search));
  pass(&search, false);
  if (search.bound == INFINITY) SL__TRY(refuse(&search, planned));
  search.bound *= EQUAL;
  pass(&search, true);
  SL__TRY(trace(&search, planned));
out:
  search_clear(&search);
  if (status != SL_OK) {
    int too_large = planned->too_large;
    bool nothing_fits = planned->nothing_fits;
    sl__stage_partition_clear(planned);
    planned->too_large = too_large;
    planned->nothing_fits = nothing_fits;
  }
  return status;
}

void sl__stage_partition_clear(struct sl__stage_partition *planned) {
  free(planned->first);
  free(planned->device_class);
  free(planned->stage_ms);
  free(planned->stage_bytes);
  *planned = (struct sl__stage_partition){.too_large = -1};
}
