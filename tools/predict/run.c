/* From the inputs' names to the last answer: files of folders, how they are prepared, the requests,
 * the summary. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/predict/predict.h"

/* ---- inputs ---- */

void add_input(struct program *p, const char *name) {
  p->inputs = reallocarray(p->inputs, (size_t)p->input_count + 1, sizeof *p->inputs);
  char *copy = strdup(name);
  if (!p->inputs || !copy) exit(fail_memory());
  p->inputs[p->input_count++] = copy;
}

static bool is_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The first of the names that the folder has, added as an input. */
static bool add_from(struct program *p, const char *folder, const char *const *names) {
  char path[PATH_MAX];
  for (int i = 0; names[i]; i++) {
    int length = snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    if (length >= PATH_MAX || access(path, F_OK) != 0) continue;
    add_input(p, path);
    return true;
  }
  return false;
}

static bool add_cifar10(struct program *p, const char *folder) {
  char names[2][64];
  bool any = false;
  for (int f = 1; f <= 5; f++) {
    const char *file = p->images.train ? "data_batch_%d.bin" : "test_batch.bin";
    char name[32];
    snprintf(name, sizeof name, file, f);
    snprintf(names[0], sizeof names[0], "%s", name);
    snprintf(names[1], sizeof names[1], "cifar-10-batches-bin/%s", name);
    any |= add_from(p, folder, (const char *const[]){names[0], names[1], NULL});
    if (!p->images.train) break;
  }
  return any;
}

static int add_folder(struct program *p, const char *folder) {
  static const char *const mnist[][3] = {
      {"t10k-images-idx3-ubyte", "t10k-images-idx3-ubyte.gz", NULL},
      {"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz", NULL}};
  /* these two are read piece by piece, so that a set may be larger than the memory */
  if (add_from(p, folder, mnist[p->images.train]) || add_cifar10(p, folder)) return EXIT_DONE;
  if (sl_dataset_detect(folder)) {
    add_input(p, folder);
    return EXIT_DONE;
  }
  return fail(EXIT_FAILED,
              "%s: holds neither MNIST's %s set (%s) nor CIFAR-10's; is it the right folder?",
              folder, p->images.train ? "training" : "test", mnist[p->images.train][0]);
}

int find_inputs(struct program *p) {
  char **names = p->inputs;
  int count = p->input_count, code = EXIT_DONE;
  p->inputs = NULL;
  p->input_count = 0;
  for (int i = 0; i < count && code == EXIT_DONE; i++) {
    if (is_folder(names[i]))
      code = add_folder(p, names[i]);
    else if (!strcmp(names[i], "-") || is_dataset(names[i]) || access(names[i], R_OK) == 0)
      add_input(p, names[i]);
    else
      code = fail(EXIT_FAILED, "%s: cannot be opened: %s", names[i], strerror(errno));
  }
  for (int i = 0; i < count; i++) free(names[i]);
  free(names);
  return code;
}

/* ---- how inputs are prepared ---- */

static void set_normal(struct preparation *how, int count, const float *mean,
                       const float *deviation) {
  for (int c = 0; c < 3; c++) {
    how->mean[c] = mean[count == 3 ? c : 0];
    how->deviation[c] = deviation[count == 3 ? c : 0];
  }
  how->known = true;
}

static const float mnist[2] = {0.1307f, 0.3081f};
static const float cifar10[2][3] = {{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}};

static void set_named(struct preparation *how, const char *name) {
  static const float none[2] = {0, 1};
  if (!strcmp(name, "mnist")) set_normal(how, 1, &mnist[0], &mnist[1]);
  if (!strcmp(name, "cifar10")) set_normal(how, 3, cifar10[0], cifar10[1]);
  if (!strcmp(name, "none")) set_normal(how, 1, &none[0], &none[1]);
}

static int set_given(struct program *p, struct preparation *how) {
  int64_t channels = how->shape.dim[0];
  const struct numbers none = {{0}, 1}, one = {{1}, 1};
  const struct numbers *lists[2] = {p->mean.count ? &p->mean : &none,
                                    p->deviation.count ? &p->deviation : &one};
  float values[2][3];
  for (int k = 0; k < 2; k++) {
    if (lists[k]->count != 1 && lists[k]->count != channels)
      return fail(EXIT_USAGE, "--mean, --deviation: %d numbers, but the model has %lld channels",
                  lists[k]->count, (long long)channels);
    for (int c = 0; c < 3; c++) values[k][c] = lists[k]->value[lists[k]->count == 1 ? 0 : c];
  }
  set_normal(how, 3, values[0], values[1]);
  return EXIT_DONE;
}

/* The usual sets' shapes; said, because it is a guess. */
static int set_usual(struct program *p, struct preparation *how) {
  const char *name = sl_shape_equal(&how->shape, &SL_SHAPE(1, 28, 28))   ? "mnist"
                     : sl_shape_equal(&how->shape, &SL_SHAPE(3, 32, 32)) ? "cifar10"
                                                                         : NULL;
  if (!name)
    return fail(EXIT_FAILED,
                "%s: does not say how its inputs were normalised; give --normalize, or --mean and "
                "--deviation",
                p->engine.model);
  set_named(how, name);
  if (!p->quiet)
    fprintf(stderr,
            "starling-predict: %s does not say how its inputs were normalised; taken as %s's\n",
            p->engine.model, name);
  return EXIT_DONE;
}

static int plan_images(struct program *p, const struct engine *engine) {
  struct preparation *how = &p->images.preparation;
  const struct sl_model_notes *notes = sl_model_notes(engine->model);
  how->shape = engine->input;
  how->pictures = how->shape.ndim == 3 && (how->shape.dim[0] == 1 || how->shape.dim[0] == 3);
  if (!how->pictures || p->images.format == FORMAT_RAW) return EXIT_DONE;
  if (p->mean.count || p->deviation.count) return set_given(p, how);
  if (p->normalize)
    set_named(how, p->normalize);
  else if (notes->channels)
    set_normal(how, notes->channels, notes->mean, notes->deviation);
  return how->known ? EXIT_DONE : set_usual(p, how);
}

/* ---- pictures and numbers ---- */

static bool room_for(struct slot *slot, int64_t n, int64_t inputs, int64_t outputs) {
  if (slot->inputs) return true;
  slot->inputs = calloc((size_t)(n * inputs), sizeof(float));
  slot->outputs = calloc((size_t)(n * outputs), sizeof(float));
  slot->origins = calloc((size_t)n, sizeof *slot->origins);
  return slot->inputs && slot->outputs && slot->origins;
}

struct filler {
  struct engine *engine;
  struct flow *flow;
  struct slot *slot; /* being filled; NULL: none */
  int64_t most, values;
};

static int send(struct filler *f) {
  struct slot *slot = f->slot;
  f->slot = NULL;
  if (!slot || !slot->n) return EXIT_DONE;
  return flow_send(f->flow, slot) ? EXIT_DONE : EXIT_FAILED;
}

/* Every sample of one input; requests go on over several inputs. */
static int fill(struct filler *f, const struct image_options *options, const char *path) {
  struct images *images = images_open(options, path);
  int code = images ? EXIT_DONE : EXIT_FAILED;
  while (code == EXIT_DONE) {
    struct slot *slot = f->slot;
    if (!slot) {
      slot = f->slot = flow_slot(f->flow, 0);
      if (!slot) code = EXIT_FAILED_QUIETLY;
      if (slot && !room_for(slot, f->most, f->values, f->engine->outputs)) code = fail_memory();
      if (code != EXIT_DONE) break;
      slot->predictor = f->engine->predictor;
      slot->n = 0;
    }
    float *values = (float *)slot->inputs + slot->n * f->values;
    if (!images_next(images, values, &slot->origins[slot->n], &code)) break;
    if (++slot->n == f->most) code = send(f);
  }
  images_close(images);
  return code;
}

static int run_images(struct program *p, struct engine *engine, struct flow *flow) {
  int64_t most = p->engine.predictor.max_batch;
  struct filler f = {.engine = engine,
                     .flow = flow,
                     .most = most ? most : 64,
                     .values = sl_shape_count(&engine->input)};
  int code = EXIT_DONE;
  for (int i = 0; i < p->input_count && code == EXIT_DONE; i++)
    code = fill(&f, &p->images, p->inputs[i]);
  int last = send(&f); /* what was read before a failure is answered */
  return code != EXIT_DONE ? code : last;
}

/* ---- text ---- */

static int open_vocabulary(const struct program *p, const struct engine *engine,
                           struct sl_vocabulary **vocabulary) {
  char path[PATH_MAX];
  if (p->text.tokens) return EXIT_DONE;
  snprintf(path, sizeof path, "%s.vocabulary.json", engine->options->model);
  if (p->text.vocabulary) snprintf(path, sizeof path, "%s", p->text.vocabulary);
  enum sl_status status = sl_vocabulary_load(path, vocabulary);
  if (status == SL_IO)
    return fail(EXIT_FAILED,
                "%s; --vocabulary names the model's words, --format tokens does without",
                sl_error());
  if (status != SL_OK) return fail_library(status);
  if (sl_vocabulary_size(*vocabulary) == engine->words) return EXIT_DONE;
  return fail(
      EXIT_FAILED, "%s: has %lld words, but the model %s has %lld; are they of one training?", path,
      (long long)sl_vocabulary_size(*vocabulary), engine->options->model, (long long)engine->words);
}

static int run_text(struct program *p, struct engine *engine, const struct sl_vocabulary *words,
                    struct flow *flow) {
  int code = EXIT_DONE;
  for (int i = 0; i < p->input_count && code == EXIT_DONE; i++)
    code = text_run(engine, &p->text, words, p->inputs[i], flow);
  return code;
}

/* ---- the run ---- */

/* As in the model's notes: the last dimension that is not 1, of [10] and of [10, 1, 1]. */
static int64_t count_classes(const struct sl_shape *output) {
  int last = output->ndim - 1;
  while (last > 0 && output->dim[last] == 1) last--;
  return output->dim[last];
}

static int check_output(const struct program *p, const struct engine *engine) {
  char text[96];
  const struct sl_shape *output = sl_model_output(engine->model);
  sl_shape_text(output, text, sizeof text);
  bool one = count_classes(output) == sl_shape_count(output);
  if (engine->tokens && (output->ndim != 2 || output->dim[1] != engine->words))
    return fail(EXIT_FAILED, "%s: its output %s is not a choice of %lld words for each token",
                p->engine.model, text, (long long)engine->words);
  if (!engine->tokens && !one)
    return fail(EXIT_FAILED, "%s: its output %s is no list of classes", p->engine.model, text);
  bool text_wanted = p->images.format == FORMAT_TEXT || p->images.format == FORMAT_TOKENS;
  if (engine->tokens && p->images.format != FORMAT_AUTO && !text_wanted)
    return fail(EXIT_USAGE, "--format: %s is a language model; text and tokens are what it reads",
                p->engine.model);
  if (!engine->tokens && text_wanted)
    return fail(EXIT_USAGE, "--format: %s is no language model: it reads no text", p->engine.model);
  return EXIT_DONE;
}

/* Requests under way: enough for all devices, within some memory. */
static int count_slots(const struct program *p, const struct engine *engine) {
  const int64_t budget = 256 << 20;
  int workers = sl_worker_count(engine->context);
  int64_t most = p->engine.predictor.max_batch ? p->engine.predictor.max_batch : 64;
  int64_t lanes = p->engine.predictor.batches ? p->engine.predictor.batches : 2 * workers;
  int64_t wanted = engine->tokens ? most * lanes : lanes + 2;
  if (engine->tokens) return (int)(wanted < 256 ? wanted : 256); /* the flow sees to the memory */
  int64_t bytes = 4 * most * (sl_shape_count(&engine->input) + engine->outputs);
  int64_t fits = budget / bytes;
  if (fits < 3) fits = 3;
  return (int)(wanted < fits ? wanted : fits);
}

static void print_summary(const struct printer *done, bool text, double seconds) {
  double rate = (double)done->samples / (seconds > 0 ? seconds : 1e-9);
  const char *what = text ? "lines" : "samples";
  fprintf(stderr, "%lld %s", (long long)done->samples, what);
  if (text)
    fprintf(stderr, ", %lld tokens, perplexity %.3f", (long long)done->tokens,
            exp(-done->log_likelihood / (double)(done->tokens ? done->tokens : 1)));
  if (done->labelled == done->samples && done->labelled)
    fprintf(stderr, ", accuracy %.4f", (double)done->right / (double)done->labelled);
  else if (done->labelled)
    fprintf(stderr, ", accuracy %.4f of %lld with labels",
            (double)done->right / (double)done->labelled, (long long)done->labelled);
  fprintf(stderr, ", %.0f %s/s\n", rate, what);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int answer(struct program *p, struct engine *engine) {
  struct sl_vocabulary *vocabulary = NULL;
  const struct sl_shape *output = sl_model_output(engine->model);
  struct printer printer = {.notes = sl_model_notes(engine->model),
                            .classes = engine->tokens ? engine->words : count_classes(output),
                            .top = p->top,
                            .logits = p->logits};
  struct flow *flow = NULL;
  double begun = now();
  int code = check_output(p, engine);
  if (code == EXIT_DONE)
    code = engine->tokens ? open_vocabulary(p, engine, &vocabulary) : plan_images(p, engine);
  if (code == EXIT_DONE && !engine->tokens) code = engine_predictor(engine);
  printer.vocabulary = vocabulary;
  if (printer.top > printer.classes) printer.top = (int)printer.classes;
  if (code == EXIT_DONE) {
    printer.probabilities = calloc((size_t)printer.classes, sizeof *printer.probabilities);
    flow = printer.probabilities ? flow_open(count_slots(p, engine),
                                             engine->tokens ? print_line : print_images, &printer)
                                 : NULL;
    code = flow ? EXIT_DONE : fail_memory();
  }
  if (flow) {
    code = engine->tokens ? run_text(p, engine, vocabulary, flow) : run_images(p, engine, flow);
    int end = flow_close(flow);
    /* a reader of the output that has gone hides no failure */
    if (code == EXIT_DONE || code == EXIT_FAILED_QUIETLY) code = end != EXIT_DONE ? end : code;
  }
  if (code == EXIT_DONE) code = print_end();
  if (code == EXIT_DONE && !p->quiet) print_summary(&printer, engine->tokens, now() - begun);
  free(printer.probabilities);
  sl_vocabulary_free(vocabulary);
  return code;
}
